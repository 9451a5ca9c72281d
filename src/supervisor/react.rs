//! What the loop does when something came back or was asked for.
//!
//! Owns the reactions. Each concerns the seats it names and no other.

use lanekeeper_lane::Fault;
use lanekeeper_wire::Space;
use tokio::time::Instant;

use super::{
    handle::{Command, Nudge, Order, OrderFault},
    host::Host,
    launch::{Ended, Note},
    look::Asker,
    plan::Definition,
    seat::{After, Refusal, Seat, Trial, text},
    slot::{Overdue, Slot},
};

impl Host {
    pub(crate) fn on_note(&mut self, space: &Space, generation: u64, note: Note) {
        // A task that was joined may have left a note behind.
        let seat = self.seats.get_mut(space);
        if let Some(seat) = seat.filter(|seat| seat.slot.task().is_some_and(|run| run.generation == generation)) {
            seat.hear(note, &self.settings, Instant::now());
        }
    }

    pub(crate) fn on_ended(&mut self, space: &Space, generation: u64, ended: Ended) {
        let Some(seat) = self.seats.get_mut(space) else { return };
        if seat.slot.task().is_none_or(|run| run.generation != generation) {
            return;
        }
        let was_wedged = seat.slot.is_wedged();
        if was_wedged {
            tracing::warn!(%space, "its wedged task ended after all");
        }
        let now = Instant::now();
        match seat.ended(ended, &self.settings, now) {
            After::Leaves => {
                tracing::info!(%space, "closed for good");
                self.seats.remove(space);
            }
            After::Stays => {
                // Nothing is opened any more.
                if self.is_stopping {
                    seat.slot.wait_until(None);
                    seat.say("the host is stopping");
                }
            }
        }
        self.report.gone(space);
        self.report.not_tried(space);
    }

    pub(crate) fn on_tried(&mut self, space: &Space, tried: &Definition, result: Result<(), Fault>) {
        let Some(seat) = self.seats.get_mut(space) else { return };
        // What is wanted may have changed meanwhile; then another proof is due or none is needed.
        let Trial::Running(definition, reason) = &seat.trial else { return };
        if definition != tried || self.is_stopping {
            return;
        }
        let (reason, now) = (reason.clone(), Instant::now());
        seat.trial = Trial::None;
        match result {
            Ok(()) => {
                tracing::info!(%space, %reason, "preflight passed, reopening");
                seat.refusal = None;
                seat.reopen(&self.settings, now, &reason);
                self.report.tried(space, None);
            }
            Err(fault) => {
                let why = text(&fault);
                tracing::warn!(%space, code = fault.code(), %fault, %reason, "preflight refused, the lane goes on as it was");
                let pause = super::backoff::jittered(self.settings.curve.slow, &mut rand::rng());
                seat.refusal = Some(Refusal { definition: tried.clone(), retry_at: now + pause });
                seat.note_fault(&fault);
                seat.say(&format!("goes on as it was, {reason} but refused: {why}"));
                self.report.tried(space, Some(why));
            }
        }
    }

    /// Acts on every slot that has taken too long.
    pub(crate) fn check_seats(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            let Some(overdue) = seat.check(&self.settings, now) else { continue };
            let space = seat.space();
            match overdue {
                Overdue::Open => tracing::warn!(%space, "it did not open in time and is asked to end"),
                Overdue::Close => {
                    tracing::warn!(%space, "it did not close in time and is aborted");
                    self.report.forced(space);
                }
                Overdue::Abort => {
                    tracing::error!(%space, "its task runs on after an abort, the slot is parked as wedged");
                    self.report.gone(space);
                }
            }
        }
    }

    pub(crate) fn on_command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Nudge(Nudge::Files) => self.look.touch(&self.settings, now),
            Command::Nudge(Nudge::Asked) => self.look.ask(Asker { may_mass_close: false, reply: None }, now),
            // Dropping the reply says that the host is stopping.
            Command::Reload { .. } if self.is_stopping => {}
            Command::Reload { may_mass_close, reply } => {
                self.look.ask(Asker { may_mass_close, reply: Some(reply) }, now);
            }
            Command::Order { order, space, reply } => {
                let result = self.order(order, space, now);
                // What is shown after an answer must not be older than the answer.
                self.show(now);
                // Whoever asked may be gone.
                let _ = reply.send(result);
            }
            Command::Ping(reply) => drop(reply.send(())),
        }
    }

    fn order(&mut self, order: Order, space: Option<Space>, now: Instant) -> Result<Vec<Space>, OrderFault> {
        if self.is_stopping {
            return Err(OrderFault::Stopping);
        }
        tracing::info!(?order, space = space.as_ref().map(Space::as_str), "ordered");
        match space {
            Some(space) => {
                let seat = self.seats.get_mut(&space).ok_or_else(|| OrderFault::Unknown(space.clone()))?;
                obey(seat, order, &self.settings, now)?;
                Ok(vec![space])
            }
            None => {
                match order {
                    Order::Drain => self.is_draining = true,
                    Order::Undrain => self.is_draining = false,
                    Order::Reopen | Order::Unpark => {}
                }
                // What cannot be done with one lane must not keep the others from it.
                let obeyed = self
                    .seats
                    .values_mut()
                    .filter_map(|seat| obey(seat, order, &self.settings, now).is_ok().then(|| seat.space().clone()));
                Ok(obeyed.collect())
            }
        }
    }
}

fn obey(seat: &mut Seat, order: Order, settings: &super::settings::Settings, now: Instant) -> Result<(), OrderFault> {
    let space = || seat.space().clone();
    if seat.is_leaving {
        return Err(OrderFault::Leaving(space()));
    }
    if seat.slot.is_wedged() {
        return Err(OrderFault::Wedged(space()));
    }
    match order {
        Order::Drain => seat.drain(settings, now),
        Order::Undrain => seat.undrain(now),
        Order::Reopen | Order::Unpark if seat.is_drained => return Err(OrderFault::Drained(space())),
        Order::Reopen => seat.reopen(settings, now, "asked for by an operator"),
        Order::Unpark => match seat.slot {
            Slot::Parked { .. } | Slot::Waiting { .. } => seat.reopen(settings, now, "asked for by an operator"),
            Slot::Opening { .. } | Slot::Standby { .. } | Slot::Serving { .. } | Slot::Closing { .. } => {
                return Err(OrderFault::NotParked(space()));
            }
        },
    }
    Ok(())
}
