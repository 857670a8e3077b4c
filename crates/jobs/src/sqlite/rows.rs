//! Rows to documents and back.

use catchment_model::{Candle, Decimal, Timeframe, UnixMs, Venue};
use rusqlite::types::Type;
use rusqlite::{Error, Row};

use crate::connector::Connector;
use crate::id::Id;
use crate::job::{Cursor, Job, JobType, Lock, Schedule, State, Stats, Status};
use crate::time::from_ms;

/// The columns of [`job`], in its order.
pub(super) const JOB: &str = "id, exchange_id, type, symbol, timeframe, status, state, interval_ms, next_run_at, \
    priority, since_ms, until_ms, page, last_ts, done, next, runs, success, fail, last_run_at, last_success_at, \
    last_error, locked_by, lock_until, fence, attempts, created_at, updated_at";

pub(super) fn job(row: &Row<'_>) -> Result<Job, Error> {
    let schedule = match row.get::<_, Option<i64>>(7)? {
        Some(interval) => Schedule::Interval { interval_ms: interval.unsigned_abs() },
        None => Schedule::Once,
    };
    Ok(Job {
        id: parsed(row, 0)?,
        exchange_id: parsed(row, 1)?,
        kind: named(row, 2, &JobType::ALL, JobType::as_str)?,
        symbol: Some(row.get::<_, String>(3)?).filter(|symbol| !symbol.is_empty()),
        timeframe: timeframe(row, 4)?,
        status: named(row, 5, &Status::ALL, Status::as_str)?,
        state: named(row, 6, &State::ALL, State::as_str)?,
        schedule,
        next_run_at: moment(row, 8)?,
        priority: row.get(9)?,
        cursor: Cursor {
            since_ms: moment(row, 10)?,
            until_ms: maybe_moment(row, 11)?,
            page: count(row, 12)?,
            last_ts: moment(row, 13)?,
            done: row.get(14)?,
            next: row.get(15)?,
        },
        stats: Stats {
            runs: count(row, 16)?,
            success: count(row, 17)?,
            fail: count(row, 18)?,
            last_run_at: maybe_moment(row, 19)?,
            last_success_at: maybe_moment(row, 20)?,
            last_error: row.get(21)?,
        },
        lock: Lock { locked_by: row.get(22)?, lock_until: maybe_moment(row, 23)? },
        fence: count(row, 24)?,
        attempts: row.get(25)?,
        created_at: moment(row, 26)?,
        updated_at: moment(row, 27)?,
    })
}

/// The columns of [`connector`], in its order.
pub(super) const CONNECTOR: &str = "id, exchange_id, creation_date, status, notes, rate_limit_period_ms, rate_limit, \
    rate_limit_usage, rate_limit_window_start, rate_limit_reset_at, rate_limit_saturated, last_job_run_time, jobs_count, \
    active_jobs_count, max_concurrent_jobs, updated_at";

pub(super) fn connector(row: &Row<'_>) -> Result<Connector, Error> {
    Ok(Connector {
        id: parsed(row, 0)?,
        exchange_id: parsed(row, 1)?,
        creation_date: moment(row, 2)?,
        status: named(row, 3, &Status::ALL, Status::as_str)?,
        notes: row.get(4)?,
        rate_limit_period_ms: count(row, 5)?,
        rate_limit: row.get(6)?,
        rate_limit_usage: row.get(7)?,
        rate_limit_window_start: moment(row, 8)?,
        rate_limit_reset_at: moment(row, 9)?,
        rate_limit_saturated: count(row, 10)?,
        last_job_run_time: maybe_moment(row, 11)?,
        jobs_count: count(row, 12)?,
        active_jobs_count: count(row, 13)?,
        max_concurrent_jobs: row.get(14)?,
        windows: Vec::new(),
        updated_at: moment(row, 15)?,
    })
}

/// The columns of [`candle`], in its order.
pub(super) const CANDLE: &str = "open_time, open, high, low, close, volume, quote_volume, trades";

pub(super) fn candle(row: &Row<'_>) -> Result<Candle, Error> {
    let quote_volume = match row.get_ref(6)?.as_str_or_null()? {
        Some(_) => Some(parsed::<Decimal>(row, 6)?),
        None => None,
    };
    Ok(Candle {
        open_time: moment(row, 0)?,
        open: parsed(row, 1)?,
        high: parsed(row, 2)?,
        low: parsed(row, 3)?,
        close: parsed(row, 4)?,
        volume: parsed(row, 5)?,
        quote_volume,
        trades: row.get::<_, Option<i64>>(7)?.map(i64::unsigned_abs),
        is_final: true,
    })
}

pub(super) fn moment(row: &Row<'_>, at: usize) -> Result<UnixMs, Error> {
    Ok(from_ms(row.get(at)?))
}

fn maybe_moment(row: &Row<'_>, at: usize) -> Result<Option<UnixMs>, Error> {
    Ok(row.get::<_, Option<i64>>(at)?.map(from_ms))
}

pub(super) fn count(row: &Row<'_>, at: usize) -> Result<u64, Error> {
    Ok(row.get::<_, i64>(at)?.unsigned_abs())
}

pub(super) fn venue(row: &Row<'_>, at: usize) -> Result<Venue, Error> {
    parsed(row, at)
}

fn timeframe(row: &Row<'_>, at: usize) -> Result<Option<Timeframe>, Error> {
    if row.get_ref(at)?.as_str()?.is_empty() {
        return Ok(None);
    }
    parsed(row, at).map(Some)
}

/// A text that says one value.
fn parsed<T>(row: &Row<'_>, at: usize) -> Result<T, Error>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text = row.get_ref(at)?.as_str()?;
    text.parse().map_err(|error| Error::FromSqlConversionFailure(at, Type::Text, Box::new(error)))
}

/// A text that is the name of one of a few.
pub(super) fn named<T: Copy>(
    row: &Row<'_>,
    at: usize,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, Error> {
    let text = row.get_ref(at)?.as_str()?;
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        Error::FromSqlConversionFailure(at, Type::Text, format!("{text:?} is none of those known").into())
    })
}

/// As it stands in the column.
pub(super) fn id_text(id: Id) -> String {
    id.to_string()
}
