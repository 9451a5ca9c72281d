//! Copies of posts that fan-out judged before it saw a row: on a join, and after a daemon died with posts in hand.
//!
//! Owns a private ephemeral consumer on CHAT for the length of one call. It must not write membership rows.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use futures::StreamExt as _;
use lanekeeper_wire::{
    ChannelPattern, EntryReason, EntryTemplate, Lifecycle, Space, StreamKind, entry::suppression_key,
    message::check_post, subject,
};

use crate::{
    fan_out::Judged,
    fault::FaultKind,
    link::{Link, deadline},
};

/// How long one catch-up may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many posts are asked for at once.
const BATCH: usize = 256;
/// How long the broker keeps the consumer if this process dies with it.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);

/// What a catch-up needs beside the connection.
#[derive(Debug, Clone)]
pub(crate) struct CatchUp {
    /// The space.
    pub space: Space,
    /// Which posts fan-out has judged.
    pub judged: Arc<Judged>,
    /// CHAT's creation time, unix nanoseconds.
    pub chat_created_ns: i128,
}

impl CatchUp {
    /// Copies the posts `wanted` (ascending) on `pattern` to one member. Returns the reason when retention has already
    /// dropped one of them.
    ///
    /// # Errors
    /// The broker's silence or refusal.
    pub(crate) async fn copy(
        &self,
        link: &Link,
        member: &Lifecycle,
        pattern: &ChannelPattern,
        generation: u64,
        wanted: &[u64],
    ) -> Result<Option<String>, FaultKind> {
        let (Some(first), Some(last)) = (wanted.first().copied(), wanted.last().copied()) else { return Ok(None) };
        let stream = StreamKind::Chat.name(&self.space);
        let name = format!("catchup_{:032x}", rand::random::<u128>());
        let api = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
        let config = pull::Config {
            name: Some(name.clone()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first },
            ack_policy: AckPolicy::None,
            filter_subject: subject::chat_channel_filter(&self.space, pattern),
            inactive_threshold: ABANDONED_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let create = async {
            let created = link.jetstream().create_consumer_on_stream(config, &stream).await;
            created.map_err(|error| FaultKind::Refused { what: api.clone(), reason: error.to_string() })
        };
        let consumer = link.ask(&api, create).await?;
        let read = self.read(link, &consumer, member, generation, wanted, last).await;
        let _ = link.jetstream().delete_consumer_from_stream(&name, &stream).await;
        read
    }

    async fn read(
        &self,
        link: &Link,
        consumer: &async_nats::jetstream::consumer::PullConsumer,
        member: &Lifecycle,
        generation: u64,
        wanted: &[u64],
        last: u64,
    ) -> Result<Option<String>, FaultKind> {
        let mut missing: BTreeSet<u64> = wanted.iter().copied().collect();
        let until = deadline(PATIENCE);
        let mut pending = consumer.cached_info().num_pending;
        while pending > 0 && !missing.is_empty() {
            if tokio::time::Instant::now() >= until {
                return Err(crate::link::unanswered("the catch-up", PATIENCE));
            }
            let batch = consumer.fetch().max_messages(BATCH).messages().await;
            let mut batch =
                batch.map_err(|error| FaultKind::Refused { what: "the catch-up".into(), reason: error.to_string() })?;
            let mut confirmations = Vec::new();
            while let Some(message) = batch.next().await {
                let message = message
                    .map_err(|error| FaultKind::Refused { what: "the catch-up".into(), reason: error.to_string() })?;
                let Ok(info) = message.info() else { continue };
                pending = info.pending;
                let seq = info.stream_sequence;
                if seq > last {
                    pending = 0;
                    break;
                }
                if missing.remove(&seq) {
                    confirmations.extend(self.send(link, &message, member, generation, seq).await?);
                }
            }
            for confirmation in confirmations {
                let confirmed: Result<_, async_nats::jetstream::context::PublishError> = confirmation.await;
                confirmed.map_err(|error| FaultKind::Refused {
                    what: "a caught-up copy".into(),
                    reason: error.to_string(),
                })?;
            }
        }
        Ok((!missing.is_empty()).then(|| {
            format!("{} posts of the join window are past the channel's retention; join again", missing.len())
        }))
    }

    async fn send(
        &self,
        link: &Link,
        message: &async_nats::jetstream::Message,
        member: &Lifecycle,
        generation: u64,
        seq: u64,
    ) -> Result<Option<async_nats::jetstream::context::PublishAckFuture>, FaultKind> {
        // What fan-out terminates as malformed, a catch-up passes over; and nobody gets a copy of an own post.
        let Ok(post) = check_post(&self.space, message.subject.as_str(), &message.payload) else { return Ok(None) };
        if post.sender == *member.principal() {
            return Ok(None);
        }
        let payload = EntryTemplate::new(&post, seq, EntryReason::DurableChannel).for_generation(generation);
        let key = suppression_key(self.chat_created_ns, seq, member);
        let subject = subject::dinbox(&self.space, member);
        let copy = async_nats::jetstream::message::PublishMessage::build().message_id(key).payload(payload);
        let sent = link.jetstream().send_publish(subject, copy).await;
        sent.map(Some)
            .map_err(|error| FaultKind::Refused { what: "a caught-up copy".into(), reason: error.to_string() })
    }
}
