//! Further spaces of `dev`, each with an account of its own, under a supervisor as `lanekeeper run` has one.
//!
//! Owns their making, the supervisor's start and its end. The manifest lies in the state, so that spaces can be added to it
//! and taken out while it runs.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use lanekeeper_provision::{LaneCredentialSettings, SpaceSettings};
use lanekeeper_wire::Space;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    narrator::{Narrator, took},
    stage::{LEASE_TTL, Stage},
};
use crate::{
    admin::Admin,
    commands::{
        run,
        space::{Making, enter, entry::Entry},
    },
    config::{AdminConfig, HostConfig},
    supervisor::{Handle, HostStatus, LaneState, Supervisor, SupervisorConfig},
};

/// What the further spaces are called, with a number behind it.
const NAME: &str = "space-";
/// How long all of them together may take to serve; a killed run's leases have to expire first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Spaces that are served.
#[derive(Debug)]
pub(super) struct Spaces {
    handle: Handle,
    /// Stops everything also where nobody closes it.
    stop: DropGuard,
    admin: JoinHandle<()>,
    /// Where the admin server listens.
    pub(super) address: String,
    /// The manifest.
    pub(super) manifest: PathBuf,
    /// The directory with the lanes' credentials.
    pub(super) credentials: PathBuf,
}

impl Spaces {
    /// Makes `number` spaces and waits until each is served, one line each; `None` if `stop` came first.
    ///
    /// # Errors
    /// A space cannot be made, or does not come to serve.
    pub(super) async fn raise(
        stage: &Stage,
        number: u16,
        say: &mut Narrator,
        stop: &CancellationToken,
    ) -> Result<Option<Self>> {
        let started = Instant::now();
        let spaces = (1..=number).map(|number| format!("{NAME}{number}").parse()).collect::<Result<Vec<Space>, _>>()?;
        let dir = stage.mesh().dir();
        let (manifest, credentials) = (dir.join("spaces.toml"), dir.join("lanes"));
        let host = HostConfig {
            host: "dev".to_owned(),
            servers: vec![stage.site.url.parse().context("the broker's address")?],
            admin: AdminConfig { listen: ([127, 0, 0, 1], 0).into(), token_file: None },
            manifest: manifest.clone(),
            ..HostConfig::default()
        };
        lanekeeper_provision::private_file::ensure_private_dir(&credentials)?;
        let settings = SpaceSettings { lease_ttl: LEASE_TTL, ..SpaceSettings::default() };
        let lane = LaneCredentialSettings::default();
        let url = &stage.site.url;
        let making = Making {
            home: &stage.mesh().home,
            server: url,
            credentials_root: &credentials,
            settings: &settings,
            lane: &lane,
        };
        for space in &spaces {
            if stop.is_cancelled() {
                return Ok(None);
            }
            let credentials = Box::pin(making.make(space)).await.with_context(|| format!("make `{space}`"))?;
            enter(&manifest, &host, Entry::new(space.clone(), credentials)).await?;
        }
        let made = took(started.elapsed());
        say.step(format_args!("Made {number} more spaces, each with an account of its own ({made}):"))?;
        let served = Self::start(host, manifest, credentials).await?;
        let told = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(false),
            told = served.told(&spaces, say) => told.map(|()| true),
        };
        match told {
            Ok(true) => Ok(Some(served)),
            Ok(false) => served.close().await.map(|()| None),
            Err(error) => served.close().await.and(Err(error)),
        }
    }

    async fn start(host: HostConfig, manifest: PathBuf, credentials: PathBuf) -> Result<Self> {
        let admin = Admin::bind(&host.admin).await?;
        let address = admin.address().to_string();
        let stop = CancellationToken::new();
        let lanes = tokio::runtime::Handle::current();
        let config = SupervisorConfig { host, manifest_path: manifest.clone(), lanes, is_watching: true };
        let handle = Supervisor::start(&config, stop.clone());
        let admin = tokio::spawn(admin.serve(run::desk(handle.clone()), stop.clone()));
        Ok(Self { handle, stop: stop.drop_guard(), admin, address, manifest, credentials })
    }

    /// Says of each space when it serves.
    async fn told(&self, spaces: &[Space], say: &mut Narrator) -> Result<()> {
        let started = Instant::now();
        let mut shown = self.handle.watch_status();
        let mut left: Vec<&Space> = spaces.iter().collect();
        while !left.is_empty() {
            let some = |status: &std::sync::Arc<HostStatus>| left.iter().any(|space| serves(status, space));
            let patience = PATIENCE.saturating_sub(started.elapsed());
            match timeout(patience, shown.wait_for(some)).await {
                Ok(status) => {
                    let status = std::sync::Arc::clone(&*status.context("the supervisor has ended")?);
                    for space in left.extract_if(.., |space| serves(&status, space)) {
                        say.line(format_args!("   `{space}` is served ({}).", took(started.elapsed())))?;
                    }
                }
                Err(_) => bail!("not every space is served: {}", reasons(&self.handle.status(), &left)),
            }
        }
        Ok(())
    }

    /// Waits for an end of the supervisor that nobody asked for.
    pub(super) async fn ended(&self) -> anyhow::Error {
        let stopped = self.handle.stopped().await;
        anyhow::anyhow!("the supervisor of the further spaces ended by itself: {stopped:?}")
    }

    /// Closes every lane.
    ///
    /// # Errors
    /// A lane cannot be closed.
    pub(super) async fn close(self) -> Result<()> {
        drop(self.stop);
        let stopped = self.handle.stopped().await;
        self.admin.await.context("the admin server was lost")?;
        if stopped.is_broken || !stopped.wedged.is_empty() {
            bail!("not every lane could be closed: {stopped:?}");
        }
        Ok(())
    }
}

fn serves(status: &HostStatus, space: &Space) -> bool {
    status.lane(space).is_some_and(|lane| lane.state == LaneState::Serving)
}

fn reasons(status: &HostStatus, left: &[&Space]) -> String {
    let reason = |space: &&Space| match status.lane(space) {
        Some(lane) => format!("`{space}` is {}: {}", lane.state, lane.reason),
        None => format!("`{space}` is not known"),
    };
    left.iter().map(reason).collect::<Vec<_>>().join("; ")
}
