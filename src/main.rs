//! Entry point of the `lanekeeper` binary: arguments, logging, exit code.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use lanekeeper::commands::{
    admin::{
        lanes,
        orders::{self, LaneOrder},
    },
    bench, check, dev, run, serve, space,
};
use tracing_subscriber::{EnvFilter, fmt};

/// Durable delivery for Cotal spaces over NATS.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve every space of the manifest, each in a lane of its own, and follow the manifest as it changes.
    Run(run::RunArgs),
    #[command(flatten)]
    Other(Other),
}

/// What runs within one runtime.
#[derive(Debug, Subcommand)]
enum Other {
    /// Start a broker and a space of one's own, play the story of a member that was away, then serve.
    Dev(dev::DevArgs),
    /// Serve one space on a broker that is already there.
    Serve(serve::ServeArgs),
    /// Look at the configuration, the manifest and every space's credentials, and say all that is wrong.
    Check(check::CheckArgs),
    /// Show every lane of a running host, or everything about one.
    Lanes(lanes::LanesArgs),
    /// Make a running host read its manifest now.
    Reload(orders::ReloadArgs),
    /// Hand a lane over for maintenance, or every lane of a host.
    Drain(orders::DrainArgs),
    /// Let a lane take part again, or every lane of a host.
    Undrain(orders::DrainArgs),
    /// Close a lane and open it again.
    Reopen(orders::LaneOrderArgs),
    /// Try a parked lane again.
    Unpark(orders::LaneOrderArgs),
    /// Add, remove and list spaces on a broker of one's own.
    Space(space::SpaceArgs),
    /// Measure throughput, latency and cost on a broker of its own.
    Bench(bench::BenchArgs),
}

/// The variable with the log filter, in the syntax of `tracing`.
const LOG_VARIABLE: &str = "LANEKEEPER_LOG";
/// The file watcher must never log: where the log lies in a directory that is watched, each line would make the next.
const LOG_NEVER: &str = "notify=off";
/// The client library reports every refused dial as an error of its own; the lane says it once, with the space.
const LOG_DEFAULT: &str = "info,async_nats=off";
/// The story speaks for itself; only what is wrong with it belongs in between.
const LOG_DEFAULT_DEV: &str = "warn,async_nats=off";

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let default = match &command {
        Command::Run(_) | Command::Other(Other::Serve(_)) => LOG_DEFAULT,
        Command::Other(_) => LOG_DEFAULT_DEV,
    };
    let filter =
        std::env::var(LOG_VARIABLE).ok().and_then(|wanted| EnvFilter::try_new(format!("{wanted},{LOG_NEVER}")).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal();
    fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
    let result = match command {
        // It has two runtimes of its own.
        Command::Run(args) => run::run(&args),
        Command::Other(other) => within_a_runtime(other),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lanekeeper: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn within_a_runtime(command: Other) -> anyhow::Result<()> {
    match command {
        Other::Dev(args) => dev::run(args).await,
        Other::Serve(args) => serve::run(args).await,
        Other::Check(args) => check::run(args).await,
        Other::Lanes(args) => lanes::run(args).await,
        Other::Reload(args) => orders::reload(args).await,
        Other::Drain(args) => orders::drain(LaneOrder::Drain, args).await,
        Other::Undrain(args) => orders::drain(LaneOrder::Undrain, args).await,
        Other::Reopen(args) => orders::lane(LaneOrder::Reopen, args).await,
        Other::Unpark(args) => orders::lane(LaneOrder::Unpark, args).await,
        Other::Space(args) => space::run(args).await,
        Other::Bench(args) => Box::pin(bench::run(args)).await,
    }
}
