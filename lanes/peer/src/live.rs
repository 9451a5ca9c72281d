//! Owns one live subscription: checks every message against its subject and passes it on. It must not coalesce, and it
//! must never trust the payload over the subject.

use std::sync::Arc;

use async_nats::{Message as BrokerMessage, Subscriber};
use futures::StreamExt;
use lanekeeper_wire::{ChannelPattern, Principal, Space, message::check_post};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::counters::Counters;
use crate::incoming::{Incoming, Via};

/// The task of one live subscription.
pub(crate) struct LiveTask {
    pub(crate) space: Space,
    pub(crate) own: Principal,
    pub(crate) pattern: ChannelPattern,
    pub(crate) messages: Subscriber,
    pub(crate) queue: mpsc::Sender<Incoming>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: CancellationToken,
}

impl LiveTask {
    /// Runs until the channel is left, the member is closed, or its connection has ended. The subscription is closed
    /// when this returns.
    pub(crate) async fn run(mut self) {
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                message = self.messages.next() => message,
            };
            let Some(message) = message else { break };
            let Some(incoming) = self.read(&message) else { continue };
            let sent = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                sent = self.queue.send(incoming) => sent,
            };
            if sent.is_err() {
                break;
            }
        }
        // An error means that the connection, and the subscription with it, has ended already.
        let _ = self.messages.unsubscribe().await;
    }

    fn read(&self, message: &BrokerMessage) -> Option<Incoming> {
        match check_post(&self.space, &message.subject, &message.payload) {
            Ok(post) if post.sender == self.own => None,
            Ok(post) => {
                Counters::add(&self.counters.live_received);
                let (channel, sender) = (post.channel, post.sender);
                Some(Incoming { channel, sender, message: post.message, via: Via::Live, ack: None })
            }
            Err(fault) => {
                Counters::add(&self.counters.live_refused);
                debug!(pattern = %self.pattern, code = fault.code(), "dropping a live message");
                None
            }
        }
    }
}
