//! Joins while others post: from its join cursor on a member misses nothing and gets nothing twice.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::StreamExt as _;
use lanekeeper_peer::{Peer, PostDraft};
use lanekeeper_wire::StreamKind;

use crate::{
    ground::{Ground, join, next, say, texts, until},
    support::channel,
};

/// Members that join during the burst.
const JOINERS: usize = 20;
/// Confirmed posts between the starts of two joins.
const PACE: usize = 20;
/// How far the sender may be ahead of the joins, posts.
const LEAD: usize = 8 * PACE;
/// The whole burst.
const ALL_POSTS: usize = JOINERS * PACE + LEAD;
/// Posts numbered posts as far as they are wanted; the CHAT sequence of each.
async fn burst(sender: &Peer, posted: &AtomicUsize, wanted: &AtomicUsize) -> BTreeMap<usize, u64> {
    let mut poster = sender.poster(64);
    let (team, mut seqs) = (channel("team"), BTreeMap::new());
    let mut note = |outcome: Result<lanekeeper_peer::Posted, lanekeeper_peer::PostError>| {
        let done = outcome.unwrap();
        seqs.insert(done.id.parse::<usize>().unwrap(), done.seq);
        posted.fetch_add(1, Ordering::Release);
    };
    for number in 0..ALL_POSTS {
        if number >= wanted.load(Ordering::Acquire) {
            while let Some(outcome) = poster.next_outcome().await {
                note(outcome);
            }
            until("the joins to go on", async || number < wanted.load(Ordering::Acquire)).await;
        }
        let draft = PostDraft::text("").with_id(number.to_string());
        poster.post(&team, draft).await.into_iter().for_each(&mut note);
    }
    poster.finish().await.into_iter().for_each(&mut note);
    seqs
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_join_during_a_burst_get_every_later_post_exactly_once() {
    let ground = Ground::open().await;
    let sender = ground.peer("ada", &["team"]).await;
    let mut joiners = Vec::new();
    for index in 0..JOINERS {
        joiners.push(ground.peer(&format!("joiner{index}"), &["team"]).await);
    }
    let (posted, wanted) = (AtomicUsize::new(0), AtomicUsize::new(LEAD));
    let joining = async {
        // Several at a time, each started by the progress of the burst.
        let each = futures::stream::iter(joiners.iter().enumerate()).map(|(index, joiner)| {
            let (posted, wanted) = (&posted, &wanted);
            async move {
                until("the burst to go on", async || posted.load(Ordering::Acquire) >= index * PACE).await;
                join(joiner, "team").await;
                wanted.fetch_add(PACE, Ordering::Release);
            }
        });
        each.buffer_unordered(3).collect::<()>().await;
    };
    let (seqs, ()) = futures::join!(burst(&sender, &posted, &wanted), joining);
    ground.at_rest().await;
    let mut inside_the_burst = 0;
    for joiner in &joiners {
        let (_, row) = ground.hand.row(joiner.lifecycle(), "team").await;
        let owed: Vec<u64> = seqs.values().copied().filter(|seq| *seq > row.join_cursor).collect();
        inside_the_burst += usize::from(owed.len() < seqs.len());
        let mut messages = joiner.messages().unwrap();
        let mut got = Vec::new();
        for _ in 0..owed.len() {
            let incoming = next(&mut messages).await;
            got.push(seqs[&incoming.message.id().parse::<usize>().unwrap()]);
            incoming.ack_now().await.unwrap();
        }
        got.sort_unstable();
        assert_eq!(got, owed, "{} joined at {}", joiner.principal(), row.join_cursor);
    }
    assert!(inside_the_burst >= JOINERS - 1, "only {inside_the_burst} joined during the burst");
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_channel_in_a_busy_space_is_joined_durably_and_delivers() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["busy", "quiet"]).await;
    let bob = ground.peer("bob", &["busy", "quiet"]).await;
    // One post long ago, which the busy channel has pushed far back.
    say(&ada, "quiet", "long ago").await;
    let drafts = (0..1500).map(|_| PostDraft::text("busy"));
    let outcomes = ada.post_pipelined(&channel("busy"), drafts, 128).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(join(&bob, "quiet").await, 1);
    let (_, row) = ground.hand.row(bob.lifecycle(), "quiet").await;
    assert!(row.activated && row.join_cursor == ground.hand.frontier(StreamKind::Chat).await, "{row:?}");
    say(&ada, "quiet", "now").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), 1).await, ["now"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}
