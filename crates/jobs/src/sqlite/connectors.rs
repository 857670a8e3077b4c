//! Connectors in their table.

use catchment_model::Venue;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows;
use super::tokens::SYSTEM;
use super::writer::Desk;
use crate::connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::job::Status;

pub(super) fn ensure(desk: &mut Desk<'_>, new: &NewConnector) -> Result<(Connector, bool), StoreError> {
    let exchange = new.exchange_id;
    if let Some(found) = get(desk.conn, exchange)? {
        if found.status != Status::Deleted {
            return Ok((found, false));
        }
        return Ok((set_status(desk, exchange, Status::Active)?, false));
    }
    new.rate.check()?;
    let id = rows::id_text(desk.ids.make(desk.now));
    let now = desk.now.get();
    let add = "INSERT INTO connectors (exchange_id, id, creation_date, status, rate_limit_period_ms, rate_limit, \
               rate_limit_window_start, rate_limit_reset_at, max_concurrent_jobs, updated_at) \
               VALUES (?1, ?2, ?3, 'active', ?4, ?5, ?3, ?3 + ?4, ?6, ?3)";
    let period = new.rate.period_ms as i64;
    desk.conn
        .execute(add, params![exchange.as_str(), id, now, period, new.rate.limit, new.max_concurrent_jobs])?;
    let own =
        "INSERT INTO windows (exchange_id, slot, name, period_ms, tokens) VALUES (?1, 0, 'all', ?2, ?3)";
    desk.conn.execute(own, params![exchange.as_str(), period, new.rate.limit])?;
    Ok((must_get(desk.conn, exchange)?, true))
}

pub(super) fn get(conn: &Connection, exchange: Venue) -> Result<Option<Connector>, StoreError> {
    let find = format!("SELECT {} FROM connectors WHERE exchange_id = ?1", rows::CONNECTOR);
    let found = conn.prepare_cached(&find)?.query_row([exchange.as_str()], rows::connector).optional()?;
    found.map(|found| with_windows(conn, found)).transpose()
}

pub(super) fn list(conn: &Connection) -> Result<Vec<Connector>, StoreError> {
    let find =
        format!("SELECT {} FROM connectors WHERE status <> 'deleted' ORDER BY exchange_id", rows::CONNECTOR);
    let found: Vec<Connector> =
        conn.prepare_cached(&find)?.query_map([], rows::connector)?.collect::<Result<_, _>>()?;
    found.into_iter().map(|one| with_windows(conn, one)).collect()
}

pub(super) fn patch(
    desk: &mut Desk<'_>,
    exchange: Venue,
    patch: &ConnectorPatch,
) -> Result<Connector, StoreError> {
    let old = must_get(desk.conn, exchange)?;
    let rate = patch.rate(RateLimit { limit: old.rate_limit, period_ms: old.rate_limit_period_ms })?;
    let cap = patch.max_concurrent_jobs.or(old.max_concurrent_jobs).filter(|cap| *cap > 0);
    let notes = patch.notes.clone().or(old.notes).filter(|notes| !notes.is_empty());
    let period = rate.period_ms as i64;
    let set = "UPDATE connectors SET rate_limit = ?2, rate_limit_period_ms = ?3, rate_limit_reset_at = \
               rate_limit_window_start + ?3, max_concurrent_jobs = ?4, notes = ?5, updated_at = ?6 WHERE exchange_id = ?1";
    desk.conn.execute(set, params![exchange.as_str(), rate.limit, period, cap, notes, desk.now.get()])?;
    let own = "UPDATE windows SET period_ms = ?2, tokens = ?3 WHERE exchange_id = ?1 AND slot = 0";
    desk.conn.execute(own, params![exchange.as_str(), period, rate.limit])?;
    must_get(desk.conn, exchange)
}

pub(super) fn set_status(
    desk: &mut Desk<'_>,
    exchange: Venue,
    status: Status,
) -> Result<Connector, StoreError> {
    let set = "UPDATE connectors SET status = ?2, updated_at = ?3 WHERE exchange_id = ?1";
    desk.conn.execute(set, params![exchange.as_str(), status.as_str(), desk.now.get()])?;
    must_get(desk.conn, exchange)
}

pub(super) fn declare_windows(
    desk: &mut Desk<'_>,
    exchange: Venue,
    windows: &[NamedWindow],
) -> Result<(), StoreError> {
    must_get(desk.conn, exchange)?;
    let declare = "INSERT INTO windows (exchange_id, slot, name, period_ms, tokens) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (exchange_id, slot) DO UPDATE SET name = ?3, period_ms = ?4, tokens = ?5";
    let mut declare = desk.conn.prepare_cached(declare)?;
    for (at, window) in windows.iter().enumerate() {
        window.rate.check()?;
        let (slot, period) = (at as i64 + 1, window.rate.period_ms as i64);
        declare.execute(params![exchange.as_str(), slot, window.name, period, window.rate.limit])?;
    }
    let others = "DELETE FROM windows WHERE exchange_id = ?1 AND slot > ?2";
    desk.conn.execute(others, params![exchange.as_str(), windows.len() as i64])?;
    Ok(())
}

pub(super) fn set_system_limit(desk: &mut Desk<'_>, limit: Option<RateLimit>) -> Result<(), StoreError> {
    let Some(rate) = limit else {
        desk.conn.execute("DELETE FROM windows WHERE exchange_id = ?1", [SYSTEM])?;
        return Ok(());
    };
    rate.check()?;
    let set = "INSERT INTO windows (exchange_id, slot, name, period_ms, tokens) VALUES (?1, 0, 'system', ?2, ?3) \
               ON CONFLICT (exchange_id, slot) DO UPDATE SET period_ms = ?2, tokens = ?3";
    desk.conn.execute(set, params![SYSTEM, rate.period_ms as i64, rate.limit])?;
    Ok(())
}

pub(super) fn put_listing(
    desk: &mut Desk<'_>,
    exchange: Venue,
    symbols: &[String],
) -> Result<(), StoreError> {
    if symbols.is_empty() {
        return Ok(());
    }
    desk.conn.execute("DELETE FROM listings WHERE exchange_id = ?1", [exchange.as_str()])?;
    let put = "INSERT OR IGNORE INTO listings (exchange_id, symbol) VALUES (?1, ?2)";
    let mut put = desk.conn.prepare_cached(put)?;
    for symbol in symbols {
        put.execute(params![exchange.as_str(), symbol])?;
    }
    Ok(())
}

pub(super) fn is_listed(
    conn: &Connection,
    exchange: Venue,
    symbol: &str,
) -> Result<Option<bool>, StoreError> {
    let any = "SELECT 1 FROM listings WHERE exchange_id = ?1 LIMIT 1";
    if !conn.prepare_cached(any)?.exists([exchange.as_str()])? {
        return Ok(None);
    }
    let find = "SELECT 1 FROM listings WHERE exchange_id = ?1 AND symbol = ?2";
    Ok(Some(conn.prepare_cached(find)?.exists(params![exchange.as_str(), symbol])?))
}

pub(super) fn recount(desk: &mut Desk<'_>, exchange: Venue) -> Result<(), StoreError> {
    let count = "UPDATE connectors SET \
        jobs_count = (SELECT count(*) FROM jobs WHERE exchange_id = ?1 AND status <> 'deleted'), \
        active_jobs_count = (SELECT count(*) FROM jobs WHERE exchange_id = ?1 AND status = 'active') \
        WHERE exchange_id = ?1";
    desk.conn.execute(count, [exchange.as_str()])?;
    Ok(())
}

fn must_get(conn: &Connection, exchange: Venue) -> Result<Connector, StoreError> {
    get(conn, exchange)?.ok_or_else(|| StoreError::no_connector(exchange))
}

fn with_windows(conn: &Connection, mut connector: Connector) -> Result<Connector, StoreError> {
    let find =
        "SELECT name, period_ms, tokens FROM windows WHERE exchange_id = ?1 AND slot > 0 ORDER BY slot";
    let read = |row: &rusqlite::Row<'_>| {
        let rate = RateLimit { period_ms: rows::count(row, 1)?, limit: row.get(2)? };
        Ok(NamedWindow { name: row.get(0)?, rate })
    };
    let mut find = conn.prepare_cached(find)?;
    connector.windows = find.query_map([connector.exchange_id.as_str()], read)?.collect::<Result<_, _>>()?;
    Ok(connector)
}
