//! What became of a message.

use std::fmt;

use crate::polymarket::BookHash;

/// What became of a message, and what could be proved about the book after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// What became of the message.
    pub outcome: Outcome,
    /// What the venue's checksum or hash says about the book as it is now.
    pub checked: Checked,
    /// Whether the best bid is not below the best ask. Some venues do this in an auction; otherwise something was lost.
    pub crossed: bool,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The book is now a new one: a snapshot was taken (and what was kept for it applied).
    Replaced,
    /// The changes are in the book.
    Applied,
    /// Kept until the snapshot is there.
    Buffered,
    /// Of no concern, and why. The book is as it was.
    Ignored(Ignored),
    /// The terms of the book changed; its levels stay, `Ladder::epoch` went up.
    NewEpoch,
    /// Messages are missing before this one. The book is not to be used until the next snapshot.
    Gap {
        /// The first number missing, where that is known.
        first_missing: Option<i64>,
        /// The last one.
        last_missing: Option<i64>,
    },
    /// The book is not what the venue says it is. Not to be used until the next snapshot.
    Mismatch {
        /// What the venue says.
        expected: Digest,
        /// What the book gives.
        computed: Digest,
    },
    /// Nothing of the message was used. The book is not to be used until the next snapshot.
    Unreadable(Unreadable),
    /// No snapshot came for so long that what was kept for it (so many messages) is dropped; keeping begins anew with
    /// this message.
    BufferFull {
        /// Messages dropped.
        dropped: usize,
    },
}

impl Outcome {
    /// Whether the instrument needs a new snapshot because of this message.
    pub fn needs_resync(&self) -> bool {
        matches!(
            self,
            Self::Gap { .. } | Self::Mismatch { .. } | Self::Unreadable(_) | Self::BufferFull { .. }
        ) || matches!(self, Self::Ignored(Ignored::SnapshotTooOld))
    }
}

/// Why a message is of no concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is not one of the book's messages.
    NotABook,
    /// It is about another instrument.
    OtherInstrument,
    /// There is no book yet to which its changes could be applied, or it is broken.
    NoBook,
    /// All of it is in the book already: it is older than the snapshot.
    Stale,
    /// It was here before.
    Duplicate,
    /// It only says that nothing happened.
    KeepAlive,
    /// The snapshot is older than the first message kept; another one is needed.
    SnapshotTooOld,
    /// A snapshot over REST that is not needed: the book is live. What else it said was noted.
    AlreadyLive,
    /// It carried terms (the price of a trade), and they are noted.
    TermsNoted,
}

/// What the venue's checksum or hash says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Nothing: there is none, or a part of what goes into it is not known.
    None,
    /// The book is what the venue says.
    Agrees,
    /// Not yet: the hash is that of a batch, and more of it is to come.
    Pending,
    /// The book is not what the venue says.
    Differs,
}

/// A checksum or a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digest {
    /// A CRC-32.
    Crc32(u32),
    /// A SHA-1 in hexadecimal digits.
    Sha1(BookHash),
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc32(value) => write!(f, "{value}"),
            Self::Sha1(hash) => write!(f, "{hash}"),
        }
    }
}

/// What about a message could not be read, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// What.
    pub why: Why,
    /// The byte at which it was noticed.
    pub at: usize,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.why, self.at)
    }
}

/// What about a message could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is not JSON.
    #[error("not JSON")]
    NotJson,
    /// It is nested too deeply.
    #[error("nested too deeply")]
    TooDeep,
    /// It is longer than 4 GiB or has too many pieces.
    #[error("too large")]
    TooLarge,
    /// A member that matters stands twice.
    #[error("a member stands twice")]
    Twice,
    /// The name of a member that may matter is written with escapes.
    #[error("a member's name is written with escapes")]
    EscapedName,
    /// A price or size is not a number.
    #[error("a price or size is not a number")]
    NotANumber,
    /// A price or size is below zero.
    #[error("a price or size is negative")]
    Negative,
    /// A price is zero.
    #[error("a price is zero")]
    PriceZero,
    /// A price has more digits than can be held exactly.
    #[error("a price has too many digits")]
    TooPrecise,
    /// A price and a size have too many characters.
    #[error("a level's text is too long")]
    TooLong,
    /// A level is not spelled as the form says.
    #[error("a level is not spelled as expected")]
    LevelShape,
    /// A side is neither a bid's nor an ask's.
    #[error("a level is of an unknown side")]
    UnknownSide,
    /// A snapshot has a price twice.
    #[error("a snapshot has a price twice")]
    PriceTwice,
    /// Neither side is there.
    #[error("there are no levels")]
    NoLevels,
    /// A side has more levels than is believed.
    #[error("there are too many levels")]
    TooManyLevels,
    /// The instrument is not named.
    #[error("the instrument is not named")]
    NoInstrument,
    /// A sequence number is missing or no whole number.
    #[error("a sequence number is missing or not a whole number")]
    BadSequence,
    /// A checksum is no 32-bit number, or a hash is not 40 hexadecimal digits.
    #[error("a checksum is not one")]
    BadChecksum,
}
