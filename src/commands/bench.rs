//! `lanekeeper bench`: measures the durable plane on a broker of its own.
//!
//! Owns the arguments and the order of the phases. It must not measure a lane inside its own process: the lane is a
//! child, so that its memory and processor time are its own.

mod ceiling;
mod daemon;
mod fan_out;
mod lanes;
mod meter;
mod plain;
mod publisher;
mod receivers;
mod report;
mod senders;
mod site;
mod stamp;
mod stores;
mod tally;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};

use crate::signals;
use report::{Parameters, Report};
use site::Bench;

/// Arguments of `lanekeeper bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Post on one durable channel and measure until every member has acknowledged every copy.
    ///
    /// Starts a broker, provisions a space, and starts the lane as a process of its own. The members are in this
    /// process; each has a connection and its provisioned hand-over consumer. The senders are members that never joined
    /// the channel, so they receive nothing and are not counted; each posts its share of the posts.
    ///
    /// In the same run and on the same broker the ceiling: the entries and frames of the same copies, published side by
    /// side into two streams configured like INBOX and DLV (without a limit that could drop any), pipelined and
    /// confirmed, and received and acknowledged on the second by as many plain durable consumers, each on a connection
    /// of its own.
    FanOut(FanOutArgs),
    /// Serve many idle spaces and measure what each costs.
    ///
    /// Starts a broker, provisions the spaces, each with an account of its own, and starts `lanekeeper run` as a process
    /// of its own; measures the time until every lane serves, then memory, connections and idle processor time.
    Lanes(lanes::LanesArgs),
}

/// Arguments of `lanekeeper bench fan-out`.
#[derive(Debug, Clone, Args)]
pub struct FanOutArgs {
    /// Members that receive.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    members: u32,
    /// Posts of all senders together.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=9_999_999))]
    posts: u32,
    /// Exact size of each post's payload, bytes.
    #[arg(long, default_value_t = 512)]
    size: usize,
    /// Senders, which share the posts among them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    senders: u32,
    /// Posts a second of all senders together, for latency; without it everything is posted in one burst.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Unconfirmed posts of one sender at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Where the broker keeps its streams, in a directory of its own that is removed afterwards (for example below
    /// /dev/shm, because with 500 consumers a disk is bimodal).
    #[arg(long)]
    store: Option<PathBuf>,
    /// Also write the figures here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// How often the broker flushes to disk: a duration such as `10s`, or `always`. Its own default is 2 minutes.
    #[arg(long)]
    sync_interval: Option<String>,
    /// Messages that CHAT keeps of one sender, and INBOX and DLV of one member.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    messages_per_subject: u32,
    /// Receive with a bare pull consumer instead of a full member: tells the member's own cost apart.
    #[arg(long)]
    plain_members: bool,
    /// Measure the ceiling alone.
    #[arg(long, conflicts_with = "no_ceiling")]
    ceiling_only: bool,
    /// Measure the lane alone.
    #[arg(long)]
    no_ceiling: bool,
}

/// Runs a benchmark, prints its report, and writes it where asked to.
///
/// # Errors
/// A part could not be started, a copy was lost, or it was interrupted.
pub async fn run(args: BenchArgs) -> Result<()> {
    let stop = signals::stop_on_signal()?;
    tokio::select! {
        biased;
        () = stop.cancelled() => anyhow::bail!("interrupted"),
        result = measure(args.what) => result,
    }
}

async fn measure(what: What) -> Result<()> {
    match what {
        What::FanOut(args) => Box::pin(fan_out(args)).await,
        What::Lanes(args) => Box::pin(lanes::measure(args)).await,
    }
}

async fn fan_out(args: FanOutArgs) -> Result<()> {
    ensure!(args.senders <= args.posts, "{} senders cannot share {} posts", args.senders, args.posts);
    let shortest = stamp::shortest_bytes()?;
    ensure!(args.size >= shortest, "a post of {} bytes is too small: the smallest has {shortest}", args.size);
    let mut bench = Bench::start(&args).await?;
    let lane = match args.ceiling_only {
        true => None,
        false => Some(fan_out::measure(&bench, &args).await?),
    };
    let ceiling = match args.no_ceiling {
        true => None,
        false => Some(ceiling::measure(&bench, &args).await?),
    };
    let parameters = Parameters::new(&args, &bench);
    bench.stop().await?;
    let report = Report::new(parameters, lane, ceiling);
    print!("{}", report.text());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        tokio::fs::write(path, text + "\n").await.with_context(|| format!("write {}", path.display()))?;
    }
    let lost = report.lost();
    ensure!(lost == 0, "{lost} copies were lost");
    Ok(())
}
