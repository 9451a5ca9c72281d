//! Owns one member: its connection, its tasks, and their common end. What the member can do is spread over the other
//! files; here is only what holds it together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_wire::{Lifecycle, Plane, Principal, Space, subject};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::ask::ask;
use crate::control::Caller;
use crate::counters::CounterSnapshot;
use crate::durable::{Binding, DurableTask};
use crate::incoming::Incoming;
use crate::link::{ConnectError, Link};
use crate::membership::{Memberships, keep_durable};
use crate::messages::Messages;
use crate::options::{Mode, PeerOptions};
use crate::presence::{Presence, PresenceError, Status, heartbeat};
use crate::probe::Probe;
use crate::violations::Violation;

/// Saying goodbye must not hold up a member whose broker is gone.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);
/// Every task watches the stop signal, so this is generous.
const TASKS_LIMIT: Duration = Duration::from_secs(5);
/// How long the connection may take to end, a dial that is under way included.
const LINK_LIMIT: Duration = Duration::from_secs(5);

/// One connected member of a space.
///
/// Dropping it stops everything like a crash would: no goodbye, nothing acknowledged. [`Peer::close`] is the orderly
/// way.
#[derive(Debug)]
pub struct Peer {
    core: Arc<Core>,
    /// Upgrades while the connection lives; then the queue ends with the last task that fills it.
    queue: mpsc::WeakSender<Incoming>,
    messages: Mutex<Option<Messages>>,
    binding: watch::Receiver<Binding>,
    tasks: TaskTracker,
}

/// What the member's calls and its tasks share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) link: Arc<Link>,
    pub(crate) options: PeerOptions,
    pub(crate) memberships: Memberships,
    pub(crate) presence: Arc<Presence>,
    pub(crate) stop: CancellationToken,
}

impl Core {
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { principal: self.options.lifecycle.principal(), name: &self.options.name }
    }
}

/// Why a member did not end cleanly. It is stopped nevertheless, and dials no longer authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// A task did not end in time.
    #[error("{left} tasks of the member did not end in time")]
    Tasks {
        /// How many were left.
        left: usize,
    },
    /// The client was still there, dialling most likely; it ends with its last allowed dial.
    #[error("the member's connection did not end in time: it is most likely still dialling")]
    Link,
}

impl Peer {
    /// Connects a member, starts its presence, and binds its hand-over consumer in the background.
    ///
    /// # Errors
    /// [`ConnectError`]: the credential, the URL, or the broker.
    pub async fn connect(options: PeerOptions) -> Result<Self, ConnectError> {
        let link = Arc::new(Box::pin(Link::connect(&options)).await?);
        let presence = Presence::new(&options.space, &options.lifecycle, &options.name, options.role.clone());
        let core = Arc::new(Core {
            memberships: Memberships::default(),
            presence: Arc::new(presence),
            stop: CancellationToken::new(),
            link,
            options,
        });
        let (queue, received) = mpsc::channel(core.options.queue_capacity.max(1));
        let window = match core.options.mode {
            Mode::Coalesced => Some(core.options.coalesce_window),
            Mode::Raw => None,
        };
        let messages = Messages::new(received, window, Arc::clone(&core.link.counters));
        let (binding_tx, binding) = watch::channel(Binding::Unbound { reason: "not tried yet".to_owned() });
        let (messages, tasks) = (Mutex::new(Some(messages)), TaskTracker::new());
        let peer = Self { core, queue: queue.downgrade(), messages, binding, tasks };
        peer.start(queue, binding_tx);
        Ok(peer)
    }

    fn start(&self, queue: mpsc::Sender<Incoming>, binding: watch::Sender<Binding>) {
        let core = &self.core;
        if let Some(every) = core.options.presence_interval {
            let (presence, link) = (Arc::clone(&core.presence), Arc::clone(&core.link));
            self.tasks.spawn(heartbeat(presence, link, every, core.stop.clone()));
        }
        if core.options.receive_durable {
            let task = DurableTask {
                link: Arc::clone(&core.link),
                space: core.options.space.clone(),
                lifecycle: core.options.lifecycle.clone(),
                batch: core.options.pull_batch,
                queue: queue.clone(),
                binding,
                stop: core.stop.clone(),
            };
            self.tasks.spawn(task.run());
        }
        if core.options.retry_durable {
            self.tasks.spawn(keep_durable(Arc::clone(core)));
        }
        let (stop, ended) = (core.stop.clone(), core.link.ended.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = ended.cancelled() => {}
            }
            drop(queue);
        });
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.core.options.space
    }

    /// Who the member is.
    pub fn principal(&self) -> &Principal {
        self.core.options.lifecycle.principal()
    }

    /// Who the member is, and in which incarnation.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.core.options.lifecycle
    }

    /// What the member was connected with.
    pub fn options(&self) -> &PeerOptions {
        &self.core.options
    }

    /// Everything the member receives. `Some` on the first call only: there is one receiver.
    pub fn messages(&self) -> Option<Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What the broker refused this member, oldest first; the last 256.
    pub fn violations(&self) -> Vec<Violation> {
        self.core.link.violations.snapshot()
    }

    /// The member's own counts.
    pub fn counters(&self) -> CounterSnapshot {
        self.core.link.counters.snapshot()
    }

    /// Whether the connection is up at this moment.
    pub fn is_connected(&self) -> bool {
        self.core.link.is_connected()
    }

    /// Whether the connection has ended for good: the client used up its reconnects. Connect a new member then.
    pub fn is_cut_off(&self) -> bool {
        self.core.link.ended.is_cancelled()
    }

    /// Drops the connection and dials again, as after a broken network.
    ///
    /// # Errors
    /// `false` if the connection has ended for good.
    pub async fn force_reconnect(&self) -> bool {
        self.core.link.client.force_reconnect().await.is_ok()
    }

    /// The state of the hand-over consumer.
    pub fn binding(&self) -> Binding {
        self.binding.borrow().clone()
    }

    /// Waits until the hand-over consumer is bound, refused, or `limit` has passed; the state then.
    pub async fn wait_bound(&self, limit: Duration) -> Binding {
        let mut binding = self.binding.clone();
        let settled = binding.wait_for(|binding| !matches!(binding, Binding::Unbound { .. }));
        // A time-out or an ended task leaves the state as it is, and that is the answer.
        let _ = tokio::time::timeout(limit, settled).await.is_ok();
        self.binding()
    }

    /// Says what the member is doing; written at once and with every later heartbeat.
    ///
    /// # Errors
    /// [`PresenceError`] if this write failed; the next heartbeat says the same.
    pub async fn set_status(&self, status: Status, activity: Option<&str>) -> Result<(), PresenceError> {
        self.core.presence.set(status, activity);
        self.core.presence.write(&self.core.link).await
    }

    /// Asks whether somebody serves a plane. Never says more than it found out.
    pub async fn probe(&self, plane: Plane) -> Probe {
        let subject = subject::live(self.space(), plane, self.principal());
        let outcome = ask(&self.core.link, &subject, bytes::Bytes::new(), self.core.options.probe_timeout).await;
        Probe::read(plane, outcome)
    }

    /// Says goodbye, ends every task, and ends the connection. Handles of copies that were handed out are of no use
    /// afterwards.
    ///
    /// # Errors
    /// [`CloseError`] if something did not end within its bound.
    pub async fn close(self) -> Result<(), CloseError> {
        if self.core.options.presence_interval.is_some() && self.is_connected() {
            self.core.presence.set(Status::Offline, None);
            // Lost with the broker, and then the key expires by itself.
            let goodbye = tokio::time::timeout(GOODBYE_LIMIT, self.core.presence.write(&self.core.link)).await;
            debug!(member = %self.lifecycle(), written = matches!(goodbye, Ok(Ok(()))), "said goodbye");
        }
        self.core.stop.cancel();
        self.tasks.close();
        let stopped = tokio::time::timeout(TASKS_LIMIT, self.tasks.wait()).await.is_ok();
        let ended = self.core.link.end(LINK_LIMIT).await;
        match (stopped, ended) {
            (false, _) => Err(CloseError::Tasks { left: self.tasks.len() }),
            (true, false) => Err(CloseError::Link),
            (true, true) => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.core.link
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        self.core.caller()
    }

    /// `None` once the connection has ended.
    pub(crate) fn queue(&self) -> Option<mpsc::Sender<Incoming>> {
        self.queue.upgrade()
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.core.stop.cancel();
    }
}
