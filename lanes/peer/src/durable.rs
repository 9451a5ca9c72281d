//! Owns the durable copies: binds the provisioned hand-over consumer, keeps pull requests with the broker over every
//! interruption, checks each entry and passes it on. It must never create or change a consumer, nor acknowledge.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::{Message as BrokerMessage, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_wire::{DeliveryFrame, FRAME_HEADER, Lifecycle, Principal, Space, StreamKind, names, subject};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::counters::Counters;
use crate::incoming::{AckHandle, Incoming, Via};
use crate::link::Link;
use crate::pull::PullBudget;

/// How long one pull request stays with the broker.
const EXPIRES: Duration = Duration::from_secs(30);
/// How often the broker shows that it still holds a request.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Silence after which a request counts as forgotten: two heartbeats and a margin for a busy process.
const SILENCE: Duration = Duration::from_secs(8);
/// Silences in a row after which the consumer itself is looked up again.
const SILENCES_BEFORE_REBIND: u32 = 3;
/// Longest wait between two attempts to bind or to pull.
const RETRY_CAP: Duration = Duration::from_secs(5);

/// Whether the hand-over consumer is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// Not yet, or not at the moment: it is being tried.
    Unbound {
        /// What stands in the way.
        reason: String,
    },
    /// Copies are being pulled.
    Bound,
    /// It will not be bound: what is there is not this member's.
    Refused {
        /// What is wrong with it.
        reason: String,
    },
}

/// How the pull loop ended.
enum End {
    /// The member is being closed, or its connection has ended.
    Stopped,
    /// The consumer has to be looked up again.
    Rebind(&'static str),
}

/// The task that receives durable copies.
pub(crate) struct DurableTask {
    pub(crate) link: Arc<Link>,
    pub(crate) space: Space,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) batch: usize,
    pub(crate) queue: mpsc::Sender<Incoming>,
    pub(crate) binding: watch::Sender<Binding>,
    pub(crate) stop: CancellationToken,
}

/// What a bound consumer allows in one request.
struct Bound {
    batch: usize,
    expires: Duration,
}

#[derive(Serialize)]
struct PullRequest {
    batch: usize,
    /// Nanoseconds, as the broker wants them.
    expires: u64,
    idle_heartbeat: u64,
}

impl DurableTask {
    /// Runs until the member is closed or its connection has ended.
    pub(crate) async fn run(self) {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.link.ended.cancelled() => {}
            () = self.work() => {}
        }
    }

    async fn work(&self) {
        // One inbox for the whole life: a message that is under way while a request is replaced is not lost.
        let inbox = self.link.client.new_inbox();
        let Ok(mut messages) = self.link.client.subscribe(inbox.clone()).await else { return };
        let mut backoff = Backoff::new(RETRY_CAP);
        loop {
            match self.look_up().await {
                Ok(bound) => {
                    backoff.reset();
                    self.binding.send_replace(Binding::Bound);
                    debug!(member = %self.lifecycle, batch = bound.batch, "hand-over consumer bound");
                    match self.pull(&inbox, &mut messages, &bound).await {
                        End::Stopped => return,
                        End::Rebind(reason) => {
                            info!(member = %self.lifecycle, reason, "looking up the hand-over consumer again");
                            self.binding.send_replace(Binding::Unbound { reason: reason.to_owned() });
                        }
                    }
                }
                Err(Binding::Refused { reason }) => {
                    warn!(member = %self.lifecycle, %reason, "hand-over consumer refused, no durable copies");
                    self.binding.send_replace(Binding::Refused { reason });
                    return;
                }
                Err(state @ (Binding::Unbound { .. } | Binding::Bound)) => self.report_unbound(state),
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    /// One warning per change of reason: a member may wait for its consumer for a long time.
    fn report_unbound(&self, state: Binding) {
        let changed = self.binding.send_if_modified(|held| {
            let changed = *held != state;
            held.clone_from(&state);
            changed
        });
        if let (true, Binding::Unbound { reason }) = (changed, &state) {
            warn!(
                durable = %names::dlv_durable(&self.lifecycle), space = %self.space, %reason,
                "hand-over consumer cannot be bound yet; if another deployment serves this space, connect to that one"
            );
        }
    }

    /// Looks the provisioned consumer up and checks that it is this member's.
    async fn look_up(&self) -> Result<Bound, Binding> {
        let (durable, stream) = (names::dlv_durable(&self.lifecycle), StreamKind::Dlv.name(&self.space));
        let found = self.link.js.get_consumer_from_stream::<pull::Config, _, _>(&durable, &stream).await;
        let consumer = found.map_err(|fault| Binding::Unbound { reason: fault.to_string() })?;
        let config = &consumer.cached_info().config;
        let own = subject::dlv(&self.space, &self.lifecycle);
        if config.filter_subject != own {
            let reason = format!("{durable} is filtered on {:?} instead of {own}", config.filter_subject);
            return Err(Binding::Refused { reason });
        }
        if config.ack_policy != AckPolicy::Explicit {
            let reason = format!("{durable} does not use explicit acknowledgement, copies could be lost");
            return Err(Binding::Refused { reason });
        }
        let limit = usize::try_from(config.max_batch).ok().filter(|limit| *limit > 0);
        let batch = limit.map_or(self.batch, |limit| self.batch.min(limit));
        let expires = if config.max_expires.is_zero() { EXPIRES } else { EXPIRES.min(config.max_expires) };
        Ok(Bound { batch, expires })
    }

    async fn pull(&self, inbox: &str, messages: &mut Subscriber, bound: &Bound) -> End {
        let mut puller = Puller::new(self, inbox, bound);
        let mut epoch = self.link.epoch.clone();
        epoch.mark_unchanged();
        let mut tick = interval(HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if !puller.ask_if_wanted().await {
                return End::Stopped;
            }
            tokio::select! {
                biased;
                // A new connection: the broker knows nothing of our requests.
                changed = epoch.changed() => match changed {
                    Ok(()) => puller.budget.forget(),
                    Err(_) => return End::Stopped,
                },
                message = messages.next() => match message {
                    None => return End::Stopped,
                    Some(message) => {
                        if let Some(end) = puller.on_message(message).await {
                            return end;
                        }
                    }
                },
                _ = tick.tick() => if puller.is_silent() {
                    return End::Rebind("the broker has been silent");
                },
            }
        }
    }

    /// Checks an entry and passes it on; terminates what no member can read. `false` when nobody takes it any more.
    async fn hand_on(&self, message: BrokerMessage) -> bool {
        let Some(reply) = message.reply.clone() else { return true };
        let handle = AckHandle::new(Arc::clone(&self.link), reply.clone());
        let Some(incoming) = self.read(&message, &reply, handle.clone()) else {
            Counters::add(&self.link.counters.durable_terminated);
            // If the connection is gone the entry comes again and is terminated then.
            let _ = handle.terminate().await;
            return true;
        };
        if incoming.sender == *self.lifecycle.principal() {
            // Nobody gets their own posts back, whoever put this one there.
            let _ = handle.ack_now().await;
            return true;
        }
        Counters::add(&self.link.counters.durable_received);
        self.queue.send(incoming).await.is_ok()
    }

    fn read(&self, message: &BrokerMessage, reply: &str, handle: AckHandle) -> Option<Incoming> {
        let header = message.headers.as_ref().and_then(|headers| headers.get(FRAME_HEADER));
        let frame = DeliveryFrame::parse(header.map(|value| value.as_str()), &message.payload)
            .inspect_err(|fault| warn!(member = %self.lifecycle, %fault, "terminating an entry that is no delivery"))
            .ok()?;
        let sender = frame.message.from_id().parse::<Principal>().ok().filter(Principal::is_trusted);
        if sender.is_none() {
            warn!(member = %self.lifecycle, "terminating an entry whose author is not a trusted principal");
        }
        let (seq, deliveries) = position(reply);
        Some(Incoming {
            channel: frame.channel,
            sender: sender?,
            message: frame.message,
            via: Via::Durable { seq, deliveries },
            ack: Some(handle),
        })
    }
}

/// One bound consumer being pulled from.
struct Puller<'a> {
    task: &'a DurableTask,
    inbox: &'a str,
    subject: String,
    bound: &'a Bound,
    budget: PullBudget,
    backoff: Backoff,
    heard: Instant,
    silences: u32,
}

impl<'a> Puller<'a> {
    fn new(task: &'a DurableTask, inbox: &'a str, bound: &'a Bound) -> Self {
        let (durable, stream) = (names::dlv_durable(&task.lifecycle), StreamKind::Dlv.name(&task.space));
        Self {
            task,
            inbox,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
            bound,
            budget: PullBudget::new(bound.batch),
            backoff: Backoff::new(RETRY_CAP),
            heard: Instant::now(),
            silences: 0,
        }
    }

    /// `false` when the connection has ended.
    async fn ask_if_wanted(&mut self) -> bool {
        let Some(amount) = self.budget.wanted() else { return true };
        let request = PullRequest {
            batch: amount,
            expires: nanos(self.bound.expires),
            idle_heartbeat: nanos(HEARTBEAT.min(self.bound.expires / 2)),
        };
        let Ok(payload) = serde_json::to_vec(&request) else { return false };
        let sent =
            self.task.link.client.publish_with_reply(self.subject.clone(), self.inbox.to_owned(), Bytes::from(payload));
        if sent.await.is_err() {
            return false;
        }
        Counters::add(&self.task.link.counters.pulls);
        self.budget.asked(amount);
        self.heard = Instant::now();
        true
    }

    /// What a message means for the loop: `Some` ends it.
    async fn on_message(&mut self, message: BrokerMessage) -> Option<End> {
        self.heard = Instant::now();
        match message.status {
            None | Some(StatusCode::OK) => {
                self.silences = 0;
                self.backoff.reset();
                self.budget.received();
                (!self.task.hand_on(message).await).then_some(End::Stopped)
            }
            Some(StatusCode::IDLE_HEARTBEAT) => {
                self.silences = 0;
                self.backoff.reset();
                None
            }
            Some(StatusCode::NO_RESPONDERS) => Some(End::Rebind("nobody serves its pull subject")),
            Some(status) => self.on_ended(status, &message).await,
        }
    }

    async fn on_ended(&mut self, status: StatusCode, message: &BrokerMessage) -> Option<End> {
        let description = message.description.as_deref().unwrap_or_default();
        if description.eq_ignore_ascii_case("consumer deleted") || status == StatusCode::NOT_FOUND {
            return Some(End::Rebind("it is gone"));
        }
        let unserved = message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages"));
        self.budget.ended(unserved.and_then(|value| value.as_str().parse().ok()));
        if status != StatusCode::TIMEOUT {
            debug!(member = %self.task.lifecycle, %status, description, "pull request ended early");
            tokio::time::sleep(self.backoff.next_delay()).await;
        }
        None
    }

    /// Called at every heartbeat: replaces a request the broker has stopped showing signs of. `true` when that did not
    /// help several times in a row.
    fn is_silent(&mut self) -> bool {
        if self.heard.elapsed() < SILENCE {
            return false;
        }
        if !self.task.link.is_connected() {
            // The client is dialling; its next connection starts afresh anyway.
            self.heard = Instant::now();
            return false;
        }
        self.silences += 1;
        debug!(member = %self.task.lifecycle, silences = self.silences, "pull request shows no sign of life, replacing it");
        self.heard = Instant::now();
        self.budget.forget();
        self.silences >= SILENCES_BEFORE_REBIND
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Stream sequence and delivery count from an acknowledgement subject: `$JS.ACK.<stream>.<consumer>.<delivered>.
/// <stream seq>.<consumer seq>.<time>.<pending>`, or the longer form with domain and account hash before the stream.
/// `(0, 1)` for a subject of neither shape, which no stored entry has.
fn position(reply: &str) -> (u64, u64) {
    let tokens = reply.split('.').count();
    let skip = if tokens >= 11 { 6 } else { 4 };
    let mut numbers = reply.split('.').skip(skip).map(|token| token.parse().ok());
    let deliveries = numbers.next().flatten().unwrap_or(1);
    let seq = numbers.next().flatten().unwrap_or(0);
    (seq, deliveries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_both_shapes() {
        assert_eq!(position("$JS.ACK.DLV_s.dlv_a.3.100.7.1790230470084404000.42"), (100, 3));
        assert_eq!(position("$JS.ACK._.hash.DLV_s.dlv_a.2.50.9.1790230470084404000.0"), (50, 2));
        assert_eq!(position("$JS.ACK._.hash.DLV_s.dlv_a.2.50.9.1790230470084404000.0.token"), (50, 2));
        assert_eq!(position("inbox.x"), (0, 1));
    }

    #[test]
    fn pull_request_is_what_the_broker_reads() {
        let request = PullRequest { batch: 5, expires: nanos(EXPIRES), idle_heartbeat: nanos(HEARTBEAT) };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"batch":5,"expires":30000000000,"idle_heartbeat":3000000000}"#);
    }
}
