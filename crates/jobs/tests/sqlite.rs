//! The store in a file: its promises, its clock, its schema.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod rigs;

use std::time::Duration;

use catchment_jobs::conformance::{self, Rig, binance, by, claim, connect, history, hourly, minutes, span};
use catchment_jobs::{
    Candles, Connectors, Hole, Jobs, NewJob, Outcome, SqliteStore, Status, StoreError, TokenAsk, Tokens,
};
use rigs::SqliteRig;

const SECOND: Duration = Duration::from_secs(1);

async fn make() -> Box<dyn Rig> {
    Box::new(SqliteRig::new().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connectors() {
    conformance::connectors::all(&make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens() {
    conformance::tokens::all(&make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs() {
    conformance::jobs::all(&make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases() {
    conformance::leases::all(&make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims() {
    conformance::claims::all(&async |jobs| conformance::claims::of_store(make().await, jobs).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candles() {
    conformance::candles::all(&make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_open_a_new_file_at_once_all_come_in() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let opening: Vec<_> = (0..8).map(|_| tokio::spawn(SqliteStore::open(path.clone()))).collect();
        for opened in opening {
            opened.await.unwrap().unwrap();
        }
    }
}

/// The calendar jumps while a job is held and the budget is spent: nobody notices.
#[tokio::test]
async fn a_set_calendar_frees_neither_leases_nor_tokens() {
    for step in [7 * 86_400_000, -7 * 86_400_000, 3_000, -3_000] {
        let rig = SqliteRig::new().await;
        let store = rig.store();
        connect(&*store, binance(), 5, SECOND * 10).await;
        store.add_job(&hourly(binance(), "A")).await.unwrap();
        let (_, lease) = claim(&*store, "w").await;
        assert!(store.take_tokens(&TokenAsk::several(binance(), 5)).await.unwrap().granted().is_some());
        rig.host.advance(SECOND * 4);
        rig.host.set_calendar(step);
        let Tokens::Wait { retry_after } = store.take_tokens(&TokenAsk::one(binance())).await.unwrap() else {
            panic!("step {step}: the limit is exceeded")
        };
        assert!((SECOND * 6..SECOND * 7).contains(&retry_after), "step {step}: {retry_after:?}");
        assert!(store.claim(&by("x")).await.unwrap().job().is_none(), "step {step}: it is held");
        rig.host.advance(SECOND * 7);
        assert!(store.take_tokens(&TokenAsk::one(binance())).await.unwrap().granted().is_some());
        store.renew(&lease).await.unwrap();
        rig.host.advance(SECOND * 30);
        assert!(store.claim(&by("x")).await.unwrap().job().is_some(), "step {step}: its lease is over");
    }
}

#[tokio::test]
async fn after_a_boot_every_lease_is_over() {
    let rig = SqliteRig::new().await;
    let store = rig.store();
    connect(&*store, binance(), 5, SECOND).await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    let (_, old) = claim(&*store, "w").await;
    rig.host.reboot();
    let store = rig.open(3).await;
    let (_, new) = claim(&store, "w").await;
    assert_eq!(new.fence, old.fence + 1);
}

#[tokio::test]
async fn a_newer_file_is_left_alone() {
    let rig = SqliteRig::new().await;
    let path = rig.dir.path().join("jobs.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("schema 99; this build knows up to 2"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_named_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    #[allow(clippy::disallowed_methods, reason = "a file for a test")]
    std::fs::write(&path, "{\"this\": \"is no database\"}\n".repeat(100)).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("{\"this\""));
}

/// Another program holds the file for longer than is waited: an answer comes, and nothing is half done.
#[tokio::test]
async fn a_file_that_others_hold_is_unreachable_and_comes_back() {
    let rig = SqliteRig::new().await;
    connect(&rig.store, binance(), 5, SECOND).await;
    let other = rusqlite::Connection::open(rig.dir.path().join("jobs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = rig.store.add_job(&hourly(binance(), "A")).await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    assert_eq!(rig.store.connectors().await.unwrap().len(), 1, "reading goes on meanwhile");
    other.execute_batch("ROLLBACK").unwrap();
    let job = rig.store.add_job(&hourly(binance(), "A")).await.unwrap();
    let (found, lease) = claim(&rig.store, "w").await;
    assert_eq!(found.id, job.id);
    rig.store.finish(&lease, &Outcome::HandedBack).await.unwrap();
}

/// No claim looks at jobs that are not due: the plan uses the indexes, and a seek per priority.
#[tokio::test]
async fn claims_seek() {
    let rig = SqliteRig::new().await;
    connect(&rig.store, binance(), 5, SECOND).await;
    rig.store.add_job(&NewJob { priority: Some(3), ..hourly(binance(), "A") }).await.unwrap();
    let conn = rusqlite::Connection::open(rig.dir.path().join("jobs.db")).unwrap();
    for (sql, plan) in [
        (
            "SELECT rowid, priority, due_at, exchange_id FROM jobs INDEXED BY jobs_due WHERE due_at IS NOT NULL \
             AND priority > 3 ORDER BY priority, due_at LIMIT 1",
            "SEARCH jobs USING COVERING INDEX jobs_due (priority>?)",
        ),
        (
            "SELECT rowid, priority, due_at, exchange_id FROM jobs INDEXED BY jobs_due_by_exchange \
             WHERE due_at IS NOT NULL AND exchange_id = 'a' AND priority > 3 ORDER BY priority, due_at LIMIT 1",
            "SEARCH jobs USING COVERING INDEX jobs_due_by_exchange (exchange_id=? AND priority>?)",
        ),
    ] {
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps: Vec<String> =
            explain.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        assert_eq!(steps, [plan]);
    }
}

/// S2's list of what must be true, a test each.
mod checklist {
    use super::make;

    catchment_jobs::checklist_tests!(make);
}

/// A file of the first schema: its holes stay, and what was given up makes room.
#[tokio::test]
async fn a_file_of_the_first_schema_is_brought_up_to_date() {
    let rig = SqliteRig::new().await;
    connect(&rig.store, binance(), 5, SECOND).await;
    let job = rig.store.add_job(&history(binance(), "A")).await.unwrap();
    rig.store.note_hole(&minutes(binance(), "A"), Hole::absent(span(3, 5))).await.unwrap();
    let path = rig.dir.path().join("jobs.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    // As it was.
    conn.execute_batch(
        "UPDATE jobs SET state = 'dead', due_at = NULL;
         CREATE TABLE old (series INTEGER NOT NULL REFERENCES series (id), from_ms INTEGER NOT NULL,
             to_ms INTEGER NOT NULL, PRIMARY KEY (series, from_ms)) WITHOUT ROWID;
         INSERT INTO old SELECT series, from_ms, to_ms FROM holes;
         DROP TABLE holes; ALTER TABLE old RENAME TO holes; DROP TABLE listings;
         PRAGMA user_version = 1;",
    )
    .unwrap();
    let store = rig.open(1_000).await;
    assert_eq!(store.holes(&minutes(binance(), "A")).await.unwrap(), [Hole::absent(span(3, 5))]);
    assert_eq!(store.is_listed(binance(), "A").await.unwrap(), None);
    assert_eq!(store.job(job.id).await.unwrap().unwrap().status, Status::Paused);
    let connector = store.connector(binance()).await.unwrap().unwrap();
    assert_eq!((connector.jobs_count, connector.active_jobs_count), (1, 0));
    store.add_job(&history(binance(), "A")).await.expect("it makes room");
}
