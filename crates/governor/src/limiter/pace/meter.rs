//! How much the venue let through lately: a ring of quarter seconds, two minutes long, and one of eight seconds, a quarter
//! of an hour long, for venues whose windows are.

use std::time::Duration;

use catchment_model::Monotonic;

const SLICES: usize = 512;
const FINE_MS: u64 = 250;
const COARSE_SLICES: usize = 128;
const COARSE_MS: u64 = 8_000;

/// What was let through, by the time its answer came.
#[derive(Debug)]
pub(super) struct Meter {
    fine: Ring<SLICES>,
    coarse: Ring<COARSE_SLICES>,
    /// When anything was first let through or refused; before this there is nothing to count.
    since: Option<Monotonic>,
    total: u64,
}

#[derive(Debug)]
struct Ring<const N: usize> {
    slices: Box<[u64; N]>,
    slice_ms: u64,
    /// The slice that is being filled, counted since the clock began.
    newest: u64,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { fine: Ring::new(FINE_MS), coarse: Ring::new(COARSE_MS), since: None, total: 0 }
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
        let now_ms = ms(now);
        self.total += u64::from(cost);
        self.fine.add(cost, now_ms);
        self.coarse.add(cost, now_ms);
    }

    /// All that was ever let through.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Cost a second over the last `span`, or since the first request if that is shorter, but never over less than
    /// a second.
    pub(super) fn rate(&mut self, span: Duration, now: Monotonic) -> f64 {
        let known = self.since.map_or(Duration::ZERO, |since| now.since(since));
        let span_ms = (span.min(known).as_millis() as u64).max(1_000);
        let now_ms = ms(now);
        if span_ms <= self.fine.longest_ms() {
            self.fine.rate(span_ms, now_ms)
        } else {
            self.coarse.rate(span_ms.min(self.coarse.longest_ms()), now_ms)
        }
    }
}

impl<const N: usize> Ring<N> {
    fn new(slice_ms: u64) -> Self {
        Self { slices: Box::new([0; N]), slice_ms, newest: 0 }
    }

    fn longest_ms(&self) -> u64 {
        self.slice_ms * (N as u64 - 1)
    }

    fn add(&mut self, cost: u32, now_ms: u64) {
        self.forget_old(now_ms);
        self.slices[(self.newest % N as u64) as usize] += u64::from(cost);
    }

    fn rate(&mut self, span_ms: u64, now_ms: u64) -> f64 {
        self.forget_old(now_ms);
        // The slice being filled is not full, so the oldest one counts for the rest of its length.
        let filled_ms = (now_ms % self.slice_ms).min(span_ms);
        let whole = (span_ms - filled_ms) / self.slice_ms;
        let rest_ms = (span_ms - filled_ms) % self.slice_ms;
        let mut sum: u64 = (0..=whole).map(|back| self.slice(back)).sum();
        sum += self.slice(whole + 1) * rest_ms / self.slice_ms;
        sum as f64 / (span_ms as f64 / 1e3)
    }

    fn slice(&self, back: u64) -> u64 {
        match self.newest.checked_sub(back) {
            Some(index) if back < N as u64 => self.slices[(index % N as u64) as usize],
            _ => 0,
        }
    }

    fn forget_old(&mut self, now_ms: u64) {
        let newest = now_ms / self.slice_ms;
        if newest <= self.newest {
            return;
        }
        let passed = (newest - self.newest).min(N as u64);
        for step in 0..passed {
            self.slices[((newest - step) % N as u64) as usize] = 0;
        }
        self.newest = newest;
    }
}

/// Told twice for each request, so without the wide arithmetic of `as_millis`.
fn ms(now: Monotonic) -> u64 {
    now.0.as_secs() * 1_000 + u64::from(now.0.subsec_millis())
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
    fn what_was_let_through_is_known_for_a_quarter_of_an_hour() {
        let mut meter = Meter::new();
        meter.start(at(0));
        for ms in (0..150_000).step_by(50) {
            meter.add(1, at(ms));
        }
        for (span_s, expected) in [(300, 10.0), (600, 5.0)] {
            let rate = meter.rate(Duration::from_secs(span_s), at(span_s * 1_000));
            assert!((rate - expected).abs() < 0.3, "{rate} over {span_s} s");
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
