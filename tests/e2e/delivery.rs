//! The main promise: a durable post reaches every member once, in order, and nobody else.

use std::{collections::HashMap, time::Duration};

use lanekeeper_peer::{PostDraft, Via};
use lanekeeper_wire::{StreamKind, subject};

use crate::{
    ground::{Ground, join, next, say, text, texts},
    support::{World, channel},
};

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

#[tokio::test(flavor = "multi_thread")]
async fn who_has_not_joined_the_channel_gets_nothing() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team", "other"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    // May read the channel, but never joined it.
    let eve = ground.peer("eve", &["team"]).await;
    // Joined another channel only.
    let cal = ground.absent("cal", &["other"]).await;
    say(&ada, "team", "for members").await;
    ground.at_rest().await;
    assert_eq!(ground.copies_for(&bob).await, 1);
    assert_eq!(ground.copies_for(eve.lifecycle()).await, 0);
    assert_eq!(ground.copies_for(&cal).await, 0);
    assert_eq!(ground.routed_and_released().await, (1, 1));
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_does_not_get_its_own_post() {
    let ground = Ground::open().await;
    let (ada, bob) = (ground.peer("ada", &["team"]).await, ground.peer("bob", &["team"]).await);
    join(&ada, "team").await;
    join(&bob, "team").await;
    say(&ada, "team", "by ada").await;
    say(&bob, "team", "by bob").await;
    say(&ada, "team", "by ada again").await;
    ground.at_rest().await;
    // Counted at the stores: a member drops its own posts by itself, whoever put them there.
    assert_eq!(ground.routed_and_released().await, (3, 3));
    assert_eq!(texts(&mut ada.messages().unwrap(), 1).await, ["by bob"]);
    assert_eq!(texts(&mut bob.messages().unwrap(), 2).await, ["by ada", "by ada again"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_gets_each_senders_posts_in_that_senders_order() {
    const SENDERS: [&str; 3] = ["ada", "bob", "cal"];
    const POSTS: usize = 80;
    let ground = Ground::open().await;
    let mut readers = Vec::new();
    for name in ["eve", "fay", "gus", "hal"] {
        readers.push(ground.absent(name, &["team"]).await);
    }
    let mut senders = Vec::new();
    for name in SENDERS {
        let peer = ground.peer(name, &["team"]).await;
        join(&peer, "team").await;
        senders.push(peer);
    }
    let (team, drafts) = (channel("team"), || (0..POSTS).map(|number| PostDraft::text(number.to_string())));
    let bursts = senders.iter().map(|sender| sender.post_pipelined(&team, drafts(), 32));
    for outcomes in futures::future::join_all(bursts).await {
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    let in_order: Vec<String> = (0..POSTS).map(|number| number.to_string()).collect();
    let mut receivers = senders;
    for name in ["eve", "fay", "gus", "hal"] {
        receivers.push(ground.back(name).await);
    }
    for receiver in &receivers {
        let others: Vec<&str> =
            SENDERS.into_iter().filter(|name| *name != receiver.principal().actor().as_str()).collect();
        let mut messages = receiver.messages().unwrap();
        let mut by_sender: HashMap<String, Vec<String>> = HashMap::new();
        for _ in 0..others.len() * POSTS {
            let incoming = next(&mut messages).await;
            incoming.ack_now().await.unwrap();
            by_sender.entry(incoming.sender.actor().to_string()).or_default().push(text(&incoming));
        }
        assert_eq!(by_sender.len(), others.len());
        for name in others {
            assert_eq!(by_sender[name], in_order, "{name} as seen by {}", receiver.principal());
        }
    }
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_a_live_subscription_gets_a_copy_that_stays_until_it_is_acknowledged() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.impatient_peer("bob", &["team"], Duration::from_millis(500)).await;
    join(&bob, "team").await;
    say(&ada, "team", "first").await;
    let mut messages = bob.messages().unwrap();
    let first = next(&mut messages).await;
    assert!(matches!(first.via, Via::Durable { deliveries: 1, .. }), "{first:?}");
    assert_eq!((first.channel.as_str(), first.sender.as_str(), text(&first).as_str()), ("team", "local.ada", "first"));
    let again = next(&mut messages).await;
    assert!(matches!(again.via, Via::Durable { deliveries: 2, .. }), "not acknowledged, so it comes again: {again:?}");
    assert_eq!(ground.copies_for(bob.lifecycle()).await, 1);
    again.ack().await.unwrap();
    ground.wait_stores_empty().await;
    say(&ada, "team", "second").await;
    let second = next(&mut messages).await;
    assert!(matches!(second.via, Via::Durable { deliveries: 1, .. }), "{second:?}");
    assert_eq!(text(&second), "second");
    second.ack().await.unwrap();
    ground.wait_stores_empty().await;
    assert_eq!(bob.counters().live_received, 0);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_made_while_the_daemon_is_down_is_delivered_after_it_starts() {
    let mut ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    say(&ada, "team", "served").await;
    ground.at_rest().await;
    ground.stop_daemon().await;
    for number in 0..20 {
        say(&ada, "team", format!("unserved {number}")).await;
    }
    assert_eq!(ground.entries().await, 0);
    ground.start_daemon().await;
    let bob = ground.back("bob").await;
    let expected = std::iter::once("served".to_owned()).chain((0..20).map(|number| format!("unserved {number}")));
    assert_eq!(texts(&mut bob.messages().unwrap(), 21).await, expected.collect::<Vec<_>>());
    ground.wait_stores_empty().await;
    ground.close().await;
}
