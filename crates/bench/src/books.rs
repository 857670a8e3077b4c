//! An answer of `POST /books` as Polymarket sends it, and what serde_json makes of it.

use catchment_venues::polymarket::sample_books;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

/// 500 books of about 39 levels a side: 1.4 MB.
pub(crate) struct Answer {
    pub(crate) tokens: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new() -> Self {
        let (tokens, body) = sample_books(500, 39, 1);
        Self { tokens, body }
    }

    /// Millions of bytes a second, if it takes this long.
    pub(crate) fn mb_per_second(&self, seconds: f64) -> f64 {
        self.body.len() as f64 / 1e6 / seconds
    }
}

/// A book with its amounts in fixed point: the usual, typed way.
#[derive(Deserialize)]
#[allow(dead_code)] // read, so that they are checked
pub(crate) struct TypedBook<'a> {
    market: &'a str,
    asset_id: &'a str,
    timestamp: &'a str,
    hash: &'a str,
    pub(crate) bids: Vec<TypedLevel>,
    pub(crate) asks: Vec<TypedLevel>,
    min_order_size: &'a str,
    tick_size: &'a str,
    neg_risk: bool,
    last_trade_price: &'a str,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct TypedLevel {
    pub(crate) price: E8,
    pub(crate) size: E8,
}

/// An amount in units of 10⁻⁸, read from text.
#[derive(Serialize)]
pub(crate) struct E8(pub(crate) i64);

impl<'de> Deserialize<'de> for E8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = E8;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a decimal number as text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<E8, E> {
                e8(text).map(E8).ok_or_else(|| E::custom("not a decimal number"))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Digit by digit, as one would write it.
pub(crate) fn e8(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 10 || fraction.len() > 8 {
        return None;
    }
    let mut value = 0_i64;
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Some(value * 10_i64.pow(8 - fraction.len() as u32))
}
