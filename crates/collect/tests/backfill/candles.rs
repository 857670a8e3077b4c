//! Candles, as they should come.

use std::collections::BTreeSet;

use catchment_jobs::{Cursor, JobType, Span, State, Status};

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
    assert_eq!(holes, [Span { from: at(since), to: coverage.first }]);
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
    let job = ended.last().unwrap();
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

/// Each missing range becomes one job, one after the other; what the venue has not is a hole, and never asked for again.
#[tokio::test]
async fn missing_candles_become_jobs_and_holes_are_asked_for_once() {
    let now = this_minute().get();
    let since = now - 400 * MINUTE;
    let out = |from: i64, to: i64| (now - from * MINUTE, now - to * MINUTE);
    let (first, second) = (out(300, 290), out(200, 195));
    let sim = [
        ("binance.candles.since_ms", since.to_string()),
        ("binance.candles.outages", format!("[[{},{}],[{},{}]]", first.0, first.1, second.0, second.1)),
    ];
    let rig = Rig::new("binance", &sim).await;
    rig.add(JobType::OhlcvBackfill, "BTC/USDT", Cursor::over(at(since), None)).await;
    let ended = rig.work().await;
    let kinds: Vec<JobType> = ended.iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobType::OhlcvBackfill, JobType::GapBackfill, JobType::GapBackfill]);
    let spans: Vec<(i64, i64)> = ended[1..]
        .iter()
        .map(|job| (job.cursor.since_ms.get(), job.cursor.until_ms.unwrap().get()))
        .collect();
    assert_eq!(spans, [first, second]);
    assert!(ended[1..].iter().all(|job| job.priority < ended[0].priority), "a gap goes first");
    let holes = rig.store.holes(&rig.series("BTC/USDT")).await.unwrap();
    assert_eq!(holes.len(), 2);
    assert_eq!(rig.missing("BTC/USDT", at(since)).await, []);
    assert_eq!(rig.requests("rest/klines"), 3);
    assert_eq!(rig.work().await, [], "nobody asks again");
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
