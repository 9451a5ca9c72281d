//! The read ACL row of a lifecycle. Owns what a row allows; must not know what an absent row means.

use serde::{Deserialize, Serialize};

use super::RecordFault;
use crate::channel::{Channel, ChannelPattern};

/// What a lifecycle may read. An empty `allow_subscribe` reads nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AclRow {
    /// The channels and families that may be read now.
    pub allow_subscribe: Vec<ChannelPattern>,
    /// The ceiling of the issued credential; history needs a channel in both. Absent: no ceiling was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_allow_subscribe: Option<Vec<ChannelPattern>>,
    /// The writer's count of changes.
    #[serde(default)]
    pub revision: u64,
    /// When it was written, in ms since 1970.
    #[serde(default, deserialize_with = "crate::json::whole_ms")]
    pub updated_at: u64,
}

impl AclRow {
    /// Reads a row.
    ///
    /// # Errors
    /// Anything but a whole row, and one malformed channel in it: a garbled row is unknown, not empty.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("read acl row", payload)
    }

    /// Whether the channel may be read now.
    pub fn allows(&self, channel: &Channel) -> bool {
        self.allow_subscribe.iter().any(|allowed| allowed.covers(channel))
    }

    /// Whether one entry covers the whole pattern.
    pub fn covers(&self, pattern: &ChannelPattern) -> bool {
        self.allow_subscribe.iter().any(|allowed| allowed.covers_pattern(pattern))
    }

    /// Whether the channel lies within the issued ceiling; `false` when none was recorded.
    pub fn issued_allows(&self, channel: &Channel) -> bool {
        self.issued_allow_subscribe.iter().flatten().any(|issued| issued.covers(channel))
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}
