//! What a poller counts, and the figures made of it.
//!
//! Counters only grow; a record carries them twice, since the start (`total`) and since the record before (`period`), so
//! that neither a lost record nor a restart spoils a sum. Latencies are kept one by one for a minute and their
//! percentiles are exact (nearest rank). Spacings, of which there are twenty thousand a second, go into buckets that are
//! at most 3 % wide.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_model::Monotonic;
use serde::Serialize;

/// Defines the counters once: the fields, and how two readings are subtracted.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened at a venue since the poller's start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        pub struct PollCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl PollCounts {
            /// What came after `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

counters! {
    /// Slots that came: each was sent, is about to be, or is in one of `late`, `held`, `rested`.
    slots,
    /// Slots skipped because the request before was not through, or because there was no permit before the next one.
    late,
    /// Slots skipped because the venue was held: cooldown, Retry-After, ban.
    held,
    /// Slots skipped because the batch, or everyone in it, was in back-off.
    rested,
    /// Requests that left, counted when they end.
    requests_submitted,
    /// Of these, answered with something that could be read.
    requests_successful,
    /// Of these, refused, failed, timed out or answered with something else.
    requests_failed,
    /// Requests that were under way when the poller was stopped, and were not waited for any longer.
    requests_abandoned,
    /// Instruments asked for: a request for 500 is 500 polls.
    polls_submitted,
    /// Of these, those whose book came.
    polls_successful,
    /// Of these, those whose book did not.
    polls_failed,
    /// Polls left out of their request because the instrument was in back-off.
    polls_resting,
    /// Answers with a status from 400 to 499, 429 among them.
    http_4xx,
    /// Answers with status 429.
    http_429,
    /// Answers with a status from 500 on.
    http_5xx,
    /// Requests that were answered too late or not at all.
    timeouts,
    /// Requests that found nobody, or whose connection broke.
    unreachable,
    /// Requests the venue refused for their speed, by whatever status.
    refused,
    /// Requests answered with a ban.
    banned,
    /// Answers with a good status and no use: cut off, HTML, another shape.
    garbage,
    /// Books read.
    books,
    /// Books asked for that were not in the answer.
    missing,
    /// Books in the answer that could not be read.
    unreadable,
    /// Books whose hash does not agree.
    hash_mismatches,
    /// Batches taken apart because the venue refused one of their instruments.
    splits,
    /// Records that the pipeline accepted.
    records_accepted,
    /// Records that the pipeline had seen before.
    records_duplicate,
    /// Records that the pipeline dropped or refused, or that were too large for it.
    records_lost,
    /// Error records written.
    errors_told,
    /// Errors without a record of their own.
    errors_suppressed,
    /// Gap records written.
    gaps_told,
}

/// The latencies of the last minute, at most the newest 4,096.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    samples: VecDeque<(Monotonic, Duration)>,
}

impl Latencies {
    pub(crate) const WINDOW: Duration = Duration::from_secs(60);
    const SAMPLES_MAX: usize = 4_096;

    pub(crate) fn add(&mut self, now: Monotonic, latency: Duration) {
        if self.samples.len() == Self::SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, latency));
    }

    /// The 50th and the 95th percentile; `None` if nothing was measured lately.
    pub(crate) fn p50_p95(&mut self, now: Monotonic) -> Option<(Duration, Duration)> {
        while self.samples.front().is_some_and(|(at, _)| now.since(*at) > Self::WINDOW) {
            self.samples.pop_front();
        }
        let mut sorted: Vec<Duration> = self.samples.iter().map(|(_, latency)| *latency).collect();
        sorted.sort_unstable();
        Some((*sorted.get(rank(50, sorted.len())?)?, *sorted.get(rank(95, sorted.len())?)?))
    }
}

/// The place of a percentile by nearest rank: the smallest value that so many percent do not exceed.
fn rank(percent: usize, count: usize) -> Option<usize> {
    (percent * count).div_ceil(100).checked_sub(1)
}

/// Times in buckets: exact below 32 µs, then 32 buckets to each doubling.
#[derive(Debug, Clone)]
struct Buckets {
    counts: Vec<u32>,
    total: u64,
}

impl Buckets {
    const FINE_BITS: u32 = 5;
    /// About a year.
    const MICROS_MAX: u64 = 1 << 45;

    fn new() -> Self {
        Self { counts: vec![0; Self::place(Self::MICROS_MAX) + 1], total: 0 }
    }

    fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(Self::MICROS_MAX);
        self.counts[Self::place(micros)] += 1;
        self.total += 1;
    }

    fn place(micros: u64) -> usize {
        let fine = 1 << Self::FINE_BITS;
        if micros < fine {
            return micros as usize;
        }
        let doublings = micros.ilog2() - Self::FINE_BITS;
        ((u64::from(doublings) + 1) * fine + ((micros >> doublings) - fine)) as usize
    }

    /// The middle of a bucket.
    fn micros(place: usize) -> u64 {
        let (place, fine) = (place as u64, 1u64 << Self::FINE_BITS);
        if place < fine {
            return place;
        }
        let (doublings, rest) = (place / fine - 1, place % fine);
        ((fine + rest) << doublings) + (1 << doublings) / 2
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }
}

/// How long instruments waited between two reads, over the last minute.
#[derive(Debug)]
pub(crate) struct Spacings {
    /// One for each piece of the minute; the last is being filled.
    pieces: VecDeque<Buckets>,
}

impl Spacings {
    const PIECES: usize = 6;

    pub(crate) fn new() -> Self {
        Self { pieces: VecDeque::from([Buckets::new()]) }
    }

    pub(crate) fn add(&mut self, spacing: Duration) {
        self.pieces.back_mut().expect("there is always one").add(spacing);
    }

    /// A piece is over; to be called every ten seconds.
    pub(crate) fn turn(&mut self) {
        let mut piece = match self.pieces.len() {
            Self::PIECES => self.pieces.pop_front().expect("it has pieces"),
            _ => Buckets::new(),
        };
        piece.clear();
        self.pieces.push_back(piece);
    }

    pub(crate) fn percentile(&self, percent: u64) -> Option<Duration> {
        let total: u64 = self.pieces.iter().map(|piece| piece.total).sum();
        let wanted = (percent * total).div_ceil(100);
        let mut seen = 0;
        for place in 0..self.pieces[0].counts.len() {
            seen += self.pieces.iter().map(|piece| u64::from(piece.counts[place])).sum::<u64>();
            if seen >= wanted && seen > 0 {
                return Some(Duration::from_micros(Buckets::micros(place)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let check = |millis: &[u64], p50: u64, p95: u64| {
            let mut latencies = Latencies::default();
            millis.iter().for_each(|ms| latencies.add(at(1), Duration::from_millis(*ms)));
            let expected = (Duration::from_millis(p50), Duration::from_millis(p95));
            assert_eq!(latencies.p50_p95(at(1)), Some(expected), "{millis:?}");
        };
        check(&[7], 7, 7);
        check(&[2, 1], 1, 2);
        check(&(1..=20).rev().collect::<Vec<_>>(), 10, 19);
        check(&(1..=100).collect::<Vec<_>>(), 50, 95);
        check(&(1..=101).collect::<Vec<_>>(), 51, 96);
    }

    #[test]
    fn latencies_older_than_a_minute_do_not_count() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.p50_p95(at(0)), None);
        latencies.add(at(0), Duration::from_secs(9));
        latencies.add(at(61), Duration::from_secs(1));
        assert_eq!(latencies.p50_p95(at(61)), Some((Duration::from_secs(1), Duration::from_secs(1))));
        assert_eq!(latencies.p50_p95(at(200)), None);
        (0..10_000).for_each(|n| latencies.add(at(200), Duration::from_secs(n)));
        assert_eq!(latencies.samples.len(), Latencies::SAMPLES_MAX);
    }

    #[test]
    fn every_bucket_is_at_most_three_percent_wide_and_none_is_skipped() {
        let mut last = 0;
        for micros in (0..100_000).chain((17..45).map(|bit| (1 << bit) - 1)) {
            let place = Buckets::place(micros);
            assert!(place == last || place == last + 1 || micros >= 100_000, "{micros}");
            last = place;
            let error = Buckets::micros(place).abs_diff(micros) as f64;
            assert!(error <= micros as f64 * 0.032, "{micros} is taken for {}", Buckets::micros(place));
        }
        Buckets::new().add(Duration::MAX);
    }

    #[test]
    fn spacings_are_forgotten_after_a_minute() {
        let mut spacings = Spacings::new();
        assert_eq!(spacings.percentile(95), None);
        (0..100).for_each(|_| spacings.add(Duration::from_secs(8)));
        for _ in 0..5 {
            spacings.turn();
            spacings.add(Duration::from_secs(1));
        }
        let near = |percent, secs: f64| {
            let got = spacings.percentile(percent).unwrap().as_secs_f64();
            assert!((got / secs - 1.0).abs() < 0.032, "{got} is not {secs}");
        };
        near(1, 1.0);
        near(50, 8.0);
        spacings.turn();
        let p95 = spacings.percentile(95).unwrap();
        assert!(p95 < Duration::from_millis(1_040), "{p95:?}");
    }

    #[test]
    fn a_period_is_the_difference_of_two_totals() {
        let before = PollCounts { books: 5, late: 1, ..PollCounts::default() };
        let after = PollCounts { books: 12, late: 1, http_429: 2, ..PollCounts::default() };
        assert_eq!(after.since(&before), PollCounts { books: 7, http_429: 2, ..PollCounts::default() });
    }
}
