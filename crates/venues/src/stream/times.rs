//! The venues' spellings of time, read into milliseconds.

use std::time::Duration;

use catchment_model::UnixMs;
use serde::Deserialize;

use super::found::digits;

/// How a venue writes a time. Whether as a number or as a text does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TimeUnit {
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Seconds, with or without a fraction.
    #[serde(rename = "s")]
    Seconds,
    /// `2026-02-01T12:30:00.123456Z`, with any number of digits, or none, behind the point.
    #[serde(rename = "iso")]
    Iso,
}

impl TimeUnit {
    /// Rounded down to the millisecond. Exact: no floating point on the way.
    #[inline]
    pub fn read(self, text: &str) -> Option<UnixMs> {
        let text = text.as_bytes();
        let ms = match self {
            TimeUnit::Milliseconds => digits(text)?,
            TimeUnit::Microseconds => digits(text)? / 1_000,
            TimeUnit::Nanoseconds => digits(text)? / 1_000_000,
            TimeUnit::Seconds => seconds(text)?,
            TimeUnit::Iso => return UnixMs::new(iso(text)?).ok(),
        };
        UnixMs::new(i64::try_from(ms).ok()?).ok()
    }

    /// How coarse a time written like this is: a second where there is no fraction of one, else a millisecond.
    pub(super) fn step(self, text: &str) -> Duration {
        match self {
            TimeUnit::Seconds | TimeUnit::Iso if !text.contains(['.', ',']) => Duration::from_secs(1),
            _ => Duration::from_millis(1),
        }
    }
}

/// `1616663618.1234567`.
fn seconds(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let whole = digits(&text[..point])?.checked_mul(1_000)?;
    match text.get(point + 1..) {
        None => Some(whole),
        Some(fraction) => whole.checked_add(u64::from(milliseconds(fraction)?)),
    }
}

/// The first three digits of a fraction; all of it must be digits, and there must be some.
fn milliseconds(fraction: &[u8]) -> Option<u32> {
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| fraction.get(at).map_or(0, |byte| u32::from(byte - b'0'));
    Some(digit(0) * 100 + digit(1) * 10 + digit(2))
}

/// `YYYY-MM-DDTHH:MM:SS`, perhaps a fraction, then `Z` or an offset such as `+02:00`.
fn iso(text: &[u8]) -> Option<i64> {
    let (start, rest) = text.split_first_chunk::<19>()?;
    let two = |at: usize| -> Option<i64> {
        let (tens, ones) = (start[at].wrapping_sub(b'0'), start[at + 1].wrapping_sub(b'0'));
        (tens <= 9 && ones <= 9).then(|| i64::from(tens * 10 + ones))
    };
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, mark)| start[*at] == *mark) || !matches!(start[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (two(0)? * 100 + two(2)?, two(5)?, two(8)?);
    let (hour, minute, second) = (two(11)?, two(14)?, two(17)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_in_month = *days.get(usize::try_from(month - 1).ok()?)?;
    // A leap second counts as the first instant of the next minute.
    if !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, offset) = match rest.first()? {
        b'.' | b',' => {
            let end = rest[1..].iter().position(|byte| !byte.is_ascii_digit())? + 1;
            (milliseconds(&rest[1..end])?, &rest[end..])
        }
        _ => (0, rest),
    };
    let offset_minutes = match offset {
        b"Z" | b"z" => 0,
        [b'+', rest @ ..] => hours_and_minutes(rest)?,
        [b'-', rest @ ..] => -hours_and_minutes(rest)?,
        _ => return None,
    };
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1_000 + i64::from(fraction))
}

/// `02:00`, `0200` or `02`, in minutes.
fn hours_and_minutes(text: &[u8]) -> Option<i64> {
    let (hours, minutes) = match text {
        [h1, h2] => ([*h1, *h2], *b"00"),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => ([*h1, *h2], [*m1, *m2]),
        _ => return None,
    };
    let (hours, minutes) = (digits(&hours)?, digits(&minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    i64::try_from(hours * 60 + minutes).ok()
}

/// Counted in years that begin in March, so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unit: TimeUnit, text: &str, want: Option<i64>) {
        assert_eq!(unit.read(text).map(UnixMs::get), want, "{text} as {unit:?}");
    }

    #[test]
    fn every_unit_is_read_exactly() {
        check(TimeUnit::Milliseconds, "1723161255208", Some(1_723_161_255_208));
        check(TimeUnit::Microseconds, "1723161255208999", Some(1_723_161_255_208));
        check(TimeUnit::Nanoseconds, "1723161255208999999", Some(1_723_161_255_208));
        check(TimeUnit::Seconds, "1616663618", Some(1_616_663_618_000));
        check(TimeUnit::Seconds, "1616663618.1239999", Some(1_616_663_618_123));
        check(TimeUnit::Seconds, "1616663618.1", Some(1_616_663_618_100));
        for bad in ["", "-1", "1.", ".5", "1e3", "12a", "99999999999999999999"] {
            check(TimeUnit::Seconds, bad, None);
            check(TimeUnit::Milliseconds, bad, None);
        }
        check(TimeUnit::Milliseconds, "1723161255208999999", None);
    }

    #[test]
    fn whole_seconds_are_known_as_such() {
        let step = |unit: TimeUnit, text: &str| unit.step(text).as_millis();
        assert_eq!(
            (step(TimeUnit::Seconds, "1616663618"), step(TimeUnit::Seconds, "1616663618.0")),
            (1_000, 1)
        );
        assert_eq!(step(TimeUnit::Iso, "2026-05-24T03:55:46Z"), 1_000);
        assert_eq!(step(TimeUnit::Iso, "2026-05-24T03:55:46.5Z"), 1);
        assert_eq!(step(TimeUnit::Milliseconds, "1723161255208"), 1);
    }

    #[test]
    fn iso_times_agree_with_a_calendar() {
        check(TimeUnit::Iso, "2021-04-17T16:43:30.244075Z", Some(1_618_677_810_244));
        check(TimeUnit::Iso, "2026-09-25T17:48:26.844359566Z", Some(1_790_358_506_844));
        check(TimeUnit::Iso, "2026-05-24 05:25:46+00:00", Some(1_779_600_346_000));
        check(TimeUnit::Iso, "2026-05-24 05:25:46+00", Some(1_779_600_346_000));
        check(TimeUnit::Iso, "2026-05-24T03:55:46-0130", Some(1_779_600_346_000));
        check(TimeUnit::Iso, "2026-05-24T07:25:46+02:00", Some(1_779_600_346_000));
        check(TimeUnit::Iso, "2024-02-29T00:00:00Z", Some(1_709_164_800_000));
        for bad in [
            "2023-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.5",
            "2026-01-01",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00+2",
        ] {
            check(TimeUnit::Iso, bad, None);
        }
        // Every day from 1970 to 2106, beside another calendar.
        for day in 0..50_000_i64 {
            let ms = day * 86_400_000 + 123;
            let text = jiff::Timestamp::from_millisecond(ms).unwrap().to_string();
            check(TimeUnit::Iso, &text, Some(ms));
        }
    }
}
