//! How many more copies each member's store takes before the broker would discard an unacknowledged one.
//!
//! Owns the counts. It must not read the broker: the parts tell it what they published, what was confirmed and what was
//! freed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lanekeeper_wire::Lifecycle;
use tokio::{sync::Notify, time::Instant};

/// A store that was full for this long without anything being taken from it counts as not read: what it then discards is
/// counted as a shortfall instead of holding up everybody else.
pub(crate) const UNREAD_AFTER: Duration = Duration::from_secs(5);

/// The rooms of all members in one stream.
#[derive(Debug)]
pub(crate) struct Rooms {
    limit: Option<u64>,
    inner: Mutex<Inner>,
    /// Rung when room was freed.
    freed: Notify,
    /// Rung when somebody found a store full.
    full: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    stores: HashMap<Lifecycle, Store>,
    full: HashSet<Lifecycle>,
}

#[derive(Debug, Default)]
struct Store {
    /// Copies in the store, as last known.
    held: u64,
    /// Copies sent and not yet confirmed.
    in_flight: u64,
    /// Copies confirmed since the count that is being asked for was asked.
    confirmed_since_mark: u64,
    /// Since when it is full; starts anew whenever something is taken from it.
    full_since: Option<Instant>,
}

/// The answer to a wish to store one more copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There was room and it is taken.
    Taken,
    /// Full, and taken all the same: the broker discards the store's oldest copy for it.
    Overfull,
    /// Full: wait until it is freed.
    Full,
}

impl Rooms {
    /// Rooms of `limit` copies a member; `None` where the store has no limit or its depth cannot be known.
    #[must_use]
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit, inner: Mutex::default(), freed: Notify::new(), full: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for one copy. With `force`, or where the store is full and unread, room is taken beyond the limit.
    pub(crate) fn take(&self, lifecycle: &Lifecycle, force: bool) -> Room {
        let Some(limit) = self.limit else { return Room::Taken };
        let mut inner = self.inner();
        let store = match inner.stores.get_mut(lifecycle) {
            Some(store) => store,
            None => inner.stores.entry(lifecycle.clone()).or_default(),
        };
        if store.held + store.in_flight < limit {
            store.in_flight += 1;
            return Room::Taken;
        }
        let full_since = *store.full_since.get_or_insert_with(Instant::now);
        // What is in flight is bounded too: a store must not overflow by more than it holds.
        if force || (full_since.elapsed() >= UNREAD_AFTER && store.in_flight < limit) {
            store.in_flight += 1;
            return Room::Overfull;
        }
        inner.full.insert(lifecycle.clone());
        drop(inner);
        self.full.notify_one();
        Room::Full
    }

    /// A copy was stored; a duplicate took no room.
    pub(crate) fn stored(&self, lifecycle: &Lifecycle, duplicate: bool) {
        let Some(limit) = self.limit else { return };
        let mut inner = self.inner();
        let Some(store) = inner.stores.get_mut(lifecycle) else { return };
        store.in_flight = store.in_flight.saturating_sub(1);
        if duplicate {
            drop(inner);
            self.freed.notify_one();
        } else {
            store.held = (store.held + 1).min(limit);
            store.confirmed_since_mark += 1;
        }
    }

    /// A copy left the store.
    pub(crate) fn free(&self, lifecycle: &Lifecycle) {
        if self.limit.is_none() {
            return;
        }
        let mut inner = self.inner();
        if let Some(store) = inner.stores.get_mut(lifecycle) {
            store.held = store.held.saturating_sub(1);
            store.full_since = None;
        }
        let waited = inner.full.remove(lifecycle);
        drop(inner);
        if waited {
            self.freed.notify_one();
        }
    }

    /// Starts over with a new connection, or after a time in which nothing could be taken: what was in flight is not any
    /// more where `connection_lost`, and no store has been full for long.
    pub(crate) fn start_over(&self, connection_lost: bool) {
        for store in self.inner().stores.values_mut() {
            store.full_since = None;
            if connection_lost {
                store.in_flight = 0;
            }
        }
    }

    /// The members whose store was found full.
    #[must_use]
    pub(crate) fn full(&self) -> Vec<Lifecycle> {
        self.inner().full.iter().cloned().collect()
    }

    /// As [`Rooms::full`], with a mark: what is confirmed from now on comes on top of a count asked now.
    #[must_use]
    pub(crate) fn mark_full(&self) -> Vec<Lifecycle> {
        let mut inner = self.inner();
        inner.stores.values_mut().for_each(|store| store.confirmed_since_mark = 0);
        inner.full.iter().cloned().collect()
    }

    /// What the broker counted for a member after [`Rooms::mark_full`], or at the start.
    pub(crate) fn counted(&self, lifecycle: &Lifecycle, held: u64) {
        let Some(limit) = self.limit else { return };
        let mut inner = self.inner();
        let store = inner.stores.entry(lifecycle.clone()).or_default();
        let now = (held + store.confirmed_since_mark).min(limit);
        if now < store.held {
            store.full_since = None;
        }
        store.held = now;
        if now + store.in_flight < limit && inner.full.remove(lifecycle) {
            drop(inner);
            self.freed.notify_one();
        }
    }

    /// Waits until room was freed for somebody. Cancel safe.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until a store was found full. Cancel safe.
    pub(crate) async fn found_full(&self) {
        self.full.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Lifecycle {
        "local.bob.0123456789abcdefghijklmnop".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_waits_until_it_is_freed() {
        let (rooms, bob) = (Rooms::new(Some(2)), member());
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        assert_eq!(rooms.take(&bob, false), Room::Full);
        rooms.stored(&bob, false);
        assert_eq!(rooms.take(&bob, false), Room::Full);
        rooms.free(&bob);
        rooms.freed().await;
        assert_eq!(rooms.take(&bob, false), Room::Taken);
    }

    #[tokio::test(start_paused = true)]
    async fn a_duplicate_takes_no_room() {
        let (rooms, bob) = (Rooms::new(Some(1)), member());
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        rooms.stored(&bob, true);
        assert_eq!(rooms.take(&bob, false), Room::Taken);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_store_overflows_and_a_read_one_does_not() {
        let (rooms, bob) = (Rooms::new(Some(2)), member());
        for _ in 0..2 {
            assert_eq!(rooms.take(&bob, false), Room::Taken);
            rooms.stored(&bob, false);
        }
        // A store may be full of copies for long before anybody wants to add one: that is not being unread.
        tokio::time::advance(UNREAD_AFTER * 2).await;
        assert_eq!(rooms.take(&bob, false), Room::Full);
        tokio::time::advance(UNREAD_AFTER - Duration::from_millis(1)).await;
        assert_eq!(rooms.take(&bob, false), Room::Full);
        rooms.free(&bob);
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        rooms.stored(&bob, false);
        assert_eq!(rooms.take(&bob, false), Room::Full);
        tokio::time::advance(UNREAD_AFTER).await;
        assert_eq!(rooms.take(&bob, false), Room::Overfull);
        rooms.start_over(true);
        assert_eq!(rooms.take(&bob, false), Room::Full, "patience starts over with a connection");
        assert_eq!(rooms.take(&bob, true), Room::Overfull);
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_never_forgets_what_was_confirmed_meanwhile() {
        let (rooms, bob) = (Rooms::new(Some(3)), member());
        for _ in 0..3 {
            assert_eq!(rooms.take(&bob, false), Room::Taken);
        }
        assert_eq!(rooms.take(&bob, false), Room::Full);
        assert_eq!(rooms.mark_full(), vec![bob.clone()]);
        rooms.stored(&bob, false);
        // The broker counted before that copy was stored.
        rooms.counted(&bob, 0);
        assert_eq!(rooms.take(&bob, false), Room::Full, "one held, two in flight");
        assert_eq!(rooms.mark_full(), vec![bob.clone()]);
        rooms.counted(&bob, 0);
        assert_eq!(rooms.take(&bob, false), Room::Taken);
    }
}
