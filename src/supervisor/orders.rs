//! What can be asked of one seat.
//!
//! Owns the moves that a plan or an operator makes. Each works in every state of the slot; none starts a task.

use std::time::Duration;

use lanekeeper_lane::{Fault, FaultKind};
use lanekeeper_wire::Space;
use tokio::time::Instant;

use super::{
    seat::{Seat, Trial},
    settings::Settings,
    slot::Slot,
};

/// How long a proof on a throw-away connection may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(15);

impl Seat {
    /// Closes for good.
    pub(crate) fn leave(&mut self, settings: &Settings, now: Instant, reason: &str) {
        self.is_leaving = true;
        self.refusal = None;
        self.close(settings, now, reason);
    }

    /// Is wanted again before it was gone.
    pub(crate) fn come_back(&mut self, now: Instant, reason: &str) {
        self.is_leaving = false;
        self.start_over();
        if self.is_drained {
            return;
        }
        if self.slot.task().is_some() {
            self.reopen = Some(reason.to_owned());
            self.say("it is back in the manifest and opens when its old task has ended");
        } else {
            self.wait_for(now, reason);
        }
    }

    /// Closes where it runs, and opens anew.
    pub(crate) fn reopen(&mut self, settings: &Settings, now: Instant, reason: &str) {
        self.start_over();
        self.trial = Trial::None;
        if self.slot.task().is_some() {
            self.reopen = Some(reason.to_owned());
            self.close(settings, now, &format!("reopening: {reason}"));
        } else {
            self.wait_for(now, reason);
        }
    }

    /// Applies the wanted limits to the running lane.
    pub(crate) fn retune(&mut self) {
        let limits = self.wanted.limits;
        if let Some(run) = self.slot.task() {
            run.watch.retune(limits);
        }
        if let Some(opened) = &mut self.opened_with {
            opened.limits = limits;
        }
    }

    /// Hands the lane over for maintenance.
    pub(crate) fn drain(&mut self, settings: &Settings, now: Instant) {
        self.is_drained = true;
        self.reopen = None;
        self.close(settings, now, "drained");
    }

    /// Takes part again.
    pub(crate) fn undrain(&mut self, now: Instant) {
        if !std::mem::take(&mut self.is_drained) {
            return;
        }
        self.start_over();
        if self.slot.task().is_some() {
            self.reopen = Some("undrained".to_owned());
        } else {
            self.wait_for(now, "undrained");
        }
    }

    /// Gives a proof up that is not needed any more.
    pub(crate) fn forget_trial(&mut self) {
        self.trial = Trial::None;
        if self.refusal.take().is_some() {
            self.say("what was refused is not wanted any more");
        }
    }

    /// True while its lane, once through, dials again.
    pub(crate) fn is_redialling(&self) -> bool {
        self.is_through && matches!(self.slot, Slot::Opening { .. })
    }

    /// How long its proof may take.
    pub(crate) fn trial_bound(&self) -> Duration {
        TRIAL_TIMEOUT
    }

    /// What a proof that took too long comes to.
    pub(crate) fn trial_timeout(space: &Space, bound: Duration) -> Fault {
        let waited_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        Fault::new(space, FaultKind::Unanswered { what: "the preflight".to_owned(), waited_ms })
    }
}
