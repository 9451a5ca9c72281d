//! Taking messages from a durable pull consumer, with nothing left behind.
//!
//! Owns one reply subject, the pull requests on it and their bookkeeping. The client library's own pull stream drops what
//! it prefetched, which stays pending for a whole ack wait; here everything taken is handed out or handed back.
//! It must not acknowledge: whoever takes a delivery settles it.

use std::time::Duration;

use async_nats::{StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use lanekeeper_wire::Lifecycle;
use tokio::time::{Instant, timeout};

use crate::{
    fault::FaultKind,
    link::{Link, deadline, unanswered},
};

/// How long one pull request stays open at the broker.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// How many bytes one pull request asks for at most, beside one message of the largest size.
const PULL_BYTES: usize = 8 * 1024 * 1024;
/// How often the broker shows life on an open, empty pull request.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many silent periods in a row end the lane's link.
const SILENT_PERIODS: u32 = 3;
/// How long nothing may come on an open pull request until a stop takes it for empty.
const CLOSE_QUIET: Duration = Duration::from_millis(200);
/// How long a stop waits for what the broker had already sent.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// One message taken from a durable, not yet settled.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// Its subject.
    pub subject: Subject,
    /// Its payload.
    pub payload: Bytes,
    /// The subject that settles it; `None` where a dead run took it and the broker will deliver it again.
    pub ack: Option<Subject>,
    /// Its sequence in the stream.
    pub seq: u64,
    /// How often it was delivered, this time included.
    pub delivered: u64,
    /// When it was taken.
    pub taken_at: Instant,
    /// What it counts against the bound of what is in hand.
    pub units: u32,
    /// Members whose copy was confirmed before the connection ended.
    pub stored: Vec<Lifecycle>,
}

/// A bound durable.
pub(crate) struct Intake {
    link: Link,
    consumer: String,
    api: String,
    inbox: String,
    subscriber: Subscriber,
    batch: usize,
    outstanding: usize,
    heard_at: Instant,
    silent: u32,
}

impl Intake {
    /// Subscribes for `stream`/`durable`; `batch` is the most that one pull request asks for.
    ///
    /// # Errors
    /// The connection's end.
    pub(crate) async fn bind(link: &Link, stream: &str, durable: &str, batch: usize) -> Result<Self, FaultKind> {
        let inbox = link.client().new_inbox();
        let subscriber = link.client().subscribe(inbox.clone()).await;
        let subscriber = subscriber.map_err(|error| FaultKind::Refused {
            what: format!("subscription to {inbox}"),
            reason: error.to_string(),
        })?;
        Ok(Self {
            link: link.clone(),
            consumer: format!("{stream}/{durable}"),
            api: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
            inbox,
            subscriber,
            batch,
            outstanding: 0,
            heard_at: Instant::now(),
            silent: 0,
        })
    }

    /// The next deliveries, at least one and at most `room`; waits for the first. Cancel safe: nothing taken is lost,
    /// because a delivery leaves the subscription only into the returned batch.
    ///
    /// # Errors
    /// The consumer is gone, refused or silent.
    pub(crate) async fn next(&mut self, room: usize) -> Result<Vec<Delivery>, FaultKind> {
        loop {
            self.pull(room).await?;
            let silence = HEARTBEAT * 2 + HEARTBEAT / 2;
            let message = match timeout(silence, self.subscriber.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(FaultKind::Disconnected),
                Err(_) => {
                    self.note_silence()?;
                    continue;
                }
            };
            let mut batch = Vec::new();
            self.sort(message, &mut batch)?;
            while batch.len() < room {
                match self.subscriber.next().now_or_never() {
                    Some(Some(message)) => self.sort(message, &mut batch)?,
                    Some(None) | None => break,
                }
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Keeps about one batch of requests open at the broker, never more than `room`.
    async fn pull(&mut self, room: usize) -> Result<(), FaultKind> {
        let wanted = room.min(self.batch);
        if self.outstanding > wanted / 2 || self.outstanding >= wanted {
            return Ok(());
        }
        let batch = wanted - self.outstanding;
        let body = format!(
            r#"{{"batch":{batch},"max_bytes":{},"expires":{},"idle_heartbeat":{}}}"#,
            self.link.client().max_payload() + PULL_BYTES,
            PULL_EXPIRES.as_nanos(),
            HEARTBEAT.as_nanos()
        );
        let sent = self.link.client().publish_with_reply(self.api.clone(), self.inbox.clone(), body.into()).await;
        sent.map_err(|_| FaultKind::Disconnected)?;
        self.outstanding += batch;
        Ok(())
    }

    fn note_silence(&mut self) -> Result<(), FaultKind> {
        self.link.look();
        self.silent += 1;
        self.outstanding = 0;
        if self.silent >= SILENT_PERIODS {
            return Err(FaultKind::Silent {
                what: self.consumer.clone(),
                silent_ms: u64::try_from(self.heard_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
        }
        tracing::debug!(consumer = %self.consumer, silent = self.silent, "no heartbeat, pulling again");
        Ok(())
    }

    /// A delivery goes to `batch`; a status is bookkeeping or a fault.
    fn sort(&mut self, message: async_nats::Message, batch: &mut Vec<Delivery>) -> Result<(), FaultKind> {
        self.heard_at = Instant::now();
        self.silent = 0;
        if let Some(delivery) = delivery(&message) {
            self.outstanding = self.outstanding.saturating_sub(1);
            batch.push(delivery);
            return Ok(());
        }
        let Some(status) = message.status else { return Ok(()) };
        if status == StatusCode::IDLE_HEARTBEAT {
            return Ok(());
        }
        let reason = message.description.as_deref().unwrap_or("no reason given");
        match verdict(status, reason) {
            Status::Over => {
                let pending = message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages"));
                let pending = pending.and_then(|pending| pending.as_str().parse().ok()).unwrap_or(self.outstanding);
                self.outstanding = self.outstanding.saturating_sub(pending);
                Ok(())
            }
            Status::Nobody => Err(unanswered(&self.api, Duration::ZERO)),
            Status::Gone => Err(FaultKind::ConsumerGone { consumer: self.consumer.clone(), reason: reason.to_owned() }),
            Status::Refused => Err(FaultKind::Refused { what: self.api.clone(), reason: reason.to_owned() }),
        }
    }

    /// Stops taking and returns what the broker had already sent, so that it can be handed back.
    pub(crate) async fn close(mut self) -> Vec<Delivery> {
        let mut left = Vec::new();
        if self.link.over().is_cancelled() {
            while let Some(Some(message)) = self.subscriber.next().now_or_never() {
                left.extend(delivery(&message));
            }
            return left;
        }
        // What open pull requests still bring is taken before the subscription ends: the client forgets a subscription
        // before the broker has confirmed its end, and what arrives then would stay pending for a whole ack wait.
        let until = deadline(CLOSE_PATIENCE);
        while self.outstanding > 0 && Instant::now() < until {
            let Ok(Some(message)) = timeout(CLOSE_QUIET, self.subscriber.next()).await else { break };
            if self.sort(message, &mut left).is_err() {
                break;
            }
        }
        if self.subscriber.drain().await.is_err() {
            return left;
        }
        while let Ok(Some(message)) = tokio::time::timeout_at(until, self.subscriber.next()).await {
            left.extend(delivery(&message));
        }
        left
    }
}

/// What a status message of a pull request means.
#[derive(Debug, PartialEq, Eq)]
enum Status {
    /// This request is over; ask again.
    Over,
    /// Nobody answers for the consumer: a broker that is stopping closes JetStream before its connections.
    Nobody,
    /// The consumer is no more.
    Gone,
    /// The broker will not serve requests of this form.
    Refused,
}

fn verdict(status: StatusCode, reason: &str) -> Status {
    let reason = reason.to_ascii_lowercase();
    if status == StatusCode::NO_RESPONDERS {
        Status::Nobody
    } else if reason.contains("consumer deleted") {
        Status::Gone
    } else if status.as_u16() == 400 || reason.contains("exceeded") || reason.contains("push based") {
        Status::Refused
    } else {
        Status::Over
    }
}

fn delivery(message: &async_nats::Message) -> Option<Delivery> {
    let ack = message.reply.clone()?;
    if message.status.is_some() || !ack.starts_with("$JS.ACK.") {
        return None;
    }
    let (seq, delivered) = positions(&ack)?;
    Some(Delivery {
        subject: message.subject.clone(),
        payload: message.payload.clone(),
        ack: Some(ack),
        seq,
        delivered,
        taken_at: Instant::now(),
        units: 0,
        stored: Vec::new(),
    })
}

/// Stream sequence and delivery count out of an ack subject, in its short and its long form.
fn positions(ack: &str) -> Option<(u64, u64)> {
    let tokens: Vec<&str> = ack.split('.').collect();
    let base = match tokens.len() {
        9 => 4,
        11.. => 6,
        _ => return None,
    };
    Some((tokens.get(base + 1)?.parse().ok()?, tokens.get(base)?.parse().ok()?))
}

/// How a delivery is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Done.
    Ack,
    /// Again, at once.
    Nak,
    /// Again, after this pause.
    NakAfter(Duration),
    /// Never again.
    Term,
    /// Still working on it: the ack wait starts anew.
    Progress,
}

impl Settle {
    fn body(&self) -> Bytes {
        match self {
            Self::Ack => Bytes::from_static(b"+ACK"),
            Self::Nak => Bytes::from_static(b"-NAK"),
            Self::NakAfter(pause) => format!(r#"-NAK {{"delay":{}}}"#, pause.as_nanos()).into(),
            Self::Term => Bytes::from_static(b"+TERM"),
            Self::Progress => Bytes::from_static(b"+WPI"),
        }
    }
}

/// Sends one settlement. It sits in the client's buffer until the next flush.
///
/// # Errors
/// The connection's end.
pub(crate) async fn settle(link: &Link, delivery: &Delivery, how: &Settle) -> Result<(), FaultKind> {
    let Some(ack) = &delivery.ack else { return Ok(()) };
    link.client().publish(ack.clone(), how.body()).await.map_err(|_| FaultKind::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_from_both_forms_of_the_ack_subject() {
        assert_eq!(positions("$JS.ACK.CHAT_s.fanout.3.17.20.1700000000.5"), Some((17, 3)));
        assert_eq!(positions("$JS.ACK.hub.ACCHASH.CHAT_s.fanout.2.18.20.1700000000.5"), Some((18, 2)));
        assert_eq!(positions("$JS.ACK.hub.ACCHASH.CHAT_s.fanout.2.18.20.1700000000.5.rnd"), Some((18, 2)));
        for bad in ["", "$JS.ACK.x", "$JS.ACK.CHAT_s.fanout.x.17.20.1700000000.5", "$JS.ACK.a.b.1.2.3.4.5.6"] {
            assert_eq!(positions(bad), None, "{bad}");
        }
    }

    #[test]
    fn statuses_are_told_apart() {
        let code = |code: u16| StatusCode::try_from(code).unwrap();
        assert_eq!(verdict(code(404), "No Messages"), Status::Over);
        assert_eq!(verdict(code(408), "Request Timeout"), Status::Over);
        assert_eq!(verdict(code(409), "Server Shutdown"), Status::Over);
        assert_eq!(verdict(code(409), "Leadership Change"), Status::Over);
        assert_eq!(verdict(code(409), "Message Size Exceeds MaxBytes"), Status::Over);
        assert_eq!(verdict(code(409), "Consumer Deleted"), Status::Gone);
        assert_eq!(verdict(code(503), ""), Status::Nobody);
        assert_eq!(verdict(code(409), "Exceeded MaxRequestBatch of 10"), Status::Refused);
        assert_eq!(verdict(code(400), "Bad Request"), Status::Refused);
    }

    #[test]
    fn settlements_have_the_wire_form() {
        assert_eq!(Settle::NakAfter(Duration::from_secs(1)).body(), r#"-NAK {"delay":1000000000}"#);
        assert_eq!(Settle::Ack.body(), "+ACK");
    }
}
