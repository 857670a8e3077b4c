//! Where a governor stands, for telemetry.

use std::time::Duration;

use crate::budget::Fill;
use crate::hold::HoldCause;
use crate::limiter::{Gauge, Outcome};

/// One venue at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Which.
    pub venue: String,
    /// Permits and requests under way, and at most.
    pub inflight: u32,
    /// At most under way.
    pub inflight_max: u32,
    /// How long nothing is sent yet, and why.
    pub hold: Option<(Duration, HoldCause)>,
    /// Each family that is declared, parents first.
    pub families: Vec<FamilySnapshot>,
}

/// One family at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilySnapshot {
    /// Which.
    pub name: String,
    /// Where its limiter stands; `None` before the first request.
    pub gauge: Option<Gauge>,
    /// Its windows, its own first, those of the families above it last.
    pub windows: Vec<Fill>,
    /// How many wait in each lane, the most urgent first.
    pub waiting: [usize; 4],
    /// How long it alone is held yet, and why.
    pub hold: Option<(Duration, HoldCause)>,
    /// What happened since the start.
    pub counts: Counts,
}

/// What happened to a family's requests since the start. Every permit granted is in flight or in exactly one of
/// `unsent`, `answered`, `refused`, `failed`, `timed_out`, `banned` and `abandoned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Permits given out.
    pub granted: u64,
    /// Of these, for retries.
    pub retries: u64,
    /// Permits that were dropped or expired before anything was sent.
    pub unsent: u64,
    /// Answered, or refused for what was asked.
    pub answered: u64,
    /// Refused for the speed.
    pub refused: u64,
    /// The venue or the connection failed.
    pub failed: u64,
    /// No answer came in time.
    pub timed_out: u64,
    /// Answered with a ban.
    pub banned: u64,
    /// Dropped while under way.
    pub abandoned: u64,
    /// Asked for with a deadline, and could not be had by then.
    pub late: u64,
    /// Cost that strangers used of the same windows.
    pub strange: u64,
}

impl Counts {
    /// Permits that have come to their end.
    pub fn ended(&self) -> u64 {
        self.unsent
            + self.answered
            + self.refused
            + self.failed
            + self.timed_out
            + self.banned
            + self.abandoned
    }

    pub(crate) fn note(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Answered => &mut self.answered,
            Outcome::Refused => &mut self.refused,
            Outcome::Failed => &mut self.failed,
            Outcome::TimedOut => &mut self.timed_out,
            Outcome::Banned => &mut self.banned,
            Outcome::Abandoned => &mut self.abandoned,
        };
        *count += 1;
    }
}
