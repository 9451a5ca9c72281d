//! A member and whoever serves the space: answers of every kind, a daemon that appears late, replies that go astray.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use std::time::Duration;

use common::{Bench, QUIET, Script, WAIT, round_trip};
use lanekeeper_peer::{JoinState, Left, Peer, Shortfall};
use lanekeeper_wire::{Channel, ChannelPattern, Plane, Responder, subject};
use serde_json::{Value, json};

fn team() -> Channel {
    "team".parse().unwrap()
}

fn pattern() -> ChannelPattern {
    team().to_pattern()
}

fn ok(data: &Value) -> String {
    json!({"ok": true, "data": data}).to_string()
}

async fn serve(bench: &Bench, answer: impl Fn(&Value) -> String + Send + 'static) -> Script {
    let daemon = bench.delivery().await;
    Script::serve(&daemon, subject::control_filter(bench.space()), answer).await
}

/// A daemon that grants whatever the member with this uid asks.
fn granting(uid: &str) -> impl Fn(&Value) -> String + Send + 'static {
    let uid = uid.to_owned();
    move |request| match request["op"].as_str() {
        Some("durableJoin") => ok(&json!({"durable": true, "generation": 4, "lifecycleUid": uid})),
        Some("listMemberships") => ok(&json!([{"channel": "team", "generation": 4, "activated": false}])),
        Some("durableLeave") if request["args"]["generation"] == 4 => ok(&json!({})),
        Some("durableLeave") => json!({"ok": false, "error": "stale generation"}).to_string(),
        Some("readHistory") => ok(&json!({"items": [{"id": "m1"}], "complete": true})),
        other => json!({"ok": false, "error": format!("unknown op {other:?}")}).to_string(),
    }
}

#[tokio::test]
async fn a_late_daemon_makes_a_live_join_durable() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let joined = bob.join(&team()).await.unwrap();
    assert_eq!(joined.state, JoinState::LiveOnly { reason: Shortfall::NoDaemon });

    let script = serve(&bench, granting(bob.lifecycle().uid().as_str())).await;
    let state = bob.ensure_durable(&pattern(), WAIT).await.unwrap();
    assert_eq!(state, JoinState::Durable { generation: 4, lifecycle_uid: bob.lifecycle().uid().clone() });
    assert_eq!(state.to_string(), "joined durable");
    let request = script.seen.lock().unwrap()[0].clone();
    assert_eq!((&request["from"]["id"], &request["args"]), (&"local.bob".into(), &json!({"channel": "team"})));
}

#[tokio::test]
async fn the_retry_runs_by_itself() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    bob.join(&team()).await.unwrap();
    let _script = serve(&bench, granting(bob.lifecycle().uid().as_str())).await;
    lanekeeper_broker::wait_until("a durable membership", Duration::from_secs(5), || async {
        bob.join_state(&pattern()).filter(JoinState::is_durable)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn no_odd_answer_reads_as_durable() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let uid = bob.lifecycle().uid().as_str().to_owned();
    let other = "zzzzzzzzzzzzzzzzzzzzzzzzzz";
    let answers = [
        json!({"ok": false, "error": "channel not in the read list"}).to_string(),
        ok(&json!({"durable": false, "generation": 4, "reason": "evicted", "lifecycleUid": uid})),
        ok(&json!({"durable": true, "generation": 4, "lifecycleUid": other})),
        ok(&json!({"durable": true})),
        ok(&Value::Null),
        "null".to_owned(),
        "{".to_owned(),
        String::new(),
    ];
    for answer in answers {
        let given = answer.clone();
        let script = serve(&bench, move |_| given.clone()).await;
        let joined = bob.join(&team()).await.unwrap();
        assert_eq!(joined.to_string(), "joined live, backstop unestablished", "{answer}");
        script.stop().await;
    }
    let _refusing = serve(&bench, |_| json!({"ok": false, "error": "no"}).to_string()).await;
    let joined = bob.join(&team()).await.unwrap();
    assert_eq!(joined.state, JoinState::LiveOnly { reason: Shortfall::Refused { error: "no".to_owned() } });
}

#[tokio::test]
async fn leaving_asks_for_a_generation_it_does_not_know() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let script = serve(&bench, granting(bob.lifecycle().uid().as_str())).await;
    // Never joined by this process: the row is there from an earlier one, and still being activated.
    assert_eq!(bob.leave(&team()).await, Left::Ended { generation: 4 });
    assert_eq!(script.ops(), ["listMemberships", "durableLeave"]);
    let leave = script.seen.lock().unwrap()[1]["args"].clone();
    let uid = bob.lifecycle().uid().as_str();
    assert_eq!(leave, json!({"channel": "team", "generation": 4, "lifecycleUid": uid}));

    bob.join(&team()).await.unwrap();
    assert_eq!(bob.leave(&team()).await, Left::Ended { generation: 4 });
    assert_eq!(script.ops()[2..], ["durableJoin", "durableLeave"], "a known generation needs no listing");
    assert_eq!(bob.leave(&"ops".parse().unwrap()).await, Left::WasNotDurable);
}

#[tokio::test]
async fn a_stale_generation_is_looked_up_once_more() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let uid = bob.lifecycle().uid().as_str().to_owned();
    let current = granting(&uid);
    let script = serve(&bench, move |request| match request["op"].as_str() {
        Some("durableJoin") => ok(&json!({"durable": true, "generation": 3, "lifecycleUid": uid})),
        _ => current(request),
    })
    .await;
    bob.join(&team()).await.unwrap();
    assert_eq!(bob.leave(&team()).await, Left::Ended { generation: 4 });
    assert_eq!(script.ops(), ["durableJoin", "durableLeave", "listMemberships", "durableLeave"]);
}

#[tokio::test]
async fn lists_and_history_are_read() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let script = serve(&bench, granting(bob.lifecycle().uid().as_str())).await;
    let rows = bob.memberships().await.unwrap();
    assert_eq!((rows.len(), rows[0].generation, rows[0].activated), (1, 4, false));
    let page = bob.history(&team(), Some(7)).await.unwrap();
    assert_eq!((page.items.len(), page.complete), (1, true));
    let asked = script.seen.lock().unwrap()[1]["args"].clone();
    assert_eq!(asked, json!({"channel": "team", "limit": 7}));
    let reply = bob.control("sing", json!({})).await.unwrap();
    assert!(!reply.ok, "an unknown operation is answered, not lost");
}

#[tokio::test]
async fn a_reply_subject_elsewhere_reaches_nobody_but_its_own_does() {
    let bench = Bench::start().await;
    let bob = bench.join_space("bob", &["team"]).await;
    let eve = bench.join_space("eve", &["team"]).await;
    // The script answers whatever reply subject it is given: what it may publish is the broker's decision, and what it
    // should, the daemon's. Here only the ends are shown: each tap hears its own subtree.
    let _script = serve(&bench, |_| ok(&json!({}))).await;
    let (mut bobs, mut eves) = (bob.tap_replies().await.unwrap(), eve.tap_replies().await.unwrap());
    let own = format!("{}own", subject::reply_prefix(&eve.control_subject()));
    eve.control_with_reply("listMemberships", json!({}), &own).await.unwrap();
    let (reply, payload) = eves.next_within(WAIT).await.unwrap();
    assert_eq!((reply, &payload[..]), (own, ok(&json!({})).as_bytes()));
    assert!(bobs.next_within(QUIET).await.is_none());
}

#[tokio::test]
async fn a_probe_says_what_it_found_out() {
    let bench = Bench::start().await;
    let mut options = bench.member("bob", &["team"]).await;
    options.probe_timeout = Duration::from_millis(300);
    let bob = Peer::connect(options).await.unwrap();
    let daemon = bench.delivery().await;
    let filter = subject::live_filter(bench.space(), Plane::Delivery);
    for (answer, expected, instance) in [
        (r#"{"plane":"delivery","responder":"bound","instance":"t1"}"#, Responder::Bound, Some("t1")),
        (r#"{"plane":"delivery","responder":"stale","instance":"t2"}"#, Responder::Stale, Some("t2")),
        (r#"{"plane":"delivery","responder":"bound","instance":"t3","holder":"x"}"#, Responder::Unknown, None),
        ("nonsense", Responder::Unknown, None),
    ] {
        let script = Script::serve(&daemon, filter.clone(), move |_| answer.to_owned()).await;
        let probe = bob.probe(Plane::Delivery).await;
        assert_eq!((probe.responder, probe.instance.as_deref()), (expected, instance), "{answer}");
        script.stop().await;
    }
    let probe = bob.probe(Plane::Delivery).await;
    assert_eq!(probe.responder, Responder::Unbound, "nobody is left");
    // Somebody listens and says nothing.
    let _deaf = daemon.queue_subscribe(filter, "live.delivery".to_owned()).await.unwrap();
    round_trip(&daemon).await;
    assert_eq!(bob.probe(Plane::Delivery).await.responder, Responder::Unknown);
}
