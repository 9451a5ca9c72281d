//! Files and directories that hold secrets: 0600 in 0700, written whole or not at all, refused when looser.
//!
//! Knows nothing of what is inside them, and never puts content into an error.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Why a private file or directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileFault {
    /// Others than the owner may read or write it.
    #[error("{what} {path} has mode {mode:04o}, which lets others in; run: chmod {want:o} {path}", path = path.display())]
    Loose {
        /// `file` or `directory`.
        what: &'static str,
        /// What was looked at.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The permission bits it needs.
        want: u32,
    },
    /// It is not of the kind it must be.
    #[error("{path} is not a regular {what}", path = path.display())]
    Kind {
        /// `file` or `directory`.
        what: &'static str,
        /// What was looked at.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
}

fn io_fault(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrivateFileFault {
    let path = path.to_path_buf();
    move |source| PrivateFileFault::Io { action, path, source }
}

/// Checks that only the owner may enter the directory (0700 or tighter).
///
/// # Errors
/// [`PrivateFileFault::Loose`] names the mode and the command that mends it.
pub fn check_private_dir(path: &Path) -> Result<(), PrivateFileFault> {
    let meta = fs::metadata(path).map_err(io_fault("look at", path))?;
    if !meta.is_dir() {
        return Err(PrivateFileFault::Kind { what: "directory", path: path.to_path_buf() });
    }
    check_mode("directory", path, meta.permissions().mode(), 0o700)
}

fn check_mode(what: &'static str, path: &Path, mode: u32, want: u32) -> Result<(), PrivateFileFault> {
    let mode = mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileFault::Loose { what, path: path.to_path_buf(), mode, want });
    }
    Ok(())
}

/// Reads a file that only its owner may read, in a directory only its owner may enter. The mode is taken from the open
/// file, so that it cannot be swapped between the check and the read.
///
/// # Errors
/// See [`PrivateFileFault`].
pub fn read_private(path: &Path) -> Result<String, PrivateFileFault> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        check_private_dir(parent)?;
    }
    let file = File::open(path).map_err(io_fault("open", path))?;
    let meta = file.metadata().map_err(io_fault("look at", path))?;
    if !meta.is_file() {
        return Err(PrivateFileFault::Kind { what: "file", path: path.to_path_buf() });
    }
    check_mode("file", path, meta.permissions().mode(), 0o600)?;
    io::read_to_string(file).map_err(io_fault("read", path))
}

/// Writes a file with mode 0600, whole or not at all: a reader sees the old content or the new, never a part. An
/// existing file, whatever its mode, is replaced by the private one.
///
/// # Errors
/// See [`PrivateFileFault`]; on an error the old file is as it was.
pub fn write_private(path: &Path, content: &str) -> Result<(), PrivateFileFault> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PrivateFileFault::Kind { what: "file", path: path.to_path_buf() });
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let staged = parent.join(format!(".{}.{}", name.to_string_lossy(), random_suffix()));
    let written = write_new(&staged, content)
        .and_then(|()| fs::rename(&staged, path).map_err(io_fault("put in place", path)))
        .and_then(|()| sync_dir(parent));
    if written.is_err() {
        // The staged copy holds a secret and has no use any more; the first error is the one to report.
        let _ = fs::remove_file(&staged);
    }
    written
}

/// Creates a new file with mode 0600 and writes it through to the disk.
fn write_new(path: &Path, content: &str) -> Result<(), PrivateFileFault> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io_fault("create", path))?;
    file.write_all(content.as_bytes()).map_err(io_fault("write", path))?;
    file.sync_all().map_err(io_fault("write through", path))
}

fn sync_dir(path: &Path) -> Result<(), PrivateFileFault> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io_fault("write through", path))
}

/// Creates one directory with mode 0700, or accepts an existing one that is private already. Parents must exist.
///
/// # Errors
/// See [`PrivateFileFault`].
pub fn ensure_private_dir(path: &Path) -> Result<(), PrivateFileFault> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => check_private_dir(path),
        Err(source) => Err(io_fault("create", path)(source)),
    }
}

/// A directory filled aside and then put in place in one step, so that nobody ever sees half a set of keys.
#[derive(Debug)]
pub(crate) struct StagedDir {
    staged: PathBuf,
    target: PathBuf,
    placed: bool,
}

/// What became of a staged directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is in place.
    Done,
    /// Another one was there first; ours is gone.
    Occupied,
}

impl StagedDir {
    /// Starts a private directory beside `target`.
    pub(crate) fn beside(target: &Path) -> Result<Self, PrivateFileFault> {
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let staged = target.with_file_name(format!(".{name}.{}", random_suffix()));
        DirBuilder::new().mode(0o700).create(&staged).map_err(io_fault("create", &staged))?;
        Ok(Self { staged, target: target.to_path_buf(), placed: false })
    }

    /// Writes one private file into it.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<(), PrivateFileFault> {
        write_new(&self.staged.join(name), content)
    }

    /// Creates one private directory in it.
    pub(crate) fn create_dir(&self, name: &str) -> Result<(), PrivateFileFault> {
        ensure_private_dir(&self.staged.join(name))
    }

    /// Moves it to the target. A target that exists and is not empty stays as it is.
    pub(crate) fn place(mut self) -> Result<Placed, PrivateFileFault> {
        sync_dir(&self.staged)?;
        match fs::rename(&self.staged, &self.target) {
            Ok(()) => {
                self.placed = true;
                if let Some(parent) = self.target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    sync_dir(parent)?;
                }
                Ok(Placed::Done)
            }
            Err(source)
                if matches!(
                    source.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(Placed::Occupied)
            }
            Err(source) => Err(io_fault("put in place", &self.target)(source)),
        }
    }
}

impl Drop for StagedDir {
    fn drop(&mut self) {
        if !self.placed {
            // It holds fresh keys nobody will ever use; failing to remove them is no reason to hide the first error.
            let _ = fs::remove_dir_all(&self.staged);
        }
    }
}

/// Takes the directory's lock for as long as the returned file lives; waits for whoever holds it.
pub(crate) fn lock_dir(dir: &Path) -> Result<File, PrivateFileFault> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io_fault("open", &path))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| io_fault("lock", &path)(errno.into()))?;
    Ok(file)
}

fn random_suffix() -> String {
    format!("{:016x}", rand::random::<u64>())
}
