//! Configuration and manifest files: what is taken, what is refused and where, the standard places, the schemas, `check`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

mod schemas;
