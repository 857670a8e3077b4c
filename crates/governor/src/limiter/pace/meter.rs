//! How much the venue let through lately: a ring of quarter seconds, two minutes long.

use std::time::Duration;

use catchment_model::Monotonic;

const SLICE_MS: u64 = 250;
const SLICES: usize = 512;

/// What was let through, by the time its answer came.
#[derive(Debug)]
pub(super) struct Meter {
    slices: Box<[u64; SLICES]>,
    /// The slice that is being filled, counted since the clock began.
    newest: u64,
    /// When anything was first let through or refused; before this there is nothing to count.
    since: Option<Monotonic>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { slices: Box::new([0; SLICES]), newest: 0, since: None }
    }

    /// Marks when the first one left: before that nobody asked.
    pub(super) fn start(&mut self, now: Monotonic) {
        self.since.get_or_insert(now);
    }

    /// When that was.
    pub(super) fn since(&self) -> Option<Monotonic> {
        self.since
    }

    pub(super) fn add(&mut self, cost: u32, now: Monotonic) {
        self.forget_old(now);
        self.slices[(self.newest % SLICES as u64) as usize] += u64::from(cost);
    }

    /// Cost a second over the last `span`, or since the first request if that is shorter, but never over less than
    /// a second.
    pub(super) fn rate(&mut self, span: Duration, now: Monotonic) -> f64 {
        self.forget_old(now);
        let known = self.since.map_or(Duration::ZERO, |since| now.since(since));
        let longest = Duration::from_millis(SLICE_MS * (SLICES as u64 - 1));
        let span = span.min(known).min(longest).max(Duration::from_secs(1));

        // The slice being filled is not full, so the oldest one counts for the rest of its length.
        let span_ms = span.as_millis() as u64;
        let filled_ms = u64::from(now.0.subsec_millis()) % SLICE_MS;
        let whole = (span_ms - filled_ms) / SLICE_MS;
        let rest_ms = (span_ms - filled_ms) % SLICE_MS;
        let mut sum: u64 = (0..=whole).map(|back| self.slice(back)).sum();
        sum += self.slice(whole + 1) * rest_ms / SLICE_MS;
        sum as f64 / (span_ms as f64 / 1e3)
    }

    fn slice(&self, back: u64) -> u64 {
        match self.newest.checked_sub(back) {
            Some(index) if back < SLICES as u64 => self.slices[(index % SLICES as u64) as usize],
            _ => 0,
        }
    }

    fn forget_old(&mut self, now: Monotonic) {
        let newest = slice_of(now);
        if newest <= self.newest {
            return;
        }
        let passed = (newest - self.newest).min(SLICES as u64);
        for step in 0..passed {
            self.slices[((newest - step) % SLICES as u64) as usize] = 0;
        }
        self.newest = newest;
    }
}

/// Which slice a time falls into. Told twice for each request, so without the wide arithmetic of `as_millis`.
fn slice_of(now: Monotonic) -> u64 {
    now.0.as_secs() * (1_000 / SLICE_MS) + u64::from(now.0.subsec_millis()) / SLICE_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn a_steady_flow_is_measured_over_any_span() {
        let mut meter = Meter::new();
        meter.start(at(0));
        for ms in (0..60_000).step_by(20) {
            meter.add(1, at(ms));
        }
        for span_s in [2, 10, 33] {
            let rate = meter.rate(Duration::from_secs(span_s), at(59_990));
            assert!((rate - 50.0).abs() < 0.6, "{rate} over {span_s} s");
        }
    }

    #[test]
    fn what_is_older_than_the_ring_is_forgotten() {
        let mut meter = Meter::new();
        meter.start(at(0));
        meter.add(1_000, at(10));
        assert_eq!(meter.rate(Duration::from_secs(10), at(500)), 1_000.0);
        assert_eq!(meter.rate(Duration::from_secs(10), at(3_600_000)), 0.0);
    }
}
