//! Owns the broker connection of one member: dial, identity of the reply inbox, connection events, and its end. It must
//! not know what is sent over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::{AuthError, Client, ClientError, ConnectOptions, Event, ServerError};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use crate::counters::Counters;
use crate::creds::{Creds, CredsFault};
use crate::options::PeerOptions;
use crate::violations::{Violation, Violations};

/// A dial must not outlast the patience of whoever closes the member meanwhile.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Between dials of a member that is being closed: only long enough not to spin.
const CLOSING_DELAY: Duration = Duration::from_millis(5);
/// How often the client asks whether a silent connection is still there.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Commands waiting for the socket; beyond that, callers wait.
const COMMAND_CAPACITY: usize = 1024;
/// Posts waiting for their confirmation on one connection.
const MAX_ACK_INFLIGHT: usize = 4096;

/// Why a member could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The credential is not usable.
    #[error(transparent)]
    Creds(#[from] CredsFault),
    /// The URL list does not parse.
    #[error("broker url is not usable ({detail}): expected nats://host:port, several separated by commas")]
    Url {
        /// What is wrong with it.
        detail: String,
    },
    /// The broker did not take the connection.
    #[error("broker did not take the connection of {lifecycle}: {source}")]
    Broker {
        /// Who tried.
        lifecycle: String,
        /// What the client said.
        source: async_nats::ConnectError,
    },
}

/// One member's connection and what its tasks share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) js: async_nats::jetstream::Context,
    pub(crate) violations: Arc<Violations>,
    pub(crate) counters: Arc<Counters>,
    /// Cancelled when the client has ended for good: closed, or out of reconnects.
    pub(crate) ended: CancellationToken,
    /// Counts established connections; changes on every reconnect.
    pub(crate) epoch: watch::Receiver<u64>,
    pub(crate) ack_timeout: Duration,
    closing: Arc<AtomicBool>,
}

/// What the event callback owns. The client drops the callback only after its connection task has ended, so the drop of
/// `ended` is the one reliable sign of the end: no event is sent when reconnects run out.
struct Watcher {
    who: String,
    epoch: watch::Sender<u64>,
    violations: Arc<Violations>,
    counters: Arc<Counters>,
    _ended: DropGuard,
}

impl Link {
    /// Dials once; later drops are repaired by the client within the bounds of `options`.
    pub(crate) async fn connect(options: &PeerOptions) -> Result<Self, ConnectError> {
        let material = options.creds.load().await?;
        // Refuse here with the remedy: the broker would only say that it does not want us.
        material.sign(&[])?;
        let key = material.public_key();
        let addrs = server_addrs(&options.url)?;
        let (violations, counters) = (Arc::new(Violations::new()), Arc::new(Counters::default()));
        let (ended, closing) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (epoch_tx, epoch) = watch::channel(0);
        let watcher = Arc::new(Watcher {
            who: options.lifecycle.key(),
            epoch: epoch_tx,
            violations: Arc::clone(&violations),
            counters: Arc::clone(&counters),
            _ended: ended.clone().drop_guard(),
        });
        let connect = connect_options(options, &key, &closing).event_callback(move |event| {
            watcher.on_event(&event);
            std::future::ready(())
        });
        let client = Box::pin(connect.connect(addrs))
            .await
            .map_err(|source| ConnectError::Broker { lifecycle: options.lifecycle.key(), source })?;
        let js = ContextBuilder::new()
            .timeout(options.ack_timeout)
            .ack_timeout(options.ack_timeout)
            .max_ack_inflight(MAX_ACK_INFLIGHT)
            .build(client.clone());
        Ok(Self { client, js, violations, counters, ended, epoch, ack_timeout: options.ack_timeout, closing })
    }

    /// Whether the broker is reachable at this moment, by the client's own state.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Ends the connection and waits, within `limit`, until its task is gone. `false` if it was still there.
    ///
    /// Also ends it while the broker is away: further dials no longer authenticate and no longer wait.
    pub(crate) async fn end(&self, limit: Duration) -> bool {
        self.closing.store(true, Ordering::Release);
        let ending = async {
            if self.is_connected() {
                // Acknowledgements already handed to the client must reach the socket before the drain cuts it.
                let _ = tokio::time::timeout(limit / 4, self.client.flush()).await;
            }
            // An error means the connection task is gone already.
            let _ = self.client.drain().await;
            self.ended.cancelled().await;
        };
        tokio::time::timeout(limit, ending).await.is_ok()
    }
}

fn server_addrs(url: &str) -> Result<Vec<async_nats::ServerAddr>, ConnectError> {
    let addrs: Result<Vec<_>, _> =
        url.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect();
    match addrs {
        Ok(addrs) if addrs.is_empty() => Err(ConnectError::Url { detail: "no url given".to_owned() }),
        Ok(addrs) => Ok(addrs),
        Err(fault) => Err(ConnectError::Url { detail: fault.to_string() }),
    }
}

fn connect_options(options: &PeerOptions, key: &str, closing: &Arc<AtomicBool>) -> ConnectOptions {
    let (creds, own_key, is_closing) = (options.creds.clone(), Arc::<str>::from(key), Arc::clone(closing));
    let connect = ConnectOptions::with_auth_callback(move |nonce| {
        let (creds, own_key, closing) = (creds.clone(), Arc::clone(&own_key), Arc::clone(&is_closing));
        async move { authenticate(&creds, &own_key, &closing, &nonce).await.map_err(AuthError::new) }
    });
    let (closing, delay) = (Arc::clone(closing), options.reconnect_delay);
    let first = AtomicBool::new(true);
    let connect = connect
        .name(options.lifecycle.key())
        .custom_inbox_prefix(format!("_INBOX_{key}"))
        .connection_timeout(DIAL_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .client_capacity(COMMAND_CAPACITY)
        .subscription_capacity(options.live_capacity.max(options.pull_batch.saturating_mul(2)).max(16))
        .max_reconnects(options.max_reconnects)
        .reconnect_delay_callback(move |_attempt| {
            if closing.load(Ordering::Acquire) {
                return CLOSING_DELAY;
            }
            // The client asks before its very first dial too, and nothing is gained by waiting there.
            if first.swap(false, Ordering::AcqRel) { Duration::ZERO } else { draw(delay) }
        })
        .require_tls(options.require_tls);
    match &options.root_ca {
        Some(path) => connect.add_root_certificates(path.clone()),
        None => connect,
    }
}

async fn authenticate(
    creds: &Creds,
    own_key: &str,
    closing: &AtomicBool,
    nonce: &[u8],
) -> Result<async_nats::Auth, CredsFault> {
    if closing.load(Ordering::Acquire) {
        return Err(CredsFault::Closed);
    }
    let material = creds.load().await?;
    if material.public_key() != own_key {
        return Err(CredsFault::KeyChanged);
    }
    material.sign(nonce)
}

fn draw((shortest, longest): (Duration, Duration)) -> Duration {
    let spread = longest.saturating_sub(shortest);
    shortest + spread.mul_f64(rand::random_range(0.0..1.0))
}

impl Watcher {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                Counters::add(&self.counters.connects);
                self.epoch.send_modify(|epoch| *epoch += 1);
                debug!(member = %self.who, "connected");
            }
            Event::Disconnected => warn!(member = %self.who, "connection to the broker was lost, dialling again"),
            Event::LameDuckMode => info!(member = %self.who, "broker is going away, expecting to be moved"),
            Event::Draining | Event::Closed => debug!(member = %self.who, "connection is ending"),
            Event::SlowConsumer(sid) => {
                Counters::add(&self.counters.slow_consumer_events);
                debug!(member = %self.who, sid, "live subscription is too slow, messages were dropped");
            }
            Event::ServerError(fault) => self.on_server_error(fault),
            Event::ClientError(ClientError::MaxReconnects) => {
                warn!(member = %self.who, "gave up dialling the broker: connect again once it is reachable");
            }
            Event::ClientError(fault @ (ClientError::Other(_) | ClientError::ServerNotInPool)) => {
                debug!(member = %self.who, %fault, "client error");
            }
        }
    }

    fn on_server_error(&self, fault: &ServerError) {
        let violation = match fault {
            ServerError::Other(text) => Violation::parse(text),
            ServerError::AuthorizationViolation | ServerError::SlowConsumer(_) => None,
        };
        match violation {
            Some(violation) => {
                warn!(member = %self.who, action = ?violation.action, subject = %violation.subject, "broker refused");
                self.violations.record(violation);
            }
            None => warn!(member = %self.who, %fault, "broker reported an error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_lists() {
        assert_eq!(server_addrs("nats://127.0.0.1:4222, nats://127.0.0.1:4223").unwrap().len(), 2);
        assert!(matches!(server_addrs(" , "), Err(ConnectError::Url { .. })));
        assert!(matches!(server_addrs("nats://[bad"), Err(ConnectError::Url { .. })));
    }

    #[test]
    fn drawn_delay_stays_inside_its_bounds() {
        let bounds = (Duration::from_millis(100), Duration::from_millis(500));
        for _ in 0..200 {
            let delay = draw(bounds);
            assert!(delay >= bounds.0 && delay <= bounds.1);
        }
        assert_eq!(draw((bounds.1, bounds.0)), bounds.1);
    }
}
