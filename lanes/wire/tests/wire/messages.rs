//! Messages: strict where the contract is, lenient everywhere else, and kept to the byte.

use lanekeeper_wire::message::check_post;
use lanekeeper_wire::{Channel, Message, MessageFault, Part, Post, PostFault, Sender};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::samples::{TRUSTED, a_channel, a_principal, a_space, parsed, space};

fn message(text: &str) -> Message {
    Message::parse(text.as_bytes()).expect(text)
}

const FROM: &str = r#""from":{"id":"local.alice"}"#;

#[test]
fn only_an_object_with_id_and_sender_is_a_message() {
    for text in [
        "",
        " ",
        "null",
        "7",
        "-0.5e9",
        "true",
        "[]",
        "\"x\"",
        "{",
        "{}",
        "{]",
        "{\"id\":}",
        "{\"id\":\"a\"",
        "nul",
        "{'id':'a'}",
        "{\"id\":\"a\",}",
        "{\"id\":\"a\"} x",
        "{1:2}",
        "\u{feff}{}",
        "{\"id\":\"\u{1}\"}",
    ] {
        assert!(Message::parse(text.as_bytes()).is_err(), "{text}");
    }
    for (text, field) in
        [(format!("{{{FROM}}}"), "id"), (r#"{"id":"a"}"#.into(), "from"), (r#"{"id":"a","from":{}}"#.into(), "from.id")]
    {
        assert_eq!(Message::parse(text.as_bytes()), Err(MessageFault::Missing { field }), "{text}");
    }
    for id in ["null", "7", "true", "[]", "{}", "[\"a\"]"] {
        let text = format!("{{\"id\":{id},{FROM}}}");
        let wrong = MessageFault::WrongType { field: "id", wanted: "a string" };
        assert_eq!(Message::parse(text.as_bytes()), Err(wrong), "{text}");
        let text = format!("{{\"id\":\"a\",\"from\":{{\"id\":{id}}}}}");
        let wrong = MessageFault::WrongType { field: "from.id", wanted: "a string" };
        assert_eq!(Message::parse(text.as_bytes()), Err(wrong), "{text}");
    }
    for from in ["null", "7", "\"local.alice\"", "[\"local.alice\"]", "[]"] {
        let text = format!("{{\"id\":\"a\",\"from\":{from}}}");
        let wrong = MessageFault::WrongType { field: "from", wanted: "an object" };
        assert_eq!(Message::parse(text.as_bytes()), Err(wrong), "{text}");
    }
}

#[test]
fn an_empty_id_is_an_id() {
    assert_eq!(message(&format!("{{\"id\":\"\",{FROM}}}")).id(), "");
}

#[test]
fn invalid_utf8_is_named_with_its_place() {
    let mut bytes = format!("{{\"id\":\"a\",{FROM},\"x\":\"y\"}}").into_bytes();
    let at = bytes.len() - 3;
    bytes[at] = 0xff;
    assert_eq!(Message::parse(&bytes), Err(MessageFault::NotUtf8 { valid_up_to: at }));
}

#[test]
fn unknown_fields_survive_to_the_byte_and_in_order() {
    let odd = [
        r#""huge":123456789012345678901234567890123456789.000100e+400"#,
        r#""minus":-0"#,
        r#""esc":"\u0041\/\ud83d\ude00\ud800 é 😀""#,
        r#""k\u0065y":{ "a" : [ 1 ,2,	{"b":null} ] , "a":2 }"#,
        r#""":"empty name""#,
        r#""__proto__":{"x":1}"#,
    ];
    let text = format!("{{{},\"id\":\"a\",{},{FROM},{},{}}}", odd[0], odd[1], odd[2], odd[3..].join(","));
    let channel: Channel = parsed("ops");
    assert_eq!(message(&text).to_json(), text);
    let expected = format!("{},\"channel\":\"ops\"}}", text.strip_suffix('}').unwrap());
    assert_eq!(message(&text).with_channel(&channel), expected);
    assert_eq!(message(&text).field("key").unwrap().get(), r#"{ "a" : [ 1 ,2,	{"b":null} ] , "a":2 }"#);
    assert_eq!(message(&text).field("huge").unwrap().get(), &odd[0][7..]);
    assert!(message(&text).field("absent").is_none());
}

#[test]
fn the_channel_is_overwritten_in_place_and_the_other_addresses_go() {
    let channel: Channel = parsed("team.backend");
    for (text, expected) in [
        (r#"{"id":"a","channel":"secret",F,"z":1}"#, r#"{"id":"a","channel":"team.backend",F,"z":1}"#),
        (r#"{"id":"a","channel":{"x":[1]},F}"#, r#"{"id":"a","channel":"team.backend",F}"#),
        (r#"{"to":"x","id":"a",F,"toService":[2]}"#, r#"{"id":"a",F,"channel":"team.backend"}"#),
        (r#"{"\u0074o":"x","id":"a",F,"toServic\u0065":2,"z":3}"#, r#"{"id":"a",F,"z":3,"channel":"team.backend"}"#),
        (r#"{"id":"a","channel":"1",F,"channel":"2"}"#, r#"{"id":"a","channel":"team.backend",F}"#),
        (
            r#"{"id":"a",F,"To":"x","TOSERVICE":"y"}"#,
            r#"{"id":"a",F,"To":"x","TOSERVICE":"y","channel":"team.backend"}"#,
        ),
        ("{\n\"id\" : \"a\" ,\tF }", r#"{"id":"a",F,"channel":"team.backend"}"#),
    ] {
        let (text, expected) = (text.replace('F', FROM), expected.replace('F', FROM));
        assert_eq!(message(&text).with_channel(&channel), expected, "{text}");
    }
    let direct = format!(r#"{{"id":"a","to":"local.bob",{FROM},"toService":"x"}}"#);
    assert_eq!(message(&direct).to_json(), direct, "nothing is removed until the channel is known");
    let escaped = message(&format!(r#"{{"id":"a",{FROM},"\u0063hannel":"secret"}}"#)).with_channel(&channel);
    let seen: Value = serde_json::from_str(&escaped).unwrap();
    assert_eq!(seen["channel"], "team.backend");
    assert!(!escaped.contains("secret"));
}

#[test]
fn of_a_repeated_name_the_last_value_counts_as_it_does_for_a_javascript_peer() {
    let text = r#"{"id":"first","from":{"id":"local.bob","id":"local.alice"},"id":"last","\u0069d":"really last"}"#;
    let message = message(text);
    assert_eq!((message.id(), message.from_id()), ("really last", "local.alice"));
    assert_eq!(message.to_json(), r#"{"id":"really last","from":{"id":"local.bob","id":"local.alice"}}"#);
    let subject = "cotal.alpha.chat.local.alice.ops";
    for from in [r#"{"id":"local.alice","id":"local.bob"}"#, r#"{"id":"local.alice","\u0069\u0064":"local.bob"}"#] {
        let fault = check_post(&space(), subject, format!("{{\"id\":\"a\",\"from\":{from}}}").as_bytes()).unwrap_err();
        assert_eq!(fault.code(), "sender-mismatch", "{from}");
    }
}

#[test]
fn a_lone_surrogate_is_a_string_like_any_other() {
    let message =
        message(&format!("{{\"id\":\"a\\ud800\",{FROM},\"parts\":[{{\"kind\":\"text\",\"text\":\"\\udfff!\"}}]}}"));
    assert!(message.id().starts_with('a') && message.id().contains('\u{fffd}'));
    assert!(message.text().unwrap().ends_with('!'));
}

#[test]
fn mentions_are_lower_cased_and_garbage_is_skipped() {
    for (mentions, expected) in [
        (r#"["Bob","ALICE","bob"," Zoé ",""]"#, vec!["bob", "alice", "zoé"]),
        (r#"[1,null,{"a":1},["x"],"k\u0069m",true,1e999]"#, vec!["kim"]),
        (r#""bob""#, vec![]),
        ("null", vec![]),
        ("{}", vec![]),
        ("[]", vec![]),
    ] {
        let message = message(&format!("{{\"id\":\"a\",{FROM},\"mentions\":{mentions}}}"));
        assert_eq!(message.mentions(), expected, "{mentions}");
    }
    assert!(message(&format!("{{\"id\":\"a\",{FROM}}}")).mentions().is_empty());
}

#[test]
fn optional_fields_of_a_wrong_type_read_as_absent() {
    for (ts, expected) in [
        ("1700000000000", Some(1_700_000_000_000)),
        ("1.7e12", Some(1_700_000_000_000)),
        ("12.9", Some(12)),
        ("-1", None),
        ("\"1\"", None),
        ("null", None),
        ("1e999", None),
    ] {
        assert_eq!(message(&format!("{{\"id\":\"a\",{FROM},\"ts\":{ts}}}")).ts(), expected, "{ts}");
    }
    for (parts, expected) in [
        (r#"[{"kind":"text","text":"a"},{"kind":"data","data":1},{"text":"b","kind":"text","x":[]}]"#, Some("a\nb")),
        (r#"[{"kind":"text"},{"kind":"text","text":7},null,"text",["text"],{"text":"c"}]"#, None),
        ("{}", None),
        ("7", None),
    ] {
        let text = message(&format!("{{\"id\":\"a\",{FROM},\"parts\":{parts}}}")).text();
        assert_eq!(text.as_deref(), expected, "{parts}");
    }
}

#[test]
fn a_post_is_checked_for_subject_json_and_sender() {
    let good = format!("{{\"id\":\"a\",{FROM},\"channel\":\"elsewhere\"}}");
    let post = check_post(&space(), "cotal.alpha.chat.local.alice.team.x", good.as_bytes()).unwrap();
    assert_eq!((post.sender.as_str(), post.channel.as_str()), ("local.alice", "team.x"));
    for (subject, payload, code) in [
        ("cotal.alpha.chat.local.alice", good.as_str(), "malformed-subject"),
        ("cotal.beta.chat.local.alice.ops", &good, "malformed-subject"),
        ("cotal.alpha.inst.local.bob.local.alice", &good, "malformed-subject"),
        ("cotal.alpha.chat.stranger.alice.ops", &good, "malformed-subject"),
        ("cotal.alpha.chat.local.alice.ops", "null", "malformed-json"),
        ("cotal.alpha.chat.local.alice.ops", "{\"id\":7,\"from\":{\"id\":\"local.alice\"}}", "malformed-json"),
        ("cotal.alpha.chat.local.bob.ops", &good, "sender-mismatch"),
        ("cotal.alpha.chat.local.Alice.ops", &good, "sender-mismatch"),
    ] {
        let fault = check_post(&space(), subject, payload.as_bytes()).unwrap_err();
        assert_eq!(fault.code(), code, "{subject} {payload}: {fault}");
    }
    let fault = check_post(&space(), &format!("cotal.alpha.chat.{TRUSTED}.bob.ops"), good.as_bytes()).unwrap_err();
    assert!(matches!(fault, PostFault::SenderMismatch { .. }));
}

#[test]
fn a_message_shows_no_body_in_debug() {
    let message = message(&format!("{{\"id\":\"a\",{FROM},\"parts\":[{{\"kind\":\"text\",\"text\":\"hush\"}}]}}"));
    assert!(!format!("{message:?}").contains("hush"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((".*", inner), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn a_part() -> impl Strategy<Value = Part> {
    let other = (any_json(), "[a-z]{2,4}\\.[a-z]{2,8}").prop_map(|(value, kind)| {
        let fields = json!({"kind": kind, "value": value});
        Part::Other(fields.as_object().unwrap().clone())
    });
    let artifact = (".*", ".*", ".*", any::<u64>()).prop_map(|(name, media_type, digest, size)| Part::Artifact {
        name,
        media_type,
        digest,
        size,
    });
    prop_oneof![
        ".*".prop_map(|text| Part::Text { text }),
        any_json().prop_map(|data| Part::Data { data }),
        artifact,
        other
    ]
}

proptest! {
    #[test]
    fn any_extra_field_survives(extras in proptest::collection::vec(("[b-z]{3,9}", any_json()), 0..6), channel in a_channel()) {
        let mut text = format!("{{\"id\":\"a\",{FROM}");
        let mut seen = std::collections::HashSet::new();
        for (name, value) in extras.iter().filter(|(name, _)| name != "channel" && name != "from" && seen.insert(name.clone())) {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
        let expected = format!("{text},\"channel\":\"{channel}\"}}");
        text.push('}');
        let message = Message::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(message.to_json(), text);
        let authenticated = message.with_channel(&channel);
        prop_assert_eq!(&authenticated, &expected);
        let again = Message::parse(authenticated.as_bytes()).unwrap();
        prop_assert_eq!(again.with_channel(&channel), authenticated);
    }

    #[test]
    fn a_composed_post_passes_the_check(
        space in a_space(), id in a_principal(), name in ".*", channel in a_channel(), key in ".*",
        parts in proptest::collection::vec(a_part(), 0..4), mention in "[A-Za-z]{1,9}", ts_ms in 0..4_000_000_000_000u64,
    ) {
        let from = Sender { id: id.clone(), name, role: Some("reviewer".into()) };
        let mut post = Post::new(key.clone(), ts_ms, space.clone(), from, channel.clone())
            .with_mention(&mention).with_reply_to("r").with_context_id("c");
        for part in &parts {
            post = post.with_part(part.clone());
        }
        let subject = lanekeeper_wire::subject::chat(&space, &id, &channel);
        let checked = check_post(&space, &subject, post.to_json().as_bytes()).unwrap();
        prop_assert_eq!((&checked.sender, &checked.channel), (&id, &channel));
        prop_assert_eq!(checked.message.id(), key);
        prop_assert_eq!(checked.message.ts(), Some(ts_ms));
        prop_assert_eq!(checked.message.mentions(), vec![mention.to_lowercase()]);
        prop_assert_eq!(checked.message.with_channel(&channel), post.to_json());
        let texts: Vec<&str> = parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Data { .. } | Part::Artifact { .. } | Part::Other(_) => None,
        }).collect();
        prop_assert_eq!(checked.message.text(), (!texts.is_empty()).then(|| texts.join("\n")));
        let read: Vec<Part> = serde_json::from_str(checked.message.field("parts").unwrap().get()).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&parts).unwrap());
    }
}

#[test]
fn parts_have_the_letters_of_the_contract() {
    let parts = vec![
        Part::Text { text: "t".into() },
        Part::Data { data: json!({"a": 1}) },
        Part::Artifact { name: "n".into(), media_type: "m/m".into(), digest: "d".into(), size: 3 },
        Part::Other(json!({"kind": "com.example.x", "y": 1}).as_object().unwrap().clone()),
    ];
    let text = r#"[{"kind":"text","text":"t"},{"kind":"data","data":{"a":1}},{"kind":"artifact","name":"n","mediaType":"m/m","digest":"d","size":3},{"kind":"com.example.x","y":1}]"#;
    assert_eq!(serde_json::to_string(&parts).unwrap(), text);
    assert_eq!(serde_json::from_str::<Vec<Part>>(text).unwrap(), parts);
    let broken: Part = serde_json::from_str(r#"{"kind":"text","text":7}"#).unwrap();
    assert!(matches!(broken, Part::Other(_)));
    let from = Sender { id: parsed("local.alice"), name: "Alice".into(), role: None };
    let post = Post::new("m", 5, space(), from, parsed("ops")).with_text("hi");
    assert_eq!(
        post.to_json(),
        r#"{"id":"m","ts":5,"space":"alpha","from":{"id":"local.alice","name":"Alice"},"channel":"ops","parts":[{"kind":"text","text":"hi"}]}"#
    );
}
