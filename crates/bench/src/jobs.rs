//! Claims of jobs, durable, beside the disk's own sync rate and beside a connection for each worker. PERF goal 11.
//!
//! A round makes one in a hundred jobs due and lets eight workers claim until none is left; every job must have gone to one
//! of them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_jobs::{Claim, Connectors, Id, Jobs, NewConnector, SqliteStore};
use catchment_model::Venue;
use rusqlite::{Connection, OptionalExtension, params};

use crate::machine::Stopwatch;
use crate::{BenchArgs, Duel, Goal, Report};

const WORKERS: usize = 8;
/// Long enough that no lease runs out within a round.
const LEASE: Duration = Duration::from_secs(3_600);
/// Far enough that no job comes due by itself.
const FAR_MS: i64 = 4_000_000_000_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let table = |jobs: usize, crowd: usize| {
        eprintln!("making {jobs} jobs");
        runtime.block_on(Table::new(scratch.path(), jobs, crowd))
    };
    let plain = table(100_000, 0)?;
    let mut ours = || runtime.block_on(plain.claims());
    let mut syncs = || bare_syncs(scratch.path());
    report.duel(
        args.rounds(),
        Duel {
            what: "durable claims, 100,000 jobs of which 1 % are due",
            unit: "claims/s",
            ours: ("8 workers, one writer", &mut ours),
            theirs: ("write of 512 bytes and fdatasync", &mut syncs),
            goal: Goal::AtLeast(2.0),
        },
    )?;
    let mut ours = || runtime.block_on(plain.claims());
    let mut theirs = || plain.claims_by_connections();
    report.duel(
        args.rounds(),
        Duel {
            what: "the same, beside a connection for each worker",
            unit: "claims/s",
            ours: ("8 workers, one writer", &mut ours),
            theirs: ("8 connections, same statements", &mut theirs),
            goal: Goal::AtLeast(4.0),
        },
    )?;
    let crowded = table(100_000, 25_000)?;
    let mut ours = || Ok(1e6 / runtime.block_on(crowded.claims())?);
    let mut theirs = || Ok(1e6 / runtime.block_on(plain.claims())?);
    report.duel(
        args.rounds(),
        Duel {
            what: "a claim past 25,000 jobs of the first priority that are not due",
            unit: "us",
            ours: ("with them", &mut ours),
            theirs: ("without", &mut theirs),
            goal: Goal::AtMost(2.0),
        },
    )?;
    let few = table(10_000, 0)?;
    let many = table(1_000_000, 0)?;
    for (what, more) in [
        ("a claim among 100,000 jobs beside one among 10,000", &plain),
        ("a claim among 1,000,000 jobs beside one among 10,000", &many),
    ] {
        let mut ours = || Ok(1e6 / runtime.block_on(more.claims_of(100))?);
        let mut theirs = || Ok(1e6 / runtime.block_on(few.claims_of(100))?);
        report.duel(
            args.rounds(),
            Duel {
                what,
                unit: "us",
                ours: ("many", &mut ours),
                theirs: ("few", &mut theirs),
                goal: Goal::AtMost(2.0),
            },
        )?;
    }
    Ok(())
}

/// A file full of jobs.
struct Table {
    path: PathBuf,
    store: Arc<SqliteStore>,
    jobs: usize,
    _dir: tempfile::TempDir,
}

impl Table {
    /// So many jobs, none due; `crowd` of them are of the first priority, and are never made due.
    async fn new(near: &Path, jobs: usize, crowd: usize) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir_in(near)?;
        let path = dir.path().join("jobs.db");
        let store = Arc::new(SqliteStore::open(&path).await?);
        let venue = Venue::new("binance")?;
        store.ensure_connector(&NewConnector::new(venue)).await?;
        let conn = Connection::open(&path)?;
        conn.busy_timeout(Duration::from_secs(60))?;
        let fill = "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?1) \
            INSERT INTO jobs (id, exchange_id, type, symbol, timeframe, status, state, interval_ms, next_run_at, priority, \
            since_ms, page, last_ts, done, runs, success, fail, fence, attempts, created_at, updated_at, due_at) \
            SELECT printf('%024x', n), 'binance', 'ohlcv_incremental', 'SYMBOL' || n || '/USDT', '1h', 'active', 'idle', \
            3600000, ?3 + n, CASE WHEN n < ?2 THEN 1 ELSE 10 * (2 + n % 4) END, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?3 + n FROM n";
        conn.execute(fill, params![jobs as i64, crowd as i64, FAR_MS])?;
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(Self { path, store, jobs, _dir: dir })
    }

    /// Makes so many due, spread over the table, and all others not.
    fn make_due(&self, due: usize) -> anyhow::Result<()> {
        let conn = Connection::open(&self.path)?;
        conn.busy_timeout(Duration::from_secs(60))?;
        let rest = "UPDATE jobs SET state = 'idle', locked_by = NULL, lock_until = NULL, due_at = next_run_at \
                    WHERE due_at < ?1";
        conn.execute(rest, [FAR_MS])?;
        let step = self.jobs / due;
        let wake = "UPDATE jobs SET due_at = rowid WHERE priority > 1 AND rowid % ?1 = 0";
        conn.execute(wake, [step as i64])?;
        // The log keeps its length, as it does in a store that has been running for a while.
        conn.execute_batch("PRAGMA wal_checkpoint(RESTART)")?;
        Ok(())
    }

    /// One in a hundred.
    async fn claims(&self) -> anyhow::Result<f64> {
        self.claims_of(self.jobs / 100).await
    }

    /// Claims a second, until all that are due are claimed.
    async fn claims_of(&self, due: usize) -> anyhow::Result<f64> {
        self.make_due(due)?;
        let watch = Stopwatch::start();
        let mut workers = tokio::task::JoinSet::new();
        for number in 0..WORKERS {
            let store = self.store.clone();
            workers.spawn(async move {
                let worker = format!("worker-{number}");
                let ask = Claim { worker: &worker, lease: LEASE, cap: None, only: None };
                let mut claimed: Vec<Id> = Vec::new();
                while let Some((job, _)) = store.claim(&ask).await?.job() {
                    claimed.push(job.id);
                }
                anyhow::Ok(claimed)
            });
        }
        let mut claimed = Vec::new();
        for ids in workers.join_all().await {
            claimed.extend(ids?);
        }
        let seconds = watch.seconds();
        each_once(claimed)?;
        Ok(due as f64 / seconds)
    }

    /// The same with a connection for each worker and a transaction for each claim.
    fn claims_by_connections(&self) -> anyhow::Result<f64> {
        let due = self.jobs / 100;
        self.make_due(due)?;
        let watch = Stopwatch::start();
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let path = self.path.clone();
                std::thread::spawn(move || claim_all(&path, &format!("worker-{number}")))
            })
            .collect();
        let mut claimed = Vec::new();
        for worker in workers {
            claimed.extend(worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??);
        }
        let seconds = watch.seconds();
        each_once(claimed)?;
        Ok(due as f64 / seconds)
    }
}

fn each_once<T: Ord>(mut claimed: Vec<T>) -> anyhow::Result<()> {
    let all = claimed.len();
    claimed.sort_unstable();
    claimed.dedup();
    anyhow::ensure!(claimed.len() == all, "{} jobs were claimed twice", all - claimed.len());
    Ok(())
}

fn claim_all(path: &Path, worker: &str) -> anyhow::Result<Vec<i64>> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(60))?;
    conn.pragma_update(None, "synchronous", "full")?;
    let now = FAR_MS - 1;
    let mut claimed = Vec::new();
    loop {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut passed = -1_i64;
        let found = loop {
            let first = "SELECT rowid, priority, due_at FROM jobs INDEXED BY jobs_due WHERE due_at IS NOT NULL \
                         AND priority > ?1 ORDER BY priority, due_at LIMIT 1";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let head: Option<(i64, i64, i64)> =
                conn.prepare_cached(first)?.query_row([passed], read).optional()?;
            match head {
                None => break None,
                Some((rowid, _, due)) if due <= now && due < 1_000_000_000_000 => break Some(rowid),
                Some((_, priority, _)) => passed = priority,
            }
        };
        let Some(rowid) = found else {
            conn.prepare_cached("COMMIT")?.execute([])?;
            return Ok(claimed);
        };
        let lock = "UPDATE jobs SET state = 'running', fence = fence + 1, locked_by = ?2, lock_until = ?3, due_at = ?3, \
                    runs = runs + 1, last_run_at = ?4, updated_at = ?4 WHERE rowid = ?1";
        conn.prepare_cached(lock)?.execute(params![rowid, worker, now, now])?;
        conn.prepare_cached("COMMIT")?.execute([])?;
        claimed.push(rowid);
    }
}

fn bare_syncs(dir: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(dir.join("bare")).context("a file to sync")?;
    let watch = Stopwatch::start();
    let mut writes = 0;
    while watch.seconds() < 0.5 {
        file.write_all(&[b'x'; 512])?;
        file.sync_data()?;
        writes += 1;
    }
    Ok(f64::from(writes) / watch.seconds())
}
