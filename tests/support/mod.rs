//! What every end-to-end test stands on: a mesh of its own, the daemon as a process, members.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of it")]

pub(crate) mod crew;
mod daemon;
pub(crate) mod power;
pub(crate) mod secrets;
mod world;

pub(crate) use crew::{Crew, Tally};
pub(crate) use daemon::Daemon;
pub(crate) use power::Power;
pub(crate) use world::{SPACE, World, channel, pattern};

use std::time::Duration;

/// How long a test waits for a value before it fails. Generous: the machine may be busy; a healthy run needs a fraction.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
