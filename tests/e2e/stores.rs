//! The two stores of the plane: what is owed stays until it is settled, and both kinds of retention tell the same story.

use std::time::Duration;

use async_nats::jetstream::consumer;
use lanekeeper_broker::wait_until;
use lanekeeper_provision::{Retention, SpaceSettings};
use lanekeeper_wire::{Lifecycle, StreamKind, names};

use crate::{
    ground::{Ground, say, texts},
    hand::Hand,
    support::{PATIENCE, World},
};

/// A space as other provisioners make it.
pub(crate) fn limits() -> SpaceSettings {
    SpaceSettings {
        lease_ttl: Duration::from_secs(2),
        inbox_retention: Retention::Limits,
        dlv_retention: Retention::Limits,
        ..SpaceSettings::default()
    }
}

/// The member's hand-over consumer.
async fn hand_over(ground: &Ground, lifecycle: &Lifecycle) -> consumer::Info {
    let (site, durable) = (&ground.world.site, names::dlv_durable(lifecycle));
    let stream = StreamKind::Dlv.name(&site.space);
    let found = site.provisioner().get_consumer_from_stream::<consumer::Config, _, _>(durable, stream).await;
    found.unwrap().cached_info().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_limits_retention_everything_arrives_once_in_order_and_the_floor_moves() {
    let mut ground = Ground::open_with(limits()).await;
    let ada = ground.peer("ada", &["team"]).await;
    let lifecycle = ground.absent("bob", &["team"]).await;
    let all: Vec<String> = (0..60).map(|number| format!("post {number}")).collect();
    for text in &all[..30] {
        say(&ada, "team", text).await;
    }
    let bob = ground.back("bob").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), 30).await, all[..30]);
    bob.close().await.unwrap();
    let info = hand_over(&ground, &lifecycle).await;
    assert_eq!((info.ack_floor.stream_sequence, info.num_ack_pending, info.num_pending), (30, 0, 0));
    // Settled entries and copies may still lie there: neither a new daemon nor a returning member sees them again.
    ground.at_rest().await;
    ground.stop_daemon().await;
    for text in &all[30..] {
        say(&ada, "team", text).await;
    }
    ground.start_daemon().await;
    let bob = ground.back("bob").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), 30).await, all[30..]);
    ground.at_rest().await;
    let info = hand_over(&ground, &lifecycle).await;
    assert_eq!((info.ack_floor.stream_sequence, info.num_ack_pending, info.num_pending), (60, 0, 0));
    let reader = ground.hand.durable(StreamKind::Inbox).await;
    assert_eq!((reader.ack_floor.stream_sequence, reader.num_pending), (60, 0));
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_is_settled_only_after_its_entries_are_stored() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    let hand = Hand::of_the_account(&ground.world).await;
    refused_until_seen(&ground, &hand, StreamKind::Inbox, async || {
        say(&ada, "team", "kept back").await;
    })
    .await;
    say(&ada, "team", "later").await;
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), 2).await, ["kept back", "later"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_settled_only_after_its_copy_is_stored() {
    let mut ground = Ground::unserved(World::new().await).await;
    ground.start_daemon_with(&["--ack-wait-ms", "1000"]).await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    let hand = Hand::of_the_account(&ground.world).await;
    refused_until_seen(&ground, &hand, StreamKind::Dlv, async || {
        say(&ada, "team", "kept back").await;
    })
    .await;
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), 1).await, ["kept back"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

/// Has the broker refuse every message of one stream while `act` runs and until the daemon has been refused.
pub(crate) async fn refused_until_seen(ground: &Ground, hand: &Hand, kind: StreamKind, act: impl AsyncFnOnce()) {
    let name = kind.name(&ground.world.site.space);
    let open = hand.js.get_stream(&name).await.unwrap().cached_info().config.clone();
    let mut narrow = open.clone();
    narrow.max_message_size = 16;
    hand.js.update_stream(narrow).await.unwrap();
    act().await;
    wait_until("the daemon to be refused", PATIENCE, || async {
        ground.log_text().lines().any(|line| line.contains("message size exceeds maximum allowed")).then_some(())
    })
    .await
    .unwrap();
    hand.js.update_stream(open).await.unwrap();
}
