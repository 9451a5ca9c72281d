//! Which configuration and which manifest a command works with: two options, else the standard places.
//!
//! Owns the options. It must not judge the files.

use std::path::PathBuf;

use clap::Args;

use crate::{
    config::{Faults, HostConfig, Places},
    manifest::{self, Manifest},
};

/// The files a command works with.
#[derive(Debug, Clone, Default, Args)]
pub struct FileArgs {
    /// The host's configuration. Else what LANEKEEPER_CONFIG names, /etc/lanekeeper/lanekeeper.toml, ./lanekeeper.toml,
    /// or the defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The space manifest, a file or a directory of *.toml. Else what the configuration names, or spaces.toml or
    /// spaces.d beside it.
    #[arg(long, value_name = "PATH")]
    pub manifest: Option<PathBuf>,
}

impl FileArgs {
    /// The host's configuration, with the manifest of the option where there is one. Blocks on small files.
    ///
    /// # Errors
    /// Every fault of the configuration.
    pub fn host(&self) -> Result<HostConfig, Faults> {
        Ok(self.with_manifest(HostConfig::find(self.config.as_deref())?))
    }

    /// The configuration and the manifest. Blocks on files.
    ///
    /// # Errors
    /// Every fault of both: those of one do not hide those of the other.
    pub fn load(&self) -> Result<(HostConfig, Manifest), Faults> {
        let (host, mut faults) = HostConfig::look(&Places::standard(), self.config.as_deref());
        let host = self.with_manifest(host);
        let manifest = match manifest::load(&host.manifest, &host) {
            Ok(manifest) => Some(manifest),
            Err(found) => {
                faults.0.extend(found.0);
                None
            }
        };
        let manifest = faults.or(manifest)?;
        Ok((host, manifest))
    }

    fn with_manifest(&self, host: HostConfig) -> HostConfig {
        let manifest = self.manifest.clone().unwrap_or(host.manifest);
        HostConfig { manifest, ..host }
    }
}
