//! Checksums over the best levels, as the venues make them.

use super::form::{CrcAmounts, CrcOrder};
use super::half::{Half, Texts};

/// What of a [`super::Checksum::Crc32`] matters for the sum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crc<'a> {
    pub(super) levels: usize,
    pub(super) order: CrcOrder,
    pub(super) amounts: CrcAmounts,
    pub(super) join: &'a str,
}

impl Crc<'_> {
    /// The sum of a book. `text` is memory to use.
    pub(super) fn of(&self, bids: &Half, asks: &Half, text: &mut Vec<u8>) -> u32 {
        text.clear();
        let side = |half: &'_ Half, text: &mut Vec<u8>| {
            half.best_first().take(self.levels).for_each(|level| self.level(level, text));
        };
        match self.order {
            CrcOrder::AsksBids => {
                side(asks, text);
                side(bids, text);
            }
            CrcOrder::BidsAsks => {
                side(bids, text);
                side(asks, text);
            }
            CrcOrder::Alternating => {
                let (mut bids, mut asks) = (bids.best_first(), asks.best_first());
                for _ in 0..self.levels {
                    let (bid, ask) = (bids.next(), asks.next());
                    bid.into_iter().chain(ask).for_each(|level| self.level(level, text));
                }
            }
        }
        crc32fast::hash(text)
    }

    fn level(&self, level: &Texts, text: &mut Vec<u8>) {
        for amount in [level.price(), level.size()] {
            if !text.is_empty() {
                text.extend_from_slice(self.join.as_bytes());
            }
            match self.amounts {
                CrcAmounts::Text => text.extend_from_slice(amount),
                CrcAmounts::Digits => {
                    let digits = amount.iter().copied().filter(|byte| *byte != b'.');
                    text.extend(digits.skip_while(|byte| *byte == b'0'));
                }
            }
        }
    }
}

/// A checksum as sent, signed or not, as 32 bits.
pub(super) fn as_crc(value: i64) -> Option<u32> {
    u32::try_from(value).ok().or_else(|| i32::try_from(value).ok().map(i32::cast_unsigned))
}
