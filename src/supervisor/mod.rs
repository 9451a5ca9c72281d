//! The supervisor: many lanes in one process, each in a slot of its own.
//!
//! Owns which lanes run: it reads what is wanted, plans the change with a reason for each step, applies it, and decides
//! after every end of a lane whether and when it is opened again. One event loop owns all slots; slow work runs in tasks
//! and comes back as an event. It must not touch JetStream itself, and no lane may ever touch another's slot.

pub mod backoff;
pub mod placement;
pub mod plan;
mod slot;
pub mod status;

pub use status::{HostStatus, LaneState, LaneStatus, Outcome};
