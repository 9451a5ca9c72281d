//! What the streams of a space still hold: the proof that an acknowledgement has arrived.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::{self, consumer::pull};
use lanekeeper_wire::{FANOUT_DURABLE, Space, StreamKind};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::site::Field;

/// Between two looks at a stream that should be empty.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A connection that looks at the streams of one space.
#[derive(Debug)]
pub(super) struct Stores {
    js: jetstream::Context,
    space: Space,
}

/// What is not settled yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Unsettled {
    /// Posts that fan-out has not acknowledged.
    pub(super) chat: u64,
    /// Entries in INBOX.
    pub(super) inbox: u64,
    /// Copies in DLV.
    pub(super) dlv: u64,
}

impl Unsettled {
    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl Stores {
    /// Connects with the lane's credential.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) async fn connect(field: &Field) -> Result<Self> {
        let options = field.delivery_credentials()?.connect_options()?.name("lanekeeper bench");
        let client = options.connect(&field.site.url).await.context("connect to look at the streams")?;
        Ok(Self { js: jetstream::new(client), space: field.site.space.clone() })
    }

    /// How many messages a stream holds.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn held(&self, kind: StreamKind) -> Result<u64> {
        let name = kind.name(&self.space);
        let stream = self.js.get_stream(&name).await.with_context(|| format!("look at {name}"))?;
        Ok(stream.cached_info().state.messages)
    }

    /// What is left anywhere between CHAT and the members.
    ///
    /// # Errors
    /// A stream or the lane's durable does not answer.
    pub(super) async fn unsettled(&self) -> Result<Unsettled> {
        let chat = StreamKind::Chat.name(&self.space);
        let fan_out = self.js.get_consumer_from_stream::<pull::Config, _, _>(FANOUT_DURABLE, &chat).await;
        let fan_out = fan_out.with_context(|| format!("look at {FANOUT_DURABLE} on {chat}"))?;
        let info = fan_out.cached_info();
        Ok(Unsettled {
            chat: info.num_pending + u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX),
            inbox: self.held(StreamKind::Inbox).await?,
            dlv: self.held(StreamKind::Dlv).await?,
        })
    }

    /// Waits until a stream holds nothing; what it still holds after `limit`.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn drained(&self, kind: StreamKind, limit: Duration) -> Result<u64> {
        let started = Instant::now();
        loop {
            let held = self.held(kind).await?;
            if held == 0 || started.elapsed() > limit {
                return Ok(held);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
