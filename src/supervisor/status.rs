//! What the host shows of itself: plain values that are printed, served as JSON and read back by the command line.
//!
//! Owns their shape and nothing else. It must not hold anything that lives.

use std::{collections::BTreeMap, fmt};

use lanekeeper_wire::Space;
use serde::{Deserialize, Serialize};

/// The whole host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The host's configured name.
    pub host: String,
    /// The version of this program.
    pub version: String,
    /// How many changes of what is to run were applied since the start.
    pub generation: u64,
    /// SHA-256 of the manifest that is applied, hex; empty before the first one.
    pub manifest_hash: String,
    /// True once every enabled lane was attempted; never false again.
    pub ready: bool,
    /// True where file changes are noticed at once; otherwise they are noticed by polling.
    pub watching: bool,
    /// True while the host hands its lanes over for maintenance.
    pub draining: bool,
    /// Manifests applied since the start.
    pub reloads_applied: u64,
    /// Manifests refused since the start.
    pub reloads_refused: u64,
    /// What became of the last manifest that was read.
    pub last_reload: Option<Outcome>,
    /// Every lane, sorted by space.
    pub lanes: Vec<LaneStatus>,
}

impl HostStatus {
    /// How many lanes are in `state`.
    #[must_use]
    pub fn count(&self, state: LaneState) -> usize {
        self.lanes.iter().filter(|lane| lane.state == state).count()
    }

    /// The lane of `space`.
    #[must_use]
    pub fn lane(&self, space: &Space) -> Option<&LaneStatus> {
        self.lanes.iter().find(|lane| &lane.space == space)
    }
}

/// Where a lane's slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneState {
    /// No task runs; it opens when its pause is over and there is room.
    Waiting,
    /// Reading, connecting, verifying, binding; or dialling again after its connection ended.
    Opening,
    /// Connected and ready to take over; another host holds the lease.
    Standby,
    /// The lease is held and everything is bound.
    Serving,
    /// Asked to stop; its task is not joined yet.
    Closing,
    /// It waits for a change of the manifest, of a credential, or for an operator.
    Parked,
}

impl LaneState {
    /// Every state, in the order of a lane's life.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Opening, Self::Standby, Self::Serving, Self::Closing, Self::Parked];

    /// The state as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Opening => "opening",
            Self::Standby => "standby",
            Self::Serving => "serving",
            Self::Closing => "closing",
            Self::Parked => "parked",
        }
    }
}

impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One lane at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The space.
    pub space: Space,
    /// Where its slot is.
    pub state: LaneState,
    /// Why it is there, for people.
    pub reason: String,
    /// Since when it is in this state, milliseconds since the epoch.
    pub since_ms: u64,
    /// How often it was opened since it last served for the settle time.
    pub attempt: u32,
    /// How often it was opened since the host started.
    pub generation: u64,
    /// The lease revision last owned.
    pub lease_revision: Option<u64>,
    /// Who holds the lease, where it is not this lane.
    pub lease_holder: Option<String>,
    /// When the credential in use expires, seconds since the epoch.
    pub credential_expires_at_s: Option<u64>,
    /// SHA-256 of the JWT in use, hex.
    pub credential_fingerprint: Option<String>,
    /// Open connections to the broker.
    pub connections: u32,
    /// The broker connected to.
    pub connected_to: Option<String>,
    /// The id of this run of the lane, as it stands in the lease row.
    pub incarnation: Option<String>,
    /// What lies between taken and settled.
    pub backlog: BacklogStatus,
    /// What was done since the host started.
    pub counters: CountersStatus,
    /// How fast it goes, averaged over some seconds.
    pub rates: RatesStatus,
    /// The fault that last refused or ended it.
    pub last_fault: Option<FaultStatus>,
    /// True while it is handed over for maintenance.
    pub drained: bool,
    /// The host that should serve it, where several are configured.
    pub preferred_host: Option<String>,
    /// The manifest's tags.
    pub tags: BTreeMap<String, String>,
}

/// What lies between taken and settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogStatus {
    /// Posts in the hands of fan-out.
    pub posts_in_hand: u64,
    /// Entries in the hands of the reader.
    pub entries_in_hand: u64,
    /// Copies that wait for room in a member's store.
    pub waiting_copies: u64,
}

/// What both stages did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersStatus {
    /// From posts to entries.
    pub fan_out: StageStatus,
    /// From entries to hand-over copies.
    pub reader: StageStatus,
}

/// What one stage did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Deliveries taken.
    pub taken: u64,
    /// Copies stored.
    pub stored: u64,
    /// Copies that the broker had already.
    pub duplicates: u64,
    /// Deliveries that nobody may have.
    pub dropped: u64,
    /// Deliveries that can never be handled.
    pub terminated: u64,
    /// Deliveries put off.
    pub deferred: u64,
    /// Copies that could not be made because the member's store was full.
    pub shortfall: u64,
}

impl std::ops::Add for StageStatus {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            stored: self.stored + other.stored,
            duplicates: self.duplicates + other.duplicates,
            dropped: self.dropped + other.dropped,
            terminated: self.terminated + other.terminated,
            deferred: self.deferred + other.deferred,
            shortfall: self.shortfall + other.shortfall,
        }
    }
}

impl std::ops::Add for CountersStatus {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { fan_out: self.fan_out + other.fan_out, reader: self.reader + other.reader }
    }
}

/// How fast a lane goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RatesStatus {
    /// Posts taken a second.
    pub posts_per_s: f64,
    /// Hand-over copies stored a second.
    pub copies_per_s: f64,
}

/// A fault that was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// Its stable code.
    pub code: String,
    /// Its text.
    pub text: String,
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
}

/// What became of one manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The host's generation after it.
    pub generation: u64,
    /// SHA-256 of the manifest, hex; empty where it could not be read as one.
    pub hash: String,
    /// When it was read, milliseconds since the epoch.
    pub at_ms: u64,
    /// False where nothing of it was applied.
    pub applied: bool,
    /// True once every preflight has answered and every closed lane is gone.
    pub settled: bool,
    /// Lanes that are opened.
    pub opened: Vec<Space>,
    /// Lanes that are closed for good.
    pub closed: Vec<Space>,
    /// Lanes that are closed and opened anew.
    pub reopened: Vec<Space>,
    /// Lanes whose limits changed while they went on.
    pub retuned: Vec<Space>,
    /// Lanes that did not notice.
    pub unchanged: usize,
    /// Lanes that had to be aborted because they did not close in time.
    pub forced: Vec<Space>,
    /// What was not done: a space or `file:line:column`, and why.
    pub refused: Vec<(String, String)>,
    /// The plan in one line.
    pub plan: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_the_same_word_in_json_and_in_a_table() {
        for state in LaneState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }
}
