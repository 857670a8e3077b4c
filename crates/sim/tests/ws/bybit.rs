//! Bybit: ten arguments, counted topics, the client's heartbeat, 403 for a while.

use std::collections::BTreeMap;

use catchment_sim::{StreamFault, StreamFaultKind as Kind};
use serde_json::Value;

use crate::client::{small, start};

fn of<'a>(frames: &'a [Value], topic: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["topic"] == topic).collect()
}

fn apply(book: &mut BTreeMap<(bool, String), String>, frame: &Value) {
    if frame["type"] == "snapshot" {
        book.clear();
    }
    for (bid, key) in [(true, "b"), (false, "a")] {
        for level in frame["data"][key].as_array().unwrap() {
            let (price, size) = (level[0].as_str().unwrap().to_owned(), level[1].as_str().unwrap());
            match size {
                "0" => drop(book.remove(&(bid, price))),
                size => drop(book.insert((bid, price), size.to_owned())),
            }
        }
    }
}

#[tokio::test]
async fn topics_count_their_messages_and_books_follow() {
    let bench = start(small()).await;
    let mut client = bench.connect("bybit/v5/public/spot").await;
    client
        .say(r#"{"req_id":"1","op":"subscribe","args":["orderbook.50.BTCUSDT","orderbook.200.BTCUSDT","orderbook.1.BTCUSDT","publicTrade.BTCUSDT","tickers.BTCUSDT"]}"#)
        .await;
    let ack = client.read().await;
    assert_eq!(
        (&ack["success"], &ack["ret_msg"], &ack["req_id"], &ack["op"]),
        (&true.into(), &"subscribe".into(), &"1".into(), &"subscribe".into())
    );
    let mut frames = client.drain_json().await;
    bench.pass(30_000).await;
    frames.extend(client.drain_json().await);
    for depth in [50, 200] {
        let updates = of(&frames, &format!("orderbook.{depth}.BTCUSDT"));
        assert!(updates.len() > 120 && updates[0]["type"] == "snapshot");
        let mut book = BTreeMap::new();
        for pair in updates.windows(2) {
            assert_eq!(pair[1]["data"]["u"].as_u64(), pair[0]["data"]["u"].as_u64().map(|u| u + 1));
            assert!(pair[1]["data"]["seq"].as_u64() > pair[0]["data"]["seq"].as_u64());
            assert_eq!(pair[1]["type"], "delta");
        }
        for update in updates {
            apply(&mut book, update);
        }
        let rest = bench
            .json(&format!("bybit/rest/v5/market/orderbook?category=spot&symbol=BTCUSDT&limit={depth}"))
            .await;
        let mut want = BTreeMap::new();
        for (bid, key) in [(true, "b"), (false, "a")] {
            for level in rest["result"][key].as_array().unwrap() {
                want.insert(
                    (bid, level[0].as_str().unwrap().to_owned()),
                    level[1].as_str().unwrap().to_owned(),
                );
            }
        }
        assert_eq!(book, want, "{depth}");
    }
    let best = of(&frames, "orderbook.1.BTCUSDT");
    assert!(best.len() > 10 && best.iter().all(|frame| frame["type"] == "snapshot"));
    let trades = of(&frames, "publicTrade.BTCUSDT");
    let recent = bench.json("bybit/rest/v5/market/recent-trade?category=spot&symbol=BTCUSDT&limit=1").await;
    assert_eq!(recent["result"]["list"][0]["execId"], trades.last().unwrap()["data"][0]["i"]);
    assert!(of(&frames, "tickers.BTCUSDT").len() > 20);
}

#[tokio::test]
async fn requests_are_all_or_nothing() {
    let bench = start(small().with("bybit.pairs.quiet", "1").unwrap()).await;
    let mut client = bench.connect("bybit/ws/v5/public/spot").await;
    let many: Vec<String> = (0..11).map(|_| "\"publicTrade.BTCUSDT\"".to_owned()).collect();
    client.say(&format!(r#"{{"op":"subscribe","args":[{}]}}"#, many.join(","))).await;
    assert_eq!(client.read().await["ret_msg"], "args size >10");
    client.say(r#"{"op":"subscribe","args":["publicTrade.BTCUSDT","orderbook.60.BTCUSDT"]}"#).await;
    let refused = client.read().await;
    assert_eq!(
        (&refused["success"], &refused["ret_msg"]),
        (&false.into(), &"Invalid symbol :[orderbook.60.BTCUSDT]".into())
    );
    bench.pass(5_000).await;
    assert!(client.drain().await.is_empty());
    client.say(r#"{"op":"ping","req_id":"9"}"#).await;
    let pong = client.read().await;
    assert_eq!(
        (&pong["ret_msg"], &pong["op"], &pong["req_id"]),
        (&"pong".into(), &"ping".into(), &"9".into())
    );
    // The best level of a quiet symbol comes again every three seconds, under the same number.
    client.say(r#"{"op":"subscribe","args":["orderbook.1.QUIET0USDT"]}"#).await;
    let mut frames = client.drain_json().await;
    bench.pass(9_000).await;
    frames.extend(client.drain_json().await);
    let numbers: Vec<u64> = of(&frames, "orderbook.1.QUIET0USDT")
        .iter()
        .map(|frame| frame["data"]["u"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, vec![numbers[0]; 4]);
    bench.pass(700_000).await;
    assert_eq!(bench.sim.connections("bybit").unwrap().len(), 1, "repeated frames keep it open");
}

#[tokio::test]
async fn a_restart_numbers_from_one() {
    let bench = start(small()).await;
    let mut client = bench.connect("bybit/v5/public/spot").await;
    client.say(r#"{"op":"subscribe","args":["orderbook.50.BTCUSDT"]}"#).await;
    client.drain().await;
    bench.pass(2_000).await;
    client.drain().await;
    bench.inject("bybit", &StreamFault::new(Kind::Restart).on("BTCUSDT", "book_delta"));
    bench.pass(2_000).await;
    let numbers: Vec<u64> =
        client.drain_json().await.iter().map(|frame| frame["data"]["u"].as_u64().unwrap()).collect();
    assert_eq!(numbers[..4], [1, 2, 3, 4]);
}

#[tokio::test]
async fn one_request_too_many_is_403_for_ten_minutes() {
    let bench = start(small()).await;
    let path = "bybit/rest/v5/market/time";
    assert_eq!(bench.json(path).await["result"]["timeSecond"], "1790000000");
    assert_eq!(bench.json("bybit/rest/v5/market/orderbook?symbol=BTCUSDT").await["retCode"], 10_001);
    for _ in 2..600 {
        assert_eq!(bench.get(path).await.0, 200);
    }
    assert_eq!(bench.get(path).await.0, 403);
    bench.clock.advance(std::time::Duration::from_secs(590));
    assert_eq!(bench.get(path).await.0, 403);
    bench.clock.advance(std::time::Duration::from_secs(11));
    assert_eq!(bench.get(path).await.0, 200);
}
