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
