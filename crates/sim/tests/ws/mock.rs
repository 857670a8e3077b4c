//! The mock: numbered streams, a login that is checked, and what goes wrong by itself.

use std::sync::Arc;

use catchment_model::SystemClock;
use catchment_sim::mock::{MockArgs, MockExchange};
use catchment_sim::{SimConfig, StreamFaultKind as Kind};
use serde_json::Value;

use crate::client::{Client, small, start};

fn config(rules: &[(&str, &str)]) -> SimConfig {
    let mut config = small();
    for (key, value) in rules {
        config = config.with(&format!("mock.rules.{key}"), value).unwrap();
    }
    config
}

fn numbers(frames: &[Value], stream: &str) -> Vec<u64> {
    frames
        .iter()
        .filter(|frame| frame["stream"] == stream)
        .map(|frame| frame["seq"].as_u64().unwrap())
        .collect()
}

async fn subscribed(client: &mut Client) {
    client.say(r#"{"op":"subscribe","id":"1","args":["trades:BTC/USDT","book_delta:BTC/USDT","ticker:BTC/USDT"]}"#).await;
    assert_eq!(client.text().await, r#"{"op":"subscribe","id":"1","ok":true}"#);
}

#[tokio::test]
async fn streams_are_numbered_and_the_snapshot_fits() {
    let bench = start(config(&[])).await;
    let mut client = bench.connect("mock/ws/public").await;
    subscribed(&mut client).await;
    let first = client.read().await;
    assert_eq!((&first["type"], &first["stream"]), (&"snapshot".into(), &"book_delta:BTC/USDT".into()));
    bench.pass(10_000).await;
    let mut frames = vec![first];
    frames.extend(client.drain_json().await);
    for stream in ["trades:BTC/USDT", "book_delta:BTC/USDT", "ticker:BTC/USDT"] {
        let numbers = numbers(&frames, stream);
        assert!(
            numbers.len() > 5 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "{stream}: {numbers:?}"
        );
    }
    let snapshot = bench.json("mock/rest/snapshot?symbol=BTC/USDT").await;
    assert_eq!(snapshot["seq"].as_u64(), numbers(&frames, "book_delta:BTC/USDT").last().copied());
    assert_eq!(bench.json("mock/rest/time").await["time"], crate::client::START_MS + 10_000);
    client.say(r#"{"op":"subscribe","id":"2","args":["trades:NO/SUCH"]}"#).await;
    assert_eq!(client.read().await["error"], "there is no stream trades:NO/SUCH here");
}

#[tokio::test]
async fn the_private_socket_wants_a_login_that_is_right() {
    let bench = start(config(&[])).await;
    let mut client = bench.connect("mock/ws/private").await;
    client.say(r#"{"op":"subscribe","id":"1","args":["fills:BTC/USDT"]}"#).await;
    assert_eq!(client.read().await["error"], "log in first");
    client.say(r#"{"op":"login","key":"mock-key","time":1790000000000,"sign":"00"}"#).await;
    assert_eq!(client.read().await["error"], "the signature is wrong");
    assert_eq!(client.until_the_end().await.2, Some(1008));
    let mut client = bench.connect("mock/ws/private").await;
    // printf '1790000000000GET/mock/ws/private' | openssl dgst -sha256 -hmac mock-secret
    let sign = "db7b62f7490482bd5ed87dc7f1df0d8249b44bfab77769c5e3c715914e9c3769";
    client.say(&format!(r#"{{"op":"login","key":"mock-key","time":1790000000000,"sign":"{sign}"}}"#)).await;
    assert_eq!(client.text().await, r#"{"op":"login","ok":true}"#);
    client.say(r#"{"op":"subscribe","id":"1","args":["fills:BTC/USDT"]}"#).await;
    assert_eq!(client.read().await["ok"], true);
    bench.pass(5_000).await;
    assert!(numbers(&client.drain_json().await, "fills:BTC/USDT").len() > 2);
}

#[tokio::test]
async fn it_goes_wrong_as_often_as_told_and_says_so() {
    let rules =
        [("gap_every", "10"), ("disconnect_every", "200"), ("silence_ms", "5000"), ("binary_rate", "0.1")];
    let bench = start(config(&rules).with("mock.rules.silence_every_ms", "20000").unwrap()).await;
    let mut client = bench.connect("mock/ws/public").await;
    subscribed(&mut client).await;
    client.drain().await;
    bench.pass(20_000).await;
    let frames = client.drain_json().await;
    let books = numbers(&frames, "book_delta:BTC/USDT");
    let gaps = books.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    let log = bench.sim.log();
    let of = |kind: Kind| log.iter().filter(|entry| entry.fault == kind).count();
    assert!((8..=11).contains(&gaps), "{gaps}");
    assert!(of(Kind::Gap) >= gaps && of(Kind::Binary) > 3);
    bench.pass(5_000).await;
    assert!(client.drain().await.is_empty(), "silent");
    assert_eq!(bench.sim.log().iter().filter(|entry| entry.fault == Kind::Freeze).count(), 1);
    bench.pass(30_000).await;
    let (_, error, _) = client.until_the_end().await;
    assert!(error.is_some());
    assert_eq!(bench.sim.log().iter().filter(|entry| entry.fault == Kind::Cut).count(), 1);
}

#[tokio::test]
async fn it_starts_by_itself_and_says_where_it_is() {
    let args = MockArgs { mock: true, mock_mongo_down_ms: 1_500, ..MockArgs::default() };
    let mock = MockExchange::start(&args, Arc::new(SystemClock::new())).await.unwrap();
    let [(_, rest), (_, stream)] = mock.endpoints();
    assert_eq!(rest, format!("http://{}/mock/rest", mock.addr()));
    assert_eq!(mock.mongo_down(), Some(std::time::Duration::from_millis(1_500)));
    let mut client = Client::at(&format!("{stream}/public")).await.unwrap();
    subscribed(&mut client).await;
    assert_eq!(client.read().await["type"], "snapshot");
    // By the machine's own clock, as users have it: something comes without being told to.
    assert!(client.read().await["seq"].is_u64());
    mock.stop().await;
}
