//! End-to-end tests of the durable plane: the real binary, a real broker, real credentials.

mod authorisation;
mod control;
mod delivery;
mod ground;
mod hand;
mod intervals;
mod joining;
mod malformed;
mod payload;
mod stores;
#[path = "../support/mod.rs"]
mod support;
