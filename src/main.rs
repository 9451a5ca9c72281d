//! Entry point of the `lanekeeper` binary: arguments, logging, exit code.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use lanekeeper::commands::{bench, check, dev, serve};
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
        Command::Bench(_) | Command::Dev(_) | Command::Check(_) => LOG_DEFAULT_DEV,
        Command::Serve(_) => LOG_DEFAULT,
    };
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal();
    fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
    let result = match command {
        Command::Dev(args) => dev::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Check(args) => check::run(args).await,
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
