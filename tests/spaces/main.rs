//! `lanekeeper space` against a real broker: what is made, what a manifest looks like after it, and what a crash leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

#[path = "../support/mod.rs"]
mod support;

mod crash;
mod directory;
mod file;
mod ground;
mod purge;
