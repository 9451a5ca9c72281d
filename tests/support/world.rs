//! A mesh with one space, and its members.

use std::path::PathBuf;

use lanekeeper::mesh::{Member, MemberRights, Mesh, MeshOptions, Site};
use lanekeeper_peer::{Creds, Peer, PeerOptions};
use lanekeeper_provision::{DeliveryExtras, LaneCredentialSettings, SpaceSettings};
use lanekeeper_wire::{Channel, ChannelPattern};
use tempfile::TempDir;

use super::{Daemon, PATIENCE, Power, secrets};

/// The space of most tests.
pub(crate) const SPACE: &str = "demo";

/// A broker, a space, and where everything lies. Everything ends with it.
pub(crate) struct World {
    pub(crate) mesh: Mesh,
    pub(crate) site: Site,
    dir: TempDir,
}

impl World {
    /// A space with a lease that a killed daemon blocks only for a moment.
    pub(crate) async fn new() -> Self {
        Self::with(SpaceSettings { lease_ttl: std::time::Duration::from_secs(2), ..SpaceSettings::default() }).await
    }

    /// A space of these settings, on the bare credential rows of the contract.
    pub(crate) async fn with(settings: SpaceSettings) -> Self {
        let dir = TempDir::new().unwrap();
        let mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        let lane = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
        let site = mesh.space(&SPACE.parse().unwrap(), &settings, &lane).await.unwrap();
        Self { mesh, site, dir }
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) async fn daemon(&self) -> Daemon {
        Daemon::serving(&self.site, &self.log(), &[]).await
    }

    /// Where daemons log.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("daemon.log")
    }

    /// Where a further daemon logs.
    pub(crate) fn log_named(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// A member that reads and posts on `channels`.
    pub(crate) async fn member(&self, name: &str, channels: &[&str]) -> Member {
        let patterns: Vec<ChannelPattern> = channels.iter().map(|text| pattern(text)).collect();
        self.site.member(name, &MemberRights::on(&patterns)).await.unwrap()
    }

    /// How the member connects.
    pub(crate) fn options(&self, member: &Member) -> PeerOptions {
        let creds = Creds::path(member.credentials.clone());
        PeerOptions::new(&self.site.url, self.site.space.clone(), creds, member.lifecycle.clone(), &member.name)
    }

    /// Connects the member.
    pub(crate) async fn connect(&self, member: &Member) -> Peer {
        Peer::connect(self.options(member)).await.unwrap()
    }

    /// Connects the member and makes it a durable member of `channel`.
    pub(crate) async fn join(&self, member: &Member, on: &str) -> Peer {
        let peer = self.connect(member).await;
        let joined = peer.join(&channel(on)).await.unwrap();
        assert!(joined.state.is_durable(), "{joined}");
        peer
    }

    /// A user that may do everything in the space.
    pub(crate) async fn power(&self) -> Power {
        Power::over(&self.mesh, &self.site).await
    }

    /// Fails if the broker refused a permission to anybody: a healthy run needs exactly what it was granted.
    pub(crate) fn assert_no_violations(&self) {
        let log = self.mesh.broker.log_text().unwrap();
        let violations: Vec<&str> = log.lines().filter(|line| line.contains("Permissions Violation")).collect();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Waits until `stream` holds nothing on `subject`.
    pub(crate) async fn wait_empty(&self, stream: &str, subject: &str) {
        lanekeeper_broker::wait_until(&format!("{stream} is empty"), PATIENCE, async || {
            (self.site.held(stream, subject).await.unwrap() == 0).then_some(())
        })
        .await
        .unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Every run of every test is one more chance to catch a secret in a log.
        if !std::thread::panicking() {
            secrets::assert_none_in_logs(self.dir.path(), self.mesh.dir());
        }
    }
}

/// A channel.
pub(crate) fn channel(text: &str) -> Channel {
    text.parse().unwrap()
}

/// A channel pattern.
pub(crate) fn pattern(text: &str) -> ChannelPattern {
    text.parse().unwrap()
}
