//! The memory of what was settled lately. Owns a bounded set of stream sequences; pure.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::stage::MAX_IN_HAND;

/// How many settled deliveries are remembered: several times what can be in hand when a connection ends.
const SETTLED_KEPT: usize = 8 * MAX_IN_HAND;

/// What was settled lately, by stream sequence: an acknowledgement may be lost with its connection, and by then a member
/// may have taken the copy, after which a broker no longer knows its suppression key.
#[derive(Debug, Default)]
pub(crate) struct Settled(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<u64>,
    known: HashSet<u64>,
}

impl Settled {
    /// Remembers one.
    pub(crate) fn note(&self, seq: u64) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.known.insert(seq) {
            return;
        }
        recent.order.push_back(seq);
        if recent.order.len() > SETTLED_KEPT
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.known.remove(&oldest);
        }
    }

    /// True if it was settled lately.
    #[must_use]
    pub(crate) fn knows(&self, seq: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.contains(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_and_the_oldest_forgotten() {
        let settled = Settled::default();
        for seq in 0..=SETTLED_KEPT as u64 {
            settled.note(seq);
            settled.note(seq);
        }
        assert!(!settled.knows(0));
        assert!(settled.knows(1) && settled.knows(SETTLED_KEPT as u64));
    }
}
