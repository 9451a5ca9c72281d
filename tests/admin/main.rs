//! The admin server over real connections, and the commands that ask it.
//!
//! Owns nothing but the order: the state is recorded in `recorded`, requests are spelled out in `http`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

mod access;
mod answers;
mod bounds;
mod commands;
mod host;
mod http;
mod recorded;
mod table;
