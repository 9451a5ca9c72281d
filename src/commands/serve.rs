//! `lanekeeper serve`: the lane of one space against a broker that is already there.
//!
//! Owns the signals and the life after the lane's first readiness. It must never touch a signing key.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use lanekeeper_lane::{Fault, Lane, LaneConfig, Limits, Standby, State};
use lanekeeper_wire::Space;
use tokio_util::sync::CancellationToken;

use crate::{
    signals,
    supervisor::backoff::{Backoff, Curve, Pause, jittered},
};

/// Arguments of `lanekeeper serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The space to serve.
    #[arg(long)]
    pub space: Space,
    /// The broker, as `nats://host:port`; give it again for each further server of a cluster.
    #[arg(long = "server", required = true)]
    pub servers: Vec<String>,
    /// The directory with the lane's credential files (`delivery.creds` and its neighbours).
    #[arg(long)]
    pub credentials: PathBuf,
    /// Wait for the lease where another daemon holds it, instead of refusing.
    #[arg(long)]
    pub standby: bool,
    /// Ack wait of the durables `fanout` and `reader`, milliseconds, where this lane creates them.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1_000..=600_000))]
    pub ack_wait_ms: u64,
    /// How long a lane that has served dials a lost broker before it is closed and opened anew, milliseconds.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(500..=600_000))]
    pub broker_window_ms: u64,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The first fault before the lane was ready, as one line; after that the lane is opened again instead.
pub async fn run(args: ServeArgs) -> Result<()> {
    // Armed before anything is claimed, so that a stop during the start is never lost.
    let stop = signals::stop_on_signal()?;
    let config = config(&args)?;
    let (curve, mut backoff) = (Curve::default(), Backoff::default());
    let mut has_served = false;
    loop {
        let (fault, served_for) = match serve_once(&config, &stop, &mut has_served).await {
            (Ok(()), _) => return Ok(()),
            (Err(fault), served_for) => (fault, served_for),
        };
        if !has_served {
            return Err(fault.into());
        }
        let pause = match backoff.after(&curve, fault.fate(), served_for, &mut rand::rng()) {
            Pause::After(pause) => pause,
            // Nobody tells of a change here, so it is looked for now and then.
            Pause::UntilChanged => jittered(curve.slow, &mut rand::rng()),
        };
        tracing::error!(space = %config.space, code = fault.code(), %fault, pause_ms = pause.as_millis(), "lane ended, it is opened again");
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The lane's configuration out of the arguments.
///
/// # Errors
/// A server address that cannot be parsed.
pub fn config(args: &ServeArgs) -> Result<LaneConfig> {
    let mut servers = Vec::new();
    for server in &args.servers {
        let parsed =
            server.parse().with_context(|| format!("server `{server}` is not an address such as nats://host:4222"));
        servers.push(parsed?);
    }
    Ok(LaneConfig {
        space: args.space.clone(),
        servers,
        credentials: args.credentials.clone(),
        limits: Limits {
            ack_wait: Duration::from_millis(args.ack_wait_ms),
            broker_window: Duration::from_millis(args.broker_window_ms),
            ..Limits::default()
        },
        standby: if args.standby { Standby::Wait { head_start: Duration::ZERO } } else { Standby::Refuse },
    })
}

/// One life of the lane, and how long it served.
async fn serve_once(
    config: &LaneConfig,
    stop: &CancellationToken,
    has_served: &mut bool,
) -> (Result<(), Fault>, Duration) {
    let (lane, mut watch) = Lane::new(config.clone());
    let mut served_since = None;
    let running = lane.run(stop.clone());
    tokio::pin!(running);
    let result = loop {
        tokio::select! {
            biased;
            changed = watch.state.changed() => {
                let state = *watch.state.borrow_and_update();
                // A standby is established as well: it waits, whatever becomes of its connection.
                *has_served |= state == State::Standby;
                if changed.is_ok() && state == State::Serving {
                    *has_served = true;
                    served_since.get_or_insert_with(tokio::time::Instant::now);
                    // For scripts and tests that wait for readiness; the log goes to standard error.
                    println!("serving {}", config.space);
                }
                if changed.is_err() || state == State::Closed {
                    break running.await;
                }
            }
            result = &mut running => break result,
        }
    };
    (result, served_since.map_or(Duration::ZERO, |since| since.elapsed()))
}
