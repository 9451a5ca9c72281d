//! End-to-end tests of the durable plane: the real binary, a real broker, real credentials.

mod delivery;
#[path = "../support/mod.rs"]
mod support;
