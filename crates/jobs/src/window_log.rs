//! Who was let through lately: the log that makes a limit hold in *every* interval, not only in aligned ones.
//!
//! A token granted at `t` may leave until `t + validity`, so it lies somewhere in `[t, t + validity]`. Two requests that
//! are within a period of each other were therefore granted within period + validity. Hence a token counts until
//!
//! ```text
//! until > t + period + validity        rounded up to the next multiple of a hundredth of the period
//! ```
//!
//! and a token is granted only while what counts, with it, is at most the limit. Times are whole milliseconds rounded
//! down; `until` is above the sum by at least one, so the part that was cut off does no harm.
//!
//! The rounding keeps the log short, however many tokens there are: at most some hundred entries of (until, how many).
//! It and the validity are what is lost of the limit: a slot comes back after period + validity + 1 %, not after the period.

use std::time::Duration;

use catchment_model::UnixMs;
use serde::{Deserialize, Serialize};

use crate::connector::RateLimit;
use crate::time;
use crate::token::TokenAsk;

/// Entries, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WindowLog(Vec<(i64, u32)>);

impl WindowLog {
    /// Until when a token counts that is granted now. This is also what its entry is found by.
    pub fn until(rate: RateLimit, validity: Duration, now: UnixMs) -> i64 {
        let width = Self::width_ms(rate);
        let ends = now.get() + rate.period_ms as i64 + time::whole_ms(validity);
        ends - ends.rem_euclid(width) + width
    }

    /// A hundredth of the period, at least a millisecond.
    pub fn width_ms(rate: RateLimit) -> i64 {
        (rate.period_ms as i64 / 100).max(1)
    }

    /// Forgets what no longer counts. What counts longer than anything that could be granted now is a leftover of a clock
    /// that has been set back, or of a longer period; it counts as if granted now.
    pub fn tidy(&mut self, rate: RateLimit, now: UnixMs) {
        let latest = Self::until(rate, TokenAsk::VALID_FOR_MAX, now);
        self.0.retain(|(until, tokens)| *until > now.get() && *tokens > 0);
        let beyond = self.0.iter().position(|(until, _)| *until > latest);
        if let Some(first) = beyond {
            let tokens = self.0.drain(first..).map(|(_, tokens)| tokens).sum();
            self.add(latest, tokens);
        }
    }

    /// What counts now; the log must be tidy.
    pub fn used(&self) -> u32 {
        self.0.iter().map(|(_, tokens)| *tokens).fold(0, u32::saturating_add)
    }

    /// When there is room for so many, if nobody takes any meanwhile; the log must be tidy. Exact: a millisecond
    /// earlier there is none.
    pub fn fits_at(&self, rate: RateLimit, tokens: u32, now: UnixMs) -> UnixMs {
        let mut over = (u64::from(self.used()) + u64::from(tokens)).saturating_sub(u64::from(rate.limit));
        for (until, freed) in &self.0 {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(u64::from(*freed));
            if over == 0 {
                return time::from_ms(*until);
            }
        }
        now
    }

    /// So many more count until then.
    pub fn add(&mut self, until: i64, tokens: u32) {
        match self.0.iter_mut().rev().find(|(other, _)| *other <= until) {
            Some((other, counted)) if *other == until => *counted = counted.saturating_add(tokens),
            _ => {
                let at = self.0.partition_point(|(other, _)| *other < until);
                self.0.insert(at, (until, tokens));
            }
        }
    }

    /// So many of those that count until then never left. Gives back how many that were.
    pub fn give_back(&mut self, until: i64, tokens: u32) -> u32 {
        let Some((_, counted)) = self.0.iter_mut().find(|(other, _)| *other == until) else { return 0 };
        let given = tokens.min(*counted);
        *counted -= given;
        given
    }

    /// The calendar has been set by so much; what counts goes with it.
    pub fn shift(&mut self, by_ms: i64) {
        for (until, _) in &mut self.0 {
            *until = until.saturating_add(by_ms);
        }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> UnixMs {
        time::from_ms(ms)
    }

    fn take(log: &mut WindowLog, rate: RateLimit, validity: Duration, tokens: u32, now: i64) -> bool {
        log.tidy(rate, at(now));
        if log.used() + tokens > rate.limit {
            return false;
        }
        log.add(WindowLog::until(rate, validity, at(now)), tokens);
        true
    }

    #[test]
    fn a_token_counts_for_the_period_and_its_validity() {
        let rate = RateLimit { limit: 3, period_ms: 1_000 };
        let validity = Duration::from_millis(30);
        let mut log = WindowLog::default();
        assert!(take(&mut log, rate, validity, 3, 5));
        log.tidy(rate, at(1_039));
        assert_eq!((log.used(), log.fits_at(rate, 1, at(1_039))), (3, at(1_040)));
        assert!(!take(&mut log, rate, validity, 1, 1_039));
        assert!(take(&mut log, rate, validity, 1, 1_040));
    }

    #[test]
    fn what_is_given_back_is_there_at_once() {
        let rate = RateLimit { limit: 3, period_ms: 1_000 };
        let mut log = WindowLog::default();
        assert!(take(&mut log, rate, Duration::ZERO, 3, 5));
        let until = WindowLog::until(rate, Duration::ZERO, at(5));
        assert_eq!(log.give_back(until, 2), 2);
        assert!(take(&mut log, rate, Duration::ZERO, 2, 6));
        assert!(!take(&mut log, rate, Duration::ZERO, 1, 6));
        assert_eq!(log.give_back(until + 10, 1), 0, "there is no such entry");
    }

    #[test]
    fn a_clock_that_was_set_back_blocks_for_a_period_and_a_validity_at_most() {
        let rate = RateLimit { limit: 2, period_ms: 1_000 };
        let mut log = WindowLog::default();
        assert!(take(&mut log, rate, Duration::ZERO, 2, 9_000_000));
        log.tidy(rate, at(50));
        assert_eq!(log.fits_at(rate, 1, at(50)), at(11_060));
        assert!(take(&mut log, rate, Duration::ZERO, 1, 11_060));
    }

    proptest! {
        /// Tokens leave at any moment of their validity; in no closed interval of the period's length more than the limit.
        #[test]
        fn in_every_interval_at_most_the_limit_leaves(
            limit in 1_u32..12,
            period_ms in 10_u64..2_000,
            validity_ms in 0_u64..60,
            steps in prop::collection::vec((0_i64..120, 1_u32..4, 0.0_f64..=1.0), 1..300),
        ) {
            let rate = RateLimit { limit, period_ms };
            let validity = Duration::from_millis(validity_ms);
            let mut log = WindowLog::default();
            let mut left: Vec<(f64, u32)> = Vec::new();
            // The store's clock shows whole milliseconds; the truth lies up to one later.
            let mut ms = 0;
            for (step, tokens, when) in steps {
                ms += step;
                let tokens = tokens.min(limit);
                if take(&mut log, rate, validity, tokens, ms) {
                    left.push((ms as f64 + when * (validity_ms as f64 + 0.999), tokens));
                } else {
                    let fits = log.fits_at(rate, tokens, at(ms)).get();
                    prop_assert!(fits > ms);
                    prop_assert!(!take(&mut log.clone(), rate, validity, tokens, fits - 1));
                    prop_assert!(take(&mut log.clone(), rate, validity, tokens, fits));
                }
                prop_assert!(log.len() <= 103 + validity_ms as usize, "it stays short");
            }
            left.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (first, (start, _)) in left.iter().enumerate() {
                let within = left[first..].iter().take_while(|(at, _)| at - start <= period_ms as f64);
                prop_assert!(within.map(|(_, tokens)| tokens).sum::<u32>() <= limit);
            }
        }

        #[test]
        fn almost_all_of_the_limit_is_used(limit in 1_u32..100, period_ms in 1_000_u64..100_000) {
            let rate = RateLimit { limit, period_ms };
            let validity = rate.token_validity();
            let (mut log, mut now, mut tokens) = (WindowLog::default(), 0, 0);
            let end = 50 * period_ms as i64;
            while now < end {
                log.tidy(rate, at(now));
                let room = limit - log.used();
                if room > 0 && take(&mut log, rate, validity, room, now) {
                    tokens += room;
                }
                now = log.fits_at(rate, 1, at(now)).get();
            }
            prop_assert!(f64::from(tokens) >= 0.955 * f64::from(limit) * 50.0, "{tokens} of {}", limit * 50);
        }
    }
}
