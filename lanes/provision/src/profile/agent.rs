//! The rights of a member. Wire contract, section 11, "agent".

use super::{Grants, reads};
use lanekeeper_wire::{
    Bucket, ChannelPattern, Lifecycle, LifecycleUid, Plane, Principal, Role, Space, StreamKind, names, subject,
};
use sha2::{Digest, Sha256};

/// Longest channel written into a consumer name as it is. The broker's limit is 255 bytes for the whole name.
const MAX_CHANNEL_IN_NAME: usize = 100;

/// A member: who it is and which channels it may read and post to.
#[derive(Clone, Debug)]
pub struct AgentProfile {
    /// Who it is.
    pub principal: Principal,
    /// Which incarnation.
    pub uid: LifecycleUid,
    /// Channels it may read, now and from history.
    pub read: Vec<ChannelPattern>,
    /// Channels it may post to.
    pub post: Vec<ChannelPattern>,
    /// The role whose work it may take.
    pub role: Option<Role>,
}

/// The name of a member's history consumer for one channel or pattern it may read.
///
/// The name is fixed by member and pattern, because a permission can hold a name or any name, but no part of one. With
/// `=`, which neither owner, actor nor channel can hold, between the parts, no member's name is another's, and no
/// pattern's name is another's: each can only ever carry the filter granted with it.
pub fn history_durable(principal: &Principal, pattern: &ChannelPattern) -> String {
    let pattern = pattern.as_str();
    let channel = if pattern.len() > MAX_CHANNEL_IN_NAME {
        // `#` marks the digest: no written-out channel starts with it.
        format!("#{}", data_encoding::HEXLOWER.encode(&Sha256::digest(pattern)))
    } else {
        pattern.replace('.', "=").replace('*', "=any").replace('>', "=gt")
    };
    format!("chathist_{}={channel}", principal.dashed())
}

pub(super) fn grants(profile: &AgentProfile, space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants.tag_principal(&profile.principal).own_inbox(public_key);
    messages(&mut grants, profile, space);
    requests(&mut grants, profile, space);
    history(&mut grants, profile, space);
    own_durables(&mut grants, profile, space);
    denies(&mut grants, space);
    // What a member shows and knows of the space: who is here, which channels there are, whether a daemon serves.
    for bucket in [Bucket::Presence, Bucket::Channels, Bucket::Delivery] {
        reads::bucket(&mut grants, space, bucket);
    }
    // Flow control of those watches.
    grants.publish("$JS.FC.>");
    // Limits of the account: the client asks before it opens JetStream.
    grants.publish("$JS.API.INFO");
    grants
}

/// What it says, always in its own name.
fn messages(grants: &mut Grants, profile: &AgentProfile, space: &Space) {
    let (owner, actor) = (profile.principal.owner(), profile.principal.actor());
    for pattern in &profile.post {
        // Posts, per post ACL; the sender is part of the subject.
        grants.publish(format!("cotal.{space}.chat.{owner}.{actor}.{pattern}"));
    }
    for pattern in &profile.read {
        // Live posts of anyone, per read ACL.
        grants.subscribe(subject::chat_channel_filter(space, pattern));
    }
    grants
        // Direct messages to anyone.
        .publish(format!("cotal.{space}.inst.*.*.{owner}.{actor}"))
        // Work for any role.
        .publish(format!("cotal.{space}.svc.*.{owner}.{actor}"))
        // Its own presence, and no other's.
        .publish(Bucket::Presence.subject(space, &profile.principal.dotted()));
}

/// What it asks for, and where the answers come.
fn requests(grants: &mut Grants, profile: &AgentProfile, space: &Space) {
    let control = subject::control(space, &profile.principal);
    // Join, leave, list, history.
    grants.publish(control.clone()).subscribe(format!("{}>", subject::reply_prefix(&control)));
    for plane in [Plane::Manager, Plane::Delivery] {
        let probe = subject::live(space, plane, &profile.principal);
        // Is anybody serving?
        grants.publish(probe.clone()).subscribe(format!("{}>", subject::reply_prefix(&probe)));
    }
}

/// A consumer over the past of each channel it may read. The filter is part of the subject, so the broker holds the
/// ACL; the name is fixed, so it cannot be another's consumer, nor one of the daemon's.
fn history(grants: &mut Grants, profile: &AgentProfile, space: &Space) {
    let stream = StreamKind::Chat.name(space);
    for pattern in &profile.read {
        let name = history_durable(&profile.principal, pattern);
        let filter = subject::chat_channel_filter(space, pattern);
        // Made with exactly this filter, or a narrower one.
        grants.publish(format!("$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter}"));
        reads::bind(grants, &stream, &name);
        // Taken away when read.
        grants.publish(format!("$JS.API.CONSUMER.DELETE.{stream}.{name}"));
    }
}

/// What is kept for it: made by the provisioner, only used here.
fn own_durables(grants: &mut Grants, profile: &AgentProfile, space: &Space) {
    let lifecycle = Lifecycle::new(profile.principal.clone(), profile.uid.clone());
    // Direct messages to it.
    reads::bind(grants, &StreamKind::Dm.name(space), &names::dm_durable(&lifecycle));
    // Posts the daemon has authorised for it.
    reads::bind(grants, &StreamKind::Dlv.name(space), &names::dlv_durable(&lifecycle));
    if let Some(role) = &profile.role {
        // Work of its role.
        reads::bind(grants, &StreamKind::Task.name(space), &names::svc_durable(role));
    }
}

/// Whoever makes a consumer chooses what it reads; these streams hold what others were sent.
fn denies(grants: &mut Grants, space: &Space) {
    for kind in [StreamKind::Dm, StreamKind::Task, StreamKind::Dlv, StreamKind::Inbox] {
        let stream = kind.name(space);
        for verb in ["CREATE", "DURABLE.CREATE"] {
            grants
                .never_publish(format!("$JS.API.CONSUMER.{verb}.{stream}"))
                .never_publish(format!("$JS.API.CONSUMER.{verb}.{stream}.>"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(principal: &str, pattern: &str) -> String {
        history_durable(&principal.parse().unwrap(), &pattern.parse().unwrap())
    }

    #[test]
    fn history_names_read_like_their_channel() {
        assert_eq!(name("local.ada", "team.ops-1"), "chathist_local-ada=team=ops-1");
        assert_eq!(name("local.ada", "*.ops.>"), "chathist_local-ada==any=ops==gt");
        let long = name("local.ada", &"a".repeat(4096));
        assert!(long.len() < 255 && long.starts_with("chathist_local-ada=#"), "{long}");
        assert_ne!(long, name("local.ada", &"a".repeat(4095)));
    }

    #[test]
    fn nobodys_name_is_anothers() {
        // With another separator these two would share a name, and one could give the other's consumer its filter.
        assert_ne!(name("local.a", "b_c"), name("local.a_b", "c"));
        assert_ne!(name("local.a", "a.b"), name("local.a", "a-b"));
        assert_ne!(name("local.a", "any"), name("local.a", "*"));
        assert_ne!(name("local.a", "gt"), name("local.a", ">"));
    }

    #[test]
    fn consumers_on_what_others_were_sent_are_denied_outright() {
        let profile = AgentProfile {
            principal: "local.ada".parse().unwrap(),
            uid: "abcdefghijklmnopqrstuvwxyz".parse().unwrap(),
            read: Vec::new(),
            post: Vec::new(),
            role: None,
        };
        let space = "dev".parse().unwrap();
        // A row added by mistake must not open these: deny wins.
        let deny = grants(&profile, &space, "UKEY").publish.deny;
        for stream in ["DM_dev", "TASK_dev", "DLV_dev", "INBOX_dev"] {
            for verb in ["CREATE", "DURABLE.CREATE"] {
                for rest in ["", ".>"] {
                    let row = format!("$JS.API.CONSUMER.{verb}.{stream}{rest}");
                    assert!(deny.contains(&row), "{row}");
                }
            }
        }
    }

    fn patterns() -> impl Strategy<Value = String> {
        let segment = prop_oneof![4 => "[a-c_-]{1,3}", 1 => Just("any".to_owned()), 1 => Just("gt".to_owned()), 2 => Just("*".to_owned())];
        (prop::collection::vec(segment, 1..4), any::<bool>()).prop_map(|(mut segments, open)| {
            if open {
                segments.push(">".to_owned());
            }
            segments.join(".")
        })
    }

    proptest! {
        #[test]
        fn names_are_equal_only_for_equal_members_and_patterns(
            (a, p) in ("local\\.[ab_]{1,3}", patterns()),
            (b, q) in ("local\\.[ab_]{1,3}", patterns()),
        ) {
            prop_assert_eq!(name(&a, &p) == name(&b, &q), a == b && p == q);
        }

        #[test]
        fn names_are_names(a in "local\\.[ab_]{1,3}", p in patterns()) {
            prop_assert!(!name(&a, &p).contains(['.', '*', '>', ' ', '/']));
        }
    }
}
