//! What a broker is started with, and the `nats-server` configuration text made of it.
//!
//! Owns the configuration file. It knows only the settings every test broker needs; the rest is text passed through.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of a [`crate::Broker`]. Start from [`BrokerConfig::new`] and change fields.
#[derive(Clone)]
pub struct BrokerConfig {
    /// Folder of the JetStream store; made if need be. The configuration file lies beside it, as `<store_dir>.conf`.
    pub store_dir: PathBuf,
    /// File to which everything the child prints is appended; by default `<store_dir>.log`.
    pub log_path: PathBuf,
    /// More `nats-server` configuration, appended as it is (operator, resolver, accounts, limits).
    pub extra_config: String,
    /// More settings for inside the `jetstream` block (`max_file_store: 1GB`).
    pub jetstream_extra: String,
    /// Longest protocol line in bytes; 64 KiB by default, since a CONNECT with a big JWT exceeds the broker's own 4 KiB.
    pub max_control_line: u32,
    /// Whether JetStream is on; yes by default.
    pub jetstream: bool,
    /// How often the store is flushed to disk: a duration such as `10s`, or `always`. `None` leaves the broker's own.
    pub sync_interval: Option<String>,
    /// The port on 127.0.0.1; `None` takes a free one. It stays the same over restarts.
    pub port: Option<u16>,
    /// Whether the log holds debug lines.
    pub debug: bool,
    /// Whether the log holds the protocol. The log then holds credentials.
    pub trace: bool,
    /// Time from the start of the process to an answer.
    pub start_deadline: Duration,
    /// Time from SIGTERM to the end of the process; after it, SIGKILL.
    pub stop_deadline: Duration,
}

/// A setting from which no configuration can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The store has no folder around it.
    #[error("store_dir {path:?} has no parent folder in which the configuration file could lie")]
    NoParent {
        /// The store.
        path: PathBuf,
    },
    /// The configuration file is text.
    #[error("{path:?} is not valid UTF-8 and cannot be written into a configuration file")]
    NotText {
        /// The path.
        path: PathBuf,
    },
    /// It would break out of its place in the file.
    #[error("sync_interval {value:?} is neither a duration such as \"10s\" nor \"always\"")]
    SyncInterval {
        /// The value.
        value: String,
    },
    /// A file or folder could not be written.
    #[error("cannot write {path:?}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl BrokerConfig {
    /// The defaults, with the store in `store_dir`.
    pub fn new(store_dir: impl Into<PathBuf>) -> Self {
        let store_dir = store_dir.into();
        Self {
            log_path: with_suffix(&store_dir, ".log"),
            store_dir,
            extra_config: String::new(),
            jetstream_extra: String::new(),
            max_control_line: 64 * 1024,
            jetstream: true,
            sync_interval: None,
            port: None,
            debug: false,
            trace: false,
            start_deadline: Duration::from_secs(30),
            stop_deadline: Duration::from_secs(30),
        }
    }

    /// The configuration file.
    pub fn config_path(&self) -> PathBuf {
        with_suffix(&self.store_dir, ".conf")
    }

    /// Makes the folders and writes the configuration file, readable for its owner only: it may hold an operator's keys.
    pub(crate) fn write(&self, port: u16) -> Result<PathBuf, ConfigError> {
        let text = self.render(port)?;
        let path = self.config_path();
        let no_parent = || ConfigError::NoParent { path: self.store_dir.clone() };
        // `with_suffix` of a path that ends in `..` or `/` would lie in the wrong folder.
        self.store_dir.file_name().ok_or_else(no_parent)?;
        let parent = path.parent().ok_or_else(no_parent)?;
        let write_error = |path: &Path| {
            let path = path.to_owned();
            move |source| ConfigError::Write { path, source }
        };
        std::fs::create_dir_all(&self.store_dir).map_err(write_error(&self.store_dir))?;
        // A temporary file is made with mode 0600, and the rename leaves no half-written one for a broker that reloads.
        let mut file = tempfile::NamedTempFile::new_in(parent).map_err(write_error(parent))?;
        file.write_all(text.as_bytes()).map_err(write_error(&path))?;
        file.persist(&path).map_err(|error| ConfigError::Write { path: path.clone(), source: error.error })?;
        Ok(path)
    }

    fn render(&self, port: u16) -> Result<String, ConfigError> {
        let mut text = format!("listen: \"127.0.0.1:{port}\"\nmax_control_line: {}\n", self.max_control_line);
        text.push_str(if self.debug { "debug: true\n" } else { "" });
        text.push_str(if self.trace { "trace: true\n" } else { "" });
        if self.jetstream {
            text.push_str(&format!("jetstream {{\n  store_dir: {}\n", quoted(&self.store_dir)?));
            if let Some(value) = &self.sync_interval {
                if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
                    return Err(ConfigError::SyncInterval { value: value.clone() });
                }
                text.push_str(&format!("  sync_interval: \"{value}\"\n"));
            }
            text.push_str(&format!("{}\n}}\n", self.jetstream_extra));
        }
        text.push_str(&self.extra_config);
        text.push('\n');
        Ok(text)
    }
}

/// The texts passed through may hold keys, so only their lengths are shown.
impl fmt::Debug for BrokerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerConfig")
            .field("store_dir", &self.store_dir)
            .field("log_path", &self.log_path)
            .field("extra_config_bytes", &self.extra_config.len())
            .field("jetstream_extra_bytes", &self.jetstream_extra.len())
            .field("max_control_line", &self.max_control_line)
            .field("jetstream", &self.jetstream)
            .field("sync_interval", &self.sync_interval)
            .field("port", &self.port)
            .field("debug", &self.debug)
            .field("trace", &self.trace)
            .field("start_deadline", &self.start_deadline)
            .field("stop_deadline", &self.stop_deadline)
            .finish()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// A path as a quoted string of the broker's configuration language.
fn quoted(path: &Path) -> Result<String, ConfigError> {
    let text = path.to_str().ok_or_else(|| ConfigError::NotText { path: path.to_owned() })?;
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn writes_a_private_file_beside_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig {
            extra_config: "server_name: n1".into(),
            jetstream_extra: "  max_file_store: 1GB".into(),
            sync_interval: Some("always".into()),
            trace: true,
            ..BrokerConfig::new(dir.path().join("a \"b\""))
        };
        let path = config.write(4333).unwrap();
        assert_eq!(path, dir.path().join("a \"b\".conf"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let store = format!("store_dir: \"{}/a \\\"b\\\"\"", dir.path().display());
        for part in [
            "listen: \"127.0.0.1:4333\"",
            "max_control_line: 65536",
            "sync_interval: \"always\"",
            "max_file_store: 1GB",
            "trace: true",
            "server_name: n1",
            &store,
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("debug"));
    }

    #[test]
    fn without_jetstream_there_is_no_block() {
        let config = BrokerConfig { jetstream: false, ..BrokerConfig::new("/x/store") };
        assert!(!config.render(1).unwrap().contains("jetstream"));
    }

    #[test]
    fn refuses_a_sync_interval_that_would_leave_its_place() {
        let config = BrokerConfig { sync_interval: Some("1s\"\n}\nport: 1".into()), ..BrokerConfig::new("/x/store") };
        assert!(matches!(config.render(1), Err(ConfigError::SyncInterval { .. })));
    }

    #[test]
    fn a_store_without_a_name_is_refused() {
        assert!(matches!(BrokerConfig::new("/").write(1), Err(ConfigError::NoParent { .. })));
    }

    #[test]
    fn debug_output_hides_the_texts() {
        let config = BrokerConfig { extra_config: "password: hunter2".into(), ..BrokerConfig::new("/x/store") };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
