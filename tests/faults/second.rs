//! A second daemon on a space: refused by name, or standing by until the lease is free.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    support::{Crew, Daemon, PATIENCE, World, crew},
    watchers::{held, last_words, logged},
};

/// How often a standby asks at most, and a margin for a busy machine.
const STANDBY_ASKS: Duration = Duration::from_secs(15);
/// The lease's life in these tests.
const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_is_refused_by_name_and_the_first_undisturbed() {
    let world = World::new().await;
    let first = world.daemon().await;
    let power = world.power().await;
    let crew = Crew::join(&world, 2, "team").await;
    let before = held(&power).await;
    let mut second = Daemon::start(&world.site, &world.site.url, &world.log_named("second"), &[]);
    let status = second.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{status}");
    let words = last_words(&second);
    for part in ["space `demo`", "lease", "`local.delivery`", &before.incarnation, "stop that daemon", "[LANE-401]"] {
        assert!(words.contains(part), "{words} does not say {part}");
    }
    assert!(!second.log_text().contains("joined"), "{}", second.log_text());
    let after = held(&power).await;
    assert_eq!((after.incarnation, after.since), (before.incarnation, before.since));
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    crew::post(&sender, &crew.channel, 0..20).await;
    let tally = crew.complete(20).await;
    assert_eq!((tally.lost, tally.duplicated, tally.out_of_order), (0, 0, 0), "{tally:?}");
    first.stop().await;
    crew.close().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_as_soon_as_the_first_has_stopped() {
    let world = World::new().await;
    let first = world.daemon().await;
    let power = world.power().await;
    let mut standby = Daemon::start(&world.site, &world.site.url, &world.log_named("standby"), &["--standby"]);
    logged(&standby, "standing by", PATIENCE).await;
    let before = held(&power).await;
    first.stop().await;
    let stopped = Instant::now();
    standby.wait_serving().await;
    let took = stopped.elapsed();
    assert!(took < STANDBY_ASKS, "{took:?}");
    assert_ne!(held(&power).await.incarnation, before.incarnation);
    standby.stop().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_once_the_lease_of_a_killed_daemon_has_expired() {
    let world = World::new().await;
    let first = world.daemon().await;
    let power = world.power().await;
    let crew = Crew::join(&world, 2, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let mut standby = Daemon::start(&world.site, &world.site.url, &world.log_named("standby"), &["--standby"]);
    logged(&standby, "standing by", PATIENCE).await;
    let before = held(&power).await;
    first.kill().await;
    let killed = Instant::now();
    crew::post(&sender, &crew.channel, 0..20).await;
    standby.wait_serving().await;
    let took = killed.elapsed();
    assert!(took < LEASE + STANDBY_ASKS, "{took:?}");
    assert_ne!(held(&power).await.incarnation, before.incarnation);
    let tally = crew.complete(20).await;
    assert_eq!((tally.lost, tally.duplicated, tally.out_of_order), (0, 0, 0), "{tally:?}");
    standby.stop().await;
    crew.close().await;
    world.assert_no_violations();
}
