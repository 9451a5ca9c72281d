//! Where a bench runs: a broker with directories of its own, a space, its members.
//!
//! Owns names and provisioning, and that everything is gone afterwards.

use std::path::Path;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lanekeeper_broker::Broker;
use lanekeeper_provision::{Credentials, LaneCredentialSettings, SpaceSettings, lane_files};
use lanekeeper_wire::{Channel, ChannelPattern};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use super::{FanOutArgs, stamp::Clock};
use crate::mesh::{Member, MemberRights, Mesh, MeshOptions, Site};

/// The space that the lane serves.
pub(super) const SPACE: &str = "bench";
/// The space whose stores are used without a lane.
pub(super) const CEILING_SPACE: &str = "ceiling";
/// The channel of all posts.
pub(super) const CHANNEL: &str = "bench";
/// How many members are provisioned, connected or joined at a time.
pub(super) const SETUP_CONCURRENCY: usize = 16;

/// The name of the sender with this index; all names are of one length.
pub(super) fn sender_name(index: u32) -> String {
    format!("sender_{index:06}")
}

/// A broker, and what is shared by the phases of a run.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) mesh: Mesh,
    pub(super) clock: Clock,
    pub(super) channel: Channel,
    // After the broker, which is killed before its directories go.
    dir: TempDir,
    _store: Option<TempDir>,
}

/// A space with members.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) site: Site,
    pub(super) members: Vec<Member>,
    pub(super) senders: Vec<Member>,
}

impl Bench {
    /// Starts the broker.
    ///
    /// # Errors
    /// No broker can be had, or a directory cannot be made.
    pub(super) async fn start(args: &FanOutArgs) -> Result<Self> {
        allow_many_connections();
        let dir = tempfile::Builder::new().prefix("lanekeeper-bench-").tempdir().context("make a directory")?;
        let store = args.store.as_deref().map(store_in).transpose()?;
        let options = MeshOptions {
            // The broker's configuration lies beside its store.
            store: store.as_ref().map(|dir| dir.path().join("broker")),
            sync_interval: args.sync_interval.clone(),
            server: None,
        };
        let mesh = Mesh::start(&dir.path().join("mesh"), options).await?;
        Ok(Self { mesh, clock: Clock::start(), channel: CHANNEL.parse()?, dir, _store: store })
    }

    /// The directory of this run.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The broker.
    pub(super) fn broker(&self) -> &Broker {
        &self.mesh.broker
    }

    /// The broker's process id.
    ///
    /// # Errors
    /// It is not running.
    pub(super) fn broker_pid(&self) -> Result<u32> {
        self.mesh.broker.pid().context("the broker is not running")
    }

    /// Provisions a space with `args.members` members that may read the channel and `senders` that may post to it.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) async fn field(
        &self,
        space: &str,
        args: &FanOutArgs,
        senders: u32,
        settings: &SpaceSettings,
    ) -> Result<Field> {
        let site = self.mesh.space(&space.parse()?, settings, &LaneCredentialSettings::default()).await?;
        let on = [ChannelPattern::from(self.channel.clone())];
        let (read, post) = (
            MemberRights { read: on.to_vec(), ..MemberRights::default() },
            MemberRights { post: on.to_vec(), ..MemberRights::default() },
        );
        let members = provision(&site, (0..args.members).map(|index| format!("member_{index:06}")), &read).await?;
        let senders = provision(&site, (0..senders).map(sender_name), &post).await?;
        Ok(Field { site, members, senders })
    }

    /// Stops the broker.
    ///
    /// # Errors
    /// It cannot be stopped.
    pub(super) async fn stop(&mut self) -> Result<()> {
        self.mesh.broker.stop().await?;
        Ok(())
    }
}

impl Field {
    /// The lane's delivery credential, for looking at streams and for publishing in the lane's place.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn delivery_credentials(&self) -> Result<Credentials> {
        Ok(Credentials::read(&self.site.credentials.join(lane_files::DELIVERY))?)
    }
}

async fn provision(site: &Site, names: impl Iterator<Item = String>, rights: &MemberRights) -> Result<Vec<Member>> {
    let made = stream::iter(names).map(|name| async move { site.member(&name, rights).await });
    made.buffered(SETUP_CONCURRENCY).try_collect().await
}

fn store_in(dir: &Path) -> Result<TempDir> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    tempfile::Builder::new()
        .prefix("lanekeeper-bench-")
        .tempdir_in(dir)
        .with_context(|| format!("make a directory in {}", dir.display()))
}

/// Each member is a connection here and one in the broker, which takes over this limit. Where it cannot be raised, the
/// first connection over it says so.
fn allow_many_connections() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
