//! A mesh of one's own: a broker as a child process, its keys, and spaces with members on it.
//!
//! Owns what `lanekeeper dev`, `lanekeeper bench` and the tests stand on. It holds signing keys, so nothing that serves a
//! space in production may use it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream;
use lanekeeper_broker::{Broker, BrokerConfig, NatsServer};
use lanekeeper_provision::{
    AgentProfile, Credentials, Home, LaneCredentialSettings, MemberSettings, SpaceAccount, SpaceProfile, SpaceSettings,
    Validity, add_member, new_lifecycle_uid, private_file, set_read_acl,
};
use lanekeeper_wire::{Actor, ChannelPattern, Lifecycle, Owner, Principal, Role, Space};
use serde::{Deserialize, Serialize};

use crate::provisioning;

/// Where a mesh keeps what, and how its broker runs.
#[derive(Debug, Clone, Default)]
pub struct MeshOptions {
    /// The broker's store; `None` puts it below the mesh's own directory.
    pub store: Option<PathBuf>,
    /// The broker's `sync_interval`; `None` leaves the broker's default.
    pub sync_interval: Option<String>,
    /// The broker; `None` finds or fetches one.
    pub server: Option<NatsServer>,
}

/// A running broker and the keys of its operator.
#[derive(Debug)]
pub struct Mesh {
    /// The broker.
    pub broker: Broker,
    /// The operator's keys.
    pub home: Home,
    dir: PathBuf,
}

/// One space on a mesh.
#[derive(Debug, Clone)]
pub struct Site {
    /// The space.
    pub space: Space,
    /// Its account.
    pub account: SpaceAccount,
    /// The directory with the lane's credentials.
    pub credentials: PathBuf,
    /// The broker's address.
    pub url: String,
    dir: PathBuf,
    provisioner: jetstream::Context,
}

/// What is kept of a member between runs.
#[derive(Debug, Serialize, Deserialize)]
struct Card {
    name: String,
    lifecycle: Lifecycle,
}

/// A provisioned member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its principal and incarnation.
    pub lifecycle: Lifecycle,
    /// Its credentials file.
    pub credentials: PathBuf,
}

/// What a member may do.
#[derive(Debug, Clone, Default)]
pub struct MemberRights {
    /// What it may read.
    pub read: Vec<ChannelPattern>,
    /// What it may post to.
    pub post: Vec<ChannelPattern>,
    /// The role whose work it may take.
    pub role: Option<Role>,
}

impl MemberRights {
    /// Read and post on the same channels.
    #[must_use]
    pub fn on(channels: &[ChannelPattern]) -> Self {
        Self { read: channels.to_vec(), post: channels.to_vec(), role: None }
    }
}

impl Mesh {
    /// Starts a broker on the state in `dir`, which is made where it is missing and private to its owner.
    ///
    /// # Errors
    /// No broker can be had, it does not start, or the state cannot be read.
    pub async fn start(dir: &Path, options: MeshOptions) -> Result<Self> {
        private_file::ensure_private_dir(dir)?;
        let dir = fs::canonicalize(dir).with_context(|| format!("resolve {}", dir.display()))?;
        let home = Home::open_or_create(&dir.join("keys"))?;
        let server = match options.server {
            Some(server) => server,
            None => lanekeeper_broker::find().await?,
        };
        let mut config = BrokerConfig::new(options.store.unwrap_or_else(|| dir.join("broker")));
        config.log_path = dir.join("broker.log");
        config.sync_interval = options.sync_interval;
        config.extra_config = home.server_config(&dir.join("accounts"));
        let broker = Broker::start(&server, config).await?;
        Ok(Self { broker, home, dir })
    }

    /// The directory of the mesh's state.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates `space` or takes it up again: account, streams, buckets and the lane's credentials. Restarts nothing.
    ///
    /// # Errors
    /// The account cannot be pushed, or a stream contradicts `settings`.
    pub async fn space(&self, space: &Space, settings: &SpaceSettings, lane: &LaneCredentialSettings) -> Result<Site> {
        let url = self.broker.url();
        let (account, provisioner) = provisioning::raise(&self.home, &url, space, settings).await?;
        let dir = self.dir.join("spaces").join(space.as_str());
        private_file::ensure_private_dir(&self.dir.join("spaces"))?;
        private_file::ensure_private_dir(&dir)?;
        let credentials = dir.join("lane");
        account.write_lane_credentials(&credentials, &self.home, lane)?;
        Ok(Site { space: space.clone(), account, credentials, url, dir, provisioner })
    }
}

impl Site {
    /// Creates a member, or takes it up again with the lifecycle it had.
    ///
    /// # Errors
    /// The name is not a token, or the broker refuses.
    pub async fn member(&self, name: &str, rights: &MemberRights) -> Result<Member> {
        let dir = self.dir.join("members");
        private_file::ensure_private_dir(&dir)?;
        let card = dir.join(format!("{name}.json"));
        let credentials = dir.join(format!("{name}.creds"));
        // The card first: a run that dies half way leaves one lifecycle, not two that no join can tell apart.
        let lifecycle = if card.exists() {
            let text = private_file::read_private(&card)?;
            let saved: Card = serde_json::from_str(&text).with_context(|| format!("read {}", card.display()))?;
            saved.lifecycle
        } else {
            let (owner, actor): (Owner, Actor) = ("local".parse()?, name.parse()?);
            let lifecycle = Lifecycle::new(Principal::new(owner, actor), new_lifecycle_uid());
            let fresh = Card { name: name.to_owned(), lifecycle: lifecycle.clone() };
            private_file::write_private(&card, &serde_json::to_string_pretty(&fresh)?)?;
            lifecycle
        };
        // The credential last: it says that the rest is done.
        if !credentials.exists() {
            let settings =
                MemberSettings { read: rights.read.clone(), role: rights.role.clone(), ..MemberSettings::default() };
            add_member(&self.provisioner, &self.space, &lifecycle, &settings).await?;
            self.mint_member(&lifecycle, rights, Validity::forever())?.write_creds(&credentials)?;
        }
        Ok(Member { name: name.to_owned(), lifecycle, credentials })
    }

    /// Signs a credential for a member without writing it anywhere.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn mint_member(&self, lifecycle: &Lifecycle, rights: &MemberRights, validity: Validity) -> Result<Credentials> {
        let profile = SpaceProfile::Agent(AgentProfile {
            principal: lifecycle.principal().clone(),
            uid: lifecycle.uid().clone(),
            read: rights.read.clone(),
            post: rights.post.clone(),
            role: rights.role.clone(),
        });
        Ok(self.account.mint(&profile, validity)?)
    }

    /// Narrows or widens what a member may read, from now on.
    ///
    /// # Errors
    /// The broker refuses, or another writer was faster.
    pub async fn set_read(&self, member: &Member, read: &[ChannelPattern]) -> Result<()> {
        set_read_acl(&self.provisioner, &self.space, &member.lifecycle, read.to_vec()).await?;
        Ok(())
    }

    /// The provisioner's JetStream handle.
    #[must_use]
    pub fn provisioner(&self) -> &jetstream::Context {
        &self.provisioner
    }

    /// How many messages `stream` holds on `subject`.
    ///
    /// # Errors
    /// The stream is missing or does not answer.
    pub async fn held(&self, stream: &str, subject: &str) -> Result<usize> {
        use futures::TryStreamExt as _;
        let handle = self.provisioner.get_stream(stream).await?;
        let counts: Vec<(String, usize)> = handle.info_with_subjects(subject).await?.try_collect().await?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }
}

/// Reads a member's credentials text.
///
/// # Errors
/// The file is missing or loose.
pub fn member_credentials(member: &Member) -> Result<Credentials> {
    ensure!(
        member.credentials.exists(),
        "credentials of `{}` are missing: {}",
        member.name,
        member.credentials.display()
    );
    Ok(Credentials::read(&member.credentials)?)
}
