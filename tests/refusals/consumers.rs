//! The two durables, made by somebody else: bound as they are, told where they differ, refused where they cannot serve.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info, pull};
use futures::StreamExt as _;
use lanekeeper_broker::wait_until;
use lanekeeper_peer::PostDraft;
use lanekeeper_provision::{Retention, SpaceSettings};
use lanekeeper_wire::{FANOUT_DURABLE, READER_DURABLE, StreamKind, subject};

use crate::{
    door::Door,
    support::{PATIENCE, World, channel},
};

/// Stream, name and filter of each durable.
fn durables(door: &Door) -> [(String, &'static str, String); 2] {
    let space = &door.world.site.space;
    [
        (StreamKind::Chat.name(space), FANOUT_DURABLE, subject::chat_filter(space)),
        (StreamKind::Inbox.name(space), READER_DURABLE, subject::dinbox_filter(space)),
    ]
}

fn good(name: &str, filter: &str) -> Config {
    Config {
        durable_name: Some(name.to_owned()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(60),
        filter_subject: filter.to_owned(),
        max_ack_pending: 1000,
        ..Config::default()
    }
}

async fn info(door: &Door, stream: &str, name: &str) -> Info {
    let found = door.power.js.get_consumer_from_stream::<Config, _, _>(name, stream).await.unwrap();
    found.cached_info().clone()
}

/// The whole configuration and when it was made; the order of a map says nothing.
fn made(info: &Info) -> (serde_json::Value, String) {
    (serde_json::to_value(&info.config).unwrap(), info.created.to_string())
}

/// What is wrong with a durable, and what the refusal must say.
type Contradiction = (fn(&mut Config), &'static [&'static str]);

const CONTRADICTIONS: [Contradiction; 6] = [
    (
        |config| {
            config.deliver_subject = Some("elsewhere".into());
            config.max_ack_pending = 0;
        },
        &["deliver_subject is elsewhere", "a pull consumer"],
    ),
    (
        |config| config.filter_subject = config.filter_subject.replace('>', "local.>").replace("*.*.*", "local.*.*"),
        &["filter_subject is `cotal.demo.", "local."],
    ),
    (|config| config.filter_subject = String::new(), &["filter_subject is "]),
    (
        |config| {
            let one = std::mem::take(&mut config.filter_subject);
            config.filter_subjects = ["local", "other"]
                .map(|owner| one.replace('>', &format!("{owner}.>")).replace("*.*.*", &format!("{owner}.*.*")))
                .to_vec();
        },
        &["filter_subject is [", "local.", "other."],
    ),
    (|config| config.ack_policy = AckPolicy::None, &["ack_policy is None", "explicit"]),
    (|config| config.headers_only = true, &["headers_only is true", "false"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_that_cannot_serve_is_refused_by_its_field_and_left_alone() {
    // A work queue takes no consumer that does not acknowledge; with limits every form can be made.
    let settings = SpaceSettings {
        lease_ttl: Duration::from_secs(2),
        inbox_retention: Retention::Limits,
        ..SpaceSettings::default()
    };
    let door = Door::of(World::with(settings).await).await;
    let lane = door.lane();
    for (stream, name, filter) in durables(&door) {
        for (spoil, parts) in CONTRADICTIONS {
            let mut config = good(name, &filter);
            spoil(&mut config);
            door.power.js.create_consumer_on_stream(config, &stream).await.unwrap();
            let before = info(&door, &stream, name).await;
            let shown = format!("`{stream}/{name}` contradicts the contract: ");
            let words = door.refused(&lane, "LANE-302", &[&shown, "must be", "provision it anew"]).await;
            for part in parts {
                assert!(words.contains(part), "{words} does not say {part}");
            }
            let after = info(&door, &stream, name).await;
            assert_eq!(made(&after), made(&before));
            door.power.js.delete_consumer_from_stream(name, &stream).await.unwrap();
        }
    }
    let mut daemon = door.start(&lane);
    daemon.wait_serving().await;
    daemon.stop().await;
    door.world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_that_merely_differs_is_bound_as_it_is_and_nothing_is_replayed() {
    let door = Door::open().await;
    let sender = door.world.connect(&door.world.member("sender", &["team"]).await).await;
    for number in 0..5 {
        sender.post(&channel("team"), PostDraft::text(format!("post {number}"))).await.unwrap();
    }
    for (stream, name, filter) in durables(&door) {
        let drifted = Config { ack_wait: Duration::from_secs(59), ..good(name, &filter) };
        door.power.js.create_consumer_on_stream(drifted, &stream).await.unwrap();
    }
    let [(chat, fanout, _), (inbox, reader, _)] = durables(&door);
    // The one before us has settled all of them.
    let consumer = door.power.js.get_consumer_from_stream::<pull::Config, _, _>(fanout, &chat).await.unwrap();
    let mut batch = consumer.fetch().max_messages(5).messages().await.unwrap();
    while let Some(message) = batch.next().await {
        message.unwrap().double_ack().await.unwrap();
    }
    let before = [info(&door, &chat, fanout).await, info(&door, &inbox, reader).await];
    assert_eq!((before[0].ack_floor.stream_sequence, before[0].num_pending), (5, 0));
    let mut daemon = door.start(&door.lane());
    daemon.wait_serving().await;
    let log = daemon.log_text();
    for (stream, name) in [(&chat, fanout), (&inbox, reader)] {
        let warned = |line: &&str| line.contains("drift, left as it is") && line.contains(&format!("{stream}/{name}"));
        let warnings: Vec<&str> = log.lines().filter(warned).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in ["WARN", "ack_wait", "59s", "60s"] {
            assert!(warnings[0].contains(part), "{} does not say {part}", warnings[0]);
        }
    }
    sender.post(&channel("team"), PostDraft::text("post 5")).await.unwrap();
    let floor = async || (info(&door, &chat, fanout).await.ack_floor.stream_sequence == 6).then_some(());
    wait_until("the sixth post settled", PATIENCE, floor).await.unwrap();
    let after = [info(&door, &chat, fanout).await, info(&door, &inbox, reader).await];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(made(after), made(before));
    }
    assert_eq!(after[0].delivered.consumer_sequence, before[0].delivered.consumer_sequence + 1, "replayed");
    assert_eq!(after[0].num_redelivered, 0);
    daemon.stop().await;
    sender.close().await.unwrap();
    door.world.assert_no_violations();
}
