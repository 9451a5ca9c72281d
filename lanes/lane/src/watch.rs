//! What others may see of a lane while it runs, and the one thing they may change: its limits.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::watch;

use crate::{config::Limits, counters::Counters};

/// Where a lane is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Reading, connecting, verifying, claiming, binding.
    Opening,
    /// Connected and verified; another daemon holds the lease.
    Standby,
    /// Lease held and ready, everything bound.
    Serving,
    /// The connection ended; trying to reach the broker again.
    Redialling,
    /// Stopping and handing back.
    Closing,
    /// Every task joined, every handle dropped.
    Closed,
}

/// Facts about a lane, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The lease revision last owned.
    pub lease_revision: Option<u64>,
    /// Who holds the lease, where it is not this lane.
    pub lease_holder: Option<String>,
    /// `exp` of the delivery credential in use, seconds since the epoch.
    pub credential_expires_at_s: Option<u64>,
    /// SHA-256 of the JWT in use, hex.
    pub credential_fingerprint: Option<String>,
    /// The broker connected to.
    pub connected_to: Option<String>,
    /// Open connections.
    pub connections: u32,
    /// The id of this run.
    pub incarnation: Option<String>,
}

/// What lies between taken and settled right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Posts taken from CHAT and not settled.
    pub posts_in_hand: u64,
    /// Entries taken from INBOX and not settled.
    pub entries_in_hand: u64,
    /// Copies that wait for room in a member's store.
    pub waiting_copies: u64,
}

/// A lane seen from outside. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The state.
    pub state: watch::Receiver<State>,
    /// The details.
    pub details: watch::Receiver<Details>,
    /// What fan-out did.
    pub fan_out: Arc<Counters>,
    /// What the reader did.
    pub reader: Arc<Counters>,
    limits: Arc<watch::Sender<Limits>>,
}

impl Watch {
    /// Changes the limits; the lane keeps its connection.
    pub fn retune(&self, limits: Limits) {
        self.limits.send_replace(limits);
    }

    /// What is in hand right now.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let waiting = |counters: &Counters| counters.waiting.load(Ordering::Relaxed);
        Backlog {
            posts_in_hand: self.fan_out.in_hand.load(Ordering::Relaxed),
            entries_in_hand: self.reader.in_hand.load(Ordering::Relaxed),
            waiting_copies: waiting(&self.fan_out) + waiting(&self.reader),
        }
    }
}

/// The lane's end of [`Watch`].
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) state: watch::Sender<State>,
    pub(crate) details: watch::Sender<Details>,
    pub(crate) fan_out: Arc<Counters>,
    pub(crate) reader: Arc<Counters>,
    pub(crate) limits: watch::Receiver<Limits>,
}

/// The two ends.
pub(crate) fn pair(limits: Limits) -> (Shown, Watch) {
    let (state, state_seen) = watch::channel(State::Opening);
    let (details, details_seen) = watch::channel(Details::default());
    let (set, limits) = watch::channel(limits);
    let (fan_out, reader) = (Arc::<Counters>::default(), Arc::<Counters>::default());
    let watch = Watch {
        state: state_seen,
        details: details_seen,
        fan_out: Arc::clone(&fan_out),
        reader: Arc::clone(&reader),
        limits: Arc::new(set),
    };
    (Shown { state, details, fan_out, reader, limits }, watch)
}
