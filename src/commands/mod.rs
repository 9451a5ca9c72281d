//! The commands of the `lanekeeper` binary, one file each.

pub mod bench;
pub mod dev;
pub mod serve;
