//! One space at the host: what is wanted of it, its slot, and what happens when its task ends.
//!
//! Owns the decision after every end. It must not start tasks and must not know other spaces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lanekeeper_lane::{Fault, FaultKind, LaneConfig, Standby, State};
use lanekeeper_wire::Space;
use tokio::time::Instant;

use super::{
    backoff::{Backoff, Pause},
    launch::{Ended, Note, Run},
    meter::Meter,
    placement::{Place, place},
    plan::{Actual, Definition, Stage},
    settings::Settings,
    slot::{Overdue, Slot},
    status::{FaultStatus, LaneState},
};
use crate::manifest::SpaceSpec;

/// A definition that a preflight refused while the lane goes on with the old one.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) definition: Definition,
    pub(crate) retry_at: Instant,
}

/// Where the proof of a new definition is.
#[derive(Debug)]
pub(crate) enum Trial {
    /// There is none.
    None,
    /// It waits for room; why it is needed.
    Due(String),
    /// It runs with this definition; why it is needed.
    Running(Definition, String),
}

/// What the supervisor does with a seat after an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It stays.
    Stays,
    /// Its space is wanted no more and its task is joined.
    Leaves,
}

/// One space at the host.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) spec: SpaceSpec,
    pub(crate) wanted: Definition,
    pub(crate) slot: Slot<Run>,
    /// What the last task was opened with.
    pub(crate) opened_with: Option<Definition>,
    /// Closes for good.
    pub(crate) is_leaving: bool,
    /// Handed over for maintenance.
    pub(crate) is_drained: bool,
    /// Why its task is asked to end, where it is opened again afterwards.
    pub(crate) reopen: Option<String>,
    /// What was wrong before its task was asked to end.
    pub(crate) fault: Option<Fault>,
    pub(crate) trial: Trial,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) reason: String,
    pub(crate) since_ms: u64,
    pub(crate) attempt: u32,
    pub(crate) generation: u64,
    /// Whether an attempt has come to a result.
    pub(crate) was_attempted: bool,
    pub(crate) has_served: bool,
    /// Whether it is parked because its credentials could not be read.
    pub(crate) is_unread: bool,
    /// Whether this run was through once, so that what follows is a redial.
    pub(crate) is_through: bool,
    pub(crate) last_fault: Option<FaultStatus>,
    pub(crate) place: Place,
    pub(crate) meter: Meter,
    state_noted: LaneState,
    backoff: Backoff,
    served: Duration,
}

impl Seat {
    /// A seat that opens at `now`.
    pub(crate) fn new(spec: SpaceSpec, wanted: Definition, settings: &Settings, now: Instant) -> Self {
        let place = place(&spec.space, &settings.host.host, &settings.host.hosts, settings.head_start);
        Self {
            spec,
            wanted,
            slot: Slot::waiting(Some(now)),
            opened_with: None,
            is_leaving: false,
            is_drained: false,
            reopen: None,
            fault: None,
            trial: Trial::None,
            refusal: None,
            reason: "new in the manifest".to_owned(),
            since_ms: epoch_ms(),
            attempt: 0,
            generation: 0,
            was_attempted: false,
            has_served: false,
            is_unread: false,
            is_through: false,
            last_fault: None,
            place,
            meter: Meter::default(),
            state_noted: LaneState::Waiting,
            backoff: Backoff::default(),
            served: Duration::ZERO,
        }
    }

    pub(crate) fn space(&self) -> &Space {
        &self.spec.space
    }

    /// What its lane is opened with.
    pub(crate) fn lane_config(&self) -> LaneConfig {
        LaneConfig {
            space: self.spec.space.clone(),
            servers: self.wanted.servers.clone(),
            credentials: self.wanted.credentials.clone(),
            limits: self.wanted.limits,
            standby: Standby::Wait { head_start: self.place.head_start },
        }
    }

    /// Where it stands, for a plan.
    pub(crate) fn actual(&self) -> Actual {
        let stage = match &self.slot {
            _ if self.is_leaving => Stage::Leaving,
            slot if slot.is_wedged() => Stage::Wedged,
            _ if self.is_drained => Stage::Drained,
            Slot::Waiting { .. } | Slot::Parked { .. } => Stage::Idle,
            // A lane that dials again is protected like one that serves: its new credential is proven first.
            Slot::Opening { .. } if self.is_through && self.has_served => Stage::Serving,
            Slot::Opening { .. } if self.is_through => Stage::Standby,
            Slot::Opening { .. } => Stage::Opening,
            Slot::Standby { .. } => Stage::Standby,
            Slot::Serving { .. } => Stage::Serving,
            Slot::Closing { .. } => Stage::Closing,
        };
        Actual {
            stage,
            opened_with: self.opened_with.clone(),
            refused: self.refusal.as_ref().map(|refusal| refusal.definition.clone()),
            trying: match &self.trial {
                Trial::None => None,
                Trial::Due(_) => Some(self.wanted.clone()),
                Trial::Running(definition, _) => Some(definition.clone()),
            },
            has_served: self.has_served,
        }
    }

    /// True where it may open as soon as there is room.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let may_open = !self.is_leaving && !self.is_drained;
        may_open && matches!(self.slot, Slot::Waiting { due: Some(due) } if due <= now)
    }

    /// Takes a started task.
    pub(crate) fn open(&mut self, run: Run, by: Instant) -> Result<(), Run> {
        self.slot.open(run, by)?;
        self.attempt = self.attempt.saturating_add(1);
        self.opened_with = Some(self.wanted.clone());
        (self.reopen, self.fault, self.refusal, self.trial) = (None, None, None, Trial::None);
        (self.is_through, self.is_unread, self.served) = (false, false, Duration::ZERO);
        self.say(if self.attempt > 1 { "trying again" } else { "opening" });
        Ok(())
    }

    /// Hears what its task says.
    pub(crate) fn hear(&mut self, note: Note, settings: &Settings, now: Instant) {
        match note {
            Note::Content(content) => {
                if let Some(opened) = &mut self.opened_with {
                    opened.content = Some(content.clone());
                }
                // The newest there is, so that a lane that fails is not taken for one whose credentials changed.
                self.wanted.content = Some(content);
            }
            Note::State(state) => self.follow(state, settings, now),
        }
    }

    fn follow(&mut self, state: State, settings: &Settings, now: Instant) {
        self.count_served(now);
        let window = self.opened_with.as_ref().map_or(Duration::ZERO, |opened| opened.limits.broker_window);
        let by = match state {
            State::Redialling => now + window + settings.open_timeout,
            State::Opening => now + settings.open_timeout,
            State::Standby | State::Serving | State::Closing | State::Closed => now + settings.close_timeout,
        };
        let before = self.slot.state();
        self.slot.follow(state, now, by);
        let is_said = self.reopen.is_none() && self.fault.is_none() && !self.is_leaving && !self.is_drained;
        match state {
            State::Opening => {}
            State::Redialling if is_said => self.say("its connection ended, dialling again"),
            State::Standby => {
                (self.is_through, self.was_attempted) = (true, true);
                let holder = self.slot.task().and_then(|run| run.watch.details.borrow().lease_holder.clone());
                if is_said {
                    self.say(&format!("the lease is held by {}", holder.as_deref().unwrap_or("another daemon")));
                }
            }
            State::Serving => {
                (self.is_through, self.was_attempted, self.has_served) = (true, true, true);
                if is_said {
                    self.say("the lease is held and everything is bound");
                }
            }
            State::Closing | State::Closed if is_said && before != self.slot.state() => self.say("it ends"),
            State::Redialling | State::Closing | State::Closed => {}
        }
    }

    /// Asks its task to end; without one it just waits.
    pub(crate) fn close(&mut self, settings: &Settings, now: Instant, reason: &str) {
        self.count_served(now);
        self.trial = Trial::None;
        self.slot.close(now + settings.close_timeout);
        self.say(reason);
    }

    /// Acts on what has taken too long.
    pub(crate) fn check(&mut self, settings: &Settings, now: Instant) -> Option<Overdue> {
        let overdue = self.slot.check(now, now + settings.close_timeout, now + settings.abort_timeout)?;
        match overdue {
            Overdue::Open => {
                let waited_ms = u64::try_from(settings.open_timeout.as_millis()).unwrap_or(u64::MAX);
                let what = if self.is_through { "the redial" } else { "the opening of the lane" }.to_owned();
                let fault = Fault::new(&self.spec.space, FaultKind::Unanswered { what, waited_ms });
                self.say(&text(&fault));
                self.fault = Some(fault);
                self.was_attempted = true;
            }
            Overdue::Close => {
                let reason =
                    format!("it did not close within {} ms and was aborted", settings.close_timeout.as_millis());
                self.say(&reason);
                let fault = || Fault::new(&self.spec.space, FaultKind::PartEnded { part: "lane", reason });
                self.fault = Some(self.fault.take().unwrap_or_else(fault));
            }
            Overdue::Abort => {
                self.say("wedged: its task runs on after an abort, so nothing may be opened in its place");
                self.was_attempted = true;
            }
        }
        Some(overdue)
    }

    /// Decides after its task was joined.
    pub(crate) fn ended(&mut self, ended: Ended, settings: &Settings, now: Instant) -> After {
        self.count_served(now);
        let was_asked = self.slot.task().is_some_and(|run| run.stop.is_cancelled());
        if let Some(run) = self.slot.ended() {
            self.meter.close(&run.watch);
        }
        self.was_attempted = true;
        self.trial = Trial::None;
        if self.served >= settings.curve.settle {
            self.attempt = 0;
        }
        if self.is_leaving {
            return After::Leaves;
        }
        let fault = self.fault.take().or_else(|| self.fault_of(ended, was_asked));
        if let Some(fault) = &fault {
            self.note_fault(fault);
        }
        if self.is_drained {
            self.say("drained");
        } else if let Some(why) = self.reopen.take() {
            self.start_over();
            self.wait_for(now, &why);
        } else if self.opened_with.as_ref().is_some_and(|was| was.breaks_with(&self.wanted).is_some()) {
            self.start_over();
            self.wait_for(now, "what it is opened with changed");
        } else if let Some(fault) = fault {
            self.fall(&fault, settings, now);
        } else {
            // A lane that was asked to end and is wanted again.
            self.wait_for(now, "opening again");
        }
        After::Stays
    }

    /// The fault in an end, if there is one.
    fn fault_of(&self, ended: Ended, was_asked: bool) -> Option<Fault> {
        let part_ended =
            |reason: String| Some(Fault::new(&self.spec.space, FaultKind::PartEnded { part: "lane", reason }));
        match ended {
            Ended::Returned(Err(fault)) => Some(fault),
            Ended::Returned(Ok(())) if was_asked => None,
            Ended::Returned(Ok(())) => part_ended("without an error".to_owned()),
            Ended::Panicked(text) => part_ended(text),
            Ended::Aborted => None,
        }
    }

    /// Waits or parks after a fault, by its fate.
    fn fall(&mut self, fault: &Fault, settings: &Settings, now: Instant) {
        let reason = text(fault);
        match self.backoff.after(&settings.curve, fault.fate(), self.served, &mut rand::rng()) {
            Pause::After(pause) => {
                tracing::warn!(space = %self.spec.space, code = fault.code(), %fault, attempt = self.attempt,
                    pause_ms = pause.as_millis(), "lane ended, it is opened again");
                self.wait_for(now + pause, &reason);
            }
            Pause::UntilChanged => {
                tracing::error!(space = %self.spec.space, code = fault.code(), %fault,
                    "lane is parked until its credentials or the manifest change");
                self.slot.park();
                self.is_unread = matches!(fault.kind, FaultKind::CredentialUnreadable { .. });
                self.say(&reason);
            }
        }
    }

    /// Forgets its failures, because something was changed.
    pub(crate) fn start_over(&mut self) {
        self.backoff.reset();
        self.attempt = 0;
    }

    /// Opens at `due`, where it has no task.
    pub(crate) fn wait_for(&mut self, due: Instant, reason: &str) {
        self.slot.wait_until(Some(due));
        self.say(reason);
    }

    pub(crate) fn note_fault(&mut self, fault: &Fault) {
        self.last_fault =
            Some(FaultStatus { code: fault.code().to_owned(), text: fault.kind.to_string(), at_ms: epoch_ms() });
    }

    /// Says why it is where it is.
    pub(crate) fn say(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
        self.note_state();
    }

    /// Remembers since when it is in its state.
    pub(crate) fn note_state(&mut self) {
        let state = self.slot.state();
        if self.state_noted != state {
            (self.state_noted, self.since_ms) = (state, epoch_ms());
        }
    }

    fn count_served(&mut self, now: Instant) {
        if let Slot::Serving { since, .. } = &mut self.slot {
            self.served += now.saturating_duration_since(*since);
            *since = now;
        }
    }
}

/// A fault as a reason: the space is known from the row it stands in.
pub(crate) fn text(fault: &Fault) -> String {
    format!("{} [{}]", fault.kind, fault.code())
}

/// Milliseconds since the epoch.
pub(crate) fn epoch_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
