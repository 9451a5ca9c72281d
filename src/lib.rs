//! The host: the commands of the `lanekeeper` binary and what they stand on.
//!
//! Owns arguments, signals, logging and the mesh of one's own for `dev`, `bench` and tests. It must not touch JetStream
//! itself: lanes, members and provisioning have crates of their own.

pub mod admin;
pub mod commands;
pub mod config;
pub mod manifest;
pub mod mesh;
pub mod provisioning;
mod reload;
pub mod signals;
pub mod supervisor;
