//! When to look at the manifest again, and who waits for it.
//!
//! Owns the debounce, the poll and the one looker. It must not read anything itself.

use tokio::{sync::oneshot, time::Instant};

use super::{settings::Settings, status::Outcome};
use crate::reload::Looker;

/// Somebody who asked for a reload.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) may_mass_close: bool,
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
}

/// The state of looking.
pub(crate) struct LookState {
    /// Whether changes are noticed at once.
    pub(crate) is_watching: bool,
    looker: Option<Looker>,
    due: Option<Instant>,
    touched_first: Option<Instant>,
    /// Who asked before the look that is under way, and after it began.
    asked: Vec<Asker>,
    served: Vec<Asker>,
}

impl LookState {
    /// Due at once.
    pub(crate) fn new(looker: Looker, now: Instant) -> Self {
        Self {
            is_watching: false,
            looker: Some(looker),
            due: Some(now),
            touched_first: None,
            asked: Vec::new(),
            served: Vec::new(),
        }
    }

    /// Something changed: due when it has been quiet for a moment.
    pub(crate) fn touch(&mut self, settings: &Settings, now: Instant) {
        let first = *self.touched_first.get_or_insert(now);
        let quiet = (now + settings.debounce).min(first + settings.debounce_cap);
        // Who asked is not put off.
        self.due = if self.asked.is_empty() { Some(quiet) } else { self.due };
    }

    /// Somebody asks: due at once.
    pub(crate) fn ask(&mut self, asker: Asker, now: Instant) {
        self.asked.push(asker);
        self.due = Some(now);
    }

    /// When the next look is due; never while one is under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.looker.as_ref().and(self.due)
    }

    /// Begins a look where one is due.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<Looker> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        (self.due, self.touched_first) = (None, None);
        self.served = std::mem::take(&mut self.asked);
        self.looker.take()
    }

    /// A look came back; the next one is due with the poll, or as soon as something changed meanwhile.
    pub(crate) fn end(&mut self, looker: Looker, settings: &Settings, now: Instant) -> Vec<Asker> {
        self.looker = Some(looker);
        let poll = now + settings.poll;
        self.due = Some(self.due.map_or(poll, |due| due.min(poll)));
        std::mem::take(&mut self.served)
    }

    /// The look was lost: look again at once.
    pub(crate) fn replace(&mut self, looker: Looker, now: Instant) {
        self.looker = Some(looker);
        self.asked.append(&mut self.served);
        self.due = Some(now);
    }
}
