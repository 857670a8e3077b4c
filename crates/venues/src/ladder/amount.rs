//! Prices and sizes: read from the venue's text, exact, never a float.
//!
//! A price becomes a key, its value in units of 10⁻¹⁸, so that prices compare as whole numbers whatever their spelling.
//! Of a size only matters whether it is zero. Both keep their text elsewhere.

use super::verdict::Why;

/// Digits behind the point that a key can hold.
const PLACES: usize = 18;

/// Powers of ten up to `PLACES`.
const POWERS: [u64; PLACES + 1] = {
    let mut powers = [1; PLACES + 1];
    let mut at = 1;
    while at <= PLACES {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// What was read: where the text ends, and what it is worth.
pub(super) struct Amount {
    /// The first byte behind the digits.
    pub(super) end: usize,
    /// All digits as one number, if at most 19 of them; see `key`.
    mantissa: u64,
    digits: usize,
    decimals: usize,
    /// Whether there is an exponent.
    scaled: bool,
}

impl Amount {
    /// Reads the number that begins at `at`, in JSON's spelling. Where the JSON has quotes they are the caller's.
    #[inline]
    pub(super) fn read(bytes: &[u8], start: usize) -> Result<Self, Why> {
        let mut at = start;
        let mut mantissa = 0_u64;
        while let Some(digit) = digit_at(bytes, at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
            at += 1;
        }
        let whole = at - start;
        if whole == 0 {
            return Err(if bytes.get(at) == Some(&b'-') { Why::Negative } else { Why::NotANumber });
        }
        if whole > 1 && bytes[start] == b'0' {
            return Err(Why::NotANumber);
        }
        let mut decimals = 0;
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            let point = at;
            while let Some(digit) = digit_at(bytes, at) {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
                at += 1;
            }
            decimals = at - point;
            if decimals == 0 {
                return Err(Why::NotANumber);
            }
        }
        let mut amount = Self { end: at, mantissa, digits: whole + decimals, decimals, scaled: false };
        if let Some(b'e' | b'E') = bytes.get(at) {
            amount.scaled = true;
            at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let power = at;
            while digit_at(bytes, at).is_some() {
                at += 1;
            }
            if power == at {
                return Err(Why::NotANumber);
            }
            amount.end = at;
        }
        Ok(amount)
    }

    /// Whether it is zero, in whatever spelling. `text` is what was read.
    #[inline]
    pub(super) fn is_zero(&self, text: &[u8]) -> bool {
        if self.digits <= 19 { self.mantissa == 0 } else { slow_digits(text).all(|digit| digit == b'0') }
    }

    /// The value in units of 10⁻¹⁸. `text` is what was read.
    #[inline]
    pub(super) fn key(&self, text: &[u8]) -> Result<u128, Why> {
        if self.digits <= 19 && self.decimals <= PLACES && !self.scaled {
            return Ok(u128::from(self.mantissa) * u128::from(POWERS[PLACES - self.decimals]));
        }
        self.slow_key(text)
    }

    /// The same for long texts and exponents.
    #[cold]
    fn slow_key(&self, text: &[u8]) -> Result<u128, Why> {
        let exponent = match text.iter().position(|&byte| byte | 0x20 == b'e') {
            Some(at) => std::str::from_utf8(&text[at + 1..])
                .ok()
                .and_then(|power| power.parse::<i32>().ok())
                .filter(|power| power.abs() <= 64)
                .ok_or(Why::TooPrecise)?,
            None => 0,
        };
        let mut value = 0_u128;
        for digit in slow_digits(text) {
            let next = value.checked_mul(10).and_then(|value| value.checked_add(u128::from(digit - b'0')));
            value = next.ok_or(Why::TooPrecise)?;
        }
        let mut places = i32::try_from(PLACES).expect("a small constant") + exponent
            - i32::try_from(self.decimals).map_err(|_| Why::TooPrecise)?;
        while places < 0 && value.is_multiple_of(10) && value != 0 {
            value /= 10;
            places += 1;
        }
        if value == 0 {
            return Ok(0);
        }
        let power = u32::try_from(places).ok().and_then(|places| 10_u128.checked_pow(places));
        power.and_then(|power| value.checked_mul(power)).filter(|key| *key < KEY_MAX).ok_or(Why::TooPrecise)
    }
}

/// Keys are below this, so that the complement of one (see `half`) is never mistaken for another.
const KEY_MAX: u128 = u128::MAX / 2;

#[inline]
fn digit_at(bytes: &[u8], at: usize) -> Option<u64> {
    let digit = bytes.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// The digits before any exponent.
fn slow_digits(text: &[u8]) -> impl Iterator<Item = u8> {
    let mantissa = text.iter().copied().take_while(|byte| byte | 0x20 != b'e');
    mantissa.filter(u8::is_ascii_digit)
}

/// A whole number with a sign, as sequences and checksums are.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<u128, Why> {
        let amount = Amount::read(text.as_bytes(), 0)?;
        if amount.end != text.len() { Err(Why::NotANumber) } else { amount.key(text.as_bytes()) }
    }

    #[test]
    fn a_key_is_the_value_whatever_the_spelling() {
        let one = 10_u128.pow(18);
        for (text, expected) in [
            ("1", one),
            ("1.0", one),
            ("1.00000000", one),
            ("1e0", one),
            ("100E-2", one),
            ("0.1e+1", one),
            ("1.0000000000000000000000", one),
            ("0.000000000000000001", 1),
            ("61837.64000000", 61_837_640 * one / 1000),
            ("12345678901234567890", 12_345_678_901_234_567_890 * one),
            ("0", 0),
            ("0.00", 0),
            ("0e9", 0),
        ] {
            assert_eq!(key(text), Ok(expected), "{text}");
        }
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
            ("0.0000000000000000001", Why::TooPrecise),
            ("1e99", Why::TooPrecise),
            ("1e99999999999", Why::TooPrecise),
            ("999999999999999999999999", Why::TooPrecise),
        ] {
            assert_eq!(key(text), Err(why), "{text}");
        }
    }

    #[test]
    fn zero_is_seen_in_any_length() {
        for (text, zero) in [
            ("0", true),
            ("0.00000000", true),
            ("0.00000000000000000000000000", true),
            ("0.00000000000000000000000001", false),
            // Ten times two to the power of 64: the wrapped product is zero.
            ("184467440737095516160", false),
            ("0e5", true),
        ] {
            let amount = Amount::read(text.as_bytes(), 0).unwrap();
            assert_eq!(amount.is_zero(text.as_bytes()), zero, "{text}");
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
