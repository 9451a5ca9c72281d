//! The lease row changed by others: deleted, taken, or left behind by a crash.

use std::time::Duration;

use lanekeeper_broker::wait_until;
use lanekeeper_provision::SpaceSettings;
use lanekeeper_wire::{StreamKind, subject};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    support::{Crew, PATIENCE, Power, World, crew},
    watchers::{free, held, logged},
};

const FOREIGN: &str = r#"{"holder":"local.other","incarnation":"other-run","since":1,"ready":true}"#;
/// How soon a lane must notice that its lease is another's.
const NOTICED: Duration = Duration::from_secs(5);

/// Keeps the foreign row alive, as its holder would.
fn keep_foreign(power: &Power) -> AbortOnDropHandle<()> {
    let power = power.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            power.write_lease(FOREIGN).await;
            sleep(Duration::from_millis(200)).await;
        }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_deleted_by_hand_is_claimed_again_by_the_same_run() {
    let world = World::new().await;
    let power = world.power().await;
    let daemon = world.daemon().await;
    let crew = Crew::join(&world, 2, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let before = held(&power).await;
    crew::post(&sender, &crew.channel, 0..10).await;
    power.delete_lease().await;
    let again = async || power.lease_row().await.filter(|row| row.ready);
    let again = wait_until("the lease claimed again", NOTICED, again).await.unwrap();
    assert_eq!(again, before);
    crew::post(&sender, &crew.channel, 10..20).await;
    let tally = crew.complete(20).await;
    assert_eq!((tally.lost, tally.duplicated, tally.out_of_order), (0, 0, 0), "{tally:?}");
    daemon.stop().await;
    crew.close().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_taken_by_another_silences_the_lane_until_it_is_free_again() {
    let world = World::new().await;
    let power = world.power().await;
    let daemon = world.daemon().await;
    let crew = Crew::join(&world, 2, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let pid = daemon.pid();
    let foreign = keep_foreign(&power);
    logged(&daemon, "the lease was taken by `local.other` (run other-run)", NOTICED).await;
    crew::post(&sender, &crew.channel, 0..20).await;
    // Twice the lease's life: a lane that went on would have shown itself by now.
    sleep(Duration::from_secs(4)).await;
    let (space, inbox) = (&world.site.space, StreamKind::Inbox.name(&world.site.space));
    assert_eq!(world.site.held(&inbox, &subject::dinbox_filter(space)).await.unwrap(), 0);
    assert_eq!(crew.received(), 0);
    assert_eq!(power.lease_row().await.unwrap().incarnation, "other-run");
    drop(foreign);
    let tally = crew.complete(20).await;
    assert_eq!((tally.lost, tally.duplicated, tally.out_of_order), (0, 0, 0), "{tally:?}");
    assert_eq!((daemon.pid(), held(&power).await.holder.as_str()), (pid, "local.delivery"));
    daemon.stop().await;
    crew.close().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_daemon_never_touches_its_successors_row() {
    let settings = SpaceSettings { lease_ttl: Duration::from_secs(20), ..SpaceSettings::default() };
    for after_ms in [0, 50, 500] {
        let world = World::with(settings.clone()).await;
        let power = world.power().await;
        let mut daemon = world.daemon().await;
        held(&power).await;
        power.write_lease(FOREIGN).await;
        let taken = power.lease().await.unwrap();
        sleep(Duration::from_millis(after_ms)).await;
        daemon.signal(Signal::TERM);
        assert!(daemon.ended(PATIENCE).await.success(), "{}", daemon.log_text());
        assert_eq!(power.lease().await.unwrap(), taken, "{after_ms} ms after the takeover");
        world.assert_no_violations();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_written_over_a_release_still_expires() {
    let world = World::new().await;
    let power = world.power().await;
    world.daemon().await.stop().await;
    let released = power.lease().await.expect("the marker of a release");
    assert_eq!(released.row(), None);
    let daemon = world.daemon().await;
    assert!(power.lease().await.unwrap().revision > released.revision);
    daemon.kill().await;
    let killed = Instant::now();
    free(&power, Duration::from_secs(2) + NOTICED).await;
    eprintln!("the row of a killed daemon was gone after {:?}", killed.elapsed());
    world.daemon().await.stop().await;
    world.assert_no_violations();
}
