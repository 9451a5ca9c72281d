//! Generators of everything that is well-formed, and one valid payload of each kind.

use lanekeeper_wire::{
    Actor, Channel, ChannelPattern, Epoch, Lifecycle, LifecycleUid, Owner, Plane, Principal, Space, Subject,
    TimerSubject, TimerVerb,
};
use proptest::prelude::*;

pub(crate) const UID: &str = "0123456789abcdefghijklmnop";
pub(crate) const TRUSTED: &str = "u_abcdefghijklmnopqrstuvwxyz";

pub(crate) fn parsed<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect(text)
}

pub(crate) fn alice() -> Principal {
    parsed("local.alice")
}

pub(crate) fn alice_now() -> Lifecycle {
    Lifecycle::new(alice(), parsed(UID))
}

pub(crate) fn space() -> Space {
    parsed("alpha")
}

fn token<T: std::str::FromStr + std::fmt::Debug>(pattern: &'static str) -> impl Strategy<Value = T>
where
    T::Err: std::fmt::Debug,
{
    pattern.prop_map(|text: String| parsed(&text))
}

pub(crate) fn a_space() -> impl Strategy<Value = Space> {
    token("[A-Za-z0-9_-]{1,235}")
}

pub(crate) fn an_owner() -> impl Strategy<Value = Owner> {
    prop_oneof![Just(parsed::<Owner>("local")), token("u_[a-z2-7]{26}")]
}

pub(crate) fn a_principal() -> impl Strategy<Value = Principal> {
    (an_owner(), token::<Actor>("[A-Za-z0-9_]{1,189}")).prop_map(|(owner, actor)| Principal::new(owner, actor))
}

pub(crate) fn a_lifecycle() -> impl Strategy<Value = Lifecycle> {
    (a_principal(), token::<LifecycleUid>("[a-z0-9]{26,32}")).prop_map(|(who, uid)| Lifecycle::new(who, uid))
}

pub(crate) fn a_channel() -> impl Strategy<Value = Channel> {
    token(r"[A-Za-z0-9_-]{1,9}(\.[A-Za-z0-9_-]{1,9}){0,5}")
}

pub(crate) fn a_pattern() -> impl Strategy<Value = ChannelPattern> {
    prop_oneof![
        a_channel().prop_map(ChannelPattern::from),
        token(r"(([a-z0-9_-]{1,5}|\*)\.){0,5}([a-z0-9_-]{1,5}|\*|>)"),
    ]
}

pub(crate) fn an_epoch() -> impl Strategy<Value = Epoch> {
    (0..(1u64 << 53)).prop_map(|number| Epoch::new(number).unwrap())
}

pub(crate) fn a_timer() -> impl Strategy<Value = TimerSubject> {
    let verb = prop_oneof![Just(TimerVerb::Schedule), Just(TimerVerb::Armed), Just(TimerVerb::Fire)];
    let endpoint = token("[a-z0-9]{1,9}(_[a-z0-9]([a-z0-9-]{0,7}[a-z0-9])?){0,4}");
    (endpoint, token("[A-Za-z0-9_-]{1,64}"), an_epoch(), token("[A-Za-z0-9_-]{1,64}"), verb)
        .prop_map(|(endpoint, instance, epoch, timer, verb)| TimerSubject { endpoint, instance, epoch, timer, verb })
}

pub(crate) fn a_plane() -> impl Strategy<Value = Plane> {
    prop_oneof![Just(Plane::Manager), Just(Plane::Delivery)]
}

pub(crate) fn a_subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        (a_principal(), a_channel()).prop_map(|(sender, channel)| Subject::Chat { sender, channel }),
        (a_principal(), a_principal()).prop_map(|(recipient, sender)| Subject::Inst { recipient, sender }),
        (token("[A-Za-z0-9_-]{1,251}"), a_principal()).prop_map(|(role, sender)| Subject::Svc { role, sender }),
        a_lifecycle().prop_map(Subject::Dinbox),
        a_lifecycle().prop_map(Subject::Dlv),
        a_principal().prop_map(|caller| Subject::Control { caller }),
        a_principal().prop_map(|caller| Subject::ControlAdmin { caller }),
        (a_plane(), a_principal()).prop_map(|(plane, caller)| Subject::Live { plane, caller }),
        a_timer().prop_map(Subject::Timer),
    ]
}

/// A valid payload for every parser of the crate.
pub(crate) fn valid_payloads() -> Vec<String> {
    let message = r#"{"id":"m-1","ts":1700000000000,"space":"alpha","from":{"id":"local.alice","name":"Alice"},"channel":"team.backend","parts":[{"kind":"text","text":"h\u00e9llo"},{"kind":"com.example.x","v":1e400}],"mentions":["bob"]}"#;
    let mut all = vec![
        message.to_owned(),
        format!(r#"{{"msg":{message},"channel":"team.backend","seq":7,"reason":"live-mention","generation":3}}"#),
        format!(r#"{{"version":1,"channel":"team.backend","msg":{message}}}"#),
        format!(
            r#"{{"channel":"team.>","owner":"local.alice","lifecycleUid":"{UID}","state":"durable-active","joinCursor":1,"leaveCursor":9,"generation":2,"activated":true,"writerIdentity":"w","updatedAt":5,"earlier":[{{"generation":1,"joinCursor":0,"leaveCursor":1}}]}}"#
        ),
        format!(
            r#"{{"id":"r","op":"durableLeave","from":{{"id":"local.alice"}},"args":{{"channel":"team.>","generation":1,"lifecycleUid":"{UID}"}}}}"#
        ),
        format!(
            r#"{{"card":{{"id":"local.alice","name":"Alice","kind":"agent"}},"status":"idle","ts":1700000000000,"lifecycleUid":"{UID}","activity":"x"}}"#
        ),
    ];
    all.extend(
        [
            r#"{"allowSubscribe":["team.>","ops"],"issuedAllowSubscribe":["team.>"],"revision":4,"updatedAt":5}"#,
            r#"{"holder":"local.delivery","incarnation":"i","since":"2026-11-29T16:50:00.000Z","ready":true}"#,
            r#"{"replay":true,"replayWindow":"24h","deliveryClass":"live","description":"d","instructions":"i"}"#,
            r#"{"live":["team.>"],"durable":["ops"],"observedAt":5}"#,
            r#"{"observedAt":5,"count":2}"#,
            r#"{"ok":true,"data":{"durable":true}}"#,
            r#"{"plane":"delivery","responder":"bound","instance":"x"}"#,
            r#"{"v":1,"timerId":"t","generation":1,"deadline":1700000000000}"#,
            r#"{"op":"readHistory","from":{"id":"local.alice"},"args":{"channel":"ops","limit":20}}"#,
        ]
        .map(str::to_owned),
    );
    all
}
