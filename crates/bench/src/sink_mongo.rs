//! Records to MongoDB a thousand at a time, beside the same records as serde documents. PERF goal 13, first half.
//!
//! The other side is what one writes first: a struct with a `serde_json::Value` in it, given to the driver's
//! `insert_many`. Its values are parsed before the clock starts, which ours are not: it reads its lines as they are.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use catchment_model::{Envelope, SpoolId};
use catchment_pipeline::{Batch, Sink};
use catchment_sinks::mongo::{MongoConfig, MongoSink, MongoUri, Mongod};
use mongodb::bson::doc;
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, Database};
use serde::Serialize;
use serde_json::Value;

use crate::machine::Stopwatch;
use crate::tape::Tape;
use crate::{BenchArgs, Duel, Goal, Report};

const RECORDS: usize = 44_000;
/// Documents in a command, on both sides.
const COMMAND: usize = 1_000;
/// What the pipeline gives the sink at once.
const BATCH: usize = 4_000;

/// The envelope as serde sees it.
#[derive(Debug, Clone, Serialize)]
struct Plain {
    _id: String,
    message_id: Option<String>,
    sequence: Option<i64>,
    exchange: String,
    channel: String,
    symbol: String,
    server_time_ms: Option<i64>,
    received_at_ms: i64,
    payload: Value,
    received_at_ns: i64,
    source: String,
}

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let own = if args.url.is_none() { Some(Mongod::start(scratch.path(), &[])?) } else { None };
    let address = |server: &Mongod| format!("mongodb://127.0.0.1:{}/?directConnection=true", server.port());
    let url = own.as_ref().map(address).or_else(|| args.url.clone()).unwrap_or_default();
    let uri = MongoUri::parse(&url).context("--url")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build()?;
    let database = runtime.block_on(async {
        let client = Client::with_uri_str(&url).await.context("--url")?;
        anyhow::Ok(client.database("catchment_bench"))
    })?;
    let tape = Tape::new(10_000);
    let envelopes: Vec<Envelope<'_>> = (0..RECORDS).map(|at| tape.envelope(at)).collect();
    let batches: Vec<Batch> = envelopes
        .chunks(BATCH)
        .enumerate()
        .map(|(at, part)| Batch::of(SpoolId::new(1), (at * BATCH) as u64 + 1, part))
        .collect();
    let plain: Vec<Plain> =
        batches.iter().flat_map(Batch::iter).zip(&envelopes).map(plain_of).collect::<Result<_, _>>()?;
    let parsing = process_seconds();
    let again: Result<Vec<Plain>, _> =
        batches.iter().flat_map(Batch::iter).zip(&envelopes).map(plain_of).collect();
    again?;
    let parsing = (process_seconds() - parsing) / RECORDS as f64 * 1e6;

    let ours = || runtime.block_on(with_sink(&uri, &database, &batches));
    let theirs = || runtime.block_on(with_values(&database, &plain));
    let counted = (RECORDS - BATCH) as f64;
    let rate = |spent: Spent| counted / spent.wall;
    let work = |spent: Spent| spent.work / counted * 1e6;
    let is = ("the sink, from its lines", "serde Value documents, parsed before");
    report.duel(
        args.rounds(),
        Duel {
            what: "documents a second, journalled on a majority",
            unit: "docs/s",
            ours: (is.0, &mut || ours().map(rate)),
            theirs: (is.1, &mut || theirs().map(rate)),
            goal: Goal::AtLeast(1.15),
        },
    )?;
    report.duel(
        args.rounds(),
        Duel {
            what: "what a document costs the client",
            unit: "us of CPU",
            ours: (is.0, &mut || ours().map(work)),
            theirs: (is.1, &mut || theirs().map(work)),
            goal: Goal::AtMost(0.65),
        },
    )?;
    report.figure("parsing a Value, which is not counted above", parsing, "us of CPU");
    runtime.block_on(async { database.drop().await })?;
    Ok(())
}

fn plain_of((record, envelope): (catchment_pipeline::Record<'_>, &Envelope<'_>)) -> anyhow::Result<Plain> {
    Ok(Plain {
        _id: record.id().to_string(),
        message_id: None,
        sequence: envelope.sequence.map(|sequence| sequence as i64),
        exchange: record.exchange().to_owned(),
        channel: record.channel().to_owned(),
        symbol: envelope.symbol.as_str().to_owned(),
        server_time_ms: envelope.server_time.map(catchment_model::UnixMs::get),
        received_at_ms: envelope.received_at.ms().get(),
        payload: serde_json::from_slice(record.payload())?,
        received_at_ns: envelope.received_at.get(),
        source: envelope.source.as_str().to_owned(),
    })
}

/// Seconds of a round.
#[derive(Debug, Clone, Copy)]
struct Spent {
    wall: f64,
    /// Of this process, all its threads together.
    work: f64,
}

/// A collection nobody has used.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("round{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn with_sink(uri: &MongoUri, database: &Database, batches: &[Batch]) -> anyhow::Result<Spent> {
    let collection = fresh();
    let config = MongoConfig {
        database: database.name().to_owned(),
        collection: collection.clone(),
        ..MongoConfig::new(uri.clone())
    };
    let sink = MongoSink::new(config);
    sink.write(&batches[0]).await?;
    let (watch, worked) = (Stopwatch::start(), process_seconds());
    for batch in &batches[1..] {
        sink.write(batch).await?;
    }
    let spent = Spent { wall: watch.seconds(), work: process_seconds() - worked };
    check_and_drop(database, &collection).await?;
    Ok(spent)
}

async fn with_values(database: &Database, values: &[Plain]) -> anyhow::Result<Spent> {
    let name = fresh();
    let key = doc! { "exchange": 1, "channel": 1, "symbol": 1, "received_at_ms": 1 };
    let index = doc! { "key": key, "name": "stream_and_time" };
    database.run_command(doc! { "createIndexes": &name, "indexes": [index] }).await?;
    let collection = database.collection::<Plain>(&name);
    let concern = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let insert = async |part: &[Plain]| {
        collection.insert_many(part).ordered(false).write_concern(concern.clone()).await
    };
    for part in values[..BATCH].chunks(COMMAND) {
        insert(part).await?;
    }
    let (watch, worked) = (Stopwatch::start(), process_seconds());
    for part in values[BATCH..].chunks(COMMAND) {
        insert(part).await?;
    }
    let spent = Spent { wall: watch.seconds(), work: process_seconds() - worked };
    check_and_drop(database, &name).await?;
    Ok(spent)
}

async fn check_and_drop(database: &Database, name: &str) -> anyhow::Result<()> {
    let collection = database.collection::<mongodb::bson::Document>(name);
    let count = collection.count_documents(doc! {}).await?;
    anyhow::ensure!(count == RECORDS as u64, "{count} documents instead of {RECORDS}");
    Ok(collection.drop().await?)
}

/// Seconds this process has worked, all its threads together.
fn process_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
}
