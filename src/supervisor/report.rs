//! What became of the last manifest, while parts of it are still under way.
//!
//! Owns the outcome and who waits for it. It must not decide what is done.

use std::collections::BTreeSet;

use lanekeeper_wire::Space;
use tokio::sync::oneshot;

use super::status::Outcome;

/// The last outcome, and what it still waits for.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The outcome as far as it is known.
    pub(crate) last: Option<Outcome>,
    /// Manifests applied since the start.
    pub(crate) applied: u64,
    /// Manifests refused since the start.
    pub(crate) refused: u64,
    trying: BTreeSet<Space>,
    closing: BTreeSet<Space>,
    waiting: Vec<oneshot::Sender<Outcome>>,
}

impl Report {
    /// A new outcome. Whoever waits for the one before gets that as it is.
    pub(crate) fn begin(
        &mut self,
        outcome: Outcome,
        trying: BTreeSet<Space>,
        closing: BTreeSet<Space>,
        waiting: Vec<oneshot::Sender<Outcome>>,
    ) {
        self.answer();
        if outcome.applied {
            self.applied += 1;
        } else {
            self.refused += 1;
        }
        self.last = Some(outcome);
        (self.trying, self.closing, self.waiting) = (trying, closing, waiting);
    }

    /// A preflight has answered; `refused` is why not.
    pub(crate) fn tried(&mut self, space: &Space, refused: Option<String>) {
        let Some(outcome) = self.last.as_mut().filter(|_| self.trying.remove(space)) else { return };
        match refused {
            Some(reason) => outcome.refused.push((space.to_string(), reason)),
            None => outcome.reopened.push(space.clone()),
        }
    }

    /// A preflight was given up.
    pub(crate) fn not_tried(&mut self, space: &Space) {
        self.trying.remove(space);
    }

    /// A lane had to be aborted.
    pub(crate) fn forced(&mut self, space: &Space) {
        if let Some(outcome) = self.last.as_mut().filter(|_| self.closing.contains(space))
            && !outcome.forced.contains(space)
        {
            outcome.forced.push(space.clone());
        }
    }

    /// A lane is gone, or given up for wedged.
    pub(crate) fn gone(&mut self, space: &Space) {
        self.closing.remove(space);
    }

    /// Marks the outcome settled, once, when the last thing was done.
    pub(crate) fn settle(&mut self) -> bool {
        let is_done = self.trying.is_empty() && self.closing.is_empty();
        match self.last.as_mut().filter(|outcome| is_done && !outcome.settled) {
            Some(outcome) => {
                outcome.settled = true;
                true
            }
            None => false,
        }
    }

    /// Answers whoever waits with what is known.
    pub(crate) fn answer(&mut self) {
        for reply in std::mem::take(&mut self.waiting) {
            // Whoever asked may be gone.
            let _ = reply.send(self.last.clone().unwrap_or_default());
        }
    }
}
