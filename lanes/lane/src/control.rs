//! The responder of `ctl.delivery`: what a member may ask the daemon.
//!
//! Owns the subscription, the reply rule and the answers. A request whose reply subject does not lie below its own
//! `.reply.` is never answered. It must not write rows itself: [`crate::membership`] does.

use futures::StreamExt as _;
use lanekeeper_wire::{
    Bucket, Channel, ChannelPattern, ControlReply, DeliveryOp, JoinData, Lifecycle, LifecycleUid, MemberKey,
    MembershipItem, Principal, Subject, control::parse_request, subject,
};

use tokio_util::sync::CancellationToken;

use crate::{
    fault::FaultKind,
    membership::{Join, Leave, Membership},
    registry::tables::Caller,
};

/// Largest request that is read, bytes; a request holds one channel of at most 4096 characters.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Answers members of one space.
pub(crate) struct Control {
    /// What writes rows.
    pub membership: Membership,
}

impl Control {
    /// Subscribes, so that requests sent from now on are answered.
    ///
    /// # Errors
    /// The connection's end.
    pub(crate) async fn bind(&self) -> Result<async_nats::Subscriber, FaultKind> {
        let filter = subject::control_filter(&self.membership.space);
        let queue = subject::CONTROL_QUEUE.to_owned();
        let bound = self.membership.link.client().queue_subscribe(filter.clone(), queue).await;
        bound.map_err(|error| FaultKind::Refused {
            what: format!("subscription to {filter}"),
            reason: error.to_string(),
        })
    }

    /// Answers until `stop`.
    ///
    /// # Errors
    /// The connection's end.
    pub(crate) async fn run(
        self,
        mut requests: async_nats::Subscriber,
        stop: CancellationToken,
    ) -> Result<(), FaultKind> {
        let over = self.membership.link.over().clone();
        loop {
            let request = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = over.cancelled() => return Err(FaultKind::Disconnected),
                request = requests.next() => request,
            };
            let Some(request) = request else { return Err(FaultKind::Disconnected) };
            self.serve(&request).await?;
        }
    }

    async fn serve(&self, request: &async_nats::Message) -> Result<(), FaultKind> {
        let space = &self.membership.space;
        let Some(reply) = &request.reply else {
            tracing::debug!(subject = %request.subject, "request without a reply subject, dropped");
            return Ok(());
        };
        if !subject::is_own_reply(request.subject.as_str(), reply.as_str()) {
            tracing::warn!(subject = %request.subject, "reply subject outside the request's own subtree, dropped");
            return Ok(());
        }
        let Ok(Subject::Control { caller }) = Subject::parse(space, request.subject.as_str()) else {
            tracing::warn!(subject = %request.subject, "request on a malformed subject, dropped");
            return Ok(());
        };
        let answer = self.answer(&caller, &request.payload).await;
        if let Some(error) = &answer.error {
            tracing::info!(%caller, %error, "request refused");
        }
        let sent = self.membership.link.client().publish(reply.clone(), answer.to_bytes()).await;
        sent.map_err(|_| FaultKind::Disconnected)
    }

    async fn answer(&self, caller: &Principal, payload: &[u8]) -> ControlReply {
        if payload.len() > MAX_REQUEST_BYTES {
            return ControlReply::error(format!("the request has more than {MAX_REQUEST_BYTES} bytes"));
        }
        if !caller.is_trusted() {
            return ControlReply::error(format!("`{caller}` is not a principal that may be authorised"));
        }
        let request = match parse_request(caller, payload) {
            Ok(request) => request,
            Err(fault) => return ControlReply::error(fault),
        };
        if !self.membership.permit.is_live() {
            return ControlReply::error("delivery is re-checking its lease; ask again");
        }
        let answered = match request.op {
            DeliveryOp::DurableJoin { channel } => self.join(caller, channel).await,
            DeliveryOp::DurableLeave { channel, generation, lifecycle_uid } => {
                self.leave(caller, channel, generation, lifecycle_uid).await
            }
            DeliveryOp::ListMemberships { lifecycle_uid } => self.list(caller, lifecycle_uid).await,
            DeliveryOp::ReadHistory { channel, .. } => Ok(no_history(&channel)),
        };
        answered.unwrap_or_else(|fault| {
            tracing::warn!(%caller, %fault, "request failed");
            ControlReply::error(fault)
        })
    }

    async fn join(&self, caller: &Principal, channel: ChannelPattern) -> Result<ControlReply, FaultKind> {
        let membership = &self.membership;
        membership.registry.fresh(&membership.link, &[Bucket::Acl]).await?;
        let resolved = membership.registry.tables().caller(caller);
        let (lifecycle, acl) = match resolved {
            Caller::One(lifecycle, acl) => (lifecycle, acl),
            Caller::Nobody => {
                return Ok(ControlReply::error(format!("`{caller}` has no read ACL; provision it first")));
            }
            Caller::Several(count) => {
                return Ok(ControlReply::error(format!("`{caller}` has {count} live lifecycles; retire all but one")));
            }
        };
        if !channel.is_concrete() {
            return Ok(ControlReply::error(format!(
                "`{channel}` is a channel family; durable membership of families is not served"
            )));
        }
        if !acl.covers(&channel) {
            return Ok(ControlReply::error(format!("`{channel}` is outside the read ACL of `{caller}`")));
        }
        let key = MemberKey { pattern: channel, lifecycle: lifecycle.clone() };
        let data = match membership.join(&key).await? {
            Join::Durable { generation } => {
                JoinData { durable: true, generation, reason: None, lifecycle_uid: lifecycle.uid().clone() }
            }
            Join::Refused { generation, reason } => {
                JoinData { durable: false, generation, reason: Some(reason), lifecycle_uid: lifecycle.uid().clone() }
            }
        };
        tracing::info!(%caller, channel = %key.pattern, generation = data.generation, durable = data.durable, "joined");
        Ok(ControlReply::ok(data))
    }

    async fn leave(
        &self,
        caller: &Principal,
        channel: ChannelPattern,
        generation: u64,
        uid: LifecycleUid,
    ) -> Result<ControlReply, FaultKind> {
        let key = MemberKey { pattern: channel, lifecycle: Lifecycle::new(caller.clone(), uid) };
        Ok(match self.membership.leave(&key, generation).await? {
            Leave::Left { leave_cursor } => {
                tracing::info!(%caller, channel = %key.pattern, generation, leave_cursor, "left");
                ControlReply::ok(serde_json::json!({ "left": true, "leaveCursor": leave_cursor }))
            }
            Leave::AlreadyLeft => ControlReply::ok(serde_json::json!({ "alreadyLeft": true })),
            Leave::Stale { asked, current } => {
                ControlReply::error(format!("stale generation {asked} for `{}`; the row has {current}", key.pattern))
            }
        })
    }

    async fn list(&self, caller: &Principal, uid: LifecycleUid) -> Result<ControlReply, FaultKind> {
        let rows = self.membership.list(&Lifecycle::new(caller.clone(), uid)).await?;
        let items: Vec<_> = rows
            .iter()
            .map(|row| MembershipItem {
                channel: row.channel.clone(),
                generation: row.generation,
                activated: row.activated,
            })
            .collect();
        Ok(ControlReply::ok(items))
    }
}

fn no_history(channel: &Channel) -> ControlReply {
    ControlReply::error(format!("readHistory of `{channel}` is not served by this version"))
}
