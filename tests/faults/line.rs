//! The line between the lane and a broker that lives on: cut, frozen, or deaf in one direction.

use std::time::Duration;

use lanekeeper_broker::{Direction, Relay, wait_until};
use lanekeeper_peer::Left;
use lanekeeper_provision::SpaceSettings;
use lanekeeper_wire::{Bucket, LEASE_KEY, LeaseRow};
use tokio::time::sleep;

use crate::{
    support::{Crew, Daemon, PATIENCE, Power, World, channel, crew},
    watchers::held,
};

const MEMBERS: usize = 10;

/// A daemon behind a relay, with members that receive and a sender.
struct Line {
    world: World,
    relay: Relay,
    power: Power,
    daemon: Daemon,
    crew: Crew,
    sender: lanekeeper_peer::Peer,
    before: LeaseRow,
    pid: u32,
}

impl Line {
    async fn open(lease_ttl: Duration) -> Self {
        let world = World::with(SpaceSettings { lease_ttl, ..SpaceSettings::default() }).await;
        let relay = Relay::start(world.mesh.broker.addr()).await.unwrap();
        let mut daemon = Daemon::start(&world.site, &relay.url(), &world.log(), &["--ack-wait-ms", "5000"]);
        daemon.wait_serving().await;
        let power = world.power().await;
        let crew = Crew::join(&world, MEMBERS, "team").await;
        let sender = world.connect(&world.member("sender", &["team"]).await).await;
        let (before, pid) = (held(&power).await, daemon.pid());
        Self { world, relay, power, daemon, crew, sender, before, pid }
    }

    /// Takes connections again. A child that is just being started holds the old listener until it has become another
    /// program, and the port is taken for that long.
    async fn restore(&self) {
        let restored = async || self.relay.restore().await.ok();
        wait_until("the port of the relay", PATIENCE, restored).await.unwrap();
    }

    async fn post(&self, numbers: std::ops::Range<usize>) {
        crew::post(&self.sender, &self.crew.channel, numbers).await;
    }

    /// Everything arrived once, and it is the same process and the same run that holds the lease.
    async fn unharmed(self, posts: usize) {
        let tally = self.crew.complete(posts).await;
        let log = || self.daemon.log_text();
        assert_eq!((tally.lost, tally.duplicated), (0, 0), "{tally:?}\n{}", log());
        eprintln!("{tally:?}");
        let after = held(&self.power).await;
        assert_eq!((self.daemon.pid(), after), (self.pid, self.before), "{}", log());
        self.daemon.stop().await;
        self.crew.close().await;
        self.world.assert_no_violations();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_cut_in_mid_flow_and_restored_harms_nothing() {
    let line = Line::open(Duration::from_secs(5)).await;
    line.post(0..200).await;
    for copies in [100, 700, 1500] {
        line.crew.wait_received(copies).await.unwrap();
        line.relay.cut().await;
        line.restore().await;
    }
    line.unharmed(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_frozen_past_the_lease_and_thawed_harms_nothing() {
    let line = Line::open(Duration::from_secs(2)).await;
    line.post(0..200).await;
    line.crew.wait_received(200).await.unwrap();
    line.relay.freeze();
    sleep(Duration::from_secs(3)).await;
    line.relay.thaw();
    line.unharmed(200).await;
}

/// Holds what the broker says from just before a renewal on, and lets it through after `held_for`.
async fn deaf_over_a_renewal(lease_ttl: Duration, held_for: Duration) {
    let line = Line::open(lease_ttl).await;
    let age_ns = i128::try_from((lease_ttl / 2).mul_f64(0.8).as_nanos()).unwrap();
    let old = async || {
        let entry = line.power.lease().await.unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        (i128::try_from(now).unwrap() - entry.stored_at_ns > age_ns).then_some(entry)
    };
    let entry = wait_until("a row that is about to be renewed", PATIENCE, old).await.unwrap();
    line.post(0..100).await;
    line.crew.wait_received(100).await.unwrap();
    line.relay.hold(Direction::ToClient);
    let renewed = async || (line.power.lease().await.unwrap().revision > entry.revision).then_some(());
    let (landed, ()) = tokio::join!(wait_until("a renewal that lands", held_for, renewed), sleep(held_for));
    line.relay.release(Direction::ToClient);
    landed.unwrap();
    let landed = line.power.lease().await.unwrap();
    assert_eq!(landed.row(), entry.row(), "the renewal that landed");
    let later = async || (line.power.lease().await.unwrap().revision > landed.revision).then_some(());
    wait_until("a renewal after it", PATIENCE, later).await.unwrap();
    line.post(100..200).await;
    line.unharmed(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_landed_but_was_acknowledged_late_keeps_the_lease() {
    deaf_over_a_renewal(Duration::from_secs(10), Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_landed_and_was_never_acknowledged_in_time_keeps_the_lease() {
    // Past the deadline of a request: the lane does not know, asks, and adopts the revision it finds.
    deaf_over_a_renewal(Duration::from_secs(20), Duration::from_secs(7)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_answered_on_a_new_connection() {
    let line = Line::open(Duration::from_secs(5)).await;
    let ada = line.world.connect(&line.world.member("ada", &["team", "quiet"]).await).await;
    assert!(ada.join(&channel("team")).await.unwrap().state.is_durable());
    for round in 0..3 {
        let accepted = line.relay.accepted();
        line.relay.cut().await;
        line.restore().await;
        wait_until("a new connection", PATIENCE, async || (line.relay.accepted() > accepted).then_some(()))
            .await
            .unwrap();
        held(&line.power).await;
        let durable = async || ada.join(&channel("quiet")).await.unwrap().state.is_durable().then_some(());
        wait_until("a durable join", PATIENCE, durable).await.unwrap();
        let listed: Vec<String> =
            ada.memberships().await.unwrap().iter().map(|item| item.channel.to_string()).collect();
        assert!(listed.contains(&"quiet".to_owned()) && listed.contains(&"team".to_owned()), "{listed:?}");
        let left = ada.leave(&channel("quiet")).await;
        assert!(matches!(left, Left::Ended { .. }), "round {round}: {left:?}");
        assert_eq!(lease_as_a_member(&line.world).await.incarnation, line.before.incarnation);
    }
    ada.close().await.unwrap();
    line.post(0..10).await;
    line.unharmed(10).await;
}

/// The lease as a member may read it.
async fn lease_as_a_member(world: &World) -> LeaseRow {
    let member = world.member("ada", &["team", "quiet"]).await;
    let user = lanekeeper::mesh::member_credentials(&member).unwrap();
    let client = user.connect_options().unwrap().connect(&world.site.url).await.unwrap();
    let js = async_nats::jetstream::new(client);
    let space = &world.site.space;
    let stream = js.get_stream(Bucket::Delivery.stream(space)).await.unwrap();
    let entry = stream.get_last_raw_message_by_subject(&Bucket::Delivery.subject(space, LEASE_KEY)).await.unwrap();
    LeaseRow::parse(&entry.payload).unwrap()
}
