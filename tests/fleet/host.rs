//! A host under test, `lanekeeper run`, as a process of its own.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lanekeeper::supervisor::status::{HostStatus, LaneState, Outcome};
use lanekeeper_broker::wait_until;
use lanekeeper_wire::Space;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{http, support::PATIENCE};

/// A running host. Killed when dropped.
pub(crate) struct Host {
    pub(crate) name: String,
    child: Child,
    admin: SocketAddr,
    log: PathBuf,
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    /// Starts host `name` for the manifest in `dir`, on these brokers, and waits until its admin server listens. `more` is
    /// appended to its configuration, sections first.
    pub(crate) async fn start(dir: &Path, name: &str, servers: &[String], hosts: &[&str], more: &str) -> Self {
        let (config, log) = (dir.join(format!("{name}.toml")), dir.join(format!("{name}.log")));
        let hosts = if hosts.is_empty() { String::new() } else { format!("hosts = {hosts:?}\n") };
        let text = format!(
            "host = \"{name}\"\nservers = {servers:?}\nmanifest = \"spaces.toml\"\n{hosts}{more}[admin]\nlisten = \"127.0.0.1:0\"\n"
        );
        fs::write(&config, text).unwrap();
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lanekeeper"))
            .arg("run")
            .arg("--config")
            .arg(&config)
            .env("LANEKEEPER_LOG", "info,async_nats=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap();
        let address = first.as_deref().and_then(|line| line.strip_prefix("admin ")).and_then(|text| text.parse().ok());
        let admin = address.unwrap_or_else(|| panic!("{first:?}\n{}", fs::read_to_string(&log).unwrap()));
        Self { name: name.to_owned(), child, admin, log, _lines: lines }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// What it shows of itself.
    pub(crate) async fn status(&self) -> HostStatus {
        let (status, body) = http::ask(self.admin, "GET", "/lanes").await.unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The spaces it serves.
    pub(crate) async fn served(&self) -> Vec<Space> {
        let lanes = self.status().await.lanes.into_iter();
        lanes.filter(|lane| lane.state == LaneState::Serving).map(|lane| lane.space).collect()
    }

    /// Gives an order that must be taken.
    pub(crate) async fn order(&self, path: &str) {
        let (status, body) = http::ask(self.admin, "POST", path).await.unwrap();
        assert_eq!(status, 202, "{path}: {body}");
    }

    /// Has it read the manifest, and waits until everything of it is done.
    pub(crate) async fn reload(&self) -> Outcome {
        let (status, body) = http::ask(self.admin, "POST", "/reload").await.unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until it serves exactly `count` spaces.
    pub(crate) async fn wait_serving(&self, count: usize, within: Duration) -> HostStatus {
        let all = async || {
            let status = self.status().await;
            (status.count(LaneState::Serving) == count).then_some(status)
        };
        match wait_until(&format!("{count} lanes that serve"), within, all).await {
            Ok(status) => status,
            Err(error) => panic!("{error}: {:#?}\n{}", self.brief().await, self.log_tail()),
        }
    }

    /// What it shows, in a few words a lane.
    pub(crate) async fn brief(&self) -> Vec<String> {
        let lanes = self.status().await.lanes.into_iter();
        lanes.map(|lane| format!("{} {} {}", lane.space, lane.state, lane.reason)).collect()
    }

    /// SIGKILL, then waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        timeout(PATIENCE, self.child.wait()).await.expect("its end").unwrap();
    }

    /// SIGTERM, then waits for its end, which must be a success.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = timeout(PATIENCE, self.child.wait()).await.expect("its end").unwrap();
        assert!(status.success(), "{}: {status}\n{}", self.name, self.log_tail());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap(), signal).unwrap();
    }

    /// The last lines it logged.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}
