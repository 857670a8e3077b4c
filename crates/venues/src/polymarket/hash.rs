//! The hash a Polymarket book carries, and how it is made.
//!
//! SHA-1, in lower-case hexadecimal, over compact JSON with ten keys in a fixed order, `hash` set to the empty string,
//! the levels in the order of the wire (best last) and every text spelled as on the wire:
//!
//! ```text
//! {"market":"0x…","asset_id":"…","timestamp":"1790000000000","hash":"","bids":[{"price":"0.47","size":"120"}],
//!  "asks":[{"price":"0.49","size":"80.5"}],"min_order_size":"5","tick_size":"0.01","neg_risk":false,
//!  "last_trade_price":"0.480"}
//! ```
//!
//! The timestamp is inside, so equal levels at another time have another hash; and since there is no sequence number,
//! it is the only proof that a book is whole.

use std::fmt;

use sha1::{Digest, Sha1};

/// A book's hash: 40 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BookHash([u8; 40]);

impl BookHash {
    /// A hash as the venue spells it: 40 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: [u8; 40] = text.as_bytes().try_into().ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only hexadecimal digits were put in")
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8; 40] {
        &self.0
    }
}

impl fmt::Display for BookHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for BookHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What goes into the hash, as texts of the wire. Texts must not need escaping in JSON; the venue's never do.
#[derive(Debug, Clone, Copy)]
pub struct HashInput<'a> {
    /// The condition id.
    pub market: &'a str,
    /// The token id.
    pub asset_id: &'a str,
    /// Milliseconds of the last change.
    pub timestamp: &'a str,
    /// `(price, size)`, ascending: the best bid is last.
    pub bids: &'a [(&'a str, &'a str)],
    /// `(price, size)`, descending: the best ask is last.
    pub asks: &'a [(&'a str, &'a str)],
    /// The least size of an order.
    pub min_order_size: &'a str,
    /// The step of prices.
    pub tick_size: &'a str,
    /// Whether the market is one of several of which exactly one resolves to Yes.
    pub neg_risk: bool,
    /// The last price of the market, or nothing if it was never traded.
    pub last_trade_price: &'a str,
}

/// The hash of a book, as the venue makes it.
pub fn book_hash(book: &HashInput<'_>) -> BookHash {
    let mut text = String::with_capacity(512 + 40 * (book.bids.len() + book.asks.len()));
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| text.push_str(part));
    add(&["{\"market\":\"", book.market, "\",\"asset_id\":\"", book.asset_id]);
    add(&["\",\"timestamp\":\"", book.timestamp, "\",\"hash\":\"\""]);
    for (opening, side) in [(",\"bids\":[", book.bids), ("],\"asks\":[", book.asks)] {
        add(&[opening]);
        for (at, (price, size)) in side.iter().enumerate() {
            add(&[if at == 0 { "" } else { "," }, "{\"price\":\"", price, "\",\"size\":\"", size, "\"}"]);
        }
    }
    add(&["],\"min_order_size\":\"", book.min_order_size, "\",\"tick_size\":\"", book.tick_size]);
    add(&["\",\"neg_risk\":", if book.neg_risk { "true" } else { "false" }]);
    add(&[",\"last_trade_price\":\"", book.last_trade_price, "\"}"]);
    finish(Sha1::new().chain_update(text.as_bytes()))
}

/// The hash of bytes that are already in the venue's form, in two pieces: what comes before the hash's digits and what
/// comes after them.
pub(crate) fn hash_around(before: &[u8], after: &[u8]) -> BookHash {
    finish(Sha1::new().chain_update(before).chain_update(after))
}

fn finish(hasher: Sha1) -> BookHash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 40];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(hasher.finalize()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    BookHash(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Both digests were made with another program's JSON and SHA-1.
    #[test]
    fn the_hash_is_that_of_the_venues_own_spelling() {
        let (market, asset_id) = (format!("0x{}", "1f".repeat(32)), "7".repeat(77));
        let mut book = HashInput {
            market: &market,
            asset_id: &asset_id,
            timestamp: "1790000000000",
            bids: &[("0.46", "1000"), ("0.47", "120")],
            asks: &[("0.49", "80.5")],
            min_order_size: "5",
            tick_size: "0.01",
            neg_risk: false,
            last_trade_price: "0.480",
        };
        assert_eq!(book_hash(&book).as_str(), "cb5c68a4e11baa7d611468752429f0e7ef41d5ce");
        (book.bids, book.asks, book.last_trade_price, book.neg_risk) = (&[], &[], "", true);
        assert_eq!(book_hash(&book).as_str(), "0e30be56e823fc02c528f45fbcdd216656135140");
    }
}
