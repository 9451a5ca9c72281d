//! `lanekeeper dev` as a newcomer runs it: the real binary, its story, its end, and what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

mod running;
mod spaces;
mod state;
mod story;

use std::time::Duration;

/// How long a test waits for a value before it fails. Generous: after a killed run, copies that it had taken and not
/// acknowledged come again only after the consumers' ack wait of 60 s; everything else needs a fraction.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
