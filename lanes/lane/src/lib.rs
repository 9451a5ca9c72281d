//! One lane: the durable delivery of one space, from its credentials to its lease, fan-out, reader and control responder.
//!
//! Owns everything one space needs at run time and nothing else. It must not know the manifest, other lanes, a telemetry
//! SDK or a signing key.

mod admission;
mod catch_up;
mod chat_range;
mod config;
mod control;
mod copies;
mod counters;
mod credential_files;
pub mod credentials;
mod fan_out;
pub mod fault;
mod hooks;
mod intake;
mod lane;
mod lease;
mod link;
mod membership;
mod permit;
mod reader;
mod registry;
mod rooms;
mod session;
mod settled;
mod stage;
mod taker;
mod verify;
mod watch;

pub use config::{LaneConfig, Limits, Standby};
pub use counters::Counters;
pub use credential_files::{CredentialReport, credential_reports, credentials_hash};
pub use fault::{Fate, Fault, FaultKind};
pub use lane::{Lane, preflight};
pub use watch::{Backlog, Details, State, Watch};
