//! The supervisor: many lanes in one process, each in a slot of its own.
//!
//! Owns which lanes run: it reads what is wanted, plans the change with a reason for each step, applies it, and decides
//! after every end of a lane whether and when it is opened again. One event loop owns all slots; slow work runs in tasks
//! and comes back as an event. It must not touch JetStream itself, and no lane may ever touch another's slot.

mod apply;
pub mod backoff;
mod handle;
mod host;
mod launch;
mod look;
mod meter;
mod orders;
pub mod placement;
pub mod plan;
mod react;
mod report;
mod seat;
mod settings;
mod show;
#[cfg(test)]
mod sim;
mod slot;
pub mod status;

pub use handle::{Handle, Nudge, OrderFault, Stopped};
pub use host::Supervisor;
pub use settings::SupervisorConfig;
pub use status::{HostStatus, LaneState, LaneStatus, Outcome};
