//! What the admin server asks of whoever runs the lanes.
//!
//! Owns the seam: a look and orders as plain functions, so that the server knows no supervisor. It must not interpret.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use lanekeeper_wire::Space;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::supervisor::status::{HostStatus, Outcome};

/// How long the supervisor may take to say that it is there. Long, since a starved process is not a dead one.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// What can be ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Read the manifest now and apply it.
    Reload {
        /// Even if more than half of the serving lanes are closed by it.
        allow_mass_close: bool,
    },
    /// Close the lane and open it again.
    Reopen(Space),
    /// Try the lane again although it is parked.
    Unpark(Space),
    /// Hand the lane over, or all of them.
    Drain(Option<Space>),
    /// Let the lane take part again, or all of them.
    Undrain(Option<Space>),
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was taken, by these lanes.
    Taken(Vec<Space>),
    /// The manifest was read; whether it was applied stands in there.
    Reloaded(Box<Outcome>),
    /// There is no lane of this space.
    NoLane(Space),
    /// It cannot be done now; why, and what to do.
    Refused(String),
    /// The supervisor is gone.
    Gone,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// What, why and what to do, in one line.
    pub error: String,
    /// The reload it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<Outcome>>,
}

impl Refusal {
    /// A refusal that is about no reload.
    #[must_use]
    pub fn new(error: String) -> Self {
        Self { error, outcome: None }
    }
}

type Look = dyn Fn() -> Option<Arc<HostStatus>> + Send + Sync;
type Ping = dyn Fn() -> BoxFuture<'static, bool> + Send + Sync;
type Take = dyn Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync;

/// A look and orders.
#[derive(Clone)]
pub struct Desk {
    look: Arc<Look>,
    ping: Arc<Ping>,
    take: Arc<Take>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Desk {
    /// `look` gives the state, or nothing where nobody keeps it up to date any more; `ping` says whether somebody does, now;
    /// `take` takes an order.
    pub fn new(
        look: impl Fn() -> Option<Arc<HostStatus>> + Send + Sync + 'static,
        ping: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static,
        take: impl Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self { look: Arc::new(look), ping: Arc::new(ping), take: Arc::new(take) }
    }

    /// The state; `None` where the supervisor is gone.
    #[must_use]
    pub fn look(&self) -> Option<Arc<HostStatus>> {
        (self.look)()
    }

    /// The state, from a supervisor that has just answered: a state that nobody keeps up to date would look well for ever.
    pub async fn live(&self) -> Option<Arc<HostStatus>> {
        let answered = timeout(PING_PATIENCE, (self.ping)()).await.unwrap_or(false);
        if answered { self.look() } else { None }
    }

    /// Gives an order.
    pub async fn take(&self, order: Order) -> Answer {
        (self.take)(order).await
    }
}
