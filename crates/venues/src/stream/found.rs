//! What a walk has found: where values stand in a frame, and what they say.

use std::borrow::Cow;

use super::scan;
use crate::words;

/// How many different pointers one socket's frames may be read by: a bit each.
pub(super) const SLOTS_MAX: usize = 64;

/// Which of a socket's values: an index into what a walk has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(pub(super) u8);

impl Slot {
    pub(super) fn bit(self) -> u64 {
        1 << self.0
    }
}

/// What a walk has found: places in the frame, by slot.
#[derive(Debug)]
pub(super) struct Found {
    /// A bit for each slot that is filled.
    pub(super) mask: u64,
    places: [Place; SLOTS_MAX],
    /// The places of pointers that name several values, in the frame's order.
    pub(super) many: Vec<(Slot, Place)>,
}

/// Where a value is. A text's quotes belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) escaped: bool,
}

/// So many values of pointers with `*` are noted in a frame; the rest of them go unnoticed.
const MANY_MAX: usize = 65_536;

impl Found {
    pub(super) fn new() -> Self {
        Self { mask: 0, places: [Place::default(); SLOTS_MAX], many: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.mask = 0;
        self.many.clear();
    }

    #[inline(always)]
    pub(super) fn set(&mut self, slot: Slot, place: Place) {
        self.mask |= slot.bit();
        self.places[usize::from(slot.0)] = place;
    }

    #[inline]
    pub(super) fn push(&mut self, slot: Slot, place: Place) {
        if self.mask & slot.bit() == 0 {
            self.set(slot, place);
        }
        if self.many.len() < MANY_MAX {
            self.many.push((slot, place));
        }
    }

    #[inline(always)]
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.mask & slot.bit() != 0
    }

    #[inline(always)]
    pub(super) fn place(&self, slot: Slot) -> Option<Place> {
        self.has(slot).then(|| self.places[usize::from(slot.0)])
    }

    /// How many elements were counted.
    pub(super) fn count(&self, slot: Slot) -> Option<u32> {
        self.place(slot).map(|place| place.start)
    }

    /// The value as it stands in the frame.
    #[inline(always)]
    pub(super) fn value<'m>(&self, slot: Slot, frame: &'m str) -> Option<Value<'m>> {
        Some(self.place(slot)?.value(frame))
    }
}

impl Place {
    #[inline(always)]
    pub(super) fn value(self, frame: &str) -> Value<'_> {
        Value { raw: &frame[self.start as usize..self.end as usize], escaped: self.escaped }
    }
}

/// A value of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'m> {
    /// As it stands there, quotes included.
    pub(super) raw: &'m str,
    escaped: bool,
}

impl<'m> Value<'m> {
    /// The inside of a text, escapes unread; or a number, or a word, as written. Not what holds others.
    #[inline(always)]
    pub(super) fn plain(self) -> Option<&'m str> {
        match self.raw.as_bytes().first() {
            Some(b'"') => Some(&self.raw[1..self.raw.len() - 1]),
            Some(b'{' | b'[') | None => None,
            _ => Some(self.raw),
        }
    }

    /// The same with its escapes read.
    pub(super) fn text(self) -> Option<Cow<'m, str>> {
        let plain = self.plain()?;
        Some(if self.escaped { scan::unescaped(plain) } else { Cow::Borrowed(plain) })
    }

    pub(super) fn is_escaped(self) -> bool {
        self.escaped
    }

    /// A whole number from 0 on, written as a number or as a text.
    #[inline]
    pub(super) fn number(self) -> Option<u64> {
        digits(self.plain()?.as_bytes())
    }

    /// Likewise, and it may be below 0.
    #[inline]
    pub(super) fn signed(self) -> Option<i64> {
        let text = self.plain()?.as_bytes();
        match text.strip_prefix(b"-") {
            Some(rest) => Some(-i64::try_from(digits(rest)?).ok()?),
            None => i64::try_from(digits(text)?).ok(),
        }
    }
}

/// A number of nothing but digits.
#[inline]
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.len() != 20 {
        return words::number(text);
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}
