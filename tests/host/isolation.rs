//! A fault of one lane changes that slot alone.

use std::{fs, time::Duration};

use lanekeeper::supervisor::LaneState;
use lanekeeper_broker::{Relay, wait_until};

use crate::{
    fleet::{Fleet, identity, lane},
    support::PATIENCE,
};

const SPACES: [&str; 3] = ["ada", "bob", "cyd"];
/// How soon a lane must say what is wrong with it.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_any_part_ends_that_lane_alone_and_it_serves_again() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    let mut generation = 1;
    for part in ["lease", "registry", "fan_out", "trusted_reader", "control", "dlv_rooms", "denials"] {
        let asked = fleet.panic("bob", part);
        let status = host
            .until_within(&format!("{part} panicked"), PATIENCE, |status| {
                lane(status, "bob").is_some_and(|lane| lane.generation > generation && lane.state == LaneState::Serving)
            })
            .await;
        let bob = lane(&status, "bob").unwrap();
        let fault = bob.last_fault.clone().unwrap();
        assert_eq!(fault.code, "LANE-501", "{part}: {}", fault.text);
        assert!(fault.text.contains(part), "{part}: {}", fault.text);
        assert!(!asked.exists());
        generation = bob.generation;
    }
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_store_that_hangs_holds_up_nobody_else() {
    let fleet = Fleet::new(&SPACES).await;
    let block = fleet.path("hooks/bob.credentials.block");
    fs::write(&block, "").unwrap();
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    let serve = |status: &lanekeeper::supervisor::HostStatus| status.count(LaneState::Serving) == 2;
    host.until_within("the others serve", SOON, serve).await;
    let bob = host.until_lane("bob", "says why", |lane| lane.last_fault.is_some()).await;
    assert!(bob.last_fault.unwrap().code == "LANE-107", "{}", bob.reason);
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    fs::remove_file(block).unwrap();
    host.until_serving(&SPACES).await;
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_vanishes_is_named_and_the_lane_serves_once_it_is_back() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    let power = crate::support::Power::over(&fleet.mesh, &fleet.sites["bob"]).await;
    let inbox = lanekeeper_wire::StreamKind::Inbox.name(&fleet.sites["bob"].space);
    let config = power.delete_stream(&inbox).await;
    let missing = |lane: &lanekeeper::supervisor::LaneStatus| lane.reason.contains("LANE-301");
    let bob = host.until_lane("bob", "names the stream", missing).await;
    assert!(bob.reason.contains(&inbox) && bob.state == LaneState::Waiting, "{}", bob.reason);
    power.replace_stream(config).await;
    host.until_serving(&SPACES).await;
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_on_a_dead_line_holds_up_neither_the_reload_nor_the_new_lanes() {
    let mut fleet = Fleet::new(&SPACES).await;
    let relay = Relay::start(fleet.mesh.broker.addr()).await.unwrap();
    let slow = format!("{}servers = [\"nats://{}\"]\n", fleet.entry("bob"), relay.addr());
    fleet.write("conf/spaces.toml", &format!("{}{slow}", fleet.manifest(&["ada", "cyd"])));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    for space in ["dan", "eve"] {
        fleet.add(space).await;
    }
    relay.freeze();
    let asked = tokio::time::Instant::now();
    fleet.replace("conf/spaces.toml", &fleet.manifest(&["ada", "cyd", "dan", "eve"]));
    let both = |status: &lanekeeper::supervisor::HostStatus| {
        ["dan", "eve"].iter().all(|space| lane(status, space).is_some_and(|lane| lane.state == LaneState::Serving))
    };
    host.until_within("the new ones serve", SOON, both).await;
    host.until_serving(&["ada", "cyd", "dan", "eve"]).await;
    // The close timeout of these tests is 5 s, and an abort follows at once.
    eprintln!("the lane on the dead line is gone after {:?}", asked.elapsed());
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    relay.thaw();
    // Its connections are gone for good, also at the broker, once the line is up again.
    let gone = async || fleet.connections("bob").await.is_empty().then_some(());
    wait_until("no connection of bob", PATIENCE, gone).await.unwrap();
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_was_removed_while_the_broker_was_down_never_dials_again() {
    let mut fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    fleet.mesh.broker.kill().await.unwrap();
    let down = |status: &lanekeeper::supervisor::HostStatus| status.count(LaneState::Serving) == 0;
    host.until("all have lost it", down).await;
    fleet.replace("conf/spaces.toml", &fleet.manifest(&["ada", "cyd"]));
    host.until("bob is gone", |status| lane(status, "bob").is_none()).await;
    fleet.mesh.broker.restart().await.unwrap();
    host.until_serving(&["ada", "cyd"]).await;
    // The broker lists who was there since it started, also those that have left.
    assert_eq!(fleet.ever_connected("bob").await, Vec::<String>::new());
    assert!(!fleet.ever_connected("ada").await.is_empty());
    host.stop().await;
    fleet.assert_no_violations();
}
