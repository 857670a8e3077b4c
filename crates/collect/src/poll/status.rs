//! Where a venue's polling stands, for the status page and the summary at the end.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_governor::HoldCause;

use crate::stats::PollCounts;

/// One venue at one moment, renewed every second.
#[derive(Debug, Clone, Default)]
pub struct PollStatus {
    /// Instruments that are polled.
    pub instruments: usize,
    /// Of these, in back-off.
    pub resting: usize,
    /// Batches they are asked in.
    pub batches: usize,
    /// What happened since the start: books, requests, refusals (`http_429`, `refused`), failures, timeouts, late slots.
    pub counts: PollCounts,
    /// Books a second, over the last ten.
    pub books_per_s: f64,
    /// Of the requests of the last minute.
    pub latency_p50: Option<Duration>,
    /// Of the requests of the last minute.
    pub latency_p95: Option<Duration>,
    /// Between two reads of the same instrument, over the last minute.
    pub spacing_p05: Option<Duration>,
    /// Between two reads of the same instrument, over the last minute.
    pub spacing_p50: Option<Duration>,
    /// Between two reads of the same instrument, over the last minute.
    pub spacing_p95: Option<Duration>,
    /// How long nothing is sent yet, and why.
    pub hold: Option<(Duration, HoldCause)>,
    /// Why the snapshot of instruments was not taken over, if so.
    pub snapshot_kept: Option<String>,
    /// It has stopped; these are the last figures.
    pub is_over: bool,
}

/// Books in each of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    seconds: VecDeque<u64>,
    total: u64,
}

impl Speed {
    const SECONDS: usize = 10;

    /// To be called every second, with all books so far. Gives back how many a second.
    pub(crate) fn turn(&mut self, total: u64) -> f64 {
        if self.seconds.len() == Self::SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(total - self.total);
        self.total = total;
        self.seconds.iter().sum::<u64>() as f64 / self.seconds.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_that_of_the_last_ten_seconds() {
        let mut speed = Speed::default();
        assert_eq!(speed.turn(100), 100.0);
        assert_eq!(speed.turn(100), 50.0);
        (0..9).for_each(|_| {
            speed.turn(100);
        });
        assert_eq!(speed.turn(100), 0.0);
        assert_eq!(speed.turn(120), 2.0);
    }
}
