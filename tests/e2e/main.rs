//! End-to-end tests of the durable plane: the real binary, a real broker, real credentials.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod authorisation;
mod control;
mod delivery;
mod ground;
mod hand;
mod intervals;
mod joining;
mod leaks;
mod malformed;
mod payload;
mod stores;
#[path = "../support/mod.rs"]
mod support;
