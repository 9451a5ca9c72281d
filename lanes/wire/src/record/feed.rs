//! The derived membership feed. For display only: nothing may be authorised from it.

use serde::{Deserialize, Serialize};

use super::RecordFault;
use crate::channel::ChannelPattern;

/// What one principal listens to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedRow {
    /// Subscribed now, over all of its connections, wildcards kept.
    pub live: Vec<ChannelPattern>,
    /// Joined durably and caught up.
    pub durable: Vec<ChannelPattern>,
    /// When the sweep saw it, in ms since 1970.
    #[serde(deserialize_with = "crate::json::whole_ms")]
    pub observed_at: u64,
}

/// Stamped on every complete sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedHeartbeat {
    /// When the sweep ended, in ms since 1970.
    #[serde(deserialize_with = "crate::json::whole_ms")]
    pub observed_at: u64,
    /// How many principals it found.
    pub count: u64,
}

impl FeedRow {
    /// Reads a row.
    ///
    /// # Errors
    /// Anything but a whole row.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("membership feed row", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

impl FeedHeartbeat {
    /// Reads the row under `=feed`.
    ///
    /// # Errors
    /// Anything but a whole row.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("membership feed heartbeat", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}
