//! The members of a run: joined, receiving, acknowledging, counting.
//!
//! Owns one task for each member. It must not surface each post once only, as a member normally does: a second copy of
//! a post is to be seen and counted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lanekeeper_peer::{Binding, Creds, Messages, Peer, PeerOptions};
use lanekeeper_wire::{FRAME_HEADER, FRAME_VERSION, JoinData};
use serde_json::json;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    FanOutArgs,
    plain::{PULL_BATCH, PlainConsumer},
    site::{Bench, Field, SETUP_CONCURRENCY},
    stamp::{Clock, Stamp},
    tally::Tally,
};
use crate::mesh::{Member, Site};

/// How long a member's consumer may take to be bound.
const BIND_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// How long a join may take: many are asked for at once.
const JOIN_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// How many copies have come, over all members.
#[derive(Debug)]
pub(super) struct Progress {
    expected: u64,
    received: AtomicU64,
    complete: Notify,
}

impl Progress {
    pub(super) fn new(expected: u64) -> Arc<Self> {
        Arc::new(Self { expected, received: AtomicU64::new(0), complete: Notify::new() })
    }

    /// One more.
    pub(super) fn note(&self) {
        if self.received.fetch_add(1, Ordering::Relaxed) + 1 == self.expected {
            self.complete.notify_one();
        }
    }

    /// How many so far.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits for the last one; for one waiter.
    pub(super) async fn complete(&self) {
        if self.received() < self.expected {
            self.complete.notified().await;
        }
    }
}

/// All members, receiving.
#[derive(Debug)]
pub(super) struct Receivers {
    pub(super) progress: Arc<Progress>,
    tasks: JoinSet<Result<Tally>>,
    stop: CancellationToken,
}

impl Receivers {
    /// Connects and joins all members of `field`, and starts receiving.
    ///
    /// # Errors
    /// A member cannot connect, is not joined durably, or its consumer is not bound.
    pub(super) async fn start(bench: &Bench, field: &Field, args: &FanOutArgs) -> Result<Self> {
        let (posts, senders) = (args.posts as usize, args.senders as usize);
        let progress = Progress::new(u64::from(args.posts) * field.members.len() as u64);
        let mut receivers = Self { progress, tasks: JoinSet::new(), stop: CancellationToken::new() };
        let joined = stream::iter(&field.members).map(|member| join(bench, &field.site, member));
        let peers: Vec<Peer> = joined.buffered(SETUP_CONCURRENCY).try_collect().await?;
        if args.plain_members {
            for peer in peers {
                peer.close().await?;
            }
            for consumer in PlainConsumer::connect_all(field).await? {
                receivers.receive_plain(consumer, bench.clock, Tally::new(posts, senders));
            }
            return Ok(receivers);
        }
        for peer in peers {
            let binding = peer.wait_bound(BIND_PATIENCE).await;
            ensure!(binding == Binding::Bound, "member {} is not bound: {binding:?}", peer.lifecycle());
            let messages = peer.messages().context("messages are taken once")?;
            receivers.receive(peer, messages, bench.clock, Tally::new(posts, senders));
        }
        Ok(receivers)
    }

    fn receive(&mut self, peer: Peer, mut messages: Messages, clock: Clock, mut tally: Tally) {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    incoming = messages.recv() => {
                        let incoming = incoming.with_context(|| format!("member {} was cut off", peer.lifecycle()))?;
                        if tally.count(Stamp::of_id(incoming.message.id()), clock.nanos()) {
                            progress.note();
                        }
                        incoming.ack_now().await?;
                    }
                    () = stop.cancelled() => break,
                }
            }
            peer.close().await?;
            Ok(tally)
        });
    }

    fn receive_plain(&mut self, consumer: PlainConsumer, clock: Clock, mut tally: Tally) {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        self.tasks.spawn(async move {
            let count = |message: &async_nats::Message| {
                let version = message.headers.as_ref().and_then(|headers| headers.get(FRAME_HEADER));
                let is_frame = version.is_some_and(|version| version.as_str() == FRAME_VERSION);
                let stamp = if is_frame { Stamp::find(&message.payload) } else { None };
                if tally.count(stamp, clock.nanos()) {
                    progress.note();
                }
            };
            consumer.receive(stop, count).await?;
            Ok(tally)
        });
    }

    /// Fails if a member has ended before it was asked to.
    ///
    /// # Errors
    /// Why it ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(ended) => ended?.and_then(|_| anyhow::bail!("a member stopped receiving")),
        }
    }

    /// Ends all members; what each received.
    ///
    /// # Errors
    /// A member was cut off or does not end.
    pub(super) async fn stop(mut self) -> Result<Vec<Tally>> {
        self.stop.cancel();
        let mut tallies = Vec::with_capacity(self.tasks.len());
        while let Some(ended) = self.tasks.join_next().await {
            tallies.push(ended??);
        }
        Ok(tallies)
    }
}

/// How a member of a bench connects: nothing runs beside receiving.
pub(super) fn options(site: &Site, member: &Member) -> PeerOptions {
    let creds = Creds::path(member.credentials.clone());
    let options = PeerOptions::new(&site.url, site.space.clone(), creds, member.lifecycle.clone(), &member.name);
    PeerOptions {
        presence_interval: None,
        retry_durable: false,
        pull_batch: PULL_BATCH,
        queue_capacity: 2 * PULL_BATCH,
        control_timeout: JOIN_PATIENCE,
        ..options.raw()
    }
}

/// Connects a member and makes it a durable member of the channel, without the live subscription: live copies come from
/// the broker alone and are not what is measured.
async fn join(bench: &Bench, site: &Site, member: &Member) -> Result<Peer> {
    let peer = Peer::connect(options(site, member)).await?;
    let reply = peer.control("durableJoin", json!({ "channel": bench.channel.as_str() })).await;
    let reply = reply.with_context(|| format!("join member {}", member.name))?;
    ensure!(reply.ok, "member {} was refused: {}", member.name, reply.error.unwrap_or_default());
    let data: JoinData = serde_json::from_value(reply.data.unwrap_or_default())?;
    ensure!(data.durable, "member {} is not joined durably: {}", member.name, data.reason.unwrap_or_default());
    Ok(peer)
}
