//! The right to send, taken from the store: who asks for how much, and what it is told.

use std::time::Duration;

use catchment_model::{UnixMs, Venue};

use crate::error::StoreError;

/// What somebody wants to spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenAsk<'a> {
    /// On which exchange.
    pub exchange: Venue,
    /// Further windows that it is counted in, by their places in the connector's `windows`.
    pub windows: &'a [u16],
    /// What one request costs. In a window that does not let that much through at all, it costs the whole window.
    pub cost: u32,
    /// For so many requests at most; fewer are given when there is room for fewer, but not none.
    pub requests: u32,
    /// How long a token may be kept before its request leaves; none means what the shortest of the periods suggests. It is
    /// charged as if it left at the very end.
    pub valid_for: Option<Duration>,
}

impl<'a> TokenAsk<'a> {
    /// No token may be kept longer.
    pub const VALID_FOR_MAX: Duration = Duration::from_secs(10);

    /// For one request.
    pub fn one(exchange: Venue) -> Self {
        Self { exchange, windows: &[], cost: 1, requests: 1, valid_for: None }
    }

    /// For several requests of cost 1.
    pub fn several(exchange: Venue, requests: u32) -> Self {
        Self { requests, ..Self::one(exchange) }
    }

    /// Says which field is wrong, if one is.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.cost == 0 || self.requests == 0 {
            return Err(StoreError::invalid("cost", "is 0; every request costs something"));
        }
        if self.valid_for.is_some_and(|length| length > Self::VALID_FOR_MAX) {
            return Err(StoreError::invalid("valid_for", "is longer than 10 seconds"));
        }
        Ok(())
    }
}

/// What a store says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokens {
    /// They are yours.
    Granted(Grant),
    /// There are none; S2's `waiting_rate_limit`.
    Wait {
        /// Exactly: a millisecond earlier there are none, and then there are, unless others take them.
        retry_after: Duration,
    },
    /// The connector is paused; nobody gets any until it is resumed.
    Paused,
}

impl Tokens {
    /// What was granted, if anything.
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Wait { .. } | Self::Paused => None,
        }
    }
}

/// Tokens that were taken. They may leave until [`Grant::valid_for`] after *asking* for them began, by the clock of whoever
/// asked: the store granted later than that, and counts from its own moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whose.
    pub exchange: Venue,
    /// For how many requests.
    pub requests: u32,
    /// What each of them costs.
    pub cost: u32,
    /// By the store's clock.
    pub granted_at: UnixMs,
    /// How long they may be kept.
    pub valid_for: Duration,
    /// Where they stand in the logs; what is given back is found by it.
    pub marks: Vec<Mark>,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Which window.
    pub slot: Slot,
    /// The entry.
    pub until: i64,
    /// What each request costs in this window.
    pub cost: u32,
}

/// One of the windows that a token is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// The connector's own.
    Main,
    /// A further one, by its place.
    Named(u16),
    /// What all exchanges together may use.
    System,
}
