//! Owns posting: composing a message, storing it in CHAT, and bursts with a bounded number in flight. It must not
//! retry: whether an unconfirmed post is sent again is the author's choice.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use lanekeeper_wire::{Channel, Part, Post, Sender, subject};

use crate::ask::nonce;
use crate::link::Link;
use crate::peer::Peer;
use crate::presence::now_ms;

/// The broker drops a second message with the same value inside a stream's duplicate window.
const SUPPRESSION_HEADER: &str = "Nats-Msg-Id";

/// What to post. The author, the space, the time and the channel are added when it is sent.
#[derive(Debug, Clone, Default)]
pub struct PostDraft {
    /// The message id; `None` draws a unique one. `Some("")` is allowed and never coalesced by anybody.
    pub id: Option<String>,
    /// The content.
    pub parts: Vec<Part>,
    /// Names to wake, written in lower case.
    pub mentions: Vec<String>,
    /// The id of the message this one answers.
    pub reply_to: Option<String>,
    /// The conversation it belongs to.
    pub context_id: Option<String>,
    /// Have the broker drop a second post of this author with the same id, so that an unconfirmed post can be sent
    /// again. Without effect on an empty id.
    pub suppress_repeat: bool,
}

impl PostDraft {
    /// A post of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text { text: text.into() }], ..Self::default() }
    }

    /// A post of these parts.
    pub fn parts(parts: Vec<Part>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// The same with this id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same, mentioning `name`.
    #[must_use]
    pub fn with_mention(mut self, name: impl AsRef<str>) -> Self {
        self.mentions.push(name.as_ref().to_lowercase());
        self
    }

    /// The same, safe to send again when it was not confirmed.
    #[must_use]
    pub fn suppressing_repeats(mut self) -> Self {
        self.suppress_repeat = true;
        self
    }
}

/// A stored post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Its message id.
    pub id: String,
    /// Its sequence in CHAT. Proves that the broker stored it, not that anybody read it.
    pub seq: u64,
    /// The broker had it already, from an earlier attempt.
    pub repeated: bool,
}

/// Why a post is not known to be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The broker refused the subject.
    #[error("broker refused {subject}: the credential may not post there")]
    Denied {
        /// The refused subject.
        subject: String,
    },
    /// No confirmation came: it may be stored or not, and may still be stored later.
    #[error("post {id} on {subject} was not confirmed ({detail}): it may be stored or not")]
    Unconfirmed {
        /// The message id.
        id: String,
        /// The subject.
        subject: String,
        /// What happened.
        detail: String,
    },
    /// The broker or the client refused it: it is not stored.
    #[error("post {id} on {subject} was refused: {detail}")]
    Refused {
        /// The message id.
        id: String,
        /// The subject.
        subject: String,
        /// What was said.
        detail: String,
    },
}

/// A post that is on its way.
struct InFlight {
    link: Arc<Link>,
    mark: u64,
    id: String,
    subject: String,
    ack: PublishAckFuture,
}

impl InFlight {
    async fn confirm(self) -> Result<Posted, PostError> {
        let Self { link, mark, id, subject, ack } = self;
        tokio::select! {
            biased;
            stored = ack.into_future() => match stored {
                Ok(stored) => Ok(Posted { id, seq: stored.sequence, repeated: stored.duplicate }),
                Err(fault) => Err(classify(id, subject, fault.kind(), fault.to_string())),
            },
            violation = link.violations.wait_since(mark, |violation| violation.subject == subject) => {
                Err(PostError::Denied { subject: violation.subject })
            }
            () = link.ended.cancelled() => {
                let detail = "the connection has ended".to_owned();
                Err(PostError::Unconfirmed { id, subject, detail })
            }
        }
    }
}

fn classify(id: String, subject: String, kind: PublishErrorKind, detail: String) -> PostError {
    match kind {
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => PostError::Unconfirmed { id, subject, detail },
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded
        | PublishErrorKind::Other => PostError::Refused { id, subject, detail },
    }
}

impl Peer {
    /// Posts to a channel and waits until the broker has stored it.
    ///
    /// # Errors
    /// [`PostError`]: refused by the broker's permissions, not stored, or not known to be stored.
    pub async fn post(&self, channel: &Channel, draft: PostDraft) -> Result<Posted, PostError> {
        self.send_post(channel, draft).await?.confirm().await
    }

    /// A sender of bursts with at most `in_flight` posts unconfirmed at a time (at least one).
    pub fn poster(&self, in_flight: usize) -> Poster<'_> {
        Poster { peer: self, limit: in_flight.max(1), pending: FuturesUnordered::new() }
    }

    /// Posts all drafts to a channel, at most `in_flight` unconfirmed at a time, in order. The outcomes come in the
    /// order of confirmation.
    pub async fn post_pipelined(
        &self,
        channel: &Channel,
        drafts: impl IntoIterator<Item = PostDraft>,
        in_flight: usize,
    ) -> Vec<Result<Posted, PostError>> {
        let mut poster = self.poster(in_flight);
        let mut outcomes = Vec::new();
        for draft in drafts {
            outcomes.extend(poster.post(channel, draft).await);
        }
        outcomes.extend(poster.finish().await);
        outcomes
    }

    /// Publishes bytes as they are, without waiting for anybody: for showing what malformed input does.
    ///
    /// # Errors
    /// [`PostError::Refused`] if the client does not take the subject or the connection has ended.
    pub async fn publish_raw(&self, subject: &str, payload: impl Into<Bytes>) -> Result<(), PostError> {
        let refused = |detail: String| PostError::Refused { id: String::new(), subject: subject.to_owned(), detail };
        let client = &self.link().client;
        client.publish(subject.to_owned(), payload.into()).await.map_err(|fault| refused(fault.to_string()))?;
        client.flush().await.map_err(|fault| refused(fault.to_string()))
    }

    /// Publishes bytes as they are and waits until a stream has stored them; the sequence there.
    ///
    /// # Errors
    /// As [`Peer::post`].
    pub async fn store_raw(&self, subject: &str, payload: impl Into<Bytes>) -> Result<u64, PostError> {
        let sent = self.send(String::new(), subject.to_owned(), HeaderMap::new(), payload.into()).await?;
        Ok(sent.confirm().await?.seq)
    }

    async fn send_post(&self, channel: &Channel, draft: PostDraft) -> Result<InFlight, PostError> {
        let id = draft.id.unwrap_or_else(nonce);
        let options = self.options();
        let from = Sender {
            id: self.principal().clone(),
            name: options.name.clone(),
            role: options.role.as_ref().map(|role| role.as_str().to_owned()),
        };
        let mut headers = HeaderMap::new();
        if draft.suppress_repeat && !id.is_empty() {
            // The author is part of the value: nobody can suppress another's post by guessing its id.
            headers.insert(SUPPRESSION_HEADER, format!("{}:{id}", self.principal()));
        }
        let mut post = Post::new(id.clone(), now_ms(), self.space().clone(), from, channel.clone());
        post.parts = draft.parts;
        post.mentions = draft.mentions;
        post.reply_to = draft.reply_to;
        post.context_id = draft.context_id;
        let subject = subject::chat(self.space(), self.principal(), channel);
        self.send(id, subject, headers, Bytes::from(post.to_json())).await
    }

    async fn send(
        &self,
        id: String,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<InFlight, PostError> {
        let link = Arc::clone(self.link());
        let mark = link.violations.mark();
        let sent = if headers.is_empty() {
            link.js.publish(subject.clone(), payload).await
        } else {
            link.js.publish_with_headers(subject.clone(), headers, payload).await
        };
        match sent {
            Ok(ack) => Ok(InFlight { link, mark, id, subject, ack }),
            Err(fault) => Err(PostError::Refused { id, subject, detail: fault.to_string() }),
        }
    }
}

type Confirmation = Pin<Box<dyn Future<Output = Result<Posted, PostError>> + Send>>;

/// Posts in bursts. Order on the wire is the order of the calls.
pub struct Poster<'a> {
    peer: &'a Peer,
    limit: usize,
    pending: FuturesUnordered<Confirmation>,
}

impl Poster<'_> {
    /// Sends one post; waits for room first if the bound is reached. Returns the outcomes known by then, which belong
    /// to earlier posts, or the failure to send this one.
    pub async fn post(&mut self, channel: &Channel, draft: PostDraft) -> Vec<Result<Posted, PostError>> {
        let mut outcomes = Vec::new();
        while self.pending.len() >= self.limit {
            outcomes.extend(self.pending.next().await);
        }
        match self.peer.send_post(channel, draft).await {
            Ok(sent) => self.pending.push(Box::pin(sent.confirm())),
            Err(fault) => outcomes.push(Err(fault)),
        }
        outcomes
    }

    /// The next outcome, or `None` when nothing is in flight.
    pub async fn next_outcome(&mut self) -> Option<Result<Posted, PostError>> {
        self.pending.next().await
    }

    /// Posts sent and not yet confirmed.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Waits for everything in flight.
    pub async fn finish(self) -> Vec<Result<Posted, PostError>> {
        self.pending.collect().await
    }
}

impl std::fmt::Debug for Poster<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").field("in_flight", &self.pending.len()).field("limit", &self.limit).finish()
    }
}

impl futures::Stream for Poster<'_> {
    type Item = Result<Posted, PostError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pending.poll_next_unpin(cx)
    }
}
