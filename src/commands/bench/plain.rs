//! A plain durable pull consumer, with nothing of a member around it.

use anyhow::{Context as _, Result};
use async_nats::jetstream::{self, consumer::pull};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lanekeeper_wire::{StreamKind, names};
use tokio_util::sync::CancellationToken;

use super::site::{Field, SETUP_CONCURRENCY};
use crate::mesh::{Member, member_credentials};

/// Messages asked for in one pull.
pub(super) const PULL_BATCH: usize = 512;

type Consumer = jetstream::consumer::Consumer<pull::Config>;

/// One member's hand-over consumer on a connection of its own.
pub(super) struct PlainConsumer {
    consumer: Consumer,
}

impl PlainConsumer {
    /// Connects all members of a space and binds their consumers.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) async fn connect_all(field: &Field) -> Result<Vec<Self>> {
        let connected = stream::iter(&field.members).map(|member| Self::connect(field, member));
        connected.buffered(SETUP_CONCURRENCY).try_collect().await
    }

    async fn connect(field: &Field, member: &Member) -> Result<Self> {
        let options = member_credentials(member)?.connect_options()?.subscription_capacity(2 * PULL_BATCH);
        let client = options.connect(&field.site.url).await;
        let js = jetstream::new(client.with_context(|| format!("connect member {}", member.name))?);
        let durable = names::dlv_durable(&member.lifecycle);
        let stream = StreamKind::Dlv.name(&field.site.space);
        let consumer = js.get_consumer_from_stream(&durable, &stream).await;
        Ok(Self { consumer: consumer.with_context(|| format!("bind {durable}"))? })
    }

    /// Receives and acknowledges until `stop`, and everything that has arrived by then.
    ///
    /// # Errors
    /// The connection or the consumer is gone.
    pub(super) async fn receive(self, stop: CancellationToken, mut on: impl FnMut(&async_nats::Message)) -> Result<()> {
        let mut messages = self.consumer.stream().max_messages_per_batch(PULL_BATCH).messages().await?;
        loop {
            tokio::select! {
                biased;
                message = messages.next() => {
                    let message = message.context("a plain consumer ended")??;
                    on(&message.message);
                    message.ack().await.map_err(anyhow::Error::from_boxed)?;
                }
                () = stop.cancelled() => return Ok(()),
            }
        }
    }
}
