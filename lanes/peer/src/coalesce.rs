//! Owns the bounded memory of what a member has already surfaced. Pure: it must not know where a copy came from, how it
//! is acknowledged, or any clock.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

/// How many posts a [`Coalescer`] remembers unless told otherwise.
pub const DEFAULT_WINDOW: usize = 4096;

/// What makes two copies one logical delivery: the same author, channel and id.
///
/// The id alone would let one member choose another's id and make its post vanish at a third; the author and the
/// channel of a live copy come from the subject, those of a durable copy from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64, u64);

/// A bounded least-recently-used memory of posts, with a note of type `T` on each.
///
/// An empty id is never a key: two posts with an empty id are always two posts.
#[derive(Debug)]
pub struct Coalescer<T> {
    window: usize,
    hashers: (RandomState, RandomState),
    notes: HashMap<Key, Slot<T>>,
    // Every touch appends; an older pair of the same key is stale and skipped. Compacted when it has grown to twice
    // the window, so the cost of a touch stays constant on average.
    order: VecDeque<(Key, u64)>,
    clock: u64,
}

#[derive(Debug)]
struct Slot<T> {
    touched: u64,
    note: T,
}

impl<T> Coalescer<T> {
    /// A memory of at most `window` posts (at least one).
    pub fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            hashers: (RandomState::new(), RandomState::new()),
            notes: HashMap::new(),
            order: VecDeque::new(),
            clock: 0,
        }
    }

    /// The note of the post if it was surfaced inside the window; otherwise remembers it with `note` and answers `None`.
    ///
    /// Finding a post counts as a use: it stays longer. An empty `id` is never remembered and never found.
    pub fn admit(&mut self, author: &str, channel: &str, id: &str, note: impl FnOnce() -> T) -> Option<&mut T> {
        if id.is_empty() {
            return None;
        }
        let key = self.key(author, channel, id);
        self.clock += 1;
        let touched = self.clock;
        self.order.push_back((key, touched));
        if let Some(slot) = self.notes.get_mut(&key) {
            // Before compacting, which keeps only the pair that names this touch.
            slot.touched = touched;
            self.compact();
            return self.notes.get_mut(&key).map(|slot| &mut slot.note);
        }
        self.notes.insert(key, Slot { touched, note: note() });
        self.evict();
        self.compact();
        None
    }

    /// How many posts are remembered now; never more than the window.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// 128 bits under two secret keys, so that no text is kept and no author can aim at another's key.
    fn key(&self, author: &str, channel: &str, id: &str) -> Key {
        let whole = (author, channel, id);
        Key(self.hashers.0.hash_one(whole), self.hashers.1.hash_one(whole))
    }

    fn is_current(&self, (key, touched): &(Key, u64)) -> bool {
        self.notes.get(key).is_some_and(|slot| slot.touched == *touched)
    }

    fn evict(&mut self) {
        while self.notes.len() > self.window {
            let Some(oldest) = self.order.pop_front() else { return };
            if self.is_current(&oldest) {
                self.notes.remove(&oldest.0);
            }
        }
    }

    fn compact(&mut self) {
        if self.order.len() <= self.window.saturating_mul(2) {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain(|pair| self.is_current(pair));
        self.order = order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(memory: &mut Coalescer<()>, id: &str) -> bool {
        memory.admit("local.ada", "team", id, || ()).is_some()
    }

    #[test]
    fn second_copy_is_found_once_remembered() {
        let mut memory = Coalescer::new(8);
        assert!(!seen(&mut memory, "m1"));
        assert!(seen(&mut memory, "m1"));
        assert!(!seen(&mut memory, "m2"));
    }

    #[test]
    fn empty_id_is_never_a_key() {
        let mut memory = Coalescer::new(8);
        assert!(!seen(&mut memory, ""));
        assert!(!seen(&mut memory, ""));
        assert!(memory.is_empty());
    }

    #[test]
    fn another_author_or_channel_cannot_hide_a_post() {
        let mut memory = Coalescer::new(8);
        assert!(memory.admit("local.ada", "team", "m1", || ()).is_none());
        assert!(memory.admit("local.eve", "team", "m1", || ()).is_none());
        assert!(memory.admit("local.ada", "ops", "m1", || ()).is_none());
        assert!(memory.admit("local.ada", "team", "m1", || ()).is_some());
    }

    #[test]
    fn field_borders_matter() {
        let mut memory = Coalescer::new(8);
        assert!(memory.admit("ab", "c", "d", || ()).is_none());
        assert!(memory.admit("a", "bc", "d", || ()).is_none());
        assert!(memory.admit("ab", "", "cd", || ()).is_none());
    }

    #[test]
    fn least_recently_used_goes_first() {
        let mut memory = Coalescer::new(2);
        seen(&mut memory, "a");
        seen(&mut memory, "b");
        assert!(seen(&mut memory, "a"));
        seen(&mut memory, "c");
        assert!(seen(&mut memory, "a"), "a was used after b, so b had to go");
        assert!(!seen(&mut memory, "b"));
    }

    #[test]
    fn note_can_be_changed() {
        let mut memory = Coalescer::new(2);
        assert!(memory.admit("a", "c", "x", || 1).is_none());
        *memory.admit("a", "c", "x", || 9).unwrap() += 1;
        assert_eq!(memory.admit("a", "c", "x", || 9), Some(&mut 2));
    }

    proptest! {
        /// Against a plain list that is searched from the newest end.
        #[test]
        fn agrees_with_a_simple_model(window in 1usize..6, ids in prop::collection::vec("[a-h]?", 0..400)) {
            let mut memory = Coalescer::new(window);
            let mut model: Vec<String> = Vec::new();
            for id in ids {
                let expected = !id.is_empty() && model.contains(&id);
                prop_assert_eq!(seen(&mut memory, &id), expected);
                if !id.is_empty() {
                    model.retain(|known| known != &id);
                    model.push(id);
                    if model.len() > window {
                        model.remove(0);
                    }
                }
                prop_assert_eq!(memory.len(), model.len());
                prop_assert!(memory.order.len() <= window * 2 + 1);
            }
        }
    }
}
