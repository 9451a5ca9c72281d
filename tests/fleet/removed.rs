//! A lane that was removed while the broker was away is gone for good.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::sleep;

use crate::{
    connz,
    fleet::{Fleet, QUICK},
    host::Host,
    support::PATIENCE,
};

/// After this long a removed lane must have made its last attempt.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// How long a broker is watched for one that comes all the same. A forgotten dialler comes several times a second.
const WATCHED: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_removed_while_the_broker_is_down_never_dials_again() {
    let mut fleet = Fleet::new(3, Duration::from_secs(5)).await;
    let host = Host::start(fleet.path(), "one", &[fleet.mesh.broker.url()], &[], QUICK).await;
    let before = host.wait_serving(3, PATIENCE).await;
    let descriptors = open_files(&host);
    fleet.mesh.broker.stop().await.unwrap();
    fleet.write_manifest(|index| index != 1);
    let outcome = host.reload().await;
    let removed_at = OffsetDateTime::now_utc();
    assert_eq!((outcome.closed, outcome.settled), (vec!["s1".parse().unwrap()], true));
    fleet.mesh.broker.restart().await.unwrap();
    host.wait_serving(2, PATIENCE).await;
    // What is waited for is that nothing comes, so there is no value to wait for.
    sleep(GONE_AFTER + WATCHED).await;
    let connections = connz::all(fleet.monitor).await;
    let late = connections.iter().filter(|connection| connection.is_of("s1"));
    let late: Vec<_> = late.filter(|connection| connection.start() > removed_at + GONE_AFTER).collect();
    assert!(late.is_empty(), "{late:#?}");
    // Whoever is turned away has no name yet.
    let account = fleet.sites[1].account.account_id();
    let nameless = |connection: &&connz::Connection| connection.name.is_empty() || connection.account == account;
    let nameless: Vec<_> =
        connections.iter().filter(nameless).filter(|connection| connection.start() > removed_at + GONE_AFTER).collect();
    assert!(nameless.is_empty(), "{nameless:#?}");
    for space in ["s0", "s2"] {
        let open = connz::open(fleet.monitor).await.into_iter().filter(|connection| connection.is_of(space)).count();
        assert_eq!(open, 1, "{space}");
    }
    let after = host.status().await;
    for space in ["s0", "s2"].map(|space| space.parse().unwrap()) {
        assert_eq!(after.lane(&space).unwrap().incarnation, before.lane(&space).unwrap().incarnation, "the same run");
    }
    assert!(open_files(&host) < descriptors, "{} of {descriptors} files are open", open_files(&host));
    host.stop().await;
    fleet.assert_no_violations();
}

/// How many file descriptors the host has open.
fn open_files(host: &Host) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count()
}
