//! What a member may ask the daemon: the reply rule, requests that are wrong, and a daemon that comes late.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use lanekeeper::mesh::member_credentials;
use lanekeeper_broker::wait_until;
use lanekeeper_peer::{Peer, PeerOptions};
use lanekeeper_wire::{ControlReply, Principal, subject};
use serde_json::json;

use crate::{
    ground::{Ground, join, say, texts},
    hand::Hand,
    support::{PATIENCE, World, channel, pattern},
};

/// Long enough for an answer that must not come, after the fence has shown that it would have come by then.
const QUIET: Duration = Duration::from_millis(50);

/// Sends bytes as a request of `caller` and reads the answer.
async fn ask_raw(member: &Hand, ground: &Ground, caller: &Principal, payload: impl Into<Bytes>) -> ControlReply {
    let request = subject::control(&ground.world.site.space, caller);
    let reply = format!("{}{:x}", subject::reply_prefix(&request), rand::random::<u64>());
    let mut answers = member.client.subscribe(reply.clone()).await.unwrap();
    member.client.publish_with_reply(request, reply, payload.into()).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, answers.next()).await.expect("an answer in time").unwrap();
    assert!(answer.status.is_none(), "nobody serves: {answer:?}");
    ControlReply::parse(&answer.payload).unwrap()
}

/// The member's own rights, without the member's manners.
async fn raw(ground: &Ground, name: &str) -> Hand {
    let member = ground.world.member(name, &["team"]).await;
    Hand::with(&ground.world, &member_credentials(&member).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_reply_lies_in_anothers_subtree_is_answered_nowhere() {
    let ground = Ground::open().await;
    let (ada, eve) = (ground.peer("ada", &["team"]).await, ground.peer("eve", &["team"]).await);
    let (mut of_ada, mut of_eve) = (ada.tap_replies().await.unwrap(), eve.tap_replies().await.unwrap());
    let args = json!({ "channel": "team" });
    let (own, others) = (subject::reply_prefix(&eve.control_subject()), subject::reply_prefix(&ada.control_subject()));
    let bare_prefix = own.trim_end_matches('.').to_owned();
    for reply in [format!("{others}injected"), ada.control_subject(), eve.control_subject(), bare_prefix] {
        eve.control_with_reply("durableJoin", args.clone(), &reply).await.unwrap();
    }
    // Requests are served one after the other, so the answer to this one comes after any answer to those.
    eve.control_with_reply("durableJoin", args, &format!("{own}fence")).await.unwrap();
    let (subject, payload) = of_eve.next_within(PATIENCE).await.expect("the own subtree is answered");
    assert!(subject.ends_with(".reply.fence"), "{subject}");
    assert!(ControlReply::parse(&payload).unwrap().ok);
    ada.memberships().await.unwrap();
    let (subject, _) = of_ada.next_within(PATIENCE).await.expect("the own subtree is answered");
    assert!(!subject.ends_with("injected"), "{subject}");
    assert!(of_ada.next_within(QUIET).await.is_none() && of_eve.next_within(QUIET).await.is_none());
    assert!(ground.log_text().contains("outside the request's own subtree"));
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_wrong_is_answered_with_what_is_wrong_and_the_next_is_served() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team"]).await;
    let member = raw(&ground, "bob").await;
    let uid = bob.lifecycle().uid().as_str();
    let from = r#""from":{"id":"local.bob"}"#;
    let wrong: [(String, &str); 22] = [
        (String::new(), "json"),
        ("null".into(), "json"),
        ("7".into(), "json"),
        ("[]".into(), "json"),
        (r#""x""#.into(), "json"),
        (r#"{"op":"durableJoin""#.into(), "json"),
        ("{".repeat(20_000), "json"),
        (format!(r#"{{"op":"durableJoin",{from},"args":"#) + &"[".repeat(20_000), "json"),
        (r#"{"op":"durableJoin","args":{"channel":"team"}}"#.into(), "from"),
        (r#"{"op":"durableJoin","from":{"id":"local.ada"},"args":{"channel":"team"}}"#.into(), "local.ada"),
        (r#"{"op":"durableJoin","from":{"id":7},"args":{"channel":"team"}}"#.into(), "from"),
        (format!(r#"{{{from},"args":{{}}}}"#), "op"),
        (format!(r#"{{"op":7,{from},"args":{{}}}}"#), "op"),
        (format!(r#"{{"op":"dropEverything",{from}}}"#), "dropEverything"),
        (format!(r#"{{"op":"durableJoin",{from}}}"#), "channel"),
        (format!(r#"{{"op":"durableJoin",{from},"args":[]}}"#), "args"),
        (format!(r#"{{"op":"durableJoin",{from},"args":{{"channel":7}}}}"#), "channel"),
        (format!(r#"{{"op":"durableJoin",{from},"args":{{"channel":"a..b"}}}}"#), "a..b"),
        (format!(r#"{{"op":"durableLeave",{from},"args":{{"channel":"team","lifecycleUid":"{uid}"}}}}"#), "generation"),
        (
            format!(
                r#"{{"op":"durableLeave",{from},"args":{{"channel":"team","generation":-1,"lifecycleUid":"{uid}"}}}}"#
            ),
            "generation",
        ),
        (format!(r#"{{"op":"durableLeave",{from},"args":{{"channel":"team","generation":1}}}}"#), "lifecycleUid"),
        (format!(r#"{{"op":"listMemberships",{from},"args":{{"lifecycleUid":"UPPER"}}}}"#), "UPPER"),
    ];
    for (payload, named) in wrong {
        let reply = ask_raw(&member, &ground, bob.principal(), payload.clone()).await;
        let error = reply.error.clone().unwrap_or_default();
        let shown: String = payload.chars().take(100).collect();
        assert!(!reply.ok && error.contains(named), "{shown}: {reply:?}");
        assert!(!error.contains('\n') && error.len() < 400, "{shown}: {error}");
    }
    assert!(!ask_raw(&member, &ground, bob.principal(), vec![0xff, 0xfe, b'{']).await.ok);
    let oversized = format!(r#"{{"op":"durableJoin",{from},"args":{{"channel":"{}"}}}}"#, "x".repeat(100_000));
    assert!(!ask_raw(&member, &ground, bob.principal(), oversized).await.ok);
    assert!(bob.memberships().await.unwrap().is_empty());
    assert_eq!(join(&bob, "team").await, 1);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_reply_subject_is_dropped_and_changes_nothing() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team"]).await;
    let member = raw(&ground, "bob").await;
    let request = r#"{"op":"durableJoin","from":{"id":"local.bob"},"args":{"channel":"team"}}"#;
    member.client.publish(bob.control_subject(), request.into()).await.unwrap();
    member.client.flush().await.unwrap();
    assert!(bob.memberships().await.unwrap().is_empty());
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_daemon_a_join_is_live_only_and_becomes_durable_when_one_appears() {
    let mut ground = Ground::unserved(World::new().await).await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.world.member("bob", &["team"]).await;
    let bob = Peer::connect(PeerOptions { ..ground.world.options(&bob) }).await.unwrap();
    let joined = bob.join(&channel("team")).await.unwrap();
    assert_eq!(joined.to_string(), "joined live, backstop unestablished");
    let mut messages = bob.messages().unwrap();
    say(&ada, "team", "live").await;
    assert_eq!(texts(&mut messages, 1).await, ["live"]);
    ground.start_daemon().await;
    let durable = wait_until("the retry to succeed", Duration::from_secs(6), || async {
        bob.join_state(&pattern("team")).filter(|state| state.is_durable())
    });
    assert_eq!(durable.await.unwrap().to_string(), "joined durable");
    say(&ada, "team", "both ways").await;
    assert_eq!(texts(&mut messages, 1).await, ["both ways"]);
    // The other copy is coalesced and acknowledged behind the scenes, while messages are asked for.
    ground.at_rest().await;
    while ground.copies_for(bob.lifecycle()).await > 0 {
        assert!(messages.recv_within(Duration::from_millis(20)).await.is_none());
    }
    bob.close().await.unwrap();
    say(&ada, "team", "while away").await;
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), 1).await, ["while away"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}
