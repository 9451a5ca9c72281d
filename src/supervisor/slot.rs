//! One lane's slot: where it is in its life, and what holds its task.
//!
//! Owns the one enum and its legal moves. A task is held by exactly one state, and a new one is taken only where none is:
//! started is not finished, only a joined task frees the slot. It must not know clocks, manifests or reasons.

use lanekeeper_lane::State;
use tokio::time::Instant;

use super::status::LaneState;

/// How a slot speaks to its task.
pub(crate) trait Task {
    /// Asks it to end.
    fn stop(&self);
    /// Drops it at its next await.
    fn abort(&self);
}

/// Where a lane is. Each state holds only what is true in it.
#[derive(Debug)]
pub(crate) enum Slot<T> {
    /// No task. Opens when due; without a time it waits to be told.
    Waiting {
        /// When it may be opened.
        due: Option<Instant>,
    },
    /// The task runs and is not through yet, or dials again after it was.
    Opening {
        /// The task.
        task: T,
        /// When it has taken too long.
        by: Instant,
    },
    /// The task is through; another daemon holds the lease.
    Standby {
        /// The task.
        task: T,
    },
    /// The task serves.
    Serving {
        /// The task.
        task: T,
        /// Since when.
        since: Instant,
    },
    /// The task was asked to end and is not joined.
    Closing {
        /// The task.
        task: T,
        /// When it has taken too long.
        by: Instant,
        /// Whether it was aborted as well.
        aborted: bool,
    },
    /// Waits for a change; with a task that could not be ended, until it ends after all.
    Parked {
        /// A task that neither a stop nor an abort ended.
        wedged: Option<T>,
    },
}

/// What has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// It did not get through in time.
    Open,
    /// It did not end in time after a stop: abort it.
    Close,
    /// It did not even end after an abort.
    Abort,
}

impl<T: Task> Slot<T> {
    /// A slot that opens at `due`.
    pub(crate) fn waiting(due: Option<Instant>) -> Self {
        Self::Waiting { due }
    }

    /// The state as it is shown.
    pub(crate) fn state(&self) -> LaneState {
        match self {
            Self::Waiting { .. } => LaneState::Waiting,
            Self::Opening { .. } => LaneState::Opening,
            Self::Standby { .. } => LaneState::Standby,
            Self::Serving { .. } => LaneState::Serving,
            Self::Closing { .. } => LaneState::Closing,
            Self::Parked { .. } => LaneState::Parked,
        }
    }

    /// The task, in whichever state holds one.
    pub(crate) fn task(&self) -> Option<&T> {
        match self {
            Self::Waiting { .. } => None,
            Self::Opening { task, .. }
            | Self::Standby { task }
            | Self::Serving { task, .. }
            | Self::Closing { task, .. } => Some(task),
            Self::Parked { wedged } => wedged.as_ref(),
        }
    }

    /// True while a task stands behind it that is not given up for wedged.
    pub(crate) fn is_running(&self) -> bool {
        self.task().is_some() && !self.is_wedged()
    }

    /// True where its task could not be ended.
    pub(crate) fn is_wedged(&self) -> bool {
        matches!(self, Self::Parked { wedged: Some(_) })
    }

    /// Takes a new task.
    ///
    /// # Errors
    /// The task, where there is one already: two tasks of one lane must never run.
    pub(crate) fn open(&mut self, task: T, by: Instant) -> Result<(), T> {
        if self.task().is_some() {
            return Err(task);
        }
        *self = Self::Opening { task, by };
        Ok(())
    }

    /// Follows what the lane says of itself. `by` bounds an opening.
    pub(crate) fn follow(&mut self, state: State, now: Instant, by: Instant) {
        let next = match (self.take(), state) {
            (Self::Opening { task, .. } | Self::Standby { task } | Self::Serving { task, .. }, state) => match state {
                State::Opening | State::Redialling => Self::Opening { task, by },
                State::Standby => Self::Standby { task },
                State::Serving => Self::Serving { task, since: now },
                // It ends by itself; the join says why.
                State::Closing | State::Closed => Self::Closing { task, by, aborted: false },
            },
            // A lane that was asked to end may still report what it was doing; a slot without a task hears stale news.
            (slot @ (Self::Waiting { .. } | Self::Closing { .. } | Self::Parked { .. }), _) => slot,
        };
        *self = next;
    }

    /// Asks the task to end until `by`. True where there is one to wait for.
    pub(crate) fn close(&mut self, by: Instant) -> bool {
        let next = match self.take() {
            Self::Opening { task, .. } | Self::Standby { task } | Self::Serving { task, .. } => {
                task.stop();
                Self::Closing { task, by, aborted: false }
            }
            Self::Closing { task, by, aborted } => {
                task.stop();
                Self::Closing { task, by, aborted }
            }
            slot @ (Self::Waiting { .. } | Self::Parked { wedged: Some(_) }) => slot,
            Self::Parked { wedged: None } => Self::Waiting { due: None },
        };
        *self = next;
        self.is_running()
    }

    /// When something here has taken too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Opening { by, .. } | Self::Closing { by, .. } => Some(*by),
            Self::Waiting { .. } | Self::Standby { .. } | Self::Serving { .. } | Self::Parked { .. } => None,
        }
    }

    /// Acts on what has taken too long: a late open is asked to end, a late close is aborted, a late abort is parked.
    pub(crate) fn check(&mut self, now: Instant, close_by: Instant, abort_by: Instant) -> Option<Overdue> {
        if self.deadline().is_none_or(|by| now < by) {
            return None;
        }
        let (next, overdue) = match self.take() {
            Self::Opening { task, .. } => {
                task.stop();
                (Self::Closing { task, by: close_by, aborted: false }, Some(Overdue::Open))
            }
            Self::Closing { task, aborted: false, .. } => {
                task.abort();
                (Self::Closing { task, by: abort_by, aborted: true }, Some(Overdue::Close))
            }
            Self::Closing { task, aborted: true, .. } => (Self::Parked { wedged: Some(task) }, Some(Overdue::Abort)),
            slot @ (Self::Waiting { .. } | Self::Standby { .. } | Self::Serving { .. } | Self::Parked { .. }) => {
                (slot, None)
            }
        };
        *self = next;
        overdue
    }

    /// The task was joined: the slot is free again.
    pub(crate) fn ended(&mut self) -> Option<T> {
        let (next, task) = match self.take() {
            Self::Opening { task, .. }
            | Self::Standby { task }
            | Self::Serving { task, .. }
            | Self::Closing { task, .. }
            | Self::Parked { wedged: Some(task) } => (Self::Waiting { due: None }, Some(task)),
            slot @ (Self::Waiting { .. } | Self::Parked { wedged: None }) => (slot, None),
        };
        *self = next;
        task
    }

    /// Sets when it opens; a slot with a task is left alone.
    pub(crate) fn wait_until(&mut self, due: Option<Instant>) {
        if self.task().is_none() {
            *self = Self::Waiting { due };
        }
    }

    /// Parks it; a slot with a task is left alone.
    pub(crate) fn park(&mut self) {
        if self.task().is_none() {
            *self = Self::Parked { wedged: None };
        }
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Waiting { due: None })
    }
}

#[cfg(test)]
mod tests;
