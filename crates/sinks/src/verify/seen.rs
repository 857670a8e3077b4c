//! Which ids have been seen: one bit a record, in pages, so that ten million take about a megabyte.

use std::collections::HashMap;

use catchment_model::{RecordId, SpoolId};

const WORDS: usize = 64;
const BITS: u64 = WORDS as u64 * 64;

/// A set of ids. Numbers are dense within a spool, so a page of bits serves 4,096 of them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pages: HashMap<(SpoolId, u64), Box<[u64; WORDS]>>,
}

impl Seen {
    /// Adds the id; false if it was there.
    pub(crate) fn insert(&mut self, id: RecordId) -> bool {
        let page = self.pages.entry((id.spool, id.seq / BITS)).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = ((id.seq % BITS / 64) as usize, 1_u64 << (id.seq % 64));
        let fresh = page[word] & bit == 0;
        page[word] |= bit;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_new_once() {
        let mut seen = Seen::default();
        let spools = [SpoolId::new(1), SpoolId::new(2)];
        for spool in spools {
            for seq in [0, 1, 63, 64, 4_095, 4_096, u64::MAX] {
                assert!(seen.insert(RecordId { spool, seq }), "{spool} {seq}");
                assert!(!seen.insert(RecordId { spool, seq }), "{spool} {seq} again");
            }
        }
    }
}
