//! One sliding window, exact: in every closed interval of its length, at most the limit leaves.
//!
//! What was granted and has not left yet counts without an end: it may leave at any moment. What has left counts until
//! it is older than the window. At every moment the sum of both is within the limit, and only a grant adds to it. So at
//! the last departure of any interval, everything that left within that interval is in the sum: the interval is within
//! the limit, however long a permit was held before it was used. And a permit given back unused can simply be
//! subtracted.
//!
//! Departures within one tick (a 4,096th of the window) share an entry that is as old as its youngest. They count up
//! to a tick longer than they must, never shorter, and memory is bounded whatever the limit.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_model::Monotonic;

use crate::spec::WindowSpec;

const TICKS: u64 = 4_096;
/// When nothing that has left makes room, something that was granted must be given back: look again after this.
const RECHECK_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Window {
    allowed: u64,
    declared: u64,
    length_ns: u64,
    tick_ns: u64,
    /// The sum of what has left and counts.
    left: u64,
    /// Granted, may leave at any moment.
    granted: u64,
    /// Until then nothing that counts grows too old; the end of time if there is nothing.
    unchanged_until_ns: u64,
    /// What has left last; its cost is zero if nothing counts.
    newest: Tick,
    older: VecDeque<Tick>,
}

/// Departures close together.
#[derive(Debug, Default)]
struct Tick {
    first_ns: u64,
    last_ns: u64,
    cost: u64,
}

impl Window {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        let length_ns = ns(Monotonic(spec.length));
        Self {
            allowed: spec.allowed.into(),
            declared: spec.declared.into(),
            length_ns,
            tick_ns: length_ns / TICKS,
            left: 0,
            granted: 0,
            unchanged_until_ns: u64::MAX,
            newest: Tick::default(),
            older: VecDeque::new(),
        }
    }

    /// What a request of this cost pays here. One that costs more than the whole window gets the whole window.
    #[inline]
    fn price(&self, cost: u32) -> u64 {
        u64::from(cost).min(self.declared)
    }

    /// Whether there is room for it beside what is `ahead` of it. What costs more than is allowed, but not more than
    /// was declared, may have an empty window to itself.
    #[inline]
    pub(crate) fn fits(&mut self, cost: u32, ahead: u64, now_ns: u64) -> bool {
        self.forget(now_ns);
        let taken = self.left + self.granted + ahead;
        taken + self.price(cost) <= self.allowed || taken == 0
    }

    /// The earliest time at which it may fit.
    pub(crate) fn fits_at(&self, cost: u32, ahead: u64, now_ns: u64) -> u64 {
        let room = self.allowed.saturating_sub(self.price(cost));
        let mut taken = self.left + self.granted + ahead;
        for tick in self.older.iter().chain([&self.newest]) {
            taken -= tick.cost;
            if tick.cost > 0 && taken <= room {
                return tick.last_ns + self.length_ns + 1;
            }
        }
        now_ns + RECHECK_NS.min(self.length_ns)
    }

    #[inline]
    pub(crate) fn grant(&mut self, cost: u32) {
        self.granted += self.price(cost);
    }

    /// What was granted has left.
    #[inline]
    pub(crate) fn left(&mut self, cost: u32, now_ns: u64) {
        self.unsent(cost);
        self.add(self.price(cost), now_ns);
    }

    /// What was granted will never leave.
    #[inline]
    pub(crate) fn unsent(&mut self, cost: u32) {
        self.granted =
            self.granted.checked_sub(self.price(cost)).expect("only what was granted is taken back");
    }

    /// The venue counts `used`: whatever is above our own count, a stranger has used.
    pub(crate) fn venue_counts(&mut self, used: u64, now_ns: u64) -> u64 {
        self.forget(now_ns);
        let strange = used.min(self.declared).saturating_sub(self.left + self.granted);
        self.add(strange, now_ns);
        strange
    }

    /// What counts at this moment.
    pub(crate) fn used(&mut self, now_ns: u64) -> u64 {
        self.forget(now_ns);
        self.left + self.granted
    }

    #[cfg(test)]
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    #[inline]
    fn add(&mut self, cost: u64, now_ns: u64) {
        // Threads may come here in another order than they read the clock; later is the safe side.
        let now_ns = now_ns.max(self.newest.last_ns);
        if self.newest.cost == 0 || now_ns - self.newest.first_ns > self.tick_ns {
            return self.begin_tick(cost, now_ns);
        }
        self.left += cost;
        self.newest.cost += cost;
        self.newest.last_ns = now_ns;
        if self.older.is_empty() {
            self.unchanged_until_ns = now_ns + self.length_ns;
        }
    }

    fn begin_tick(&mut self, cost: u64, now_ns: u64) {
        if cost == 0 {
            return;
        }
        self.forget(now_ns);
        let tick = Tick { first_ns: now_ns, last_ns: now_ns, cost };
        let before = std::mem::replace(&mut self.newest, tick);
        if before.cost > 0 {
            self.older.push_back(before);
        }
        self.left += cost;
        self.look_at_the_oldest();
    }

    #[inline]
    fn forget(&mut self, now_ns: u64) {
        if now_ns > self.unchanged_until_ns {
            self.forget_the_oldest(now_ns);
        }
    }

    fn forget_the_oldest(&mut self, now_ns: u64) {
        let length_ns = self.length_ns;
        let is_old = |tick: &Tick| tick.last_ns + length_ns < now_ns;
        while self.older.front().is_some_and(is_old) {
            self.left -= self.older.pop_front().map_or(0, |gone| gone.cost);
        }
        if self.older.is_empty() && is_old(&self.newest) {
            self.left -= self.newest.cost;
            self.newest.cost = 0;
        }
        self.look_at_the_oldest();
    }

    fn look_at_the_oldest(&mut self) {
        let oldest = self.older.front().unwrap_or(&self.newest);
        self.unchanged_until_ns = if oldest.cost == 0 { u64::MAX } else { oldest.last_ns + self.length_ns };
    }
}

/// Enough for a century of running, in 64 bits: this is on the way of every request.
#[inline]
pub(crate) fn ns(at: Monotonic) -> u64 {
    let whole = at.0.as_secs().saturating_mul(1_000_000_000).min(u64::MAX / 4);
    whole + u64::from(at.0.subsec_nanos())
}

#[inline]
pub(crate) fn from_ns(ns: u64) -> Monotonic {
    Monotonic(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(allowed: u32, declared: u32, seconds: u64) -> Window {
        Window::new(WindowSpec { declared, allowed, length: Duration::from_secs(seconds) })
    }

    fn at(ms: u64) -> u64 {
        ms * 1_000_000
    }

    fn leave(window: &mut Window, cost: u32, ms: u64) -> bool {
        let fits = window.fits(cost, 0, at(ms));
        if fits {
            window.grant(cost);
            window.left(cost, at(ms));
        }
        fits
    }

    #[test]
    fn room_comes_back_just_after_a_windows_length_and_not_at_an_edge_of_the_clock() {
        let mut window = window(2, 2, 10);
        assert!(leave(&mut window, 1, 9_000));
        assert!(leave(&mut window, 1, 9_900));
        for ms in [9_901, 10_000, 18_999, 19_000] {
            assert!(!leave(&mut window, 1, ms), "at {ms} ms");
        }
        assert_eq!(window.fits_at(1, 0, at(9_901)), 19_000_000_001);
        assert!(leave(&mut window, 1, 19_001));
        assert!(!leave(&mut window, 1, 19_002));
    }

    #[test]
    fn a_permit_held_for_minutes_counts_from_when_it_leaves() {
        let mut window = window(1, 1, 1);
        window.grant(1);
        assert!(!window.fits(1, 0, at(600_000)), "it may leave at any moment");
        window.left(1, at(600_000));
        assert!(!window.fits(1, 0, at(601_000)));
        assert!(window.fits(1, 0, at(601_001)));
    }

    #[test]
    fn what_was_not_sent_leaves_its_room() {
        let mut window = window(1, 1, 1);
        window.grant(1);
        window.unsent(1);
        assert!(leave(&mut window, 1, 0));
    }

    #[test]
    fn a_request_dearer_than_the_safety_factor_leaves_waits_for_an_empty_window() {
        let mut window = window(95, 100, 1);
        assert!(leave(&mut window, 100, 0));
        assert!(!leave(&mut window, 1, 1_000));
        assert!(leave(&mut window, 1, 1_001));
        assert!(!window.fits(100, 0, at(1_500)));
        assert_eq!(window.fits_at(100, 0, at(1_500)), 2_001_000_001);
    }

    #[test]
    fn a_strangers_share_is_charged_once() {
        let mut window = window(10, 10, 60);
        assert!(leave(&mut window, 3, 0));
        assert_eq!(window.venue_counts(7, at(10)), 4);
        assert_eq!(window.venue_counts(7, at(20)), 0);
        assert_eq!(window.venue_counts(1_000_000, at(30)), 3, "no more than the window holds");
        assert_eq!(window.used(at(60_011)), 3, "each for a window's length");
    }

    #[test]
    fn departures_of_one_tick_count_until_the_last_of_them_is_old() {
        let mut window = window(2, 2, 4); // a tick is just below a millisecond
        let at = |us: u64| us * 1_000;
        for us in [0, 900] {
            window.grant(1);
            window.left(1, at(us));
        }
        assert!(window.older.is_empty());
        assert!(!window.fits(1, 0, at(4_000_900)));
        assert!(window.fits(2, 0, at(4_000_901)));
    }

    #[test]
    fn memory_is_bounded_whatever_leaves() {
        let mut window = window(u32::MAX, u32::MAX, 10);
        for step in 0..1_000_000_u64 {
            window.grant(1);
            window.left(1, step * 50_000);
        }
        assert!(window.older.len() <= 4_096, "{} entries", window.older.len());
    }
}
