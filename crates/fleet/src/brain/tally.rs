//! What is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Monotonic;
use serde::{Deserialize, Serialize};

use crate::message::{Outcome, Summary};

/// Counts since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Batches answered for, however they ended.
    pub batches: u64,
    /// Requests that left for the venue.
    pub requests: u64,
    /// Batches whose books are in Redis.
    pub ok: u64,
    /// Batches the venue called wrong.
    pub bad_requests: u64,
    /// Batches that met trouble at the venue or on the way.
    pub trouble: u64,
    /// Batches of a node the venue refuses for a while.
    pub held: u64,
    /// Batches that Redis did not take.
    pub sink: u64,
    /// Batches for which a node's own limit had no room in time.
    pub late: u64,
    /// Batches refused for another reason.
    pub refused: u64,
    /// Books that came.
    pub books: u64,
    /// Books that were new.
    pub written: u64,
    /// Books that were there already.
    pub unchanged: u64,
    /// Books that were older than what was there.
    pub older: u64,
    /// Tokens without a book.
    pub missing: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, summary: &Summary) {
        self.batches += 1;
        let has_left = summary.status.is_some() || matches!(summary.outcome, Outcome::Ok | Outcome::Trouble);
        self.requests += u64::from(has_left);
        let kind = match summary.outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::BadRequest => &mut self.bad_requests,
            Outcome::Trouble => &mut self.trouble,
            Outcome::Held => &mut self.held,
            Outcome::Sink => &mut self.sink,
            Outcome::Late => &mut self.late,
            Outcome::Busy | Outcome::Stale | Outcome::Odd => &mut self.refused,
        };
        *kind += 1;
        self.books += summary.books as u64;
        self.written += summary.written as u64;
        self.unchanged += summary.unchanged as u64;
        self.older += summary.older as u64;
        self.missing += summary.missing.len() as u64;
    }
}

/// How old the newest snapshots are, over all tokens that have a book and do not rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Tokens counted.
    pub tokens: usize,
    /// Half of them are younger.
    pub p50: Duration,
    /// Nine of ten are.
    pub p90: Duration,
    /// Ninety-nine of a hundred are.
    pub p99: Duration,
    /// The oldest.
    pub max: Duration,
    /// Tokens never fetched yet; their age counts from when they became known.
    pub never: usize,
    /// Tokens the venue has no book of; not counted above.
    pub absent: usize,
}

impl Freshness {
    pub(super) fn of(mut ages: Vec<Duration>, never: usize, absent: usize) -> Self {
        let Some(last) = ages.len().checked_sub(1) else {
            return Self { never, absent, ..Self::default() };
        };
        let mut at = |share: usize| *ages.select_nth_unstable(last * share / 100).1;
        let (p50, p90, p99, max) = (at(50), at(90), at(99), at(100));
        Self { tokens: last + 1, p50, p90, p99, max, never, absent }
    }
}

/// Something that went wrong.
#[derive(Debug, Clone)]
pub(super) struct Mishap {
    pub(super) at: Monotonic,
    pub(super) node: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) message: String,
}

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Mishaps(VecDeque<Mishap>);

impl Mishaps {
    const MAX: usize = 20;

    pub(super) fn note(&mut self, mut mishap: Mishap) {
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        if let Some((at, _)) = mishap.message.char_indices().nth(256) {
            mishap.message.truncate(at);
        }
        self.0.push_back(mishap);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mishap> {
        self.0.iter().rev()
    }
}
