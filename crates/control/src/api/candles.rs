//! Candles that are there, and those that are not.

use std::fmt::Write;

use catchment_jobs::{Hole, HoleKind, Series, Span, StoreError};
use catchment_model::{Candle, Timeframe, UnixMs};
use serde::Serialize;

use super::catalogue::check_symbol;
use super::desk::{Desk, read_limit};
use super::fields::{Fields, MS_MAX};
use super::problem::Problem;

/// Candles at once, where nothing is said.
const CANDLES: u32 = 1_000;
/// The most.
pub(crate) const CANDLES_MAX: u32 = 10_000;
/// Stretches at once, where nothing is said.
const STRETCHES: u32 = 100;
/// The most.
pub(crate) const STRETCHES_MAX: u32 = 1_000;

/// Some candles of a series, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CandlePage {
    /// Whose.
    #[serde(flatten)]
    pub series: Series,
    /// In order.
    pub candles: Vec<Candle>,
    /// What to give as `since_ms` for the rest; none: that is all.
    pub next_since_ms: Option<UnixMs>,
    /// As CSV.
    #[serde(skip)]
    pub(crate) is_csv: bool,
    #[serde(skip)]
    until: UnixMs,
    #[serde(skip)]
    limit: u32,
}

/// What there is of a series, and what is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// Whose.
    #[serde(flatten)]
    pub series: Series,
    /// How many candles there are at all.
    pub candles: u64,
    /// When the first of them opens.
    pub first: Option<UnixMs>,
    /// When the last of them opens.
    pub last: Option<UnixMs>,
    /// Where there are candles, without a break.
    pub ranges: Vec<Stretch>,
    /// Where there should be some.
    pub missing: Vec<Stretch>,
    /// Where there are none to be had.
    pub holes: Vec<Lack>,
    /// What to give as `since_ms` for the rest; none: that is all.
    pub next_since_ms: Option<UnixMs>,
}

/// From a moment up to, not including, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// The first moment.
    pub since_ms: UnixMs,
    /// The first moment after it.
    pub until_ms: UnixMs,
}

/// A stretch without candles, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Where.
    #[serde(flatten)]
    pub stretch: Stretch,
    /// Why.
    pub kind: HoleKind,
}

/// Which candles are meant.
struct Wanted {
    series: Series,
    since: Option<UnixMs>,
    until: Option<UnixMs>,
    limit: u32,
}

impl Desk {
    /// The candles that open within a stretch, the first so many.
    pub async fn candles(&self, query: &str) -> Result<CandlePage, Problem> {
        let mut fields = Fields::of_query(query);
        let is_csv = fields.word("format", ["json", "csv"], |format| format) == Some("csv");
        let wanted = self.read_wanted(fields, CANDLES, CANDLES_MAX)?;
        let until = wanted.until.unwrap_or(moment(MS_MAX));
        let span = Span { from: wanted.since.unwrap_or(moment(0)), to: until };
        // One more than asked for tells whether there are more.
        let mut candles = self.store().await?.candles(&wanted.series, span, wanted.limit + 1).await?;
        let next_since_ms = candles.get(wanted.limit as usize).map(|candle| candle.open_time);
        candles.truncate(wanted.limit as usize);
        Ok(CandlePage { series: wanted.series, candles, next_since_ms, is_csv, until, limit: wanted.limit })
    }

    /// What there is of a series, and what is not: from its first candle, or `since_ms`, up to now, or `until_ms`.
    pub async fn coverage(&self, query: &str) -> Result<Covered, Problem> {
        let wanted = self.read_wanted(Fields::of_query(query), STRETCHES, STRETCHES_MAX)?;
        let (store, limit) = (self.store().await?, wanted.limit as usize);
        let there = store.coverage(&wanted.series).await?;
        let mut covered = Covered {
            candles: there.map_or(0, |there| there.candles),
            first: there.map(|there| there.first),
            last: there.map(|there| there.last),
            ranges: Vec::new(),
            missing: Vec::new(),
            holes: Vec::new(),
            next_since_ms: None,
            series: wanted.series,
        };
        let until = match wanted.until {
            Some(until) => until,
            None => store.now().await?,
        };
        let Some(since) = wanted.since.or(covered.first) else { return Ok(covered) };
        let Ok(span) = Span::new(since, until) else { return Ok(covered) };
        let series = &covered.series;
        let missing = cut(store.missing(series, span, wanted.limit + 1).await?, span);
        let holes = cut_holes(store.holes(series).await?, span);
        // Where one of the lists is full, everything ends with it.
        let missing_end = missing.get(limit).map(|span| span.from);
        // Two kinds may begin together: a page gets on by one moment at least.
        let mut further = holes.iter().skip(limit).map(|hole| hole.span.from);
        let holes_end = further.find(|from| *from > span.from);
        let end = [missing_end, holes_end].into_iter().flatten().min();
        let seen = Span { from: span.from, to: end.unwrap_or(span.to) };
        let (missing, holes) = (cut(missing, seen), cut_holes(holes, seen));
        let there = there.and_then(|there| {
            let last = series.timeframe.next(there.last);
            Span::new(seen.from.max(there.first), seen.to.min(last)).ok()
        });
        covered.ranges = there.map(|there| between(there, &missing, &holes)).unwrap_or_default();
        covered.missing = missing.into_iter().map(Stretch::from).collect();
        covered.holes = holes.into_iter().map(Lack::from).collect();
        covered.next_since_ms = end;
        Ok(covered)
    }

    fn read_wanted(&self, mut fields: Fields, usual: u32, max: u32) -> Result<Wanted, Problem> {
        let exchange = fields.text("exchange_id", |text| self.exchange(text));
        let exchange = fields.needs("exchange_id", exchange);
        let symbol = fields.text("symbol", check_symbol);
        let symbol = fields.needs("symbol", symbol);
        let timeframe = fields.word("timeframe", Timeframe::ALL, Timeframe::as_str);
        let timeframe = fields.needs("timeframe", timeframe);
        if let (Some(exchange), Some(timeframe)) = (exchange, timeframe)
            && let Err(reason) = exchange.check_timeframe(timeframe)
        {
            fields.refuse::<()>("timeframe", reason);
        }
        let (since, until) = (fields.moment("since_ms"), fields.moment("until_ms"));
        if let (Some(since), Some(until)) = (since, until)
            && until <= since
        {
            let detail = format!("is {}, which is not after since_ms {}", until.get(), since.get());
            fields.refuse::<()>("until_ms", detail);
        }
        let limit = read_limit(&mut fields, usual, max);
        fields.end(&[])?;
        let series = Series {
            exchange_id: exchange.expect("what is missing was refused").id,
            symbol: symbol.expect("what is missing was refused"),
            timeframe: timeframe.expect("what is missing was refused"),
        };
        Ok(Wanted { series, since, until, limit })
    }
}

impl CandlePage {
    /// A line a candle, after one with the names.
    pub fn csv(&self) -> String {
        let mut text = String::from("open_time,open,high,low,close,volume,quote_volume,trades\n");
        for candle in &self.candles {
            let Candle { open, high, low, close, volume, .. } = candle;
            let quote = candle.quote_volume.as_ref().map_or(String::new(), ToString::to_string);
            let trades = candle.trades.map_or(String::new(), |trades| trades.to_string());
            let open_time = candle.open_time.get();
            let written = writeln!(text, "{open_time},{open},{high},{low},{close},{volume},{quote},{trades}");
            written.expect("a text takes everything");
        }
        text
    }

    /// Where the rest is, if there is more.
    pub(crate) fn rest(&self) -> Option<String> {
        let since = self.next_since_ms?.get().to_string();
        let mut query = form_urlencoded::Serializer::new(String::from("/api/v1/candles?"));
        query.append_pair("exchange_id", self.series.exchange_id.as_str());
        query.append_pair("symbol", &self.series.symbol);
        query.append_pair("timeframe", self.series.timeframe.as_str());
        query.append_pair("since_ms", &since).append_pair("until_ms", &self.until.get().to_string());
        query.append_pair("limit", &self.limit.to_string());
        query.append_pair("format", if self.is_csv { "csv" } else { "json" });
        Some(query.finish())
    }
}

impl From<Span> for Stretch {
    fn from(span: Span) -> Self {
        Self { since_ms: span.from, until_ms: span.to }
    }
}

impl From<Hole> for Lack {
    fn from(hole: Hole) -> Self {
        Self { stretch: hole.span.into(), kind: hole.kind }
    }
}

/// What of them is within the span, with their kinds.
fn cut_holes(holes: Vec<Hole>, within: Span) -> Vec<Hole> {
    let cut = |hole: Hole| {
        let span = Span::new(hole.span.from.max(within.from), hole.span.to.min(within.to)).ok()?;
        Some(Hole { span, ..hole })
    };
    holes.into_iter().filter_map(cut).collect()
}

/// What of them is within the span.
fn cut(spans: Vec<Span>, within: Span) -> Vec<Span> {
    let cut = |span: Span| Span::new(span.from.max(within.from), span.to.min(within.to));
    spans.into_iter().map(cut).filter_map(Result::<Span, StoreError>::ok).collect()
}

/// What is left of the span without those.
fn between(span: Span, missing: &[Span], holes: &[Hole]) -> Vec<Stretch> {
    let mut gone: Vec<Span> = missing.iter().copied().chain(holes.iter().map(|hole| hole.span)).collect();
    gone.sort_unstable();
    let mut left = Vec::new();
    let mut from = span.from;
    for one in gone {
        if let Ok(part) = Span::new(from, one.from.min(span.to)) {
            left.push(part.into());
        }
        from = from.max(one.to);
    }
    left.extend(Span::new(from, span.to).ok().map(Stretch::from));
    left
}

fn moment(ms: u64) -> UnixMs {
    UnixMs::new(ms as i64).expect("it is within what a store can name")
}
