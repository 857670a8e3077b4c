//! S2's acceptance checklist (§9), by its names. [`checklist_tests!`](crate::checklist_tests) makes a test of each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::handler::{Done, JobHandler, RunError, Work};
use crate::job::{Cursor, JobFilter, Page, State, Status};
use crate::store::Outcome;
use crate::token::{TokenAsk, Tokens};
use crate::worker::{Turn, WorkerSettings, Workers};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// The list, once: `checklist_tests!(make)` makes a test of each, by its name, for an `async fn make() -> Box<dyn Rig>`.
#[macro_export]
macro_rules! checklist_tests {
    ($make:ident) => { $crate::checklist_tests! { @each tests $make } };
    (@each $how:ident $make:ident) => {
        $crate::checklist_tests! { @$how $make:
            db_unique_index_prevents_duplicates,
            create_connector_is_idempotent_and_returns_existing_connector,
            every_request_calls_acquire_token_first,
            rate_limit_usage_never_exceeds_rate_limit_within_window_under_concurrency,
            rate_limit_usage_resets_when_window_expires,
            backfill_pauses_on_rate_limit_and_resumes_later_from_cursor,
            no_duplicate_candles_upsert_key_is_enforced,
            backfill_reaches_earliest_available_history,
            incremental_runs_at_timeframe_cadence,
            gap_backfill_preempts_incremental,
            waiting_rate_limit_jobs_schedule_resume_at_reset_time,
        }
    };
    (@tests $make:ident: $($name:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::conformance::checklist::$name(&*$make().await).await;
        }
    )*};
    (@run $make:ident: $($name:ident,)*) => {
        $($name(&*$make().await).await;)*
    };
}

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    checklist_tests!(@each run make);
}

/// A venue with minute candles from one minute up to another, a page at a time, and a job handler that asks it.
struct Venue1m {
    first: i64,
    end: i64,
    page: i64,
    /// How often it was asked, and how many tokens were taken.
    requests: AtomicU32,
    tokens: AtomicU32,
    /// Which minutes were asked for.
    asked: Mutex<Vec<i64>>,
}

impl Venue1m {
    fn new(first: i64, end: i64, page: i64) -> Arc<Self> {
        let (requests, tokens) = Default::default();
        Arc::new(Self { first, end, page, requests, tokens, asked: Mutex::default() })
    }

    /// The first candles that open at a minute or later.
    fn fetch(&self, from: i64) -> Vec<Candle> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        assert!(
            self.requests.load(Ordering::Relaxed) <= self.tokens.load(Ordering::Relaxed),
            "no request without a token"
        );
        self.asked.lock().expect("a list").push(from);
        let from = from.max(self.first);
        some_candles(from, self.page.min(self.end - from).max(0), 1)
    }
}

#[async_trait]
impl JobHandler for Venue1m {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        loop {
            match work.store().take_tokens(&TokenAsk::one(work.job().exchange_id)).await? {
                Tokens::Granted(_) => self.tokens.fetch_add(1, Ordering::Relaxed),
                Tokens::Wait { retry_after } => return Ok(Done::OutOfTokens { retry_after }),
                Tokens::Paused => return Err(RunError::Unwanted),
            };
            let mut cursor = work.cursor();
            let from = if cursor.page == 0 { cursor.since_ms } else { Timeframe::M1.next(cursor.last_ts) };
            let candles = self.fetch((from.get() - minute_at(0).get()).div_euclid(60_000));
            let Some(last) = candles.last() else { return Ok(Done::ForGood) };
            cursor.last_ts = last.open_time;
            cursor.page += 1;
            work.save(cursor, &candles, &[]).await?;
        }
    }
}

fn workers(store: &Arc<dyn Store>, handler: Arc<dyn JobHandler>) -> Workers {
    Workers::new(store.clone(), handler, WorkerSettings::default())
}

async fn turn(workers: &Workers) -> Job {
    match workers.turn().await.expect("a turn") {
        Turn::Worked(Some(job)) => *job,
        other => panic!("{other:?} where a job is due"),
    }
}

/// One connector per exchange: DB unique index prevents duplicates.
pub async fn db_unique_index_prevents_duplicates(rig: &dyn Rig) {
    super::connectors::of_many_who_ensure_at_once_one_makes_it(rig).await;
}

/// One connector per exchange: "create connector" is idempotent and returns the existing connector for the same exchange_id.
pub async fn create_connector_is_idempotent_and_returns_existing_connector(rig: &dyn Rig) {
    super::connectors::ensuring_twice_gives_the_one_there_is(rig).await;
}

/// Rate limiting: every request calls `AcquireToken()` first.
pub async fn every_request_calls_acquire_token_first(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 7, HOUR).await;
    store.add_job(&history(binance(), "A")).await.expect("a job");
    let venue = Venue1m::new(0, 1_000, 10);
    let job = turn(&workers(&store, venue.clone())).await;
    assert_eq!(job.state, State::WaitingRateLimit);
    assert_eq!(venue.requests.load(Ordering::Relaxed), 7, "as many requests as tokens");
    let connector = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(connector.rate_limit_usage, 7);
}

/// Rate limiting: `rate_limit_usage` never exceeds `rate_limit` within the window under concurrency.
pub async fn rate_limit_usage_never_exceeds_rate_limit_within_window_under_concurrency(rig: &dyn Rig) {
    super::tokens::nobody_gets_more_than_the_limit_at_once(rig).await;
}

/// Rate limiting: `rate_limit_usage` resets when the window expires.
pub async fn rate_limit_usage_resets_when_window_expires(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 5, SECOND * 100).await;
    let take = async |requests| {
        store.take_tokens(&TokenAsk::several(binance(), requests)).await.expect("an answer").granted()
    };
    assert_eq!(take(4).await.expect("there is room").requests, 4);
    let used = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(used.rate_limit_usage, 4);
    rig.pass(SECOND * 103).await;
    let over = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(take(2).await.expect("there is room").requests, 2);
    let after = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(after.rate_limit_usage, 2);
    assert!(after.rate_limit_window_start >= over.rate_limit_reset_at);
    assert_eq!(after.rate_limit_reset_at.get(), after.rate_limit_window_start.get() + 100_000);
}

/// Resumable backfill: pauses on the rate limit and resumes later from its cursor.
pub async fn backfill_pauses_on_rate_limit_and_resumes_later_from_cursor(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 3, SECOND * 60).await;
    let new = NewJob { cursor: Cursor::over(minute_at(0), None), ..history(binance(), "A") };
    let id = store.add_job(&new).await.expect("a job").id;
    let venue = Venue1m::new(0, 75, 10);
    let workers = workers(&store, venue.clone());
    for pages in [3, 6] {
        let job = turn(&workers).await;
        assert_eq!((job.state, job.cursor.page), (State::WaitingRateLimit, pages));
        assert_eq!(job.cursor.last_ts, minute_at(pages as i64 * 10 - 1));
        assert!(matches!(workers.turn().await.expect("a turn"), Turn::Nothing { .. }), "it waits");
        rig.pass(SECOND * 62).await;
    }
    let job = turn(&workers).await;
    assert_eq!((job.id, job.state, job.status), (id, State::Success, Status::Paused));
    assert_eq!(*venue.asked.lock().expect("a list"), [0, 10, 20, 30, 40, 50, 60, 70, 75], "no page twice");
    let series = minutes(binance(), "A");
    assert_eq!(store.candles(&series, span(0, 999), 999).await.expect("candles"), some_candles(0, 75, 1));
}

/// Resumable backfill: no duplicate candles (the upsert key is enforced).
pub async fn no_duplicate_candles_upsert_key_is_enforced(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 1_000, HOUR).await;
    let venue = Venue1m::new(0, 50, 10);
    let workers = workers(&store, venue);
    for kind in [JobType::OhlcvBackfill, JobType::GapBackfill, JobType::OhlcvBackfill] {
        let cursor = Cursor::over(minute_at(0), Some(minute_at(50)));
        let new = NewJob { cursor, ..NewJob::candles(binance(), kind, "A", Timeframe::M1) };
        store.add_job(&new).await.expect("a job");
        assert_eq!(turn(&workers).await.state, State::Success);
    }
    let series = minutes(binance(), "A");
    let candles = store.candles(&series, span(-100, 999), 999).await.expect("candles");
    assert_eq!(candles, some_candles(0, 50, 1), "each once, though fetched three times");
}

/// Resumable backfill: reaches the earliest available history.
pub async fn backfill_reaches_earliest_available_history(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 1_000, HOUR).await;
    // From the beginning of time; the venue's history begins later.
    store.add_job(&history(binance(), "A")).await.expect("a job");
    let venue = Venue1m::new(-5_000, 40, 1_000);
    let job = turn(&workers(&store, venue)).await;
    assert_eq!(job.state, State::Success);
    let coverage = store.coverage(&minutes(binance(), "A")).await.expect("an answer").expect("candles");
    assert_eq!((coverage.first, coverage.last, coverage.candles), (minute_at(-5_000), minute_at(39), 5_040));
    assert_eq!(store.missing(&minutes(binance(), "A"), span(-5_000, 40), 9).await.expect("spans"), []);
}

/// Scheduling: incremental runs at the timeframe's cadence.
pub async fn incremental_runs_at_timeframe_cadence(rig: &dyn Rig) {
    struct Nothing;
    #[async_trait]
    impl JobHandler for Nothing {
        async fn run(&self, _work: &Work) -> Result<Done, RunError> {
            Ok(Done::ForNow)
        }
    }
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    store.add_job(&hourly(binance(), "A")).await.expect("a job");
    let workers = workers(&store, Arc::new(Nothing));
    let slack = rig.slack().as_millis() as i64;
    let mut waits = Vec::new();
    for _ in 0..20 {
        let job = turn(&workers).await;
        assert_eq!(job.state, State::Idle);
        let wait = job.next_run_at.get() - store.now().await.expect("a time").get();
        assert!((3_420_000 - slack..=3_780_000).contains(&wait), "an hour ± 5 %, not {wait}");
        assert!(matches!(workers.turn().await.expect("a turn"), Turn::Nothing { .. }), "not before");
        waits.push(wait);
        rig.pass(Duration::from_millis(wait.unsigned_abs())).await;
    }
    let (shortest, longest) = (waits.iter().min().expect("some"), waits.iter().max().expect("some"));
    assert!(longest - shortest > 60_000, "they differ: {waits:?}");
}

/// Scheduling: gap backfill preempts incremental (lower priority number).
pub async fn gap_backfill_preempts_incremental(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    for symbol in ["A", "B", "C"] {
        store.add_job(&hourly(binance(), symbol)).await.expect("a job");
    }
    rig.pass(SECOND).await;
    let series = minutes(binance(), "A");
    store.put_candles(&series, &some_candles(0, 5, 1)).await.expect("stored");
    store.put_candles(&series, &some_candles(9, 5, 1)).await.expect("stored");
    let plan = crate::plan_gap(&*store, &series, span(0, 14)).await.expect("a plan");
    assert_eq!(plan.missing, [span(5, 9)]);
    let added = plan.added.expect("a job");
    let again = crate::plan_gap(&*store, &series, span(0, 14)).await.expect("a plan");
    assert_eq!(again.added, None, "once");
    let (job, lease) = claim(&*store, "w").await;
    assert_eq!((job.id, job.kind), (added.id, JobType::GapBackfill), "though it was added last");
    let (since, until) = (job.cursor.since_ms, job.cursor.until_ms);
    assert_eq!((since, until), (minute_at(5), Some(minute_at(9))));
    store.finish(&lease, &Outcome::Success { next_in: None }).await.expect("finished");
    store.note_hole(&series, crate::Hole::absent(span(5, 9))).await.expect("the venue has none");
    let filled = crate::plan_gap(&*store, &series, span(0, 14)).await.expect("a plan");
    assert_eq!((filled.missing.len(), filled.added), (0, None), "not asked for again");
    let gaps = JobFilter { kind: Some(JobType::GapBackfill), ..JobFilter::default() };
    assert_eq!(store.jobs(&gaps, Page::first(9)).await.expect("a list").len(), 1);
}

/// Scheduling: waiting_rate_limit jobs schedule their resume at the reset time.
pub async fn waiting_rate_limit_jobs_schedule_resume_at_reset_time(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 2, SECOND * 60).await;
    store.add_job(&history(binance(), "A")).await.expect("a job");
    let venue = Venue1m::new(0, 1_000, 10);
    let workers = workers(&store, venue);
    let job = turn(&workers).await;
    assert_eq!(job.state, State::WaitingRateLimit);
    let connector = store.connector(binance()).await.expect("an answer").expect("it is there");
    // The window's end, and what the sliding one adds: validity and rounding, 3 % at most.
    let late = job.next_run_at.get() - connector.rate_limit_reset_at.get();
    assert!((0..=2_000 + rig.slack().as_millis() as i64).contains(&late), "{late} ms after the reset");
    let now = store.now().await.expect("a time");
    rig.pass(Duration::from_millis((job.next_run_at.get() - now.get()).unsigned_abs())).await;
    let job = turn(&workers).await;
    assert_eq!(job.cursor.page, 4, "and then there are tokens");
}
