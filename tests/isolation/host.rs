//! A host under test: `lanekeeper run` as a process of its own, with its files, and what it says of itself.

use std::{
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use lanekeeper::{
    mesh::Site,
    supervisor::{HostStatus, LaneState, LaneStatus},
};
use lanekeeper_wire::Space;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::support::PATIENCE;

/// What a part that was torn away had in hand comes again after this long.
const ACK_WAIT_MS: u64 = 3_000;

/// A running `lanekeeper run`. Killed when dropped.
pub(crate) struct Host {
    child: Child,
    dir: PathBuf,
    admin: String,
}

impl Host {
    /// Starts a host on a manifest of all `sites` with everything it needs in `dir`. `limits` is the text of the section.
    pub(crate) async fn start(dir: &Path, sites: &[Site], limits: &str) -> Self {
        let url = &sites[0].url;
        let config = format!(
            "host = \"one\"\nservers = [\"{url}\"]\nmanifest = \"spaces.toml\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n\n[limits]\n{limits}\n\n[lane]\nack_wait_ms = {ACK_WAIT_MS}\n"
        );
        fs::write(dir.join("lanekeeper.toml"), config).unwrap();
        let mut manifest = String::new();
        for site in sites {
            let (space, credentials) = (&site.space, site.credentials.display());
            write!(manifest, "[[space]]\nname = \"{space}\"\ncredentials = \"{credentials}\"\n\n").unwrap();
        }
        fs::write(dir.join("spaces.toml"), manifest).unwrap();
        fs::create_dir_all(dir.join("hooks")).unwrap();
        let log = File::options().create(true).append(true).open(dir.join("host.log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lanekeeper"))
            .arg("run")
            .arg("--config")
            .arg(dir.join("lanekeeper.toml"))
            .arg("--status-file")
            .arg(dir.join("status.json"))
            .env("LANEKEEPER_HOOKS", dir.join("hooks"))
            .env("LANEKEEPER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap();
        let admin = line.as_deref().and_then(|line| line.strip_prefix("admin "));
        let admin = admin.unwrap_or_else(|| panic!("{line:?}\n{}", log_text(dir))).to_owned();
        // What else it prints must find a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, dir: dir.to_owned(), admin }
    }

    /// The host's state as it last wrote it.
    pub(crate) fn status(&self) -> HostStatus {
        read_status(&self.status_path()).unwrap_or_default()
    }

    /// Where it keeps its state.
    pub(crate) fn status_path(&self) -> PathBuf {
        self.dir.join("status.json")
    }

    /// The state of one lane.
    pub(crate) fn lane(&self, space: &Space) -> LaneStatus {
        self.status().lane(space).unwrap_or_else(|| panic!("no lane {space}")).clone()
    }

    /// Waits until every lane serves.
    pub(crate) async fn all_serving(&self, count: usize) -> HostStatus {
        self.wait("every lane serves", |status| status.count(LaneState::Serving) == count).await
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn wait(&self, what: &str, is: impl Fn(&HostStatus) -> bool) -> HostStatus {
        let found = lanekeeper_broker::wait_until(what, PATIENCE, async || Some(self.status()).filter(&is)).await;
        found.unwrap_or_else(|error| panic!("{error}\n{:#?}\n{}", self.status(), self.log_text()))
    }

    /// Waits until one lane is as wanted.
    pub(crate) async fn wait_lane(&self, space: &Space, what: &str, is: impl Fn(&LaneStatus) -> bool) -> LaneStatus {
        let look = async || Some(self.lane(space)).filter(&is);
        let found = lanekeeper_broker::wait_until(&format!("lane {space}: {what}"), PATIENCE, look).await;
        found.unwrap_or_else(|error| panic!("{error}\n{:#?}\n{}", self.lane(space), self.log_of(space)))
    }

    /// Gives an order to one lane, as an operator does.
    pub(crate) async fn order(&self, order: &str, space: &Space) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
        command.args([order, space.as_str(), "--admin", &self.admin]).stdin(Stdio::null());
        let output = timeout(PATIENCE, command.output()).await.expect("an answer in time").unwrap();
        assert!(output.status.success(), "{order} {space}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The file that asks the debug build for a fault.
    pub(crate) fn hook(&self, name: &str) -> PathBuf {
        self.dir.join("hooks").join(name)
    }

    /// SIGTERM, then waits for its end, which must be a success.
    pub(crate) async fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().expect("it runs")).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = timeout(PATIENCE, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it does not end:\n{}", self.log_text())).unwrap();
        assert!(status.success(), "{status}\n{}", self.log_text());
    }

    /// Everything it logged.
    pub(crate) fn log_text(&self) -> String {
        log_text(&self.dir)
    }

    /// What it logged of one space.
    pub(crate) fn log_of(&self, space: &Space) -> String {
        let log = self.log_text();
        log.lines().filter(|line| line.contains(space.as_str())).collect::<Vec<_>>().join("\n")
    }
}

/// The state in this file; `None` before the first one.
pub(crate) fn read_status(path: &Path) -> Option<HostStatus> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn log_text(dir: &Path) -> String {
    fs::read_to_string(dir.join("host.log")).unwrap_or_default()
}
