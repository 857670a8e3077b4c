//! Every promise of [`Sink`], as a test. A sink that passes [`all`] may be trusted with a pipeline.
//!
//! ```no_run
//! # async fn example(make: impl AsyncFn() -> Box<dyn catchment_sinks::conformance::Shelf>) {
//! catchment_sinks::conformance::all(make).await;
//! # }
//! ```
//!
//! A failed promise panics and names itself, as a test does.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use catchment_model::{Channel, Envelope, Payload, RecordId, Source, SpoolId, Symbol, UnixNs, Venue};
use catchment_pipeline::{Batch, Sink};

/// What a sink keeps of what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// Every record, once.
    KeepsAll,
    /// Of each venue, channel and symbol the latest record: by receive time, then by id.
    LatestWins,
}

/// A sink under test, and a way to look at what it holds.
#[async_trait]
pub trait Shelf: Send + Sync {
    /// The sink as it is open now.
    fn sink(&self) -> Arc<dyn Sink>;

    /// The ids of all it holds, those of one venue, channel and date in the order in which they lie.
    async fn ids(&self) -> Vec<RecordId>;

    /// The line of one record, newline included.
    async fn line(&self, id: RecordId) -> Option<Vec<u8>>;

    /// The sink as it is after a restart without a close.
    async fn reopen(&self) -> Arc<dyn Sink>;

    /// What it promises to keep.
    fn contract(&self) -> Contract {
        Contract::KeepsAll
    }
}

/// The spool whose records the suite writes; a sink that wants to know its writer is opened for this one.
pub fn spool() -> SpoolId {
    SpoolId::new(0x00c0_ffee_0001)
}

/// Noon of the day the suite's records are from, in milliseconds.
pub const NOON_MS: i64 = 1_798_761_600_000 - 43_200_000;

/// Runs every promise, each on a shelf of its own.
pub async fn all(make: impl AsyncFn() -> Box<dyn Shelf>) {
    a_batch_is_there_once_write_returned(&*make().await).await;
    what_comes_again_is_kept_once(&*make().await).await;
    what_comes_again_after_a_restart_is_kept_once(&*make().await).await;
    lines_are_kept_byte_for_byte(&*make().await).await;
    a_large_record_is_taken(&*make().await).await;
    what_comes_late_does_not_undo_what_is_later(&*make().await).await;
    many_streams_and_two_dates_fit_in_a_batch(&*make().await).await;
    order_is_kept_within_a_stream(&*make().await).await;
    idle_and_close_are_harmless(&*make().await).await;
}

async fn a_batch_is_there_once_write_returned(shelf: &dyn Shelf) {
    let sink = shelf.sink();
    assert!(!sink.name().is_empty(), "a sink has a name");
    write(&*sink, &Batch::of(spool(), 1, &[])).await;
    assert!(shelf.ids().await.is_empty(), "an empty batch writes nothing");
    for first in [1, 11] {
        let batch = batch(first, 10);
        write(&*sink, &batch).await;
        holds(shelf, &self::batch(1, first + 9)).await;
        holds_lines(shelf, &batch).await;
    }
}

async fn what_comes_again_is_kept_once(shelf: &dyn Shelf) {
    let sink = shelf.sink();
    write(&*sink, &batch(1, 10)).await;
    write(&*sink, &batch(1, 10)).await;
    holds(shelf, &batch(1, 10)).await;
    write(&*sink, &batch(6, 10)).await;
    holds(shelf, &batch(1, 15)).await;
    write(&*sink, &batch(1, 20)).await;
    holds(shelf, &batch(1, 20)).await;
}

async fn what_comes_again_after_a_restart_is_kept_once(shelf: &dyn Shelf) {
    let sink = shelf.sink();
    for first in [1, 11, 21] {
        write(&*sink, &batch(first, 10)).await;
    }
    drop(sink);
    let sink = shelf.reopen().await;
    holds(shelf, &batch(1, 30)).await;
    for first in [1, 11, 21, 31] {
        write(&*sink, &batch(first, 10)).await;
    }
    holds(shelf, &batch(1, 40)).await;
    drop(sink);
    let sink = shelf.reopen().await;
    write(&*sink, &batch(1, 45)).await;
    holds(shelf, &batch(1, 45)).await;
    holds_lines(shelf, &batch(1, 45)).await;
}

async fn lines_are_kept_byte_for_byte(shelf: &dyn Shelf) {
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let payloads = [
        "null",
        r#"{"p":"0.010","q":1e999,"r":-0.0}"#,
        r#"[ 1 , 123456789012345678901234567890.10 ]"#,
        r#""caf\u00e9 \ud83d \\\" é 🌊 \u0000""#,
        r#"{"id":"c0ffee","a":1,"a":2,",\"id\":\"":","}"#,
        &deep,
    ];
    let names = ["BTC/USDT", "quo\"ted\\", "日本 é", "..", "*", "x"];
    let records: Vec<Envelope<'_>> = payloads
        .iter()
        .zip(names)
        .map(|(payload, symbol)| Envelope {
            payload: Payload::parse(payload.as_bytes()).expect("valid JSON"),
            symbol: Symbol::new(symbol).expect("a symbol"),
            message_id: Some(symbol),
            ..plain("okx", "trades", NOON_MS)
        })
        .collect();
    let batch = Batch::of(spool(), 1, &records);
    write(&*shelf.sink(), &batch).await;
    holds(shelf, &batch).await;
    holds_lines(shelf, &batch).await;
}

async fn a_large_record_is_taken(shelf: &dyn Shelf) {
    let payload = format!("\"{}\"", "x".repeat(10_000_000));
    let payload = Payload::parse(payload.as_bytes()).expect("valid JSON");
    let plain = plain("okx", "trades", NOON_MS);
    let batch = Batch::of(spool(), 1, &[plain, Envelope { payload, ..plain }, plain]);
    write(&*shelf.sink(), &batch).await;
    holds(shelf, &batch).await;
    holds_lines(shelf, &batch).await;
}

/// Only where the latest wins does the order of times matter; elsewhere every record is simply there.
async fn what_comes_late_does_not_undo_what_is_later(shelf: &dyn Shelf) {
    if shelf.contract() == Contract::KeepsAll {
        return;
    }
    let sink = shelf.sink();
    let records: Vec<Envelope<'_>> = [5, 3, 5, 4, 1].map(|at| plain("okx", "trades", NOON_MS + at)).to_vec();
    let whole = Batch::of(spool(), 1, &records);
    for (first, record) in (1..).zip(&records) {
        write(&*sink, &Batch::of(spool(), first, std::slice::from_ref(record))).await;
    }
    holds(shelf, &whole).await;
    drop(sink);
    write(&*shelf.reopen().await, &Batch::of(spool(), 2, &records[1..2])).await;
    holds(shelf, &whole).await;
    holds_lines(shelf, &whole).await;
}

async fn many_streams_and_two_dates_fit_in_a_batch(shelf: &dyn Shelf) {
    let venues: Vec<String> = (0..20).map(|n| format!("venue{n}")).collect();
    let mut records = Vec::new();
    for hours in [0, 11, 12, 11, 13] {
        for venue in &venues {
            for channel in ["trades", "orderbook", "gaps"] {
                records.push(plain(venue, channel, NOON_MS + hours * 3_600_000));
            }
        }
    }
    let batch = Batch::of(spool(), 1, &records);
    let sink = shelf.sink();
    write(&*sink, &batch).await;
    holds(shelf, &batch).await;
    holds_lines(shelf, &batch).await;
    write(&*sink, &batch).await;
    drop(sink);
    write(&*shelf.reopen().await, &batch).await;
    holds(shelf, &batch).await;
}

async fn order_is_kept_within_a_stream(shelf: &dyn Shelf) {
    let sink = shelf.sink();
    for first in [1, 101, 201] {
        write(&*sink, &batch(first, 100)).await;
    }
    drop(sink);
    write(&*shelf.reopen().await, &batch(301, 100)).await;
    let mut last: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let streams: BTreeMap<RecordId, Vec<u8>> =
        batch(1, 400).iter().map(|record| (record.id(), record.stream_key().to_vec())).collect();
    for id in shelf.ids().await {
        let before = last.insert(streams[&id].clone(), id.seq).unwrap_or(0);
        assert!(before < id.seq, "record {} lies behind {before} of the same stream", id.seq);
    }
}

async fn idle_and_close_are_harmless(shelf: &dyn Shelf) {
    let sink = shelf.sink();
    for _ in 0..2 {
        sink.idle().await.expect("idle with nothing written");
    }
    write(&*sink, &batch(1, 10)).await;
    for _ in 0..2 {
        sink.idle().await.expect("idle");
    }
    write(&*sink, &batch(6, 10)).await;
    for _ in 0..2 {
        sink.close().await.expect("close");
    }
    holds(shelf, &batch(1, 15)).await;
    drop(sink);
    let sink = shelf.reopen().await;
    write(&*sink, &batch(1, 15)).await;
    sink.close().await.expect("close");
    holds(shelf, &batch(1, 15)).await;
    holds_lines(shelf, &batch(1, 15)).await;
}

/// Records of three streams, `len` of them, numbered from `first`. The same number is always the same record.
pub fn batch(first: u64, len: u64) -> Batch {
    let streams = [("okx", "trades"), ("okx", "orderbook"), ("binance", "trades")];
    let records: Vec<Envelope<'_>> = (first..first + len)
        .map(|seq| {
            let (venue, channel) = streams[(seq % 3) as usize];
            Envelope { sequence: Some(seq), ..plain(venue, channel, NOON_MS + seq as i64) }
        })
        .collect();
    Batch::of(spool(), first, &records)
}

/// A small record of a stream, received at a time.
pub fn plain<'a>(venue: &str, channel: &str, received_at_ms: i64) -> Envelope<'a> {
    Envelope {
        message_id: None,
        sequence: None,
        exchange: Venue::new(venue).expect("a venue's name"),
        channel: Channel::new(channel).expect("a channel's name"),
        symbol: Symbol::new("BTC/USDT").expect("a symbol"),
        server_time: None,
        received_at: UnixNs::from_ms(received_at_ms).expect("a time"),
        payload: Payload::parse(br#"{"p":"0.010"}"#).expect("valid JSON"),
        source: Source::INGEST,
    }
}

async fn write(sink: &dyn Sink, batch: &Batch) {
    sink.write(batch).await.expect("the batch is taken");
}

/// Of all that was given, what the contract says is there, each once.
async fn holds(shelf: &dyn Shelf, given: &Batch) {
    let mut seqs: Vec<u64> = shelf.ids().await.iter().map(|id| id.seq).collect();
    seqs.sort_unstable();
    let mut expected: Vec<u64> = match shelf.contract() {
        Contract::KeepsAll => given.iter().map(|record| record.seq()).collect(),
        Contract::LatestWins => latest(given),
    };
    expected.sort_unstable();
    assert_eq!(seqs, expected, "every record that is to be kept, once");
}

fn latest(given: &Batch) -> Vec<u64> {
    let mut latest: BTreeMap<(&[u8], &str), (UnixNs, u64)> = BTreeMap::new();
    for record in given.iter() {
        let at = (record.received_at(), record.seq());
        let held = latest.entry((record.stream_key(), record.symbol_escaped())).or_insert(at);
        *held = at.max(*held);
    }
    latest.into_values().map(|(_, seq)| seq).collect()
}

async fn holds_lines(shelf: &dyn Shelf, batch: &Batch) {
    let held = shelf.ids().await;
    for record in batch.iter() {
        // Which are there was looked at before.
        if shelf.contract() == Contract::LatestWins && !held.contains(&record.id()) {
            continue;
        }
        let line = shelf.line(record.id()).await;
        assert!(line.as_deref() == Some(record.line()), "record {} is not as it was given", record.id());
    }
}
