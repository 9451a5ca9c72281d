//! One stage of the durable plane: take from a durable, judge, store the copies, settle.
//!
//! Owns what is in hand between taking and settling, its bound and its order. Fan-out and reader are this stage with two
//! judges. A delivery is acknowledged only after the broker has stored every copy made of it. It must not know what is judged.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt as _;
use lanekeeper_wire::{Bucket, Lifecycle, Space};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Limits,
    copies::{Copies, Copy, Store, Stored},
    counters::Counters,
    fault::FaultKind,
    intake::{Delivery, Intake, Settle, settle},
    link::{Link, deadline},
    permit::Permit,
    registry::Registry,
    rooms::Rooms,
    settled::Settled,
    taker::{Taken, hold, take},
};

/// The most units of one stage between taken and settled: a delivery is one, and one more for each 16 KiB of its payload.
pub(crate) const MAX_IN_HAND: usize = 4096;
/// The most entries of INBOX in hand: only the reader may consume it, so what a dead reader held waits for the ack wait.
pub(crate) const MAX_ENTRIES_IN_HAND: usize = 4096;
/// How long a stop waits for copies in flight.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// How soon what is held is judged again.
const HELD_RETRY: Duration = Duration::from_millis(5);
/// How often what is in hand is looked through for ack waits and unread stores.
const TICK: Duration = Duration::from_secs(1);
/// How many batches may be ready to be judged; what they hold is bounded by [`MAX_IN_HAND`].
const BATCHES_READY: usize = 64;
/// Headers and protocol of a copy, beside its payload, bytes.
const COPY_OVERHEAD_BYTES: usize = 512;

/// What becomes of a delivery.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Store these copies, then acknowledge.
    Copies(Vec<Copy>),
    /// Nobody may have it: acknowledge without a copy.
    Drop(&'static str),
    /// It can never be handled: terminate, with the reason.
    Term(&'static str, String),
    /// Not now: again after this pause.
    Defer(Duration),
    /// Not at this moment: kept in hand, with everything behind it on the same subject, and judged again.
    Hold,
}

/// Decides about one delivery from what is known now.
pub(crate) trait Judge: Send + Sync + 'static {
    /// The name of the part.
    const PART: &'static str;
    /// The buckets that must be fresh before a batch is judged.
    const NEEDS: &'static [Bucket];

    /// The verdict.
    fn judge(&self, delivery: &Delivery) -> Verdict;

    /// Told once a delivery has left the stream this stage takes from.
    fn settled(&self, delivery: &Delivery);
}

/// Everything one stage needs.
pub(crate) struct Stage<J> {
    /// The connection.
    pub link: Link,
    /// The space.
    pub space: Space,
    /// The replica that is judged by.
    pub registry: Arc<Registry>,
    /// The judge.
    pub judge: Arc<J>,
    /// The permit.
    pub permit: Permit,
    /// Where copies go.
    pub store: Store,
    /// The room left there.
    pub rooms: Arc<Rooms>,
    /// CHAT's creation time, unix nanoseconds.
    pub chat_created_ns: i128,
    /// The stream taken from.
    pub stream: String,
    /// The durable taken from.
    pub durable: &'static str,
    /// The durable's ack wait.
    pub ack_wait: Duration,
    /// The most units in hand that the durable allows.
    pub max_in_hand: usize,
    /// The lane's limits, which may change at any time.
    pub limits: watch::Receiver<Limits>,
    /// The counters.
    pub counters: Arc<Counters>,
    /// What was settled lately.
    pub settled: Arc<Settled>,
    /// Asks the stage to stop and hand back.
    pub stop: CancellationToken,
}

/// How a stage ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Deliveries taken and not settled, in order: the next link goes on with them.
    pub left: Vec<Delivery>,
    /// Why.
    pub result: Result<(), FaultKind>,
}

struct InHand {
    delivery: Delivery,
    copies_left: usize,
    extended_at: Instant,
}

struct Running<J> {
    stage: Stage<J>,
    copies: Copies,
    hand: Arc<Semaphore>,
    hand_size: usize,
    in_hand: BTreeMap<u64, InHand>,
    unjudged: VecDeque<Delivery>,
    held: Vec<Delivery>,
    /// When what is held was last judged.
    held_at: Instant,
    next_item: u64,
    incoming: mpsc::Receiver<Vec<Delivery>>,
}

impl<J: Judge> Stage<J> {
    /// Runs until `stop`, the link's end or a fault. `carried` is what the link before left.
    pub(crate) async fn run(self, carried: Vec<Delivery>) -> Ended {
        let intake = match Intake::bind(&self.link, &self.stream, self.durable, self.max_in_hand).await {
            Ok(intake) => intake,
            Err(fault) => return Ended { left: carried, result: Err(fault) },
        };
        let (batches, incoming) = mpsc::channel(BATCHES_READY);
        let hand_size = self.max_in_hand.min(self.limits.borrow().max_in_hand);
        let hand = Arc::new(Semaphore::new(hand_size));
        let mut carried = carried;
        hold(&hand, &mut carried);
        let over = CancellationToken::new();
        // A stage that panics or is aborted takes its taker along; an open pull would swallow what is another's.
        let _orphan = over.clone().drop_guard();
        let taker = tokio::spawn(take(
            intake,
            Arc::clone(&self.registry),
            self.link.clone(),
            J::NEEDS,
            self.permit.clone(),
            Arc::clone(&hand),
            batches,
            over.clone(),
        ));
        let copies = Copies::new(
            &self.link,
            &self.space,
            self.store,
            self.chat_created_ns,
            self.permit.clone(),
            Arc::clone(&self.rooms),
            Arc::clone(&self.counters),
        );
        let fresh = if carried.is_empty() { Ok(()) } else { self.registry.fresh(&self.link, J::NEEDS).await };
        let mut running = Running {
            stage: self,
            copies,
            hand,
            hand_size,
            in_hand: BTreeMap::new(),
            unjudged: carried.into(),
            held: Vec::new(),
            held_at: Instant::now(),
            next_item: 0,
            incoming,
        };
        let result = match fresh {
            Ok(()) => running.work().await,
            Err(fault) => Err(fault),
        };
        over.cancel();
        running.end(taker, result).await
    }
}

impl<J: Judge> Running<J> {
    async fn work(&mut self) -> Result<(), FaultKind> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let stop = self.stage.stop.clone();
        let over = self.stage.link.over().clone();
        let rooms = Arc::clone(&self.stage.rooms);
        loop {
            if !self.stage.permit.is_live() {
                // Quiet: what is in hand stays in hand, nothing leaves. What was sent before is still confirmed.
                let mut permit = self.stage.permit.clone();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = over.cancelled() => return Err(FaultKind::Disconnected),
                    () = permit.live() => rooms.start_over(false),
                    stored = self.copies.confirmed(), if self.copies.has_in_flight() => self.note_stored(stored?).await?,
                }
                continue;
            }
            // Here as well as below: under steady traffic no pause of the select would ever run out.
            if !self.held.is_empty() && self.held_at.elapsed() >= HELD_RETRY {
                self.release_held();
            }
            self.fill_window().await?;
            self.show();
            if self.copies.waiting() > 0 && self.hand.available_permits() == 0 && self.unjudged.is_empty() {
                // Everything in hand waits for full stores: rather one member's oldest copy than everybody's next post.
                self.copies.pump_waiting(true).await?;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = over.cancelled() => return Err(FaultKind::Disconnected),
                stored = self.copies.confirmed(), if self.copies.has_in_flight() => self.note_stored(stored?).await?,
                () = rooms.freed(), if self.copies.waiting() > 0 => self.copies.pump_waiting(false).await?,
                batch = self.incoming.recv() => match batch {
                    Some(batch) => {
                        self.stage.counters.taken.fetch_add(batch.len() as u64, Ordering::Relaxed);
                        self.unjudged.extend(batch);
                    }
                    // The taker ended; its own fault is the reason, and `end` asks it.
                    None => return Ok(()),
                },
                () = tokio::time::sleep(HELD_RETRY), if !self.held.is_empty() => self.release_held(),
                _ = tick.tick() => self.tick().await?,
            }
        }
    }

    /// Shows what is in hand.
    fn show(&self) {
        let counters = &self.stage.counters;
        counters.in_hand.store((self.in_hand.len() + self.held.len() + self.unjudged.len()) as u64, Ordering::Relaxed);
        counters.waiting.store(self.copies.waiting() as u64, Ordering::Relaxed);
    }

    /// Follows the limits: more room at once, less as what is in hand is settled.
    fn retune(&mut self) {
        let limits = *self.stage.limits.borrow();
        self.copies.set_max_in_flight(limits.max_in_flight);
        let wanted = self.stage.max_in_hand.min(limits.max_in_hand);
        if wanted >= self.hand_size {
            self.hand.add_permits(wanted - self.hand_size);
            self.hand_size = wanted;
        } else {
            self.hand_size -= self.hand.forget_permits(self.hand_size - wanted);
        }
    }

    /// Judges and sends until the window is full or nothing is left to judge.
    async fn fill_window(&mut self) -> Result<(), FaultKind> {
        loop {
            self.copies.pump().await?;
            if !self.copies.has_capacity() {
                return Ok(());
            }
            let Some(delivery) = self.unjudged.pop_front() else { return Ok(()) };
            self.take_on(delivery).await?;
        }
    }

    /// Has what was held judged again, before anything that came behind it.
    fn release_held(&mut self) {
        self.held_at = Instant::now();
        for delivery in self.held.drain(..).rev() {
            self.unjudged.push_front(delivery);
        }
    }

    /// Judges one delivery and starts on its copies.
    async fn take_on(&mut self, delivery: Delivery) -> Result<(), FaultKind> {
        if delivery.delivered > 1 && self.stage.settled.knows(delivery.seq) {
            return self.finish(delivery, &Settle::Ack).await;
        }
        if self.held.iter().any(|held| held.subject == delivery.subject) {
            self.held.push(delivery);
            return Ok(());
        }
        let counters = Arc::clone(&self.stage.counters);
        match self.stage.judge.judge(&delivery) {
            Verdict::Hold => {
                self.held.push(delivery);
                Ok(())
            }
            Verdict::Copies(mut copies) => {
                copies.retain(|copy| !delivery.stored.contains(&copy.to));
                if copies.is_empty() {
                    return self.finish(delivery, &Settle::Ack).await;
                }
                let largest = copies.iter().map(|copy| copy.payload.len()).max().unwrap_or(0);
                if largest + COPY_OVERHEAD_BYTES > self.stage.link.client().max_payload() {
                    tracing::error!(
                        part = J::PART,
                        seq = delivery.seq,
                        bytes = largest,
                        "too large to be copied, terminated; raise the broker's max_payload or post less"
                    );
                    counters.terminated.fetch_add(1, Ordering::Relaxed);
                    return self.finish(delivery, &Settle::Term).await;
                }
                let item = self.next_item;
                self.next_item += 1;
                let extended_at = delivery.taken_at;
                self.in_hand.insert(item, InHand { delivery, copies_left: copies.len(), extended_at });
                copies.into_iter().for_each(|copy| self.copies.offer(item, copy));
                Ok(())
            }
            Verdict::Drop(reason) => {
                tracing::debug!(part = J::PART, seq = delivery.seq, subject = %delivery.subject, reason, "dropped");
                counters.dropped.fetch_add(1, Ordering::Relaxed);
                self.finish(delivery, &Settle::Ack).await
            }
            Verdict::Term(code, reason) => {
                tracing::warn!(part = J::PART, seq = delivery.seq, subject = %delivery.subject, code, %reason, "terminated");
                counters.terminated.fetch_add(1, Ordering::Relaxed);
                self.finish(delivery, &Settle::Term).await
            }
            Verdict::Defer(pause) => {
                counters.deferred.fetch_add(1, Ordering::Relaxed);
                self.hand.add_permits(delivery.units as usize);
                settle(&self.stage.link, &delivery, &Settle::NakAfter(pause)).await
            }
        }
    }

    async fn finish(&mut self, delivery: Delivery, how: &Settle) -> Result<(), FaultKind> {
        settle(&self.stage.link, &delivery, how).await?;
        if delivery.ack.is_some() {
            self.stage.judge.settled(&delivery);
        }
        self.stage.settled.note(delivery.seq);
        self.hand.add_permits(delivery.units as usize);
        Ok(())
    }

    /// Settles what one confirmation completed, and takes every further confirmation that is there already.
    async fn note_stored(&mut self, first: Stored) -> Result<(), FaultKind> {
        let mut next = Some(first);
        while let Some(stored) = next.take() {
            let counter = if stored.duplicate { &self.stage.counters.duplicates } else { &self.stage.counters.stored };
            counter.fetch_add(1, Ordering::Relaxed);
            if let Some(item) = self.in_hand.get_mut(&stored.item) {
                item.copies_left -= 1;
                item.delivery.stored.push(stored.to);
                if item.copies_left == 0
                    && let Some(done) = self.in_hand.remove(&stored.item)
                {
                    if !self.stage.permit.is_live() {
                        // Stored before the doubt, settled by whoever holds the lease after it.
                        self.unjudged.push_back(done.delivery);
                        return Ok(());
                    }
                    self.finish(done.delivery, &Settle::Ack).await?;
                }
            }
            if self.copies.has_in_flight() {
                next = self.copies.confirmed().now_or_never().transpose()?;
            }
        }
        Ok(())
    }

    /// Extends ack waits that would run out in hand, and looks again at stores that were full.
    async fn tick(&mut self) -> Result<(), FaultKind> {
        self.stage.link.look();
        self.retune();
        let now = Instant::now();
        for item in self.in_hand.values_mut() {
            if now.duration_since(item.extended_at) >= self.stage.ack_wait / 3 {
                settle(&self.stage.link, &item.delivery, &Settle::Progress).await?;
                item.extended_at = now;
            }
        }
        self.copies.pump_waiting(false).await
    }

    /// Ends the stage: waits for what is in flight, hands back what was not started, or carries everything over.
    async fn end(mut self, taker: JoinHandle<Taken>, result: Result<(), FaultKind>) -> Ended {
        let taken = taker.await.unwrap_or_else(|error| Taken {
            left: Vec::new(),
            result: Err(FaultKind::PartEnded { part: J::PART, reason: error.to_string() }),
        });
        let mut result = result.and(taken.result);
        let clean = self.stage.stop.is_cancelled() && !self.stage.link.over().is_cancelled();
        if clean && result.is_ok() {
            result = self.drain().await;
        }
        let in_hand = std::mem::take(&mut self.in_hand).into_values().map(|item| item.delivery);
        let mut left: Vec<Delivery> =
            in_hand.chain(std::mem::take(&mut self.held)).chain(std::mem::take(&mut self.unjudged)).collect();
        // A batch may have been passed on and not yet picked up.
        while let Ok(batch) = self.incoming.try_recv() {
            left.extend(batch);
        }
        left.extend(taken.left);
        if clean && self.stage.permit.is_live() {
            for delivery in left.drain(..) {
                if settle(&self.stage.link, &delivery, &Settle::Nak).await.is_err() {
                    break;
                }
            }
        }
        self.stage.rooms.start_over(true);
        Ended { left, result }
    }

    async fn drain(&mut self) -> Result<(), FaultKind> {
        let until = deadline(DRAIN_PATIENCE);
        while self.copies.has_in_flight() && self.stage.permit.is_live() {
            match tokio::time::timeout_at(until, self.copies.confirmed()).await {
                Ok(stored) => self.note_stored(stored?).await?,
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// The lifecycle a stored copy on `subject` belongs to.
pub(crate) fn owner_of(space: &Space, subject: &str) -> Option<Lifecycle> {
    match lanekeeper_wire::Subject::parse(space, subject) {
        Ok(lanekeeper_wire::Subject::Dinbox(lifecycle) | lanekeeper_wire::Subject::Dlv(lifecycle)) => Some(lifecycle),
        Ok(
            lanekeeper_wire::Subject::Chat { .. }
            | lanekeeper_wire::Subject::Inst { .. }
            | lanekeeper_wire::Subject::Svc { .. }
            | lanekeeper_wire::Subject::Control { .. }
            | lanekeeper_wire::Subject::ControlAdmin { .. }
            | lanekeeper_wire::Subject::Live { .. }
            | lanekeeper_wire::Subject::Timer(_),
        )
        | Err(_) => None,
    }
}
