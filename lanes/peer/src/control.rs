//! Owns the requests of `ctl.delivery`: their arguments, sending them, and reading the daemon's replies. It must not
//! keep any state about memberships.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_wire::{Channel, ChannelPattern, ControlReply, LifecycleUid, control::compose_request};
use lanekeeper_wire::{HistoryPage, MembershipItem, Principal, subject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ask::{AskError, ask};
use crate::peer::{Core, Peer};

/// Why a request to the daemon brought nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There was no answer.
    #[error(transparent)]
    Unanswered(#[from] AskError),
    /// The daemon refused, in its own words.
    #[error("daemon refused {op}: {error}")]
    Refused {
        /// The operation.
        op: &'static str,
        /// The daemon's reason.
        error: String,
    },
    /// The answer does not have the shape of the operation.
    #[error("answer to {op} is not usable: {detail}")]
    Malformed {
        /// The operation.
        op: String,
        /// What is wrong with it.
        detail: String,
    },
}

/// A tap on everything that arrives below this member's own reply subtree of `ctl.delivery`.
#[derive(Debug)]
pub struct ReplyTap {
    replies: async_nats::Subscriber,
}

impl ReplyTap {
    /// The next reply, as its subject and payload, or `None` if nothing arrives within `limit`.
    pub async fn next_within(&mut self, limit: Duration) -> Option<(String, Bytes)> {
        let reply = tokio::time::timeout(limit, self.replies.next()).await.ok()??;
        Some((reply.subject.to_string(), reply.payload))
    }
}

/// Who asks: what every request carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) name: &'a str,
}

/// The bytes of a request.
pub(crate) fn request(caller: Caller<'_>, op: &str, args: Value) -> Bytes {
    Bytes::from(compose_request(caller.principal, caller.name, op, args))
}

/// Arguments of `durableJoin`.
pub(crate) fn join_args(pattern: &ChannelPattern) -> Value {
    json!({ "channel": pattern.as_str() })
}

/// Arguments of `durableLeave`.
pub(crate) fn leave_args(pattern: &ChannelPattern, generation: u64, uid: &LifecycleUid) -> Value {
    json!({ "channel": pattern.as_str(), "generation": generation, "lifecycleUid": uid.as_str() })
}

/// Reads the data of an accepted operation.
pub(crate) fn data<T: DeserializeOwned>(op: &'static str, reply: ControlReply) -> Result<T, ControlError> {
    if !reply.ok {
        let error = reply.error.unwrap_or_else(|| "no reason given".to_owned());
        return Err(ControlError::Refused { op, error });
    }
    let malformed = |detail: String| ControlError::Malformed { op: op.to_owned(), detail };
    let value = reply.data.ok_or_else(|| malformed("it has no data".to_owned()))?;
    serde_json::from_value(value).map_err(|fault| malformed(fault.to_string()))
}

/// The list may come bare or under a name, depending on who wrote the daemon.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listing {
    Bare(Vec<MembershipItem>),
    Named { memberships: Vec<MembershipItem> },
}

impl Core {
    /// See [`Peer::control`].
    pub(crate) async fn control(&self, op: &str, args: Value) -> Result<ControlReply, ControlError> {
        let subject = subject::control(&self.options.space, self.options.lifecycle.principal());
        let payload = request(self.caller(), op, args);
        let answer = ask(&self.link, &subject, payload, self.options.control_timeout).await?;
        ControlReply::parse(&answer)
            .map_err(|fault| ControlError::Malformed { op: op.to_owned(), detail: fault.to_string() })
    }
}

impl Peer {
    /// The subject on which this member's requests to the daemon go out.
    pub fn control_subject(&self) -> String {
        subject::control(self.space(), self.principal())
    }

    /// Sends operation `op` with `args` to the daemon and returns its reply, also when the daemon refused (`ok: false`).
    ///
    /// # Errors
    /// [`ControlError::Unanswered`] tells no responders, time-out, refusal by the broker and a lost connection apart.
    pub async fn control(&self, op: &str, args: Value) -> Result<ControlReply, ControlError> {
        self.core().control(op, args).await
    }

    /// Sends a request whose reply subject is `reply`, wherever that lies, and does not wait for an answer. For showing
    /// that a daemon answers only below the requester's own subtree; see [`Peer::tap_replies`] for the other end.
    ///
    /// # Errors
    /// [`AskError::Transport`] if the client could not send it.
    pub async fn control_with_reply(&self, op: &str, args: Value, reply: &str) -> Result<(), AskError> {
        let subject = self.control_subject();
        let transport = |detail: String| AskError::Transport { subject: subject.clone(), detail };
        let payload = request(self.caller(), op, args);
        self.link()
            .client
            .publish_with_reply(subject.clone(), reply.to_owned(), payload)
            .await
            .map_err(|fault| transport(fault.to_string()))?;
        self.link().client.flush().await.map_err(|fault| transport(fault.to_string()))
    }

    /// Listens to everything below this member's own reply subtree.
    ///
    /// # Errors
    /// [`AskError::Transport`] if the connection has ended.
    pub async fn tap_replies(&self) -> Result<ReplyTap, AskError> {
        let subject = format!("{}>", subject::reply_prefix(&self.control_subject()));
        let transport = |detail: String| AskError::Transport { subject: subject.clone(), detail };
        let replies =
            self.link().client.subscribe(subject.clone()).await.map_err(|fault| transport(fault.to_string()))?;
        self.link().client.flush().await.map_err(|fault| transport(fault.to_string()))?;
        Ok(ReplyTap { replies })
    }

    /// The member's own open rows, those still being activated included.
    ///
    /// # Errors
    /// As [`Peer::control`], and a refusal or an unusable answer.
    pub async fn memberships(&self) -> Result<Vec<MembershipItem>, ControlError> {
        let args = json!({ "lifecycleUid": self.lifecycle().uid().as_str() });
        let reply = self.control("listMemberships", args).await?;
        match data("listMemberships", reply)? {
            Listing::Bare(items) | Listing::Named { memberships: items } => Ok(items),
        }
    }

    /// The newest `limit` messages of a channel (the daemon's default if `None`), as far as this member may read them.
    ///
    /// # Errors
    /// As [`Peer::memberships`].
    pub async fn history(&self, channel: &Channel, limit: Option<u32>) -> Result<HistoryPage, ControlError> {
        let mut args = json!({ "channel": channel.as_str() });
        if let (Some(limit), Some(fields)) = (limit, args.as_object_mut()) {
            fields.insert("limit".to_owned(), limit.into());
        }
        data("readHistory", self.control("readHistory", args).await?)
    }
}
