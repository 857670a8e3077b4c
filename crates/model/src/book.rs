//! An order book, and what is odd about it.
//!
//! Whatever order a venue sends its levels in, here the best comes first: bids fall, asks rise. Nothing is thrown away
//! for being odd. A crossed book or a level that stands twice is kept as it came and carries a flag.

use std::cmp::Ordering;
use std::fmt;

use crate::Decimal;

/// A price and how much is offered there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The price.
    pub price: Decimal,
    /// The size, in whole units of what is traded.
    pub size: Decimal,
}

/// The whole of a book at one moment, best level first on both sides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    /// Who wants to buy, highest price first.
    pub bids: Vec<Level>,
    /// Who wants to sell, lowest price first.
    pub asks: Vec<Level>,
}

impl Book {
    /// Puts both sides best first and says what was odd. A side may come in either direction; one that goes up and down
    /// is sorted and flagged. `price_below` is the price no level may reach, where the venue has one.
    pub fn arrange(bids: Vec<Level>, asks: Vec<Level>, price_below: Option<&Decimal>) -> (Self, BookFlags) {
        let mut book = Self { bids, asks };
        let mut flags = BookFlags::default();
        flags |= best_first(&mut book.bids, |a, b| b.price.cmp(&a.price));
        flags |= best_first(&mut book.asks, |a, b| a.price.cmp(&b.price));
        for level in book.bids.iter().chain(&book.asks) {
            flags |= oddity(level, price_below);
        }
        if let (Some(bid), Some(ask)) = (book.bids.first(), book.asks.first())
            && bid.price >= ask.price
        {
            flags |= BookFlags::CROSSED;
        }
        (book, flags)
    }
}

fn best_first(side: &mut [Level], order: impl Fn(&Level, &Level) -> Ordering) -> BookFlags {
    let mut flags = BookFlags::default();
    if !side.is_sorted_by(|a, b| order(a, b).is_le()) {
        if side.is_sorted_by(|a, b| order(a, b).is_ge()) {
            side.reverse();
        } else {
            flags |= BookFlags::UNSORTED;
            side.sort_by(&order);
        }
    }
    if side.windows(2).any(|pair| pair[0].price == pair[1].price) {
        flags |= BookFlags::DUPLICATE_LEVEL;
    }
    flags
}

fn oddity(level: &Level, price_below: Option<&Decimal>) -> BookFlags {
    let mut flags = BookFlags::default();
    if level.size.is_negative() {
        flags |= BookFlags::NEGATIVE_SIZE;
    } else if level.size.is_zero() {
        flags |= BookFlags::ZERO_SIZE;
    }
    let too_low = level.price.is_negative() || level.price.is_zero();
    if too_low || price_below.is_some_and(|limit| level.price >= *limit) {
        flags |= BookFlags::PRICE_RANGE;
    }
    flags
}

/// What is odd about a book. None of it makes a book worthless; all of it is written beside the levels.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BookFlags(u8);

impl BookFlags {
    /// The best bid is not below the best ask.
    pub const CROSSED: Self = Self(1);
    /// The levels of a side came in no order; they were sorted.
    pub const UNSORTED: Self = Self(2);
    /// A price stands more than once on one side.
    pub const DUPLICATE_LEVEL: Self = Self(4);
    /// A size is less than zero.
    pub const NEGATIVE_SIZE: Self = Self(8);
    /// A size is zero, which a full book should not hold.
    pub const ZERO_SIZE: Self = Self(16);
    /// A price is zero, negative, or as high as this venue's prices never are.
    pub const PRICE_RANGE: Self = Self(32);
    /// The venue's time is not a time.
    pub const TIME: Self = Self(64);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::CROSSED, "crossed"),
        (Self::UNSORTED, "unsorted"),
        (Self::DUPLICATE_LEVEL, "duplicate_level"),
        (Self::NEGATIVE_SIZE, "negative_size"),
        (Self::ZERO_SIZE, "zero_size"),
        (Self::PRICE_RANGE, "price_range"),
        (Self::TIME, "time"),
    ];

    /// Whether nothing is odd.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of these are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of what is set, as records and metrics spell them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl std::ops::BitOr for BookFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for BookFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for BookFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0.47x120 0.46x5`
    fn side(text: &str) -> Vec<Level> {
        text.split_whitespace()
            .map(|level| {
                let (price, size) = level.split_once('x').unwrap();
                Level { price: price.parse().unwrap(), size: size.parse().unwrap() }
            })
            .collect()
    }

    fn prices(side: &[Level]) -> String {
        side.iter().map(|level| level.price.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn check(bids: &str, asks: &str, arranged: &str, flags: &str) {
        let one = "1".parse().unwrap();
        let (book, odd) = Book::arrange(side(bids), side(asks), Some(&one));
        assert_eq!(format!("{} | {}", prices(&book.bids), prices(&book.asks)), arranged);
        assert_eq!(odd.names().collect::<Vec<_>>().join(" "), flags, "{bids} | {asks}");
    }

    #[test]
    fn both_directions_become_best_first_and_neither_is_odd() {
        check("0.46x1 0.47x1", "0.50x1 0.49x1", "0.47 0.46 | 0.49 0.50", "");
        check("0.47x1 0.46x1", "0.49x1 0.50x1", "0.47 0.46 | 0.49 0.50", "");
        check("", "", " | ", "");
    }

    #[test]
    fn what_is_odd_is_kept_and_said() {
        check("0.46x1 0.48x1 0.47x1", "", "0.48 0.47 0.46 | ", "unsorted");
        check("0.5x1", "0.5x1", "0.5 | 0.5", "crossed");
        check("0.6x1", "0.5x1", "0.6 | 0.5", "crossed");
        check("0.50x1 0.5x2", "", "0.50 0.5 | ", "duplicate_level");
        check("0.5x1 0.6x1 0.5x2", "", "0.6 0.5 0.5 | ", "unsorted duplicate_level");
        check("0.5x-1 0.4x0", "", "0.5 0.4 | ", "negative_size zero_size");
        check("0x1", "1x1", "0 | 1", "price_range");
        check("-0.1x1", "1e999x1", "-0.1 | 1e999", "price_range");
    }
}
