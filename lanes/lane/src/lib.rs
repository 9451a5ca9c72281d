//! One lane: the durable delivery of one space, from its credentials to its lease, fan-out, reader and control responder.
//!
//! Owns everything one space needs at run time and nothing else. It must not know the manifest, other lanes, a telemetry
//! SDK or a signing key.

mod admission;
mod catch_up;
mod chat_range;
mod control;
mod copies;
pub mod credentials;
mod fan_out;
pub mod fault;
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
mod stage;
mod verify;

pub use fault::{Fate, Fault, FaultKind};
pub use lane::{Lane, LaneConfig, Limits, State, Watch};
pub use stage::Counters;
