//! Where `dev` keeps what: a directory that stays, or a temporary one that goes.
//!
//! Owns the directory's privacy, its lock and its removal. It must not know what is inside.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use lanekeeper_provision::private_file;
use rustix::{
    fs::{FlockOperation, Mode, flock},
    io::Errno,
    process::umask,
};
use tempfile::TempDir;

/// Held by the one `dev` that uses the directory.
const LOCK_FILE: &str = "dev.lock";
/// How long files may keep appearing under the directory's removal: a broker that was just killed.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// The state directory of one run.
#[derive(Debug)]
pub(super) struct State {
    dir: PathBuf,
    resumed: bool,
    temporary: Option<TempDir>,
    /// Locked until it is closed, which the kernel does even for a killed process.
    _lock: File,
}

impl State {
    /// Takes `kept`, or a temporary directory. From here on nothing this process or its broker makes is open to others.
    ///
    /// # Errors
    /// The directory cannot be had, is open to others, holds something else, or is in use.
    pub(super) fn open(kept: Option<&Path>) -> Result<Self> {
        // The broker's store holds every post, and the broker by itself would let the group read it.
        umask(Mode::RWXG | Mode::RWXO);
        let (dir, temporary) = match kept {
            Some(dir) => {
                private_file::ensure_private_dir(dir).context("cannot use the state directory")?;
                (fs::canonicalize(dir).with_context(|| format!("resolve {}", dir.display()))?, None)
            }
            None => {
                let made = tempfile::Builder::new().prefix("lanekeeper-dev-").tempdir();
                let made = made.context("cannot make a temporary directory")?;
                (made.path().to_owned(), Some(made))
            }
        };
        let resumed = looks_resumed(&dir)?;
        let lock = lock(&dir)?;
        Ok(Self { dir, resumed, temporary, _lock: lock })
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether an earlier run left its state here.
    pub(super) fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether the directory goes with this run.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Removes a temporary directory.
    ///
    /// # Errors
    /// It cannot be removed; what is left is named.
    pub(super) async fn close(self) -> Result<()> {
        let Some(temporary) = self.temporary else { return Ok(()) };
        let dir = temporary.keep();
        let removed = lanekeeper_broker::wait_until("the removal of the state", REMOVAL_PATIENCE, async || {
            match fs::remove_dir_all(&dir) {
                Ok(()) => Some(()),
                Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(()),
            }
        });
        removed.await.with_context(|| format!("remove {} by hand, it holds keys", dir.display()))
    }
}

/// A directory with something else in it is refused: it would be mixed up with keys and a broker's store.
fn looks_resumed(dir: &Path) -> Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let name = entry.with_context(|| format!("list {}", dir.display()))?.file_name();
        if name == "keys" {
            return Ok(true);
        }
        is_empty &= name == LOCK_FILE;
    }
    if !is_empty {
        bail!("{} is not empty and holds no state of `lanekeeper dev`; choose another directory", dir.display());
    }
    Ok(false)
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK_FILE);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            bail!("{} is in use by another `lanekeeper dev`; stop it or choose another directory", dir.display())
        }
        Err(errno) => Err(io::Error::from(errno)).with_context(|| format!("lock {}", path.display())),
    }
}
