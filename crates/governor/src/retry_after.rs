//! Retry-After in all the forms venues send it: seconds, a date, nothing useful.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catchment_model::UnixNs;

/// Nobody is asked again sooner.
pub(crate) const FLOOR: Duration = Duration::from_millis(500);
/// A refusal holds no longer; a venue that says more has most likely mistaken the unit.
pub(crate) const CAP: Duration = Duration::from_secs(3_600);
/// A ban may be longer: Binance bans for up to three days.
pub(crate) const BAN_CAP: Duration = Duration::from_secs(3 * 86_400);

/// What a Retry-After header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter {
    /// As it was written; zero if that was in the past.
    pub asked: Duration,
}

impl RetryAfter {
    /// Reads the header's value. A date counts from the answer's own Date header if it has one, because the venue's
    /// clock and ours may differ, else from our clock. `None` if it is neither a number nor a date.
    pub fn read(value: &[u8], date: Option<&[u8]>, wall: UnixNs) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?.trim();
        let asked = match seconds(value) {
            Some(asked) => asked,
            None => {
                let then = http_date(value)?;
                let now = date.and_then(|date| http_date(std::str::from_utf8(date).ok()?.trim()));
                let now = now.unwrap_or(Duration::from_nanos(u64::try_from(wall.get()).unwrap_or(0)));
                then.saturating_sub(now)
            }
        };
        Some(Self { asked })
    }

    /// How long to wait after a refusal.
    pub fn wait(self) -> Duration {
        self.asked.clamp(FLOOR, CAP)
    }

    /// How long to wait after a ban.
    pub fn ban(self) -> Duration {
        self.asked.clamp(FLOOR, BAN_CAP)
    }
}

/// Whole or broken, positive or not; digits without end mean "very long".
fn seconds(value: &str) -> Option<Duration> {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1;
    if !is_number {
        return None;
    }
    if value.starts_with('-') {
        return Some(Duration::ZERO);
    }
    let seconds: f64 = digits.parse().ok()?;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

fn http_date(value: &str) -> Option<Duration> {
    let at: SystemTime = httpdate::parse_http_date(value).ok()?;
    at.duration_since(UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const WALL_S: i64 = 784_111_777;

    #[test]
    fn every_form_is_read_and_held_between_floor_and_cap() {
        let check = |value: &str, wait_s: Option<f64>| {
            let wall = UnixNs::from_ms(WALL_S * 1_000).unwrap();
            let read = RetryAfter::read(value.as_bytes(), None, wall);
            assert_eq!(read.map(|read| read.wait().as_secs_f64()), wait_s, "{value:?}");
        };
        check("7", Some(7.0));
        check(" 7 ", Some(7.0));
        check("1.5", Some(1.5));
        check("0", Some(0.5));
        check("-3", Some(0.5));
        check("1000000", Some(3_600.0));
        check("99999999999999999999999999", Some(3_600.0));
        check("Sun, 06 Nov 1994 08:49:47 GMT", Some(10.0));
        check("Sunday, 06-Nov-94 08:49:47 GMT", Some(10.0));
        check("Sun Nov  6 08:49:47 1994", Some(10.0));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(0.5));
        check("Sun, 07 Nov 2094 08:00:00 GMT", Some(3_600.0));
        for garbage in
            ["", "soon", "7s", "1e3", "NaN", "inf", "-", ".", "1.2.3", "<html>", "Sun, 99 Nov 1994"]
        {
            check(garbage, None);
        }
        assert_eq!(RetryAfter::read(b"\xff\xfe", None, UnixNs::from_ms(0).unwrap()), None);
    }

    #[test]
    fn a_date_counts_by_the_venues_clock_where_the_venue_says_its_time() {
        let ours_is_five_minutes_late = UnixNs::from_ms((WALL_S - 300) * 1_000).unwrap();
        let date = Some(b"Sun, 06 Nov 1994 08:49:37 GMT".as_slice());
        let read = RetryAfter::read(b"Sun, 06 Nov 1994 08:49:47 GMT", date, ours_is_five_minutes_late);
        assert_eq!(read.unwrap().wait(), Duration::from_secs(10));
    }

    #[test]
    fn a_ban_may_be_longer_than_a_refusal() {
        let two_hours = RetryAfter { asked: Duration::from_secs(7_200) };
        assert_eq!((two_hours.wait(), two_hours.ban()), (CAP, Duration::from_secs(7_200)));
        assert_eq!(RetryAfter { asked: Duration::MAX }.ban(), BAN_CAP);
    }
}
