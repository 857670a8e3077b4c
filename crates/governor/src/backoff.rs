//! Instruments that fail are left alone for a while, each for itself: an instrument that is gone must not cost its
//! venue a request a second.
//!
//! Only instruments that failed lately are kept: about a hundred bytes and the name's own length for each.

use std::collections::HashMap;
use std::time::Duration;

use catchment_model::Monotonic;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::hold::doubled;

/// How long failing instruments rest.
#[derive(Debug, Clone, Copy)]
pub struct BackoffSettings {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub max: Duration,
    /// An instrument that answered for this long starts again from the beginning.
    pub forgiven_after: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(300),
            forgiven_after: Duration::from_secs(60),
        }
    }
}

/// Which instruments rest, and until when.
#[derive(Debug)]
pub struct Backoff {
    settings: BackoffSettings,
    failing: HashMap<Box<str>, State>,
    rng: StdRng,
}

#[derive(Debug, Clone, Copy)]
struct State {
    failures: u32,
    /// Until when it rests or, once it has answered, since when it does.
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    RestsUntil(Monotonic),
    AnswersSince(Monotonic),
}

impl Backoff {
    /// Nobody rests yet.
    pub fn new(settings: BackoffSettings, seed: u64) -> Self {
        Self { settings, failing: HashMap::new(), rng: StdRng::seed_from_u64(seed) }
    }

    /// Until when this instrument rests, if it does.
    pub fn rests_until(&self, instrument: &str, now: Monotonic) -> Option<Monotonic> {
        match self.failing.get(instrument)?.phase {
            Phase::RestsUntil(until) if until > now => Some(until),
            _ => None,
        }
    }

    /// It failed: it rests between half of its doubled time and all of it. Gives back how long.
    pub fn failed(&mut self, instrument: &str, now: Monotonic) -> Duration {
        let failures = match self.failing.get(instrument) {
            Some(state) if !self.is_forgiven(state, now) => state.failures.saturating_add(1),
            _ => 1,
        };
        let whole = doubled(self.settings.first, failures - 1, self.settings.max);
        let rest = whole / 2 + (whole / 2).mul_f64(self.rng.random_range(0.0..=1.0));
        let state = State { failures, phase: Phase::RestsUntil(Monotonic(now.0 + rest)) };
        match self.failing.get_mut(instrument) {
            Some(old) => *old = state,
            None => {
                self.failing.insert(instrument.into(), state);
            }
        }
        rest
    }

    /// It answered. Its failures are forgotten once it keeps doing so.
    pub fn answered(&mut self, instrument: &str, now: Monotonic) {
        let Some(state) = self.failing.get_mut(instrument) else { return };
        if let Phase::RestsUntil(_) = state.phase {
            state.phase = Phase::AnswersSince(now);
        }
        let state = *state;
        if self.is_forgiven(&state, now) {
            self.failing.remove(instrument);
        }
    }

    /// Drops the state of instruments that are asked no more, or have long been well. For a quiet moment.
    pub fn retain(&mut self, now: Monotonic, mut is_known: impl FnMut(&str) -> bool) {
        let settings = self.settings;
        self.failing.retain(|name, state| is_known(name) && !state.is_forgiven(settings, now));
    }

    /// How many instruments have state.
    pub fn len(&self) -> usize {
        self.failing.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.failing.is_empty()
    }

    fn is_forgiven(&self, state: &State, now: Monotonic) -> bool {
        state.is_forgiven(self.settings, now)
    }
}

impl State {
    fn is_forgiven(&self, settings: BackoffSettings, now: Monotonic) -> bool {
        matches!(self.phase, Phase::AnswersSince(since) if now.since(since) >= settings.forgiven_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    #[test]
    fn rests_double_up_to_the_cap_with_jitter_below() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 7);
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let rest = backoff.failed("BTC", at(0)).as_secs_f64();
            let whole = f64::from(expected);
            assert!(rest >= whole / 2.0 && rest <= whole, "{rest} of {whole}");
        }
        for _ in 0..100 {
            backoff.failed("BTC", at(0));
        }
        assert!(backoff.rests_until("BTC", at(149)).is_some());
        assert!(backoff.rests_until("BTC", at(301)).is_none());
        assert!(backoff.rests_until("ETH", at(0)).is_none(), "each for itself");
    }

    #[test]
    fn one_good_answer_does_not_make_up_for_many_bad_ones() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 7);
        for _ in 0..5 {
            backoff.failed("BTC", at(0));
        }
        backoff.answered("BTC", at(100));
        assert_eq!(backoff.rests_until("BTC", at(100)), None);
        assert!(backoff.failed("BTC", at(101)) >= Duration::from_secs(16), "it goes on doubling");
        backoff.answered("BTC", at(200));
        backoff.answered("BTC", at(261));
        assert!(backoff.is_empty());
        assert!(backoff.failed("BTC", at(262)) <= Duration::from_secs(1), "a minute of health forgives");
    }

    #[test]
    fn instruments_that_failed_together_come_back_apart() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 7);
        let rests: Vec<Duration> = (0..100).map(|n| backoff.failed(&format!("I{n}"), at(0))).collect();
        let early = rests.iter().filter(|rest| **rest < Duration::from_millis(750)).count();
        assert!((30..=70).contains(&early), "{early} of 100 in the first half");
    }

    #[test]
    fn what_is_asked_no_more_is_dropped() {
        let mut backoff = Backoff::new(BackoffSettings::default(), 7);
        backoff.failed("gone", at(0));
        backoff.failed("well", at(0));
        backoff.failed("ill", at(0));
        backoff.answered("well", at(10));
        backoff.retain(at(100), |name| name != "gone");
        assert_eq!(backoff.len(), 1);
        assert!(backoff.rests_until("ill", at(0)).is_some());
    }
}
