//! `lanekeeper run` on a mesh of its own: many spaces in one process, and what a change or a fault of one does to the others.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

#[path = "../support/mod.rs"]
mod support;

mod credentials;
mod fleet;
mod isolation;
mod manifests;
mod pair;
mod reload;
mod service;
mod stop;
