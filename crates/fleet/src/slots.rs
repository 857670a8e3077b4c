//! The slot clock: when the next request of the fleet may be told, to the microsecond and for ever.
//!
//! Slot `k` is due at `anchor + k / rate`, reckoned anew from the anchor each time, so that nothing adds up. A slot that is
//! noticed late is still used, and counted, as long as it is not later than the tolerance; what is later is missed, and
//! counted. After a pause there is therefore no burst, whatever the pause. Pure: time is an argument.

use std::time::Duration;

use catchment_model::Monotonic;

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Used.
    pub used: u64,
    /// Of those, used more than one slot's length after they were due.
    pub late: u64,
    /// Too late to be used.
    pub missed: u64,
}

/// Says when slots are due.
#[derive(Debug, Clone)]
pub struct SlotClock {
    anchor: Monotonic,
    /// Slots in a thousand seconds.
    rate_mrps: u64,
    tolerance: Duration,
    /// The next slot since the anchor.
    number: u64,
    counts: SlotCounts,
}

impl SlotClock {
    /// The first slot is due now.
    pub fn new(rate_mrps: u64, tolerance: Duration, now: Monotonic) -> Self {
        Self { anchor: now, rate_mrps, tolerance, number: 0, counts: SlotCounts::default() }
    }

    /// From the next slot on there are so many; that slot is due when it would have been.
    pub fn set_rate(&mut self, rate_mrps: u64, tolerance: Duration, now: Monotonic) {
        if rate_mrps == self.rate_mrps && tolerance == self.tolerance {
            return;
        }
        // With nobody to fetch there was no next slot.
        self.anchor = if self.rate_mrps == 0 { now } else { self.due().max(now) };
        (self.rate_mrps, self.tolerance, self.number) = (rate_mrps, tolerance, 0);
    }

    /// The length of a slot; none if there are none.
    pub fn slot(&self) -> Option<Duration> {
        (self.rate_mrps > 0).then(|| self.offset(1))
    }

    /// When the next slot is due. Far away if there are none.
    pub fn due(&self) -> Monotonic {
        match self.rate_mrps {
            0 => Monotonic(Duration::MAX),
            _ => Monotonic(self.anchor.0 + self.offset(self.number)),
        }
    }

    /// Takes the next slot if it is due; slots that are too late are passed over first.
    pub fn take(&mut self, now: Monotonic) -> bool {
        self.pass_over(now);
        let (due, slot) = (self.due(), self.slot());
        let Some(slot) = slot.filter(|_| due <= now) else { return false };
        self.counts.used += 1;
        self.counts.late += u64::from(now.since(due) > slot);
        self.number += 1;
        true
    }

    /// Slots that nobody was there to use, because nobody should have been: they are not counted.
    pub fn restart(&mut self, now: Monotonic) {
        (self.anchor, self.number) = (now, 0);
    }

    /// Counts since the start.
    pub fn counts(&self) -> SlotCounts {
        self.counts
    }

    fn pass_over(&mut self, now: Monotonic) {
        let Some(oldest) = now.0.checked_sub(self.anchor.0 + self.tolerance) else { return };
        // The first slot that is not due before the oldest time that will do.
        let first = (oldest.as_nanos() * u128::from(self.rate_mrps)).div_ceil(NS_PER_KS);
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        if first > self.number {
            self.counts.missed += first - self.number;
            self.number = first;
        }
    }

    fn offset(&self, number: u64) -> Duration {
        let ns = u128::from(number) * NS_PER_KS / u128::from(self.rate_mrps);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Nanoseconds in a thousand seconds.
const NS_PER_KS: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Duration = Duration::from_millis(50);

    fn at(us: u64) -> Monotonic {
        Monotonic(Duration::from_micros(us))
    }

    #[test]
    fn a_day_of_slots_has_not_drifted_by_a_microsecond() {
        // Three nodes of 19.23 a second: a slot is no whole number of anything.
        let mut clock = SlotClock::new(3 * 19_230, TOLERANCE, at(7));
        let mut taken = 0_u64;
        let day = 86_400 * 1_000_000;
        while clock.due() <= at(7 + day) {
            let due = clock.due();
            assert!(clock.take(due));
            taken += 1;
        }
        let expected = 86_400 * 3 * 19_230 / 1_000;
        assert!(taken.abs_diff(expected) <= 1, "{taken} slots, expected {expected}");
        assert_eq!(clock.counts(), SlotCounts { used: taken, late: 0, missed: 0 });
    }

    #[test]
    fn the_slot_is_one_over_capacity_times_nodes() {
        let check = |nodes: u64, us| {
            let clock = SlotClock::new(nodes * 20_000, TOLERANCE, at(0));
            assert_eq!(clock.slot(), Some(Duration::from_micros(us)), "{nodes} nodes");
        };
        check(1, 50_000);
        check(2, 25_000);
        check(4, 12_500);
        check(8, 6_250);
        assert_eq!(SlotClock::new(0, TOLERANCE, at(0)).slot(), None);
    }

    #[test]
    fn late_slots_are_used_and_counted_and_too_late_ones_missed() {
        let mut clock = SlotClock::new(100_000, TOLERANCE, at(0)); // every 10 ms
        assert!(clock.take(at(0)));
        assert!(!clock.take(at(9_999)));
        assert!(clock.take(at(25_000)) && clock.take(at(25_000)), "two were due");
        assert!(!clock.take(at(25_000)));
        assert_eq!(clock.counts(), SlotCounts { used: 3, late: 1, missed: 0 });
    }

    #[test]
    fn after_a_pause_there_is_no_burst() {
        let mut clock = SlotClock::new(100_000, TOLERANCE, at(0));
        assert!(clock.take(at(0)));
        let back = at(3_600_000_000);
        let burst = std::iter::from_fn(|| clock.take(back).then_some(())).count();
        assert!(burst <= 6, "{burst} at once"); // what 50 ms hold
        assert_eq!(clock.counts().missed, 360_000 - burst as u64);
        assert_eq!(clock.due(), at(3_600_010_000), "and the beat is kept");
    }

    #[test]
    fn another_rate_begins_at_the_next_slot() {
        let mut clock = SlotClock::new(20_000, TOLERANCE, at(0));
        assert!(clock.take(at(0)));
        clock.set_rate(40_000, TOLERANCE, at(10_000));
        assert_eq!(clock.due(), at(50_000));
        assert!(clock.take(at(50_000)));
        assert_eq!(clock.due(), at(75_000));
        clock.set_rate(0, TOLERANCE, at(75_000));
        assert!(!clock.take(at(99_000_000)));
        clock.set_rate(20_000, TOLERANCE, at(99_000_000));
        assert_eq!(clock.due(), at(99_000_000));
        assert_eq!(clock.counts().missed, 0);
    }
}
