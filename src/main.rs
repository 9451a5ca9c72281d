//! Entry point of the `lanekeeper` binary: arguments, logging, exit code.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lanekeeper::commands::{bench, serve};
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
    /// Serve one space on a broker that is already there.
    Serve(serve::ServeArgs),
    /// Measure throughput, latency and cost on a broker of its own.
    Bench(bench::BenchArgs),
}

/// The variable with the log filter, in the syntax of `tracing`.
const LOG_VARIABLE: &str = "LANEKEEPER_LOG";
/// The client library reports every refused dial as an error of its own; the lane says it once, with the space.
const LOG_DEFAULT: &str = "info,async_nats=off";

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(args).await,
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
