//! Records in the KV buckets. Owns their JSON; must not know when one is read, written or believed.
//! Every parser takes any bytes, ignores fields it does not know and refuses fields of the wrong type.

mod acl;
mod channel_config;
mod feed;
mod lease;
mod membership;
mod presence;

pub use acl::AclRow;
pub use channel_config::{ChannelConfig, ChannelDefaults, DeliveryClass, ReplayWindow, effective_class};
pub use feed::{FeedHeartbeat, FeedRow};
pub use lease::LeaseRow;
pub use membership::{ClosedInterval, MembershipRow, MembershipState};
pub use presence::{Card, PresenceFault, PresenceRow, PresenceStatus};

use serde::de::DeserializeOwned;

use crate::text::json_reason;

/// A record that is not the JSON object it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{record} is unreadable: {why}")]
pub struct RecordFault {
    record: &'static str,
    why: String,
}

impl RecordFault {
    /// Which record was wanted, such as `read acl row`.
    pub fn record(&self) -> &'static str {
        self.record
    }
}

fn read<T: DeserializeOwned>(record: &'static str, payload: &[u8]) -> Result<T, RecordFault> {
    crate::json::object_from_slice(payload).map_err(|error| RecordFault { record, why: json_reason(&error) })
}
