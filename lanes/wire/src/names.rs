//! Names of streams, buckets, durables and KV keys. Owns the letters; must not know how any of them is configured.

use std::fmt;
use std::str::FromStr;

use crate::channel::{ChannelFault, ChannelPattern, MAX_CHANNEL_CHARS};
use crate::principal::Lifecycle;
use crate::text::shown;
use crate::token::{Role, Space, TokenFault};

/// Durable consumer of the fan-out on CHAT.
pub const FANOUT_DURABLE: &str = "fanout";
/// Durable consumer of the trusted reader on INBOX.
pub const READER_DURABLE: &str = "reader";
/// Key of the delivery lease in the delivery bucket.
pub const LEASE_KEY: &str = "lease.0";
/// Key of the space's channel defaults in the channels bucket.
pub const CHANNEL_DEFAULTS_KEY: &str = "=defaults";
/// Key of the heartbeat in the membership feed bucket.
pub const FEED_KEY: &str = "=feed";

/// The streams of one space that are not buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Posts.
    Chat,
    /// Direct messages.
    Dm,
    /// Anycast work.
    Task,
    /// Copies before authorisation.
    Inbox,
    /// Authorised copies.
    Dlv,
    /// Requests to arm timers.
    EptReq,
    /// Armed and fired timers.
    Ept,
}

impl StreamKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [Self::Chat, Self::Dm, Self::Task, Self::Inbox, Self::Dlv, Self::EptReq, Self::Ept];

    /// The stream's name in `space`.
    pub fn name(self, space: &Space) -> String {
        let prefix = match self {
            Self::Chat => "CHAT",
            Self::Dm => "DM",
            Self::Task => "TASK",
            Self::Inbox => "INBOX",
            Self::Dlv => "DLV",
            Self::EptReq => "EPT_REQ",
            Self::Ept => "EPT",
        };
        format!("{prefix}_{space}")
    }

    /// The subjects the stream stores.
    pub fn subjects(self, space: &Space) -> Vec<String> {
        let tails: &[&str] = match self {
            Self::Chat => &["chat.>"],
            Self::Dm => &["inst.>"],
            Self::Task => &["svc.>"],
            Self::Inbox => &["dinbox.>"],
            Self::Dlv => &["dlv.>"],
            Self::EptReq => &["ept.*.*.*.*.schedule"],
            Self::Ept => &["ept.*.*.*.*.armed", "ept.*.*.*.*.fire"],
        };
        tails.iter().map(|tail| format!("cotal.{space}.{tail}")).collect()
    }
}

/// The KV buckets of one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// Presence rows by principal.
    Presence,
    /// Channel configurations by channel, and the defaults.
    Channels,
    /// Membership rows by channel or family and lifecycle.
    Members,
    /// Read ACL rows by lifecycle.
    Acl,
    /// The delivery lease.
    Delivery,
    /// The derived membership feed by principal.
    Membership,
    /// Endpoint records.
    Records,
}

impl Bucket {
    /// Every bucket.
    pub const ALL: [Self; 7] =
        [Self::Presence, Self::Channels, Self::Members, Self::Acl, Self::Delivery, Self::Membership, Self::Records];

    /// The bucket's name in `space`.
    pub fn name(self, space: &Space) -> String {
        let middle = match self {
            Self::Presence => "presence",
            Self::Channels => "channels",
            Self::Members => "members",
            Self::Acl => "acl",
            Self::Delivery => "delivery",
            Self::Membership => "membership",
            Self::Records => "records",
        };
        format!("cotal_{middle}_{space}")
    }

    /// The name of the stream behind the bucket.
    pub fn stream(self, space: &Space) -> String {
        format!("KV_{}", self.name(space))
    }

    /// The subject of a key of the bucket.
    pub fn subject(self, space: &Space, key: &str) -> String {
        format!("$KV.{}.{key}", self.name(space))
    }

    /// The key of a subject of the bucket, `None` for any other subject.
    pub fn key_of<'a>(self, space: &Space, subject: &'a str) -> Option<&'a str> {
        let key = subject.strip_prefix("$KV.")?.strip_prefix(self.name(space).as_str())?.strip_prefix('.')?;
        (!key.is_empty()).then_some(key)
    }
}

/// The durable consumer of a lifecycle's authorised copies.
pub fn dlv_durable(lifecycle: &Lifecycle) -> String {
    format!("dlv_{}", lifecycle.dashed())
}

/// The durable consumer of a lifecycle's direct messages.
pub fn dm_durable(lifecycle: &Lifecycle) -> String {
    format!("dm_{}", lifecycle.dashed())
}

/// The durable consumer of a role's work.
pub fn svc_durable(role: &Role) -> String {
    format!("svc_{role}")
}

/// Key of a membership row: `<channel or family>/<owner>.<actor>.<uid>`, the wildcards written `=any` and `=gt`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberKey {
    /// The channel or family.
    pub pattern: ChannelPattern,
    /// Whose row it is.
    pub lifecycle: Lifecycle,
}

/// Why a text is not the key of a membership row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberKeyFault {
    /// Not two halves around one slash.
    #[error("member key \"{key}\" is refused: use <channel>/<owner>.<actor>.<uid>")]
    Shape {
        /// The key.
        key: String,
    },
    /// The first half is no encoded channel or family.
    #[error("member key \"{key}\": {fault}")]
    Pattern {
        /// The key.
        key: String,
        /// What is wrong.
        fault: ChannelFault,
    },
    /// The second half is no lifecycle.
    #[error("member key \"{key}\": {fault}")]
    Lifecycle {
        /// The key.
        key: String,
        /// What is wrong.
        fault: TokenFault,
    },
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.pattern.as_str().split('.').enumerate() {
            let dot = if index == 0 { "" } else { "." };
            let written = match segment {
                "*" => "=any",
                ">" => "=gt",
                name => name,
            };
            write!(f, "{dot}{written}")?;
        }
        write!(f, "/{}", self.lifecycle)
    }
}

impl FromStr for MemberKey {
    type Err = MemberKeyFault;

    fn from_str(key: &str) -> Result<Self, MemberKeyFault> {
        let shape = || MemberKeyFault::Shape { key: shown(key) };
        let (encoded, lifecycle) = key.split_once('/').ok_or_else(shape)?;
        // A raw wildcard would give one family two keys, and no broker accepts it in a key.
        if encoded.contains(['*', '>']) || encoded.len() > 4 * MAX_CHANNEL_CHARS {
            return Err(shape());
        }
        let decode = |segment| match segment {
            "=any" => "*",
            "=gt" => ">",
            name => name,
        };
        let pattern = encoded.split('.').map(decode).collect::<Vec<_>>().join(".");
        let pattern = pattern.parse().map_err(|fault| MemberKeyFault::Pattern { key: shown(key), fault })?;
        let lifecycle = lifecycle.parse().map_err(|fault| MemberKeyFault::Lifecycle { key: shown(key), fault })?;
        Ok(Self { pattern, lifecycle })
    }
}
