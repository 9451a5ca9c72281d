//! One connection to the broker, from dial to its end.
//!
//! Owns dialling with a credential, the end of the connection as a token, and permission denials mapped to the call that
//! met them. A link never reconnects: when it ends, everything that hangs on it is rebuilt on a new one, so that no
//! half-sent publish of the old connection can land behind a later one. It must not retry; the lane's life does that.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{
    AuthError, Client, ConnectErrorKind, ConnectOptions, Event, ServerError,
    connection::State,
    jetstream::{
        self, Context,
        context::{AccountErrorKind, ContextBuilder},
    },
};
use tokio::{
    sync::broadcast,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    credentials::Credential,
    fault::{FaultKind, REQUEST_TIMEOUT},
};

/// How long one dial may take, handshake included.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the confirmation of a copy may take while the connection lives.
pub(crate) const COPY_PATIENCE: Duration = Duration::from_secs(30);
/// How many denials are kept for calls that have not looked yet.
const DENIALS_KEPT: usize = 256;
/// The oldest nats-server that knows everything the lane needs (message schedules).
const BROKER_FLOOR: (u64, u64) = (2, 12);

/// A subject the broker refused to this connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    verb: &'static str,
    subject: String,
}

/// A live connection and what is needed to notice its end.
#[derive(Clone)]
pub(crate) struct Link {
    client: Client,
    jetstream: Context,
    over: CancellationToken,
    denials: broadcast::Sender<Denial>,
}

impl Link {
    /// Dials once with `credential`.
    ///
    /// # Errors
    /// Expired or refused credential, unreachable or too old broker, JetStream off.
    pub(crate) async fn dial(
        servers: &[async_nats::ServerAddr],
        credential: &Credential,
        name: &str,
    ) -> Result<Self, FaultKind> {
        credential.refuse_expired()?;
        let over = CancellationToken::new();
        let (denials, _) = broadcast::channel(DENIALS_KEPT);
        let connected = Arc::new(AtomicBool::new(false));
        let shown = show(servers);
        let options = options(servers, credential, name, &connected, &over, &denials);
        let dialled = timeout(DIAL_TIMEOUT, options.connect(servers)).await;
        let client = match dialled {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => {
                credential.refuse_expired()?;
                return Err(match error.kind() {
                    ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                        FaultKind::CredentialRefused { servers: shown, path: credential.path().display().to_string() }
                    }
                    ConnectErrorKind::ServerParse
                    | ConnectErrorKind::Dns
                    | ConnectErrorKind::TimedOut
                    | ConnectErrorKind::Tls
                    | ConnectErrorKind::Io
                    | ConnectErrorKind::MaxReconnects => {
                        FaultKind::BrokerUnreachable { servers: shown, reason: error.to_string() }
                    }
                });
            }
            Err(_) => {
                let reason = format!("no handshake within {} ms", DIAL_TIMEOUT.as_millis());
                return Err(FaultKind::BrokerUnreachable { servers: shown, reason });
            }
        };
        connected.store(true, Ordering::SeqCst);
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(REQUEST_TIMEOUT);
        let link = Self { client, jetstream, over, denials };
        link.admit(&shown).await?;
        Ok(link)
    }

    /// Refuses a broker that is too old or has no JetStream for this account.
    async fn admit(&self, servers: &str) -> Result<(), FaultKind> {
        let found = self.client.server_info().version;
        if version(&found).is_none_or(|version| version < BROKER_FLOOR) {
            return Err(FaultKind::BrokerTooOld { servers: servers.to_owned(), found });
        }
        let account = self.ask("$JS.API.INFO", async {
            self.jetstream.query_account().await.map_err(|error| match error.kind() {
                AccountErrorKind::TimedOut => unanswered("$JS.API.INFO", REQUEST_TIMEOUT),
                AccountErrorKind::JetStreamUnavailable => {
                    FaultKind::JetStreamUnavailable { reason: "nobody answers for it".into() }
                }
                AccountErrorKind::JetStream(refusal) => FaultKind::JetStreamUnavailable { reason: refusal.to_string() },
                AccountErrorKind::Other => {
                    FaultKind::Refused { what: "$JS.API.INFO".into(), reason: error.to_string() }
                }
            })
        });
        account.await.map(drop)
    }

    /// The client handle.
    #[must_use]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The JetStream context.
    #[must_use]
    pub(crate) fn jetstream(&self) -> &Context {
        &self.jetstream
    }

    /// A JetStream context for `in_flight` pipelined publishes. Each user has its own: the client bounds what is
    /// unconfirmed for each context, and a lease write must never wait for copies. A broker that is slow to store is waited
    /// for; the connection's own end and the lease notice one that is gone.
    #[must_use]
    pub(crate) fn pipeline(&self, in_flight: usize) -> Context {
        ContextBuilder::new().max_ack_inflight(in_flight).timeout(COPY_PATIENCE).build(self.client.clone())
    }

    /// The broker at the other end: name and address.
    #[must_use]
    pub(crate) fn server(&self) -> String {
        let info = self.client.server_info();
        format!("{} {}:{}", info.server_name, info.host, info.port)
    }

    /// Cancelled when the connection has ended.
    #[must_use]
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Looks at the connection's own state, which is the truth where an event was dropped.
    pub(crate) fn look(&self) {
        match self.client.connection_state() {
            State::Connected => {}
            State::Pending | State::Disconnected => self.over.cancel(),
        }
    }

    /// Runs one call that publishes on `subject`; ends early when the broker denies that subject, the connection ends,
    /// or the request's time is over.
    ///
    /// # Errors
    /// The call's own fault, [`FaultKind::Denied`], [`FaultKind::Disconnected`] or [`FaultKind::Unanswered`].
    pub(crate) async fn ask<T>(
        &self,
        subject: &str,
        call: impl Future<Output = Result<T, FaultKind>>,
    ) -> Result<T, FaultKind> {
        let mut denials = self.denials.subscribe();
        let denied = async {
            loop {
                match denials.recv().await {
                    Ok(denial) if concerns(&denial.subject, subject) => return denial,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            answer = call => answer,
            denial = denied => Err(FaultKind::Denied { verb: denial.verb, subject: denial.subject }),
            () = self.over.cancelled() => Err(FaultKind::Disconnected),
            () = tokio::time::sleep(REQUEST_TIMEOUT) => Err(unanswered(subject, REQUEST_TIMEOUT)),
        }
    }

    /// Waits until a subject that this lane cannot work without is denied. Cancel safe.
    pub(crate) async fn denied(&self, needed: impl Fn(&str) -> bool) -> FaultKind {
        let mut denials = self.denials.subscribe();
        loop {
            match denials.recv().await {
                Ok(denial) if needed(&denial.subject) => {
                    return FaultKind::Denied { verb: denial.verb, subject: denial.subject };
                }
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Has what is buffered written to the socket, at most `within`. No round trip: what the broker has read is known only
    /// from an answer.
    pub(crate) async fn flush(&self, within: Duration) -> bool {
        matches!(timeout(within, self.client.flush()).await, Ok(Ok(())))
    }
}

fn options(
    servers: &[async_nats::ServerAddr],
    credential: &Credential,
    name: &str,
    connected: &Arc<AtomicBool>,
    over: &CancellationToken,
    denials: &broadcast::Sender<Denial>,
) -> ConnectOptions {
    let (credential_for_dial, connected) = (credential.clone(), Arc::clone(connected));
    let (over, denials) = (over.clone(), denials.clone());
    ConnectOptions::with_auth_callback(move |nonce| {
        // A second handshake would be the client's own reconnect: refused here, before the broker sees it.
        let answer = if connected.load(Ordering::SeqCst) {
            Err(AuthError::new("this connection does not reconnect"))
        } else if let Err(expired) = credential_for_dial.refuse_expired() {
            Err(AuthError::new(expired))
        } else {
            credential_for_dial.answer(&nonce).map_err(AuthError::new)
        };
        async move { answer }
    })
    .name(name)
    .custom_inbox_prefix(format!("_INBOX_{}", credential.user()))
    .max_reconnects(servers.len().max(1))
    .ignore_discovered_servers()
    .connection_timeout(DIAL_TIMEOUT)
    .request_timeout(Some(REQUEST_TIMEOUT))
    .event_callback(move |event| {
        note(&event, &over, &denials);
        async {}
    })
}

/// Turns a client event into the end of the link or a denial. Exhaustive on purpose: a new kind of event must be placed.
fn note(event: &Event, over: &CancellationToken, denials: &broadcast::Sender<Denial>) {
    match event {
        Event::Disconnected | Event::Closed | Event::Draining => over.cancel(),
        Event::ServerError(ServerError::Other(text)) => {
            if let Some(denial) = denial(text) {
                tracing::warn!(verb = denial.verb, subject = %denial.subject, "the broker denied a subject");
                let _ = denials.send(denial);
            } else {
                tracing::debug!(reason = %text, "server error");
            }
        }
        Event::Connected
        | Event::LameDuckMode
        | Event::SlowConsumer(_)
        | Event::ServerError(ServerError::AuthorizationViolation | ServerError::SlowConsumer(_))
        | Event::ClientError(_) => tracing::debug!(%event, "connection event"),
    }
}

/// `Permissions Violation for Publish to "x"` as a denial; the wording is the broker's, the case is not relied on.
fn denial(text: &str) -> Option<Denial> {
    let lower = text.to_ascii_lowercase();
    if !lower.starts_with("permissions violation") {
        return None;
    }
    let verb = if lower.contains("subscription") { "subscribe to" } else { "publish to" };
    let mut quoted = text.splitn(3, '"');
    let (_, subject) = (quoted.next()?, quoted.next()?);
    Some(Denial { verb, subject: subject.to_owned() })
}

/// A denied API subject concerns the call that named it or a prefix of it (a consumer create carries its filter); a denied
/// inbox concerns every call, whose answer comes there.
fn concerns(denied: &str, asked: &str) -> bool {
    denied == asked
        || denied.starts_with("_INBOX_")
        || denied.strip_prefix(asked).is_some_and(|rest| rest.starts_with('.'))
}

pub(crate) fn unanswered(what: &str, waited: Duration) -> FaultKind {
    FaultKind::Unanswered { what: what.to_owned(), waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX) }
}

fn show(servers: &[async_nats::ServerAddr]) -> String {
    let list: Vec<String> = servers.iter().map(|server| format!("{}:{}", server.host(), server.port())).collect();
    format!("`{}`", list.join(", "))
}

fn version(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.trim_start_matches('v').split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The instant `after` from now.
pub(crate) fn deadline(after: Duration) -> Instant {
    Instant::now() + after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_read_from_the_brokers_words() {
        let publish = denial("Permissions Violation for Publish to \"cotal.s.chat.a\"").unwrap();
        assert_eq!((publish.verb, publish.subject.as_str()), ("publish to", "cotal.s.chat.a"));
        let subscribe = denial("permissions violation for subscription to \"a.b\" using queue \"q\"").unwrap();
        assert_eq!((subscribe.verb, subscribe.subject.as_str()), ("subscribe to", "a.b"));
        for other in [
            "User Authentication Expired",
            "Authorization Violation",
            "maximum account active connections exceeded",
            "",
        ] {
            assert_eq!(denial(other), None, "{other}");
        }
    }

    #[test]
    fn a_denial_concerns_its_own_call_only() {
        assert!(concerns("$JS.API.CONSUMER.CREATE.S.n.$KV.b.>", "$JS.API.CONSUMER.CREATE.S.n"));
        assert!(concerns("a.b", "a.b"));
        assert!(!concerns("a.bc", "a.b"));
        assert!(!concerns("a", "a.b"));
    }

    #[test]
    fn versions_are_compared_by_number() {
        for (text, wanted) in
            [("2.12.0", Some((2, 12))), ("v2.9.10", Some((2, 9))), ("2.12-RC.1", Some((2, 12))), ("x", None)]
        {
            assert_eq!(version(text), wanted);
        }
        assert!((2, 9) < BROKER_FLOOR && (2, 12) >= BROKER_FLOOR && (3, 0) >= BROKER_FLOOR);
    }
}
