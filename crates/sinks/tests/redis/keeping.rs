//! What is kept, and what it costs.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Channel, Envelope, Payload, Symbol, SystemClock};
use catchment_pipeline::{Batch, Sink, SinkError};
use catchment_sinks::conformance::{NOON_MS, plain, spool};
use catchment_sinks::redis::{AuditStream, LatestSettings, RedisAddress, RedisConfig, RedisSink, Verdict};

use crate::{Bench, book};

async fn fields(bench: &Bench, key: &str) -> [String; 6] {
    bench.ask(&["HMGET", key, "bids", "asks", "hash", "timestamp", "updated_at", "market"]).await
}

#[tokio::test]
async fn a_book_has_the_six_fields_as_the_venue_wrote_them() {
    let bench = Bench::new();
    let put = bench.store(LatestSettings::default()).put(&[book("123", "h1", "0017")]).await.unwrap();
    assert_eq!(put.verdicts, [Verdict::Written]);
    let expected = [r#"[{"price":"0.1","size":"5"}]"#, "[]", "h1", "0017", "1790000000000", "0xm"];
    assert_eq!(fields(&bench, "ob:123").await, expected);
    let count: u64 = bench.ask(&["HLEN", "ob:123"]).await;
    assert_eq!(count, 6);
}

#[tokio::test]
async fn equal_older_and_newer_meet_their_verdicts() {
    let bench = Bench::new();
    let store = bench.store(LatestSettings { memory_keys_max: 0, ..LatestSettings::default() });
    let check = async |hash, timestamp, verdict, held: &str| {
        let put = store.put(&[book("t", hash, timestamp)]).await.unwrap();
        assert_eq!(put.verdicts, [verdict], "{hash} {timestamp}");
        let hash: String = bench.ask(&["HGET", "ob:t", "hash"]).await;
        assert_eq!(hash, held);
    };
    check("a", "999", Verdict::Written, "a").await;
    check("a", "1000", Verdict::Same, "a").await;
    check("b", "998", Verdict::Older, "a").await;
    check("b", "1000", Verdict::Written, "b").await;
    check("c", "1790000000000", Verdict::Written, "c").await;
    check("d", "1690000000000000", Verdict::Written, "d").await;
    check("e", "1790000000001", Verdict::Older, "d").await;
    check("f", "soon", Verdict::Older, "d").await;
}

#[tokio::test]
async fn what_the_server_is_known_to_have_is_not_sent() {
    let bench = Bench::new();
    let store = bench.store(LatestSettings::default());
    let books = [book("a", "1", "1"), book("b", "1", "1")];
    store.put(&books).await.unwrap();
    let calls = bench.calls("evalsha").await;
    let put = store.put(&books).await.unwrap();
    assert_eq!((put.unsent, put.count(Verdict::Same)), (2, 2));
    assert_eq!(bench.calls("evalsha").await, calls);
    let put = store.put(&[book("a", "2", "2"), book("b", "1", "1")]).await.unwrap();
    assert_eq!((put.unsent, put.verdicts), (1, vec![Verdict::Written, Verdict::Same]));
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(store.put(&books[1..]).await.unwrap().unsent, 0, "after a while it is asked again");
}

#[tokio::test]
async fn thousands_of_books_are_a_few_calls_and_one_pipeline() {
    let bench = Bench::new();
    let store = bench.store(LatestSettings::default());
    let tokens: Vec<String> = (0..2_500).map(|n| format!("t{n}")).collect();
    let books: Vec<_> = tokens.iter().map(|token| book(token, "h", "1")).collect();
    let put = store.put(&books).await.unwrap();
    assert_eq!(put.count(Verdict::Written), 2_500);
    let count: u64 = bench.ask(&["DBSIZE"]).await;
    assert_eq!(count, 2_500);
    assert_eq!(bench.calls("evalsha").await, 50);
}

#[tokio::test]
async fn what_changed_is_in_the_stream_and_the_stream_stays_short() {
    let bench = Bench::new();
    let stream = AuditStream { key: "audit".to_owned(), len_max: 100, with_books: false };
    let store = bench.store(LatestSettings { stream: Some(stream), ..LatestSettings::default() });
    let ours = |token, hash, time| book(token, hash, time).of_venue("polymarket");
    store
        .put(&[ours("a", "1", "1"), book("x", "1", "1").of_venue("okx"), ours("b", "1", "1")])
        .await
        .unwrap();
    store.put(&[ours("a", "1", "1"), ours("b", "2", "2"), ours("c", "0", "0")]).await.unwrap();
    let len: u64 = bench.ask(&["XLEN", "audit:okx"]).await;
    assert_eq!(len, 1, "each venue has its own");
    let entries: redis::Value = bench.ask(&["XRANGE", "audit:polymarket", "-", "+"]).await;
    let told = format!("{entries:?}");
    let order = ["key", "a", "hash", "1"].map(|word| format!("bulk-string('\"{word}\"')")).join(", ");
    assert!(told.contains(&order), "{told}");
    let len: u64 = bench.ask(&["XLEN", "audit:polymarket"]).await;
    assert_eq!(len, 4, "an entry for each change, none for what stayed");
    for n in 0..1_000 {
        let (hash, time) = (format!("x{n}"), (n + 10).to_string());
        store.put(&[book("a", &hash, &time).of_venue("polymarket")]).await.unwrap();
    }
    let len: u64 = bench.ask(&["XLEN", "audit:polymarket"]).await;
    assert!((100..=250).contains(&len), "{len} entries");
}

#[tokio::test]
async fn a_stream_with_books_has_them() {
    let bench = Bench::new();
    let stream = AuditStream { key: "audit".to_owned(), len_max: 10, with_books: true };
    let store = bench.store(LatestSettings { stream: Some(stream), ..LatestSettings::default() });
    store.put(&[book("a", "1", "1")]).await.unwrap();
    let entries: redis::Value = bench.ask(&["XRANGE", "audit", "-", "+"]).await;
    assert!(format!("{entries:?}").contains("price"), "{entries:?}");
}

#[tokio::test]
async fn changed_tokens_are_published() {
    let bench = Bench::new();
    let client = redis::Client::open(bench.server.url()).unwrap();
    let connection = client.get_connection().unwrap();
    let settings = LatestSettings { publish: Some("changed".to_owned()), ..LatestSettings::default() };
    let store = bench.store(settings);
    let (subscribed, is_subscribed) = tokio::sync::oneshot::channel();
    let heard = tokio::task::spawn_blocking(move || {
        let mut connection = connection;
        let mut pubsub = connection.as_pubsub();
        pubsub.subscribe("changed").unwrap();
        subscribed.send(()).unwrap();
        let mut next = || pubsub.get_message().unwrap().get_payload::<String>().unwrap();
        [next(), next()]
    });
    is_subscribed.await.unwrap();
    store.put(&[book("a", "1", "1")]).await.unwrap();
    store.put(&[book("a", "1", "1")]).await.unwrap();
    store.put(&[book("b", "1", "1")]).await.unwrap();
    assert_eq!(heard.await.unwrap(), ["a", "b"]);
}

fn records<'a>(payloads: &[(&'a str, &'a str)]) -> Batch {
    let envelope = |(symbol, payload): &(&'a str, &'a str)| Envelope {
        symbol: Symbol::new(symbol).unwrap(),
        payload: Payload::parse(payload.as_bytes()).unwrap(),
        channel: Channel::new("orderbook").unwrap(),
        ..plain("polymarket", "orderbook", NOON_MS)
    };
    let envelopes: Vec<Envelope<'_>> = payloads.iter().map(envelope).collect();
    Batch::of(spool(), 1, &envelopes)
}

#[tokio::test]
async fn books_of_the_pipeline_are_kept_whatever_their_venue() {
    let bench = Bench::new();
    let config = RedisConfig::new(RedisAddress::new(bench.server.url()));
    let sink = RedisSink::open(config, Arc::new(SystemClock::new())).unwrap();
    let polymarket = r#"{"market":"m","asset_id":"t","timestamp":"17","hash":"cb","bids":[{"price":"0.1","size":"2"}],"asks":[],"tick_size":"0.01"}"#;
    let normalised =
        r#"{"market":null,"instrument":"n","timestamp_ms":18,"bids":[["0.1","2"]],"asks":[],"hash":null}"#;
    let timeless = r#"{"bids":[],"asks":[]}"#;
    sink.write(&records(&[("t", polymarket), ("n", normalised), ("x", timeless)])).await.unwrap();
    let noon = NOON_MS.to_string();
    let expected = [r#"[{"price":"0.1","size":"2"}]"#, "[]", "cb", "17", &noon, "m"];
    assert_eq!(fields(&bench, "ob:t").await, expected);
    let [bids, asks, hash, timestamp, ..] = fields(&bench, "ob:n").await;
    assert_eq!(
        (bids.as_str(), asks.as_str(), hash.len(), timestamp.as_str()),
        (r#"[["0.1","2"]]"#, "[]", 32, "18")
    );
    assert_eq!(fields(&bench, "ob:x").await[3], noon, "without a time of the venue's, when it was received");
}

#[tokio::test]
async fn records_of_other_channels_pass_by() {
    let bench = Bench::new();
    let config = RedisConfig::new(RedisAddress::new(bench.server.url()));
    let sink = RedisSink::open(config, Arc::new(SystemClock::new())).unwrap();
    sink.write(&Batch::of(spool(), 1, &[plain("okx", "trades", NOON_MS)])).await.unwrap();
    let count: u64 = bench.ask(&["DBSIZE"]).await;
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_key_that_holds_something_else_costs_its_record_only() {
    let bench = Bench::new();
    let _: () = bench.ask(&["SET", "ob:b", "mine"]).await;
    let config = RedisConfig::new(RedisAddress::new(bench.server.url()));
    let sink = RedisSink::open(config, Arc::new(SystemClock::new())).unwrap();
    let book = r#"{"bids":[],"asks":[],"hash":"1","timestamp":"1"}"#;
    let error = sink.write(&records(&[("a", book), ("b", book), ("c", book)])).await.unwrap_err();
    let SinkError::Refused { refused, .. } = &error else { panic!("{error}") };
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].index, 1);
    assert!(refused[0].reason.contains("ob:b holds something else than a hash"), "{}", refused[0].reason);
    let kept: u64 = bench.ask(&["EXISTS", "ob:a", "ob:c"]).await;
    assert_eq!(kept, 2);
    let untouched: String = bench.ask(&["GET", "ob:b"]).await;
    assert_eq!(untouched, "mine");
}
