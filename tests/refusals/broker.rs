//! The broker: not there, silent, too old, without JetStream, or not an address at all.

use std::time::Duration;

use lanekeeper_broker::{Broker, BrokerConfig, Relay, Version, fetch, find};
use lanekeeper_provision::{AccountSettings, DeliveryExtras, LaneCredentialSettings};
use tokio::time::Instant;

use crate::{
    door::{Door, last_words, refused},
    support::{PATIENCE, World},
};

/// A dial may take 5 s; the rest is a busy machine's.
const SILENT_DIAL: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_is_refused_by_its_address() {
    let door = Door::open().await;
    let lane = door.lane();
    door.relay.cut().await;
    let addr = format!("`{}`", door.relay.addr());
    let started = Instant::now();
    let parts = [&addr, "cannot be reached", "refused", "check the address and that nats-server runs"];
    door.refused(&lane, "LANE-201", &parts.map(|part| part as &str)).await;
    assert!(started.elapsed() < SILENT_DIAL, "{:?}", started.elapsed());
    let both = "127.0.0.1:1";
    let words =
        refused(door.start_at(&lane, &format!("nats://{both}")), "LANE-201", &[both, "check the address"]).await;
    assert!(!words.contains('\n'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_says_nothing_is_given_up_after_one_dial() {
    let door = Door::open().await;
    door.relay.freeze();
    let started = Instant::now();
    let addr = format!("`{}`", door.relay.addr());
    let daemon = door.start(&door.lane());
    refused(daemon, "LANE-201", &[&addr, "cannot be reached", "check the address"]).await;
    assert!(started.elapsed() < SILENT_DIAL, "{:?}", started.elapsed());
    door.relay.thaw();
    door.none_connected().await;
}

/// A broker of the operator's that knows the space's account, in a world that has another one.
async fn further_broker(world: &World, name: &str, server: Option<Version>, jetstream: bool) -> Broker {
    let server = match server {
        Some(version) => fetch(&version).await.unwrap(),
        None => find().await.unwrap(),
    };
    let dir = world.mesh.dir().join(name);
    let mut config = BrokerConfig::new(dir.join("store"));
    config.jetstream = jetstream;
    config.extra_config = world.mesh.home.server_config(&dir.join("accounts"));
    let broker = Broker::start(&server, config).await.unwrap();
    let system = world.mesh.home.system_client(&broker.url()).await.unwrap();
    system.push_account(&world.site.account).await.unwrap();
    system.close().await;
    broker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_below_the_floor_is_refused_by_its_version() {
    let door = Door::open().await;
    for version in [Version::new(2, 11, 11), Version::new(2, 10, 26)] {
        let shown = version.to_string();
        let broker = further_broker(&door.world, &shown, Some(version), true).await;
        let relay = Relay::start(broker.addr()).await.unwrap();
        let addr = format!("`{}`", relay.addr());
        let parts = [&addr as &str, &format!("nats-server {shown}"), "at least 2.12", "upgrade it"];
        refused(door.start_at(&door.lane(), &relay.url()), "LANE-202", &parts).await;
        assert_eq!(relay.accepted(), 1, "one dial is enough to know the version");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_jetstream_is_refused_as_such() {
    let door = Door::open().await;
    let broker = further_broker(&door.world, "no-jetstream", None, false).await;
    let words = ["JetStream is not enabled", "enable it on the broker"];
    let started = Instant::now();
    refused(door.start_at(&door.lane(), &broker.url()), "LANE-203", &words).await;
    assert!(started.elapsed() < SILENT_DIAL, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_jetstream_is_refused_as_such() {
    let door = Door::open().await;
    let mesh = &door.world.mesh;
    let none = AccountSettings { max_disk_bytes: Some(0), max_memory_bytes: Some(0), ..AccountSettings::default() };
    let account = mesh.home.create_space(&"bare".parse().unwrap(), &none).unwrap();
    let system = mesh.home.system_client(&door.world.site.url).await.unwrap();
    system.push_account(&account).await.unwrap();
    system.close().await;
    let lane = mesh.dir().join("bare-lane");
    let settings = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
    account.write_lane_credentials(&lane, &mesh.home, &settings).unwrap();
    let log = door.world.log_named("bare");
    let (url, lane) = (door.relay.url(), lane.display().to_string());
    let args = ["serve", "--space", "bare", "--server", &url, "--credentials", &lane];
    let mut daemon = crate::support::Daemon::command(&args, &log);
    assert_eq!(daemon.ended(PATIENCE).await.code(), Some(1));
    let words = last_words(&daemon.log_text());
    for part in ["space `bare`: JetStream is not enabled", "in the account's limits", "[LANE-203]"] {
        assert!(words.contains(part), "{words} does not say {part}");
    }
    door.none_connected().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_an_address_is_refused_with_one_that_would_do() {
    let door = Door::open().await;
    for server in ["nats://host:notaport", "http://127.0.0.1:4222", "nats://a b:4222"] {
        let mut daemon = door.start_at(&door.lane(), server);
        let status = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(1), "{server:?}: {}", daemon.log_text());
        let words = last_words(&daemon.log_text());
        for part in [&format!("`{server}`"), "nats://host:4222"] {
            assert!(words.contains(part), "{words} does not say {part}");
        }
    }
}
