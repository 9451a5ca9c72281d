//! The senders of a run: each posts its share, pipelined, in one burst or at a rate.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lanekeeper_peer::{Peer, PeerOptions, PostError, Posted};
use lanekeeper_wire::Channel;
use tokio::{
    task::JoinSet,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use super::{
    FanOutArgs, receivers,
    site::{Bench, Field},
    stamp::{Clock, Shape, Stamp},
};

/// All senders, connected.
pub(super) struct Senders {
    all: Vec<OneSender>,
    args: FanOutArgs,
}

struct OneSender {
    peer: Peer,
    shape: Shape,
    channel: Channel,
    clock: Clock,
    /// Which of the senders it is: it has every post whose number leaves this remainder.
    index: usize,
}

impl Senders {
    /// Connects all senders of `field`.
    ///
    /// # Errors
    /// One cannot connect.
    pub(super) async fn connect(bench: &Bench, field: &Field, args: &FanOutArgs) -> Result<Self> {
        let mut all = Vec::new();
        for (index, sender) in field.senders.iter().enumerate() {
            let options = PeerOptions { receive_durable: false, ..receivers::options(&field.site, sender) };
            let peer = Peer::connect(options).await?;
            let shape = Shape::new(peer.space(), peer.principal(), &sender.name, &bench.channel, args.size)?;
            all.push(OneSender { peer, shape, channel: bench.channel.clone(), clock: bench.clock, index });
        }
        Ok(Self { all, args: args.clone() })
    }

    /// Posts everything; returns once the broker has confirmed the last post.
    ///
    /// # Errors
    /// A post is not known to be stored.
    pub(super) async fn post(self) -> Result<()> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for sender in self.all {
            let pace = self.args.rate.map(|rate| pace(started, rate, self.args.senders, sender.index));
            tasks.spawn(sender.post(self.args.clone(), pace));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// The senders take turns.
fn pace(started: Instant, rate: u32, senders: u32, index: usize) -> Interval {
    let turn = Duration::from_secs(1) / rate;
    let offset = turn * u32::try_from(index).unwrap_or(u32::MAX);
    let mut pace = interval_at(started + offset, turn * senders);
    // A late tick does not lower the rate.
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    pace
}

impl OneSender {
    async fn post(self, args: FanOutArgs, mut pace: Option<Interval>) -> Result<()> {
        let limit = args.in_flight as usize;
        let mut poster = self.peer.poster(limit);
        for number in (self.index..args.posts as usize).step_by(args.senders as usize) {
            if let Some(pace) = &mut pace {
                loop {
                    tokio::select! {
                        biased;
                        _ = pace.tick() => break,
                        Some(outcome) = poster.next_outcome() => stored(outcome)?,
                    }
                }
            }
            // Room first, and the stamp only then: waiting for it is the sender's business, not the lane's.
            while poster.in_flight() >= limit {
                let Some(outcome) = poster.next_outcome().await else { break };
                stored(outcome)?;
            }
            let stamp = Stamp { number, sent_nanos: self.clock.nanos() };
            for outcome in poster.post(&self.channel, self.shape.draft(stamp)).await {
                stored(outcome)?;
            }
        }
        for outcome in poster.finish().await {
            stored(outcome)?;
        }
        self.peer.close().await?;
        Ok(())
    }
}

fn stored(outcome: Result<Posted, PostError>) -> Result<()> {
    outcome.map(drop).context("a post is not known to be stored, so the copies cannot be counted")
}
