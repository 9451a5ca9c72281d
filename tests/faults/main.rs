//! What breaks while a lane serves: the daemon killed, the broker killed, the line cut, frozen or deaf, a second daemon,
//! signals, and the lease row changed by others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

#[path = "../support/mod.rs"]
mod support;

mod broker;
mod kills;
mod lease;
mod line;
mod second;
mod stop;
mod watchers;
