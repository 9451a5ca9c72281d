//! Channel configuration and the space's defaults. Owns the effective class; must not know who reads a channel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::RecordFault;
use crate::text::{serde_as_text, shown};

/// How posts of a channel are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryClass {
    /// To who listens at that moment, and to mentioned peers that may read.
    Live,
    /// To every member, now or later.
    Durable,
}

impl DeliveryClass {
    /// The class's word in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Durable => "durable",
        }
    }
}

/// How far back a joiner is shown history: digits and one of `s`, `m`, `h`, `d`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayWindow {
    text: String,
    ms: u64,
}

/// A text that is no replay window, shortened and escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("replay window \"{text}\" is refused: use digits and one of s, m, h, d, such as 24h")]
pub struct ReplayWindowFault {
    text: String,
}

impl ReplayWindow {
    /// The window as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The window's length in ms; a length beyond `u64` is cut to it.
    pub fn len_ms(&self) -> u64 {
        self.ms
    }
}

impl FromStr for ReplayWindow {
    type Err = ReplayWindowFault;

    fn from_str(text: &str) -> Result<Self, ReplayWindowFault> {
        let fault = || ReplayWindowFault { text: shown(text) };
        let unit_ms = match text.as_bytes().last() {
            Some(b's') => 1_000,
            Some(b'm') => 60_000,
            Some(b'h') => 3_600_000,
            Some(b'd') => 86_400_000,
            Some(_) | None => return Err(fault()),
        };
        let count = text.get(..text.len() - 1).unwrap_or_default();
        if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fault());
        }
        let count: u64 = count.parse().unwrap_or(u64::MAX);
        Ok(Self { text: text.into(), ms: count.saturating_mul(unit_ms) })
    }
}

impl fmt::Display for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(ReplayWindow, "a replay window such as 24h");

/// The configuration of one channel; what is absent is inherited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelConfig {
    /// Whether a joiner is shown history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<bool>,
    /// How far back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window: Option<ReplayWindow>,
    /// How posts are delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_class: Option<DeliveryClass>,
    /// What the channel is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What members are told to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The space's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelDefaults {
    /// Whether a joiner is shown history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<bool>,
    /// How far back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window: Option<ReplayWindow>,
    /// How posts are delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_class: Option<DeliveryClass>,
}

impl ChannelConfig {
    /// Reads a row.
    ///
    /// # Errors
    /// Anything but an object whose known fields have their types.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("channel config", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

impl ChannelDefaults {
    /// Reads the row under `=defaults`.
    ///
    /// # Errors
    /// Anything but an object whose known fields have their types.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("channel defaults", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

/// The class of a channel: its own, else the space's default, else durable.
pub fn effective_class(channel: Option<&ChannelConfig>, defaults: Option<&ChannelDefaults>) -> DeliveryClass {
    let own = channel.and_then(|config| config.delivery_class);
    own.or_else(|| defaults.and_then(|d| d.delivery_class)).unwrap_or(DeliveryClass::Durable)
}
