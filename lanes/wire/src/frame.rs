//! Delivery frames: what a member receives on its `dlv` subject. Owns their bytes; must not decide who may have one.

use std::ops::Range;

use bytes::Bytes;

use crate::channel::{Channel, ChannelFault};
use crate::json::{self, Members};
use crate::message::{Message, MessageFault};
use crate::text::{json_reason, shown};

/// The header that marks a delivery frame.
pub const FRAME_HEADER: &str = "Cotal-Delivery-Frame";
/// The header's value.
pub const FRAME_VERSION: &str = "1";

/// A frame as a member reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFrame {
    /// The channel, authenticated by the daemon.
    pub channel: Channel,
    /// The message.
    pub message: Message,
}

/// Why a delivery is not a frame; the receiver terminates it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// The header is absent: the entry was not made by a delivery daemon.
    #[error("delivery without the header {FRAME_HEADER}: it was not made by a delivery daemon")]
    NoHeader,
    /// Another version in the header or in the body.
    #[error("delivery frame of version \"{version}\": only version 1 is known")]
    Version {
        /// The version, shortened and escaped.
        version: String,
    },
    /// Not a JSON object in UTF-8.
    #[error("delivery frame is not a json object: {why}")]
    NotObject {
        /// What the parser said.
        why: String,
    },
    /// A field is absent or of the wrong type.
    #[error("delivery frame has no {field} that is {wanted}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// The channel breaks its grammar.
    #[error("delivery frame: {0}")]
    Channel(#[from] ChannelFault),
    /// The message is none.
    #[error("delivery frame: {0}")]
    Message(#[from] MessageFault),
}

impl DeliveryFrame {
    /// Reads a frame from the value of its header and its payload.
    ///
    /// # Errors
    /// See [`FrameFault`]; any bytes are safe to pass.
    pub fn parse(header: Option<&str>, payload: &[u8]) -> Result<Self, FrameFault> {
        let version = header.ok_or(FrameFault::NoHeader)?;
        if version != FRAME_VERSION {
            return Err(FrameFault::Version { version: shown(version) });
        }
        let not_object = |why| FrameFault::NotObject { why };
        let source = std::str::from_utf8(payload).map_err(|e| not_object(e.to_string()))?;
        let members = Members::parse(source).map_err(|e| not_object(json_reason(&e)))?;
        let field = |field, wanted| FrameFault::Field { field, wanted };
        let version = members.get(source, "version").ok_or_else(|| field("version", "the number 1"))?;
        if version != FRAME_VERSION {
            return Err(FrameFault::Version { version: shown(version) });
        }
        let channel = members.get(source, "channel").and_then(json::text_of);
        let channel = channel.ok_or_else(|| field("channel", "a string"))?.parse()?;
        let message = members.get(source, "msg").ok_or_else(|| field("msg", "an object"))?;
        Ok(Self { channel, message: Message::parse(message.as_bytes())? })
    }
}

/// The frame of a message that is already JSON, and where the message stands in it.
pub(crate) fn compose(channel: &Channel, message: &str) -> (Bytes, Range<usize>) {
    let mut frame = String::with_capacity(message.len() + channel.as_str().len() + 40);
    frame.push_str("{\"version\":1,\"channel\":");
    json::push_text(&mut frame, channel.as_str());
    frame.push_str(",\"msg\":");
    let start = frame.len();
    frame.push_str(message);
    let range = start..frame.len();
    frame.push('}');
    (Bytes::from(frame), range)
}
