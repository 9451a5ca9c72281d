//! Owns the application's end of receiving: the queue and the decision whether a copy is surfaced. A post counts as
//! surfaced when it is handed out here, not when it arrived; it must never be dropped for one that was only queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::Stream;
use tokio::sync::mpsc;

use crate::coalesce::Coalescer;
use crate::counters::Counters;
use crate::incoming::{Incoming, Via};

/// What is remembered of a surfaced post: the entry it came from, if it came from one, and whether that is settled.
type Note = Option<Entry>;

#[derive(Debug)]
struct Entry {
    seq: u64,
    settled: Arc<AtomicBool>,
}

/// What to do with a copy.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Surface,
    Drop,
}

/// Everything a member receives, in arrival order. Taken once, from [`crate::Peer::messages`].
#[derive(Debug)]
pub struct Messages {
    queue: mpsc::Receiver<Incoming>,
    memory: Option<Coalescer<Note>>,
    counters: Arc<Counters>,
}

impl Messages {
    pub(crate) fn new(queue: mpsc::Receiver<Incoming>, window: Option<usize>, counters: Arc<Counters>) -> Self {
        Self { queue, memory: window.map(Coalescer::new), counters }
    }

    /// The next copy to surface, or `None` once the member is closed or cut off and everything received was handed out.
    ///
    /// Safe to drop while waiting: at worst the acknowledgement of a coalesced copy is not sent and it comes again.
    pub async fn recv(&mut self) -> Option<Incoming> {
        loop {
            let mut incoming = self.queue.recv().await?;
            match judge(self.memory.as_mut(), &mut incoming) {
                Verdict::Surface => return Some(incoming),
                Verdict::Drop => {
                    Counters::add(&self.counters.coalesced);
                    // Without a connection it comes again and is dropped again.
                    let _ = incoming.ack_now().await;
                }
            }
        }
    }

    /// The next copy, or `None` if nothing comes within `limit`.
    pub async fn recv_within(&mut self, limit: Duration) -> Option<Incoming> {
        tokio::time::timeout(limit, self.recv()).await.ok().flatten()
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Incoming> + Send {
        futures::stream::unfold(self, |mut messages| async move {
            let incoming = messages.recv().await?;
            Some((incoming, messages))
        })
    }
}

fn judge(memory: Option<&mut Coalescer<Note>>, incoming: &mut Incoming) -> Verdict {
    let Some(memory) = memory else { return Verdict::Surface };
    let settled = incoming.via.is_durable().then(Arc::<AtomicBool>::default);
    let entry = match (incoming.via, &settled) {
        (Via::Durable { seq, .. }, Some(settled)) => Some(Entry { seq, settled: Arc::clone(settled) }),
        (Via::Durable { .. } | Via::Live, _) => None,
    };
    let known = memory.admit(incoming.sender.as_str(), incoming.channel.as_str(), incoming.message.id(), || entry);
    let settled = match known {
        None => settled,
        Some(note) => match again(note.as_ref(), incoming.via) {
            Some(unsettled) => Some(unsettled),
            None => return Verdict::Drop,
        },
    };
    if let (Some(handle), Some(settled)) = (&mut incoming.ack, settled) {
        handle.track(settled);
    }
    Verdict::Surface
}

/// A redelivery of the very entry that was surfaced and never settled is not a duplicate: the application gave it back
/// or let it lapse, and wants it again.
fn again(note: Option<&Entry>, via: Via) -> Option<Arc<AtomicBool>> {
    match (note, via) {
        (Some(entry), Via::Durable { seq, .. }) if entry.seq == seq && !entry.settled.load(Ordering::Acquire) => {
            Some(Arc::clone(&entry.settled))
        }
        (Some(_) | None, Via::Durable { .. } | Via::Live) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanekeeper_wire::Message;

    fn copy(id: &str, via: Via) -> Incoming {
        let post = format!(r#"{{"id":"{id}","from":{{"id":"local.ada"}}}}"#);
        Incoming {
            channel: "team".parse().unwrap(),
            sender: "local.ada".parse().unwrap(),
            message: Message::parse(post.as_bytes()).unwrap(),
            via,
            ack: None,
        }
    }

    fn durable(seq: u64) -> Via {
        Via::Durable { seq, deliveries: 1 }
    }

    fn surfaced(copies: &[(&str, Via)]) -> Vec<bool> {
        let mut memory = Coalescer::new(16);
        copies.iter().map(|(id, via)| judge(Some(&mut memory), &mut copy(id, *via)) == Verdict::Surface).collect()
    }

    #[test]
    fn one_of_each_pair_is_surfaced() {
        assert_eq!(surfaced(&[("a", Via::Live), ("a", durable(1))]), [true, false]);
        assert_eq!(surfaced(&[("a", durable(1)), ("a", Via::Live)]), [true, false]);
        assert_eq!(surfaced(&[("a", durable(1)), ("a", durable(2))]), [true, false]);
    }

    #[test]
    fn empty_ids_are_all_surfaced() {
        assert_eq!(surfaced(&[("", Via::Live), ("", durable(1)), ("", durable(1))]), [true, true, true]);
    }

    #[test]
    fn an_unsettled_entry_is_surfaced_again() {
        let again = Via::Durable { seq: 1, deliveries: 2 };
        assert_eq!(surfaced(&[("a", durable(1)), ("a", again)]), [true, true]);
        // Surfaced live first: the entry was never handed out, so its redelivery is a duplicate too.
        assert_eq!(surfaced(&[("a", Via::Live), ("a", durable(1)), ("a", again)]), [true, false, false]);
    }

    #[test]
    fn a_settled_entry_is_not_surfaced_again() {
        let settled = Arc::new(AtomicBool::new(false));
        let entry = Entry { seq: 7, settled: Arc::clone(&settled) };
        assert!(again(Some(&entry), durable(7)).is_some());
        settled.store(true, Ordering::Release);
        assert!(again(Some(&entry), durable(7)).is_none());
    }

    #[test]
    fn raw_surfaces_everything() {
        for via in [Via::Live, durable(1), durable(1)] {
            assert_eq!(judge(None, &mut copy("a", via)), Verdict::Surface);
        }
    }
}
