//! Posts as we compose them. Owns the JSON of a new message; reading one is `message`'s business.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::channel::Channel;
use crate::principal::Principal;
use crate::token::Space;

/// Who sends a post.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// The principal; must be the one in the subject.
    pub id: Principal,
    /// The display name.
    pub name: String,
    /// The role, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A multicast message to compose and publish.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Post {
    /// The id, unique for each message. Empty is legal and means: no key.
    pub id: String,
    /// When it was sent, in ms since 1970.
    #[serde(rename = "ts")]
    pub ts_ms: u64,
    /// The space.
    pub space: Space,
    /// Who sends it.
    pub from: Sender,
    /// Where.
    pub channel: Channel,
    /// What.
    pub parts: Vec<Part>,
    /// Names to wake, in lower case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// The id of the message it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The conversation it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

impl Post {
    /// A post without parts.
    pub fn new(id: impl Into<String>, ts_ms: u64, space: Space, from: Sender, channel: Channel) -> Self {
        Self {
            id: id.into(),
            ts_ms,
            space,
            from,
            channel,
            parts: Vec::new(),
            mentions: Vec::new(),
            reply_to: None,
            context_id: None,
        }
    }

    /// With one more text part.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with_part(Part::Text { text: text.into() })
    }

    /// With one more part.
    #[must_use]
    pub fn with_part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// With one more name to wake, written in lower case.
    #[must_use]
    pub fn with_mention(mut self, name: &str) -> Self {
        self.mentions.push(name.to_lowercase());
        self
    }

    /// As an answer to the message with this id.
    #[must_use]
    pub fn with_reply_to(mut self, id: impl Into<String>) -> Self {
        self.reply_to = Some(id.into());
        self
    }

    /// As part of this conversation.
    #[must_use]
    pub fn with_context_id(mut self, id: impl Into<String>) -> Self {
        self.context_id = Some(id.into());
        self
    }

    /// The payload.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// Any JSON.
    Data {
        /// The value.
        data: Value,
    },
    /// A reference to a stored artifact.
    Artifact {
        /// File name.
        name: String,
        /// Media type.
        media_type: String,
        /// Digest of the content.
        digest: String,
        /// Size in bytes.
        size: u64,
    },
    /// A part of a reverse-DNS kind, or one whose fields are not what its kind promises; kept whole.
    Other(Map<String, Value>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum KnownPart<'a> {
    Text { text: Cow<'a, str> },
    Data { data: Cow<'a, Value> },
    Artifact { name: Cow<'a, str>, media_type: Cow<'a, str>, digest: Cow<'a, str>, size: u64 },
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = match self {
            Self::Text { text } => KnownPart::Text { text: text.into() },
            Self::Data { data } => KnownPart::Data { data: Cow::Borrowed(data) },
            Self::Artifact { name, media_type, digest, size } => KnownPart::Artifact {
                name: name.into(),
                media_type: media_type.into(),
                digest: digest.into(),
                size: *size,
            },
            Self::Other(fields) => return fields.serialize(serializer),
        };
        known.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        Ok(match serde_json::from_value(Value::Object(fields.clone())) {
            Ok(KnownPart::Text { text }) => Self::Text { text: text.into_owned() },
            Ok(KnownPart::Data { data }) => Self::Data { data: data.into_owned() },
            Ok(KnownPart::Artifact { name, media_type, digest, size }) => Self::Artifact {
                name: name.into_owned(),
                media_type: media_type.into_owned(),
                digest: digest.into_owned(),
                size,
            },
            Err(_) => Self::Other(fields),
        })
    }
}
