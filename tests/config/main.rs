//! Configuration and manifest files: what is taken, what is refused and where, the standard places, the schemas, `check`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

mod accounts;
mod arbitrary;
mod check;
mod directories;
mod examples;
mod files;
mod host_faults;
mod manifest_faults;
mod places;
mod schemas;
#[path = "../support/mod.rs"]
mod support;
