//! One run through the lane: posts in, acknowledged copies out.
//!
//! Owns the clock's start and end. It must not end the run before the broker itself shows that nothing is left to
//! deliver.

use std::time::Duration;

use anyhow::{Result, bail};
use lanekeeper_broker::process_rss_bytes;
use lanekeeper_provision::SpaceSettings;
use lanekeeper_wire::StreamKind;
use tokio::time::{Instant, sleep};

use super::{
    FanOutArgs,
    daemon::Daemon,
    meter::{CpuMeter, PeakMemory},
    receivers::Receivers,
    report::LaneFigures,
    senders::Senders,
    site::{Bench, SPACE},
    stores::{Stores, Unsettled},
    tally::Totals,
};

/// Between two looks at a run that is not complete.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long nothing may arrive, while something is still under way, before the run is given up: longer than any ack
/// wait of the plane, after which what was stuck comes again.
const STALL_PATIENCE: Duration = Duration::from_secs(150);
/// How long acknowledgements may take to arrive; one that got lost is repeated after the ack wait.
const DRAIN_PATIENCE: Duration = Duration::from_secs(90);
/// How long the lane may take to settle its own side after the last copy.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// Measures the lane.
///
/// # Errors
/// A part cannot be started or ends, a post is not stored, or nothing moves any more.
pub(super) async fn measure(bench: &Bench, args: &FanOutArgs) -> Result<LaneFigures> {
    let settings = SpaceSettings { messages_per_subject: args.messages_per_subject, ..SpaceSettings::default() };
    let field = bench.field(SPACE, args, args.senders, &settings).await?;
    let mut daemon = Daemon::start(&field.site, bench.dir().join("lane.log")).await?;
    let mut receivers = Receivers::start(bench, &field, args).await?;
    let senders = Senders::connect(bench, &field, args).await?;
    let stores = Stores::connect(&field).await?;

    let idle_bytes = process_rss_bytes(daemon.pid())?;
    let memory = PeakMemory::watch(daemon.pid());
    let cpu = CpuMeter::start(&[daemon.pid(), bench.broker_pid()?, std::process::id()])?;
    let started = bench.clock.nanos();
    posted(senders, &mut daemon).await?;
    let posting_nanos = bench.clock.nanos() - started;
    received(&mut receivers, &mut daemon, &stores).await?;
    stores.drained(StreamKind::Dlv, DRAIN_PATIENCE).await?;
    let wall_nanos = bench.clock.nanos() - started;
    let used = cpu.used()?;
    let peak_bytes = memory.bytes();

    let unsettled = settled(&stores).await?;
    let totals = Totals::of(receivers.stop().await?);
    daemon.stop().await?;
    let [lane_cpu, broker_cpu, bench_cpu] = used[..] else { bail!("three processes were measured") };
    let copies = totals.received;
    Ok(LaneFigures {
        copies,
        wall_nanos,
        posting_nanos,
        totals,
        unsettled,
        lane_cpu,
        broker_cpu,
        bench_cpu,
        idle_bytes,
        peak_bytes,
    })
}

async fn posted(senders: Senders, daemon: &mut Daemon) -> Result<()> {
    let posting = senders.post();
    tokio::pin!(posting);
    loop {
        tokio::select! {
            biased;
            result = &mut posting => return result,
            () = sleep(LOOK_EVERY) => daemon.check()?,
        }
    }
}

/// Waits for every copy, or until it is certain that the missing ones are lost: nothing is left anywhere, twice in a
/// row.
async fn received(receivers: &mut Receivers, daemon: &mut Daemon, stores: &Stores) -> Result<()> {
    let (mut seen, mut moved, mut was_empty) = (receivers.progress.received(), Instant::now(), false);
    loop {
        tokio::select! {
            biased;
            () = receivers.progress.complete() => return Ok(()),
            () = sleep(LOOK_EVERY) => {}
        }
        daemon.check()?;
        receivers.check()?;
        let now = receivers.progress.received();
        if now != seen {
            (seen, moved, was_empty) = (now, Instant::now(), false);
            continue;
        }
        let unsettled = stores.unsettled().await?;
        let is_empty = unsettled.is_nothing();
        if is_empty && was_empty {
            return Ok(());
        }
        was_empty = is_empty;
        if moved.elapsed() > STALL_PATIENCE {
            let waited = STALL_PATIENCE.as_secs();
            bail!("after {seen} copies nothing moved for {waited} s ({unsettled:?}); the lane:\n{}", daemon.log_tail());
        }
    }
}

/// What the lane has not settled a while after the last copy was acknowledged.
async fn settled(stores: &Stores) -> Result<Unsettled> {
    let started = Instant::now();
    loop {
        let unsettled = stores.unsettled().await?;
        if unsettled.is_nothing() || started.elapsed() > SETTLE_PATIENCE {
            return Ok(unsettled);
        }
        sleep(Duration::from_millis(10)).await;
    }
}
