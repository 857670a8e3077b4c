//! What the server is known to have, so that nothing is sent that changes nothing.
//!
//! It is a memory of our own doing only, and it is not trusted for ever: after a while a snapshot is offered again, and
//! after a lost connection everything is. Two halves of bounded size: when the young one is full it becomes the old one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use catchment_model::Monotonic;
use xxhash_rust::xxh3::xxh3_64;

/// Keys are hashes already.
#[derive(Debug, Default, Clone, Copy)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Half = HashMap<u64, Known, BuildHasherDefault<AsIs>>;

#[derive(Debug, Clone, Copy)]
struct Known {
    hash: u64,
    since: Monotonic,
}

/// Which hash each key has, as far as we know.
#[derive(Debug)]
pub(crate) struct Memory {
    young: Half,
    old: Half,
    half_max: usize,
    trusted_for: Duration,
}

impl Memory {
    /// Of so many keys at most, each trusted for so long.
    pub(crate) fn new(keys_max: usize, trusted_for: Duration) -> Self {
        Self { young: Half::default(), old: Half::default(), half_max: keys_max.div_ceil(2), trusted_for }
    }

    /// Whether the key is known to have this hash, or a later one.
    pub(crate) fn knows(&self, key: &[u8], hash: &[u8], now: Monotonic) -> bool {
        let key = xxh3_64(key);
        let known = self.young.get(&key).or_else(|| self.old.get(&key));
        known.is_some_and(|known| known.hash == xxh3_64(hash) && now.since(known.since) < self.trusted_for)
    }

    /// The server has it.
    pub(crate) fn learn(&mut self, key: &[u8], hash: &[u8], now: Monotonic) {
        if self.half_max == 0 {
            return;
        }
        if self.young.len() >= self.half_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(xxh3_64(key), Known { hash: xxh3_64(hash), since: now });
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// How many keys are known.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn what_was_learned_is_known_for_a_while() {
        let mut memory = Memory::new(10, Duration::from_secs(60));
        assert!(!memory.knows(b"k", b"h", at(0)));
        memory.learn(b"k", b"h", at(0));
        assert!(memory.knows(b"k", b"h", at(59)));
        assert!(!memory.knows(b"k", b"other", at(1)));
        assert!(!memory.knows(b"k", b"h", at(60)));
        memory.forget();
        assert!(!memory.knows(b"k", b"h", at(1)));
    }

    #[test]
    fn it_holds_so_many_keys_at_most() {
        let mut memory = Memory::new(10, Duration::from_secs(60));
        for n in 0..100_u8 {
            memory.learn(&[n], b"h", at(0));
            assert!(memory.len() <= 10 && memory.knows(&[n], b"h", at(0)));
        }
        let mut none = Memory::new(0, Duration::from_secs(60));
        none.learn(b"k", b"h", at(0));
        assert!(!none.knows(b"k", b"h", at(0)));
    }
}
