//! Tables and indexes, by version. `PRAGMA user_version` says which a file has.
//!
//! A job's `due_at` says when a worker may take it (its next run, or the end of its lease) and is NULL while nobody may.
//! Both indexes on it hold only jobs with a time, priority first: so a claim goes from priority to priority, looks at the
//! first job of each, and never passes one that is not due.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;

/// What is to be done to come from one version to the next.
const STEPS: &[&str] = &[VERSION_1, VERSION_2];

/// The version this build writes.
pub(super) const VERSION: u32 = STEPS.len() as u32;

const VERSION_1: &str = "
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, wall_ms INTEGER NOT NULL,
    since_boot_ms INTEGER NOT NULL);

CREATE TABLE connectors (
    exchange_id TEXT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    creation_date INTEGER NOT NULL,
    status TEXT NOT NULL,
    notes TEXT,
    rate_limit_period_ms INTEGER NOT NULL,
    rate_limit INTEGER NOT NULL,
    rate_limit_usage INTEGER NOT NULL DEFAULT 0,
    rate_limit_window_start INTEGER NOT NULL,
    rate_limit_reset_at INTEGER NOT NULL,
    rate_limit_saturated INTEGER NOT NULL DEFAULT 0,
    last_job_run_time INTEGER,
    jobs_count INTEGER NOT NULL DEFAULT 0,
    active_jobs_count INTEGER NOT NULL DEFAULT 0,
    max_concurrent_jobs INTEGER,
    updated_at INTEGER NOT NULL
);

-- Slot 0 is the connector's own window, whose limit stands in the connector; exchange '*' is the whole system.
CREATE TABLE windows (
    exchange_id TEXT NOT NULL,
    slot INTEGER NOT NULL,
    name TEXT NOT NULL,
    period_ms INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    log TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (exchange_id, slot)
);

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    exchange_id TEXT NOT NULL REFERENCES connectors (exchange_id),
    type TEXT NOT NULL,
    symbol TEXT NOT NULL,
    timeframe TEXT NOT NULL,
    status TEXT NOT NULL,
    state TEXT NOT NULL,
    interval_ms INTEGER,
    next_run_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER,
    page INTEGER NOT NULL,
    last_ts INTEGER NOT NULL,
    done INTEGER NOT NULL,
    next TEXT,
    runs INTEGER NOT NULL,
    success INTEGER NOT NULL,
    fail INTEGER NOT NULL,
    last_run_at INTEGER,
    last_success_at INTEGER,
    last_error TEXT,
    locked_by TEXT,
    lock_until INTEGER,
    fence INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    due_at INTEGER
);
CREATE UNIQUE INDEX jobs_active ON jobs (exchange_id, type, symbol, timeframe) WHERE status = 'active';
CREATE INDEX jobs_due ON jobs (priority, due_at, exchange_id) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_due_by_exchange ON jobs (exchange_id, priority, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_busy ON jobs (exchange_id, state, lock_until) WHERE state NOT IN ('idle', 'success');

CREATE TRIGGER jobs_added AFTER INSERT ON jobs WHEN NEW.status <> 'deleted' BEGIN
    UPDATE connectors SET jobs_count = jobs_count + 1,
        active_jobs_count = active_jobs_count + (NEW.status = 'active') WHERE exchange_id = NEW.exchange_id;
END;
CREATE TRIGGER jobs_changed AFTER UPDATE OF status ON jobs WHEN OLD.status <> NEW.status BEGIN
    UPDATE connectors SET jobs_count = jobs_count + (NEW.status <> 'deleted') - (OLD.status <> 'deleted'),
        active_jobs_count = active_jobs_count + (NEW.status = 'active') - (OLD.status = 'active')
        WHERE exchange_id = NEW.exchange_id;
END;

CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    exchange_id TEXT NOT NULL,
    symbol TEXT NOT NULL,
    timeframe TEXT NOT NULL,
    UNIQUE (exchange_id, symbol, timeframe)
);
CREATE TABLE candles (
    series INTEGER NOT NULL REFERENCES series (id),
    open_time INTEGER NOT NULL,
    open TEXT NOT NULL,
    high TEXT NOT NULL,
    low TEXT NOT NULL,
    close TEXT NOT NULL,
    volume TEXT NOT NULL,
    quote_volume TEXT,
    trades INTEGER,
    PRIMARY KEY (series, open_time)
) WITHOUT ROWID;
CREATE TABLE holes (
    series INTEGER NOT NULL REFERENCES series (id),
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL,
    PRIMARY KEY (series, from_ms)
) WITHOUT ROWID;
";

/// Holes say why there is nothing; what exchanges list is known; and a job that was given up, and would not have run again by
/// itself, does not stand in the way of another.
const VERSION_2: &str = "
CREATE TABLE holes_2 (
    series INTEGER NOT NULL REFERENCES series (id),
    kind TEXT NOT NULL,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL,
    PRIMARY KEY (series, kind, from_ms)
) WITHOUT ROWID;
INSERT INTO holes_2 (series, kind, from_ms, to_ms) SELECT series, 'absent', from_ms, to_ms FROM holes;
DROP TABLE holes;
ALTER TABLE holes_2 RENAME TO holes;

CREATE TABLE listings (
    exchange_id TEXT NOT NULL,
    symbol TEXT NOT NULL,
    PRIMARY KEY (exchange_id, symbol)
) WITHOUT ROWID;

UPDATE jobs SET status = 'paused' WHERE state = 'dead' AND interval_ms IS NULL AND status = 'active';
";

/// Brings the file up to date. Nothing happens to one that is.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), StoreError> {
    if version(conn)? == VERSION {
        return Ok(());
    }
    // Of several processes that start at once, one does it.
    let change = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&change)?;
    if found > VERSION {
        return Err(StoreError::Newer { store: "sqlite", found, known: VERSION });
    }
    for step in &STEPS[found as usize..] {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "user_version", VERSION)?;
    change.commit()?;
    if found < VERSION {
        tracing::info!(from = found, to = VERSION, "sqlite store migrated");
    }
    Ok(())
}

fn version(conn: &Connection) -> Result<u32, StoreError> {
    Ok(conn.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}
