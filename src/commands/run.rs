//! `lanekeeper run`: every space of the manifest, each in a lane of its own, until SIGTERM or SIGINT.
//!
//! Owns the two runtimes, the signals and the order of start and stop. The supervisor, the admin server and whatever must
//! notice trouble run on one thread of their own; lanes have the others, so that their load never starves it. It must
//! never touch a signing key.

mod desk;
mod service;
mod snapshot;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub(super) use desk::desk;

use super::files::FileArgs;
use crate::{
    admin::Admin,
    config::HostConfig,
    signals,
    supervisor::{Handle, LaneState, Supervisor, SupervisorConfig},
};

/// The fewest threads that lanes share.
const LEAST_LANE_THREADS: usize = 2;
/// How long what is left of the lanes may take once the supervisor has ended.
const LEFT_OVER_PATIENCE: Duration = Duration::from_secs(1);
/// What the process may take to stop beyond the supervisor's own bound.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Arguments of `lanekeeper run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Keep the state of the host and of every lane in this file, as JSON, replaced as a whole whenever it changes.
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Notice changes of the manifest and of credentials by polling alone. For file systems that send no events.
    #[arg(long)]
    no_watch: bool,
}

/// Serves until SIGTERM or SIGINT, then closes every lane.
///
/// # Errors
/// The configuration is not valid, the admin server cannot listen, or a lane could not be closed.
pub fn run(args: &RunArgs) -> Result<()> {
    let host = args.files.host()?;
    let control = runtime::Builder::new_current_thread().enable_all().build().context("start the control runtime")?;
    let lanes = lanes_runtime()?;
    let result = control.block_on(Box::pin(supervise(args, host, lanes.handle().clone())));
    lanes.shutdown_timeout(LEFT_OVER_PATIENCE);
    // A thread that hangs in a file system must not keep the process.
    control.shutdown_background();
    result
}

fn lanes_runtime() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(LEAST_LANE_THREADS, usize::from);
    let threads = cores.saturating_sub(1).max(LEAST_LANE_THREADS);
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name("lanes").enable_all().build().context("start the runtime of the lanes")
}

async fn supervise(args: &RunArgs, host: HostConfig, lanes: runtime::Handle) -> Result<()> {
    // Armed before anything is opened, so that a stop during the start is never lost.
    let stop = signals::stop_on_signal()?;
    let mut hangup = signal(SignalKind::hangup()).context("handle SIGHUP")?;
    let admin = Admin::bind(&host.admin).await?;
    // For scripts that let the system choose the port; the log goes to standard error.
    println!("admin {}", admin.address());
    let stop_bound = Duration::from_millis(host.limits.close_timeout_ms) + STOP_MARGIN + STOP_MARGIN;
    let manifest_path = host.manifest.clone();
    tracing::info!(host = %host.host, manifest = %manifest_path.display(), "starting");
    let config = SupervisorConfig { host, manifest_path, lanes: lanes.clone(), is_watching: !args.no_watch };
    let handle = Supervisor::start(&config, stop.clone());
    let mut beside = JoinSet::new();
    // The admin server answers until the last lane is closed.
    let last = CancellationToken::new();
    beside.spawn(admin.serve(desk(handle.clone()), last.clone()));
    beside.spawn(service::report(handle.clone(), lanes, stop.clone()));
    beside.spawn(say_ready(handle.clone()));
    if let Some(path) = args.status_file.clone() {
        beside.spawn(snapshot::keep(handle.clone(), path));
    }
    let reloads = handle.clone();
    beside.spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP, reading the manifest");
            service::reload(&reloads).await;
        }
    });
    let ended = async {
        let stopped = handle.stopped().await;
        (stopped, stop.is_cancelled())
    };
    let bound = async {
        stop.cancelled().await;
        tokio::time::sleep(stop_bound).await;
    };
    let (stopped, was_asked) = tokio::select! {
        ended = ended => ended,
        () = bound => anyhow::bail!("not every lane was closed within {} ms", stop_bound.as_millis()),
    };
    ensure!(!stopped.is_broken && was_asked, "the supervisor ended by itself, this is a defect");
    last.cancel();
    // The snapshot and the service manager see the end; what else is left is dropped.
    let _ = timeout(LEFT_OVER_PATIENCE, snapshot::last(&handle, args.status_file.as_deref())).await;
    beside.shutdown().await;
    let wedged: Vec<&str> = stopped.wedged.iter().map(lanekeeper_wire::Space::as_str).collect();
    ensure!(wedged.is_empty(), "lanes that could not be closed: {}", wedged.join(", "));
    tracing::info!("every lane is closed");
    Ok(())
}

/// One line for scripts and tests that wait for readiness.
async fn say_ready(handle: Handle) {
    let mut shown = handle.watch_status();
    if let Ok(status) = shown.wait_for(|status| status.ready).await {
        println!("ready {} of {} lanes serve", status.count(LaneState::Serving), status.lanes.len());
    }
}
