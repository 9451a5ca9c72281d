//! The watch of one bucket: snapshot first, then changes, rebuilt when asked.
//!
//! Owns the ordered consumer. It must not judge what a row means; a snapshot replaces the table only once it is complete.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{DeliverPolicy, push::OrderedConfig},
    stream::ConsumerErrorKind,
};
use futures::StreamExt as _;
use lanekeeper_wire::Space;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Feed, Registry, last_sequence, tables::Change};
use crate::{
    fault::{FaultKind, REQUEST_TIMEOUT},
    link::{Link, unanswered},
};

/// How long a snapshot may take between two of its rows.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(5);

type Ordered = async_nats::jetstream::consumer::push::Ordered;

/// Follows one bucket until `stop`.
pub(super) async fn follow(
    registry: &Registry,
    link: &Link,
    feed: &Feed,
    stop: &CancellationToken,
) -> Result<(), FaultKind> {
    let taken = feed.rebuild_asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let Some(mut asked) = taken else {
        return Err(FaultKind::Refused {
            what: feed.bucket.name(&registry.space),
            reason: "is followed already".into(),
        });
    };
    feed.applied.send_replace(None);
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        result = rebuild_for_ever(registry, link, feed, &mut asked) => result,
    };
    *feed.rebuild_asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(asked);
    result
}

async fn rebuild_for_ever(
    registry: &Registry,
    link: &Link,
    feed: &Feed,
    asked: &mut mpsc::Receiver<()>,
) -> Result<(), FaultKind> {
    loop {
        while asked.try_recv().is_ok() {}
        let (mut messages, name) = snapshot(registry, link, feed).await?;
        loop {
            let message = tokio::select! {
                biased;
                Some(()) = asked.recv() => {
                    // The broker would forget it by itself after a while; until then it counts against the stream's limit.
                    let stream = feed.bucket.stream(&registry.space);
                    let _ = link.jetstream().delete_consumer_from_stream(&name, &stream).await;
                    break;
                }
                message = messages.next() => message,
            };
            match message {
                Some(Ok(message)) => {
                    if let Some((change, _)) = change(&registry.space, feed, &message) {
                        let revision = change.revision;
                        registry.apply(feed.bucket, &change);
                        feed.applied.send_if_modified(|at| {
                            let newer = at.is_none_or(|at| at < revision);
                            if newer {
                                *at = Some(revision);
                            }
                            newer
                        });
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(bucket = feed.bucket.name(&registry.space), %error, "watch broke, it is rebuilt");
                    break;
                }
                None => break,
            }
        }
    }
}

/// Reads the bucket as it is now and puts it in place of the table.
async fn snapshot(registry: &Registry, link: &Link, feed: &Feed) -> Result<(Ordered, String), FaultKind> {
    let stream = feed.bucket.stream(&registry.space);
    // Taken before the consumer exists: everything up to here is in its snapshot, also when the newest message itself
    // was purged and will never be delivered.
    let floor = last_sequence(link, &stream).await?;
    let api = format!("$JS.API.CONSUMER.CREATE.{stream}");
    let config = OrderedConfig {
        deliver_subject: link.client().new_inbox(),
        filter_subject: feed.bucket.subject(&registry.space, ">"),
        deliver_policy: DeliverPolicy::LastPerSubject,
        ..OrderedConfig::default()
    };
    let refused = |reason: String| FaultKind::Refused { what: api.clone(), reason };
    let call = async {
        link.jetstream().create_consumer_on_stream(config, &stream).await.map_err(|error| match error.kind() {
            ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request => unanswered(&api, REQUEST_TIMEOUT),
            ConsumerErrorKind::InvalidConsumerType
            | ConsumerErrorKind::InvalidName
            | ConsumerErrorKind::JetStream(_)
            | ConsumerErrorKind::Other => refused(error.to_string()),
        })
    };
    let consumer = link.ask(&api, call).await?;
    let name = consumer.cached_info().name.clone();
    let mut awaited = consumer.cached_info().num_pending;
    let mut messages = consumer.messages().await.map_err(|error| refused(error.to_string()))?;
    let mut rows = Vec::new();
    let mut applied = floor;
    while awaited > 0 {
        let next = timeout(SNAPSHOT_PATIENCE, messages.next()).await;
        let next = next.map_err(|_| crate::link::unanswered(&api, SNAPSHOT_PATIENCE))?;
        let message = next.ok_or_else(|| refused("the watch ended".into()))?;
        let message = message.map_err(|error| refused(error.to_string()))?;
        awaited -= 1;
        if let Some((change, pending)) = change(&registry.space, feed, &message) {
            applied = applied.max(change.revision);
            awaited = awaited.min(pending);
            rows.push(change);
        }
    }
    registry.replace(feed.bucket, &rows);
    feed.applied.send_replace(Some(applied));
    Ok((messages, name))
}

/// A KV message as a change, and how many more were pending behind it.
fn change(space: &Space, feed: &Feed, message: &async_nats::jetstream::Message) -> Option<(Change, u64)> {
    let info = message.info().ok()?;
    let key = feed.bucket.key_of(space, message.subject.as_str())?.to_owned();
    let marker = message.headers.as_ref().is_some_and(|headers| {
        headers.get("Nats-Marker-Reason").is_some()
            || headers.get("KV-Operation").is_some_and(|operation| operation.as_str() != "PUT")
    });
    let value = (!marker).then(|| message.payload.clone());
    Some((Change { key, revision: info.stream_sequence, value }, info.pending))
}
