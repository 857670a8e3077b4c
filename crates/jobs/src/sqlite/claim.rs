//! Taking the first job that is due, without passing one that is not: from priority to priority, looking at the first of
//! each. When the exchange of the first job may have no more (it is paused, at its cap, or not this worker's), the same is
//! done exchange by exchange.

use catchment_model::{UnixMs, Venue};
use rusqlite::{OptionalExtension, Row, params};

use super::rows;
use super::writer::Desk;
use crate::error::StoreError;
use crate::job::Job;
use crate::store::{Claim, Claimed};
use crate::time::{between, from_ms};
use crate::transition;

/// The first job of a priority.
struct Head {
    rowid: i64,
    priority: i64,
    due_at: i64,
    exchange: Venue,
}

/// The ask as its own: it goes to another thread.
pub(super) struct OwnClaim {
    pub(super) worker: String,
    pub(super) lease: std::time::Duration,
    pub(super) cap: Option<u32>,
    pub(super) only: Option<Vec<Venue>>,
}

pub(super) fn claim(desk: &mut Desk<'_>, ask: &OwnClaim) -> Result<Claimed, StoreError> {
    let now = desk.now.get();
    let mut next: Option<i64> = None;
    let mut passed = -1;
    while let Some(head) = first_after(desk, passed)? {
        if head.due_at > now {
            next = Some(next.map_or(head.due_at, |other| other.min(head.due_at)));
            passed = head.priority;
        } else if may_have_more(desk, ask, head.exchange)? {
            return take(desk, ask, &head);
        } else {
            return claim_around(desk, ask);
        }
    }
    Ok(nothing(desk.now, next))
}

/// The same over every exchange that may have more.
fn claim_around(desk: &mut Desk<'_>, ask: &OwnClaim) -> Result<Claimed, StoreError> {
    let all = "SELECT exchange_id FROM connectors WHERE status = 'active' ORDER BY exchange_id";
    let all: Vec<Venue> =
        desk.conn.prepare_cached(all)?.query_map([], |row| rows::venue(row, 0))?.collect::<Result<_, _>>()?;
    let (mut best, mut next): (Option<Head>, Option<i64>) = (None, None);
    for exchange in all {
        if !may_have_more(desk, ask, exchange)? {
            continue;
        }
        let mut passed = -1;
        while let Some(head) = first_of_after(desk, exchange, passed)? {
            if head.due_at <= desk.now.get() {
                let is_better = best
                    .as_ref()
                    .is_none_or(|best| (head.priority, head.due_at) < (best.priority, best.due_at));
                if is_better {
                    best = Some(head);
                }
                break;
            }
            next = Some(next.map_or(head.due_at, |other| other.min(head.due_at)));
            passed = head.priority;
        }
    }
    match best {
        Some(head) => take(desk, ask, &head),
        None => Ok(nothing(desk.now, next)),
    }
}

fn nothing(now: UnixMs, next: Option<i64>) -> Claimed {
    Claimed::Nothing { next_in: next.map(|at| between(now, from_ms(at))) }
}

fn take(desk: &mut Desk<'_>, ask: &OwnClaim, head: &Head) -> Result<Claimed, StoreError> {
    let find = format!("SELECT {} FROM jobs WHERE rowid = ?1", rows::JOB);
    let mut job: Job = desk.conn.prepare_cached(&find)?.query_row([head.rowid], rows::job)?;
    let own = Claim { worker: &ask.worker, lease: ask.lease, cap: ask.cap, only: None };
    let lease = transition::claim(&mut job, &own, desk.now);
    // The whole row is not written anew: a claim changes seven columns.
    let lock = "UPDATE jobs SET state = 'running', fence = ?2, locked_by = ?3, lock_until = ?4, due_at = ?4, \
                runs = ?5, last_run_at = ?6, updated_at = ?6 WHERE rowid = ?1";
    desk.conn.prepare_cached(lock)?.execute(params![
        head.rowid,
        job.fence as i64,
        ask.worker,
        job.lock.lock_until.map(UnixMs::get),
        job.stats.runs as i64,
        desk.now.get(),
    ])?;
    let told = "UPDATE connectors SET last_job_run_time = ?2 WHERE exchange_id = ?1";
    desk.conn.prepare_cached(told)?.execute(params![job.exchange_id.as_str(), desk.now.get()])?;
    Ok(Claimed::Job(Box::new(job), lease))
}

/// Whether one more job of the exchange may run.
fn may_have_more(desk: &Desk<'_>, ask: &OwnClaim, exchange: Venue) -> Result<bool, StoreError> {
    if ask.only.as_ref().is_some_and(|only| !only.contains(&exchange)) {
        return Ok(false);
    }
    let find = "SELECT max_concurrent_jobs FROM connectors WHERE exchange_id = ?1 AND status = 'active'";
    let found: Option<Option<u32>> =
        desk.conn.prepare_cached(find)?.query_row([exchange.as_str()], |row| row.get(0)).optional()?;
    let Some(own_cap) = found else { return Ok(false) };
    let Some(cap) = own_cap.or(ask.cap) else { return Ok(true) };
    let running = "SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_busy WHERE exchange_id = ?1 \
                   AND state = 'running' AND state NOT IN ('idle', 'success') AND lock_until > ?2 LIMIT ?3)";
    let running: u32 = desk
        .conn
        .prepare_cached(running)?
        .query_row(params![exchange.as_str(), desk.now.get(), cap], |row| row.get(0))?;
    Ok(running < cap)
}

fn first_after(desk: &Desk<'_>, priority: i64) -> Result<Option<Head>, StoreError> {
    let find = "SELECT rowid, priority, due_at, exchange_id FROM jobs INDEXED BY jobs_due \
                WHERE due_at IS NOT NULL AND priority > ?1 ORDER BY priority, due_at LIMIT 1";
    Ok(desk.conn.prepare_cached(find)?.query_row([priority], head).optional()?)
}

fn first_of_after(desk: &Desk<'_>, exchange: Venue, priority: i64) -> Result<Option<Head>, StoreError> {
    let find = "SELECT rowid, priority, due_at, exchange_id FROM jobs INDEXED BY jobs_due_by_exchange \
                WHERE due_at IS NOT NULL AND exchange_id = ?1 AND priority > ?2 ORDER BY priority, due_at LIMIT 1";
    Ok(desk.conn.prepare_cached(find)?.query_row(params![exchange.as_str(), priority], head).optional()?)
}

fn head(row: &Row<'_>) -> Result<Head, rusqlite::Error> {
    Ok(Head {
        rowid: row.get(0)?,
        priority: row.get(1)?,
        due_at: row.get(2)?,
        exchange: rows::venue(row, 3)?,
    })
}
