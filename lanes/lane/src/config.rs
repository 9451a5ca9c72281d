//! What a lane is opened with, and what bounds it.

use std::{path::PathBuf, time::Duration};

use lanekeeper_wire::Space;

/// What a lane is opened with.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneConfig {
    /// The space.
    pub space: Space,
    /// The brokers, tried in order.
    pub servers: Vec<async_nats::ServerAddr>,
    /// The directory with the lane's credential files.
    pub credentials: PathBuf,
    /// The limits.
    pub limits: Limits,
    /// What to do where another daemon holds the lease.
    pub standby: Standby,
}

/// What to do where another daemon holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standby {
    /// End with [`crate::FaultKind::LeaseHeld`].
    Refuse,
    /// Wait on an open connection and take over.
    Wait {
        /// How long a lease that was found free is left to whoever is preferred.
        head_start: Duration,
    },
}

/// What bounds a lane. All of it can be changed while the lane serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The ack wait of the durables, where this lane creates them.
    pub ack_wait: Duration,
    /// How long a lane that has served tries to reach its broker again before it ends with a fault.
    pub broker_window: Duration,
    /// The most posts, and the most entries, between taken and settled, at most 4096.
    pub max_in_hand: usize,
    /// The most copies of one stage that may be sent and not yet confirmed, at most 8192.
    pub max_in_flight: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ack_wait: Duration::from_secs(60),
            broker_window: Duration::from_secs(30),
            max_in_hand: 4096,
            max_in_flight: 4096,
        }
    }
}
