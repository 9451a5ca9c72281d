//! Joins while others post: from its join cursor on a member misses nothing and gets nothing twice.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::StreamExt as _;
use lanekeeper_peer::{Peer, PostDraft};
use lanekeeper_wire::StreamKind;

use crate::{
    ground::{Ground, join, leave, next, say, texts, until},
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

/// Posts one after the other until it is over; the CHAT sequence of each by its id.
async fn post_until(sender: &Peer, over: &AtomicBool) -> Vec<(String, u64)> {
    let (team, mut seqs) = (channel("team"), Vec::new());
    while !over.load(Ordering::Acquire) {
        let posted = sender.post(&team, PostDraft::text("")).await.unwrap();
        seqs.push((posted.id, posted.seq));
    }
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
async fn joining_and_leaving_again_and_again_under_traffic_loses_and_leaks_nothing() {
    const ROUNDS: u64 = 120;
    let ground = Ground::open().await;
    let member = ground.peer("bob", &["team"]).await;
    let mut senders = Vec::new();
    for name in ["ada", "cal", "eve"] {
        senders.push(ground.peer(name, &["team"]).await);
    }
    let over = AtomicBool::new(false);
    // One post of each at a time, so that fan-out keeps up and judges posts while a join is between its cursor and its row.
    let posting = futures::future::join_all(senders.iter().map(|sender| post_until(sender, &over)));
    let joining = async {
        let mut intervals = Vec::new();
        for round in 1..=ROUNDS {
            assert_eq!(join(&member, "team").await, round);
            let (_, row) = ground.hand.row(member.lifecycle(), "team").await;
            leave(&member, "team", round).await;
            let (_, left) = ground.hand.row(member.lifecycle(), "team").await;
            intervals.push((row.join_cursor, left.leave_cursor.unwrap()));
        }
        over.store(true, Ordering::Release);
        intervals
    };
    // The copies are taken as they come, so that no store fills up.
    let mut messages = member.messages().unwrap();
    let mut got = Vec::new();
    let receiving = async {
        while let Some(incoming) = messages.recv().await {
            incoming.ack_now().await.unwrap();
            got.push(incoming.message.id().to_owned());
        }
    };
    let (seqs, intervals) = tokio::select! {
        both = async { futures::join!(posting, joining) } => both,
        () = receiving => unreachable!("the member is not closed"),
    };
    ground.at_rest().await;
    let seqs: BTreeMap<String, u64> = seqs.into_iter().flatten().collect();
    let holds = |seq: &u64| intervals.iter().any(|(join, leave)| join < seq && seq <= leave);
    let mut owed: Vec<u64> = seqs.values().copied().filter(holds).collect();
    owed.sort_unstable();
    while got.len() < owed.len() {
        let incoming = next(&mut messages).await;
        incoming.ack_now().await.unwrap();
        got.push(incoming.message.id().to_owned());
    }
    let mut got: Vec<u64> = got.iter().map(|id| seqs[id]).collect();
    got.sort_unstable();
    assert_eq!(got, owed, "{intervals:?}");
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
