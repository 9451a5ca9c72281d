//! What the plane leaves behind: nothing, however long it runs.

use std::time::Duration;

use lanekeeper_peer::PostDraft;
use lanekeeper_wire::{Bucket, StreamKind};

use crate::{
    ground::{Ground, join, leave, say, texts},
    hand::Hand,
    stores,
    support::channel,
};

/// How many consumers each stream that the plane touches has.
async fn consumers(ground: &Ground) -> Vec<(String, usize)> {
    let site = &ground.world.site;
    let streams = [StreamKind::Chat, StreamKind::Inbox, StreamKind::Dlv].map(|kind| kind.name(&site.space));
    let buckets = Bucket::ALL.map(|bucket| bucket.stream(&site.space));
    let mut counts = Vec::new();
    for stream in streams.into_iter().chain(buckets) {
        let info = site.provisioner().get_stream(&stream).await.unwrap().cached_info().clone();
        counts.push((stream, info.state.consumer_count));
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_leaves_no_consumer_and_no_message_behind() {
    const MEMBERS: usize = 20;
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let mut members = Vec::new();
    for index in 0..MEMBERS {
        members.push(ground.peer(&format!("member{index}"), &["team"]).await);
    }
    join(&members[0], "team").await;
    say(&ada, "team", "0").await;
    ground.at_rest().await;
    let before = consumers(&ground).await;
    let (team, drafts) = (channel("team"), (1..=500).map(|number| PostDraft::text(number.to_string())));
    let joins = async {
        for member in &members[1..] {
            join(member, "team").await;
        }
        for member in &members[10..] {
            leave(member, "team", 1).await;
            assert_eq!(join(member, "team").await, 2);
        }
    };
    let (outcomes, ()) = futures::join!(ada.post_pipelined(&team, drafts, 32), joins);
    assert!(outcomes.iter().all(Result::is_ok));
    ground.at_rest().await;
    let first = texts(&mut members[0].messages().unwrap(), 501).await;
    assert_eq!(first, (0..=500).map(|number| number.to_string()).collect::<Vec<_>>());
    for member in &members[1..] {
        let mut messages = member.messages().unwrap();
        while ground.copies_for(member.lifecycle()).await > 0 {
            if let Some(incoming) = messages.recv_within(Duration::from_millis(20)).await {
                incoming.ack().await.unwrap();
            }
        }
    }
    ground.wait_stores_empty().await;
    assert_eq!(consumers(&ground).await, before);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_in_hand_when_a_lane_ends_is_released_by_the_next_at_once_and_in_order() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    let hand = Hand::of_the_account(&ground.world).await;
    stores::refused_until_seen(&ground, &hand, StreamKind::Dlv, async || {
        say(&ada, "team", "kept back").await;
    })
    .await;
    say(&ada, "team", "later").await;
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), 2).await, ["kept back", "later"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}
