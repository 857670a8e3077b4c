//! Every sink keeps every promise of `Sink`.

mod shelves;

use std::sync::Arc;

use async_trait::async_trait;
use catchment_model::RecordId;
use catchment_pipeline::Sink;
use catchment_pipeline::disk::sim::SimDisk;
use catchment_sinks::MemorySink;
use catchment_sinks::conformance::{self, Shelf};
use shelves::Bench;

struct Memory(MemorySink);

#[async_trait]
impl Shelf for Memory {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.0.clone())
    }

    async fn ids(&self) -> Vec<RecordId> {
        self.0.ids()
    }

    async fn line(&self, id: RecordId) -> Option<Vec<u8>> {
        self.0.line(id)
    }

    async fn reopen(&self) -> Arc<dyn Sink> {
        self.sink()
    }
}

#[tokio::test]
async fn memory_keeps_every_promise() {
    conformance::all(async || Box::new(Memory(MemorySink::default())) as _).await;
}

#[tokio::test]
async fn jsonl_keeps_every_promise() {
    conformance::all(async || Box::new(Bench::on_real_disk()) as _).await;
}

#[tokio::test]
async fn compressed_jsonl_keeps_every_promise() {
    conformance::all(async || Box::new(Bench::on_real_disk().compressed()) as _).await;
}

#[tokio::test]
async fn jsonl_in_tiny_files_keeps_every_promise() {
    conformance::all(async || Box::new(Bench::on_real_disk().file_bytes_max(1)) as _).await;
}

#[tokio::test]
async fn jsonl_on_a_simulated_disk_keeps_every_promise() {
    conformance::all(async || Box::new(Bench::on_sim(&SimDisk::new(1))) as _).await;
}

#[tokio::test]
async fn compressed_jsonl_in_tiny_files_keeps_every_promise() {
    let make = || Bench::on_sim(&SimDisk::new(1)).compressed().file_bytes_max(700);
    conformance::all(async || Box::new(make()) as _).await;
}

#[tokio::test]
async fn a_memory_sink_fails_refuses_and_stalls_when_told() {
    let sink = MemorySink::new("m");
    let batch = conformance::batch(1, 3);
    sink.fail_next(1);
    assert!(sink.write(&batch).await.is_err());
    sink.refuse(|record| (record.seq() == 2).then(|| "even".to_owned()));
    let refused = sink.write(&batch).await.unwrap_err();
    assert_eq!(refused.to_string(), "m refused 1 of the records, the first because even");
    assert!(sink.is_empty(), "a batch with a refused record is not kept in part");
    sink.stall();
    let (writing, batch) = (sink.clone(), batch.without(&[1]));
    let stalled = tokio::spawn(async move { writing.write(&batch).await });
    while sink.writes() < 3 {
        tokio::task::yield_now().await;
    }
    assert!(!stalled.is_finished());
    sink.release();
    stalled.await.unwrap().unwrap();
    assert_eq!((sink.len(), sink.writes()), (2, 3));
    sink.fail_until_healed(true);
    assert!(sink.write(&conformance::batch(4, 1)).await.is_err());
    sink.fail_until_healed(false);
    sink.write(&conformance::batch(4, 1)).await.unwrap();
    assert_eq!(sink.ids().iter().map(|id| id.seq).collect::<Vec<_>>(), [1, 3, 4]);
}

#[tokio::test]
async fn a_counting_memory_sink_counts_each_record_once_and_keeps_no_line() {
    let sink = MemorySink::counting("count");
    sink.write(&conformance::batch(1, 10)).await.unwrap();
    sink.write(&conformance::batch(5, 10)).await.unwrap();
    assert_eq!(sink.len(), 14);
    assert!(sink.lines().is_empty());
}
