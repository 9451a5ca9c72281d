//! One link's worth of a lane: everything that is bound to a connection, opened and ended as one.
//!
//! Owns the order of opening, the parts as tasks, and their joining. A late result of an old session changes nothing,
//! because every part of it is joined before the next is opened. It must not redial: [`crate::lane`] does.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use lanekeeper_wire::{FANOUT_DURABLE, READER_DURABLE, Space, StreamKind, subject};
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    catch_up::CatchUp,
    config::Limits,
    control::Control,
    copies::Store,
    counters::Counters,
    fan_out::{FanOut, Judged},
    fault::FaultKind,
    hooks,
    intake::{Delivery, Settle, settle},
    lease::Lease,
    link::Link,
    membership::Membership,
    permit::Permit,
    reader::Reader,
    registry::{REPLICATED, Registry},
    rooms::Rooms,
    settled::Settled,
    stage::{Ended, Stage},
    verify::{self, Durable, Facts, StoreFacts},
};

/// INBOX is freed by acknowledgements, which the broker handles a moment after they were sent.
const INBOX_MARGIN: u64 = 64;
/// The shortest pause between two counts of full stores.
const COUNT_PAUSE: Duration = Duration::from_millis(20);
/// The pause between two counts while nothing was freed.
const COUNT_IDLE_PAUSE: Duration = Duration::from_millis(250);

/// Parts of the subjects without which the plane does not work, and whose denial no request waits for.
const NEEDED: [&str; 6] = [".dinbox.", ".dlv.", "$JS.ACK.", "MSG.NEXT", ".ctl.delivery.", "_INBOX_"];

/// What a lane keeps from one session to the next.
pub(crate) struct Kept {
    pub(crate) space: Space,
    pub(crate) limits: watch::Receiver<Limits>,
    pub(crate) permit: Permit,
    pub(crate) judged: Arc<Judged>,
    /// Whether the posts that a dead run had in hand were taken up; once in a lane's life.
    pub(crate) recovered: bool,
    pub(crate) posts: Vec<Delivery>,
    pub(crate) entries: Vec<Delivery>,
    pub(crate) fan_out: Arc<Counters>,
    pub(crate) reader: Arc<Counters>,
    pub(crate) settled_posts: Arc<Settled>,
    pub(crate) settled_entries: Arc<Settled>,
    pub(crate) writer: String,
}

impl Kept {
    /// Hands back what nobody will go on with, so that it need not wait for its ack wait. Nothing is handed back in doubt.
    pub(crate) async fn hand_back(&mut self, link: &Link) {
        for delivery in self.posts.drain(..).chain(self.entries.drain(..)) {
            if !self.permit.is_live() || settle(link, &delivery, &Settle::Nak).await.is_err() {
                return;
            }
        }
    }
}

/// A session whose parts run.
pub(crate) struct Session {
    space: Space,
    link: Link,
    stop: CancellationToken,
    /// Stops the lease last: what the other parts hand back needs its permit.
    lease_stop: CancellationToken,
    lease_part: Option<Id>,
    parts: JoinSet<End>,
    names: HashMap<Id, &'static str>,
    /// INBOX and DLV shortfalls are read from here.
    pub(crate) rooms: [Arc<Rooms>; 2],
}

/// What tells the two stages apart.
struct Half<'a> {
    /// Where copies go.
    store: Store,
    /// The stream taken from.
    kind: StreamKind,
    /// The durable taken from.
    name: &'static str,
    /// As it was bound.
    durable: &'a Durable,
}

/// How one part ended.
enum End {
    FanOut(Ended),
    Reader(Ended),
    Lease(Box<Lease>, Result<(), FaultKind>),
    Other(&'static str, Result<(), FaultKind>),
}

/// What a session hands back once every part is joined.
pub(crate) struct Closed {
    pub(crate) lease: Option<Box<Lease>>,
    /// The first fault; `None` after a stop.
    pub(crate) fault: Option<FaultKind>,
}

impl Session {
    /// Binds everything and marks the lease ready. The lease is claimed by then; on a fault it comes back for release.
    pub(crate) async fn open(
        link: &Link,
        facts: &Facts,
        kept: &mut Kept,
        mut lease: Box<Lease>,
    ) -> Result<Self, (Box<Lease>, FaultKind)> {
        let stop = CancellationToken::new();
        let rooms = [rooms(facts.inbox, INBOX_MARGIN, true), rooms(facts.dlv, 0, facts.dlv.work_queue)];
        let mut session = Self {
            space: kept.space.clone(),
            link: link.clone(),
            stop,
            lease_stop: CancellationToken::new(),
            lease_part: None,
            parts: JoinSet::new(),
            names: HashMap::new(),
            rooms,
        };
        let opened = session.bind(facts, kept, &mut lease).await;
        match opened {
            Ok(()) => {
                session.keep_lease(lease);
                Ok(session)
            }
            Err(fault) => {
                let closed = session.close(kept).await;
                Err((lease, closed.fault.unwrap_or(fault)))
            }
        }
    }

    async fn bind(&mut self, facts: &Facts, kept: &mut Kept, lease: &mut Lease) -> Result<(), FaultKind> {
        let space = kept.space.clone();
        let registry = Registry::new(&space);
        self.spawn_denials();
        for index in 0..REPLICATED.len() {
            let watch = Arc::clone(&registry).follow(self.link.clone(), index, self.stop.clone());
            self.spawn("registry", async move { End::Other("registry", watch.await) });
        }
        tokio::select! {
            biased;
            () = registry.filled() => {}
            () = self.link.over().cancelled() => return Err(FaultKind::Disconnected),
            fault = first_fault(&mut self.parts) => return Err(fault),
        }
        // Bound before the round trips below: a refused subscription shows by the time they are answered.
        let control = Control { membership: self.membership(facts, kept, &registry) };
        let requests = control.bind().await?;
        self.count_stores(facts, &space).await?;
        let ack_wait = kept.limits.borrow().ack_wait;
        let fanout = verify::fanout(&self.link, &space, ack_wait).await?;
        let reader = verify::reader(&self.link, &space, ack_wait).await?;
        let posts = Half { store: Store::Inbox, kind: StreamKind::Chat, name: FANOUT_DURABLE, durable: &fanout };
        let judged = Arc::clone(&kept.judged);
        let judge = FanOut { space: space.clone(), registry: Arc::clone(&registry), judged };
        let fan_out = self.stage(facts, kept, &registry, judge, &posts);
        let entries = Half { store: Store::Dlv, kind: StreamKind::Inbox, name: READER_DURABLE, durable: &reader };
        let inbox_rooms = Arc::clone(&self.rooms[0]);
        let judge = Reader { space: space.clone(), registry: Arc::clone(&registry), inbox_rooms };
        let read = self.stage(facts, kept, &registry, judge, &entries);
        if !kept.recovered {
            kept.posts = crate::catch_up::inherited(&self.link, &space, &fanout).await?;
            kept.recovered = true;
        }
        let (posts, entries) = (std::mem::take(&mut kept.posts), std::mem::take(&mut kept.entries));
        self.spawn("fan_out", async move { End::FanOut(fan_out.run(posts).await) });
        self.spawn("trusted_reader", async move { End::Reader(read.run(entries).await) });
        let stop = self.stop.clone();
        self.spawn("control", async move { End::Other("control", control.run(requests, stop).await) });
        self.spawn_counter(&space);
        lease.set_ready(&self.link, true).await?;
        match self.parts.try_join_next() {
            Some(Ok(end)) => Err(fault_of(end)),
            Some(Err(error)) => Err(FaultKind::PartEnded { part: "session", reason: panic_text(error) }),
            None => Ok(()),
        }
    }

    fn stage<J>(&self, facts: &Facts, kept: &Kept, registry: &Arc<Registry>, judge: J, half: &Half<'_>) -> Stage<J> {
        let (rooms, counters, settled) = match half.store {
            Store::Inbox => (&self.rooms[0], &kept.fan_out, &kept.settled_posts),
            Store::Dlv => (&self.rooms[1], &kept.reader, &kept.settled_entries),
        };
        Stage {
            link: self.link.clone(),
            space: kept.space.clone(),
            registry: Arc::clone(registry),
            judge: Arc::new(judge),
            permit: kept.permit.clone(),
            store: half.store,
            rooms: Arc::clone(rooms),
            chat_created_ns: facts.chat_created_ns,
            stream: half.kind.name(&kept.space),
            durable: half.name,
            ack_wait: half.durable.ack_wait,
            max_in_hand: half.durable.max_in_hand,
            limits: kept.limits.clone(),
            counters: Arc::clone(counters),
            settled: Arc::clone(settled),
            stop: self.stop.clone(),
        }
    }

    fn membership(&self, facts: &Facts, kept: &Kept, registry: &Arc<Registry>) -> Membership {
        Membership {
            link: self.link.clone(),
            space: kept.space.clone(),
            registry: Arc::clone(registry),
            permit: kept.permit.clone(),
            catch_up: CatchUp {
                space: kept.space.clone(),
                judged: Arc::clone(&kept.judged),
                chat_created_ns: facts.chat_created_ns,
            },
            writer: kept.writer.clone(),
        }
    }

    fn spawn(&mut self, name: &'static str, part: impl Future<Output = End> + Send + 'static) -> Id {
        let space = self.space.clone();
        let hooked = async move {
            tokio::select! {
                biased;
                end = part => end,
                never = hooks::panic_when_asked(&space, name) => match never {},
            }
        };
        let handle = self.parts.spawn(hooked.in_current_span());
        self.names.insert(handle.id(), name);
        handle.id()
    }

    fn keep_lease(&mut self, mut lease: Box<Lease>) {
        let (link, stop) = (self.link.clone(), self.lease_stop.clone());
        let part = self.spawn("lease", async move {
            let result = lease.keep(&link, &stop).await;
            End::Lease(lease, result)
        });
        self.lease_part = Some(part);
    }

    /// A denial of a subject that the plane writes to is a fault of its own: the publish itself would only time out.
    fn spawn_denials(&mut self) {
        let (link, stop) = (self.link.clone(), self.stop.clone());
        self.spawn("denials", async move {
            let needed = |subject: &str| NEEDED.iter().any(|part| subject.contains(part));
            tokio::select! {
                biased;
                () = stop.cancelled() => End::Other("denials", Ok(())),
                fault = link.denied(needed) => End::Other("denials", Err(fault)),
            }
        });
    }

    /// Asks the broker how full a full DLV store still is: members acknowledge there without telling this lane.
    fn spawn_counter(&mut self, space: &Space) {
        let (link, stop, rooms, space) =
            (self.link.clone(), self.stop.clone(), Arc::clone(&self.rooms[1]), space.clone());
        self.spawn("dlv_rooms", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => End::Other("dlv_rooms", Ok(())),
                fault = count_full_stores(&link, &space, &rooms) => End::Other("dlv_rooms", Err(fault)),
            }
        });
    }

    /// The depth of every store where it can be known.
    async fn count_stores(&self, facts: &Facts, space: &Space) -> Result<(), FaultKind> {
        if facts.inbox.work_queue {
            count(&self.link, space, StreamKind::Inbox, &subject::dinbox_filter(space), &self.rooms[0]).await?;
        }
        if facts.dlv.work_queue {
            count(&self.link, space, StreamKind::Dlv, &subject::dlv_filter(space), &self.rooms[1]).await?;
        }
        Ok(())
    }

    /// Waits until a part ends or `stop` is asked; then ends and joins all parts.
    pub(crate) async fn run(mut self, kept: &mut Kept, stop: &CancellationToken) -> Closed {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            ended = self.parts.join_next_with_id() => ended,
        };
        match ended {
            None => self.close(kept).await,
            Some(ended) => {
                let first = self.name(ended);
                let mut closed = Closed { lease: None, fault: None };
                note(first, kept, &mut closed, false);
                let rest = self.close(kept).await;
                Closed { lease: closed.lease.or(rest.lease), fault: closed.fault.or(rest.fault) }
            }
        }
    }

    fn name(&mut self, ended: Result<(Id, End), tokio::task::JoinError>) -> End {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        if self.lease_part == Some(id) {
            self.lease_part = None;
        }
        match ended {
            Ok((_, end)) => end,
            Err(error) => {
                let part = self.names.get(&id).copied().unwrap_or("unnamed");
                let reason = panic_text(error);
                tracing::error!(part, %reason, "part panicked");
                End::Other(part, Err(FaultKind::PartEnded { part, reason }))
            }
        }
    }

    /// Stops and joins every part, the lease last.
    async fn close(mut self, kept: &mut Kept) -> Closed {
        self.stop.cancel();
        let mut closed = Closed { lease: None, fault: None };
        loop {
            if self.parts.len() == usize::from(self.lease_part.is_some()) {
                self.lease_stop.cancel();
            }
            let Some(ended) = self.parts.join_next_with_id().await else { return closed };
            let end = self.name(ended);
            note(end, kept, &mut closed, true);
        }
    }
}

/// Takes over what a part hands back. A part that ends before it was asked to is a fault, even without an error.
fn note(end: End, kept: &mut Kept, closed: &mut Closed, asked: bool) {
    let (part, result) = match end {
        End::FanOut(ended) => {
            kept.posts = ended.left;
            ("fan_out", ended.result)
        }
        End::Reader(ended) => {
            kept.entries = ended.left;
            ("trusted_reader", ended.result)
        }
        End::Lease(lease, result) => {
            closed.lease = Some(lease);
            ("lease", result)
        }
        End::Other(part, result) => (part, result),
    };
    let fault = match result {
        Err(fault) => Some(fault),
        Ok(()) if asked => None,
        Ok(()) => Some(FaultKind::PartEnded { part, reason: "without an error".into() }),
    };
    if let Some(fault) = fault {
        tracing::debug!(part, %fault, "part ended with a fault");
        // A lost lease says more than the faults of the parts that noticed its consequences.
        let outranks = matches!(fault, FaultKind::LeaseLost { .. } | FaultKind::LeaseUnreadable { .. });
        if outranks || closed.fault.is_none() {
            closed.fault = Some(fault);
        }
    }
}

async fn first_fault(parts: &mut JoinSet<End>) -> FaultKind {
    match parts.join_next().await {
        Some(Ok(end)) => fault_of(end),
        Some(Err(error)) => FaultKind::PartEnded { part: "session", reason: panic_text(error) },
        None => FaultKind::PartEnded { part: "session", reason: "no part runs".into() },
    }
}

/// The fault of a part that ended while the session was being opened.
fn fault_of(end: End) -> FaultKind {
    let (part, result) = match end {
        End::FanOut(ended) => ("fan_out", ended.result),
        End::Reader(ended) => ("trusted_reader", ended.result),
        End::Lease(_, result) => ("lease", result),
        End::Other(part, result) => (part, result),
    };
    result.err().unwrap_or_else(|| FaultKind::PartEnded { part, reason: "without an error".into() })
}

fn panic_text(error: tokio::task::JoinError) -> String {
    if !error.is_panic() {
        return "it was aborted".into();
    }
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic without a text".into())
}

fn rooms(facts: StoreFacts, margin: u64, counted: bool) -> Arc<Rooms> {
    let limit = facts.per_member.filter(|_| counted).map(|limit| limit.saturating_sub(margin).max(1));
    Arc::new(Rooms::new(limit))
}

async fn count_full_stores(link: &Link, space: &Space, rooms: &Rooms) -> FaultKind {
    loop {
        rooms.found_full().await;
        let mut pause = COUNT_PAUSE;
        loop {
            let full = rooms.mark_full();
            if full.is_empty() {
                break;
            }
            let filter = match full.as_slice() {
                [one] => subject::dlv(space, one),
                _ => subject::dlv_filter(space),
            };
            if let Err(fault) = count(link, space, StreamKind::Dlv, &filter, rooms).await {
                return fault;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(COUNT_IDLE_PAUSE);
        }
    }
}

/// Counts the stores on `filter`.
async fn count(link: &Link, space: &Space, kind: StreamKind, filter: &str, rooms: &Rooms) -> Result<(), FaultKind> {
    let stream = kind.name(space);
    let api = format!("$JS.API.STREAM.INFO.{stream}");
    let refused = |reason: String| FaultKind::Refused { what: format!("$JS.API.STREAM.INFO.{stream}"), reason };
    let call = async {
        let handle = link.jetstream().get_stream_no_info(&stream).await.map_err(|error| refused(error.to_string()))?;
        let subjects = handle.info_with_subjects(filter).await.map_err(|error| refused(error.to_string()))?;
        subjects.try_collect::<Vec<(String, usize)>>().await.map_err(|error| refused(error.to_string()))
    };
    let counts: HashMap<String, usize> = link.ask(&api, call).await?.into_iter().collect();
    for (subject, held) in &counts {
        if let Some(owner) = crate::stage::owner_of(space, subject) {
            rooms.counted(&owner, *held as u64);
        }
    }
    // A store that is empty again is not in the answer at all.
    for owner in rooms.full() {
        let subject =
            if kind == StreamKind::Inbox { subject::dinbox(space, &owner) } else { subject::dlv(space, &owner) };
        if lanekeeper_wire::subject::matches(filter, &subject) && !counts.contains_key(&subject) {
            rooms.counted(&owner, 0);
        }
    }
    Ok(())
}
