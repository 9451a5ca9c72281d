//! Replies to control requests. Owns their JSON in both directions; must not decide what is answered.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::channel::ChannelPattern;
use crate::text::json_reason;
use crate::token::LifecycleUid;

/// The answer to a control request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlReply {
    /// Whether it was done.
    pub ok: bool,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A payload that is not a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("control reply is unreadable: {why}")]
pub struct ReplyFault {
    why: String,
}

impl ControlReply {
    /// It was done. Data that cannot be written as JSON becomes an error reply.
    pub fn ok(data: impl Serialize) -> Self {
        match serde_json::to_value(data) {
            Ok(data) => Self { ok: true, data: Some(data), error: None },
            Err(error) => Self::error(format_args!("the answer could not be written: {error}")),
        }
    }

    /// It was not done, and why.
    pub fn error(why: impl std::fmt::Display) -> Self {
        Self { ok: false, data: None, error: Some(why.to_string()) }
    }

    /// The payload.
    pub fn to_bytes(&self) -> Bytes {
        crate::json::to_text(self).into()
    }

    /// The payload of a reply that it was done, with data that must reach the caller to the byte: a tree of values, as
    /// in [`ControlReply::ok`], would round large numbers.
    pub fn ok_bytes(data: &impl Serialize) -> Bytes {
        #[derive(Serialize)]
        struct Done<'a, T> {
            ok: bool,
            data: &'a T,
        }
        match serde_json::to_vec(&Done { ok: true, data }) {
            Ok(payload) => payload.into(),
            Err(error) => Self::error(format_args!("the answer could not be written: {error}")).to_bytes(),
        }
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// Anything but an object with `ok`.
    pub fn parse(payload: &[u8]) -> Result<Self, ReplyFault> {
        crate::json::object_from_slice(payload).map_err(|error| ReplyFault { why: json_reason(&error) })
    }
}

/// Data of `durableJoin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinData {
    /// Whether the durable backstop is established.
    pub durable: bool,
    /// The generation of the row.
    pub generation: u64,
    /// Why it is not durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The incarnation that joined.
    pub lifecycle_uid: LifecycleUid,
}

/// One item of the data of `listMemberships`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipItem {
    /// The channel or family.
    pub channel: ChannelPattern,
    /// The generation of the row.
    pub generation: u64,
    /// Whether catch-up is complete.
    pub activated: bool,
}

/// Data of `readHistory`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// The messages, oldest first.
    pub items: Vec<Value>,
    /// Whether nothing was left out.
    pub complete: bool,
}

/// As [`HistoryPage`], with every message as it was stored; for [`ControlReply::ok_bytes`].
#[derive(Debug, Serialize)]
pub struct RawHistoryPage {
    /// The messages, oldest first.
    pub items: Vec<Box<RawValue>>,
    /// Whether nothing was left out.
    pub complete: bool,
}
