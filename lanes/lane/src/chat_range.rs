//! Reading a range of CHAT again, through a private ephemeral consumer that lives as long as the read.
//!
//! Owns that consumer. It must not judge or copy what it reads.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use futures::StreamExt as _;
use lanekeeper_wire::{Space, StreamKind};
use tokio::time::Instant;

use crate::{
    fault::FaultKind,
    link::{Link, deadline, unanswered},
};

/// How long one read may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many posts are asked for at once.
const BATCH: usize = 256;
/// How long the broker keeps the consumer if this process dies with it.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);

/// Whether to read on.
pub(crate) enum On {
    /// The next one.
    Next,
    /// Enough.
    Stop,
}

/// Hands the posts on `filter` with sequences from `first` to `last` to `each`, in order, until it has had enough.
///
/// # Errors
/// The broker's silence or refusal.
pub(crate) async fn read(
    link: &Link,
    space: &Space,
    filter: String,
    first: u64,
    last: u64,
    each: impl FnMut(u64, jetstream::Message) -> On,
) -> Result<(), FaultKind> {
    let stream = StreamKind::Chat.name(space);
    let name = format!("catchup_{:032x}", rand::random::<u128>());
    let api = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
    let config = pull::Config {
        name: Some(name.clone()),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first },
        ack_policy: AckPolicy::None,
        filter_subject: filter,
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
    let result = drain(&consumer, last, each).await;
    // Where this fails the broker forgets the consumer by itself.
    let api = format!("$JS.API.CONSUMER.DELETE.{stream}.{name}");
    let delete = async {
        let deleted = link.jetstream().delete_consumer_from_stream(&name, &stream).await;
        deleted.map_err(|error| FaultKind::Refused { what: api.clone(), reason: error.to_string() })
    };
    let _ = link.ask(&api, delete).await;
    result
}

async fn drain(
    consumer: &PullConsumer,
    last: u64,
    mut each: impl FnMut(u64, jetstream::Message) -> On,
) -> Result<(), FaultKind> {
    let refused = |error: String| FaultKind::Refused { what: "reading CHAT again".into(), reason: error };
    let until = deadline(PATIENCE);
    let mut pending = consumer.cached_info().num_pending;
    while pending > 0 {
        if Instant::now() >= until {
            return Err(unanswered("reading CHAT again", PATIENCE));
        }
        let batch = consumer.fetch().max_messages(BATCH).messages().await;
        let mut batch = batch.map_err(|error| refused(error.to_string()))?;
        let mut empty = true;
        while let Some(message) = batch.next().await {
            let message = message.map_err(|error| refused(error.to_string()))?;
            let Ok(info) = message.info() else { continue };
            let (seq, left) = (info.stream_sequence, info.pending);
            (pending, empty) = (left, false);
            if seq > last {
                return Ok(());
            }
            if let On::Stop = each(seq, message) {
                return Ok(());
            }
        }
        if empty {
            // What was pending has fallen out of retention meanwhile.
            return Ok(());
        }
    }
    Ok(())
}
