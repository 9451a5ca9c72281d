//! The connections of a broker as it tells them itself, those that are gone among them.

use std::net::SocketAddr;

use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::http;

/// One connection.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Connection {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) account: String,
    start: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    connections: Vec<Connection>,
    total: usize,
}

impl Connection {
    /// When it was accepted.
    pub(crate) fn start(&self) -> OffsetDateTime {
        OffsetDateTime::parse(&self.start, &Rfc3339).unwrap()
    }

    /// True where it is a lane's, whatever it was opened for.
    pub(crate) fn is_of(&self, space: &str) -> bool {
        self.name.strip_prefix("lanekeeper ").is_some_and(|rest| rest == space || rest == format!("preflight {space}"))
    }
}

/// All connections since the start of the broker whose monitoring port this is.
pub(crate) async fn all(monitor: SocketAddr) -> Vec<Connection> {
    read(monitor, "/connz?auth=1&state=all&limit=10000").await
}

/// The connections that are open.
pub(crate) async fn open(monitor: SocketAddr) -> Vec<Connection> {
    read(monitor, "/connz?auth=1&limit=10000").await
}

async fn read(monitor: SocketAddr, path: &str) -> Vec<Connection> {
    let (status, body) = http::ask(monitor, "GET", path).await.unwrap();
    assert_eq!(status, 200, "{body}");
    let answer: Answer = serde_json::from_str(&body).unwrap();
    assert_eq!(answer.connections.len(), answer.total, "all of them fit into one answer");
    answer.connections
}
