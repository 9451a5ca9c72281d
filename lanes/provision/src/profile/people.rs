//! The rights of those who set up, administer and watch a space. None of them is a member, none may read the members
//! registry: that is the daemon's alone.

use super::{Grants, reads};
use lanekeeper_wire::{Bucket, Principal, Space, StreamKind, subject};

/// Makes the space and its members; reads no message and posts none.
pub(super) fn provisioner(space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants.own_inbox(public_key);
    // Limits of the account: the client asks before it opens JetStream.
    grants.publish("$JS.API.INFO");
    let streams = StreamKind::ALL.iter().map(|kind| kind.name(space));
    let buckets = Bucket::ALL.iter().map(|bucket| bucket.stream(space));
    for stream in streams.chain(buckets) {
        grants
            // Makes it; never changes or deletes one that is there.
            .publish(format!("$JS.API.STREAM.CREATE.{stream}"))
            // Compares it with what it should be.
            .publish(format!("$JS.API.STREAM.INFO.{stream}"));
    }
    // Durables of members and roles. No `MSG.NEXT`: it makes them and cannot read from them.
    for kind in [StreamKind::Dm, StreamKind::Dlv, StreamKind::Task] {
        let stream = kind.name(space);
        grants
            .publish(format!("$JS.API.CONSUMER.CREATE.{stream}.>"))
            .publish(format!("$JS.API.CONSUMER.INFO.{stream}.*"))
            .publish(format!("$JS.API.CONSUMER.DELETE.{stream}.*"));
    }
    // What was kept for a retired member goes with it.
    grants.publish(format!("$JS.API.STREAM.PURGE.{}", StreamKind::Dlv.name(space)));
    for bucket in [Bucket::Acl, Bucket::Channels] {
        grants
            // The row it is about to change, with its revision.
            .publish(format!("$JS.API.STREAM.MSG.GET.{}", bucket.stream(space)))
            // Read ACLs, channel settings and their defaults.
            .publish(bucket.subject(space, ">"));
    }
    grants
}

/// Asks the daemon for administration. Reads the feed and cannot write it.
pub(super) fn admin(principal: &Principal, space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants.tag_principal(principal).own_inbox(public_key);
    let request = subject::control_admin(space, principal);
    grants
        // Reload, evict, liveness of a principal.
        .publish(request.clone())
        .subscribe(format!("{}>", subject::reply_prefix(&request)))
        // Channel settings and their defaults.
        .publish(Bucket::Channels.subject(space, ">"));
    watching(&mut grants, space);
    grants
}

/// Sees what is public in the space. Writes nothing.
pub(super) fn observer(space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants.own_inbox(public_key);
    // Every public post as it happens.
    grants.subscribe(subject::chat_filter(space));
    watching(&mut grants, space);
    grants
}

fn watching(grants: &mut Grants, space: &Space) {
    // Limits of the account: the client asks before it opens JetStream.
    grants.publish("$JS.API.INFO");
    // Who is here, which channels there are, who follows what, who holds the lease.
    for bucket in [Bucket::Presence, Bucket::Channels, Bucket::Membership, Bucket::Delivery] {
        reads::bucket(grants, space, bucket);
    }
    // Flow control of those watches.
    grants.publish("$JS.FC.>");
}
