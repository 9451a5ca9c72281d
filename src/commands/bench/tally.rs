//! What one member received: each post's count, its order, its latency. Pure.

use super::stamp::Stamp;

/// One member's receipts.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Vec<u8>,
    /// The last number of each sender; sender `i` of `n` has the numbers `i`, `i + n`, and so on.
    last: Vec<Option<usize>>,
    latencies_us: Vec<u32>,
    out_of_order: u64,
    foreign: u64,
}

impl Tally {
    /// For `posts` posts of `senders` senders.
    pub(super) fn new(posts: usize, senders: usize) -> Self {
        Self {
            counts: vec![0; posts],
            last: vec![None; senders.max(1)],
            latencies_us: Vec::with_capacity(posts),
            out_of_order: 0,
            foreign: 0,
        }
    }

    /// Counts one copy; true if it is the first of its post.
    pub(super) fn count(&mut self, stamp: Option<Stamp>, now_nanos: u64) -> bool {
        let Some((stamp, count)) = stamp.and_then(|stamp| Some((stamp, self.counts.get_mut(stamp.number)?))) else {
            self.foreign += 1;
            return false;
        };
        *count = count.saturating_add(1);
        if *count > 1 {
            return false;
        }
        let sender = stamp.number % self.last.len();
        if let Some(last) = self.last.get_mut(sender) {
            if last.is_some_and(|last| last > stamp.number) {
                self.out_of_order += 1;
            }
            *last = Some(stamp.number);
        }
        let latency_us = now_nanos.saturating_sub(stamp.sent_nanos) / 1_000;
        self.latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
        true
    }
}

/// What all members received.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Copies received, each counted once.
    pub(super) received: u64,
    /// Copies that never came.
    pub(super) lost: u64,
    /// Copies that came again.
    pub(super) duplicated: u64,
    /// Copies that came after a later post of the same sender.
    pub(super) out_of_order: u64,
    /// Messages that were no post of this run.
    pub(super) foreign: u64,
    /// Publish to receipt, microseconds, ascending.
    pub(super) latencies_us: Vec<u32>,
}

impl Totals {
    pub(super) fn of(tallies: Vec<Tally>) -> Self {
        let mut totals = Self::default();
        for tally in tallies {
            for count in tally.counts {
                match count {
                    0 => totals.lost += 1,
                    copies => {
                        totals.received += 1;
                        totals.duplicated += u64::from(copies) - 1;
                    }
                }
            }
            totals.out_of_order += tally.out_of_order;
            totals.foreign += tally.foreign;
            totals.latencies_us.extend(tally.latencies_us);
        }
        totals.latencies_us.sort_unstable();
        totals
    }

    /// The latency that `per_mille` of the copies did not exceed, milliseconds; 0 if nothing came.
    pub(super) fn latency_ms(&self, per_mille: usize) -> f64 {
        let rank = (self.latencies_us.len() * per_mille).div_ceil(1_000).max(1);
        self.latencies_us.get(rank - 1).map_or(0.0, |us| f64::from(*us) / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: usize) -> Option<Stamp> {
        Some(Stamp { number, sent_nanos: 1_000_000 })
    }

    #[test]
    fn lost_duplicated_and_reordered_copies_are_counted_apart() {
        let mut tally = Tally::new(6, 2);
        // Sender 0 has 0, 2, 4 and sender 1 has 1, 3, 5.
        for (number, is_first) in [(1, true), (0, true), (4, true), (2, true), (2, false), (2, false)] {
            assert_eq!(tally.count(stamp(number), 3_000_000), is_first);
        }
        assert!(!tally.count(None, 0));
        assert!(!tally.count(stamp(6), 0));
        let totals = Totals::of(vec![tally, Tally::new(6, 2)]);
        assert_eq!((totals.received, totals.lost, totals.duplicated), (4, 8, 2));
        assert_eq!((totals.out_of_order, totals.foreign), (1, 2));
        assert_eq!(totals.latencies_us, [2_000; 4]);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let totals = Totals { latencies_us: (1..=200).map(|ms| ms * 1_000).collect(), ..Totals::default() };
        assert_eq!((totals.latency_ms(500), totals.latency_ms(990), totals.latency_ms(1_000)), (100.0, 198.0, 200.0));
        assert_eq!(Totals::default().latency_ms(990), 0.0);
    }
}
