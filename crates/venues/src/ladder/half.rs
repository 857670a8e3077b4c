//! One side of a book: its levels in order, the best at the end, where most changes happen.
//!
//! Ranks lie in a vector of their own, so that looking for a price touches little memory, and texts stay where they are:
//! a level that comes or goes moves only a few bytes of each level above it. A side is always ascending by rank; the rank
//! of a bid is its price in units and that of an ask is the complement, so that the best is the greatest on both.

use super::scan::{Change, TEXT_MAX};

/// The texts of a level, price and then size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    bytes: [u8; TEXT_MAX],
    price_len: u8,
    size_len: u8,
}

/// A text up to this long is copied as so many bytes, whatever its length: what is behind it does not matter.
const SHORT: usize = 16;

impl Texts {
    const NONE: Self = Self { bytes: [0; TEXT_MAX], price_len: 0, size_len: 0 };

    /// Takes the texts of a change. Written where it stays: made elsewhere and moved, it would be waited for.
    #[inline]
    fn take(&mut self, change: &Change, message: &[u8]) {
        let (price, size) = (change.price_text(message), change.size_text(message));
        (self.price_len, self.size_len) = (price.len() as u8, size.len() as u8);
        let short = |at: u32| message.get(at as usize..)?.first_chunk::<SHORT>();
        if price.len() <= SHORT
            && size.len() <= SHORT
            && let (Some(price_16), Some(size_16)) = (short(change.price_at), short(change.size_at))
        {
            self.bytes[..SHORT].copy_from_slice(price_16);
            self.bytes[price.len()..price.len() + SHORT].copy_from_slice(size_16);
            return;
        }
        self.bytes[..price.len()].copy_from_slice(price);
        self.bytes[price.len()..price.len() + size.len()].copy_from_slice(size);
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
    ranks: Vec<u64>,
    /// Where the texts of each rank are.
    places: Vec<u32>,
    texts: Vec<Texts>,
    /// Places that nobody has.
    free: Vec<u32>,
}

impl Half {
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn clear(&mut self) {
        self.ranks.clear();
        self.places.clear();
        self.texts.clear();
        self.free.clear();
    }

    /// The rank of the best level.
    pub(super) fn best(&self) -> Option<u64> {
        self.ranks.last().copied()
    }

    /// Makes the unit smaller: each rank is the rank of `ask ? !price : price`, and the price becomes `factor` times as
    /// many units. False: one of them would be too many, and nothing is to be used any more.
    pub(super) fn rescale(&mut self, factor: u64, ask: bool) -> bool {
        self.ranks.iter_mut().all(|rank| {
            let price = if ask { !*rank } else { *rank };
            let Some(price) = price.checked_mul(factor) else { return false };
            *rank = if ask { !price } else { price };
            true
        })
    }

    /// Sets the size at a price.
    #[inline]
    pub(super) fn set(&mut self, change: &Change, message: &[u8]) {
        let at = self.find(change.rank).unwrap_or_else(|at| {
            self.ranks.insert(at, change.rank);
            let place = self.take_place();
            self.places.insert(at, place);
            at
        });
        self.texts[self.places[at] as usize].take(change, message);
    }

    /// Removes a price; it need not be there.
    #[inline]
    pub(super) fn remove(&mut self, rank: u64) {
        if let Ok(at) = self.find(rank) {
            self.ranks.remove(at);
            self.free.push(self.places.remove(at));
        }
    }

    /// Merges changes that are ascending by rank; of equal ones the last counts. Only the levels above the least of
    /// them are touched.
    pub(super) fn merge(&mut self, changes: &[&Change], message: &[u8]) {
        let Some(least) = changes.first().map(|change| change.rank) else { return };
        let from = self.find(least).unwrap_or_else(|at| at);
        let ranks = self.ranks.split_off(from);
        let places = self.places.split_off(from);
        let mut before = ranks.into_iter().zip(places).peekable();
        let mut changes = changes.iter().peekable();
        while let Some(change) = changes.next() {
            let rank = change.rank;
            while let Some((kept, place)) = before.next_if(|(kept, _)| *kept < rank) {
                self.ranks.push(kept);
                self.places.push(place);
            }
            if changes.peek().is_some_and(|next| next.rank == rank) {
                continue;
            }
            self.free.extend(before.next_if(|(kept, _)| *kept == rank).map(|(_, place)| place));
            if !change.gone {
                self.add(change, message);
            }
        }
        for (kept, place) in before {
            self.ranks.push(kept);
            self.places.push(place);
        }
    }

    /// Adds a level above all others. False: it is not above.
    pub(super) fn push(&mut self, change: &Change, message: &[u8]) -> bool {
        let above = self.best().is_none_or(|best| best < change.rank);
        if above {
            self.add(change, message);
        }
        above
    }

    fn add(&mut self, change: &Change, message: &[u8]) {
        self.ranks.push(change.rank);
        let place = self.take_place();
        self.places.push(place);
        self.texts[place as usize].take(change, message);
    }

    /// A place for texts.
    #[inline]
    fn take_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.texts.push(Texts::NONE);
            // Books have a bound far below that.
            u32::try_from(self.texts.len() - 1).expect("a book has fewer levels")
        })
    }

    /// Keeps the best levels.
    pub(super) fn truncate(&mut self, depth: usize) {
        let gone = self.len().saturating_sub(depth);
        if gone > 0 {
            self.ranks.drain(..gone);
            self.free.extend(self.places.drain(..gone));
        }
    }

    /// The levels, best first.
    pub(super) fn best_first(&self) -> impl DoubleEndedIterator<Item = &Texts> + ExactSizeIterator {
        self.places.iter().rev().map(|place| &self.texts[*place as usize])
    }

    /// Where a rank is or would be. Looks from the best level outwards in growing steps, then in between.
    #[inline]
    fn find(&self, rank: u64) -> Result<usize, usize> {
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
