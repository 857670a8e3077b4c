//! The id a record gets once, when it is accepted, and keeps on every retry and replay.

use std::fmt;
use std::str::FromStr;

/// Which spool accepted a record: 48 random bits, drawn when the spool directory is first used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpoolId(u64);

impl SpoolId {
    const BITS: u64 = (1 << 48) - 1;

    /// Takes the low 48 bits of `random`.
    pub fn new(random: u64) -> Self {
        Self(random & Self::BITS)
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl fmt::Debug for SpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for SpoolId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        hex(text.as_bytes(), 12).map(Self).ok_or_else(|| IdError(text.to_owned()))
    }
}

/// A record's id, `<spool>-<number>`: 12 hex digits, a dash, 16 hex digits. Ids of one spool sort, as text and as
/// values, in the order in which their records were accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// The spool that accepted the record.
    pub spool: SpoolId,
    /// The record's number there; only grows, and is never given twice.
    pub seq: u64,
}

impl RecordId {
    /// The length of every id as text.
    pub const LEN: usize = 29;

    /// The id as text, without an allocation.
    pub fn text(&self) -> [u8; Self::LEN] {
        let mut out = [b'-'; Self::LEN];
        out[..8].copy_from_slice(&hex_digits((self.spool.0 >> 16) as u32));
        out[8..12].copy_from_slice(&hex_digits((self.spool.0 << 16) as u32)[..4]);
        out[13..21].copy_from_slice(&hex_digits((self.seq >> 32) as u32));
        out[21..].copy_from_slice(&hex_digits(self.seq as u32));
        out
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.spool, self.seq)
    }
}

/// A text that is not a record's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a record id (12 hex digits, '-', 16 hex digits)")]
pub struct IdError(String);

impl FromStr for RecordId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bytes = text.as_bytes();
        let wrong = || IdError(text.chars().take(64).collect());
        if bytes.len() != Self::LEN || bytes[12] != b'-' {
            return Err(wrong());
        }
        let spool = hex(&bytes[..12], 12).map(SpoolId).ok_or_else(wrong)?;
        let seq = hex(&bytes[13..], 16).ok_or_else(wrong)?;
        Ok(Self { spool, seq })
    }
}

/// Eight lower-case hex digits, all at once: every record needs an id.
fn hex_digits(value: u32) -> [u8; 8] {
    // One nibble a byte.
    let mut nibbles = u64::from(value);
    nibbles = (nibbles << 16 | nibbles) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles << 8 | nibbles) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles << 4 | nibbles) & 0x0f0f_0f0f_0f0f_0f0f;
    // Ten and more carry into the fifth bit, and are letters.
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

/// Lower-case hex of exactly `len` digits: each id has one spelling.
fn hex(digits: &[u8], len: usize) -> Option<u64> {
    if digits.len() != len {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_survives_its_text(spool: u64, seq: u64) {
            let id = RecordId { spool: SpoolId::new(spool), seq };
            let text = id.to_string();
            prop_assert_eq!(id.text().to_vec(), text.as_bytes().to_vec());
            prop_assert_eq!(text.parse::<RecordId>().unwrap(), id);
        }

        #[test]
        fn ids_sort_alike_as_text_and_as_values(spool: u64, a: u64, b: u64) {
            let [x, y] = [a, b].map(|seq| RecordId { spool: SpoolId::new(spool), seq });
            prop_assert_eq!(x.cmp(&y), x.to_string().cmp(&y.to_string()));
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        let good = "0123456789ab-0000000000000001";
        assert!(good.parse::<RecordId>().is_ok());
        for bad in ["", "0123456789AB-0000000000000001", "0123456789ab_0000000000000001", &good[1..]] {
            assert!(bad.parse::<RecordId>().is_err(), "{bad:?} was taken");
        }
    }
}
