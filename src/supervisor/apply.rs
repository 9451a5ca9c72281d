//! From a look to slots: plan, guard, apply, and say what was done.
//!
//! Owns `whole or nothing`: a manifest that is not valid, or that would close too much, changes nothing, and what runs is
//! then compared with itself, so that a credential can still be rotated. It must not wait.

use std::collections::{BTreeMap, BTreeSet};

use lanekeeper_wire::Space;
use tokio::time::Instant;

use super::{
    host::{Event, Host},
    look::Asker,
    plan::{Action, Definition, Plan, Step, Wanted},
    seat::{Seat, Trial, epoch_ms},
    slot::Slot,
    status::Outcome,
};
use crate::{
    config::Faults,
    manifest::{Manifest, SpaceSpec},
    reload::{Looked, Looker, is_readable},
};

impl Host {
    /// Starts a look where one is due.
    pub(crate) fn look_if_due(&mut self, now: Instant) {
        let Some(mut looker) = self.look.begin(now) else { return };
        let known = self.known_dirs();
        self.tasks.spawn(async move {
            let looked = looker.look(known).await;
            Event::Looked(Box::new((looker, looked)))
        });
    }

    pub(crate) fn on_looked(&mut self, (looker, looked): (Looker, Looked)) {
        let askers = self.look.end(looker, &self.settings, Instant::now());
        if self.is_stopping {
            return;
        }
        self.look.is_watching = looked.is_watching;
        self.contents.extend(looked.contents);
        match looked.manifest {
            Ok(manifest) => self.adopt(&manifest, askers),
            Err(faults) => self.refuse_faults(&faults, askers),
        }
        self.read_again();
        let known = self.known_dirs();
        self.contents.retain(|dir, _| known.contains(dir));
    }

    /// A store that hung, or a file that could not be opened, is not given up: what can be read now is tried again, with
    /// each look at most once.
    fn read_again(&mut self) {
        let now = Instant::now();
        let is_back =
            |seat: &Seat| self.contents.get(&seat.spec.credentials).is_some_and(|content| is_readable(content));
        for seat in self.seats.values_mut().filter(|seat| seat.is_unread && is_back(seat)) {
            if matches!(seat.slot, Slot::Parked { .. }) {
                seat.wait_for(now, "its credentials can be read again");
            }
        }
    }

    fn refuse_faults(&mut self, faults: &Faults, askers: Vec<Asker>) {
        let place =
            |fault: &crate::config::ConfigFault| format!("{}:{}:{}", fault.file.display(), fault.line, fault.column);
        let refused: Vec<_> = faults.0.iter().map(|fault| (place(fault), fault.message.clone())).collect();
        let outcome = Outcome { plan: "nothing: the manifest is not valid".to_owned(), refused, ..self.outcome("") };
        self.refuse(outcome, askers);
    }

    /// Keeps everything as it is; what runs can still get a new credential.
    fn refuse(&mut self, outcome: Outcome, askers: Vec<Asker>) {
        let try_refused = !askers.is_empty();
        let is_same = |last: &Outcome| !last.applied && last.refused == outcome.refused && last.hash == outcome.hash;
        let is_repeated = self.report.last.as_ref().is_some_and(is_same);
        if !is_repeated || try_refused {
            for (place, reason) in &outcome.refused {
                tracing::error!(%place, %reason, "manifest refused, every lane stays as it is");
            }
            self.report.begin(outcome, BTreeSet::new(), BTreeSet::new(), replies(askers));
        }
        let specs = self.seats.values().filter(|seat| !seat.is_leaving).map(|seat| &seat.spec);
        let wanted = self.wanted(specs, BTreeSet::new(), try_refused);
        let plan = Plan::build(&wanted, &self.actual());
        if !plan.is_empty() {
            self.generation += 1;
            tracing::info!(generation = self.generation, %plan, "credentials changed");
        }
        self.carry_out(&plan, &wanted.spaces, &BTreeMap::new());
    }

    fn adopt(&mut self, manifest: &Manifest, askers: Vec<Asker>) {
        let enabled = manifest.spaces.values().filter(|spec| spec.enabled);
        let disabled = manifest.spaces.values().filter(|spec| !spec.enabled).map(|spec| spec.space.clone()).collect();
        let wanted = self.wanted(enabled, disabled, !askers.is_empty());
        let plan = Plan::build(&wanted, &self.actual());
        let may_mass_close = manifest.allow_mass_close || askers.iter().any(|asker| asker.may_mass_close);
        if plan.is_mass_close() && !may_mass_close {
            let reason = format!(
                "it would close {} of {} serving lanes; set `allow_mass_close = true` in it or run `lanekeeper reload --allow-mass-close`",
                plan.closing_serving, plan.serving
            );
            let place = self.settings.manifest_path.display().to_string();
            let refused = vec![(place, reason)];
            return self.refuse(Outcome { plan: plan.to_string(), refused, ..self.outcome(&manifest.hash) }, askers);
        }
        let is_new = self.hash.as_ref() != Some(&manifest.hash);
        let was_refused = self.report.last.as_ref().is_some_and(|last| !last.applied);
        if !is_new && plan.is_empty() && !was_refused && askers.is_empty() {
            // Nothing to say; but what was refused may be wanted no more.
            return self.carry_out(&plan, &wanted.spaces, &manifest.spaces);
        }
        if is_new || !plan.is_empty() {
            self.generation += 1;
        }
        self.hash = Some(manifest.hash.clone());
        let outcome = Outcome {
            applied: true,
            opened: plan.spaces(Action::Open),
            closed: plan.spaces(Action::Close),
            reopened: plan.spaces(Action::Reopen),
            retuned: plan.spaces(Action::Retune),
            unchanged: plan.unchanged,
            plan: plan.to_string(),
            ..self.outcome(&manifest.hash)
        };
        tracing::info!(generation = outcome.generation, hash = %outcome.hash, %plan, "manifest applied");
        // What is being proven already is waited for as well.
        let tried = self.seats.iter().filter(|(_, seat)| !matches!(seat.trial, Trial::None));
        let trying = tried.map(|(space, _)| space.clone()).chain(plan.spaces(Action::Preflight)).collect();
        let closing = plan.spaces(Action::Close).into_iter().collect();
        self.report.begin(outcome, trying, closing, replies(askers));
        self.carry_out(&plan, &wanted.spaces, &manifest.spaces);
    }

    /// What is wanted of these spaces, with what their credential directories hold.
    fn wanted<'a>(
        &self,
        specs: impl Iterator<Item = &'a SpaceSpec>,
        disabled: BTreeSet<Space>,
        try_refused: bool,
    ) -> Wanted {
        let definition = |spec: &SpaceSpec| Definition {
            credentials: spec.credentials.clone(),
            content: self.contents.get(&spec.credentials).cloned(),
            servers: spec.servers.clone(),
            limits: spec.limits,
        };
        let spaces = specs.map(|spec| (spec.space.clone(), definition(spec))).collect();
        Wanted { spaces, disabled, try_refused }
    }

    fn actual(&self) -> BTreeMap<Space, super::plan::Actual> {
        self.seats.iter().map(|(space, seat)| (space.clone(), seat.actual())).collect()
    }

    /// Applies the steps, then takes up what changes without one.
    fn carry_out(&mut self, plan: &Plan, wanted: &BTreeMap<Space, Definition>, specs: &BTreeMap<Space, SpaceSpec>) {
        let now = Instant::now();
        for (space, definition) in wanted {
            if let Some(seat) = self.seats.get_mut(space) {
                let known = definition.content.clone().or_else(|| seat.wanted.content.take());
                seat.wanted = Definition { content: known, ..definition.clone() };
                if let Some(spec) = specs.get(space) {
                    seat.spec = spec.clone();
                }
                // What goes back to what runs needs no proof any more.
                if seat.opened_with.as_ref().is_some_and(|was| was.breaks_with(&seat.wanted).is_none()) {
                    seat.forget_trial();
                    self.report.not_tried(space);
                }
            }
        }
        for step in &plan.steps {
            self.carry_out_step(step, wanted, specs, now);
        }
    }

    fn carry_out_step(
        &mut self,
        step: &Step,
        wanted: &BTreeMap<Space, Definition>,
        specs: &BTreeMap<Space, SpaceSpec>,
        now: Instant,
    ) {
        let Some(seat) = self.seats.get_mut(&step.space) else {
            if let (Action::Open, Some(spec), Some(definition)) =
                (step.action, specs.get(&step.space), wanted.get(&step.space))
            {
                let mut seat = Seat::new(spec.clone(), definition.clone(), &self.settings, now);
                if self.is_draining {
                    seat.drain(&self.settings, now);
                }
                self.seats.insert(step.space.clone(), seat);
            }
            return;
        };
        match step.action {
            // Its old task is joined first; then the slot is free and it opens.
            Action::Open => seat.come_back(now, &step.reason),
            Action::Retune => seat.retune(),
            Action::Preflight => seat.trial = Trial::Due(step.reason.clone()),
            Action::Reopen => seat.reopen(&self.settings, now, &step.reason),
            Action::Close => {
                seat.leave(&self.settings, now, &step.reason);
                if seat.slot.task().is_none() {
                    self.seats.remove(&step.space);
                    self.report.gone(&step.space);
                } else if seat.slot.is_wedged() {
                    self.report.gone(&step.space);
                }
            }
        }
    }

    /// Proves what was refused once more when its time has come.
    pub(crate) fn try_again(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            let is_established =
                matches!(seat.slot, Slot::Standby { .. } | Slot::Serving { .. }) || seat.is_redialling();
            let is_time = seat.refusal.as_ref().is_some_and(|refusal| refusal.retry_at <= now);
            if is_time {
                seat.refusal = None;
                if is_established && matches!(seat.trial, Trial::None) {
                    seat.trial = Trial::Due("refused before".to_owned());
                }
            }
        }
    }

    fn outcome(&self, hash: &str) -> Outcome {
        Outcome { generation: self.generation, hash: hash.to_owned(), at_ms: epoch_ms(), ..Outcome::default() }
    }

    /// Says that the last reload is done, where it is.
    pub(crate) fn settle_report(&mut self, now: Instant) {
        if !self.report.settle() {
            return;
        }
        if let Some(outcome) = self.report.last.as_ref().filter(|outcome| outcome.applied) {
            for (space, reason) in &outcome.refused {
                tracing::warn!(%space, %reason, "refused, it goes on as it was");
            }
            tracing::info!(
                generation = outcome.generation,
                opened = outcome.opened.len(),
                closed = outcome.closed.len(),
                reopened = outcome.reopened.len(),
                retuned = outcome.retuned.len(),
                unchanged = outcome.unchanged,
                forced = outcome.forced.len(),
                refused = outcome.refused.len(),
                "manifest settled"
            );
        }
        // What is shown after an answer must not be older than the answer.
        self.show(now);
        self.report.answer();
    }
}

fn replies(askers: Vec<Asker>) -> Vec<tokio::sync::oneshot::Sender<Outcome>> {
    askers.into_iter().filter_map(|asker| asker.reply).collect()
}
