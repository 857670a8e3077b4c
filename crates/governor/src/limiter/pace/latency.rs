//! How long answers take: the median of the last two seconds against the best there was in ten minutes, and the 99th
//! percentile for the guard on requests under way.
//!
//! Latencies are counted in buckets an eighth of an octave wide, so a telling costs an index and an addition.

use std::time::Duration;

use catchment_model::Monotonic;

const BUCKETS: usize = 8 * 28;
/// A median of fewer answers says little.
const SAMPLES_MIN: u32 = 8;
const EPOCH: Duration = Duration::from_secs(2);
const MINUTES: usize = 10;

/// Two seconds of answers, summed up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Epoch {
    pub(super) median: Duration,
    /// The best median of the ten minutes before, if there was any.
    pub(super) base: Option<Duration>,
    /// Cost a second that was answered in it.
    pub(super) delivered: f64,
}

#[derive(Debug)]
pub(super) struct Latency {
    recent: Box<[u32; BUCKETS]>,
    longer: Box<[f32; BUCKETS]>,
    samples: u32,
    cost: u64,
    began: Monotonic,
    minima: [Option<Duration>; MINUTES],
    minute: u64,
    p99_s: Option<f64>,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self {
            recent: Box::new([0; BUCKETS]),
            longer: Box::new([0.0; BUCKETS]),
            samples: 0,
            cost: 0,
            began: Monotonic::default(),
            minima: [None; MINUTES],
            minute: 0,
            p99_s: None,
        }
    }

    /// Nearly every answer came within so many seconds.
    pub(super) fn p99_s(&self) -> Option<f64> {
        self.p99_s
    }

    /// Counts one answer; says how things stand once enough have come.
    pub(super) fn add(&mut self, took: Duration, cost: u32, now: Monotonic) -> Option<Epoch> {
        if self.samples == 0 {
            self.began = now;
        } else {
            self.cost += u64::from(cost);
        }
        self.recent[bucket(took)] += 1;
        self.samples += 1;
        let length = now.since(self.began);
        if self.samples < SAMPLES_MIN || length < EPOCH {
            return None;
        }
        let epoch = Epoch {
            median: self.median(),
            base: self.base(now),
            delivered: self.cost as f64 / length.as_secs_f64(),
        };
        self.close(epoch.median);
        Some(epoch)
    }

    fn median(&self) -> Duration {
        let mut left = self.samples / 2;
        for (index, count) in self.recent.iter().enumerate() {
            if *count > left {
                return middle(index);
            }
            left -= count;
        }
        middle(BUCKETS - 1)
    }

    fn base(&mut self, now: Monotonic) -> Option<Duration> {
        let minute = now.0.as_secs() / 60;
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        for step in 0..passed {
            self.minima[((minute - step) % MINUTES as u64) as usize] = None;
        }
        self.minute = self.minute.max(minute);
        self.minima.iter().flatten().min().copied()
    }

    fn close(&mut self, median: Duration) {
        let best = &mut self.minima[(self.minute % MINUTES as u64) as usize];
        *best = Some(best.map_or(median, |best| best.min(median)));

        let mut total = 0.0;
        for (longer, recent) in self.longer.iter_mut().zip(self.recent.iter_mut()) {
            *longer = *longer * 0.8 + *recent as f32;
            *recent = 0;
            total += *longer;
        }
        let mut above = total * 0.01;
        let slowest = self.longer.iter().rposition(|count| {
            above -= count;
            above < 0.0
        });
        self.p99_s = slowest.map(|bucket| middle(bucket).as_secs_f64());
        self.samples = 0;
        self.cost = 0;
    }
}

/// Eight buckets an octave, from a microsecond to some minutes.
fn bucket(took: Duration) -> usize {
    let us = (took.as_secs() * 1_000_000 + u64::from(took.subsec_micros())).max(8);
    let octave = us.ilog2();
    let eighth = (us >> (octave - 3)) & 7;
    (((octave - 3) * 8) as usize + eighth as usize).min(BUCKETS - 1)
}

fn middle(bucket: usize) -> Duration {
    let octave = bucket as u32 / 8;
    let eighth = bucket as u64 % 8;
    let us = (8 + eighth) << octave;
    Duration::from_micros(us + (1_u64 << octave) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn a_bucket_holds_what_falls_into_it() {
        for us in [1, 9, 80, 1_000, 79_999, 80_000, 1_500_000, 59_000_000] {
            let got = middle(bucket(Duration::from_micros(us))).as_micros() as f64;
            let wanted = us.max(8) as f64;
            assert!((got / wanted - 1.0).abs() < 0.13, "{us} became {got}");
        }
        assert_eq!(bucket(Duration::from_secs(86_400)), BUCKETS - 1);
    }

    #[test]
    fn the_median_of_two_seconds_stands_against_the_best_before() {
        let mut latency = Latency::new();
        let mut epochs = Vec::new();
        for ms in (0..9_000).step_by(50) {
            let took = if ms < 4_500 { 80 } else { 400 };
            epochs.extend(latency.add(Duration::from_millis(took), 1, at(ms)));
        }
        let told: Vec<(u128, Option<u128>)> =
            epochs.iter().map(|e| (e.median.as_millis(), e.base.map(|base| base.as_millis()))).collect();
        assert_eq!(told[0], (77, None));
        assert_eq!(told[1], (77, Some(77)));
        assert_eq!(told[3], (409, Some(77)));
        assert!((epochs[3].delivered - 20.0).abs() < 0.5);
        assert!(latency.p99_s().unwrap() > 0.35);
    }
}
