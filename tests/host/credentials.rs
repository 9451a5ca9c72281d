//! Credentials that change, break and are mended under a running host.

use lanekeeper::supervisor::LaneState;

use crate::fleet::{Fleet, identity, lane};

const SPACES: [&str; 3] = ["ada", "bob", "cyd"];

#[tokio::test(flavor = "multi_thread")]
async fn a_space_with_bad_credentials_touches_no_other_and_serves_once_they_are_mended() {
    let fleet = Fleet::new(&SPACES).await;
    let good = fleet.rotate("bob", "garbage");
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    let parked = host.until_lane("bob", "is parked", |lane| lane.state == LaneState::Parked).await;
    assert!(parked.reason.contains("[LANE-103]") && parked.reason.contains("delivery.creds"), "{}", parked.reason);
    assert_eq!(parked.last_fault.unwrap().code, "LANE-103");
    assert_eq!(parked.attempt, 1, "a parked lane is not tried again");
    let status = host.until("ready", |status| status.ready).await;
    assert_eq!(status.count(LaneState::Serving), 2);
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    fleet.rotate("bob", &good);
    host.until_serving(&SPACES).await;
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_credential_does_not_reach_the_lane_that_serves() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let (ada, bob) = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "bob").await);
    let good = fleet.rotate("bob", "garbage");
    let refused = host.until_lane("bob", "refuses", |lane| lane.reason.contains("goes on as it was")).await;
    assert!(refused.state == LaneState::Serving && refused.reason.contains("[LANE-103]"), "{}", refused.reason);
    let last = host.until("settled", |status| status.last_reload.as_ref().is_some_and(|last| last.settled)).await;
    let last = last.last_reload.unwrap();
    assert_eq!(last.refused[0].0, "bob", "{last:?}");
    assert_eq!(bob, identity(&fleet, &host, "bob").await, "the old lane was touched");
    // Another space's credential is refused before it gets anywhere near the broker.
    let foreign = std::fs::read_to_string(fleet.credentials("cyd").join("delivery.creds")).unwrap();
    fleet.rotate("bob", &foreign);
    host.until_lane("bob", "refuses", |lane| lane.reason.contains("[LANE-105]")).await;
    assert_eq!(bob, identity(&fleet, &host, "bob").await);
    assert_eq!(fleet.connections("cyd").await.len(), 1, "nobody used the foreign credential");
    // Back to what it was: there is nothing to do.
    fleet.rotate("bob", &good);
    host.until_lane("bob", "is content", |lane| lane.reason.contains("not wanted any more")).await;
    assert_eq!((ada, bob), (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "bob").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_new_credential_is_proven_and_taken_up() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    let status = host.until_serving(&SPACES).await;
    let old = lane(&status, "bob").unwrap().credential_fingerprint.clone().unwrap();
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    fleet.mint_anew("bob");
    let renewed = |lane: &lanekeeper::supervisor::LaneStatus| {
        lane.state == LaneState::Serving && lane.credential_fingerprint.as_ref().is_some_and(|new| *new != old)
    };
    host.until_lane("bob", "serves with the new credential", renewed).await;
    assert_eq!(fleet.connections("bob").await.len(), 1, "the throw-away connection is gone");
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_do_not_answer_are_refused_before_the_lane_is_touched() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let bob = identity(&fleet, &host, "bob").await;
    // A port that nobody listens on: the broker's own is taken, the one of a closed listener is not.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let moved = format!("{}servers = [\"nats://{nobody}\"]\n", fleet.entry("bob"));
    fleet.replace("conf/spaces.toml", &format!("{}{moved}", fleet.manifest(&["ada", "cyd"])));
    let refused = host.until_lane("bob", "refuses", |lane| lane.reason.contains("goes on as it was")).await;
    assert!(refused.reason.contains("servers changed") && refused.reason.contains("LANE-201"), "{}", refused.reason);
    assert_eq!(bob, identity(&fleet, &host, "bob").await);
    let same = format!("{}servers = [\"{}\"]\n", fleet.entry("bob"), fleet.mesh.broker.url());
    fleet.replace("conf/spaces.toml", &format!("{}{same}", fleet.manifest(&["ada", "cyd"])));
    host.until_lane("bob", "is content", |lane| lane.reason.contains("not wanted any more")).await;
    assert_eq!(bob, identity(&fleet, &host, "bob").await, "the same address said otherwise is no change");
    host.stop().await;
    fleet.assert_no_violations();
}
