//! The event loop: it alone owns all slots, and everything slow comes back to it as an event.
//!
//! Owns the loop, its clock and the order in which lanes open. It must never wait for anything itself, and it holds no lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use lanekeeper_lane::Fault;
use lanekeeper_wire::Space;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    handle::{Command, Handle, Stopped},
    launch::{Ended, Lanes, Launcher, Run, Said, follow},
    look::LookState,
    plan::Definition,
    report::Report,
    seat::{Seat, Trial},
    settings::{Settings, SupervisorConfig},
    show,
    slot::Slot,
    status::HostStatus,
};
use crate::reload::{Looked, Looker};

/// Commands that may wait.
const COMMANDS: usize = 256;
/// What lanes may have said and the loop not heard yet.
const NOTES: usize = 1024;
/// The least time between two snapshots.
const SHOW_PAUSE: Duration = Duration::from_millis(100);
/// How often rates are measured.
const TICK: Duration = Duration::from_secs(1);

/// What slow work comes back with.
pub(crate) enum Event {
    /// A lane's task was joined.
    Ended(Space, u64, Ended),
    /// A preflight has answered.
    Tried(Space, Box<Definition>, Result<(), Fault>),
    /// Everything was looked at.
    Looked(Box<(Looker, Looked)>),
}

/// The supervisor.
pub(crate) struct Host {
    pub(crate) settings: Settings,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) seats: BTreeMap<Space, Seat>,
    /// SHA-256 of the manifest that is applied; `None` before the first one.
    pub(crate) hash: Option<String>,
    pub(crate) contents: BTreeMap<PathBuf, String>,
    pub(crate) generation: u64,
    pub(crate) is_ready: bool,
    pub(crate) is_stopping: bool,
    pub(crate) is_draining: bool,
    pub(crate) look: LookState,
    pub(crate) report: Report,
    pub(crate) tasks: JoinSet<Event>,
    notes: (mpsc::Sender<Said>, mpsc::Receiver<Said>),
    touched: Arc<Notify>,
    shown: watch::Sender<Arc<HostStatus>>,
    shown_at: Instant,
    ticked_at: Instant,
    is_dirty: bool,
}

/// Starts a supervisor on the current runtime; it ends when `stop` is cancelled and every lane is closed.
pub struct Supervisor;

impl Supervisor {
    /// Starts it. Lanes run on the runtime that `config` names.
    #[must_use]
    pub fn start(config: &SupervisorConfig, stop: CancellationToken) -> Handle {
        Self::start_with(Settings::new(config), Arc::new(Lanes(config.lanes.clone())), stop)
    }

    pub(crate) fn start_with(settings: Settings, launcher: Arc<dyn Launcher>, stop: CancellationToken) -> Handle {
        let (commands, received) = mpsc::channel(COMMANDS);
        let (ended, stopped) = watch::channel(None);
        let mut host = Host::new(settings, launcher);
        let handle = Handle { commands, shown: host.shown.subscribe(), stopped };
        tokio::spawn(async move {
            let end = Box::pin(host.run(received, stop)).await;
            ended.send_replace(Some(end));
        });
        handle
    }
}

impl Host {
    fn new(settings: Settings, launcher: Arc<dyn Launcher>) -> Self {
        let now = Instant::now();
        let touched = Arc::<Notify>::default();
        let looker = Looker::new(
            settings.manifest_path.clone(),
            Arc::clone(&settings.host),
            Arc::clone(&touched),
            settings.is_watching,
        );
        let (shown, _) = watch::channel(Arc::default());
        let host = Self {
            settings,
            launcher,
            seats: BTreeMap::new(),
            hash: None,
            contents: BTreeMap::new(),
            generation: 0,
            is_ready: false,
            is_stopping: false,
            is_draining: false,
            look: LookState::new(looker, now),
            report: Report::default(),
            tasks: JoinSet::new(),
            notes: mpsc::channel(NOTES),
            touched,
            shown,
            shown_at: now,
            ticked_at: now,
            is_dirty: false,
        };
        host.shown.send_replace(Arc::new(host.status()));
        host
    }

    async fn run(&mut self, mut commands: mpsc::Receiver<Command>, stop: CancellationToken) -> Stopped {
        loop {
            let now = Instant::now();
            self.advance(now);
            if self.is_stopping && !self.seats.values().any(|seat| seat.slot.is_running()) {
                break;
            }
            let pause = self.wake_at(now).saturating_duration_since(now);
            // Each arm may be dropped: receiving, joining and notifying lose nothing, and the pause is computed anew. A
            // stop goes first; then what was already done, before anything new is asked for.
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.is_stopping => self.begin_stop(),
                Some(joined) = self.tasks.join_next() => self.on_joined(joined),
                Some((space, generation, note)) = self.notes.1.recv() => self.on_note(&space, generation, note),
                Some(command) = commands.recv() => self.on_command(command),
                () = self.touched.notified() => self.look.touch(&self.settings, Instant::now()),
                () = sleep(pause) => continue,
            }
            self.is_dirty = true;
        }
        self.show(Instant::now());
        let wedged = self.seats.values().filter(|seat| seat.slot.is_wedged()).map(|seat| seat.space().clone());
        Stopped { wedged: wedged.collect(), is_broken: false }
    }

    /// Does everything whose time has come.
    fn advance(&mut self, now: Instant) {
        self.check_seats(now);
        if !self.is_stopping {
            self.look_if_due(now);
            self.try_again(now);
            self.fill(now);
            self.note_ready();
        }
        self.settle_report(now);
        if now.saturating_duration_since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            for seat in self.seats.values_mut() {
                seat.meter.sample(seat.slot.task().map(|run| &run.watch), now);
            }
            self.is_dirty = true;
        }
        if self.is_dirty && now.saturating_duration_since(self.shown_at) >= SHOW_PAUSE {
            self.show(now);
        }
    }

    /// When the next thing is due.
    fn wake_at(&self, now: Instant) -> Instant {
        let mut at = self.ticked_at + TICK;
        if self.is_dirty {
            at = at.min(self.shown_at + SHOW_PAUSE);
        }
        if !self.is_stopping {
            at = at.min(self.look.due().unwrap_or(at));
        }
        for seat in self.seats.values() {
            at = at.min(seat.slot.deadline().unwrap_or(at));
            // What is due already waits for room, which comes with an event.
            if let Slot::Waiting { due: Some(due) } = seat.slot
                && due > now
            {
                at = at.min(due);
            }
            if let Some(refusal) = &seat.refusal {
                at = at.min(refusal.retry_at.max(now + Duration::from_millis(1)));
            }
        }
        at
    }

    fn on_joined(&mut self, joined: Result<Event, tokio::task::JoinError>) {
        match joined {
            Ok(Event::Ended(space, generation, ended)) => self.on_ended(&space, generation, ended),
            Ok(Event::Tried(space, definition, result)) => self.on_tried(&space, &definition, result),
            Ok(Event::Looked(looked)) => self.on_looked(*looked),
            Err(error) => {
                // Nothing of ours panics there; a look that did is done again with a new looker.
                tracing::error!(%error, "a task of the supervisor ended, this is a defect");
                if error.is_panic() {
                    let looker = Looker::new(
                        self.settings.manifest_path.clone(),
                        Arc::clone(&self.settings.host),
                        Arc::clone(&self.touched),
                        self.settings.is_watching,
                    );
                    self.look.replace(looker, Instant::now());
                }
            }
        }
    }

    /// Opens what is due while there is room: first what has not failed yet, then what waits longest, so that lanes that
    /// keep failing never stand in the way of the others.
    fn fill(&mut self, now: Instant) {
        let opening = |seat: &&Seat| matches!(seat.slot, Slot::Opening { .. }) && !seat.is_through;
        let trying = |seat: &&Seat| matches!(seat.trial, Trial::Running(..));
        let busy = self.seats.values().filter(opening).count() + self.seats.values().filter(trying).count();
        for _ in busy..self.settings.opens_at_once {
            if let Some(seat) = self.seats.values_mut().find(|seat| matches!(seat.trial, Trial::Due(_))) {
                start_trial(seat, &self.launcher, &mut self.tasks);
                self.is_dirty = true;
                continue;
            }
            let due = self.seats.values_mut().filter(|seat| seat.is_due(now));
            let order = |seat: &&mut Seat| match seat.slot {
                Slot::Waiting { due } => (seat.attempt > 0, due),
                Slot::Opening { .. }
                | Slot::Standby { .. }
                | Slot::Serving { .. }
                | Slot::Closing { .. }
                | Slot::Parked { .. } => (true, None),
            };
            let Some(seat) = due.min_by_key(order) else { return };
            let by = now + self.settings.open_timeout;
            open(seat, &self.launcher, &mut self.tasks, &self.notes.0, by);
            self.is_dirty = true;
        }
    }

    fn begin_stop(&mut self) {
        let now = Instant::now();
        let running = self.seats.values().filter(|seat| seat.slot.is_running()).count();
        tracing::info!(lanes = running, bound_ms = self.settings.stop_bound().as_millis(), "closing every lane");
        self.is_stopping = true;
        for seat in self.seats.values_mut() {
            seat.close(&self.settings, now, "the host is stopping");
        }
    }

    /// Every credential directory that matters.
    pub(crate) fn known_dirs(&self) -> BTreeSet<PathBuf> {
        self.seats.values().map(|seat| seat.spec.credentials.clone()).collect()
    }

    fn note_ready(&mut self) {
        let attempted = || self.seats.values().all(|seat| seat.was_attempted || seat.is_drained || seat.is_leaving);
        if !self.is_ready && self.hash.is_some() && attempted() {
            self.is_ready = true;
            self.is_dirty = true;
            let serving = self.seats.values().filter(|seat| matches!(seat.slot, Slot::Serving { .. })).count();
            tracing::info!(lanes = self.seats.len(), serving, "ready: every lane was attempted");
        }
    }

    /// Makes a new snapshot.
    pub(crate) fn show(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            seat.note_state();
        }
        (self.is_dirty, self.shown_at) = (false, now);
        self.shown.send_replace(Arc::new(self.status()));
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            host: self.settings.host.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: self.generation,
            manifest_hash: self.hash.clone().unwrap_or_default(),
            ready: self.is_ready,
            watching: self.look.is_watching,
            draining: self.is_draining,
            reloads_applied: self.report.applied,
            reloads_refused: self.report.refused,
            last_reload: self.report.last.clone(),
            lanes: self.seats.values().map(show::lane).collect(),
        }
    }
}

/// Starts the task of a seat that has none.
fn open(
    seat: &mut Seat,
    launcher: &Arc<dyn Launcher>,
    tasks: &mut JoinSet<Event>,
    notes: &mpsc::Sender<Said>,
    by: Instant,
) {
    let stop = CancellationToken::new();
    let launched = launcher.launch(seat.lane_config(), stop.clone());
    seat.generation += 1;
    let generation = seat.generation;
    let run = Run { generation, stop, abort: launched.abort.clone(), watch: launched.watch.clone() };
    tracing::info!(space = %seat.space(), generation, attempt = seat.attempt + 1, reason = %seat.reason, "opening");
    if let Err(run) = seat.open(run, by) {
        tracing::error!(space = %seat.space(), "a second task of one lane was refused, this is a defect");
        run.abort.abort();
        return;
    }
    let (space, notes) = (seat.space().clone(), notes.clone());
    tasks.spawn(async move {
        let (space, generation, ended) = follow(space, generation, launched, notes).await;
        Event::Ended(space, generation, ended)
    });
}

/// Starts the proof of a seat's new definition.
fn start_trial(seat: &mut Seat, launcher: &Arc<dyn Launcher>, tasks: &mut JoinSet<Event>) {
    let Trial::Due(reason) = std::mem::replace(&mut seat.trial, Trial::None) else { return };
    let (space, definition) = (seat.space().clone(), seat.wanted.clone());
    let proof = launcher.preflight(seat.lane_config());
    seat.trial = Trial::Running(definition.clone(), reason);
    let bound = seat.trial_bound();
    tasks.spawn(async move {
        let result = match tokio::time::timeout(bound, proof).await {
            Ok(result) => result,
            Err(_) => Err(Seat::trial_timeout(&space, bound)),
        };
        Event::Tried(space, Box::new(definition), result)
    });
}
