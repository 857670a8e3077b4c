//! How many tokens a request has: as many as the goal needs, fewer where that does not go well.
//!
//! With `T` tokens on a node, a goal of `F` refreshes a second and a pace of `R` requests a second, `B = ⌈T·F/R⌉` is the least
//! batch with which `T×F ≤ B×R`; summed over the nodes that is S4's rule. A node that fails or is slow gets smaller ones:
//! a fifth less after a failure, a tenth less after a slow answer, not below a tenth of the wanted; each good answer
//! gives a fiftieth of the wanted back. What is then missing in freshness is seen in the status. Pure.

use std::time::Duration;

/// Less than this share of the wanted batch is never asked for.
const FACTOR_MIN: f64 = 0.1;

/// The batch size of one node.
#[derive(Debug, Clone)]
pub struct Sizer {
    factor: f64,
    /// What the venue takes, as far as it is known.
    most: usize,
    slow: Duration,
}

impl Sizer {
    /// Of a node that may ask for so many at once; an answer that takes longer than `slow` counts as slow.
    pub fn new(books_max: usize, slow: Duration) -> Self {
        Self { factor: 1.0, most: books_max.max(1), slow }
    }

    /// The size for so many tokens, so many refreshes of each in a thousand seconds, at a pace of so many requests in a
    /// thousand seconds.
    pub fn size(&self, tokens: usize, refresh_mhz: u64, pace_mrps: u64) -> usize {
        let wanted = (tokens as u128 * u128::from(refresh_mhz)).div_ceil(u128::from(pace_mrps.max(1)));
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, self.most);
        // A share of 0.72 of 100 is 72, not a hair more.
        ((wanted as f64 * self.factor - 1e-6).ceil() as usize).clamp(1, self.most)
    }

    /// What the venue takes at once, as far as it is known.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The share of the wanted size that is asked for.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// An answer came.
    pub fn went_well(&mut self, latency: Duration) {
        if latency > self.slow {
            self.factor = (self.factor * 0.9).max(FACTOR_MIN);
        } else {
            self.factor = (self.factor + 0.02).min(1.0);
        }
    }

    /// None came, or one that means trouble.
    pub fn failed(&mut self) {
        self.factor = (self.factor * 0.8).max(FACTOR_MIN);
    }

    /// The venue says that so many are too many.
    pub fn too_many(&mut self, asked: usize) {
        self.most = (asked / 2).clamp(1, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_secs(2);

    #[test]
    fn the_size_is_the_least_that_reaches_the_goal() {
        let check = |tokens, refresh_mhz, pace_mrps, size| {
            let sizer = Sizer::new(500, SLOW);
            assert_eq!(sizer.size(tokens, refresh_mhz, pace_mrps), size, "{tokens} tokens");
        };
        check(10_000, 200, 20_000, 100); // a node's quarter of 40,000, every 5 s, 20 a second
        check(10_001, 200, 20_000, 101);
        check(1, 200, 20_000, 1);
        check(0, 200, 20_000, 1);
        check(10_000, 1_000, 20_000, 500);
        check(1_000_000, 1_000, 20_000, 500); // more than the venue takes
        check(10, 200, 0, 500); // no pace at all: whatever can be had
    }

    #[test]
    fn failures_and_slowness_make_it_smaller_and_good_answers_larger() {
        let mut sizer = Sizer::new(500, SLOW);
        sizer.failed();
        assert_eq!(sizer.size(10_000, 200, 20_000), 80);
        sizer.went_well(SLOW * 2);
        assert_eq!(sizer.size(10_000, 200, 20_000), 72);
        (0..100).for_each(|_| sizer.failed());
        assert_eq!(sizer.size(10_000, 200, 20_000), 10);
        (0..44).for_each(|_| sizer.went_well(SLOW / 2));
        assert!(sizer.factor() < 1.0);
        (0..2).for_each(|_| sizer.went_well(SLOW / 2));
        assert_eq!(sizer.size(10_000, 200, 20_000), 100);
    }

    #[test]
    fn what_the_venue_does_not_take_is_not_asked_again() {
        let mut sizer = Sizer::new(500, SLOW);
        sizer.too_many(500);
        assert_eq!(sizer.size(100_000, 1_000, 20_000), 250);
        sizer.too_many(1);
        assert_eq!(sizer.size(100_000, 1_000, 20_000), 1);
    }
}
