//! Kraken: acknowledgements for each symbol, checksums recomputed from what was received, REST with its errors.

use flate2::Crc;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{Client, small, start};

#[derive(serde::Deserialize)]
struct Level {
    price: Box<RawValue>,
    qty: Box<RawValue>,
}

#[derive(serde::Deserialize)]
struct Data {
    symbol: String,
    bids: Vec<Level>,
    asks: Vec<Level>,
    checksum: u32,
}

#[derive(serde::Deserialize)]
struct Frame {
    r#type: String,
    data: Vec<Data>,
}

/// Keeps texts as they came, sorts by value, cuts to its depth.
#[derive(Default)]
pub(crate) struct Book {
    depth: usize,
    sides: [Vec<(String, String)>; 2],
}

impl Book {
    pub(crate) fn new(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Applies a frame; whether the checksum agrees.
    pub(crate) fn apply(&mut self, text: &str) -> bool {
        let frame: Frame = serde_json::from_str(text).unwrap();
        let data = &frame.data[0];
        if frame.r#type == "snapshot" {
            self.sides = Default::default();
        }
        let depth = self.depth;
        for (at, (side, levels)) in self.sides.iter_mut().zip([&data.bids, &data.asks]).enumerate() {
            for Level { price, qty } in levels {
                side.retain(|(other, _)| other != price.get());
                if qty.get().chars().any(|c| ('1'..='9').contains(&c)) {
                    side.push((price.get().to_owned(), qty.get().to_owned()));
                }
            }
            side.sort_by(|a, b| a.0.parse::<f64>().unwrap().total_cmp(&b.0.parse().unwrap()));
            if at == 0 {
                side.reverse();
            }
            side.truncate(depth);
        }
        let digits = |text: &str| text.replace('.', "").trim_start_matches('0').to_owned();
        let mut crc = Crc::new();
        for side in [&self.sides[1], &self.sides[0]] {
            for (price, qty) in side.iter().take(10) {
                crc.update((digits(price) + &digits(qty)).as_bytes());
            }
        }
        crc.sum() == data.checksum
    }
}

fn is_book(text: &str, symbol: &str) -> bool {
    text.starts_with(r#"{"channel":"book""#)
        && serde_json::from_str::<Frame>(text).unwrap().data[0].symbol == symbol
}

pub(crate) async fn status(client: &mut Client) {
    let status = client.text().await;
    assert!(
        status.starts_with(r#"{"channel":"status","type":"update","data":[{"version":"2.0.10","#),
        "{status}"
    );
}

#[tokio::test]
async fn every_symbol_is_acknowledged_and_every_checksum_agrees_at_every_depth() {
    let bench = start(small()).await;
    for depth in [10, 25, 100] {
        let mut client = bench.connect("kraken/ws/v2").await;
        status(&mut client).await;
        let say = format!(
            r#"{{"method":"subscribe","params":{{"channel":"book","symbol":["BTC/USD","DOGE/USDT","XBT/USD"],"depth":{depth}}},"req_id":9}}"#
        );
        client.say(&say).await;
        let mut acks = Vec::new();
        let mut books: Vec<(&str, Book)> =
            vec![("BTC/USD", Book::new(depth)), ("DOGE/USDT", Book::new(depth))];
        let mut agreed = 0;
        let mut take = |text: &str| {
            for (symbol, book) in &mut books {
                if is_book(text, symbol) {
                    assert!(book.apply(text), "{depth}: {text}");
                    agreed += 1;
                }
            }
        };
        while acks.len() < 3 {
            let text = client.text().await;
            let json: Value = serde_json::from_str(&text).unwrap();
            match json["method"].as_str() {
                Some("subscribe") => acks.push(json),
                _ => take(&text),
            }
        }
        for (ack, symbol) in acks.iter().zip(["BTC/USD", "DOGE/USDT"]) {
            assert_eq!((&ack["success"], &ack["req_id"]), (&true.into(), &9.into()));
            assert_eq!(ack["result"]["symbol"], symbol);
            assert_eq!(ack["result"]["depth"], depth);
        }
        assert_eq!((&acks[2]["success"], &acks[2]["symbol"]), (&false.into(), &"XBT/USD".into()));
        assert_eq!(acks[2]["error"], "Currency pair not supported XBT/USD");
        bench.pass(20_000).await;
        for text in client.drain().await {
            take(&text);
        }
        assert!(agreed > 150, "{agreed}");
    }
}

#[tokio::test]
async fn heartbeats_come_every_second_once_something_is_subscribed() {
    let bench = start(small().with("kraken.pairs.quiet", "1").unwrap()).await;
    let mut client = bench.connect("kraken/ws/v2").await;
    status(&mut client).await;
    bench.pass(3_000).await;
    assert_eq!(client.drain().await.len(), 0);
    client.say(r#"{"method":"subscribe","params":{"channel":"trade","symbol":["QUIET0/USDT"]}}"#).await;
    assert!(client.text().await.contains(r#""snapshot":false"#));
    bench.pass(10_000).await;
    let texts = client.drain().await;
    assert_eq!(texts, vec![r#"{"channel":"heartbeat"}"#; 10]);
    client.say(r#"{"method":"ping","req_id":5}"#).await;
    let pong = client.read().await;
    assert_eq!((&pong["method"], &pong["req_id"]), (&"pong".into(), &5.into()));
}

#[tokio::test]
async fn a_symbol_can_be_taken_off_and_put_on_again() {
    let bench = start(small()).await;
    let mut client = bench.connect("kraken/ws/v2").await;
    status(&mut client).await;
    client.say(r#"{"method":"subscribe","params":{"channel":"book","symbol":["ETH/USD"],"depth":27}}"#).await;
    assert_eq!(client.read().await["error"], "Subscription depth not supported");
    client.say(r#"{"method":"subscribe","params":{"channel":"book","symbol":["ETH/USD"],"depth":10}}"#).await;
    let (_ack, snapshot) = (client.read().await, client.text().await);
    bench.pass(2_000).await;
    let mut book = Book::new(10);
    assert!(book.apply(&snapshot));
    client
        .say(r#"{"method":"unsubscribe","params":{"channel":"book","symbol":["ETH/USD"],"depth":10}}"#)
        .await;
    let mut texts = client.drain().await;
    let ack: Value = serde_json::from_str(&texts.pop().unwrap()).unwrap();
    assert_eq!((&ack["method"], &ack["success"]), (&"unsubscribe".into(), &true.into()));
    bench.pass(2_000).await;
    assert!(client.drain().await.is_empty(), "and no heartbeat when nothing is subscribed");
    client.say(r#"{"method":"subscribe","params":{"channel":"book","symbol":["ETH/USD"],"depth":10}}"#).await;
    client.read().await;
    let snapshot = client.text().await;
    assert!(snapshot.starts_with(r#"{"channel":"book","type":"snapshot""#) && Book::new(10).apply(&snapshot));
}

#[tokio::test]
async fn trades_and_tickers_look_as_they_should() {
    let bench = start(small()).await;
    let mut client = bench.connect("kraken/ws/v2").await;
    status(&mut client).await;
    client
        .say(r#"{"method":"subscribe","params":{"channel":"trade","symbol":["BTC/USD"],"snapshot":true}}"#)
        .await;
    client.say(r#"{"method":"subscribe","params":{"channel":"ticker","symbol":["BTC/USD"]}}"#).await;
    let mut frames = client.drain_json().await;
    bench.pass(10_000).await;
    frames.extend(client.drain_json().await);
    let of = |channel: &str| frames.iter().filter(|frame| frame["channel"] == channel).collect::<Vec<_>>();
    let trades = of("trade");
    assert_eq!(trades[0]["type"], "snapshot");
    let ids: Vec<u64> = trades
        .iter()
        .flat_map(|frame| frame["data"].as_array().unwrap())
        .map(|trade| trade["trade_id"].as_u64().unwrap())
        .collect();
    assert!(ids.len() > 10 && ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    assert!(of("ticker").len() > 6 && of("ticker")[0]["data"][0]["bid"].is_number());
    let rest = bench.json("kraken/rest/0/public/Trades?pair=XBTUSD&count=2").await;
    let rows = rest["result"]["XXBTZUSD"].as_array().unwrap();
    assert_eq!((rows.len(), rows[1][6].as_u64()), (2, ids.last().copied()));
}

#[tokio::test]
async fn errors_come_with_200_and_too_many_requests_do_too() {
    let bench = start(small()).await;
    let unknown = bench.json("kraken/rest/0/public/Depth?pair=NOSUCH").await;
    assert_eq!(unknown["error"][0], "EQuery:Unknown asset pair");
    let book = bench.json("kraken/rest/0/public/Depth?pair=BTC/USD&count=3").await;
    let asks = book["result"]["BTC/USD"]["asks"].as_array().unwrap();
    assert_eq!((asks.len(), asks[0][0].as_str().unwrap().split_once('.').unwrap().1.len()), (3, 5));
    let pairs = bench.json("kraken/rest/0/public/AssetPairs?pair=XBTUSD").await;
    assert_eq!(
        (&pairs["result"]["XXBTZUSD"]["base"], &pairs["result"]["XXBTZUSD"]["pair_decimals"]),
        (&"XXBT".into(), &2.into())
    );
    assert_eq!(bench.json("kraken/rest/0/public/Time").await["result"]["unixtime"], 1_790_000_000);
    let mut last = Value::Null;
    for _ in 0..20 {
        last = bench.json("kraken/rest/0/public/Time").await;
    }
    assert_eq!(last, serde_json::json!({"error":["EGeneral:Too many requests"]}));
}
