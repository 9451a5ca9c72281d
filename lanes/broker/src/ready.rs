//! Whether a broker answers: a real connection and the line it greets with.
//!
//! Owns no process and never waits longer than it is told to.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One connection attempt. A broker that is up greets at once.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// More than any greeting; a stranger on the port may send without end.
const LONGEST_GREETING: u64 = 64 * 1024;

/// The part of a broker's greeting that is of use here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerInfo {
    /// The id the broker gave itself; another one after every start.
    pub server_id: String,
    /// Its name; the id unless it is configured.
    pub server_name: String,
    /// Its version as text.
    pub version: String,
    /// Whether JetStream is on.
    #[serde(default)]
    pub jetstream: bool,
    /// The largest payload it takes, in bytes.
    pub max_payload: u64,
}

/// Why a broker is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// Nobody listens, or the connection broke.
    #[error("no connection: {0}")]
    Connection(#[from] io::Error),
    /// Connected, but there was no greeting.
    #[error("no greeting within {limit_ms} ms")]
    Silent {
        /// The time it was given, in milliseconds.
        limit_ms: u128,
    },
    /// Something else listens there.
    #[error("the greeting is not that of a nats-server")]
    NotNats,
    /// It is up, but without JetStream.
    #[error("the broker says that JetStream is off")]
    NoJetStream,
}

/// Connects once and reads the greeting.
pub(crate) async fn probe(addr: SocketAddr, jetstream: bool) -> Result<ServerInfo, NotReady> {
    let line = timeout(PROBE_DEADLINE, greeting(addr))
        .await
        .map_err(|_| NotReady::Silent { limit_ms: PROBE_DEADLINE.as_millis() })??;
    let json = line.strip_prefix("INFO ").ok_or(NotReady::NotNats)?;
    let info: ServerInfo = serde_json::from_str(json.trim()).map_err(|_| NotReady::NotNats)?;
    if jetstream && !info.jetstream { Err(NotReady::NoJetStream) } else { Ok(info) }
}

async fn greeting(addr: SocketAddr) -> io::Result<String> {
    let stream = TcpStream::connect(addr).await?;
    let mut line = String::new();
    BufReader::new(stream).take(LONGEST_GREETING).read_line(&mut line).await?;
    Ok(line)
}
