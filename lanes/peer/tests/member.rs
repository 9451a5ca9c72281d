//! A member on a real broker, without a daemon: what it shows, says, hears and finds out.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use std::time::Duration;

use common::{Bench, QUIET, WAIT, frame, hand_over, post_json};
use lanekeeper_broker::wait_until;
use lanekeeper_peer::{
    AskError, Binding, ControlError, JoinError, JoinState, Left, Mode, Peer, PostDraft, PostError, Shortfall, Status,
    Via,
};
use lanekeeper_provision::SpaceProfile;
use lanekeeper_wire::{Bucket, Channel, Plane, Responder, subject};
use serde_json::Value;

fn team() -> Channel {
    "team".parse().unwrap()
}

async fn presence(bench: &Bench, observer: &async_nats::Client, key: &str) -> Option<Value> {
    let js = async_nats::jetstream::new(observer.clone());
    let stream = js.get_stream(Bucket::Presence.stream(bench.space())).await.unwrap();
    let subject = Bucket::Presence.subject(bench.space(), key);
    let row = stream.get_last_raw_message_by_subject(&subject).await.ok()?;
    Some(serde_json::from_slice(&row.payload).unwrap())
}

#[tokio::test]
async fn presence_is_kept_alive_and_ends_with_goodbye() {
    let bench = Bench::start().await;
    let observer = bench.connect(&SpaceProfile::Observer).await;
    let ada = bench.join_space("ada", &["team"]).await;
    let appears = wait_until("ada's presence", WAIT, || presence(&bench, &observer, "local.ada"));
    assert_eq!(appears.await.unwrap()["status"], "idle");

    ada.set_status(Status::Working, Some("reading")).await.unwrap();
    let row = presence(&bench, &observer, "local.ada").await.unwrap();
    assert_eq!((&row["status"], &row["activity"]), (&"working".into(), &"reading".into()));
    assert_eq!(row["lifecycleUid"], ada.lifecycle().uid().as_str());

    let later = wait_until("a heartbeat after that", WAIT, || async {
        presence(&bench, &observer, "local.ada").await.filter(|next| next["ts"].as_u64() > row["ts"].as_u64())
    });
    assert_eq!(later.await.unwrap()["status"], "working");

    ada.close().await.unwrap();
    assert_eq!(presence(&bench, &observer, "local.ada").await.unwrap()["status"], "offline");
}

#[tokio::test]
async fn posts_are_stored_and_heard_live_by_others_only() {
    let bench = Bench::start().await;
    let (ada, bob) = (bench.join_space("ada", &["team"]).await, bench.join_space("bob", &["team"]).await);
    let (mut to_ada, mut to_bob) = (ada.messages().unwrap(), bob.messages().unwrap());
    assert!(ada.messages().is_none(), "there is one receiver");
    for peer in [&ada, &bob] {
        peer.join(&team()).await.unwrap();
    }
    let first = ada.post(&team(), PostDraft::text("hello").with_mention("Bob")).await.unwrap();
    let second = ada.post(&team(), PostDraft::text("again").with_id("chosen")).await.unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));

    let heard = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!((heard.via, heard.message.id()), (Via::Live, first.id.as_str()));
    assert_eq!((heard.sender.as_str(), heard.channel.as_str()), ("local.ada", "team"));
    assert_eq!(heard.message.mentions(), ["bob"]);
    assert_eq!(heard.message.text().as_deref(), Some("hello"));
    heard.ack().await.unwrap();
    assert_eq!(to_bob.recv_within(WAIT).await.unwrap().message.id(), "chosen");
    assert!(to_ada.recv_within(QUIET).await.is_none(), "nobody hears their own posts");
}

#[tokio::test]
async fn malformed_live_messages_are_dropped_and_the_next_is_heard() {
    let bench = Bench::start().await;
    let (ada, bob) = (bench.join_space("ada", &["team"]).await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    bob.join(&team()).await.unwrap();
    let subject = subject::chat(ada.space(), ada.principal(), &team());
    let forged = post_json("local.bob", "x", "in another's name").to_string();
    for payload in ["", "null", "7", "[]", "{", r#"{"id":7,"from":{"id":"local.ada"}}"#, &forged] {
        ada.publish_raw(&subject, payload.to_owned()).await.unwrap();
    }
    ada.post(&team(), PostDraft::text("sound").with_id("good")).await.unwrap();
    assert_eq!(to_bob.recv_within(WAIT).await.unwrap().message.id(), "good");
    assert_eq!(bob.counters().live_refused, 7);
}

#[tokio::test]
async fn durable_copies_are_surfaced_and_settled_only_when_acknowledged() {
    let bench = Bench::start().await;
    let (daemon, bob) = (bench.delivery().await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    assert_eq!(bob.wait_bound(WAIT).await, Binding::Bound);
    hand_over(&daemon, &bob, frame("local.ada", "m1", "kept for you"), true).await;

    let copy = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!(copy.via, Via::Durable { seq: 1, deliveries: 1 });
    assert_eq!((copy.sender.as_str(), copy.message.id()), ("local.ada", "m1"));
    assert_eq!(bench.unsettled(bob.lifecycle()).await, 1, "nothing is acknowledged on the member's behalf");
    copy.ack().await.unwrap();
    assert_eq!(bench.unsettled(bob.lifecycle()).await, 0, "a confirmed acknowledgement is settled at the broker");

    hand_over(&daemon, &bob, frame("local.ada", "m2", "and this"), true).await;
    to_bob.recv_within(WAIT).await.unwrap().ack_now().await.unwrap();
    bench.wait_settled(bob.lifecycle()).await;
    assert_eq!(bob.violations(), []);
}

#[tokio::test]
async fn entries_that_are_no_delivery_are_terminated_and_the_next_is_read() {
    let bench = Bench::start().await;
    let (daemon, bob) = (bench.delivery().await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    hand_over(&daemon, &bob, frame("local.ada", "m1", "no header"), false).await;
    hand_over(&daemon, &bob, "not json", true).await;
    hand_over(&daemon, &bob, frame("UABCNKEY.x", "m2", "an owner nobody trusts"), true).await;
    hand_over(&daemon, &bob, frame("local.ada", "m3", "sound"), true).await;
    let copy = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!(copy.message.id(), "m3");
    copy.ack().await.unwrap();
    bench.wait_settled(bob.lifecycle()).await;
    assert_eq!(bob.counters().durable_terminated, 3);
}

#[tokio::test]
async fn a_copy_given_back_comes_again_and_a_crash_loses_nothing() {
    let bench = Bench::start().await;
    let daemon = bench.delivery().await;
    let options = bench.member_with_ack_wait("bob", &["team"], Duration::from_secs(1)).await;
    let bob = Peer::connect(options.clone()).await.unwrap();
    let mut to_bob = bob.messages().unwrap();
    hand_over(&daemon, &bob, frame("local.ada", "m1", "twice"), true).await;
    let copy = to_bob.recv_within(WAIT).await.unwrap();
    copy.ack.unwrap().give_back(None).await.unwrap();
    let again = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!(again.via, Via::Durable { seq: 1, deliveries: 2 });

    // No goodbye, nothing acknowledged: what a crash leaves behind.
    drop((bob, to_bob, again));
    let bob = Peer::connect(options).await.unwrap();
    let copy = bob.messages().unwrap().recv_within(WAIT).await.unwrap();
    assert_eq!((copy.message.id(), copy.via), ("m1", Via::Durable { seq: 1, deliveries: 3 }));
    copy.ack().await.unwrap();
    bench.wait_settled(bob.lifecycle()).await;
}

#[tokio::test]
async fn coalesced_surfaces_one_and_settles_the_other_raw_surfaces_both() {
    let bench = Bench::start().await;
    let daemon = bench.delivery().await;
    let ada = bench.join_space("ada", &["team"]).await;
    let bob = bench.join_space("bob", &["team"]).await;
    let mut raw = bench.member("eve", &["team"]).await;
    raw.mode = Mode::Raw;
    let eve = Peer::connect(raw).await.unwrap();
    let (mut to_bob, mut to_eve) = (bob.messages().unwrap(), eve.messages().unwrap());
    for peer in [&bob, &eve] {
        peer.join(&team()).await.unwrap();
    }
    ada.post(&team(), PostDraft::text("both ways").with_id("m1")).await.unwrap();
    let heard = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!(heard.via, Via::Live);
    assert_eq!(to_eve.recv_within(WAIT).await.unwrap().via, Via::Live);
    for peer in [&bob, &eve] {
        hand_over(&daemon, peer, frame("local.ada", "m1", "both ways"), true).await;
        // Another author with the same id is another post.
        hand_over(&daemon, peer, frame("local.carl", "m1", "mine"), true).await;
    }
    let other = to_bob.recv_within(WAIT).await.unwrap();
    assert_eq!(other.sender.as_str(), "local.carl");
    other.ack().await.unwrap();
    bench.wait_settled(bob.lifecycle()).await;
    assert_eq!(bob.counters().coalesced, 1);

    assert_eq!(to_eve.recv_within(WAIT).await.unwrap().message.text().as_deref(), Some("both ways"));
    assert_eq!(to_eve.recv_within(WAIT).await.unwrap().sender.as_str(), "local.carl");
    assert_eq!(bench.unsettled(eve.lifecycle()).await, 2, "raw settles nothing by itself");
}

#[tokio::test]
async fn empty_ids_are_never_coalesced() {
    let bench = Bench::start().await;
    let (daemon, bob) = (bench.delivery().await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    for text in ["one", "two"] {
        hand_over(&daemon, &bob, frame("local.ada", "", text), true).await;
    }
    for text in ["one", "two"] {
        let copy = to_bob.recv_within(WAIT).await.unwrap();
        assert_eq!(copy.message.text().as_deref(), Some(text));
        copy.ack().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_daemon_a_join_is_live_only_and_a_probe_says_unbound() {
    let bench = Bench::start().await;
    let (ada, bob) = (bench.join_space("ada", &["team"]).await, bench.join_space("bob", &["team"]).await);
    let mut to_bob = bob.messages().unwrap();
    let joined = bob.join(&team()).await.unwrap();
    assert_eq!(joined.state, JoinState::LiveOnly { reason: Shortfall::NoDaemon });
    assert_eq!(joined.to_string(), "joined live, backstop unestablished");
    ada.post(&team(), PostDraft::text("live all the same")).await.unwrap();
    assert_eq!(to_bob.recv_within(WAIT).await.unwrap().via, Via::Live);

    for plane in [Plane::Delivery, Plane::Manager] {
        let probe = bob.probe(plane).await;
        assert_eq!((probe.responder, probe.instance), (Responder::Unbound, None));
    }
    let fault = bob.memberships().await.unwrap_err();
    assert!(matches!(fault, ControlError::Unanswered(AskError::NoResponders { .. })), "{fault}");

    let left = bob.leave(&team()).await;
    assert!(matches!(left, Left::Unconfirmed { .. }), "{left:?}");
    assert_eq!(bob.join_state(&team().to_pattern()), None);
    ada.post(&team(), PostDraft::text("after leave")).await.unwrap();
    assert!(to_bob.recv_within(QUIET).await.is_none(), "the live half is closed in any case");
}

#[tokio::test]
async fn a_refusal_by_the_broker_is_named_at_once() {
    let bench = Bench::start().await;
    let ada = bench.join_space("ada", &["team"]).await;
    let secret: Channel = "secret".parse().unwrap();
    let started = tokio::time::Instant::now();
    let denied = ada.join(&secret).await.unwrap_err();
    assert_eq!(denied, JoinError::Denied { subject: "cotal.demo.chat.*.*.secret".to_owned() });
    assert_eq!(ada.join_state(&secret.to_pattern()), None);
    let denied = ada.post(&secret, PostDraft::text("x")).await.unwrap_err();
    assert_eq!(denied, PostError::Denied { subject: "cotal.demo.chat.local.ada.secret".to_owned() });
    assert!(started.elapsed() < Duration::from_secs(2), "a refusal was waited out: {:?}", started.elapsed());
    let subjects: Vec<_> = ada.violations().into_iter().map(|violation| violation.subject).collect();
    assert_eq!(subjects, ["cotal.demo.chat.*.*.secret", "cotal.demo.chat.local.ada.secret"]);
    ada.join(&team()).await.unwrap();
}

#[tokio::test]
async fn bursts_are_bounded_ordered_and_safe_to_repeat() {
    let bench = Bench::start().await;
    let ada = bench.join_space("ada", &["team"]).await;
    let drafts = (0..500).map(|n| PostDraft::text(format!("post {n}")).with_id(format!("m{n}")));
    let outcomes = ada.post_pipelined(&team(), drafts, 64).await;
    let mut stored: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap()).collect();
    stored.sort_by_key(|posted| posted.seq);
    let ids: Vec<_> = stored.iter().map(|posted| posted.id.clone()).collect();
    assert_eq!(ids, (0..500).map(|n| format!("m{n}")).collect::<Vec<_>>());

    let mut poster = ada.poster(4);
    for n in 0..20 {
        poster.post(&team(), PostDraft::text(format!("{n}"))).await;
        assert!(poster.in_flight() <= 4);
    }
    poster.finish().await;

    let draft = PostDraft::text("once").with_id("once").suppressing_repeats();
    let first = ada.post(&team(), draft.clone()).await.unwrap();
    let second = ada.post(&team(), draft).await.unwrap();
    assert_eq!((second.seq, first.repeated, second.repeated), (first.seq, false, true));
}
