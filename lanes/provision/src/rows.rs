//! One row of a bucket: read with its revision, written against a revision.
//!
//! Owns the few calls that need nothing but `STREAM.MSG.GET` and a publish, so that they fit a narrow profile. It must
//! not know what a row means.

use async_nats::jetstream::{
    self, context::PublishErrorKind, message::PublishMessage, stream::LastRawMessageErrorKind,
};
use bytes::Bytes;
use lanekeeper_wire::{Bucket, Space};

const OPERATION: &str = "KV-Operation";
/// The broker writes this on markers it makes itself, when a row ends by age.
const MARKER_REASON: &str = "Nats-Marker-Reason";

/// Why a row could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RowFault {
    /// Somebody else wrote it since it was read.
    #[error("row {subject} was written by somebody else meanwhile; read it again")]
    Conflict {
        /// Its subject.
        subject: String,
    },
    /// The broker could not be asked, or refused.
    #[error("cannot {action} row {subject}: {source}")]
    Broker {
        /// What was tried.
        action: &'static str,
        /// On which row.
        subject: String,
        /// Why.
        source: async_nats::Error,
    },
}

/// What a key's last entry says.
#[derive(Debug)]
pub(crate) enum Row {
    /// Nothing was ever written, or nothing is left of it.
    Absent,
    /// A value, and the sequence it was stored at.
    Live {
        /// The sequence: what the next write expects.
        revision: u64,
        /// The value.
        value: Bytes,
    },
    /// A marker: the row was deleted or purged.
    Deleted,
}

/// Reads the last entry of a key from the leader.
pub(crate) async fn read(js: &jetstream::Context, space: &Space, bucket: Bucket, key: &str) -> Result<Row, RowFault> {
    let subject = bucket.subject(space, key);
    let fault = |source: async_nats::Error| RowFault::Broker { action: "read", subject: subject.clone(), source };
    let stream = js.get_stream_no_info(bucket.stream(space)).await.map_err(|error| fault(error.into()))?;
    match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(entry) if entry.headers.get(OPERATION).is_some() || entry.headers.get(MARKER_REASON).is_some() => {
            Ok(Row::Deleted)
        }
        Ok(entry) => Ok(Row::Live { revision: entry.sequence, value: entry.payload }),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(Row::Absent),
        Err(error) => Err(fault(error.into())),
    }
}

/// Writes a key that has no entry at all, not even a marker.
pub(crate) async fn create(js: &jetstream::Context, subject: &str, value: Bytes) -> Result<u64, RowFault> {
    publish(js, "create", subject, PublishMessage::build().payload(value).expected_last_subject_sequence(0)).await
}

/// Writes a key whose last entry has this revision.
pub(crate) async fn replace(
    js: &jetstream::Context,
    subject: &str,
    value: Bytes,
    revision: u64,
) -> Result<u64, RowFault> {
    publish(js, "write", subject, PublishMessage::build().payload(value).expected_last_subject_sequence(revision)).await
}

/// Writes a key, whatever is there.
pub(crate) async fn put(js: &jetstream::Context, subject: &str, value: Bytes) -> Result<u64, RowFault> {
    publish(js, "write", subject, PublishMessage::build().payload(value)).await
}

/// Puts a delete marker over a key whose last entry has this revision. The marker stays: it says "retired".
pub(crate) async fn delete(js: &jetstream::Context, subject: &str, revision: u64) -> Result<u64, RowFault> {
    let message = PublishMessage::build().header(OPERATION, "DEL").expected_last_subject_sequence(revision);
    publish(js, "delete", subject, message).await
}

async fn publish(
    js: &jetstream::Context,
    action: &'static str,
    subject: &str,
    message: PublishMessage,
) -> Result<u64, RowFault> {
    let fault = |error: jetstream::context::PublishError| {
        let subject = subject.to_owned();
        if matches!(error.kind(), PublishErrorKind::WrongLastSequence) {
            return RowFault::Conflict { subject };
        }
        RowFault::Broker { action, subject, source: error.into() }
    };
    let ack = js.send_publish(subject.to_owned(), message).await.map_err(fault)?;
    Ok(ack.await.map_err(fault)?.sequence)
}
