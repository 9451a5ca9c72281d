//! What the admin server asks of whoever runs the lanes.
//!
//! Owns the seam: a look and orders as plain functions, so that the server knows no supervisor. It must not interpret.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use lanekeeper_wire::Space;
use serde::{Deserialize, Serialize};

use crate::supervisor::status::{HostStatus, Outcome};

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
    /// It was taken.
    Taken,
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
type Take = dyn Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync;

/// A look and orders.
#[derive(Clone)]
pub struct Desk {
    look: Arc<Look>,
    take: Arc<Take>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Desk {
    /// `look` gives the state, or nothing where nobody keeps it up to date any more; `take` takes an order.
    pub fn new(
        look: impl Fn() -> Option<Arc<HostStatus>> + Send + Sync + 'static,
        take: impl Fn(Order) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self { look: Arc::new(look), take: Arc::new(take) }
    }

    /// The state; `None` where the supervisor is gone.
    #[must_use]
    pub fn look(&self) -> Option<Arc<HostStatus>> {
        (self.look)()
    }

    /// Gives an order.
    pub async fn take(&self, order: Order) -> Answer {
        (self.take)(order).await
    }
}
