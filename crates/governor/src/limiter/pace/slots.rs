//! Venues that count requests under way, not requests a second.
//!
//! A rate limit refuses at whatever level happens to be under way, and lets thousands through at that level. A limit on
//! slots refuses nearly everything above one level and nothing below it. So refusals are counted by how many were under
//! way when the refused request left, beside all that left at that level. Only levels up to 64 are watched: a venue
//! with more slots is better described by its rate.

use std::time::Duration;

use catchment_model::Monotonic;

const LEVELS: usize = 65;
const RECENT: usize = 256;
/// This share of what left above a level must have been refused.
const SHARE_MIN: f32 = 0.15;
/// So many refusals, in so many episodes, are believed.
const REFUSALS_MIN: f32 = 3.0;
const EPISODES_MIN: u32 = 2;
/// One more is tried after this long without a refusal, and twice that each time it was refused.
const RETRY_MIN: Duration = Duration::from_secs(600);
const RETRY_MAX: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct Slots {
    recent: Box<[(Monotonic, u8); RECENT]>,
    next: usize,
    left: [f32; LEVELS],
    refused: [f32; LEVELS],
    episodes: u32,
    halved_at: Monotonic,
    cap: Option<u32>,
    calm_since: Monotonic,
    retry: Duration,
    /// One more than was believed is being tried.
    tries_more: bool,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            recent: Box::new([(Monotonic::default(), 0); RECENT]),
            next: 0,
            left: [0.0; LEVELS],
            refused: [0.0; LEVELS],
            episodes: 0,
            halved_at: Monotonic::default(),
            cap: None,
            calm_since: Monotonic::default(),
            retry: RETRY_MIN,
            tries_more: false,
        }
    }

    /// How many may be under way, if that is what the venue counts.
    pub(super) fn cap(&self) -> Option<u32> {
        self.cap
    }

    /// One has left, and this many are under way now.
    pub(super) fn sent(&mut self, inflight: u32, now: Monotonic) {
        let level = (inflight as usize).min(LEVELS - 1);
        self.recent[self.next % RECENT] = (now, level as u8);
        self.next = self.next.wrapping_add(1);
        self.left[level] += 1.0;
        if let Some(cap) = self.cap
            && inflight >= cap
            && now.since(self.calm_since) >= self.retry
        {
            self.cap = Some(cap + 1);
            self.tries_more = true;
            self.calm_since = now;
        }
    }

    /// One that left at `sent_at` was refused. Whether that is because one more was tried than is believed.
    pub(super) fn refused(&mut self, sent_at: Monotonic, now: Monotonic) -> bool {
        self.calm_since = now;
        let Some(level) = self.level(sent_at) else { return false };
        self.refused[level] += 1.0;
        if let Some(cap) = self.cap
            && self.tries_more
            && level as u32 >= cap
        {
            self.cap = Some(cap - 1);
            self.tries_more = false;
            self.retry = (self.retry * 2).min(RETRY_MAX);
            return true;
        }
        false
    }

    /// An episode is over: does what was refused look like slots? Whether it does, and did not before.
    pub(super) fn judge(&mut self, now: Monotonic) -> bool {
        self.forget(now);
        self.episodes += 1;
        let Some(lowest) = self.refused.iter().position(|refused| *refused > 0.0) else { return false };
        let refused: f32 = self.refused[lowest..].iter().sum();
        let left: f32 = self.left[lowest..].iter().sum();
        let is_watched = (2..LEVELS - 1).contains(&lowest);
        let is_clear =
            refused >= REFUSALS_MIN && self.episodes >= EPISODES_MIN && refused >= SHARE_MIN * left;
        if is_watched && is_clear {
            let cap = lowest as u32 - 1;
            let before = self.cap.replace(self.cap.map_or(cap, |before| before.min(cap)));
            return before.is_none();
        }
        false
    }

    fn level(&self, sent_at: Monotonic) -> Option<usize> {
        let found = self.recent.iter().find(|(at, _)| *at == sent_at)?;
        Some(usize::from(found.1))
    }

    fn forget(&mut self, now: Monotonic) {
        if now.since(self.halved_at) < RETRY_MIN {
            return;
        }
        self.halved_at = now;
        self.episodes /= 2;
        for count in self.left.iter_mut().chain(&mut self.refused) {
            *count /= 2.0;
        }
        self.refused.iter_mut().filter(|count| **count < 0.3).for_each(|count| *count = 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    /// Some episodes of requests that left at these levels, one of so many of those from `refused_from` on refused.
    fn cap_after(levels: &[u32], refused_from: u32, one_of: usize) -> Option<u32> {
        let mut slots = Slots::new();
        for episode in 0..3 {
            for (index, level) in levels.iter().enumerate() {
                let now = at(episode * 10_000 + index as u64);
                slots.sent(*level, now);
                if *level >= refused_from && index % one_of == 0 {
                    slots.refused(now, now);
                }
            }
            slots.judge(at(episode * 10_000 + 9_000));
        }
        slots.cap()
    }

    #[test]
    fn what_is_refused_above_one_level_only_is_a_limit_on_slots() {
        let levels: Vec<u32> = (0..100).map(|index| 4 + index % 6).collect();
        assert_eq!(cap_after(&levels, 9, 1), Some(8));
    }

    #[test]
    fn what_is_refused_at_any_level_is_not() {
        let levels: Vec<u32> = (0..100).map(|index| 4 + index % 6).collect();
        assert_eq!(cap_after(&levels, 0, 20), None);
    }

    #[test]
    fn one_more_is_tried_later_and_given_up_when_refused() {
        let mut slots = Slots::new();
        slots.cap = Some(8);
        slots.sent(8, at(700_000));
        assert_eq!(slots.cap(), Some(9));
        slots.sent(9, at(700_100));
        slots.refused(at(700_100), at(700_180));
        assert_eq!(slots.cap(), Some(8));
        slots.sent(8, at(700_100 + 1_100_000));
        assert_eq!(slots.cap(), Some(8), "not before twice the time");
    }
}
