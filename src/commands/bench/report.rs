//! The figures of a run, for people and as JSON. Pure.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{FanOutArgs, site::Bench, stores::Unsettled, tally::Totals};

const MIB: f64 = 1024.0 * 1024.0;

/// What was measured, and where.
#[derive(Debug)]
pub(super) struct Parameters {
    args: FanOutArgs,
    broker_version: String,
    cores: usize,
}

impl Parameters {
    pub(super) fn new(args: &FanOutArgs, bench: &Bench) -> Self {
        Self {
            args: args.clone(),
            broker_version: bench.broker().info().version.clone(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// The lane's figures.
#[derive(Debug)]
pub(super) struct LaneFigures {
    /// Copies received, each counted once.
    pub(super) copies: u64,
    /// From the first post to the last acknowledgement at the broker.
    pub(super) wall_nanos: u64,
    /// From the first post to the last one stored.
    pub(super) posting_nanos: u64,
    pub(super) totals: Totals,
    pub(super) unsettled: Unsettled,
    pub(super) lane_cpu: Duration,
    pub(super) broker_cpu: Duration,
    pub(super) bench_cpu: Duration,
    pub(super) idle_bytes: u64,
    pub(super) peak_bytes: u64,
}

/// The ceiling's figures.
#[derive(Debug)]
pub(super) struct CeilingFigures {
    pub(super) copies: u64,
    pub(super) wall_nanos: u64,
    pub(super) broker_cpu: Duration,
    pub(super) bench_cpu: Duration,
}

impl CeilingFigures {
    fn copies_per_s(&self) -> f64 {
        per_s(self.copies, self.wall_nanos)
    }
}

/// One run.
#[derive(Debug)]
pub(super) struct Report {
    parameters: Parameters,
    lane: Option<LaneFigures>,
    ceiling: Option<CeilingFigures>,
}

impl Report {
    pub(super) fn new(parameters: Parameters, lane: Option<LaneFigures>, ceiling: Option<CeilingFigures>) -> Self {
        Self { parameters, lane, ceiling }
    }

    /// Copies that never came.
    pub(super) fn lost(&self) -> u64 {
        self.lane.as_ref().map_or(0, |lane| lane.totals.lost)
    }

    fn ratio(&self) -> Option<f64> {
        let (lane, ceiling) = (self.lane.as_ref()?, self.ceiling.as_ref()?);
        Some(per_s(lane.copies, lane.wall_nanos) / ceiling.copies_per_s())
    }

    /// The figures as JSON; what was not measured is null.
    pub(super) fn json(&self) -> Value {
        let Parameters { args, broker_version, cores } = &self.parameters;
        let lane = |figure: &dyn Fn(&LaneFigures) -> Value| self.lane.as_ref().map_or(Value::Null, figure);
        let ceiling = |figure: &dyn Fn(&CeilingFigures) -> f64| self.ceiling.as_ref().map(|c| round(figure(c), 3));
        json!({
            "copies_per_s": lane(&|l| round(per_s(l.copies, l.wall_nanos), 1).into()),
            "ceiling_copies_per_s": ceiling(&CeilingFigures::copies_per_s),
            "ratio_to_ceiling": self.ratio().map(|ratio| round(ratio, 4)),
            "lost": lane(&|l| l.totals.lost.into()),
            "duplicated": lane(&|l| l.totals.duplicated.into()),
            "out_of_order": lane(&|l| l.totals.out_of_order.into()),
            "foreign": lane(&|l| l.totals.foreign.into()),
            "unsettled": lane(&|l| json!(l.unsettled)),
            "latency_ms": lane(&|l| json!({
                "p50": l.totals.latency_ms(500), "p99": l.totals.latency_ms(990), "max": l.totals.latency_ms(1_000),
            })),
            "lane_cpu_ms_per_1k": lane(&|l| round(per_1k(l.lane_cpu, l.copies), 3).into()),
            "lane_rss_mib": lane(&|l| round(l.peak_bytes as f64 / MIB, 1).into()),
            "lane_idle_rss_mib": lane(&|l| round(l.idle_bytes as f64 / MIB, 1).into()),
            "broker_cpu_ms_per_1k": lane(&|l| round(per_1k(l.broker_cpu, l.copies), 3).into()),
            "members_cpu_ms_per_1k": lane(&|l| round(per_1k(l.bench_cpu, l.copies), 3).into()),
            "copies": lane(&|l| l.copies.into()),
            "wall_ms": lane(&|l| round(ms(l.wall_nanos), 3).into()),
            "posting_ms": lane(&|l| round(ms(l.posting_nanos), 3).into()),
            "ceiling_wall_ms": ceiling(&|c| ms(c.wall_nanos)),
            "ceiling_broker_cpu_ms_per_1k": ceiling(&|c| per_1k(c.broker_cpu, c.copies)),
            "ceiling_bench_cpu_ms_per_1k": ceiling(&|c| per_1k(c.bench_cpu, c.copies)),
            "parameters": {
                "members": args.members, "posts": args.posts, "size_bytes": args.size, "senders": args.senders,
                "rate_posts_per_s": args.rate, "in_flight": args.in_flight, "sync_interval": args.sync_interval,
                "store": args.store, "messages_per_subject": args.messages_per_subject,
                "plain_members": args.plain_members,
            },
            "broker_version": broker_version,
            "cores": cores,
            "optimised": !cfg!(debug_assertions),
        })
    }

    /// The figures for people.
    pub(super) fn text(&self) -> String {
        let Parameters { args, broker_version, cores } = &self.parameters;
        let mut text = format!(
            "fan-out: {} members, {} posts of {} bytes, {} senders, {}\n\
             nats-server {broker_version}, {cores} cores{}\n\n",
            args.members,
            args.posts,
            args.size,
            args.senders,
            args.rate.map_or_else(|| "one burst".to_owned(), |rate| format!("{rate} posts/s")),
            if cfg!(debug_assertions) { ", DEBUG BUILD: the figures mean nothing" } else { "" },
        );
        let mut row = |name: &str, figure: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<28}{figure}");
        };
        if let Some(lane) = &self.lane {
            lane_rows(lane, &mut row);
        }
        if let Some(ceiling) = &self.ceiling {
            row("ceiling", format!("{:>12.0} copies/s", ceiling.copies_per_s()));
            row("  wall", format!("{:>12.0} ms", ms(ceiling.wall_nanos)));
            row("  broker cpu", format!("{:>12.1} ms per 1000 copies", per_1k(ceiling.broker_cpu, ceiling.copies)));
            row("  clients cpu", format!("{:>12.1} ms per 1000 copies", per_1k(ceiling.bench_cpu, ceiling.copies)));
        }
        if let Some(ratio) = self.ratio() {
            row("lane to ceiling", format!("{:>12.1} %", ratio * 100.0));
        }
        text
    }
}

fn lane_rows(lane: &LaneFigures, row: &mut impl FnMut(&str, String)) {
    let totals = &lane.totals;
    row("lane", format!("{:>12.0} copies/s", per_s(lane.copies, lane.wall_nanos)));
    row("  copies", format!("{:>12}", lane.copies));
    row("  lost", format!("{:>12}", totals.lost));
    row("  duplicated", format!("{:>12}", totals.duplicated));
    row("  out of order", format!("{:>12}", totals.out_of_order));
    row("  wall", format!("{:>12.0} ms, posting {:.0} ms", ms(lane.wall_nanos), ms(lane.posting_nanos)));
    let latency = (totals.latency_ms(500), totals.latency_ms(990), totals.latency_ms(1_000));
    row("  latency p50", format!("{:>12.2} ms, p99 {:.2} ms, longest {:.2} ms", latency.0, latency.1, latency.2));
    let (peak, idle) = (lane.peak_bytes as f64 / MIB, lane.idle_bytes as f64 / MIB);
    row("  lane memory", format!("{peak:>12.1} MiB, idle {idle:.1} MiB"));
    let cpus = [("  lane cpu", lane.lane_cpu), ("  broker cpu", lane.broker_cpu), ("  members cpu", lane.bench_cpu)];
    for (name, cpu) in cpus {
        let share = cpu.as_nanos() as f64 / lane.wall_nanos.max(1) as f64;
        row(name, format!("{:>12.1} ms per 1000 copies, {share:.2} cores", per_1k(cpu, lane.copies)));
    }
    if !lane.unsettled.is_nothing() {
        let left = lane.unsettled;
        row("  unsettled", format!("{:>12} posts, {} entries, {} copies", left.chat, left.inbox, left.dlv));
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn per_s(copies: u64, nanos: u64) -> f64 {
    copies as f64 * 1e9 / nanos.max(1) as f64
}

fn per_1k(cpu: Duration, copies: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / copies.max(1) as f64
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
