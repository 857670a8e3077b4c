//! Jobs in their table: read, changed by a plain function, written, within the group's transaction.

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params, params_from_iter};

use super::rows;
use super::writer::Desk;
use crate::candles::{Hole, Series};
use crate::error::StoreError;
use crate::id::Id;
use crate::job::{Cursor, Job, JobFilter, NewJob, Page, Schedule, State};
use crate::store::{Lease, Outcome, PageSave, Standing, StateCount};
use crate::transition;

pub(super) fn add(desk: &mut Desk<'_>, new: NewJob) -> Result<Job, StoreError> {
    new.check()?;
    let find = "SELECT status FROM connectors WHERE exchange_id = ?1 AND status <> 'deleted'";
    let known = desk.conn.prepare_cached(find)?.exists([new.exchange_id.as_str()])?;
    if !known {
        let reason = format!("is {}, which has no connector; make one first", new.exchange_id);
        return Err(StoreError::invalid("exchange_id", reason));
    }
    let job = new.into_job(desk.ids.make(desk.now), desk.now);
    let insert = format!(
        "INSERT INTO jobs ({}, due_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
         ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)",
        rows::JOB
    );
    match write(desk.conn, &insert, &job) {
        Ok(_) => Ok(job),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(same_as(desk.conn, &job)?.map_or(error.into(), StoreError::AlreadyActive))
        }
        Err(error) => Err(error.into()),
    }
}

/// The active job that does the same.
fn same_as(conn: &Connection, job: &Job) -> Result<Option<Id>, StoreError> {
    let find = format!(
        "SELECT {} FROM jobs WHERE exchange_id = ?1 AND type = ?2 AND symbol = ?3 AND timeframe = ?4 \
         AND status = 'active'",
        rows::JOB
    );
    let (symbol, timeframe) = key_texts(job);
    let key = params![job.exchange_id.as_str(), job.kind.as_str(), symbol, timeframe];
    let found = conn.prepare_cached(&find)?.query_row(key, rows::job).optional()?;
    Ok(found.map(|job| job.id))
}

pub(super) fn get(conn: &Connection, id: Id) -> Result<Option<Job>, StoreError> {
    let find = format!("SELECT {} FROM jobs WHERE id = ?1", rows::JOB);
    Ok(conn.prepare_cached(&find)?.query_row([rows::id_text(id)], rows::job).optional()?)
}

pub(super) fn list(conn: &Connection, filter: &JobFilter, page: Page) -> Result<Vec<Job>, StoreError> {
    let mut sql = format!("SELECT {} FROM jobs WHERE id > ?", rows::JOB);
    let mut values: Vec<Value> = vec![page.after.map(rows::id_text).unwrap_or_default().into()];
    let mut also = |column: &str, value: Option<String>| {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(value.into());
        }
    };
    also("exchange_id", filter.exchange_id.map(|exchange| exchange.to_string()));
    also("type", filter.kind.map(|kind| kind.as_str().to_owned()));
    also("symbol", filter.symbol.clone());
    also("timeframe", filter.timeframe.map(|timeframe| timeframe.to_string()));
    also("status", filter.status.map(|status| status.as_str().to_owned()));
    also("state", filter.state.map(|state| state.as_str().to_owned()));
    if filter.status.is_none() {
        sql.push_str(" AND status <> 'deleted'");
    }
    sql.push_str(" ORDER BY id LIMIT ?");
    values.push(i64::from(page.limit.clamp(1, Page::LIMIT_MAX)).into());
    let mut find = conn.prepare_cached(&sql)?;
    Ok(find.query_map(params_from_iter(values), rows::job)?.collect::<Result<_, _>>()?)
}

/// Reads it, changes it, writes it.
pub(super) fn change(
    desk: &mut Desk<'_>,
    id: Id,
    change: impl FnOnce(&mut Job, &Desk<'_>) -> Result<(), StoreError>,
) -> Result<Job, StoreError> {
    let mut job = get(desk.conn, id)?.ok_or_else(|| StoreError::no_job(id))?;
    change(&mut job, desk)?;
    save(desk.conn, &job)?;
    Ok(job)
}

pub(super) fn renew(desk: &mut Desk<'_>, lease: &Lease) -> Result<Standing, StoreError> {
    let mut job = held(desk, lease)?;
    let standing = transition::renew(&mut job, lease, desk.now)?;
    save(desk.conn, &job)?;
    Ok(standing)
}

/// A page as its own: it goes to another thread.
pub(super) struct OwnPage {
    pub(super) cursor: Cursor,
    pub(super) candles: Vec<catchment_model::Candle>,
    pub(super) holes: Vec<Hole>,
}

pub(super) fn save_page(desk: &mut Desk<'_>, lease: &Lease, page: &OwnPage) -> Result<Standing, StoreError> {
    let mut job = held(desk, lease)?;
    let save_it = PageSave { cursor: &page.cursor, candles: &page.candles, holes: &page.holes };
    let standing = transition::save_page(&mut job, lease, &save_it, desk.now)?;
    if let (Some(symbol), Some(timeframe)) = (&job.symbol, job.timeframe) {
        let series = Series { exchange_id: job.exchange_id, symbol: symbol.clone(), timeframe };
        super::candles::put(desk.conn, &series, &page.candles)?;
        for hole in &page.holes {
            super::candles::note_hole(desk.conn, &series, *hole)?;
        }
    } else if !page.candles.is_empty() || !page.holes.is_empty() {
        return Err(StoreError::invalid("candles", format!("cannot be of a {} job", job.kind.as_str())));
    }
    save(desk.conn, &job)?;
    Ok(standing)
}

pub(super) fn finish(desk: &mut Desk<'_>, lease: &Lease, outcome: &Outcome) -> Result<Job, StoreError> {
    let mut job = held(desk, lease)?;
    transition::finish(&mut job, lease, outcome, desk.now)?;
    save(desk.conn, &job)?;
    Ok(job)
}

/// A job that is gone is a lease that is over.
fn held(desk: &Desk<'_>, lease: &Lease) -> Result<Job, StoreError> {
    let stale = || StoreError::Stale { job: lease.job, fence: lease.fence };
    get(desk.conn, lease.job)?.ok_or_else(stale)
}

pub(super) fn busy(conn: &Connection) -> Result<Vec<StateCount>, StoreError> {
    let count = "SELECT exchange_id, state, count(*) FROM jobs INDEXED BY jobs_busy \
                 WHERE state NOT IN ('idle', 'success') AND status <> 'deleted' GROUP BY exchange_id, state";
    let read = |row: &rusqlite::Row<'_>| {
        let state = rows::named(row, 1, &State::ALL, State::as_str)?;
        Ok(StateCount { exchange: rows::venue(row, 0)?, state, jobs: rows::count(row, 2)? })
    };
    Ok(conn.prepare_cached(count)?.query_map([], read)?.collect::<Result<_, _>>()?)
}

pub(super) fn save(conn: &Connection, job: &Job) -> Result<(), StoreError> {
    let update = "UPDATE jobs SET exchange_id = ?2, type = ?3, symbol = ?4, timeframe = ?5, status = ?6, state = ?7, \
        interval_ms = ?8, next_run_at = ?9, priority = ?10, since_ms = ?11, until_ms = ?12, page = ?13, last_ts = ?14, \
        done = ?15, next = ?16, runs = ?17, success = ?18, fail = ?19, last_run_at = ?20, last_success_at = ?21, \
        last_error = ?22, locked_by = ?23, lock_until = ?24, fence = ?25, attempts = ?26, created_at = ?27, \
        updated_at = ?28, due_at = ?29 WHERE id = ?1";
    match write(conn, update, job) {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(same_as(conn, job)?.map_or(error.into(), StoreError::AlreadyActive))
        }
        Err(error) => Err(error.into()),
    }
}

fn write(conn: &Connection, sql: &str, job: &Job) -> Result<usize, rusqlite::Error> {
    let (symbol, timeframe) = key_texts(job);
    let interval = match job.schedule {
        Schedule::Interval { interval_ms } => Some(interval_ms as i64),
        Schedule::Once => None,
    };
    let ms = |at: Option<catchment_model::UnixMs>| at.map(catchment_model::UnixMs::get);
    conn.prepare_cached(sql)?.execute(params![
        rows::id_text(job.id),
        job.exchange_id.as_str(),
        job.kind.as_str(),
        symbol,
        timeframe,
        job.status.as_str(),
        job.state.as_str(),
        interval,
        job.next_run_at.get(),
        job.priority,
        job.cursor.since_ms.get(),
        ms(job.cursor.until_ms),
        job.cursor.page as i64,
        job.cursor.last_ts.get(),
        job.cursor.done,
        job.cursor.next,
        job.stats.runs as i64,
        job.stats.success as i64,
        job.stats.fail as i64,
        ms(job.stats.last_run_at),
        ms(job.stats.last_success_at),
        job.stats.last_error,
        job.lock.locked_by,
        ms(job.lock.lock_until),
        job.fence as i64,
        job.attempts,
        job.created_at.get(),
        job.updated_at.get(),
        ms(job.due_at()),
    ])
}

/// What is not there is an empty text: to SQLite two NULLs are not the same.
fn key_texts(job: &Job) -> (&str, &'static str) {
    (job.symbol.as_deref().unwrap_or(""), job.timeframe.map_or("", catchment_model::Timeframe::as_str))
}
