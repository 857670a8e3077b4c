//! Times in which nothing is sent: after a refusal, after too many failures, while banned.
//!
//! A hold only ever grows. Answers to requests that left before it began belong to the same episode: they can make it
//! longer if the venue says so, but they are no new strike. A strike soon after the last hold doubles the length; one
//! after a while of health starts again from the setting.
//!
//! Most trouble is short, and what is missed after its end is our own doing: for the first two minutes a hold is at most
//! 20 s, so that the venue is recorded again within 30 s. A venue that refuses for longer may count what it refuses and
//! wants to be left alone: then it doubles on. One that merely fails counts nothing, and is asked again every 10 s;
//! with the request that finds out, and times out, that is within 30 s too.

use std::time::Duration;

use catchment_model::Monotonic;

use crate::retry_after::RetryAfter;

/// A ban ends this long after the venue says it does.
const BAN_MARGIN: Duration = Duration::from_secs(5);
const BAN_MAX: Duration = Duration::from_secs(3_600);
/// A ban within this time of the last one's end is a repeated one.
const BAN_FORGOTTEN_AFTER: Duration = Duration::from_secs(86_400);
/// Jitter on top of a hold is at most half of it and at most this.
const JITTER_MAX: Duration = Duration::from_millis(2_500);

/// Why nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldCause {
    /// The venue refused and said how long to wait.
    RetryAfter,
    /// The venue refused and did not say.
    Refused,
    /// Too many requests of one loop failed.
    Failures,
    /// The venue shut the door.
    Ban,
}

impl HoldCause {
    /// As it stands in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry_after",
            Self::Refused => "refused",
            Self::Failures => "failures",
            Self::Ban => "ban",
        }
    }
}

/// Trouble younger than this is short.
const BRIEF: Duration = Duration::from_secs(120);
/// A hold in short trouble is at most this.
const BRIEF_MAX: Duration = Duration::from_secs(20);
/// A hold for failures is at most this, however long they last.
const FAILING_MAX: Duration = Duration::from_secs(10);

/// How long a cooldown is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cooldown {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
    /// Health of this length ends an episode.
    pub(crate) forgotten_after: Duration,
}

/// Whether and how long something is held.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// When the newest episode began; `None` before the first.
    began: Option<Monotonic>,
    until: Monotonic,
    cause: Option<HoldCause>,
    strikes: u32,
    /// When the first of these strikes was.
    struck: Monotonic,
    /// How many of them came when it was short no more.
    late: u32,
    ban: Ban,
}

#[derive(Debug, Default)]
struct Ban {
    began: Option<Monotonic>,
    until: Monotonic,
    strikes: u32,
}

/// A hold that began or grew, to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) cause: HoldCause,
    pub(crate) length: Duration,
    /// Of a ban: how many in a row.
    pub(crate) strikes: u32,
}

impl Hold {
    /// How long it lasts yet, and why.
    pub(crate) fn remaining(&self, now: Monotonic) -> Option<(Duration, HoldCause)> {
        let ban = self.ban.until.since(now);
        let other = self.until.since(now);
        match self.cause {
            _ if ban >= other && !ban.is_zero() => Some((ban, HoldCause::Ban)),
            Some(cause) if !other.is_zero() => Some((other, cause)),
            _ => None,
        }
    }

    /// When it ends, if it has not.
    #[inline]
    pub(crate) fn ends_at(&self, now: Monotonic) -> Option<Monotonic> {
        let until = self.until.max(self.ban.until);
        (until > now).then_some(until)
    }

    /// The venue refused a request that left at `sent_at`. `jitter` is between 0 and 1.
    pub(crate) fn refused(
        &mut self,
        sent_at: Monotonic,
        now: Monotonic,
        retry_after: Option<Duration>,
        rules: Cooldown,
        jitter: f64,
    ) -> Option<Held> {
        let is_same_episode = self.began.is_some_and(|began| sent_at <= began);
        let (length, cause) = match retry_after {
            Some(length) => (length, HoldCause::RetryAfter),
            None if is_same_episode => return None,
            None => (self.strike(HoldCause::Refused, now, rules), HoldCause::Refused),
        };
        if !is_same_episode {
            self.began = Some(now);
        }
        self.hold(cause, length + on_top(length, jitter), now)
    }

    /// Too many of one loop failed.
    pub(crate) fn failing(&mut self, now: Monotonic, rules: Cooldown, jitter: f64) -> Option<Held> {
        let length = self.strike(HoldCause::Failures, now, rules);
        self.began = Some(now);
        self.hold(HoldCause::Failures, length + on_top(length, jitter), now)
    }

    /// The venue shut the door on a request that left at `sent_at`. `first` is for a venue that does not say how long.
    pub(crate) fn banned(
        &mut self,
        sent_at: Monotonic,
        now: Monotonic,
        retry_after: Option<RetryAfter>,
        first: Duration,
    ) -> Option<Held> {
        let is_same_ban = self.ban.began.is_some_and(|began| sent_at <= began);
        if !is_same_ban {
            let is_repeated = self.ban.began.is_some() && now.since(self.ban.until) < BAN_FORGOTTEN_AFTER;
            self.ban.strikes = if is_repeated { self.ban.strikes.saturating_add(1) } else { 1 };
            self.ban.began = Some(now);
        }
        let length = match retry_after {
            Some(said) => said.ban() + BAN_MARGIN,
            None if is_same_ban => return None,
            None => doubled(first, self.ban.strikes - 1, BAN_MAX.max(first)),
        };
        let until = Monotonic(now.0 + length);
        if until <= self.ban.until {
            return None;
        }
        self.ban.until = until;
        Some(Held { cause: HoldCause::Ban, length, strikes: self.ban.strikes })
    }

    /// A ban from before the restart goes on.
    pub(crate) fn still_banned(&mut self, now: Monotonic, length: Duration, strikes: u32) {
        self.ban = Ban { began: Some(now), until: Monotonic(now.0 + length), strikes };
    }

    fn strike(&mut self, cause: HoldCause, now: Monotonic, rules: Cooldown) -> Duration {
        let is_soon = self.began.is_some() && now.since(self.until) < rules.forgotten_after;
        if is_soon {
            self.strikes = self.strikes.saturating_add(1);
            self.late += u32::from(now.since(self.struck) >= BRIEF);
        } else {
            (self.strikes, self.struck, self.late) = (1, now, 0);
        }
        let most = match cause {
            HoldCause::Failures => FAILING_MAX.min(rules.max),
            _ => doubled(BRIEF_MAX, self.late, rules.max),
        };
        // What the user has set is the least.
        doubled(rules.first, self.strikes - 1, most.max(rules.first))
    }

    fn hold(&mut self, cause: HoldCause, length: Duration, now: Monotonic) -> Option<Held> {
        let until = Monotonic(now.0 + length);
        if until <= self.until {
            return None;
        }
        self.until = until;
        self.cause = Some(cause);
        Some(Held { cause, length, strikes: 0 })
    }
}

/// Never less than the length itself: the venue named it, or the user did.
fn on_top(length: Duration, jitter: f64) -> Duration {
    (length / 2).min(JITTER_MAX).mul_f64(jitter.clamp(0.0, 1.0))
}

/// `first` doubled so many times, at most `max`.
pub(crate) fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Cooldown = Cooldown {
        first: Duration::from_secs(5),
        max: Duration::from_secs(60),
        forgotten_after: Duration::from_secs(30),
    };

    const BAN: Duration = Duration::from_secs(120);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    fn seconds(held: Option<Held>) -> Option<u64> {
        held.map(|held| held.length.as_secs())
    }

    #[test]
    fn strikes_soon_after_one_another_double_and_health_forgives() {
        let mut hold = Hold::default();
        let mut refuse = |sent, now| seconds(hold.refused(at(sent), at(now), None, RULES, 0.0));
        assert_eq!(refuse(0, 1), Some(5));
        assert_eq!(refuse(0, 2), None, "it left before the hold began: the same episode");
        assert_eq!(refuse(7, 8), Some(10));
        assert_eq!(refuse(20, 21), Some(20));
        assert_eq!(refuse(42, 43), Some(20), "not more, as long as it may be over soon");
        assert_eq!(refuse(64, 65), Some(20));
        assert_eq!(refuse(90, 91), Some(20));
        assert_eq!(refuse(121, 122), Some(40), "two minutes of nothing else");
        assert_eq!(refuse(164, 165), Some(60), "at most the cap");
        assert_eq!(refuse(256, 257), Some(5), "half a minute of health");
    }

    #[test]
    fn a_venue_that_fails_for_an_hour_is_asked_as_often_as_at_the_beginning() {
        let mut hold = Hold::default();
        let mut lengths = Vec::new();
        let mut now = 0;
        while now < 3_600 {
            let length = seconds(hold.failing(at(now), RULES, 0.0)).unwrap();
            lengths.push(length);
            now += length + 10; // and the request that finds out times out
        }
        assert_eq!(
            (lengths[0], lengths[1..].iter().min(), lengths[1..].iter().max()),
            (5, Some(&10), Some(&10))
        );
        let patient = Cooldown { first: Duration::from_secs(30), ..RULES };
        assert_eq!(seconds(hold.failing(at(9_000), patient, 0.0)), Some(30), "the user has the last word");
    }

    #[test]
    fn what_the_venue_says_is_never_undercut_and_jitter_comes_on_top() {
        for jitter in [0.0, 0.3, 1.0] {
            let mut hold = Hold::default();
            let held = hold.refused(at(0), at(1), Some(Duration::from_secs(20)), RULES, jitter).unwrap();
            assert!(held.length >= Duration::from_secs(20) && held.length <= Duration::from_millis(22_500));
            let shorter = hold.refused(at(0), at(2), Some(Duration::from_secs(3)), RULES, jitter);
            assert_eq!(shorter, None, "a hold does not shrink");
            let longer = hold.refused(at(0), at(2), Some(Duration::from_secs(60)), RULES, jitter);
            assert!(longer.is_some(), "the same episode may grow");
            assert_eq!(hold.remaining(at(2)).unwrap().1, HoldCause::RetryAfter);
        }
    }

    #[test]
    fn bans_double_when_repeated_and_a_late_answer_is_no_second_ban() {
        let mut hold = Hold::default();
        assert_eq!(seconds(hold.banned(at(0), at(1), None, BAN)), Some(120));
        assert_eq!(hold.banned(at(0), at(2), None, BAN), None);
        assert_eq!(hold.remaining(at(2)), Some((Duration::from_secs(119), HoldCause::Ban)));
        let mut now = 121;
        for expected in [240, 480, 960, 1_920, 3_600, 3_600] {
            now += 10;
            assert_eq!(seconds(hold.banned(at(now), at(now + 1), None, BAN)), Some(expected));
            now += expected;
        }
        now += 90_000;
        assert_eq!(
            seconds(hold.banned(at(now), at(now + 1), None, BAN)),
            Some(120),
            "a day later it is forgotten"
        );
    }

    #[test]
    fn a_ban_lasts_as_long_as_the_venue_says_and_five_seconds() {
        let mut hold = Hold::default();
        let said = Some(RetryAfter { asked: Duration::from_secs(7_200) });
        assert_eq!(seconds(hold.banned(at(0), at(1), said, BAN)), Some(7_205));
        let held = hold.refused(at(0), at(2), Some(Duration::from_secs(1)), RULES, 0.0);
        assert!(held.is_some());
        assert_eq!(hold.remaining(at(3)).unwrap().1, HoldCause::Ban, "the longer one is told");
        assert_eq!(hold.ends_at(at(3)), Some(at(7_206)));
        assert_eq!(hold.ends_at(at(7_206)), None);
    }
}
