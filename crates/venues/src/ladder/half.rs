//! One side of a book: its levels in order, the best at the end, where most changes happen.
//!
//! Ranks lie in a vector of their own, so that looking for a price touches little memory, and texts stay where they are:
//! a level that comes moves only a few bytes of each level above it. One that goes moves nothing: its rank stays and is
//! marked, since most prices that go come again soon. The best rank is never a marked one, and when too many are marked
//! they are swept out. A side is always ascending by rank; the rank of a bid is its price in units and that of an ask is
//! the complement, so that the best is the greatest on both.

use super::scan::{Change, TEXT_MAX};

/// The texts of a level, price and then size, perhaps with what stood between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    bytes: [u8; TEXT_MAX],
    price_len: u8,
    size_at: u8,
    size_len: u8,
}

/// Texts that are not further apart are copied as so many bytes, whatever their lengths: what is behind them does not
/// matter.
const SHORT: usize = 32;

impl Texts {
    const NONE: Self = Self { bytes: [0; TEXT_MAX], price_len: 0, size_at: 0, size_len: 0 };

    /// Takes the texts of a change. Written where it stays: made elsewhere and moved, it would be waited for.
    #[inline]
    fn take(&mut self, change: &Change, message: &[u8]) {
        (self.price_len, self.size_len) = (change.price_len, change.size_len);
        let size_at = change.size_at.wrapping_sub(change.price_at);
        let both = message.get(change.price_at as usize..).and_then(|rest| rest.first_chunk::<SHORT>());
        if size_at as usize <= SHORT - usize::from(change.size_len).min(SHORT)
            && let Some(both) = both
        {
            self.size_at = size_at as u8;
            self.bytes[..SHORT].copy_from_slice(both);
        } else {
            self.take_each(change, message);
        }
    }

    #[cold]
    fn take_each(&mut self, change: &Change, message: &[u8]) {
        let (price, size) = (change.price_text(message), change.size_text(message));
        self.size_at = change.price_len;
        self.bytes[..price.len()].copy_from_slice(price);
        self.bytes[price.len()..price.len() + size.len()].copy_from_slice(size);
    }

    pub(super) fn price(&self) -> &[u8] {
        &self.bytes[..usize::from(self.price_len)]
    }

    pub(super) fn size(&self) -> &[u8] {
        &self.bytes[usize::from(self.size_at)..][..usize::from(self.size_len)]
    }
}

/// One side of a book.
#[derive(Debug, Clone, Default)]
pub(super) struct Half {
    ranks: Vec<u64>,
    /// Where the texts of each rank are, and whether it is gone.
    places: Vec<u32>,
    texts: Vec<Texts>,
    /// Places that nobody has.
    free: Vec<u32>,
    /// How many ranks are gone.
    gone: usize,
}

/// The mark of a rank that is gone, beside its place.
const GONE: u32 = 1 << 31;
/// So many ranks that are gone do no harm; of more than these at most half of all are.
const GONE_MIN: usize = 64;
/// Most changes are among so many of the best levels. A power of two.
const NEAR: usize = 64;

impl Half {
    pub(super) fn len(&self) -> usize {
        self.ranks.len() - self.gone
    }

    pub(super) fn clear(&mut self) {
        self.ranks.clear();
        self.places.clear();
        self.texts.clear();
        self.free.clear();
        self.gone = 0;
    }

    /// The rank of the best level.
    pub(super) fn best(&self) -> Option<u64> {
        self.ranks.last().copied()
    }

    /// Makes the unit smaller: each rank is the rank of `ask ? !price : price`, and the price becomes `factor` times as
    /// many units. False: one of them would be too many, and nothing is to be used any more.
    pub(super) fn rescale(&mut self, factor: u64, ask: bool) -> bool {
        self.sweep();
        self.ranks.iter_mut().all(|rank| {
            let price = if ask { !*rank } else { *rank };
            let Some(price) = price.checked_mul(factor) else { return false };
            *rank = if ask { !price } else { price };
            true
        })
    }

    /// Sets the size at a price, or removes the price; it need not be there.
    #[inline]
    pub(super) fn apply(&mut self, change: &Change, message: &[u8]) {
        match self.find(change.rank()) {
            Ok(at) => self.set(at, change, message),
            Err(at) if !change.gone => self.insert(at, change, message),
            Err(_) => {}
        }
    }

    /// Both ways are one, without a branch: which of them it is nobody can foresee.
    #[inline]
    fn set(&mut self, at: usize, change: &Change, message: &[u8]) {
        let place = self.places[at] & !GONE;
        let mark = u32::from(change.gone) * GONE;
        self.gone = self.gone + usize::from(change.gone) - usize::from(self.places[at] & GONE != 0);
        self.places[at] = place | mark;
        self.texts[place as usize].take(change, message);
        let is_best = at + 1 == self.ranks.len();
        if change.gone & (is_best | self.has_too_many_gone()) {
            self.tidy();
        }
    }

    fn insert(&mut self, at: usize, change: &Change, message: &[u8]) {
        let takes_over = self.places.get(at).is_some_and(|place| place & GONE != 0);
        if takes_over {
            self.ranks[at] = change.rank();
            self.set(at, change, message);
            return;
        }
        let place = self.take_place();
        self.ranks.insert(at, change.rank());
        self.places.insert(at, place);
        self.texts[place as usize].take(change, message);
    }

    /// Takes away what is gone: above the best level, and everywhere if it is too much.
    fn tidy(&mut self) {
        while self.places.last().is_some_and(|place| place & GONE != 0) {
            self.free.extend(self.places.pop().map(|place| place & !GONE));
            self.ranks.pop();
            self.gone -= 1;
        }
        if self.has_too_many_gone() {
            self.sweep();
        }
    }

    #[inline]
    fn has_too_many_gone(&self) -> bool {
        self.gone > GONE_MIN + self.ranks.len() / 2
    }

    /// Takes away all that is gone.
    fn sweep(&mut self) {
        if self.gone == 0 {
            return;
        }
        let mut kept = 0;
        for at in 0..self.ranks.len() {
            let place = self.places[at];
            if place & GONE != 0 {
                self.free.push(place & !GONE);
            } else {
                (self.ranks[kept], self.places[kept]) = (self.ranks[at], place);
                kept += 1;
            }
        }
        self.ranks.truncate(kept);
        self.places.truncate(kept);
        self.gone = 0;
    }

    /// Merges changes that are ascending by rank; of equal ones the last counts. Only the levels above the least of
    /// them are touched.
    pub(super) fn merge(&mut self, changes: &[&Change], message: &[u8]) {
        let Some(least) = changes.first().map(|change| change.rank()) else { return };
        self.sweep();
        let from = self.find(least).unwrap_or_else(|at| at);
        let ranks = self.ranks.split_off(from);
        let places = self.places.split_off(from);
        let mut before = ranks.into_iter().zip(places).peekable();
        let mut changes = changes.iter().peekable();
        while let Some(change) = changes.next() {
            let rank = change.rank();
            while let Some((kept, place)) = before.next_if(|(kept, _)| *kept < rank) {
                self.ranks.push(kept);
                self.places.push(place);
            }
            if changes.peek().is_some_and(|next| next.rank() == rank) {
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
        let above = self.best().is_none_or(|best| best < change.rank());
        if above {
            self.add(change, message);
        }
        above
    }

    fn add(&mut self, change: &Change, message: &[u8]) {
        self.ranks.push(change.rank());
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
        let mut left = self.len().saturating_sub(depth);
        if left == 0 {
            return;
        }
        let mut cut = 0;
        while left > 0 {
            let is_gone = self.places[cut] & GONE != 0;
            self.gone -= usize::from(is_gone);
            left -= usize::from(!is_gone);
            cut += 1;
        }
        self.ranks.drain(..cut);
        self.free.extend(self.places.drain(..cut).map(|place| place & !GONE));
    }

    /// The levels, best first.
    pub(super) fn best_first(&self) -> BestFirst<'_> {
        BestFirst { half: self, at: self.places.len(), left: self.len() }
    }

    /// The levels, best last.
    pub(super) fn best_last(&self) -> impl Iterator<Item = &Texts> {
        let there = self.places.iter().filter(|place| *place & GONE == 0);
        there.map(|place| &self.texts[*place as usize])
    }

    /// Where a rank is or would be. Either way takes as many steps whatever is looked for, so that they can be foreseen.
    #[inline]
    fn find(&self, rank: u64) -> Result<usize, usize> {
        match self.ranks.last_chunk::<NEAR>() {
            Some(best) if best[0] <= rank => {
                let at = last_not_above(best, rank);
                let before = self.ranks.len() - NEAR;
                if best[at] == rank { Ok(before + at) } else { Err(before + at + 1) }
            }
            Some(_) => self.ranks[..self.ranks.len() - NEAR].binary_search(&rank),
            None => self.ranks.binary_search(&rank),
        }
    }
}

/// The last of these that is not above `rank`; the first is not.
#[inline(always)]
fn last_not_above(ranks: &[u64; NEAR], rank: u64) -> usize {
    let mut at = 0;
    let mut step = NEAR / 2;
    while step > 0 {
        let next = (at + step) % NEAR;
        at = std::hint::select_unpredictable(ranks[next] <= rank, next, at);
        step /= 2;
    }
    at
}

/// The levels of a side, best first.
#[derive(Debug, Clone)]
pub(super) struct BestFirst<'h> {
    half: &'h Half,
    /// All from here on were there.
    at: usize,
    left: usize,
}

impl<'h> Iterator for BestFirst<'h> {
    type Item = &'h Texts;

    fn next(&mut self) -> Option<&'h Texts> {
        self.left = self.left.checked_sub(1)?;
        loop {
            self.at -= 1;
            let place = self.half.places[self.at];
            if place & GONE == 0 {
                return Some(&self.half.texts[place as usize]);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for BestFirst<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::amount::Price;
    use super::*;

    /// A level as it may stand in a message, and the change it means.
    fn change(price: u64, size: u64) -> (String, Change) {
        let (price_text, size_text) = (price.to_string(), size.to_string());
        let message = format!("[\"{price_text}\",\"{size_text}\"],[\"some\",\"more\"],[\"some\",\"more\"]");
        let size_at = 5 + price_text.len();
        let (price_at, size_at) = (2..2 + price_text.len(), size_at..size_at + size_text.len());
        let price = Price { mantissa: price, places: 0 };
        (message, Change::new(price, price_at, size_at, false, size == 0, 0))
    }

    fn assert_is(half: &Half, model: &BTreeMap<u64, u64>) {
        let shown = |level: &Texts| [level.price(), level.size()].map(|text| text.escape_ascii().to_string());
        let ours: Vec<_> = half.best_first().map(shown).collect();
        let theirs: Vec<_> =
            model.iter().rev().map(|(price, size)| [price, size].map(u64::to_string)).collect();
        assert_eq!(ours, theirs);
        assert_eq!(half.best_last().count(), model.len());
        assert_eq!((half.len(), half.best_first().len()), (model.len(), model.len()));
        assert_eq!(half.best(), model.keys().next_back().copied());
        assert!(half.gone <= GONE_MIN + half.ranks.len() / 2 + 1, "{} of {}", half.gone, half.ranks.len());
        assert_eq!(half.texts.len(), half.ranks.len() + half.free.len());
    }

    #[test]
    fn a_side_is_what_a_map_would_be_whatever_comes_and_goes() {
        let mut random = StdRng::seed_from_u64(3);
        for (prices, gone_in) in [(40, 2), (400, 3), (4_000, 2), (4_000, 20)] {
            let (mut half, mut model) = (Half::default(), BTreeMap::new());
            for round in 0..6_000 {
                let size =
                    if random.random_range(0..gone_in) == 0 { 0 } else { random.random_range(1..5_000) };
                let price = random.random_range(1..prices);
                let (message, change) = change(price, size);
                half.apply(&change, message.as_bytes());
                match size {
                    0 => model.remove(&price),
                    size => model.insert(price, size),
                };
                if round % 500 == 499 {
                    let depth = model.len() * 3 / 4;
                    half.truncate(depth);
                    model = model.into_iter().rev().take(depth).collect();
                }
                if round % 50 == 0 {
                    assert_is(&half, &model);
                }
            }
            // A whole side goes, the best first: nothing is left of it.
            for price in model.keys().rev() {
                let (message, change) = change(*price, 0);
                half.apply(&change, message.as_bytes());
            }
            assert_is(&half, &BTreeMap::new());
        }
    }

    #[test]
    fn what_is_gone_is_not_scaled_and_not_merged() {
        let mut half = Half::default();
        for (price, size) in [(5, 1), (u64::MAX / 2, 1), (7, 1), (u64::MAX / 2, 0), (9, 1), (7, 0)] {
            let (message, change) = change(price, size);
            half.apply(&change, message.as_bytes());
        }
        assert!(half.rescale(1_000, false));
        assert_eq!((half.ranks.as_slice(), half.len()), (&[5_000, 9_000][..], 2));
        let (message, change) = change(6_000, 2);
        half.merge(&[&change], message.as_bytes());
        assert_eq!(half.ranks, [5_000, 6_000, 9_000]);
    }
}
