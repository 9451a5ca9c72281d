//! A member written in Python: its interpreter, its client library and one session of it.
//!
//! Owns the installation of the pinned client below the build directory, once for all runs. It must not skip anything: a
//! machine without Python or pip fails the test and says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use lanekeeper::mesh::{Member, Site};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::support::PATIENCE;

/// The interpreter, as found on the path.
const PYTHON: &str = "python3";
/// What to do when it is not usable.
const REMEDY: &str = "this test needs python3 (3.9 or later) with pip on PATH and a package index within reach";

/// One session of the Python member; going away ends it like a crash would.
pub(crate) struct PythonMember {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl PythonMember {
    /// Connects the member.
    pub(crate) async fn connect(site: &Site, member: &Member) -> Self {
        let packages = packages().await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/member.py");
        let mut child = Command::new(PYTHON)
            .arg(script)
            .args(["--url", &site.url, "--space", site.space.as_str(), "--lifecycle", &member.lifecycle.key()])
            .arg("--creds")
            .arg(&member.credentials)
            .env("PYTHONPATH", packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|fault| panic!("{PYTHON} does not start ({fault}); {REMEDY}"));
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, commands, answers }
    }

    /// Has it carry out one command; what it answers.
    pub(crate) async fn call(&mut self, command: Value) -> Value {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = timeout(PATIENCE, self.answers.next_line()).await.expect("an answer in time").unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended at {command}; its last words are above"));
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer["ok"].take()
    }

    /// Disconnects in an orderly way.
    pub(crate) async fn close(mut self) {
        drop(self.commands);
        let status = timeout(PATIENCE, self.child.wait()).await.expect("its end in time").unwrap();
        assert!(status.success(), "{status}");
    }
}

/// The directory with the pinned client library, which is installed where it is missing.
async fn packages() -> PathBuf {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/requirements.txt");
    let wanted = fs::read_to_string(&requirements).unwrap();
    let version = run(Command::new(PYTHON).arg("--version"), "ask for its version").await;
    let version: String = version.chars().filter(|char| char.is_ascii_digit() || *char == '.').collect();
    let below = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ready = below.join(format!("python-{version}-packages"));
    if fs::read_to_string(ready.join("requirements.txt")).is_ok_and(|installed| installed == wanted) {
        return ready;
    }
    // Installed aside and moved into place, so that nobody ever sees half of it.
    fs::create_dir_all(below).unwrap();
    let staged = tempfile::tempdir_in(below).unwrap();
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target"]);
    run(pip.arg(staged.path()).arg("--requirement").arg(&requirements), "install the client with pip").await;
    fs::write(staged.path().join("requirements.txt"), &wanted).unwrap();
    if ready.exists() && fs::read_to_string(ready.join("requirements.txt")).ok().as_ref() != Some(&wanted) {
        fs::remove_dir_all(&ready).unwrap();
    }
    match fs::rename(staged.path(), &ready) {
        Ok(()) => drop(staged.keep()),
        // Another run was faster.
        Err(_) if ready.join("requirements.txt").exists() => {}
        Err(fault) => panic!("cannot place the client library at {}: {fault}", ready.display()),
    }
    ready
}

async fn run(command: &mut Command, what: &str) -> String {
    let output = command.stdin(Stdio::null()).output().await;
    let output = output.unwrap_or_else(|fault| panic!("{PYTHON} does not start ({fault}); {REMEDY}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot {what}: {}\n{said}\n{REMEDY}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
