//! Many lanes in one process, and several such processes: takeover, hand-over, herds, reloads without end, a cluster.
//!
//! Owns nothing but the order. A fleet of spaces stands in `fleet`, a host as a process in `host`, members in `posts`, what
//! the broker says of connections in `connz`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod connz;
mod fleet;
mod herd;
mod host;
mod http;
mod pair;
mod posts;
mod removed;
mod soak;
