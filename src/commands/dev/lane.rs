//! The lane of the demo space, as a task of this process.
//!
//! Owns its opening, its end and the wait for a lease that a killed run left behind. It must not open it again after it
//! has served: here the broker is a child of ours, and a lane that ends is something to look at.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use lanekeeper_lane::{Fate, Fault, Lane, LaneConfig, State, Watch};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    narrator::{Narrator, took},
    stage::LEASE_TTL,
};

/// Between two tries for a lease whose holder is dead.
const LEASE_PAUSE: Duration = Duration::from_millis(250);

/// A lane that has served.
#[derive(Debug)]
pub(super) struct Served {
    watch: Watch,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Fault>>,
}

impl Served {
    /// Opens the lane and waits until it serves; `None` if `stop` came first.
    ///
    /// # Errors
    /// The fault that refused it.
    pub(super) async fn open(config: LaneConfig, say: &mut Narrator, stop: &CancellationToken) -> Result<Option<Self>> {
        let started = Instant::now();
        let mut has_told = false;
        loop {
            let stop = stop.child_token();
            let (lane, watch) = Lane::new(config.clone());
            let task = tokio::spawn(lane.run(stop.clone()));
            let mut served = Self { watch, stop, task };
            let Err(fault) = served.opened().await? else {
                let (space, time) = (&config.space, took(started.elapsed()));
                let told =
                    say.step(format_args!("The lane of `{space}` holds the lease, reads and hands over ({time})."));
                return match told {
                    Ok(()) => Ok(Some(served)),
                    Err(error) => served.close().await.and(Err(error)),
                };
            };
            let Some(fault) = fault else { return Ok(None) };
            // The broker is ours alone, so a holder can only be a run that was killed, and its row expires.
            if fault.fate() != Fate::AfterLeaseTtl || started.elapsed() > LEASE_TTL * 3 {
                return Err(anyhow!(fault)).context("the lane was refused");
            }
            if !has_told {
                has_told = true;
                let limit = took(LEASE_TTL);
                say.line(format_args!(
                    "   (an earlier run was killed and its lease has not expired yet: at most {limit})"
                ))?;
            }
            tokio::time::sleep(LEASE_PAUSE).await;
        }
    }

    /// `Ok` once it serves, else what ended it before; `None` for a stop.
    async fn opened(&mut self) -> Result<Result<(), Option<Fault>>> {
        let serving = self.watch.state.wait_for(|state| matches!(state, State::Serving));
        let ended = tokio::select! {
            biased;
            ended = &mut self.task => ended,
            Ok(_) = serving => return Ok(Ok(())),
        };
        Ok(match ended.context("the lane's task was lost")? {
            Ok(()) => Err(None),
            Err(fault) => Err(Some(fault)),
        })
    }

    /// What others may see of it.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Waits for an end that nobody asked for, and says what it was.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow!("the lane ended without a fault"),
            Ok(Err(fault)) => anyhow!(fault).context("the lane ended"),
            Err(error) => anyhow!(error).context("the lane's task was lost"),
        }
    }

    /// Asks it to stop and waits until its lease is released and its handles are dropped.
    ///
    /// # Errors
    /// The lane ended with a fault instead.
    pub(super) async fn close(self) -> Result<()> {
        self.stop.cancel();
        if self.task.is_finished() {
            // Its end was reported by `ended`; a finished task must not be asked twice.
            return Ok(());
        }
        let ended = self.task.await.context("the lane's task was lost")?;
        ended.context("the lane did not close cleanly")
    }
}
