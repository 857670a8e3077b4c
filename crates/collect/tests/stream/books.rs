//! Books: verified, written whole, begun anew one by one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catchment_collect::stream::{SilenceSettings, StreamSettings};
use catchment_model::{Clock, SystemClock};
use catchment_venues::polymarket::{HashInput, book_hash};
use serde_json::{Value, json};

use crate::rig::{Rig, Start, gap, impatient, sequences};
use crate::stage::{Session, Stage};

const BOOKS: &[(&str, &str)] = &[("book_delta", "BTC/USDT"), ("book_delta", "ETH/USDT")];

/// Bybit's next command, acknowledged: what it does, and its topics.
async fn bybit(session: &mut Session) -> (String, Vec<String>) {
    let command: Value = serde_json::from_str(&session.heard().await).unwrap();
    let (op, id) = (command["op"].as_str().unwrap(), &command["req_id"]);
    session
        .say(json!({"success": true, "ret_msg": op, "conn_id": "c", "req_id": id, "op": op}).to_string())
        .await;
    let topics = command["args"].as_array().unwrap().iter();
    (op.to_owned(), topics.map(|topic| topic.as_str().unwrap().to_owned()).collect())
}

fn bybit_book(symbol: &str, kind: &str, number: u64, bid: &str) -> String {
    json!({
        "topic": format!("orderbook.200.{symbol}"), "type": kind, "ts": 1_700_000_000_000_i64,
        "data": {"s": symbol, "b": [[bid, "1"]], "a": [["900", "2"]], "u": number, "seq": number}, "cts": 1
    })
    .to_string()
}

fn gaps(rig: &Rig) -> Vec<String> {
    rig.records("gaps").iter().map(gap).collect()
}

#[tokio::test]
async fn one_book_is_begun_anew_while_the_others_flow() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("bybit", BOOKS).on(&stage);
    let mut session = stage.session().await;
    assert_eq!(bybit(&mut session).await.1.len(), 2);
    for (symbol, bid) in [("BTCUSDT", "100"), ("ETHUSDT", "10")] {
        session.say(bybit_book(symbol, "snapshot", 10, bid)).await;
    }
    rig.wait_for("orderbook", 2).await;
    session.say(bybit_book("BTCUSDT", "delta", 11, "101")).await;
    session.say(bybit_book("BTCUSDT", "delta", 14, "102")).await; // two are missing
    session.say(bybit_book("ETHUSDT", "delta", 11, "11")).await;
    assert_eq!(
        bybit(&mut session).await,
        ("unsubscribe".to_owned(), vec!["orderbook.200.BTCUSDT".to_owned()])
    );
    // The other flows meanwhile; what is left over of the one is stored and not believed.
    session.say(bybit_book("BTCUSDT", "delta", 15, "103")).await;
    session.say(bybit_book("ETHUSDT", "delta", 12, "12")).await;
    assert_eq!(bybit(&mut session).await, ("subscribe".to_owned(), vec!["orderbook.200.BTCUSDT".to_owned()]));
    session.say(bybit_book("ETHUSDT", "delta", 13, "13")).await;
    session.say(bybit_book("BTCUSDT", "snapshot", 40, "140")).await;
    session.say(bybit_book("BTCUSDT", "delta", 41, "141")).await;
    session.say(bybit_book("ETHUSDT", "delta", 14, "14")).await;
    let books = rig.wait_for("orderbook", 3).await;
    rig.wait_for("book_delta", 11).await;
    assert_eq!(books[2]["symbol"], "BTC/USDT");
    assert_eq!(books[2]["payload"]["bids"], json!([["140", "1"]]));
    assert_eq!(books[2]["payload"]["extra"]["sequence"], 40);
    let checks = rig.records("book_checks");
    assert_eq!(checks.len(), 1, "{checks:#?}");
    assert_eq!((&checks[0]["symbol"], &checks[0]["payload"]["outcome"]), (&"BTC/USDT".into(), &"gap".into()));
    assert_eq!(checks[0]["payload"]["resync"], "resubscribe");
    assert_eq!(gaps(&rig), ["book_delta BTC/USDT sequence 12..13"]);
    let record = &rig.records("gaps")[0]["payload"];
    let (records, status) = rig.finish().await;
    assert_eq!(sequences(&records, "book_delta", "ETH/USDT"), [10, 11, 12, 13, 14]);
    assert_eq!(
        sequences(&records, "book_delta", "BTC/USDT"),
        [10, 11, 14, 15, 40, 41],
        "raw messages are always stored"
    );
    let time = |number: u64| {
        let of = |line: &&Value| line["symbol"] == "BTC/USDT" && line["sequence"] == number;
        records.iter().find(of).unwrap()["received_at_ms"].clone()
    };
    assert_eq!(
        (&record["from_ms"], &record["to_ms"]),
        (&time(11), &time(40)),
        "from the last good one to the next"
    );
    assert_eq!((status.counts.resyncs, status.counts.disconnects), (1, 0));
}

/// Binance's depth update of the range.
fn depth(symbol: &str, first: u64, last: u64, bid: &str) -> String {
    let stream = format!("{}@depth@100ms", symbol.to_lowercase());
    json!({
        "stream": stream,
        "data": {"e": "depthUpdate", "E": 1_700_000_000_000_i64, "s": symbol, "U": first, "u": last, "b": [[bid, "1"]], "a": []}
    })
    .to_string()
}

#[tokio::test]
async fn a_book_that_begins_over_rest_is_asked_for_and_again_after_a_gap() {
    let numbers = std::sync::Arc::new(std::sync::Mutex::new(vec![30, 12, 5]));
    let mut stage = Stage::start(move |path| {
        if !path.starts_with("/api/v3/depth?symbol=BTCUSDT") {
            return (503, "{}".to_owned());
        }
        // The first is too old: the stream begins at 10.
        let number = numbers.lock().unwrap().pop().unwrap_or(31);
        (200, json!({"lastUpdateId": number, "bids": [["50", "1"]], "asks": [["60", "1"]]}).to_string())
    })
    .await;
    let rig = Start::venue("binance", &BOOKS[..1]).on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    session.say(depth("BTCUSDT", 10, 12, "51")).await;
    session.say(depth("BTCUSDT", 13, 14, "52")).await;
    let books = rig.wait_for("orderbook", 1).await;
    assert_eq!(books[0]["payload"]["bids"], json!([["52", "1"], ["50", "1"]]), "12 and what was kept for it");
    session.say(depth("BTCUSDT", 20, 30, "53")).await; // 15 to 19 are missing
    session.say(depth("BTCUSDT", 31, 31, "54")).await;
    let books = rig.wait_for("orderbook", 2).await;
    assert_eq!(books[1]["payload"]["bids"], json!([["54", "1"], ["50", "1"]]));
    rig.wait_for("gaps", 1).await;
    assert_eq!(gaps(&rig), ["book_delta BTC/USDT sequence 15..19"]);
    let (records, status) = rig.finish().await;
    assert_eq!(sequences(&records, "book_delta", "BTC/USDT"), [12, 14, 30, 31]);
    assert_eq!((status.counts.resyncs, status.connections[0].books_live), (1, 1));
    assert!(stage.asked("depth") >= 3);
}

#[tokio::test]
async fn without_books_their_changes_are_recorded_and_followed_and_nothing_is_asked_for() {
    let mut stage = Stage::silent().await;
    let mut start = Start::venue("binance", &BOOKS[..1]);
    start.settings.keeps_books = false;
    let rig = start.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    for (first, last) in [(10, 12), (13, 14), (20, 30), (31, 31)] {
        session.say(depth("BTCUSDT", first, last, "51")).await; // 15 to 19 are missing
    }
    rig.wait_for("gaps", 1).await;
    rig.wait_for("book_delta", 4).await;
    assert_eq!(gaps(&rig), ["book_delta BTC/USDT sequence 15..19"]);
    let (records, status) = rig.finish().await;
    assert_eq!(sequences(&records, "book_delta", "BTC/USDT"), [12, 14, 30, 31]);
    assert!(records.iter().all(|line| line["channel"] != "orderbook" && line["channel"] != "book_checks"));
    assert_eq!((status.counts.resyncs, status.connections[0].books, stage.asked("depth")), (0, 0, 0));
}

#[tokio::test]
async fn a_wrong_checksum_is_told_and_the_book_begun_anew() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("kraken", &[("book_delta", "BTC/USD"), ("book_delta", "ETH/USD")]).on(&stage);
    let mut session = stage.session().await;
    let ack = async |session: &mut Session, expected: &str| {
        let command: Value = serde_json::from_str(&session.heard().await).unwrap();
        assert_eq!(command["method"], expected);
        let symbols = command["params"]["symbol"].as_array().unwrap().clone();
        for symbol in &symbols {
            let result = json!({"channel": "book", "symbol": symbol, "depth": 10, "snapshot": true});
            session
                .say(json!({"method": expected, "result": result, "success": true, "req_id": command["req_id"]}).to_string())
                .await;
        }
        symbols
    };
    // CRC-32 of asks then bids, digits only: "10010" + "9010" for the snapshot.
    let book = |symbol: &str, kind: &str, bid: &str, checksum: u32| {
        format!(
            r#"{{"channel":"book","type":"{kind}","data":[{{"symbol":"{symbol}","bids":[{{"price":{bid},"qty":1.0}}],"asks":[{{"price":100,"qty":1.0}}],"checksum":{checksum},"timestamp":"2026-01-01T00:00:00.000000Z"}}]}}"#
        )
    };
    let crc = |bids: &[&str]| {
        let bids: String = bids.iter().map(|bid| format!("{bid}10")).collect();
        crc32(format!("10010{bids}").as_bytes())
    };
    assert_eq!(ack(&mut session, "subscribe").await.len(), 2);
    for symbol in ["BTC/USD", "ETH/USD"] {
        session.say(book(symbol, "snapshot", "90", crc(&["90"]))).await;
    }
    session.say(book("BTC/USD", "update", "91", crc(&["91", "90"]))).await;
    session.say(book("BTC/USD", "update", "92", 1)).await;
    assert_eq!(ack(&mut session, "unsubscribe").await, ["BTC/USD"]);
    assert_eq!(ack(&mut session, "subscribe").await, ["BTC/USD"]);
    session.say(book("ETH/USD", "update", "91", crc(&["91", "90"]))).await;
    session.say(book("BTC/USD", "snapshot", "93", crc(&["93"]))).await;
    rig.wait_for("book_delta", 6).await;
    rig.wait_for("orderbook", 3).await;
    assert_eq!(gaps(&rig), ["book_delta BTC/USD failure -..-"]);
    let checks = rig.records("book_checks");
    assert_eq!(checks[0]["payload"]["outcome"], "mismatch");
    let (_, status) = rig.finish().await;
    assert_eq!((status.counts.checks_failed, status.counts.checks_agreed), (1, 5));
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |mut crc, byte| {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()));
        crc
    })
}

/// The two tokens of a Polymarket market.
const TOKENS: [&str; 2] = ["1001", "1002"];

/// A token's book with one bid and one ask, and its hash with that last price of the market.
fn token_book(token: &str, bid: (&str, &str), time: &str, last: &str) -> (Value, String) {
    let asks = [("0.9", "20")];
    let hash = book_hash(&HashInput {
        market: "0xabc",
        asset_id: token,
        timestamp: time,
        bids: &[bid],
        asks: &asks,
        min_order_size: "5",
        tick_size: "0.01",
        neg_risk: false,
        last_trade_price: last,
    });
    let level = |(price, size): (&str, &str)| json!({"price": price, "size": size});
    let book = json!({
        "market": "0xabc", "asset_id": token, "timestamp": time, "hash": hash.as_str(), "bids": [level(bid)],
        "asks": [level(asks[0])], "tick_size": "0.01", "event_type": "book", "last_trade_price": last
    });
    (book, hash.as_str().to_owned())
}

fn token_trade(token: &str, price: &str) -> String {
    json!({
        "market": "0xabc", "asset_id": token, "price": price, "size": "4", "fee_rate_bps": "0", "side": "BUY",
        "timestamp": "1700000000100", "event_type": "last_trade_price", "transaction_hash": "0x1"
    })
    .to_string()
}

#[tokio::test]
async fn a_token_whose_trades_are_told_of_the_other_is_not_frozen() {
    // Another price each time somebody asks.
    let asked = AtomicUsize::new(0);
    let mut stage = Stage::start(move |_| {
        let price = format!("0.{:03}", 100 + asked.fetch_add(1, Ordering::Relaxed) % 800);
        (200, json!({"price": price, "side": "BUY", "hash": "0", "timestamp": "1"}).to_string())
    })
    .await;
    let streams =
        [("book_delta", TOKENS[0]), ("book_delta", TOKENS[1]), ("trades", TOKENS[0]), ("trades", TOKENS[1])];
    let start = Start::venue("polymarket", &streams);
    // Longer than a busy machine holds anything up.
    let peace = Duration::from_secs(1);
    let silence = SilenceSettings { doubt_min: peace, doubt_max: peace, ..impatient() };
    let settings = StreamSettings { silence, ..start.settings };
    let rig = Start { settings, ..start }.on(&stage);
    let mut session = stage.session().await;
    session.heard().await;
    let first = TOKENS.map(|token| token_book(token, ("0.1", "7"), "1700000000000", "0.500").0);
    session.say(json!(first).to_string()).await;
    rig.wait_for("orderbook", 2).await;
    // Longer than anybody is left in peace.
    let (clock, mut trades) = (SystemClock::new(), 0);
    let until = clock.monotonic().0 + 3 * peace;
    while clock.monotonic().0 < until {
        session.say(token_trade(TOKENS[0], &format!("0.{:03}", 200 + trades % 500))).await;
        trades += 1;
        rig.wait_for("trades", trades).await;
    }
    let (_, status) = rig.finish().await;
    assert_eq!((stage.asked("last-trade-price"), status.counts.frozen), (0, 0));
}

/// What changes the best bid of both tokens.
fn both_changed(time: &str) -> String {
    let changes = TOKENS.map(|token| {
        let (_, hash) = token_book(token, ("0.1", "8"), time, "0.500");
        json!({
            "asset_id": token, "price": "0.1", "size": "8", "side": "BUY", "hash": hash, "best_bid": "0.1",
            "best_ask": "0.9"
        })
    });
    let change = json!({
        "market": "0xabc", "price_changes": changes, "timestamp": time, "event_type": "price_change"
    });
    change.to_string()
}

#[tokio::test]
async fn a_message_that_names_both_tokens_is_the_newest_of_both() {
    // The venue has nothing newer.
    let mut stage = Stage::start(|_| {
        (
            200,
            json!({"market": "0xabc", "timestamp": "1700000000200", "hash": "0", "bids": [], "asks": []})
                .to_string(),
        )
    })
    .await;
    let streams = TOKENS.map(|token| ("book_delta", token));
    let start = Start::venue("polymarket", &streams);
    let settings = StreamSettings { silence: impatient(), ..start.settings };
    let mut rig = Start { settings, ..start }.on(&stage);
    let mut session = stage.session().await;
    session.heard().await;
    let first = TOKENS.map(|token| token_book(token, ("0.1", "7"), "1700000000000", "0.500").0);
    session.say(json!(first).to_string()).await;
    rig.wait_for("orderbook", 2).await;
    session.say(both_changed("1700000000200")).await;
    rig.wait_status("each was doubted twice", |status| status.counts.witnesses >= 4).await;
    let (records, status) = rig.finish().await;
    assert_eq!((status.counts.frozen, status.counts.gaps_told), (0, 0), "{records:#?}");
}

#[tokio::test]
async fn another_tick_size_begins_a_new_book() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("polymarket", &[("book_delta", TOKENS[0])]).on(&stage);
    let mut session = stage.session().await;
    session.heard().await;
    session.say(json!([token_book(TOKENS[0], ("0.1", "7"), "1700000000000", "0.500").0]).to_string()).await;
    rig.wait_for("orderbook", 1).await;
    let change = json!({
        "event_type": "tick_size_change", "asset_id": TOKENS[0], "market": "0xabc", "old_tick_size": "0.01",
        "new_tick_size": "0.001", "timestamp": "1700000000100"
    });
    session.say(change.to_string()).await;
    let books = rig.wait_for("orderbook", 2).await;
    let steps = [&books[0], &books[1]].map(|book| book["payload"]["tick_size"].clone());
    assert_eq!(steps, ["0.01", "0.001"], "{books:#?}");
}

#[tokio::test]
async fn a_trade_is_the_last_price_of_all_books_of_its_market() {
    let mut stage = Stage::silent().await;
    let streams: Vec<(&str, &str)> =
        TOKENS.iter().flat_map(|token| [("book_delta", *token), ("trades", *token)]).collect();
    let mut rig = Start::venue("polymarket", &streams).on(&stage);
    let mut session = stage.session().await;
    session.heard().await;
    let first = TOKENS.map(|token| token_book(token, ("0.1", "7"), "1700000000000", "0.500").0);
    session.say(json!(first).to_string()).await;
    rig.wait_for("orderbook", 2).await;
    // At a price that no change has named, and told of the first token alone.
    session.say(token_trade(TOKENS[0], "0.62")).await;
    let changes = TOKENS.map(|token| {
        let (_, hash) = token_book(token, ("0.1", "8"), "1700000000200", "0.620");
        json!({
            "asset_id": token, "price": "0.1", "size": "8", "side": "BUY", "hash": hash, "best_bid": "0.1",
            "best_ask": "0.9"
        })
    });
    let change = json!({
        "market": "0xabc", "price_changes": changes, "timestamp": "1700000000200", "event_type": "price_change"
    });
    session.say(change.to_string()).await;
    rig.wait_status("both are proved", |status| status.counts.checks_agreed == 4).await;
    let (records, status) = rig.finish().await;
    assert_eq!((status.counts.checks_failed, status.counts.gaps_told), (0, 0), "{records:#?}");
}
