//! Jobs, as their owner sees them.

use super::*;
use crate::error::StoreError;
use crate::job::{Cursor, JobFilter, JobPatch, Page, Schedule, State, Status};
use crate::store::Outcome;

const SECOND: Duration = Duration::from_secs(1);

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    a_job_begins_as_said(&*make().await).await;
    what_is_wrong_is_named_and_not_stored(&*make().await).await;
    at_most_one_is_active_of_a_kind(&*make().await).await;
    lists_are_filtered_and_paged(&*make().await).await;
    a_job_can_be_changed(&*make().await).await;
    a_paused_job_rests_until_resumed(&*make().await).await;
    run_now_makes_it_due(&*make().await).await;
    a_deleted_job_is_gone(&*make().await).await;
    who_is_busy_is_counted(&*make().await).await;
    a_job_that_was_given_up_does_not_stand_in_the_way(&*make().await).await;
    a_stretch_whose_job_was_given_up_is_passed_over_and_tried_again_later(&*make().await).await;
}

async fn rig_with_connector(rig: &dyn Rig) -> Arc<dyn Store> {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    store
}

async fn a_job_begins_as_said(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let before = store.now().await.expect("a time");
    let job = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("a job");
    assert_eq!((job.exchange_id, job.kind), (binance(), JobType::OhlcvIncremental));
    assert_eq!((job.symbol.as_deref(), job.timeframe), (Some("BTC/USDT"), Some(Timeframe::H1)));
    assert_eq!((job.status, job.state, job.priority), (Status::Active, State::Idle, 50));
    assert_eq!(job.schedule, Schedule::Interval { interval_ms: 3_600_000 });
    assert_eq!((job.cursor.clone(), job.fence, job.attempts), (Cursor::default(), 0, 0));
    assert_eq!((job.stats.clone(), job.lock.clone()), Default::default());
    assert!(job.next_run_at >= before && job.created_at == job.next_run_at, "due now");
    assert_eq!(store.job(job.id).await.expect("an answer"), Some(job.clone()));
    let json = serde_json::to_string(&job).expect("a document");
    assert_eq!(serde_json::from_str::<Job>(&json).expect("the same"), job);
    let refresh = store.add_job(&NewJob::new(binance(), JobType::MarketsRefresh)).await.expect("a job");
    assert_eq!((refresh.symbol.as_deref(), refresh.timeframe), (None, None));
    assert_eq!(store.job(refresh.id).await.expect("an answer"), Some(refresh.clone()));
    let cursor = Cursor { next: Some("id:7".to_owned()), ..Cursor::over(minute_at(0), Some(minute_at(9))) };
    let trades = NewJob {
        symbol: Some("BTC/USDT".to_owned()),
        priority: Some(3),
        next_run_at: Some(minute_at(5)),
        cursor: cursor.clone(),
        ..NewJob::new(binance(), JobType::TradesBackfill)
    };
    let trades = store.add_job(&trades).await.expect("a job");
    assert_eq!((trades.priority, trades.next_run_at, trades.schedule), (3, minute_at(5), Schedule::Once));
    assert_eq!(store.job(trades.id).await.expect("an answer").expect("it is there").cursor, cursor);
    assert_eq!(store.job(Id::new([7; 12])).await.expect("an answer"), None);
}

async fn what_is_wrong_is_named_and_not_stored(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let good = hourly(binance(), "BTC/USDT");
    let every = |interval_ms| Some(Schedule::Interval { interval_ms });
    let over = |from, to| Cursor::over(minute_at(from), Some(minute_at(to)));
    let gap = NewJob { kind: JobType::GapBackfill, ..good.clone() };
    for (wrong, named) in [
        (NewJob { exchange_id: okx(), ..good.clone() }, "exchange_id"),
        (NewJob { symbol: None, ..good.clone() }, "symbol"),
        (NewJob { symbol: Some(String::new()), ..good.clone() }, "symbol"),
        (NewJob { symbol: Some("a\nb".to_owned()), ..good.clone() }, "symbol"),
        (NewJob { symbol: Some("x".repeat(300)), ..good.clone() }, "symbol"),
        (NewJob { timeframe: None, ..good.clone() }, "timeframe"),
        (NewJob { schedule: every(0), ..good.clone() }, "schedule.interval_ms"),
        (NewJob { schedule: every(u64::MAX), ..good.clone() }, "schedule.interval_ms"),
        (NewJob { cursor: over(5, 4), ..good.clone() }, "cursor.until_ms"),
        (NewJob { cursor: over(5, 5), ..good.clone() }, "cursor.until_ms"),
        (NewJob { kind: JobType::MarketsRefresh, ..good.clone() }, "symbol"),
        (NewJob { kind: JobType::TradesBackfill, ..good.clone() }, "timeframe"),
        (gap, "cursor.until_ms"),
    ] {
        let error = store.add_job(&wrong).await.expect_err("it is wrong");
        assert!(matches!(error, StoreError::Invalid { field, .. } if field == named), "{named}: {error}");
    }
    assert_eq!(store.jobs(&JobFilter::default(), Page::first(10)).await.expect("a list"), []);
}

async fn at_most_one_is_active_of_a_kind(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let new = hourly(binance(), "BTC/USDT");
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (store, new) = (if n % 2 == 0 { rig.store() } else { rig.beside().await }, new.clone());
        asking.spawn(async move { store.add_job(&new).await });
    }
    let answers = asking.join_all().await;
    let made: Vec<Id> = answers.iter().flatten().map(|job| job.id).collect();
    assert_eq!(made.len(), 1, "one is made");
    for answer in answers {
        assert!(matches!(answer, Ok(_) | Err(StoreError::AlreadyActive(_))));
        if let Err(StoreError::AlreadyActive(id)) = answer {
            assert_eq!(id, made[0], "and the others are told which");
        }
    }
    store.add_job(&hourly(binance(), "ETH/USDT")).await.expect("another symbol");
    store
        .add_job(&NewJob { timeframe: Some(Timeframe::M1), ..new.clone() })
        .await
        .expect("another timeframe");
    store.add_job(&NewJob { kind: JobType::OhlcvBackfill, ..new.clone() }).await.expect("another type");
    let refresh = NewJob::new(binance(), JobType::MarketsRefresh);
    store.add_job(&refresh).await.expect("of the whole exchange");
    store.add_job(&refresh).await.expect_err("also one");
    store.pause_job(made[0]).await.expect("paused");
    let second = store.add_job(&new).await.expect("the first rests");
    let error = store.resume_job(made[0]).await.expect_err("now there is another");
    assert!(matches!(error, StoreError::AlreadyActive(id) if id == second.id), "{error}");
    store.delete_job(second.id).await.expect("deleted");
    store.resume_job(made[0]).await.expect("now it may");
}

async fn lists_are_filtered_and_paged(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    connect(&*store, okx(), 20, SECOND).await;
    let mut all = Vec::new();
    for n in 0..25 {
        all.push(store.add_job(&hourly(binance(), &format!("S{n}"))).await.expect("a job").id);
    }
    let other = store.add_job(&history(okx(), "S3")).await.expect("a job").id;
    store.pause_job(all[3]).await.expect("paused");
    store.delete_job(all[4]).await.expect("deleted");
    let list = async |filter: JobFilter| {
        let found = store.jobs(&filter, Page::first(100)).await.expect("a list");
        found.into_iter().map(|job| job.id).collect::<Vec<Id>>()
    };
    let any = JobFilter::default();
    let mut expected = all.clone();
    expected.remove(4);
    expected.push(other);
    assert_eq!(list(any.clone()).await, expected, "oldest first, without the deleted");
    assert_eq!(list(JobFilter { exchange_id: Some(okx()), ..any.clone() }).await, [other]);
    assert_eq!(list(JobFilter { kind: Some(JobType::OhlcvBackfill), ..any.clone() }).await, [other]);
    assert_eq!(list(JobFilter { symbol: Some("S3".to_owned()), ..any.clone() }).await, [all[3], other]);
    assert_eq!(list(JobFilter { timeframe: Some(Timeframe::M1), ..any.clone() }).await, [other]);
    assert_eq!(list(JobFilter { status: Some(Status::Paused), ..any.clone() }).await, [all[3]]);
    assert_eq!(list(JobFilter { status: Some(Status::Deleted), ..any.clone() }).await, [all[4]]);
    assert_eq!(list(JobFilter { state: Some(State::Running), ..any.clone() }).await, []);
    let mut paged = Vec::new();
    let mut page = Page::first(7);
    loop {
        let found = store.jobs(&any, page).await.expect("a page");
        assert!(found.len() <= 7);
        let Some(last) = found.last() else { break };
        page.after = Some(last.id);
        paged.extend(found.iter().map(|job| job.id));
    }
    assert_eq!(paged, expected);
}

async fn a_job_can_be_changed(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let job = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("a job");
    let cursor = Cursor::over(minute_at(1), None);
    let patch = JobPatch {
        schedule: Some(Schedule::Interval { interval_ms: 60_000 }),
        priority: Some(9),
        cursor: Some(cursor.clone()),
        ..JobPatch::default()
    };
    let changed = store.patch_job(job.id, &patch).await.expect("changed");
    let expected = Job {
        schedule: Schedule::Interval { interval_ms: 60_000 },
        priority: 9,
        cursor,
        updated_at: changed.updated_at,
        ..job.clone()
    };
    assert_eq!(changed, expected);
    assert_eq!(store.job(job.id).await.expect("an answer"), Some(expected.clone()));
    let wrong = JobPatch {
        schedule: Some(Schedule::Interval { interval_ms: 0 }),
        priority: Some(1),
        ..JobPatch::default()
    };
    store.patch_job(job.id, &wrong).await.expect_err("it is wrong");
    assert_eq!(store.job(job.id).await.expect("an answer"), Some(expected), "nothing was stored");
    let (_, lease) = claim(&*store, "w").await;
    let error = store.patch_job(job.id, &patch).await.expect_err("somebody works on it");
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    let later = JobPatch { priority: Some(2), ..JobPatch::default() };
    store.patch_job(job.id, &later).await.expect("that may change");
    let done = store.finish(&lease, &Outcome::HandedBack).await.expect("its lease still holds");
    assert_eq!(done.priority, 2);
    let far = JobPatch { next_run_at: Some(from_ms(4_000_000_000_000)), ..JobPatch::default() };
    store.patch_job(job.id, &far).await.expect("changed");
    assert!(nothing_due(&*store).await.is_some());
    let nobody = store.patch_job(Id::new([7; 12]), &later).await.expect_err("there is none");
    assert!(matches!(nobody, StoreError::NotFound { what: "job", .. }), "{nobody}");
}

async fn a_paused_job_rests_until_resumed(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let job = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("a job");
    store.pause_job(job.id).await.expect("paused");
    assert_eq!(nothing_due(&*store).await, None);
    store.resume_job(job.id).await.expect("resumed");
    let (_, lease) = claim(&*store, "w").await;
    store.pause_job(job.id).await.expect("paused while it runs");
    assert!(!store.renew(&lease).await.expect("it is still held").is_wanted);
    store.finish(&lease, &Outcome::HandedBack).await.expect("ended in good order");
    assert_eq!(nothing_due(&*store).await, None);
    // One whose worker died while it was paused.
    store.resume_job(job.id).await.expect("resumed");
    let (_, lost) = claim(&*store, "w").await;
    store.pause_job(job.id).await.expect("paused");
    rig.pass(LEASE * 2).await;
    assert_eq!(nothing_due(&*store).await, None);
    store.resume_job(job.id).await.expect("resumed");
    let (_, lease) = claim(&*store, "x").await;
    assert!(lease.fence > lost.fence);
}

async fn run_now_makes_it_due(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let job = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("a job");
    let (_, lease) = claim(&*store, "w").await;
    let running = store.run_job_now(job.id).await.expect("it runs already");
    assert_eq!(running.state, State::Running);
    store.finish(&lease, &Outcome::Success { next_in: Some(SECOND * 3_600) }).await.expect("finished");
    nothing_due(&*store).await.expect("in an hour");
    let queued = store.run_job_now(job.id).await.expect("now");
    assert_eq!(queued.state, State::Queued);
    let (_, lease) = claim(&*store, "w").await;
    store.finish(&lease, &Outcome::Dead { error: "no".to_owned() }).await.expect("given up");
    assert_eq!(nothing_due(&*store).await, None);
    let again = store.run_job_now(job.id).await.expect("now");
    assert_eq!((again.state, again.attempts), (State::Queued, 0), "with all its attempts");
    store.pause_job(job.id).await.expect("paused");
    let error = store.run_job_now(job.id).await.expect_err("it is paused");
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
}

async fn a_deleted_job_is_gone(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let job = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("a job");
    let (_, lease) = claim(&*store, "w").await;
    store.delete_job(job.id).await.expect("deleted");
    let late = store.finish(&lease, &Outcome::HandedBack).await.expect_err("its fence has moved");
    assert!(late.is_stale(), "{late}");
    assert_eq!(nothing_due(&*store).await, None);
    let found = store.job(job.id).await.expect("an answer").expect("it can be looked at");
    assert_eq!((found.status, found.lock.locked_by), (Status::Deleted, None));
    for error in [
        store.resume_job(job.id).await.expect_err("it is gone"),
        store.pause_job(job.id).await.expect_err("it is gone"),
        store.run_job_now(job.id).await.expect_err("it is gone"),
        store.patch_job(job.id, &JobPatch::default()).await.expect_err("it is gone"),
    ] {
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }
    store.add_job(&hourly(binance(), "BTC/USDT")).await.expect("another may be added");
}

async fn who_is_busy_is_counted(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    for symbol in ["A", "B", "C", "D"] {
        store.add_job(&hourly(binance(), symbol)).await.expect("a job");
    }
    let (_, first) = claim(&*store, "w").await;
    let (_, second) = claim(&*store, "w").await;
    claim(&*store, "w").await;
    let wait = Outcome::WaitRateLimit { retry_after: SECOND };
    store.finish(&first, &wait).await.expect("finished");
    store.finish(&second, &Outcome::Success { next_in: Some(SECOND * 60) }).await.expect("finished");
    let mut busy: Vec<(State, u64)> =
        store.busy().await.expect("counts").into_iter().map(|count| (count.state, count.jobs)).collect();
    busy.sort_by_key(|(state, _)| state.as_str());
    assert_eq!(busy, [(State::Running, 1), (State::WaitingRateLimit, 1)]);
}

async fn a_job_that_was_given_up_does_not_stand_in_the_way(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let dead = Outcome::Dead { error: "no".to_owned() };
    let trades = NewJob {
        symbol: Some("BTC/USDT".to_owned()),
        cursor: Cursor::over(minute_at(0), Some(minute_at(9))),
        ..NewJob::new(binance(), JobType::TradesBackfill)
    };
    let first = store.add_job(&trades).await.expect("a job");
    let (_, lease) = claim(&*store, "w").await;
    let ended = store.finish(&lease, &dead).await.expect("given up");
    assert_eq!((ended.id, ended.state, ended.status), (first.id, State::Dead, Status::Paused));
    let connector = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!((connector.jobs_count, connector.active_jobs_count), (1, 0));
    let second = store.add_job(&trades).await.expect("what is wanted later");
    let error = store.run_job_now(first.id).await.expect_err("now there is another");
    assert!(matches!(error, StoreError::AlreadyActive(id) if id == second.id), "{error}");
    store.delete_job(second.id).await.expect("deleted");
    let again = store.run_job_now(first.id).await.expect("it may be run again");
    assert_eq!((again.status, again.state, again.attempts), (Status::Active, State::Queued, 0));
    let (_, lease) = claim(&*store, "w").await;
    store.finish(&lease, &dead).await.expect("given up");
    let again = store.resume_job(first.id).await.expect("or resumed");
    assert_eq!((again.status, again.state), (Status::Active, State::Idle));
    store.delete_job(first.id).await.expect("deleted");
    // What runs again and again keeps its place.
    store.add_job(&hourly(binance(), "A")).await.expect("a job");
    let (_, lease) = claim(&*store, "w").await;
    let ended = store.finish(&lease, &dead).await.expect("given up");
    assert_eq!((ended.state, ended.status), (State::Dead, Status::Active));
    store.add_job(&hourly(binance(), "A")).await.expect_err("nobody adds a second beside it");
}

async fn a_stretch_whose_job_was_given_up_is_passed_over_and_tried_again_later(rig: &dyn Rig) {
    let store = rig_with_connector(rig).await;
    let series = minutes(binance(), "A");
    for first in [0, 20, 40] {
        store.put_candles(&series, &some_candles(first, 10, 1)).await.expect("stored");
    }
    let plan = async || {
        let plan = crate::plan_gap(&*store, &series, span(0, 50)).await.expect("a plan");
        assert_eq!(plan.missing, [span(10, 20), span(30, 40)]);
        plan.added.map(|job| (job.cursor.since_ms, job.cursor.until_ms.expect("an end")))
    };
    let give_up = async || {
        let (_, lease) = claim(&*store, "w").await;
        store.finish(&lease, &Outcome::Dead { error: "no".to_owned() }).await.expect("given up").id
    };
    assert_eq!(plan().await, Some((minute_at(10), minute_at(20))));
    let first = give_up().await;
    assert_eq!(plan().await, Some((minute_at(30), minute_at(40))), "the next is not held up");
    give_up().await;
    assert_eq!(plan().await, None, "nobody is asked again at once");
    rig.pass(SECOND * 7 * 3_600).await;
    assert_eq!(plan().await, Some((minute_at(10), minute_at(20))), "some hours later one tries again");
    let old = store.job(first).await.expect("an answer").expect("it can be looked at");
    assert_eq!(old.status, Status::Deleted, "the new one stands for it");
}
