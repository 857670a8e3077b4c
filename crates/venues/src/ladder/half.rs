//! One side of a book: its levels in order, the best at the end, where most changes happen.
//!
//! Keys and texts lie in two vectors, so that looking for a price touches little memory. A side is always ascending by
//! rank; the rank of a bid is its key and that of an ask is the key's complement, so that the best is the greatest on
//! both.

use super::scan::{Change, TEXT_MAX};

/// The texts of a level, price and then size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    bytes: [u8; TEXT_MAX],
    price_len: u8,
    size_len: u8,
}

impl Texts {
    #[inline]
    fn new(price: &[u8], size: &[u8]) -> Self {
        let mut bytes = [0; TEXT_MAX];
        bytes[..price.len()].copy_from_slice(price);
        bytes[price.len()..price.len() + size.len()].copy_from_slice(size);
        Self { bytes, price_len: price.len() as u8, size_len: size.len() as u8 }
    }

    pub(super) fn price(&self) -> &[u8] {
        &self.bytes[..usize::from(self.price_len)]
    }

    pub(super) fn size(&self) -> &[u8] {
        &self.bytes[usize::from(self.price_len)..][..usize::from(self.size_len)]
    }
}

/// One side of a book.
#[derive(Debug, Clone, Default)]
pub(super) struct Half {
    ranks: Vec<u128>,
    texts: Vec<Texts>,
}

impl Half {
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn clear(&mut self) {
        self.ranks.clear();
        self.texts.clear();
    }

    /// The rank of the best level.
    pub(super) fn best(&self) -> Option<u128> {
        self.ranks.last().copied()
    }

    /// Sets the size at a price.
    #[inline]
    pub(super) fn set(&mut self, rank: u128, price: &[u8], size: &[u8]) {
        let texts = Texts::new(price, size);
        match self.find(rank) {
            Ok(at) => self.texts[at] = texts,
            Err(at) => {
                self.ranks.insert(at, rank);
                self.texts.insert(at, texts);
            }
        }
    }

    /// Removes a price; it need not be there.
    #[inline]
    pub(super) fn remove(&mut self, rank: u128) {
        if let Ok(at) = self.find(rank) {
            self.ranks.remove(at);
            self.texts.remove(at);
        }
    }

    /// Merges changes that are ascending by rank; of equal ones the last counts. Only the levels above the least of
    /// them are touched.
    pub(super) fn merge(&mut self, changes: &[&Change], message: &[u8]) {
        let Some(least) = changes.first().map(|change| change.rank()) else { return };
        let from = self.find(least).unwrap_or_else(|at| at);
        let ranks = self.ranks.split_off(from);
        let texts = self.texts.split_off(from);
        let mut before = ranks.into_iter().zip(texts).peekable();
        let mut changes = changes.iter().peekable();
        while let Some(change) = changes.next() {
            let rank = change.rank();
            while let Some((kept, texts)) = before.next_if(|(kept, _)| *kept < rank) {
                self.ranks.push(kept);
                self.texts.push(texts);
            }
            if changes.peek().is_some_and(|next| next.rank() == rank) {
                continue;
            }
            let _ = before.next_if(|(kept, _)| *kept == rank);
            if !change.gone {
                self.ranks.push(rank);
                self.texts.push(Texts::new(change.price(message), change.size(message)));
            }
        }
        for (kept, texts) in before {
            self.ranks.push(kept);
            self.texts.push(texts);
        }
    }

    /// Adds a level above all others. False: it is not above.
    pub(super) fn push(&mut self, rank: u128, price: &[u8], size: &[u8]) -> bool {
        if self.best().is_some_and(|best| best >= rank) {
            return false;
        }
        self.ranks.push(rank);
        self.texts.push(Texts::new(price, size));
        true
    }

    /// Keeps the best levels.
    pub(super) fn truncate(&mut self, depth: usize) {
        let gone = self.len().saturating_sub(depth);
        if gone > 0 {
            self.ranks.drain(..gone);
            self.texts.drain(..gone);
        }
    }

    /// The levels, best first.
    pub(super) fn best_first(&self) -> impl DoubleEndedIterator<Item = &Texts> + ExactSizeIterator {
        self.texts.iter().rev()
    }

    /// Where a rank is or would be. Looks from the best level outwards in growing steps, then in between.
    #[inline]
    fn find(&self, rank: u128) -> Result<usize, usize> {
        let mut above = self.ranks.len();
        let mut step = 4;
        // Everything from `above` on is greater than `rank`.
        let below = loop {
            let Some(at) = above.checked_sub(step) else { break 0 };
            if self.ranks[at] <= rank {
                break at;
            }
            above = at;
            step *= 4;
        };
        self.ranks[below..above].binary_search(&rank).map(|at| below + at).map_err(|at| below + at)
    }
}
