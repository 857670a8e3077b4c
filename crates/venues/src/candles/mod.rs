//! Candles from REST: what to ask for the next page of a range, and how to read the answer.
//!
//! Every venue pages in its own way; here a range is always asked for from its beginning, a stretch at a time, and an
//! answer is always in order, oldest first, without what was not asked for:
//!
//! | venue | rows | order | bounds | unfinished candle | empty stretches |
//! |---|---|---|---|---|---|
//! | Binance | 1,000 | oldest first | both included, by open time | by its time | left out only in outages |
//! | Coinbase | 300, more is refused | newest first | both included; rows before may come | by its time | left out |
//! | Kraken | the last 720 only | oldest first | `since` excluded | always the last row | flat rows |
//! | OKX | 300 | newest first | both excluded, `before` is newer | `confirm` | flat rows |
//! | Bybit | 1,000, newest win | newest first | both included | by its time | flat rows |
//!
//! A stretch is never longer than a page, so nothing can fall off its end. What a venue can no longer give is said
//! ([`CandlePage::unreachable`]) and not asked for again.

mod binance;
mod bybit;
mod coinbase;
mod kraken;
mod okx;

use std::ops::Range;

use catchment_model::{Candle, Decimal, Timeframe, UnixMs};
use serde_json::value::RawValue;

use crate::{ReadError, Request, wire};

/// A venue that has candles.
#[derive(Debug)]
pub struct CandleVenue {
    /// Its name.
    pub id: &'static str,
    /// Its timeframes, and what it calls them.
    pub timeframes: &'static [(Timeframe, &'static str)],
    /// Rows a page at most.
    pub page_rows: u32,
    /// Whether only so many of the newest candles can be had at all.
    pub reach_rows: Option<u32>,
    /// Whether stretches without a trade have no candle, so that a missing one says nothing.
    pub leaves_out_empty: bool,
    request: fn(&Stretch<'_>) -> Request,
    read: fn(&Stretch<'_>, &[u8]) -> Result<Vec<Candle>, ReadError>,
}

/// Every venue with candles.
pub static CANDLE_VENUES: &[&CandleVenue] =
    &[&binance::CANDLES, &coinbase::CANDLES, &kraken::CANDLES, &okx::CANDLES, &bybit::CANDLES];

/// The venue of that name, if it has candles.
pub fn candles_of(id: &str) -> Option<&'static CandleVenue> {
    CANDLE_VENUES.iter().find(|venue| venue.id == id).copied()
}

/// Which candles are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandleAsk {
    /// Where the venue's REST is, without a slash at the end.
    pub base: String,
    /// `BASE/QUOTE`.
    pub symbol: String,
    /// How long each lasts.
    pub timeframe: Timeframe,
    /// Those that open from here on,
    pub since: UnixMs,
    /// and before this.
    pub until: UnixMs,
    /// The venue's time: what has not closed by now may still change.
    pub now: UnixMs,
}

/// Why nothing can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CandleError {
    /// The venue has no such timeframe.
    #[error("{venue} has no candles of {timeframe}; it has {known}")]
    Timeframe {
        /// Which venue.
        venue: &'static str,
        /// What was asked for.
        timeframe: Timeframe,
        /// What there is.
        known: String,
    },
    /// Not `BASE/QUOTE`.
    #[error("{symbol:?} is not a symbol such as BTC/USDT")]
    Symbol {
        /// As given.
        symbol: String,
    },
    /// Nothing lies between the bounds.
    #[error("since ({since}) is not before until ({until})")]
    Range {
        /// As given.
        since: UnixMs,
        /// As given.
        until: UnixMs,
    },
}

/// What an answer held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandlePage {
    /// Oldest first, each once, all within what was asked for.
    pub candles: Vec<Candle>,
    /// From where on to ask next; `None` when the range is answered.
    pub next: Option<UnixMs>,
    /// What the venue will never give any more, if part of the range was too old.
    pub unreachable: Option<Range<UnixMs>>,
}

/// One page's worth of a range, in the venue's own words.
struct Stretch<'a> {
    base: &'a str,
    symbol: (&'a str, &'a str),
    timeframe: Timeframe,
    /// What the venue calls it.
    name: &'static str,
    since: i64,
    /// Not included.
    until: i64,
    now: i64,
    rows: u32,
}

impl CandleVenue {
    /// What to send for the first page of the range.
    pub fn request(&self, ask: &CandleAsk) -> Result<Request, CandleError> {
        Ok((self.request)(&self.stretch(ask)?))
    }

    /// Reads the answer to [`CandleVenue::request`] of the same ask.
    pub fn read(&self, ask: &CandleAsk, body: &[u8]) -> Result<CandlePage, ReadError> {
        let stretch = self.stretch(ask).map_err(|error| ReadError::Shape(error.to_string()))?;
        let mut candles = (self.read)(&stretch, body)?;
        candles.sort_by_key(|candle| candle.open_time);
        let unreachable = self.unreachable(&stretch, &candles);
        candles.retain(|candle| (stretch.since..stretch.until).contains(&candle.open_time.get()));
        if candles.windows(2).any(|pair| pair[0].open_time == pair[1].open_time) {
            return Err(ReadError::Shape("two candles open at the same time".to_owned()));
        }
        let off = candles.iter().find(|candle| ask.timeframe.open_of(candle.open_time) != candle.open_time);
        if let Some(candle) = off.filter(|_| !has_own_weeks(ask.timeframe)) {
            let what = format!("a candle of {} opens at {}", ask.timeframe, candle.open_time);
            return Err(ReadError::Shape(what));
        }
        let next = UnixMs::new(stretch.until).ok().filter(|next| *next < ask.until && *next <= ask.now);
        Ok(CandlePage { candles, next, unreachable })
    }

    /// The venue's word for a timeframe.
    pub fn timeframe(&self, timeframe: Timeframe) -> Option<&'static str> {
        self.timeframes.iter().find(|(known, _)| *known == timeframe).map(|(_, name)| *name)
    }

    fn stretch<'a>(&self, ask: &'a CandleAsk) -> Result<Stretch<'a>, CandleError> {
        let timeframe = ask.timeframe;
        let name = self.timeframe(timeframe).ok_or_else(|| CandleError::Timeframe {
            venue: self.id,
            timeframe,
            known: self.timeframes.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let plain = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        let symbol = ask
            .symbol
            .split_once('/')
            .filter(|(base, quote)| plain(base) && plain(quote))
            .ok_or_else(|| CandleError::Symbol { symbol: ask.symbol.clone() })?;
        if ask.since >= ask.until {
            return Err(CandleError::Range { since: ask.since, until: ask.until });
        }
        // The first candle that opens within the range.
        let opened = timeframe.open_of(ask.since);
        let first = if opened == ask.since { opened } else { timeframe.next(opened) };
        let page = i64::from(self.page_rows) * timeframe.ms();
        let until = match self.reach_rows {
            Some(_) => ask.until.get(),
            None => ask.until.get().min(first.get() + page),
        };
        Ok(Stretch {
            base: &ask.base,
            symbol,
            timeframe,
            name,
            since: first.get(),
            until,
            now: ask.now.get(),
            rows: self.page_rows,
        })
    }

    /// What lies before the oldest candle of a venue that gives only the newest.
    fn unreachable(&self, stretch: &Stretch<'_>, candles: &[Candle]) -> Option<Range<UnixMs>> {
        let reach = self.reach_rows? as usize;
        let oldest = candles.first()?.open_time;
        // Fewer rows than it keeps: there is nothing older, or we did not ask for it.
        if candles.len() < reach || oldest.get() <= stretch.since {
            return None;
        }
        let until = oldest.get().min(stretch.until);
        Some(UnixMs::new(stretch.since).ok()?..UnixMs::new(until).ok()?)
    }
}

/// Venues do not agree on which day a fortnight or three days begin.
fn has_own_weeks(timeframe: Timeframe) -> bool {
    matches!(timeframe, Timeframe::D3 | Timeframe::W1 | Timeframe::W2)
}

impl Stretch<'_> {
    fn has_closed(&self, open: UnixMs) -> bool {
        self.timeframe.next(open).get() <= self.now
    }

    /// A candle from the fields of a row.
    fn candle(&self, row: &Row<'_>, at: Columns) -> Result<Candle, ReadError> {
        let open_time = row.time(at.time)?;
        Ok(Candle {
            open_time,
            open: row.amount(at.open, "open")?,
            high: row.amount(at.high, "high")?,
            low: row.amount(at.low, "low")?,
            close: row.amount(at.close, "close")?,
            volume: row.amount(at.volume, "volume")?,
            quote_volume: at.quote_volume.map(|at| row.amount(at, "quote volume")).transpose()?,
            trades: at.trades.map(|at| row.count(at)).transpose()?,
            is_final: self.has_closed(open_time),
        })
    }
}

/// Where things stand in a row.
#[derive(Clone, Copy)]
struct Columns {
    time: (usize, Unit),
    open: usize,
    high: usize,
    low: usize,
    close: usize,
    volume: usize,
    quote_volume: Option<usize>,
    trades: Option<usize>,
}

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// A candle as the venue sends it: an array.
struct Row<'a>(Vec<&'a RawValue>);

impl<'a> Row<'a> {
    fn all(rows: &'a RawValue) -> Result<Vec<Row<'a>>, ReadError> {
        let rows = wire::array(rows, "the list of candles")?;
        rows.into_iter().map(|row| Ok(Row(wire::array(row, "a candle")?))).collect()
    }

    fn text(&self, at: usize) -> Option<std::borrow::Cow<'a, str>> {
        self.0.get(at).and_then(|raw| wire::text(raw))
    }

    fn time(&self, (at, unit): (usize, Unit)) -> Result<UnixMs, ReadError> {
        let number = self.text(at).and_then(|text| wire::digits(&text));
        let ms = match unit {
            Unit::Seconds => number.and_then(|s| s.checked_mul(1_000)),
            Unit::Milliseconds => number,
        };
        let time = ms.and_then(|ms| UnixMs::new(ms).ok());
        time.ok_or_else(|| ReadError::Shape("a candle has no time".to_owned()))
    }

    fn amount(&self, at: usize, what: &str) -> Result<Decimal, ReadError> {
        let amount = self.text(at).and_then(|text| text.parse().ok());
        amount.ok_or_else(|| ReadError::Shape(format!("a candle's {what} is not a decimal number")))
    }

    fn count(&self, at: usize) -> Result<u64, ReadError> {
        let count = self.text(at).and_then(|text| text.parse().ok());
        count.ok_or_else(|| ReadError::Shape("a candle's number of trades is not a number".to_owned()))
    }
}
