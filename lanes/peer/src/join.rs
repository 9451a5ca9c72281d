//! Owns the outcome of joining: what a daemon's answer makes of a membership, and how eagerly to ask again. Pure: it
//! must not send, wait or subscribe.

use std::fmt;
use std::time::Duration;

use lanekeeper_wire::{ControlReply, JoinData, LifecycleUid};

use crate::ask::AskError;
use crate::control::{ControlError, data};

/// A daemon that is not there may appear at any moment, and its members should not wait for it.
const CAP_ABSENT: Duration = Duration::from_secs(2);
/// A daemon that answered and said no will say the same for a while.
const CAP_REFUSED: Duration = Duration::from_secs(20);

/// How a member is joined to a channel. The live subscription is active in both states.
///
/// Displayed as `joined durable` or `joined live, backstop unestablished`, never anything between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinState {
    /// Posts are kept for the member while it is away.
    Durable {
        /// The generation of the membership.
        generation: u64,
        /// The incarnation it belongs to.
        lifecycle_uid: LifecycleUid,
    },
    /// The member gets what is posted while it is connected, and nothing else.
    LiveOnly {
        /// Why there is no durable membership.
        reason: Shortfall,
    },
}

impl JoinState {
    /// Whether posts are kept for the member while it is away.
    pub fn is_durable(&self) -> bool {
        matches!(self, Self::Durable { .. })
    }
}

impl fmt::Display for JoinState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Durable { .. } => "joined durable",
            Self::LiveOnly { .. } => "joined live, backstop unestablished",
        })
    }
}

/// Why a durable membership could not be established.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// Not asked yet.
    #[error("the daemon has not been asked yet")]
    NotAsked,
    /// No daemon serves the space.
    #[error("no delivery daemon serves this space")]
    NoDaemon,
    /// Whether it was established is not known.
    #[error("the daemon did not answer: {detail}")]
    Unknown {
        /// What happened.
        detail: String,
    },
    /// The daemon refused.
    #[error("the daemon refused: {error}")]
    Refused {
        /// Its words.
        error: String,
    },
    /// The daemon answered that the membership is not durable.
    #[error("the daemon could not make it durable: {reason}")]
    NotDurable {
        /// Its words.
        reason: String,
    },
}

impl Shortfall {
    /// The longest wait before the daemon is asked again.
    pub(crate) fn retry_cap(&self) -> Duration {
        match self {
            Self::NotAsked | Self::NoDaemon | Self::Unknown { .. } => CAP_ABSENT,
            Self::Refused { .. } | Self::NotDurable { .. } => CAP_REFUSED,
        }
    }
}

/// What a join brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The state of the membership.
    pub state: JoinState,
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

/// What leaving brought on the durable side; the live subscription is closed in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The durable membership was ended.
    Ended {
        /// Its generation.
        generation: u64,
    },
    /// There was none to end.
    WasNotDurable,
    /// It could not be ended: posts may still be kept for this member.
    Unconfirmed {
        /// Why.
        reason: ControlError,
    },
}

/// What the answer to `durableJoin` makes of the membership of incarnation `own`.
pub(crate) fn judge(own: &LifecycleUid, outcome: Result<ControlReply, ControlError>) -> JoinState {
    match outcome.and_then(|reply| data::<JoinData>("durableJoin", reply)) {
        Ok(joined) if joined.lifecycle_uid != *own => {
            // Never "joined durable" on the word of a row that is somebody else's.
            let detail = format!("it answered for incarnation {}", joined.lifecycle_uid);
            JoinState::LiveOnly { reason: Shortfall::Unknown { detail } }
        }
        Ok(joined) if joined.durable => {
            JoinState::Durable { generation: joined.generation, lifecycle_uid: joined.lifecycle_uid }
        }
        Ok(joined) => {
            let reason = joined.reason.unwrap_or_else(|| "no reason given".to_owned());
            JoinState::LiveOnly { reason: Shortfall::NotDurable { reason } }
        }
        Err(fault) => JoinState::LiveOnly { reason: shortfall(fault) },
    }
}

fn shortfall(fault: ControlError) -> Shortfall {
    match fault {
        ControlError::Unanswered(AskError::NoResponders { .. }) => Shortfall::NoDaemon,
        ControlError::Refused { error, .. } => Shortfall::Refused { error },
        ControlError::Unanswered(
            fault @ (AskError::Timeout { .. } | AskError::Denied { .. } | AskError::Transport { .. }),
        ) => Shortfall::Unknown { detail: fault.to_string() },
        fault @ ControlError::Malformed { .. } => Shortfall::Unknown { detail: fault.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const OWN: &str = "abcdefghijklmnopqrstuvwxyz";
    const OTHER: &str = "zyxwvutsrqponmlkjihgfedcba";

    fn own() -> LifecycleUid {
        OWN.parse().unwrap()
    }

    fn accepted(data: Value) -> JoinState {
        judge(&own(), Ok(ControlReply { ok: true, data: Some(data), error: None }))
    }

    #[test]
    fn durable_needs_a_clear_yes() {
        let state = accepted(json!({"durable": true, "generation": 3, "lifecycleUid": OWN}));
        assert_eq!(state, JoinState::Durable { generation: 3, lifecycle_uid: own() });
        assert_eq!(state.to_string(), "joined durable");
    }

    #[test]
    fn everything_else_is_live_only() {
        let refused = ControlReply { ok: false, data: None, error: Some("channel not allowed".to_owned()) };
        let states = [
            accepted(json!({"durable": false, "generation": 3, "reason": "evicted", "lifecycleUid": OWN})),
            accepted(json!({"durable": true, "generation": 3, "lifecycleUid": OTHER})),
            accepted(json!({"durable": "yes", "generation": 3, "lifecycleUid": OWN})),
            accepted(json!(null)),
            judge(&own(), Ok(ControlReply { ok: true, data: None, error: None })),
            judge(&own(), Ok(refused)),
            judge(&own(), Err(AskError::NoResponders { subject: "s".to_owned() }.into())),
            judge(&own(), Err(AskError::Timeout { subject: "s".to_owned(), waited_ms: 1 }.into())),
        ];
        for state in states {
            assert!(!state.is_durable(), "{state:?}");
            assert_eq!(state.to_string(), "joined live, backstop unestablished");
        }
    }

    #[test]
    fn an_absent_daemon_is_asked_more_eagerly_than_one_that_refused() {
        assert!(Shortfall::NoDaemon.retry_cap() < Shortfall::Refused { error: String::new() }.retry_cap());
    }

    proptest! {
        /// No reply, however strange, reads as durable unless it says so for this very incarnation.
        #[test]
        fn only_own_rows_are_durable(ok in any::<bool>(), durable in prop::option::of(any::<bool>()), own_uid in any::<bool>(),
            generation in prop::option::of(any::<u64>()), error in prop::option::of("[a-z ]{0,12}")) {
            let mut fields = serde_json::Map::new();
            if let Some(durable) = durable { fields.insert("durable".into(), durable.into()); }
            if let Some(generation) = generation { fields.insert("generation".into(), generation.into()); }
            fields.insert("lifecycleUid".into(), if own_uid { OWN } else { OTHER }.into());
            let state = judge(&own(), Ok(ControlReply { ok, data: Some(Value::Object(fields)), error }));
            let expected = ok && durable == Some(true) && own_uid && generation.is_some();
            prop_assert_eq!(state.is_durable(), expected);
        }
    }
}
