//! What can end or refuse a lane: typed faults with stable codes, and the one table that says what each leads to.
//!
//! Owns the list and its wording. It must not act on a fault: whoever holds the lane reads [`Fault::fate`].

use std::{fmt, time::Duration};

use lanekeeper_wire::Space;

/// A fault of one lane: which space, and what happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The space whose lane is concerned.
    pub space: Space,
    /// What happened.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "space `{}`: {} [{}]", self.space, self.kind, self.kind.code())
    }
}

impl Fault {
    /// A fault of `space`.
    #[must_use]
    pub fn new(space: &Space, kind: FaultKind) -> Self {
        Self { space: space.clone(), kind }
    }

    /// The stable code, as listed in `deploy/runbook.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// What the holder of the lane does about it.
    #[must_use]
    pub fn fate(&self) -> Fate {
        self.kind.fate()
    }
}

/// What a fault leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Open again after a capped exponential backoff with full jitter.
    Backoff,
    /// Open again once the lease of the other holder can have expired.
    AfterLeaseTtl,
    /// Open again, but seldom: somebody has to mend the broker's side first.
    Slow,
    /// Wait until a credential file, the configuration or an operator changes something.
    Park,
}

/// Every way a lane can be refused or end. Each variant says what, where, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// A credential file is not there or cannot be read.
    #[error(
        "credential file `{path}` cannot be read: {reason}; provision the space again or point at the right directory"
    )]
    CredentialUnreadable {
        /// The file.
        path: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The file system did not answer.
    #[error("no answer from the file system within {waited_ms} ms for the credentials in `{path}`; look at its mount")]
    CredentialStoreSilent {
        /// The directory.
        path: String,
        /// How long was waited, milliseconds.
        waited_ms: u64,
    },
    /// A credential file or its directory is readable by others.
    #[error("credential `{path}` has mode {mode:04o} and others may read it; run `chmod {wanted:o} {path}`")]
    CredentialLoose {
        /// The file or directory.
        path: String,
        /// Its permission bits.
        mode: u32,
        /// The bits it must have at most.
        wanted: u32,
    },
    /// A credential file does not hold one user JWT and its seed.
    #[error("credential file `{path}` is malformed: {reason}; provision it again")]
    CredentialMalformed {
        /// The file.
        path: String,
        /// Which part is wrong, without its content.
        reason: String,
    },
    /// A credential is past its `exp`.
    #[error("credential file `{path}` expired at {expired_at} (unix s); sign it again and replace the file")]
    CredentialExpired {
        /// The file.
        path: String,
        /// `exp` in seconds since the epoch.
        expired_at: u64,
    },
    /// A credential belongs to another account or has another purpose.
    #[error("credential file `{path}` is foreign: {reason}; put the space's own file there")]
    CredentialForeign {
        /// The file.
        path: String,
        /// Which identity was found and which was wanted.
        reason: String,
    },
    /// No broker answered.
    #[error("broker {servers} cannot be reached: {reason}; check the address and that nats-server runs")]
    BrokerUnreachable {
        /// The configured servers.
        servers: String,
        /// The last reason.
        reason: String,
    },
    /// The broker refused the credential.
    #[error(
        "broker {servers} refused the credential `{path}`; it was revoked, or its account is not known there: sign it again or push the account"
    )]
    CredentialRefused {
        /// The configured servers.
        servers: String,
        /// The credential file.
        path: String,
    },
    /// The broker is older than the floor.
    #[error("broker {servers} runs nats-server {found}; at least 2.12 is needed, upgrade it")]
    BrokerTooOld {
        /// The configured servers.
        servers: String,
        /// The version found.
        found: String,
    },
    /// JetStream is off, for the broker or the account.
    #[error("JetStream is not enabled: {reason}; enable it on the broker and in the account's limits")]
    JetStreamUnavailable {
        /// What the broker said.
        reason: String,
    },
    /// A stream or bucket of the space is missing.
    #[error("stream `{stream}` does not exist; provision the space")]
    StreamMissing {
        /// The stream's name (a bucket's is `KV_…`).
        stream: String,
    },
    /// A stream or consumer exists with a configuration that breaks the contract.
    #[error(
        "`{name}` contradicts the contract: {field} is {found}, must be {wanted}; provision it anew (it is never altered here)"
    )]
    ConfigurationContradicts {
        /// Stream, bucket or consumer.
        name: String,
        /// The field.
        field: &'static str,
        /// What was found.
        found: String,
        /// What is needed.
        wanted: String,
    },
    /// Another daemon holds the lease.
    #[error(
        "the lease is held by `{holder}` (run {incarnation}, since {since_ms} ms); stop that daemon, or wait {ttl_ms} ms after it died"
    )]
    LeaseHeld {
        /// The holder's principal.
        holder: String,
        /// The holder's run.
        incarnation: String,
        /// When it took the lease, milliseconds since the epoch.
        since_ms: u64,
        /// How long a dead holder's row stays, milliseconds.
        ttl_ms: u64,
    },
    /// The lease was ours and another daemon has it now.
    #[error("the lease was taken by `{holder}` (run {incarnation}); this lane stops")]
    LeaseLost {
        /// The new holder's principal.
        holder: String,
        /// The new holder's run.
        incarnation: String,
    },
    /// The lease row cannot be understood, so it is not ours to take.
    #[error("the lease row `{key}` cannot be understood: {reason}; delete the key if no daemon runs")]
    LeaseUnreadable {
        /// The KV key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The broker denied a subject that the work needs.
    #[error("the broker denied {verb} `{subject}`; grant it to the credential")]
    Denied {
        /// `publish to` or `subscribe to`.
        verb: &'static str,
        /// The subject denied.
        subject: String,
    },
    /// The broker did not answer a request in time.
    #[error("no answer to {what} within {waited_ms} ms")]
    Unanswered {
        /// The request.
        what: String,
        /// How long was waited, milliseconds.
        waited_ms: u64,
    },
    /// The broker refused a request.
    #[error("the broker refused {what}: {reason}")]
    Refused {
        /// The request.
        what: String,
        /// The broker's reason.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection to the broker ended")]
    Disconnected,
    /// A durable consumer vanished under the lane.
    #[error("consumer `{consumer}` is gone: {reason}")]
    ConsumerGone {
        /// `<stream>/<consumer>`.
        consumer: String,
        /// What the broker said.
        reason: String,
    },
    /// A consumer or watch stopped sending, heartbeats included.
    #[error("`{what}` was silent for {silent_ms} ms, heartbeats included")]
    Silent {
        /// The consumer or bucket.
        what: String,
        /// For how long, milliseconds.
        silent_ms: u64,
    },
    /// A part of the lane panicked or ended by itself.
    #[error("part `{part}` ended: {reason}")]
    PartEnded {
        /// The part's name.
        part: &'static str,
        /// Panic text or `without an error`.
        reason: String,
    },
}

impl FaultKind {
    /// The stable code, as listed in `deploy/runbook.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.row().0
    }

    /// What the holder of the lane does about it.
    #[must_use]
    pub fn fate(&self) -> Fate {
        self.row().1
    }

    /// The one table: code and fate of each fault.
    fn row(&self) -> (&'static str, Fate) {
        match self {
            Self::CredentialUnreadable { .. } => ("LANE-101", Fate::Park),
            Self::CredentialLoose { .. } => ("LANE-102", Fate::Park),
            Self::CredentialMalformed { .. } => ("LANE-103", Fate::Park),
            Self::CredentialExpired { .. } => ("LANE-104", Fate::Park),
            Self::CredentialForeign { .. } => ("LANE-105", Fate::Park),
            Self::CredentialRefused { .. } => ("LANE-106", Fate::Slow),
            Self::CredentialStoreSilent { .. } => ("LANE-107", Fate::Backoff),
            Self::BrokerUnreachable { .. } => ("LANE-201", Fate::Backoff),
            Self::BrokerTooOld { .. } => ("LANE-202", Fate::Slow),
            Self::JetStreamUnavailable { .. } => ("LANE-203", Fate::Slow),
            Self::Disconnected => ("LANE-204", Fate::Backoff),
            Self::Denied { .. } => ("LANE-205", Fate::Slow),
            Self::Unanswered { .. } => ("LANE-206", Fate::Backoff),
            Self::Refused { .. } => ("LANE-207", Fate::Backoff),
            Self::StreamMissing { .. } => ("LANE-301", Fate::Slow),
            Self::ConfigurationContradicts { .. } => ("LANE-302", Fate::Slow),
            Self::ConsumerGone { .. } => ("LANE-303", Fate::Backoff),
            Self::Silent { .. } => ("LANE-304", Fate::Backoff),
            Self::LeaseHeld { .. } => ("LANE-401", Fate::AfterLeaseTtl),
            Self::LeaseLost { .. } => ("LANE-402", Fate::AfterLeaseTtl),
            Self::LeaseUnreadable { .. } => ("LANE-403", Fate::Slow),
            Self::PartEnded { .. } => ("LANE-501", Fate::Backoff),
        }
    }

    /// The credential file or directory that a credential fault is about.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::CredentialUnreadable { path, .. }
            | Self::CredentialLoose { path, .. }
            | Self::CredentialMalformed { path, .. }
            | Self::CredentialExpired { path, .. }
            | Self::CredentialForeign { path, .. }
            | Self::CredentialRefused { path, .. }
            | Self::CredentialStoreSilent { path, .. } => Some(path),
            Self::BrokerUnreachable { .. }
            | Self::BrokerTooOld { .. }
            | Self::JetStreamUnavailable { .. }
            | Self::StreamMissing { .. }
            | Self::ConfigurationContradicts { .. }
            | Self::LeaseHeld { .. }
            | Self::LeaseLost { .. }
            | Self::LeaseUnreadable { .. }
            | Self::Denied { .. }
            | Self::Unanswered { .. }
            | Self::Refused { .. }
            | Self::Disconnected
            | Self::ConsumerGone { .. }
            | Self::Silent { .. }
            | Self::PartEnded { .. } => None,
        }
    }

    /// True where a fresh connection may help at once, so that the lane redials before it gives up.
    #[must_use]
    pub fn is_of_the_link(&self) -> bool {
        matches!(
            self,
            Self::Disconnected | Self::Silent { .. } | Self::Unanswered { .. } | Self::BrokerUnreachable { .. }
        )
    }
}

/// How long one request to the broker may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
