//! What a lane is refused for before it serves: its files, its broker, its streams, its consumers, its permissions, and
//! a lease row that nobody understands. Each is one line that names the space, the thing and the remedy.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod broker;
mod consumers;
mod door;
mod files;
mod lease;
mod permissions;
mod rows;
mod streams;
