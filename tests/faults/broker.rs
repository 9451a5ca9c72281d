//! The broker killed or stopped in mid flow and started again on its store and port.

use std::time::Duration;

use lanekeeper_broker::wait_until;
use lanekeeper_peer::{PostDraft, Via};
use lanekeeper_provision::{Retention, SpaceSettings};
use lanekeeper_wire::LeaseRow;

use crate::{
    support::{Crew, Daemon, PATIENCE, Power, World, channel, crew},
    watchers::held,
};

const MEMBERS: usize = 10;
const POSTS: usize = 300;

enum End {
    Kill,
    Stop,
}

/// Ends the broker when `copies` have arrived, starts it again, and waits until the lane serves on.
async fn bounce(world: &mut World, crew: &Crew, power: &Power, end: &End, copies: usize) -> LeaseRow {
    crew.wait_received(copies).await.unwrap();
    match end {
        End::Kill => world.mesh.broker.kill().await.unwrap(),
        End::Stop => drop(world.mesh.broker.stop().await.unwrap()),
    }
    world.mesh.broker.restart().await.unwrap();
    held(power).await
}

async fn survives(end: End, retention: Retention) {
    let settings = SpaceSettings {
        lease_ttl: Duration::from_secs(2),
        inbox_retention: retention,
        dlv_retention: retention,
        ..SpaceSettings::default()
    };
    let mut world = World::with(settings).await;
    let daemon = Daemon::serving(&world.site, &world.log(), &["--ack-wait-ms", "5000"]).await;
    let power = world.power().await;
    let crew = Crew::join(&world, MEMBERS, "team").await;
    let newcomer = world.member("newcomer", &["team"]).await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let (before, pid) = (held(&power).await, daemon.pid());
    crew::post(&sender, &crew.channel, 0..POSTS).await;
    for copies in [300, 1500] {
        let after = bounce(&mut world, &crew, &power, &end, copies).await;
        assert_eq!(after.incarnation, before.incarnation, "another run:\n{}", daemon.log_text());
    }
    let tally = crew.complete(POSTS).await;
    eprintln!("broker ended twice ({retention:?}): {tally:?}");
    assert_eq!(tally.lost, 0, "{tally:?}\n{}", daemon.log_text());
    let most = match retention {
        Retention::Limits => 0,
        // A restarted broker knows the suppression keys of what it still stores. What was acknowledged, and so removed,
        // while its counterpart one stage before was still in flight can be made once more.
        Retention::WorkQueue => MEMBERS * POSTS / 10,
    };
    assert!(tally.duplicated <= most, "{tally:?}");
    // Both loops and the control responder are bound again, in the same process.
    let peer = world.connect(&newcomer).await;
    let durable = async || peer.join(&channel("team")).await.unwrap().state.is_durable().then_some(());
    wait_until("a durable join", PATIENCE, durable).await.unwrap();
    crew::post(&sender, &crew.channel, POSTS..POSTS + 10).await;
    assert_eq!(crew.complete(POSTS + 10).await.lost, 0, "{}", daemon.log_text());
    assert_eq!(daemon.pid(), pid);
    assert_eq!(held(&power).await.holder, before.holder);
    peer.close().await.unwrap();
    daemon.stop().await;
    crew.close().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_in_mid_flow_loses_nothing() {
    survives(End::Kill, Retention::WorkQueue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_stopped_in_mid_flow_loses_nothing() {
    survives(End::Stop, Retention::WorkQueue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_in_mid_flow_loses_nothing_where_stores_keep_what_was_acknowledged() {
    survives(End::Kill, Retention::Limits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_stopped_in_mid_flow_loses_nothing_where_stores_keep_what_was_acknowledged() {
    survives(End::Stop, Retention::Limits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joined_member_goes_on_receiving_durable_copies_over_a_restart() {
    let mut world = World::new().await;
    let daemon = world.daemon().await;
    let peer = world.join(&world.member("ada", &["team"]).await, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let power = world.power().await;
    let mut messages = peer.messages().unwrap();
    for round in 0..3 {
        let (connects, posted) = (peer.counters().connects, format!("round {round}"));
        world.mesh.broker.kill().await.unwrap();
        world.mesh.broker.restart().await.unwrap();
        wait_until("the member's return", PATIENCE, async || (peer.counters().connects > connects).then_some(()))
            .await
            .unwrap();
        held(&power).await;
        let before = peer.counters().durable_received;
        // A post that was not confirmed is sent again under its id, which the broker stores once.
        let draft = || PostDraft::text(posted.clone()).with_id(posted.clone()).suppressing_repeats();
        let stored = async || sender.post(&channel("team"), draft()).await.ok();
        wait_until("the post stored", PATIENCE, stored).await.unwrap();
        let incoming = messages.recv_within(PATIENCE).await.expect("a copy after the restart");
        assert_eq!(incoming.message.text().as_deref(), Some(posted.as_str()));
        incoming.ack().await.unwrap();
        let durable = async || (peer.counters().durable_received > before).then_some(());
        wait_until("the durable copy", PATIENCE, durable).await.unwrap();
        assert!(matches!(incoming.via, Via::Live | Via::Durable { .. }));
    }
    peer.close().await.unwrap();
    daemon.stop().await;
    world.assert_no_violations();
}
