//! How many more copies each member's store takes before the broker would discard an unacknowledged one.
//!
//! Owns the counts. Pure but for the instant it is given; it must not read the broker: the parts tell it what they
//! published, what was confirmed and what was freed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lanekeeper_wire::Lifecycle;
use tokio::{sync::Notify, time::Instant};

/// A full store from which nothing was taken for this long counts as not read: what the store then discards is counted
/// as a shortfall instead of holding up everybody else.
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
    shortfall: u64,
}

#[derive(Debug)]
struct Store {
    /// Copies in the store, as last known.
    held: u64,
    /// Copies sent and not yet confirmed.
    in_flight: u64,
    /// Copies confirmed since the count that is being asked for was asked.
    confirmed_since_mark: u64,
    /// When the store last got smaller, or was first seen.
    freed_at: Instant,
}

/// The answer to a wish to store one more copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There was room and it is taken.
    Taken,
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

    /// Takes room for one copy. With `force`, or where the store is full and unread, room is taken beyond the limit and
    /// counted as a shortfall.
    pub(crate) fn take(&self, lifecycle: &Lifecycle, force: bool) -> Room {
        let Some(limit) = self.limit else { return Room::Taken };
        let mut inner = self.inner();
        let store = inner.stores.entry(lifecycle.clone()).or_insert_with(Store::empty);
        if store.held + store.in_flight < limit {
            store.in_flight += 1;
            return Room::Taken;
        }
        let unread = store.freed_at.elapsed() >= UNREAD_AFTER && store.in_flight < limit;
        if force || unread {
            store.in_flight += 1;
            inner.shortfall += 1;
            return Room::Taken;
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
        if let Some(store) = inner.stores.get_mut(lifecycle) {
            store.in_flight = store.in_flight.saturating_sub(1);
            if duplicate {
                drop(inner);
                self.freed.notify_one();
            } else {
                store.held = (store.held + 1).min(limit);
                store.confirmed_since_mark += 1;
            }
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
            store.freed_at = Instant::now();
        }
        let waited = inner.full.remove(lifecycle);
        drop(inner);
        if waited {
            self.freed.notify_one();
        }
    }

    /// Forgets what was in flight: the connection that carried it is gone.
    pub(crate) fn forget_in_flight(&self) {
        self.inner().stores.values_mut().for_each(|store| store.in_flight = 0);
    }

    /// The members whose store was found full, and a mark: what is confirmed from now on comes on top of a count asked now.
    #[must_use]
    pub(crate) fn mark_full(&self) -> Vec<Lifecycle> {
        let mut inner = self.inner();
        let full: Vec<_> = inner.full.iter().cloned().collect();
        for lifecycle in &full {
            if let Some(store) = inner.stores.get_mut(lifecycle) {
                store.confirmed_since_mark = 0;
            }
        }
        full
    }

    /// The members whose store was found full.
    #[must_use]
    pub(crate) fn full(&self) -> Vec<Lifecycle> {
        self.inner().full.iter().cloned().collect()
    }

    /// What the broker counted for a member after [`Rooms::mark_full`], or at the start.
    pub(crate) fn counted(&self, lifecycle: &Lifecycle, held: u64) {
        let Some(limit) = self.limit else { return };
        let mut inner = self.inner();
        let store = inner.stores.entry(lifecycle.clone()).or_insert_with(Store::empty);
        let now = held + store.confirmed_since_mark;
        if now < store.held {
            store.freed_at = Instant::now();
        }
        store.held = now.min(limit);
        store.confirmed_since_mark = 0;
        if store.held + store.in_flight < limit && inner.full.remove(lifecycle) {
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

    /// Copies stored beyond a full store, each of which made the broker discard an older one.
    #[must_use]
    pub(crate) fn shortfall(&self) -> u64 {
        self.inner().shortfall
    }
}

impl Store {
    fn empty() -> Self {
        Self { held: 0, in_flight: 0, confirmed_since_mark: 0, freed_at: Instant::now() }
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
        assert_eq!(rooms.shortfall(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_duplicate_takes_no_room() {
        let (rooms, bob) = (Rooms::new(Some(1)), member());
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        rooms.stored(&bob, true);
        assert_eq!(rooms.take(&bob, false), Room::Taken);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_store_overflows_and_is_counted() {
        let (rooms, bob) = (Rooms::new(Some(1)), member());
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        rooms.stored(&bob, false);
        tokio::time::advance(UNREAD_AFTER - Duration::from_millis(1)).await;
        assert_eq!(rooms.take(&bob, false), Room::Full);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(rooms.take(&bob, false), Room::Taken);
        assert_eq!(rooms.shortfall(), 1);
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
