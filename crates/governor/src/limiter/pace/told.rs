//! What a venue's headers say about its limit, turned into a rate that stays within it.
//!
//! A count of what was used is worth more than any guess: it includes strangers behind the same address. Their share is
//! what the count grew by and we did not send. Windows that start anew show as a count that falls; what is left is
//! then spread evenly over the time that is left. A count that does not fall when its window is over belongs to a
//! window that slides, and an even rate is all there is to keep.

use std::time::Duration;

use catchment_model::Monotonic;

use crate::limiter::Used;

/// How much faster than evenly, while less was used than could have been: what a late timer cost is made up for.
const CATCH_UP: f64 = 1.03;
/// Strangers are measured over so long.
const STRANGER_SPAN: Duration = Duration::from_secs(2);

/// A venue's own count, followed over its windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    last: Used,
    heard_at: Monotonic,
    began: Monotonic,
    slides: bool,
    stranger: f64,
    mark: Mark,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Monotonic,
    used: u64,
    own: u64,
}

impl Told {
    pub(super) fn new(used: Used, own: u64, now: Monotonic) -> Self {
        let mark = Mark { at: now, used: used.used, own };
        Self { last: used, heard_at: now, began: now, slides: false, stranger: 0.0, mark }
    }

    /// Hears a count that came with the answer to a request sent at `sent_at`; `own` is all we ever had answered.
    pub(super) fn hear(&mut self, used: Used, own: u64, sent_at: Monotonic, now: Monotonic) {
        if sent_at < self.began && used.used > self.last.used {
            return; // of the window before, overtaken by an answer of this one
        }
        if used.window != self.last.window {
            *self = Self::new(used, own, now);
            return;
        }
        let fell = used.used < self.last.used / 2;
        let over = now.since(self.began) >= used.window;
        if fell || over {
            self.slides = !fell && used.used > used.limit / 2;
            self.began = now;
            self.mark = Mark { at: now, used: used.used, own };
        }
        self.measure_strangers(used, own, now);
        self.last = used;
        self.heard_at = now;
    }

    /// The rate that stays within the limit, while the count is fresh. Zero: nothing is left.
    pub(super) fn rate(&self, under_way: u64, now: Monotonic) -> Option<f64> {
        let window = self.last.window.as_secs_f64();
        if now.since(self.heard_at) > self.last.window || window == 0.0 || self.last.limit == 0 {
            return None;
        }
        let usable = self.last.allowed as f64;
        let even = (usable / window - self.stranger).max(0.05 * usable / window);
        if self.slides {
            let used = self.last.used as f64;
            return Some(match used {
                _ if used > usable + 0.02 * self.last.limit as f64 => even / 2.0,
                _ if used + (under_way as f64) < 0.98 * usable => CATCH_UP * even,
                _ => even,
            });
        }
        if now >= self.ends() {
            return Some(even); // a new window has begun, and its count is not yet known
        }
        let left = (window - now.since(self.began).as_secs_f64()).max(0.5);
        let unspent = usable - self.last.used as f64 - under_way as f64 - self.stranger * left;
        Some((unspent / left).clamp(0.0, CATCH_UP * even))
    }

    /// When the window that is being counted ends.
    pub(super) fn ends(&self) -> Monotonic {
        Monotonic(self.began.0 + self.last.window)
    }

    fn measure_strangers(&mut self, used: Used, own: u64, now: Monotonic) {
        let span = now.since(self.mark.at);
        if span < STRANGER_SPAN {
            return;
        }
        let grown = used.used.saturating_sub(self.mark.used) as f64;
        let foreign = ((grown - (own - self.mark.own) as f64) / span.as_secs_f64()).max(0.0);
        // Believed at once when it grows, only slowly when it shrinks.
        let weight = if foreign > self.stranger { 0.7 } else { 0.2 };
        self.stranger += (foreign - self.stranger) * weight;
        self.mark = Mark { at: now, used: used.used, own };
    }
}

/// What a venue says is left, and how soon there is all of it again.
///
/// Some count down to a moment when all is back; then what is left may be spread over the time until then. Others name
/// the length of a window that slides, and only running dry means anything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quota {
    largest: u64,
    left: u64,
    renewed_in: Duration,
    heard_at: Monotonic,
    /// An earlier telling, to see whether the time counts down.
    mark: Option<(Duration, Monotonic)>,
    counts_down: bool,
}

impl Quota {
    pub(super) fn hear(&mut self, left: u64, renewed_in: Duration, now: Monotonic) {
        // Answers overtake each other, so a little more time than before is no new window, and more left is old news.
        let is_new_window = left > self.left && renewed_in > 2 * self.renewed_in + Duration::from_secs(1);
        if is_new_window {
            self.mark = None;
        }
        let left = if self.counts_down && !is_new_window { left.min(self.left) } else { left };
        self.largest = self.largest.max(left);
        (self.left, self.renewed_in, self.heard_at) = (left, renewed_in, now);
        match self.mark {
            None => self.mark = Some((renewed_in, now)),
            Some((then, at)) if now.since(at) >= STRANGER_SPAN => {
                let counted = then.saturating_sub(renewed_in).as_secs_f64();
                self.counts_down = counted > 0.5 * now.since(at).as_secs_f64();
                self.mark = Some((renewed_in, now));
            }
            Some(_) => {}
        }
    }

    /// The rate that makes it last until there is all of it again.
    pub(super) fn rate(&self, under_way: u64, now: Monotonic) -> Option<f64> {
        if !self.counts_down || now >= self.renewed_at() {
            return None;
        }
        let time = self.renewed_at().since(now).as_secs_f64().max(0.1);
        let usable = (self.left as f64 - under_way as f64 - 0.01 * self.largest as f64).max(1.0);
        Some(usable / time)
    }

    /// How long to wait before the next when hardly anything is left.
    pub(super) fn gap(&self, under_way: u64) -> Option<Duration> {
        let usable = self.left.saturating_sub(under_way);
        let is_scarce = (usable as f64) < (0.05 * self.largest as f64).max(1.0);
        is_scarce.then(|| self.renewed_in / u32::try_from(usable.max(1)).unwrap_or(u32::MAX))
    }

    /// When there is all of it again.
    pub(super) fn renewed_at(&self) -> Monotonic {
        Monotonic(self.heard_at.0 + self.renewed_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Monotonic {
        Monotonic(Duration::from_secs(s))
    }

    fn count(used: u64) -> Used {
        Used { used, limit: 6_000, allowed: 5_700, window: Duration::from_secs(60) }
    }

    #[test]
    fn what_strangers_use_is_left_to_them() {
        let mut told = Told::new(count(0), 0, at(100));
        // 20 a second of ours, and 30 of theirs.
        (1..=10).for_each(|s| told.hear(count(s * 50), s * 20, at(100 + s), at(100 + s)));
        let rate = told.rate(0, at(110)).unwrap();
        assert!((rate - CATCH_UP * (95.0 - 30.0)).abs() < 2.0, "{rate}");
    }

    #[test]
    fn whoever_may_use_all_of_a_limit_does() {
        let all = |used| Used { allowed: 6_000, ..count(used) };
        let mut told = Told::new(all(0), 0, at(100));
        (1..=30).for_each(|s| told.hear(all(s * 100), s * 100, at(100 + s), at(100 + s)));
        assert_eq!(told.rate(0, at(130)), Some(100.0));
    }

    #[test]
    fn a_count_that_falls_is_a_new_window_and_one_that_does_not_slides() {
        let mut told = Told::new(count(5_000), 0, at(100));
        assert!(told.rate(0, at(100)).unwrap() < 12.0);
        told.hear(count(10), 10, at(107), at(107));
        assert_eq!(told.ends(), at(167));
        assert!((told.rate(0, at(107)).unwrap() - 95.0).abs() < 1.0);

        let mut told = Told::new(count(5_000), 0, at(100));
        (1..=70).for_each(|s| told.hear(count(5_000), s * 83, at(100 + s), at(100 + s)));
        assert!(told.slides);
        assert_eq!(told.rate(0, at(170)), Some(CATCH_UP * 95.0), "less was used than could have been");
        told.hear(count(5_600), 71 * 83, at(171), at(171));
        assert_eq!(told.rate(0, at(171)), Some(95.0));
    }

    #[test]
    fn what_is_left_is_spread_only_over_a_time_that_counts_down() {
        let mut quota = Quota::default();
        for s in 0..5 {
            quota.hear(500 - 60 * s, Duration::from_secs(10 - s), at(100 + s));
            quota.hear(510 - 60 * s, Duration::from_millis(10_200 - 1_000 * s), at(100 + s));
        }
        quota.hear(260, Duration::from_secs(6), at(104));
        let rate = quota.rate(0, at(104)).unwrap();
        assert!((rate - 255.0 / 6.0).abs() < 1.0, "{rate}");

        let mut quota = Quota::default();
        (0..5).for_each(|s| quota.hear(500 - 60 * s, Duration::from_secs(10), at(100 + s)));
        assert_eq!(quota.rate(0, at(104)), None);
        assert_eq!(quota.gap(0), None);
        quota.hear(10, Duration::from_secs(10), at(105));
        assert_eq!(quota.gap(5), Some(Duration::from_secs(2)));
    }
}
