//! Tokens of a shared budget in MongoDB as whoever sends gets them, beside S2's two attempts for each. PERF goal 14.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use catchment_governor::{Ask, Family, Governor, Lane, Limits, Open, Parts, Report, Settings};
use catchment_jobs::{
    BudgetSettings, Connectors, MongoSettings, MongoStore, NewConnector, RateLimit, StoreBudget, TokenAsk,
    Tokens,
};
use catchment_model::{SystemClock, Venue};
use catchment_sinks::mongo::Mongod;
use mongodb::bson::{Document, doc};
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};

use crate::machine::Stopwatch;
use crate::{BenchArgs, Duel, Goal, Report as Results};

/// How long a round lasts.
const SECONDS: f64 = 0.6;
/// More than a round can use.
const PLENTY: RateLimit = RateLimit { limit: 50_000_000, period_ms: 10_000 };

pub(crate) fn run(args: &BenchArgs, report: &mut Results) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let own = if args.url.is_none() { Some(Mongod::start(scratch.path(), &[])?) } else { None };
    let address = |server: &Mongod| format!("mongodb://127.0.0.1:{}/?directConnection=true", server.port());
    let url = own.as_ref().map(address).or_else(|| args.url.clone()).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (store, plain) = runtime.block_on(async {
        let settings = MongoSettings { database: "catchment_bench".to_owned(), ..MongoSettings::default() };
        let client = Client::with_uri_str(&url).await.context("--url")?;
        let database = client.database("catchment_bench");
        database.drop().await?;
        let store = MongoStore::open(&url, &settings).await?;
        let options =
            mongodb::options::CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
        let plain: Collection<Document> = database.collection_with_options("two_attempts", options);
        plain
            .insert_one(doc! { "exchange_id": "binance", "rate_limit": i64::from(PLENTY.limit),
            "rate_limit_usage": 0_i64, "rate_limit_reset_at": 0_i64 })
            .await?;
        anyhow::Ok((Arc::new(store), plain))
    })?;
    let exchange = Venue::new("binance")?;
    runtime.block_on(store.ensure_connector(&NewConnector {
        exchange_id: exchange,
        rate: PLENTY,
        max_concurrent_jobs: None,
    }))?;
    for callers in [1, 16, 64] {
        let mut ours = || runtime.block_on(by_permits(&store, exchange, callers));
        let mut theirs = || runtime.block_on(two_attempts(&plain, callers));
        report.duel(
            args.rounds(),
            Duel {
                what: &format!("tokens, {callers} callers"),
                unit: "tokens/s",
                ours: ("permits, several a trip, every interval watched", &mut ours),
                theirs: ("two attempts for each, a fixed window", &mut theirs),
                goal: Goal::AtLeast(10.0),
            },
        )?;
    }
    let granted = runtime.block_on(exactly(&store))?;
    report.note(
        "grants of a budget of 500 to 64 callers, 20 tries each",
        "tokens",
        ("granted", "budget"),
        &[(f64::from(granted), 500.0)],
        Goal::AtMost(1.0),
    );
    anyhow::ensure!(granted == 500, "{granted} of 500 tokens were granted");
    Ok(())
}

/// The way a poller or a job goes: a permit of the governor, whose budget is the store.
async fn by_permits(store: &Arc<MongoStore>, exchange: Venue, callers: usize) -> anyhow::Result<f64> {
    let family = Family::top("all").limit(PLENTY.limit, Duration::from_millis(PLENTY.period_ms));
    let limits = Limits::new([family], 1.0)?;
    let clock = Arc::new(SystemClock::new());
    let settings = BudgetSettings::default();
    let (budget, giving_back) =
        StoreBudget::open(store.clone(), exchange, limits.clone(), clock.clone(), settings).await?;
    let parts = Parts {
        clock,
        budget: Arc::new(budget),
        limiter: Box::new(|_, _| Box::new(Open)),
        notebook: None,
        seed: 1,
    };
    let governor = Governor::open(
        exchange.as_str(),
        limits,
        Settings { max_inflight: 128, ..Settings::default() },
        parts,
    );
    let family = governor.family("all").context("it is declared above")?;
    let watch = Stopwatch::start();
    let mut calling = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let governor = governor.clone();
        calling.spawn(async move {
            let (watch, mut tokens) = (Stopwatch::start(), 0_u64);
            while watch.seconds() < SECONDS {
                let permit = governor.acquire(Ask::new(family, Lane::Backfill)).await;
                if let Ok(flight) = permit.depart() {
                    flight.end(Report::status(200), []);
                    tokens += 1;
                }
            }
            tokens
        });
    }
    let tokens: u64 = calling.join_all().await.into_iter().sum();
    let rate = tokens as f64 / watch.seconds();
    drop(governor);
    giving_back.ended().await;
    Ok(rate)
}

/// S2 §4.2 as it is written.
async fn two_attempts(connectors: &Collection<Document>, callers: usize) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let mut calling = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let connectors = connectors.clone();
        calling.spawn(async move {
            let (watch, mut tokens) = (Stopwatch::start(), 0_u64);
            while watch.seconds() < SECONDS {
                let now = mongodb::bson::DateTime::now().timestamp_millis();
                let over = doc! { "exchange_id": "binance", "rate_limit_reset_at": { "$lte": now } };
                let anew = doc! { "$set": { "rate_limit_window_start": now, "rate_limit_usage": 1_i64,
                "rate_limit_reset_at": now + PLENTY.period_ms as i64 } };
                if connectors.find_one_and_update(over, anew).await?.is_none() {
                    let room = doc! { "exchange_id": "binance", "rate_limit_reset_at": { "$gt": now },
                    "rate_limit_usage": { "$lt": i64::from(PLENTY.limit) } };
                    let more = doc! { "$inc": { "rate_limit_usage": 1_i64 } };
                    let got = connectors.find_one_and_update(room, more).await?;
                    anyhow::ensure!(got.is_some(), "none of plenty");
                }
                tokens += 1;
            }
            anyhow::Ok(tokens)
        });
    }
    let mut tokens = 0;
    for taken in calling.join_all().await {
        tokens += taken?;
    }
    Ok(tokens as f64 / watch.seconds())
}

async fn exactly(store: &Arc<MongoStore>) -> anyhow::Result<u32> {
    let exchange = Venue::new("exact")?;
    let rate = RateLimit::new(500, Duration::from_secs(3_600));
    store.ensure_connector(&NewConnector { exchange_id: exchange, rate, max_concurrent_jobs: None }).await?;
    let granted = Arc::new(AtomicU32::new(0));
    let mut calling = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (store, granted) = (store.clone(), granted.clone());
        calling.spawn(async move {
            for _ in 0..20 {
                if let Tokens::Granted(grant) = store.take_tokens(&TokenAsk::one(exchange)).await? {
                    granted.fetch_add(grant.requests, Ordering::Relaxed);
                }
            }
            anyhow::Ok(())
        });
    }
    for ended in calling.join_all().await {
        ended?;
    }
    Ok(granted.load(Ordering::Relaxed))
}
