//! Copies of posts that fan-out judged before it saw a row, and posts that a dead run had in hand.
//!
//! Owns what is read again of CHAT and why. It must not write membership rows.

use std::{collections::BTreeSet, sync::Arc};

use async_nats::jetstream::{
    context::{PublishAckFuture, PublishError},
    message::PublishMessage,
};
use lanekeeper_wire::{
    ChannelPattern, EntryReason, EntryTemplate, Lifecycle, Space, entry::suppression_key, message::check_post, subject,
};
use tokio::time::Instant;

use crate::{
    chat_range::{self, On},
    fan_out::Judged,
    fault::FaultKind,
    intake::Delivery,
    link::Link,
    stage::MAX_IN_HAND,
    verify::Durable,
};

/// How many bytes of posts are read again after a crash; what is beyond comes back after the ack wait.
const RECOVERED_BYTES: usize = 64 * 1024 * 1024;

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
        let mut missing: BTreeSet<u64> = wanted.iter().copied().collect();
        let mut copies = Vec::new();
        let filter = subject::chat_channel_filter(&self.space, pattern);
        chat_range::read(link, &self.space, filter, first, last, |seq, message| {
            if missing.remove(&seq) {
                copies.extend(self.entry(&message, member, generation, seq));
            }
            if missing.is_empty() { On::Stop } else { On::Next }
        })
        .await?;
        let mut confirmations = Vec::new();
        for (seq, payload) in copies {
            confirmations.push(self.send(link, member, seq, payload).await?);
        }
        for confirmation in confirmations {
            let confirmed: Result<_, PublishError> = confirmation.await;
            confirmed.map_err(|error| refused(&error))?;
        }
        Ok((!missing.is_empty()).then(|| {
            format!("{} posts of the join window are past the channel's retention; join again", missing.len())
        }))
    }

    /// The entry for one member. What fan-out terminates as malformed is passed over; nobody gets a copy of an own post.
    fn entry(
        &self,
        message: &async_nats::jetstream::Message,
        member: &Lifecycle,
        generation: u64,
        seq: u64,
    ) -> Option<(u64, bytes::Bytes)> {
        let post = check_post(&self.space, message.subject.as_str(), &message.payload).ok()?;
        (post.sender != *member.principal())
            .then(|| (seq, EntryTemplate::new(&post, seq, EntryReason::DurableChannel).for_generation(generation)))
    }

    async fn send(
        &self,
        link: &Link,
        member: &Lifecycle,
        seq: u64,
        payload: bytes::Bytes,
    ) -> Result<PublishAckFuture, FaultKind> {
        let key = suppression_key(self.chat_created_ns, seq, member);
        let copy = PublishMessage::build().message_id(key).payload(payload);
        let sent = link.jetstream().send_publish(subject::dinbox(&self.space, member), copy).await;
        sent.map_err(|error| refused(&error))
    }
}

/// The posts a dead run had in hand. The broker delivers them again only after the ack wait, behind newer posts; handled
/// first, they keep their place, and that later delivery finds every copy stored.
///
/// # Errors
/// The broker's silence or refusal.
pub(crate) async fn inherited(link: &Link, space: &Space, fanout: &Durable) -> Result<Vec<Delivery>, FaultKind> {
    let mut posts = Vec::new();
    if fanout.inherited == 0 || fanout.delivered <= fanout.floor {
        return Ok(posts);
    }
    let mut bytes = 0;
    chat_range::read(link, space, subject::chat_filter(space), fanout.floor + 1, fanout.delivered, |seq, message| {
        bytes += message.payload.len();
        posts.push(Delivery {
            subject: message.subject.clone(),
            payload: message.payload.clone(),
            ack: None,
            seq,
            delivered: 1,
            taken_at: Instant::now(),
            units: 0,
            stored: Vec::new(),
        });
        if bytes < RECOVERED_BYTES && posts.len() < 2 * MAX_IN_HAND { On::Next } else { On::Stop }
    })
    .await?;
    tracing::info!(space = %space, posts = posts.len(), unsettled = fanout.inherited, "took up posts of a run that died");
    Ok(posts)
}

fn refused(error: &PublishError) -> FaultKind {
    FaultKind::Refused { what: "a caught-up copy".into(), reason: error.to_string() }
}
