//! Control requests and replies, liveness answers, schedule requests.

use lanekeeper_wire::control::{compose_request, parse_raw, parse_request};
use lanekeeper_wire::{
    ControlReply, ControlRequest, DeliveryOp, HistoryPage, JoinData, LivenessAnswer, MAX_DEADLINE_MS,
    MAX_REQUEST_BYTES, MembershipItem, Plane, RawHistoryPage, RequestFault, Responder, ScheduleRequest, Subject,
    TimerFault, TimerSubject, TimerVerb,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::samples::*;

fn asked(op: &str, args: Value) -> Result<ControlRequest, RequestFault> {
    parse_request(&alice(), &compose_request(&alice(), "Alice", op, args))
}

#[test]
fn a_composed_request_has_the_letters_of_the_contract() {
    let payload = compose_request(&alice(), "Alice", "durableJoin", json!({"channel": "team.>"}));
    let text = r#"{"op":"durableJoin","from":{"id":"local.alice","name":"Alice"},"args":{"channel":"team.>"}}"#;
    assert_eq!(String::from_utf8(payload).unwrap(), text);
}

proptest! {
    #[test]
    fn every_request_is_read_as_it_was_composed(
        caller in a_principal(), pattern in a_pattern(), channel in a_channel(), life in a_lifecycle(),
        generation: u64, limit in 1..=200u32, which in 0..4usize,
    ) {
        let uid = life.uid().clone();
        let (op, args) = [
            (DeliveryOp::DurableJoin { channel: pattern.clone() }, json!({"channel": pattern})),
            (
                DeliveryOp::DurableLeave { channel: pattern.clone(), generation, lifecycle_uid: uid.clone() },
                json!({"channel": pattern, "generation": generation, "lifecycleUid": uid}),
            ),
            (DeliveryOp::ListMemberships { lifecycle_uid: uid.clone() }, json!({"lifecycleUid": uid})),
            (DeliveryOp::ReadHistory { channel: channel.clone(), limit }, json!({"channel": channel, "limit": limit})),
        ][which].clone();
        let payload = compose_request(&caller, "x", op.name(), args.clone());
        prop_assert_eq!(parse_request(&caller, &payload), Ok(ControlRequest { id: None, op: op.clone() }));
        let raw = parse_raw(&caller, &payload).unwrap();
        prop_assert_eq!((raw.op.as_str(), raw.from_id, Value::Object(raw.args)), (op.name(), caller.dotted(), args));
    }

    #[test]
    fn a_request_in_anothers_name_is_refused(caller in a_principal(), other in a_principal()) {
        prop_assume!(caller != other);
        let payload = compose_request(&other, "x", "durableJoin", json!({"channel": "ops"}));
        let fault = parse_request(&caller, &payload).unwrap_err();
        let is_mismatch = matches!(fault, RequestFault::SenderMismatch { .. });
        prop_assert!(is_mismatch);
        prop_assert_eq!(parse_raw(&caller, &payload).unwrap_err(), fault);
    }
}

#[test]
fn what_may_be_absent_may_be_absent() {
    let read = |text: &str| parse_request(&alice(), text.as_bytes());
    let history = read(
        r#"{"id":"r1","op":"readHistory","from":{"id":"local.alice","x":1},"args":{"channel":"ops","y":[]},"z":1}"#,
    );
    let op = DeliveryOp::ReadHistory { channel: parsed("ops"), limit: 50 };
    assert_eq!(history, Ok(ControlRequest { id: Some("r1".into()), op }));
    let missing = read(r#"{"id":null,"op":"durableJoin","from":{"id":"local.alice"}}"#).unwrap_err();
    assert!(matches!(missing, RequestFault::MissingArgument { argument: "channel", .. }));
    let raw = parse_raw(&alice(), br#"{"op":"reloadCreds","from":{"id":"local.alice"}}"#).unwrap();
    assert_eq!((raw.id, raw.op.as_str(), raw.args.len()), (None, "reloadCreds", 0));
}

#[test]
fn a_fault_names_what_is_wrong() {
    let uid = UID;
    for (op, args, names) in [
        ("join", json!({}), "unknown op \"join\""),
        ("durablejoin", json!({"channel": "ops"}), "unknown op"),
        ("durableJoin", json!({}), "durableJoin: argument channel is missing"),
        ("durableJoin", json!({"channel": null}), "durableJoin: argument channel is missing"),
        ("durableJoin", json!({"channel": 7}), "durableJoin: argument channel is refused"),
        ("durableJoin", json!({"channel": "a..b"}), "durableJoin: channel \"a..b\" is refused: empty segment"),
        ("durableLeave", json!({"channel": "a", "lifecycleUid": uid}), "durableLeave: argument generation is missing"),
        (
            "durableLeave",
            json!({"channel": "a", "lifecycleUid": uid, "generation": -1}),
            "argument generation is refused",
        ),
        (
            "durableLeave",
            json!({"channel": "a", "lifecycleUid": uid, "generation": 1.5}),
            "argument generation is refused",
        ),
        (
            "durableLeave",
            json!({"channel": "a", "lifecycleUid": uid, "generation": "1"}),
            "argument generation is refused",
        ),
        ("durableLeave", json!({"channel": "a", "generation": 1}), "argument lifecycleUid is missing"),
        (
            "durableLeave",
            json!({"channel": "a", "generation": 1, "lifecycleUid": "x"}),
            "lifecycle uid \"x\" is refused",
        ),
        ("listMemberships", json!({}), "listMemberships: argument lifecycleUid is missing"),
        ("readHistory", json!({"channel": "a.>"}), "readHistory: channel \"a.>\" is refused: name one channel"),
        ("readHistory", json!({"channel": "a", "limit": 0}), "readHistory: argument limit is refused"),
        ("readHistory", json!({"channel": "a", "limit": 201}), "a whole number from 1 to 200"),
        ("readHistory", json!({"channel": "a", "limit": "9"}), "argument limit is refused"),
        ("durableJoin", json!([]), "no args that is an object"),
    ] {
        let fault = asked(op, args.clone()).expect_err(op).to_string();
        assert!(fault.contains(names), "{op} {args}: {fault}");
    }
    for (text, names) in [
        (r#"{"op":"durableJoin"}"#, "no from that is an object"),
        (r#"{"op":"durableJoin","from":"local.alice"}"#, "no from that is an object"),
        (r#"{"op":"durableJoin","from":{"id":7}}"#, "no from.id that is a string"),
        (r#"{"from":{"id":"local.alice"}}"#, "no op that is a string"),
        (r#"{"op":7,"from":{"id":"local.alice"}}"#, "no op that is a string"),
        (r#"{"id":7,"op":"x","from":{"id":"local.alice"}}"#, "no id that is a string"),
        ("[]", "not a json object"),
    ] {
        let fault = parse_request(&alice(), text.as_bytes()).expect_err(text).to_string();
        assert!(fault.contains(names), "{text}: {fault}");
    }
}

#[test]
fn a_request_has_a_size_limit() {
    let sized = |len: usize| {
        let empty = compose_request(&alice(), "", "durableJoin", json!({"channel": "ops"})).len();
        compose_request(&alice(), &"n".repeat(len - empty), "durableJoin", json!({"channel": "ops"}))
    };
    assert!(parse_request(&alice(), &sized(MAX_REQUEST_BYTES)).is_ok());
    let fault = parse_request(&alice(), &sized(MAX_REQUEST_BYTES + 1)).unwrap_err();
    assert_eq!(fault, RequestFault::TooLarge { len_bytes: MAX_REQUEST_BYTES + 1 });
}

#[test]
fn replies_have_the_letters_of_the_contract() {
    let join = JoinData { durable: false, generation: 2, reason: Some("evicted".into()), lifecycle_uid: parsed(UID) };
    let reply = ControlReply::ok(&join);
    let text =
        format!(r#"{{"ok":true,"data":{{"durable":false,"generation":2,"reason":"evicted","lifecycleUid":"{UID}"}}}}"#);
    assert_eq!(reply.to_bytes(), text);
    assert_eq!(ControlReply::ok_bytes(&join), text);
    assert_eq!(ControlReply::parse(text.as_bytes()), Ok(reply.clone()));
    assert_eq!(serde_json::from_value::<JoinData>(reply.data.unwrap()).unwrap(), join);
    let item = MembershipItem { channel: parsed("team.>"), generation: 1, activated: true };
    assert_eq!(serde_json::to_string(&item).unwrap(), r#"{"channel":"team.>","generation":1,"activated":true}"#);
    let page = HistoryPage { items: vec![json!({"id": "a"})], complete: true };
    assert_eq!(serde_json::to_string(&page).unwrap(), r#"{"items":[{"id":"a"}],"complete":true}"#);
    let refusal = ControlReply::error(format_args!("no {}", "cover"));
    assert_eq!(refusal.to_bytes(), r#"{"ok":false,"error":"no cover"}"#);
    assert_eq!(ControlReply::parse(&refusal.to_bytes()), Ok(refusal));
    assert!(ControlReply::parse(br#"{"ok":1}"#).is_err());
    assert!(ControlReply::parse(br#"{"ok":true,"later":1}"#).is_ok());
}

#[test]
fn history_can_be_answered_to_the_byte() {
    let stored = r#"{"id":"a","huge":123456789012345678901234567890e400,"sp" : [ 1 ]}"#;
    let items = vec![serde_json::value::RawValue::from_string(stored.to_owned()).unwrap()];
    let payload = ControlReply::ok_bytes(&RawHistoryPage { items, complete: false });
    assert_eq!(payload, format!(r#"{{"ok":true,"data":{{"items":[{stored}],"complete":false}}}}"#));
}

#[test]
fn a_liveness_answer_has_exactly_three_fields() {
    let answer = LivenessAnswer { plane: Plane::Delivery, responder: Responder::Bound, instance: "t-1".into() };
    let text = r#"{"plane":"delivery","responder":"bound","instance":"t-1"}"#;
    assert_eq!(answer.to_json(), text);
    assert_eq!(LivenessAnswer::parse(text.as_bytes()), Ok(answer));
    for responder in [Responder::Bound, Responder::Unbound, Responder::Stale, Responder::Unknown] {
        let text = text.replace("bound", responder.as_str());
        assert_eq!(LivenessAnswer::parse(text.as_bytes()).unwrap().responder, responder);
    }
    for bad in [
        r#"{"plane":"delivery","responder":"bound"}"#,
        r#"{"plane":"delivery","responder":"bound","instance":"t","holder":"x"}"#,
        r#"{"plane":"delivery","responder":"bound","instance":"t","instance":"u"}"#,
        r#"{"plane":"other","responder":"bound","instance":"t"}"#,
        r#"{"plane":"delivery","responder":"fine","instance":"t"}"#,
        r#"{"plane":"delivery","responder":"bound","instance":7}"#,
        "null",
    ] {
        assert!(LivenessAnswer::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

fn timer(verb: TimerVerb) -> TimerSubject {
    let Ok(Subject::Timer(timer)) = Subject::parse(&space(), "cotal.alpha.ept.com_example.i1.7.t-1.schedule") else {
        panic!("a timer subject")
    };
    timer.sibling(verb)
}

#[test]
fn a_schedule_request_is_judged_field_by_field() {
    let schedule = timer(TimerVerb::Schedule);
    let body = |v: &str, id: &str, generation: &str, deadline: &str| {
        format!(r#"{{"v":{v},"timerId":{id},"generation":{generation},"deadline":{deadline},"later":true}}"#)
    };
    let read = |text: String| ScheduleRequest::parse(&schedule, text.as_bytes());
    let good = read(body("1", "\"t-1\"", "1", "253402300799999")).unwrap();
    assert_eq!(good.to_json(), r#"{"v":1,"timerId":"t-1","generation":1,"deadline":253402300799999}"#);
    assert_eq!(ScheduleRequest::parse(&schedule, good.to_json().as_bytes()), Ok(good));
    assert_eq!(read(body("2", "\"t-1\"", "1", "5")), Err(TimerFault::Version { v: 2 }));
    assert_eq!(read(body("1", "\"t-1\"", "0", "5")), Err(TimerFault::Generation));
    let late = MAX_DEADLINE_MS + 1;
    assert_eq!(read(body("1", "\"t-1\"", "1", &late.to_string())), Err(TimerFault::Deadline { deadline_ms: late }));
    let other = TimerFault::OtherTimer { subject: parsed("t-1"), body: parsed("t-2") };
    assert_eq!(read(body("1", "\"t-2\"", "1", "5")), Err(other));
    for (v, id, generation, deadline) in [
        ("\"1\"", "\"t-1\"", "1", "5"),
        ("null", "\"t-1\"", "1", "5"),
        ("1", "7", "1", "5"),
        ("1", "\"\"", "1", "5"),
        ("1", "\"t.1\"", "1", "5"),
        ("1", "\"t-1\"", "-1", "5"),
        ("1", "\"t-1\"", "1.5", "5"),
        ("1", "\"t-1\"", "1", "null"),
        ("1", "\"t-1\"", "1", "\"2026-01-01T00:00:00Z\""),
        ("1", "\"t-1\"", "1", "-5"),
        ("1", "\"t-1\"", "1", "1e999"),
    ] {
        let text = body(v, id, generation, deadline);
        assert!(matches!(read(text.clone()), Err(TimerFault::Malformed { .. })), "{text}");
    }
    for verb in [TimerVerb::Armed, TimerVerb::Fire] {
        let fault = ScheduleRequest::parse(&timer(verb), body("1", "\"t-1\"", "1", "5").as_bytes()).unwrap_err();
        assert!(matches!(fault, TimerFault::NotSchedule { .. }));
    }
}
