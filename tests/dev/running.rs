//! A running `lanekeeper dev`, what it prints, and its broker as `/proc` shows it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use lanekeeper_broker::{process_rss_bytes, process_start_ticks, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

use super::PATIENCE;

/// The line that says that everything up to Ctrl-C is over.
const LAST_HINT: &str = "  lanekeeper serve ";

/// The process. Killed when dropped.
pub(crate) struct Dev {
    child: Child,
    /// `None` once nobody reads.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    stderr: ChildStderr,
    told: Vec<String>,
    temporary: TempDir,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) told: Vec<String>,
    pub(crate) stderr: String,
    /// What is left in the directory for temporary files.
    pub(crate) left: Vec<PathBuf>,
}

/// A broker, known by pid and start time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BrokerProcess {
    pub(crate) pid: u32,
    start_ticks: u64,
}

impl Dev {
    /// Starts it with a directory for temporary files of its own.
    pub(crate) fn start(args: &[&str]) -> Self {
        let temporary = TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lanekeeper"))
            .arg("dev")
            .args(args)
            .env("TMPDIR", temporary.path())
            .env_remove("LANEKEEPER_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        let stderr = child.stderr.take().unwrap();
        Self { child, lines, stderr, told: Vec::new(), temporary }
    }

    /// Starts it on a state that stays.
    pub(crate) fn on(state: &Path, args: &[&str]) -> Self {
        let mut all = vec!["--state", state.to_str().unwrap()];
        all.extend(args);
        Self::start(&all)
    }

    /// Waits for a line that starts like this.
    pub(crate) async fn wait_line(&mut self, start: &str) {
        let lines = self.lines.as_mut().unwrap();
        while !self.told.iter().any(|line| line.starts_with(start)) {
            let line = timeout(PATIENCE, lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no line {start:?} in time: {:#?}", self.told)).unwrap();
            self.told.push(line.unwrap_or_else(|| panic!("it ended without a line {start:?}: {:#?}", self.told)));
        }
    }

    /// Waits until the story is over and it only serves.
    pub(crate) async fn wait_serving(&mut self) {
        self.wait_line(LAST_HINT).await;
    }

    /// Everything it printed so far, as far as it was waited for.
    pub(crate) fn told(&self) -> &[String] {
        &self.told
    }

    /// Its broker. Some line was read by now, so there is one.
    pub(crate) fn broker(&self) -> BrokerProcess {
        let parent = self.child.id().unwrap();
        let found: Vec<u32> = children_of(parent);
        assert_eq!(found.len(), 1, "one child: {found:?}");
        BrokerProcess { pid: found[0], start_ticks: process_start_ticks(found[0]).unwrap() }
    }

    /// Nobody reads its standard output any more.
    pub(crate) fn close_stdout(&mut self) {
        self.lines = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> Ended {
        let mut stderr = String::new();
        let all = async {
            if let Some(lines) = &mut self.lines {
                while let Some(line) = lines.next_line().await.unwrap() {
                    self.told.push(line);
                }
            }
            self.stderr.read_to_string(&mut stderr).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(PATIENCE, all).await.expect("an end in time");
        let left = fs::read_dir(self.temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        Ended { status, told: self.told, stderr, left }
    }
}

impl Ended {
    /// Success, with nothing logged and nothing left.
    pub(crate) fn assert_clean(&self) {
        assert!(self.status.success(), "{self:#?}");
        assert_eq!(self.stderr, "", "a healthy run has nothing to log");
        assert!(self.left.is_empty(), "{:?}", self.left);
    }

    /// A failure that says this, with nothing left.
    pub(crate) fn assert_failed(&self, parts: &[&str]) {
        assert!(!self.status.success(), "{self:#?}");
        assert!(parts.iter().all(|part| self.stderr.contains(part)), "{:?} in {}", parts, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(self.left.is_empty(), "{:?}", self.left);
    }
}

impl BrokerProcess {
    /// Waits until it is gone.
    pub(crate) async fn wait_gone(self) {
        let gone = wait_until("the broker's end", PATIENCE, async || (!self.is_there()).then_some(()));
        gone.await.unwrap();
    }

    /// A process that has ended but was not reaped has no memory any more; a pid may be used again.
    pub(crate) fn is_there(self) -> bool {
        process_rss_bytes(self.pid).is_ok()
            && process_start_ticks(self.pid).is_ok_and(|start| start == self.start_ticks)
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// The fourth field of the status line; the name before it may hold anything, brackets too.
fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
