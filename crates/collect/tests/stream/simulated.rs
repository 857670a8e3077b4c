//! The runtime against simulated venues, with faults: what is stored is what was sent, and what is told is what went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::SystemClock;
use catchment_sim::{PairsConfig, Sim, SimConfig, StreamFault, StreamFaultKind, StreamsConfig};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{Rig, Start};

const SYMBOLS: [&str; 4] = ["BTC/USDT", "BTC/USD", "ETH/USDT", "ETH/USD"];

async fn sim() -> Sim {
    let streams = StreamsConfig { journal_frames: 100_000, ..StreamsConfig::default() };
    let mut config = SimConfig { streams, ..SimConfig::default() };
    let pairs = PairsConfig {
        symbols: 4,
        book_per_s: 20.0,
        trades_per_s: 20.0,
        ticker_per_s: 5.0,
        ..PairsConfig::default()
    };
    config.binance.pairs = pairs.clone();
    config.coinbase.pairs = pairs.clone();
    config.kraken.pairs = pairs.clone();
    config.okx.pairs = pairs.clone();
    config.bybit.pairs = pairs;
    Sim::start(config, Arc::new(SystemClock::new())).await.unwrap()
}

fn start(sim: &Sim, venue: &str, streams: &[(&str, &str)], settle: impl FnOnce(&mut Start<'_>)) -> Rig {
    let mut start = Start::venue(venue, streams);
    settle(&mut start);
    let stream = ("stream", sim.socket(venue));
    match venue {
        "polymarket" => start.at(&[("clob", sim.base("polymarket/clob")), stream]),
        other => start.at(&[("rest", sim.base(&format!("{other}/rest"))), stream]),
    }
}

fn wanted() -> Vec<(&'static str, &'static str)> {
    ["trades", "book_delta", "ticker"]
        .iter()
        .flat_map(|channel| SYMBOLS.map(|symbol| (*channel, symbol)))
        .collect()
}

/// How often each number of a stream is stored.
fn stored(records: &[Value], channel: &str, symbol: &str) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for line in records.iter().filter(|line| line["channel"] == channel && line["symbol"] == symbol) {
        *counts.entry(line["sequence"].as_u64().unwrap()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn at_coinbase_one_wrong_symbol_is_to_blame_and_no_other() {
    let sim = sim().await;
    let streams =
        ["trades", "ticker", "book_delta"].map(|channel| [(channel, "BTC/USDT"), (channel, "NOPE/USDT")]);
    let mut rig = start(&sim, "coinbase", streams.as_flattened(), |start| {
        start.settings.acks.again_after = Duration::from_millis(100);
    });
    // Each of the three, again and again.
    rig.wait_status("refused often", |status| status.counts.subscriptions_failed >= 9).await;
    rig.wait_status("the others flow", |status| status.live() == 1 && status.counts.messages > 20).await;
    let (records, status) = rig.finish().await;
    let accused = |line: &&Value| line["channel"] == "gaps" && line["symbol"] == "BTC/USDT";
    assert_eq!(records.iter().filter(accused).count(), 0, "{records:#?}");
    let opened = |line: &&Value| line["channel"] == "book_delta" && line["payload"]["type"] == "snapshot";
    assert_eq!(records.iter().filter(opened).count(), 1, "nobody subscribed anew to what flows");
    assert!(status.connections[0].troubles.iter().all(|trouble| trouble.symbol == "NOPE/USDT"));
}

#[tokio::test]
async fn binance_with_faults_is_stored_once_and_every_gap_is_told() {
    let sim = sim().await;
    let streams = wanted();
    let rig = start(&sim, "binance", &streams, |_| {});
    rig.wait_for("trades", 40).await;
    rig.wait_for("orderbook", 4).await;
    let inject = |fault: StreamFault| sim.inject("binance", &fault).unwrap();
    inject(StreamFault::new(StreamFaultKind::Gap).on("BTC/USDT", "trades").times(3));
    inject(StreamFault::new(StreamFaultKind::Gap).on("ETH/USDT", "book_delta").times(2));
    inject(StreamFault::new(StreamFaultKind::Duplicate).on("BTC/USD", "trades").times(2));
    inject(StreamFault::new(StreamFaultKind::Duplicate).on("BTC/USD", "book_delta").times(2));
    inject(StreamFault::new(StreamFaultKind::Reorder).on("ETH/USD", "trades").times(1));
    inject(StreamFault::new(StreamFaultKind::Binary).times(3));
    let so_far = rig.records("trades").len();
    rig.wait_for("trades", so_far + 120).await;
    inject(StreamFault::new(StreamFaultKind::Cut));
    let so_far = rig.records("trades").len();
    rig.wait_for("trades", so_far + 120).await;
    let connections = sim.connections("binance").unwrap();
    assert_eq!(connections.len(), 1);
    let (records, status) = rig.finish().await;

    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    let told = |cause: &str| gaps.iter().filter(|line| line["payload"]["cause"] == cause).count();
    assert_eq!((told("sequence"), told("disconnect")), (2, streams.len()), "{gaps:#?}");
    assert_eq!(gaps.len(), 2 + streams.len(), "no false one");
    for entry in sim.log().iter().filter(|entry| entry.fault == StreamFaultKind::Gap) {
        let affected = &entry.streams[0];
        let of = |line: &&&Value| {
            line["symbol"] == affected.symbol.as_str()
                && line["payload"]["channel"] == affected.channel
                && line["payload"]["cause"] == "sequence"
        };
        let payload = &gaps.iter().find(of).unwrap()["payload"];
        let number = |key: &str| payload[key].as_str().unwrap().parse::<u64>().ok();
        assert_eq!(
            (number("first_missing"), number("last_missing")),
            (affected.first, affected.last),
            "{entry:?}"
        );
    }
    for (channel, symbol) in ["trades", "book_delta"].iter().flat_map(|c| SYMBOLS.map(|s| (*c, s))) {
        let stored = stored(&records, channel, symbol);
        assert!(stored.values().all(|times| *times == 1), "doubled: {channel} of {symbol}");
        // What was sent while nobody was connected is not in the journal; what was on its way at the end is.
        let last = *stored.keys().last().unwrap();
        let sent: Vec<u64> = sim
            .journal("binance", channel, symbol)
            .unwrap()
            .iter()
            .map(|entry| entry.last)
            .filter(|n| *n <= last)
            .collect();
        let mut sent_once = sent.clone();
        sent_once.sort_unstable();
        sent_once.dedup();
        assert_eq!(stored.into_keys().collect::<Vec<_>>(), sent_once, "{channel} of {symbol}");
    }
    let counts = status.counts;
    assert_eq!((counts.duplicates, counts.binary, counts.late), (4, 3, 1), "{counts:#?}");
    assert!(counts.checks_failed >= 1 && counts.snapshots >= 5, "{counts:#?}");
    assert_eq!(status.connections[0].books_live, 4);
    assert!(status.clock.offset_ms.is_some_and(|offset| offset.abs() < 1_000.0), "{:?}", status.clock);
}

#[tokio::test]
async fn kraken_books_agree_with_every_checksum_and_a_muted_one_is_found() {
    let sim = sim().await;
    let streams: Vec<(&str, &str)> = ["trades", "book_delta"]
        .iter()
        .flat_map(|channel| SYMBOLS.map(|symbol| (*channel, symbol)))
        .collect();
    let rig = start(&sim, "kraken", &streams, |start| {
        start.settings.silence.doubt_min = Duration::from_secs(1);
        start.settings.silence.doubt_max = Duration::from_secs(2);
        start.settings.silence.grace = Duration::from_millis(500);
    });
    rig.wait_for("trades", 100).await;
    sim.inject(
        "kraken",
        &StreamFault::new(StreamFaultKind::WrongChecksum).on("ETH/USD", "book_delta").times(1),
    )
    .unwrap();
    sim.inject("kraken", &StreamFault::new(StreamFaultKind::Mute).on("BTC/USD", "trades").for_ms(6_000))
        .unwrap();
    let told = |rig: &Rig, cause: &str| {
        rig.records("gaps").iter().filter(|line| line["payload"]["cause"] == cause).count()
    };
    rig.wait_until("the mute", |rig| told(rig, "silence") >= 1).await;
    rig.wait_until("the checksum", |rig| told(rig, "failure") >= 1).await;
    let (records, status) = rig.finish().await;
    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    for line in &gaps {
        let of = (line["symbol"].as_str().unwrap(), line["payload"]["cause"].as_str().unwrap());
        assert!(matches!(of, ("BTC/USD", "silence") | ("ETH/USD", "failure")), "{line:#?}");
    }
    assert_eq!((status.counts.checks_failed, status.counts.disconnects), (1, 0), "{:#?}", status.counts);
    assert!(status.counts.checks_agreed > 100);
}

async fn as_sent(venue: &str, channels: &[&str]) {
    as_sent_by(&sim().await, venue, channels, &SYMBOLS).await;
}

/// What is stored of the raw messages is what the venue sent, each once, over planned and forced ends of connections.
async fn as_sent_by(sim: &Sim, venue: &str, channels: &[&str], symbols: &[&str]) {
    let streams: Vec<(&str, &str)> =
        channels.iter().flat_map(|channel| symbols.iter().map(|symbol| (*channel, *symbol))).collect();
    let mut rig = start(sim, venue, &streams, |_| {});
    rig.wait_for("trades", 60).await;
    rig.wait_for("orderbook", symbols.len()).await;
    for _ in 0..2 {
        let so_far = rig.records("trades").len();
        // Where the venue has no words for it, it is the other kind of end.
        let notice = StreamFault::new(StreamFaultKind::Notice).for_ms(5_000);
        let is_planned = sim.inject(venue, &notice).is_ok() && matches!(venue, "binance" | "okx");
        if !is_planned {
            sim.lift(venue).unwrap();
            sim.inject(venue, &StreamFault::new(StreamFaultKind::Close)).unwrap();
        }
        rig.wait_for("trades", so_far + 150).await;
    }
    rig.wait_status("all books", |status| status.connections.iter().all(|one| one.books_live == one.books))
        .await;
    let hashes = rig.hashes();
    let (records, status) = rig.finish().await;
    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    assert!(gaps.iter().all(|line| line["payload"]["cause"] == "disconnect"), "{gaps:#?}");
    let lost = if matches!(venue, "binance" | "okx") { 0 } else { 2 };
    assert_eq!(status.counts.disconnects, lost, "{:#?}", status.counts);
    let mut repeated = 0;
    for (channel, symbol) in &streams {
        let of = |line: &&(String, String, u64)| line.0 == *channel && line.1 == *symbol;
        let stored: Vec<u64> = hashes.iter().filter(of).map(|line| line.2).collect();
        let sent: Vec<u64> =
            sim.journal(venue, channel, symbol).unwrap().iter().map(|entry| entry.hash).collect();
        let mut once = stored.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), stored.len(), "{channel} of {symbol} is doubled");
        let unknown = stored.iter().filter(|hash| !sent.contains(hash)).count();
        // All that was sent until the last one that was stored; the rest was on its way at the end.
        let end = sent.iter().rposition(|hash| stored.contains(hash)).map_or(0, |at| at + 1);
        let missing = sent[..end].iter().filter(|hash| !stored.contains(hash)).count();
        // Coinbase begins with the last trade, which was recorded already, in other words.
        let may_repeat = venue == "coinbase" && *channel == "trades";
        repeated += if may_repeat { missing } else { 0 };
        let missing = if may_repeat { 0 } else { missing };
        assert_eq!((unknown, missing), (0, 0), "{channel} of {symbol}: {} of {}", stored.len(), sent.len());
    }
    assert_eq!(status.counts.duplicates, repeated as u64, "{:#?}", status.counts);
    assert_eq!(status.counts.checks_failed, 0, "{:#?}", status.counts);
    assert_eq!((status.counts.unknown, status.counts.garbled), (0, 0), "{:#?}", status.counts);
}

#[tokio::test]
async fn binance_as_sent() {
    as_sent("binance", &["trades", "book_delta", "ticker"]).await;
}

#[tokio::test]
async fn coinbase_as_sent() {
    // Its ticker begins by saying the last one again, and has no id to know it by.
    as_sent("coinbase", &["trades", "book_delta"]).await;
}

#[tokio::test]
async fn kraken_as_sent() {
    as_sent("kraken", &["trades", "book_delta", "ticker"]).await;
}

#[tokio::test]
async fn okx_as_sent() {
    as_sent("okx", &["trades", "book_delta", "ticker"]).await;
}

#[tokio::test]
async fn bybit_as_sent() {
    as_sent("bybit", &["trades", "book_delta", "ticker"]).await;
}

#[tokio::test]
async fn polymarket_proves_its_books_over_a_lost_connection() {
    let sim = sim().await;
    let mut tcp = tokio::net::TcpStream::connect(sim.addr()).await.unwrap();
    let request = "GET /polymarket/gamma/markets?limit=3&active=true&closed=false HTTP/1.1\r\nhost: sim\r\n\
                   user-agent: tester\r\nconnection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let markets: Vec<Value> = serde_json::from_str(body).unwrap();
    let tokens: Vec<String> = markets
        .iter()
        .flat_map(|market| {
            serde_json::from_str::<Vec<String>>(market["clobTokenIds"].as_str().unwrap()).unwrap()
        })
        .collect();
    let streams: Vec<(&str, &str)> = tokens
        .iter()
        .flat_map(|token| [("book_delta", token.as_str()), ("trades", token.as_str())])
        .collect();
    let mut rig = start(&sim, "polymarket", &streams, |_| {});
    rig.wait_for("orderbook", tokens.len()).await;
    rig.wait_for("book_delta", 60).await;
    sim.inject("polymarket", &StreamFault::new(StreamFaultKind::Cut)).unwrap();
    rig.wait_for("orderbook", 2 * tokens.len()).await;
    let so_far = rig.records("book_delta").len();
    rig.wait_for("book_delta", so_far + 60).await;
    rig.wait_status("all books", |status| status.connections.iter().all(|one| one.books_live == one.books))
        .await;
    let (records, status) = rig.finish().await;
    let checks: Vec<&Value> = records.iter().filter(|line| line["channel"] == "book_checks").collect();
    assert_eq!((status.counts.checks_failed, checks.len()), (0, 0), "{checks:#?}");
    assert!(status.counts.checks_agreed > 50, "{:#?}", status.counts);
    assert_eq!((status.counts.unknown, status.counts.garbled), (0, 0), "{:#?}", status.counts);
    let causes =
        records.iter().filter(|line| line["channel"] == "gaps").map(|line| &line["payload"]["cause"]);
    assert!(causes.clone().all(|cause| cause == "disconnect"), "{:#?}", causes.collect::<Vec<_>>());
}
