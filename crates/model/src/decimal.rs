//! Exact decimals. A venue's digits are kept as it wrote them; comparing and scaling go through the digits, never
//! through floating point, however many there are.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A decimal number as a venue wrote it: `0.010`, `-1`, `1e-7`, four hundred digits. Equality and order are by
/// value (`1.0` equals `1.00`); [`Decimal::as_str`] gives back the very text.
#[derive(Clone)]
pub struct Decimal {
    text: Box<str>,
    /// Position of the decimal point relative to the first significant digit: value = 0.d₁d₂d₃… × 10^point.
    point: i64,
    sign: Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Minus,
    Zero,
    Plus,
}

/// A text that is not a decimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a decimal number")]
pub struct DecimalError(String);

impl Decimal {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is zero, however written.
    pub fn is_zero(&self) -> bool {
        self.sign == Sign::Zero
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.sign == Sign::Minus
    }

    /// The value in units of 10⁻⁸, if it is exactly that and fits. The form hot paths calculate in.
    pub fn to_e8(&self) -> Option<i64> {
        if self.is_zero() {
            return Some(0);
        }
        let whole_digits = self.point.checked_add(8)?;
        if !(1..=19).contains(&whole_digits) {
            return None;
        }
        let mut digits = self.digits();
        let mut value: i64 = 0;
        for _ in 0..whole_digits {
            value = value.checked_mul(10)?.checked_sub(i64::from(digits.next().unwrap_or(0)))?;
        }
        if digits.any(|d| d != 0) {
            return None;
        }
        // Counted below zero, where one more value fits.
        if self.sign == Sign::Minus { Some(value) } else { value.checked_neg() }
    }

    /// The number times 10^places, exactly, in plain digits: `9428028001` shifted by -6 is `9428.028001`. Zeros at the
    /// end of a fraction are left out. Only what would be more than 400 zeros long is written with an exponent.
    pub fn shifted(&self, places: i32) -> Self {
        let mut digits: String = self.digits().map(|d| char::from(b'0' + d)).collect();
        digits.truncate(digits.trim_end_matches('0').len());
        let point = self.point.saturating_add(i64::from(places));
        let len = digits.len() as i64;
        let sign = if self.is_negative() { "-" } else { "" };
        let text = match point {
            _ if self.is_zero() => "0".to_owned(),
            p if p < -400 || p > len + 400 => format!("{sign}{digits}e{}", p.saturating_sub(len)),
            p if p <= 0 => format!("{sign}0.{}{digits}", "0".repeat(p.unsigned_abs() as usize)),
            p if p >= len => format!("{sign}{digits}{}", "0".repeat((p - len) as usize)),
            p => format!("{sign}{}.{}", &digits[..p as usize], &digits[p as usize..]),
        };
        read(&text).expect("digits, a point and perhaps an exponent that fits")
    }

    /// One minus the number, with as many decimals as it has: `0.4800` gives `0.5200`. Nothing if it has an exponent or
    /// more digits than 128 bits hold.
    pub fn one_minus(&self) -> Option<Self> {
        let unsigned = self.text.strip_prefix('-').unwrap_or(&self.text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let one = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let units: i128 = format!("{whole}{fraction}").parse().ok()?;
        let rest = one.checked_sub(if self.is_negative() { -units } else { units })?;
        let (sign, rest) = (if rest < 0 { "-" } else { "" }, rest.unsigned_abs());
        let (whole, part) = (rest / one.unsigned_abs(), rest % one.unsigned_abs());
        match fraction.len() {
            0 => read(&format!("{sign}{whole}")),
            decimals => read(&format!("{sign}{whole}.{part:0decimals$}")),
        }
    }

    /// The significant digits, first one not zero.
    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        let mantissa = self.text.split(['e', 'E']).next().unwrap_or_default();
        mantissa.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').skip_while(|d| *d == 0)
    }

    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        self.point.cmp(&other.point).then_with(|| {
            let (mut ours, mut theirs) = (self.digits(), other.digits());
            loop {
                match (ours.next(), theirs.next()) {
                    (None, None) => return Ordering::Equal,
                    (a, b) => match a.unwrap_or(0).cmp(&b.unwrap_or(0)) {
                        Ordering::Equal => {}
                        unequal => return unequal,
                    },
                }
            }
        })
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        read(text).ok_or_else(|| DecimalError(text.chars().take(64).collect()))
    }
}

/// `-`? digits (`.` digits)? ([eE] [+-]? digits)?, with at least one digit before the point.
fn read(text: &str) -> Option<Decimal> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let leading = whole.bytes().chain(fraction.bytes()).take_while(|b| *b == b'0').count();
    let all_zero = leading == whole.len() + fraction.len();
    let sign = match (all_zero, text.starts_with('-')) {
        (true, _) => Sign::Zero,
        (false, true) => Sign::Minus,
        (false, false) => Sign::Plus,
    };
    let point = if all_zero { 0 } else { (whole.len() as i64 - leading as i64).checked_add(exponent)? };
    Some(Decimal { text: text.into(), point, sign })
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.strip_prefix('+').unwrap_or(text).parse().ok()
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign.cmp(&other.sign).then_with(|| match self.sign {
            Sign::Zero => Ordering::Equal,
            Sign::Plus => self.cmp_magnitude(other),
            Sign::Minus => other.cmp_magnitude(self),
        })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// From text only: a JSON number would have been through floating point.
impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn the_text_is_kept_whatever_its_form() {
        let long = "9".repeat(400);
        for text in ["0", "-0", "0.00", "1e999", "0.1", "-12.50", "1E-7", "00.1", &long] {
            assert_eq!(decimal(text).as_str(), text);
        }
        for bad in
            ["", "-", ".", ".5", "5.", "1e", "1e+", "NaN", "Infinity", "0x1", " 1", "1 ", "+1", "1_0", "--1"]
        {
            assert!(bad.parse::<Decimal>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn order_is_by_value() {
        let sorted =
            ["-1e999", "-2", "-1.5", "-1e-400", "0", "1e-400", "0.1", "0.30", "1.5", "15e0", "1e999"];
        for (at, low) in sorted.iter().enumerate() {
            for high in &sorted[at + 1..] {
                assert!(decimal(low) < decimal(high), "{low} < {high}");
            }
        }
        for (a, b) in [("1.0", "1"), ("-0", "0.000"), ("1e2", "100"), ("0.10", "1E-1"), ("0012", "12")] {
            assert_eq!(decimal(a), decimal(b));
        }
    }

    #[test]
    fn e8_is_exact_or_nothing() {
        for (text, e8) in [
            ("1", Some(100_000_000)),
            ("0.00000001", Some(1)),
            ("-0.5", Some(-50_000_000)),
            ("92233720368.54775807", Some(i64::MAX)),
            ("-92233720368.54775808", Some(i64::MIN)),
            ("92233720368.54775808", None),
            ("0.000000001", None),
            ("1.000000000000", Some(100_000_000)),
            ("1e999", None),
            ("-0", Some(0)),
        ] {
            assert_eq!(decimal(text).to_e8(), e8, "{text}");
        }
    }

    #[test]
    fn shifting_moves_the_point_and_nothing_else() {
        let long = "7".repeat(400);
        for (text, places, shifted) in [
            ("9428028001", -6, "9428.028001"),
            ("100000000", -6, "100"),
            ("1", -6, "0.000001"),
            ("-497754000", -6, "-497.754"),
            ("0.070", 0, "0.07"),
            ("0", -6, "0"),
            ("-0.00", 3, "0"),
            ("1.5e3", 0, "1500"),
            ("1e999", -6, "1e993"),
            ("1e-999", 0, "1e-999"),
            (&long, -400, &format!("0.{long}")),
        ] {
            assert_eq!(decimal(text).shifted(places).as_str(), shifted, "{text} by {places}");
        }
        assert!(!decimal("1e9223372036854775000").shifted(6).is_zero(), "no panic at the far end");
    }

    #[test]
    fn one_minus_is_exact_or_nothing() {
        let long = "9".repeat(50);
        for (text, rest) in [
            ("0.4800", Some("0.5200")),
            ("0.001", Some("0.999")),
            ("1", Some("0")),
            ("1.0000", Some("0.0000")),
            ("0", Some("1")),
            ("1.5", Some("-0.5")),
            ("-0.25", Some("1.25")),
            ("1e-2", None),
            (&long, None),
        ] {
            assert_eq!(decimal(text).one_minus().as_ref().map(Decimal::as_str), rest, "{text}");
        }
    }

    proptest! {
        #[test]
        fn order_and_e8_agree_with_integers(a in -1_000_000_000_000_i64..1_000_000_000_000, b in -1_000_000_000_000_i64..1_000_000_000_000) {
            let written = |v: i64| {
                let (sign, v) = (if v < 0 { "-" } else { "" }, v.unsigned_abs());
                decimal(&format!("{sign}{}.{:08}", v / 100_000_000, v % 100_000_000))
            };
            prop_assert_eq!(written(a).cmp(&written(b)), a.cmp(&b));
            prop_assert_eq!(written(a).to_e8(), Some(a));
        }
    }
}
