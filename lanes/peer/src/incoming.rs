//! Owns what a member receives: one checked copy of a post, and the handle that settles a durable one. It must not
//! decide whether a copy is surfaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::AckKind;
use bytes::Bytes;
use lanekeeper_wire::{Channel, Message, Principal};

use crate::link::Link;

/// One copy of a post.
#[derive(Debug)]
pub struct Incoming {
    /// The channel: of the subject (live) or authenticated by the daemon (durable).
    pub channel: Channel,
    /// The author: the subject's sender (live) or the one the daemon checked against it (durable). Always trusted.
    pub sender: Principal,
    /// The post.
    pub message: Message,
    /// How it came.
    pub via: Via,
    /// Settles a durable copy; `None` for a live one, which needs no settling.
    pub ack: Option<AckHandle>,
}

impl Incoming {
    /// Acknowledges a durable copy and waits for the broker's confirmation; nothing to do for a live one.
    ///
    /// # Errors
    /// As [`AckHandle::ack`].
    pub async fn ack(&self) -> Result<(), AckError> {
        match &self.ack {
            Some(handle) => handle.ack().await,
            None => Ok(()),
        }
    }

    /// Acknowledges a durable copy without waiting; nothing to do for a live one.
    ///
    /// # Errors
    /// As [`AckHandle::ack_now`].
    pub async fn ack_now(&self) -> Result<(), AckError> {
        match &self.ack {
            Some(handle) => handle.ack_now().await,
            None => Ok(()),
        }
    }
}

/// How a copy came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// Over the live subscription.
    Live,
    /// From the member's own hand-over consumer.
    Durable {
        /// Its sequence in the hand-over stream.
        seq: u64,
        /// How often it was delivered, this time included.
        deliveries: u64,
    },
}

impl Via {
    /// Whether the copy came from the hand-over consumer.
    pub fn is_durable(self) -> bool {
        matches!(self, Self::Durable { .. })
    }
}

/// Why a durable copy could not be settled. It comes again after the consumer's ack wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// The connection has ended.
    #[error("acknowledgement was not sent: the connection has ended, the copy will come again")]
    Ended,
    /// The broker did not confirm in time: it may have taken it or not.
    #[error("acknowledgement was not confirmed within {waited_ms} ms: the copy may come again")]
    Unconfirmed {
        /// How long was waited, milliseconds.
        waited_ms: u64,
    },
}

/// Settles one durable copy.
#[derive(Debug, Clone)]
pub struct AckHandle {
    link: Arc<Link>,
    subject: Subject,
    settled: Option<Arc<AtomicBool>>,
}

impl AckHandle {
    pub(crate) fn new(link: Arc<Link>, subject: Subject) -> Self {
        Self { link, subject, settled: None }
    }

    /// Shares `settled`, so that a redelivery of the same entry can be told from one that was never settled.
    pub(crate) fn track(&mut self, settled: Arc<AtomicBool>) {
        self.settled = Some(settled);
    }

    /// Acknowledges and waits until the broker has confirmed it.
    ///
    /// # Errors
    /// [`AckError::Unconfirmed`] when no confirmation came in time, [`AckError::Ended`] without a connection.
    pub async fn ack(&self) -> Result<(), AckError> {
        let limit = self.link.ack_timeout;
        let request = async_nats::Request::new().payload(body(AckKind::Ack)).timeout(Some(limit));
        tokio::select! {
            biased;
            answer = self.link.client.send_request(self.subject.clone(), request) => match answer {
                Ok(_) => {
                    self.mark_settled();
                    Ok(())
                }
                Err(_) if self.link.ended.is_cancelled() => Err(AckError::Ended),
                Err(_) => Err(AckError::Unconfirmed {
                    waited_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
                }),
            },
            () = self.link.ended.cancelled() => Err(AckError::Ended),
        }
    }

    /// Acknowledges without waiting for a confirmation. Lost with a broken connection, and then the copy comes again.
    ///
    /// # Errors
    /// [`AckError::Ended`] without a connection.
    pub async fn ack_now(&self) -> Result<(), AckError> {
        self.send(body(AckKind::Ack)).await?;
        self.mark_settled();
        Ok(())
    }

    /// Gives the copy back: it comes again after `delay`, or at once.
    ///
    /// # Errors
    /// [`AckError::Ended`] without a connection.
    pub async fn give_back(&self, delay: Option<Duration>) -> Result<(), AckError> {
        self.send(body(AckKind::Nak(delay))).await
    }

    /// Asks for another ack wait, for work that takes longer.
    ///
    /// # Errors
    /// [`AckError::Ended`] without a connection.
    pub async fn still_working(&self) -> Result<(), AckError> {
        self.send(body(AckKind::Progress)).await
    }

    /// Ends the entry for good: it never comes again.
    pub(crate) async fn terminate(&self) -> Result<(), AckError> {
        self.send(body(AckKind::Term)).await
    }

    async fn send(&self, payload: Bytes) -> Result<(), AckError> {
        self.link.client.publish(self.subject.clone(), payload).await.map_err(|_| AckError::Ended)
    }

    fn mark_settled(&self) {
        if let Some(settled) = &self.settled {
            settled.store(true, Ordering::Release);
        }
    }
}

fn body(kind: AckKind) -> Bytes {
    kind.into()
}
