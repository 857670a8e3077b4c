//! Where a venue's history begins. Its longest candles since the first exchange are few pages; the one in which a symbol
//! first has one is then looked at by the day.

use catchment_governor::Lane;
use catchment_jobs::RunError;
use catchment_model::{Timeframe, UnixMs};
use catchment_venues::candles::CandleAsk;

use super::candles::Line;
use super::errand::{Errand, Halt};

/// Nothing was traded anywhere before 2010.
const BEFORE_ALL: i64 = 1_262_304_000_000;

/// When the first candle of a series may open, at the earliest; none if the venue has none.
pub(super) async fn first_candle(errand: &Errand<'_>, line: &Line) -> Result<Option<UnixMs>, Halt> {
    let venue = errand.venue.candles;
    let mut from = UnixMs::new(BEFORE_ALL).expect("a fixed time");
    let mut until = errand.now();
    // A venue that gives only the newest gives most time with its longest.
    let days =
        (venue.reach_rows.is_none() && venue.timeframe(Timeframe::D1).is_some()).then_some(Timeframe::D1);
    let longest =
        venue.timeframes.iter().map(|(timeframe, _)| *timeframe).max_by_key(|timeframe| timeframe.ms());
    for timeframe in longest.into_iter().chain(days) {
        if timeframe.ms() < line.timeframe.ms() {
            break;
        }
        let Some(open) = first_of(errand, line, timeframe, from, until).await? else { return Ok(None) };
        from = open;
        until = timeframe.next(open).min(until);
    }
    Ok(Some(from))
}

async fn first_of(
    errand: &Errand<'_>,
    line: &Line,
    timeframe: Timeframe,
    from: UnixMs,
    until: UnixMs,
) -> Result<Option<UnixMs>, Halt> {
    let mut since = from;
    while since < until {
        let ask = CandleAsk {
            base: errand.venue.base.clone(),
            symbol: line.symbol.clone(),
            timeframe,
            since,
            until,
            now: errand.now(),
        };
        let venue = errand.venue.candles;
        let request = venue.request(&ask).map_err(|error| RunError::Hopeless(error.to_string()))?;
        let reply = errand.send(&request, Lane::Backfill).await?;
        let page = venue.read(&ask, &reply.body).map_err(|error| line.unreadable(&error))?;
        if let Some(first) = page.candles.first() {
            return Ok(Some(first.open_time));
        }
        match page.next {
            Some(next) => since = next,
            None => break,
        }
    }
    Ok(None)
}
