//! The manifest on disk, one file or a directory of them: read, changed under a lock, put in place in one step.
//!
//! Owns files, locks and renames. What an entry looks like is `entry`'s, what a manifest may say is `manifest`'s.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use lanekeeper_wire::Space;
use rustix::fs::{FlockOperation, flock};
use tempfile::{Builder, NamedTempFile};

use super::entry::{self, Entry, Found};
use crate::{
    config::{HostConfig, fold},
    manifest,
};

/// How a file that is not in place yet is called. No manifest has such a name.
const STAGED: (&str, &str) = (".lanekeeper-space-", ".tmp");
/// The mode of a file that was not there before: it holds no secret.
const NEW_MODE: u32 = 0o644;
/// How often an edit starts over because somebody else wrote meanwhile.
const TRIES: usize = 5;
/// Says that a file without spaces is meant that way.
const EMPTY: &str = "# No space is served here, and that is meant.\nallow_empty = true\n";
/// The same for a directory. No space can have this name: tokens have no dots.
const EMPTY_NAME: &str = "no.spaces.toml";
/// The key in [`EMPTY`].
const ALLOW_EMPTY: &str = "allow_empty";
/// What a new manifest starts with.
const HEAD: &str = "# The spaces of this host, one [[space]] each.\n\n";

/// A manifest, locked against every other `lanekeeper space`.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    is_dir: bool,
    _lock: File,
}

/// What a removal left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// How many entries there are now.
    pub left: usize,
}

impl Place {
    /// Waits for the lock of the manifest at `path`, which may be missing if it is to become a file. Blocks.
    ///
    /// # Errors
    /// The place cannot be used.
    pub fn lock(path: &Path) -> Result<Self> {
        // A link stays a link: what it points to is what is edited.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(path)?,
            Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
        };
        let is_dir = path.is_dir();
        let dir = if is_dir { &path } else { parent(&path)? };
        // The directory itself is locked: no file of ours has to lie about for it.
        let lock = File::open(dir).with_context(|| format!("open {}", dir.display()))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(io::Error::from)
            .with_context(|| format!("lock {}", dir.display()))?;
        sweep(dir)?;
        Ok(Self { path, is_dir, _lock: lock })
    }

    /// Every entry, and the file it stands in.
    ///
    /// # Errors
    /// A file cannot be read, or is not TOML.
    pub fn entries(&self) -> Result<Vec<(PathBuf, Found)>> {
        let mut all = Vec::new();
        for path in self.files()? {
            let text = read(&path)?.unwrap_or_default();
            let found = entry::entries(&text).with_context(|| path.display().to_string())?;
            all.extend(found.into_iter().map(|found| (path.clone(), found)));
        }
        Ok(all)
    }

    /// Fails if `space` cannot get an entry, because it or a name that folds like it has one, or the manifest has faults.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check_free(&self, space: &Space, host: &HostConfig) -> Result<()> {
        let entries = self.entries()?;
        if let Some((path, there)) = entries.iter().find(|(_, there)| fold(&there.name) == fold(space.as_str())) {
            bail!("{} has an entry for `{}` already; remove it first, or edit it", path.display(), there.name);
        }
        let path = self.file_of(space);
        if self.is_dir && fs::symlink_metadata(&path).is_ok() {
            bail!("{} is there and holds no entry for `{space}`; rename it, its name is needed", path.display());
        }
        if !self.files()?.is_empty() {
            let loaded = manifest::load(&self.path, host);
            loaded.context("the manifest has faults; mend them first, nothing was changed")?;
        }
        Ok(())
    }

    /// Adds the entry: a reader sees the manifest without it or with it, never a part.
    ///
    /// # Errors
    /// There is such an entry, or the result would not be a manifest; then nothing was changed.
    pub fn add(&self, entry: &Entry, host: &HostConfig) -> Result<()> {
        self.check_free(&entry.space, host)?;
        if !self.is_dir {
            return edit(&self.path, Some(host), |text| {
                let text = if text.trim().is_empty() { HEAD } else { text };
                entry::add(&without_allow_empty(text)?, entry).map(Some)
            });
        }
        let path = self.file_of(&entry.space);
        let staged = stage(&path, &entry.text()?, None)?;
        check(staged.path(), host)?;
        staged
            .persist_noclobber(&path)
            .map_err(|error| error.error)
            .with_context(|| format!("put {} in place", path.display()))?;
        let empty = self.path.join(EMPTY_NAME);
        if empty.exists() {
            fs::remove_file(&empty).with_context(|| format!("remove {}", empty.display()))?;
        }
        sync(&self.path)
    }

    /// Takes the entry of `space` out; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be edited; then nothing was changed.
    pub fn remove(&self, space: &Space) -> Result<Option<Removed>> {
        let entries = self.entries()?;
        let Some((path, _)) = entries.iter().find(|(_, found)| found.name == space.as_str()) else { return Ok(None) };
        let left = entries.len() - 1;
        let in_file = entries.iter().filter(|(other, _)| other == path).count() - 1;
        if !self.is_dir || in_file > 0 {
            edit(path, None, |text| {
                let Some((rest, left)) = entry::remove(text, space)? else { bail!("the entry is gone already") };
                Ok(Some(if left == 0 { with_allow_empty(&rest)? } else { rest }))
            })?;
            return Ok(Some(Removed { left }));
        }
        if left == 0 {
            // An empty directory would read as a broken one.
            let empty = self.path.join(EMPTY_NAME);
            put(stage(&empty, EMPTY, None)?, &empty)?;
        }
        fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
        sync(&self.path)?;
        Ok(Some(Removed { left }))
    }

    /// Where the entry of `space` goes in a directory.
    fn file_of(&self, space: &Space) -> PathBuf {
        self.path.join(format!("{space}.toml"))
    }

    /// The files of the manifest that are there, sorted.
    fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.is_dir {
            return Ok(if self.path.exists() { vec![self.path.clone()] } else { Vec::new() });
        }
        let listing = || format!("list {}", self.path.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(listing)? {
            let name = entry.with_context(listing)?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') && name.ends_with(".toml") {
                files.push(self.path.join(name));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Removes what an earlier run that was killed left. The lock is held, so none of it is in use.
fn sweep(dir: &Path) -> Result<()> {
    let listing = || format!("list {}", dir.display());
    for entry in fs::read_dir(dir).with_context(listing)? {
        let name = entry.with_context(listing)?.file_name().to_string_lossy().into_owned();
        if name.starts_with(STAGED.0) && name.ends_with(STAGED.1) {
            let path = dir.join(name);
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Where a manifest that is not there yet will be.
fn new_file(path: &Path) -> Result<PathBuf> {
    if path.extension().is_none_or(|ending| ending != "toml") {
        bail!("{} does not exist; create the directory, or name a file that ends with .toml", path.display());
    }
    let name = path.file_name().context("the manifest has no name")?;
    let dir = parent(path)?;
    let dir = fs::canonicalize(dir).with_context(|| format!("{} does not exist; create it", dir.display()))?;
    Ok(dir.join(name))
}

fn parent(path: &Path) -> Result<&Path> {
    let parent = path.parent().with_context(|| format!("{} lies in no directory", path.display()))?;
    Ok(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Changes a file's text: read, edited, checked, and put in place, and from the start again if somebody wrote meanwhile.
fn edit(path: &Path, host: Option<&HostConfig>, change: impl Fn(&str) -> Result<Option<String>>) -> Result<()> {
    for _ in 0..TRIES {
        let before = read(path)?;
        let changed = change(before.as_deref().unwrap_or_default()).with_context(|| path.display().to_string())?;
        let Some(changed) = changed else { return Ok(()) };
        let staged = stage(path, &changed, before.is_some().then_some(path))?;
        if let Some(host) = host {
            check(staged.path(), host)?;
        }
        if read(path)? == before {
            put(staged, path)?;
            return sync(parent(path)?);
        }
    }
    bail!("{} is written by somebody else again and again; nothing was changed, try again later", path.display())
}

/// What is about to become the manifest must be one.
fn check(staged: &Path, host: &HostConfig) -> Result<()> {
    manifest::load(staged, host).context("the result would not be a manifest; nothing was changed")?;
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>> {
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Writes `text` beside `path`, under a name that no manifest has, with the owner and mode of `like`.
fn stage(path: &Path, text: &str, like: Option<&Path>) -> Result<NamedTempFile> {
    let dir = parent(path)?;
    let doing = || format!("write a new {} beside it", path.display());
    let mut staged = Builder::new().prefix(STAGED.0).suffix(STAGED.1).tempfile_in(dir).with_context(doing)?;
    staged.write_all(text.as_bytes()).with_context(doing)?;
    let mut mode = NEW_MODE;
    if let Some(like) = like {
        let (old, new) = (fs::metadata(like).with_context(doing)?, staged.as_file().metadata().with_context(doing)?);
        mode = old.mode() & 0o7777;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            std::os::unix::fs::fchown(staged.as_file(), Some(old.uid()), Some(old.gid()))
                .with_context(|| format!("keep the owner of {}; run this as its owner", path.display()))?;
        }
    }
    staged.as_file().set_permissions(fs::Permissions::from_mode(mode)).with_context(doing)?;
    staged.as_file().sync_all().with_context(doing)?;
    Ok(staged)
}

fn put(staged: NamedTempFile, path: &Path) -> Result<()> {
    staged.persist(path).map_err(|error| error.error).with_context(|| format!("put {} in place", path.display()))?;
    Ok(())
}

fn sync(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("write through {}", dir.display()))
}

/// A file with spaces must not say that it may be empty.
fn without_allow_empty(text: &str) -> Result<String> {
    let document: toml_edit::Document<&str> =
        toml_edit::Document::parse(text).context("this is not TOML; mend it first")?;
    let Some((key, item)) = document.get_key_value(ALLOW_EMPTY) else { return Ok(text.to_owned()) };
    let (Some(key), Some(value)) = (key.span(), item.span()) else { return Ok(text.to_owned()) };
    let start = text[..key.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[value.end..].find('\n').map_or(text.len(), |end| value.end + end + 1);
    let mut out = format!("{}{}", &text[..start], &text[end..]);
    if let Some(note) = EMPTY.lines().next() {
        out = out.replace(&format!("{note}\n"), "");
    }
    Ok(out)
}

/// A file without spaces must say that it is meant so. Keys of the file itself stand before its first section.
fn with_allow_empty(text: &str) -> Result<String> {
    let rest = without_allow_empty(text)?;
    Ok(if rest.is_empty() { EMPTY.to_owned() } else { format!("{EMPTY}\n{rest}") })
}
