//! The whole pipeline with sinks that fail, stall, refuse and come back, on a disk in memory and under paused time.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catchment_model::{
    Cause, Channel, Clock, Envelope, Gap, Payload, RecordId, SimClock, Source, Symbol, UnixNs, Venue,
};
use catchment_pipeline::disk::sim::{Op, SimDisk};
use catchment_pipeline::{
    AcceptError, Balance, Books, DedupConfig, Delivery, Disk, Draft, Fate, OnFull, OnStorageError, Pipeline,
    PipelineConfig, Receipt, Sink, SinkState, Spool, SpoolConfig, SyncPoint,
};
use catchment_sinks::MemorySink;

const DIR: &str = "/spool";
const PATIENCE: Duration = Duration::from_secs(60);

fn wall() -> UnixNs {
    UnixNs::from_ms(1_798_761_600_000).unwrap()
}

/// A pipeline under test and what it stands on.
struct Rig {
    disk: SimDisk,
    spool: SpoolConfig,
    pipeline: PipelineConfig,
    delivery: Delivery,
    clock: Arc<SimClock>,
}

impl Rig {
    fn new() -> Self {
        Self {
            disk: SimDisk::new(1),
            spool: SpoolConfig { segment_bytes_max: 16 << 10, ..SpoolConfig::at(DIR) },
            pipeline: PipelineConfig::default(),
            delivery: Delivery::default(),
            clock: Arc::new(SimClock::at(wall())),
        }
    }

    fn start(&self, sinks: &[&MemorySink]) -> Pipeline {
        let spool = Spool::open(self.spool.clone(), Arc::new(self.disk.clone()), 42).unwrap();
        self.run(spool, sinks)
    }

    fn run(&self, spool: Spool, sinks: &[&MemorySink]) -> Pipeline {
        let sinks = sinks
            .iter()
            .map(|sink| -> (Arc<dyn Sink>, Delivery) { (Arc::new((*sink).clone()), self.delivery.clone()) });
        let clock: Arc<dyn Clock> = self.clock.clone();
        Pipeline::start(spool, sinks.collect(), self.pipeline.clone(), clock).unwrap()
    }
}

/// What tells the records of a test apart.
struct Shape<'a> {
    channel: &'a str,
    symbol: &'a str,
    message_id: Option<&'a str>,
    sequence: Option<u64>,
    payload: &'a str,
}

const TRADE: Shape<'static> =
    Shape { channel: "trades", symbol: "BTC/USDT", message_id: None, sequence: None, payload: "{}" };

fn push(draft: &mut Draft, shape: &Shape<'_>) {
    let envelope = Envelope {
        message_id: shape.message_id,
        sequence: shape.sequence,
        exchange: Venue::new("okx").unwrap(),
        channel: Channel::new(shape.channel).unwrap(),
        symbol: Symbol::new(shape.symbol).unwrap(),
        server_time: None,
        received_at: wall(),
        payload: Payload::parse(shape.payload.as_bytes()).unwrap(),
        source: Source::INGEST,
    };
    draft.push(&envelope).unwrap();
}

async fn accept(pipeline: &Pipeline, shapes: &[Shape<'_>]) -> Result<Receipt, AcceptError> {
    let mut draft = pipeline.intake().draft();
    for shape in shapes {
        push(&mut draft, shape);
    }
    pipeline.intake().accept(draft).await
}

/// So many records of about 300 bytes, all accepted.
async fn fill(pipeline: &Pipeline, records: usize) -> Vec<RecordId> {
    let mut ids = Vec::new();
    for n in 0..records {
        let payload = format!(r#"{{"n":{n}}}"#);
        let receipt = accept(pipeline, &[Shape { payload: &payload, ..TRADE }]).await.unwrap();
        ids.extend(receipt.ids());
    }
    ids
}

async fn until(what: impl Fn() -> bool) {
    // Under paused time this costs nothing and lets everybody else go first.
    for _ in 0..100_000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came true");
}

fn gaps(sink: &MemorySink) -> Vec<Gap> {
    let gaps = Channel::gaps();
    let lines =
        ["okx", "catchment"].into_iter().flat_map(|venue| sink.lines_of(Venue::new(venue).unwrap(), gaps));
    lines
        .map(|line| {
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            serde_json::from_value(line["payload"].clone()).unwrap()
        })
        .collect()
}

fn balance(books: &Books, sink: &str) -> Balance {
    let lines = books.balances();
    assert!(lines.iter().all(Balance::is_even), "{lines:?}");
    lines.into_iter().find(|line| line.sink == sink && line.venue == "okx").unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_accepted_reaches_every_sink_in_order_and_the_books_balance() {
    let rig = Rig::new();
    let (a, b) = (MemorySink::new("a"), MemorySink::new("b"));
    let pipeline = rig.start(&[&a, &b]);
    let ids = fill(&pipeline, 200).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    for sink in [&a, &b] {
        assert_eq!(sink.ids(), ids);
    }
    let line = balance(&books, "a");
    assert_eq!((line.received, line.written, line.pending), (200, 200, 0));
    assert_eq!(books.replayed, 0, "healthy sinks cost no read from disk");
    let left = rig.disk.list(Path::new(DIR)).unwrap();
    assert!(!left.iter().any(|entry| entry.name.ends_with(".dat")), "settled segments are gone: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_laid_on_the_tray_keeps_its_place_and_nothing_is_left_there() {
    let mut rig = Rig::new();
    // Several trays full, and now and then no room for another.
    rig.pipeline.intake_bytes = 256 << 10;
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    let intake = pipeline.intake();
    let mut drafts = [intake.draft(), intake.draft()];
    let large = "x".repeat(20 << 10);
    let (mut submitted, mut laid) = (0, 0);
    for n in 0..3_000_u64 {
        // Two who take turns, one with a record now and then that is too large to be laid there.
        let (of, symbol) = ((n % 2) as usize, ["A/B", "C/D"][(n % 2) as usize]);
        let payload =
            if n % 99 == 0 { format!("{{\"n\":{n},\"x\":\"{large}\"}}") } else { format!("{{\"n\":{n}}}") };
        let channel = if n % 7 == 0 { "ticker" } else { "trades" };
        push(&mut drafts[of], &Shape { channel, symbol, payload: &payload, ..TRADE });
        if intake.lay(&mut drafts[of]).unwrap() {
            assert!(drafts[of].is_empty());
            laid += 1;
        } else {
            let draft = std::mem::replace(&mut drafts[of], intake.draft());
            intake.submit(draft).await.unwrap();
            submitted += 1;
        }
        if n % 500 == 499 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    assert!(submitted > 31 && laid > 100, "{submitted} and {laid}: both ways are taken, for either reason");
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert!(matches!(intake.lay(&mut drafts[0]), Err(AcceptError::Closed)));
    let line = |line: Vec<u8>| -> (u64, String) {
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        (line["payload"]["n"].as_u64().unwrap(), line["symbol"].as_str().unwrap().to_owned())
    };
    for (channel, is_seventh) in [("trades", false), ("ticker", true)] {
        let lines = sink.lines_of(Venue::new("okx").unwrap(), Channel::new(channel).unwrap());
        let found: Vec<(u64, String)> = lines.into_iter().map(line).collect();
        for (of, symbol) in ["A/B", "C/D"].into_iter().enumerate() {
            let found: Vec<u64> =
                found.iter().filter(|found| found.1 == symbol).map(|found| found.0).collect();
            let want: Vec<u64> =
                (0..3_000).filter(|n| n % 2 == of as u64 && n.is_multiple_of(7) == is_seventh).collect();
            assert_eq!(found, want, "{symbol} in its order");
        }
    }
    let written: u64 =
        books.balances().iter().filter(|line| line.venue == "okx").map(|line| line.written).sum();
    assert_eq!(written, 3_000);
}

#[tokio::test(start_paused = true)]
async fn what_lies_on_the_tray_waits_for_a_failing_disk_too() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    let failing = fail_disk(&rig.disk, 28);
    let mut draft = pipeline.intake().draft();
    for n in 0..50 {
        push(&mut draft, &Shape { payload: &n.to_string(), ..TRADE });
        assert!(pipeline.intake().lay(&mut draft).unwrap());
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert!(pipeline.health().stopped.is_some());
    assert!(sink.is_empty());
    failing.store(false, Ordering::Relaxed);
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert_eq!(balance(&books, "a").written, 50);
    assert_eq!(gaps(&sink), [], "nothing was missed");
}

#[tokio::test(start_paused = true)]
async fn records_that_were_left_are_delivered_by_the_next_start() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    sink.fail_until_healed(true);
    let pipeline = rig.start(&[&sink]);
    let ids = fill(&pipeline, 100).await;
    let books = pipeline.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(balance(&books, "a").pending, 100);
    sink.fail_until_healed(false);
    let pipeline = rig.start(&[&sink]);
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert_eq!(sink.ids(), ids);
    let line = balance(&books, "a");
    assert_eq!((line.recovered, line.written, line.pending), (100, 100, 0));
    assert_eq!(gaps(&sink), [], "it was closed properly both times");
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_told_as_a_gap_by_the_next_start() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    fill(&pipeline, 3).await;
    rig.disk.kill();
    drop(pipeline);
    rig.clock.advance(Duration::from_secs(5));
    let pipeline = rig.start(&[&sink]);
    pipeline.close(PATIENCE).await.unwrap();
    let gaps = gaps(&sink);
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].channel.as_str(), gaps[0].to_ms.get() - gaps[0].from_ms.get()), ("trades", 5_000));
    assert_eq!(sink.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_gap_of_a_crash_begins_with_the_last_record_and_not_when_it_became_durable() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    // From the socket to the spool it took two seconds; something else may have come by the end of these.
    rig.clock.advance(Duration::from_secs(2));
    fill(&pipeline, 300).await;
    until(|| sink.len() == 300).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.disk.kill();
    drop(pipeline);
    rig.clock.advance(Duration::from_secs(5));
    let _pipeline = rig.start(&[&sink]);
    until(|| gaps(&sink).len() == 1).await;
    assert_eq!(gaps(&sink)[0].from_ms, wall().ms());
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_told_for_a_stream_that_was_quiet_for_long_before_it() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    accept(&pipeline, &[Shape { channel: "candles", ..TRADE }]).await.unwrap();
    // Segments come and go, until none holds the candle.
    fill(&pipeline, 300).await;
    until(|| sink.len() == 301).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.disk.kill();
    drop(pipeline);
    rig.clock.advance(Duration::from_secs(5));
    let pipeline = rig.start(&[&sink]);
    until(|| gaps(&sink).len() == 2).await;
    let told: BTreeSet<String> = gaps(&sink).into_iter().map(|gap| gap.channel).collect();
    assert_eq!(told, BTreeSet::from(["candles".to_owned(), "trades".to_owned()]));
    // Killed again before either is heard of: what follows is missing as well.
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.disk.kill();
    drop(pipeline);
    rig.clock.advance(Duration::from_secs(7));
    let pipeline = rig.start(&[&sink]);
    until(|| gaps(&sink).len() == 4).await;
    let last = &gaps(&sink)[3];
    assert_eq!(last.to_ms.get() - last.from_ms.get(), 7_000, "from the end of the gap before");
    // Closed properly: nobody expects them.
    pipeline.close(PATIENCE).await.unwrap();
    rig.start(&[&sink]).close(PATIENCE).await.unwrap();
    assert_eq!(gaps(&sink).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_told_as_a_gap_by_the_next_start_that_listens_again() {
    let mut rig = Rig::new();
    let sink = MemorySink::new("a");
    let okx = vec![Venue::new("okx").unwrap()];
    rig.pipeline.live = okx.clone();
    let pipeline = rig.start(&[&sink]);
    fill(&pipeline, 3).await;
    rig.clock.advance(Duration::from_secs(100));
    pipeline.last_call();
    let stopped = rig.clock.wall().ms();
    rig.clock.advance(Duration::from_secs(2));
    pipeline.close(PATIENCE).await.unwrap();

    // Somebody uses the spool for something else, and is killed.
    rig.pipeline.live.clear();
    rig.clock.advance(Duration::from_secs(5));
    let pipeline = rig.start(&[&sink]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.disk.kill();
    drop(pipeline);
    assert_eq!(gaps(&sink), [], "nobody listens yet");

    rig.pipeline.live = okx;
    rig.clock.advance(Duration::from_secs(5));
    let pipeline = rig.start(&[&sink]);
    until(|| gaps(&sink).len() == 1).await;
    let gap = gaps(&sink).remove(0);
    assert_eq!((gap.channel.as_str(), gap.cause, gap.from_ms), ("trades", Cause::Stopped, stopped));
    assert_eq!(gap.to_ms.get() - stopped.get(), 12_000);

    // Nothing is heard of it this time: it is missing from this stop on all the same, and from no other.
    rig.clock.advance(Duration::from_secs(60));
    pipeline.close(PATIENCE).await.unwrap();
    rig.clock.advance(Duration::from_secs(7));
    rig.start(&[&sink]).close(PATIENCE).await.unwrap();
    let told: Vec<i64> = gaps(&sink).iter().map(|gap| gap.to_ms.get() - gap.from_ms.get()).collect();
    assert_eq!(told, [12_000, 7_000]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_what_is_not_live_is_no_gap() {
    let mut rig = Rig::new();
    let sink = MemorySink::new("a");
    rig.pipeline.live = vec![Venue::new("kraken").unwrap()];
    for _ in 0..3 {
        let pipeline = rig.start(&[&sink]);
        fill(&pipeline, 3).await;
        pipeline.close(PATIENCE).await.unwrap();
        rig.clock.advance(Duration::from_secs(5));
    }
    assert_eq!(gaps(&sink), []);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_seconds_is_made_good_without_a_restart() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    sink.fail_until_healed(true);
    let ids = fill(&pipeline, 100).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_ne!(pipeline.health().sinks[0].state, SinkState::Ok);
    assert!(pipeline.health().spool_bytes > 0);
    sink.fail_until_healed(false);
    let healed = tokio::time::Instant::now();
    until(|| sink.len() == 100).await;
    assert!(healed.elapsed() <= Duration::from_secs(10));
    assert_eq!(pipeline.health().sinks[0].state, SinkState::Ok);
    assert_eq!(sink.ids(), ids);
    pipeline.close(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sink_goes_from_ok_to_unreachable_to_degraded_and_back() {
    let mut rig = Rig::new();
    rig.delivery = Delivery { retries_max: 2, degraded_after: 3, ..Delivery::default() };
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    let state = |pipeline: &Pipeline| pipeline.health().sinks[0].state;
    sink.fail_next(2);
    fill(&pipeline, 1).await;
    until(|| sink.len() == 1).await;
    assert_eq!(state(&pipeline), SinkState::Ok, "two failures are within the retries");
    sink.fail_next(3);
    fill(&pipeline, 1).await;
    until(|| state(&pipeline) == SinkState::Unreachable).await;
    until(|| state(&pipeline) == SinkState::Ok).await;
    sink.fail_until_healed(true);
    fill(&pipeline, 1).await;
    until(|| state(&pipeline) == SinkState::Degraded).await;
    sink.fail_until_healed(false);
    until(|| state(&pipeline) == SinkState::Ok).await;
    assert_eq!(sink.len(), 3);
    pipeline.close(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_stalled_sink_delays_no_other_and_memory_stays_bounded() {
    let mut rig = Rig::new();
    rig.pipeline.tail_bytes = 32 << 10;
    rig.delivery.batch_bytes = 8 << 10;
    let (a, b, slow) = (MemorySink::new("a"), MemorySink::new("b"), MemorySink::new("slow"));
    slow.stall();
    let pipeline = rig.start(&[&a, &b, &slow]);
    let started = tokio::time::Instant::now();
    let mut ids = Vec::new();
    while started.elapsed() < Duration::from_secs(60) {
        ids.extend(fill(&pipeline, 20).await);
        let offered = tokio::time::Instant::now();
        until(|| a.len() == ids.len() as u64 && b.len() == ids.len() as u64).await;
        assert!(offered.elapsed() <= Duration::from_secs(2), "the others lag {:?}", offered.elapsed());
        assert!(pipeline.health().tail_bytes <= 33 << 10, "{} bytes in memory", pipeline.health().tail_bytes);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(slow.is_empty());
    assert!(
        pipeline.health().spool_bytes > 300 * ids.len() as u64 / 2,
        "the spool keeps them for the stalled one"
    );
    slow.release();
    until(|| slow.len() == ids.len() as u64).await;
    assert_eq!(slow.ids(), ids);
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert!(books.replayed > 0, "a sink that lags reads from disk");
    balance(&books, "slow");
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_goes_alone_to_the_dead_letters() {
    let rig = Rig::new();
    let sink = MemorySink::new("picky");
    sink.refuse(|record| (record.payload() == br#"{"n":3}"#).then(|| "three is too many".to_owned()));
    let pipeline = rig.start(&[&sink]);
    let mut draft = pipeline.intake().draft();
    let payloads: Vec<String> = (0..6).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    for payload in &payloads {
        push(&mut draft, &Shape { payload, ..TRADE });
    }
    let ids: Vec<RecordId> = pipeline.intake().accept(draft).await.unwrap().ids().collect();
    until(|| sink.len() == 6).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    let line = balance(&books, "picky");
    assert_eq!(
        (line.written, line.quarantined, line.pending),
        (6, 1, 0),
        "five mates, and the gap that tells of it"
    );
    assert!(!sink.ids().contains(&ids[3]));
    let told = gaps(&sink);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].first_missing, Some(ids[3].to_string()));
    let dir = PathBuf::from(DIR).join("dead_letter");
    let file = &rig.disk.list(&dir).unwrap()[0].name;
    let text = catchment_pipeline::disk::read_file(&rig.disk, &dir.join(file), 1 << 20).unwrap();
    let letter: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&letter["reason"], &letter["record"]["payload"]["n"]),
        (&"three is too many".into(), &3.into())
    );
}

#[tokio::test(start_paused = true)]
async fn duplicates_are_told_by_id_then_sequence_within_their_symbol() {
    let mut rig = Rig::new();
    let by_payload = vec![Channel::new("ticker").unwrap()];
    rig.pipeline.dedup = Some(DedupConfig { by_payload, ..DedupConfig::default() });
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    let check = async |shape: Shape<'_>, new: bool| {
        let fate = accept(&pipeline, &[shape]).await.unwrap().fates[0];
        assert_eq!(matches!(fate, Fate::Accepted(_)), new);
    };
    check(Shape { message_id: Some("x"), ..TRADE }, true).await;
    check(Shape { message_id: Some("x"), payload: "1", ..TRADE }, false).await;
    check(Shape { message_id: Some("x"), channel: "quotes", ..TRADE }, true).await;
    check(Shape { sequence: Some(7), ..TRADE }, true).await;
    check(Shape { sequence: Some(7), ..TRADE }, false).await;
    check(Shape { sequence: Some(7), symbol: "ETH/USDT", ..TRADE }, true).await;
    check(TRADE, true).await;
    check(TRADE, true).await; // equal payloads without an id are two records
    check(Shape { channel: "ticker", ..TRADE }, true).await;
    check(Shape { channel: "ticker", ..TRADE }, false).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    let line = balance(&books, "a");
    assert_eq!((line.received, line.written, line.duplicate), (10, 7, 3));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_not_accepted_is_no_duplicate_when_it_comes_again() {
    let mut rig = Rig::new();
    rig.pipeline.dedup = Some(DedupConfig::default());
    rig.pipeline.on_storage_error = OnStorageError::Refuse;
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    rig.disk.inject(|op| matches!(op, Op::Sync(_, SyncPoint::SegmentData)).then_some(5));
    accept(&pipeline, &[Shape { sequence: Some(1), ..TRADE }]).await.unwrap_err();
    rig.disk.heal();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let receipt = accept(&pipeline, &[Shape { sequence: Some(1), ..TRADE }]).await.unwrap();
    assert!(matches!(receipt.fates[0], Fate::Accepted(_)));
    pipeline.close(PATIENCE).await.unwrap();
}

fn fail_disk(disk: &SimDisk, errno: i32) -> Arc<AtomicBool> {
    let failing = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&failing);
    disk.inject(move |op| {
        let writes = matches!(op, Op::Append(..) | Op::Sync(..) | Op::Create(_) | Op::Rename(_));
        (writes && still.load(Ordering::Relaxed)).then_some(errno)
    });
    failing
}

#[tokio::test(start_paused = true)]
async fn a_failing_disk_refuses_with_the_reason_and_is_told_as_a_gap_when_it_is_back() {
    for errno in [28, 5, 30] {
        let mut rig = Rig::new();
        rig.pipeline.on_storage_error = OnStorageError::Refuse;
        let sink = MemorySink::new("a");
        let pipeline = rig.start(&[&sink]);
        let before = fill(&pipeline, 2).await;
        let failing = fail_disk(&rig.disk, errno);
        for _ in 0..3 {
            let error = accept(&pipeline, &[TRADE]).await.unwrap_err();
            assert!(error.to_string().contains("/spool"), "{error}");
        }
        until(|| pipeline.health().stopped.is_some()).await;
        assert!(!pipeline.health().is_ready());
        failing.store(false, Ordering::Relaxed);
        let healed = tokio::time::Instant::now();
        until(|| pipeline.health().is_ready()).await;
        assert!(healed.elapsed() <= Duration::from_secs(5));
        let after = fill(&pipeline, 1).await;
        let books = pipeline.close(PATIENCE).await.unwrap();
        let told = gaps(&sink);
        assert_eq!(told.iter().filter_map(|gap| gap.records).sum::<u64>(), 3, "errno {errno}");
        assert!(before.iter().chain(&after).all(|id| sink.ids().contains(id)));
        balance(&books, "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_disk_makes_everybody_wait_where_that_is_wished() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    let failing = fail_disk(&rig.disk, 28);
    let mut waiting = Vec::new();
    for n in 0..50 {
        let mut draft = pipeline.intake().draft();
        push(&mut draft, &Shape { channel: if n % 2 == 0 { "trades" } else { "ticker" }, ..TRADE });
        waiting.push(pipeline.intake().submit(draft).await.unwrap());
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert!(pipeline.health().stopped.is_some());
    assert!(sink.is_empty());
    failing.store(false, Ordering::Relaxed);
    let healed = tokio::time::Instant::now();
    let mut ids = Vec::new();
    for pending in waiting {
        ids.extend(pending.durable().await.unwrap().ids());
    }
    assert!(healed.elapsed() <= Duration::from_secs(5));
    assert!(!pipeline.health().full);
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert_eq!(ids.len(), 50);
    assert_eq!(sink.ids(), ids, "nothing was missed, so no gap");
    balance(&books, "a");
}

/// A spool of two segments whose only sink stands still, filled to the brim.
async fn full(on_full: OnFull) -> (Rig, MemorySink, Pipeline, usize) {
    let mut rig = Rig::new();
    rig.spool = SpoolConfig { total_bytes_max: 32 << 10, on_full, ..rig.spool };
    rig.pipeline.tail_bytes = 1;
    rig.delivery.batch_records = 1;
    let sink = MemorySink::new("a");
    sink.stall();
    let pipeline = rig.start(&[&sink]);
    let mut records = 0;
    while !pipeline.health().full {
        let mut draft = pipeline.intake().draft();
        push(&mut draft, &TRADE);
        let pending = pipeline.intake().submit(draft).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(2), pending.durable()).await;
        records += 1;
        assert!(records < 1_000);
        if waited.is_err() {
            break;
        }
    }
    (rig, sink, pipeline, records)
}

#[tokio::test(start_paused = true)]
async fn a_full_spool_that_blocks_loses_nothing() {
    let (_rig, sink, pipeline, records) = full(OnFull::Block).await;
    assert!(pipeline.health().full);
    sink.release();
    until(|| sink.len() == records as u64).await;
    fill(&pipeline, 10).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    let line = balance(&books, "a");
    assert_eq!((line.written, line.dropped.len()), (records as u64 + 10, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_spool_that_keeps_trades_drops_only_quotes_and_says_how_many() {
    let (_rig, sink, pipeline, records) = full(OnFull::DropTickerDepthKeepTrade).await;
    for _ in 0..5 {
        let book = Shape { channel: "orderbook", ..TRADE };
        let receipt = accept(&pipeline, &[book]).await.unwrap();
        assert_eq!(receipt.fates, [Fate::Dropped]);
    }
    sink.release();
    until(|| sink.len() > records as u64).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    let told: u64 = gaps(&sink).iter().filter_map(|gap| gap.records).sum();
    assert_eq!(told, 5);
    let line = balance(&books, "a");
    assert_eq!(line.dropped.values().sum::<u64>(), 5);
    let trades = sink.lines_of(Venue::new("okx").unwrap(), Channel::new("trades").unwrap());
    assert_eq!(trades.len(), records, "not one trade was dropped");
}

#[tokio::test(start_paused = true)]
async fn a_full_spool_that_drops_all_says_how_many_of_what() {
    let (_rig, sink, pipeline, _) = full(OnFull::DropAll).await;
    let receipt = accept(&pipeline, &[TRADE, Shape { channel: "ticker", ..TRADE }]).await.unwrap();
    assert_eq!(receipt.fates, [Fate::Dropped, Fate::Dropped]);
    sink.release();
    let books = pipeline.close(PATIENCE).await.unwrap();
    let line = balance(&books, "a");
    let dropped: u64 = line.dropped.values().sum();
    let told: u64 = gaps(&sink).iter().filter_map(|gap| gap.records).sum();
    assert!(dropped >= 2);
    assert_eq!(told, dropped);
}

#[tokio::test(start_paused = true)]
async fn without_a_spool_on_disk_records_still_reach_their_sinks() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    let pipeline = rig.run(Spool::in_memory(rig.spool.clone(), 42), &[&sink]);
    let ids = fill(&pipeline, 200).await;
    let books = pipeline.close(PATIENCE).await.unwrap();
    assert_eq!(sink.ids(), ids);
    balance(&books, "a");
    assert!(rig.disk.list(Path::new(DIR)).is_err(), "nothing was written to disk");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_costs_itself_alone_and_is_told() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    sink.fail_until_healed(true);
    let pipeline = rig.start(&[&sink]);
    let ids = fill(&pipeline, 30).await;
    pipeline.close(Duration::from_secs(1)).await.unwrap();
    rig.disk.damage(&PathBuf::from(DIR).join("spool_000001.dat"), |bytes| {
        let at = bytes.windows(8).position(|w| w == br#"{"n":12}"#).unwrap();
        bytes[at + 5] ^= 1;
    });
    sink.fail_until_healed(false);
    rig.clock.advance(Duration::from_secs(3_600));
    let pipeline = rig.start(&[&sink]);
    let books = pipeline.close(PATIENCE).await.unwrap();
    let missing: BTreeSet<RecordId> = ids.iter().copied().filter(|id| !sink.ids().contains(id)).collect();
    assert_eq!(missing, BTreeSet::from([ids[12]]));
    let told = gaps(&sink);
    assert_eq!((told.len(), told[0].records), (1, Some(1)));
    assert_eq!((told[0].from_ms, told[0].to_ms), (wall().ms(), wall().ms()), "between its neighbours");
    assert_eq!(told[0].first_missing, Some(ids[12].to_string()));
    assert_eq!(books.damaged, 1);
    assert_eq!(rig.disk.list(&PathBuf::from(DIR).join("quarantine")).unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_segment_is_told_with_the_exact_numbers() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    sink.fail_until_healed(true);
    let pipeline = rig.start(&[&sink]);
    let ids = fill(&pipeline, 150).await;
    pipeline.close(Duration::from_secs(1)).await.unwrap();
    rig.disk.remove(&PathBuf::from(DIR).join("spool_000002.dat")).unwrap();
    sink.fail_until_healed(false);
    let pipeline = rig.start(&[&sink]);
    pipeline.close(PATIENCE).await.unwrap();
    let missing: Vec<RecordId> = ids.iter().copied().filter(|id| !sink.ids().contains(id)).collect();
    let told = gaps(&sink);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].first_missing, missing.first().map(RecordId::to_string));
    assert_eq!(told[0].last_missing, missing.last().map(RecordId::to_string));
    assert_eq!(told[0].records, Some(missing.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_cannot_be_read_is_set_aside_and_the_others_flow() {
    let rig = Rig::new();
    let sink = MemorySink::new("a");
    sink.fail_until_healed(true);
    let pipeline = rig.start(&[&sink]);
    let ids = fill(&pipeline, 150).await;
    pipeline.close(Duration::from_secs(1)).await.unwrap();
    sink.fail_until_healed(false);
    let pipeline = rig.start(&[&sink]);
    rig.disk.inject(|op| matches!(op, Op::Read(path) if path.ends_with("spool_000002.dat")).then_some(5));
    pipeline.close(PATIENCE).await.unwrap();
    let arrived = ids.iter().filter(|id| sink.ids().contains(id)).count();
    assert!((90..150).contains(&arrived), "{arrived} of 150 arrived");
    assert!(rig.disk.open(&PathBuf::from(DIR).join("spool_000002.dat.unreadable")).is_ok());
    assert_eq!(gaps(&sink).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn batches_keep_to_their_size_and_age() {
    let mut rig = Rig::new();
    rig.delivery = Delivery { batch_records: 10, batch_age: Duration::from_secs(3), ..Delivery::default() };
    let sink = MemorySink::new("a");
    let pipeline = rig.start(&[&sink]);
    fill(&pipeline, 25).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((sink.len(), sink.writes()), (20, 2), "two full batches, the rest still gathers");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((sink.len(), sink.writes()), (25, 3), "old enough");
    pipeline.close(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn catching_up_leaves_the_sink_some_air() {
    let mut rig = Rig::new();
    rig.delivery = Delivery { batch_records: 10, replay_rest: Duration::from_secs(2), ..Delivery::default() };
    let sink = MemorySink::new("a");
    sink.fail_until_healed(true);
    let pipeline = rig.start(&[&sink]);
    fill(&pipeline, 50).await;
    pipeline.close(Duration::from_secs(1)).await.unwrap();
    sink.fail_until_healed(false);
    let started = tokio::time::Instant::now();
    let pipeline = rig.start(&[&sink]);
    until(|| sink.len() == 50).await;
    assert!(started.elapsed() >= Duration::from_secs(8), "five batches, a rest after each");
    pipeline.close(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_sink_starts_with_the_oldest_record_and_a_removed_one_holds_nothing_back() {
    let rig = Rig::new();
    let (a, stays) = (MemorySink::new("a"), MemorySink::new("stays"));
    stays.fail_until_healed(true);
    let pipeline = rig.start(&[&a, &stays]);
    let ids = fill(&pipeline, 20).await;
    pipeline.close(Duration::from_secs(1)).await.unwrap();
    let b = MemorySink::new("b");
    let pipeline = rig.start(&[&b]);
    pipeline.close(PATIENCE).await.unwrap();
    assert_eq!(b.ids(), ids);
    let left = rig.disk.list(Path::new(DIR)).unwrap();
    assert!(
        !left.iter().any(|entry| entry.name.ends_with(".dat")),
        "nobody waits for them any more: {left:?}"
    );
}
