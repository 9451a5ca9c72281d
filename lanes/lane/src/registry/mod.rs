//! The registry replica: the buckets that deliveries are judged by, in memory, with a read barrier.
//!
//! Owns the tables, the watches that feed them and the barrier that makes an answer as fresh as a read made now.
//! It must not write to the broker: [`crate::membership`] does.

pub(crate) mod tables;
#[cfg(test)]
mod tables_tests;
mod watch;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use async_nats::jetstream::{context::RequestErrorKind, response::Response};
use lanekeeper_wire::{Bucket, Channel, Lifecycle, MemberKey, Space};
use tokio::sync::{mpsc, watch as signal};
use tokio_util::sync::CancellationToken;

use self::tables::{Change, Tables};
use crate::{fault::FaultKind, link::Link};

/// The buckets a lane keeps in memory.
pub(crate) const REPLICATED: [Bucket; 3] = [Bucket::Members, Bucket::Acl, Bucket::Channels];
/// How many own writes are remembered: far more than one snapshot can overlap with.
const OWN_KEPT: usize = 1024;
/// How long a barrier waits for the replica before it has the watch rebuilt.
const BARRIER_PATIENCE: Duration = Duration::from_secs(2);
/// How long it then waits for the rebuilt watch.
const REBUILD_PATIENCE: Duration = Duration::from_secs(5);

/// The replica of one space.
#[derive(Debug)]
pub(crate) struct Registry {
    space: Space,
    tables: RwLock<Tables>,
    /// This lane's latest writes.
    own: Mutex<VecDeque<(Bucket, Change)>>,
    /// Memberships whose end is being written, each with a sequence that is surely before that end.
    leaving: Mutex<Vec<(MemberKey, u64)>>,
    feeds: [Feed; REPLICATED.len()],
}

/// One bucket's position and its way to ask for a rebuild.
#[derive(Debug)]
struct Feed {
    bucket: Bucket,
    /// The bucket's last sequence that the tables reflect; `None` before the first snapshot.
    applied: signal::Sender<Option<u64>>,
    rebuild: mpsc::Sender<()>,
    rebuild_asked: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Registry {
    /// An empty replica; [`Registry::follow`] fills it.
    #[must_use]
    pub(crate) fn new(space: &Space) -> Arc<Self> {
        let feeds = REPLICATED.map(|bucket| {
            let (rebuild, asked) = mpsc::channel(1);
            Feed { bucket, applied: signal::Sender::new(None), rebuild, rebuild_asked: Mutex::new(Some(asked)) }
        });
        Arc::new(Self {
            space: space.clone(),
            tables: RwLock::new(Tables::default()),
            own: Mutex::default(),
            leaving: Mutex::default(),
            feeds,
        })
    }

    /// The tables, for one judgement. Hold it shortly and never across an await.
    pub(crate) fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds the replica from the broker until `stop`; one call for each bucket of [`REPLICATED`].
    ///
    /// # Errors
    /// The fault that ended the watch.
    pub(crate) async fn follow(
        self: Arc<Self>,
        link: Link,
        index: usize,
        stop: CancellationToken,
    ) -> Result<(), FaultKind> {
        watch::follow(&self, &link, &self.feeds[index], &stop).await
    }

    /// Waits until every bucket has its first snapshot.
    pub(crate) async fn filled(&self) {
        for feed in &self.feeds {
            let mut applied = feed.applied.subscribe();
            let _ = applied.wait_for(Option::is_some).await;
        }
    }

    /// The read barrier: returns once the tables hold everything that was in `buckets` when this was called.
    ///
    /// # Errors
    /// The broker's silence or refusal, or a watch that stayed deaf after it was rebuilt.
    pub(crate) async fn fresh(&self, link: &Link, buckets: &[Bucket]) -> Result<(), FaultKind> {
        let waits = self.feeds.iter().filter(|feed| buckets.contains(&feed.bucket)).map(|feed| self.reach(link, feed));
        futures::future::try_join_all(waits).await.map(drop)
    }

    async fn reach(&self, link: &Link, feed: &Feed) -> Result<(), FaultKind> {
        let mut applied = feed.applied.subscribe();
        // Before the question: what arrives meanwhile may well be newer than the answer.
        let known = *applied.borrow();
        let wanted = last_sequence(link, &feed.bucket.stream(&self.space)).await?;
        let reached = |at: &Option<u64>| at.is_some_and(|at| at >= wanted);
        if known.is_some_and(|known| known > wanted) {
            tracing::warn!(bucket = feed.bucket.name(&self.space), "bucket was created anew, watch is rebuilt");
            self.own.lock().unwrap_or_else(PoisonError::into_inner).clear();
        } else if tokio::time::timeout(BARRIER_PATIENCE, applied.wait_for(reached)).await.is_ok() {
            return Ok(());
        } else {
            tracing::warn!(bucket = feed.bucket.name(&self.space), "watch fell silent, it is rebuilt");
        }
        applied.mark_unchanged();
        let _ = feed.rebuild.try_send(());
        let rebuilt = async {
            let _ = applied.changed().await;
            let _ = applied.wait_for(reached).await;
        };
        tokio::time::timeout(REBUILD_PATIENCE, rebuilt).await.map_err(|_| FaultKind::Silent {
            what: feed.bucket.name(&self.space),
            silent_ms: u64::try_from((BARRIER_PATIENCE + REBUILD_PATIENCE).as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Says that the end of a membership is about to be decided: until the guard is dropped, nothing above `sure` is
    /// released to it, because it may turn out to lie behind the end.
    pub(crate) fn leaving(self: &Arc<Self>, key: &MemberKey, sure: u64) -> Leaving {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push((key.clone(), sure));
        Leaving { registry: Arc::clone(self), key: key.clone() }
    }

    /// True while it is open whether the post at `seq` lies before the end of a membership.
    #[must_use]
    pub(crate) fn is_leaving(&self, lifecycle: &Lifecycle, channel: &Channel, seq: u64) -> bool {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.iter().any(|(key, sure)| seq > *sure && key.lifecycle == *lifecycle && key.pattern.covers(channel))
    }

    /// Applies a write that this lane has just committed, so that it counts before the watch shows it, and so that a
    /// snapshot begun before it does not take it back.
    pub(crate) fn apply_own(&self, bucket: Bucket, change: &Change) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() == OWN_KEPT {
            own.pop_front();
        }
        own.push_back((bucket, change.clone()));
        drop(own);
        self.apply(bucket, change);
    }

    fn apply(&self, bucket: Bucket, change: &Change) {
        let complaint = self.tables.write().unwrap_or_else(PoisonError::into_inner).apply(bucket, change);
        if let Some(reason) = complaint {
            tracing::warn!(space = %self.space, bucket = bucket.name(&self.space), %reason, "row ignored");
        }
    }

    fn replace(&self, bucket: Bucket, snapshot: &[Change]) {
        let complaints = self.tables.write().unwrap_or_else(PoisonError::into_inner).replace(bucket, snapshot);
        for reason in complaints {
            tracing::warn!(space = %self.space, bucket = bucket.name(&self.space), %reason, "row ignored");
        }
    }
}

/// A membership whose end is being written.
#[derive(Debug)]
#[must_use = "dropped at once, it holds nothing back"]
pub(crate) struct Leaving {
    registry: Arc<Registry>,
    key: MemberKey,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut leaving = self.registry.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = leaving.iter().position(|(key, _)| *key == self.key) {
            leaving.swap_remove(index);
        }
    }
}

/// The last sequence of a stream, as of now.
pub(crate) async fn last_sequence(link: &Link, stream: &str) -> Result<u64, FaultKind> {
    Ok(stream_info(link, stream).await?.state.last_sequence)
}

/// A stream's configuration and state.
pub(crate) async fn stream_info(link: &Link, stream: &str) -> Result<async_nats::jetstream::stream::Info, FaultKind> {
    let api = format!("$JS.API.STREAM.INFO.{stream}");
    let call = async {
        let answer = link.jetstream().request(format!("STREAM.INFO.{stream}"), &()).await;
        match answer {
            Ok(Response::Ok(info)) => Ok(info),
            Ok(Response::Err { error }) if error.code() == 404 => {
                Err(FaultKind::StreamMissing { stream: stream.to_owned() })
            }
            Ok(Response::Err { error }) => Err(FaultKind::Refused { what: api.clone(), reason: error.to_string() }),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::TimedOut => crate::link::unanswered(&api, crate::fault::REQUEST_TIMEOUT),
                RequestErrorKind::NoResponders => {
                    FaultKind::JetStreamUnavailable { reason: "nobody answers for it".into() }
                }
                RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                    FaultKind::Refused { what: api.clone(), reason: error.to_string() }
                }
            }),
        }
    };
    link.ask(&api, call).await
}
