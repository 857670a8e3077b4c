//! How long a sink takes for its batches.

use std::time::Duration;

use serde::Serialize;

/// How long writes took, in classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WriteTimes {
    /// So many took no longer than each of [`WriteTimes::BOUNDS_S`] and longer than the one before; the last is for all that
    /// took longer.
    pub counts: [u64; WriteTimes::BOUNDS_S.len() + 1],
    /// All of them together, in seconds.
    pub sum_s: f64,
}

impl WriteTimes {
    /// Where the classes end, in seconds.
    pub const BOUNDS_S: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let class = Self::BOUNDS_S.iter().position(|bound| seconds <= *bound);
        self.counts[class.unwrap_or(Self::BOUNDS_S.len())] += 1;
        self.sum_s += seconds;
    }
}
