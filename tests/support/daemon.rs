//! The daemon under test, as a process of its own.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use lanekeeper::mesh::Site;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::PATIENCE;

/// The variable with the path of another build of the daemon to test.
const BINARY_VARIABLE: &str = "LANEKEEPER_TEST_BINARY";

fn binary() -> PathBuf {
    std::env::var_os(BINARY_VARIABLE).map_or_else(|| env!("CARGO_BIN_EXE_lanekeeper").into(), PathBuf::from)
}

/// A running `lanekeeper serve`. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Daemon {
    /// Starts the daemon for `site` and waits until it serves.
    pub(crate) async fn serving(site: &Site, log: &Path, args: &[&str]) -> Self {
        let mut daemon = Self::start(site, &site.url, log, args);
        daemon.wait_serving().await;
        daemon
    }

    /// Starts the daemon for `site` on the broker at `url`, and does not wait.
    pub(crate) fn start(site: &Site, url: &str, log: &Path, args: &[&str]) -> Self {
        let credentials = site.credentials.display().to_string();
        let mut all = vec!["serve", "--space", site.space.as_str(), "--server", url, "--credentials", &credentials];
        all.extend(args);
        Self::command(&all, log)
    }

    /// Starts the binary with any arguments.
    pub(crate) fn command(args: &[&str], log: &Path) -> Self {
        Self::command_within(&[], args, &[], log)
    }

    /// Starts the binary with any arguments and further variables, below the command `within`.
    pub(crate) fn command_within(within: &[&str], args: &[&str], variables: &[(&str, &str)], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let program = within.first().map_or_else(binary, PathBuf::from);
        let itself = (!within.is_empty()).then(binary);
        let mut child = Command::new(program)
            .args(within.iter().skip(1))
            .args(itself)
            .args(args)
            .envs(variables.iter().copied())
            // Everything, so that the search for secrets in it means something.
            .env("LANEKEEPER_LOG", "trace")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, log: log.to_owned() }
    }

    /// Waits for the line that says it serves.
    pub(crate) async fn wait_serving(&mut self) {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("not serving in time:\n{}", self.log_text())).unwrap();
        assert!(line.as_deref().is_some_and(|line| line.starts_with("serving ")), "{line:?}\n{}", self.log_text());
    }

    /// The next line of standard output.
    pub(crate) async fn next_line(&mut self) -> Option<String> {
        timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time").unwrap()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self, within: Duration) -> ExitStatus {
        match timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("it does not end:\n{}", self.log_text()),
        }
    }

    /// SIGTERM, then waits for its end, which must be a success.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ended(PATIENCE).await;
        assert!(status.success(), "{status}\n{}", self.log_text());
    }

    /// SIGKILL, then waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.ended(PATIENCE).await;
    }

    /// Everything it logged.
    pub(crate) fn log_text(&self) -> String {
        let mut text = String::new();
        File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }
}
