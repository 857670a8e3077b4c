//! Binance: sockets, ids, the local book by the venue's own recipe, weights.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::{Bench, START_MS, small, start};

/// A book as the venue's documents say it is to be kept; prices as text, which is how they are sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Book {
    id: u64,
    sides: [BTreeMap<String, String>; 2],
}

fn is_zero(size: &str) -> bool {
    size.chars().all(|c| matches!(c, '0' | '.'))
}

impl Book {
    fn snapshot(json: &Value) -> Self {
        let side = |key: &str| {
            let levels = json[key].as_array().unwrap().iter();
            levels
                .map(|level| (level[0].as_str().unwrap().into(), level[1].as_str().unwrap().into()))
                .collect()
        };
        Self { id: json["lastUpdateId"].as_u64().unwrap(), sides: [side("bids"), side("asks")] }
    }

    fn apply(&mut self, update: &Value) {
        let (first, last) = (update["U"].as_u64().unwrap(), update["u"].as_u64().unwrap());
        if last <= self.id {
            return;
        }
        assert!(first <= self.id + 1 && self.id < last, "{first}..{last} after {}", self.id);
        for (side, key) in self.sides.iter_mut().zip(["b", "a"]) {
            for level in update[key].as_array().unwrap() {
                let (price, size) = (level[0].as_str().unwrap(), level[1].as_str().unwrap());
                match is_zero(size) {
                    true => drop(side.remove(price)),
                    false => drop(side.insert(price.to_owned(), size.to_owned())),
                }
            }
        }
        self.id = last;
    }
}

async fn rest_book(bench: &Bench, symbol: &str) -> Book {
    Book::snapshot(&bench.json(&format!("binance/rest/api/v3/depth?symbol={symbol}&limit=5000")).await)
}

#[tokio::test]
async fn a_book_kept_by_the_recipe_is_the_venues_book() {
    let bench = start(small()).await;
    let mut client = bench.connect("binance/ws/ws").await;
    client.say(r#"{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms","ethusdt@depth"],"id":1}"#).await;
    assert_eq!(client.text().await, r#"{"result":null,"id":1}"#);
    bench.pass(3_000).await;
    let mut book = rest_book(&bench, "BTCUSDT").await;
    bench.pass(20_000).await;
    let updates = client.drain_json().await;
    let own: Vec<&Value> = updates.iter().filter(|update| update["s"] == "BTCUSDT").collect();
    assert!((100..130).contains(&own.len()), "five a second: {}", own.len());
    assert!(updates.len() > own.len() + 90, "the other pair, too");
    for pair in own.windows(2) {
        assert_eq!(pair[1]["U"].as_u64(), pair[0]["u"].as_u64().map(|id| id + 1));
        assert!(pair[0]["E"].as_i64() <= pair[1]["E"].as_i64());
    }
    let first = own[0];
    assert!((START_MS..START_MS + 23_000).contains(&first["E"].as_i64().unwrap()));
    assert_eq!(first["e"], "depthUpdate");
    let price = first["b"].as_array().unwrap().iter().chain(first["a"].as_array().unwrap()).next().unwrap();
    assert_eq!(price[0].as_str().unwrap().split_once('.').unwrap().1.len(), 8);
    for update in own {
        book.apply(update);
    }
    assert_eq!(book, rest_book(&bench, "BTCUSDT").await);
}

#[tokio::test]
async fn trades_have_ids_without_a_hole_and_rest_shows_the_same() {
    let bench = start(small()).await;
    let mut client = bench.connect("binance/stream?streams=btcusdt@trade/btcusdt@bookTicker").await;
    bench.pass(30_000).await;
    let frames = client.drain_json().await;
    let of = |name: &str| -> Vec<&Value> {
        frames.iter().filter(|frame| frame["stream"] == name).map(|frame| &frame["data"]).collect()
    };
    let (trades, tickers) = (of("btcusdt@trade"), of("btcusdt@bookTicker"));
    assert_eq!(trades.len() + tickers.len(), frames.len());
    assert!((24..37).contains(&trades.len()), "{}", trades.len());
    for pair in trades.windows(2) {
        assert_eq!(pair[1]["t"].as_u64(), pair[0]["t"].as_u64().map(|id| id + 1));
    }
    let keys: Vec<&String> = trades[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["E", "M", "T", "e", "m", "p", "q", "s", "t"]);
    assert!(tickers.iter().all(|ticker| ticker.get("e").is_none() && ticker["u"].is_u64()));
    let rest = bench.json("binance/rest/api/v3/trades?symbol=BTCUSDT&limit=3").await;
    let last = trades.last().unwrap();
    assert_eq!(rest.as_array().unwrap().len(), 3);
    assert_eq!((&rest[2]["id"], &rest[2]["price"], &rest[2]["qty"]), (&last["t"], &last["p"], &last["q"]));
    assert_eq!((&rest[2]["time"], &rest[2]["isBuyerMaker"]), (&last["T"], &last["m"]));
}

#[tokio::test]
async fn commands_are_answered_as_the_venue_does() {
    let bench = start(small().with("binance.pairs.ticker_per_s", "0").unwrap()).await;
    let mut client = bench.connect("binance/ws").await;
    let check = async |client: &mut crate::client::Client, say: &str, want: &str| {
        bench.pass(1_000).await; // five messages a second are allowed
        client.say(say).await;
        assert_eq!(client.text().await, want);
    };
    // A misspelt name is taken as if it were right, and stays silent.
    check(
        &mut client,
        r#"{"method":"SUBSCRIBE","params":["btcusdt@dpeth","nosuch@trade"],"id":7}"#,
        r#"{"result":null,"id":7}"#,
    )
    .await;
    check(
        &mut client,
        r#"{"method":"SUBSCRIBE","params":["quiet@trade"],"id":"x"}"#,
        r#"{"result":null,"id":"x"}"#,
    )
    .await;
    check(&mut client, r#"{"method":"LIST_SUBSCRIPTIONS","id":3}"#, r#"{"result":[],"id":3}"#).await;
    check(
        &mut client,
        r#"{"method":"SUBSCRIBE","params":["ethusdt@ticker"],"id":4}"#,
        r#"{"result":null,"id":4}"#,
    )
    .await;
    check(
        &mut client,
        r#"{"method":"UNSUBSCRIBE","params":["ethusdt@ticker"],"id":6}"#,
        r#"{"result":null,"id":6}"#,
    )
    .await;
    client.say("nonsense").await;
    assert!(client.text().await.starts_with(r#"{"code":3,"msg":"Invalid JSON"#));
}

#[tokio::test]
async fn more_than_five_messages_a_second_end_the_connection() {
    let bench = start(small()).await;
    let mut client = bench.connect("binance/ws").await;
    for id in 0..5 {
        client.say(&format!(r#"{{"method":"LIST_SUBSCRIPTIONS","id":{id}}}"#)).await;
        client.text().await;
    }
    client.say(r#"{"method":"LIST_SUBSCRIPTIONS","id":5}"#).await;
    let (texts, _, code) = client.until_the_end().await;
    assert_eq!((texts.len(), code), (0, Some(1008)));
}

#[tokio::test]
async fn pings_come_every_twenty_seconds_and_a_life_ends() {
    let config = small().with("binance.session.life_ms", "70000").unwrap();
    let bench = start(config.with("binance.pairs.book_per_s", "0").unwrap()).await;
    let mut client = bench.connect("binance/ws/btcusdt@depth").await;
    let mut pings = 0;
    for _ in 0..3 {
        bench.pass(20_000).await;
        assert!(matches!(client.next().await.unwrap(), tokio_tungstenite::tungstenite::Message::Ping(_)));
        pings += 1;
    }
    assert_eq!((pings, bench.sim.connections("binance").unwrap().len()), (3, 1));
    bench.pass(10_000).await;
    let (_, _, code) = client.until_the_end().await;
    assert_eq!(code, Some(1001));
    assert!(bench.sim.connections("binance").unwrap().is_empty());
}

#[tokio::test]
async fn a_client_that_never_answers_a_ping_is_cut_off() {
    let bench = start(small()).await;
    let _client = bench.connect("binance/ws/btcusdt@depth").await; // does not read, so it answers nothing
    bench.pass(60_000).await;
    assert_eq!(bench.sim.connections("binance").unwrap().len(), 1);
    bench.pass(21_000).await;
    assert_eq!(bench.sim.connections("binance").unwrap().len(), 0);
}

#[tokio::test]
async fn weights_are_counted_and_going_on_brings_a_ban() {
    let bench = start(small().with("binance.rules.weight_per_min", "60").unwrap()).await;
    let path = "binance/rest/api/v3/trades?symbol=BTCUSDT"; // 25
    let used = |headers: &hyper::HeaderMap| headers["x-mbx-used-weight-1m"].to_str().unwrap().to_owned();
    for want in ["25", "50"] {
        let (status, headers, _) = bench.get(path).await;
        assert_eq!((status, used(&headers).as_str()), (200, want));
    }
    let (status, headers, body) = bench.get(path).await;
    assert_eq!((status, headers["retry-after"].to_str().unwrap()), (429, "40"));
    assert!(body.starts_with(br#"{"code":-1003,"msg":"Too much request weight used"#), "{body:?}");
    for _ in 0..4 {
        assert_eq!(bench.get(path).await.0, 429);
    }
    let (status, headers, body) = bench.get(path).await;
    assert_eq!((status, headers["retry-after"].to_str().unwrap()), (418, "120"));
    assert!(std::str::from_utf8(&body).unwrap().contains("banned until 1790000120000"), "{body:?}");
    bench.clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(bench.get(path).await.0, 418, "a new minute does not end a ban");
    bench.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(bench.get(path).await.0, 200);
}

#[tokio::test]
async fn rest_says_what_there_is_and_what_is_wrong() {
    let bench = start(small()).await;
    assert_eq!(bench.json("binance/rest/api/v3/time").await["serverTime"], START_MS);
    let info = bench.json("binance/rest/api/v3/exchangeInfo").await;
    assert_eq!(info["symbols"].as_array().unwrap().len(), 40);
    assert_eq!(info["rateLimits"][0]["limit"], 6_000);
    let one = bench.json("binance/rest/api/v3/exchangeInfo?symbol=BTCUSDT").await;
    assert_eq!(
        (&one["symbols"][0]["baseAsset"], &one["symbols"][0]["quoteAsset"]),
        (&"BTC".into(), &"USDT".into())
    );
    assert_eq!(one["symbols"][0]["filters"][0]["tickSize"], "0.01000000");
    let (status, _, body) = bench.get("binance/rest/api/v3/depth?symbol=NOSUCH").await;
    assert_eq!((status, &body[..]), (400, &br#"{"code":-1121,"msg":"Invalid symbol."}"#[..]));
    let depth = bench.json("binance/rest/api/v3/depth?symbol=BTCUSDT&limit=5").await;
    let prices = |key: &str| -> Vec<f64> {
        depth[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|level| level[0].as_str().unwrap().parse().unwrap())
            .collect()
    };
    assert!(prices("bids").iter().rev().chain(&prices("asks")).is_sorted());
    assert_eq!(prices("bids").len(), 5);
}
