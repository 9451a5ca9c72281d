//! The event loop with scripted lanes, in virtual time: whatever order things happen in, no space ever has two owners, and
//! no lane's trouble reaches another.
//!
//! Owns the script: what each space's lane does when it is started. Manifests are real files, found by polling.

mod faults;
mod reloads;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use lanekeeper_lane::{Fault, FaultKind, Lane, LaneConfig, State};
use lanekeeper_wire::Space;
use tempfile::TempDir;
use tokio::{
    runtime,
    sync::{oneshot, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    handle::Handle,
    host::Supervisor,
    launch::{Launched, Launcher},
    settings::{Settings, SupervisorConfig},
    status::{HostStatus, LaneState, LaneStatus, Outcome},
};
use crate::{config::HostConfig, reload::content_of};

/// Longer than anything here should take, in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a lane does.
#[derive(Debug, Clone)]
enum Act {
    /// Gets through at once and serves until it is asked to stop.
    Serve,
    /// Serves this long, then ends with the fault.
    ServeThen(Duration, FaultKind),
    /// Ends with the fault at once.
    Fail(FaultKind),
    /// Never gets through, but stops when asked.
    Hang,
    /// Serves, and does not stop when asked.
    Deaf,
    /// Serves until it is released; neither a stop nor an abort does anything, as where its thread is blocked.
    Wedge,
    /// Panics.
    Panic,
    /// Ends without an error.
    Return,
    /// Waits for the lease.
    Standby,
}

/// What happened, by space.
#[derive(Debug, Default)]
struct Book {
    acts: BTreeMap<String, Act>,
    proofs: BTreeMap<String, FaultKind>,
    starts: Vec<(String, Instant)>,
    proven: Vec<String>,
    running: BTreeMap<String, u32>,
    most_running: BTreeMap<String, u32>,
    most_opening: usize,
    opening: usize,
    released: bool,
}

/// Scripted lanes.
#[derive(Debug, Clone)]
struct Script(Arc<Mutex<Book>>);

/// Counts a run, also when its task is dropped.
struct Counted(Arc<Mutex<Book>>, String);

impl Counted {
    fn new(book: &Arc<Mutex<Book>>, space: &str) -> Self {
        let mut open = book.lock().unwrap();
        let running = open.running.entry(space.to_owned()).or_default();
        *running += 1;
        let running = *running;
        let most = open.most_running.entry(space.to_owned()).or_default();
        *most = running.max(*most);
        open.opening += 1;
        open.most_opening = open.most_opening.max(open.opening);
        Self(Arc::clone(book), space.to_owned())
    }

    fn through(&self) {
        self.0.lock().unwrap().opening -= 1;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.lock().unwrap().running.get_mut(&self.1).unwrap() -= 1;
    }
}

impl Script {
    async fn play(
        self,
        space: Space,
        act: Act,
        state: watch::Sender<State>,
        stop: CancellationToken,
    ) -> Result<(), Fault> {
        let counted = Counted::new(&self.0, space.as_str());
        let fault = |kind: FaultKind| Err(Fault::new(&space, kind));
        // Opening takes a moment.
        if !matches!(act, Act::Hang) {
            sleep(Duration::from_millis(20)).await;
        }
        if !matches!(act, Act::Hang) {
            counted.through();
        }
        match act {
            Act::Serve | Act::Standby => {
                state.send_replace(if matches!(act, Act::Serve) { State::Serving } else { State::Standby });
                stop.cancelled().await;
                state.send_replace(State::Closing);
                sleep(Duration::from_millis(30)).await;
                Ok(())
            }
            Act::ServeThen(long, kind) => {
                state.send_replace(State::Serving);
                tokio::select! {
                    () = stop.cancelled() => Ok(()),
                    () = sleep(long) => fault(kind),
                }
            }
            Act::Fail(kind) => fault(kind),
            Act::Hang => {
                stop.cancelled().await;
                counted.through();
                Ok(())
            }
            Act::Deaf => {
                state.send_replace(State::Serving);
                std::future::pending().await
            }
            Act::Wedge => {
                state.send_replace(State::Serving);
                while !self.0.lock().unwrap().released {
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(())
            }
            Act::Panic => panic!("scripted"),
            Act::Return => Ok(()),
        }
    }
}

impl Launcher for Script {
    fn launch(&self, config: LaneConfig, stop: CancellationToken) -> Launched {
        let (space, dir) = (config.space.clone(), config.credentials.clone());
        let act = {
            let mut book = self.0.lock().unwrap();
            book.starts.push((space.to_string(), Instant::now()));
            book.acts.get(space.as_str()).cloned().unwrap_or(Act::Serve)
        };
        let (_, watch) = Lane::new(config);
        let (state, seen) = watch::channel(State::Opening);
        let (said, content) = oneshot::channel();
        said.send(content_of(&dir)).unwrap();
        let is_wedged = matches!(act, Act::Wedge);
        let task = tokio::spawn(self.clone().play(space, act, state, stop));
        let abort = if is_wedged { tokio::spawn(async {}).abort_handle() } else { task.abort_handle() };
        Launched { task, abort, content, state: seen, watch }
    }

    fn preflight(&self, config: LaneConfig) -> BoxFuture<'static, Result<(), Fault>> {
        let book = Arc::clone(&self.0);
        Box::pin(async move {
            sleep(Duration::from_millis(100)).await;
            let mut book = book.lock().unwrap();
            book.proven.push(config.space.to_string());
            match book.proofs.get(config.space.as_str()) {
                Some(kind) => Err(Fault::new(&config.space, kind.clone())),
                None => Ok(()),
            }
        })
    }
}

/// A supervisor on scripted lanes.
struct Sim {
    handle: Handle,
    stop: CancellationToken,
    book: Arc<Mutex<Book>>,
    dir: TempDir,
    settings: Settings,
}

impl Sim {
    /// Starts it with these spaces in the manifest and in the script.
    async fn start(acts: &[(&str, Act)]) -> Self {
        Self::start_polling(acts, Duration::from_millis(HostConfig::default().limits.poll_ms)).await
    }

    /// The same with another pause between polls.
    async fn start_polling(acts: &[(&str, Act)], poll: Duration) -> Self {
        let dir = TempDir::new().unwrap();
        let names: Vec<&str> = acts.iter().map(|(space, _)| *space).collect();
        write(&dir, &names, "");
        let book = Arc::<Mutex<Book>>::default();
        book.lock().unwrap().acts = acts.iter().map(|(space, act)| ((*space).to_owned(), act.clone())).collect();
        let script = Script(Arc::clone(&book));
        let config = SupervisorConfig {
            host: HostConfig::default(),
            manifest_path: dir.path().join("spaces.toml"),
            lanes: runtime::Handle::current(),
            is_watching: false,
        };
        let settings = Settings { poll, ..Settings::new(&config) };
        let stop = CancellationToken::new();
        let handle = Supervisor::start_with(settings.clone(), Arc::new(script), stop.clone());
        Self { handle, stop, book, dir, settings }
    }

    /// Replaces the manifest and has it read.
    async fn reload(&self, names: &[&str]) -> Outcome {
        self.reload_text(names, "").await
    }

    async fn reload_text(&self, names: &[&str], more: &str) -> Outcome {
        write(&self.dir, names, more);
        self.handle.reload(false).await
    }

    /// Changes what the credential directory of a space holds.
    fn rotate(&self, space: &str, text: &str) {
        std::fs::write(self.dir.path().join(space).join("delivery.creds"), text).unwrap();
    }

    fn act(&self, space: &str, act: Act) {
        self.book.lock().unwrap().acts.insert(space.to_owned(), act);
    }

    fn starts(&self, space: &str) -> usize {
        self.book.lock().unwrap().starts.iter().filter(|(name, _)| name == space).count()
    }

    async fn until(&self, what: &str, is: impl FnMut(&Arc<HostStatus>) -> bool) -> Arc<HostStatus> {
        let mut shown = self.handle.watch_status();
        match timeout(PATIENCE, shown.wait_for(is)).await {
            Ok(status) => Arc::clone(&status.unwrap()),
            Err(_) => panic!("not {what}: {:#?}", self.handle.status()),
        }
    }

    async fn until_state(&self, space: &str, state: LaneState) -> LaneStatus {
        let space: Space = space.parse().unwrap();
        let is = |status: &Arc<HostStatus>| status.lane(&space).is_some_and(|lane| lane.state == state);
        self.until(&format!("{space} {state}"), is).await.lane(&space).unwrap().clone()
    }

    fn lane(&self, space: &str) -> LaneStatus {
        self.handle.status().lane(&space.parse().unwrap()).unwrap().clone()
    }

    /// Stops it, and holds what must hold in every run: never two owners of one space.
    async fn end(self) -> super::Stopped {
        self.stop.cancel();
        let stopped =
            timeout(self.settings.stop_bound(), self.handle.stopped()).await.expect("it stops within its bound");
        let book = self.book.lock().unwrap();
        assert!(book.most_running.values().all(|most| *most <= 1), "two owners: {:?}", book.most_running);
        assert!(book.most_opening <= self.settings.opens_at_once, "{} opened at once", book.most_opening);
        stopped
    }
}

/// Writes a manifest; every space has a credential directory of its own.
fn write(dir: &TempDir, names: &[&str], more: &str) {
    let mut text = format!("allow_empty = true\n{more}\n");
    for name in names {
        let credentials = dir.path().join(name);
        if !credentials.exists() {
            std::fs::create_dir(&credentials).unwrap();
            std::fs::write(credentials.join("delivery.creds"), "first").unwrap();
        }
        text.push_str(&format!("[[space]]\nname = \"{name}\"\ncredentials = \"{name}\"\n"));
    }
    std::fs::write(dir.path().join("spaces.toml"), text).unwrap();
}

fn disconnected() -> FaultKind {
    FaultKind::Disconnected
}

fn parking() -> FaultKind {
    FaultKind::CredentialMalformed { path: "x".to_owned(), reason: "scripted".to_owned() }
}
