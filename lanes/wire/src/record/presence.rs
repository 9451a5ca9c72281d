//! Presence rows. Owns which rows are believed; must not decide who is live by the clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::{self, Members};
use crate::principal::Principal;
use crate::text::{json_reason, serde_as_text, shown};
use crate::token::LifecycleUid;

/// What a peer says it is doing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PresenceStatus {
    /// Free.
    Idle,
    /// Blocked on something.
    Waiting,
    /// Busy.
    Working,
    /// Gone.
    Offline,
    /// A word of a later protocol.
    Other(String),
}

impl PresenceStatus {
    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Working => "working",
            Self::Offline => "offline",
            Self::Other(word) => word,
        }
    }
}

impl From<&str> for PresenceStatus {
    fn from(word: &str) -> Self {
        match word {
            "idle" => Self::Idle,
            "waiting" => Self::Waiting,
            "working" => Self::Working,
            "offline" => Self::Offline,
            other => Self::Other(other.into()),
        }
    }
}

impl FromStr for PresenceStatus {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(word.into())
    }
}

impl fmt::Display for PresenceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

serde_as_text!(PresenceStatus, "a presence status");

/// A peer's card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// The principal, the same as the row's key.
    pub id: Principal,
    /// The name peers mention.
    pub name: String,
    /// What kind of peer it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Value>,
    /// Its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Value>,
    /// Everything else on the card.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A peer's presence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PresenceRow {
    /// Who.
    pub card: Card,
    /// What it says it is doing.
    pub status: PresenceStatus,
    /// The heartbeat, in ms since 1970.
    #[serde(rename = "ts")]
    pub ts_ms: i64,
    /// The incarnation, if the row names a well-formed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_uid: Option<LifecycleUid>,
    /// Everything else in the row, such as `activity` and `attention`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Why a presence row is rejected; to be reported, never silently skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresenceFault {
    /// Not a JSON object.
    #[error("presence row \"{key}\" is unreadable: {why}")]
    Unreadable {
        /// The row's key.
        key: String,
        /// What the parser said.
        why: String,
    },
    /// A field that makes a row is absent or of the wrong type.
    #[error("presence row \"{key}\" has no {field} that is {wanted}")]
    Field {
        /// The row's key.
        key: String,
        /// The field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// The card names another principal than the key.
    #[error("presence row \"{key}\" carries the card of \"{card_id}\": a peer may describe only itself")]
    OtherCard {
        /// The row's key.
        key: String,
        /// The id on the card.
        card_id: String,
    },
    /// The key is no principal.
    #[error("presence row \"{key}\" has a key that is no <owner>.<actor>")]
    Key {
        /// The row's key.
        key: String,
    },
}

impl PresenceRow {
    /// Reads the row stored under `key`. Optional fields of a wrong type do not reject it.
    ///
    /// # Errors
    /// See [`PresenceFault`]; any bytes are safe to pass.
    pub fn parse(key: &str, payload: &[u8]) -> Result<Self, PresenceFault> {
        let unreadable = |why: String| PresenceFault::Unreadable { key: shown(key), why };
        let field = |field, wanted| PresenceFault::Field { key: shown(key), field, wanted };
        let source = std::str::from_utf8(payload).map_err(|e| unreadable(e.to_string()))?;
        let row = Members::parse(source).map_err(|e| unreadable(json_reason(&e)))?;
        let card_source = row.get(source, "card").ok_or_else(|| field("card", "an object"))?;
        let card = Members::parse(card_source).map_err(|_| field("card", "an object"))?;
        let text = |members: &Members, source, name| members.get(source, name).and_then(json::text_of);
        let card_id = text(&card, card_source, "id").ok_or_else(|| field("card.id", "a string"))?;
        if card_id != key {
            return Err(PresenceFault::OtherCard { key: shown(key), card_id: shown(&card_id) });
        }
        let id: Principal = key.parse().map_err(|_| PresenceFault::Key { key: shown(key) })?;
        let name = text(&card, card_source, "name").ok_or_else(|| field("card.name", "a string"))?;
        let status = text(&row, source, "status").ok_or_else(|| field("status", "a string"))?;
        let ts_ms = row.get(source, "ts").and_then(whole).ok_or_else(|| field("ts", "a finite number"))?;
        let lifecycle_uid = text(&row, source, "lifecycleUid").and_then(|uid| uid.parse().ok());
        let (mut card_rest, rest) = (card.values(card_source), row.values(source));
        let mut other = rest;
        for known in ["card", "status", "ts", "lifecycleUid"] {
            other.shift_remove(known);
        }
        for known in ["id", "name"] {
            card_rest.shift_remove(known);
        }
        let (kind, role) = (card_rest.shift_remove("kind"), card_rest.shift_remove("role"));
        let card = Card { id, name: name.into_owned(), kind, role, other: card_rest };
        Ok(Self { card, status: PresenceStatus::from(status.as_ref()), ts_ms, lifecycle_uid, other })
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }

    /// Whether the peer says it is there.
    pub fn is_present(&self) -> bool {
        match self.status {
            PresenceStatus::Offline => false,
            PresenceStatus::Idle | PresenceStatus::Waiting | PresenceStatus::Working | PresenceStatus::Other(_) => true,
        }
    }
}

/// A JSON number without its fraction. JSON has no NaN, and one beyond `f64` is refused by the parser.
fn whole(raw: &str) -> Option<i64> {
    let number: f64 = serde_json::from_str(raw).ok()?;
    Some(number as i64)
}
