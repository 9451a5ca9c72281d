//! The host's configuration: `lanekeeper.toml`, checked as a whole, or its defaults.
//!
//! Owns the values, the standard places and the fault list that the manifest shares. It must not know a space, and it
//! never changes a value into shape: what is not right is refused, every fault of the file at once.

pub(crate) mod document;
pub mod fault;
pub(crate) mod file;
mod places;
pub(crate) mod schema;
pub(crate) mod servers;
pub(crate) mod source;
pub(crate) mod structure;
mod validate;

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
};

use async_nats::ServerAddr;

pub use fault::{ConfigFault, Faults};
pub use file::HostLimits;
pub use places::{CONFIG_VARIABLE, Places};

/// The broker where nothing names one.
const DEFAULT_SERVER: &str = "nats://127.0.0.1:4222";
/// Where the admin server listens where nothing says otherwise.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8470));

/// One host's configuration. A value that exists has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct HostConfig {
    /// The file it was read from; `None` for the defaults.
    pub file: Option<PathBuf>,
    /// The name of this host.
    pub host: String,
    /// The hosts that share the manifest, this one among them; empty where every host prefers every space.
    pub hosts: Vec<String>,
    /// The brokers of every space that names none.
    pub servers: Vec<ServerAddr>,
    /// The admin server.
    pub admin: AdminConfig,
    /// What bounds the host.
    pub limits: HostLimits,
    /// What bounds a lane whose space sets nothing else.
    pub lane: lanekeeper_lane::Limits,
    /// The manifest, a file or a directory.
    pub manifest: PathBuf,
}

/// The admin server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The file with the bearer token; always set where others can reach the address.
    pub token_file: Option<PathBuf>,
}

impl Default for HostConfig {
    /// A host without a configuration: a broker on this machine, the manifest in its standard place.
    fn default() -> Self {
        Self {
            file: None,
            host: system_host(),
            hosts: Vec::new(),
            servers: DEFAULT_SERVER.parse().into_iter().collect(),
            admin: AdminConfig { listen: DEFAULT_LISTEN, token_file: None },
            limits: HostLimits::default(),
            lane: lanekeeper_lane::Limits::default(),
            manifest: Places::standard().manifest(),
        }
    }
}

impl HostConfig {
    /// Reads the configuration `named`, or the one in its standard place, or takes the defaults where there is none.
    ///
    /// # Errors
    /// Every fault of the file. A file that is named, also by the variable, must be there.
    pub fn find(named: Option<&Path>) -> Result<Self, Faults> {
        Self::find_in(&Places::standard(), named)
    }

    /// The same with other standard places.
    ///
    /// # Errors
    /// As [`HostConfig::find`].
    pub fn find_in(places: &Places, named: Option<&Path>) -> Result<Self, Faults> {
        let (config, faults) = Self::look(places, named);
        faults.or(Some(config))
    }

    /// The same, with what could be understood beside the faults, so that the manifest can be looked at too.
    pub(crate) fn look(places: &Places, named: Option<&Path>) -> (Self, Faults) {
        let Some(path) = named.map(Path::to_owned).or_else(|| places.config()) else {
            return (Self { manifest: places.manifest(), ..Self::default() }, Faults::default());
        };
        match source::Source::read(&path) {
            Ok(source) => Self::of(&source),
            Err(fault) => (Self::beside(&path), Faults(vec![fault])),
        }
    }

    /// Reads the configuration at `path`. Blocks on small files.
    ///
    /// # Errors
    /// Every fault of the file.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::find_in(&Places { variable: None, dirs: Vec::new() }, Some(path))
    }

    /// Reads the configuration in `text` as if it lay at `path`.
    ///
    /// # Errors
    /// Every fault of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        let source = source::Source::of(path, text.to_owned()).map_err(|fault| Faults(vec![fault]))?;
        let (config, faults) = Self::of(&source);
        faults.or(Some(config))
    }

    fn of(source: &source::Source) -> (Self, Faults) {
        let read = document::read::<file::ConfigFile>(source);
        let mut faults = read.faults;
        let config = match read.value {
            Some(file) => validate::host_config(source, &file, &mut faults),
            None => Self::beside(source.path()),
        };
        (config, Faults(source.faults(faults)))
    }

    /// The defaults where the configuration at `path` is of no use.
    fn beside(path: &Path) -> Self {
        Self { manifest: places::manifest_beside(path.parent().unwrap_or_else(|| Path::new(""))), ..Self::default() }
    }
}

/// The JSON Schema of `lanekeeper.toml`, as it is committed.
#[must_use]
pub fn schema_text() -> String {
    schema::text::<file::ConfigFile>()
}

/// The name the operating system has for this host.
fn system_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Names that fold to the same text are too easily taken for each other, by people and by file systems.
pub(crate) fn fold(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '.' | '-') { '_' } else { c }).flat_map(char::to_lowercase).collect()
}
