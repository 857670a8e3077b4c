//! Trades that a stream has missed, and listings.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use catchment_collect::{Backfill, GapNotice, backfill_gaps};
use catchment_jobs::{
    Cursor, Done, JobFilter, JobHandler, JobType, NewJob, Page, RunError, State, Turn, Work, WorkerSettings,
    Workers,
};
use catchment_model::{Cause, Clock, Gap, SystemClock};
use catchment_pipeline::{Delivery, Pipeline, PipelineConfig, Sink, Spool, SpoolConfig};
use catchment_sinks::MemorySink;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, at, this_minute};

struct Recording {
    pipeline: Pipeline,
    sink: Arc<MemorySink>,
}

impl Recording {
    fn start() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let sink = Arc::new(MemorySink::new("memory"));
        let delivery = Delivery { batch_age: Duration::from_millis(1), ..Delivery::default() };
        let sinks = vec![(Arc::clone(&sink) as Arc<dyn Sink>, delivery)];
        let spool = Spool::in_memory(SpoolConfig::at("unused"), 7);
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock).unwrap();
        Self { pipeline, sink }
    }

    async fn lines(self) -> Vec<Value> {
        self.pipeline.close(Duration::from_secs(10)).await.unwrap();
        self.sink.lines().iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

async fn fetched(id: &'static str, symbol: &str, channel: &str) {
    let recording = Recording::start();
    let sim = [(&*format!("{id}.pairs.trades_per_s"), "50".to_owned())];
    let rig = Rig::with(id, &sim, Some(recording.pipeline.intake())).await;
    // Trades happen from the simulation's start on; some are made up for at the first look.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let since = at(this_minute().get() - 600_000);
    let cursor = Cursor::over(since, Some(at(this_minute().get() + 120_000)));
    let new = NewJob {
        symbol: Some(symbol.to_owned()),
        cursor,
        ..NewJob::new(rig.venue(), JobType::TradesBackfill)
    };
    rig.store.add_job(&new).await.unwrap();
    let ended = rig.work().await;
    assert_eq!(ended.last().unwrap().state, State::Success, "{ended:?}");
    let lines = recording.lines().await;
    assert!(!lines.is_empty(), "{id} gave no trades");
    assert_eq!(rig.backfill.counts().trades, lines.len() as u64);
    for line in &lines {
        assert_eq!((line["channel"].as_str(), line["symbol"].as_str()), (Some(channel), Some(symbol)));
        assert!(line["source"].as_str().unwrap().starts_with("backfill:"), "{line}");
        assert!(line["message_id"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn binance_has_aggregated_trades_of_the_past() {
    fetched("binance", "BTC/USDT", "agg_trades").await;
}

#[tokio::test]
async fn kraken_has_trades_of_the_past() {
    fetched("kraken", "BTC/USD", "trades").await;
}

#[tokio::test]
async fn coinbase_has_trades_of_the_past() {
    fetched("coinbase", "BTC/USD", "trades").await;
}

#[tokio::test]
async fn okx_has_trades_of_the_past() {
    fetched("okx", "BTC/USDT", "trades").await;
}

/// Somebody takes the job away while a page is on its way.
struct Overtaken(Arc<Backfill>);

#[async_trait]
impl JobHandler for Overtaken {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        work.store().delete_job(work.job().id).await?;
        self.0.run(work).await
    }
}

#[tokio::test]
async fn one_that_was_taken_over_records_nothing() {
    let recording = Recording::start();
    let sim = [("binance.pairs.trades_per_s", "50".to_owned())];
    let rig = Rig::with("binance", &sim, Some(recording.pipeline.intake())).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let cursor = Cursor::over(at(this_minute().get() - 600_000), Some(at(this_minute().get() + 120_000)));
    let new = NewJob {
        symbol: Some("BTC/USDT".to_owned()),
        cursor,
        ..NewJob::new(rig.venue(), JobType::TradesBackfill)
    };
    rig.store.add_job(&new).await.unwrap();
    let overtaken = Arc::new(Overtaken(rig.backfill.clone()));
    let workers = Workers::new(rig.store.clone(), overtaken, WorkerSettings::default());
    assert_eq!(workers.turn().await.unwrap(), Turn::Worked(None), "its lease is lost");
    assert!(rig.requests("rest/aggTrades") > 0, "a page came");
    assert_eq!(recording.lines().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_gap_of_a_stream_becomes_a_job() {
    let rig = Rig::new("kraken", &[]).await;
    let (tell, told) = mpsc::channel(8);
    let stop = CancellationToken::new();
    let gap = |channel: &str, from: i64, to: i64| GapNotice {
        venue: rig.venue(),
        symbol: "BTC/USD".to_owned(),
        gap: Gap::new(channel, at(from), at(to), Cause::Disconnect),
    };
    let running = tokio::spawn(backfill_gaps(Arc::clone(&rig.store), told, stop.clone()));
    tell.send(gap("trades", 1_000_000, 2_000_000)).await.unwrap();
    tell.send(gap("ticker", 1_000_000, 2_000_000)).await.unwrap();
    drop(tell);
    running.await.unwrap();
    let jobs = rig.store.jobs(&JobFilter::default(), Page::first(10)).await.unwrap();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.kind, job.symbol.as_deref()), (JobType::TradesBackfill, Some("BTC/USD")));
    assert_eq!((job.cursor.since_ms, job.cursor.until_ms), (at(998_000), Some(at(2_002_000))));
}

#[tokio::test]
async fn listings_are_written_down_when_they_change() {
    for id in ["binance", "coinbase", "kraken", "okx", "bybit"] {
        let recording = Recording::start();
        let rig = Rig::with(id, &[], Some(recording.pipeline.intake())).await;
        let new = NewJob::new(rig.venue(), JobType::MarketsRefresh);
        let job = rig.store.add_job(&new).await.unwrap();
        assert_eq!(rig.turn().await.state, State::Idle, "{id}");
        rig.store.run_job_now(job.id).await.unwrap();
        assert_eq!(rig.turn().await.state, State::Idle, "{id}");
        let lines = recording.lines().await;
        assert_eq!(lines.len(), 1, "{id}: the same listing is written once");
        let markets = lines[0]["payload"]["markets"].as_array().unwrap();
        assert_eq!(markets.len(), 40, "{id}");
        assert_eq!(rig.store.is_listed(rig.venue(), "BTC/USD").await.unwrap(), Some(true), "{id}");
        assert_eq!(rig.store.is_listed(rig.venue(), "FOO/BAR").await.unwrap(), Some(false), "{id}");
        assert!(
            markets.iter().any(|market| market["symbol"] == "BTC/USD" && market["active"] == true),
            "{id}"
        );
        assert!(lines[0]["payload"]["timeframes"].as_array().unwrap().iter().any(|name| name == "1m"));
    }
}
