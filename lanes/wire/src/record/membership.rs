//! The membership row of a lifecycle on a channel or family. Owns which posts it holds; must not move its cursors.

use serde::{Deserialize, Serialize};

use super::RecordFault;
use crate::channel::ChannelPattern;
use crate::interval::Interval;
use crate::names::MemberKey;
use crate::principal::{Lifecycle, Principal};
use crate::token::LifecycleUid;

/// What a membership row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MembershipState {
    /// The durable backstop is open.
    DurableActive,
    /// The durable backstop is closed; the member may still listen live.
    LiveConfirmed,
}

/// An interval of an earlier generation, kept because entries of it may still be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedInterval {
    /// The generation it belonged to.
    pub generation: u64,
    /// The CHAT frontier at the join.
    pub join_cursor: u64,
    /// The CHAT frontier at the leave.
    pub leave_cursor: u64,
}

impl ClosedInterval {
    /// As an [`Interval`].
    pub fn interval(&self) -> Interval {
        Interval { join_cursor: self.join_cursor, leave_cursor: Some(self.leave_cursor) }
    }
}

/// A lifecycle's membership of a channel or family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MembershipRow {
    /// The channel or family, wildcards as they are.
    pub channel: ChannelPattern,
    /// The whole principal.
    pub owner: Principal,
    /// The incarnation.
    pub lifecycle_uid: LifecycleUid,
    /// Whether the durable backstop is open.
    pub state: MembershipState,
    /// The CHAT frontier at the join.
    pub join_cursor: u64,
    /// The CHAT frontier at the leave, `None` while joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_cursor: Option<u64>,
    /// Counts the joins of this lifecycle on this channel.
    pub generation: u64,
    /// Whether catch-up is complete. It gates what is reported, never what is delivered.
    pub activated: bool,
    /// Who wrote the row.
    #[serde(default)]
    pub writer_identity: String,
    /// When it was written, in ms since 1970.
    #[serde(default, deserialize_with = "crate::json::whole_ms")]
    pub updated_at: u64,
    /// Intervals of earlier generations; left out when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<ClosedInterval>,
}

impl MembershipRow {
    /// Reads a row.
    ///
    /// # Errors
    /// Anything but a whole row.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("membership row", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }

    /// The interval of the current generation.
    pub fn interval(&self) -> Interval {
        Interval { join_cursor: self.join_cursor, leave_cursor: self.leave_cursor }
    }

    /// Whether the post at CHAT sequence `seq` belongs to the current interval or to an earlier one.
    pub fn holds(&self, seq: u64) -> bool {
        self.interval().holds(seq) || self.earlier.iter().any(|closed| closed.interval().holds(seq))
    }

    /// Whether the lifecycle is joined now.
    pub fn is_open(&self) -> bool {
        match self.state {
            MembershipState::DurableActive => self.leave_cursor.is_none(),
            MembershipState::LiveConfirmed => false,
        }
    }

    /// Whose row it is.
    pub fn lifecycle(&self) -> Lifecycle {
        Lifecycle::new(self.owner.clone(), self.lifecycle_uid.clone())
    }

    /// The key the row is stored under.
    pub fn key(&self) -> MemberKey {
        MemberKey { pattern: self.channel.clone(), lifecycle: self.lifecycle() }
    }
}
