//! Claims in MongoDB by the index that serves their order, beside S2's scheduling index. PERF goal 13, second half.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_jobs::{Claim, Connectors, JobType, Jobs, MongoSettings, MongoStore, NewConnector, NewJob};
use catchment_model::{Timeframe, Venue};
use catchment_sinks::mongo::Mongod;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, CollectionOptions, Hint, WriteConcern};
use mongodb::{Client, Collection};

use crate::machine::Stopwatch;
use crate::{BenchArgs, Duel, Goal, Report};

const JOBS: i64 = 100_000;
const FAR_MS: i64 = 4_000_000_000_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let own = if args.url.is_none() { Some(Mongod::start(scratch.path(), &[])?) } else { None };
    let address = |server: &Mongod| format!("mongodb://127.0.0.1:{}/?directConnection=true", server.port());
    let url = own.as_ref().map(address).or_else(|| args.url.clone()).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (store, jobs) = runtime.block_on(fill(&url))?;
    let mut ours = || runtime.block_on(by_our_index(&store));
    let mut theirs = || runtime.block_on(by_the_seeds_index(&jobs));
    report.duel(
        args.rounds(),
        Duel {
            what: "claims in MongoDB, 100,000 jobs of which half are due, one worker",
            unit: "claims/s",
            ours: ("priority, then time", &mut ours),
            theirs: ("S2's index: time, then priority", &mut theirs),
            goal: Goal::AtLeast(50.0),
        },
    )
}

async fn fill(url: &str) -> anyhow::Result<(Arc<MongoStore>, Collection<Document>)> {
    let database = Client::with_uri_str(url).await.context("--url")?.database("catchment_bench");
    database.drop().await?;
    let settings = MongoSettings { database: "catchment_bench".to_owned(), ..MongoSettings::default() };
    let store = MongoStore::open(url, &settings).await?;
    let venue = Venue::new("binance")?;
    store.ensure_connector(&NewConnector::new(venue)).await?;
    store.add_job(&NewJob::candles(venue, JobType::OhlcvIncremental, "FIRST", Timeframe::H1)).await?;
    // As durable as ours.
    let concern = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let options = CollectionOptions::builder().write_concern(concern).build();
    let jobs = database.collection_with_options::<Document>("jobs", options);
    let one = jobs.find_one(doc! {}).await?.context("a job was added")?;
    let now = mongodb::bson::DateTime::now().timestamp_millis();
    for first in (0..JOBS).step_by(5_000) {
        let job = |n: i64| {
            let due = if n % 2 == 0 { now - 1_000_000 + n } else { FAR_MS + n };
            let mut job = one.clone();
            job.insert("_id", ObjectId::new());
            job.insert("symbol", format!("SYMBOL{n}/USDT"));
            job.insert("priority", (10 * (1 + n % 7)) as i32);
            job.insert("next_run_at", due);
            job.insert("due_at", due);
            job
        };
        jobs.insert_many((first..first + 5_000).map(job)).await?;
    }
    Ok((Arc::new(store), jobs))
}

async fn by_our_index(store: &MongoStore) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let mut claims = 0;
    let ask = Claim { worker: "bench", lease: Duration::from_secs(3_600), cap: None, only: None };
    while watch.seconds() < 0.6 {
        store.claim(&ask).await?.job().context("a job is due")?;
        claims += 1;
    }
    Ok(f64::from(claims) / watch.seconds())
}

/// S2 §5.1 as it is written.
async fn by_the_seeds_index(jobs: &Collection<Document>) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    let mut claims = 0;
    while watch.seconds() < 0.6 {
        let now = mongodb::bson::DateTime::now().timestamp_millis();
        let due = doc! { "status": "active", "state": { "$in": ["idle", "queued", "waiting_rate_limit"] },
        "next_run_at": { "$lte": now } };
        let lock = doc! { "$set": { "state": "running", "lock.locked_by": "bench", "lock.lock_until": now + 3_600_000,
        "due_at": now + 3_600_000 } };
        let claim = jobs
            .find_one_and_update(due, lock)
            .sort(doc! { "priority": 1, "next_run_at": 1 })
            .hint(Hint::Name("status_1_state_1_next_run_at_1_priority_1".to_owned()));
        claim.await?.context("a job is due")?;
        claims += 1;
    }
    Ok(f64::from(claims) / watch.seconds())
}
