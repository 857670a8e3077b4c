//! Tokens: the windows are read, charged and written within the group's transaction.

use std::time::Duration;

use catchment_model::Venue;
use rusqlite::{OptionalExtension, params};

use super::rows;
use super::writer::Desk;
use crate::connector::RateLimit;
use crate::error::StoreError;
use crate::job::Status;
use crate::time::between;
use crate::token::{Grant, Mark, Slot, TokenAsk, Tokens};
use crate::window_log::WindowLog;

/// The exchange that stands for all of them.
pub(super) const SYSTEM: &str = "*";

struct Window {
    slot: Slot,
    rate: RateLimit,
    log: WindowLog,
}

struct Head {
    status: Status,
    rate: RateLimit,
    usage: u32,
    reset_at: i64,
}

/// The ask as its own: it goes to another thread.
pub(super) struct OwnAsk {
    pub(super) exchange: Venue,
    pub(super) windows: Vec<u16>,
    pub(super) cost: u32,
    pub(super) requests: u32,
    pub(super) valid_for: Option<Duration>,
}

impl From<&TokenAsk<'_>> for OwnAsk {
    fn from(ask: &TokenAsk<'_>) -> Self {
        let TokenAsk { exchange, windows, cost, requests, valid_for } = *ask;
        Self { exchange, windows: windows.to_vec(), cost, requests, valid_for }
    }
}

pub(super) fn take(desk: &mut Desk<'_>, ask: &OwnAsk) -> Result<Tokens, StoreError> {
    let head = head(desk, ask.exchange)?.ok_or_else(|| StoreError::no_connector(ask.exchange))?;
    if head.status != Status::Active {
        return Ok(Tokens::Paused);
    }
    let mut windows = load(desk, ask, &head)?;
    for window in &mut windows {
        window.log.tidy(window.rate, desk.now);
    }
    let room = |window: &Window| {
        window.rate.limit.saturating_sub(window.log.used()) / ask.cost.min(window.rate.limit).max(1)
    };
    let requests = windows.iter().map(room).min().unwrap_or(0).min(ask.requests);
    if requests == 0 {
        return saturated(desk, ask, &windows);
    }
    let shortest = windows.iter().map(|window| window.rate.token_validity()).min();
    let valid_for = ask.valid_for.or(shortest).unwrap_or_default();
    let mut marks = Vec::with_capacity(windows.len());
    for window in &mut windows {
        let cost = ask.cost.min(window.rate.limit);
        let until = WindowLog::until(window.rate, valid_for, desk.now);
        window.log.add(until, requests * cost);
        save(desk, ask.exchange, window.slot, &window.log)?;
        marks.push(Mark { slot: window.slot, until, cost });
    }
    count(desk, ask.exchange, &head, requests * ask.cost.min(head.rate.limit))?;
    let granted_at = desk.now;
    Ok(Tokens::Granted(Grant {
        exchange: ask.exchange,
        requests,
        cost: ask.cost,
        granted_at,
        valid_for,
        marks,
    }))
}

/// S2's two attempts: a window that is over begins anew with these, one that is not has these more.
fn count(desk: &Desk<'_>, exchange: Venue, head: &Head, tokens: u32) -> Result<(), StoreError> {
    let now = desk.now.get();
    if head.reset_at <= now {
        let begin = "UPDATE connectors SET rate_limit_usage = ?2, rate_limit_window_start = ?3, \
                     rate_limit_reset_at = ?3 + rate_limit_period_ms, updated_at = ?3 WHERE exchange_id = ?1";
        desk.conn.prepare_cached(begin)?.execute(params![exchange.as_str(), tokens, now])?;
    } else {
        let more = "UPDATE connectors SET rate_limit_usage = ?2, updated_at = ?3 WHERE exchange_id = ?1";
        let usage = head.usage.saturating_add(tokens);
        desk.conn.prepare_cached(more)?.execute(params![exchange.as_str(), usage, now])?;
    }
    Ok(())
}

fn saturated(desk: &Desk<'_>, ask: &OwnAsk, windows: &[Window]) -> Result<Tokens, StoreError> {
    let more = "UPDATE connectors SET rate_limit_saturated = rate_limit_saturated + 1 WHERE exchange_id = ?1";
    desk.conn.prepare_cached(more)?.execute([ask.exchange.as_str()])?;
    let fits_at =
        |window: &Window| window.log.fits_at(window.rate, ask.cost.min(window.rate.limit), desk.now);
    let fits_at = windows.iter().map(fits_at).max().unwrap_or(desk.now);
    Ok(Tokens::Wait { retry_after: between(desk.now, fits_at) })
}

pub(super) fn give_back(desk: &mut Desk<'_>, grant: &Grant, requests: u32) -> Result<(), StoreError> {
    let requests = requests.min(grant.requests);
    for mark in &grant.marks {
        let Some(mut log) = read(desk, grant.exchange, mark.slot)? else { continue };
        let given = log.give_back(mark.until, requests * mark.cost);
        if given == 0 {
            continue;
        }
        save(desk, grant.exchange, mark.slot, &log)?;
        if mark.slot == Slot::Main {
            // Only of the window it was counted in.
            let fewer = "UPDATE connectors SET rate_limit_usage = max(0, rate_limit_usage - ?2) \
                         WHERE exchange_id = ?1 AND rate_limit_window_start <= ?3";
            desk.conn.prepare_cached(fewer)?.execute(params![
                grant.exchange.as_str(),
                given,
                grant.granted_at.get()
            ])?;
        }
    }
    Ok(())
}

fn head(desk: &Desk<'_>, exchange: Venue) -> Result<Option<Head>, StoreError> {
    let find = "SELECT status, rate_limit_period_ms, rate_limit, rate_limit_usage, rate_limit_reset_at \
                FROM connectors WHERE exchange_id = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Head {
            status: rows::named(row, 0, &Status::ALL, Status::as_str)?,
            rate: RateLimit { period_ms: rows::count(row, 1)?, limit: row.get(2)? },
            usage: row.get(3)?,
            reset_at: row.get(4)?,
        })
    };
    Ok(desk.conn.prepare_cached(find)?.query_row([exchange.as_str()], read).optional()?)
}

/// Every window that is charged: the connector's own, those named, the system's if there is one.
fn load(desk: &Desk<'_>, ask: &OwnAsk, head: &Head) -> Result<Vec<Window>, StoreError> {
    let mut windows = Vec::with_capacity(ask.windows.len() + 2);
    let own = read(desk, ask.exchange, Slot::Main)?.unwrap_or_default();
    windows.push(Window { slot: Slot::Main, rate: head.rate, log: own });
    for slot in &ask.windows {
        let slot = Slot::Named(*slot);
        let found = find(desk, ask.exchange, slot)?;
        let (rate, log) =
            found.ok_or_else(|| StoreError::invalid("windows", format!("{slot:?} was not declared")))?;
        windows.push(Window { slot, rate, log });
    }
    if let Some((rate, log)) = find(desk, ask.exchange, Slot::System)? {
        windows.push(Window { slot: Slot::System, rate, log });
    }
    Ok(windows)
}

fn read(desk: &Desk<'_>, exchange: Venue, slot: Slot) -> Result<Option<WindowLog>, StoreError> {
    Ok(find(desk, exchange, slot)?.map(|(_, log)| log))
}

fn find(desk: &Desk<'_>, exchange: Venue, slot: Slot) -> Result<Option<(RateLimit, WindowLog)>, StoreError> {
    let (exchange, slot) = place(&exchange, slot);
    let find = "SELECT period_ms, tokens, log FROM windows WHERE exchange_id = ?1 AND slot = ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let rate = RateLimit { period_ms: rows::count(row, 0)?, limit: row.get(1)? };
        Ok((rate, row.get::<_, String>(2)?))
    };
    let found = desk.conn.prepare_cached(find)?.query_row(params![exchange, slot], read).optional()?;
    found.map(|(rate, text)| Ok((rate, read_log(&text)?))).transpose()
}

fn save(desk: &Desk<'_>, exchange: Venue, slot: Slot, log: &WindowLog) -> Result<(), StoreError> {
    let (exchange, slot) = place(&exchange, slot);
    let save = "UPDATE windows SET log = ?3 WHERE exchange_id = ?1 AND slot = ?2";
    desk.conn.prepare_cached(save)?.execute(params![exchange, slot, log_text(log)])?;
    Ok(())
}

fn place(exchange: &Venue, slot: Slot) -> (&str, i64) {
    match slot {
        Slot::Main => (exchange.as_str(), 0),
        Slot::Named(at) => (exchange.as_str(), i64::from(at) + 1),
        Slot::System => (SYSTEM, 0),
    }
}

pub(super) fn read_log(text: &str) -> Result<WindowLog, StoreError> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::Damaged { store: "sqlite", what: format!("a log of tokens ({error})") })
}

pub(super) fn log_text(log: &WindowLog) -> String {
    serde_json::to_string(log).expect("numbers always serialise")
}
