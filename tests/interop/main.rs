//! Members that are not our code: the wire contract, spoken by a public client in another language.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod python;
#[path = "../support/mod.rs"]
mod support;

use lanekeeper_peer::PostDraft;
use lanekeeper_wire::{StreamKind, subject};
use serde_json::{Value, json};

use python::PythonMember;
use support::{PATIENCE, World, channel};

/// What a copy of `ada`'s must look like to the other member.
fn copies(texts: impl IntoIterator<Item = String>) -> Value {
    let copy = |text| json!({"channel": "team", "from": "local.ada", "text": text, "deliveries": 1});
    texts.into_iter().map(copy).collect()
}

async fn dlv_consumers(world: &World) -> usize {
    let stream = world.site.provisioner().get_stream(StreamKind::Dlv.name(&world.site.space)).await.unwrap();
    stream.cached_info().state.consumer_count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_member_is_served_like_any_other() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let (ada, bob) = (world.member("ada", &["team"]).await, world.member("bob", &["team"]).await);
    let consumers = dlv_consumers(&world).await;

    // It joins, and is away while the posts are made.
    let mut member = PythonMember::connect(&world.site, &bob).await;
    assert_eq!(member.call(json!({"do": "join", "channel": "team"})).await, json!(1));
    assert_eq!(member.call(json!({"do": "join", "channel": "team"})).await, json!(1));
    let rows = json!([{"channel": "team", "generation": 1, "activated": true}]);
    assert_eq!(member.call(json!({"do": "memberships"})).await, rows);
    member.close().await;
    let peer = world.join(&ada, "team").await;
    for number in 0..25 {
        peer.post(&channel("team"), PostDraft::text(format!("post {number} é😀"))).await.unwrap();
    }

    // It comes back and gets each once, in order; what it acknowledged never comes again.
    let mut member = PythonMember::connect(&world.site, &bob).await;
    let received = member.call(json!({"do": "receive", "count": 25})).await;
    assert_eq!(received, copies((0..25).map(|number| format!("post {number} é😀"))));
    assert_eq!(member.call(json!({"do": "is_quiet"})).await, json!(true));

    // It posts, and a member of ours receives it.
    let mut messages = peer.messages().unwrap();
    member.call(json!({"do": "post", "channel": "team", "text": "from python é😀"})).await;
    let incoming = messages.recv_within(PATIENCE).await.expect("its post in time");
    let (sender, text) = (incoming.sender.as_str(), incoming.message.text().unwrap());
    assert_eq!((sender, text.as_str()), ("local.bob", "from python é😀"));
    incoming.ack().await.unwrap();

    // It leaves: what was posted before is still owed, what comes after never arrives.
    peer.post(&channel("team"), PostDraft::text("before the leave")).await.unwrap();
    member.call(json!({"do": "leave", "channel": "team", "generation": 1})).await;
    peer.post(&channel("team"), PostDraft::text("in the gap")).await.unwrap();
    assert_eq!(member.call(json!({"do": "join", "channel": "team"})).await, json!(2));
    peer.post(&channel("team"), PostDraft::text("after the rejoin")).await.unwrap();
    let received = member.call(json!({"do": "receive", "count": 2})).await;
    assert_eq!(received, copies(["before the leave".to_owned(), "after the rejoin".to_owned()]));
    member.close().await;

    // Its bystander's copy aside, nothing is left, and it created nothing.
    peer.close().await.unwrap();
    let space = &world.site.space;
    world.wait_empty(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await;
    world.wait_empty(&StreamKind::Dlv.name(space), &subject::dlv(space, &bob.lifecycle)).await;
    assert_eq!(dlv_consumers(&world).await, consumers);
    daemon.stop().await;
    world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_member_that_wants_its_answer_elsewhere_gets_none() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let bob = world.member("bob", &["team"]).await;
    let mut member = PythonMember::connect(&world.site, &bob).await;
    assert_eq!(member.call(json!({"do": "ask_elsewhere"})).await, json!(0));
    assert_eq!(member.call(json!({"do": "join", "channel": "team"})).await, json!(1));
    member.close().await;
    daemon.stop().await;
    world.assert_no_violations();
}
