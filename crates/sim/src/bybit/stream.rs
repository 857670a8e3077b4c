//! The socket.
//!
//! ```text
//! {"topic":"orderbook.50.BTCUSDT","ts":1682083231922,"type":"delta","data":{"s":"BTCUSDT","b":[["27579.99","0.031244"]],"a":[],
//!  "u":1323397,"seq":792472763},"cts":1682083231900}
//! {"topic":"publicTrade.BTCUSDT","ts":1703430744103,"type":"snapshot","data":[{"i":"2290000000090712222","T":1703430744102,…}]}
//! ```

use serde::Deserialize;

use super::Bybit;
use super::private::{self, EXECUTIONS, ORDERS};
use crate::dice::Dice;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, number, put, trimmed};
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::pair::{BOOK_BEAT, Change, Level, Pair, SIZE_SCALE, TICKER_BEAT, TRADE_BEAT, Trade};
use crate::ws::{BOOK, CANDLES, TICKER, TRADES};

const ARGS_MAX: usize = 10;
const ARGS_LEN_MAX: usize = 21_000;
const DEPTHS: [u32; 4] = [1, 50, 200, 1_000];
/// Topics count from here.
const U_FIRST: u64 = 5_000_000;
/// A trade's name is this and its number.
const TRADE_NAME: u64 = 2_290_000_000_000_000_000;

#[derive(Deserialize)]
struct Command {
    op: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    req_id: Option<String>,
}

impl Wire for Bybit {
    fn manners(&self) -> Manners {
        Manners {
            idle_us: Some(600 * SECOND),
            heartbeat_us: Some(3 * SECOND),
            streams_max: usize::MAX,
            has_restart: true,
            ..Manners::default()
        }
    }

    fn names(&self, pair: &Pair) -> Vec<String> {
        vec![format!("{}{}", pair.base, pair.quote)]
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path, "v5/public/spot" | "v5/private")
    }

    fn greet(&mut self, market: &mut Market, _hall: &mut Hall, conn: u64, path: &str, _query: Query<'_>) {
        let mut dice = Dice::at(&[market.seed, conn, 0xc0]);
        let hex = format!("{:016x}{:016x}", dice.next(), dice.next());
        let id = format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        self.sessions.insert(conn, (id, 0));
        if path == "v5/private" {
            self.private.insert(conn, false);
        }
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        if self.private.contains_key(&conn) {
            return self.hear_private(market, hall, conn, text);
        }
        let Ok(command) = serde_json::from_str::<Command>(text) else {
            let out = self.respond(conn, false, "Invalid request", None, "");
            return hall.tell(conn, &out);
        };
        let req_id = command.req_id.as_deref();
        match command.op.as_str() {
            "ping" => {
                let out = self.respond(conn, true, "pong", req_id, "ping");
                hall.tell_alive(conn, &out);
            }
            "subscribe" => self.subscribe(market, hall, conn, &command),
            "unsubscribe" => {
                for topic in &command.args {
                    if let Some(feed) = key_of(market, topic).and_then(|key| hall.known_feed(key))
                        && hall.leave(conn, feed)
                        && let Some((_, length)) = self.sessions.get_mut(&conn)
                    {
                        *length = length.saturating_sub(topic.len());
                    }
                }
                let out = self.respond(conn, true, "unsubscribe", req_id, "unsubscribe");
                hall.tell(conn, &out);
            }
            op => {
                let out = self.respond(conn, false, &format!("Invalid op: {op}"), req_id, op);
                hall.tell(conn, &out);
            }
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, _spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        match (feed.key.channel, feed.key.variant) {
            (BOOK, depth) => {
                let mut view = Vec::new();
                pair.view(depth as usize, true, &mut view);
                if view.is_empty() {
                    return None;
                }
                let u = U_FIRST.wrapping_add(feed.count).wrapping_add(1);
                write_book(pair, depth, (depth > 1).then_some(&view[..]), u, out);
                Some((u, u))
            }
            (TRADES, _) => {
                let trade = pair.last_trade();
                write_trade(pair, &trade, out);
                Some((trade.id, trade.id))
            }
            (CANDLES, _) => Some(write_candle(pair, out)),
            (topic @ (ORDERS | EXECUTIONS), _) => Some(private::write(pair, topic, out)),
            _ => Some(write_ticker(pair, out)),
        }
    }

    fn beat_of(&self, key: &Key) -> u8 {
        match key.channel {
            BOOK => BOOK_BEAT,
            TRADES | ORDERS | EXECUTIONS => TRADE_BEAT,
            _ => TICKER_BEAT,
        }
    }

    /// The best level that has not changed for three seconds comes again, under the same number.
    fn heartbeat(&mut self, market: &mut Market, hall: &mut Hall, conn: u64) {
        let feeds = hall.conns.get(&conn).map(|conn| conn.feeds.clone()).unwrap_or_default();
        for feed in feeds {
            let Key { slot, channel, variant } = hall.feeds[feed as usize].key;
            let pair = &market.pairs[slot as usize];
            if (channel, variant) == (BOOK, 1) && pair.book_us + 3 * SECOND <= hall.now_us {
                let u = U_FIRST.wrapping_add(hall.feeds[feed as usize].count);
                let mut out = Vec::new();
                write_book(pair, 1, None, u, &mut out);
                hall.publish_to(conn, feed, &out, u, u);
            }
        }
    }

    /// The service begins anew: every topic of the symbol sends a whole book numbered 1, and counts on from there.
    fn restart(&mut self, market: &mut Market, hall: &mut Hall, slot: u32) {
        let pair = &market.pairs[slot as usize];
        for depth in DEPTHS {
            if let Some(feed) = hall.known_feed(Key { slot, channel: BOOK, variant: depth }) {
                let mut out = Vec::new();
                write_book(pair, depth, None, 1, &mut out);
                hall.feeds[feed as usize].count = 1u64.wrapping_sub(U_FIRST);
                hall.publish(feed, &out, 1, 1);
            }
        }
    }

    fn forget(&mut self, conn: u64) {
        self.private.remove(&conn);
        self.sessions.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        super::rest::answer(market, now_us, path, ask)
    }
}

/// The market and the channel a topic names.
fn key_of(market: &Market, topic: &str) -> Option<Key> {
    let (name, symbol) = topic.rsplit_once('.')?;
    let slot = market.find(symbol).filter(|_| !symbol.contains('/'))?;
    let (channel, variant) = match name {
        "publicTrade" => (TRADES, 0),
        "tickers" => (TICKER, 0),
        "kline.1" => (CANDLES, 1),
        _ => {
            let depth = name.strip_prefix("orderbook.")?.parse().ok()?;
            (BOOK, DEPTHS.contains(&depth).then_some(depth)?)
        }
    };
    Some(Key { slot, channel, variant })
}

impl Bybit {
    pub(super) fn respond(
        &self,
        conn: u64,
        success: bool,
        msg: &str,
        req_id: Option<&str>,
        op: &str,
    ) -> Vec<u8> {
        let mut json = Json::default();
        json.open('{').raw("success", success).text("ret_msg", msg);
        json.text("conn_id", self.sessions.get(&conn).map_or("", |(id, _)| id));
        if let Some(req_id) = req_id {
            json.text("req_id", req_id);
        }
        json.text("op", op).close('}').done().into_bytes()
    }

    /// All of a request's topics or none.
    fn subscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, command: &Command) {
        let req_id = command.req_id.as_deref();
        let length: usize = command.args.iter().map(String::len).sum();
        let held = self.sessions.get(&conn).map_or(0, |(_, length)| *length);
        let wrong = match command.args.iter().find(|topic| key_of(market, topic).is_none()) {
            _ if command.args.len() > ARGS_MAX => Some("args size >10".to_owned()),
            _ if held + length > ARGS_LEN_MAX => Some("args length exceeds 21000".to_owned()),
            Some(topic) => Some(format!("Invalid symbol :[{topic}]")),
            None => None,
        };
        if let Some(wrong) = wrong {
            let out = self.respond(conn, false, &wrong, req_id, "subscribe");
            return hall.tell(conn, &out);
        }
        let mut joined = Vec::new();
        let keys: Vec<Key> = command.args.iter().filter_map(|topic| key_of(market, topic)).collect();
        for key in keys {
            let (feed, admit) = market.subscribe(hall, conn, key);
            if admit == Admit::Refuse {
                for (_, feed) in joined {
                    hall.leave(conn, feed);
                }
                let out = self.respond(conn, false, "subscription refused", req_id, "subscribe");
                return hall.tell(conn, &out);
            }
            joined.push((key, feed));
        }
        if let Some((_, held)) = self.sessions.get_mut(&conn) {
            *held += length;
        }
        let out = self.respond(conn, true, "subscribe", req_id, "subscribe");
        hall.tell(conn, &out);
        for (key, feed) in joined {
            let pair = &market.pairs[key.slot as usize];
            let mut out = Vec::new();
            let number = match key.channel {
                BOOK => {
                    let u = U_FIRST.wrapping_add(hall.feeds[feed as usize].count);
                    write_book(pair, key.variant, None, u, &mut out);
                    u
                }
                TICKER => write_ticker(pair, &mut out).1,
                _ => continue,
            };
            hall.publish_to(conn, feed, &out, number, number);
        }
    }
}

// ---- payloads ----

pub(super) fn price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    trimmed(out, ticks as u64, pair.price_scale);
}

pub(super) fn size(out: &mut Vec<u8>, units: u64) {
    trimmed(out, units, SIZE_SCALE);
}

pub(super) fn levels(out: &mut Vec<u8>, pair: &Pair, levels: impl Iterator<Item = Level>) {
    for (at, level) in levels.enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        price(out, pair, level.price);
        put!(out, "\",\"");
        size(out, level.size);
        put!(out, "\"]");
    }
}

/// A snapshot without `changes`, a delta with them.
fn write_book(pair: &Pair, depth: u32, changes: Option<&[Change]>, u: u64, out: &mut Vec<u8>) {
    put!(out, "{\"topic\":\"orderbook.");
    number(out, depth);
    put!(out, ".", pair.base, pair.quote, "\",\"ts\":");
    number(out, pair.book_us / 1_000 + 5);
    put!(out, ",\"type\":\"", if changes.is_some() { "delta" } else { "snapshot" });
    put!(out, "\",\"data\":{\"s\":\"", pair.base, pair.quote, "\"");
    for (bid, key) in [(true, ",\"b\":["), (false, ",\"a\":[")] {
        put!(out, key);
        match changes {
            Some(changes) => {
                let own = changes.iter().filter(|change| change.bid == bid);
                levels(out, pair, own.map(|change| Level { price: change.price, size: change.size }));
            }
            None => levels(out, pair, pair.side(bid).take(depth as usize).copied()),
        }
        put!(out, "]");
    }
    put!(out, ",\"u\":");
    number(out, u);
    put!(out, ",\"seq\":");
    number(out, pair.sequence);
    put!(out, "},\"cts\":");
    number(out, pair.book_us / 1_000);
    put!(out, "}");
}

/// The name a trade has, here and over REST.
pub(super) fn trade_name(trade: &Trade) -> u64 {
    TRADE_NAME + trade.id
}

fn write_trade(pair: &Pair, trade: &Trade, out: &mut Vec<u8>) {
    put!(out, "{\"topic\":\"publicTrade.", pair.base, pair.quote, "\",\"ts\":");
    number(out, trade.at_us / 1_000 + 1);
    put!(out, ",\"type\":\"snapshot\",\"data\":[{\"i\":\"");
    number(out, trade_name(trade));
    put!(out, "\",\"T\":");
    number(out, trade.at_us / 1_000);
    put!(out, ",\"p\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"v\":\"");
    size(out, trade.size);
    put!(out, "\",\"S\":\"", if trade.buy { "Buy" } else { "Sell" }, "\",\"seq\":");
    number(out, pair.sequence);
    put!(out, ",\"s\":\"", pair.base, pair.quote, "\",\"BT\":false,\"RPI\":false}]}");
}

fn write_candle(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let candle = pair.candle();
    let minute = (candle.open_us / 1_000) as u64;
    put!(out, "{\"topic\":\"kline.1.", pair.base, pair.quote, "\",\"ts\":");
    number(out, pair.ticker_us / 1_000);
    put!(out, ",\"type\":\"snapshot\",\"data\":[{\"start\":");
    number(out, minute);
    put!(out, ",\"end\":");
    number(out, minute + 59_999);
    put!(out, ",\"interval\":\"1\"");
    for (key, ticks) in
        [("open", candle.open), ("close", candle.close), ("high", candle.high), ("low", candle.low)]
    {
        put!(out, ",\"", key, "\":\"");
        price(out, pair, ticks);
        put!(out, "\"");
    }
    put!(out, ",\"volume\":\"");
    size(out, candle.volume);
    put!(out, "\",\"turnover\":\"");
    let scale = 10u128.pow(u32::from(pair.price_scale));
    size(out, (u128::from(candle.volume) * candle.close as u128 / scale) as u64);
    put!(out, "\",\"confirm\":", if candle.closed { "true" } else { "false" }, ",\"timestamp\":");
    number(out, pair.ticker_us / 1_000);
    put!(out, "}]}");
    (minute, minute)
}

fn write_ticker(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let at_ms = pair.ticker_us / 1_000;
    put!(out, "{\"topic\":\"tickers.", pair.base, pair.quote, "\",\"ts\":");
    number(out, at_ms);
    put!(out, ",\"type\":\"snapshot\",\"cs\":");
    number(out, pair.sequence);
    put!(out, ",\"data\":{\"symbol\":\"", pair.base, pair.quote, "\"");
    let trade = pair.last_trade();
    for (key, ticks) in [
        ("lastPrice", trade.price),
        ("highPrice24h", pair.high),
        ("lowPrice24h", pair.low),
        ("prevPrice24h", pair.open),
    ] {
        put!(out, ",\"", key, "\":\"");
        price(out, pair, ticks);
        put!(out, "\"");
    }
    put!(out, ",\"volume24h\":\"");
    size(out, pair.volume);
    put!(out, "\",\"turnover24h\":\"");
    let scale = 10u128.pow(u32::from(pair.price_scale));
    size(out, (u128::from(pair.volume) * trade.price as u128 / scale) as u64);
    let change = (trade.price - pair.open) * 10_000 / pair.open.max(1);
    put!(out, "\",\"price24hPcnt\":\"", if change < 0 { "-" } else { "" });
    trimmed(out, change.unsigned_abs(), 4);
    put!(out, "\",\"usdIndexPrice\":\"\"}}");
    (pair.sequence, pair.sequence)
}
