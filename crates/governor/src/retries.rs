//! Retries are at most a tenth of the requests, however much fails.
//!
//! Counted over the last window in sixteen slots. One retry a window is always free, or a family that asks seldom could
//! never repeat anything.

use std::time::Duration;

use catchment_model::Monotonic;

const SLOTS: u64 = 16;

#[derive(Debug)]
pub(crate) struct RetryBudget {
    share: f64,
    slot_ns: u64,
    slots: [Counts; SLOTS as usize],
    /// The number of the newest slot.
    newest: u64,
    /// Where the next one begins.
    next_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub(crate) fn new(share: f64, window: Duration) -> Self {
        let slot_ns = (ns(window) / SLOTS).max(1_000_000);
        Self { share, slot_ns, slots: [Counts::default(); SLOTS as usize], newest: 0, next_ns: slot_ns }
    }

    /// A request that is no retry has been let through.
    pub(crate) fn request(&mut self, now: Monotonic) {
        let counts = self.current(now);
        counts.requests = counts.requests.saturating_add(1);
    }

    /// Takes one retry, or says when to ask again.
    pub(crate) fn take(&mut self, now: Monotonic) -> Result<(), Monotonic> {
        self.current(now);
        let sum =
            |count: fn(&Counts) -> u32| self.slots.iter().map(|counts| u64::from(count(counts))).sum::<u64>();
        let requests = sum(|counts| counts.requests);
        let allowed = ((requests as f64 * self.share) as u64).max(1);
        if sum(|counts| counts.retries) >= allowed {
            return Err(Monotonic(Duration::from_nanos(self.next_ns)));
        }
        self.current(now).retries += 1;
        Ok(())
    }

    /// A retry that was taken did not happen.
    pub(crate) fn give_back(&mut self) {
        if let Some(counts) = self.slots.iter_mut().find(|counts| counts.retries > 0) {
            counts.retries -= 1;
        }
    }

    #[inline]
    fn current(&mut self, now: Monotonic) -> &mut Counts {
        let now_ns = ns(now.0);
        if now_ns >= self.next_ns {
            self.go_on(now_ns);
        }
        &mut self.slots[(self.newest % SLOTS) as usize]
    }

    fn go_on(&mut self, now_ns: u64) {
        let number = now_ns / self.slot_ns;
        for back in 0..(number - self.newest).min(SLOTS) {
            self.slots[((number - back) % SLOTS) as usize] = Counts::default();
        }
        self.newest = number;
        self.next_ns = self.slot_ns.saturating_mul(number + 1);
    }
}

/// 64 bits are enough for centuries, and divide much faster than 128.
fn ns(length: Duration) -> u64 {
    length.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(length.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn a_tenth_of_the_last_window_may_be_tried_again() {
        let mut budget = RetryBudget::new(0.1, Duration::from_secs(10));
        let mut retries = 0;
        for ms in 0..100_000 {
            if ms % 10 == 0 {
                budget.request(at(ms));
            }
            retries += u32::from(budget.take(at(ms)).is_ok());
        }
        assert!((900..=1_020).contains(&retries), "{retries} retries beside 10,000 requests");
    }

    #[test]
    fn a_family_that_asks_seldom_may_try_again_once_a_window() {
        let mut budget = RetryBudget::new(0.1, Duration::from_secs(10));
        assert_eq!(budget.take(at(0)), Ok(()));
        let again = budget.take(at(100)).unwrap_err();
        assert!(again > at(100) && again <= at(1_000));
        assert!(budget.take(at(9_000)).is_err());
        assert_eq!(budget.take(at(11_000)), Ok(()));
        budget.give_back();
        assert_eq!(budget.take(at(11_001)), Ok(()));
    }
}
