//! One look at everything that is wanted: the manifest, and what the credential directories hold.
//!
//! Owns the reading, each part with a deadline: a file system that hangs holds up one look and one thread, and no second
//! thread is given to it while it does. It must not compare: whoever asked does.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::{
    sync::Notify,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use super::{content_of, watch::Eyes};
use crate::{
    config::{Faults, HostConfig},
    manifest::{self, Manifest},
};

/// How long reading the manifest may take.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long reading one credential directory may take before it counts as unknown this time.
const CONTENT_TIMEOUT: Duration = Duration::from_millis(500);
/// How many credential directories are read at once.
const CONTENTS_AT_ONCE: usize = 8;

/// What one look saw.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The manifest, or everything that is wrong with it.
    pub(crate) manifest: Result<Manifest, Faults>,
    /// What each credential directory holds; one that did not answer is missing.
    pub(crate) contents: BTreeMap<PathBuf, String>,
    /// Whether changes are noticed at once.
    pub(crate) is_watching: bool,
}

/// What a thread brings back.
struct Loaded {
    eyes: Eyes,
    manifest: Result<Manifest, Faults>,
    is_watching: bool,
}

/// Looks, again and again.
pub(crate) struct Looker {
    path: PathBuf,
    host: Arc<HostConfig>,
    eyes: Option<Eyes>,
    loading: Option<JoinHandle<Loaded>>,
    reading: BTreeMap<PathBuf, JoinHandle<String>>,
    touched: Arc<Notify>,
    is_watching_on: bool,
}

impl Looker {
    /// Looks at the manifest at `path`. `touched` is notified when it is time to look again.
    pub(crate) fn new(path: PathBuf, host: Arc<HostConfig>, touched: Arc<Notify>, is_watching_on: bool) -> Self {
        let eyes = Some(Eyes::new(Arc::clone(&touched), is_watching_on));
        Self { path, host, eyes, loading: None, reading: BTreeMap::new(), touched, is_watching_on }
    }

    /// Reads everything. `known` are credential directories that matter beside those in the manifest.
    pub(crate) async fn look(&mut self, known: BTreeSet<PathBuf>) -> Looked {
        let (manifest, is_watching) = self.load(known.clone()).await;
        let mut dirs = known;
        if let Ok(manifest) = &manifest {
            dirs.extend(manifest.spaces.values().map(|spec| spec.credentials.clone()));
        }
        let contents = self.contents(dirs).await;
        Looked { manifest, contents, is_watching }
    }

    async fn load(&mut self, known: BTreeSet<PathBuf>) -> (Result<Manifest, Faults>, bool) {
        let hangs = |path: &Path| {
            let message = format!(
                "reading it, or a credential it names, takes longer than {} ms; look at the file system below it",
                LOAD_TIMEOUT.as_millis()
            );
            (Err(Faults::of_file(path, message)), false)
        };
        // What a late thread read is old; only its watches are taken up again.
        if let Some(mut late) = self.loading.take() {
            match timeout(LOAD_TIMEOUT, &mut late).await {
                Ok(loaded) => self.eyes = loaded.ok().map(|loaded| loaded.eyes),
                Err(_) => {
                    self.loading = Some(late);
                    return hangs(&self.path);
                }
            }
        }
        let fresh = || Eyes::new(Arc::clone(&self.touched), self.is_watching_on);
        let eyes = self.eyes.take().unwrap_or_else(fresh);
        let (path, host) = (self.path.clone(), Arc::clone(&self.host));
        let mut loading = spawn_blocking(move || load(eyes, &path, &host, known));
        match timeout(LOAD_TIMEOUT, &mut loading).await {
            Ok(Ok(loaded)) => {
                self.eyes = Some(loaded.eyes);
                (loaded.manifest, loaded.is_watching)
            }
            Ok(Err(error)) => {
                (Err(Faults::of_file(&self.path, format!("reading it failed: {error}; this is a defect"))), false)
            }
            Err(_) => {
                self.loading = Some(loading);
                hangs(&self.path)
            }
        }
    }

    async fn contents(&mut self, dirs: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, String> {
        self.reading.retain(|_, reading| !reading.is_finished());
        let dirs: Vec<PathBuf> = dirs.into_iter().filter(|dir| !self.reading.contains_key(dir)).collect();
        let reads = stream::iter(dirs).map(|dir| async move {
            let place = dir.clone();
            let mut reading = spawn_blocking(move || content_of(&place));
            match timeout(CONTENT_TIMEOUT, &mut reading).await {
                Ok(read) => (dir, read.ok(), None),
                Err(_) => (dir, None, Some(reading)),
            }
        });
        let read: Vec<_> = reads.buffer_unordered(CONTENTS_AT_ONCE).collect().await;
        let mut contents = BTreeMap::new();
        for (dir, content, late) in read {
            if let Some(late) = late {
                tracing::warn!(dir = %dir.display(), "reading credentials hangs, a change in there is not noticed");
                self.reading.insert(dir.clone(), late);
            }
            contents.extend(content.map(|content| (dir, content)));
        }
        contents
    }
}

fn load(mut eyes: Eyes, path: &Path, host: &HostConfig, known: BTreeSet<PathBuf>) -> Loaded {
    let mut places = known;
    places.insert(path.to_owned());
    eyes.aim(&places);
    let manifest = manifest::load(path, host);
    if let Ok(manifest) = &manifest {
        places.extend(manifest.spaces.values().map(|spec| spec.credentials.clone()));
    }
    // Before the credentials are read, so that a change in between is noticed.
    let is_watching = eyes.aim(&places);
    Loaded { eyes, manifest, is_watching }
}
