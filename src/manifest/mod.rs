//! The space manifest: one file, or a directory of `*.toml`, checked as a whole.
//!
//! Owns the values and the loading. A manifest is taken whole or not at all, and what is wrong is told all at once. It must
//! not know a lane's state, and it never changes a value into shape.

pub(crate) mod file;
mod load;
mod validate;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use async_nats::ServerAddr;
use lanekeeper_lane::Limits;
use lanekeeper_wire::Space;

pub use crate::config::fault::{ConfigFault, Faults};
use crate::config::{HostConfig, schema};

/// One space as its lane is to be opened. A value that exists has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceSpec {
    /// The space.
    pub space: Space,
    /// The directory with the lane's credential files, absolute. It may be missing: that is the lane's fault, not the
    /// manifest's.
    pub credentials: PathBuf,
    /// The brokers: the space's own, or the host's.
    pub servers: Vec<ServerAddr>,
    /// Whether it has a lane.
    pub enabled: bool,
    /// The lane's limits: the space's own, over the host's.
    pub limits: Limits,
    /// Texts for people and dashboards.
    pub tags: BTreeMap<String, String>,
}

/// Where a space stands in the manifest, for messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The file.
    pub file: PathBuf,
    /// The line of its name, from 1.
    pub line: usize,
    /// The column of its name, from 1.
    pub column: usize,
}

/// Every space of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The spaces.
    pub spaces: BTreeMap<Space, SpaceSpec>,
    /// Where each stands. Not part of the spec: a space that moves to another line has not changed.
    pub origins: BTreeMap<Space, Origin>,
    /// SHA-256 of everything that was read, hex.
    pub hash: String,
    /// Lets a reload close more than half of the serving lanes.
    pub allow_mass_close: bool,
}

/// Reads the manifest at `path`, a file or a directory of `*.toml`, for `host`. Reads the delivery credential of each
/// space too, to see that no two share an account. Blocks on files: call it where that holds up nobody.
///
/// # Errors
/// Every fault of every file. Nothing of it counts then.
pub fn load(path: &Path, host: &HostConfig) -> Result<Manifest, Faults> {
    load::manifest(path, host)
}

/// The JSON Schema of a manifest file, as it is committed.
#[must_use]
pub fn schema_text() -> String {
    schema::text::<file::ManifestFile>()
}
