//! What every sink promises, and what this one adds.

use std::sync::atomic::{AtomicU32, Ordering};

use catchment_pipeline::{Batch, Sink, SinkError};
use catchment_sinks::conformance::{self, batch};
use mongodb::IndexModel;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::IndexOptions;

use crate::cellar::Cellar;

/// Which records of the batch were refused, and why the first.
async fn refused(sink: &dyn Sink, batch: &Batch) -> (Vec<usize>, String) {
    let error = sink.write(batch).await.unwrap_err();
    let SinkError::Refused { refused, .. } = error else { panic!("{error:?}") };
    (refused.iter().map(|refusal| refusal.index).collect(), refused[0].reason.clone())
}

#[tokio::test]
async fn mongo_keeps_every_promise() {
    let cellar = Cellar::alone();
    let racks = AtomicU32::new(0);
    let make = async || {
        let name = format!("shelf{}", racks.fetch_add(1, Ordering::Relaxed));
        Box::new(cellar.rack(&name).await) as _
    };
    conformance::all(make).await;
}

#[tokio::test]
async fn what_is_stored_under_an_id_decides_whether_it_is_a_repetition() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("records").await;
    let sink = rack.open();
    sink.write(&batch(1, 10)).await.unwrap();
    let id = batch(4, 1).get(0).unwrap().id().to_string();
    let change = |change: Document| rack.collection.update_one(doc! { "_id": &id }, change);
    // A note that somebody adds does not make it another record.
    change(doc! { "$set": { "note": "looked at" } }).await.unwrap();
    sink.write(&batch(1, 12)).await.unwrap();
    // A price that somebody changes does.
    change(doc! { "$set": { "payload.p": "0.011" } }).await.unwrap();
    let before = rack.documents().await;
    let (places, reason) = refused(&*sink, &batch(2, 14)).await;
    assert_eq!((places, reason.as_str()), (vec![2], "another record is stored under its id"));
    assert_eq!(rack.documents().await[..12], before, "nothing that is there is touched");
    assert_eq!(rack.seqs().await, (1..=15).collect::<Vec<u64>>(), "the others are written");
    // Once it is removed it is written again.
    rack.collection.delete_one(doc! { "_id": &id }).await.unwrap();
    sink.write(&batch(1, 15)).await.unwrap();
    assert_eq!(rack.seqs().await, (1..=15).collect::<Vec<u64>>());
}

#[tokio::test]
async fn what_the_collection_does_not_take_is_refused_and_the_others_are_written() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("strict").await;
    let database = cellar.client("directConnection=true").await.database(&rack.config.database);
    let rule = doc! { "sequence": { "$ne": 5_i64 } };
    database.create_collection("strict").validator(rule).await.unwrap();
    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! { "received_at_ms": 1 }).options(unique).build();
    rack.collection.create_index(index).await.unwrap();
    let sink = rack.open();
    let (places, reason) = refused(&*sink, &batch(1, 10)).await;
    assert_eq!(places, [4]);
    assert!(reason.contains("validation"), "{reason}");
    assert_eq!(rack.seqs().await.len(), 9);
    // Somebody else's document has the time of record 11.
    let theirs = doc! { "_id": "theirs", "received_at_ms": conformance::NOON_MS + 11 };
    rack.collection.insert_one(RawDocumentBuf::try_from(&theirs).unwrap()).await.unwrap();
    let (places, reason) = refused(&*sink, &batch(6, 10)).await;
    assert_eq!(places, [5]);
    assert!(reason.contains("E11000"), "{reason}");
    // What is there already is no conflict with itself.
    sink.write(&batch(6, 5)).await.unwrap();
}

#[tokio::test]
async fn the_index_is_there_after_the_first_batch() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("fresh").await;
    rack.open().write(&batch(1, 1)).await.unwrap();
    let names = rack.collection.list_index_names().await.unwrap();
    assert_eq!(names, ["_id_", "stream_and_time"]);
    // Another index of that name is left alone, and records are written all the same.
    let rack = cellar.rack("other").await;
    let named = IndexOptions::builder().name("stream_and_time".to_owned()).build();
    let index = IndexModel::builder().keys(doc! { "exchange": -1 }).options(named).build();
    rack.collection.create_index(index).await.unwrap();
    rack.open().write(&batch(1, 3)).await.unwrap();
    assert_eq!(rack.seqs().await, [1, 2, 3]);
}

#[tokio::test]
async fn the_index_is_there_before_the_first_batch() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("empty").await;
    rack.open().idle().await.unwrap();
    let names = rack.collection.list_index_names().await.unwrap();
    assert_eq!(names, ["_id_", "stream_and_time"]);
}

#[tokio::test]
async fn a_large_batch_goes_in_several_commands() {
    let cellar = Cellar::alone();
    let rack = cellar.rack("many").await;
    let sink = rack.open();
    for _ in 0..2 {
        sink.write(&batch(1, 4_321)).await.unwrap();
        assert_eq!(rack.seqs().await, (1..=4_321).collect::<Vec<u64>>());
    }
}
