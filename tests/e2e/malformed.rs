//! Garbage on the streams of the plane: each piece is terminated with its reason, and what is good around it arrives.

use async_nats::HeaderMap;
use lanekeeper_wire::subject;

use crate::{
    ground::{Ground, say, texts},
    hand::{Hand, post_json},
};

/// Bytes that are no message at all, whatever the subject.
fn garbage() -> Vec<Vec<u8>> {
    let deep = 200_000;
    let texts = [
        String::new(),
        " ".to_owned(),
        "null".to_owned(),
        "7".to_owned(),
        "[]".to_owned(),
        r#""x""#.to_owned(),
        "{}".to_owned(),
        "not json".to_owned(),
        r#"{"id":"cut","from":{"id":"local.ada"},"parts":[{"kind""#.to_owned(),
        r#"{"id":"two","from":{"id":"local.ada"}} {"id":"objects"}"#.to_owned(),
        "[".repeat(deep) + &"]".repeat(deep),
        "[".repeat(deep),
        r#"{"a":"#.repeat(deep / 2),
        "x".repeat(900_000),
    ];
    let mut all: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    all.push(vec![0xff, 0xfe, 0x00]);
    all.push(b"{\"id\":\"\xff\",\"from\":{\"id\":\"local.ada\"}}".to_vec());
    all
}

/// Messages that are JSON objects, and yet no posts of `local.ada`; each with the code of its refusal.
fn misfits() -> Vec<(Vec<u8>, &'static str)> {
    let from = r#""from":{"id":"local.ada"}"#;
    let json = [
        format!("{{{from}}}"),
        format!(r#"{{"id":7,{from}}}"#),
        format!(r#"{{"id":null,{from}}}"#),
        r#"{"id":"x"}"#.to_owned(),
        r#"{"id":"x","from":"local.ada"}"#.to_owned(),
        r#"{"id":"x","from":{"id":7}}"#.to_owned(),
        r#"{"id":"x","from":[{"id":"local.ada"}]}"#.to_owned(),
    ];
    let sender = [
        r#"{"id":"x","from":{"id":"local.eve"}}"#.to_owned(),
        r#"{"id":"x","from":{"id":"local-ada"}}"#.to_owned(),
        r#"{"id":"x","from":{"id":""}}"#.to_owned(),
        r#"{"id":"x","from":{"id":"local.ada"},"from":{"id":"local.eve"}}"#.to_owned(),
    ];
    let coded = |code| move |text: String| (text.into_bytes(), code);
    let json = json.into_iter().map(coded("malformed-json"));
    json.chain(sender.into_iter().map(coded("sender-mismatch"))).collect()
}

/// Fails unless the part said of this very message that it was terminated, and why.
fn assert_terminated(log: &str, part: &str, seq: u64, code: &str) {
    let (part, seq, code) = (format!(r#"part="{part}""#), format!("seq={seq} "), format!(r#"code="{code}""#));
    let said = log.lines().filter(|line| line.contains("terminated") && line.contains(&part) && line.contains(&seq));
    let said: Vec<&str> = said.collect();
    assert!(said.len() == 1 && said[0].contains(&code), "{seq}{code}: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_post_is_terminated_with_its_reason_and_the_posts_around_it_arrive() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    let hand = Hand::of_the_account(&ground.world).await;
    let at = |rest: &str| format!("cotal.{}.chat.{rest}", ground.world.site.space);
    let mut bad: Vec<(String, Vec<u8>, &str)> = Vec::new();
    bad.extend(garbage().into_iter().map(|payload| (at("local.ada.team"), payload, "malformed-json")));
    bad.extend(misfits().into_iter().map(|(payload, code)| (at("local.ada.team"), payload, code)));
    let stranger = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    for rest in
        ["x", "local.ada", "local.ada.te$am", "local.a-b.team", "u_short.ada.team", &format!("{stranger}.ada.team")]
    {
        bad.push((at(rest), post_json("local.ada", "x", "team", "stray").into(), "malformed-subject"));
    }
    let (mut terminated, mut good) = (Vec::new(), Vec::new());
    for (number, (subject, payload, code)) in bad.into_iter().enumerate() {
        let seq = hand.store(&subject, payload).await;
        terminated.push((seq, code));
        say(&ada, "team", format!("good {number}")).await;
        good.push(format!("good {number}"));
    }
    let mut only_header = HeaderMap::new();
    only_header.insert("X-Only", "a header");
    terminated.push((hand.store_with(&at("local.ada.team"), only_header, "").await, "malformed-json"));
    let bob = ground.back("bob").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), good.len()).await, good);
    ground.at_rest().await;
    ground.wait_stores_empty().await;
    let log = ground.log_text();
    for (seq, code) in terminated {
        assert_terminated(&log, "fan_out", seq, code);
    }
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_entry_is_terminated_with_its_reason_and_the_entries_around_it_are_released() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let lifecycle = ground.absent("bob", &["team"]).await;
    let space = &ground.world.site.space;
    let own = subject::dinbox(space, &lifecycle);
    let msg = post_json("local.ada", "x", "team", "by hand");
    let entry = |msg: &str, channel: &str, seq: &str, reason: &str| {
        format!(r#"{{"msg":{msg},"channel":{channel},"seq":{seq},"reason":{reason},"generation":1}}"#)
    };
    let (team, durable) = (r#""team""#, r#""durable-channel""#);
    let mut bad: Vec<(String, Vec<u8>, &str)> =
        garbage().into_iter().map(|payload| (own.clone(), payload, "malformed-entry")).collect();
    let misfits = [
        entry("null", team, "1", durable),
        entry("[]", team, "1", durable),
        entry(&msg, "7", "1", durable),
        entry(&msg, r#""a..b""#, "1", durable),
        entry(&msg, r#""team.>""#, "1", durable),
        entry(&msg, team, "-1", durable),
        entry(&msg, team, "1.5", durable),
        entry(&msg, team, r#""1""#, durable),
        entry(&msg, team, "99999999999999999999", durable),
        entry(&msg, team, "1", r#""because""#),
        entry(&msg, team, "1", "null"),
    ];
    bad.extend(misfits.into_iter().map(|text| (own.clone(), text.into_bytes(), "malformed-entry")));
    let valid = entry(&msg, team, "1", durable);
    let uid = lifecycle.uid();
    for (owner, uid) in [("local", "SHORT"), ("lo-cal", uid.as_str()), ("stranger", uid.as_str())] {
        let subject = format!("cotal.{space}.dinbox.{owner}.bob.{uid}");
        bad.push((subject, valid.clone().into_bytes(), "malformed-subject"));
    }
    let (mut terminated, mut good) = (Vec::new(), Vec::new());
    for (number, (subject, payload, code)) in bad.into_iter().enumerate() {
        terminated.push((ground.hand.store(&subject, payload).await, code));
        say(&ada, "team", format!("good {number}")).await;
        good.push(format!("good {number}"));
    }
    let bob = ground.back("bob").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), good.len()).await, good);
    ground.at_rest().await;
    ground.wait_stores_empty().await;
    let log = ground.log_text();
    for (seq, code) in terminated {
        assert_terminated(&log, "trusted_reader", seq, code);
    }
    ground.close().await;
}
