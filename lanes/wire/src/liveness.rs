//! Answers to liveness probes. Owns that an answer has three fields and no more; must not know the lease.

use serde::{Deserialize, Serialize};

use crate::subject::Plane;
use crate::text::json_reason;

/// What a responder says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Responder {
    /// It serves.
    Bound,
    /// Nobody serves.
    Unbound,
    /// Another serves.
    Stale,
    /// It could not find out.
    Unknown,
}

impl Responder {
    /// The word on the wire and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Unbound => "unbound",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

/// The answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LivenessAnswer {
    /// The plane that was probed.
    pub plane: Plane,
    /// What the responder says of itself.
    pub responder: Responder,
    /// An opaque token made at each bind; it identifies nothing else.
    pub instance: String,
}

/// A payload that is not exactly an answer; a prober reads it as [`Responder::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("liveness answer is unreadable: {why}")]
pub struct LivenessFault {
    why: String,
}

impl LivenessAnswer {
    /// Reads an answer.
    ///
    /// # Errors
    /// A field too few, too many or of the wrong type.
    pub fn parse(payload: &[u8]) -> Result<Self, LivenessFault> {
        crate::json::object_from_slice(payload).map_err(|error| LivenessFault { why: json_reason(&error) })
    }

    /// The payload.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}
