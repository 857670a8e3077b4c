//! The server killed, stopped, away and stepping down, with the sink by itself and behind a pipeline.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{RecordId, SystemClock};
use catchment_pipeline::{
    Batch, Delivery, Monitor, Pipeline, PipelineConfig, RealDisk, Sink, SinkError, SinkState, Spool,
    SpoolConfig,
};
use catchment_sinks::conformance::{self, NOON_MS, Shelf, batch, plain};
use catchment_sinks::mongo::{MongoConfig, MongoSink};
use mongodb::bson::doc;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::cellar::{Cellar, Rack};

/// Waits for something that other processes do; the run's own time limit ends it if they do not.
async fn until(what: impl AsyncFn() -> bool) {
    while !what().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mongod_has_kept_all_it_acknowledged_and_nothing_is_doubled() {
    const BATCH: u64 = 500;
    let mut cellar = Cellar::alone();
    let rack = cellar.rack("records").await;
    let sink = rack.open();
    let mut acknowledged = 0;
    for round in 1..=4 {
        // Writes until the server is gone.
        let (told, mut told_of) = watch::channel(acknowledged);
        let (writing, first) = (Arc::clone(&sink), acknowledged + 1);
        let writer = tokio::spawn(async move {
            let mut next = first;
            while writing.write(&batch(next, BATCH)).await.is_ok() {
                next += BATCH;
                told.send_replace(next - 1);
            }
        });
        let enough = acknowledged + BATCH * round;
        told_of.wait_for(|last| *last >= enough).await.unwrap();
        cellar.server.kill();
        writer.await.unwrap();
        acknowledged = *told_of.borrow();
        cellar.server.start_again().unwrap();
        let seqs = rack.seqs().await;
        let kept = seqs.iter().take_while(|seq| **seq <= acknowledged).count() as u64;
        assert_eq!(kept, acknowledged, "acknowledged and lost, round {round}");
        // The batch that was under way comes again, whatever of it is there.
        until(async || sink.write(&batch(acknowledged + 1, BATCH)).await.is_ok()).await;
        acknowledged += BATCH;
    }
    assert_eq!(rack.seqs().await, (1..=acknowledged).collect::<Vec<u64>>());
    for record in batch(acknowledged - BATCH + 1, BATCH).iter().step_by(50) {
        assert_eq!(rack.line(record.id()).await.as_deref(), Some(record.line()));
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_no_longer_than_said() {
    let cellar = Cellar::alone();
    let within = Duration::from_millis(400);
    let config = MongoConfig { answer_within: within, ..cellar.config("records") };
    let sink = MongoSink::new(config);
    sink.write(&batch(1, 10)).await.unwrap();
    let pid = rustix::process::Pid::from_raw(cellar.server.pid().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let error = sink.write(&batch(11, 10)).await.unwrap_err();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let SinkError::Unreachable { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.to_string(), "MongoDB did not answer within 400ms");
    until(async || sink.write(&batch(11, 10)).await.is_ok()).await;
    assert_eq!(cellar.rack("records").await.seqs().await, (1..=20).collect::<Vec<u64>>());
}

/// A pipeline in front of the collection, quick to despair.
struct House {
    pipeline: Pipeline,
    monitor: Monitor,
    dir: TempDir,
}

impl House {
    fn open(rack: &Rack) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(SpoolConfig::at(dir.path()), Arc::new(RealDisk::private()), 7).unwrap();
        let delivery = Delivery {
            batch_records: 1_000,
            batch_age: Duration::from_millis(10),
            retries_max: 1,
            retry_base: Duration::from_millis(10),
            retry_cap: Duration::from_millis(100),
            degraded_after: 2,
            ..Delivery::default()
        };
        let sinks = vec![(rack.open(), delivery)];
        let clock = Arc::new(SystemClock::new());
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock).unwrap();
        let monitor = pipeline.monitor();
        Self { pipeline, monitor, dir }
    }

    async fn accept(&self, records: u64) -> Vec<RecordId> {
        let mut draft = self.pipeline.intake().draft();
        for n in 0..records {
            draft.push(&plain("okx", "trades", NOON_MS + n as i64)).unwrap();
        }
        self.pipeline.intake().accept(draft).await.unwrap().ids().collect()
    }

    async fn until_it_is(&self, state: SinkState) {
        until(async || self.monitor.health().sinks[0].state == state).await;
    }

    /// Waits for everything to arrive, without closing anything.
    async fn until_all_is_out(&self) {
        until(async || self.monitor.books().balances().iter().all(|line| line.pending == 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_records_of_an_outage_arrive_when_it_ends_without_a_restart() {
    let mut cellar = Cellar::alone();
    let rack = cellar.rack("records").await;
    let house = House::open(&rack);
    let mut ids = house.accept(10).await;
    house.until_all_is_out().await;
    cellar.server.kill();
    ids.extend(house.accept(100).await);
    house.until_it_is(SinkState::Unreachable).await;
    house.until_it_is(SinkState::Degraded).await;
    let errors = house.monitor.books().write_errors("mongo", "okx");
    assert!(errors >= 4, "{errors} failed tries are counted");
    cellar.server.start_again().unwrap();
    house.until_all_is_out().await;
    house.until_it_is(SinkState::Ok).await;
    assert_eq!(rack.ids().await, ids);
    let books = house.pipeline.close(Duration::from_secs(10)).await.unwrap();
    assert_eq!(books.balances()[0].written, 110);
    drop(house.dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_at_the_start_is_found_later() {
    let mut cellar = Cellar::alone();
    let rack = cellar.rack("records").await;
    cellar.server.kill();
    let house = House::open(&rack);
    let ids = house.accept(100).await;
    house.until_it_is(SinkState::Unreachable).await;
    cellar.server.start_again().unwrap();
    house.until_all_is_out().await;
    assert_eq!(rack.ids().await, ids);
    assert!(rack.collection.list_index_names().await.unwrap().contains(&"stream_and_time".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_steps_down_loses_and_doubles_nothing() {
    let cellar = Cellar::replica_set().await;
    let rack = cellar.rack("records").await;
    let house = House::open(&rack);
    let admin = cellar.client("directConnection=true").await.database("admin");
    let mut ids = Vec::new();
    for _ in 0..2 {
        for _ in 0..20 {
            ids.extend(house.accept(100).await);
        }
        admin.run_command(doc! { "replSetStepDown": 1, "force": true }).await.unwrap();
        for _ in 0..20 {
            ids.extend(house.accept(100).await);
        }
        house.until_all_is_out().await;
        house.until_it_is(SinkState::Ok).await;
    }
    assert_eq!(rack.ids().await, ids);
}

#[tokio::test]
async fn a_majority_that_is_not_there_is_no_success() {
    let cellar = Cellar::replica_set().await;
    // A second member that does not exist: nothing can reach a majority of two.
    let admin = cellar.client("directConnection=true").await.database("admin");
    let mut config = admin
        .run_command(doc! { "replSetGetConfig": 1 })
        .await
        .unwrap()
        .get_document("config")
        .unwrap()
        .clone();
    let rack = cellar.rack("records").await;
    let impatient = MongoConfig { answer_within: Duration::from_millis(400), ..rack.config.clone() };
    let sink = MongoSink::new(impatient);
    sink.write(&conformance::batch(1, 1)).await.unwrap();
    let members = config.get_array_mut("members").unwrap();
    members.push(doc! { "_id": 1, "host": "127.0.0.1:1" }.into());
    config.insert("version", config.get_i32("version").unwrap() + 1);
    admin.run_command(doc! { "replSetReconfig": config, "force": true }).await.unwrap();
    let error = sink.write(&Batch::of(conformance::spool(), 2, &[plain("okx", "trades", NOON_MS)])).await;
    assert!(matches!(error, Err(SinkError::Unreachable { .. })), "{error:?}");
}
