//! Rows for reading a bucket and for using a consumer, shared by the roles. Names no role.

use super::Grants;
use lanekeeper_wire::{Bucket, Space};

/// Reads a bucket: its state, one entry, and a watch (a consumer of the reader's own).
pub(super) fn bucket(grants: &mut Grants, space: &Space, bucket: Bucket) {
    let stream = bucket.stream(space);
    grants
        // Binding the bucket, and its last sequence.
        .publish(format!("$JS.API.STREAM.INFO.{stream}"))
        // One entry, answered by the leader.
        .publish(format!("$JS.API.STREAM.MSG.GET.{stream}"));
    watch(grants, &stream);
}

/// A consumer of one's own on a bucket. Its name is random: nobody can meet another's by guessing.
pub(super) fn watch(grants: &mut Grants, stream: &str) {
    grants
        // A watch over several filters has no room for them in the subject.
        .publish(format!("$JS.API.CONSUMER.CREATE.{stream}"))
        // A watch with a name, and one filter.
        .publish(format!("$JS.API.CONSUMER.CREATE.{stream}.>"))
        // Its state, when the client looks for a gap.
        .publish(format!("$JS.API.CONSUMER.INFO.{stream}.*"))
        // Taking it away: the client does so when it makes the watch again after a gap.
        .publish(format!("$JS.API.CONSUMER.DELETE.{stream}.*"));
}

/// Direct gets of a bucket. For the daemon only: a direct get is answered with the stored bytes, on whatever reply subject
/// the asker names, and the broker does not hold that subject against the asker's rights. Whoever can also write a row
/// there (a member its presence) could so put bytes of its choice on any subject of the account, a read ACL among them.
/// A leader's answer to `STREAM.MSG.GET` is wrapped in JSON of the broker's and can forge nothing.
pub(super) fn direct(grants: &mut Grants, stream: &str) {
    grants
        // By sequence, or by a subject named in the body.
        .publish(format!("$JS.API.DIRECT.GET.{stream}"))
        // By a subject named in the request.
        .publish(format!("$JS.API.DIRECT.GET.{stream}.>"));
}

/// Uses, but never makes, one consumer that is there already.
pub(super) fn bind(grants: &mut Grants, stream: &str, durable: &str) {
    grants
        // Its state.
        .publish(format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"))
        // Its messages.
        .publish(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"))
        // Their acknowledgements.
        .publish(format!("$JS.ACK.{stream}.{durable}.>"));
}
