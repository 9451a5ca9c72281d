//! What a lane costs while nothing is posted: time to serve, memory and connections, processor time of an idle host.
//!
//! Owns the set-up of many spaces on one broker and the reading of the host's status file. The host is a process of its
//! own, so that its memory is its own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use lanekeeper_broker::{process_cpu_time, process_rss_bytes};
use lanekeeper_provision::{LaneCredentialSettings, SpaceSettings};
use serde_json::json;
use tokio::time::Instant;

use super::daemon::Daemon;
use crate::{
    mesh::{Mesh, MeshOptions, Site},
    supervisor::status::{HostStatus, LaneState},
};

/// How many spaces are provisioned at once.
const PROVISIONED_AT_ONCE: usize = 8;
/// How long all lanes may take until they serve.
const SERVING_PATIENCE: Duration = Duration::from_secs(300);

/// How often the status file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Arguments of `lanekeeper bench lanes`.
#[derive(Debug, Clone, Args)]
pub(super) struct LanesArgs {
    /// Lanes, each with a space and an account of its own.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lanes: u32,
    /// How long the idle host is watched, seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    idle_s: u64,
    /// Where the broker keeps its streams, in a directory of its own that is removed afterwards.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Also write the figures here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The figures.
#[derive(Debug)]
struct Figures {
    lanes: u32,
    serving_s: f64,
    rss_mib_per_lane: f64,
    host_rss_mib: f64,
    broker_rss_mib_per_lane: f64,
    connections_per_lane: f64,
    idle_cpu_percent: f64,
    broker_idle_cpu_percent: f64,
}

/// Measures and prints.
///
/// # Errors
/// The broker, a space or the host could not be started, or not every lane serves in time.
pub(super) async fn measure(args: LanesArgs) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("lanekeeper-bench-").tempdir().context("make a directory")?;
    let store = args.store.as_ref().map(|parent| tempfile::tempdir_in(parent).context("make a store")).transpose()?;
    let options =
        MeshOptions { store: store.as_ref().map(|store| store.path().join("store")), ..MeshOptions::default() };
    let mut mesh = Mesh::start(&dir.path().join("mesh"), options).await?;
    let sites = provision(&mesh, args.lanes).await?;
    let files = Files::write(dir.path(), &sites)?;
    let broker = mesh.broker.pid().context("the broker has no process id")?;
    let broker_before = process_rss_bytes(broker)?;
    let started = Instant::now();
    let mut host = Daemon::launch(&files.arguments(), dir.path().join("host.log"))?;
    let status = all_serving(&mut host, &files.status, args.lanes).await?;
    let serving_s = started.elapsed().as_secs_f64();
    let (cpu, broker_cpu) = (process_cpu_time(host.pid())?, process_cpu_time(broker)?);
    let watched = Duration::from_secs(args.idle_s);
    tokio::time::sleep(watched).await;
    let percent = |before: Duration, now: Duration| (now - before).as_secs_f64() / watched.as_secs_f64() * 100.0;
    let lanes = f64::from(args.lanes);
    let figures = Figures {
        lanes: args.lanes,
        serving_s,
        rss_mib_per_lane: mib(process_rss_bytes(host.pid())?) / lanes,
        host_rss_mib: mib(process_rss_bytes(host.pid())?),
        broker_rss_mib_per_lane: mib(process_rss_bytes(broker)?.saturating_sub(broker_before)) / lanes,
        connections_per_lane: status.lanes.iter().map(|lane| f64::from(lane.connections)).sum::<f64>() / lanes,
        idle_cpu_percent: percent(cpu, process_cpu_time(host.pid())?),
        broker_idle_cpu_percent: percent(broker_cpu, process_cpu_time(broker)?),
    };
    host.stop().await?;
    mesh.broker.kill().await?;
    print!("{}", figures.text());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&figures.json())?;
        tokio::fs::write(path, text + "\n").await.with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

async fn provision(mesh: &Mesh, lanes: u32) -> Result<Vec<Site>> {
    let (settings, lane) = (SpaceSettings::default(), LaneCredentialSettings::default());
    futures::stream::iter(0..lanes)
        .map(|number| {
            let (settings, lane) = (&settings, &lane);
            async move { mesh.space(&format!("bench{number}").parse()?, settings, lane).await }
        })
        .buffer_unordered(PROVISIONED_AT_ONCE)
        .try_collect()
        .await
}

/// The host's files.
struct Files {
    config: PathBuf,
    manifest: PathBuf,
    status: PathBuf,
}

impl Files {
    fn write(dir: &Path, sites: &[Site]) -> Result<Self> {
        let files = Self {
            config: dir.join("lanekeeper.toml"),
            manifest: dir.join("spaces.toml"),
            status: dir.join("status.json"),
        };
        let url = sites.first().map_or("", |site| site.url.as_str());
        let config = format!("host = \"bench\"\nservers = [\"{url}\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n");
        std::fs::write(&files.config, config).context("write the configuration")?;
        let mut manifest = String::new();
        for site in sites {
            let credentials = serde_json::to_string(&site.credentials.display().to_string())?;
            manifest += &format!("[[space]]\nname = \"{}\"\ncredentials = {credentials}\n", site.space);
        }
        std::fs::write(&files.manifest, manifest).context("write the manifest")?;
        Ok(files)
    }

    fn arguments(&self) -> Vec<std::ffi::OsString> {
        let named = [("--config", &self.config), ("--manifest", &self.manifest), ("--status-file", &self.status)];
        let pairs = named.into_iter().flat_map(|(name, path)| [name.into(), path.clone().into_os_string()]);
        std::iter::once("run".into()).chain(pairs).collect()
    }
}

async fn all_serving(host: &mut Daemon, status: &Path, lanes: u32) -> Result<HostStatus> {
    let until = Instant::now() + SERVING_PATIENCE;
    loop {
        host.check()?;
        let text = tokio::fs::read(status).await.unwrap_or_default();
        if let Ok(status) = serde_json::from_slice::<HostStatus>(&text)
            && status.count(LaneState::Serving) == lanes as usize
        {
            return Ok(status);
        }
        ensure!(
            Instant::now() < until,
            "not every lane serves in time:\n{}\n{}",
            String::from_utf8_lossy(&text),
            host.log_tail()
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes of memory, far below what a float holds exactly")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

impl Figures {
    fn text(&self) -> String {
        let rows = [
            ("lanes", format!("{}", self.lanes)),
            ("all serving after", format!("{:.2} s", self.serving_s)),
            ("host memory", format!("{:.1} MiB, {:.3} MiB a lane", self.host_rss_mib, self.rss_mib_per_lane)),
            ("broker memory for the host", format!("{:.3} MiB a lane", self.broker_rss_mib_per_lane)),
            ("connections", format!("{:.2} a lane", self.connections_per_lane)),
            ("idle host cpu", format!("{:.2} % of a core", self.idle_cpu_percent)),
            ("idle broker cpu", format!("{:.2} % of a core", self.broker_idle_cpu_percent)),
        ];
        rows.iter().map(|(name, value)| format!("{name:<28}{value}\n")).collect()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "lanes": self.lanes,
            "serving_s": self.serving_s,
            "rss_mib_per_lane": self.rss_mib_per_lane,
            "host_rss_mib": self.host_rss_mib,
            "broker_rss_mib_per_lane": self.broker_rss_mib_per_lane,
            "connections_per_lane": self.connections_per_lane,
            "idle_cpu_percent": self.idle_cpu_percent,
            "broker_idle_cpu_percent": self.broker_idle_cpu_percent,
        })
    }
}
