//! Posts that can be told apart and timed: the number and the moment of sending stand in the message id.
//!
//! Owns that id and the exact size of a payload. The id is what every receiver has read anyway, so timing costs it
//! nothing.

use anyhow::{Context as _, Result};
use lanekeeper_peer::PostDraft;
use lanekeeper_wire::{Channel, Post, Principal, Sender, Space};
use tokio::time::Instant;

/// What every id begins with.
const MARK: &str = "bench-";
const NUMBER_DIGITS: usize = 7;
/// Nanoseconds since the start: enough for a day.
const NANOS_DIGITS: usize = 14;
const ID_BYTES: usize = MARK.len() + NUMBER_DIGITS + 1 + NANOS_DIGITS;
/// Epoch milliseconds have this many digits until the year 2286.
const ANY_TIME_MS: u64 = 1_000_000_000_000;

/// The common zero of all stamps of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Which post, and when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its number among all posts of the run, from 0.
    pub(super) number: usize,
    /// Nanoseconds on the run's clock.
    pub(super) sent_nanos: u64,
}

impl Stamp {
    /// The message id; always the same length.
    pub(super) fn to_id(self) -> String {
        format!("{MARK}{:0NUMBER_DIGITS$}-{:0NANOS_DIGITS$}", self.number, self.sent_nanos)
    }

    /// Out of a message id; `None` if it is none of ours.
    pub(super) fn of_id(id: &str) -> Option<Self> {
        let (number, nanos) = id.strip_prefix(MARK)?.split_once('-')?;
        Some(Self { number: number.parse().ok()?, sent_nanos: nanos.parse().ok()? })
    }

    /// Out of a payload that holds the id somewhere, without reading the JSON around it.
    pub(super) fn find(payload: &[u8]) -> Option<Self> {
        let quoted = b"\"id\":\"bench-";
        let at = payload.windows(quoted.len()).position(|window| window == quoted)?;
        let start = at + quoted.len() - MARK.len();
        Self::of_id(std::str::from_utf8(payload.get(start..start + ID_BYTES)?).ok()?)
    }
}

/// The shape of one sender's posts.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    filler: String,
}

impl Shape {
    /// Posts of exactly `size` bytes by this sender.
    ///
    /// # Errors
    /// The sender's name and the channel alone need more.
    pub(super) fn new(space: &Space, who: &Principal, name: &str, channel: &Channel, size: usize) -> Result<Self> {
        let least = empty_post(space, who, name, channel).to_json().len();
        let filler =
            size.checked_sub(least).with_context(|| format!("a post has at least {least} bytes, not {size}"))?;
        Ok(Self { filler: "x".repeat(filler) })
    }

    /// One post.
    pub(super) fn draft(&self, stamp: Stamp) -> PostDraft {
        PostDraft::text(self.filler.clone()).with_id(stamp.to_id())
    }

    /// The payload of one post, as a member would compose it.
    pub(super) fn payload(
        &self,
        space: &Space,
        who: &Principal,
        name: &str,
        channel: &Channel,
        stamp: Stamp,
    ) -> String {
        let mut post = empty_post(space, who, name, channel);
        post.id = stamp.to_id();
        post.parts.clear();
        post.with_text(self.filler.clone()).to_json()
    }
}

fn empty_post(space: &Space, who: &Principal, name: &str, channel: &Channel) -> Post {
    let from = Sender { id: who.clone(), name: name.to_owned(), role: None };
    let id = Stamp { number: 0, sent_nanos: 0 }.to_id();
    Post::new(id, ANY_TIME_MS, space.clone(), from, channel.clone()).with_text("")
}

/// The smallest payload a bench can send, bytes.
///
/// # Errors
/// Never in practice: the names are fixed.
pub(super) fn shortest_bytes() -> Result<usize> {
    let name = super::site::sender_name(0);
    let who = Principal::new("local".parse()?, name.parse()?);
    let (space, channel) = (super::site::SPACE.parse()?, super::site::CHANNEL.parse()?);
    Ok(empty_post(&space, &who, &name, &channel).to_json().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_its_id_and_is_found_in_a_payload() {
        let stamp = Stamp { number: 1999, sent_nanos: 12_345_678_901 };
        let id = stamp.to_id();
        assert_eq!((id.len(), Stamp::of_id(&id)), (ID_BYTES, Some(stamp)));
        let payload = format!(r#"{{"version":1,"channel":"bench","msg":{{"id":"{id}","ts":1}}}}"#);
        assert_eq!(Stamp::find(payload.as_bytes()), Some(stamp));
        assert_eq!(Stamp::find(br#"{"id":"bench-"}"#), None);
        assert_eq!(Stamp::find(b"{}"), None);
    }

    #[test]
    fn a_payload_has_exactly_the_size_asked_for() {
        let (space, channel): (Space, Channel) = ("bench".parse().unwrap(), "bench".parse().unwrap());
        let who: Principal = "local.sender_0000".parse().unwrap();
        for size in [shortest_bytes().unwrap(), 300, 512, 4096] {
            let shape = Shape::new(&space, &who, "sender_0000", &channel, size).unwrap();
            let stamp = Stamp { number: 7, sent_nanos: 99_999_999_999_999 };
            assert_eq!(shape.payload(&space, &who, "sender_0000", &channel, stamp).len(), size);
        }
        assert!(Shape::new(&space, &who, "sender_0000", &channel, 20).is_err());
    }
}
