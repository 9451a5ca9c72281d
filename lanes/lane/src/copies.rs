//! Copies on their way into a member's store: pipelined, bounded, in order for each member.
//!
//! Owns the queue of copies that wait for the broker's window or for a member's room, and the confirmations. A member
//! without room never holds up another. It must not decide who gets a copy.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use async_nats::{
    HeaderMap,
    jetstream::{Context, context::PublishErrorKind, message::PublishMessage},
};
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lanekeeper_wire::{FRAME_HEADER, FRAME_VERSION, Lifecycle, Space, entry::suppression_key, subject};

use crate::{
    counters::Counters,
    fault::FaultKind,
    link::Link,
    permit::Permit,
    rooms::{Room, Rooms},
};

/// How many copies of one stage may ever be sent and not yet confirmed.
pub(crate) const MAX_IN_FLIGHT: usize = 8192;

/// One warning for so many copies that overflow a full store.
const SHORTFALL_LOGGED: u64 = 100;

/// Which of a member's two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// The mixed, pre-authorisation store.
    Inbox,
    /// The authorised copies.
    Dlv,
}

/// One copy for one member.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    /// Whose.
    pub to: Lifecycle,
    /// The post's sequence in CHAT.
    pub seq: u64,
    /// The serialised entry or frame.
    pub payload: Bytes,
}

/// A copy that the broker has stored, or had stored before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The item the copy belongs to.
    pub item: u64,
    /// Whose it is.
    pub to: Lifecycle,
    /// Whether an earlier copy under the same suppression key was there already.
    pub duplicate: bool,
}

type Confirmation = BoxFuture<'static, (u64, Lifecycle, Result<bool, FaultKind>)>;

/// The outgoing side of one stage.
pub(crate) struct Copies {
    pipeline: Context,
    space: Space,
    store: Store,
    chat_created_ns: i128,
    permit: Permit,
    rooms: Arc<Rooms>,
    counters: Arc<Counters>,
    queue: VecDeque<(u64, Copy)>,
    waiting: HashMap<Lifecycle, VecDeque<(u64, Copy)>>,
    waiting_count: usize,
    in_flight: FuturesUnordered<Confirmation>,
    max_in_flight: usize,
}

impl Copies {
    /// An empty queue into `store`.
    #[must_use]
    pub(crate) fn new(
        link: &Link,
        space: &Space,
        store: Store,
        chat_created_ns: i128,
        permit: Permit,
        rooms: Arc<Rooms>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            pipeline: link.pipeline(MAX_IN_FLIGHT),
            space: space.clone(),
            store,
            chat_created_ns,
            permit,
            rooms,
            counters,
            queue: VecDeque::new(),
            waiting: HashMap::new(),
            waiting_count: 0,
            in_flight: FuturesUnordered::new(),
            max_in_flight: MAX_IN_FLIGHT / 2,
        }
    }

    /// Changes how many copies may be unconfirmed.
    pub(crate) fn set_max_in_flight(&mut self, max_in_flight: usize) {
        self.max_in_flight = max_in_flight.clamp(1, MAX_IN_FLIGHT);
    }

    /// Queues one copy that belongs to `item`.
    pub(crate) fn offer(&mut self, item: u64, copy: Copy) {
        self.queue.push_back((item, copy));
    }

    /// True when more work can be taken on.
    #[must_use]
    pub(crate) fn has_capacity(&self) -> bool {
        self.queue.is_empty() && self.in_flight.len() < self.max_in_flight
    }

    /// How many copies wait for room in a member's store.
    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_count
    }

    /// True while confirmations are outstanding.
    #[must_use]
    pub(crate) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Sends what the window, the permit and the members' room allow.
    ///
    /// # Errors
    /// The connection's end or a refused publish.
    pub(crate) async fn pump(&mut self) -> Result<(), FaultKind> {
        while self.in_flight.len() < self.max_in_flight && self.permit.is_live() {
            let Some((item, copy)) = self.queue.pop_front() else { return Ok(()) };
            if let Some(behind) = self.waiting.get_mut(&copy.to) {
                behind.push_back((item, copy));
                self.waiting_count += 1;
                continue;
            }
            match self.rooms.take(&copy.to, false) {
                Room::Taken => self.send(item, copy).await?,
                Room::Overfull => {
                    self.note_overfull(&copy.to);
                    self.send(item, copy).await?;
                }
                Room::Full => {
                    self.waiting_count += 1;
                    self.waiting.entry(copy.to.clone()).or_default().push_back((item, copy));
                }
            }
        }
        Ok(())
    }

    /// Sends what waited for room and has it now; with `force`, everything that waits.
    ///
    /// # Errors
    /// As [`Copies::pump`].
    pub(crate) async fn pump_waiting(&mut self, force: bool) -> Result<(), FaultKind> {
        let members: Vec<Lifecycle> = self.waiting.keys().cloned().collect();
        for member in members {
            while self.in_flight.len() < self.max_in_flight && self.permit.is_live() {
                match self.rooms.take(&member, force) {
                    Room::Taken => {}
                    Room::Overfull => self.note_overfull(&member),
                    Room::Full => break,
                }
                let Some(queue) = self.waiting.get_mut(&member) else { break };
                let Some((item, copy)) = queue.pop_front() else { break };
                let emptied = queue.is_empty();
                self.waiting_count -= 1;
                if emptied {
                    self.waiting.remove(&member);
                }
                self.send(item, copy).await?;
                if emptied {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A copy goes into a full store that nobody reads: counted, and said once for each hundred.
    fn note_overfull(&mut self, member: &Lifecycle) {
        let before = self.counters.shortfall.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(SHORTFALL_LOGGED) {
            tracing::warn!(
                space = %self.space, %member, store = ?self.store, shortfall = before + 1,
                "store is full and not read, the broker discards its oldest copies"
            );
        }
    }

    async fn send(&mut self, item: u64, copy: Copy) -> Result<(), FaultKind> {
        let key = suppression_key(self.chat_created_ns, copy.seq, &copy.to);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", key.as_str());
        let subject = match self.store {
            Store::Inbox => subject::dinbox(&self.space, &copy.to),
            Store::Dlv => {
                headers.insert(FRAME_HEADER, FRAME_VERSION);
                subject::dlv(&self.space, &copy.to)
            }
        };
        let message = PublishMessage::build().headers(headers).payload(copy.payload);
        let sent = self.pipeline.send_publish(subject.clone(), message).await;
        let confirmation = sent.map_err(|error| refusal(&subject, &error))?;
        let to = copy.to;
        self.in_flight.push(Box::pin(async move {
            let result = confirmation.await.map(|ack| ack.duplicate).map_err(|error| refusal(&subject, &error));
            (item, to, result)
        }));
        Ok(())
    }

    /// The next confirmation; pending for ever while none is outstanding. Cancel safe.
    ///
    /// # Errors
    /// A publish that was refused or got no answer: its fate is unknown, so the stage starts over on a new link and sends
    /// it again under the same suppression key.
    pub(crate) async fn confirmed(&mut self) -> Result<Stored, FaultKind> {
        match self.in_flight.next().await {
            Some((item, to, Ok(duplicate))) => {
                self.rooms.stored(&to, duplicate);
                Ok(Stored { item, to, duplicate })
            }
            Some((_, _, Err(fault))) => Err(fault),
            None => std::future::pending().await,
        }
    }
}

fn refusal(subject: &str, error: &async_nats::jetstream::context::PublishError) -> FaultKind {
    match error.kind() {
        PublishErrorKind::TimedOut => crate::link::unanswered(subject, crate::link::COPY_PATIENCE),
        PublishErrorKind::BrokenPipe => FaultKind::Disconnected,
        // Nobody answers for the stream: a broker that is stopping closes JetStream before its connections.
        PublishErrorKind::StreamNotFound => crate::link::unanswered(subject, std::time::Duration::ZERO),
        // The stream has no leader, or is still storing an earlier attempt at the same copy: it passes by itself.
        PublishErrorKind::Other if is_passing(error) => crate::link::unanswered(subject, std::time::Duration::ZERO),
        PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded
        | PublishErrorKind::Other => {
            FaultKind::Refused { what: format!("the copy on `{subject}`"), reason: error.to_string() }
        }
    }
}

/// True where the broker's answer says "not now".
fn is_passing(error: &async_nats::jetstream::context::PublishError) -> bool {
    /// A message with the same id is being stored at this moment.
    const SAME_ID_IN_PROCESS: u64 = 10158;
    let answer =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>());
    answer.is_some_and(|answer| answer.code() == 503 || answer.error_code().0 == SAME_ID_IN_PROCESS)
}
