//! Pipelined publishing into a stream, as cheaply as the client allows: one reply subject for all confirmations.
//!
//! Owns the window and the check of every confirmation.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::{Client, HeaderMap, Subject, Subscriber};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use lanekeeper_provision::Credentials;
use serde::Deserialize;
use tokio::time::timeout;

/// Unconfirmed messages at a time.
const WINDOW: usize = 4096;
/// How long the broker may take for one confirmation.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(30);

/// One connection that publishes into a stream.
pub(super) struct Publisher {
    client: Client,
    reply: Subject,
    confirmations: Subscriber,
    outstanding: usize,
}

#[derive(Deserialize)]
struct Confirmation {
    error: Option<serde_json::Value>,
    #[serde(default)]
    duplicate: bool,
}

impl Publisher {
    /// Connects.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) async fn connect(url: &str, credentials: &Credentials) -> Result<Self> {
        // Each confirmation must have a place, or the client drops it.
        let options = credentials.connect_options()?.subscription_capacity(2 * WINDOW);
        let client = options.connect(url).await.context("connect to publish")?;
        let reply = Subject::from(client.new_inbox());
        let confirmations = client.subscribe(reply.clone()).await?;
        Ok(Self { client, reply, confirmations, outstanding: 0 })
    }

    /// Publishes one message; waits for room in the window.
    ///
    /// # Errors
    /// The broker did not store an earlier one.
    pub(super) async fn publish(&mut self, subject: Subject, headers: HeaderMap, payload: Bytes) -> Result<()> {
        while self.outstanding >= WINDOW {
            self.confirm_next().await?;
        }
        while let Some(confirmation) = self.confirmations.next().now_or_never() {
            self.take(confirmation)?;
        }
        let reply = self.reply.clone();
        self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await?;
        self.outstanding += 1;
        Ok(())
    }

    /// Waits until everything is confirmed.
    ///
    /// # Errors
    /// The broker did not store one.
    pub(super) async fn finish(mut self) -> Result<()> {
        while self.outstanding > 0 {
            self.confirm_next().await?;
        }
        Ok(())
    }

    async fn confirm_next(&mut self) -> Result<()> {
        let Ok(confirmation) = timeout(CONFIRM_PATIENCE, self.confirmations.next()).await else {
            bail!("{} messages were not confirmed within {} s", self.outstanding, CONFIRM_PATIENCE.as_secs());
        };
        self.take(confirmation)
    }

    fn take(&mut self, confirmation: Option<async_nats::Message>) -> Result<()> {
        let message = confirmation.context("the publishing connection ended")?;
        let confirmation: Confirmation = serde_json::from_slice(&message.payload).context("read a confirmation")?;
        if let Some(error) = confirmation.error {
            bail!("the broker did not store a message: {error}");
        }
        ensure!(!confirmation.duplicate, "the broker had a message already, so fewer copies than counted are stored");
        self.outstanding -= 1;
        Ok(())
    }
}
