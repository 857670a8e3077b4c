//! When to connect again: at once after a good while, later and later while it keeps failing.
//!
//! A connection that comes up and breaks again has not recovered: failures are forgotten only once it has *stayed* up.

use std::time::Duration;

use catchment_model::Monotonic;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How long to wait before another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedialSettings {
    /// At most so long after the first failure; each further one doubles it.
    pub first: Duration,
    /// No wait is longer.
    pub max: Duration,
    /// A connection that was up for this long is healthy, and its next failure is a first one.
    pub healthy_after: Duration,
}

impl Default for RedialSettings {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            max: Duration::from_secs(60),
            healthy_after: Duration::from_secs(60),
        }
    }
}

/// The waits of one connection.
#[derive(Debug)]
pub(crate) struct Redial {
    settings: RedialSettings,
    failures: u32,
    up_since: Option<Monotonic>,
    rng: StdRng,
}

impl Redial {
    pub(crate) fn new(settings: RedialSettings, seed: u64) -> Self {
        Self { settings, failures: 0, up_since: None, rng: StdRng::seed_from_u64(seed) }
    }

    /// It is up.
    pub(crate) fn up(&mut self, now: Monotonic) {
        self.up_since = Some(now);
    }

    /// It failed or broke. Gives back how long to wait: between half of its doubled time and all of it.
    pub(crate) fn lost(&mut self, now: Monotonic) -> Duration {
        let stayed =
            self.up_since.take().is_some_and(|since| now.since(since) >= self.settings.healthy_after);
        self.failures = if stayed { 1 } else { self.failures.saturating_add(1) };
        let doublings = (self.failures - 1).min(20);
        let whole = self.settings.first.saturating_mul(1 << doublings).min(self.settings.max);
        whole / 2 + (whole / 2).mul_f64(self.rng.random_range(0.0..=1.0))
    }

    /// Failures since it was last healthy.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn waits_double_to_the_cap_with_jitter() {
        let mut redial = Redial::new(RedialSettings::default(), 1);
        let mut whole = Duration::from_millis(500);
        for _ in 0..12 {
            let wait = redial.lost(at(0));
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            whole = (whole * 2).min(Duration::from_secs(60));
        }
        let others: Vec<Duration> =
            (0..20).map(|seed| Redial::new(RedialSettings::default(), seed).lost(at(0))).collect();
        assert!(others.iter().any(|wait| *wait != others[0]), "jitter");
    }

    #[test]
    fn only_staying_up_forgives() {
        let mut redial = Redial::new(RedialSettings::default(), 2);
        for second in 0..6 {
            redial.up(at(10 * second));
            redial.lost(at(10 * second + 9));
        }
        assert_eq!(redial.failures(), 6, "up for nine seconds is not healthy");
        redial.up(at(100));
        assert!(redial.lost(at(160)) <= Duration::from_millis(500));
        assert_eq!(redial.failures(), 1);
        // Without having been up in between, it is no new episode however long it takes.
        redial.lost(at(1_000));
        assert_eq!(redial.failures(), 2);
    }
}
