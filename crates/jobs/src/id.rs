//! What a connector or a job is called. Twelve bytes as MongoDB's ObjectId has them: seconds, a number of the process, a
//! counter. So ids of all processes differ, and sort by the time they were made.

use std::fmt;
use std::str::FromStr;

use catchment_model::UnixMs;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 24 hex digits: `65a7f2c09b1e4d00a1b2c3d4`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 12]);

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id (24 hex digits, lower case)")]
pub struct IdError(String);

impl Id {
    /// The same bytes.
    pub fn new(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(self) -> [u8; 12] {
        self.0
    }
}

/// Makes ids, no two alike.
#[derive(Debug)]
pub struct IdMaker {
    process: [u8; 5],
    counter: u32,
}

impl IdMaker {
    /// `random` tells the makers of different processes apart.
    pub fn new(random: u64) -> Self {
        let bytes = random.to_be_bytes();
        let process = [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]];
        Self { process, counter: u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]) }
    }

    /// The next one.
    pub fn make(&mut self, now: UnixMs) -> Id {
        self.counter = (self.counter + 1) & 0x00ff_ffff;
        let seconds = u32::try_from(now.get() / 1_000).unwrap_or(u32::MAX);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(&self.process);
        bytes[9..].copy_from_slice(&self.counter.to_be_bytes()[1..]);
        Id(bytes)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; 24];
        for (at, byte) in self.0.iter().enumerate() {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            text[2 * at] = digit(byte >> 4);
            text[2 * at + 1] = digit(byte & 15);
        }
        f.pad(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError(text.chars().take(64).collect());
        let digits = text.as_bytes();
        let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 24 || !digits.iter().all(is_hex) {
            return Err(wrong());
        }
        let mut bytes = [0; 12];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_as_they_were_made_and_survive_their_text() {
        let mut maker = IdMaker::new(0xdead_beef_0000_0000);
        let ids: Vec<Id> =
            (0..300).map(|n| maker.make(UnixMs::new(1_700_000_000_000 + n * 100).unwrap())).collect();
        assert!(ids.is_sorted());
        for id in ids {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "65A7F2C09B1E4D00A1B2C3D4", "65a7f2c09b1e4d00a1b2c3d", "65a7f2c09b1e4d00a1b2c3dg"] {
            assert!(bad.parse::<Id>().is_err(), "{bad:?} was taken");
        }
    }
}
