//! How simulated venues count: windows, buckets, queues, and what lies around them (bans, penalties, strangers).

use std::collections::VecDeque;
use std::time::Duration;

use catchment_governor::limiter::{Feedback, Outcome, Used};

use super::{Dice, plain};

/// A venue as a client meets it: a request arrives, a reply leaves.
pub trait Venue {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply;

    /// How often it shut the door for good.
    fn bans(&self) -> u64 {
        0
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Reply {
    pub outcome: Outcome,
    pub feedback: Feedback,
    /// Spent inside the venue.
    pub delay_s: f64,
}

/// So much in any interval of a window's length; all windows at once.
pub struct Sliding {
    pub windows: Vec<(f64, f64)>,
    /// By how much the limits are multiplied at a time.
    pub factor: fn(f64) -> f64,
    /// Whether what is refused counts too.
    pub counts_refused: bool,
    pub logs: Vec<(VecDeque<(f64, u32)>, f64)>,
}

impl Sliding {
    /// `windows`: how much, in how many seconds.
    pub fn new(windows: &[(f64, f64)]) -> Self {
        let logs = windows.iter().map(|_| (VecDeque::new(), 0.0)).collect();
        Self { windows: windows.to_vec(), factor: |_| 1.0, counts_refused: false, logs }
    }
}

impl Venue for Sliding {
    fn arrive(&mut self, cost: u32, now: f64, _dice: &mut Dice) -> Reply {
        let factor = (self.factor)(now);
        let mut fits = true;
        for ((limit, window), (log, sum)) in self.windows.iter().zip(&mut self.logs) {
            while let Some((at, old)) = log.front().copied()
                && at <= now - window
            {
                *sum -= f64::from(old);
                log.pop_front();
            }
            fits &= *sum + f64::from(cost) <= limit * factor;
        }
        if fits || self.counts_refused {
            for (log, sum) in &mut self.logs {
                log.push_back((now, cost));
                *sum += f64::from(cost);
            }
        }
        plain(if fits { Outcome::Answered } else { Outcome::Refused })
    }
}

/// So much in each aligned window.
pub struct Aligned {
    pub limit: f64,
    pub window: f64,
    pub retry_after: bool,
    /// Tells how much was used (weight headers).
    pub tells_used: bool,
    /// Tells how much remains and for how long.
    pub tells_remaining: bool,
    pub index: u64,
    pub used: f64,
}

impl Aligned {
    pub fn new(limit: f64, window: f64) -> Self {
        let (retry_after, tells_used, tells_remaining) = (false, false, false);
        Self { limit, window, retry_after, tells_used, tells_remaining, index: 0, used: 0.0 }
    }
}

impl Venue for Aligned {
    fn arrive(&mut self, cost: u32, now: f64, _dice: &mut Dice) -> Reply {
        let index = (now / self.window) as u64;
        if index != self.index {
            self.index = index;
            self.used = 0.0;
        }
        let left = Duration::from_secs_f64((index + 1) as f64 * self.window - now);
        let fits = self.used + f64::from(cost) <= self.limit;
        if fits {
            self.used += f64::from(cost);
        }
        let mut reply = plain(if fits { Outcome::Answered } else { Outcome::Refused });
        if !fits && self.retry_after {
            reply.feedback.retry_after = Some(left);
        }
        if self.tells_used {
            let window = Duration::from_secs_f64(self.window);
            let (used, limit) = (self.used as u64, self.limit as u64);
            reply.feedback.used = Some(Used { used, limit, allowed: limit * 95 / 100, window });
        }
        if self.tells_remaining {
            reply.feedback.remaining = Some(((self.limit - self.used) as u64, left));
        }
        reply
    }
}

/// A bucket that is filled steadily, and holds so much.
pub struct Bucket {
    pub rate: f64,
    pub burst: f64,
    pub factor: fn(f64) -> f64,
    tokens: f64,
    at: f64,
}

impl Bucket {
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, factor: |_| 1.0, tokens: burst, at: 0.0 }
    }
}

impl Venue for Bucket {
    fn arrive(&mut self, cost: u32, now: f64, _dice: &mut Dice) -> Reply {
        let rate = self.rate * (self.factor)(now);
        self.tokens = (self.tokens + (now - self.at) * rate).min(self.burst);
        self.at = now;
        if self.tokens < f64::from(cost) {
            return plain(Outcome::Refused);
        }
        self.tokens -= f64::from(cost);
        plain(Outcome::Answered)
    }
}

/// Works off what comes in turn, and refuses only what would wait too long.
pub struct Queue {
    pub rate: f64,
    pub wait_max_s: f64,
    pub free_at: f64,
}

impl Venue for Queue {
    fn arrive(&mut self, cost: u32, now: f64, _dice: &mut Dice) -> Reply {
        let delay_s = (self.free_at - now).max(0.0);
        if delay_s > self.wait_max_s {
            return plain(Outcome::Refused);
        }
        self.free_at = self.free_at.max(now) + f64::from(cost) / self.rate;
        Reply { delay_s, ..plain(Outcome::Answered) }
    }
}

/// So many at a time.
pub struct Slots {
    pub slots: usize,
    pub work_s: f64,
    pub busy_until: Vec<f64>,
}

impl Venue for Slots {
    fn arrive(&mut self, _cost: u32, now: f64, dice: &mut Dice) -> Reply {
        self.busy_until.retain(|until| *until > now);
        if self.busy_until.len() >= self.slots {
            return plain(Outcome::Refused);
        }
        let delay_s = dice.log_normal(self.work_s, 0.25);
        self.busy_until.push(now + delay_s);
        Reply { delay_s, ..plain(Outcome::Answered) }
    }
}

/// Bans who is refused more than `refusals_max` times in a minute.
pub struct Banning<V> {
    pub inner: V,
    pub refusals_max: usize,
    pub ban_s: f64,
    refused: VecDeque<f64>,
    banned_until: f64,
    bans: u64,
}

impl<V> Banning<V> {
    pub fn new(inner: V, refusals_max: usize, ban_s: f64) -> Self {
        Self { inner, refusals_max, ban_s, refused: VecDeque::new(), banned_until: 0.0, bans: 0 }
    }
}

impl<V: Venue> Venue for Banning<V> {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply {
        if now < self.banned_until {
            let mut reply = plain(Outcome::Banned);
            reply.feedback.retry_after = Some(Duration::from_secs_f64(self.banned_until - now));
            return reply;
        }
        let reply = self.inner.arrive(cost, now, dice);
        if reply.outcome == Outcome::Refused {
            self.refused.retain(|at| *at > now - 60.0);
            self.refused.push_back(now);
            if self.refused.len() > self.refusals_max {
                self.refused.clear();
                self.banned_until = now + self.ban_s;
                self.bans += 1;
            }
        }
        reply
    }

    fn bans(&self) -> u64 {
        self.bans
    }
}

/// After a refusal, refuses everything for a while.
pub struct Penalty<V> {
    pub inner: V,
    pub length_s: f64,
    pub until: f64,
}

impl<V: Venue> Venue for Penalty<V> {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply {
        if now < self.until {
            return plain(Outcome::Refused);
        }
        let reply = self.inner.arrive(cost, now, dice);
        if reply.outcome == Outcome::Refused {
            self.until = now + self.length_s;
        }
        reply
    }
}

/// Changes what a venue says when it refuses.
pub struct Refusing<V> {
    pub inner: V,
    pub delay_s: f64,
    pub retry_after_s: Option<f64>,
}

impl<V: Venue> Venue for Refusing<V> {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply {
        let mut reply = self.inner.arrive(cost, now, dice);
        if reply.outcome == Outcome::Refused {
            reply.delay_s += self.delay_s;
            reply.feedback.retry_after = self.retry_after_s.map(Duration::from_secs_f64);
        }
        reply
    }
}

/// Fails now and then, for reasons of its own.
pub struct Flaky<V> {
    pub inner: V,
    pub share: f64,
}

impl<V: Venue> Venue for Flaky<V> {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply {
        let mut reply = self.inner.arrive(cost, now, dice);
        if reply.outcome == Outcome::Answered && dice.unit() < self.share {
            reply.outcome = Outcome::Failed;
        }
        reply
    }
}

/// Somebody else behind the same address.
pub struct Shared<V> {
    pub inner: V,
    /// How much they send at a time, a second.
    pub stranger: fn(f64) -> f64,
    pub next: f64,
}

impl<V: Venue> Venue for Shared<V> {
    fn arrive(&mut self, cost: u32, now: f64, dice: &mut Dice) -> Reply {
        while self.next <= now {
            let rate = (self.stranger)(self.next);
            if rate > 0.0 {
                self.inner.arrive(1, self.next, dice);
                self.next += dice.gap(rate);
            } else {
                self.next += 0.1;
            }
        }
        self.inner.arrive(cost, now, dice)
    }

    fn bans(&self) -> u64 {
        self.inner.bans()
    }
}
