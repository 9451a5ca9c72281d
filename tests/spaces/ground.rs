//! A broker with its operator's keys, a manifest, and the command as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use lanekeeper::{
    config::HostConfig,
    manifest::{self, Manifest},
    mesh::{Mesh, MeshOptions},
};
use lanekeeper_lane::{Fault, LaneConfig, Limits, Standby, preflight};
use lanekeeper_wire::Space;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use crate::support::{PATIENCE, secrets};

pub(crate) struct Ground {
    pub(crate) mesh: Mesh,
    pub(crate) manifest: PathBuf,
    pub(crate) credentials: PathBuf,
    dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ground {
    /// With a manifest of this name, which is not there yet.
    pub(crate) async fn new(manifest: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        let etc = dir.path().join("etc");
        fs::create_dir(&etc).unwrap();
        Self { mesh, manifest: etc.join(manifest), credentials: dir.path().join("credentials"), dir }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.mesh.dir().join("keys")
    }

    /// `space add NAME`, as it is typed.
    pub(crate) fn adding(&self, name: &str) -> Command {
        self.adding_at(name, &self.mesh.broker.url())
    }

    pub(crate) fn adding_at(&self, name: &str, url: &str) -> Command {
        let mut command = self.command(&["space", "add", name, "--server", url]);
        command.arg("--home").arg(self.home()).arg("--credentials-root").arg(&self.credentials);
        command
    }

    /// `space remove NAME --purge`.
    pub(crate) fn purging(&self, name: &str) -> Command {
        let url = self.mesh.broker.url();
        let mut command = self.command(&["space", "remove", name, "--purge", "--server", &url]);
        command.arg("--home").arg(self.home()).arg("--credentials-root").arg(&self.credentials);
        command
    }

    pub(crate) fn removing(&self, name: &str) -> Command {
        self.command(&["space", "remove", name])
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
        command.args(args).arg("--manifest").arg(&self.manifest);
        command.current_dir(self.dir.path()).env_remove("LANEKEEPER_CONFIG").env("LANEKEEPER_LOG", "trace");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs it. What it says is kept, and looked through for secrets at the end.
    pub(crate) async fn run(&self, mut command: Command) -> Ended {
        let output = timeout(PATIENCE, command.output()).await.expect("an end in time").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let ended = Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) };
        let log = self.dir.path().join("said.log");
        let said = fs::read_to_string(&log).unwrap_or_default() + &ended.stdout + &ended.stderr;
        fs::write(log, said).unwrap();
        ended
    }

    pub(crate) async fn add(&self, name: &str) -> String {
        self.run(self.adding(name)).await.good()
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.manifest).unwrap()
    }

    /// The manifest as a host would read it.
    pub(crate) fn load(&self) -> Manifest {
        manifest::load(&self.manifest, &HostConfig::default()).unwrap_or_else(|faults| panic!("{faults}"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.load().spaces.keys().map(Space::to_string).collect()
    }

    /// Whether a lane could be opened with what is in the manifest.
    pub(crate) async fn preflight(&self, name: &str) -> Result<(), Fault> {
        let space: Space = name.parse().unwrap();
        let credentials = self.load().spaces[&space].credentials.clone();
        self.preflight_with(name, credentials).await
    }

    pub(crate) async fn preflight_with(&self, name: &str, credentials: PathBuf) -> Result<(), Fault> {
        let config = LaneConfig {
            space: name.parse().unwrap(),
            servers: vec![self.mesh.broker.url().parse().unwrap()],
            credentials,
            limits: Limits::default(),
            standby: Standby::Refuse,
        };
        preflight(&config).await
    }

    /// Fails if anything lies about that is neither the manifest nor a space's credentials.
    pub(crate) fn assert_tidy(&self) {
        for dir in [self.manifest.parent().unwrap(), &self.manifest, &self.credentials] {
            let hidden: Vec<String> = listed(dir).into_iter().filter(|name| name.starts_with('.')).collect();
            assert!(hidden.is_empty(), "{hidden:?} in {}", dir.display());
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            secrets::assert_none_in_logs(self.dir.path(), self.dir.path());
        }
    }
}

impl Ended {
    pub(crate) fn good(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    pub(crate) fn bad(self, parts: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        assert!(parts.iter().all(|part| self.stderr.contains(part)), "{parts:?} in {}", self.stderr);
    }
}

/// The names in a directory, sorted; none where it is no directory.
pub(crate) fn listed(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
