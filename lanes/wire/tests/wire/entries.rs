//! Entries, frames and the suppression key: their letters, their cost, and that the message passes untouched.

use lanekeeper_wire::entry::suppression_key;
use lanekeeper_wire::message::check_post;
use lanekeeper_wire::{
    CheckedPost, DeliveryFrame, EntryFault, EntryReason, EntryTemplate, FRAME_HEADER, FRAME_VERSION, FrameFault,
    InboxEntry,
};
use proptest::prelude::*;

use crate::samples::*;

const ODD: &str = r#"{"id":"","from":{"id":"local.alice","x": 1.0e+500},"to":"bob","k\u0065y" : [ "\ud800", {"a":1,"a":2} ],"channel":"lie"}"#;
const ODD_OUT: &str =
    r#"{"id":"","from":{"id":"local.alice","x": 1.0e+500},"k\u0065y":[ "\ud800", {"a":1,"a":2} ],"channel":"team.x"}"#;

fn post() -> CheckedPost {
    check_post(&space(), "cotal.alpha.chat.local.alice.team.x", ODD.as_bytes()).unwrap()
}

#[test]
fn entry_and_frame_have_the_letters_of_the_contract_and_the_message_to_the_byte() {
    let template = EntryTemplate::new(&post(), 42, EntryReason::DurableChannel);
    let entry = format!(
        r#"{{"msg":{ODD_OUT},"channel":"team.x","seq":42,"reason":"durable-channel","generation":18446744073709551615}}"#
    );
    assert_eq!(template.for_generation(u64::MAX), entry);
    let frame = format!(r#"{{"version":1,"channel":"team.x","msg":{ODD_OUT}}}"#);
    assert_eq!(template.frame(), frame);
    let read = InboxEntry::parse(entry.as_bytes()).unwrap();
    assert_eq!((read.seq, read.generation, read.reason), (42, u64::MAX, EntryReason::DurableChannel));
    assert_eq!(read.channel.as_str(), "team.x");
    assert_eq!(read.message_json(), ODD_OUT.as_bytes());
    assert_eq!(read.frame(), frame);
    let received = DeliveryFrame::parse(Some(FRAME_VERSION), &read.frame()).unwrap();
    assert_eq!(received.message.to_json(), ODD_OUT);
    assert_eq!(received.channel.as_str(), "team.x");
    assert_eq!((FRAME_HEADER, FRAME_VERSION), ("Cotal-Delivery-Frame", "1"));
}

#[test]
fn members_of_one_generation_share_one_buffer() {
    let template = EntryTemplate::new(&post(), 42, EntryReason::LiveMention);
    let first = template.for_generation(1);
    assert_eq!(first.as_ptr(), template.for_generation(1).as_ptr());
    let second = template.for_generation(2);
    assert_ne!(first, second);
    assert_eq!(template.for_generation(1), first);
    assert_eq!(template.frame().as_ptr(), template.frame().as_ptr());
    let read = InboxEntry::parse(&first).unwrap();
    assert_eq!(read.reason, EntryReason::LiveMention);
    assert_eq!(read.frame().as_ptr(), read.frame().as_ptr());
}

#[test]
fn a_message_too_deep_for_a_tree_passes_through_entry_and_frame() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"id":"a","from":{{"id":"local.alice"}},"deep":{deep},"channel":"team.x"}}"#);
    let post = check_post(&space(), "cotal.alpha.chat.local.alice.team.x", text.as_bytes()).unwrap();
    let entry = EntryTemplate::new(&post, 1, EntryReason::DurableChannel).for_generation(1);
    let frame = InboxEntry::parse(&entry).unwrap().frame();
    assert_eq!(DeliveryFrame::parse(Some("1"), &frame).unwrap().message.to_json(), text);
}

#[test]
fn entries_take_unknown_fields_and_any_order() {
    let text = r#" {"x":[{}],"generation":3, "reason":"durable-channel" ,"seq":9,"channel":"ops","msg": {"id":1} } "#;
    let entry = InboxEntry::parse(text.as_bytes()).unwrap();
    assert_eq!((entry.generation, entry.seq), (3, 9));
    assert_eq!(entry.message_json(), br#"{"id":1}"#);
}

#[test]
fn entries_refuse_what_is_missing_or_of_the_wrong_type() {
    let good = r#"{"msg":{},"channel":"ops","seq":9,"reason":"durable-channel","generation":3}"#;
    assert!(InboxEntry::parse(good.as_bytes()).is_ok());
    for (from, to) in [
        ("\"msg\":{}", "\"msg\":[]"),
        ("\"msg\":{}", "\"msg\":null"),
        ("\"msg\":{}", "\"msg\":\"{}\""),
        ("\"msg\":{},", ""),
        ("\"ops\"", "\"ops.*\""),
        ("\"ops\"", "\"\""),
        ("\"ops\"", "7"),
        ("9", "-9"),
        ("9", "9.5"),
        ("9", "\"9\""),
        ("9", "18446744073709551616"),
        ("durable-channel", "Durable-Channel"),
        ("\"durable-channel\"", "null"),
        (",\"generation\":3", ""),
        ("{\"msg\"", "[\"msg\""),
    ] {
        assert!(InboxEntry::parse(good.replace(from, to).as_bytes()).is_err(), "{from} -> {to}");
    }
    let unknown = good.replace("durable-channel", "because");
    assert_eq!(InboxEntry::parse(unknown.as_bytes()), Err(EntryFault::Reason { reason: "because".into() }));
}

#[test]
fn a_frame_needs_its_header_and_version_one() {
    let good = format!(r#"{{"version":1,"channel":"team.x","msg":{ODD_OUT},"later":true}}"#);
    let parse = |header, text: &str| DeliveryFrame::parse(header, text.as_bytes());
    assert!(parse(Some("1"), &good).is_ok());
    assert_eq!(parse(None, &good), Err(FrameFault::NoHeader));
    for header in ["", "2", "01", "1 ", "true"] {
        assert!(matches!(parse(Some(header), &good), Err(FrameFault::Version { .. })), "{header}");
    }
    for version in ["2", "\"1\"", "null", "1.5"] {
        let text = good.replace("\"version\":1", &format!("\"version\":{version}"));
        assert!(matches!(parse(Some("1"), &text), Err(FrameFault::Version { .. })), "{version}");
    }
    for (from, to) in [
        ("\"version\":1,", ""),
        ("team.x\",\"msg", "team.>\",\"msg"),
        ("\"id\":\"\"", "\"id\":7"),
        ("\"msg\"", "\"m\""),
    ] {
        assert!(parse(Some("1"), &good.replace(from, to)).is_err(), "{from} -> {to}");
    }
}

proptest! {
    #[test]
    fn any_post_passes_from_entry_to_frame(channel in a_channel(), sender in a_principal(), seq: u64, generation: u64, live: bool, text in ".*") {
        let payload = serde_json::json!({"id": text, "from": {"id": sender}, "to": "x", "parts": [{"kind": "text", "text": text}]});
        let subject = lanekeeper_wire::subject::chat(&space(), &sender, &channel);
        let post = check_post(&space(), &subject, payload.to_string().as_bytes()).unwrap();
        let reason = if live { EntryReason::LiveMention } else { EntryReason::DurableChannel };
        let template = EntryTemplate::new(&post, seq, reason);
        let entry = InboxEntry::parse(&template.for_generation(generation)).unwrap();
        prop_assert_eq!((&entry.channel, entry.seq, entry.generation, entry.reason), (&channel, seq, generation, reason));
        prop_assert_eq!(entry.frame(), template.frame());
        let frame = DeliveryFrame::parse(Some(FRAME_VERSION), &entry.frame()).unwrap();
        prop_assert_eq!(frame.message.to_json(), post.message.with_channel(&channel));
        prop_assert_eq!(frame.message.text(), Some(text));
    }

    #[test]
    fn a_suppression_key_tells_posts_and_lifecycles_apart(
        a in (any::<i64>(), any::<u64>(), a_lifecycle()), b in (any::<i64>(), any::<u64>(), a_lifecycle()),
    ) {
        let key = |(created, seq, life): &(i64, u64, lanekeeper_wire::Lifecycle)| suppression_key(i128::from(*created), *seq, life);
        prop_assert_eq!(a == b, key(&a) == key(&b));
        for near in [(a.0, a.1.wrapping_add(1), a.2.clone()), (a.0.wrapping_add(1), a.1, a.2.clone()), (a.0, a.1, b.2)] {
            prop_assert_eq!(a == near, key(&a) == key(&near));
        }
        prop_assert!(key(&a).bytes().all(|byte| byte.is_ascii_graphic()));
    }
}
