//! Streams, buckets and members of a space, on a real broker.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod common;

use async_nats::jetstream::{self, stream};
use common::*;
use lanekeeper_provision::streams::stream_configs;
use lanekeeper_provision::*;
use lanekeeper_wire::{AclRow, Bucket, ChannelDefaults, DeliveryClass, Lifecycle, StreamKind, names};
use std::time::Duration;

fn reading(read: &[&str]) -> MemberSettings {
    MemberSettings { read: read.iter().map(|text| text.parse().unwrap()).collect(), ..MemberSettings::default() }
}

async fn config_of(js: &jetstream::Context, stream: &str) -> stream::Config {
    js.get_stream(stream).await.unwrap().cached_info().config.clone()
}

async fn last(js: &jetstream::Context, bucket: Bucket, key: &str) -> jetstream::message::StreamMessage {
    let dev = space("dev");
    let stream = js.get_stream_no_info(bucket.stream(&dev)).await.unwrap();
    stream.get_last_raw_message_by_subject(&bucket.subject(&dev, key)).await.unwrap()
}

async fn acl_of(js: &jetstream::Context, lifecycle: &Lifecycle) -> AclRow {
    AclRow::parse(&last(js, Bucket::Acl, &lifecycle.key()).await.payload).unwrap()
}

#[tokio::test]
async fn every_stream_of_the_contract_is_made_once() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let js = provisioner.js();
    let mut before = Vec::new();
    for config in stream_configs(account.space(), &SpaceSettings::default()).unwrap() {
        let info = js.get_stream(&config.name).await.unwrap().cached_info().clone();
        before.push((info.created, info.state.last_sequence));
    }
    assert_eq!(before.len(), 14);

    ensure_space(&js, account.space(), &SpaceSettings::default()).await.unwrap();
    let mut after = Vec::new();
    for config in stream_configs(account.space(), &SpaceSettings::default()).unwrap() {
        let info = js.get_stream(&config.name).await.unwrap().cached_info().clone();
        after.push((info.created, info.state.last_sequence));
    }
    assert_eq!(before, after, "the second call made and wrote nothing");
    assert!(provisioner.errors().is_empty(), "{:?}", provisioner.errors());
}

#[tokio::test]
async fn the_configuration_is_that_of_the_contract() {
    use stream::{DiscardPolicy, RetentionPolicy, StorageType};
    let bench = Bench::start().await;
    let (_, provisioner) = bench.space("dev").await;
    let js = provisioner.js();
    for name in StreamKind::ALL
        .map(|kind| kind.name(&space("dev")))
        .into_iter()
        .chain(Bucket::ALL.map(|b| b.stream(&space("dev"))))
    {
        let config = config_of(&js, &name).await;
        assert_eq!(config.storage, StorageType::File, "{name}");
        assert_eq!(config.max_consumers, 100_000, "{name}");
        assert_eq!(config.max_bytes, -1, "{name} reserves nothing");
    }
    let chat = config_of(&js, "CHAT_dev").await;
    assert_eq!(chat.subjects, ["cotal.dev.chat.>"]);
    assert_eq!((chat.max_messages_per_subject, chat.discard, chat.allow_direct), (1000, DiscardPolicy::Old, true));
    assert_eq!((chat.retention, chat.duplicate_window), (RetentionPolicy::Limits, Duration::from_secs(120)));
    let dm = config_of(&js, "DM_dev").await;
    assert_eq!((dm.retention, dm.allow_direct), (RetentionPolicy::Limits, false));
    let task = config_of(&js, "TASK_dev").await;
    assert_eq!((task.retention, task.allow_direct), (RetentionPolicy::WorkQueue, false));
    for (name, subject) in [("INBOX_dev", "cotal.dev.dinbox.>"), ("DLV_dev", "cotal.dev.dlv.>")] {
        let copies = config_of(&js, name).await;
        assert_eq!(copies.subjects, [subject]);
        assert_eq!((copies.retention, copies.discard), (RetentionPolicy::WorkQueue, DiscardPolicy::Old));
        assert_eq!((copies.max_messages_per_subject, copies.duplicate_window), (1000, Duration::from_secs(7200)));
        assert!(!copies.allow_direct);
    }
    let requests = config_of(&js, "EPT_REQ_dev").await;
    assert_eq!((requests.max_age, requests.allow_message_schedules), (Duration::from_secs(86_400), false));
    let timers = config_of(&js, "EPT_dev").await;
    assert_eq!((timers.max_age, timers.allow_message_schedules), (Duration::from_secs(31 * 86_400), true));

    for (bucket, age_s) in [(Bucket::Presence, 6), (Bucket::Delivery, 30), (Bucket::Members, 0), (Bucket::Acl, 0)] {
        let config = config_of(&js, &bucket.stream(&space("dev"))).await;
        assert_eq!(config.max_age, Duration::from_secs(age_s), "{bucket:?}");
        assert_eq!((config.discard, config.max_messages_per_subject), (DiscardPolicy::New, 1), "{bucket:?}");
        assert!(config.allow_rollup && config.deny_delete && !config.deny_purge && config.allow_direct, "{bucket:?}");
    }
    let records = config_of(&js, "KV_cotal_records_dev").await;
    assert!(records.deny_delete && records.deny_purge);
    let defaults: ChannelDefaults =
        serde_json::from_slice(&last(&js, Bucket::Channels, "=defaults").await.payload).unwrap();
    assert_eq!(defaults.delivery_class, Some(DeliveryClass::Durable));
}

#[tokio::test]
async fn a_contradiction_is_named_and_nothing_is_altered() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let (js, dev) = (provisioner.js(), account.space());
    let cases = [
        (
            SpaceSettings { lease_ttl: Duration::from_secs(60), ..SpaceSettings::default() },
            "KV_cotal_delivery_dev",
            "max_age",
        ),
        (SpaceSettings { dlv_retention: Retention::Limits, ..SpaceSettings::default() }, "DLV_dev", "retention"),
        (SpaceSettings { max_consumers: 7, ..SpaceSettings::default() }, "CHAT_dev", "max_consumers"),
        (SpaceSettings { messages_per_subject: 5, ..SpaceSettings::default() }, "CHAT_dev", "max_msgs_per_subject"),
        (
            SpaceSettings { feed_max_bytes: Some(1 << 20), ..SpaceSettings::default() },
            "KV_cotal_membership_dev",
            "max_bytes",
        ),
    ];
    for (settings, wanted_stream, wanted_field) in cases {
        let before = config_of(&js, wanted_stream).await;
        let fault = ensure_space(&js, dev, &settings).await.unwrap_err();
        let StreamFault::Differs { stream, field, .. } = &fault else { panic!("{fault}") };
        assert_eq!((stream.as_str(), *field), (wanted_stream, wanted_field));
        assert_eq!(config_of(&js, wanted_stream).await, before);
    }
    let shorter = SpaceSettings { lease_ttl: Duration::from_secs(60), ..SpaceSettings::default() };
    let text = ensure_space(&js, dev, &shorter).await.unwrap_err().to_string();
    assert!(text.contains("KV_cotal_delivery_dev") && text.contains("max_age = 30s where 60s"), "{text}");
}

#[tokio::test]
async fn defaults_changed_by_an_operator_stay() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let js = provisioner.js();
    js.publish("$KV.cotal_channels_dev.=defaults", r#"{"deliveryClass":"live"}"#.into()).await.unwrap().await.unwrap();
    ensure_space(&js, account.space(), &SpaceSettings::default()).await.unwrap();
    assert_eq!(&last(&js, Bucket::Channels, "=defaults").await.payload[..], br#"{"deliveryClass":"live"}"#);
}

#[tokio::test]
async fn a_member_is_added_changed_and_retired() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let (js, dev, ada) = (provisioner.js(), account.space(), lifecycle("local.ada"));
    let settings = MemberSettings { role: Some("build".parse().unwrap()), ..reading(&["team.>", "news"]) };
    add_member(&js, dev, &ada, &settings).await.unwrap();
    add_member(&js, dev, &ada, &settings).await.unwrap();
    let info = |stream: &'static str, durable: String| {
        let js = js.clone();
        async move { js.get_consumer_from_stream::<jetstream::consumer::pull::Config, _, _>(durable, stream).await }
    };
    let dlv = info("DLV_dev", names::dlv_durable(&ada)).await.unwrap().cached_info().config.clone();
    assert_eq!(dlv.filter_subject, format!("cotal.dev.dlv.{}", ada.key()));
    assert_eq!((dlv.ack_wait, dlv.deliver_policy), (Duration::from_secs(60), jetstream::consumer::DeliverPolicy::All));
    let dm = info("DM_dev", names::dm_durable(&ada)).await.unwrap().cached_info().config.clone();
    assert_eq!(dm.filter_subject, "cotal.dev.inst.local.ada.*.*");
    assert_eq!(
        dm.deliver_policy,
        jetstream::consumer::DeliverPolicy::New,
        "not what an earlier bearer of the name got"
    );
    let svc = info("TASK_dev", "svc_build".to_owned()).await.unwrap().cached_info().config.clone();
    assert_eq!(svc.filter_subject, "cotal.dev.svc.build.*.*");

    let first = acl_of(&js, &ada).await;
    assert_eq!((first.revision, first.allow_subscribe.len()), (1, 2));
    assert_eq!(first.issued_allow_subscribe.as_ref(), Some(&first.allow_subscribe));
    set_read_acl(&js, dev, &ada, vec!["news".parse().unwrap()]).await.unwrap();
    let second = acl_of(&js, &ada).await;
    assert_eq!((second.revision, second.allow_subscribe.len()), (2, 1));
    assert_eq!(second.issued_allow_subscribe, first.issued_allow_subscribe);
    assert!(matches!(add_member(&js, dev, &ada, &settings).await, Err(MemberFault::AlreadyMember(_))));

    retire_member(&js, dev, &ada).await.unwrap();
    retire_member(&js, dev, &ada).await.unwrap();
    let marker = last(&js, Bucket::Acl, &ada.key()).await;
    assert_eq!(marker.headers.get("KV-Operation").unwrap().as_str(), "DEL");
    assert!(info("DLV_dev", names::dlv_durable(&ada)).await.is_err());
    assert!(info("DM_dev", names::dm_durable(&ada)).await.is_err());
    assert!(
        info("TASK_dev", "svc_build".to_owned()).await.is_ok(),
        "a role's durable belongs to all who have the role"
    );
    assert!(matches!(add_member(&js, dev, &ada, &settings).await, Err(MemberFault::Retired(_))));
    assert!(matches!(set_read_acl(&js, dev, &ada, Vec::new()).await, Err(MemberFault::Retired(_))));
    let eve = lifecycle("local.eve");
    assert!(matches!(set_read_acl(&js, dev, &eve, Vec::new()).await, Err(MemberFault::NotMember(_))));
    assert!(matches!(retire_member(&js, dev, &eve).await, Err(MemberFault::NotMember(_))));
    assert!(provisioner.errors().is_empty(), "{:?}", provisioner.errors());
}

#[tokio::test]
async fn what_was_kept_for_a_retired_member_is_gone() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let (js, dev) = (provisioner.js(), account.space());
    let [ada, bob] = [lifecycle("local.ada"), lifecycle("local.bob")];
    let daemon = bench.connect(&account, &SpaceProfile::Delivery(DeliveryExtras::None)).await.js();
    for member in [&ada, &bob] {
        add_member(&js, dev, member, &reading(&["team"])).await.unwrap();
        daemon.publish(format!("cotal.dev.dlv.{}", member.key()), "{}".into()).await.unwrap().await.unwrap();
    }
    retire_member(&js, dev, &ada).await.unwrap();
    let state = js.get_stream("DLV_dev").await.unwrap().cached_info().state.clone();
    assert_eq!(state.messages, 1, "the other's stays");
}

#[tokio::test]
async fn changes_of_one_acl_at_once_are_all_counted() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let (js, dev, ada) = (provisioner.js(), account.space(), lifecycle("local.ada"));
    add_member(&js, dev, &ada, &reading(&["team"])).await.unwrap();
    let change = |channel: &str| set_read_acl(&js, dev, &ada, vec![channel.parse().unwrap()]);
    let (one, two, three) = tokio::join!(change("a"), change("b"), change("c"));
    assert!(one.is_ok() && two.is_ok() && three.is_ok(), "{one:?} {two:?} {three:?}");
    assert_eq!(acl_of(&js, &ada).await.revision, 4);
}

#[tokio::test]
async fn a_durable_with_another_configuration_is_named() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let (js, dev, ada) = (provisioner.js(), account.space(), lifecycle("local.ada"));
    add_member(&js, dev, &ada, &reading(&["team"])).await.unwrap();
    let slower = MemberSettings { ack_wait: Duration::from_secs(61), ..reading(&["team"]) };
    let fault = add_member(&js, dev, &ada, &slower).await.unwrap_err();
    assert!(matches!(fault, MemberFault::DurableDiffers { .. }), "{fault}");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let check = |settings: &SpaceSettings| stream_configs(&space("dev"), settings).map(|_| ());
    for replicas in [1, 3, 5] {
        let settings = SpaceSettings { replicas, ..SpaceSettings::default() };
        assert!(check(&settings).is_ok());
        let configs = stream_configs(&space("dev"), &settings).unwrap();
        assert!(configs.iter().all(|config| config.num_replicas == replicas));
    }
    for replicas in [0, 2, 4, 6] {
        let fault = check(&SpaceSettings { replicas, ..SpaceSettings::default() }).unwrap_err().to_string();
        assert_eq!(fault, format!("setting replicas is {replicas}; it must be 1, 3 or 5"));
    }
    let faulty = [
        SpaceSettings { max_consumers: 0, ..SpaceSettings::default() },
        SpaceSettings { messages_per_subject: 0, ..SpaceSettings::default() },
        SpaceSettings { lease_ttl: Duration::from_millis(999), ..SpaceSettings::default() },
        SpaceSettings { presence_ttl: Duration::ZERO, ..SpaceSettings::default() },
        SpaceSettings { chat_max_bytes: Some(0), ..SpaceSettings::default() },
        SpaceSettings { chat_max_age: Some(Duration::ZERO), ..SpaceSettings::default() },
    ];
    for settings in faulty {
        assert!(matches!(check(&settings), Err(StreamFault::Setting { .. })), "{settings:?}");
    }
}
