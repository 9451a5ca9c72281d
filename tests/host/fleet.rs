//! A mesh with several spaces, a host configuration, a manifest, and the host as a process.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::Client;
use lanekeeper::{
    mesh::{Mesh, MeshOptions, Site},
    supervisor::{HostStatus, LaneState, LaneStatus},
};
use lanekeeper_broker::wait_until;
use lanekeeper_provision::{
    DeliveryExtras, LaneCredentialSettings, SpaceSettings, Validity, jwt::Permission, profile::Grants,
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{Daemon, PATIENCE, power, secrets};

/// A broker and spaces on it. Everything ends with it.
pub(crate) struct Fleet {
    pub(crate) mesh: Mesh,
    pub(crate) sites: BTreeMap<String, Site>,
    dir: TempDir,
}

impl Fleet {
    /// A mesh with these spaces, whose leases a killed host blocks only for a moment.
    pub(crate) async fn new(spaces: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        let mut fleet = Self { mesh, sites: BTreeMap::new(), dir };
        fs::create_dir(fleet.path("conf")).unwrap();
        fs::create_dir(fleet.path("hooks")).unwrap();
        for space in spaces {
            fleet.add(space).await;
        }
        fleet
    }

    /// Provisions one more space.
    pub(crate) async fn add(&mut self, space: &str) {
        let settings = SpaceSettings { lease_ttl: Duration::from_secs(2), ..SpaceSettings::default() };
        let lane = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
        let site = self.mesh.space(&space.parse().unwrap(), &settings, &lane).await.unwrap();
        self.sites.insert(space.to_owned(), site);
    }

    /// A path of the test.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Writes a file in place.
    pub(crate) fn write(&self, below: &str, text: &str) {
        fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        fs::write(self.path(below), text).unwrap();
    }

    /// Writes a file beside and renames it over.
    pub(crate) fn replace(&self, below: &str, text: &str) {
        let fresh = format!("{below}.new");
        self.write(&fresh, text);
        fs::rename(self.path(&fresh), self.path(below)).unwrap();
    }

    /// The credentials of a space.
    pub(crate) fn credentials(&self, space: &str) -> PathBuf {
        self.sites[space].credentials.clone()
    }

    /// Replaces a space's delivery credential, and gives what was there.
    pub(crate) fn rotate(&self, space: &str, text: &str) -> String {
        let file = self.credentials(space).join("delivery.creds");
        let before = fs::read_to_string(&file).unwrap();
        let fresh = file.with_extension("new");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(fresh, file).unwrap();
        before
    }

    /// Signs the lane's credentials of a space anew.
    pub(crate) fn mint_anew(&self, space: &str) {
        let settings = LaneCredentialSettings { extras: DeliveryExtras::None, ttl: Some(Duration::from_secs(3600)) };
        let site = &self.sites[space];
        site.account.write_lane_credentials(&site.credentials, &self.mesh.home, &settings).unwrap();
    }

    /// The manifest's entry of a space.
    pub(crate) fn entry(&self, space: &str) -> String {
        format!("[[space]]\nname = \"{space}\"\ncredentials = \"{}\"\n", self.credentials(space).display())
    }

    /// The same with an ack wait of its own, milliseconds.
    pub(crate) fn tuned(&self, space: &str, ack_wait_ms: u64) -> String {
        format!("{}[space.limits]\nack_wait_ms = {ack_wait_ms}\n", self.entry(space))
    }

    /// A manifest of these spaces.
    pub(crate) fn manifest(&self, spaces: &[&str]) -> String {
        spaces.iter().map(|space| self.entry(space)).collect()
    }

    /// Writes a host configuration with short pauses, and gives its path.
    pub(crate) fn config(&self, name: &str, more: &str) -> PathBuf {
        let url = self.mesh.broker.url();
        let text = format!(
            "host = \"{name}\"\nservers = [\"{url}\"]\n{more}\n[admin]\nlisten = \"127.0.0.1:0\"\n[limits]\n\
             backoff_first_ms = 100\nbackoff_cap_ms = 1000\nslow_pause_ms = 1000\npoll_ms = 2000\nclose_timeout_ms = 5000\n\
             head_start_ms = 500\n[lane]\nbroker_window_ms = 5000\n"
        );
        let file = format!("{name}.config.toml");
        self.write(&file, &text);
        self.path(&file)
    }

    /// Starts a host on the manifest `conf/spaces.toml`.
    pub(crate) async fn start(&self) -> Host {
        self.start_with("one", "", "conf/spaces.toml", &[], &[]).await
    }

    /// Starts a host by name on any manifest, with further configuration and arguments, below another command.
    pub(crate) async fn start_with(
        &self,
        name: &str,
        more: &str,
        manifest: &str,
        args: &[&str],
        within: &[&str],
    ) -> Host {
        self.start_in(name, more, manifest, args, within, &[]).await
    }

    /// The same with further variables.
    pub(crate) async fn start_in(
        &self,
        name: &str,
        more: &str,
        manifest: &str,
        args: &[&str],
        within: &[&str],
        variables: &[(&str, &str)],
    ) -> Host {
        let (config, manifest) = (self.config(name, more), self.path(manifest));
        let (status, log) = (self.path(&format!("{name}.status.json")), self.path(&format!("{name}.log")));
        let paths = [&config, &manifest, &status].map(|path| path.display().to_string());
        let mut all = vec!["run", "--config", &paths[0], "--manifest", &paths[1], "--status-file", &paths[2]];
        all.extend(args);
        let hooks = self.path("hooks").display().to_string();
        let mut environment = vec![("LANEKEEPER_HOOKS", hooks.as_str())];
        environment.extend(variables);
        let mut daemon = Daemon::command_within(within, &all, &environment, &log);
        let line = daemon.next_line().await;
        let admin = line.as_deref().and_then(|line| line.strip_prefix("admin ")).map(str::to_owned);
        let admin = admin.unwrap_or_else(|| panic!("{line:?}\n{}", daemon.log_text()));
        Host { daemon, status, admin }
    }

    /// Makes the part of a lane panic.
    pub(crate) fn panic(&self, space: &str, part: &str) -> PathBuf {
        let file = self.path(&format!("hooks/{space}.{part}.panic"));
        fs::write(&file, "").unwrap();
        file
    }

    /// A user of the space's account that may do everything.
    pub(crate) async fn client(&self, space: &str) -> Client {
        let all = || Permission { allow: vec![">".into()], deny: Vec::new() };
        let grants = Grants { publish: all(), subscribe: all(), tags: Vec::new() };
        let site = &self.sites[space];
        let user = power::mint(&self.mesh, &site.account, &grants, Validity::forever());
        user.connect_options().unwrap().name("test power").connect(&site.url).await.unwrap()
    }

    /// The broker's ids of the connections that lanes have to the space's account.
    pub(crate) async fn connections(&self, space: &str) -> Vec<u64> {
        let of_lanes = self.connz(space, "").await;
        let mut ids: Vec<u64> = of_lanes.into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// The names of all connections that lanes have or had to the space's account since the broker started.
    pub(crate) async fn ever_connected(&self, space: &str) -> Vec<String> {
        self.connz(space, "{\"state\":2}").await.into_iter().map(|(_, name)| name).collect()
    }

    async fn connz(&self, space: &str, options: &'static str) -> Vec<(u64, String)> {
        let client = self.client(space).await;
        let answer = client.request("$SYS.REQ.ACCOUNT.PING.CONNZ", options.into()).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        let connections = answer["data"]["connections"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let named = connections.iter().filter_map(|connection| {
            let name = connection["name"].as_str().filter(|name| name.starts_with("lanekeeper "))?;
            // Provisioning is no lane.
            (name != "lanekeeper provisioner").then(|| (connection["cid"].as_u64().unwrap(), name.to_owned()))
        });
        named.collect()
    }

    /// Fails if the broker refused a permission to anybody.
    pub(crate) fn assert_no_violations(&self) {
        let log = self.mesh.broker.log_text().unwrap();
        let violations: Vec<&str> = log.lines().filter(|line| line.contains("Permissions Violation")).collect();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            secrets::assert_none_in_logs(self.dir.path(), self.mesh.dir());
        }
    }
}

/// A running `lanekeeper run`.
pub(crate) struct Host {
    pub(crate) daemon: Daemon,
    status: PathBuf,
    pub(crate) admin: String,
}

impl Host {
    /// The newest snapshot.
    pub(crate) fn status(&self) -> Option<HostStatus> {
        serde_json::from_str(&fs::read_to_string(&self.status).ok()?).unwrap()
    }

    /// Waits until the snapshot is as wanted.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&HostStatus) -> bool) -> HostStatus {
        self.until_within(what, PATIENCE, is).await
    }

    /// The same with a bound.
    pub(crate) async fn until_within(
        &self,
        what: &str,
        within: Duration,
        is: impl Fn(&HostStatus) -> bool,
    ) -> HostStatus {
        match wait_until(what, within, async || self.status().filter(|status| is(status))).await {
            Ok(status) => status,
            Err(_) => panic!("not in time: {what}\n{:#?}\n{}", self.status(), self.log_tail()),
        }
    }

    /// Waits until exactly these lanes serve.
    pub(crate) async fn until_serving(&self, spaces: &[&str]) -> HostStatus {
        let is = |status: &HostStatus| {
            spaces.iter().all(|space| lane(status, space).is_some_and(|lane| lane.state == LaneState::Serving))
                && status.lanes.len() == spaces.len()
        };
        self.until(&format!("{spaces:?} serve"), is).await
    }

    /// Waits until a lane is in `state` and gives it.
    pub(crate) async fn until_lane(&self, space: &str, what: &str, is: impl Fn(&LaneStatus) -> bool) -> LaneStatus {
        let status = self.until(&format!("{space} {what}"), |status| lane(status, space).is_some_and(&is)).await;
        lane(&status, space).unwrap().clone()
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.daemon.signal(Signal::HUP);
    }

    /// The end of the log, for a failure, without what libraries trace.
    pub(crate) fn log_tail(&self) -> String {
        let text = self.daemon.log_text();
        let ours: Vec<&str> =
            text.lines().filter(|line| line.contains("lanekeeper") && !line.contains("TRACE")).collect();
        ours[ours.len().saturating_sub(60)..].join("\n")
    }

    /// SIGTERM, then waits for its end, which must be a success.
    pub(crate) async fn stop(self) {
        self.daemon.stop().await;
    }
}

/// One lane of a snapshot.
pub(crate) fn lane<'a>(status: &'a HostStatus, space: &str) -> Option<&'a LaneStatus> {
    status.lanes.iter().find(|lane| lane.space.as_str() == space)
}

/// What must not change of a lane that is left alone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    incarnation: Option<String>,
    generation: u64,
    since_ms: u64,
    connections: Vec<u64>,
}

/// Who serves a space now, also as the broker sees it.
pub(crate) async fn identity(fleet: &Fleet, host: &Host, space: &str) -> Identity {
    let status = host.status().unwrap();
    let lane = lane(&status, space).unwrap();
    assert_eq!(lane.state, LaneState::Serving, "{lane:?}");
    Identity {
        incarnation: lane.incarnation.clone(),
        generation: lane.generation,
        since_ms: lane.since_ms,
        connections: fleet.connections(space).await,
    }
}

/// Runs a command that is not the host, such as `lanekeeper reload`, to its end.
pub(crate) async fn command(host: &Host, args: &[&str], log: &Path) -> bool {
    let mut all = args.to_vec();
    all.extend(["--admin", &host.admin]);
    Daemon::command(&all, log).ended(PATIENCE).await.success()
}
