//! What we build we read back as the same, and it has the letters the contract prescribes.

use lanekeeper_wire::names::{dlv_durable, dm_durable, svc_durable};
use lanekeeper_wire::{Bucket, Channel, ChannelPattern, Lifecycle, MemberKey, Plane, Principal, StreamKind, Subject};
use lanekeeper_wire::{Epoch, TimerVerb, subject};
use proptest::prelude::*;

use crate::samples::*;

fn through_json<T>(value: &T) -> T
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn every_subject_is_read_as_it_was_built(space in a_space(), subject in a_subject()) {
        prop_assert_eq!(Subject::parse(&space, &subject.build(&space)), Ok(subject));
    }

    #[test]
    fn a_subject_is_foreign_to_every_other_space(a in a_space(), b in a_space(), subject in a_subject()) {
        prop_assume!(a != b);
        prop_assert!(Subject::parse(&b, &subject.build(&a)).is_err());
    }

    #[test]
    fn a_principal_keeps_its_dotted_and_dashed_form(who in a_principal()) {
        prop_assert_eq!(&who.dotted().parse::<Principal>().unwrap(), &who);
        prop_assert_eq!(&Principal::parse_dashed(&who.dashed()).unwrap(), &who);
        prop_assert_eq!(&through_json(&who), &who);
        prop_assert!(who.is_trusted());
        prop_assert!(Principal::parse_dashed(&who.dotted()).is_err());
        prop_assert!(who.dashed().parse::<Principal>().is_err());
    }

    #[test]
    fn a_lifecycle_keeps_its_key_and_its_names_stay_legal(life in a_lifecycle()) {
        prop_assert_eq!(&life.key().parse::<Lifecycle>().unwrap(), &life);
        prop_assert_eq!(&through_json(&life), &life);
        prop_assert_eq!(dlv_durable(&life), format!("dlv_{}-{}", life.principal().dashed(), life.uid()));
        prop_assert_eq!(dm_durable(&life), format!("dm_{}", life.dashed()));
        prop_assert!(dlv_durable(&life).len() <= 255);
    }

    #[test]
    fn equal_lifecycles_have_equal_hashes(life in a_lifecycle()) {
        let again: Lifecycle = life.key().parse().unwrap();
        let set = std::collections::HashSet::from([life]);
        prop_assert!(set.contains(&again));
    }

    #[test]
    fn channels_and_patterns_keep_their_text(channel in a_channel(), pattern in a_pattern()) {
        prop_assert_eq!(&through_json(&channel), &channel);
        prop_assert_eq!(&through_json(&pattern), &pattern);
        prop_assert_eq!(channel.to_pattern().as_channel(), Some(channel));
        prop_assert_eq!(pattern.is_concrete(), pattern.as_str().parse::<Channel>().is_ok());
    }

    #[test]
    fn a_member_key_is_legal_and_comes_back(pattern in a_pattern(), lifecycle in a_lifecycle()) {
        let key = MemberKey { pattern, lifecycle };
        let text = key.to_string();
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"-/_=.".contains(&b);
        prop_assert!(text.bytes().all(legal), "{}", text);
        prop_assert_eq!(text.parse::<MemberKey>(), Ok(key));
    }

    #[test]
    fn an_epoch_has_one_spelling(epoch in an_epoch()) {
        prop_assert_eq!(epoch.to_string().parse::<Epoch>(), Ok(epoch));
        prop_assert_eq!(through_json(&epoch), epoch);
        for prefix in ["0", "+", " "] {
            let other = format!("{prefix}{epoch}");
            prop_assert!(other.parse::<Epoch>().is_err());
        }
    }

    #[test]
    fn timer_siblings_differ_in_the_verb_alone(space in a_space(), timer in a_timer()) {
        let stem = |t: &lanekeeper_wire::TimerSubject| t.build(&space).rsplit_once('.').unwrap().0.to_owned();
        for verb in [TimerVerb::Schedule, TimerVerb::Armed, TimerVerb::Fire] {
            let sibling = timer.sibling(verb);
            prop_assert_eq!(sibling.verb, verb);
            prop_assert_eq!(stem(&sibling), stem(&timer));
            prop_assert_eq!(sibling.build(&space).split('.').count(), 8);
        }
    }

    #[test]
    fn a_bucket_gives_back_its_key(space in a_space(), key in "[-/_=.a-zA-Z0-9]{1,40}") {
        for bucket in Bucket::ALL {
            let at = bucket.subject(&space, &key);
            for other in Bucket::ALL {
                let expected = (other == bucket).then_some(key.as_str());
                prop_assert_eq!(other.key_of(&space, &at), expected);
            }
            prop_assert!(bucket.stream(&space).len() <= 255);
        }
    }

    #[test]
    fn each_subject_is_stored_by_its_stream_alone(space in a_space(), subject in a_subject()) {
        let text = subject.build(&space);
        let stores = |kind: &StreamKind| kind.subjects(&space).iter().any(|filter| subject::matches(filter, &text));
        let stored: Vec<StreamKind> = StreamKind::ALL.into_iter().filter(stores).collect();
        let expected = match &subject {
            Subject::Chat { .. } => vec![StreamKind::Chat],
            Subject::Inst { .. } => vec![StreamKind::Dm],
            Subject::Svc { .. } => vec![StreamKind::Task],
            Subject::Dinbox(_) => vec![StreamKind::Inbox],
            Subject::Dlv(_) => vec![StreamKind::Dlv],
            Subject::Timer(timer) => match timer.verb {
                TimerVerb::Schedule => vec![StreamKind::EptReq],
                TimerVerb::Armed | TimerVerb::Fire => vec![StreamKind::Ept],
            },
            Subject::Control { .. } | Subject::ControlAdmin { .. } | Subject::Live { .. } => vec![],
        };
        prop_assert_eq!(stored, expected);
    }

    #[test]
    fn each_filter_takes_its_own_subjects_alone(space in a_space(), subject in a_subject()) {
        let text = subject.build(&space);
        let taken = [
            subject::chat_filter(&space),
            subject::inst_filter(&space),
            subject::svc_filter(&space),
            subject::dinbox_filter(&space),
            subject::dlv_filter(&space),
            subject::control_filter(&space),
            subject::control_admin_filter(&space),
            subject::live_filter(&space, Plane::Manager),
            subject::live_filter(&space, Plane::Delivery),
        ]
        .map(|filter| subject::matches(&filter, &text));
        let expected = match &subject {
            Subject::Chat { .. } => Some(0),
            Subject::Inst { .. } => Some(1),
            Subject::Svc { .. } => Some(2),
            Subject::Dinbox(_) => Some(3),
            Subject::Dlv(_) => Some(4),
            Subject::Control { .. } => Some(5),
            Subject::ControlAdmin { .. } => Some(6),
            Subject::Live { plane: Plane::Manager, .. } => Some(7),
            Subject::Live { plane: Plane::Delivery, .. } => Some(8),
            Subject::Timer(_) => None,
        };
        let indices: Vec<usize> = taken.iter().enumerate().filter(|(_, hit)| **hit).map(|(i, _)| i).collect();
        prop_assert_eq!(indices, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_channel_filter_takes_what_the_pattern_covers(
        space in a_space(), sender in a_principal(), channel in a_channel(), pattern in a_pattern(),
    ) {
        let text = subject::chat(&space, &sender, &channel);
        let filter = subject::chat_channel_filter(&space, &pattern);
        prop_assert_eq!(subject::matches(&filter, &text), pattern.covers(&channel));
    }

    #[test]
    fn a_reply_below_its_own_prefix_is_own(space in a_space(), caller in a_principal(), tail in "[a-zA-Z0-9-]{1,9}(\\.[a-z]{1,3}){0,2}") {
        let request = subject::control(&space, &caller);
        let reply = format!("{}{tail}", subject::reply_prefix(&request));
        prop_assert!(subject::is_own_reply(&request, &reply));
    }
}

#[test]
fn the_letters_are_those_of_the_contract() {
    let (space, alice, life) = (space(), alice(), alice_now());
    let channel: Channel = parsed("team.backend");
    assert_eq!(subject::chat(&space, &alice, &channel), "cotal.alpha.chat.local.alice.team.backend");
    assert_eq!(subject::dinbox(&space, &life), format!("cotal.alpha.dinbox.local.alice.{UID}"));
    assert_eq!(subject::dlv(&space, &life), format!("cotal.alpha.dlv.local.alice.{UID}"));
    assert_eq!(subject::control(&space, &alice), "cotal.alpha.ctl.delivery.local.alice");
    assert_eq!(subject::control_admin(&space, &alice), "cotal.alpha.ctl.delivery-admin.local.alice");
    assert_eq!(subject::live(&space, Plane::Delivery, &alice), "cotal.alpha.live.delivery.local.alice");
    assert_eq!(subject::control_filter(&space), "cotal.alpha.ctl.delivery.*.*");
    assert_eq!(subject::control_admin_filter(&space), "cotal.alpha.ctl.delivery-admin.*.*");
    assert_eq!(subject::live_filter(&space, Plane::Manager), "cotal.alpha.live.manager.*.*");
    assert_eq!(subject::live_queue(Plane::Manager), "live.manager");
    assert_eq!(subject::live_queue(Plane::Delivery), "live.delivery");
    let family: ChannelPattern = parsed("team.>");
    assert_eq!(subject::chat_channel_filter(&space, &family), "cotal.alpha.chat.*.*.team.>");
    let inst = Subject::Inst { recipient: parsed("local.bob"), sender: alice.clone() };
    assert_eq!(inst.build(&space), "cotal.alpha.inst.local.bob.local.alice");
    let svc = Subject::Svc { role: parsed("reviewer"), sender: alice };
    assert_eq!(svc.build(&space), "cotal.alpha.svc.reviewer.local.alice");
    assert_eq!(svc_durable(&parsed("reviewer")), "svc_reviewer");
    assert_eq!(dlv_durable(&life), format!("dlv_local-alice-{UID}"));
    assert_eq!(dm_durable(&life), format!("dm_local-alice-{UID}"));
}

#[test]
fn streams_and_buckets_are_named_as_the_contract_says() {
    let names = StreamKind::ALL.map(|kind| kind.name(&space()));
    assert_eq!(names, ["CHAT", "DM", "TASK", "INBOX", "DLV", "EPT_REQ", "EPT"].map(|n| format!("{n}_alpha")));
    let subjects: Vec<Vec<String>> = StreamKind::ALL.iter().map(|kind| kind.subjects(&space())).collect();
    let expected: [&[&str]; 7] = [
        &["chat.>"],
        &["inst.>"],
        &["svc.>"],
        &["dinbox.>"],
        &["dlv.>"],
        &["ept.*.*.*.*.schedule"],
        &["ept.*.*.*.*.armed", "ept.*.*.*.*.fire"],
    ];
    for (own, wanted) in subjects.iter().zip(expected) {
        assert_eq!(own, &wanted.iter().map(|tail| format!("cotal.alpha.{tail}")).collect::<Vec<_>>());
    }
    let buckets = Bucket::ALL.map(|bucket| bucket.stream(&space()));
    let wanted = ["presence", "channels", "members", "acl", "delivery", "membership", "records"];
    assert_eq!(buckets, wanted.map(|n| format!("KV_cotal_{n}_alpha")));
    assert_eq!(Bucket::Delivery.subject(&space(), lanekeeper_wire::LEASE_KEY), "$KV.cotal_delivery_alpha.lease.0");
    assert_eq!(lanekeeper_wire::CHANNEL_DEFAULTS_KEY, "=defaults");
    assert_eq!(lanekeeper_wire::FEED_KEY, "=feed");
}

#[test]
fn a_subject_of_no_key_is_no_buckets() {
    for subject in ["$KV.cotal_acl_alpha", "$KV.cotal_acl_alpha.", "$KV.cotal_acl_alphab.x", "KV.cotal_acl_alpha.x", ""]
    {
        assert_eq!(Bucket::Acl.key_of(&space(), subject), None, "{subject}");
    }
}

#[test]
fn a_family_is_encoded_in_the_key_and_nowhere_else() {
    for (pattern, encoded) in
        [("team.>", "team.=gt"), (">", "=gt"), ("*", "=any"), ("a.*.b.*.>", "a.=any.b.=any.=gt"), ("gt.any", "gt.any")]
    {
        let key = MemberKey { pattern: parsed(pattern), lifecycle: alice_now() };
        assert_eq!(key.to_string(), format!("{encoded}/local.alice.{UID}"));
        assert_eq!(key.to_string().parse::<MemberKey>(), Ok(key));
    }
}
