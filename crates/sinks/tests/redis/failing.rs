//! Scripts lost, servers restarted, servers that are not there. T25.

use std::sync::Arc;

use catchment_model::SystemClock;
use catchment_pipeline::{Sink, SinkError};
use catchment_sinks::conformance::batch;
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{
    LatestSettings, RedisAddress, RedisConfig, RedisFailure, RedisLink, RedisSink, Verdict,
};

use crate::{Bench, book};

#[tokio::test]
async fn a_lost_script_costs_one_more_round_trip() {
    let bench = Bench::new();
    let store = bench.store(LatestSettings { memory_keys_max: 0, ..LatestSettings::default() });
    let tokens: Vec<String> = (0..120).map(|n| format!("t{n}")).collect();
    for round in ["1", "2", "3"] {
        let books: Vec<_> = tokens.iter().map(|token| book(token, round, round)).collect();
        let check = async |verdict, evalsha, eval| {
            bench.ask::<()>(&["CONFIG", "RESETSTAT"]).await;
            assert_eq!(store.put(&books).await.unwrap().count(verdict), 120);
            assert_eq!((bench.calls("evalsha").await, bench.calls("eval").await), (evalsha, eval));
        };
        bench.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        check(Verdict::Written, 3, 3).await; // three groups: refused once, then sent whole
        check(Verdict::Same, 3, 0).await; // then it is there again
    }
}

#[tokio::test]
async fn a_server_that_was_restarted_empty_is_filled_again() {
    let mut bench = Bench::new();
    let store = bench.store(LatestSettings::default());
    let books = [book("a", "1", "1"), book("b", "1", "1")];
    store.put(&books).await.unwrap();
    bench.server.restart().unwrap();
    // What is remembered would be sent by nobody; a change of one book shows the loss, and then all are offered.
    let put = store.put(&[book("a", "2", "2")]).await.unwrap();
    assert_eq!(put.verdicts, [Verdict::Written]);
    let put = store.put(&books).await.unwrap();
    assert_eq!(put.verdicts, [Verdict::Older, Verdict::Written]);
}

#[tokio::test]
async fn a_durable_server_has_all_it_acknowledged_after_a_restart() {
    let mut bench = Bench::on(RedisServer::durable().unwrap());
    let store = bench.store(LatestSettings::default());
    store.put(&[book("a", "5", "5")]).await.unwrap();
    bench.server.restart().unwrap();
    let put = store.put(&[book("a", "4", "4")]).await.unwrap();
    assert_eq!(put.verdicts, [Verdict::Older], "never older than before");
}

#[tokio::test]
async fn a_server_that_is_away_is_said_to_be_and_is_used_when_it_is_back() {
    let mut bench = Bench::new();
    let store = bench.store(LatestSettings::default());
    store.put(&[book("a", "1", "1")]).await.unwrap();
    bench.server.kill().unwrap();
    let error = store.put(&[book("a", "2", "2")]).await.unwrap_err();
    assert!(matches!(error, RedisFailure::Unreachable(_)), "{error}");
    assert_eq!(store.remembered(), 0);
    bench.server.start_again().unwrap();
    assert_eq!(store.put(&[book("a", "1", "1")]).await.unwrap().verdicts, [Verdict::Written]);
}

#[tokio::test]
async fn a_sink_says_that_its_server_is_away_without_its_password() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let mut config = RedisConfig::new(RedisAddress::new(&url));
    config.channels.clear();
    let sink = RedisSink::open(config, Arc::new(SystemClock::new())).unwrap();
    let error = sink.write(&batch(1, 3)).await.unwrap_err();
    assert!(matches!(error, SinkError::Unreachable { .. }), "{error}");
    let told = format!("{error:?} {error} {sink:?}");
    assert!(!told.contains("hunter2"), "{told}");
    let wrong = RedisLink::new(&RedisAddress::new("http://:hunter2@x")).unwrap_err();
    assert!(!format!("{wrong:?} {wrong}").contains("hunter2"), "{wrong:?}");
}

#[tokio::test]
async fn a_server_that_became_a_replica_takes_nothing_and_is_used_again_when_it_leads() {
    let bench = Bench::new();
    let other = RedisServer::start().unwrap();
    let store = bench.store(LatestSettings::default());
    let books = [book("a", "1", "1"), book("b", "1", "1")];
    store.put(&books).await.unwrap();
    bench.ask::<()>(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).await;
    let error = store.put(&[book("a", "2", "2")]).await.unwrap_err();
    assert!(matches!(error, RedisFailure::Unreachable(_)), "{error}");
    assert_eq!(store.remembered(), 0, "whoever leads now may know less");
    bench.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let put = store.put(&[book("a", "2", "2"), book("b", "1", "1")]).await.unwrap();
    assert_eq!(put.unsent, 0);
    let held: String = bench.ask(&["HGET", "ob:a", "hash"]).await;
    assert_eq!(held, "2");
}
