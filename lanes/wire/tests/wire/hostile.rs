//! Any bytes at all: no parser panics, recurses with the input, or answers with more than a line.

use std::fmt::Display;
use std::str::FromStr;

use lanekeeper_wire::control::{parse_raw, parse_request};
use lanekeeper_wire::message::check_post;
use lanekeeper_wire::*;
use proptest::prelude::*;

use crate::samples::{UID, alice, parsed, space, valid_payloads};

/// Checks the text of a fault; whether the parser took the bytes is not the question here.
fn told<T, E: Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(fault) => {
            let text = fault.to_string();
            assert!(!text.chars().any(char::is_control) && text.len() < 2_500, "{} bytes: {text}", text.len());
            None
        }
    }
}

fn feed_message(bytes: &[u8]) {
    let Some(message) = told(Message::parse(bytes)) else { return };
    let channel: Channel = parsed("team.x");
    let _ = (message.mentions(), message.ts(), message.text(), message.field("parts").map(|raw| raw.get().len()));
    let again = Message::parse(message.with_channel(&channel).as_bytes()).expect("what we write we can read");
    assert_eq!((again.id(), again.from_id()), (message.id(), message.from_id()));
    assert_eq!(again.field("channel").map(|raw| raw.get()), Some("\"team.x\""));
    assert!(again.field("to").is_none() && again.field("toService").is_none());
    assert_eq!(Message::parse(message.to_json().as_bytes()).map(|m| m.to_json()), Ok(message.to_json()));
}

fn feed_entry(bytes: &[u8]) {
    if let Some(entry) = told(InboxEntry::parse(bytes)) {
        let _ = told(DeliveryFrame::parse(Some(FRAME_VERSION), &entry.frame()));
        let _ = told(Message::parse(entry.message_json()));
    }
    if let Some(post) = told(check_post(&space(), "cotal.alpha.chat.local.alice.ops", bytes)) {
        let entry = EntryTemplate::new(&post, 1, EntryReason::DurableChannel).for_generation(1);
        let entry = InboxEntry::parse(&entry).expect("our own entry");
        DeliveryFrame::parse(Some(FRAME_VERSION), &entry.frame()).expect("our own frame");
    }
}

fn feed(bytes: &[u8]) {
    feed_message(bytes);
    feed_entry(bytes);
    let timer: Subject = Subject::parse(&space(), "cotal.alpha.ept.e.i.1.t.schedule").expect("a timer subject");
    if let Subject::Timer(timer) = timer {
        told(ScheduleRequest::parse(&timer, bytes)).map(|request| request.to_json());
    }
    told(AclRow::parse(bytes)).map(|row| AclRow::parse(row.to_json().as_bytes()).expect("our own row"));
    told(MembershipRow::parse(bytes)).map(|row| MembershipRow::parse(row.to_json().as_bytes()).expect("our own row"));
    told(LeaseRow::parse(bytes)).map(|row| LeaseRow::parse(row.to_json().as_bytes()).expect("our own row"));
    told(ChannelConfig::parse(bytes)).map(|row| ChannelConfig::parse(row.to_json().as_bytes()).expect("our own row"));
    told(ChannelDefaults::parse(bytes)).map(|row| row.to_json());
    told(PresenceRow::parse("local.alice", bytes))
        .map(|row| PresenceRow::parse("local.alice", row.to_json().as_bytes()).expect("our own row"));
    told(FeedRow::parse(bytes)).map(|row| FeedRow::parse(row.to_json().as_bytes()).expect("our own row"));
    told(FeedHeartbeat::parse(bytes)).map(|row| row.to_json());
    told(DeliveryFrame::parse(Some(FRAME_VERSION), bytes));
    told(parse_request(&alice(), bytes));
    told(parse_raw(&alice(), bytes));
    told(ControlReply::parse(bytes)).map(|reply| ControlReply::parse(&reply.to_bytes()).expect("our own reply"));
    told(LivenessAnswer::parse(bytes)).map(|answer| answer.to_json());
}

/// What a type takes, it gives back as it was.
fn keeps<T: FromStr<Err: Display> + Display>(text: &str) {
    if let Some(value) = told(text.parse::<T>()) {
        assert_eq!(value.to_string(), text);
    }
}

fn feed_text(text: &str) {
    keeps::<Space>(text);
    keeps::<Owner>(text);
    keeps::<Actor>(text);
    keeps::<LifecycleUid>(text);
    keeps::<Role>(text);
    keeps::<TimerId>(text);
    keeps::<EndpointToken>(text);
    keeps::<InstanceId>(text);
    keeps::<Epoch>(text);
    keeps::<Principal>(text);
    keeps::<Lifecycle>(text);
    keeps::<Channel>(text);
    keeps::<ChannelPattern>(text);
    keeps::<MemberKey>(text);
    keeps::<ReplayWindow>(text);
    if let Some(who) = told(Principal::parse_dashed(text)) {
        assert_eq!(who.dashed(), text);
    }
    if let Some(subject) = told(Subject::parse(&space(), text)) {
        assert_eq!(subject.build(&space()), text);
    }
    told(DeliveryFrame::parse(Some(text), b"{}"));
    told(PresenceRow::parse(text, b"{\"card\":{\"id\":\"\",\"name\":\"\"},\"status\":\"\",\"ts\":0}"));
    for bucket in Bucket::ALL {
        let _ = bucket.key_of(&space(), text);
    }
    let _ = subject::matches(text, text);
    let _ = subject::is_own_reply("cotal.alpha.ctl.delivery.local.alice", text);
}

/// Runs on a stack of 1 MiB, on which recursion over 200,000 levels would end the process.
fn on_one_mib_of_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(work).unwrap().join().unwrap();
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

fn deep_payloads() -> Vec<String> {
    let array = nested("[", "]", 200_000);
    let object = format!("{}0{}", "{\"a\":".repeat(200_000), "}".repeat(200_000));
    let mut all = vec![array.clone(), object.clone(), "[".repeat(200_000), "{\"a\":".repeat(200_000)];
    for deep in [array, object] {
        for valid in valid_payloads() {
            all.push(format!("{},\"unknown\":{deep}}}", valid.strip_suffix('}').unwrap()));
            all.push(format!("{{\"unknown\":{deep},{}", valid.strip_prefix('{').unwrap()));
        }
        for (name, rest) in [
            ("id", r#""from":{"id":"local.alice"}"#),
            ("from", r#""id":"a""#),
            ("mentions", r#""id":"a","from":{"id":"local.alice"}"#),
            ("parts", r#""id":"a","from":{"id":"local.alice"}"#),
            ("ts", r#""id":"a","from":{"id":"local.alice"}"#),
            ("channel", r#""id":"a","from":{"id":"local.alice"}"#),
            ("args", r#""op":"readHistory","from":{"id":"local.alice"}"#),
            ("msg", r#""channel":"ops","seq":1,"reason":"live-mention","generation":1,"version":1"#),
            ("allowSubscribe", "\"revision\":1"),
            ("card", r#""status":"idle","ts":1"#),
            ("activity", r#""card":{"id":"local.alice","name":"A"},"status":"idle","ts":1"#),
            ("data", "\"ok\":true"),
        ] {
            all.push(format!("{{{rest},\"{name}\":{deep}}}"));
        }
    }
    all
}

#[test]
fn nesting_of_200_000_levels_neither_panics_nor_overflows() {
    on_one_mib_of_stack(|| {
        for payload in deep_payloads() {
            feed(payload.as_bytes());
        }
    });
}

#[test]
fn deep_unknown_fields_do_not_make_a_valid_record_invalid() {
    on_one_mib_of_stack(|| {
        let deep = nested("[", "]", 200_000);
        let acl = format!(r#"{{"allowSubscribe":["ops"],"revision":1,"updatedAt":1,"unknown":{deep}}}"#);
        assert!(AclRow::parse(acl.as_bytes()).is_ok());
        let post = format!(r#"{{"id":"a","from":{{"id":"local.alice"}},"unknown":{deep}}}"#);
        assert_eq!(Message::parse(post.as_bytes()).unwrap().to_json(), post);
        let request = format!(
            r#"{{"op":"durableJoin","unknown":{deep},"from":{{"id":"local.alice"}},"args":{{"channel":"a"}}}}"#
        );
        assert!(matches!(parse_request(&alice(), request.as_bytes()), Err(RequestFault::TooLarge { .. })));
    });
}

#[test]
fn the_known_bad_payloads_are_refused_by_every_parser() {
    let bad: [&[u8]; 18] = [
        b"",
        b" ",
        b"null",
        b"7",
        b"[]",
        b"\"x\"",
        b"true",
        b"{",
        b"}",
        b"{\"id\":",
        b"{\"id\":\"a\"",
        b"\xff\xfe",
        b"{\"id\":\"\xff\"}",
        b"\0",
        b"\xef\xbb\xbf{}",
        b"{\"a\":1}{\"a\":1}",
        b"[{}]",
        b"NaN",
    ];
    for bytes in bad {
        feed(bytes);
        assert!(Message::parse(bytes).is_err() && InboxEntry::parse(bytes).is_err(), "{bytes:?}");
        assert!(AclRow::parse(bytes).is_err() && MembershipRow::parse(bytes).is_err(), "{bytes:?}");
        assert!(LeaseRow::parse(bytes).is_err() && ChannelConfig::parse(bytes).is_err(), "{bytes:?}");
        assert!(PresenceRow::parse("local.alice", bytes).is_err() && FeedRow::parse(bytes).is_err(), "{bytes:?}");
        assert!(ControlReply::parse(bytes).is_err() && LivenessAnswer::parse(bytes).is_err(), "{bytes:?}");
        assert!(parse_request(&alice(), bytes).is_err() && parse_raw(&alice(), bytes).is_err(), "{bytes:?}");
        assert!(DeliveryFrame::parse(Some("1"), bytes).is_err() && FeedHeartbeat::parse(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_struct_is_not_read_from_an_array_of_its_fields() {
    assert!(AclRow::parse(br#"[["ops"],null,1,1]"#).is_err());
    assert!(FeedHeartbeat::parse(b" [1,2]").is_err());
    assert!(LivenessAnswer::parse(br#"["delivery","bound","x"]"#).is_err());
    assert!(ChannelConfig::parse(b"[]").is_err());
    assert!(ControlReply::parse(b"[true]").is_err());
}

#[test]
fn truncation_at_every_byte_is_refused() {
    for valid in valid_payloads() {
        for end in 0..valid.len() {
            let Some(cut) = valid.as_bytes().get(..end) else { continue };
            feed(cut);
            assert!(Message::parse(cut).is_err() && AclRow::parse(cut).is_err() && InboxEntry::parse(cut).is_err());
        }
    }
}

#[test]
fn a_mebibyte_of_anything_is_taken_in_stride() {
    const MIB: usize = 1 << 20;
    let head = r#"{"id":"a","from":{"id":"local.alice"}"#;
    let many_names: String = (0..80_000).map(|n| format!(",\"k{n}\":{n}")).collect();
    let same_name = ",\"k\":0".repeat(MIB / 6);
    let mentions: String = (0..100_000).map(|n| format!("\"n{n}\",")).collect();
    let payloads = [
        "a".repeat(MIB),
        "\0".repeat(MIB),
        "\"".repeat(MIB),
        "\\".repeat(MIB),
        "9".repeat(MIB),
        format!("{head},\"text\":\"{}\"}}", "x".repeat(MIB)),
        format!("{head},\"text\":\"{}\"}}", "\\ud800".repeat(MIB / 6)),
        format!("{head},\"number\":{}}}", "9".repeat(MIB)),
        format!("{head}{many_names}}}"),
        format!("{head}{same_name}}}"),
        format!("{head},\"mentions\":[{mentions}0]}}"),
        format!("{{\"id\":\"{}\",\"from\":{{\"id\":\"{}\"}}}}", "i".repeat(MIB), "f".repeat(MIB)),
        format!("{{\"op\":\"{}\",\"from\":{{\"id\":\"local.alice\"}}}}", "o".repeat(MIB)),
        format!("{{\"allowSubscribe\":[\"{}\"],\"revision\":1}}", "c".repeat(MIB)),
        format!("{{\"holder\":\"{}\",\"since\":\"{}\"}}", "h".repeat(MIB), "s".repeat(MIB)),
    ];
    for payload in &payloads {
        feed(payload.as_bytes());
    }
    feed(&vec![0xff; MIB]);
    for text in ["a", ".", "a.", "*", "é", "\u{10ffff}", "=any."] {
        feed_text(&text.repeat(MIB / text.len()));
    }
}

/// One small change to valid bytes.
fn changed(mut bytes: Vec<u8>, at: prop::sample::Index, kind: u8, byte: u8) -> Vec<u8> {
    if bytes.is_empty() {
        return vec![byte];
    }
    let index = at.index(bytes.len());
    match kind % 5 {
        0 => bytes[index] = byte,
        1 => bytes.insert(index, byte),
        2 => drop(bytes.remove(index)),
        3 => bytes.truncate(index),
        _ => {
            let tail = bytes[index..].to_vec();
            bytes.extend(tail);
        }
    }
    bytes
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        feed(&bytes);
        feed_text(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_json_like_text_does_not_panic(text in r#"[\[\]{}:,"\\0-9eE+.\-untrfalsi ]{0,80}"#) {
        feed(text.as_bytes());
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in ".*", subject in r"(cotal\.alpha\.)?[a-z.*>_\-0-9]{0,60}") {
        feed_text(&text);
        feed_text(&subject);
    }

    #[test]
    fn changed_valid_bytes_do_not_panic(
        which: prop::sample::Index,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..4),
    ) {
        let all = valid_payloads();
        let mut bytes = all[which.index(all.len())].clone().into_bytes();
        for (at, kind, byte) in changes {
            bytes = changed(bytes, at, kind, byte);
        }
        feed(&bytes);
    }

    #[test]
    fn changed_valid_texts_do_not_panic(which in 0..6usize, at: prop::sample::Index, kind: u8, byte: u8) {
        let texts = [
            format!("cotal.alpha.dinbox.local.alice.{UID}"),
            "cotal.alpha.chat.local.alice.team.backend".to_owned(),
            "cotal.alpha.ept.com_example.i.12.t.schedule".to_owned(),
            format!("team.=any.=gt/local.alice.{UID}"),
            format!("local.alice.{UID}"),
            "$KV.cotal_members_alpha.x".to_owned(),
        ];
        let bytes = changed(texts[which].clone().into_bytes(), at, kind, byte);
        feed_text(&String::from_utf8_lossy(&bytes));
    }
}
