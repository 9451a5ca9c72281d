//! The main promise: a durable post reaches every member once, in order, and nobody else.

use lanekeeper_peer::{Messages, PostDraft};
use lanekeeper_wire::{StreamKind, subject};

use crate::support::{PATIENCE, World, channel};

/// The next `count` texts, each acknowledged.
async fn texts(messages: &mut Messages, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        let incoming = messages.recv_within(PATIENCE).await.unwrap_or_else(|| panic!("only {texts:?}"));
        texts.push(incoming.message.text().unwrap_or_default());
        incoming.ack().await.unwrap();
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_offline_gets_every_post_once_and_in_order() {
    let world = World::new().await;
    let daemon = world.daemon().await;
    let (ada, bob) = (world.member("ada", &["team"]).await, world.member("bob", &["team"]).await);
    world.join(&bob, "team").await.close().await.unwrap();
    let sender = world.join(&ada, "team").await;
    for number in 0..50 {
        sender.post(&channel("team"), PostDraft::text(format!("post {number}"))).await.unwrap();
    }
    let peer = world.connect(&bob).await;
    let mut messages = peer.messages().unwrap();
    let expected: Vec<String> = (0..50).map(|number| format!("post {number}")).collect();
    assert_eq!(texts(&mut messages, 50).await, expected);
    let (space, dlv) = (&world.site.space, StreamKind::Dlv.name(&world.site.space));
    world.wait_empty(&dlv, &subject::dlv_filter(space)).await;
    world.wait_empty(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await;
    peer.close().await.unwrap();
    sender.close().await.unwrap();
    daemon.stop().await;
    world.assert_no_violations();
}
