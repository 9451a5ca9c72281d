//! Owns the delay between attempts: capped exponential with jitter, and nothing else. It must not sleep itself, so that
//! every wait stays next to the stop signal it races with.

use std::time::Duration;

/// First delay of a series, before jitter.
const BASE_MS: u64 = 150;

/// A series of delays that doubles up to a cap. Each delay is drawn from its upper half, so that members which failed
/// together do not come back together, and none comes back at once.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    attempt: u32,
    cap: Duration,
}

impl Backoff {
    /// A fresh series that never waits longer than `cap`.
    pub(crate) fn new(cap: Duration) -> Self {
        Self { attempt: 0, cap }
    }

    /// Changes the cap without losing the place in the series.
    pub(crate) fn set_cap(&mut self, cap: Duration) {
        self.cap = cap;
    }

    /// Back to the first step, after something worked.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The next delay.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = delay_at(self.attempt, self.cap, rand::random_range(0.0..1.0));
        self.attempt = self.attempt.saturating_add(1);
        delay
    }
}

/// The delay of one step: `fraction` in `0.0..1.0` places it inside the upper half of the step.
fn delay_at(attempt: u32, cap: Duration, fraction: f64) -> Duration {
    // 2^20 steps of the base are beyond any cap in use; the bound only keeps the shift defined.
    let full = Duration::from_millis(BASE_MS.saturating_mul(1 << attempt.min(20))).min(cap);
    full / 2 + (full / 2).mul_f64(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_above_the_cap_nor_below_half_a_step(attempt in any::<u32>(), cap_ms in 1u64..60_000, fraction in 0.0f64..1.0) {
            let cap = Duration::from_millis(cap_ms);
            let delay = delay_at(attempt, cap, fraction);
            let floor = Duration::from_millis(BASE_MS).min(cap) / 2;
            prop_assert!(delay <= cap);
            prop_assert!(delay >= floor);
        }
    }

    #[test]
    fn grows_until_the_cap_and_starts_over() {
        let cap = Duration::from_secs(2);
        let mut series = Backoff::new(cap);
        let delays: Vec<_> = (0..8).map(|_| series.next_delay()).collect();
        assert!(delays[0] <= Duration::from_millis(BASE_MS));
        assert!(delays[7] >= cap / 2, "the series never reached its cap: {delays:?}");
        series.reset();
        assert!(series.next_delay() <= Duration::from_millis(BASE_MS));
    }
}
