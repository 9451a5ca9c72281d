//! A member whose broker goes away: what resumes by itself, what ends, and within which time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::FromConsumer;
use async_nats::jetstream::consumer::pull::Config;
use common::{Bench, QUIET, WAIT, frame, hand_over};
use lanekeeper_broker::wait_until;
use lanekeeper_peer::{Binding, ConnectError, Creds, CredsFault, Peer, PostDraft, Via};
use lanekeeper_wire::{Channel, Lifecycle, Plane, StreamKind, names, subject};
use tokio::time::Instant;

/// Shorter than the silence after which a pull is replaced anyway: what takes less was resumed by the reconnect.
const RESUMED: Duration = Duration::from_secs(7);

fn team() -> Channel {
    "team".parse().unwrap()
}

async fn reconnected(peers: &[&Peer]) {
    wait_until("all members to be back", WAIT, || async {
        peers.iter().all(|peer| peer.is_connected() && peer.counters().connects >= 2).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn live_and_durable_resume_after_a_broker_restart() {
    let mut bench = Bench::start().await;
    let (ada, bob) = (bench.join_space("ada", &["team"]).await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    bob.join(&team()).await.unwrap();
    bob.wait_bound(WAIT).await;
    for round in 1..=2 {
        bench.broker.kill().await.unwrap();
        bench.broker.restart().await.unwrap();
        wait_until("both members to be back", WAIT, || async {
            [&ada, &bob].iter().all(|peer| peer.is_connected() && peer.counters().connects > round).then_some(())
        })
        .await
        .unwrap();
        // Connected comes before the subscriptions are sent again; an answer on the same connection comes after.
        bob.probe(Plane::Delivery).await;
        let started = Instant::now();
        let posted = ada.post(&team(), PostDraft::text("live again")).await.unwrap();
        let heard = to_bob.recv_within(WAIT).await.unwrap();
        assert_eq!((heard.via, heard.message.id()), (Via::Live, posted.id.as_str()));

        let daemon = bench.delivery().await;
        hand_over(&daemon, &bob, frame("local.ada", &format!("kept{round}"), "durable again"), true).await;
        let copy = to_bob.recv_within(WAIT).await.unwrap();
        assert!(copy.via.is_durable());
        copy.ack().await.unwrap();
        assert!(started.elapsed() < RESUMED, "resuming took {:?}", started.elapsed());
    }
    bob.set_status(lanekeeper_peer::Status::Working, None).await.unwrap();
    assert_eq!(bob.violations(), []);
    bob.close().await.unwrap();
}

#[tokio::test]
async fn a_forced_reconnect_loses_nothing() {
    let bench = Bench::start().await;
    let (daemon, bob) = (bench.delivery().await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    bob.wait_bound(WAIT).await;
    assert!(bob.force_reconnect().await);
    reconnected(&[&bob]).await;
    hand_over(&daemon, &bob, frame("local.ada", "m1", "x"), true).await;
    let started = Instant::now();
    assert_eq!(to_bob.recv_within(WAIT).await.unwrap().message.id(), "m1");
    assert!(started.elapsed() < RESUMED, "the pull was only resumed after {:?}", started.elapsed());
}

/// The hand-over consumer of a member, taken away.
async fn take_consumer(bench: &Bench, lifecycle: &Lifecycle) -> (Context, Config) {
    let js = async_nats::jetstream::new(bench.provisioner.clone());
    let (durable, stream) = (names::dlv_durable(lifecycle), StreamKind::Dlv.name(bench.space()));
    let made = js.get_consumer_from_stream::<Config, _, _>(&durable, &stream).await.unwrap();
    let config = Config::try_from_consumer_config(made.cached_info().config.clone()).unwrap();
    js.delete_consumer_from_stream(&durable, &stream).await.unwrap();
    (js, config)
}

#[tokio::test]
async fn a_consumer_that_appears_late_is_bound() {
    let bench = Bench::start().await;
    let options = bench.member("bob", &["team"]).await;
    let (js, config) = take_consumer(&bench, &options.lifecycle).await;
    let stream = StreamKind::Dlv.name(bench.space());
    let bob = Peer::connect(options).await.unwrap();
    let mut to_bob = bob.messages().unwrap();
    let unbound = bob.wait_bound(Duration::from_millis(300)).await;
    assert!(matches!(unbound, Binding::Unbound { .. }), "{unbound:?}");
    js.create_consumer_strict_on_stream(config.clone(), &stream).await.unwrap();
    assert_eq!(bob.wait_bound(WAIT).await, Binding::Bound);

    // And one that is made anew while it is bound.
    take_consumer(&bench, bob.lifecycle()).await;
    js.create_consumer_strict_on_stream(config, &stream).await.unwrap();
    let daemon = bench.delivery().await;
    hand_over(&daemon, &bob, frame("local.ada", "m1", "x"), true).await;
    assert_eq!(to_bob.recv_within(WAIT).await.unwrap().message.id(), "m1");
}

#[tokio::test]
async fn a_consumer_of_somebody_else_is_refused_also_when_it_takes_the_place_of_ones_own() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    assert_eq!(bob.wait_bound(WAIT).await, Binding::Bound);
    let eve = bench.member("eve", &["team"]).await;
    // Its own consumer would overlap in a work queue.
    take_consumer(&bench, &eve.lifecycle).await;
    let (js, mut config) = take_consumer(&bench, bob.lifecycle()).await;
    config.filter_subject = subject::dlv(bench.space(), &eve.lifecycle);
    js.create_consumer_strict_on_stream(config, StreamKind::Dlv.name(bench.space())).await.unwrap();
    wait_until("the refusal", WAIT, || async { matches!(bob.binding(), Binding::Refused { .. }).then_some(()) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_credential_file_is_read_at_every_dial_and_must_stay_the_same_member() {
    let bench = Bench::start().await;
    let (bobs, eves) = (bench.member("bob", &["team"]).await, bench.member("eve", &["team"]).await);
    let path = bench.dir.path().join("bob.creds");
    let write = |creds: &str| std::fs::write(&path, creds).unwrap();
    let own = bench.creds_text(&bobs);
    write(&own);
    let mut options = bobs;
    options.creds = Creds::path(&path);
    options.reconnect_delay = (Duration::from_millis(5), Duration::from_millis(10));
    let bob = Peer::connect(options).await.unwrap();
    write(&bench.creds_text(&eves));
    assert!(bob.force_reconnect().await);
    let presented = wait_until("another member's credential to be presented", QUIET, || async {
        (bob.counters().connects >= 2).then_some(())
    });
    assert!(presented.await.is_err() && !bob.is_connected(), "another member's credential was presented");
    write(&own);
    reconnected(&[&bob]).await;
}

#[tokio::test]
async fn closing_ends_everything_also_without_a_broker() {
    let mut bench = Bench::start().await;
    let (ada, bob) = (bench.join_space("ada", &["team"]).await, bench.join_space("bob", &["team"]).await);
    let (mut to_ada, mut to_bob) = (ada.messages().unwrap(), bob.messages().unwrap());
    for peer in [&ada, &bob] {
        peer.join(&team()).await.unwrap();
    }
    ada.close().await.unwrap();
    assert!(to_ada.recv().await.is_none());

    bench.broker.kill().await.unwrap();
    wait_until("bob to notice", WAIT, || async { (!bob.is_connected()).then_some(()) }).await.unwrap();
    let started = Instant::now();
    bob.close().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "closing took {:?}", started.elapsed());
    assert!(to_bob.recv().await.is_none());
}

#[tokio::test]
async fn dials_are_bounded_and_the_end_is_seen() {
    let mut bench = Bench::start().await;
    let mut options = bench.member("bob", &["team"]).await;
    options.max_reconnects = 3;
    options.reconnect_delay = (Duration::from_millis(20), Duration::from_millis(40));
    let bob = Peer::connect(options).await.unwrap();
    let mut to_bob = bob.messages().unwrap();
    bench.broker.kill().await.unwrap();
    let end = tokio::time::timeout(WAIT, to_bob.recv()).await.unwrap();
    assert!(end.is_none() && bob.is_cut_off(), "a member that is cut off must not wait for ever");
    assert!(bob.join(&team()).await.is_err());
    bob.close().await.unwrap();
}

#[tokio::test]
async fn a_credential_of_another_space_or_of_nobody_is_refused() {
    let bench = Bench::start().await;
    let mut options = bench.member("bob", &["team"]).await;
    options.creds = Creds::path(bench.dir.path().join("absent.creds"));
    let fault = Peer::connect(options.clone()).await.unwrap_err();
    assert!(matches!(fault, ConnectError::Creds(CredsFault::Unreadable { .. })), "{fault}");

    let other = Bench::start().await;
    options.creds = other.member("bob", &["team"]).await.creds;
    let fault = Peer::connect(options).await.unwrap_err();
    assert!(matches!(fault, ConnectError::Broker { .. }), "{fault}");
}
