//! Messages as they arrive: read leniently, kept to the byte. Owns what makes a message well-formed and a post
//! authentic; must not know who receives it.

use std::fmt;

use serde_json::value::RawValue;

use crate::channel::Channel;
use crate::json::{self, Members};
use crate::principal::Principal;
use crate::subject::{Subject, SubjectFault};
use crate::text::{json_reason, shown};
use crate::token::Space;

/// A message: the text it came as, and where its fields are. Fields we do not know stay as they were, to the byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    source: Box<str>,
    members: Members,
    id: Box<str>,
    from_id: Box<str>,
}

/// Why a payload is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// The bytes are not UTF-8.
    #[error("message is not utf-8 from byte {valid_up_to} on")]
    NotUtf8 {
        /// How many bytes are good.
        valid_up_to: usize,
    },
    /// The text is not a JSON object.
    #[error("message is not a json object: {why}")]
    NotObject {
        /// What the parser said.
        why: String,
    },
    /// A field that every message has is absent.
    #[error("message has no {field}: every message carries one")]
    Missing {
        /// The field, such as `from.id`.
        field: &'static str,
    },
    /// A field has the wrong type.
    #[error("message has a {field} that is not {wanted}")]
    WrongType {
        /// The field, such as `from.id`.
        field: &'static str,
        /// The type it must have.
        wanted: &'static str,
    },
}

impl Message {
    /// Reads a message. Wanted: an object with a string `id` (which may be empty) and a string `from.id`.
    ///
    /// # Errors
    /// See [`MessageFault`]; any bytes are safe to pass.
    pub fn parse(payload: &[u8]) -> Result<Self, MessageFault> {
        let not_utf8 = |e: std::str::Utf8Error| MessageFault::NotUtf8 { valid_up_to: e.valid_up_to() };
        let source: Box<str> = std::str::from_utf8(payload).map_err(not_utf8)?.into();
        let members = Members::parse(&source).map_err(|e| MessageFault::NotObject { why: json_reason(&e) })?;
        let raw_id = members.get(&source, "id").ok_or(MessageFault::Missing { field: "id" })?;
        let id = json::text_of(raw_id).ok_or(MessageFault::WrongType { field: "id", wanted: "a string" })?;
        let id = Box::from(id.as_ref());
        let from_id = from_id(&source, &members)?;
        Ok(Self { source, members, id, from_id })
    }

    /// The id the publisher chose. It may be empty, and an empty id is never a key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who the payload says sent it; a claim until it equals the sender in the subject.
    pub fn from_id(&self) -> &str {
        &self.from_id
    }

    /// The names to wake, lower-cased, each once; what is not a string or is empty is skipped.
    pub fn mentions(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for name in self.raw("mentions").map(json::texts_of).unwrap_or_default() {
            let name = name.trim().to_lowercase();
            if !name.is_empty() && seen.insert(name.clone()) {
                names.push(name);
            }
        }
        names
    }

    /// When the sender says it was sent, in ms since 1970.
    pub fn ts(&self) -> Option<u64> {
        self.raw("ts").and_then(json::unsigned_of)
    }

    /// The text parts, joined with line feeds; `None` if there is none.
    pub fn text(&self) -> Option<String> {
        let parts = json::elements(self.raw("parts")?)?;
        let texts: Vec<String> = parts.into_iter().filter_map(text_part).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// The exact JSON of a top-level field.
    pub fn field(&self, name: &str) -> Option<&RawValue> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    /// The message as JSON, every field as it came; of a repeated field the value that counts.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(self.source.len());
        self.write(&mut out, None);
        out
    }

    /// As [`Message::to_json`] with the channel that the subject proves written in, and `to` and `toService` removed.
    pub fn with_channel(&self, channel: &Channel) -> String {
        let mut out = String::with_capacity(self.source.len() + channel.as_str().len() + 16);
        self.write(&mut out, Some(channel));
        out
    }

    /// Length in bytes of the text it came as.
    pub fn len_bytes(&self) -> usize {
        self.source.len()
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.members.get(&self.source, name)
    }

    pub(crate) fn write(&self, out: &mut String, authenticated: Option<&Channel>) {
        let mut separator = '{';
        let mut channel_left = authenticated;
        for member in self.members.iter() {
            let named = |name| member.is_named(&self.source, name);
            if authenticated.is_some() && (named("to") || named("toService")) {
                continue;
            }
            out.push(separator);
            separator = ',';
            out.push_str(self.source.get(member.name.clone()).unwrap_or_default());
            out.push(':');
            if let Some(channel) = channel_left.take_if(|_| named("channel")) {
                json::push_text(out, channel.as_str());
            } else {
                out.push_str(self.source.get(member.value.clone()).unwrap_or_default());
            }
        }
        if let Some(channel) = channel_left {
            out.push(separator);
            out.push_str("\"channel\":");
            json::push_text(out, channel.as_str());
            separator = ',';
        }
        if separator == '{' {
            out.push('{');
        }
        out.push('}');
    }
}

impl fmt::Debug for Message {
    /// The id and sender only: a body is the members' business and belongs in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &shown(&self.id))
            .field("from", &shown(&self.from_id))
            .field("len_bytes", &self.source.len())
            .finish()
    }
}

fn from_id(source: &str, members: &Members) -> Result<Box<str>, MessageFault> {
    let from = members.get(source, "from").ok_or(MessageFault::Missing { field: "from" })?;
    let wrong = MessageFault::WrongType { field: "from", wanted: "an object" };
    let inner = Members::parse(from).map_err(|_| wrong)?;
    let raw = inner.get(from, "id").ok_or(MessageFault::Missing { field: "from.id" })?;
    let id = json::text_of(raw).ok_or(MessageFault::WrongType { field: "from.id", wanted: "a string" })?;
    Ok(id.as_ref().into())
}

fn text_part(raw: &str) -> Option<String> {
    let members = Members::parse(raw).ok()?;
    let kind = json::text_of(members.get(raw, "kind")?)?;
    if kind != "text" {
        return None;
    }
    json::text_of(members.get(raw, "text")?).map(|text| text.into_owned())
}

/// Why a post on CHAT can never be delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostFault {
    /// The subject is no post's, or its owner is not trusted.
    #[error(transparent)]
    MalformedSubject(#[from] SubjectFault),
    /// The payload is not a message.
    #[error(transparent)]
    MalformedJson(#[from] MessageFault),
    /// The payload claims another sender than the subject proves.
    #[error("message says it is from \"{claimed}\" but its subject proves {sender}: the two must be equal")]
    SenderMismatch {
        /// The sender in the subject.
        sender: Principal,
        /// The sender in the payload, shortened and escaped.
        claimed: String,
    },
}

impl PostFault {
    /// The reason's name on the wire and in metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MalformedSubject(_) => "malformed-subject",
            Self::MalformedJson(_) => "malformed-json",
            Self::SenderMismatch { .. } => "sender-mismatch",
        }
    }
}

/// A post whose sender and channel the subject proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPost {
    /// Who posted.
    pub sender: Principal,
    /// Where.
    pub channel: Channel,
    /// What.
    pub message: Message,
}

/// Checks a stored post: a chat subject of this space with a trusted owner, a message, and one and the same sender.
///
/// # Errors
/// See [`PostFault`]; every one of them is permanent.
pub fn check_post(space: &Space, subject: &str, payload: &[u8]) -> Result<CheckedPost, PostFault> {
    let (sender, channel) = match Subject::parse(space, subject)? {
        Subject::Chat { sender, channel } => (sender, channel),
        Subject::Inst { .. }
        | Subject::Svc { .. }
        | Subject::Dinbox(_)
        | Subject::Dlv(_)
        | Subject::Control { .. }
        | Subject::ControlAdmin { .. }
        | Subject::Live { .. }
        | Subject::Timer(_) => {
            return Err(SubjectFault::Unexpected { subject: shown(subject), wanted: "chat" }.into());
        }
    };
    let message = Message::parse(payload)?;
    if message.from_id() != sender.as_str() {
        return Err(PostFault::SenderMismatch { claimed: shown(message.from_id()), sender });
    }
    Ok(CheckedPost { sender, channel, message })
}
