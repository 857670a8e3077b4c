//! Workers: what they do with what a handler does.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod rigs;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use catchment_jobs::conformance::{Rig, binance, by, claim, connect, history, hourly, some_candles};
use catchment_jobs::{
    Cursor, Done, Job, JobHandler, JobPatch, RunError, State, Store, StoreError, Turn, Work, WorkerSettings,
    Workers,
};
use rigs::SqliteRig;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

struct Always(fn() -> Result<Done, RunError>);

#[async_trait]
impl JobHandler for Always {
    async fn run(&self, _work: &Work) -> Result<Done, RunError> {
        (self.0)()
    }
}

async fn rig() -> (SqliteRig, Arc<dyn Store>) {
    let rig = SqliteRig::new().await;
    let store = rig.store();
    connect(&*store, binance(), 1_000, SECOND).await;
    (rig, store)
}

fn workers(store: &Arc<dyn Store>, handler: impl JobHandler + 'static) -> Arc<Workers> {
    Arc::new(Workers::new(store.clone(), Arc::new(handler), WorkerSettings::default()))
}

async fn turn(workers: &Workers) -> Job {
    match workers.turn().await.unwrap() {
        Turn::Worked(Some(job)) => *job,
        other => panic!("{other:?}"),
    }
}

/// 30 s, 2 min, 10 min, 1 h, 6 h, each ± 20 %, and after the tenth failure it is given up.
#[tokio::test]
async fn a_poison_job_is_tried_ten_times_ever_more_slowly() {
    let (rig, store) = rig().await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    let workers = workers(&store, Always(|| Err(RunError::failed("no such symbol"))));
    for attempt in 1..=9_u32 {
        let job = turn(&workers).await;
        assert_eq!((job.state, job.attempts), (State::Failed, attempt));
        let wait = (job.next_run_at.get() - store.now().await.unwrap().get()) as f64 / 1_000.0;
        let said = [30.0, 120.0, 600.0, 3_600.0, 21_600.0][(attempt as usize - 1).min(4)];
        assert!((said * 0.8..=said * 1.2).contains(&wait), "attempt {attempt}: {wait} s");
        assert!(matches!(workers.turn().await.unwrap(), Turn::Nothing { .. }));
        rig.host.advance(Duration::from_secs_f64(wait));
    }
    let job = turn(&workers).await;
    assert_eq!((job.state, job.attempts, job.stats.fail), (State::Dead, 10, 10));
    assert_eq!(job.stats.last_error.as_deref(), Some("no such symbol"));
    rig.host.advance(SECOND * 86_400 * 30);
    assert_eq!(workers.turn().await.unwrap(), Turn::Nothing { next_in: None });
    let counts = workers.counts();
    assert_eq!((counts.claimed, counts.failed, counts.dead), (10, 9, 1));
}

#[tokio::test]
async fn a_retry_is_never_before_what_the_venue_says() {
    let (_rig, store) = rig().await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    let hour = Some(SECOND * 3_600);
    let failure = move || RunError::Failed { reason: "429".to_owned(), not_before: hour };
    struct Once<F>(F);
    #[async_trait]
    impl<F: Fn() -> RunError + Send + Sync> JobHandler for Once<F> {
        async fn run(&self, _work: &Work) -> Result<Done, RunError> {
            Err((self.0)())
        }
    }
    let job = turn(&workers(&store, Once(failure))).await;
    assert_eq!(job.next_run_at.get() - store.now().await.unwrap().get(), 3_600_000);
}

#[tokio::test]
async fn what_is_hopeless_is_given_up_at_once() {
    let (_rig, store) = rig().await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    let job = turn(&workers(&store, Always(|| Err(RunError::Hopeless("it was delisted".to_owned()))))).await;
    assert_eq!((job.state, job.attempts), (State::Dead, 1));
}

#[tokio::test]
async fn a_panic_is_a_failure_of_that_job_alone() {
    let (_rig, store) = rig().await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    let job = turn(&workers(&store, Always(|| panic!("index out of bounds")))).await;
    assert_eq!(job.state, State::Failed);
    assert!(job.stats.last_error.unwrap().starts_with("its handler panicked"));
}

/// A handler that says when it has begun and waits to be told to go on.
struct Slow {
    began: mpsc::Sender<u64>,
    go_on: Arc<Notify>,
    listens: bool,
}

#[async_trait]
impl JobHandler for Slow {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        let mut cursor = work.cursor();
        cursor.page += 1;
        work.save(cursor, &some_candles(work.cursor().page as i64, 1, 1), &[]).await?;
        self.began.send(work.lease().fence).await.unwrap();
        if self.listens {
            tokio::select! {
                () = work.stopping() => return Ok(Done::Stopped),
                () = self.go_on.notified() => {}
            }
        } else {
            self.go_on.notified().await;
        }
        let cursor = Cursor { page: 99, ..work.cursor() };
        work.save(cursor, &[], &[]).await?;
        Ok(Done::ForGood)
    }
}

fn slow(listens: bool) -> (Slow, mpsc::Receiver<u64>, Arc<Notify>) {
    let (began, begun) = mpsc::channel(16);
    let go_on = Arc::new(Notify::new());
    (Slow { began, go_on: go_on.clone(), listens }, begun, go_on)
}

#[tokio::test]
async fn a_graceful_stop_hands_the_job_back() {
    let (_rig, store) = rig().await;
    let id = store.add_job(&history(binance(), "A")).await.unwrap().id;
    let (handler, mut begun, _) = slow(true);
    let workers = workers(&store, handler);
    let stop = CancellationToken::new();
    let running = tokio::spawn(workers.clone().run(stop.clone()));
    begun.recv().await.unwrap();
    assert_eq!(workers.counts().running, 1);
    stop.cancel();
    running.await.unwrap();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.cursor.page, job.stats.fail), (State::Queued, 1, 0));
    assert_eq!((workers.counts().handed_back, workers.counts().running), (1, 0));
    let (again, _) = claim(&*store, "next").await;
    assert_eq!(again.id, id, "at once, not after the lease");
}

/// The store's clock stands still here, and the workers' own runs ahead when everybody waits.
#[tokio::test(start_paused = true)]
async fn one_that_does_not_listen_is_handed_back_after_the_grace() {
    let (_rig, store) = rig().await;
    let id = store.add_job(&history(binance(), "A")).await.unwrap().id;
    let (handler, mut begun, _) = slow(false);
    let workers = workers(&store, handler);
    let stop = CancellationToken::new();
    let running = tokio::spawn(workers.clone().run(stop.clone()));
    begun.recv().await.unwrap();
    stop.cancel();
    running.await.unwrap();
    assert_eq!(store.job(id).await.unwrap().unwrap().state, State::Queued);
}

#[tokio::test]
async fn one_that_was_taken_over_changes_nothing() {
    let (rig, store) = rig().await;
    let id = store.add_job(&history(binance(), "A")).await.unwrap().id;
    let (handler, mut begun, go_on) = slow(false);
    let workers = workers(&store, handler);
    let stop = CancellationToken::new();
    let running = tokio::spawn(workers.clone().run(stop.clone()));
    let fence = begun.recv().await.unwrap();
    // As if this process had been stopped for longer than its lease.
    rig.host.advance(SECOND * 60);
    let (_, other) = claim(&*store, "other").await;
    assert_eq!(other.fence, fence + 1);
    let held = store.job(id).await.unwrap();
    stop.cancel();
    go_on.notify_one();
    running.await.unwrap();
    assert_eq!(store.job(id).await.unwrap(), held, "not a trace");
    assert_eq!((workers.counts().lost, workers.counts().succeeded), (1, 0));
}

#[tokio::test]
async fn a_job_that_is_paused_is_handed_back() {
    let (_rig, store) = rig().await;
    let id = store.add_job(&history(binance(), "A")).await.unwrap().id;
    let (handler, mut begun, go_on) = slow(false);
    let workers = workers(&store, handler);
    let stop = CancellationToken::new();
    let running = tokio::spawn(workers.clone().run(stop.clone()));
    begun.recv().await.unwrap();
    store.pause_job(id).await.unwrap();
    go_on.notify_one();
    stop.cancel();
    running.await.unwrap();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.cursor.page), (State::Queued, 99), "the page is saved, then it ends");
    assert!(store.claim(&by("x")).await.unwrap().job().is_none());
}

/// Renewals go on for as long as the handler works. The lease is by the store's clock, which is moved in step.
#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_its_lease() {
    let (rig, store) = rig().await;
    let id = store.add_job(&history(binance(), "A")).await.unwrap().id;
    let (handler, mut begun, go_on) = slow(false);
    let workers = workers(&store, handler);
    let stop = CancellationToken::new();
    let running = tokio::spawn(workers.clone().run(stop.clone()));
    begun.recv().await.unwrap();
    for _ in 0..20 {
        rig.host.advance(SECOND * 10);
        tokio::time::advance(SECOND * 10).await;
        // Until the renewal is written.
        let until = store.now().await.unwrap().get() + 30_000;
        while store.job(id).await.unwrap().unwrap().lock.lock_until.unwrap().get() < until {
            tokio::task::yield_now().await;
        }
    }
    assert!(store.claim(&by("other")).await.unwrap().job().is_none(), "it is still held");
    go_on.notify_one();
    while store.job(id).await.unwrap().unwrap().state == State::Running {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap();
    assert_eq!(store.job(id).await.unwrap().unwrap().state, State::Success);
}

#[tokio::test]
async fn bad_answers_of_a_handler_are_named_in_the_job() {
    let (_rig, store) = rig().await;
    store.add_job(&hourly(binance(), "A")).await.unwrap();
    struct Unfinished;
    #[async_trait]
    impl JobHandler for Unfinished {
        async fn run(&self, work: &Work) -> Result<Done, RunError> {
            let mut candles = some_candles(0, 1, 1);
            candles[0].is_final = false;
            work.save(Cursor::default(), &candles, &[]).await?;
            Ok(Done::ForNow)
        }
    }
    let job = turn(&workers(&store, Unfinished)).await;
    assert_eq!(job.state, State::Failed);
    assert!(job.stats.last_error.unwrap().contains("has not closed"));
    let wrong =
        JobPatch { cursor: Some(Cursor::over(job.created_at, Some(job.created_at))), ..JobPatch::default() };
    let error = store.patch_job(job.id, &wrong).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid { field: "cursor.until_ms", .. }));
}

/// Says when it was asked to look over everything.
struct LookedOver(mpsc::Sender<()>);

#[async_trait]
impl JobHandler for LookedOver {
    async fn run(&self, _work: &Work) -> Result<Done, RunError> {
        Ok(Done::ForGood)
    }

    async fn look_over(&self, _store: &Arc<dyn Store>) {
        self.0.send(()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_looked_over_at_the_start_and_every_six_hours() {
    let (_rig, store) = rig().await;
    let (tell, mut told) = mpsc::channel(16);
    let stop = CancellationToken::new();
    let began = tokio::time::Instant::now();
    let running = tokio::spawn(workers(&store, LookedOver(tell)).run(stop.clone()));
    told.recv().await.unwrap();
    assert!(began.elapsed() < SECOND * 60, "{:?}", began.elapsed());
    for times in 1..=3_u32 {
        told.recv().await.unwrap();
        let hours = began.elapsed().as_secs_f64() / 3_600.0;
        assert!((hours - 6.0 * f64::from(times)).abs() < 0.1, "{hours} h");
    }
    stop.cancel();
    running.await.unwrap();
}
