//! Candles and the timeframes they come in.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{Decimal, UnixMs};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// 1970-01-05, the first Monday: weeks begin on Mondays.
const FIRST_MONDAY: i64 = 4 * DAY;

/// How long a candle lasts. Spelled as everybody spells it: `1m` is a minute, `1M` a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Timeframe {
    /// `1s`
    S1,
    /// `1m`
    M1,
    /// `3m`
    M3,
    /// `5m`
    M5,
    /// `15m`
    M15,
    /// `30m`
    M30,
    /// `1h`
    H1,
    /// `2h`
    H2,
    /// `4h`
    H4,
    /// `6h`
    H6,
    /// `8h`
    H8,
    /// `12h`
    H12,
    /// `1d`
    D1,
    /// `3d`
    D3,
    /// `1w`
    W1,
    /// `2w`
    W2,
    /// `1M`
    Month,
}

/// A text that is no timeframe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a timeframe; there is {known}", known = Timeframe::ALL.map(Timeframe::as_str).join(", "))]
pub struct TimeframeError(String);

impl Timeframe {
    /// All of them, the shortest first.
    pub const ALL: [Timeframe; 17] = [
        Self::S1,
        Self::M1,
        Self::M3,
        Self::M5,
        Self::M15,
        Self::M30,
        Self::H1,
        Self::H2,
        Self::H4,
        Self::H6,
        Self::H8,
        Self::H12,
        Self::D1,
        Self::D3,
        Self::W1,
        Self::W2,
        Self::Month,
    ];

    /// Its usual spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S1 => "1s",
            Self::M1 => "1m",
            Self::M3 => "3m",
            Self::M5 => "5m",
            Self::M15 => "15m",
            Self::M30 => "30m",
            Self::H1 => "1h",
            Self::H2 => "2h",
            Self::H4 => "4h",
            Self::H6 => "6h",
            Self::H8 => "8h",
            Self::H12 => "12h",
            Self::D1 => "1d",
            Self::D3 => "3d",
            Self::W1 => "1w",
            Self::W2 => "2w",
            Self::Month => "1M",
        }
    }

    /// How long one lasts, in milliseconds; a month as long as the longest.
    pub fn ms(self) -> i64 {
        match self {
            Self::S1 => SECOND,
            Self::M1 => MINUTE,
            Self::M3 => 3 * MINUTE,
            Self::M5 => 5 * MINUTE,
            Self::M15 => 15 * MINUTE,
            Self::M30 => 30 * MINUTE,
            Self::H1 => HOUR,
            Self::H2 => 2 * HOUR,
            Self::H4 => 4 * HOUR,
            Self::H6 => 6 * HOUR,
            Self::H8 => 8 * HOUR,
            Self::H12 => 12 * HOUR,
            Self::D1 => DAY,
            Self::D3 => 3 * DAY,
            Self::W1 => 7 * DAY,
            Self::W2 => 14 * DAY,
            Self::Month => 31 * DAY,
        }
    }

    /// When the candle opened that a time lies in.
    pub fn open_of(self, at: UnixMs) -> UnixMs {
        let ms = at.get();
        let open = match self {
            Self::Month => return month_of(at, 0),
            Self::W1 | Self::W2 => FIRST_MONDAY + (ms - FIRST_MONDAY).div_euclid(self.ms()) * self.ms(),
            _ => ms - ms.rem_euclid(self.ms()),
        };
        UnixMs::new(open.max(0)).expect("not later than a time that is one")
    }

    /// When the candle after the one that opened then opens.
    pub fn next(self, open: UnixMs) -> UnixMs {
        match self {
            Self::Month => month_of(open, 1),
            _ => UnixMs::new(open.get() + self.ms()).unwrap_or(open),
        }
    }
}

/// The first moment of a time's month, or of one after it.
fn month_of(at: UnixMs, ahead: i32) -> UnixMs {
    let first = |date: Date| {
        let date = date.first_of_month().checked_add(jiff::Span::new().months(ahead)).ok()?;
        let start = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond();
        UnixMs::new(start).ok()
    };
    jiff::Timestamp::from_millisecond(at.get())
        .ok()
        .and_then(|time| first(time.to_zoned(TimeZone::UTC).date()))
        .unwrap_or(at)
}

impl fmt::Display for Timeframe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Timeframe {
    type Err = TimeframeError;

    fn from_str(text: &str) -> Result<Self, TimeframeError> {
        let found = Self::ALL.into_iter().find(|timeframe| timeframe.as_str() == text);
        found.ok_or_else(|| TimeframeError(text.to_owned()))
    }
}

impl TryFrom<String> for Timeframe {
    type Error = TimeframeError;

    fn try_from(text: String) -> Result<Self, TimeframeError> {
        text.parse()
    }
}

impl From<Timeframe> for String {
    fn from(timeframe: Timeframe) -> String {
        timeframe.as_str().to_owned()
    }
}

/// What happened in one stretch of time. Amounts are the venue's own text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candle {
    /// When it opened; with exchange, symbol and timeframe, what tells it from all others.
    pub open_time: UnixMs,
    /// The first price.
    pub open: Decimal,
    /// The highest.
    pub high: Decimal,
    /// The lowest.
    pub low: Decimal,
    /// The last.
    pub close: Decimal,
    /// How much was traded, in the base currency.
    pub volume: Decimal,
    /// The same in the quote currency, where the venue says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote_volume: Option<Decimal>,
    /// How many trades, where the venue says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trades: Option<u64>,
    /// Whether it has closed. One that has not may still change, and is never stored as final.
    pub is_final: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixMs {
        let time: jiff::Timestamp = text.parse().unwrap();
        UnixMs::new(time.as_millisecond()).unwrap()
    }

    fn check(timeframe: Timeframe, time: &str, open: &str, next: &str) {
        let found = timeframe.open_of(at(time));
        assert_eq!(found, at(open), "{timeframe} of {time}");
        assert_eq!(timeframe.next(found), at(next), "{timeframe} after {open}");
    }

    #[test]
    fn candles_open_where_the_calendar_says() {
        check(Timeframe::M1, "2026-01-17T10:30:59.999Z", "2026-01-17T10:30:00Z", "2026-01-17T10:31:00Z");
        check(Timeframe::H4, "2026-01-17T10:30:00Z", "2026-01-17T08:00:00Z", "2026-01-17T12:00:00Z");
        check(Timeframe::D1, "2026-01-17T23:59:59Z", "2026-01-17T00:00:00Z", "2026-01-18T00:00:00Z");
        // 2026-01-12 was a Monday.
        check(Timeframe::W1, "2026-01-17T10:30:00Z", "2026-01-12T00:00:00Z", "2026-01-19T00:00:00Z");
        check(Timeframe::Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
        check(Timeframe::Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z");
    }

    #[test]
    fn a_minute_is_not_a_month() {
        assert_eq!("1m".parse(), Ok(Timeframe::M1));
        assert_eq!("1M".parse(), Ok(Timeframe::Month));
        let error = "7m".parse::<Timeframe>().unwrap_err().to_string();
        assert!(error.starts_with("\"7m\" is not a timeframe; there is 1s, 1m,"), "{error}");
        for timeframe in Timeframe::ALL {
            assert_eq!(timeframe.as_str().parse(), Ok(timeframe));
        }
    }
}
