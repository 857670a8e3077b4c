//! Times with their unit in the type, and the UTC date that decides a record's folder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const MS_PER_DAY: i64 = 86_400_000;
/// The last millisecond of the year 9999; later times are a unit mistaken for another.
const MS_MAX: i64 = 253_402_300_799_999;
/// What 64 bits of nanoseconds can say: the year 2262.
const NS_AS_MS_MAX: i64 = i64::MAX / 1_000_000 - 1;

/// Why a time was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Outside of what the type may hold; most often the wrong unit.
    #[error("{what} {value} is out of range; expected milliseconds since 1970, up to {max}")]
    OutOfRange {
        /// The key it stood under.
        what: &'static str,
        /// The value given.
        value: i64,
        /// The largest value taken.
        max: i64,
    },
    /// Not a date of the form `YYYY-MM-DD`.
    #[error("{0:?} is not a date of the form YYYY-MM-DD")]
    Date(String),
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(i64);

impl UnixMs {
    /// A venue's time: any from 1970 to 9999.
    pub fn new(ms: i64) -> Result<Self, TimeError> {
        if (0..=MS_MAX).contains(&ms) {
            return Ok(Self(ms));
        }
        Err(TimeError::OutOfRange { what: "time", value: ms, max: MS_MAX })
    }

    /// The number itself.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Nanoseconds since 1970-01-01 UTC: when we received something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixNs(i64);

impl UnixNs {
    /// A receive time: any from 1970 to 2262.
    pub fn new(ns: i64) -> Result<Self, TimeError> {
        if ns >= 0 {
            return Ok(Self(ns));
        }
        Err(TimeError::OutOfRange { what: "received_at_ns", value: ns, max: i64::MAX })
    }

    /// The same instant from milliseconds.
    pub fn from_ms(ms: i64) -> Result<Self, TimeError> {
        if (0..=NS_AS_MS_MAX).contains(&ms) {
            return Ok(Self(ms * 1_000_000));
        }
        Err(TimeError::OutOfRange { what: "received_at_ms", value: ms, max: NS_AS_MS_MAX })
    }

    /// The number itself.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The same instant in whole milliseconds, rounded down.
    pub fn ms(self) -> UnixMs {
        UnixMs(self.0 / 1_000_000)
    }

    /// The UTC date this instant falls on.
    pub fn date(self) -> UtcDate {
        UtcDate((self.ms().0 / MS_PER_DAY) as i32)
    }
}

/// A day in UTC; a record's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UtcDate(i32);

impl UtcDate {
    /// The day's first instant.
    pub fn start(self) -> UnixMs {
        UnixMs(i64::from(self.0) * MS_PER_DAY)
    }
}

impl fmt::Display for UtcDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = jiff::Timestamp::from_millisecond(self.start().0).map_err(|_| fmt::Error)?;
        write!(f, "{}", jiff::tz::Offset::UTC.to_datetime(day).date())
    }
}

impl FromStr for UtcDate {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wrong = || TimeError::Date(text.to_owned());
        let date: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
        let start = date.at(0, 0, 0, 0);
        let ms = jiff::tz::Offset::UTC.to_timestamp(start).map_err(|_| wrong())?.as_millisecond();
        let parsed = Self(i32::try_from(ms / MS_PER_DAY).map_err(|_| wrong())?);
        // Only the one spelling, so that a folder name and a date are the same thing.
        if parsed.to_string() == text { Ok(parsed) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ms: i64, date: &str) {
        let got = UnixNs::from_ms(ms).unwrap().date();
        assert_eq!(got.to_string(), date);
        assert_eq!(date.parse::<UtcDate>().unwrap(), got);
    }

    #[test]
    fn dates_turn_at_utc_midnight() {
        check(0, "1970-01-01");
        check(86_399_999, "1970-01-01");
        check(86_400_000, "1970-01-02");
        check(951_782_400_000 - 1, "2000-02-28");
        check(951_782_400_000, "2000-02-29");
        check(1_798_761_599_999, "2026-12-31");
        check(1_798_761_600_000, "2027-01-01");
    }

    #[test]
    fn a_wrong_unit_is_named() {
        let error = UnixNs::from_ms(1_798_761_600_000_000_000).unwrap_err().to_string();
        assert!(error.contains("received_at_ms 1798761600000000000 is out of range"), "{error}");
        assert!(UnixNs::from_ms(-1).is_err());
        assert!(UnixMs::new(MS_MAX + 1).is_err());
    }

    #[test]
    fn only_one_spelling_of_a_date_is_taken() {
        for bad in ["2026-1-1", "20260101", "2026-13-01", "yesterday", ""] {
            assert!(bad.parse::<UtcDate>().is_err(), "{bad:?} was taken");
        }
    }
}
