//! A whole host: `lanekeeper run` as a process, its admin server, and the commands an operator types beside it.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use lanekeeper::mesh::{Mesh, MeshOptions};
use lanekeeper_broker::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::http::{PATIENCE, Reply, Server};

struct Host {
    mesh: Mesh,
    dir: TempDir,
    child: Child,
    _lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Host {
    /// Starts a host on a broker of its own; `manifest` is its manifest's text.
    async fn start(manifest: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        fs::write(dir.path().join("spaces.toml"), manifest).unwrap();
        let config = format!("servers = [{:?}]\n\n[admin]\nlisten = \"127.0.0.1:0\"\n", mesh.broker.url());
        fs::write(dir.path().join("lanekeeper.toml"), config).unwrap();
        let log = File::create(dir.path().join("host.log")).unwrap();
        let mut child = command(dir.path(), &["run"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap().unwrap_or_default();
        let address = line.strip_prefix("admin ").unwrap_or_else(|| panic!("{line:?}: {}", said(dir.path())));
        let address = address.parse().unwrap();
        Self { mesh, dir, child, _lines: lines, address }
    }

    fn manifest(&self) -> PathBuf {
        self.dir.path().join("spaces.toml")
    }

    async fn get(&self, path: &str) -> Reply {
        Server::ask_at(self.address, "GET", path, &[], "").await
    }

    async fn post(&self, path: &str) -> Reply {
        Server::ask_at(self.address, "POST", path, &[], "").await
    }

    /// Runs a command; what it said, and whether it succeeded.
    async fn type_in(&self, args: &[&str]) -> (bool, String) {
        let mut command = command(self.dir.path(), args);
        if args[0] != "space" {
            command.arg("--admin").arg(self.address.to_string());
        }
        let output = timeout(PATIENCE, command.output()).await.expect("an end in time").unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    }

    async fn add(&self, space: &str) {
        let (url, home) = (self.mesh.broker.url(), self.mesh.home.dir().display().to_string());
        let root = self.dir.path().join("credentials").display().to_string();
        let args = ["space", "add", space, "--server", &url, "--home", &home, "--credentials-root", &root];
        let (is_good, text) = self.type_in(&args).await;
        assert!(is_good, "{text}");
    }

    /// Waits until the lane of `space` is like this.
    async fn wait(&self, space: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/lanes/{space}");
        let what = format!("`{space}` is {what}");
        let looked = wait_until(&what, PATIENCE, async || {
            let reply = self.get(&path).await;
            if reply.status == 200 { Some(reply.json()).filter(|lane| is_so(lane)) } else { None }
        });
        match looked.await {
            Ok(lane) => lane,
            Err(error) => panic!("{error}: {}\n{}", self.get(&path).await.body, said(self.dir.path())),
        }
    }

    async fn wait_state(&self, space: &str, state: &str) -> Value {
        self.wait(space, state, |lane| lane["state"] == state).await
    }

    async fn wait_gone(&self, space: &str) {
        let path = format!("/lanes/{space}");
        let gone = async || (self.get(&path).await.status == 404).then_some(());
        wait_until(&format!("`{space}` is gone"), PATIENCE, gone).await.unwrap();
    }

    async fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = timeout(PATIENCE, self.child.wait()).await.expect("an end in time").unwrap();
        assert!(status.success(), "{status}: {}", said(self.dir.path()));
        let log = self.mesh.broker.log_text().unwrap();
        assert!(!log.contains("Permissions Violation"), "{log}");
    }
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
    command.args(args).arg("--config").arg(dir.join("lanekeeper.toml"));
    command.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn said(dir: &Path) -> String {
    fs::read_to_string(dir.join("host.log")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_started_fed_looked_at_and_emptied() {
    // It starts although its manifest is of no use, and says so.
    let host = Host::start("[[space]]\nnmae = \"a\"\n").await;
    assert_eq!(host.get("/healthz").await.status, 200);
    let told = wait_until("the manifest is refused", PATIENCE, async || {
        let reply = host.get("/readyz").await;
        assert_eq!(reply.status, 503, "{reply:?}");
        Some(reply.error())
            .filter(|error| error.contains("spaces.toml:1:1: `credentials` is missing") && error.contains("2 more"))
    });
    told.await.unwrap();
    let (is_good, text) = host.type_in(&["reload"]).await;
    assert!(!is_good && text.contains("nothing was changed") && text.contains("spaces.toml:2:1"), "{text}");

    // Spaces appear as they are added, without anybody telling the host.
    fs::remove_file(host.manifest()).unwrap();
    for space in ["a", "b", "c"] {
        host.add(space).await;
    }
    for space in ["a", "b", "c"] {
        let lane = host.wait_state(space, "serving").await;
        assert!(lane["lease_revision"].as_u64().is_some() && lane["connections"].as_u64() > Some(0), "{lane}");
    }
    let ready = host.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["serving"]), (200, &Value::from(3)), "{ready:?}");
    let (_, table) = host.type_in(&["lanes"]).await;
    assert!(table.contains("\n3 of 3 serving\n") && table.contains("\nc "), "{table}");
    assert_eq!(host.get("/lanes/nobody").await.status, 404);

    // One closed of three is no mass close; the last but one of two is none either.
    let (is_good, text) = host.type_in(&["space", "remove", "c"]).await;
    assert!(is_good, "{text}");
    host.wait_gone("c").await;
    let (is_good, _) = host.type_in(&["space", "remove", "b"]).await;
    assert!(is_good);
    host.wait_gone("b").await;

    // The last one is.
    let (is_good, text) = host.type_in(&["space", "remove", "a"]).await;
    assert!(is_good && text.contains("--allow-mass-close"), "{text}");
    let reply = host.post("/reload").await;
    assert_eq!(reply.status, 422, "{reply:?}");
    assert!(reply.body.contains("allow_mass_close"), "{reply:?}");
    host.wait_state("a", "serving").await;
    let (is_good, text) = host.type_in(&["reload", "--allow-mass-close"]).await;
    assert!(is_good && text.contains("closed    a\n"), "{text}");
    host.wait_gone("a").await;
    let (_, table) = host.type_in(&["lanes"]).await;
    assert!(table.contains("no lane: "), "{table}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_take_orders_one_by_one() {
    let host = Host::start("allow_empty = true\n").await;
    for space in ["a", "b"] {
        host.add(space).await;
        host.wait_state(space, "serving").await;
    }
    let connections = |lane: &Value| lane["generation"].as_u64().unwrap();
    let before = connections(&host.wait_state("b", "serving").await);

    let (is_good, text) = host.type_in(&["drain", "a"]).await;
    assert!(is_good && text.contains("handed over: `a`"), "{text}");
    host.wait("a", "drained and closed", |lane| lane["drained"] == true && lane["connections"] == 0).await;
    let ready = host.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["down"]), (200, &Value::Array(Vec::new())), "it is meant to be down");
    let reopened = host.post("/lanes/a/reopen").await;
    assert_eq!((reopened.status, reopened.error().contains("undrain")), (409, true), "{reopened:?}");
    assert_eq!(host.post("/lanes/a/undrain").await.status, 202);
    host.wait("a", "serving again", |lane| lane["drained"] == false && lane["state"] == "serving").await;

    let was = connections(&host.wait_state("a", "serving").await);
    assert_eq!(host.post("/lanes/a/reopen").await.status, 202);
    host.wait("a", "opened anew", |lane| connections(lane) > was && lane["state"] == "serving").await;
    let unparked = host.post("/lanes/a/unpark").await;
    assert_eq!((unparked.status, unparked.error().contains("not parked")), (409, true), "{unparked:?}");
    assert_eq!(host.post("/lanes/nobody/unpark").await.status, 404);

    // A lane that is down is named with its reason, and its neighbour is as it was.
    let creds = host.dir.path().join("credentials/a/delivery.creds");
    let good = fs::read(&creds).unwrap();
    fs::write(&creds, "garbage\n").unwrap();
    // The host sees it, and a lane that serves goes on with what it has.
    let refused = wait_until("the garbage is refused", PATIENCE, async || {
        let reload = host.get("/lanes").await.json()["last_reload"].clone();
        let refused = reload["refused"].as_array()?.iter().any(|why| why[0] == "a");
        refused.then_some(())
    });
    refused.await.unwrap();
    assert_eq!(connections(&host.wait_state("a", "serving").await), was + 1);
    assert_eq!(host.post("/lanes/a/reopen").await.status, 202);
    host.wait("a", "parked", |lane| lane["state"] == "parked" && lane["last_fault"]["code"] == "LANE-103").await;
    let ready = host.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["down"][0]["code"]), (200, &Value::from("LANE-103")), "{ready:?}");
    let (_, table) = host.type_in(&["lanes"]).await;
    assert!(table.contains("1 of 2 serving, 1 parked") && table.contains("LANE-103 credential file"), "{table}");
    fs::write(&creds, good).unwrap();
    host.wait_state("a", "serving").await;
    let b = host.wait_state("b", "serving").await;
    assert_eq!(connections(&b), before, "{b}");

    let drained = host.post("/drain").await;
    assert_eq!(drained.json()["lanes"], serde_json::json!(["a", "b"]));
    host.wait("b", "drained", |lane| lane["drained"] == true && lane["connections"] == 0).await;
    assert_eq!(host.post("/undrain").await.status, 202);
    host.wait_state("b", "serving").await;
    host.stop().await;
}
