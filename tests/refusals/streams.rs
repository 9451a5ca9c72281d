//! The space's streams and buckets: one missing, or made in a way that contradicts the contract.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use lanekeeper_wire::{Bucket, StreamKind};

use crate::{
    door::{Door, refused},
    support::World,
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_stream_or_bucket_is_refused_by_name() {
    let door = Door::open().await;
    let (lane, space) = (door.lane(), door.world.site.space.clone());
    let streams = [StreamKind::Chat, StreamKind::Inbox, StreamKind::Dlv].map(|kind| kind.name(&space));
    let buckets = [Bucket::Members, Bucket::Acl, Bucket::Channels, Bucket::Presence].map(|kind| kind.stream(&space));
    for name in streams.into_iter().chain(buckets) {
        let config = door.power.delete_stream(&name).await;
        let missing = format!("stream `{name}` does not exist");
        door.refused(&lane, "LANE-301", &[&missing, "provision the space"]).await;
        door.power.replace_stream(config).await;
    }
    let lease = Bucket::Delivery.stream(&space);
    let config = door.power.delete_stream(&lease).await;
    refused(door.start(&lane), "LANE-301", &[&format!("stream `{lease}` does not exist"), "provision the space"]).await;
    door.none_connected().await;
    assert!(door.power.js.get_stream(&lease).await.is_err(), "it was made by the lane");
    door.power.replace_stream(config).await;
    // Everything is back, so nothing but what was missing was the reason.
    let mut daemon = door.start(&lane);
    daemon.wait_serving().await;
    daemon.stop().await;
    door.world.assert_no_violations();
}

/// A stream, what is wrong with it, and what the refusal must say of the field.
type Contradiction = (String, fn(&mut Config), &'static [&'static str]);

/// Refused with each of these, and as found afterwards.
async fn each_is_refused(door: &Door, contradictions: Vec<Contradiction>) {
    let lane = door.lane();
    for (name, spoil, parts) in contradictions {
        let good = door.power.js.get_stream(&name).await.unwrap().cached_info().config.clone();
        let mut bad = good.clone();
        spoil(&mut bad);
        door.power.replace_stream(bad).await;
        let found = door.power.js.get_stream(&name).await.unwrap().cached_info().config.clone();
        assert_ne!(found, good, "the broker did not take it");
        let shown = format!("`{name}` contradicts the contract: ");
        let words = door.refused(&lane, "LANE-302", &[&shown, "must be", "provision it anew"]).await;
        for part in parts {
            assert!(words.contains(part), "{words} does not say {part}");
        }
        let after = door.power.js.get_stream(&name).await.unwrap().cached_info().config.clone();
        assert_eq!(after, found, "it was altered");
        door.power.replace_stream(good).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_contradicts_the_contract_is_refused_by_its_field() {
    let door = Door::open().await;
    let space = door.world.site.space.clone();
    let mut all: Vec<Contradiction> = Vec::new();
    for kind in [StreamKind::Inbox, StreamKind::Dlv] {
        let name = kind.name(&space);
        all.extend([
            (
                name.clone(),
                (|c| c.retention = RetentionPolicy::Interest) as fn(&mut Config),
                &["retention", "interest"] as &[_],
            ),
            (name.clone(), |c| c.subjects = vec!["elsewhere.>".into()], &["subjects", "elsewhere.>", "cotal.demo."]),
            (name.clone(), |c| c.duplicate_window = 2 * MINUTE, &["duplicate_window", "120s", "at least 2 h"]),
            (name.clone(), |c| c.discard = DiscardPolicy::New, &["discard", "new", "old"]),
            (name, |c| c.no_ack = true, &["no_ack", "true", "false"]),
        ]);
    }
    let chat = StreamKind::Chat.name(&space);
    all.push((chat, |c| c.subjects = vec!["cotal.other.chat.>".into()], &["subjects", "cotal.demo.chat.>"]));
    each_is_refused(&door, all).await;
    door.world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_rows_vanish_or_never_vanish_is_refused() {
    let door = Door::of(World::new().await).await;
    let space = door.world.site.space.clone();
    let mut all: Vec<Contradiction> = Vec::new();
    for bucket in [Bucket::Members, Bucket::Acl, Bucket::Channels] {
        all.push((bucket.stream(&space), |c| c.max_age = 60 * MINUTE, &["max_age", "3600s", "must not vanish"]));
    }
    each_is_refused(&door, all).await;
    // The lease bucket is watched from outside: it starts anew with each form of it.
    let (lane, lease) = (door.lane(), Bucket::Delivery.stream(&space));
    let good = door.power.js.get_stream(&lease).await.unwrap().cached_info().config.clone();
    for (max_age, shown) in [(Duration::ZERO, "0ns"), (24 * 60 * MINUTE, "86400s"), (Duration::from_secs(1), "1s")] {
        // A window for duplicates that is longer than the age is refused by the broker.
        let duplicate_window = Duration::from_secs(1);
        door.power.replace_stream(Config { max_age, duplicate_window, ..good.clone() }).await;
        let name = format!("`{lease}` contradicts the contract: max_age is {shown}");
        door.refused(&lane, "LANE-302", &[&name, "between 2 s and 5 min", "provision it anew"]).await;
        assert_eq!(door.power.lease_writes().await, 0);
    }
    door.power.replace_stream(Config { max_age: Duration::from_secs(30), ..good }).await;
    let mut daemon = door.start(&lane);
    daemon.wait_serving().await;
    daemon.stop().await;
    door.world.assert_no_violations();
}
