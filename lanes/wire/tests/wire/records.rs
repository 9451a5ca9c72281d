//! Records: their letters, what is refused, and the rules that hang on them.

use lanekeeper_wire::record::effective_class;
use lanekeeper_wire::{
    AclRow, ChannelConfig, ChannelDefaults, ChannelPattern, ClosedInterval, DeliveryClass, FeedHeartbeat, FeedRow,
    Interval, LeaseRow, MembershipRow, MembershipState, PresenceFault, PresenceRow, PresenceStatus, ReplayWindow,
};
use proptest::prelude::*;

use crate::samples::*;

fn row() -> MembershipRow {
    MembershipRow {
        channel: parsed("team.>"),
        owner: alice(),
        lifecycle_uid: parsed(UID),
        state: MembershipState::DurableActive,
        join_cursor: 10,
        leave_cursor: None,
        generation: 2,
        activated: false,
        writer_identity: "local.delivery".into(),
        updated_at: 5,
        earlier: Vec::new(),
    }
}

proptest! {
    #[test]
    fn an_interval_is_open_below_and_closed_above(join in 0..50u64, leave in proptest::option::of(0..50u64), seq in 0..50u64) {
        let holds = Interval { join_cursor: join, leave_cursor: leave }.holds(seq);
        let listed = (join + 1..=leave.unwrap_or(50)).any(|held| held == seq);
        prop_assert_eq!(holds, listed);
    }

    #[test]
    fn membership_rows_come_back(
        channel in a_pattern(), life in a_lifecycle(), cursors: (u64, Option<u64>), generation: u64, flags: (bool, bool),
        writer_identity in ".*", updated_at: u64, earlier in proptest::collection::vec(any::<(u64, u64, u64)>(), 0..3),
    ) {
        let closed = |(generation, join_cursor, leave_cursor)| ClosedInterval { generation, join_cursor, leave_cursor };
        let row = MembershipRow {
            channel,
            owner: life.principal().clone(),
            lifecycle_uid: life.uid().clone(),
            state: if flags.0 { MembershipState::DurableActive } else { MembershipState::LiveConfirmed },
            join_cursor: cursors.0,
            leave_cursor: cursors.1,
            generation,
            activated: flags.1,
            writer_identity,
            updated_at,
            earlier: earlier.into_iter().map(closed).collect(),
        };
        prop_assert_eq!(MembershipRow::parse(row.to_json().as_bytes()), Ok(row.clone()));
        prop_assert_eq!(row.key().to_string().parse(), Ok(row.key()));
        prop_assert_eq!(row.lifecycle(), life);
    }

    #[test]
    fn acl_rows_come_back(
        allow in proptest::collection::vec(a_pattern(), 0..4),
        issued in proptest::option::of(proptest::collection::vec(a_pattern(), 0..3)), revision: u64, updated_at: u64,
    ) {
        let row = AclRow { allow_subscribe: allow, issued_allow_subscribe: issued, revision, updated_at };
        prop_assert_eq!(AclRow::parse(row.to_json().as_bytes()), Ok(row));
    }

    #[test]
    fn an_acl_covers_a_family_only_by_one_entry(allow in proptest::collection::vec(a_pattern(), 0..4), asked in a_pattern(), channel in a_channel()) {
        let row = AclRow { allow_subscribe: allow.clone(), issued_allow_subscribe: None, revision: 0, updated_at: 0 };
        prop_assert_eq!(row.covers(&asked), allow.iter().any(|entry| entry.covers_pattern(&asked)));
        prop_assert!(!(row.covers(&asked) && asked.covers(&channel)) || row.allows(&channel));
    }

    #[test]
    fn leases_feeds_and_heartbeats_come_back(
        texts in (".*", ".*"), since: u64, ready: bool, live in proptest::collection::vec(a_pattern(), 0..3), count: u64,
    ) {
        let lease = LeaseRow { holder: texts.0, incarnation: texts.1, since, ready };
        prop_assert_eq!(LeaseRow::parse(lease.to_json().as_bytes()), Ok(lease));
        let feed = FeedRow { live: live.clone(), durable: live, observed_at: since };
        prop_assert_eq!(FeedRow::parse(feed.to_json().as_bytes()), Ok(feed));
        let beat = FeedHeartbeat { observed_at: since, count };
        prop_assert_eq!(FeedHeartbeat::parse(beat.to_json().as_bytes()), Ok(beat));
    }

    #[test]
    fn replay_windows_are_digits_and_a_unit(count in "[0-9]{1,30}", unit in "[smhd]") {
        let text = format!("{count}{unit}");
        let window: ReplayWindow = text.parse().unwrap();
        prop_assert_eq!(window.as_str(), &text);
        let unit_ms = match unit.as_str() { "s" => 1_000, "m" => 60_000, "h" => 3_600_000, _ => 86_400_000u128 };
        let exact = count.parse::<u128>().unwrap().saturating_mul(unit_ms);
        prop_assert_eq!(u128::from(window.len_ms()), exact.min(u128::from(u64::MAX)));
    }
}

#[test]
fn a_membership_row_has_the_letters_of_the_contract() {
    let head = format!(r#"{{"channel":"team.>","owner":"local.alice","lifecycleUid":"{UID}","state":"#);
    let open = format!(
        r#"{head}"durable-active","joinCursor":10,"generation":2,"activated":false,"writerIdentity":"local.delivery","updatedAt":5}}"#
    );
    assert_eq!(row().to_json(), open);
    let closed = MembershipRow {
        state: MembershipState::LiveConfirmed,
        leave_cursor: Some(20),
        earlier: vec![ClosedInterval { generation: 1, join_cursor: 1, leave_cursor: 4 }],
        ..row()
    };
    assert_eq!(
        closed.to_json(),
        format!(
            r#"{head}"live-confirmed","joinCursor":10,"leaveCursor":20,"generation":2,"activated":false,"writerIdentity":"local.delivery","updatedAt":5,"earlier":[{{"generation":1,"joinCursor":1,"leaveCursor":4}}]}}"#
        )
    );
    let held: Vec<u64> = (0..25).filter(|seq| closed.holds(*seq)).collect();
    assert_eq!(held, [2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
}

#[test]
fn open_means_active_and_not_left_and_activation_gates_nothing() {
    assert!(row().is_open() && row().holds(11) && !row().holds(10));
    assert!(!MembershipRow { leave_cursor: Some(12), ..row() }.is_open());
    assert!(!MembershipRow { state: MembershipState::LiveConfirmed, ..row() }.is_open());
    let activated = MembershipRow { activated: true, ..row() };
    assert_eq!(activated.holds(11), row().holds(11));
}

#[test]
fn membership_rows_refuse_what_is_missing_or_of_the_wrong_type() {
    let good = row().to_json();
    let null_leave = good.replace("\"joinCursor\":10", "\"joinCursor\":10,\"leaveCursor\":null,\"later\":[{}]");
    assert_eq!(MembershipRow::parse(null_leave.as_bytes()), Ok(row()));
    for (from, to) in [
        ("team.>", "team.>.x"),
        ("local.alice", "local"),
        (UID, "short"),
        ("durable-active", "DURABLE"),
        ("\"joinCursor\":10", "\"joinCursor\":-1"),
        ("\"joinCursor\":10", "\"joinCursor\":\"10\""),
        ("\"joinCursor\":10,", ""),
        ("\"joinCursor\":10", "\"joinCursor\":10,\"joinCursor\":11"),
        ("\"generation\":2,", ""),
        ("\"activated\":false", "\"activated\":0"),
        ("\"activated\":false,", ""),
    ] {
        assert!(MembershipRow::parse(good.replace(from, to).as_bytes()).is_err(), "{from} -> {to}");
    }
}

#[test]
fn an_acl_row_is_whole_or_unknown() {
    let read = |text: &str| AclRow::parse(text.as_bytes());
    let full = r#"{"allowSubscribe":["team.>","ops"],"issuedAllowSubscribe":["ops"],"revision":4,"updatedAt":5}"#;
    let row = read(full).unwrap();
    assert_eq!(row.to_json(), full);
    assert!(row.allows(&parsed("team.x")) && row.allows(&parsed("ops")));
    assert!(!row.allows(&parsed("team")) && !row.allows(&parsed("ops.x")));
    assert!(row.issued_allows(&parsed("ops")) && !row.issued_allows(&parsed("team.x")));
    assert!(row.covers(&parsed("team.*.>")) && !row.covers(&parsed(">")) && !row.covers(&parsed("*")));
    let nothing = read(r#"{"allowSubscribe":[],"revision":1,"updatedAt":2}"#).unwrap();
    assert!(!nothing.allows(&parsed("ops")) && !nothing.issued_allows(&parsed("ops")));
    let together = read(r#"{"allowSubscribe":["a.*","a.*.>"]}"#).unwrap();
    assert!(!together.covers(&parsed("a.>")), "two entries together are not one that covers");
    for bad in [
        "{}",
        r#"{"allowSubscribe":null}"#,
        r#"{"allowSubscribe":"ops"}"#,
        r#"{"allowSubscribe":["ops",7]}"#,
        r#"{"allowSubscribe":["ops",""]}"#,
        r#"{"allowSubscribe":["ops","a..b"]}"#,
        r#"{"allowSubscribe":["ops"],"allowSubscribe":[">"]}"#,
        r#"{"allowSubscribe":["ops"],"issuedAllowSubscribe":"ops"}"#,
        r#"{"allowSubscribe":["ops"],"revision":"4"}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_fault_does_not_repeat_a_whole_record() {
    let text = format!(r#"{{"allowSubscribe":"{}\n"}}"#, "x".repeat(100_000));
    let fault = AclRow::parse(text.as_bytes()).unwrap_err();
    assert_eq!(fault.record(), "read acl row");
    assert!(fault.to_string().len() < 250 && fault.to_string().ends_with("..."), "{fault}");
}

#[test]
fn a_lease_is_read_with_either_spelling_of_since() {
    let read = |since: &str| {
        LeaseRow::parse(format!(r#"{{"holder":"h","incarnation":"i","since":{since},"ready":true,"x":1}}"#).as_bytes())
    };
    assert_eq!(read("1795971000123").unwrap().since, 1_795_971_000_123);
    assert_eq!(read("\"2026-11-29T16:50:00.123Z\"").unwrap().since, 1_795_971_000_123);
    assert_eq!(read("1795971000123.7").unwrap().since, 1_795_971_000_123);
    for bad in ["null", "-1", "-0.5", "\"yesterday\"", "\"2026-02-30T00:00:00Z\"", "[]", "true", "1e999"] {
        assert!(read(bad).is_err(), "{bad}");
    }
    assert!(LeaseRow::parse(br#"{"holder":"h","since":1,"ready":true}"#).is_err());
    assert!(LeaseRow::parse(br#"{"holder":"h","incarnation":"i","since":1,"ready":"yes"}"#).is_err());
    let lease = LeaseRow { holder: "local.delivery".into(), incarnation: "i".into(), since: 5, ready: false };
    assert_eq!(lease.to_json(), r#"{"holder":"local.delivery","incarnation":"i","since":5,"ready":false}"#);
}

#[test]
fn the_effective_class_is_the_channels_else_the_defaults_else_durable() {
    use DeliveryClass::{Durable, Live};
    let classes = [None, Some(Live), Some(Durable)];
    for own in classes {
        for default in classes {
            let channel = ChannelConfig { delivery_class: own, ..ChannelConfig::default() };
            let defaults = ChannelDefaults { delivery_class: default, ..ChannelDefaults::default() };
            let expected = own.or(default).unwrap_or(Durable);
            assert_eq!(effective_class(Some(&channel), Some(&defaults)), expected);
            assert_eq!(effective_class(Some(&channel), None), own.unwrap_or(Durable));
            assert_eq!(effective_class(None, Some(&defaults)), default.unwrap_or(Durable));
        }
    }
    assert_eq!(effective_class(None, None), Durable);
}

#[test]
fn channel_configs_have_the_letters_of_the_contract() {
    let full = r#"{"replay":true,"replayWindow":"24h","deliveryClass":"live","description":"d","instructions":"i"}"#;
    assert_eq!(ChannelConfig::parse(full.as_bytes()).unwrap().to_json(), full);
    let defaults = r#"{"replay":false,"replayWindow":"7d","deliveryClass":"durable"}"#;
    assert_eq!(ChannelDefaults::parse(defaults.as_bytes()).unwrap().to_json(), defaults);
    assert_eq!(ChannelConfig::parse(b"{\"later\":{}}"), Ok(ChannelConfig::default()));
    assert_eq!(ChannelConfig::default().to_json(), "{}");
    for window in ["", "h", "24", "24 h", "-1h", "1.5h", "24H", "24w", "1h30m", "+1h", "१h", "24hé"] {
        let text = format!("{{\"replayWindow\":\"{window}\"}}");
        assert!(ChannelConfig::parse(text.as_bytes()).is_err(), "{window}");
    }
    for class in ["\"Durable\"", "\"\"", "7", "[]"] {
        let text = format!("{{\"deliveryClass\":{class}}}");
        assert!(ChannelConfig::parse(text.as_bytes()).is_err() && ChannelDefaults::parse(text.as_bytes()).is_err());
    }
}

fn presence(key: &str, text: &str) -> Result<PresenceRow, PresenceFault> {
    PresenceRow::parse(key, text.as_bytes())
}

#[test]
fn a_presence_row_keeps_everything() {
    let text = format!(
        r#"{{"card":{{"id":"local.alice","name":"Alice","kind":"agent","role":"reviewer","tags":["a"]}},"status":"working","ts":1700000000000,"lifecycleUid":"{UID}","activity":"x","condition":{{"a":1}},"channelModes":{{"ops":"quiet"}},"activeAt":1}}"#
    );
    let row = presence("local.alice", &text).unwrap();
    assert_eq!(row.to_json(), text);
    assert_eq!(
        (row.card.name.as_str(), row.status.clone(), row.ts_ms),
        ("Alice", PresenceStatus::Working, 1_700_000_000_000)
    );
    assert_eq!(row.lifecycle_uid, Some(parsed(UID)));
    assert!(row.is_present());
    assert!(!PresenceRow { status: PresenceStatus::Offline, ..row }.is_present());
}

#[test]
fn presence_rows_are_rejected_for_the_named_reasons_and_no_other() {
    let good = r#"{"card":{"id":"local.alice","name":"Alice"},"status":"idle","ts":1}"#;
    assert!(presence("local.alice", good).is_ok());
    assert!(matches!(presence("local.bob", good), Err(PresenceFault::OtherCard { .. })));
    for (from, to, field) in [
        ("\"name\":\"Alice\"", "\"x\":1", "card.name"),
        ("\"Alice\"", "7", "card.name"),
        ("\"idle\"", "7", "status"),
        ("\"idle\"", "null", "status"),
        ("\"status\":\"idle\",", "", "status"),
        (",\"ts\":1", "", "ts"),
        ("\"ts\":1", "\"ts\":\"nope\"", "ts"),
        ("\"ts\":1", "\"ts\":\"1\"", "ts"),
        ("\"ts\":1", "\"ts\":null", "ts"),
        ("\"ts\":1", "\"ts\":1e999", "ts"),
        ("\"id\":\"local.alice\"", "\"id\":7", "card.id"),
        ("{\"id\":\"local.alice\",\"name\":\"Alice\"}", "[\"local.alice\",\"Alice\"]", "card"),
        ("\"card\"", "\"cord\"", "card"),
    ] {
        match presence("local.alice", &good.replace(from, to)) {
            Err(PresenceFault::Field { field: named, .. }) => assert_eq!(named, field, "{from} -> {to}"),
            other => panic!("{from} -> {to}: {other:?}"),
        }
    }
    for (from, to) in [
        ("\"idle\"", "\"dreaming\""),
        ("\"ts\":1", "\"ts\":-1.5"),
        ("\"ts\":1", "\"ts\":1,\"lifecycleUid\":\"short\""),
        ("\"ts\":1", "\"ts\":1,\"lifecycleUid\":7,\"activity\":{},\"huge\":1e999"),
        ("\"Alice\"", "\"Alice\",\"kind\":7,\"role\":[]"),
    ] {
        let row = presence("local.alice", &good.replace(from, to));
        assert_eq!(row.expect(to).lifecycle_uid, None, "{from} -> {to}");
    }
    let keyless = good.replace("local.alice", "alice");
    assert!(matches!(presence("alice", &keyless), Err(PresenceFault::Key { .. })));
    assert!(matches!(presence("local.alice", "7"), Err(PresenceFault::Unreadable { .. })));
}

#[test]
fn a_feed_row_has_the_letters_of_the_contract() {
    let text = r#"{"live":["team.*",">"],"durable":["ops"],"observedAt":5}"#;
    let row = FeedRow::parse(text.as_bytes()).unwrap();
    assert_eq!(row.live, [parsed::<ChannelPattern>("team.*"), parsed(">")]);
    assert_eq!(row.to_json(), text);
    assert_eq!(FeedHeartbeat { observed_at: 5, count: 2 }.to_json(), r#"{"observedAt":5,"count":2}"#);
    assert!(FeedRow::parse(br#"{"live":[],"durable":["a..b"],"observedAt":5}"#).is_err());
    assert!(FeedHeartbeat::parse(br#"{"count":2}"#).is_err());
}
