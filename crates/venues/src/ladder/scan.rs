//! What one pass over a message finds: the members the plan looks for, and the levels.
//!
//! Nothing is applied while reading, so a message that turns out to be broken at its last byte has changed nothing.
//! Memory is used again from message to message. Strings are not unescaped; a noted member that has a backslash is
//! marked, and whoever compares it does the rest.

use std::ops::Range;

use super::amount::{Price, read_size};
use super::level::LevelMould;
use super::plan::{List, Reading, Side};
use super::verdict::{Unreadable, Why};
use super::walk::Walk;
use crate::mould::Two;

/// Characters of a price and a size together, at most.
pub(super) const TEXT_MAX: usize = 54;

/// A piece of the message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Whether it is there at all.
    pub(super) there: bool,
    /// Whether it is a string with a backslash in it.
    pub(super) escaped: bool,
}

impl Span {
    /// Its bytes, without quotes.
    #[inline]
    pub(super) fn of(self, message: &[u8]) -> &[u8] {
        &message[self.start as usize..self.end as usize]
    }

    pub(super) fn start(self) -> usize {
        self.start as usize
    }
}

/// One level that a message names.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    /// Its price is `mantissa` × 10^-`places`.
    pub(super) mantissa: u64,
    pub(super) price_at: u32,
    pub(super) size_at: u32,
    /// Which of the items it belongs to.
    pub(super) item: u16,
    pub(super) places: u8,
    pub(super) price_len: u8,
    pub(super) size_len: u8,
    pub(super) ask: bool,
    /// Whether the size is zero.
    pub(super) gone: bool,
}

impl Change {
    /// Both texts together have at most `TEXT_MAX` bytes, in a message shorter than 4 GiB.
    #[inline]
    pub(super) fn new(
        price: Price,
        price_at: Range<usize>,
        size_at: Range<usize>,
        ask: bool,
        gone: bool,
        item: u16,
    ) -> Self {
        Self {
            mantissa: price.mantissa,
            places: price.places,
            price_at: price_at.start as u32,
            size_at: size_at.start as u32,
            item,
            price_len: price_at.len() as u8,
            size_len: size_at.len() as u8,
            ask,
            gone,
        }
    }

    #[inline]
    pub(super) fn price(self) -> Price {
        Price { mantissa: self.mantissa, places: self.places }
    }

    /// Its place on its side, once its price is in the book's unit: the best is the greatest.
    #[inline]
    pub(super) fn rank(self) -> u64 {
        if self.ask { !self.mantissa } else { self.mantissa }
    }

    #[inline]
    pub(super) fn price_text(self, message: &[u8]) -> &[u8] {
        &message[self.price_at as usize..][..usize::from(self.price_len)]
    }

    #[inline]
    pub(super) fn size_text(self, message: &[u8]) -> &[u8] {
        &message[self.size_at as usize..][..usize::from(self.size_len)]
    }
}

/// An item: a message, or a piece of one.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) scope: u8,
    /// The message it is in.
    pub(super) outer: u16,
    /// The lists of levels that were there.
    pub(super) lists: u64,
    /// What was wrong with one of them. Only matters if the item turns out to be of a book.
    pub(super) bad_list: Option<Unreadable>,
    /// Where its members begin among those of the message.
    pub(super) spans_at: u32,
}

/// What was found in a message.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) items: Vec<Item>,
    /// The members of the items, one item after another.
    pub(super) spans: Vec<Span>,
    pub(super) changes: Vec<Change>,
}

/// Changes for which memory is kept from message to message.
const CHANGES_KEPT: usize = 256;

impl Scan {
    /// Gives back what only a snapshot needed.
    pub(super) fn shrink(&mut self) {
        if self.changes.capacity() > 4 * CHANGES_KEPT {
            self.changes.clear();
            self.changes.shrink_to(CHANGES_KEPT);
        }
    }

    /// Reads a message. After an error nothing here is to be used.
    pub(super) fn read(
        &mut self,
        plan: &Reading,
        message: &str,
        moulds: &mut Two<LevelMould>,
    ) -> Result<(), Unreadable> {
        self.items.clear();
        self.spans.clear();
        self.changes.clear();
        if u32::try_from(message.len()).is_err() {
            return Err(Unreadable { why: Why::TooLarge, at: 0 });
        }
        let mut walk = Walk::new(message.as_bytes(), plan, self, moulds);
        walk.whole().map_err(|why| Unreadable { why, at: walk.at() })
    }

    /// The level of an item that is one. `list` says what its side is called.
    pub(super) fn single(
        message: &[u8],
        list: &List,
        price: Span,
        size: Span,
        side: Span,
    ) -> Result<Change, Unreadable> {
        let fail = |why, span: Span| Unreadable { why, at: span.start() };
        let at = |span: Span| span.start as usize..span.end as usize;
        let whole = |span: Span, end: usize| match span.there && end == span.end as usize {
            true => Ok(()),
            false => Err(fail(Why::NotANumber, span)),
        };
        let (price_read, end) = Price::read(message, price.start()).map_err(|why| fail(why, price))?;
        whole(price, end)?;
        let (gone, end) = read_size(message, size.start()).map_err(|why| fail(why, size))?;
        whole(size, end)?;
        let side = side_of(list, side.of(message)).ok_or(fail(Why::UnknownSide, side))?;
        if at(price).len() + at(size).len() > TEXT_MAX {
            return Err(fail(Why::TooLong, price));
        }
        if price_read.mantissa == 0 {
            return Err(fail(Why::PriceZero, price));
        }
        Ok(Change::new(price_read, at(price), at(size), side == Side::Ask, gone, 0))
    }
}

/// A message as text, or why it is none.
pub(super) fn as_text(message: &[u8]) -> Result<&str, Unreadable> {
    let fail = |error: std::str::Utf8Error| Unreadable { why: Why::NotJson, at: error.valid_up_to() };
    std::str::from_utf8(message).map_err(fail)
}

/// Which side a level is of, by its name.
pub(super) fn side_of(list: &List, text: &[u8]) -> Option<Side> {
    if list.bid.iter().any(|name| **name == *text) {
        Some(Side::Bid)
    } else if list.ask.iter().any(|name| **name == *text) {
        Some(Side::Ask)
    } else {
        None
    }
}
