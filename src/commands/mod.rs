//! The commands of the `lanekeeper` binary, one file each.

pub mod admin;
pub mod bench;
pub mod check;
pub mod dev;
pub mod files;
pub mod run;
pub mod serve;
pub mod space;
