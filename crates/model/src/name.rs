//! Names of venues, channels, symbols and sources, checked once where they enter.
//!
//! Venue and channel names become folder names, so they are short, lower case and cannot climb out of a folder.
//! They are held inline: a name is `Copy`, costs no allocation and no lifetime. A symbol is the venue's own
//! text and never becomes a path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or more than fits.
    #[error("{what} must have 1 to {max} bytes, this has {len}")]
    Length {
        /// Which kind of name.
        what: &'static str,
        /// How long it is.
        len: usize,
        /// How long it may be.
        max: usize,
    },
    /// A character that the name may not hold.
    #[error("{what} {name:?} may hold only {allowed}")]
    Character {
        /// Which kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
        /// What is allowed, in words.
        allowed: &'static str,
    },
    /// A name that a folder of the archive already has.
    #[error("{what} {name:?} is reserved for a folder of the archive; choose another name")]
    Reserved {
        /// Which kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
    },
}

/// A short name held inline: lower-case letters, digits, `_`, `-`, `.`, starting with a letter or digit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    len: u8,
    bytes: [u8; Name::MAX],
}

impl Name {
    const MAX: usize = 31;

    fn new(what: &'static str, text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > Self::MAX {
            return Err(NameError::Length { what, len: text.len(), max: Self::MAX });
        }
        let first = text.as_bytes()[0];
        let opens_well = first.is_ascii_lowercase() || first.is_ascii_digit();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.');
        if !opens_well || !text.bytes().all(plain) {
            let allowed = "a-z, 0-9, '_', '-' and '.', and starts with a letter or digit";
            return Err(NameError::Character { what, name: text.to_owned(), allowed });
        }
        let mut bytes = [0; Self::MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { len: text.len() as u8, bytes })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("only ASCII was let in")
    }
}

/// Gives a newtype over `Name` its public face.
macro_rules! inline_name {
    ($(#[$doc:meta])* $type:ident, $what:literal, reserved: $reserved:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(Name);

        impl $type {
            /// Checks the text and takes it in.
            pub fn new(text: &str) -> Result<Self, NameError> {
                if $reserved.contains(&text) {
                    return Err(NameError::Reserved { what: $what, name: text.to_owned() });
                }
                Name::new($what, text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The name's bytes, all ASCII.
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

inline_name! {
    /// A place that publishes market data: `binance`, `polymarket`. In every JSON its key is `exchange`.
    Venue, "venue", reserved: [""; 0]
}

inline_name! {
    /// What kind of record this is: `trades`, `orderbook`, `gaps`, or whatever a descriptor names.
    Channel, "channel", reserved: ["orderbooks", "state"]
}

impl Venue {
    /// The recorder itself, for gaps whose venue is not known (damage in the spool).
    pub fn recorder() -> Self {
        Self::new("catchment").expect("a fixed, plain name")
    }
}

impl Channel {
    /// The channel on which whatever may be missing is said.
    pub fn gaps() -> Self {
        Self::new("gaps").expect("a fixed, plain name")
    }

    /// The channel's folder below its venue. S0 writes `orderbook` records to `orderbooks/`; the rest keep their name.
    pub fn folder(&self) -> &str {
        match self.as_str() {
            "orderbook" => "orderbooks",
            name => name,
        }
    }

    /// Whether a later record of this channel makes an earlier one less needed: tickers and books, not trades.
    /// This is what S1's `drop_ticker_depth_keep_trade` may drop.
    pub fn is_quote(&self) -> bool {
        matches!(self.as_str(), "ticker" | "orderbook" | "book_delta" | "book" | "depth" | "bbo")
    }
}

/// What is traded, in the venue's or in our naming: `BTC/USDT`, a token id, or `*` for all of a venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol<'a>(&'a str);

impl<'a> Symbol<'a> {
    /// The longest symbol taken.
    pub const MAX: usize = 256;

    /// Every symbol of a venue at once, in gaps.
    pub const ALL: Symbol<'static> = Symbol("*");

    /// Checks the text: not empty, at most 256 bytes, no control characters.
    pub fn new(text: &'a str) -> Result<Self, NameError> {
        plain_text("symbol", text, Self::MAX).map(Self)
    }

    /// A text that was checked before.
    pub(crate) fn already_checked(text: &'a str) -> Self {
        debug_assert!(Self::new(text).is_ok(), "it was checked");
        Self(text)
    }

    /// The symbol as text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }
}

/// Where a record came from: `poll`, `ws:<connection>`, `backfill:<job>`, `ingest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source<'a>(&'a str);

impl<'a> Source<'a> {
    /// The longest source taken.
    pub const MAX: usize = 128;

    /// What the recorder itself says.
    pub const RECORDER: Source<'static> = Source("catchment");

    /// Read from standard input by `catchment ingest`.
    pub const INGEST: Source<'static> = Source("ingest");

    /// Checks the text: not empty, at most 128 bytes, no control characters.
    pub fn new(text: &'a str) -> Result<Self, NameError> {
        plain_text("source", text, Self::MAX).map(Self)
    }

    /// A text that was checked before.
    pub(crate) fn already_checked(text: &'a str) -> Self {
        debug_assert!(Self::new(text).is_ok(), "it was checked");
        Self(text)
    }

    /// The source as text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }
}

fn plain_text<'a>(what: &'static str, text: &'a str, max: usize) -> Result<&'a str, NameError> {
    if text.is_empty() || text.len() > max {
        return Err(NameError::Length { what, len: text.len(), max });
    }
    // Almost every text is plain ASCII, and that is told several bytes at a time.
    let plain = text.bytes().fold(true, |all, b| all & (0x20..0x7f).contains(&b));
    if !plain && text.chars().any(char::is_control) {
        let allowed = "characters that print";
        return Err(NameError::Character { what, name: text.to_owned(), allowed });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_climb_or_collide_are_refused() {
        for bad in ["", "..", "../etc", "a/b", "A", "Trades", ".hidden", "-x", "con\0", "ä", "a b"] {
            assert!(Venue::new(bad).is_err(), "{bad:?} was taken");
        }
        assert!(Venue::new(&"x".repeat(32)).is_err());
        assert!(Venue::new(&"x".repeat(31)).is_ok());
        assert!(Channel::new("orderbooks").is_err(), "its folder belongs to orderbook");
        assert_eq!(Channel::new("orderbook").unwrap().folder(), "orderbooks");
        assert_eq!(Channel::new("kline_1m").unwrap().folder(), "kline_1m");
    }

    #[test]
    fn symbols_are_any_text_that_prints() {
        for good in ["BTC/USDT", "../x", "7132…", "PERP é", "*"] {
            assert_eq!(Symbol::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "a\u{1b}[31m", "a\0"] {
            assert!(Symbol::new(bad).is_err(), "{bad:?} was taken");
        }
        assert!(Symbol::new(&"1".repeat(257)).is_err());
    }

    #[test]
    fn names_sort_as_text() {
        let mut names = ["okx", "binance", "bybit", "b"].map(|n| Venue::new(n).unwrap());
        names.sort();
        assert_eq!(names.map(|n| n.to_string()), ["b", "binance", "bybit", "okx"]);
    }
}
