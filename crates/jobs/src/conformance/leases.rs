//! Who works on what: claims, renewals, fences.

use super::*;
use crate::candles::Hole;
use crate::connector::ConnectorPatch;
use crate::error::StoreError;
use crate::job::{Cursor, JobFilter, JobPatch, Page, State, Status};
use crate::store::{Outcome, PageSave};

const SECOND: Duration = Duration::from_secs(1);

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    a_claim_sets_holder_end_and_fence(&*make().await).await;
    the_first_by_priority_then_by_time(&*make().await).await;
    one_job_goes_to_one_worker(&*make().await).await;
    what_is_not_renewed_is_taken_over(&*make().await).await;
    a_stale_holder_can_write_nothing(&*make().await).await;
    an_end_may_be_said_twice(&*make().await).await;
    a_renewed_lease_goes_on(&*make().await).await;
    each_outcome_leaves_the_job_as_said(&*make().await).await;
    an_exchange_at_its_cap_lets_others_go(&*make().await).await;
    the_cap_holds_when_many_claim_at_once(&*make().await).await;
    paused_exchanges_and_foreign_ones_are_passed(&*make().await).await;
    a_page_and_its_cursor_come_together(&*make().await).await;
}

async fn rig_with(rig: &dyn Rig, symbols: &[&str]) -> Arc<dyn Store> {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    for symbol in symbols {
        store.add_job(&hourly(binance(), symbol)).await.expect("a job");
    }
    store
}

async fn a_claim_sets_holder_end_and_fence(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    let before = store.now().await.expect("a time");
    let (job, lease) = claim(&*store, "w-1").await;
    assert_eq!((job.state, job.fence, job.stats.runs), (State::Running, 1, 1));
    assert_eq!(job.lock.locked_by.as_deref(), Some("w-1"));
    let lasts = job.lock.lock_until.expect("an end").get() - before.get();
    assert!(lasts >= 30_000 && lasts <= 30_000 + rig.slack().as_millis() as i64, "{lasts}");
    assert_eq!((lease.job, lease.worker.as_str(), lease.fence, lease.lasts), (job.id, "w-1", 1, LEASE));
    assert_eq!(store.job(job.id).await.expect("an answer"), Some(job.clone()));
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(found.last_job_run_time, job.stats.last_run_at);
    let next = nothing_due(&*store).await.expect("when its lease is over");
    about(next, LEASE, rig.slack());
}

async fn the_first_by_priority_then_by_time(rig: &dyn Rig) {
    let store = rig_with(rig, &[]).await;
    let now = store.now().await.expect("a time").get();
    let add = async |symbol: &str, priority, due_in: i64| {
        let new = NewJob {
            priority: Some(priority),
            next_run_at: Some(from_ms(now + due_in)),
            ..hourly(binance(), symbol)
        };
        store.add_job(&new).await.expect("a job");
    };
    add("late", 50, 3_600_000).await;
    add("c", 50, -1_000).await;
    add("b", 50, -2_000).await;
    add("not yet", 1, 3_600_000).await;
    add("a", 10, -5).await;
    add("d", 80, -9_000_000).await;
    for symbol in ["a", "b", "c", "d"] {
        let (job, _) = claim(&*store, "w").await;
        assert_eq!(job.symbol.as_deref(), Some(symbol));
    }
    let next = nothing_due(&*store).await.expect("the leases end");
    about(next, LEASE, rig.slack());
}

async fn one_job_goes_to_one_worker(rig: &dyn Rig) {
    let symbols: Vec<String> = (0..60).map(|n| format!("S{n}")).collect();
    let symbols: Vec<&str> = symbols.iter().map(String::as_str).collect();
    rig_with(rig, &symbols).await;
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = if n % 2 == 0 { rig.store() } else { rig.beside().await };
        asking.spawn(async move {
            let mut taken = Vec::new();
            while let Some((job, lease)) = store.claim(&by(&format!("w{n}"))).await.expect("a claim").job() {
                assert_eq!(lease.fence, 1);
                taken.push(job.id);
            }
            taken
        });
    }
    let mut taken: Vec<Id> = asking.join_all().await.into_iter().flatten().collect();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 60, "every job once");
}

async fn what_is_not_renewed_is_taken_over(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    let (_, first) = claim(&*store, "one").await;
    rig.pass(LEASE - SECOND - rig.slack()).await;
    nothing_due(&*store).await;
    rig.pass(SECOND + rig.slack()).await;
    let (job, second) = claim(&*rig.beside().await, "two").await;
    assert_eq!((second.fence, job.lock.locked_by.as_deref()), (first.fence + 1, Some("two")));
}

async fn a_stale_holder_can_write_nothing(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    store.add_job(&history(binance(), "A")).await.expect("a job");
    let (job, old) = claim(&*store, "same").await;
    rig.pass(LEASE).await;
    // Even one of the same name.
    let (_, new) = claim(&*store, "same").await;
    let series = minutes(binance(), "A");
    let cursor = Cursor { page: 9, ..Cursor::default() };
    let candles = some_candles(0, 3, 1);
    let page = PageSave { cursor: &cursor, candles: &candles, holes: &[Hole::absent(span(5, 6))] };
    let held = store.job(job.id).await.expect("an answer");
    for refused in [
        store.renew(&old).await.map(drop),
        store.save_page(&old, &page).await.map(drop),
        store.finish(&old, &Outcome::Success { next_in: None }).await.map(drop),
        store.finish(&old, &Outcome::HandedBack).await.map(drop),
        store.finish(&old, &Outcome::Dead { error: "x".to_owned() }).await.map(drop),
        store.renew(&Lease { worker: "another".to_owned(), ..new.clone() }).await.map(drop),
        store.renew(&Lease { fence: new.fence + 1, ..new.clone() }).await.map(drop),
        store.renew(&Lease { job: Id::new([7; 12]), ..new.clone() }).await.map(drop),
    ] {
        let error = refused.expect_err("it is stale");
        assert!(error.is_stale(), "{error}");
    }
    assert_eq!(store.job(job.id).await.expect("an answer"), held, "not a trace");
    assert_eq!(store.coverage(&series).await.expect("an answer"), None, "nor a candle");
    assert_eq!(store.holes(&series).await.expect("an answer"), []);
    store.save_page(&new, &page).await.expect("the holder may");
    store.finish(&new, &Outcome::HandedBack).await.expect("the holder may");
    for refused in [store.renew(&new).await.map(drop), store.save_page(&new, &page).await.map(drop)] {
        let error = refused.expect_err("it is in nobody's hands");
        assert!(error.is_stale(), "{error}");
    }
}

/// A store's answer may be lost on its way: whoever asks again is not told that another has the job.
async fn an_end_may_be_said_twice(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    for outcome in [
        Outcome::Success { next_in: Some(SECOND * 60) },
        Outcome::Failed { error: "no".to_owned(), retry_in: SECOND * 60 },
        Outcome::WaitRateLimit { retry_after: SECOND * 60 },
        Outcome::HandedBack,
        Outcome::Success { next_in: None },
    ] {
        let (_, lease) = claim(&*store, "w").await;
        let ended = store.finish(&lease, &outcome).await.expect("finished");
        let again = store.finish(&lease, &outcome).await.expect("the same again");
        assert_eq!(again, ended, "{outcome:?}");
        let other = store.finish(&lease, &Outcome::Dead { error: "x".to_owned() }).await;
        assert!(other.expect_err("something else").is_stale(), "what was said first holds");
        assert_eq!(store.job(ended.id).await.expect("an answer"), Some(ended));
        rig.pass(SECOND * 61).await;
    }
    let ended = store.jobs(&JobFilter::default(), Page::first(1)).await.expect("a list").remove(0);
    store.resume_job(ended.id).await.expect("resumed");
    let (_, lease) = claim(&*store, "w").await;
    store.finish(&lease, &Outcome::HandedBack).await.expect("finished");
    claim(&*store, "other").await;
    let error = store.finish(&lease, &Outcome::HandedBack).await.expect_err("another has it");
    assert!(error.is_stale(), "{error}");
}

async fn a_renewed_lease_goes_on(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    let (_, lease) = claim(&*store, "one").await;
    for _ in 0..4 {
        rig.pass(LEASE - SECOND - rig.slack()).await;
        let standing = store.renew(&lease).await.expect("it is held");
        assert!(standing.is_wanted);
        let job = store.job(lease.job).await.expect("an answer").expect("it is there");
        assert_eq!(job.lock.lock_until, Some(standing.lock_until));
        nothing_due(&*store).await;
    }
    rig.pass(LEASE * 3).await;
    store.renew(&lease).await.expect("late, but nobody has taken it");
    nothing_due(&*store).await;
}

async fn each_outcome_leaves_the_job_as_said(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    let slack = rig.slack().as_millis() as i64;
    let run = async |outcome: Outcome| {
        let (_, lease) = claim(&*store, "w").await;
        let job = store.finish(&lease, &outcome).await.expect("finished");
        assert_eq!(store.job(job.id).await.expect("an answer"), Some(job.clone()));
        assert_eq!(job.lock, Default::default(), "nobody holds it");
        let due_in = job.next_run_at.get() - store.now().await.expect("a time").get();
        (job, due_in)
    };
    let is_in =
        |due_in: i64, said: i64| assert!(due_in <= said && due_in + slack >= said, "{due_in}, not {said}");

    let failed = Outcome::Failed { error: format!("no route\n{}", "x".repeat(900)), retry_in: SECOND * 120 };
    let (job, due_in) = run(failed.clone()).await;
    assert_eq!((job.state, job.status, job.attempts), (State::Failed, Status::Active, 1));
    assert_eq!((job.stats.fail, job.stats.success, job.stats.runs), (1, 0, 1));
    let error = job.stats.last_error.as_deref().expect("it is kept");
    assert!(error.starts_with("no routexxx") && error.len() == 500, "one line, not too long: {error}");
    is_in(due_in, 120_000);
    nothing_due(&*store).await.expect("in two minutes");

    rig.pass(SECOND * 120).await;
    let (job, due_in) = run(Outcome::WaitRateLimit { retry_after: SECOND * 7 }).await;
    assert_eq!((job.state, job.attempts, job.stats.fail), (State::WaitingRateLimit, 1, 1), "no failure");
    is_in(due_in, 7_000);

    rig.pass(SECOND * 7).await;
    let (job, due_in) = run(Outcome::Success { next_in: Some(SECOND * 3_600) }).await;
    assert_eq!((job.state, job.attempts, job.stats.success), (State::Idle, 0, 1));
    assert_eq!((job.stats.last_error.as_deref(), job.stats.last_success_at.is_some()), (None, true));
    is_in(due_in, 3_600_000);

    rig.pass(SECOND * 3_600).await;
    let (job, due_in) = run(Outcome::HandedBack).await;
    assert_eq!((job.state, job.attempts, job.stats.fail), (State::Queued, 0, 1));
    is_in(due_in, 0);

    let (job, _) = run(Outcome::Dead { error: "gone".to_owned() }).await;
    assert_eq!((job.state, job.status, job.stats.fail), (State::Dead, Status::Active, 2));
    assert_eq!(nothing_due(&*store).await, None);
    store.resume_job(job.id).await.expect("resumed");

    let (job, _) = run(Outcome::Success { next_in: None }).await;
    assert_eq!((job.state, job.status, job.cursor.done), (State::Success, Status::Paused, true));
    assert_eq!(nothing_due(&*store).await, None);
    let job = store.resume_job(job.id).await.expect("resumed");
    assert_eq!((job.state, job.cursor.done), (State::Idle, false));
    let (_, lease) = claim(&*store, "w").await;
    assert_eq!(lease.fence, 7, "each claim had its own");
}

async fn an_exchange_at_its_cap_lets_others_go(rig: &dyn Rig) {
    let store = rig_with(rig, &["A", "B", "C"]).await;
    connect(&*store, okx(), 20, SECOND).await;
    let low = NewJob { priority: Some(90), ..hourly(okx(), "Z") };
    store.add_job(&low).await.expect("a job");
    let two = Claim { cap: Some(2), ..by("w") };
    let mut leases = Vec::new();
    for exchange in [binance(), binance(), okx()] {
        let (job, lease) = store.claim(&two).await.expect("a claim").job().expect("a job is due");
        assert_eq!(job.exchange_id, exchange);
        leases.push(lease);
    }
    assert!(store.claim(&two).await.expect("a claim").job().is_none(), "both are at their cap, or empty");
    store.finish(&leases[0], &Outcome::Success { next_in: Some(SECOND * 60) }).await.expect("finished");
    let (job, _) = store.claim(&two).await.expect("a claim").job().expect("one has ended");
    assert_eq!(job.symbol.as_deref(), Some("C"));
    // What its connector says goes before.
    let patch = ConnectorPatch { max_concurrent_jobs: Some(3), ..ConnectorPatch::default() };
    store.patch_connector(binance(), &patch).await.expect("changed");
    store.add_job(&hourly(binance(), "D")).await.expect("a job");
    store.claim(&two).await.expect("a claim").job().expect("three may run");
    // A lease that is over does not count.
    store.add_job(&hourly(binance(), "E")).await.expect("a job");
    assert!(store.claim(&two).await.expect("a claim").job().is_none());
    rig.pass(LEASE).await;
    for _ in 0..3 {
        store.claim(&two).await.expect("a claim").job().expect("the old leases are over");
    }
}

async fn the_cap_holds_when_many_claim_at_once(rig: &dyn Rig) {
    let symbols: Vec<String> = (0..30).map(|n| format!("S{n}")).collect();
    let symbols: Vec<&str> = symbols.iter().map(String::as_str).collect();
    rig_with(rig, &symbols).await;
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..12 {
        let store = if n % 2 == 0 { rig.store() } else { rig.beside().await };
        asking.spawn(async move {
            let ask = Claim { cap: Some(4), ..by("w") };
            store.claim(&ask).await.expect("a claim").job().is_some()
        });
    }
    let running = asking.join_all().await.into_iter().filter(|is_running| *is_running).count();
    assert!((1..=4).contains(&running), "{running} run at once");
}

async fn paused_exchanges_and_foreign_ones_are_passed(rig: &dyn Rig) {
    let store = rig_with(rig, &["A"]).await;
    connect(&*store, okx(), 20, SECOND).await;
    store.add_job(&NewJob { priority: Some(90), ..hourly(okx(), "Z") }).await.expect("a job");
    let only = [okx()];
    let mine = Claim { only: Some(&only), ..by("w") };
    let (job, lease) = store.claim(&mine).await.expect("a claim").job().expect("a job is due");
    assert_eq!(job.exchange_id, okx());
    assert!(store.claim(&mine).await.expect("a claim").job().is_none());
    store.finish(&lease, &Outcome::HandedBack).await.expect("finished");
    store.set_connector_status(binance(), Status::Paused).await.expect("paused");
    let (job, _) = claim(&*store, "w").await;
    assert_eq!(job.exchange_id, okx());
    nothing_due(&*store).await;
    store.set_connector_status(binance(), Status::Active).await.expect("resumed");
    let (job, _) = claim(&*store, "w").await;
    assert_eq!(job.exchange_id, binance());
}

async fn a_page_and_its_cursor_come_together(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    store.add_job(&history(binance(), "A")).await.expect("a job");
    let (_, lease) = claim(&*store, "w").await;
    rig.pass(LEASE / 2).await;
    let cursor = Cursor { page: 1, last_ts: minute_at(2), ..Cursor::default() };
    let candles = some_candles(0, 3, 1);
    let page = PageSave { cursor: &cursor, candles: &candles, holes: &[Hole::unreachable(span(3, 5))] };
    let standing = store.save_page(&lease, &page).await.expect("saved");
    let now = store.now().await.expect("a time").get();
    assert!(
        standing.lock_until.get() > now + 29_000 - rig.slack().as_millis() as i64,
        "it is a renewal, too"
    );
    let job = store.job(lease.job).await.expect("an answer").expect("it is there");
    assert_eq!((job.cursor, job.state), (cursor.clone(), State::Running));
    let series = minutes(binance(), "A");
    assert_eq!(store.candles(&series, span(0, 9), 100).await.expect("candles"), candles);
    assert_eq!(store.holes(&series).await.expect("holes"), [Hole::unreachable(span(3, 5))]);
    store.save_page(&lease, &page).await.expect("saved again");
    assert_eq!(store.candles(&series, span(0, 9), 100).await.expect("candles"), candles, "once");
    // One that has not closed: nothing of the page is saved.
    let mut unfinished = some_candles(3, 2, 1);
    unfinished[1].is_final = false;
    let further = Cursor { page: 2, ..cursor.clone() };
    let page = PageSave { cursor: &further, candles: &unfinished, holes: &[] };
    let error = store.save_page(&lease, &page).await.expect_err("it is not final");
    assert!(matches!(error, StoreError::Invalid { field: "candles", .. }), "{error}");
    assert_eq!(store.candles(&series, span(0, 9), 100).await.expect("candles").len(), 3);
    assert_eq!(store.job(lease.job).await.expect("an answer").expect("it is there").cursor, cursor);
    // Another takes over and goes on from there.
    rig.pass(LEASE).await;
    let (job, _) = claim(&*store, "x").await;
    assert_eq!(job.cursor, cursor);
    store.patch_job(job.id, &JobPatch { priority: Some(1), ..JobPatch::default() }).await.expect("changed");
}
