//! The dedup window: which records were accepted lately, bounded in time and in keys.
//!
//! A key is 128 bits of xxh3 over exchange, channel, symbol and the record's own id (see [`crate::Draft`]), so the set
//! needs no hashing of its own and no text. Keys stand in a queue in the order they came; the oldest leave first. The
//! set holds places in that queue, four bytes a key, so that it stays in the processor's cache: a key that leaves is
//! found by its place, and its sixteen bytes are not looked at again.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_model::{Channel, Monotonic};
use hashbrown::HashTable;

/// `[persistence.dedup]`, checked.
#[derive(Debug, Clone)]
pub struct DedupConfig {
    /// How long a key is remembered.
    pub window: Duration,
    /// How many keys are remembered at most.
    pub keys_max: usize,
    /// Channels in which equal payloads are duplicates even without an id or sequence.
    pub by_payload: Vec<Channel>,
}

impl Default for DedupConfig {
    fn default() -> Self {
        Self { window: Duration::from_secs(300), keys_max: 100_000, by_payload: Vec::new() }
    }
}

/// Room is taken for so many keys from the start; a larger window grows as it needs.
const ROOM_MAX: usize = 1 << 20;

/// Keys that come within this are forgotten together; a window is a thousand times longer.
const TICK: Duration = Duration::from_millis(1);

/// Keys seen lately.
#[derive(Debug)]
pub struct DedupWindow {
    window: Duration,
    keys_max: usize,
    /// Keys, oldest first.
    order: VecDeque<u128>,
    /// When they came: so many at this time, oldest first. At speed, many keys share a tick.
    came: VecDeque<(Monotonic, usize)>,
    /// The number of the oldest key. Numbers go on for ever, and over their end.
    oldest: u32,
    /// The numbers of the keys, by the keys' low bits.
    numbers: HashTable<u32>,
}

impl DedupWindow {
    /// An empty window.
    pub fn new(config: &DedupConfig) -> Self {
        Self {
            window: config.window,
            keys_max: config.keys_max,
            order: VecDeque::with_capacity(config.keys_max.min(ROOM_MAX)),
            came: VecDeque::new(),
            oldest: 0,
            numbers: HashTable::with_capacity(config.keys_max.min(ROOM_MAX) + 1),
        }
    }

    /// Remembers the key; `false` if it was there already. A full window first forgets its oldest key.
    pub fn insert(&mut self, key: u128, now: Monotonic) -> bool {
        self.expire(now);
        let is_same = |number: &u32| self.order[number.wrapping_sub(self.oldest) as usize] == key;
        if self.numbers.find(hash(key), is_same).is_some() {
            return false;
        }
        if self.order.len() >= self.keys_max {
            self.forget_oldest();
        }
        let number = self.oldest.wrapping_add(self.order.len() as u32);
        let hash_of = |number: &u32| hash(self.order[number.wrapping_sub(self.oldest) as usize]);
        self.numbers.insert_unique(hash(key), number, hash_of);
        self.order.push_back(key);
        match self.came.back_mut() {
            Some((at, keys)) if now.since(*at) < TICK => *keys += 1,
            _ => self.came.push_back((now, 1)),
        }
        true
    }

    /// Forgets the newest keys again: their records were not accepted after all.
    pub fn take_back(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.order.pop_back() else { return };
            self.strike(key, self.oldest.wrapping_add(self.order.len() as u32));
            let (_, keys) = self.came.back_mut().expect("every key has come at some time");
            *keys -= 1;
            if *keys == 0 {
                self.came.pop_back();
            }
        }
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn expire(&mut self, now: Monotonic) {
        while self.came.front().is_some_and(|(at, _)| now.since(*at) >= self.window) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(key) = self.order.pop_front() else { return };
        self.strike(key, self.oldest);
        self.oldest = self.oldest.wrapping_add(1);
        let (_, keys) = self.came.front_mut().expect("every key has come at some time");
        *keys -= 1;
        if *keys == 0 {
            self.came.pop_front();
        }
    }

    /// Takes the number of a key that left out of the set.
    fn strike(&mut self, key: u128, number: u32) {
        let entry = self.numbers.find_entry(hash(key), |other| *other == number);
        entry.expect("every key in the queue has its number in the set").remove();
    }
}

/// The keys are hashes already; their low bits will do.
fn hash(key: u128) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(seconds: u64, keys_max: usize) -> DedupWindow {
        DedupWindow::new(&DedupConfig {
            window: Duration::from_secs(seconds),
            keys_max,
            ..DedupConfig::default()
        })
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn a_key_is_known_until_its_time_is_up() {
        let mut seen = window(10, 100);
        assert!(seen.insert(1, at(0)));
        assert!(!seen.insert(1, at(9)));
        assert!(seen.insert(1, at(10)), "ten seconds after it came, not after it was last asked for");
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn the_oldest_key_makes_room() {
        let mut seen = window(10, 2);
        for key in 1..=3 {
            assert!(seen.insert(key, at(0)));
        }
        assert_eq!(seen.len(), 2);
        assert!(!seen.insert(3, at(0)));
        assert!(!seen.insert(2, at(0)));
        assert!(seen.insert(1, at(0)));
    }

    #[test]
    fn what_is_taken_back_may_come_again() {
        let mut seen = window(10, 10);
        seen.insert(1, at(0));
        seen.insert(2, at(0));
        seen.take_back(1);
        assert!(seen.insert(2, at(0)));
        assert!(!seen.insert(1, at(0)));
        seen.take_back(99);
        assert!(seen.is_empty());
    }

    proptest! {
        /// The window against a list of everything that ever came.
        #[test]
        fn it_behaves_like_a_list(steps in prop::collection::vec((0..8_u128, 0..4_u64), 1..200), keys_max in 1..6_usize) {
            let mut seen = window(5, keys_max);
            let mut list: Vec<(u128, u64)> = Vec::new();
            let mut now = 0;
            for (key, pause) in steps {
                now += pause;
                list.retain(|(_, came)| now - came < 5);
                let new = !list.iter().any(|(k, _)| *k == key);
                if new {
                    if list.len() == keys_max {
                        list.remove(0);
                    }
                    list.push((key, now));
                }
                prop_assert_eq!(seen.insert(key, at(now)), new);
                prop_assert_eq!(seen.len(), list.len());
            }
        }
    }
}
