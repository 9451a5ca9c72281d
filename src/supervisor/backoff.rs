//! How long to wait before a lane is opened again.
//!
//! Owns the curve: capped exponential with full jitter, back at the first step only after a settled run. It must not know
//! the reason of a fault, only its [`Fate`].

use std::time::Duration;

use lanekeeper_lane::Fate;
use rand::{Rng, RngExt as _};

/// The least share of a pause that jitter leaves, so that no pause is nothing.
const JITTER_FLOOR: f64 = 0.1;
/// Doublings after which a pause is surely at its cap.
const MAX_DOUBLINGS: u32 = 24;

/// The shape of the pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Curve {
    /// The first pause, before jitter.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
    /// How long a lane must have served to start over at the first pause.
    pub settle: Duration,
    /// The pause where somebody has to mend something first.
    pub slow: Duration,
    /// The pause after another daemon had the lease.
    pub lease: Duration,
}

impl Default for Curve {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            cap: Duration::from_secs(30),
            settle: Duration::from_secs(30),
            slow: Duration::from_secs(30),
            lease: Duration::from_secs(2),
        }
    }
}

impl Curve {
    /// The longest pause of the `step`th failure in a row, counted from zero.
    #[must_use]
    pub fn ceiling(&self, step: u32) -> Duration {
        self.first.saturating_mul(2u32.pow(step.min(MAX_DOUBLINGS))).min(self.cap)
    }
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// This long.
    After(Duration),
    /// Until the manifest, a credential or an operator changes something.
    UntilChanged,
}

/// The failures of one lane in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// Counts a run that ended after it had served for `served`, and says what to wait for.
    pub fn after(&mut self, curve: &Curve, fate: Fate, served: Duration, rng: &mut impl Rng) -> Pause {
        if served >= curve.settle && !served.is_zero() {
            self.reset();
        }
        let ceiling = match fate {
            Fate::Backoff => curve.ceiling(self.step),
            Fate::AfterLeaseTtl => curve.lease,
            Fate::Slow => curve.slow,
            Fate::Park => return Pause::UntilChanged,
        };
        self.step = self.step.saturating_add(1);
        Pause::After(jittered(ceiling, rng))
    }

    /// Forgets the failures, because something was changed.
    pub fn reset(&mut self) {
        self.step = 0;
    }
}

/// Some part of `ceiling`, so that lanes that failed together do not come back together.
pub fn jittered(ceiling: Duration, rng: &mut impl Rng) -> Duration {
    ceiling.mul_f64(rng.random_range(JITTER_FLOOR..=1.0))
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    fn pause(backoff: &mut Backoff, fate: Fate, served: Duration) -> Duration {
        match backoff.after(&Curve::default(), fate, served, &mut rand::rng()) {
            Pause::After(pause) => pause,
            Pause::UntilChanged => panic!("no pause"),
        }
    }

    #[test]
    fn pauses_grow_and_are_capped() {
        let curve = Curve::default();
        let mut backoff = Backoff::default();
        for step in 0..100 {
            let ceiling = curve.ceiling(step);
            assert!(ceiling <= curve.cap && (step == 0 || ceiling >= curve.ceiling(step - 1)));
            let pause = pause(&mut backoff, Fate::Backoff, Duration::ZERO);
            assert!(pause <= ceiling && pause >= ceiling.mul_f64(JITTER_FLOOR), "{pause:?} at step {step}");
        }
        assert_eq!(curve.ceiling(u32::MAX), curve.cap);
    }

    #[test]
    fn only_a_settled_run_starts_over() {
        let curve = Curve::default();
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            pause(&mut backoff, Fate::Backoff, curve.settle - Duration::from_millis(1));
        }
        let least_late = curve.cap.mul_f64(JITTER_FLOOR);
        assert!(pause(&mut backoff, Fate::Backoff, curve.settle / 2) >= least_late);
        assert!(pause(&mut backoff, Fate::Backoff, curve.settle) <= curve.first);
        backoff.reset();
        assert!(pause(&mut backoff, Fate::Backoff, Duration::ZERO) <= curve.first);
    }

    #[test]
    fn the_fate_decides() {
        let curve = Curve::default();
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            assert!(pause(&mut backoff, Fate::Slow, Duration::ZERO) >= curve.slow.mul_f64(JITTER_FLOOR));
            assert!(pause(&mut backoff, Fate::AfterLeaseTtl, Duration::ZERO) <= curve.lease);
            let parked = backoff.after(&curve, Fate::Park, Duration::ZERO, &mut rand::rng());
            assert_eq!(parked, Pause::UntilChanged);
        }
    }

    #[test]
    fn lanes_that_fail_together_spread() {
        let mut pauses: Vec<_> =
            (0..100).map(|_| pause(&mut Backoff { step: 3 }, Fate::Backoff, Duration::ZERO)).collect();
        pauses.sort();
        let spread = pauses[99] - pauses[0];
        assert!(spread > Curve::default().ceiling(3) / 2, "{spread:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_failures_costs_few_attempts_and_ends_within_the_cap() {
        let (start, mut backoff, mut attempts) = (Instant::now(), Backoff::default(), 0);
        while start.elapsed() < Duration::from_secs(3600) {
            sleep(pause(&mut backoff, Fate::Backoff, Duration::ZERO)).await;
            attempts += 1;
        }
        // The mean pause at the cap is 16.5 s.
        assert!((150..400).contains(&attempts), "{attempts} attempts");
        let mended = Instant::now();
        sleep(pause(&mut backoff, Fate::Backoff, Duration::ZERO)).await;
        assert!(mended.elapsed() <= Curve::default().cap + Duration::from_millis(1));
    }
}
