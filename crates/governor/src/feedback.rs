//! What an answer's headers say about the limit.
//!
//! ```text
//! Retry-After: 7                                  seconds or a date
//! RateLimit: "default";r=50;t=30                  what is left, and for how long it must last
//! RateLimit: limit=100, remaining=50, reset=30    an older form of the same
//! X-RateLimit-Remaining: 50                       and -Reset: seconds, or a Unix time; also without the X-
//! X-Bapi-Limit-Status: 9                          Bybit; -Reset-Timestamp in milliseconds
//! X-MBX-USED-WEIGHT-1M: 37                        Binance: what this address has used of a window
//! ```
//!
//! A value that cannot be read is as good as none.

use std::time::Duration;

use catchment_model::UnixNs;

use crate::limiter::{Feedback, Used};
use crate::retry_after::RetryAfter;
use crate::spec::{FamilyId, Limits};

const USED_WEIGHT: &[u8] = b"x-mbx-used-weight-";

/// The headers of one answer, as they come. Names are compared without regard to case.
#[derive(Debug, Default)]
pub(crate) struct Found<'h> {
    retry_after: Option<&'h [u8]>,
    date: Option<&'h [u8]>,
    remaining: Option<u64>,
    reset: Option<Reset>,
    used: Option<(u64, Duration)>,
}

#[derive(Debug, Clone, Copy)]
enum Reset {
    After(Duration),
    At(Duration),
}

impl<'h> Found<'h> {
    /// What they say to a request of this family. What is asked again only after a while is given back as it was written,
    /// too: a ban may be longer than a refusal.
    #[inline]
    pub(crate) fn read(
        &self,
        limits: &Limits,
        family: FamilyId,
        wall: impl Fn() -> UnixNs,
        feedback: &mut Feedback,
    ) -> Option<RetryAfter> {
        if self.retry_after.is_none() && self.remaining.is_none() && self.used.is_none() {
            return None; // as nearly always
        }
        let retry_after = self.retry_after.and_then(|value| RetryAfter::read(value, self.date, wall()));
        feedback.retry_after = retry_after.map(RetryAfter::wait);
        feedback.remaining = self.remaining.zip(self.reset.map(|reset| reset.after(wall())));
        feedback.used = self.used.and_then(|(used, window)| {
            let spec = limits.windows_of(family).find(|spec| spec.length == window)?;
            Some(Used { used, limit: spec.declared.into(), allowed: spec.allowed.into(), window })
        });
        retry_after
    }

    /// One more.
    #[inline]
    pub(crate) fn note(&mut self, name: &str, value: &'h [u8]) {
        // Most headers are none of these, and this runs for every answer.
        match name.as_bytes().first() {
            Some(b'd' | b'D') if name.eq_ignore_ascii_case("date") => self.date = Some(value),
            Some(b'r' | b'R') => self.note_common(name, value),
            Some(b'x' | b'X') => self.note_own(name, value),
            _ => {}
        }
    }

    fn note_common(&mut self, name: &str, value: &'h [u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("retry-after") {
            self.retry_after = Some(value);
        } else if is("ratelimit") {
            self.note_structured(value);
        } else if is("ratelimit-remaining") {
            self.remaining = number(value);
        } else if is("ratelimit-reset") {
            self.reset = number(value).map(Reset::seconds);
        }
    }

    fn note_own(&mut self, name: &str, value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("x-ratelimit-remaining") || is("x-bapi-limit-status") {
            self.remaining = number(value);
        } else if is("x-ratelimit-reset") {
            self.reset = number(value).map(Reset::seconds);
        } else if is("x-bapi-limit-reset-timestamp") {
            self.reset = number(value).map(|ms| Reset::At(Duration::from_millis(ms)));
        } else if let Some((start, rest)) = name.as_bytes().split_at_checked(USED_WEIGHT.len())
            && start.eq_ignore_ascii_case(USED_WEIGHT)
            && let Some(window) = window(rest)
        {
            self.used = number(value).map(|used| (used, window));
        }
    }

    fn note_structured(&mut self, value: &[u8]) {
        let Ok(text) = std::str::from_utf8(value) else { return };
        for part in text.split([';', ',']) {
            let Some((key, value)) = part.split_once('=') else { continue };
            let value = number(value.as_bytes());
            match key.trim() {
                "r" | "remaining" => self.remaining = value,
                "t" | "reset" => self.reset = value.map(Reset::seconds),
                _ => {}
            }
        }
    }
}

impl Reset {
    /// Seconds from now, or, if that would be decades, since 1970.
    fn seconds(value: u64) -> Self {
        const DECADES: u64 = 1_000_000_000;
        let length = Duration::from_secs(value);
        if value < DECADES { Self::After(length) } else { Self::At(length) }
    }

    fn after(self, wall: UnixNs) -> Duration {
        match self {
            Self::After(length) => length,
            Self::At(at) => at.saturating_sub(Duration::from_nanos(u64::try_from(wall.get()).unwrap_or(0))),
        }
    }
}

/// Digits only. Headers are read for every answer, so this looks at each byte once.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let add = |sum: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(digit.into()) }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// `1m` is a minute.
fn window(text: &[u8]) -> Option<Duration> {
    let (unit, count) = text.split_last()?;
    let unit = match unit {
        b's' | b'S' => 1,
        b'm' | b'M' => 60,
        b'h' | b'H' => 3_600,
        b'd' | b'D' => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number(count)?.checked_mul(unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Family;

    fn heard(headers: &[(&str, &str)]) -> (Feedback, Option<RetryAfter>) {
        let limits = Limits::new([Family::top("rest").limit(6_000, Duration::from_secs(60))], 0.95).unwrap();
        let family = limits.family("rest").unwrap();
        let mut found = Found::default();
        for (name, value) in headers {
            found.note(name, value.as_bytes());
        }
        let mut feedback = Feedback::default();
        let wall = || UnixNs::from_ms(1_800_000_000_000).unwrap();
        let retry_after = found.read(&limits, family, wall, &mut feedback);
        (feedback, retry_after)
    }

    #[test]
    fn what_is_left_is_read_in_every_form() {
        let check = |headers: &[(&str, &str)], expected: Option<(u64, u64)>| {
            let expected = expected.map(|(left, seconds)| (left, Duration::from_secs(seconds)));
            assert_eq!(heard(headers).0.remaining, expected, "{headers:?}");
        };
        check(&[("RateLimit", "\"default\";r=50;t=30")], Some((50, 30)));
        check(&[("ratelimit", "limit=100, remaining=50, reset=30")], Some((50, 30)));
        check(&[("RateLimit-Remaining", "5"), ("RateLimit-Reset", "2")], Some((5, 2)));
        check(&[("X-RateLimit-Remaining", "5"), ("X-RateLimit-Reset", "1800000009")], Some((5, 9)));
        let bybit = [("X-Bapi-Limit-Status", "9"), ("X-Bapi-Limit-Reset-Timestamp", "1800000003000")];
        check(&bybit, Some((9, 3)));
        check(&[("X-RateLimit-Remaining", "5")], None);
        check(&[("X-RateLimit-Remaining", "-5"), ("X-RateLimit-Reset", "soon")], None);
        check(&[("Content-Type", "text/html")], None);
    }

    #[test]
    fn a_used_weight_is_matched_with_the_declared_window() {
        let check = |name: &str, value: &str, expected: Option<u64>| {
            let used = heard(&[(name, value)]).0.used;
            assert_eq!(used.map(|used| used.used), expected, "{name}: {value}");
            assert!(used.is_none_or(|used| (used.limit, used.allowed) == (6_000, 5_700)));
        };
        check("X-MBX-USED-WEIGHT-1M", "37", Some(37));
        check("x-mbx-used-weight-60s", "37", Some(37));
        check("X-MBX-USED-WEIGHT-1H", "37", None);
        check("X-MBX-USED-WEIGHT-1M", "many", None);
        check("X-MBX-USED-WEIGHT-M", "37", None);
        check("X-MBX-USED-WEIGHT-", "37", None);
        check("X-MBX-USED-WEIGHT-1é", "37", None);
        check("X-MBX-USED-WEIGHT-99999999999999999999D", "37", None);
    }

    #[test]
    fn a_retry_after_is_between_floor_and_cap_for_a_limiter_and_whole_for_a_ban() {
        let (feedback, retry_after) = heard(&[("Retry-After", "7200")]);
        assert_eq!(feedback.retry_after, Some(Duration::from_secs(3_600)));
        assert_eq!(retry_after.unwrap().ban(), Duration::from_secs(7_200));
    }
}
