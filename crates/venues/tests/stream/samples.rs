//! Recorded frames, where somebody keeps them beside the checkout. They are not part of this repository.

use std::collections::BTreeMap;
use std::path::PathBuf;

use catchment_model::UnixMs;
use catchment_venues::stream::{Descriptor, Done, Event, Reader, SequenceChecker, Step};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{descriptor, wanted};

/// The file's text, or nothing, said once, if the samples are not here.
fn sample(name: &str) -> Option<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/venues/samples");
    if !folder.is_dir() {
        eprintln!("skipped: there are no recorded samples in {}", folder.display());
        return None;
    }
    Some(std::fs::read_to_string(folder.join(name)).unwrap())
}

/// One line of a recording.
#[derive(Deserialize)]
struct Line<'a> {
    recv_ns: Option<i64>,
    dir: &'a str,
    #[serde(borrow)]
    frame: &'a RawValue,
}

/// What a recording held: messages by channel and symbol, and the names of everything else.
#[derive(Debug, Default)]
struct Tally {
    messages: BTreeMap<String, u32>,
    others: BTreeMap<String, u32>,
    steps: BTreeMap<String, u32>,
    flaws: u32,
}

impl Tally {
    fn text(&self) -> String {
        let list = |what: &BTreeMap<String, u32>| {
            what.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        format!("{}; {}; {}", list(&self.messages), list(&self.others), list(&self.steps))
    }
}

/// Follows one connection's frames with all its checkers.
struct Follower {
    descriptor: Descriptor,
    table: Vec<(String, usize, String)>,
    reader: Reader,
    checkers: BTreeMap<u32, SequenceChecker>,
    tally: Tally,
}

impl Follower {
    fn new(descriptor: &Descriptor, socket: usize, channels: &[&str], symbols: &[&str]) -> Self {
        let wanted = wanted(descriptor, channels, symbols);
        let name = |channel: usize| descriptor.channels()[channel].name.as_str().to_owned();
        let table =
            wanted.iter().map(|w| (name(w.channel), w.channel, w.instrument.symbol.clone())).collect();
        Self {
            descriptor: descriptor.clone(),
            table,
            reader: descriptor.reader(socket, &wanted),
            checkers: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// `near`: when it was received, where the recording says so by a wall clock.
    fn frame(&mut self, frame: &str, near_ms: Option<i64>) {
        let mut events = Vec::new();
        self.reader.read(frame.as_bytes(), &mut events);
        for event in events {
            let name = match event {
                Event::Data(data) => {
                    let (channel, index, symbol) = &self.table[data.wanted as usize];
                    *self.tally.messages.entry(format!("{channel} {symbol}")).or_default() += 1;
                    self.tally.flaws += u32::from(data.flaw.is_some());
                    serde_json::from_str::<&RawValue>(data.text).unwrap();
                    if let Some(time) = data.server_time {
                        assert!((1_500_000_000_000..1_900_000_000_000).contains(&time.get()), "{frame}");
                        let away = near_ms.map_or(0, |near| (near - time.get()).abs());
                        // The first trade and ticker after a subscription can be old.
                        assert!(away < 60_000, "{away} ms away: {frame}");
                    }
                    if let (Some(rule), Some(sequence)) =
                        (self.descriptor.channels()[*index].sequence, data.sequence)
                    {
                        let checker =
                            self.checkers.entry(data.wanted).or_insert_with(|| SequenceChecker::new(rule));
                        let step = checker.next(&sequence, data.is_snapshot);
                        assert!(!matches!(step, Step::Gap { .. } | Step::Old), "{step:?}: {frame}");
                        *self.tally.steps.entry(format!("{step:?}")).or_default() += 1;
                    }
                    continue;
                }
                Event::Ack(answer) if answer.done == Done::AsAsked => "ack".to_owned(),
                Event::Ack(answer) => format!("{:?}", answer.done),
                Event::Refused { .. } => "refused".to_owned(),
                Event::ReconnectSoon { .. } => "reconnect".to_owned(),
                Event::Unknown(why) => panic!("{why:?}: {frame}"),
                event => format!("{event:?}"),
            };
            *self.tally.others.entry(name).or_default() += 1;
        }
    }
}

/// Replays a recording and says what was in it.
fn check_with(
    descriptor: &Descriptor,
    socket: usize,
    name: &str,
    channels: &[&str],
    symbols: &[&str],
    want: &str,
) {
    let Some(text) = sample(name) else { return };
    let mut follower = Follower::new(descriptor, socket, channels, symbols);
    for line in text.lines() {
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        if line.dir == "rx" {
            // Some recordings count from another moment.
            let near = line.recv_ns.filter(|ns| *ns > 1_000_000_000_000_000_000).map(|ns| ns / 1_000_000);
            follower.frame(line.frame.get(), near);
        }
    }
    assert_eq!(follower.tally.text(), want, "{name}");
}

fn check(venue: &str, name: &str, channels: &[&str], symbols: &[&str], want: &str) {
    check_with(&descriptor(venue), 0, &format!("{venue}/{name}"), channels, symbols, want);
}

/// A shipped descriptor with one thing written otherwise.
fn changed(venue: &str, from: &str, to: &str) -> Descriptor {
    let (file, text) = Descriptor::shipped_files().iter().find(|(file, _)| file.starts_with(venue)).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    Descriptor::read(file, &text.replace(from, to)).unwrap()
}

#[test]
fn binance() {
    let all = ["trades", "agg_trades", "book_delta", "ticker", "candles"];
    check(
        "binance",
        "ws_btcusdt_depth_trade_bookticker_2024.jsonl",
        &all,
        &["BTC/USDT"],
        "book_delta BTC/USDT 10, ticker BTC/USDT 202, trades BTC/USDT 47; ; First 2, Next 55",
    );
    check(
        "binance",
        "ws_lrcbtc_depth_with_rest_snapshot.jsonl",
        &all,
        &["LRC/BTC"],
        "agg_trades LRC/BTC 1, book_delta LRC/BTC 15, candles LRC/BTC 1, ticker LRC/BTC 9; ; First 2, Next 14",
    );
    check(
        "binance",
        "ws_blzeth_depth_with_rest_snapshot.jsonl",
        &all,
        &["BLZ/ETH"],
        "book_delta BLZ/ETH 10, ticker BLZ/ETH 1; ; First 1, Next 9",
    );
    // Raw streams, which this descriptor does not use: only the answer is common to both.
    let Some(text) = sample("binance/ws_raw_stream_ack_bookticker_miniticker_2026.jsonl") else { return };
    let mut follower = Follower::new(&descriptor("binance"), 0, &all, &["BTC/USDT"]);
    let line: Line<'_> = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    follower.frame(line.frame.get(), None);
    assert_eq!(follower.tally.text(), "; ack 1; ");
}

#[test]
fn coinbase() {
    let all = ["trades", "book_delta", "ticker"];
    check(
        "coinbase",
        "exchange_ws_level2_matches_ticker_band-gbp_2021.jsonl",
        &all,
        &["BAND/GBP"],
        "book_delta BAND/GBP 472, ticker BAND/GBP 5, trades BAND/GBP 5; Subscribed 3; First 1, Next 4",
    );
    check(
        "coinbase",
        "exchange_ws_level2_nu-gbp_2021.jsonl",
        &all,
        &["NU/GBP"],
        "book_delta NU/GBP 77, ticker NU/GBP 2, trades NU/GBP 2; Subscribed 3; First 1, Next 1",
    );
}

#[test]
fn kraken() {
    let all = ["trades", "book_delta", "ticker", "candles"];
    check(
        "kraken",
        "ws_v2_book_minagbp_d25_resubscribe.jsonl",
        &all,
        &["MINA/GBP"],
        "book_delta MINA/GBP 19; Heartbeat 73, Status 1, Subscribed 2, Unsubscribed 1; ",
    );
    check(
        "kraken",
        "ws_v2_book_ethusd_d10_2025.jsonl",
        &all,
        &["ETH/USD"],
        "book_delta ETH/USD 2; Subscribed 1; ",
    );
    check(
        "kraken",
        "ws_v2_control_trade_ticker_ohlc_2026.jsonl",
        &all,
        &["BTC/USD"],
        "candles BTC/USD 1, ticker BTC/USD 1, trades BTC/USD 1; Heartbeat 1, Status 1, Subscribed 1, refused 2; First 1",
    );
}

#[test]
fn okx() {
    let okx = descriptor("okx");
    let public = okx.sockets().iter().position(|socket| socket.name == "public").unwrap();
    let business = okx.sockets().iter().position(|socket| socket.name == "business").unwrap();
    let all = ["trades", "book_delta", "ticker"];
    let check = |name: &str, symbols: &[&str], want: &str| {
        check_with(&okx, public, &format!("okx/{name}"), &all, symbols, want);
    };
    check(
        "ws_books_trades_tickers_uni-usd-swap_2022.jsonl",
        &["UNI-USD-SWAP"],
        "book_delta UNI-USD-SWAP 93, ticker UNI-USD-SWAP 1, trades UNI-USD-SWAP 1; Subscribed 6; ",
    );
    check(
        "ws_books_near-usdt_2025_TRIMMED.jsonl",
        &["NEAR/USDT"],
        "book_delta NEAR/USDT 2; ; First 1, Next 1",
    );
    check("ws_trades_btc-usdt_2025.jsonl", &["BTC/USDT"], "trades BTC/USDT 2; ; ");
    check("ws_control_messages.jsonl", &["BTC/USDT"], "; Status 1, Subscribed 8, reconnect 1, refused 2; ");
    let five = changed("okx", "name = \"books\"\n", "name = \"books5\"\n");
    check_with(
        &five,
        public,
        "okx/ws_books5_btc-usdt-swap_2026.jsonl",
        &all,
        &["BTC-USDT-SWAP"],
        "book_delta BTC-USDT-SWAP 2; Subscribed 1; ",
    );
    // A candle, a trade and the best prices, of three instruments and two sockets.
    let Some(text) = sample("okx/ws_candle_trade_bbo_2025.jsonl") else { return };
    let sockets = [
        (business, "candles BTC/USDT 1; ; "),
        (public, "trades BTC-USDT-SWAP 1; ; "),
        (public, "bbo LTC/USDC 1; ; "),
    ];
    for (line, (socket, want)) in text.lines().zip(sockets) {
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        let channels = ["candles", "trades", "bbo"];
        let mut follower = Follower::new(&okx, socket, &channels, &["BTC/USDT", "BTC-USDT-SWAP", "LTC/USDC"]);
        follower.frame(line.frame.get(), None);
        assert_eq!(follower.tally.text(), want);
    }
}

#[test]
fn bybit() {
    let bybit = descriptor("bybit");
    let public = bybit.sockets().iter().position(|socket| socket.name == "public").unwrap();
    let all = ["trades", "book_delta", "bbo"];
    let check = |descriptor: &Descriptor, name: &str, want: &str| {
        check_with(descriptor, public, &format!("bybit/{name}"), &all, &["BTC/USDT"], want);
    };
    check(
        &bybit,
        "ws_spot_orderbook200_btcusdt_2023.jsonl",
        "book_delta BTC/USDT 2; Subscribed 1; First 1, Next 1",
    );
    check(&bybit, "ws_spot_public_trade_2023.jsonl", "trades BTC/USDT 2; Subscribed 1; ");
    check(&bybit, "ws_public_trade_linear_2023.jsonl", "trades BTC/USDT 1; ; ");
    check(&bybit, "ws_control_messages.jsonl", "; Pong 1, Subscribed 3, ack 1, refused 1; ");
    let fifty = changed("bybit", "orderbook.200.", "orderbook.50.");
    check(
        &fifty,
        "ws_spot_orderbook_1_and_50_2023.jsonl",
        "bbo BTC/USDT 1, book_delta BTC/USDT 2; ; First 1, Next 1",
    );
}

#[test]
fn polymarket() {
    #[derive(Deserialize)]
    struct Session {
        messages: Vec<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        direction: String,
        raw: String,
    }
    let polymarket = descriptor("polymarket");
    let all = ["trades", "book_delta", "ticker", "markets"];
    let token = "34691510069031117755834214800869745291092253295564665516660269316660628637961";
    let Some(text) = sample("polymarket/ws-session.json") else { return };
    let session: Session = serde_json::from_str(&text).unwrap();
    let mut follower = Follower::new(&polymarket, 0, &all, &[token]);
    for message in session.messages.iter().filter(|message| message.direction == "recv") {
        follower.frame(&message.raw, None);
    }
    assert_eq!(follower.tally.text().replace(token, "T"), "book_delta T 38; Pong 4; ", "ws-session.json");
    assert_eq!(follower.tally.flaws, 0);

    let one = |name: &str, want: &str| {
        let text = sample(&format!("polymarket/{name}")).unwrap();
        let token = text.split("asset_id\":").nth(1).map_or("0", |rest| rest.split('"').nth(1).unwrap());
        let mut follower = Follower::new(&polymarket, 0, &all, &[token]);
        if name.ends_with('l') {
            text.lines().for_each(|line| follower.frame(line, None));
        } else {
            follower.frame(&text, None);
        }
        assert_eq!(follower.tally.text().replace(token, "T"), want, "{name}");
    };
    one("ws-initial-book.json", "book_delta T 1; ; ");
    one("ws-trade-and-bbo.jsonl", "ticker T 1, trades T 1; ; ");
    one("ws-tick-size-change-2025.json", "book_delta T 1; ; ");
    one("ws-old-book-2024.json", "book_delta T 1; ; ");
    one("ws-old-price-change-2024.json", "book_delta T 1; ; ");
    one("ws-old-last-trade-2024.json", "trades T 1; ; ");
    one("ws-best-bid-ask.doc.json", "ticker T 1; ; ");
    one("ws-new-market.json", "markets * 1; ; ");
    one("ws-market-resolved.doc.json", "markets * 1; ; ");
}

/// REST answers that the descriptors ask for.
#[test]
fn recorded_answers_over_rest_are_read() {
    let time = |venue: &str, name: &str, want: i64| {
        let Some(body) = sample(&format!("{venue}/{name}")) else { return };
        assert_eq!(descriptor(venue).read_time(body.as_bytes()).map(UnixMs::get), Some(want), "{venue}");
    };
    time("binance", "rest_time.json", 1_633_835_466_289);
    time("kraken", "rest_time.json", 1_762_820_224_000);
    time("polymarket", "clob-time.txt", 1_785_207_335_000);
    let witness = |venue: &str, channel: &str, name: &str, want: &str| {
        let Some(body) = sample(&format!("{venue}/{name}")) else { return };
        let descriptor = descriptor(venue);
        let witness = descriptor.read_witness(descriptor.channel(channel).unwrap(), body.as_bytes()).unwrap();
        let said = (witness.id.as_deref(), witness.time.map(UnixMs::get), witness.mark.as_deref());
        assert_eq!(format!("{said:?}"), want, "{venue} {name}");
    };
    witness("binance", "trades", "rest_trades.json", r#"(Some("445560535"), Some(1603947132493), None)"#);
    witness(
        "binance",
        "agg_trades",
        "rest_agg_trades.json",
        r#"(Some("284862204"), Some(1588749263231), None)"#,
    );
    witness("binance", "book_delta", "rest_depth.json", r#"(Some("8223158780"), None, None)"#);
    witness("kraken", "trades", "rest_trades_2026.json", r#"(Some("109118760"), Some(1790359841138), None)"#);
    witness(
        "kraken",
        "book_delta",
        "rest_depth.json",
        r#"(None, None, Some("105944.20000 0.002 105944.30000 0.136"))"#,
    );
    for channel in ["ticker", "candles"] {
        witness("kraken", channel, "rest_trades_2026.json", r#"(None, None, Some("109118760"))"#);
    }
    witness("binance", "candles", "rest_agg_trades.json", r#"(None, None, Some("284862204"))"#);
    witness("okx", "trades", "rest_trades.json", r#"(Some("734864333"), Some(1747087163557), None)"#);
    witness("okx", "candles", "rest_trades.json", r#"(None, None, Some("734864333"))"#);
    for channel in ["ticker", "candles"] {
        let newest = r#"(None, None, Some("2100000000055371969"))"#;
        witness("bybit", channel, "rest_recent_trade_spot_testnet.json", newest);
    }
    witness(
        "bybit",
        "trades",
        "rest_recent_trade_spot_testnet.json",
        r#"(Some("2100000000055371969"), Some(1703318475711), None)"#,
    );
    witness(
        "bybit",
        "book_delta",
        "rest_orderbook_spot_testnet.json",
        r#"(None, None, Some("29714.9 0.0008 29727.05 0.000069"))"#,
    );
    witness(
        "polymarket",
        "book_delta",
        "clob-book.json",
        r#"(None, Some(1785561505000), Some("bb814e6304b7ff645f0e8d697222a71422fa7c88"))"#,
    );
}
