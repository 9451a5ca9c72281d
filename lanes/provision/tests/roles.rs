//! Each role at work on a real broker: what it is for succeeds, and nothing it does on the way is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod common;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, kv};
use common::*;
use futures::StreamExt as _;
use lanekeeper_provision::profile::history_durable;
use lanekeeper_provision::*;
use lanekeeper_wire::{ChannelPattern, Lifecycle, names};
use serde_json::{Value, json};
use std::time::Duration;

async fn bucket(client: &Client, name: &str) -> kv::Store {
    client.js().get_key_value(name).await.unwrap()
}

/// A row from the leader: direct gets are not granted, see `profile/reads.rs`.
async fn row(client: &Client, bucket: &str, key: &str) -> String {
    let stream = client.js().get_stream_no_info(format!("KV_{bucket}")).await.unwrap();
    let entry = stream.get_last_raw_message_by_subject(&format!("$KV.{bucket}.{key}")).await.unwrap();
    String::from_utf8(entry.payload.to_vec()).unwrap()
}

async fn join(provisioner: &Client, account: &SpaceAccount, who: &Lifecycle, read: &[&str], role: Option<&str>) {
    let settings = MemberSettings {
        read: read.iter().map(|text| text.parse().unwrap()).collect(),
        role: role.map(|role| role.parse().unwrap()),
        ..MemberSettings::default()
    };
    add_member(&provisioner.js(), account.space(), who, &settings).await.unwrap();
}

/// Takes one message from a durable that is there, and acknowledges it.
async fn take(client: &Client, stream: &str, durable: &str) -> jetstream::Message {
    let consumer: PullConsumer = client.js().get_consumer_from_stream(durable, stream).await.unwrap();
    let mut batch = consumer.fetch().max_messages(1).messages().await.unwrap();
    let message = next("a message of the durable", &mut batch).await.unwrap();
    message.double_ack().await.unwrap();
    message
}

#[tokio::test]
async fn a_member_posts_reads_and_is_delivered_to() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let [ada, bob] = [lifecycle("local.ada"), lifecycle("local.bob")];
    join(&provisioner, &account, &ada, &["team.>"], Some("build")).await;
    join(&provisioner, &account, &bob, &["team.>"], None).await;
    let mut profile = agent(&ada, &["team.>"], &["team.>"]);
    profile.role = Some("build".parse().unwrap());
    let a = bench.connect(&account, &SpaceProfile::Agent(profile)).await;
    let b = bench.connect(&account, &SpaceProfile::Agent(agent(&bob, &["team.>"], &["team.>"]))).await;
    let daemon = bench.connect(&account, &SpaceProfile::Delivery(DeliveryExtras::None)).await;

    // Live.
    let mut live = b.nats.subscribe("cotal.dev.chat.*.*.team.>").await.unwrap();
    b.settle().await;
    a.js().publish("cotal.dev.chat.local.ada.team.ops", "hello".into()).await.unwrap().await.unwrap();
    assert_eq!(next("the live post", &mut live).await.subject.as_str(), "cotal.dev.chat.local.ada.team.ops");
    // History.
    let pattern: ChannelPattern = "team.>".parse().unwrap();
    let config = pull::Config {
        name: Some(history_durable(bob.principal(), &pattern)),
        filter_subject: "cotal.dev.chat.*.*.team.>".to_owned(),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    let history = b.js().create_consumer_on_stream(config, "CHAT_dev").await.unwrap();
    let mut past = history.fetch().max_messages(10).messages().await.unwrap();
    assert_eq!(&next("the past post", &mut past).await.unwrap().payload[..], b"hello");
    b.js().delete_consumer_from_stream(history_durable(bob.principal(), &pattern), "CHAT_dev").await.unwrap();
    // Direct message, work, delivery.
    b.js().publish("cotal.dev.inst.local.ada.local.bob", "dm".into()).await.unwrap().await.unwrap();
    b.js().publish("cotal.dev.svc.build.local.bob", "work".into()).await.unwrap().await.unwrap();
    let copy = format!("cotal.dev.dlv.{}", ada.key());
    daemon.js().publish(copy, "copy".into()).await.unwrap().await.unwrap();
    assert_eq!(&take(&a, "DM_dev", &names::dm_durable(&ada)).await.payload[..], b"dm");
    assert_eq!(&take(&a, "TASK_dev", "svc_build").await.payload[..], b"work");
    assert_eq!(&take(&a, "DLV_dev", &names::dlv_durable(&ada)).await.payload[..], b"copy");
    // Presence: its own is written, all are watched.
    let presence = bucket(&b, "cotal_presence_dev").await;
    let mut seen = presence.watch_all().await.unwrap();
    bucket(&a, "cotal_presence_dev").await.put("local.ada", "{}".into()).await.unwrap();
    assert_eq!(next("the presence row", &mut seen).await.unwrap().key, "local.ada");
    // Channels and the lease are read.
    assert!(row(&b, "cotal_channels_dev", "=defaults").await.contains("durable"));
    for client in [&a, &b, &daemon] {
        client.settle().await;
        assert!(client.errors().is_empty(), "{:?}", client.errors());
    }
}

#[tokio::test]
async fn a_request_is_answered_below_itself() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let ada = lifecycle("local.ada");
    let a = bench.connect(&account, &SpaceProfile::Agent(agent(&ada, &["team"], &["team"]))).await;
    let daemon = bench.connect(&account, &SpaceProfile::Delivery(DeliveryExtras::None)).await;
    let root = bench.connect(&account, &SpaceProfile::Admin(principal("local.root"))).await;
    for (client, filter, request) in [
        (&a, "cotal.dev.ctl.delivery.*.*", "cotal.dev.ctl.delivery.local.ada"),
        (&a, "cotal.dev.live.delivery.*.*", "cotal.dev.live.delivery.local.ada"),
        (&root, "cotal.dev.ctl.delivery-admin.*.*", "cotal.dev.ctl.delivery-admin.local.root"),
    ] {
        let mut requests = daemon.nats.queue_subscribe(filter, "q".to_owned()).await.unwrap();
        daemon.settle().await;
        let reply = format!("{request}.reply.1");
        let mut replies = client.nats.subscribe(reply.clone()).await.unwrap();
        client.nats.publish_with_reply(request, reply, "?".into()).await.unwrap();
        let asked = next("the request", &mut requests).await;
        daemon.nats.publish(asked.reply.unwrap(), "!".into()).await.unwrap();
        assert_eq!(&next("the reply", &mut replies).await.payload[..], b"!");
    }
    for client in [&a, &daemon, &root] {
        client.settle().await;
        assert!(client.errors().is_empty(), "{:?}", client.errors());
    }
}

#[tokio::test]
async fn the_daemon_lives_on_the_bare_rows() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let ada = lifecycle("local.ada");
    join(&provisioner, &account, &ada, &["team"], None).await;
    let a = bench.connect(&account, &SpaceProfile::Agent(agent(&ada, &["team"], &["team"]))).await;
    let d = bench.connect(&account, &SpaceProfile::Delivery(DeliveryExtras::None)).await;
    let js = d.js();
    for (stream, durable, filter) in [
        ("CHAT_dev", "fanout", "cotal.dev.chat.>"),
        ("INBOX_dev", "reader", "cotal.dev.dinbox.>"),
        ("EPT_REQ_dev", "timers", "cotal.dev.ept.*.*.*.*.schedule"),
    ] {
        let config = pull::Config {
            durable_name: Some(durable.to_owned()),
            filter_subject: filter.to_owned(),
            ack_policy: AckPolicy::Explicit,
            ..pull::Config::default()
        };
        js.create_consumer_on_stream(config, stream).await.unwrap();
    }
    a.js().publish("cotal.dev.chat.local.ada.team", "post".into()).await.unwrap().await.unwrap();
    assert_eq!(&take(&d, "CHAT_dev", "fanout").await.payload[..], b"post");
    for store in ["dinbox", "dlv"] {
        js.publish(format!("cotal.dev.{store}.{}", ada.key()), "copy".into()).await.unwrap().await.unwrap();
    }
    assert_eq!(&take(&d, "INBOX_dev", "reader").await.payload[..], b"copy");
    assert_eq!(js.get_stream("INBOX_dev").await.unwrap().cached_info().state.messages, 0, "acknowledged is gone");
    // The rows it decides by are watched; one row is read from the leader.
    for name in ["cotal_presence_dev", "cotal_channels_dev", "cotal_members_dev", "cotal_acl_dev"] {
        drop(bucket(&d, name).await.watch_all().await.unwrap());
    }
    assert!(row(&d, "cotal_acl_dev", &ada.key()).await.contains("allowSubscribe"));
    // A membership row and the lease, by compare-and-swap.
    let members = bucket(&d, "cotal_members_dev").await;
    members.create(format!("team/{}", ada.key()), "{}".into()).await.unwrap();
    let lease = bucket(&d, "cotal_delivery_dev").await;
    let revision = lease.create("lease.0", "{}".into()).await.unwrap();
    let revision = lease.update("lease.0", "{}".into(), revision).await.unwrap();
    lease.delete_expect_revision("lease.0", Some(revision)).await.unwrap();
    // A timer that fires.
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Schedule", "@at 2026-01-01T00:00:00Z");
    headers.insert("Nats-Schedule-Target", "cotal.dev.ept.e.i.1.t.fire");
    js.publish_with_headers("cotal.dev.ept.e.i.1.t.armed", headers, "{}".into()).await.unwrap().await.unwrap();
    let timers = provisioner.js().get_stream_no_info("EPT_dev").await.unwrap();
    let fired = || async { timers.get_info().await.ok().filter(|info| info.state.last_sequence >= 2) };
    wait("the timer to fire", fired).await;
    d.settle().await;
    assert!(d.errors().is_empty(), "{:?}", d.errors());
}

#[tokio::test]
async fn the_feed_reads_members_and_writes_its_bucket() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let feed = bench.connect(&account, &SpaceProfile::MembershipRw).await;
    let daemon = bench.connect(&account, &SpaceProfile::Delivery(DeliveryExtras::None)).await;
    let mut rows = bucket(&feed, "cotal_members_dev").await.watch_all().await.unwrap();
    bucket(&daemon, "cotal_members_dev").await.put("team/local.ada.x", "{}".into()).await.unwrap();
    assert_eq!(next("the members row", &mut rows).await.unwrap().key, "team/local.ada.x");
    let own = bucket(&feed, "cotal_membership_dev").await;
    own.put("local.ada", "{}".into()).await.unwrap();
    own.put("=feed", "{}".into()).await.unwrap();
    own.delete("local.ada").await.unwrap();
    let keys: Vec<_> = own.keys().await.unwrap().map(Result::unwrap).collect().await;
    assert_eq!(keys, ["=feed"]);
    let seen = bench.connect(&account, &SpaceProfile::Observer).await;
    assert_eq!(row(&seen, "cotal_membership_dev", "=feed").await, "{}");
    for client in [&feed, &daemon, &seen] {
        client.settle().await;
        assert!(client.errors().is_empty(), "{:?}", client.errors());
    }
}

#[tokio::test]
async fn the_observer_sees_its_account_and_the_evictor_closes_a_connection() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let other = bench.account("other").await;
    let _elsewhere = bench.connect(&other, &SpaceProfile::Observer).await;
    let url = bench.broker.url();
    let profile = SystemProfile::MembershipObserver { account_id: account.account_id().to_owned() };
    let credentials = bench.home.mint_system(&profile, Validity::forever()).unwrap();
    let observer = Client::open_with_inbox(&url, &credentials, "_INBOX.cotal-membership").await;
    let subject = format!("$SYS.ACCOUNT.{}.CONNECT", account.account_id());
    let mut came = observer.nats.subscribe(subject).await.unwrap();
    observer.settle().await;

    let ada = lifecycle("local.ada");
    let a = bench.connect(&account, &SpaceProfile::Agent(agent(&ada, &["team"], &["team"]))).await;
    next("the connect event", &mut came).await;
    let connz = format!("$SYS.REQ.ACCOUNT.{}.CONNZ", account.account_id());
    let request = json!({ "subscriptions": true, "auth": true }).to_string();
    let answer = observer.nats.request(connz, request.into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    let connections = answer["data"]["connections"].as_array().unwrap();
    assert!(connections.iter().all(|connection| connection["account"] == account.account_id()));
    let mine =
        connections.iter().find(|connection| connection["authorized_user"] == a.credentials.public_key()).unwrap();
    let tags: Vec<_> = mine["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    assert_eq!(tags, ["owner:local", "actor:ada", "principal:local.ada"]);

    let credentials = bench.home.mint_system(&SystemProfile::ConnectionEvictor, Validity::forever()).unwrap();
    let evictor = Client::open(&url, &credentials).await;
    let server = &answer["server"]["id"].as_str().unwrap();
    let kick = format!("$SYS.REQ.SERVER.{server}.KICK");
    let before = a.nats.server_info().client_id;
    let answer = evictor.nats.request(kick, json!({ "cid": mine["cid"] }).to_string().into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
    let moved = || std::future::ready((a.nats.server_info().client_id != before).then_some(()));
    wait("the closed connection to come back as another", moved).await;
    for client in [&observer, &evictor] {
        client.settle().await;
        assert!(client.errors().is_empty(), "{:?}", client.errors());
    }
}

/// The bare token of a big mesh member must still fit the line the broker reads: wire contract, section 10.
#[tokio::test]
async fn a_member_with_many_channels_connects() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let channels: Vec<_> = (0..60).map(|n| format!("team{n}.project.>")).collect();
    let read: Vec<_> = channels.iter().map(String::as_str).collect();
    let profile = SpaceProfile::Agent(agent(&lifecycle("local.ada"), &read, &read));
    let client = bench.connect(&account, &profile).await;
    assert!(client.credentials.jwt().len() > 4096);
    assert!(tokio::time::timeout(Duration::from_secs(10), client.nats.flush()).await.is_ok());
}
