//! The lease of one space: claim, renew, resume after doubt, release.
//!
//! Owns the row `lease.0` of the delivery bucket and the permit that follows from it. Every write is a compare-and-swap
//! on the revision last owned; release is a compare-and-swap delete. It must not decide what else the lane does while quiet.

mod state;

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::{context::PublishErrorKind, stream::LastRawMessageErrorKind},
};
use lanekeeper_wire::{Bucket, LEASE_KEY, LeaseRow, Space};
use rand::RngExt as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) use state::Identity;
use state::{Loss, Seen, Standing, Step, Written, after_read, after_write};

use crate::{
    credentials::unix_now_ms,
    fault::FaultKind,
    link::Link,
    permit::{Grantor, safety_margin},
    watch::Details,
};

const EXPECTED_REVISION: &str = "Nats-Expected-Last-Subject-Sequence";
const KV_OPERATION: &str = "KV-Operation";
const MARKER_REASON: &str = "Nats-Marker-Reason";
/// Pause between two reads of a row in doubt, before jitter.
const DOUBT_PAUSE: Duration = Duration::from_millis(250);
/// Bounds of the pause between two looks of a standby, before jitter.
const STANDBY_PAUSE_MIN: Duration = Duration::from_millis(200);
const STANDBY_PAUSE_MAX: Duration = Duration::from_millis(600);
/// The head start after a release: a little more than the longest pause, so that whoever is preferred has looked.
const RELEASED_HEAD_START: Duration = Duration::from_millis(700);
/// How often the row is looked at between renewals, so that a foreign write is seen within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// How often a claim may race with others before it is given up.
const CLAIM_ATTEMPTS: u32 = 5;

/// The lease as one run of the daemon owns it, over all its connections.
#[derive(Debug)]
pub(crate) struct Lease {
    space: Space,
    me: Identity,
    since_ms: u64,
    ttl: Duration,
    ready: bool,
    standing: Standing,
    renewed_at: Instant,
    grantor: Grantor,
    details: watch::Sender<Details>,
}

impl Lease {
    /// A lease not yet claimed. `ttl` is the bucket's max age.
    #[must_use]
    pub(crate) fn new(
        space: &Space,
        me: Identity,
        ttl: Duration,
        grantor: Grantor,
        details: watch::Sender<Details>,
    ) -> Self {
        Self {
            space: space.clone(),
            me,
            since_ms: unix_now_ms(),
            ttl,
            ready: false,
            standing: Standing::Doubt,
            renewed_at: Instant::now(),
            grantor,
            details,
        }
    }

    /// Claims the lease, or resumes it where the row is still this run's.
    ///
    /// # Errors
    /// Held by another, unreadable, denied, unanswered.
    pub(crate) async fn claim(&mut self, link: &Link) -> Result<(), FaultKind> {
        for _ in 0..CLAIM_ATTEMPTS {
            let seen = self.read(link).await?;
            if seen == Seen::Unreadable {
                return Err(crate::link::unanswered("the lease row", crate::fault::REQUEST_TIMEOUT));
            }
            let (standing, step) = after_read(seen, &self.me);
            self.standing = standing;
            match step {
                Step::Serve => {
                    // Resumed after a new connection: the row's age is not known, so it is renewed before anything acts.
                    if let Standing::Held { revision } = self.standing
                        && self.write(link, revision).await? == Settled::Held
                    {
                        return Ok(());
                    }
                }
                Step::Claim { expected } => {
                    if self.write(link, expected).await? == Settled::Held {
                        return Ok(());
                    }
                }
                Step::Read => {}
                Step::End(loss) => return Err(self.refusal(loss)),
            }
        }
        Err(FaultKind::Refused { what: "the lease claim".into(), reason: "others kept writing the row".into() })
    }

    /// Waits until the row is free, looking at it with jitter, and then leaves whoever is preferred its head start.
    ///
    /// # Errors
    /// The connection's end.
    pub(crate) async fn wait_free(&self, link: &Link, head_start: Duration) -> Result<(), FaultKind> {
        let pause = (self.ttl / 6).clamp(STANDBY_PAUSE_MIN, STANDBY_PAUSE_MAX);
        loop {
            link.look();
            wait(link, jittered(pause)).await?;
            match self.read(link).await? {
                // The claim that follows looks again, and loses to whoever was preferred. A released row was seen by
                // everybody who waits within one pause; after an expiry the preferred host may first have to come back.
                Seen::Gone { released, .. } => {
                    let left = if released { head_start.min(RELEASED_HEAD_START) } else { head_start };
                    return wait(link, left).await;
                }
                Seen::Garbled { reason } => return Err(FaultKind::LeaseUnreadable { key: LEASE_KEY.into(), reason }),
                Seen::Row { .. } | Seen::Unreadable => {}
            }
        }
    }

    /// Leaves a free lease to whoever is preferred for a while, before this run claims for the first time.
    ///
    /// # Errors
    /// The connection's end.
    pub(crate) async fn give_way(&self, link: &Link, head_start: Duration) -> Result<(), FaultKind> {
        if head_start.is_zero() {
            return Ok(());
        }
        match self.read(link).await? {
            Seen::Gone { .. } => wait(link, head_start).await,
            Seen::Row { .. } | Seen::Garbled { .. } | Seen::Unreadable => Ok(()),
        }
    }

    /// Says in the row whether this run serves.
    ///
    /// # Errors
    /// As [`Lease::claim`]; a lost lease is [`FaultKind::LeaseLost`].
    pub(crate) async fn set_ready(&mut self, link: &Link, ready: bool) -> Result<(), FaultKind> {
        self.ready = ready;
        self.renew(link, &CancellationToken::new()).await
    }

    /// Keeps the lease until `stop`, renewing at half its life.
    ///
    /// # Errors
    /// The fault that ends the lane or the link.
    pub(crate) async fn keep(&mut self, link: &Link, stop: &CancellationToken) -> Result<(), FaultKind> {
        loop {
            let renewal = jittered(self.ttl / 2).saturating_sub(self.renewed_at.elapsed());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = link.over().cancelled() => return Err(FaultKind::Disconnected),
                () = tokio::time::sleep(renewal.min(jittered(LOOK_EVERY))) => {}
            }
            link.look();
            if renewal <= LOOK_EVERY || self.ttl <= self.renewed_at.elapsed() * 2 {
                self.renew(link, stop).await?;
            } else if let Seen::Row { row, .. } = self.read(link).await?
                && let (_, Step::End(loss)) = after_read(Seen::Row { row, revision: 0 }, &self.me)
            {
                self.grantor.withdraw();
                return Err(self.loss(loss));
            }
        }
    }

    /// Withdraws the permit: nothing leaves this process until the lease is proven again.
    pub(crate) fn go_quiet(&mut self) {
        self.grantor.withdraw();
    }

    /// Renews, and where that fails finds out whose the row is. A stop ends the asking, never a write half way.
    async fn renew(&mut self, link: &Link, stop: &CancellationToken) -> Result<(), FaultKind> {
        let mut step = match self.standing {
            Standing::Held { revision } => {
                self.write(link, revision).await?;
                self.next_step()
            }
            Standing::Doubt | Standing::Lost(_) => Step::Read,
        };
        loop {
            match step {
                Step::Serve => return Ok(()),
                Step::Read if stop.is_cancelled() => return Ok(()),
                Step::Read => {
                    self.grantor.withdraw();
                    let (standing, next) = after_read(self.read(link).await?, &self.me);
                    self.standing = standing;
                    if next == Step::Read {
                        tokio::time::sleep(jittered(DOUBT_PAUSE)).await;
                    }
                    step = match (next, &self.standing) {
                        (Step::Serve, Standing::Held { revision }) => {
                            let revision = *revision;
                            tracing::info!(revision, "lease is still ours, resuming");
                            self.write(link, revision).await?;
                            self.next_step()
                        }
                        (next, _) => next,
                    };
                }
                Step::Claim { expected } => {
                    tracing::warn!("lease row is gone, claiming it again");
                    self.write(link, expected).await?;
                    step = self.next_step();
                }
                Step::End(loss) => return Err(self.loss(loss)),
            }
        }
    }

    fn next_step(&self) -> Step {
        match &self.standing {
            Standing::Held { .. } => Step::Serve,
            Standing::Doubt => Step::Read,
            Standing::Lost(loss) => Step::End(loss.clone()),
        }
    }

    /// Releases the row by the revision last owned. Returns true when it is gone.
    pub(crate) async fn release(&mut self, link: &Link) -> bool {
        self.grantor.withdraw();
        let Standing::Held { revision } = self.standing else { return false };
        self.standing = Standing::Doubt;
        let mut headers = HeaderMap::new();
        headers.insert(KV_OPERATION, "DEL");
        headers.insert(EXPECTED_REVISION, revision.to_string());
        match self.publish(link, headers, String::new()).await {
            Ok(Written::Stored { .. }) => true,
            Ok(Written::Raced | Written::Unknown) => false,
            Err(fault) => {
                tracing::warn!(%fault, "lease could not be released; it expires by itself");
                false
            }
        }
    }

    /// One compare-and-swap write of our row; grants the permit from the moment it was sent.
    async fn write(&mut self, link: &Link, expected: u64) -> Result<Settled, FaultKind> {
        let sent_at = Instant::now();
        let row = LeaseRow {
            holder: self.me.holder.clone(),
            incarnation: self.me.incarnation.clone(),
            since: self.since_ms,
            ready: self.ready,
        };
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED_REVISION, expected.to_string());
        let written = self.publish(link, headers, row.to_json()).await?;
        self.standing = after_write(written).0;
        if let Standing::Held { revision } = self.standing {
            self.details.send_modify(|details| details.lease_revision = Some(revision));
            self.renewed_at = sent_at;
            self.grantor.grant(sent_at + self.ttl - safety_margin(self.ttl));
            return Ok(Settled::Held);
        }
        Ok(Settled::Open)
    }

    async fn publish(&self, link: &Link, headers: HeaderMap, body: String) -> Result<Written, FaultKind> {
        let subject = Bucket::Delivery.subject(&self.space, LEASE_KEY);
        let call = async {
            let sent = link.jetstream().publish_with_headers(subject.clone(), headers, body.into()).await;
            let acknowledged = match sent {
                Ok(ack) => ack.await,
                Err(error) => Err(error),
            };
            match acknowledged {
                Ok(ack) => Ok(Written::Stored { revision: ack.sequence }),
                Err(error) => match error.kind() {
                    PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => Ok(Written::Raced),
                    // Nobody answers for the bucket: it was verified at the start, so the broker is stopping or starting.
                    PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => {
                        Ok(Written::Unknown)
                    }
                    PublishErrorKind::MaxAckPending
                    | PublishErrorKind::MaxPayloadExceeded
                    | PublishErrorKind::Other => {
                        Err(FaultKind::Refused { what: "the lease write".into(), reason: error.to_string() })
                    }
                },
            }
        };
        match link.ask(&subject, call).await {
            Err(FaultKind::Unanswered { .. }) => Ok(Written::Unknown),
            other => other,
        }
    }

    async fn read(&self, link: &Link) -> Result<Seen, FaultKind> {
        let stream = Bucket::Delivery.stream(&self.space);
        let api = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let subject = Bucket::Delivery.subject(&self.space, LEASE_KEY);
        let call = async {
            let handle = link.jetstream().get_stream_no_info(&stream).await;
            let handle = handle.map_err(|error| FaultKind::Refused { what: api.clone(), reason: error.to_string() })?;
            match handle.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(seen(&message.headers, &message.payload, message.sequence)),
                Err(error) => match error.kind() {
                    LastRawMessageErrorKind::NoMessageFound => Ok(Seen::Gone { revision: 0, released: false }),
                    LastRawMessageErrorKind::InvalidSubject
                    | LastRawMessageErrorKind::JetStream(_)
                    | LastRawMessageErrorKind::Other => Ok(Seen::Unreadable),
                },
            }
        };
        match link.ask(&api, call).await {
            Err(FaultKind::Unanswered { .. }) => Ok(Seen::Unreadable),
            other => other,
        }
    }

    fn refusal(&self, loss: Loss) -> FaultKind {
        match loss {
            Loss::Taken(row) => FaultKind::LeaseHeld {
                holder: row.holder,
                incarnation: row.incarnation,
                since_ms: row.since,
                ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            },
            Loss::Garbled(reason) => FaultKind::LeaseUnreadable { key: LEASE_KEY.into(), reason },
        }
    }

    fn loss(&self, loss: Loss) -> FaultKind {
        match loss {
            Loss::Taken(row) => FaultKind::LeaseLost { holder: row.holder, incarnation: row.incarnation },
            Loss::Garbled(reason) => FaultKind::LeaseUnreadable { key: LEASE_KEY.into(), reason },
        }
    }
}

/// How one write left the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Held,
    Open,
}

/// Waits, unless the connection ends.
async fn wait(link: &Link, pause: Duration) -> Result<(), FaultKind> {
    tokio::select! {
        biased;
        () = link.over().cancelled() => Err(FaultKind::Disconnected),
        () = tokio::time::sleep(pause) => Ok(()),
    }
}

/// What the row's last message says. An expiry or delete marker is never parsed as a row.
fn seen(headers: &HeaderMap, payload: &[u8], revision: u64) -> Seen {
    if headers.get(MARKER_REASON).is_some() {
        return Seen::Gone { revision, released: false };
    }
    if headers.get(KV_OPERATION).is_some_and(|op| op.as_str() != "PUT") {
        return Seen::Gone { revision, released: true };
    }
    match LeaseRow::parse(payload) {
        Ok(row) => Seen::Row { row, revision },
        Err(fault) => Seen::Garbled { reason: fault.to_string() },
    }
}

/// `pause`, shortened by up to a tenth at random, so that many lanes do not act in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.9..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_not_rows() {
        let mut expired = HeaderMap::new();
        expired.insert(MARKER_REASON, "MaxAge");
        assert_eq!(seen(&expired, b"", 3), Seen::Gone { revision: 3, released: false });
        let mut deleted = HeaderMap::new();
        deleted.insert(KV_OPERATION, "DEL");
        assert_eq!(seen(&deleted, b"", 4), Seen::Gone { revision: 4, released: true });
        assert!(matches!(seen(&HeaderMap::new(), b"null", 5), Seen::Garbled { .. }));
        let row = br#"{"holder":"local.delivery","incarnation":"a","since":1,"ready":true}"#;
        assert!(matches!(seen(&HeaderMap::new(), row, 6), Seen::Row { revision: 6, .. }));
    }
}
