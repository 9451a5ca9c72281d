//! The rights of the daemon's two connections into a data account. Wire contract, section 11, "delivery" and
//! "membership-rw". The rows are the whole contract with a mesh that others provisioned: add none here that is not there.

use super::{Grants, reads};
use lanekeeper_wire::{Bucket, Principal, Space, StreamKind, names};

/// Owner and actor the daemon goes by.
const DAEMON_PRINCIPAL: (&str, &str) = ("local", "delivery");

/// Rows beyond those the daemon must be able to live on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryExtras {
    /// The bare contract: what a mesh provisioned by others grants.
    None,
    /// Also what the contract marks with a plus.
    #[default]
    All,
}

pub(super) fn grants(extras: DeliveryExtras, space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    tag_daemon(&mut grants);
    grants.own_inbox(public_key);
    // Limits of the account: the client asks before it opens JetStream.
    grants.publish("$JS.API.INFO");
    streams(&mut grants, space);
    buckets(&mut grants, space);
    lanes(&mut grants, space);
    requests(&mut grants, space);
    timers(&mut grants, space);
    match extras {
        DeliveryExtras::None => {}
        DeliveryExtras::All => plus(&mut grants, space),
    }
    grants
}

fn tag_daemon(grants: &mut Grants) {
    let (owner, actor) = DAEMON_PRINCIPAL;
    // Both parse: they are constants of the token grammar.
    if let (Ok(owner), Ok(actor)) = (owner.parse(), actor.parse()) {
        grants.tag_principal(&Principal::new(owner, actor));
    }
}

/// Fan-out reads CHAT, the reader reads INBOX.
fn streams(grants: &mut Grants, space: &Space) {
    for kind in [StreamKind::Chat, StreamKind::Inbox, StreamKind::Dlv] {
        // That the stream is there, its configuration and its last sequence.
        grants.publish(format!("$JS.API.STREAM.INFO.{}", kind.name(space)));
    }
    // Fan-out, catch-up of a join and history each have a consumer on CHAT.
    consumers_of(grants, &StreamKind::Chat.name(space));
    // One durable on INBOX, by name: nothing else there is the daemon's.
    let inbox = StreamKind::Inbox.name(space);
    let reader = names::READER_DURABLE;
    grants
        .publish(format!("$JS.API.CONSUMER.CREATE.{inbox}.{reader}"))
        .publish(format!("$JS.API.CONSUMER.CREATE.{inbox}.{reader}.>"))
        .publish(format!("$JS.API.CONSUMER.DURABLE.CREATE.{inbox}.{reader}"))
        .publish(format!("$JS.API.CONSUMER.DELETE.{inbox}.{reader}"));
    reads::bind(grants, &inbox, reader);
    // Flow control of its watches.
    grants.publish("$JS.FC.>");
}

/// Any consumer on one stream.
fn consumers_of(grants: &mut Grants, stream: &str) {
    grants
        // Made with a name, and with or without a filter.
        .publish(format!("$JS.API.CONSUMER.CREATE.{stream}.>"))
        // Made the older way.
        .publish(format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.*"))
        // Looked at before it is made.
        .publish(format!("$JS.API.CONSUMER.INFO.{stream}.*"))
        // Pulled from.
        .publish(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"))
        // An ephemeral one is taken away when its work is done.
        .publish(format!("$JS.API.CONSUMER.DELETE.{stream}.*"))
        // Acknowledged.
        .publish(format!("$JS.ACK.{stream}.>"));
}

/// What it decides by, and what it writes down.
fn buckets(grants: &mut Grants, space: &Space) {
    // Who is here, which class a channel has, who is a member, who may read.
    for bucket in [Bucket::Presence, Bucket::Channels, Bucket::Members, Bucket::Acl] {
        reads::bucket(grants, space, bucket);
    }
    // Membership rows are the daemon's alone.
    grants.publish(Bucket::Members.subject(space, ">"));
    let lease = Bucket::Delivery.stream(space);
    grants
        // That the lease bucket is there and lets rows expire.
        .publish(format!("$JS.API.STREAM.INFO.{lease}"))
        // The lease row.
        .publish(format!("$JS.API.STREAM.MSG.GET.{lease}"))
        // Claim, renew, release; no other key of that bucket.
        .publish(Bucket::Delivery.subject(space, "lease.*"));
}

/// The two stores it writes for members, one subject per lifecycle.
fn lanes(grants: &mut Grants, space: &Space) {
    grants
        // Fan-out's target.
        .publish(subject_of(space, "dinbox.*.*.*"))
        // The hand-off.
        .publish(subject_of(space, "dlv.*.*.*"));
}

/// What it is asked, and where it may answer: below the request, never on a request itself.
fn requests(grants: &mut Grants, space: &Space) {
    grants
        // Join, leave, list, history.
        .subscribe(subject_of(space, "ctl.delivery.*.*"))
        .publish(subject_of(space, "ctl.delivery.*.*.reply.>"))
        // Administration.
        .subscribe(subject_of(space, "ctl.delivery-admin.*.*"))
        .publish(subject_of(space, "ctl.delivery-admin.*.*.reply.>"))
        // Liveness.
        .subscribe(subject_of(space, "live.delivery.*.*"))
        .publish(subject_of(space, "live.delivery.*.*.reply.>"));
}

/// Checkpoint timers: requests in, armed schedules out.
fn timers(grants: &mut Grants, space: &Space) {
    consumers_of(grants, &StreamKind::EptReq.name(space));
    grants
        // Whether the checkpoint still waits.
        .publish(format!("$JS.API.STREAM.MSG.GET.{}", Bucket::Records.stream(space)))
        // The armed body, from which the broker fires.
        .publish(subject_of(space, "ept.*.*.*.*.armed"));
}

/// Used where granted, reported as unavailable where not.
fn plus(grants: &mut Grants, space: &Space) {
    let (inbox, dlv) = (StreamKind::Inbox.name(space), StreamKind::Dlv.name(space));
    grants
        // Takes an entry out of an INBOX with limits retention.
        .publish(format!("$JS.API.STREAM.MSG.DELETE.{inbox}"))
        // Takes away what a member has acknowledged from a DLV with limits retention.
        .publish(format!("$JS.API.STREAM.PURGE.{dlv}"))
        // How far a member has come.
        .publish(format!("$JS.API.CONSUMER.INFO.{dlv}.*"));
    // Sees a foreign write of the lease at once.
    reads::watch(grants, &Bucket::Delivery.stream(space));
    // Reads that any replica may answer.
    reads::direct(grants, &StreamKind::Chat.name(space));
    for bucket in [Bucket::Presence, Bucket::Channels, Bucket::Members, Bucket::Acl, Bucket::Delivery] {
        reads::direct(grants, &bucket.stream(space));
    }
}

/// The feed: reads who is a member, writes who is seen where.
pub(super) fn membership_rw(space: &Space, public_key: &str) -> Grants {
    let mut grants = Grants::default();
    tag_daemon(&mut grants);
    grants.own_inbox(public_key);
    // Limits of the account: the client asks before it opens JetStream.
    grants.publish("$JS.API.INFO");
    // The durable half of a feed row, and the rows it wrote before.
    for bucket in [Bucket::Members, Bucket::Membership] {
        reads::bucket(&mut grants, space, bucket);
    }
    grants
        // Flow control of its watches.
        .publish("$JS.FC.>")
        // The feed and its heartbeat.
        .publish(Bucket::Membership.subject(space, ">"));
    grants
}

fn subject_of(space: &Space, rest: &str) -> String {
    // All subjects of a space lie below `cotal.<space>.`; the shapes here are filters, not one lifecycle's subjects.
    format!("cotal.{space}.{rest}")
}
