//! Checkpoint timers: their subjects and the schedule request. Owns the shape; must not know a clock or a checkpoint.

use serde::{Deserialize, Serialize};

use crate::text::json_reason;
use crate::token::{EndpointToken, Epoch, InstanceId, Space, TimerId};

/// The last millisecond of the year 9999, UTC: what RFC 3339 can still write.
pub const MAX_DEADLINE_MS: u64 = 253_402_300_799_999;

/// What a timer subject asks for or tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimerVerb {
    /// A request to arm a timer.
    Schedule,
    /// An armed timer, held by the broker.
    Armed,
    /// A timer that fired.
    Fire,
}

impl TimerVerb {
    /// The verb's token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Armed => "armed",
            Self::Fire => "fire",
        }
    }

    pub(crate) fn from_token(token: &str) -> Option<Self> {
        [Self::Schedule, Self::Armed, Self::Fire].into_iter().find(|verb| verb.as_str() == token)
    }
}

/// `ept.<endpoint>.<instance>.<epoch>.<timer>.<verb>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TimerSubject {
    /// The endpoint the checkpoint belongs to.
    pub endpoint: EndpointToken,
    /// The instance that published the request.
    pub instance: InstanceId,
    /// That instance's epoch.
    pub epoch: Epoch,
    /// The timer.
    pub timer: TimerId,
    /// What is asked or told.
    pub verb: TimerVerb,
}

impl TimerSubject {
    /// The same timer with another verb.
    pub fn sibling(&self, verb: TimerVerb) -> Self {
        Self { verb, ..self.clone() }
    }

    /// The subject as it stands on the wire in `space`.
    pub fn build(&self, space: &Space) -> String {
        let Self { endpoint, instance, epoch, timer, verb } = self;
        format!("cotal.{space}.ept.{endpoint}.{instance}.{epoch}.{timer}.{}", verb.as_str())
    }
}

/// A checked request to arm a timer; the same object is the armed body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleRequest {
    /// Version of the body, always 1.
    pub v: u64,
    /// The timer, the same as in the subject.
    pub timer_id: TimerId,
    /// The checkpoint's generation, 1 or more.
    pub generation: u64,
    /// When to fire, in ms since 1970-01-01 UTC, at most [`MAX_DEADLINE_MS`].
    #[serde(rename = "deadline")]
    pub deadline_ms: u64,
}

/// Why a schedule request is refused for good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimerFault {
    /// The subject is not one of a request.
    #[error("timer request on a {verb} subject: publish requests on .schedule")]
    NotSchedule {
        /// The verb of the subject.
        verb: &'static str,
    },
    /// The body is not the JSON object it should be.
    #[error("timer request is malformed: {why}")]
    Malformed {
        /// What the parser said.
        why: String,
    },
    /// Another version of the body.
    #[error("timer request has version {v}: only version 1 is known")]
    Version {
        /// The version.
        v: u64,
    },
    /// The body names another timer than the subject.
    #[error("timer request on the subject of timer \"{subject}\" names timer \"{body}\": they must be the same")]
    OtherTimer {
        /// The timer in the subject.
        subject: TimerId,
        /// The timer in the body.
        body: TimerId,
    },
    /// Generation 0.
    #[error("timer request has generation 0: generations start at 1")]
    Generation,
    /// A deadline that RFC 3339 cannot write.
    #[error("timer request has deadline {deadline_ms}: the latest is {MAX_DEADLINE_MS}, the end of year 9999")]
    Deadline {
        /// The deadline in ms since 1970.
        deadline_ms: u64,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    v: u64,
    timer_id: TimerId,
    generation: u64,
    deadline: u64,
}

impl ScheduleRequest {
    /// Reads the body of a request that arrived on `subject`.
    ///
    /// # Errors
    /// See [`TimerFault`]; every one of them is permanent.
    pub fn parse(subject: &TimerSubject, payload: &[u8]) -> Result<Self, TimerFault> {
        match subject.verb {
            TimerVerb::Schedule => {}
            TimerVerb::Armed | TimerVerb::Fire => {
                return Err(TimerFault::NotSchedule { verb: subject.verb.as_str() });
            }
        }
        let body: Body =
            crate::json::object_from_slice(payload).map_err(|e| TimerFault::Malformed { why: json_reason(&e) })?;
        if body.v != 1 {
            return Err(TimerFault::Version { v: body.v });
        }
        if body.timer_id != subject.timer {
            return Err(TimerFault::OtherTimer { subject: subject.timer.clone(), body: body.timer_id });
        }
        if body.generation == 0 {
            return Err(TimerFault::Generation);
        }
        if body.deadline > MAX_DEADLINE_MS {
            return Err(TimerFault::Deadline { deadline_ms: body.deadline });
        }
        Ok(Self { v: 1, timer_id: body.timer_id, generation: body.generation, deadline_ms: body.deadline })
    }

    /// The JSON of the request, which is also the armed body.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}
