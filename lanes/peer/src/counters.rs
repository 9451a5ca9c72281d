//! Owns the counts a member keeps of its own traffic. Plain relaxed counters: nothing may be decided from them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Live counters, shared by the tasks of one member.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) live_received: AtomicU64,
    pub(crate) live_refused: AtomicU64,
    pub(crate) durable_received: AtomicU64,
    pub(crate) durable_terminated: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    pub(crate) slow_consumer_events: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) pulls: AtomicU64,
}

/// The counts of one member at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CounterSnapshot {
    /// Live copies that passed their checks (own posts are not counted).
    pub live_received: u64,
    /// Live messages refused: malformed, untrusted owner, or a sender that is not the subject's.
    pub live_refused: u64,
    /// Durable copies that passed their checks.
    pub durable_received: u64,
    /// Entries of the hand-over stream terminated: no frame header, or not parsable.
    pub durable_terminated: u64,
    /// Copies not surfaced because their post already was.
    pub coalesced: u64,
    /// Times the client reported a live subscription as too slow (at least one message lost each).
    pub slow_consumer_events: u64,
    /// Times the connection was established, the first included.
    pub connects: u64,
    /// Pull requests sent for durable copies.
    pub pulls: u64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            live_received: read(&self.live_received),
            live_refused: read(&self.live_refused),
            durable_received: read(&self.durable_received),
            durable_terminated: read(&self.durable_terminated),
            coalesced: read(&self.coalesced),
            slow_consumer_events: read(&self.slow_consumer_events),
            connects: read(&self.connects),
            pulls: read(&self.pulls),
        }
    }
}
