//! The right to send one request, and what became of it.
//!
//! ```text
//! Governor::acquire ─▶ Permit ──depart──▶ Flight ──end(report)──▶ Outcome
//!                        │ dropped          │ dropped
//!                        ▼                  ▼
//!                  never left: room   abandoned: the slot is free,
//!                  and slot are back  the windows keep the charge
//! ```
//!
//! A permit does not keep for ever: after its validity it cannot depart any more. The windows would be safe without
//! that (a permit counts in them from its grant until it leaves, and for their whole length from then on), but what was
//! decided seconds ago may be wrong by now: there may be a cooldown, or the limiter may have slowed down. For the same
//! reason a permit cannot depart while its venue is held.

use std::fmt;
use std::sync::Arc;

use crate::feedback::Found;
use crate::house::House;
use crate::limiter::Outcome;

/// Proof that one request may leave now. Only a [`Governor`](crate::Governor) makes one, and it cannot be cloned.
#[must_use = "a permit dropped unused frees its slot"]
#[derive(Debug)]
pub struct Permit {
    pub(crate) seat: Seat,
}

/// A request under way. Ends with a [`Report`]; dropped without one, it counts as abandoned.
#[must_use = "a flight dropped without an end counts as abandoned"]
#[derive(Debug)]
pub struct Flight {
    seat: Seat,
}

/// The permit was not used in time, or the venue is held since. Nothing was sent; acquire another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the permit is no longer valid")]
pub struct Expired;

impl Permit {
    /// The request leaves at this moment. The windows count it from here on.
    #[inline]
    pub fn depart(mut self) -> Result<Flight, Expired> {
        self.seat.house.depart(self.seat.number)?;
        self.seat.stage = Stage::Departed;
        Ok(Flight { seat: self.seat })
    }

    /// What the request may cost.
    pub fn cost(&self) -> u32 {
        self.seat.house.cost(self.seat.number)
    }
}

impl Flight {
    /// The request has ended. Gives back what that means for the speed. Headers are read for what they say about the
    /// limit; names are compared without regard to case.
    #[inline]
    pub fn end<'h>(
        mut self,
        report: Report,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Outcome {
        // The headers are the caller's code; should it panic, the slot must still be free.
        let mut found = Found::default();
        for (name, value) in headers {
            found.note(name, value);
        }
        self.seat.stage = Stage::Over;
        self.seat.house.end(self.seat.number, report, &found)
    }
}

/// How a request ended, as whoever sent it saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// The answer's status; `None` if none came.
    pub status: Option<u16>,
    /// It was given up because it took too long.
    pub has_timed_out: bool,
    /// The venue says "too fast" in another way than by 429: in the body, or by a code of its own.
    pub is_refused: bool,
    /// A firewall answered instead of the venue: an HTML body, or a firewall's mark.
    pub is_firewall: bool,
}

impl Report {
    /// An answer came.
    pub fn status(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// No answer came in time.
    pub fn timed_out() -> Self {
        Self { has_timed_out: true, ..Self::default() }
    }

    /// The connection broke, or there was none.
    pub fn broken() -> Self {
        Self::default()
    }

    /// What this means for the speed.
    #[inline]
    pub fn outcome(&self) -> Outcome {
        match self.status {
            _ if self.has_timed_out => Outcome::TimedOut,
            None => Outcome::Failed,
            Some(418) => Outcome::Banned,
            Some(403) if self.is_firewall => Outcome::Banned,
            Some(429) => Outcome::Refused,
            Some(_) if self.is_refused => Outcome::Refused,
            Some(500..) => Outcome::Failed,
            Some(_) => Outcome::Answered,
        }
    }
}

/// A slot under the venue's inflight cap, with what was charged for it. Whatever happens to it, it is given back once.
pub(crate) struct Seat {
    pub(crate) house: Arc<House>,
    pub(crate) number: u32,
    pub(crate) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Granted,
    Departed,
    Over,
}

impl Drop for Seat {
    #[inline]
    fn drop(&mut self) {
        match self.stage {
            Stage::Granted => self.house.never_left(self.number),
            Stage::Departed => self.house.abandoned(self.number),
            Stage::Over => {}
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("number", &self.number)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_says_what_it_means_for_the_speed() {
        let check = |report: Report, outcome| assert_eq!(report.outcome(), outcome, "{report:?}");
        for status in [200, 204, 304, 400, 404, 403] {
            check(Report::status(status), Outcome::Answered);
        }
        check(Report::status(429), Outcome::Refused);
        check(Report { is_firewall: true, ..Report::status(429) }, Outcome::Refused);
        check(Report { is_refused: true, ..Report::status(200) }, Outcome::Refused);
        check(Report::status(418), Outcome::Banned);
        check(Report { is_firewall: true, ..Report::status(403) }, Outcome::Banned);
        check(Report::status(500), Outcome::Failed);
        check(Report::status(503), Outcome::Failed);
        check(Report::broken(), Outcome::Failed);
        check(Report::timed_out(), Outcome::TimedOut);
    }
}
