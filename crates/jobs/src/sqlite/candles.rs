//! Candles, each once by series and open time; holes, merged as they come.

use catchment_model::{Candle, UnixMs};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows;
use crate::candles::{Coverage, Hole, HoleKind, Missing, Series, Span};
use crate::error::StoreError;
use crate::time::from_ms;

pub(super) fn put(conn: &Connection, series: &Series, candles: &[Candle]) -> Result<(), StoreError> {
    if candles.is_empty() {
        return Ok(());
    }
    let id = make_series(conn, series)?;
    let put = "INSERT INTO candles (series, open_time, open, high, low, close, volume, quote_volume, trades) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (series, open_time) DO UPDATE SET open = ?3, \
               high = ?4, low = ?5, close = ?6, volume = ?7, quote_volume = ?8, trades = ?9";
    let mut put = conn.prepare_cached(put)?;
    for candle in candles {
        if !candle.is_final {
            let reason = format!("has one that opened at {} and has not closed", candle.open_time);
            return Err(StoreError::invalid("candles", reason));
        }
        put.execute(params![
            id,
            candle.open_time.get(),
            candle.open.as_str(),
            candle.high.as_str(),
            candle.low.as_str(),
            candle.close.as_str(),
            candle.volume.as_str(),
            candle.quote_volume.as_ref().map(catchment_model::Decimal::as_str),
            candle.trades.map(|trades| trades as i64),
        ])?;
    }
    Ok(())
}

pub(super) fn range(
    conn: &Connection,
    series: &Series,
    span: Span,
    limit: u32,
) -> Result<Vec<Candle>, StoreError> {
    let Some(id) = find_series(conn, series)? else { return Ok(Vec::new()) };
    let find = format!(
        "SELECT {} FROM candles WHERE series = ?1 AND open_time >= ?2 AND open_time < ?3 ORDER BY open_time LIMIT ?4",
        rows::CANDLE
    );
    let mut find = conn.prepare_cached(&find)?;
    let found = find.query_map(params![id, span.from.get(), span.to.get(), limit], rows::candle)?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn coverage(conn: &Connection, series: &Series) -> Result<Option<Coverage>, StoreError> {
    let Some(id) = find_series(conn, series)? else { return Ok(None) };
    let count = "SELECT count(*), min(open_time), max(open_time) FROM candles WHERE series = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        let (first, last): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        let candles = rows::count(row, 0)?;
        Ok(first.zip(last).map(|(first, last)| Coverage {
            candles,
            first: from_ms(first),
            last: from_ms(last),
        }))
    };
    Ok(conn.prepare_cached(count)?.query_row([id], read)?)
}

pub(super) fn missing(
    conn: &Connection,
    series: &Series,
    span: Span,
    limit: u32,
    now: UnixMs,
) -> Result<Vec<Span>, StoreError> {
    let holes = holes(conn, series)?.into_iter().map(|hole| hole.span).collect();
    let mut missing = Missing::new(series.timeframe, span, holes, now, limit as usize);
    if let Some(id) = find_series(conn, series)? {
        let find = "SELECT open_time FROM candles WHERE series = ?1 AND open_time >= ?2 AND open_time < ?3 \
                    ORDER BY open_time";
        let mut find = conn.prepare_cached(find)?;
        let mut found = find.query(params![id, span.from.get(), span.to.get()])?;
        while let Some(row) = found.next()? {
            if !missing.there_is(rows::moment(row, 0)?) {
                break;
            }
        }
    }
    Ok(missing.end())
}

pub(super) fn note_hole(conn: &Connection, series: &Series, hole: Hole) -> Result<(), StoreError> {
    let (id, kind, span) = (make_series(conn, series)?, hole.kind.as_str(), hole.span);
    // Those of its kind that it touches become one with it.
    let touching = "DELETE FROM holes WHERE series = ?1 AND kind = ?4 AND from_ms <= ?3 AND to_ms >= ?2 \
                    RETURNING from_ms, to_ms";
    let touched: Vec<(i64, i64)> = conn
        .prepare_cached(touching)?
        .query_map(params![id, span.from.get(), span.to.get(), kind], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let from = touched.iter().map(|(from, _)| *from).fold(span.from.get(), i64::min);
    let to = touched.iter().map(|(_, to)| *to).fold(span.to.get(), i64::max);
    conn.prepare_cached("INSERT INTO holes (series, kind, from_ms, to_ms) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![id, kind, from, to])?;
    Ok(())
}

pub(super) fn holes(conn: &Connection, series: &Series) -> Result<Vec<Hole>, StoreError> {
    let Some(id) = find_series(conn, series)? else { return Ok(Vec::new()) };
    let find = "SELECT from_ms, to_ms, kind FROM holes WHERE series = ?1 ORDER BY from_ms, to_ms";
    let read = |row: &rusqlite::Row<'_>| {
        let span = Span { from: rows::moment(row, 0)?, to: rows::moment(row, 1)? };
        Ok(Hole { span, kind: rows::named(row, 2, &HoleKind::ALL, HoleKind::as_str)? })
    };
    Ok(conn.prepare_cached(find)?.query_map([id], read)?.collect::<Result<_, _>>()?)
}

fn find_series(conn: &Connection, series: &Series) -> Result<Option<i64>, StoreError> {
    let find = "SELECT id FROM series WHERE exchange_id = ?1 AND symbol = ?2 AND timeframe = ?3";
    let key = params![series.exchange_id.as_str(), series.symbol, series.timeframe.as_str()];
    Ok(conn.prepare_cached(find)?.query_row(key, |row| row.get(0)).optional()?)
}

fn make_series(conn: &Connection, series: &Series) -> Result<i64, StoreError> {
    if let Some(id) = find_series(conn, series)? {
        return Ok(id);
    }
    let make = "INSERT INTO series (exchange_id, symbol, timeframe) VALUES (?1, ?2, ?3)";
    conn.execute(make, params![series.exchange_id.as_str(), series.symbol, series.timeframe.as_str()])?;
    Ok(conn.last_insert_rowid())
}
