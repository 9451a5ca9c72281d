//! Where the configuration and the manifest lie when no option names them.
//!
//! Owns the order of the places. It must not read the files: a file that is there and cannot be read is told, not passed over.

use std::path::{Path, PathBuf};

/// The variable that names the configuration.
pub const CONFIG_VARIABLE: &str = "LANEKEEPER_CONFIG";
/// The name of the configuration file.
const CONFIG_NAME: &str = "lanekeeper.toml";
/// The names of the manifest, the first one that is there counts.
const MANIFEST_NAMES: [&str; 2] = ["spaces.toml", "spaces.d"];

/// The places that are looked at, in this order: the variable, the system's directory, the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// What `$LANEKEEPER_CONFIG` names.
    pub variable: Option<PathBuf>,
    /// The directories, first come first served.
    pub dirs: Vec<PathBuf>,
}

impl Places {
    /// The places of this process.
    #[must_use]
    pub fn standard() -> Self {
        let variable = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { variable, dirs: vec![PathBuf::from("/etc/lanekeeper"), PathBuf::from("")] }
    }

    /// The configuration, or `None` where there is none. The variable counts even where its file is missing.
    #[must_use]
    pub fn config(&self) -> Option<PathBuf> {
        if let Some(named) = &self.variable {
            return Some(named.clone());
        }
        self.dirs.iter().map(|dir| dir.join(CONFIG_NAME)).find(|path| is_there(path))
    }

    /// The manifest of a host without a configuration; the last place's first name where there is none.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        let found = self.dirs.iter().find_map(|dir| manifest_in(dir));
        let last = self.dirs.last().map(PathBuf::as_path).unwrap_or_else(|| Path::new(""));
        found.unwrap_or_else(|| last.join(MANIFEST_NAMES[0]))
    }
}

/// The manifest in the directory of a configuration that names none.
pub(crate) fn manifest_beside(dir: &Path) -> PathBuf {
    manifest_in(dir).unwrap_or_else(|| dir.join(MANIFEST_NAMES[0]))
}

fn manifest_in(dir: &Path) -> Option<PathBuf> {
    MANIFEST_NAMES.iter().map(|name| dir.join(name)).find(|path| is_there(path))
}

/// A dangling link is there, and so is what this user may not look at.
fn is_there(path: &Path) -> bool {
    !matches!(path.symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}
