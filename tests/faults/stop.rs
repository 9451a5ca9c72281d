//! Signals: a clean end at any moment, the lease gone at once, and what was in hand back for the next daemon.

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use lanekeeper_broker::{Relay, wait_until};
use lanekeeper_wire::{StreamKind, subject};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{
    support::{Crew, Daemon, PATIENCE, World, crew},
    watchers::held,
};

/// The longest a daemon that is asked to stop while it starts may take.
const STOP: Duration = Duration::from_secs(5);
/// The longest a stop may take when the broker answers nothing any more: a bound for each of its steps.
const STOP_IN_SILENCE: Duration = Duration::from_secs(15);
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

#[tokio::test(flavor = "multi_thread")]
async fn both_signals_release_the_lease_by_its_revision() {
    let world = World::new().await;
    let power = world.power().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = world.daemon().await;
        let before = power.lease().await.unwrap();
        assert!(before.row().unwrap().ready);
        daemon.signal(signal);
        let status = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}\n{}", daemon.log_text());
        let after = power.lease().await.expect("the marker of a release");
        assert_eq!(after.row(), None, "{after:?}");
        assert_eq!(after.headers.get("KV-Operation").unwrap().as_str(), "DEL");
        let expected: u64 = after.headers.get(EXPECTED).expect("a compare-and-swap").as_str().parse().unwrap();
        assert!(before.revision <= expected && expected < after.revision, "{before:?} {after:?}");
        // Refused if the lease were not free, as it does not stand by.
        world.daemon().await.stop().await;
    }
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_moment_of_the_start_leaves_no_lease() {
    let world = World::new().await;
    let power = world.power().await;
    for after_ms in [0, 10, 50, 100, 250, 500] {
        let writes = power.lease_writes().await;
        let mut daemon = Daemon::start(&world.site, &world.site.url, &world.log(), &[]);
        sleep(Duration::from_millis(after_ms)).await;
        daemon.signal(Signal::TERM);
        let status = daemon.ended(STOP).await;
        // Before the handlers are in place the signal ends the process by itself, and nothing was claimed by then.
        let at_birth = status.signal() == Some(Signal::TERM.as_raw()) && power.lease_writes().await == writes;
        assert!(status.success() || at_birth, "after {after_ms} ms: {status}\n{}", daemon.log_text());
        assert_eq!(power.lease_row().await, None, "after {after_ms} ms");
    }
    world.daemon().await.stop().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_right_behind_the_claim_releases_it() {
    let world = World::new().await;
    let power = world.power().await;
    for _ in 0..5 {
        let writes = power.lease_writes().await;
        let mut daemon = Daemon::start(&world.site, &world.site.url, &world.log(), &[]);
        let claimed = async || (power.lease_writes().await > writes).then_some(());
        wait_until("the claim", PATIENCE, claimed).await.unwrap();
        daemon.signal(Signal::TERM);
        let status = daemon.ended(STOP).await;
        assert!(status.success(), "{status}\n{}", daemon.log_text());
        assert_eq!(power.lease_row().await, None);
    }
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_a_dial_that_nobody_answers_ends_at_once() {
    let world = World::new().await;
    let relay = Relay::start(world.mesh.broker.addr()).await.unwrap();
    relay.freeze();
    let mut daemon = Daemon::start(&world.site, &relay.url(), &world.log(), &[]);
    wait_until("the dial", PATIENCE, async || (relay.accepted() > 0).then_some(())).await.unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ended(STOP).await.success(), "{}", daemon.log_text());
    assert_eq!(world.power().await.lease_writes().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_a_silent_broker_is_bounded_and_its_lease_expires() {
    let world = World::new().await;
    let power = world.power().await;
    let relay = Relay::start(world.mesh.broker.addr()).await.unwrap();
    let mut daemon = Daemon::start(&world.site, &relay.url(), &world.log(), &[]);
    daemon.wait_serving().await;
    held(&power).await;
    relay.freeze();
    daemon.signal(Signal::TERM);
    let asked = Instant::now();
    let status = daemon.ended(STOP_IN_SILENCE).await;
    eprintln!("stop with a silent broker: {status} after {:?}", asked.elapsed());
    crate::watchers::free(&power, PATIENCE).await;
    world.daemon().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_mid_flow_hands_over_what_it_held() {
    const MEMBERS: usize = 20;
    const POSTS: usize = 200;
    let world = World::new().await;
    // The ack wait is a minute: what is not handed back does not come within the patience of this test.
    let daemon = world.daemon().await;
    let crew = Crew::join(&world, MEMBERS, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    daemon.stop().await;
    crew::post(&sender, &crew.channel, 0..POSTS).await;
    let daemon = world.daemon().await;
    crew.wait_received(50).await.unwrap();
    daemon.stop().await;
    // Whatever it handed over arrives; what comes after that comes from its replacement.
    let (space, dlv) = (&world.site.space, StreamKind::Dlv.name(&world.site.space));
    world.wait_empty(&dlv, &subject::dlv_filter(space)).await;
    let before = crew.received();
    assert!(before < MEMBERS * POSTS, "it had nothing left to hand over");
    let started = Instant::now();
    let daemon = world.daemon().await;
    crew.wait_received(before + 1).await.unwrap();
    let first = started.elapsed();
    let tally = crew.complete(POSTS).await;
    eprintln!("{before} copies before the stop, the next {first:?} after it, all after {:?}", started.elapsed());
    assert!(first < Duration::from_secs(20), "{first:?}");
    assert_eq!((tally.lost, tally.duplicated), (0, 0), "{tally:?}");
    eprintln!("{tally:?}");
    daemon.stop().await;
    crew.close().await;
    world.assert_no_violations();
}
