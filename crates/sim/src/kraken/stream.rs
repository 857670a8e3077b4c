//! The v2 socket.
//!
//! ```text
//! {"channel":"book","type":"update","data":[{"symbol":"ETH/USD","bids":[],"asks":[{"price":1797.29,"qty":0.00000000}],
//!  "checksum":3329440863,"timestamp":"2025-05-06T09:17:26.208075Z"}]}
//! ```
//! Prices have the pair's decimals, sizes eight: bare numbers, zeros and all.

use flate2::Crc;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Kraken, alt_name, id};
use crate::dice::Dice;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, fixed, number, put, size8, stamp};
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::pair::{BOOK_BEAT, Change, Level, MINUTE, Pair, TICKER_BEAT, TRADE_BEAT, Trade};
use crate::ws::{BOOK, CANDLES, TICKER, TRADES};

const DEPTHS: [u32; 5] = [10, 25, 100, 500, 1_000];
/// A ticker for each change of the best prices instead of each trade.
const BBO: u32 = 1;

#[derive(Deserialize)]
struct Command<'a> {
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    req_id: Option<u64>,
}

#[derive(Deserialize)]
struct Params {
    channel: String,
    #[serde(default)]
    symbol: Vec<String>,
    depth: Option<u32>,
    snapshot: Option<bool>,
    event_trigger: Option<String>,
    interval: Option<u32>,
}

impl Wire for Kraken {
    fn manners(&self) -> Manners {
        Manners {
            heartbeat_us: Some(SECOND),
            subscribe_within_us: Some(60 * SECOND),
            streams_max: usize::MAX,
            has_checksum: true,
            ..Manners::default()
        }
    }

    fn names(&self, pair: &Pair) -> Vec<String> {
        vec![id(pair), alt_name(pair)]
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path, "v2" | "ws/v2" | "ws")
    }

    fn greet(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, _path: &str, _query: Query<'_>) {
        let id = Dice::at(&[market.seed, conn, 0xc0]).next() | 1 << 63; // beyond what a double holds
        let status = format!(
            r#"{{"channel":"status","type":"update","data":[{{"version":"2.0.10","system":"online","api_version":"v2","connection_id":{id},"upcoming_maintenance":[],"emergency":[]}}]}}"#
        );
        hall.tell(conn, status.as_bytes());
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        let Ok(command) = serde_json::from_str::<Command<'_>>(text) else {
            let out = refusal(hall, "error", "Malformed request", None, None);
            return hall.tell(conn, &out);
        };
        let (method, req_id) = (command.method, command.req_id);
        match method {
            "ping" => {
                let mut out = b"{\"method\":\"pong\"".to_vec();
                times(&mut out, hall.now_us, req_id);
                hall.tell_alive(conn, &out);
            }
            "subscribe" | "unsubscribe" => {
                let params = command.params.map_or("{}", RawValue::get);
                let Ok(params) = serde_json::from_str::<Params>(params) else {
                    let out = refusal(hall, method, "Malformed request", None, req_id);
                    return hall.tell(conn, &out);
                };
                for symbol in &params.symbol {
                    self.on_list(market, hall, conn, method, &params, symbol, req_id);
                }
                if params.symbol.is_empty() {
                    let out = refusal(hall, method, "Symbol(s) not found", None, req_id);
                    hall.tell(conn, &out);
                }
            }
            _ => {
                let reason =
                    "Private data and trading are unavailable on this endpoint. Try ws-auth.kraken.com";
                let out = refusal(hall, method, reason, None, req_id);
                hall.tell(conn, &out);
            }
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        match feed.key.channel {
            BOOK => {
                let mut view = Vec::new();
                pair.view(feed.key.variant as usize, false, &mut view);
                if view.is_empty() {
                    return None;
                }
                let side = |bid: bool| {
                    let own = view.iter().filter(move |change: &&Change| change.bid == bid);
                    own.map(|change| Level { price: change.price, size: change.size })
                };
                write_book(pair, "update", side(true), side(false), spoil, out);
                Some((feed.count + 1, feed.count + 1))
            }
            TRADES => {
                let trade = pair.last_trade();
                write_trades(pair, "update", std::iter::once(&trade), out);
                Some((trade.id, trade.id))
            }
            CANDLES => {
                write_candle(pair, "update", out);
                Some((feed.count + 1, feed.count + 1))
            }
            _ => {
                write_ticker(pair, "update", out);
                Some((feed.count + 1, feed.count + 1))
            }
        }
    }

    fn beat_of(&self, key: &Key) -> u8 {
        match (key.channel, key.variant) {
            (BOOK, _) | (TICKER, BBO) => BOOK_BEAT,
            (TRADES, _) => TRADE_BEAT,
            _ => TICKER_BEAT,
        }
    }

    fn heartbeat(&mut self, _market: &mut Market, hall: &mut Hall, conn: u64) {
        let subscribed = hall.conns.get(&conn).is_some_and(|conn| !conn.feeds.is_empty());
        let spoken = self.told_us.insert(conn, hall.now_us).is_some_and(|at| at + SECOND > hall.now_us);
        if subscribed && !(self.rules.quiet_heartbeats && spoken) {
            hall.tell_alive(conn, br#"{"channel":"heartbeat"}"#);
        }
    }

    fn forget(&mut self, conn: u64) {
        self.told_us.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        super::rest::answer(market, now_us, path, ask)
    }
}

impl Kraken {
    #[allow(clippy::too_many_arguments)] // one symbol of one command
    fn on_list(
        &mut self,
        market: &mut Market,
        hall: &mut Hall,
        conn: u64,
        method: &str,
        params: &Params,
        symbol: &str,
        req_id: Option<u64>,
    ) {
        let refuse = |hall: &mut Hall, reason: &str| {
            let out = refusal(hall, method, reason, Some(symbol), req_id);
            hall.tell(conn, &out);
        };
        let Some(slot) = market.find(symbol).filter(|slot| market.pairs[*slot as usize].unified == symbol)
        else {
            return refuse(hall, &format!("Currency pair not supported {symbol}"));
        };
        let depth = params.depth.unwrap_or(10);
        let (channel, variant) = match params.channel.as_str() {
            "book" if !DEPTHS.contains(&depth) => return refuse(hall, "Subscription depth not supported"),
            "book" => (BOOK, depth),
            "trade" => (TRADES, 0),
            "ticker" => (TICKER, u32::from(params.event_trigger.as_deref() == Some("bbo"))),
            "ohlc" if params.interval.unwrap_or(1) != 1 => {
                return refuse(hall, "Subscription ohlc interval not supported");
            }
            "ohlc" => (CANDLES, 1),
            _ => return refuse(hall, "Subscription name invalid"),
        };
        let key = Key { slot, channel, variant };
        if method == "unsubscribe" {
            let was = hall.known_feed(key).is_some_and(|feed| hall.leave(conn, feed));
            if !was {
                return refuse(hall, "Subscription Not Found");
            }
            return hall.tell(conn, &acknowledgement(hall, method, params, symbol, channel, None, req_id));
        }
        if hall.known_feed(key).is_some_and(|feed| hall.has(conn, feed)) {
            return refuse(hall, "Already subscribed");
        }
        let (feed, admit) = market.subscribe(hall, conn, key);
        if admit == Admit::Refuse {
            return refuse(hall, "Subscription refused");
        }
        // Of book and ticker a snapshot comes unless it is declined, of trades only if it is asked for.
        let snapshot = params.snapshot.unwrap_or(channel != TRADES);
        hall.tell(conn, &acknowledgement(hall, method, params, symbol, channel, Some(snapshot), req_id));
        if !snapshot {
            return;
        }
        let pair = &market.pairs[slot as usize];
        let mut out = std::mem::take(&mut market.scratch);
        out.clear();
        let number = match channel {
            BOOK => {
                let side = |bid: bool| pair.side(bid).take(depth as usize).copied();
                write_book(pair, "snapshot", side(true), side(false), false, &mut out);
                hall.feeds[feed as usize].count
            }
            TRADES => {
                let skip = pair.trades.len().saturating_sub(50);
                write_trades(pair, "snapshot", pair.trades.iter().skip(skip), &mut out);
                pair.last_trade().id
            }
            CANDLES => {
                write_candle(pair, "snapshot", &mut out);
                hall.feeds[feed as usize].count
            }
            _ => {
                write_ticker(pair, "snapshot", &mut out);
                hall.feeds[feed as usize].count
            }
        };
        hall.publish_to(conn, feed, &out, number, number);
        market.scratch = out;
    }
}

fn refusal(hall: &Hall, method: &str, reason: &str, symbol: Option<&str>, req_id: Option<u64>) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{').text("error", reason).text("method", method).raw("success", false);
    if let Some(symbol) = symbol {
        json.text("symbol", symbol);
    }
    let mut out = json.done().into_bytes();
    times(&mut out, hall.now_us, req_id);
    out
}

fn acknowledgement(
    hall: &Hall,
    method: &str,
    params: &Params,
    symbol: &str,
    channel: &str,
    snapshot: Option<bool>,
    req_id: Option<u64>,
) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{').text("method", method).key("result").open('{').text("channel", &params.channel);
    if channel == BOOK {
        json.raw("depth", params.depth.unwrap_or(10));
    }
    if channel == TICKER && snapshot.is_some() {
        json.text("event_trigger", params.event_trigger.as_deref().unwrap_or("trades"));
    }
    if channel == CANDLES {
        json.raw("interval", params.interval.unwrap_or(1));
    }
    if let Some(snapshot) = snapshot {
        json.raw("snapshot", snapshot);
    }
    json.text("symbol", symbol).close('}').raw("success", true);
    let mut out = json.done().into_bytes();
    times(&mut out, hall.now_us, req_id);
    out
}

/// When it came in and when the answer left, and the client's number of it; closes the object.
fn times(out: &mut Vec<u8>, now_us: i64, req_id: Option<u64>) {
    put!(out, ",\"time_in\":\"");
    stamp(out, now_us, 6);
    put!(out, "Z\",\"time_out\":\"");
    stamp(out, now_us + 38, 6);
    put!(out, "Z\"");
    if let Some(req_id) = req_id {
        put!(out, ",\"req_id\":");
        number(out, req_id);
    }
    put!(out, "}");
}

// ---- payloads ----

pub(super) fn price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    fixed(out, ticks as u64, pair.price_scale, pair.price_scale);
}

fn levels(out: &mut Vec<u8>, pair: &Pair, levels: impl Iterator<Item = Level>) {
    let mut comma = false;
    for level in levels {
        if std::mem::replace(&mut comma, true) {
            out.push(b',');
        }
        put!(out, "{\"price\":");
        price(out, pair, level.price);
        put!(out, ",\"qty\":");
        size8(out, level.size);
        put!(out, "}");
    }
}

fn write_book(
    pair: &Pair,
    kind: &str,
    bids: impl Iterator<Item = Level>,
    asks: impl Iterator<Item = Level>,
    spoil: bool,
    out: &mut Vec<u8>,
) {
    put!(
        out,
        "{\"channel\":\"book\",\"type\":\"",
        kind,
        "\",\"data\":[{\"symbol\":\"",
        pair.unified,
        "\",\"bids\":["
    );
    levels(out, pair, bids);
    put!(out, "],\"asks\":[");
    levels(out, pair, asks);
    put!(out, "],\"checksum\":");
    number(out, checksum(pair) ^ u32::from(spoil));
    put!(out, ",\"timestamp\":\"");
    stamp(out, pair.book_us, 6);
    put!(out, "Z\"}]}");
}

/// CRC-32 over the ten best asks, then the ten best bids: price and size of each without point and leading zeros.
fn checksum(pair: &Pair) -> u32 {
    let mut text = [0u8; 20 * 40];
    let mut len = 0;
    let mut digits = itoa::Buffer::new();
    for bid in [false, true] {
        for level in pair.side(bid).take(10) {
            for value in [level.price as u64, level.size] {
                let digits = digits.format(value).as_bytes();
                text[len..len + digits.len()].copy_from_slice(digits);
                len += digits.len();
            }
        }
    }
    let mut crc = Crc::new();
    crc.update(&text[..len]);
    crc.sum()
}

fn write_trades<'a>(pair: &Pair, kind: &str, trades: impl Iterator<Item = &'a Trade>, out: &mut Vec<u8>) {
    put!(out, "{\"channel\":\"trade\",\"type\":\"", kind, "\",\"data\":[");
    let mut comma = false;
    for trade in trades {
        if std::mem::replace(&mut comma, true) {
            out.push(b',');
        }
        put!(out, "{\"symbol\":\"", pair.unified, "\",\"side\":\"", if trade.buy { "buy" } else { "sell" });
        put!(out, "\",\"price\":");
        price(out, pair, trade.price);
        put!(out, ",\"qty\":");
        size8(out, trade.size);
        put!(out, ",\"ord_type\":\"", if trade.id % 3 == 0 { "market" } else { "limit" }, "\",\"trade_id\":");
        number(out, trade.id);
        put!(out, ",\"timestamp\":\"");
        stamp(out, trade.at_us, 6);
        put!(out, "Z\"}");
    }
    put!(out, "]}");
}

fn write_candle(pair: &Pair, kind: &str, out: &mut Vec<u8>) {
    let candle = pair.candle();
    put!(out, "{\"channel\":\"ohlc\",\"type\":\"", kind, "\",\"timestamp\":\"");
    stamp(out, pair.ticker_us, 9);
    put!(out, "Z\",\"data\":[{\"symbol\":\"", pair.unified, "\"");
    for (key, ticks) in
        [("open", candle.open), ("high", candle.high), ("low", candle.low), ("close", candle.close)]
    {
        put!(out, ",\"", key, "\":");
        price(out, pair, ticks);
    }
    put!(out, ",\"trades\":");
    number(out, candle.trades);
    put!(out, ",\"volume\":");
    size8(out, candle.volume);
    put!(out, ",\"vwap\":");
    price(out, pair, (candle.high + candle.low) / 2);
    put!(out, ",\"interval_begin\":\"");
    stamp(out, candle.open_us, 9);
    put!(out, "Z\",\"interval\":1,\"timestamp\":\"");
    stamp(out, candle.open_us + MINUTE, 6);
    put!(out, "Z\"}]}");
}

fn write_ticker(pair: &Pair, kind: &str, out: &mut Vec<u8>) {
    let (trade, (bid, ask)) = (pair.last_trade(), pair.best());
    put!(out, "{\"channel\":\"ticker\",\"type\":\"", kind, "\",\"data\":[{\"symbol\":\"", pair.unified, "\"");
    let money = |out: &mut Vec<u8>, key: &str, ticks: i64| {
        put!(out, ",\"", key, "\":", if ticks < 0 { "-" } else { "" });
        price(out, pair, ticks.abs());
    };
    let amount = |out: &mut Vec<u8>, key: &str, size: u64| {
        put!(out, ",\"", key, "\":");
        size8(out, size);
    };
    money(out, "bid", bid.price);
    amount(out, "bid_qty", bid.size);
    money(out, "ask", ask.price);
    amount(out, "ask_qty", ask.size);
    money(out, "last", trade.price);
    amount(out, "volume", pair.volume);
    money(out, "vwap", (trade.price + pair.open) / 2);
    money(out, "low", pair.low);
    money(out, "high", pair.high);
    money(out, "change", trade.price - pair.open);
    let percent = (trade.price - pair.open) * 10_000 / pair.open.max(1);
    put!(out, ",\"change_pct\":", if percent < 0 { "-" } else { "" });
    fixed(out, percent.unsigned_abs(), 2, 2);
    put!(out, ",\"trades\":");
    number(out, 100_000 + trade.id % 100_000);
    put!(out, ",\"timestamp\":\"");
    stamp(out, trade.at_us.max(pair.book_us), 6);
    put!(out, "Z\"}]}");
}
