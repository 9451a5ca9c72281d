//! Entry point of the `lanekeeper` binary: arguments, logging, exit code.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use lanekeeper::commands::{
    admin::{
        lanes,
        orders::{self, LaneOrder},
    },
    bench, check, dev, serve, space,
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
/// The client library reports every refused dial as an error of its own; the lane says it once, with the space.
const LOG_DEFAULT: &str = "info,async_nats=off";
/// The story speaks for itself; only what is wrong with it belongs in between.
const LOG_DEFAULT_DEV: &str = "warn,async_nats=off";

#[tokio::main]
async fn main() -> ExitCode {
    let command = Cli::parse().command;
    let default = match &command {
        Command::Serve(_) => LOG_DEFAULT,
        Command::Bench(_)
        | Command::Dev(_)
        | Command::Check(_)
        | Command::Lanes(_)
        | Command::Reload(_)
        | Command::Drain(_)
        | Command::Undrain(_)
        | Command::Reopen(_)
        | Command::Unpark(_)
        | Command::Space(_) => LOG_DEFAULT_DEV,
    };
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal();
    fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
    let result = match command {
        Command::Dev(args) => dev::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Lanes(args) => lanes::run(args).await,
        Command::Reload(args) => orders::reload(args).await,
        Command::Drain(args) => orders::drain(LaneOrder::Drain, args).await,
        Command::Undrain(args) => orders::drain(LaneOrder::Undrain, args).await,
        Command::Reopen(args) => orders::lane(LaneOrder::Reopen, args).await,
        Command::Unpark(args) => orders::lane(LaneOrder::Unpark, args).await,
        Command::Space(args) => space::run(args).await,
        Command::Bench(args) => Box::pin(bench::run(args)).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lanekeeper: {error:#}");
            ExitCode::FAILURE
        }
    }
}
