//! Asks the admin server of a host.
//!
//! Owns one request and its bounds: a connection each, a deadline, a size. It must not interpret what it gets.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

use crate::admin::{Refusal, Token};

/// How long a look may take.
pub const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// How long an order may take; the server gives up a little earlier and says so.
pub const ORDER_PATIENCE: Duration = Duration::from_secs(40);
/// Far above the state of thousands of lanes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Where to ask, and as whom.
#[derive(Debug, Clone)]
pub struct AdminClient {
    address: String,
    token: Option<Token>,
}

/// What the server answered.
#[derive(Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
    address: String,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl AdminClient {
    /// A client of the server at `address`, which is `host:port`.
    #[must_use]
    pub fn new(address: String, token: Option<Token>) -> Self {
        Self { address, token }
    }

    /// Looks at `path`.
    ///
    /// # Errors
    /// Nobody answers there, or not in time.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.ask(Method::GET, path, LOOK_PATIENCE).await
    }

    /// Orders `path`.
    ///
    /// # Errors
    /// Nobody answers there, or not in time.
    pub async fn post(&self, path: &str) -> Result<Answer> {
        self.ask(Method::POST, path, ORDER_PATIENCE).await
    }

    async fn ask(&self, method: Method, path: &str, patience: Duration) -> Result<Answer> {
        let address = &self.address;
        let deadline = Instant::now() + patience;
        let answer = timeout_at(deadline, self.exchange(method, path)).await;
        answer
            .map_err(|_| anyhow!("no answer from {address} within {} s; look at the host's log", patience.as_secs()))?
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Answer> {
        let address = &self.address;
        let stream = TcpStream::connect(address).await.with_context(|| {
            format!("no lanekeeper answers at {address}; start `lanekeeper run` there, or say where with --admin")
        })?;
        let talk = || format!("{address} does not talk like a lanekeeper; check --admin");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.with_context(talk)?;
        let driven = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, address);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let request = request.body(Empty::<Bytes>::new()).context("the request cannot be written")?;
        let answered = sender.send_request(request).await.with_context(talk);
        let answer = match answered {
            Ok(response) => {
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
                body.map(|body| Answer { status, body: body.to_bytes(), address: address.clone() })
                    .map_err(|error| anyhow!("the answer of {address} broke off: {error}"))
            }
            Err(error) => Err(error),
        };
        // One exchange a connection: nothing is left to drive.
        driven.abort();
        answer
    }
}

impl Answer {
    /// The body of a success.
    ///
    /// # Errors
    /// The error the server gave, or that it is no lanekeeper.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        if !self.status.is_success() {
            bail!("{}", self.error().error);
        }
        serde_json::from_slice(&self.body).with_context(|| {
            format!("the answer of {} is not of a lanekeeper of this version; check --admin", self.address)
        })
    }

    /// The body of a failure.
    #[must_use]
    pub fn error(&self) -> Refusal {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| {
            Refusal::new(format!("{} answered {} without a reason; check --admin", self.address, self.status))
        })
    }
}
