//! Coinbase: cumulative answers, books without numbers, trade ids without holes, heartbeats by product.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{small, start};

type Sides = BTreeMap<(String, String), String>;

fn of<'a>(frames: &'a [Value], kind: &str, product: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["type"] == kind && frame["product_id"] == product).collect()
}

#[tokio::test]
async fn answers_list_everything_subscribed_so_far() {
    let bench = start(small()).await;
    let mut client = bench.connect("coinbase/ws").await;
    client.say(r#"{"type":"subscribe","product_ids":["ETH-USD","BTC-USD"],"channels":["matches"]}"#).await;
    let first = client.read().await;
    assert_eq!(
        first,
        json!({"type":"subscriptions","channels":[{"name":"matches","product_ids":["BTC-USD","ETH-USD"]}]})
    );
    let states = client.drain_json().await;
    assert_eq!(states.len(), 2);
    assert!(states.iter().all(|state| state["type"] == "last_match"));
    client
        .say(r#"{"type":"subscribe","product_ids":["BTC-USD"],"channels":[{"name":"level2_batch","product_ids":["BTC-USD"]},"heartbeat"]}"#)
        .await;
    let names: Vec<Value> = client.read().await["channels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| channel["name"].clone())
        .collect();
    assert_eq!(names, ["heartbeat", "level2_batch", "matches"]);
    client.say(r#"{"type":"unsubscribe","product_ids":["BTC-USD","ETH-USD"],"channels":["matches"]}"#).await;
    let frames = client.drain_json().await;
    assert_eq!(frames[0]["type"], "snapshot");
    assert_eq!(frames[1]["channels"].as_array().unwrap().len(), 2);
    client.say(r#"{"type":"subscribe","product_ids":["NO-SUCH"],"channels":["matches"]}"#).await;
    assert_eq!(
        client.read().await,
        json!({"type":"error","message":"Failed to subscribe","reason":"NO-SUCH is not a valid product"})
    );
    client.say(r#"{"type":"subscribe","product_ids":["BTC-USD"],"channels":["level2"]}"#).await;
    assert!(client.read().await["reason"].as_str().unwrap().contains("require authentication"));
}

#[tokio::test]
async fn books_trades_tickers_and_heartbeats_belong_together() {
    let bench = start(small()).await;
    let mut client = bench.connect("coinbase/ws").await;
    client
        .say(r#"{"type":"subscribe","product_ids":["BTC-USD","SOL-USD"],"channels":["level2_batch","matches","ticker","heartbeat"]}"#)
        .await;
    let mut frames = client.drain_json().await;
    bench.pass(20_000).await;
    frames.extend(client.drain_json().await);
    let snapshot = of(&frames, "snapshot", "BTC-USD")[0];
    let mut book = Sides::new();
    for (key, side) in [("bids", "buy"), ("asks", "sell")] {
        for level in snapshot[key].as_array().unwrap() {
            book.insert((side.into(), level[0].as_str().unwrap().into()), level[1].as_str().unwrap().into());
        }
    }
    let updates = of(&frames, "l2update", "BTC-USD");
    assert!(updates.len() > 80);
    for change in updates.iter().flat_map(|update| update["changes"].as_array().unwrap()) {
        let (key, size) = (
            (change[0].as_str().unwrap().into(), change[1].as_str().unwrap().into()),
            change[2].as_str().unwrap(),
        );
        match size.chars().all(|c| matches!(c, '0' | '.')) {
            true => drop(book.remove(&key).unwrap()),
            false => drop(book.insert(key, size.to_owned())),
        }
    }
    let rest = bench.json("coinbase/rest/products/BTC-USD/book?level=2").await;
    let mut want = Sides::new();
    for (key, side) in [("bids", "buy"), ("asks", "sell")] {
        for level in rest[key].as_array().unwrap() {
            want.insert((side.into(), level[0].as_str().unwrap().into()), level[1].as_str().unwrap().into());
        }
    }
    assert_eq!(book, want);

    let mut trades = of(&frames, "last_match", "BTC-USD");
    trades.extend(of(&frames, "match", "BTC-USD"));
    assert!(trades.len() > 12);
    for pair in trades.windows(2) {
        assert_eq!(pair[1]["trade_id"].as_u64(), pair[0]["trade_id"].as_u64().map(|id| id + 1));
        assert!(pair[1]["sequence"].as_u64() > pair[0]["sequence"].as_u64());
    }
    let last = trades.last().unwrap();
    let ticker = *of(&frames, "ticker", "BTC-USD").last().unwrap();
    assert_eq!((&ticker["trade_id"], &ticker["price"]), (&last["trade_id"], &last["price"]));
    assert_ne!(ticker["side"], last["side"], "the taker's here, the maker's there");
    let recent = bench.json("coinbase/rest/products/BTC-USD/trades?limit=2").await;
    assert_eq!((&recent[0]["trade_id"], &recent[0]["side"]), (&last["trade_id"], &last["side"]));
    let beats = of(&frames, "heartbeat", "SOL-USD");
    assert_eq!(beats.len(), 20);
    assert_eq!(of(&frames, "heartbeat", "BTC-USD").last().unwrap()["last_trade_id"], last["trade_id"]);
}

#[tokio::test]
async fn who_does_not_subscribe_in_time_is_dropped_and_requests_have_a_limit() {
    let bench = start(small()).await;
    let mut client = bench.connect("coinbase/ws").await;
    bench.pass(5_100).await;
    assert_eq!(client.until_the_end().await.2, Some(1008));
    assert_eq!(bench.json("coinbase/rest/time").await["epoch"].as_f64(), Some(1_790_000_005.1));
    assert!(bench.json("coinbase/rest/products").await.as_array().unwrap().len() == 40);
    let mut last = (0, "".into());
    for _ in 0..20 {
        let (status, _, body) = bench.get("coinbase/rest/products/NO-SUCH/trades").await;
        last = (status, body);
    }
    assert_eq!((last.0, &last.1[..]), (429, &br#"{"message":"Public rate limit exceeded"}"#[..]));
}
