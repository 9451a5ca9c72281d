//! The whole change from what runs to what is wanted, as one value with a reason for each step.
//!
//! Owns the comparison and its one printed line. It is pure: it must not look at a clock, a file or a task.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use async_nats::ServerAddr;
use lanekeeper_lane::Limits;
use lanekeeper_wire::Space;

/// How many spaces of a kind the printed line names.
const NAMED: usize = 8;

/// What a lane is opened with, as far as a change of it matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The directory with its credentials.
    pub credentials: PathBuf,
    /// What was last seen in there; `None` where that is not known.
    pub content: Option<String>,
    /// Its brokers.
    pub servers: Vec<ServerAddr>,
    /// Its limits.
    pub limits: Limits,
}

impl Definition {
    /// Why a lane opened with `self` cannot go on with `wanted`; `None` where it can.
    #[must_use]
    pub fn breaks_with(&self, wanted: &Self) -> Option<&'static str> {
        let content_changed = matches!((&self.content, &wanted.content), (Some(was), Some(is)) if was != is);
        if self.credentials != wanted.credentials {
            Some("another credentials directory")
        } else if content_changed {
            Some("credentials changed")
        } else if self.servers != wanted.servers {
            Some("servers changed")
        } else {
            None
        }
    }
}

/// Where a lane stands, as far as a plan has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No task: it waits or is parked.
    Idle,
    /// Its task runs and has not got through yet.
    Opening,
    /// It is a standby.
    Standby,
    /// It serves.
    Serving,
    /// It closes and will be opened with whatever is wanted then.
    Closing,
    /// It closes for good.
    Leaving,
    /// Its task cannot be ended; nothing can be done about it here.
    Wedged,
    /// It was handed over for maintenance.
    Drained,
}

/// What there is of one lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Actual {
    /// Where it stands.
    pub stage: Stage,
    /// What it was last opened with; `None` before the first time.
    pub opened_with: Option<Definition>,
    /// What a preflight refused, so that it is not tried again at once.
    pub refused: Option<Definition>,
    /// What a preflight is about to prove.
    pub trying: Option<Definition>,
    /// Whether it has served since the host started.
    pub has_served: bool,
}

impl Actual {
    /// Whether closing it takes a service away. A lane that only lost its broker still counts, so that an outage does not
    /// open the door for an empty manifest.
    fn serves(&self) -> bool {
        match self.stage {
            Stage::Serving => true,
            Stage::Idle | Stage::Opening | Stage::Closing => self.has_served,
            Stage::Standby | Stage::Leaving | Stage::Wedged | Stage::Drained => false,
        }
    }
}

/// What to do with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Open it, once the one before it is closed.
    Open,
    /// Apply its limits to the running lane.
    Retune,
    /// Prove the new definition on a throw-away connection, then close it and open it anew.
    Preflight,
    /// Open it anew at once: it does not serve, so there is nothing to protect.
    Reopen,
    /// Close it for good.
    Close,
}

impl Action {
    fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Retune => "retune",
            Self::Preflight => "preflight and reopen",
            Self::Reopen => "reopen",
            Self::Close => "close",
        }
    }
}

/// One step and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The space.
    pub space: Space,
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: String,
}

/// The whole change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, sorted by action and space.
    pub steps: Vec<Step>,
    /// Lanes that will not notice.
    pub unchanged: usize,
    /// Lanes that serve now, or did and have only lost their broker.
    pub serving: usize,
    /// Those of them that are to be closed for good.
    pub closing_serving: usize,
}

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The enabled spaces.
    pub spaces: BTreeMap<Space, Definition>,
    /// Spaces that are listed and disabled.
    pub disabled: BTreeSet<Space>,
    /// True where somebody asked, so that what was refused is tried again.
    pub try_refused: bool,
}

impl Plan {
    /// Compares what is wanted with what there is.
    #[must_use]
    pub fn build(wanted: &Wanted, actual: &BTreeMap<Space, Actual>) -> Self {
        let mut plan = Self::default();
        for (space, definition) in &wanted.spaces {
            let actual = actual.get(space);
            match wanted_step(definition, actual, wanted.try_refused) {
                Some((action, reason)) => plan.steps.push(Step { space: space.clone(), action, reason }),
                None => plan.unchanged += 1,
            }
            plan.serving += usize::from(actual.is_some_and(Actual::serves));
        }
        for (space, actual) in actual.iter().filter(|(space, _)| !wanted.spaces.contains_key(*space)) {
            if actual.stage == Stage::Leaving {
                continue;
            }
            let serves = usize::from(actual.serves());
            plan.serving += serves;
            plan.closing_serving += serves;
            let is_disabled = wanted.disabled.contains(space);
            let reason = if is_disabled { "disabled in the manifest" } else { "removed from the manifest" };
            plan.steps.push(Step { space: space.clone(), action: Action::Close, reason: reason.to_owned() });
        }
        plan.steps.sort_by(|a, b| (a.action, &a.space).cmp(&(b.action, &b.space)));
        plan
    }

    /// True where nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// True where more than half of the serving lanes would be closed for good.
    #[must_use]
    pub fn is_mass_close(&self) -> bool {
        self.closing_serving * 2 > self.serving
    }

    /// The spaces of a kind of step.
    #[must_use]
    pub fn spaces(&self, action: Action) -> Vec<Space> {
        self.steps.iter().filter(|step| step.action == action).map(|step| step.space.clone()).collect()
    }
}

/// What is to be done with one wanted lane.
fn wanted_step(wanted: &Definition, actual: Option<&Actual>, try_refused: bool) -> Option<(Action, String)> {
    let Some(actual) = actual else { return Some((Action::Open, "new in the manifest".to_owned())) };
    let opened_with = actual.opened_with.as_ref();
    let broken = opened_with.and_then(|was| was.breaks_with(wanted));
    let retuned = opened_with.and_then(|was| limits_changed(&was.limits, &wanted.limits));
    match actual.stage {
        Stage::Leaving => Some((Action::Open, "back in the manifest".to_owned())),
        // They take up whatever is wanted when their time comes.
        Stage::Closing | Stage::Wedged | Stage::Drained => None,
        Stage::Idle => broken.map(str::to_owned).or(retuned).map(|reason| (Action::Reopen, reason)),
        Stage::Opening => match broken {
            Some(reason) => Some((Action::Reopen, reason.to_owned())),
            None => retuned.map(|reason| (Action::Retune, reason)),
        },
        Stage::Standby | Stage::Serving => match broken {
            Some(_) if actual.trying.as_ref() == Some(wanted) => None,
            Some(_) if !try_refused && actual.refused.as_ref() == Some(wanted) => None,
            Some(reason) => Some((Action::Preflight, reason.to_owned())),
            None => retuned.map(|reason| (Action::Retune, reason)),
        },
    }
}

/// Which limits changed, from what to what.
fn limits_changed(was: &Limits, is: &Limits) -> Option<String> {
    let millis = |value: std::time::Duration| value.as_millis();
    let rows = [
        ("ack_wait_ms", millis(was.ack_wait), millis(is.ack_wait)),
        ("broker_window_ms", millis(was.broker_window), millis(is.broker_window)),
        ("max_in_hand", was.max_in_hand as u128, is.max_in_hand as u128),
        ("max_in_flight", was.max_in_flight as u128, is.max_in_flight as u128),
    ];
    let changed: Vec<String> = rows
        .iter()
        .filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| format!("{name} from {was} to {is}"))
        .collect();
    if changed.is_empty() { None } else { Some(changed.join(", ")) }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in [Action::Open, Action::Retune, Action::Preflight, Action::Reopen, Action::Close] {
            let steps: Vec<&Step> = self.steps.iter().filter(|step| step.action == action).collect();
            if steps.is_empty() {
                continue;
            }
            write!(f, "{} {} (", action.verb(), steps.len())?;
            for (number, step) in steps.iter().take(NAMED).enumerate() {
                let separator = if number == 0 { "" } else { "; " };
                write!(f, "{separator}{}: {}", step.space, step.reason)?;
            }
            if steps.len() > NAMED {
                write!(f, "; and {} more", steps.len() - NAMED)?;
            }
            f.write_str("), ")?;
        }
        write!(f, "unchanged {}", self.unchanged)
    }
}

#[cfg(test)]
mod tests;
