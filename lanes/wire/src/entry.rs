//! Inbox entries: a post's copy for one lifecycle before authorisation, and the key that keeps it single.
//! Owns their bytes, and that a post is serialised once however many members it has; must not decide who gets one.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::channel::Channel;
use crate::frame;
use crate::json::{self, Members};
use crate::message::CheckedPost;
use crate::principal::Lifecycle;
use crate::text::{json_reason, shown};

/// Why a lifecycle gets a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryReason {
    /// A member of a durable channel.
    DurableChannel,
    /// Mentioned on a live channel.
    LiveMention,
}

impl EntryReason {
    /// The reason's word in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DurableChannel => "durable-channel",
            Self::LiveMention => "live-mention",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::DurableChannel, Self::LiveMention].into_iter().find(|reason| reason.as_str() == word)
    }
}

/// One post made ready for any number of members: its JSON is written once, each entry adds a number to it.
#[derive(Debug)]
pub struct EntryTemplate {
    /// The entry up to and including `"generation":`.
    head: String,
    /// Where the message stands in `head`.
    message: Range<usize>,
    channel: Channel,
    /// Members mostly share a generation, so the entry made last is kept.
    last: Mutex<Option<(u64, Bytes)>>,
    frame: OnceLock<Bytes>,
}

impl EntryTemplate {
    /// Serialises the post at CHAT sequence `seq`.
    pub fn new(post: &CheckedPost, seq: u64, reason: EntryReason) -> Self {
        let channel = post.channel.clone();
        let mut head = String::with_capacity(post.message.len_bytes() + 2 * channel.as_str().len() + 128);
        head.push_str("{\"msg\":");
        let start = head.len();
        post.message.write(&mut head, Some(&channel));
        let message = start..head.len();
        head.push_str(",\"channel\":");
        json::push_text(&mut head, channel.as_str());
        head.push_str(&format!(",\"seq\":{seq},\"reason\":\"{}\",\"generation\":", reason.as_str()));
        Self { head, message, channel, last: Mutex::new(None), frame: OnceLock::new() }
    }

    /// The entry for a member whose row has this generation.
    pub fn for_generation(&self, generation: u64) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_for, entry)) = last.as_ref()
            && *made_for == generation
        {
            return entry.clone();
        }
        let mut entry = String::with_capacity(self.head.len() + 21);
        entry.push_str(&self.head);
        entry.push_str(&generation.to_string());
        entry.push('}');
        let entry = Bytes::from(entry);
        *last = Some((generation, entry.clone()));
        entry
    }

    /// The delivery frame of the same post.
    pub fn frame(&self) -> Bytes {
        let message = self.head.get(self.message.clone()).unwrap_or_default();
        self.frame.get_or_init(|| frame::compose(&self.channel, message).0).clone()
    }
}

/// A stored entry. The message inside is skipped over, not read: the reader hands it on as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// The channel, authenticated when the entry was made.
    pub channel: Channel,
    /// The post's CHAT sequence.
    pub seq: u64,
    /// Why the lifecycle has it.
    pub reason: EntryReason,
    /// The generation of the row it was made for.
    pub generation: u64,
    frame: Bytes,
    message: Range<usize>,
}

/// Why a payload is not an inbox entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// Not a JSON object in UTF-8.
    #[error("inbox entry is not a json object: {why}")]
    NotObject {
        /// What the parser said.
        why: String,
    },
    /// A field is absent or of the wrong type.
    #[error("inbox entry has no {field} that is {wanted}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// The channel breaks its grammar.
    #[error("inbox entry: {0}")]
    Channel(#[from] crate::channel::ChannelFault),
    /// A reason we do not know.
    #[error("inbox entry has the unknown reason \"{reason}\"")]
    Reason {
        /// The reason, shortened and escaped.
        reason: String,
    },
}

impl InboxEntry {
    /// Reads an entry.
    ///
    /// # Errors
    /// See [`EntryFault`]; any bytes are safe to pass.
    pub fn parse(payload: &[u8]) -> Result<Self, EntryFault> {
        let not_object = |why| EntryFault::NotObject { why };
        let source = std::str::from_utf8(payload).map_err(|e| not_object(e.to_string()))?;
        let members = Members::parse(source).map_err(|e| not_object(json_reason(&e)))?;
        let field = |name, wanted| EntryFault::Field { field: name, wanted };
        let text = |name| members.get(source, name).and_then(json::text_of).ok_or_else(|| field(name, "a string"));
        let number = |name| {
            let raw = members.get(source, name).and_then(|raw| raw.parse().ok());
            raw.ok_or_else(|| field(name, "a whole number of 0 or more"))
        };
        let message = members.get(source, "msg").filter(|raw| raw.starts_with('{'));
        let message = message.ok_or_else(|| field("msg", "an object"))?;
        let channel: Channel = text("channel")?.parse()?;
        let reason = text("reason")?;
        let reason = EntryReason::from_word(&reason).ok_or_else(|| EntryFault::Reason { reason: shown(&reason) })?;
        let (seq, generation) = (number("seq")?, number("generation")?);
        let (frame, message) = frame::compose(&channel, message);
        Ok(Self { channel, seq, reason, generation, frame, message })
    }

    /// The delivery frame of the entry, its message as it was stored.
    pub fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// The message as JSON, as it was stored.
    pub fn message_json(&self) -> &[u8] {
        self.frame.get(self.message.clone()).unwrap_or_default()
    }
}

/// The `Nats-Msg-Id` of a post's entry and of its delivered copy for one lifecycle: the creation time of CHAT in ns
/// since 1970, the post's sequence, the lifecycle. It does not hold the message id, which its publisher chooses.
pub fn suppression_key(chat_created_unix_ns: i128, seq: u64, lifecycle: &Lifecycle) -> String {
    format!("{chat_created_unix_ns}:{seq}:{lifecycle}")
}
