//! Owns the member's own presence key: its content, the heartbeat that keeps it alive, and saying goodbye. It must not
//! write any other key, nor read the roster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lanekeeper_wire::{Bucket, Lifecycle, Role, Space};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::link::Link;

/// The bucket forgets a key after this long, so writes that fail for as long have lost the member its presence.
const STUCK_AFTER: Duration = Duration::from_secs(6);

/// What a member says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Free.
    Idle,
    /// Blocked on somebody or something.
    Waiting,
    /// Busy.
    Working,
    /// Gone.
    Offline,
}

/// Why presence could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("presence of {member} was not written: {detail}")]
pub struct PresenceError {
    /// Whose presence.
    pub member: String,
    /// What happened.
    pub detail: String,
}

#[derive(Debug, Clone)]
struct State {
    status: Status,
    activity: Option<String>,
    status_since_ms: u64,
    activity_since_ms: Option<u64>,
}

/// The member's presence, shared by its heartbeat and the calls that change it.
#[derive(Debug)]
pub(crate) struct Presence {
    subject: String,
    member: String,
    name: String,
    uid: String,
    role: Option<Role>,
    state: Mutex<State>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    card: Card<'a>,
    status: Status,
    ts: u64,
    lifecycle_uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<&'a str>,
    // An offline row carries no stamps: whoever derives offline does not know them either.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_since: Option<u64>,
}

#[derive(Serialize)]
struct Card<'a> {
    id: &'a str,
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
}

impl Presence {
    pub(crate) fn new(space: &Space, lifecycle: &Lifecycle, name: &str, role: Option<Role>) -> Self {
        let member = lifecycle.principal().dotted();
        Self {
            subject: Bucket::Presence.subject(space, &member),
            member,
            name: name.to_owned(),
            uid: lifecycle.uid().as_str().to_owned(),
            role,
            state: Mutex::new(State {
                status: Status::Idle,
                activity: None,
                status_since_ms: now_ms(),
                activity_since_ms: None,
            }),
        }
    }

    /// Changes what the next write says; a repeated report moves no stamp.
    pub(crate) fn set(&self, status: Status, activity: Option<&str>) {
        let now = now_ms();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let activity_changed = state.activity.as_deref() != activity;
        if activity_changed {
            state.activity = activity.map(str::to_owned);
            state.activity_since_ms = activity.map(|_| now);
        }
        if activity_changed || state.status != status {
            state.status = status;
            state.status_since_ms = now;
        }
    }

    /// Writes the row and waits until the broker has stored it.
    pub(crate) async fn write(&self, link: &Link) -> Result<(), PresenceError> {
        let failed = |detail: String| PresenceError { member: self.member.clone(), detail };
        let row = self.row().map_err(|fault| failed(fault.to_string()))?;
        let mark = link.violations.mark();
        let write = async {
            let stored = link.js.publish(self.subject.clone(), row).await;
            stored.map_err(|fault| failed(fault.to_string()))?.await.map_err(|fault| failed(fault.to_string()))
        };
        tokio::select! {
            biased;
            stored = write => stored.map(drop),
            violation = link.violations.wait_since(mark, |violation| violation.subject == self.subject) => {
                Err(failed(format!("broker refused {}: the credential lacks this permission", violation.subject)))
            }
            () = link.ended.cancelled() => Err(failed("the connection has ended".to_owned())),
        }
    }

    fn row(&self) -> serde_json::Result<Bytes> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let here = state.status != Status::Offline;
        serde_json::to_vec(&Row {
            card: Card {
                id: &self.member,
                name: &self.name,
                kind: "agent",
                role: self.role.as_ref().map(Role::as_str),
            },
            status: state.status,
            ts: now_ms(),
            lifecycle_uid: &self.uid,
            activity: state.activity.as_deref(),
            status_since: here.then_some(state.status_since_ms),
            activity_since: state.activity_since_ms.filter(|_| here),
        })
        .map(Bytes::from)
    }
}

/// Refreshes presence every `every` and after each reconnect, until `stop`.
pub(crate) async fn heartbeat(presence: Arc<Presence>, link: Arc<Link>, every: Duration, stop: CancellationToken) {
    let mut epoch = link.epoch.clone();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = Failing::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = link.ended.cancelled() => return,
            changed = epoch.changed() => if changed.is_err() { return },
            _ = ticks.tick() => {}
        }
        let written = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            written = presence.write(&link) => written,
        };
        failing.note(written);
    }
}

/// Tells one refused write, which is nothing, from a presence that is stuck, which is reported once.
#[derive(Debug, Default)]
struct Failing {
    since: Option<Instant>,
    reported: bool,
}

impl Failing {
    fn note(&mut self, written: Result<(), PresenceError>) {
        match written {
            Ok(()) => {
                if std::mem::take(&mut self.reported) {
                    info!("presence is written again");
                }
                self.since = None;
            }
            Err(fault) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STUCK_AFTER && !self.reported {
                    self.reported = true;
                    error!(%fault, "presence is stuck: others see this member as gone");
                } else {
                    debug!(%fault, "presence was not written");
                }
            }
        }
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanekeeper_wire::PresenceRow;
    use serde_json::Value;

    fn presence() -> Presence {
        let lifecycle: Lifecycle = "local.ada.abcdefghijklmnopqrstuvwxyz".parse().unwrap();
        Presence::new(&"demo".parse().unwrap(), &lifecycle, "ada", Some("reviewer".parse().unwrap()))
    }

    fn row(presence: &Presence) -> Value {
        serde_json::from_slice(&presence.row().unwrap()).unwrap()
    }

    #[test]
    fn a_row_others_accept() {
        let presence = presence();
        assert_eq!(presence.subject, "$KV.cotal_presence_demo.local.ada");
        assert!(PresenceRow::parse("local.ada", &presence.row().unwrap()).is_ok());
        let row = row(&presence);
        assert_eq!(row["card"]["role"], "reviewer");
        assert_eq!(row["lifecycleUid"], "abcdefghijklmnopqrstuvwxyz");
        assert_eq!(row["status"], "idle");
    }

    #[test]
    fn stamps_move_on_change_only() {
        let presence = presence();
        presence.state.lock().unwrap().status_since_ms = 1;
        presence.set(Status::Idle, None);
        assert_eq!(row(&presence)["statusSince"], 1, "a repeated report moved the stamp");
        presence.set(Status::Working, Some("reading"));
        assert!(row(&presence)["statusSince"].as_u64() > Some(1));
        presence.state.lock().unwrap().activity_since_ms = Some(2);
        presence.set(Status::Waiting, Some("reading"));
        assert_eq!(row(&presence)["activitySince"], 2, "a status change moved the activity's stamp");
    }

    #[test]
    fn offline_carries_no_stamps() {
        let presence = presence();
        presence.set(Status::Offline, None);
        let row = row(&presence);
        assert_eq!(row["status"], "offline");
        assert_eq!(row.get("statusSince"), None);
    }
}
