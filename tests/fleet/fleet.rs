//! A broker with many spaces, and the manifest that names them.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use lanekeeper::mesh::{Mesh, MeshOptions, Site};
use lanekeeper_provision::{DeliveryExtras, LaneCredentialSettings, SpaceSettings};
use tempfile::TempDir;

use crate::support::secrets;

/// How many spaces are provisioned at once.
const PROVISIONED_AT_ONCE: usize = 8;

/// How hosts of a fleet are set up, beyond what the fleet itself says.
pub(crate) const QUICK: &str = "[lane]\nack_wait_ms = 2000\n";

/// A broker, its spaces, and where everything lies. Everything ends with it.
pub(crate) struct Fleet {
    pub(crate) mesh: Mesh,
    pub(crate) sites: Vec<Site>,
    pub(crate) monitor: SocketAddr,
    dir: TempDir,
}

impl Fleet {
    /// With `spaces` spaces, `s0` and on, all of them in the manifest.
    pub(crate) async fn new(spaces: usize, lease_ttl: Duration) -> Self {
        let dir = TempDir::new().unwrap();
        let mut mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        let monitor = free_address();
        let extra = format!("{}\nhttp: \"{monitor}\"\n", mesh.home.server_config(&mesh.dir().join("accounts")));
        mesh.broker.set_extra_config(extra);
        mesh.broker.restart().await.unwrap();
        let settings = SpaceSettings { lease_ttl, ..SpaceSettings::default() };
        let lane = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
        let sites = stream::iter(0..spaces)
            .map(|number| {
                let (mesh, settings, lane) = (&mesh, &settings, &lane);
                async move { mesh.space(&format!("s{number}").parse().unwrap(), settings, lane).await }
            })
            .buffered(PROVISIONED_AT_ONCE)
            .try_collect()
            .await
            .unwrap();
        let fleet = Self { mesh, sites, monitor, dir };
        fleet.write_manifest(|_| true);
        fleet
    }

    /// The directory of everything.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.path().join("spaces.toml")
    }

    /// Replaces the manifest by one with the spaces that are wanted.
    pub(crate) fn write_manifest(&self, is_wanted: impl Fn(usize) -> bool) {
        let mut text = String::new();
        for (_, site) in self.sites.iter().enumerate().filter(|(index, _)| is_wanted(*index)) {
            text += &format!("[[space]]\nname = \"{}\"\ncredentials = {:?}\n", site.space, site.credentials);
        }
        let staged = self.path().join("spaces.toml.new");
        fs::write(&staged, text).unwrap();
        fs::rename(staged, self.manifest()).unwrap();
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

/// An address on loopback that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
