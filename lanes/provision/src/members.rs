//! Members of a space: their durables, their read ACL, their end.
//!
//! Owns what provisioning does for one lifecycle. It must not write membership rows: those are the daemon's, made when
//! the member joins.

use crate::rows::{self, Row, RowFault};
use async_nats::jetstream::{
    self, ErrorCode,
    consumer::{AckPolicy, DeliverPolicy, pull},
    stream::{ConsumerCreateStrictErrorKind, ConsumerErrorKind},
};
use bytes::Bytes;
use lanekeeper_wire::{
    AclRow, Bucket, Channel, ChannelConfig, ChannelPattern, Lifecycle, LifecycleUid, RecordFault, Role, Space,
    StreamKind, names, subject,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Attempts at a compare-and-swap before it is given up as contended.
const SWAP_ATTEMPTS: usize = 8;
/// Characters of a fresh lifecycle uid.
const UID_LENGTH: usize = 26;

/// Why a member could not be provisioned.
#[derive(Debug, thiserror::Error)]
pub enum MemberFault {
    /// The row of the lifecycle says otherwise.
    #[error("lifecycle {0} is a member already, with other channels; change them with set_read_acl")]
    AlreadyMember(Lifecycle),
    /// A retired lifecycle never comes back.
    #[error("lifecycle {0} was retired and never comes back; provision the principal with a fresh lifecycle uid")]
    Retired(Lifecycle),
    /// There is no row.
    #[error("lifecycle {0} is not a member of this space; add it first")]
    NotMember(Lifecycle),
    /// The row is garbled.
    #[error("the read acl of lifecycle {lifecycle} is garbled: {source}; retire the lifecycle and add a fresh one")]
    Garbled {
        /// Whose.
        lifecycle: Lifecycle,
        /// Why.
        source: RecordFault,
    },
    /// A durable is there with another configuration. It was left as it is.
    #[error("durable {durable} on {stream} exists with another configuration; it was not altered")]
    DurableDiffers {
        /// The stream.
        stream: String,
        /// The durable.
        durable: String,
    },
    /// The broker refused.
    #[error("cannot {action} durable {durable} on {stream}: {source}")]
    Durable {
        /// What was tried.
        action: &'static str,
        /// The stream.
        stream: String,
        /// The durable.
        durable: String,
        /// Why.
        source: async_nats::Error,
    },
    /// What is kept for a retired lifecycle could not be removed.
    #[error("cannot remove what {stream} keeps for lifecycle {lifecycle}: {source}")]
    Purge {
        /// The stream.
        stream: String,
        /// Whose.
        lifecycle: Lifecycle,
        /// Why.
        source: async_nats::Error,
    },
    /// A row could not be read or written.
    #[error(transparent)]
    Row(#[from] RowFault),
    /// A record has no JSON form.
    #[error("cannot write a record as json: {0}")]
    Json(#[from] serde_json::Error),
}

/// How a member is provisioned.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Channels it may read.
    pub read: Vec<ChannelPattern>,
    /// The role whose work it may take.
    pub role: Option<Role>,
    /// After this long without an acknowledgement a message is handed out again.
    pub ack_wait: Duration,
    /// Messages handed out and not acknowledged at once; `None` leaves the broker's default (1,000).
    pub max_ack_pending: Option<u32>,
}

impl Default for MemberSettings {
    fn default() -> Self {
        Self { read: Vec::new(), role: None, ack_wait: Duration::from_secs(60), max_ack_pending: None }
    }
}

/// A fresh lifecycle uid: 26 random characters of `[a-z0-9]`, about 134 bits.
pub fn new_lifecycle_uid() -> LifecycleUid {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    loop {
        let text: String =
            (0..UID_LENGTH).map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())])).collect();
        // It always parses; a loop says so without a panic path.
        if let Ok(uid) = text.parse() {
            return uid;
        }
    }
}

/// Makes the lifecycle's durables and then its read ACL: whoever may read has where to be delivered to. Repeating it
/// with the same settings changes nothing.
///
/// # Errors
/// See [`MemberFault`].
pub async fn add_member(
    js: &jetstream::Context,
    space: &Space,
    lifecycle: &Lifecycle,
    settings: &MemberSettings,
) -> Result<(), MemberFault> {
    judge_existing(js, space, lifecycle, settings).await?;
    make_durables(js, space, lifecycle, settings).await?;
    let acl = AclRow {
        allow_subscribe: settings.read.clone(),
        issued_allow_subscribe: Some(settings.read.clone()),
        revision: 1,
        updated_at: now_ms(),
    };
    let subject = Bucket::Acl.subject(space, &lifecycle.key());
    match rows::create(js, &subject, Bytes::from(acl.to_json())).await {
        Ok(_) => Ok(()),
        // It is there, from an earlier call or from somebody else meanwhile: fine if it says the same.
        Err(RowFault::Conflict { .. }) => judge_existing(js, space, lifecycle, settings).await,
        Err(error) => Err(error.into()),
    }
}

/// Fine when there is no row, or one with these channels.
async fn judge_existing(
    js: &jetstream::Context,
    space: &Space,
    lifecycle: &Lifecycle,
    settings: &MemberSettings,
) -> Result<(), MemberFault> {
    match rows::read(js, space, Bucket::Acl, &lifecycle.key()).await? {
        Row::Absent => Ok(()),
        Row::Deleted => Err(MemberFault::Retired(lifecycle.clone())),
        Row::Live { value, .. } if parse_acl(lifecycle, &value)?.allow_subscribe == settings.read => Ok(()),
        Row::Live { .. } => Err(MemberFault::AlreadyMember(lifecycle.clone())),
    }
}

/// Gives a member other channels to read, by compare-and-swap. What its credential was issued for stays as it is.
///
/// # Errors
/// See [`MemberFault`].
pub async fn set_read_acl(
    js: &jetstream::Context,
    space: &Space,
    lifecycle: &Lifecycle,
    read: Vec<ChannelPattern>,
) -> Result<(), MemberFault> {
    let subject = Bucket::Acl.subject(space, &lifecycle.key());
    let mut attempt = 1;
    loop {
        let (revision, acl) = live_acl(js, space, lifecycle).await?;
        let changed = AclRow {
            allow_subscribe: read.clone(),
            issued_allow_subscribe: acl.issued_allow_subscribe,
            revision: acl.revision.saturating_add(1),
            updated_at: now_ms(),
        };
        match rows::replace(js, &subject, Bytes::from(changed.to_json()), revision).await {
            Ok(_) => return Ok(()),
            Err(RowFault::Conflict { .. }) if attempt < SWAP_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends a lifecycle: marks its read ACL as deleted, so that nothing is authorised for it any more, then removes its
/// durables and what DLV keeps for it. Repeating it finishes what was left.
///
/// # Errors
/// See [`MemberFault`].
pub async fn retire_member(js: &jetstream::Context, space: &Space, lifecycle: &Lifecycle) -> Result<(), MemberFault> {
    let subject = Bucket::Acl.subject(space, &lifecycle.key());
    let mut attempt = 1;
    loop {
        let revision = match rows::read(js, space, Bucket::Acl, &lifecycle.key()).await? {
            Row::Absent => return Err(MemberFault::NotMember(lifecycle.clone())),
            Row::Deleted => break,
            Row::Live { revision, .. } => revision,
        };
        match rows::delete(js, &subject, revision).await {
            Ok(_) => break,
            Err(RowFault::Conflict { .. }) if attempt < SWAP_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
    remove_durable(js, StreamKind::Dm.name(space), names::dm_durable(lifecycle)).await?;
    let dlv = StreamKind::Dlv.name(space);
    remove_durable(js, dlv.clone(), names::dlv_durable(lifecycle)).await?;
    let purge =
        |source: async_nats::Error| MemberFault::Purge { stream: dlv.clone(), lifecycle: lifecycle.clone(), source };
    let stream = js.get_stream_no_info(&dlv).await.map_err(|error| purge(error.into()))?;
    stream.purge().filter(subject::dlv(space, lifecycle)).await.map_err(|error| purge(error.into()))?;
    Ok(())
}

/// Writes a channel's settings, whatever was there.
///
/// # Errors
/// See [`MemberFault`].
pub async fn set_channel_config(
    js: &jetstream::Context,
    space: &Space,
    channel: &Channel,
    config: &ChannelConfig,
) -> Result<(), MemberFault> {
    let subject = Bucket::Channels.subject(space, channel.as_str());
    rows::put(js, &subject, Bytes::from(serde_json::to_vec(config)?)).await?;
    Ok(())
}

async fn live_acl(js: &jetstream::Context, space: &Space, lifecycle: &Lifecycle) -> Result<(u64, AclRow), MemberFault> {
    match rows::read(js, space, Bucket::Acl, &lifecycle.key()).await? {
        Row::Absent => Err(MemberFault::NotMember(lifecycle.clone())),
        Row::Deleted => Err(MemberFault::Retired(lifecycle.clone())),
        Row::Live { revision, value } => Ok((revision, parse_acl(lifecycle, &value)?)),
    }
}

fn parse_acl(lifecycle: &Lifecycle, value: &[u8]) -> Result<AclRow, MemberFault> {
    AclRow::parse(value).map_err(|source| MemberFault::Garbled { lifecycle: lifecycle.clone(), source })
}

async fn make_durables(
    js: &jetstream::Context,
    space: &Space,
    lifecycle: &Lifecycle,
    settings: &MemberSettings,
) -> Result<(), MemberFault> {
    let principal = lifecycle.principal();
    let to_me = format!("cotal.{space}.inst.{}.{}.*.*", principal.owner(), principal.actor());
    let durable = |name: String, filter: String, deliver_policy| pull::Config {
        durable_name: Some(name),
        filter_subject: filter,
        deliver_policy,
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        max_ack_pending: settings.max_ack_pending.map_or(0, i64::from),
        ..pull::Config::default()
    };
    // Aliases are reused: what was sent to the one who had this name before is not for this one.
    let dm = durable(names::dm_durable(lifecycle), to_me, DeliverPolicy::New);
    make_durable(js, StreamKind::Dm.name(space), dm).await?;
    let dlv = durable(names::dlv_durable(lifecycle), subject::dlv(space, lifecycle), DeliverPolicy::All);
    make_durable(js, StreamKind::Dlv.name(space), dlv).await?;
    if let Some(role) = &settings.role {
        let svc = durable(names::svc_durable(role), format!("cotal.{space}.svc.{role}.*.*"), DeliverPolicy::All);
        make_durable(js, StreamKind::Task.name(space), svc).await?;
    }
    Ok(())
}

async fn make_durable(js: &jetstream::Context, stream: String, config: pull::Config) -> Result<(), MemberFault> {
    let durable = config.durable_name.clone().unwrap_or_default();
    let Err(error) = js.create_consumer_strict_on_stream(config, &stream).await else { return Ok(()) };
    // The client tells two stories for the one refusal, by how old the broker is.
    let differs = matches!(error.kind(), ConsumerCreateStrictErrorKind::AlreadyExists)
        || matches!(error.kind(), ConsumerCreateStrictErrorKind::JetStream(cause)
            if cause.error_code() == ErrorCode::CONSUMER_ALREADY_EXISTS);
    if differs {
        return Err(MemberFault::DurableDiffers { stream, durable });
    }
    Err(MemberFault::Durable { action: "create", stream, durable, source: error.into() })
}

async fn remove_durable(js: &jetstream::Context, stream: String, durable: String) -> Result<(), MemberFault> {
    let Err(error) = js.delete_consumer_from_stream(&durable, &stream).await else { return Ok(()) };
    let gone = matches!(error.kind(), ConsumerErrorKind::JetStream(cause)
        if cause.error_code() == ErrorCode::CONSUMER_NOT_FOUND);
    if gone {
        return Ok(());
    }
    Err(MemberFault::Durable { action: "delete", stream, durable, source: error.into() })
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_fresh_and_well_formed() {
        let uids: std::collections::HashSet<_> = (0..1000).map(|_| new_lifecycle_uid()).collect();
        assert_eq!(uids.len(), 1000);
        for uid in &uids {
            assert_eq!(uid.as_str().len(), 26);
        }
        let letters: std::collections::HashSet<char> = uids.iter().flat_map(|uid| uid.as_str().chars()).collect();
        assert_eq!(letters.len(), 36, "all of the alphabet is used");
    }
}
