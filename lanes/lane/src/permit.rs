//! The right to act: held while the lease is known to be ours, looked at where an effect leaves the process.
//!
//! Owns the instant until which the lane may write. It must not know how the lease is kept.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

/// The lease part's end: grants and withdraws.
#[derive(Debug)]
pub(crate) struct Grantor(watch::Sender<Option<Instant>>);

/// The other parts' end: asks before each effect.
#[derive(Debug, Clone)]
pub(crate) struct Permit(watch::Receiver<Option<Instant>>);

/// A pair that starts without a grant.
#[must_use]
pub(crate) fn permit() -> (Grantor, Permit) {
    let (sender, receiver) = watch::channel(None);
    (Grantor(sender), Permit(receiver))
}

impl Grantor {
    /// Lets the lane act until `until`.
    pub(crate) fn grant(&self, until: Instant) {
        self.0.send_replace(Some(until));
    }

    /// Withdraws the permit at once: the lane goes quiet.
    pub(crate) fn withdraw(&self) {
        self.0.send_replace(None);
    }
}

impl Permit {
    /// True while effects are allowed.
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        (*self.0.borrow()).is_some_and(|until| Instant::now() < until)
    }

    /// Waits until effects are allowed. Cancel safe. Never returns once the grantor is gone.
    pub(crate) async fn live(&mut self) {
        while !self.is_live() {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// How much of the lease's life is left unused, so that a clock that runs slow here never outlives the broker's.
#[must_use]
pub(crate) fn safety_margin(lease_ttl: Duration) -> Duration {
    lease_ttl / 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_grant_ends_by_itself_and_by_withdrawal() {
        let (grantor, permit) = permit();
        assert!(!permit.is_live());
        grantor.grant(Instant::now() + Duration::from_secs(2));
        assert!(permit.is_live());
        tokio::time::advance(Duration::from_millis(1999)).await;
        assert!(permit.is_live());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!permit.is_live());
        grantor.grant(Instant::now() + Duration::from_secs(2));
        assert!(permit.is_live());
        grantor.withdraw();
        assert!(!permit.is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_grant() {
        let (grantor, mut permit) = permit();
        let waiter = tokio::spawn(async move { permit.live().await });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        grantor.grant(Instant::now() + Duration::from_secs(1));
        waiter.await.unwrap();
    }
}
