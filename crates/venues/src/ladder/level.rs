//! Levels spelled like one before them, read without looking for anything: where their digits are is known.

use std::ops::Range;

use super::amount::{POWERS, Price};
use super::scan::Change;
use crate::mould::{Mould, SPAN};
use crate::words::{ones, value_of, word_at};

/// A level that was read with care, as a model for others.
#[derive(Debug, Default)]
pub(super) struct LevelMould {
    mould: Mould,
    price: Digits,
    size: Digits,
    /// What all that are like it have in common; its places are those within a level.
    common: Change,
    /// What a digit before the point is worth in the last one behind it.
    power: u64,
}

/// Where the digits of an amount are in a level: some before the point, and perhaps some behind it.
#[derive(Debug, Clone, Copy, Default)]
struct Digits {
    whole: Piece,
    decimals: Piece,
    /// What must not stand first: a zero, if other digits follow.
    never: u8,
}

/// At most eight digits.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    at: usize,
    /// Which bytes of the word that begins there are its own.
    mask: u64,
    /// So far the last digit is from being the word's last byte.
    shift: u32,
}

impl LevelMould {
    /// Whether the level that begins here is like the model.
    #[inline(always)]
    pub(super) fn fits(&self, chunk: &[u8; SPAN]) -> bool {
        self.mould.fits(chunk)
    }

    /// How long it is.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.mould.len()
    }

    /// A level that fits and stands at `at`. Nothing: an amount of it is no number.
    #[inline(always)]
    pub(super) fn read(&self, chunk: &[u8; SPAN], at: usize) -> Option<Change> {
        let (whole, decimals) = self.price.read(chunk)?;
        let (size_whole, size_decimals) = self.size.read(chunk)?;
        let value = |ones: u64, piece: &Piece| value_of(ones.wrapping_shl(piece.shift));
        Some(Change {
            mantissa: value(whole, &self.price.whole) * self.power + value(decimals, &self.price.decimals),
            gone: size_whole | size_decimals == 0,
            price_at: at as u32 + self.common.price_at,
            size_at: at as u32 + self.common.size_at,
            ..self.common
        })
    }

    /// Makes a level the model, if it can be one. `price` and `size` are where they stand in it; besides them it has
    /// texts only, which may have any digits.
    pub(super) fn cast(&mut self, level: &[u8], price: Range<usize>, size: Range<usize>) {
        let digits = |range: &Range<usize>| Digits::new(level.get(range.clone())?, range.start);
        if let (Some(price_digits), Some(size_digits)) = (digits(&price), digits(&size))
            && self.mould.cast(level)
        {
            (self.price, self.size) = (price_digits, size_digits);
            let places = price.end.saturating_sub(price_digits.decimals.at) as u8;
            self.power = POWERS[usize::from(places)];
            self.common = Change::new(Price { mantissa: 0, places }, price, size, false, false, 0);
        }
    }
}

impl Digits {
    fn new(text: &[u8], at: usize) -> Option<Self> {
        let whole = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
        let decimals = text.len().saturating_sub(whole + 1);
        let plain = text.iter().enumerate().all(|(at, byte)| at == whole || byte.is_ascii_digit());
        (plain && whole > 0).then_some(Self {
            whole: Piece::new(at, whole)?,
            decimals: Piece::new(at + whole + 1, decimals)?,
            never: if whole > 1 { b'0' } else { 0 },
        })
    }

    /// The digits before the point and those behind it, as numbers.
    #[inline(always)]
    fn read(&self, chunk: &[u8; SPAN]) -> Option<(u64, u64)> {
        let whole = word_at(chunk, self.whole.at)?;
        let decimals = word_at(chunk, self.decimals.at)?;
        let plain = whole as u8 != self.never;
        plain.then_some((ones(whole) & self.whole.mask, ones(decimals) & self.decimals.mask))
    }
}

impl Piece {
    fn new(at: usize, digits: usize) -> Option<Self> {
        let (mask, shift) = match digits {
            0 => (0, 0),
            1..=8 => (u64::MAX >> (64 - 8 * digits), 64 - 8 * digits as u32),
            _ => return None,
        };
        Some(Self { at, mask, shift })
    }
}

#[cfg(test)]
mod tests {
    use super::super::amount::read_size;
    use super::*;
    use crate::mould::chunk_at;

    fn change(mould: &LevelMould, text: &str) -> Option<Change> {
        let mut end = [0; SPAN];
        let chunk = chunk_at(text.as_bytes(), 0, &mut end).filter(|chunk| mould.fits(chunk))?;
        mould.read(chunk, 0)
    }

    /// A level `[price,size…` in quotes or without: the texts, and where they stand.
    fn level(price: &str, size: &str, quote: &str, behind: &str) -> (String, Range<usize>, Range<usize>) {
        let start = 1 + quote.len();
        let size_at = start + price.len() + 2 * quote.len() + 1;
        let text = format!("[{quote}{price}{quote},{quote}{size}{quote}{behind}]");
        (text, start..start + price.len(), size_at..size_at + size.len())
    }

    #[test]
    fn a_level_like_the_model_is_read_as_with_care() {
        let amounts =
            ["0", "7", "61837.64000000", "0.5", "0.00000000", "12345678.12345678", "90.10", "00.1", "100"];
        let pairs = amounts.iter().flat_map(|price| amounts.iter().map(move |size| (*price, *size)));
        let mut read = 0;
        for ((price, size), quote) in pairs.flat_map(|pair| [(pair, "\""), (pair, "")]) {
            for behind in ["", r#","0","3""#] {
                // A model of other digits.
                let other = |text: &str| text.replace(['1', '9'], "8").replace('0', "4");
                let (model, price_at, size_at) = level(&other(price), &other(size), quote, behind);
                let mut mould = LevelMould::default();
                mould.cast(model.as_bytes(), price_at.clone(), size_at.clone());
                let text = level(price, size, quote, behind).0;
                let Some(change) = change(&mould, &text) else { continue };
                read += 1;
                assert_eq!(mould.len(), text.len());
                let (with_care, price_end) = Price::read(text.as_bytes(), price_at.start).unwrap();
                assert_eq!((change.price(), price_end), (with_care, price_at.end), "{text}");
                let zero = read_size(text.as_bytes(), size_at.start).unwrap();
                assert_eq!((change.gone, size_at.end), zero, "{text}");
                assert_eq!(change.price_text(text.as_bytes()), price.as_bytes());
                assert_eq!(change.size_text(text.as_bytes()), size.as_bytes());
            }
        }
        // All but those with zeros in front, and the longest.
        assert!(read > 200, "{read}");
    }

    #[test]
    fn what_is_no_number_of_few_digits_is_no_model() {
        for price in ["123456789", "1.123456789", "1e5", ".5", "-1", ""] {
            let (text, price_at, size_at) = level(price, "1", "\"", "");
            let mut mould = LevelMould::default();
            mould.cast(text.as_bytes(), price_at, size_at);
            assert!(change(&mould, &text).is_none(), "{text}");
        }
    }
}
