//! What the children do.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use catchment_governor::{Ask, Family, Governor, Lane, Limits, Open, Parts, Report, Settings};
use catchment_jobs::conformance::{binance, minute_at, some_candles};
use catchment_jobs::{
    BudgetSettings, Done, JobHandler, RunError, StoreBudget, StoreError, Work, WorkerSettings, Workers,
};
use catchment_model::{Clock, SystemClock, Timeframe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long leases last here.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// Minutes a page.
pub(crate) const PAGE: i64 = 1_000;

pub(crate) fn run(task: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match task {
        "tokens" => runtime.block_on(tokens()),
        "backfill" => runtime.block_on(backfill()),
        other => panic!("there is no task {other}"),
    }
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> u64 {
    var(name).parse().unwrap()
}

/// Thirty-two who send as fast as they may, so many requests together; when each left is written down.
async fn tokens() {
    let store = super::open(&var("CATCHMENT_CHILD_STORE")).await;
    let (limit, period_ms) = (number("CHILD_LIMIT") as u32, number("CHILD_PERIOD_MS"));
    let to_send = Arc::new(Semaphore::new(number("CHILD_REQUESTS") as usize));
    let limits =
        Limits::new([Family::top("all").limit(limit, Duration::from_millis(period_ms))], 1.0).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let settings = BudgetSettings { requests_max: 32, ..BudgetSettings::default() };
    let (budget, giving_back) =
        StoreBudget::open(store, binance(), limits.clone(), clock.clone(), settings).await.unwrap();
    let parts = Parts {
        clock: clock.clone(),
        budget: Arc::new(budget),
        limiter: Box::new(|_family, _ceiling| Box::new(Open)),
        notebook: None,
        seed: 1,
    };
    let governor =
        Governor::open("binance", limits, Settings { max_inflight: 64, ..Settings::default() }, parts);
    let all = governor.family("all").unwrap();
    let venue = var("CHILD_VENUE");
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (governor, to_send) = (governor.clone(), to_send.clone());
        let mut line = TcpStream::connect(&venue).await.unwrap();
        line.set_nodelay(true).unwrap();
        senders.spawn(async move {
            let mut left = Vec::new();
            while let Ok(one) = to_send.try_acquire() {
                let permit = governor.acquire(Ask::new(all, Lane::Backfill)).await;
                // Taken before it leaves, so that whoever is held up here shows no later time than the one that was judged.
                let now = super::now();
                if let Ok(flight) = permit.depart() {
                    one.forget();
                    left.push(now);
                    flight.end(Report::status(ask(&mut line).await), []);
                }
            }
            left
        });
    }
    let left = senders.join_all().await;
    drop(governor);
    giving_back.ended().await;
    let mut file = std::io::BufWriter::new(std::fs::File::create(var("CATCHMENT_CHILD_LOG")).unwrap());
    for at in left.into_iter().flatten() {
        writeln!(file, "{}", at.as_micros()).unwrap();
    }
    file.flush().unwrap();
}

/// What time it is at the venue, over a connection that stays open. Gives the status.
async fn ask(line: &mut TcpStream) -> u16 {
    let request = b"GET /binance/rest/api/v3/time HTTP/1.1\r\nhost: venue\r\nuser-agent: jobs-test\r\n\r\n";
    line.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    loop {
        assert!(line.read_buf(&mut answer).await.unwrap() > 0, "the venue hung up");
        let text = std::str::from_utf8(&answer).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse().unwrap() {
            return head[9..12].parse().unwrap();
        }
    }
}

/// Works on whatever is due until it is killed. What it does is written down, a line each.
async fn backfill() {
    let store = super::open(&var("CATCHMENT_CHILD_STORE")).await;
    let path = var("CATCHMENT_CHILD_LOG");
    let log = std::fs::File::options().create(true).append(true).open(path).unwrap();
    let handler = Backfill { log, pages: number("CHILD_PAGES") as i64, pause: number("CHILD_PAUSE_MS") };
    let settings = WorkerSettings {
        name: format!("child-{}", std::process::id()),
        workers: 2,
        lease: LEASE,
        idle: Duration::from_millis(50),
        ..WorkerSettings::default()
    };
    let workers = Arc::new(Workers::new(store, Arc::new(handler), settings));
    workers.run(CancellationToken::new()).await;
}

struct Backfill {
    log: std::fs::File,
    pages: i64,
    /// How long the venue takes.
    pause: u64,
}

impl Backfill {
    /// One write, so that lines do not mix.
    fn note(&self, what: &str, fence: u64, page: u64) {
        let line = format!("{} {what} {fence} {page}\n", super::now().as_millis());
        (&self.log).write_all(line.as_bytes()).unwrap();
    }
}

#[async_trait]
impl JobHandler for Backfill {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        let fence = work.lease().fence;
        loop {
            let mut cursor = work.cursor();
            if cursor.page >= self.pages as u64 {
                return Ok(Done::ForGood);
            }
            let page = cursor.page;
            self.note("fetch", fence, page);
            tokio::time::sleep(Duration::from_millis(self.pause)).await;
            // The fence stands in the prices: whoever wrote them is known.
            let candles = some_candles(page as i64 * PAGE, PAGE, fence as u32);
            cursor.page += 1;
            cursor.last_ts = minute_at((page as i64 + 1) * PAGE - 1);
            debug_assert_eq!(work.job().timeframe, Some(Timeframe::M1));
            self.note("try", fence, page);
            match work.save(cursor, &candles, &[]).await {
                Ok(()) => self.note("saved", fence, page),
                Err(RunError::Store(error @ StoreError::Stale { .. })) => {
                    self.note("refused", fence, page);
                    return Err(error.into());
                }
                Err(error) => {
                    self.note("failed", fence, page);
                    return Err(error);
                }
            }
        }
    }
}
