//! What is not well-formed is refused, by every type that could let it through.

use lanekeeper_wire::subject::is_own_reply;
use lanekeeper_wire::{
    Actor, Channel, ChannelPattern, EndpointToken, Epoch, InstanceId, Lifecycle, LifecycleUid, MemberKey, Owner,
    Principal, Role, Space, Subject, SubjectFault, TimerId, TokenFault,
};

use crate::samples::{TRUSTED, UID, parsed, space};

fn refuse<T: std::str::FromStr + std::fmt::Debug>(bad: &[&str])
where
    T::Err: std::fmt::Display,
{
    for text in bad {
        let fault = text.parse::<T>().expect_err(text).to_string();
        assert!(!fault.contains('\n') && fault.chars().count() < 400, "{fault}");
    }
}

const NEVER_A_TOKEN: [&str; 16] =
    ["", " ", "a b", "a.b", "a*", "*", ">", "a/b", "a\n", "a\0", "é", "а", "a\u{200b}", "\u{feff}a", "𝐚", "a=b"];

#[test]
fn tokens_refuse_what_is_outside_their_alphabet() {
    refuse::<Space>(&NEVER_A_TOKEN);
    refuse::<Owner>(&NEVER_A_TOKEN);
    refuse::<Actor>(&NEVER_A_TOKEN);
    refuse::<LifecycleUid>(&NEVER_A_TOKEN);
    refuse::<Role>(&NEVER_A_TOKEN);
    refuse::<TimerId>(&NEVER_A_TOKEN);
    refuse::<EndpointToken>(&NEVER_A_TOKEN);
    refuse::<InstanceId>(&NEVER_A_TOKEN);
    refuse::<Epoch>(&NEVER_A_TOKEN);
    refuse::<Space>(&["..", ".", "a.", ".a", "../x"]);
    refuse::<Owner>(&["a-b", "-"]);
    refuse::<Actor>(&["a-b", "-"]);
    refuse::<LifecycleUid>(&["abcdefghijklmnopqrstuvwxyZ", "abcdefghijklmnopqrstuvwx_z", "abcdefghijklmnopqrstuvwx-z"]);
    refuse::<EndpointToken>(&["A", "_a", "a_", "a__b", "-a", "a-", "a_-b", "a-_b"]);
}

#[test]
fn tokens_have_an_end() {
    for (len, is_ok) in [(235, true), (236, false)] {
        assert_eq!("s".repeat(len).parse::<Space>().is_ok(), is_ok, "space of {len}");
    }
    for (len, is_ok) in [(189, true), (190, false)] {
        assert_eq!("a".repeat(len).parse::<Actor>().is_ok(), is_ok, "actor of {len}");
    }
    for (len, is_ok) in [(251, true), (252, false)] {
        assert_eq!("r".repeat(len).parse::<Role>().is_ok(), is_ok, "role of {len}");
    }
    for (len, is_ok) in [(64, true), (65, false)] {
        assert_eq!("t".repeat(len).parse::<TimerId>().is_ok(), is_ok, "timer of {len}");
        assert_eq!("e".repeat(len).parse::<EndpointToken>().is_ok(), is_ok, "endpoint of {len}");
        assert_eq!("i".repeat(len).parse::<InstanceId>().is_ok(), is_ok, "instance of {len}");
    }
    for (len, is_ok) in [(25, false), (26, true), (32, true), (33, false)] {
        assert_eq!("u".repeat(len).parse::<LifecycleUid>().is_ok(), is_ok, "uid of {len}");
    }
    for (len, is_ok) in [(4096, true), (4097, false)] {
        assert_eq!("c".repeat(len).parse::<Channel>().is_ok(), is_ok, "channel of {len}");
        assert_eq!("c".repeat(len).parse::<ChannelPattern>().is_ok(), is_ok, "pattern of {len}");
    }
}

#[test]
fn spaces_that_differ_stay_different() {
    let (lower, upper) = (parsed::<Space>("alpha"), parsed::<Space>("Alpha"));
    assert_ne!(lower, upper);
    assert_ne!(parsed::<Space>("a_b"), parsed::<Space>("a-b"));
    assert!(matches!(
        Subject::parse(&lower, "cotal.Alpha.chat.local.alice.ops"),
        Err(SubjectFault::ForeignSpace { .. })
    ));
}

#[test]
fn epochs_refuse_second_spellings_and_what_javascript_cannot_hold() {
    refuse::<Epoch>(&[
        "00",
        "01",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x1",
        " 1",
        "1 ",
        "१",
        "9007199254740992",
        "18446744073709551616",
    ]);
    assert_eq!(parsed::<Epoch>("9007199254740991").get(), 9_007_199_254_740_991);
    assert_eq!(parsed::<Epoch>("0").get(), 0);
    assert!(Epoch::new(1 << 53).is_err());
    assert!(serde_json::from_str::<Epoch>("9007199254740992").is_err());
    assert!(serde_json::from_str::<Epoch>("\"1\"").is_err());
}

#[test]
fn owners_are_trusted_by_their_exact_shape() {
    let nkey = format!("U{}", "A".repeat(55));
    for (owner, is_trusted) in [
        ("local", true),
        (TRUSTED, true),
        ("u_234567abcdefghijklmnopqrst", true),
        ("Local", false),
        ("local_", false),
        ("u_abcdefghijklmnopqrstuvwxy", false),
        ("u_abcdefghijklmnopqrstuvwxyza", false),
        ("u_Abcdefghijklmnopqrstuvwxyz", false),
        ("u_1bcdefghijklmnopqrstuvwxyz", false),
        ("u_8bcdefghijklmnopqrstuvwxyz", false),
        ("U_abcdefghijklmnopqrstuvwxyz", false),
        ("u__bcdefghijklmnopqrstuvwxyz", false),
        (nkey.as_str(), false),
    ] {
        assert_eq!(parsed::<Owner>(owner).is_trusted(), is_trusted, "{owner}");
    }
}

#[test]
fn channels_refuse_every_malformed_shape() {
    let bad = [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        " ",
        "a b",
        "a. b",
        "a\n",
        "a\t.b",
        "é",
        "a.ü.b",
        "a/b",
        "a#b",
        "a.b*",
        "*b",
        "a>",
        "a.>.b",
        ">.a",
        ">.>",
        "a,b",
        "=gt",
        "a.=any",
        "a\0",
        "\u{feff}a",
        "a.**",
        "a.>>",
    ];
    refuse::<ChannelPattern>(&bad);
    refuse::<Channel>(&bad);
    refuse::<Channel>(&["*", ">", "a.*", "a.>", "*.a", "a.*.b"]);
    for good in ["*", ">", "a.*", "a.>", "*.a", "*.*.>", "-", "_", "A-b_9.x"] {
        assert!(good.parse::<ChannelPattern>().is_ok(), "{good}");
    }
}

#[test]
fn principals_and_lifecycles_refuse_wrong_arity() {
    refuse::<Principal>(&["", "local", "local.", ".alice", "local.alice.x", "local-alice", "local..alice", "a.b-c"]);
    for bad in ["", "local", "local-", "-alice", "local-a-b", "local.alice", "a-b.c"] {
        assert!(Principal::parse_dashed(bad).is_err(), "{bad}");
    }
    let three = format!("local.alice.x.{UID}");
    let dashed = format!("local-alice-{UID}");
    refuse::<Lifecycle>(&["", UID, "local.alice", "local.alice.short", &three, &dashed]);
}

#[test]
fn member_keys_have_one_spelling() {
    let with = |pattern: &str| format!("{pattern}/local.alice.{UID}");
    for pattern in [
        "",
        "a.",
        ".a",
        "a..b",
        "a.*",
        "a.>",
        "*",
        ">",
        "=gt.a",
        "=GT",
        "a.=gt.b",
        "=any=any",
        "a=gt",
        "=any.",
        "é",
        "a/b",
        "=defaults",
    ] {
        assert!(with(pattern).parse::<MemberKey>().is_err(), "{pattern}");
    }
    for key in ["", "ops", "ops/", "ops/local.alice", "/", "ops/local.alice.short"] {
        assert!(key.parse::<MemberKey>().is_err(), "{key}");
    }
    assert!(format!("ops/local.alice.{UID}/x").parse::<MemberKey>().is_err());
    assert!(with(&"=any.".repeat(5_000)).parse::<MemberKey>().is_err());
}

#[test]
fn subjects_of_no_known_shape_are_refused() {
    let uid = UID;
    for tail in [
        "",
        "chat",
        "chat.",
        "chat.local",
        "chat.local.alice",
        "chat.local.alice.",
        "chat.local.alice.a..b",
        "chat.local.alice.*",
        "chat.local.alice.>",
        "chat.local.al ice.ops",
        "chat.local.al-ice.ops",
        "chat..alice.ops",
        "chat.*.alice.ops",
        "chat.local.alice.é",
        "Chat.local.alice.ops",
        "inst.local.a.local",
        "inst.local.a.local.b.c",
        "inst.local.a.local.*",
        "svc.role.local",
        "svc.role.local.a.b",
        "svc..local.a",
        "svc.ro le.local.a",
        "dinbox.local.alice",
        "dinbox.local.alice.short",
        "dlv.local.alice",
        "dlv.local.alice.>",
        "ctl.delivery.local",
        "ctl.delivery.local.alice.reply.x",
        "ctl.manager.local.alice",
        "ctl.delivery.local.*",
        "live.other.local.alice",
        "live.delivery.local",
        "live.delivery.local.alice.reply.n",
        "trace.local.alice",
        "ept.e.i.1.t",
        "ept.e.i.01.t.schedule",
        "ept.e.i.1.t.Schedule",
        "ept.e.i.1.t.schedule.x",
        "ept.E.i.1.t.fire",
        "ept.e.i.9007199254740992.t.fire",
        "ept.e.i.-1.t.armed",
        "ept.e..1.t.armed",
        "ep.one.delivery.local.alice",
    ] {
        let subject = format!("cotal.alpha.{tail}");
        let fault = Subject::parse(&space(), &subject).expect_err(&subject).to_string();
        assert!(fault.starts_with("subject \"") && !fault.contains('\n'), "{fault}");
    }
    for (head, who) in [("dinbox", "local.alice"), ("dlv", TRUSTED)] {
        assert!(Subject::parse(&space(), &format!("cotal.alpha.{head}.{who}.{uid}.x")).is_err());
    }
}

#[test]
fn subjects_outside_the_space_are_foreign() {
    for subject in [
        "",
        "cotal",
        "cotal.",
        "cotal.alpha",
        "chat.local.alice.ops",
        "cotal.alphab.chat.local.alice.ops",
        "cotal.alph.chat.local.alice.ops",
        "cotal..chat.local.alice.ops",
        "Cotal.alpha.chat.local.alice.ops",
        "cotal.alpha-.chat.local.alice.ops",
        "xcotal.alpha.chat.local.alice.ops",
        "$KV.cotal_acl_alpha.x",
        "cotal.*.chat.>",
    ] {
        let fault = Subject::parse(&space(), subject).expect_err(subject);
        assert!(matches!(fault, SubjectFault::ForeignSpace { .. }), "{subject}: {fault}");
    }
}

#[test]
fn subjects_of_untrusted_owners_have_no_sender() {
    let nkey = format!("U{}", "A".repeat(55));
    for tail in [
        format!("chat.{nkey}.alice.ops"),
        format!("inst.{nkey}.a.local.b"),
        format!("inst.local.a.{nkey}.b"),
        format!("svc.role.{nkey}.a"),
        format!("dinbox.{nkey}.a.{UID}"),
        format!("dlv.{nkey}.a.{UID}"),
        format!("ctl.delivery.{nkey}.a"),
        format!("ctl.delivery-admin.{nkey}.a"),
        format!("live.delivery.{nkey}.a"),
        format!("live.manager.{nkey}.a"),
    ] {
        let fault = Subject::parse(&space(), &format!("cotal.alpha.{tail}")).expect_err(&tail);
        assert!(matches!(fault, SubjectFault::UntrustedOwner { .. }), "{tail}: {fault}");
    }
}

#[test]
fn a_reply_elsewhere_is_never_own() {
    let request = "cotal.alpha.ctl.delivery.local.alice";
    for reply in [
        "",
        request,
        "cotal.alpha.ctl.delivery.local.alice.reply",
        "cotal.alpha.ctl.delivery.local.alice.reply.",
        "cotal.alpha.ctl.delivery.local.alice.reply..x",
        "cotal.alpha.ctl.delivery.local.alice.reply.x.",
        "cotal.alpha.ctl.delivery.local.alice.reply.*",
        "cotal.alpha.ctl.delivery.local.alice.reply.x.>",
        "cotal.alpha.ctl.delivery.local.alice.replyx.y",
        "cotal.alpha.ctl.delivery.local.alice2.reply.x",
        "cotal.alpha.ctl.delivery.local.bob.reply.x",
        "cotal.beta.ctl.delivery.local.alice.reply.x",
        "_INBOX.x",
        "x.cotal.alpha.ctl.delivery.local.alice.reply.x",
        "cotal.alpha.ctl.delivery.local.alice.reply.a b",
        "cotal.alpha.ctl.delivery.local.alice.reply.a\r\nPUB",
    ] {
        assert!(!is_own_reply(request, reply), "{reply}");
    }
    assert!(is_own_reply(request, "cotal.alpha.ctl.delivery.local.alice.reply.n1"));
    assert!(is_own_reply(request, "cotal.alpha.ctl.delivery.local.alice.reply.n1.more"));
}

#[test]
fn a_fault_is_one_short_line_whatever_was_sent() {
    let long = "\u{1f}\n".repeat(100_000);
    let fault: TokenFault = long.parse::<Space>().unwrap_err();
    assert_eq!(fault.kind(), "space");
    assert!(fault.to_string().len() < 500 && !fault.to_string().contains('\n'), "{fault}");
    let fault = "a.b".parse::<Space>().unwrap_err();
    assert_eq!(fault.to_string(), "space \"a.b\" is refused: use 1 to 235 of A-Z, a-z, 0-9, _ and -");
    assert!(serde_json::from_str::<Space>("\"a.b\"").unwrap_err().to_string().contains("refused"));
    assert!(serde_json::from_str::<Principal>("7").is_err());
}
