//! What a venue's headers say about its limit, turned into a rate that stays within it.
//!
//! A count of what was used is worth more than any guess: it includes strangers behind the same address. Their share is
//! what the count grew by and we did not send. Windows that start anew show as a count that falls; what is left is
//! then spread evenly over the time that is left. A count that does not fall when its window is over belongs to a
//! window that slides, and an even rate is all there is to keep.

use std::time::Duration;

use catchment_model::Monotonic;

use crate::limiter::Used;

/// The part of a told limit that is used.
const SHARE: f64 = 0.95;
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
        let usable = SHARE * self.last.limit as f64;
        let even = (usable / window - self.stranger).max(0.05 * usable / window);
        if self.slides {
            let is_full = self.last.used as f64 > usable + 0.02 * self.last.limit as f64;
            return Some(if is_full { even / 2.0 } else { even });
        }
        if now >= self.ends() {
            return Some(even); // a new window has begun, and its count is not yet known
        }
        let left = (window - now.since(self.began).as_secs_f64()).max(0.5);
        let unspent = usable - self.last.used as f64 - under_way as f64 - self.stranger * left;
        Some((unspent / left).clamp(0.0, even))
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
