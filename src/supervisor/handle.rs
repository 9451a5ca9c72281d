//! The way to a running supervisor: nudges, orders, and what it shows.
//!
//! Owns the commands. A nudge carries no data; an order names a space and is answered once it is carried out or refused.

use std::sync::Arc;

use lanekeeper_wire::Space;
use tokio::sync::{mpsc, oneshot, watch};

use super::status::{HostStatus, Outcome};

/// Something that may have changed: go and look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nudge {
    /// A file event; more of them may follow at once.
    Files,
    /// Somebody asked, so that what was refused is tried again.
    Asked,
}

/// What an operator can have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Drain,
    Undrain,
    Reopen,
    Unpark,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderFault {
    /// No lane of this name.
    #[error("no lane serves space `{0}` here: it is not in the manifest, or disabled")]
    Unknown(Space),
    /// It is handed over.
    #[error("the lane of space `{0}` is drained; undrain it")]
    Drained(Space),
    /// It closes for good.
    #[error("the lane of space `{0}` is about to close for good")]
    Leaving(Space),
    /// Its task cannot be ended.
    #[error(
        "the lane of space `{0}` is wedged: its old task runs on, so nothing may be opened in its place; restart the process"
    )]
    Wedged(Space),
    /// There is nothing to unpark.
    #[error("the lane of space `{0}` is not parked; reopen it")]
    NotParked(Space),
    /// The host stops.
    #[error("the host is stopping")]
    Stopping,
}

#[derive(Debug)]
pub(crate) enum Command {
    Nudge(Nudge),
    Reload { may_mass_close: bool, reply: oneshot::Sender<Outcome> },
    Order { order: Order, space: Option<Space>, reply: oneshot::Sender<Result<Vec<Space>, OrderFault>> },
    Ping(oneshot::Sender<()>),
}

/// How a supervisor ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Lanes that could not be closed.
    pub wedged: Vec<Space>,
    /// True where the loop itself ended by a panic.
    pub is_broken: bool,
}

/// The way to a running supervisor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) shown: watch::Receiver<Arc<HostStatus>>,
    pub(crate) stopped: watch::Receiver<Option<Stopped>>,
}

impl Handle {
    /// Says that something may have changed. Never waits: where the queue is full a look is due anyway.
    pub fn nudge(&self, nudge: Nudge) {
        let _ = self.commands.try_send(Command::Nudge(nudge));
    }

    /// Reads the manifest now and waits until what it asks for is settled: every preflight answered, every closed lane
    /// gone. Lanes that open are not waited for. `may_mass_close` lets it close more than half of the serving lanes.
    pub async fn reload(&self, may_mass_close: bool) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Reload { may_mass_close, reply }).await;
        let answer = if sent.is_ok() { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| Outcome {
            refused: vec![("host".to_owned(), OrderFault::Stopping.to_string())],
            settled: true,
            ..Outcome::default()
        })
    }

    /// False once the supervisor has ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    /// The newest snapshot, at most about a second old.
    #[must_use]
    pub fn status(&self) -> Arc<HostStatus> {
        Arc::clone(&self.shown.borrow())
    }

    /// The snapshots as they come.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<Arc<HostStatus>> {
        self.shown.clone()
    }

    /// Hands a lane over, or all of them: each is closed gracefully and stays closed until it is undrained or the host
    /// starts again. Answers when the stops have begun, with the lanes concerned.
    ///
    /// # Errors
    /// See [`OrderFault`].
    pub async fn drain(&self, space: Option<Space>) -> Result<Vec<Space>, OrderFault> {
        self.order(Order::Drain, space).await
    }

    /// Takes part again with a lane, or with all of them.
    ///
    /// # Errors
    /// See [`OrderFault`].
    pub async fn undrain(&self, space: Option<Space>) -> Result<Vec<Space>, OrderFault> {
        self.order(Order::Undrain, space).await
    }

    /// Closes a lane gracefully and opens it again; one that waits or is parked opens at once.
    ///
    /// # Errors
    /// See [`OrderFault`].
    pub async fn reopen(&self, space: Space) -> Result<(), OrderFault> {
        self.order(Order::Reopen, Some(space)).await.map(drop)
    }

    /// Tries a parked lane again.
    ///
    /// # Errors
    /// See [`OrderFault`].
    pub async fn unpark(&self, space: Space) -> Result<(), OrderFault> {
        self.order(Order::Unpark, Some(space)).await.map(drop)
    }

    /// Waits for an answer of the loop: it is alive.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn ping(&self) -> Result<(), OrderFault> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Ping(reply)).await.map_err(|_| OrderFault::Stopping)?;
        answer.await.map_err(|_| OrderFault::Stopping)
    }

    /// Waits until the supervisor has ended, which it does when its token is cancelled and every lane is closed.
    pub async fn stopped(&self) -> Stopped {
        let mut stopped = self.stopped.clone();
        let ended = stopped.wait_for(Option::is_some).await.ok().and_then(|stopped| stopped.clone());
        ended.unwrap_or(Stopped { wedged: Vec::new(), is_broken: true })
    }

    async fn order(&self, order: Order, space: Option<Space>) -> Result<Vec<Space>, OrderFault> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Order { order, space, reply }).await.map_err(|_| OrderFault::Stopping)?;
        answer.await.map_err(|_| OrderFault::Stopping)?
    }
}
