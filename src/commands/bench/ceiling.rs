//! What the broker itself can do: the same copies stored twice and taken once, with no lane between.
//!
//! Owns that comparison. It must give the broker every advantage that a lane could have: both streams are written at
//! the same time, confirmations are only counted, receivers read nothing.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use lanekeeper_provision::SpaceSettings;
use lanekeeper_wire::{
    EntryReason, EntryTemplate, FRAME_HEADER, FRAME_VERSION, Lifecycle, Principal, Space, StreamKind,
    entry::suppression_key, message::check_post, subject,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    FanOutArgs,
    meter::CpuMeter,
    plain::PlainConsumer,
    publisher::Publisher,
    receivers::Progress,
    report::CeilingFigures,
    site::{Bench, CEILING_SPACE, Field, sender_name},
    stamp::{Shape, Stamp},
    stores::Stores,
};

/// How long nothing may arrive before the run is given up.
const STALL_PATIENCE: Duration = Duration::from_secs(90);
/// How long acknowledgements may take to arrive.
const DRAIN_PATIENCE: Duration = Duration::from_secs(90);
/// Stands for the creation time of CHAT in suppression keys.
const CREATED_NS: i128 = 1_700_000_000_000_000_000;

/// Which of the two streams a publisher writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Into {
    Inbox,
    Dlv,
}

/// Measures the ceiling.
///
/// # Errors
/// The broker refuses something, or a message did not arrive.
pub(super) async fn measure(bench: &Bench, args: &FanOutArgs) -> Result<CeilingFigures> {
    // No member's store may drop anything here, however slow its consumer is.
    let settings = SpaceSettings { messages_per_subject: u32::MAX, ..SpaceSettings::default() };
    let field = bench.field(CEILING_SPACE, args, 0, &settings).await?;
    let copies = u64::from(args.members) * u64::from(args.posts);
    let (progress, stop) = (Progress::new(copies), CancellationToken::new());
    let mut consumers = JoinSet::new();
    for consumer in PlainConsumer::connect_all(&field).await? {
        let progress = Arc::clone(&progress);
        consumers.spawn(consumer.receive(stop.clone(), move |_| progress.note()));
    }
    let stores = Stores::connect(&field).await?;
    let work = [Work::new(bench, &field, args, Into::Inbox)?, Work::new(bench, &field, args, Into::Dlv)?];
    let mut publishers = JoinSet::new();
    let cpu = CpuMeter::start(&[bench.broker_pid()?, std::process::id()])?;
    let started = bench.clock.nanos();
    for work in work {
        let publisher = Publisher::connect(&field.site.url, &field.delivery_credentials()?).await?;
        publishers.spawn(work.publish(publisher));
    }
    while let Some(ended) = publishers.join_next().await {
        ended??;
    }
    arrived(&progress, &mut consumers).await?;
    let left = stores.drained(StreamKind::Dlv, DRAIN_PATIENCE).await?;
    ensure!(left == 0, "{left} messages of the ceiling were not acknowledged");
    let wall_nanos = bench.clock.nanos() - started;
    let used = cpu.used()?;
    let stored = stores.held(StreamKind::Inbox).await?;
    ensure!(stored == copies, "the first stream of the ceiling holds {stored} messages instead of {copies}");
    stop.cancel();
    while let Some(ended) = consumers.join_next().await {
        ended??;
    }
    let [broker_cpu, bench_cpu] = used[..] else { anyhow::bail!("two processes were measured") };
    Ok(CeilingFigures { copies, wall_nanos, broker_cpu, bench_cpu })
}

async fn arrived(progress: &Progress, consumers: &mut JoinSet<Result<()>>) -> Result<()> {
    loop {
        let before = progress.received();
        tokio::select! {
            biased;
            () = progress.complete() => return Ok(()),
            ended = consumers.join_next() => ended.context("there are no consumers")??.context("a consumer ended")?,
            () = tokio::time::sleep(STALL_PATIENCE) => {
                ensure!(progress.received() > before, "the ceiling stalled at {before} messages");
            }
        }
    }
}

/// Everything one publisher needs.
struct Work {
    into: Into,
    space: Space,
    to: Vec<(Subject, Lifecycle)>,
    posts: usize,
    post: PostMaker,
}

/// Composes posts as a sender would.
struct PostMaker {
    who: Principal,
    name: String,
    channel: lanekeeper_wire::Channel,
    shape: Shape,
}

impl Work {
    fn new(bench: &Bench, field: &Field, args: &FanOutArgs, into: Into) -> Result<Self> {
        let space = field.site.space.clone();
        let subject_of = |lifecycle: &Lifecycle| match into {
            Into::Inbox => subject::dinbox(&space, lifecycle),
            Into::Dlv => subject::dlv(&space, lifecycle),
        };
        let lifecycles = field.members.iter().map(|member| &member.lifecycle);
        let to = lifecycles.map(|lifecycle| (Subject::from(subject_of(lifecycle)), lifecycle.clone())).collect();
        let name = sender_name(0);
        let who = Principal::new("local".parse()?, name.parse()?);
        let shape = Shape::new(&space, &who, &name, &bench.channel, args.size)?;
        let post = PostMaker { who, name, channel: bench.channel.clone(), shape };
        Ok(Self { into, space, to, posts: args.posts as usize, post })
    }

    /// The entries or frames of every post for every member, in the order a lane would write them.
    async fn publish(self, mut publisher: Publisher) -> Result<()> {
        for number in 0..self.posts {
            let payload = self.payload(number)?;
            let seq = number as u64 + 1;
            for (subject, lifecycle) in &self.to {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", suppression_key(CREATED_NS, seq, lifecycle));
                if self.into == Into::Dlv {
                    headers.insert(FRAME_HEADER, FRAME_VERSION);
                }
                publisher.publish(subject.clone(), headers, payload.clone()).await?;
            }
        }
        publisher.finish().await
    }

    fn payload(&self, number: usize) -> Result<Bytes> {
        let PostMaker { who, name, channel, shape } = &self.post;
        let payload = shape.payload(&self.space, who, name, channel, Stamp { number, sent_nanos: 0 });
        let post = check_post(&self.space, &subject::chat(&self.space, who, channel), payload.as_bytes())?;
        let template = EntryTemplate::new(&post, number as u64 + 1, EntryReason::DurableChannel);
        Ok(match self.into {
            Into::Inbox => template.for_generation(1),
            Into::Dlv => template.frame(),
        })
    }
}
