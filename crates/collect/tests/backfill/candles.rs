//! Candles, as they should come.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use catchment_collect::Backfill;
use catchment_jobs::{
    Cursor, Done, Hole, Job, JobFilter, JobHandler, JobType, Page, RunError, Span, State, Status, Turn, Work,
    WorkerSettings, Workers,
};

use crate::rig::{MINUTE, Rig, at, this_minute};

/// All candles of a stretch are there, once each, and none that had not closed.
async fn whole_history(id: &'static str, symbol: &str, pages: u64) {
    let since = this_minute().get() - 995 * MINUTE;
    let rig = Rig::new(id, &[(&format!("{id}.candles.since_ms"), since.to_string())]).await;
    rig.add(JobType::OhlcvBackfill, symbol, Cursor::over(at(since), None)).await;
    let ended = rig.work().await;
    let job = ended.last().unwrap();
    assert_eq!((job.state, job.status, job.cursor.done), (State::Success, Status::Paused, true), "{job:?}");
    assert_eq!(job.cursor.page, pages, "{id}");
    assert_eq!(rig.missing(symbol, at(since)).await, [], "{id}");
    let span = Span::new(at(since), at(this_minute().get() + MINUTE)).unwrap();
    let candles = rig.store.candles(&rig.series(symbol), span, 10_000).await.unwrap();
    assert!((994..=997).contains(&candles.len()), "{id} has {}", candles.len());
    let opens: BTreeSet<i64> = candles.iter().map(|candle| candle.open_time.get()).collect();
    assert_eq!(opens.len(), candles.len());
    assert!(*opens.last().unwrap() < this_minute().get(), "{id}: the open minute was stored");
    assert!(candles.iter().all(|candle| candle.is_final));
}

#[tokio::test]
async fn binance_gives_its_history_by_the_thousand() {
    whole_history("binance", "BTC/USDT", 1).await;
}

#[tokio::test]
async fn coinbase_gives_its_history_by_three_hundreds() {
    whole_history("coinbase", "BTC/USD", 4).await;
}

#[tokio::test]
async fn okx_gives_its_history_by_three_hundreds() {
    whole_history("okx", "BTC/USDT", 4).await;
}

#[tokio::test]
async fn bybit_gives_its_history_by_the_thousand() {
    whole_history("bybit", "BTC/USDT", 1).await;
}

#[tokio::test]
async fn what_kraken_will_never_give_is_said_and_not_asked_for_again() {
    let since = this_minute().get() - 1_000 * MINUTE;
    let rig = Rig::new("kraken", &[("kraken.candles.since_ms", since.to_string())]).await;
    rig.add(JobType::OhlcvBackfill, "BTC/USD", Cursor::over(at(since), None)).await;
    let ended = rig.work().await;
    assert_eq!(ended.last().unwrap().state, State::Success);
    let series = rig.series("BTC/USD");
    let coverage = rig.store.coverage(&series).await.unwrap().unwrap();
    assert!((719..=721).contains(&coverage.candles), "{coverage:?}");
    let holes = rig.store.holes(&series).await.unwrap();
    assert_eq!(
        holes,
        [Hole::unreachable(Span { from: at(since), to: coverage.first })],
        "it is not said that there were none"
    );
    assert_eq!(rig.missing("BTC/USD", at(since)).await, []);
    assert_eq!((rig.backfill.counts().unreachable, rig.backfill.counts().gaps_planned), (1, 0));
    assert_eq!(rig.requests("rest/OHLC"), 1);
}

/// Without a beginning, the first there is is looked for.
#[tokio::test]
async fn history_reaches_the_earliest_there_is() {
    let since = this_minute().get() - 3_000 * MINUTE;
    let rig = Rig::new("binance", &[("binance.candles.since_ms", since.to_string())]).await;
    rig.add(JobType::OhlcvBackfill, "ETH/USDT", Cursor::default()).await;
    let ended = rig.work().await;
    // The minute may turn meanwhile, and what it leaves out is another job.
    let job = ended.iter().find(|job| job.kind == JobType::OhlcvBackfill).unwrap();
    assert_eq!(job.state, State::Success);
    let coverage = rig.store.coverage(&rig.series("ETH/USDT")).await.unwrap().unwrap();
    assert_eq!(coverage.first, at(since));
    // A request by the month, one by the day, and a few pages.
    assert!(rig.requests("rest/klines") <= 8, "{} requests", rig.requests("rest/klines"));
}

#[tokio::test]
async fn what_was_not_traded_is_no_gap_where_venues_leave_it_out() {
    let since = this_minute().get() - 600 * MINUTE;
    let sim =
        [("coinbase.candles.since_ms", since.to_string()), ("coinbase.candles.untraded", "0.2".to_owned())];
    let rig = Rig::new("coinbase", &sim).await;
    rig.add(JobType::OhlcvBackfill, "BTC/USD", Cursor::over(at(since), None)).await;
    rig.work().await;
    let series = rig.series("BTC/USD");
    let coverage = rig.store.coverage(&series).await.unwrap().unwrap();
    assert!((400..560).contains(&coverage.candles), "{coverage:?}");
    assert!(rig.store.holes(&series).await.unwrap().len() > 50);
    assert_eq!(rig.missing("BTC/USD", at(since)).await, []);
    assert_eq!(rig.backfill.counts().gaps_planned, 0);
}

/// An exchange that was out twice.
async fn with_outages() -> (Rig, i64, [(i64, i64); 2]) {
    let now = this_minute().get();
    let since = now - 400 * MINUTE;
    let out = |from: i64, to: i64| (now - from * MINUTE, now - to * MINUTE);
    let (first, second) = (out(300, 290), out(200, 195));
    let sim = [
        ("binance.candles.since_ms", since.to_string()),
        ("binance.candles.outages", format!("[[{},{}],[{},{}]]", first.0, first.1, second.0, second.1)),
    ];
    (Rig::new("binance", &sim).await, since, [first, second])
}

fn bounds(job: &Job) -> (i64, i64) {
    (job.cursor.since_ms.get(), job.cursor.until_ms.unwrap().get())
}

/// Each missing range becomes one job, one after the other; what the venue has not, twice, is a hole, and never asked for
/// again.
#[tokio::test]
async fn missing_candles_become_jobs_and_holes_are_believed_when_they_are_seen_twice() {
    let (rig, since, outages) = with_outages().await;
    let series = rig.series("BTC/USDT");
    rig.add(JobType::OhlcvBackfill, "BTC/USDT", Cursor::over(at(since), None)).await;
    let history = rig.turn().await;
    assert_eq!((history.kind, history.state), (JobType::OhlcvBackfill, State::Success));
    for (at, outage) in outages.into_iter().enumerate() {
        let doubted = rig.turn().await;
        assert_eq!((doubted.kind, doubted.state), (JobType::GapBackfill, State::Failed));
        assert_eq!(bounds(&doubted), outage);
        assert!(doubted.priority < history.priority, "a gap goes first");
        let said = doubted.stats.last_error.unwrap();
        assert!(said.contains("asked once more before that is believed"), "{said}");
        assert!(doubted.next_run_at.get() - doubted.updated_at.get() >= 120_000, "not at once");
        assert_eq!(rig.store.holes(&series).await.unwrap().len(), at, "one empty answer makes no hole");
        rig.store.run_job_now(doubted.id).await.unwrap();
        let believed = rig.turn().await;
        assert_eq!((believed.id, believed.state), (doubted.id, State::Success));
    }
    let hole = |(from, to): (i64, i64)| Hole::absent(Span { from: at(from), to: at(to) });
    assert_eq!(rig.store.holes(&series).await.unwrap(), outages.map(hole));
    assert_eq!(rig.missing("BTC/USDT", at(since)).await, []);
    assert_eq!(rig.requests("rest/klines"), 5);
    assert_eq!(rig.work().await, [], "nobody asks again");
}

/// A process that dies whenever it has written down that a run is over.
struct DiesAfter(Arc<Backfill>);

#[async_trait]
impl JobHandler for DiesAfter {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        self.0.run(work).await
    }
}

#[tokio::test]
async fn what_died_with_its_process_is_found_by_the_next_that_begins() {
    let (rig, since, [first, second]) = with_outages().await;
    let dying =
        Workers::new(rig.store.clone(), Arc::new(DiesAfter(rig.backfill.clone())), WorkerSettings::default());
    let turn = async || match dying.turn().await.unwrap() {
        Turn::Worked(Some(job)) => *job,
        other => panic!("{other:?}"),
    };
    let gaps = async || {
        let filter = JobFilter { kind: Some(JobType::GapBackfill), ..JobFilter::default() };
        let found = rig.store.jobs(&filter, Page::first(10)).await.unwrap();
        found.iter().map(bounds).collect::<Vec<_>>()
    };
    rig.add(JobType::OhlcvBackfill, "BTC/USDT", Cursor::over(at(since), None)).await;
    assert_eq!(turn().await.state, State::Success);
    assert_eq!(gaps().await, [], "it died before it looked");
    rig.workers.look_over().await;
    assert_eq!(gaps().await, [first]);
    rig.workers.look_over().await;
    assert_eq!(gaps().await, [first], "however many look");
    let doubted = turn().await;
    rig.store.run_job_now(doubted.id).await.unwrap();
    assert_eq!(turn().await.state, State::Success);
    assert_eq!(gaps().await, [first], "and again: the next stretch is not planned");
    rig.workers.look_over().await;
    assert_eq!(gaps().await, [first, second]);
}

#[tokio::test]
async fn what_is_new_follows_what_is_there_and_finds_what_is_missing() {
    let rig = Rig::new("okx", &[]).await;
    let job = rig.add(JobType::OhlcvIncremental, "BTC/USDT", Cursor::default()).await;
    let ended = rig.turn().await;
    assert_eq!((ended.state, ended.id), (State::Idle, job.id));
    let series = rig.series("BTC/USDT");
    let coverage = rig.store.coverage(&series).await.unwrap().unwrap();
    assert!((299..=301).contains(&coverage.candles), "{coverage:?}");
    assert_eq!(ended.cursor.last_ts, coverage.last);
    // By the cadence of the candles, give or take a twentieth.
    let wait = ended.next_run_at.get() - ended.updated_at.get();
    assert!((57_000..=63_000).contains(&wait), "{wait} ms");
    // Nothing new: nothing is asked for.
    rig.store.run_job_now(job.id).await.unwrap();
    let before = rig.requests("rest/history-candles");
    let again = rig.turn().await;
    assert!(rig.requests("rest/history-candles") <= before + 1);
    assert!(again.cursor.last_ts >= ended.cursor.last_ts);
}
