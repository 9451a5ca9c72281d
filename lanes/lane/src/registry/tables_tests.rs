//! The tables against a plain model.

use std::collections::HashMap;

use bytes::Bytes;
use lanekeeper_wire::{
    Bucket, CHANNEL_DEFAULTS_KEY, Channel, ChannelPattern, DeliveryClass, Lifecycle, MemberKey, MembershipRow,
    MembershipState, Principal,
};
use proptest::prelude::*;

use super::tables::{Acl, Caller, Change, Tables};

const UIDS: [&str; 2] = ["aaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbb"];

fn lifecycle(actor: usize, uid: usize) -> Lifecycle {
    format!("local.m{actor}.{}", UIDS[uid]).parse().unwrap()
}

fn row(pattern: &ChannelPattern, of: &Lifecycle, join: u64, leave: Option<u64>, generation: u64) -> MembershipRow {
    MembershipRow {
        channel: pattern.clone(),
        owner: of.principal().clone(),
        lifecycle_uid: of.uid().clone(),
        state: if leave.is_some() { MembershipState::LiveConfirmed } else { MembershipState::DurableActive },
        join_cursor: join,
        leave_cursor: leave,
        generation,
        activated: false,
        writer_identity: "local.delivery".into(),
        updated_at: 1,
        earlier: Vec::new(),
    }
}

fn put(key: &str, revision: u64, value: String) -> Change {
    Change { key: key.into(), revision, value: Some(Bytes::from(value)) }
}

fn delete(key: &str, revision: u64) -> Change {
    Change { key: key.into(), revision, value: None }
}

const PATTERNS: [&str; 5] = ["team", "team.a", "team.>", "team.*", "*.a"];
const CHANNELS: [&str; 4] = ["team", "team.a", "team.b", "x.a"];

#[derive(Debug, Clone)]
enum Op {
    Put { pattern: usize, actor: usize, uid: usize, join: u64, leave: Option<u64> },
    Delete { pattern: usize, actor: usize, uid: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let place = (0..PATTERNS.len(), 0..3usize, 0..2usize);
    prop_oneof![
        3 => (place.clone(), 0..20u64, proptest::option::of(0..20u64))
            .prop_map(|((pattern, actor, uid), join, leave)| Op::Put { pattern, actor, uid, join, leave }),
        1 => place.prop_map(|(pattern, actor, uid)| Op::Delete { pattern, actor, uid }),
    ]
}

proptest! {
    #[test]
    fn recipients_are_exactly_the_members_whose_interval_holds_the_post(
        ops in proptest::collection::vec(op(), 0..60), channel in 0..CHANNELS.len(), seq in 0..22u64, sender in 0..3usize,
    ) {
        let mut tables = Tables::default();
        let mut model: HashMap<(usize, usize, usize), (u64, Option<u64>)> = HashMap::new();
        for (at, op) in ops.iter().enumerate() {
            let revision = at as u64 + 1;
            let (pattern, actor, uid) = match op {
                Op::Put { pattern, actor, uid, .. } | Op::Delete { pattern, actor, uid } => (*pattern, *actor, *uid),
            };
            let key = MemberKey { pattern: PATTERNS[pattern].parse().unwrap(), lifecycle: lifecycle(actor, uid) };
            match op {
                Op::Put { join, leave, .. } => {
                    let row = row(&key.pattern, &key.lifecycle, *join, *leave, revision);
                    prop_assert_eq!(tables.apply(Bucket::Members, &put(&key.to_string(), revision, row.to_json())), None);
                    model.insert((pattern, actor, uid), (*join, *leave));
                }
                Op::Delete { .. } => {
                    prop_assert_eq!(tables.apply(Bucket::Members, &delete(&key.to_string(), revision)), None);
                    model.remove(&(pattern, actor, uid));
                }
            }
        }
        let on: Channel = CHANNELS[channel].parse().unwrap();
        let from: Principal = format!("local.m{sender}").parse().unwrap();
        let mut found = Vec::new();
        tables.recipients(&on, seq, &from, |lifecycle, _| found.push(lifecycle.key()));
        found.sort();
        let mut expected: Vec<String> = model.iter()
            .filter(|((pattern, actor, _), (join, leave))| {
                let covers = lanekeeper_wire::subject::matches(PATTERNS[*pattern], CHANNELS[channel]);
                covers && *actor != sender && *join < seq && leave.is_none_or(|leave| seq <= leave)
            })
            .map(|((_, actor, uid), _)| lifecycle(*actor, *uid).key())
            .collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn an_older_revision_changes_nothing() {
    let mut tables = Tables::default();
    let key = MemberKey { pattern: "team".parse().unwrap(), lifecycle: lifecycle(0, 0) };
    let (text, channel) = (key.to_string(), "team".parse::<Channel>().unwrap());
    let open = row(&key.pattern, &key.lifecycle, 1, None, 2);
    tables.apply(Bucket::Members, &put(&text, 5, open.to_json()));
    // A watch that lags behind the lane's own write shows what was before it.
    tables.apply(Bucket::Members, &delete(&text, 4));
    assert!(tables.holds(&key.lifecycle, &channel, 2));
    assert_eq!(tables.member_revision(&key), 5);
    tables.apply(Bucket::Members, &delete(&text, 6));
    assert!(!tables.holds(&key.lifecycle, &channel, 2));
    assert_eq!(tables.member_revision(&key), 6, "a deleted key keeps its revision for the next compare-and-swap");
}

#[test]
fn a_row_under_a_foreign_key_or_garbage_is_no_membership() {
    let mut tables = Tables::default();
    let key = MemberKey { pattern: "team".parse().unwrap(), lifecycle: lifecycle(0, 0) };
    let channel: Channel = "team".parse().unwrap();
    let foreign = row(&key.pattern, &lifecycle(1, 0), 0, None, 1);
    assert!(tables.apply(Bucket::Members, &put(&key.to_string(), 1, foreign.to_json())).is_some());
    assert!(!tables.holds(&key.lifecycle, &channel, 1) && !tables.holds(&lifecycle(1, 0), &channel, 1));
    let good = row(&key.pattern, &key.lifecycle, 0, None, 1);
    assert!(tables.apply(Bucket::Members, &put(&key.to_string(), 2, good.to_json())).is_none());
    assert!(tables.holds(&key.lifecycle, &channel, 1));
    for (revision, garbage) in [(3, "null"), (4, "7"), (5, "{}")] {
        assert!(tables.apply(Bucket::Members, &put(&key.to_string(), revision, garbage.into())).is_some(), "{garbage}");
        assert!(!tables.holds(&key.lifecycle, &channel, 1), "{garbage}");
    }
    assert!(tables.apply(Bucket::Members, &put("not/a/key", 9, "{}".into())).is_some());
}

#[test]
fn retired_unknown_and_garbled_acls_are_told_apart() {
    let mut tables = Tables::default();
    let acl = |revision| format!(r#"{{"allowSubscribe":["team"],"revision":{revision},"updatedAt":1}}"#);
    let (one, two) = (lifecycle(0, 0), lifecycle(0, 1));
    assert!(matches!(tables.acl(&one), Acl::Unknown));
    assert!(matches!(tables.caller(one.principal()), Caller::Nobody));
    tables.apply(Bucket::Acl, &put(&one.key(), 1, acl(1)));
    assert!(matches!(tables.caller(one.principal()), Caller::One(found, _) if found == one));
    tables.apply(Bucket::Acl, &put(&two.key(), 2, acl(1)));
    assert!(matches!(tables.caller(one.principal()), Caller::Several(2)));
    tables.apply(Bucket::Acl, &delete(&one.key(), 3));
    assert!(matches!(tables.acl(&one), Acl::Retired));
    assert!(matches!(tables.caller(one.principal()), Caller::One(found, _) if found == two));
    assert!(tables.apply(Bucket::Acl, &put(&two.key(), 4, "null".into())).is_some());
    assert!(matches!(tables.acl(&two), Acl::Garbled));
    assert!(matches!(tables.caller(one.principal()), Caller::Nobody));
}

#[test]
fn the_class_is_the_channels_then_the_defaults_then_durable() {
    let mut tables = Tables::default();
    let channel: Channel = "team".parse().unwrap();
    assert_eq!(tables.class(&channel), DeliveryClass::Durable);
    tables.apply(Bucket::Channels, &put(CHANNEL_DEFAULTS_KEY, 1, r#"{"deliveryClass":"live"}"#.into()));
    assert_eq!(tables.class(&channel), DeliveryClass::Live);
    tables.apply(Bucket::Channels, &put("team", 2, r#"{"deliveryClass":"durable"}"#.into()));
    assert_eq!(tables.class(&channel), DeliveryClass::Durable);
    tables.apply(Bucket::Channels, &delete("team", 3));
    assert_eq!(tables.class(&channel), DeliveryClass::Live);
}
