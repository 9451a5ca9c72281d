//! `lanekeeper dev`: a broker and a space of one's own, the story of a member that was away, and then a served space to
//! try things on.
//!
//! Owns the order of coming up and going down: state, broker, space, lane, story, and back. Whatever ends it, a failed
//! step, a signal or the lane, the lane hands back its lease, the broker stops, and a temporary state is removed.

mod hint;
mod lane;
mod narrator;
mod online;
mod spaces;
mod stage;
mod state;
mod story;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use self::{lane::Served, narrator::Narrator, spaces::Spaces, stage::Stage, state::State, story::Story};
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
    /// After the story, make this many more spaces and serve them too, as a host with a manifest does.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub spaces: u16,
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
    if args.spaces == 0 {
        return linger(args, stage, say, stop, served, None).await;
    }
    let mut raising = Box::pin(Spaces::raise(stage, args.spaces, say, stop));
    let raised = tokio::select! {
        biased;
        raised = &mut raising => raised,
        // A stop ends the lane as well; what is half made is then closed in order, not dropped.
        fault = served.ended() => if stop.is_cancelled() { (&mut raising).await } else { return Err(fault) },
    };
    drop(raising);
    let Some(spaces) = raised.context("cannot serve the further spaces")? else { return interrupted(args) };
    let result = linger(args, stage, say, stop, served, Some(&spaces)).await;
    let closed = spaces.close().await;
    result.and(closed)
}

/// Goes on serving until a signal, unless the story was all that was wanted.
async fn linger(
    args: &DevArgs,
    stage: &Stage,
    say: &mut Narrator,
    stop: &CancellationToken,
    served: &mut Served,
    spaces: Option<&Spaces>,
) -> Result<()> {
    if args.once {
        return Ok(());
    }
    if let Some(spaces) = spaces {
        hint::print_spaces(stage, spaces, say)?;
    }
    hint::print(stage, say)?;
    let spaces_ended = async {
        match spaces {
            Some(spaces) => spaces.ended().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => say.line("\nstopping: the lane hands back its lease, then the broker stops"),
        fault = served.ended() => Err(fault),
        fault = spaces_ended => Err(fault),
    }
}

/// Being asked to stop is no failure, unless the story was all that was wanted.
fn interrupted(args: &DevArgs) -> Result<()> {
    if args.once {
        bail!("stopped by a signal before the story ended");
    }
    Ok(())
}
