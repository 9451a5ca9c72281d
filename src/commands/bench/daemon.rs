//! The daemon under test, as a process of its own.

use std::{ffi::OsString, fs::File, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::mesh::Site;

/// How long the lane may take until it serves, and until it has stopped.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of its log is shown when it failed.
const LOG_TAIL_LINES: usize = 20;

/// A running daemon: one lane, or a host of many. Killed when dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    pid: u32,
    log: PathBuf,
    // Held so that what it prints never meets a closed pipe.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Daemon {
    /// Starts `lanekeeper serve` for `site` and waits until it serves.
    ///
    /// # Errors
    /// It does not serve in time, with the end of its log.
    pub(super) async fn start(site: &Site, log: PathBuf) -> Result<Self> {
        let (space, credentials) = (site.space.as_str().into(), site.credentials.clone().into_os_string());
        let url = OsString::from(&site.url);
        let arguments =
            ["serve".into(), "--space".into(), space, "--server".into(), url, "--credentials".into(), credentials];
        let mut daemon = Self::launch(&arguments, log)?;
        match timeout(PATIENCE, daemon.lines.next_line()).await {
            Ok(Ok(Some(line))) if line.starts_with("serving ") => Ok(daemon),
            Ok(Ok(_)) | Ok(Err(_)) => bail!("the lane ended before it served:\n{}", daemon.log_tail()),
            Err(_) => bail!("the lane does not serve after {} s:\n{}", PATIENCE.as_secs(), daemon.log_tail()),
        }
    }

    /// Starts this program with `arguments` and does not wait.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn launch(arguments: &[OsString], log: PathBuf) -> Result<Self> {
        let program = std::env::current_exe().context("find the own binary, which is the daemon's too")?;
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .context("start the daemon")?;
        let pid = child.id().context("the daemon ended at once")?;
        let lines = BufReader::new(child.stdout.take().context("the daemon has no output")?).lines();
        Ok(Self { child, pid, log, lines })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// How it ended, with the end of its log.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context("look after the lane")? {
            Some(status) => bail!("the lane ended with {status}:\n{}", self.log_tail()),
            None => Ok(()),
        }
    }

    /// SIGTERM, then waits for its end.
    ///
    /// # Errors
    /// It does not end in time, or not cleanly.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.check()?;
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("the lane has no process id")?;
        kill_process(pid, Signal::TERM).context("stop the lane")?;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => bail!("the lane ended with {status}:\n{}", self.log_tail()),
            Ok(Err(fault)) => Err(fault).context("wait for the end of the lane"),
            Err(_) => bail!("the lane does not stop after {} s:\n{}", PATIENCE.as_secs(), self.log_tail()),
        }
    }

    /// The last lines it logged.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}
