//! `lanekeeper dev`: a broker and a space of one's own, the story of a member that was away, and then a served space to
//! try things on.
//!
//! Owns the order of coming up and going down: state, broker, space, lane, story, and back. Whatever ends it, a failed
//! step, a signal or the lane, the lane hands back its lease, the broker stops, and a temporary state is removed.

mod hint;
mod lane;
mod narrator;
mod online;
mod stage;
mod state;
mod story;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use self::{lane::Served, narrator::Narrator, stage::Stage, state::State, story::Story};
use crate::signals;

/// Arguments of `lanekeeper dev`.
#[derive(Debug, Clone, Args)]
pub struct DevArgs {
    /// End after the story: exit code 0 if every step held.
    #[arg(long)]
    pub once: bool,
    /// Keep the state (keys, credentials, the broker's store) in this directory and take it up again; without it, a
    /// private temporary directory is used and removed at the end.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// Plays the story, then serves until SIGTERM or SIGINT.
///
/// # Errors
/// What could not be started, the step of the story that did not hold, or the fault that ended the lane; with `--once`
/// also a story that was interrupted.
pub async fn run(args: DevArgs) -> Result<()> {
    // Armed before anything is started, so that nothing is left behind by an early Ctrl-C.
    let stop = signals::stop_on_signal()?;
    let state = State::open(args.state.as_deref())?;
    let mut say = Narrator::default();
    let result = up(&args, &state, &mut say, &stop).await;
    let removed = state.close().await;
    result.and(removed)
}

/// Brings up the broker and the space, and takes them down again.
async fn up(args: &DevArgs, state: &State, say: &mut Narrator, stop: &CancellationToken) -> Result<()> {
    let raised = tokio::select! {
        biased;
        () = stop.cancelled() => return interrupted(args),
        raised = Box::pin(Stage::raise(state, say)) => raised,
    };
    let mut stage = raised.context("cannot set the stage")?;
    let result = serve(args, &stage, say, stop).await;
    let struck = stage.strike().await;
    result.and(struck)
}

/// Opens the lane, plays, goes on serving, and closes the lane.
async fn serve(args: &DevArgs, stage: &Stage, say: &mut Narrator, stop: &CancellationToken) -> Result<()> {
    let Some(mut served) = Served::open(stage.lane_config()?, say, stop).await? else {
        return interrupted(args);
    };
    let result = play(args, stage, say, stop, &mut served).await;
    let closed = served.close().await;
    result.and(closed)
}

async fn play(
    args: &DevArgs,
    stage: &Stage,
    say: &mut Narrator,
    stop: &CancellationToken,
    served: &mut Served,
) -> Result<()> {
    let story = Story::new(stage, served.watch().clone(), say);
    tokio::select! {
        biased;
        () = stop.cancelled() => return interrupted(args),
        fault = served.ended() => return Err(fault),
        told = Box::pin(story.play()) => told?,
    }
    if args.once {
        return Ok(());
    }
    hint::print(stage, say)?;
    tokio::select! {
        biased;
        () = stop.cancelled() => say.line("\nstopping: the lane hands back its lease, then the broker stops"),
        fault = served.ended() => Err(fault),
    }
}

/// Being asked to stop is no failure, unless the story was all that was wanted.
fn interrupted(args: &DevArgs) -> Result<()> {
    if args.once {
        bail!("stopped by a signal before the story ended");
    }
    Ok(())
}
