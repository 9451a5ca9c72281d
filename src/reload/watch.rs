//! File watches that survive renames, symlink swaps and directories that come and go.
//!
//! Owns which directories are watched and which events matter. Never a file itself: a watch on it dies with its inode. It
//! carries no data: an event that matters means `go and look`. Where the system refuses watches, polling remains.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};

/// How many directories above a watched one are watched for its replacement.
const ANCESTORS: usize = 2;

/// Which paths matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Attention {
    /// Directories in which everything matters.
    full: BTreeSet<PathBuf>,
    /// Directories in which only these names matter, because they lead to a directory in `full`.
    names: BTreeMap<PathBuf, BTreeSet<OsString>>,
}

impl Attention {
    /// What matters about `places`, each a file or a directory that need not be there.
    fn to(places: &BTreeSet<PathBuf>) -> Self {
        let mut attention = Self::default();
        for place in places {
            attention.add(place);
            // The file behind a link can be written in place.
            if let Ok(real) = fs::canonicalize(place)
                && real != *place
            {
                attention.add(&real);
            }
        }
        attention
    }

    fn add(&mut self, place: &Path) {
        let above = |path: &Path| path.parent().filter(|dir| !dir.as_os_str().is_empty()).map(Path::to_owned);
        let own = if place.is_dir() { Some(place.to_owned()) } else { above(place) };
        let Some(mut below) = own else { return };
        let mut left = ANCESTORS;
        if below.is_dir() {
            self.full.insert(below.clone());
        } else {
            // Not there yet: the nearest directory that is tells when the next one comes.
            left = usize::MAX;
        }
        while left > 0 {
            let Some(dir) = above(&below) else { return };
            let name = below.file_name().unwrap_or_default().to_owned();
            if dir.is_dir() {
                self.names.entry(dir.clone()).or_default().insert(name);
                left = left.min(ANCESTORS) - 1;
            }
            below = dir;
        }
    }

    fn dirs(&self) -> BTreeSet<&PathBuf> {
        self.full.iter().chain(self.names.keys()).collect()
    }

    fn matters(&self, event: &Event) -> bool {
        if event.need_rescan() || event.paths.is_empty() {
            return true;
        }
        !event.kind.is_access() && event.paths.iter().any(|path| self.matters_at(path))
    }

    fn matters_at(&self, path: &Path) -> bool {
        if self.full.contains(path) || self.names.contains_key(path) {
            return true;
        }
        let Some(dir) = path.parent() else { return true };
        // A swap of `..data` never shows under the name of what it swaps.
        let is_swap = |name: &OsString| name.as_encoded_bytes().starts_with(b"..");
        let name = path.file_name().unwrap_or_default().to_owned();
        self.full.contains(dir) || self.names.get(dir).is_some_and(|names| names.contains(&name) || is_swap(&name))
    }
}

/// A directory's inode: a directory of the same name may be another one.
type Identity = (u64, u64);

/// The watches.
pub(super) struct Eyes {
    watcher: Option<RecommendedWatcher>,
    attention: watch::Sender<Attention>,
    watched: BTreeMap<PathBuf, Identity>,
    touched: Arc<Notify>,
    is_on: bool,
    complaint: Option<String>,
}

impl Eyes {
    /// Watches nothing yet. `touched` is notified when something that matters happened. With `is_on` false it never is.
    pub(super) fn new(touched: Arc<Notify>, is_on: bool) -> Self {
        let (attention, _) = watch::channel(Attention::default());
        Self { watcher: None, attention, watched: BTreeMap::new(), touched, is_on, complaint: None }
    }

    /// Watches `places` as they are now, and nothing else. To be called before they are read, so that nothing is missed
    /// in between. True where all of it is watched; otherwise only polling will notice a change. Blocks on the file system.
    pub(super) fn aim(&mut self, places: &BTreeSet<PathBuf>) -> bool {
        if !self.is_on {
            return false;
        }
        let attention = Attention::to(places);
        self.attention.send_if_modified(|now| {
            let is_new = *now != attention;
            now.clone_from(&attention);
            is_new
        });
        let result = self.watch(&attention);
        let complaint = result.err().map(|error| error.to_string());
        if complaint != self.complaint {
            match &complaint {
                Some(reason) => tracing::warn!(%reason, "file changes cannot be watched, they are noticed by polling"),
                None => tracing::info!("file changes are watched again"),
            }
        }
        self.complaint = complaint;
        self.complaint.is_none()
    }

    fn watch(&mut self, attention: &Attention) -> notify::Result<()> {
        if self.watcher.is_none() {
            self.watched.clear();
        }
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            None => self.watcher.insert(watcher(self.attention.subscribe(), Arc::clone(&self.touched))?),
        };
        let wanted: BTreeMap<PathBuf, Identity> = attention
            .dirs()
            .into_iter()
            .filter_map(|dir| Some((dir.clone(), fs::metadata(dir).map(|found| (found.dev(), found.ino())).ok()?)))
            .collect();
        for (dir, _) in self.watched.iter().filter(|(dir, inode)| wanted.get(*dir) != Some(inode)) {
            // A watch whose inode is gone has ended by itself.
            let _ = watcher.unwatch(dir);
        }
        self.watched.retain(|dir, inode| wanted.get(dir) == Some(inode));
        for (dir, inode) in wanted {
            if let Entry::Vacant(place) = self.watched.entry(dir) {
                watcher.watch(place.key(), RecursiveMode::NonRecursive)?;
                place.insert(inode);
            }
        }
        Ok(())
    }
}

fn watcher(attention: watch::Receiver<Attention>, touched: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        // A watcher that failed may have missed something.
        if event.map_or(true, |event| attention.borrow().matters(&event)) {
            touched.notify_one();
        }
    })
}

#[cfg(test)]
mod tests;
