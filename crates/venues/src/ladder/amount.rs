//! Prices and sizes: read from the venue's text, exact, never a float.
//!
//! A price is a whole number and how many of its digits are behind the point; a ladder makes all its prices whole
//! numbers of one unit, so that they compare as such whatever their spelling. Of a size only matters whether it is
//! zero. Both keep their text elsewhere.

use super::verdict::Why;
use crate::words::{digits_end, digits_first, number, ones, value_of, word_at};

/// Digits that are behind the point at most.
pub(super) const PLACES_MAX: u8 = 18;
/// Digits that always fit.
const DIGITS_MAX: usize = 19;

/// Powers of ten.
pub(super) const POWERS: [u64; PLACES_MAX as usize + 1] = {
    let mut powers = [1; PLACES_MAX as usize + 1];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// A price: `mantissa` × 10^-`places`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) mantissa: u64,
    pub(super) places: u8,
}

impl Price {
    /// Reads the price that begins at `start`, in JSON's spelling; where it has quotes they are the caller's. Gives
    /// back where it ends.
    #[inline(always)]
    pub(super) fn read(bytes: &[u8], start: usize) -> Result<(Self, usize), Why> {
        let (mut mantissa, point) = whole(bytes, start)?;
        let mut at = point;
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            if let Some(eight) = eight_digits(bytes, at) {
                mantissa = mantissa.wrapping_mul(100_000_000).wrapping_add(value_of(eight));
                at += 8;
            }
            while let Some(digit) = digit_at(bytes, at) {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
                at += 1;
            }
            if at == point + 1 {
                return Err(Why::NotANumber);
            }
        }
        let places = (at - point).saturating_sub(1);
        let short = point - start + places <= DIGITS_MAX && places <= usize::from(PLACES_MAX);
        if !short || matches!(bytes.get(at), Some(b'e' | b'E')) {
            let end = exponent_end(bytes, at)?;
            return Ok((Self::read_long(&bytes[start..end])?, end));
        }
        Ok((Self { mantissa, places: places as u8 }, at))
    }

    /// A price in a longer spelling, which [`Self::read`] has found sound.
    #[cold]
    fn read_long(text: &[u8]) -> Result<Self, Why> {
        let (digits, power) = match text.iter().position(|byte| byte | 0x20 == b'e') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &b"0"[..]),
        };
        let power: i32 =
            std::str::from_utf8(power).ok().and_then(|text| text.parse().ok()).ok_or(Why::TooPrecise)?;
        let decimals =
            digits.iter().position(|byte| *byte == b'.').map_or(0, |point| digits.len() - point - 1);
        let mut value = 0_u128;
        for digit in digits.iter().filter(|byte| byte.is_ascii_digit()) {
            let next = value.checked_mul(10).and_then(|value| value.checked_add(u128::from(digit - b'0')));
            value = next.ok_or(Why::TooPrecise)?;
        }
        if value == 0 {
            return Ok(Self { mantissa: 0, places: 0 });
        }
        let mut places = i64::try_from(decimals).map_err(|_| Why::TooPrecise)? - i64::from(power);
        while places > 0 && value.is_multiple_of(10) {
            value /= 10;
            places -= 1;
        }
        while places < 0 && value <= u128::from(u64::MAX) {
            value *= 10;
            places += 1;
        }
        let places = u8::try_from(places).ok().filter(|places| *places <= PLACES_MAX);
        match (u64::try_from(value), places) {
            (Ok(mantissa), Some(places)) => Ok(Self { mantissa, places }),
            _ => Err(Why::TooPrecise),
        }
    }

    /// In units of 10^-`places`, if that is a whole number and not too large.
    #[inline]
    pub(super) fn in_units(self, places: u8) -> Option<u64> {
        if self.places == places {
            return Some(self.mantissa);
        }
        if self.places < places {
            return self.mantissa.checked_mul(POWERS[usize::from(places - self.places)]);
        }
        let power = POWERS[usize::from(self.places - places)];
        self.mantissa.is_multiple_of(power).then(|| self.mantissa / power)
    }

    /// The fewest places that hold it.
    pub(super) fn places_needed(mut self) -> u8 {
        while self.places > 0 && self.mantissa.is_multiple_of(10) {
            self.mantissa /= 10;
            self.places -= 1;
        }
        self.places
    }
}

/// Reads the size that begins at `start`, likewise: whether it is zero, and where it ends.
#[inline(always)]
pub(super) fn read_size(bytes: &[u8], start: usize) -> Result<(bool, usize), Why> {
    // Wrapping may make zero of a long number; so the digits are gathered, not added up.
    let mut at = start;
    let mut any = 0;
    while let Some(digit) = digit_at(bytes, at) {
        any |= digit;
        at += 1;
    }
    check_whole(bytes, start, at)?;
    if bytes.get(at) == Some(&b'.') {
        at += 1;
        let behind = at;
        if let Some(eight) = eight_digits(bytes, at) {
            any |= eight;
            at += 8;
        }
        while let Some(digit) = digit_at(bytes, at) {
            any |= digit;
            at += 1;
        }
        if at == behind {
            return Err(Why::NotANumber);
        }
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at = exponent_end(bytes, at)?;
    }
    Ok((any == 0, at))
}

/// The end of a number of JSON that nobody needs, its sign behind us.
pub(super) fn number_end(bytes: &[u8], start: usize) -> Result<usize, Why> {
    let mut at = digits_end(bytes, start);
    check_whole(bytes, start, at)?;
    if bytes.get(at) == Some(&b'.') {
        let behind = at + 1;
        at = digits_end(bytes, behind);
        if at == behind {
            return Err(Why::NotANumber);
        }
    }
    if let Some(b'e' | b'E') = bytes.get(at) { exponent_end(bytes, at) } else { Ok(at) }
}

/// The digits before the point.
#[inline]
fn whole(bytes: &[u8], start: usize) -> Result<(u64, usize), Why> {
    let (mut mantissa, mut at) = match few_digits(bytes, start) {
        Some((value, digits)) => (value, start + digits),
        None => (0, start),
    };
    while let Some(digit) = digit_at(bytes, at) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
        at += 1;
    }
    check_whole(bytes, start, at)?;
    Ok((mantissa, at))
}

/// Up to seven digits at once: the number they make, and how many they are. None: there may be more, or not enough behind.
#[inline]
fn few_digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let word = word_at(bytes, at)?;
    let digits = digits_first(word);
    // Zeros in front of them make eight.
    (1..8).contains(&digits).then(|| (value_of(ones(word) << (64 - 8 * digits)), digits))
}

#[inline]
fn check_whole(bytes: &[u8], start: usize, end: usize) -> Result<(), Why> {
    match end - start {
        0 if bytes.get(start) == Some(&b'-') => Err(Why::Negative),
        0 => Err(Why::NotANumber),
        1 => Ok(()),
        _ if bytes[start] == b'0' => Err(Why::NotANumber),
        _ => Ok(()),
    }
}

/// Behind an exponent, if there is one at `at`.
#[cold]
fn exponent_end(bytes: &[u8], at: usize) -> Result<usize, Why> {
    let Some(b'e' | b'E') = bytes.get(at) else { return Ok(at) };
    let power = at + 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
    let mut end = power;
    while digit_at(bytes, end).is_some() {
        end += 1;
    }
    if end == power { Err(Why::NotANumber) } else { Ok(end) }
}

#[inline]
fn digit_at(bytes: &[u8], at: usize) -> Option<u64> {
    let digit = bytes.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// Eight characters that are all digits, each as a number.
#[inline]
fn eight_digits(bytes: &[u8], at: usize) -> Option<u64> {
    let word = word_at(bytes, at)?;
    (digits_first(word) == 8).then_some(ones(word))
}

/// A whole number with a sign, as sequences and checksums are.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // So many always fit.
    let value = number(digits).filter(|_| digits.len() <= 18)?.cast_signed();
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Result<Price, Why> {
        let (price, end) = Price::read(text.as_bytes(), 0)?;
        if end == text.len() { Ok(price) } else { Err(Why::NotANumber) }
    }

    #[test]
    fn a_price_is_its_value_whatever_the_spelling() {
        for (text, places, units) in [
            ("1", 0, 1),
            ("1.0", 0, 1),
            ("1.0", 4, 10_000),
            ("1.00000000", 0, 1),
            ("1e0", 0, 1),
            ("100E-2", 0, 1),
            ("0.1e+1", 0, 1),
            ("12e3", 0, 12_000),
            ("1.0000000000000000000000", 0, 1),
            ("0.000000000000000001", 18, 1),
            ("61837.64000000", 8, 6_183_764_000_000),
            ("61837.64000000", 2, 6_183_764),
            ("0.123456789", 9, 123_456_789),
            ("0.12345678901", 11, 12_345_678_901),
            ("1.9876543", 7, 19_876_543),
            ("123456789012.00000000", 0, 123_456_789_012),
            ("9999999999999999999", 0, 9_999_999_999_999_999_999),
            ("0", 0, 0),
            ("0.00", 0, 0),
            ("0e9", 0, 0),
        ] {
            assert_eq!(price(text).unwrap().in_units(places), Some(units), "{text}");
        }
        assert_eq!(price("1.25").unwrap().in_units(1), None);
        assert_eq!(price("100000000000.5").unwrap().in_units(18), None);
        assert_eq!(price("61837.64000000").unwrap().places_needed(), 2);
        assert_eq!(price("0.00000000").unwrap().places_needed(), 0);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for (text, why) in [
            ("", Why::NotANumber),
            ("-1", Why::Negative),
            ("NaN", Why::NotANumber),
            (".5", Why::NotANumber),
            ("5.", Why::NotANumber),
            ("007", Why::NotANumber),
            ("1e", Why::NotANumber),
            ("1e-", Why::NotANumber),
            ("1 ", Why::NotANumber),
            ("1.1234567/", Why::NotANumber),
            ("1.1234567:", Why::NotANumber),
            ("0.0000000000000000001", Why::TooPrecise),
            ("1e99", Why::TooPrecise),
            ("1e99999999999", Why::TooPrecise),
            ("1e-99999999999", Why::TooPrecise),
            ("99999999999999999999", Why::TooPrecise),
            ("999999999999999999999999", Why::TooPrecise),
        ] {
            assert_eq!(price(text), Err(why), "{text}");
            let size = read_size(text.as_bytes(), 0).map(|(_, end)| end == text.len());
            assert!(why == Why::TooPrecise || size == Err(why) || size == Ok(false), "{text} {size:?}");
        }
    }

    #[test]
    fn eight_digits_at_once_are_the_digits_one_by_one() {
        for number in (0..100_000_000).step_by(9_973) {
            let text = format!("7.{number:08}");
            let (price, end) = Price::read(text.as_bytes(), 0).unwrap();
            assert_eq!((price.mantissa, price.places, end), (700_000_000 + number, 8, 10), "{text}");
            assert_eq!(read_size(text[..10].replace('7', "0").as_bytes(), 0).unwrap().1, 10);
        }
    }

    #[test]
    fn few_digits_at_once_are_the_digits_one_by_one() {
        for number in [0_u64, 7, 10, 99, 123, 4_096, 61_837, 999_999, 1_234_567, 12_345_678, 123_456_789] {
            for behind in
                [".5", "\",\"1.5\"]]]]", ":::::::::", "////////", "\u{fa}\u{fa}\u{fa}\u{fa}\u{fa}", ""]
            {
                let text = format!("{number}{behind}");
                let end = number.to_string().len();
                assert_eq!(whole(text.as_bytes(), 0), Ok((number, end)), "{text}");
            }
        }
    }

    #[test]
    fn zero_is_seen_in_any_length() {
        for (text, zero) in [
            ("0", true),
            ("0.00000000", true),
            ("0.0000000", true),
            ("0.00000001", false),
            ("0.10000000", false),
            ("0.00000000000000000000000000", true),
            ("0.00000000000000000000000001", false),
            // Ten times two to the power of 64: a wrapped product would be zero.
            ("184467440737095516160", false),
            ("0e5", true),
        ] {
            assert_eq!(read_size(text.as_bytes(), 0), Ok((zero, text.len())), "{text}");
        }
    }

    #[test]
    fn integers_have_a_sign_and_an_end() {
        assert_eq!(integer(b"-1197821412"), Some(-1_197_821_412));
        assert_eq!(integer(b"50093239189"), Some(50_093_239_189));
        for text in ["", "-", "1.0", "+1", "9999999999999999999"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
