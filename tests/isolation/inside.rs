//! What can happen inside a lane.

use std::{fs, time::Duration};

use lanekeeper::supervisor::LaneStatus;
use lanekeeper_peer::{Peer, PostDraft};
use tokio::time::Instant;

use crate::{
    ground::{Bad, Ground},
    support::channel,
    traffic::members,
};

/// Every part of a lane.
const PARTS: [&str; 7] = ["lease", "registry", "fan_out", "trusted_reader", "control", "dlv_rooms", "denials"];
/// The lane that is flooded.
pub(crate) const FLOOD_LANE: usize = 31;
/// The channel that is flooded.
const FLOODED: &str = "flood";
/// What is thrown at it, where that takes no longer than [`FLOOD_TIME`].
pub(crate) const FLOOD: usize = 100_000;
/// A debug build on a small machine takes longer; then it is as many posts as fit.
const FLOOD_TIME: Duration = Duration::from_secs(2);
/// How many posts are on their way at a time.
const IN_FLIGHT: usize = 512;

pub(crate) async fn panics(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        for part in PARTS {
            let before = bad.now();
            let hook = bad.ground.host.hook(&format!("{}.{part}.panic", bad.space));
            bad.mark();
            fs::write(&hook, "").unwrap();
            bad.fault("LANE-501", &format!("`{part}` ended: asked to panic"), &before).await;
            bad.serves_after(before.generation).await;
        }
    };
    ground.case("panics", 30, story).await;
}

/// Into one channel of one lane, whose streams hold all of it: what is thrown must be handed over to the last post.
pub(crate) async fn flood(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let (receiver, sender) = members(bad.site(), "eve", "fay", FLOODED).await;
        let mut messages = receiver.messages().unwrap();
        let reading = tokio::spawn(async move {
            while let Some(incoming) = messages.recv().await {
                // Where it does not arrive, the copy comes again.
                let _ = incoming.ack().await;
            }
        });
        let before = bad.now();
        bad.mark();
        let sent = throw(&sender).await;
        let (now, took_ms) = bad.has_handled(&before, sent).await;
        println!("{sent} posts thrown at one lane, each stored for its member after {took_ms} ms");
        assert_eq!((now.generation, &now.incarnation), (before.generation, &before.incarnation));
        assert_eq!(now.counters.fan_out.shortfall + now.counters.reader.shortfall, 0);
        sender.close().await.unwrap();
        receiver.close().await.unwrap();
        reading.await.unwrap();
    };
    ground.case("flood", FLOOD_LANE, story).await;
}

/// Posts as many as fit into the time; gives how many the broker took.
async fn throw(sender: &Peer) -> u64 {
    let (mut poster, team, begun) = (sender.poster(IN_FLIGHT), channel(FLOODED), Instant::now());
    let mut outcomes = Vec::new();
    for number in 0..FLOOD {
        outcomes.extend(poster.post(&team, PostDraft::text(format!("flood-{number}"))).await);
        if begun.elapsed() > FLOOD_TIME {
            break;
        }
    }
    outcomes.extend(poster.finish().await);
    assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes.iter().find(|outcome| outcome.is_err()));
    outcomes.len() as u64
}

impl Bad<'_> {
    /// Waits until the copies of so many posts are stored for their one member.
    async fn has_handled(&mut self, before: &LaneStatus, posts: u64) -> (LaneStatus, u128) {
        let was = before.counters;
        let is = |lane: &LaneStatus| {
            let now = lane.counters;
            now.fan_out.stored >= was.fan_out.stored + posts && now.reader.stored >= was.reader.stored + posts
        };
        let lane = self.ground.host.wait_lane(&self.space, "has handled the flood", is).await;
        (lane, self.since_mark_ms())
    }
}
