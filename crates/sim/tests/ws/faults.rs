//! Each fault does what it says, only that, and is logged with what it did.

use catchment_sim::{LogEntry, StreamFault, StreamFaultKind as Kind};
use serde_json::Value;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::client::{Bench, Client, small, start};
use crate::kraken;

async fn binance(bench: &Bench) -> Client {
    bench.connect("binance/ws/btcusdt@depth/btcusdt@trade/ethusdt@depth").await
}

fn of<'a>(frames: &'a [Value], kind: &str, symbol: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["e"] == kind && frame["s"] == symbol).collect()
}

/// Ranges that are missing between one update and the next.
fn holes(updates: &[&Value]) -> Vec<(u64, u64)> {
    let number = |update: &Value, key: &str| update[key].as_u64().unwrap();
    let pairs = updates.windows(2).map(|pair| (number(pair[0], "u") + 1, number(pair[1], "U")));
    pairs.filter(|(want, got)| want != got).map(|(want, got)| (want, got - 1)).collect()
}

fn entry(bench: &Bench, id: u64) -> LogEntry {
    bench.sim.log().into_iter().find(|entry| entry.id == id).unwrap()
}

#[tokio::test]
async fn a_gap_is_of_just_those_updates() {
    let bench = start(small()).await;
    let mut client = binance(&bench).await;
    bench.pass(2_000).await;
    let id = bench.inject("binance", &StreamFault::new(Kind::Gap).on("BTC/USDT", "book_delta").times(3));
    bench.pass(5_000).await;
    let frames = client.drain_json().await;
    assert!(holes(&of(&frames, "depthUpdate", "ETHUSDT")).is_empty());
    let updates = of(&frames, "depthUpdate", "BTCUSDT");
    let log = entry(&bench, id);
    let stream = &log.streams[0];
    assert_eq!(holes(&updates), [(stream.first.unwrap(), stream.last.unwrap())]);
    assert_eq!(
        (log.streams.len(), stream.frames, stream.channel, stream.symbol.as_str()),
        (1, 3, "book_delta", "BTC/USDT")
    );
    assert_eq!(stream.before, stream.first.map(|first| first - 1));
    let after =
        updates.iter().find(|update| update["U"].as_u64() == stream.last.map(|last| last + 1)).unwrap();
    assert_eq!((after["u"].as_u64(), after["E"].as_i64()), (stream.after, stream.after_ms));
    assert!(log.from_ms.is_some() && log.to_ms.is_some());
    // The journal has what was sent and nothing else.
    let sent = bench.sim.journal("binance", "book_delta", "BTC/USDT").unwrap();
    let numbers: Vec<u64> = updates.iter().map(|update| update["u"].as_u64().unwrap()).collect();
    assert_eq!(sent.iter().map(|entry| entry.last).collect::<Vec<_>>(), numbers);
}

#[tokio::test]
async fn a_frame_comes_twice_or_late() {
    let bench = start(small()).await;
    let mut client = binance(&bench).await;
    let twice = bench.inject("binance", &StreamFault::new(Kind::Duplicate).on("BTCUSDT", "trades"));
    let late = bench.inject("binance", &StreamFault::new(Kind::Reorder).on("ETHUSDT", "book_delta"));
    bench.pass(10_000).await;
    let frames = client.drain_json().await;
    let ids: Vec<u64> =
        of(&frames, "trade", "BTCUSDT").iter().map(|trade| trade["t"].as_u64().unwrap()).collect();
    assert_eq!((ids[0], ids[1], ids[2]), (ids[0], ids[0], ids[0] + 1));
    assert_eq!(entry(&bench, twice).streams[0].first, Some(ids[0]));
    let updates: Vec<u64> =
        of(&frames, "depthUpdate", "ETHUSDT").iter().map(|update| update["u"].as_u64().unwrap()).collect();
    assert!(
        updates[0] > updates[1] && updates[1..].is_sorted_by(|a, b| a < b || *a == updates[1]),
        "{updates:?}"
    );
    assert_eq!(entry(&bench, late).streams[0].last, Some(updates[1]));
    let counts = bench.sim.counts("binance").unwrap();
    let count = &counts["trades BTC/USDT"];
    assert_eq!((count.frames + 1, count.written as usize), (count.written, ids.len()));
}

#[tokio::test]
async fn one_symbol_is_mute_while_its_siblings_flow() {
    let bench = start(small()).await;
    let mut client = binance(&bench).await;
    bench.pass(2_000).await;
    client.drain().await;
    let mute = StreamFault { symbol: Some("BTCUSDT".into()), ..StreamFault::new(Kind::Mute) }.for_ms(10_000);
    let id = bench.inject("binance", &mute);
    bench.pass(10_000).await;
    let frames = client.drain_json().await;
    assert!(frames.iter().all(|frame| frame["s"] == "ETHUSDT") && frames.len() > 30);
    bench.pass(5_000).await;
    let frames = client.drain_json().await;
    assert!(of(&frames, "trade", "BTCUSDT").len() > 2 && of(&frames, "depthUpdate", "BTCUSDT").len() > 10);
    let log = entry(&bench, id);
    assert_eq!(log.to_ms.unwrap() - log.from_ms.unwrap(), 10_000);
    assert_eq!(log.streams.len(), 2);
    for stream in &log.streams {
        assert_eq!(stream.before, stream.first.map(|first| first - 1));
        assert!(
            stream.after_ms.unwrap() >= log.to_ms.unwrap()
                && stream.before_ms.unwrap() <= log.from_ms.unwrap()
        );
        let first = match stream.channel {
            "trades" => of(&frames, "trade", "BTCUSDT")[0]["t"].as_u64(),
            _ => of(&frames, "depthUpdate", "BTCUSDT")[0]["U"].as_u64(),
        };
        assert_eq!(first, stream.last.map(|last| last + 1));
    }
}

#[tokio::test]
async fn a_frozen_connection_still_pings_and_says_nothing_else() {
    let bench = start(small()).await;
    let (mut client, mut other) = (binance(&bench).await, binance(&bench).await);
    bench.pass(1_000).await;
    client.drain().await;
    other.drain().await;
    let freeze = StreamFault { connection: Some(1), ..StreamFault::new(Kind::Freeze) }.for_ms(30_000);
    let id = bench.inject("binance", &freeze);
    bench.pass(25_000).await;
    assert!(matches!(client.next().await.unwrap(), Message::Ping(_)));
    assert!(client.drain().await.is_empty());
    assert!(other.drain().await.len() > 200, "the other connection flows");
    bench.pass(10_000).await;
    let updates = client.drain_json().await;
    let log = entry(&bench, id);
    assert_eq!((log.connections.clone(), log.streams.len()), (vec![1], 3));
    let stream = log.streams.iter().find(|stream| stream.channel == "trades").unwrap();
    assert_eq!(of(&updates, "trade", "BTCUSDT")[0]["t"].as_u64(), stream.last.map(|last| last + 1));
}

#[tokio::test]
async fn a_connection_ends_cut_torn_reset_or_closed() {
    for kind in [Kind::Cut, Kind::Torn, Kind::Reset, Kind::Close] {
        let bench = start(small()).await;
        let mut client = binance(&bench).await;
        bench.pass(2_000).await;
        let id = bench.inject("binance", &StreamFault::new(kind));
        bench.pass(1_000).await;
        let (texts, error, code) = client.until_the_end().await;
        let log = entry(&bench, id);
        assert_eq!((log.connections.clone(), log.streams.len()), (vec![1], 3), "{kind:?}");
        match kind {
            Kind::Close => assert_eq!(code, Some(1001)),
            // A reset takes back what was not read yet.
            Kind::Reset => assert!(matches!(error, Some(Error::Protocol(_) | Error::Io(_))), "{error:?}"),
            _ => {
                assert!(matches!(error, Some(Error::Protocol(_) | Error::Io(_))), "{kind:?}: {error:?}");
                let frames: Vec<Value> =
                    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
                let sent = bench.sim.counts("binance").unwrap();
                let all: u64 = sent.values().map(|count| count.frames).sum();
                assert_eq!(frames.len() as u64, all, "{kind:?}: what the journal has did arrive");
            }
        }
        assert!(bench.sim.connections("binance").unwrap().is_empty());
    }
}

#[tokio::test]
async fn frames_are_spoilt_in_the_ways_there_are() {
    let bench = start(small()).await;
    let inject = |kind| bench.inject("binance", &StreamFault::new(kind).on("BTCUSDT", "trades"));
    let mut client = bench.connect("binance/ws/btcusdt@trade").await;
    let id = inject(Kind::Truncated);
    bench.pass(5_000).await;
    let texts = client.drain().await;
    assert!(serde_json::from_str::<Value>(&texts[0]).is_err());
    let next: Value = serde_json::from_str(&texts[1]).unwrap();
    assert_eq!(next["t"].as_u64(), entry(&bench, id).streams[0].last.map(|last| last + 1));

    let fault =
        StreamFault { bytes: Some(4_000), ..StreamFault::new(Kind::Oversized) }.on("BTCUSDT", "trades");
    bench.inject("binance", &fault);
    inject(Kind::Binary);
    bench.pass(5_000).await;
    let Message::Text(huge) = client.next().await.unwrap() else { panic!("not the oversized one") };
    assert_eq!(huge.len(), 4_000);
    assert!(matches!(client.next().await.unwrap(), Message::Binary(_)));
    assert!(client.drain_json().await.len() > 2, "and the trades as well");

    bench.inject("binance", &StreamFault::new(Kind::Oversized).on("BTCUSDT", "trades"));
    let reading = async {
        let end = client.until_the_end().await;
        drop(client); // and with it the socket, or the server would wait for it to be read
        end
    };
    let ((), (_, error, _)) = tokio::join!(bench.pass(2_000), reading);
    assert!(matches!(error, Some(Error::Capacity(_))), "{error:?}");

    let mut client = bench.connect("binance/ws/btcusdt@trade").await;
    inject(Kind::NotUtf8);
    bench.pass(5_000).await;
    let (_, error, _) = client.until_the_end().await;
    assert!(matches!(error, Some(Error::Utf8(_))), "{error:?}");
}

#[tokio::test]
async fn a_checksum_is_wrong_where_there_is_one() {
    let bench = start(small()).await;
    let error = bench.sim.inject("binance", &StreamFault::new(Kind::WrongChecksum)).unwrap_err().to_string();
    assert_eq!(error, "binance.faults.stream binance has no checksum that could be wrong");
    let mut client = bench.connect("kraken/ws/v2").await;
    client.say(r#"{"method":"subscribe","params":{"channel":"book","symbol":["BTC/USD"],"depth":10}}"#).await;
    for _ in 0..2 {
        client.text().await; // the status, the acknowledgement
    }
    let id =
        bench.inject("kraken", &StreamFault::new(Kind::WrongChecksum).on("BTC/USD", "book_delta").times(2));
    bench.pass(5_000).await;
    let mut book = kraken::Book::new(10);
    let frames: Vec<String> =
        client.drain().await.into_iter().filter(|text| text.contains(r#""channel":"book""#)).collect();
    let agrees: Vec<bool> = frames.iter().map(|text| book.apply(text)).collect();
    assert_eq!(&agrees[..4], [true, false, false, true]);
    assert!(agrees[3..].iter().all(|agrees| *agrees));
    assert_eq!(entry(&bench, id).streams[0].frames, 2);
    // A gap shows only in the checksum, and a fresh snapshot mends it.
    bench.inject("kraken", &StreamFault::new(Kind::Gap).on("BTC/USD", "book_delta").times(4));
    bench.pass(3_000).await;
    let frames: Vec<String> =
        client.drain().await.into_iter().filter(|text| text.contains(r#""channel":"book""#)).collect();
    assert!(frames.iter().any(|text| !book.apply(text)));
}

#[tokio::test]
async fn subscriptions_are_refused_or_stay_silent() {
    let bench = start(small()).await;
    let mut client = bench.connect("kraken/ws/v2").await;
    client.text().await;
    let refuse = bench.inject("kraken", &StreamFault::new(Kind::Refuse).on("BTC/USD", "trades"));
    let silent = bench.inject("kraken", &StreamFault::new(Kind::SilentAck).on("ETH/USD", "trades"));
    client
        .say(
            r#"{"method":"subscribe","params":{"channel":"trade","symbol":["BTC/USD","ETH/USD","SOL/USD"]}}"#,
        )
        .await;
    let (first, second, third) = (client.read().await, client.read().await, client.read().await);
    assert_eq!([&first["success"], &second["success"], &third["success"]], [false, true, true]);
    bench.pass(10_000).await;
    let frames = client.drain_json().await;
    let symbols: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["channel"] == "trade")
        .map(|frame| &frame["data"][0]["symbol"])
        .collect();
    assert!(symbols.len() > 5 && symbols.iter().all(|symbol| **symbol == "SOL/USD"));
    assert_eq!(entry(&bench, refuse).streams[0].symbol, "BTC/USD");
    assert_eq!(
        (entry(&bench, silent).streams[0].symbol.as_str(), entry(&bench, silent).to_ms.is_some()),
        ("ETH/USD", true)
    );
    // Asked again, it works.
    client.say(r#"{"method":"subscribe","params":{"channel":"trade","symbol":["BTC/USD"]}}"#).await;
    assert_eq!(client.read().await["success"], true);
}

#[tokio::test]
async fn faults_come_over_http_too_and_at_their_time() {
    let bench = start(small()).await;
    let mut client = binance(&bench).await;
    let body =
        r#"{"binance":[{"fault":"gap","symbol":"BTCUSDT","channel":"trades","count":2,"after_ms":5000}]}"#;
    let (status, _, answer) = bench.send(hyper::Method::POST, "_sim/inject", body).await;
    assert_eq!((status, &answer[..]), (200, &br#"{"ids":[1]}"#[..]));
    bench.pass(20_000).await;
    let frames = client.drain_json().await;
    let ids: Vec<u64> =
        of(&frames, "trade", "BTCUSDT").iter().map(|trade| trade["t"].as_u64().unwrap()).collect();
    let log = bench.json("_sim/log").await;
    let stream = &log[0]["streams"][0];
    let hole = ids.windows(2).find(|pair| pair[1] != pair[0] + 1).unwrap();
    assert_eq!((stream["first"].as_u64(), stream["last"].as_u64()), (Some(hole[0] + 1), Some(hole[1] - 1)));
    assert!(log[0]["from_ms"].as_i64().unwrap() >= log[0]["asked_ms"].as_i64().unwrap() + 5_000);
    let (status, _, answer) = bench
        .send(hyper::Method::POST, "_sim/inject", r#"{"binance":[{"fault":"gap","symbol":"NO"}]}"#)
        .await;
    assert_eq!(status, 400);
    assert_eq!(&answer[..], &br#"{"error":"binance.faults.stream there is no symbol NO at binance"}"#[..]);
    // What is set replaces what is in force; nothing set is nothing in force.
    bench.send(hyper::Method::POST, "_sim/faults", r#"{"binance":{"stream":[{"fault":"mute"}]}}"#).await;
    bench.pass(5_000).await;
    assert!(client.drain().await.is_empty());
    bench.send(hyper::Method::POST, "_sim/faults", r#"{"binance":{}}"#).await;
    bench.pass(5_000).await;
    assert!(!client.drain().await.is_empty());
    let counts = bench.json("_sim/journal").await;
    assert!(counts["binance"]["book_delta BTC/USDT"]["digest"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_server_that_does_not_listen_answers_later() {
    let bench = start(small()).await;
    let mut client = binance(&bench).await;
    let id = bench.inject("binance", &StreamFault::new(Kind::Deaf).for_ms(5_000));
    client.say(r#"{"method":"LIST_SUBSCRIPTIONS","id":1}"#).await;
    bench.pass(5_000).await;
    let mut newest = 0;
    loop {
        let frame = client.read().await;
        match frame["E"].as_i64() {
            Some(ms) => newest = newest.max(ms),
            None => break assert_eq!(frame["result"].as_array().unwrap().len(), 3),
        }
    }
    let log = entry(&bench, id);
    assert_eq!((log.to_ms, log.connections.clone()), (log.from_ms.map(|ms| ms + 5_000), vec![1]));
    assert!(newest > log.to_ms.unwrap() - 500, "what happened meanwhile came before the answer");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_trickles_takes_its_time() {
    let bench = start(small()).await;
    let mut client = bench.connect("binance/ws").await;
    let trickle = StreamFault { bytes: Some(10), ..StreamFault::new(Kind::Trickle) };
    let id = bench.inject("binance", &trickle);
    let began = tokio::time::Instant::now();
    client.say(r#"{"method":"LIST_SUBSCRIPTIONS","id":1}"#).await;
    assert_eq!(client.text().await, r#"{"result":[],"id":1}"#);
    let took = began.elapsed().as_millis();
    assert!((1_900..=2_500).contains(&took), "22 bytes at 10 a second: {took} ms");
    bench.sim.lift("binance").unwrap();
    client.say(r#"{"method":"LIST_SUBSCRIPTIONS","id":2}"#).await;
    client.text().await;
    assert!(began.elapsed().as_millis() - took < 200);
    assert!(entry(&bench, id).to_ms.is_some());
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_nobody_else_is() {
    let config = small().with("streams.pace", "clock").unwrap().with("streams.queue_frames", "500").unwrap();
    let config = config.with("binance.pairs.book_per_s", "50000").unwrap();
    let bench = start(config).await;
    let _idle = bench.connect("binance/ws/btcusdt@depth").await;
    let mut other = bench.connect("binance/ws/ethusdt@trade").await;
    // The clock stands still; a minute at once is more than the sockets between hold.
    bench.clock.advance(std::time::Duration::from_secs(10));
    while bench.sim.log().is_empty() {
        tokio::task::yield_now().await;
    }
    let log = bench.sim.log();
    assert_eq!((log[0].fault, log[0].connections.clone()), (Kind::Overflow, vec![1]));
    assert_eq!(other.read().await["e"], "trade");
    let error = bench.sim.inject("binance", &StreamFault::new(Kind::Overflow)).unwrap_err().to_string();
    assert_eq!(error, "binance.faults.stream binance has no say in whether a client reads");
}

#[tokio::test]
async fn a_client_that_asks_and_does_not_read_is_closed_too() {
    let bench = start(small().with("streams.queue_frames", "100").unwrap()).await;
    let mut client = bench.connect("kraken/ws/v2").await;
    // More answers than the sockets between and the line hold; the client reads none of them.
    let nonsense = format!(r#"{{"method":"{}"}}"#, "x".repeat(60_000));
    while bench.sim.log().is_empty() {
        client.say(&nonsense).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.sim.log()[0].fault, Kind::Overflow);
    assert!(bench.sim.connections("kraken").unwrap().is_empty());
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes() {
    let run = async |seed: &str| {
        let bench = start(small().with("seed", seed).unwrap()).await;
        let mut client = binance(&bench).await;
        bench.inject("binance", &StreamFault::new(Kind::Reorder).on("BTCUSDT", "book_delta"));
        bench.pass(10_000).await;
        client.drain().await
    };
    let (one, again, other) = (run("5").await, run("5").await, run("6").await);
    assert!(one.len() > 100);
    assert_eq!(one, again);
    assert_ne!(one, other);
}
