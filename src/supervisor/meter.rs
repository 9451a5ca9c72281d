//! What a lane did over all its openings, and how fast it goes.
//!
//! Owns the sums and the average. It must not reset a counter: a lane starts each life at nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lanekeeper_lane::{Counters, Watch};
use tokio::time::Instant;

use super::status::{CountersStatus, RatesStatus, StageStatus};

/// Over how long a rate is averaged.
const AVERAGED_OVER: Duration = Duration::from_secs(5);
/// Rates below this are nothing; an average never gets there by itself.
const NOTHING_PER_S: f64 = 0.01;

/// One lane's figures.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    past: CountersStatus,
    sampled: Option<(Instant, CountersStatus)>,
    rates: RatesStatus,
}

impl Meter {
    /// What was done since the host started.
    pub(crate) fn total(&self, watch: Option<&Watch>) -> CountersStatus {
        match watch {
            Some(watch) => self.past + CountersStatus { fan_out: read(&watch.fan_out), reader: read(&watch.reader) },
            None => self.past,
        }
    }

    /// Takes over what a run did.
    pub(crate) fn close(&mut self, watch: &Watch) {
        self.past = self.total(Some(watch));
    }

    /// How fast it goes.
    pub(crate) fn rates(&self) -> RatesStatus {
        self.rates
    }

    /// Measures again.
    pub(crate) fn sample(&mut self, watch: Option<&Watch>, now: Instant) {
        let total = self.total(watch);
        if let Some((at, before)) = self.sampled {
            let passed_s = now.saturating_duration_since(at).as_secs_f64();
            if passed_s <= 0.0 {
                return;
            }
            let weight = 1.0 - (-passed_s / AVERAGED_OVER.as_secs_f64()).exp();
            let average = |was: f64, before: u64, is: u64| {
                #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
                let now_per_s = is.saturating_sub(before) as f64 / passed_s;
                let rate = was + (now_per_s - was) * weight;
                if rate < NOTHING_PER_S { 0.0 } else { (rate * 100.0).round() / 100.0 }
            };
            self.rates = RatesStatus {
                posts_per_s: average(self.rates.posts_per_s, before.fan_out.taken, total.fan_out.taken),
                copies_per_s: average(self.rates.copies_per_s, before.reader.stored, total.reader.stored),
            };
        }
        self.sampled = Some((now, total));
    }
}

fn read(counters: &Counters) -> StageStatus {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    StageStatus {
        taken: get(&counters.taken),
        stored: get(&counters.stored),
        duplicates: get(&counters.duplicates),
        dropped: get(&counters.dropped),
        terminated: get(&counters.terminated),
        deferred: get(&counters.deferred),
        shortfall: get(&counters.shortfall),
    }
}
