//! JSON numbers as BSON numbers, without losing a digit.
//!
//! | the venue writes | we store |
//! |---|---|
//! | a whole number that fits 64 bits | int64 |
//! | any other with at most 34 digits | Decimal128: the same digits and the same decimals (`0.010` stays `0.010`) |
//! | more digits than that | a string, and the payload's text beside it |
//!
//! A double is never written: `0.1` is not one.

/// A number of JSON as BSON holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// A whole number.
    Int(i64),
    /// The 16 bytes of a Decimal128, little end first.
    Decimal([u8; 16]),
    /// Neither holds it exactly.
    Neither,
}

/// Digits that fit a Decimal128.
const DIGITS_MAX: u32 = 34;
/// What is added to a Decimal128's exponent.
const BIAS: i32 = 6176;
const EXPONENTS: std::ops::RangeInclusive<i32> = -6176..=6111;

/// Reads the text of a JSON number. The second value: whether [`write_decimal`] and plain digits give that text back.
pub(super) fn read(text: &[u8]) -> (Number, bool) {
    let (negative, unsigned) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let (mut small, mut large) = (0_u64, 0_u128);
    // Digits from the first that is not 0, digits after the point, and whether there is a point.
    let (mut digits, mut decimals, mut fraction) = (0_u32, 0_i32, false);
    let mut at = 0;
    while let Some(byte) = unsigned.get(at) {
        match byte {
            b'0'..=b'9' => {
                let digit = byte - b'0';
                digits += u32::from(digits > 0 || digit > 0);
                match digits {
                    ..=18 => small = small * 10 + u64::from(digit),
                    19 => large = u128::from(small) * 10 + u128::from(digit),
                    20..=DIGITS_MAX => large = large * 10 + u128::from(digit),
                    _ => return (Number::Neither, false),
                }
                decimals += i32::from(fraction);
            }
            b'.' => fraction = true,
            _ => break,
        }
        at += 1;
    }
    let coefficient = if digits > 18 { large } else { u128::from(small) };
    let exponent = match unsigned.get(at..) {
        Some([b'e' | b'E', power @ ..]) => match power_of(power) {
            Some(power) => power - decimals,
            None => return (Number::Neither, false),
        },
        _ => -decimals,
    };
    let is_plain = at == unsigned.len();
    let minus_zero = negative && coefficient == 0;
    if is_plain && !fraction && !minus_zero {
        let whole = i128::try_from(coefficient).map(|whole| if negative { -whole } else { whole });
        if let Some(whole) = whole.ok().and_then(|whole| i64::try_from(whole).ok()) {
            return (Number::Int(whole), true);
        }
    }
    match EXPONENTS.contains(&exponent) {
        true => (Number::Decimal(pack(negative, coefficient, exponent)), is_plain),
        false => (Number::Neither, false),
    }
}

/// An exponent that is not absurd.
fn power_of(text: &[u8]) -> Option<i32> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let power: i32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (-100_000..=100_000).contains(&power).then_some(power)
}

/// IEEE 754-2008, binary integer: sign, 14 bits of exponent, 113 of coefficient.
fn pack(negative: bool, coefficient: u128, exponent: i32) -> [u8; 16] {
    let sign = u128::from(negative) << 127;
    let biased = (exponent + BIAS) as u128;
    (sign | biased << 113 | coefficient).to_le_bytes()
}

/// Appends a Decimal128 as JSON has it: plain digits where its exponent allows, which is how we store venues' numbers.
/// `false`: it is not a number.
pub(super) fn write_decimal(bytes: [u8; 16], out: &mut Vec<u8>) -> bool {
    let bits = u128::from_le_bytes(bytes);
    if bits >> 125 & 0b11 == 0b11 {
        // Infinite, not a number, or a coefficient too large to be one.
        return false;
    }
    if bits >> 127 == 1 {
        out.push(b'-');
    }
    let exponent = (bits >> 113 & 0x3fff) as i32 - BIAS;
    let coefficient = bits & ((1 << 113) - 1);
    let mut text = coefficient.to_string();
    match exponent {
        0 => {}
        1.. => {
            text.push('E');
            text.push_str(&exponent.to_string());
        }
        _ => {
            let decimals = exponent.unsigned_abs() as usize;
            if text.len() <= decimals {
                text.insert_str(0, &"0".repeat(decimals + 1 - text.len()));
            }
            text.insert(text.len() - decimals, '.');
        }
    }
    out.extend_from_slice(text.as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is stored, as text, and whether it is the text that came.
    fn stored(text: &str) -> (String, bool) {
        let (number, exact) = read(text.as_bytes());
        let shown = match number {
            Number::Int(whole) => format!("int {whole}"),
            Number::Decimal(bytes) => {
                let mut out = Vec::new();
                assert!(write_decimal(bytes, &mut out));
                let ours = String::from_utf8(out).unwrap();
                let theirs = mongodb::bson::Decimal128::from_bytes(bytes).to_string();
                assert_eq!(exact, ours == text, "{text} became {ours}, which the driver calls {theirs}");
                format!("dec {theirs}")
            }
            Number::Neither => "neither".to_owned(),
        };
        (shown, exact)
    }

    #[test]
    fn every_digit_is_kept() {
        let check = |text: &str, want: &str, exact: bool| {
            assert_eq!(stored(text), (want.to_owned(), exact), "{text}");
        };
        check("0", "int 0", true);
        check("-17", "int -17", true);
        check("9223372036854775807", "int 9223372036854775807", true);
        check("-9223372036854775808", "int -9223372036854775808", true);
        check("9223372036854775808", "dec 9223372036854775808", true);
        check("-0", "dec -0", true);
        check("-0.0", "dec -0.0", true);
        check("0.010", "dec 0.010", true);
        check("64250.10", "dec 64250.10", true);
        check("0.00000001", "dec 1E-8", true);
        check("1234567890123456789012345678901234", "dec 1234567890123456789012345678901234", true);
        check("0.1234567890123456789012345678901234", "dec 0.1234567890123456789012345678901234", true);
        check("12345678901234567890123456789012345", "neither", false);
        check("0.12345678901234567890123456789012345", "neither", false);
        check("1e5", "dec 1E+5", false);
        check("1.50E-7", "dec 1.50E-7", false);
        check("1e999", "dec 1E+999", false);
        check("1e6112", "neither", false);
        check("1e99999999999999999999", "neither", false);
        check("1e-6177", "neither", false);
    }

    #[test]
    fn what_is_no_number_is_not_written_as_one() {
        for bits in [0b11110_u128 << 122, 0b11111 << 122, 0b11 << 125] {
            assert!(!write_decimal(bits.to_le_bytes(), &mut Vec::new()));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_plain_number_comes_back_as_it_was(text in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,9})?") {
            stored(&text);
            proptest::prop_assert!(read(text.as_bytes()).1);
        }
    }
}
