//! A directory of files for one test.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use lanekeeper::{
    config::{Faults, HostConfig},
    manifest::{self, Manifest},
};
use tempfile::TempDir;

/// Files below a directory of their own.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file of this mode.
    pub(crate) fn write_mode(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.write(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Loads `name` as a manifest for a host with the defaults.
    pub(crate) fn manifest(&self, name: &str) -> Result<Manifest, Faults> {
        manifest::load(&self.path(name), &HostConfig::default())
    }

    /// The fault lines of a manifest, without this directory.
    pub(crate) fn manifest_faults(&self, name: &str) -> Vec<String> {
        self.lines(&self.manifest(name).unwrap_err())
    }

    /// The fault lines without this directory.
    pub(crate) fn lines(&self, faults: &Faults) -> Vec<String> {
        let prefix = format!("{}/", self.dir().display());
        faults.to_string().lines().map(|line| line.replace(&prefix, "")).collect()
    }
}

/// The space `name` with credentials of its own.
pub(crate) fn space(name: &str) -> String {
    format!("[[space]]\nname = \"{name}\"\ncredentials = \"credentials/{name}\"\n")
}

/// Compares lines one by one, so that a failure shows the one that differs.
pub(crate) fn assert_lines(found: &[String], expected: &[&str]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}
