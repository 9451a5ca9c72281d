//! What a stage counts, for status and telemetry. Owns the numbers; it must not interpret them.

use std::sync::atomic::AtomicU64;

/// What one stage has done since the lane opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Deliveries taken.
    pub taken: AtomicU64,
    /// Copies stored, duplicates not counted.
    pub stored: AtomicU64,
    /// Copies the broker had already.
    pub duplicates: AtomicU64,
    /// Deliveries dropped because nobody may have them.
    pub dropped: AtomicU64,
    /// Deliveries terminated as malformed.
    pub terminated: AtomicU64,
    /// Deliveries put off.
    pub deferred: AtomicU64,
    /// Copies put into a full store that nobody reads: the broker discarded an older one for each.
    pub shortfall: AtomicU64,
    /// Deliveries between taken and settled right now.
    pub in_hand: AtomicU64,
    /// Copies that wait for room in a member's store right now.
    pub waiting: AtomicU64,
}
