//! Starting a lane's task on the runtime of the lanes, and following it from the runtime of the supervisor.
//!
//! Owns the seam between the two: whatever a lane does, also a panic, comes back as one event. It must not decide anything.

use std::time::Duration;

use futures::future::BoxFuture;
use lanekeeper_lane::{Fault, FaultKind, Lane, LaneConfig, State, Watch, preflight};
use lanekeeper_wire::Space;
use tokio::{
    runtime,
    sync::{mpsc, oneshot, watch},
    task::{AbortHandle, JoinError, JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::slot::Task;
use crate::reload::content_of;

/// How long the look at the credentials before an open may take; the lane then says itself what is wrong with them.
const CONTENT_TIMEOUT: Duration = Duration::from_secs(2);

/// What starts lanes.
pub(crate) trait Launcher: Send + Sync + 'static {
    /// Starts a lane's task.
    fn launch(&self, config: LaneConfig, stop: CancellationToken) -> Launched;
    /// Proves a configuration on a throw-away connection.
    fn preflight(&self, config: LaneConfig) -> BoxFuture<'static, Result<(), Fault>>;
}

/// A started task.
pub(crate) struct Launched {
    pub(crate) task: JoinHandle<Result<(), Fault>>,
    pub(crate) abort: AbortHandle,
    /// What the credential directory held before the lane read it.
    pub(crate) content: oneshot::Receiver<String>,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) watch: Watch,
}

/// The supervisor's hold on a started task.
#[derive(Debug)]
pub(crate) struct Run {
    /// Which opening of the lane it is.
    pub(crate) generation: u64,
    pub(crate) stop: CancellationToken,
    pub(crate) abort: AbortHandle,
    pub(crate) watch: Watch,
}

impl Task for Run {
    fn stop(&self) {
        self.stop.cancel();
    }

    fn abort(&self) {
        self.abort.abort();
    }
}

/// What a running lane says.
#[derive(Debug)]
pub(crate) enum Note {
    /// Its state.
    State(State),
    /// What its credential directory held when it was opened.
    Content(String),
}

/// Which opening of which lane said it.
pub(crate) type Said = (Space, u64, Note);

/// How a task ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself or after a stop.
    Returned(Result<(), Fault>),
    /// It panicked; the text.
    Panicked(String),
    /// It was aborted.
    Aborted,
}

/// Lanes as they are in production.
pub(crate) struct Lanes(pub(crate) runtime::Handle);

impl Launcher for Lanes {
    fn launch(&self, config: LaneConfig, stop: CancellationToken) -> Launched {
        let dir = config.credentials.clone();
        let (lane, watch) = Lane::new(config);
        let (seen, content) = oneshot::channel();
        let task = self.0.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                read = timeout(CONTENT_TIMEOUT, spawn_blocking(move || content_of(&dir))) => {
                    if let Ok(Ok(content)) = read {
                        // Nobody listens where the host ends.
                        let _ = seen.send(content);
                    }
                }
            }
            Box::pin(lane.run(stop)).await
        });
        Launched { abort: task.abort_handle(), task, content, state: watch.state.clone(), watch }
    }

    fn preflight(&self, config: LaneConfig) -> BoxFuture<'static, Result<(), Fault>> {
        let space = config.space.clone();
        let check = async move { Box::pin(preflight(&config)).await };
        // Dropping the future ends the attempt: what was given up never authenticates.
        let check = AbortOnDropHandle::new(self.0.spawn(check));
        Box::pin(async move {
            check.await.unwrap_or_else(|error| {
                let reason = error.to_string();
                Err(Fault::new(&space, FaultKind::PartEnded { part: "preflight", reason }))
            })
        })
    }
}

/// Follows a task to its end; what it says in between goes to `notes`, with its space and generation.
pub(crate) async fn follow(
    space: Space,
    generation: u64,
    launched: Launched,
    notes: mpsc::Sender<Said>,
) -> (Space, u64, Ended) {
    let Launched { mut task, abort: _, mut content, mut state, watch: _ } = launched;
    let (mut has_content, mut has_state) = (true, true);
    loop {
        let note = tokio::select! {
            biased;
            read = &mut content, if has_content => {
                has_content = false;
                read.ok().map(Note::Content)
            }
            changed = state.changed(), if has_state => {
                has_state = changed.is_ok();
                has_state.then(|| Note::State(*state.borrow_and_update()))
            }
            joined = &mut task => return (space, generation, Ended::of(joined)),
        };
        if let Some(note) = note {
            // Closed only where the supervisor is gone.
            let _ = notes.send((space.clone(), generation, note)).await;
        }
    }
}

impl Ended {
    fn of(joined: Result<Result<(), Fault>, JoinError>) -> Self {
        match joined.map_err(JoinError::try_into_panic) {
            Ok(result) => Self::Returned(result),
            Err(Ok(panic)) => Self::Panicked(panic_text(panic.as_ref())),
            Err(Err(_)) => Self::Aborted,
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}
