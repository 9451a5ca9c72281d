//! Which posts were judged lately: what a new membership row came too late for.
//!
//! Owns a bounded memory of sequences and channels. Pure.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use lanekeeper_wire::{Channel, ChannelPattern};

/// How many judged posts are remembered. A join looks back over the posts between two of its own requests, so this is
/// seconds of the fastest traffic.
pub(super) const REMEMBERED: usize = 65_536;

/// The memory.
#[derive(Debug)]
pub(crate) struct Judged(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    ring: VecDeque<(u64, Channel)>,
    /// Everything judged above this sequence is in the ring.
    forgotten_to: u64,
    /// The highest sequence judged.
    highest: u64,
    limit: usize,
}

/// The posts a row came too late for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Exactly these sequences, ascending.
    Exactly(Vec<u64>),
    /// Too long ago: the memory no longer covers it.
    Unknown,
}

impl Default for Judged {
    fn default() -> Self {
        Self::with_limit(REMEMBERED)
    }
}

impl Judged {
    fn with_limit(limit: usize) -> Self {
        Self(Mutex::new(Inner { ring: VecDeque::new(), forgotten_to: 0, highest: 0, limit }))
    }

    /// Remembers one post.
    pub(crate) fn note(&self, seq: u64, channel: &Channel) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.ring.len() == inner.limit
            && let Some((oldest, _)) = inner.ring.pop_front()
        {
            inner.forgotten_to = inner.forgotten_to.max(oldest);
        }
        inner.ring.push_back((seq, channel.clone()));
        inner.highest = inner.highest.max(seq);
    }

    /// The highest sequence judged so far: nothing above it can have been released.
    #[must_use]
    pub(crate) fn highest(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).highest
    }

    /// The posts above `cursor` on `pattern` that were judged so far.
    #[must_use]
    pub(crate) fn missed(&self, cursor: u64, pattern: &ChannelPattern) -> Missed {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor < inner.forgotten_to {
            return Missed::Unknown;
        }
        let above = inner.ring.iter().filter(|(seq, channel)| *seq > cursor && pattern.covers(channel));
        let mut missed: Vec<u64> = above.map(|(seq, _)| *seq).collect();
        missed.sort_unstable();
        missed.dedup();
        Missed::Exactly(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_channels_own_posts_above_the_cursor_are_missed() {
        let judged = Judged::default();
        let (a, b): (Channel, Channel) = ("team.a".parse().unwrap(), "team.b".parse().unwrap());
        for (seq, channel) in [(5, &a), (6, &b), (8, &a), (7, &a), (8, &a)] {
            judged.note(seq, channel);
        }
        assert_eq!(judged.missed(5, &a.to_pattern()), Missed::Exactly(vec![7, 8]));
        assert_eq!(judged.missed(8, &a.to_pattern()), Missed::Exactly(vec![]));
        assert_eq!(judged.missed(4, &"team.>".parse().unwrap()), Missed::Exactly(vec![5, 6, 7, 8]));
    }

    #[test]
    fn what_was_forgotten_is_not_guessed() {
        let judged = Judged::with_limit(2);
        let channel: Channel = "a".parse().unwrap();
        for seq in 1..=4 {
            judged.note(seq, &channel);
        }
        assert_eq!(judged.missed(1, &channel.to_pattern()), Missed::Unknown);
        assert_eq!(judged.missed(2, &channel.to_pattern()), Missed::Exactly(vec![3, 4]));
    }
}
