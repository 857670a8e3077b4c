//! The sockets.
//!
//! ```text
//! {"e":"depthUpdate","E":1723161255208,"s":"BTCUSDT","U":50093239189,"u":50093239202,"b":[["61737.63000000","0.00000000"]],"a":[]}
//! {"stream":"btcusdt@trade","data":{"e":"trade","E":1723161255343,"s":"BTCUSDT","t":3735683259,"p":"61837.63000000",…}}
//! ```

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Binance;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, fixed, number, put, size8};
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::pair::{BOOK_BEAT, Level, Pair, TICKER_BEAT, TRADE_BEAT};
use crate::ws::{BOOK, CANDLES, TICKER, TRADES};

/// The payload is wrapped with the stream's name.
const COMBINED: u32 = 1 << 16;

const TRADE: u32 = 0;
const AGG_TRADE: u32 = 1;
const BOOK_TICKER: u32 = 2;
const TICKER_24H: u32 = 3;
const MINI_TICKER: u32 = 4;
const KLINE_1M: u32 = 7;
const DEPTH: u32 = 5;
const DEPTH_100MS: u32 = 6;
/// Of so many levels: `DEPTH_PART + 20`.
const DEPTH_PART: u32 = 100;
const DEPTH_PART_100MS: u32 = 200;

#[derive(Deserialize)]
struct Command<'a> {
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

impl Wire for Binance {
    fn manners(&self) -> Manners {
        Manners {
            ping_us: Some(20 * SECOND),
            pong_within_us: Some(60 * SECOND),
            life_us: Some(24 * 3_600 * SECOND),
            messages: Some((5, SECOND)),
            streams_max: 1_024,
            has_notice: true,
            ..Manners::default()
        }
    }

    fn names(&self, pair: &Pair) -> Vec<String> {
        vec![format!("{}{}", pair.base, pair.quote)]
    }

    fn has_socket(&self, path: &str) -> bool {
        path == "ws" || path == "stream" || path.starts_with("ws/")
    }

    fn greet(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, path: &str, query: Query<'_>) {
        let wrapped = path == "stream";
        if wrapped {
            self.combined.insert(conn);
        }
        let named = match wrapped {
            true => query.get("streams").map(std::borrow::Cow::into_owned).unwrap_or_default(),
            false => path.strip_prefix("ws/").unwrap_or_default().to_owned(),
        };
        for name in named.split('/').filter(|name| !name.is_empty()).take(hall.manners.streams_max) {
            self.subscribe(market, hall, conn, name);
        }
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        let Ok(command) = serde_json::from_str::<Command<'_>>(text) else {
            let reason = "Invalid JSON: expected value at line 1 column 1";
            return hall.tell(conn, error(3, reason, None).as_bytes());
        };
        let id = command.id.map(RawValue::get);
        let params = command.params.map_or("[]", RawValue::get);
        match command.method {
            "SUBSCRIBE" | "UNSUBSCRIBE" => {
                let Ok(names) = serde_json::from_str::<Vec<String>>(params) else {
                    let reason = "Invalid request: params must be an array of strings";
                    return hall.tell(conn, error(2, reason, id).as_bytes());
                };
                if command.method == "UNSUBSCRIBE" {
                    for name in &names {
                        self.unsubscribe(market, hall, conn, name);
                    }
                    return hall.tell(conn, result("null", id).as_bytes());
                }
                let held = hall.conns.get(&conn).map_or(0, |conn| conn.feeds.len());
                if held + names.len() > hall.manners.streams_max {
                    let reason = "Invalid request: too many streams";
                    return hall.tell(conn, error(2, reason, id).as_bytes());
                }
                let refused = names.iter().any(|name| !self.subscribe(market, hall, conn, name));
                let answer = match refused {
                    true => error(2, "Invalid request: subscription refused", id),
                    false => result("null", id),
                };
                hall.tell(conn, answer.as_bytes());
            }
            "LIST_SUBSCRIPTIONS" => {
                let mut json = Json::default();
                json.open('[');
                for feed in hall.conns.get(&conn).map(|conn| conn.feeds.clone()).unwrap_or_default() {
                    let key = &hall.feeds[feed as usize].key;
                    json.string(&stream_name(&market.pairs[key.slot as usize], key.variant));
                }
                hall.tell(conn, result(&json.close(']').done(), id).as_bytes());
            }
            "SET_PROPERTY" => {
                match serde_json::from_str::<(String, bool)>(params) {
                    Ok((_, true)) => drop(self.combined.insert(conn)),
                    Ok((_, false)) => drop(self.combined.remove(&conn)),
                    Err(_) => {
                        let reason = "Invalid request: property must be a string and its value a boolean";
                        return hall.tell(conn, error(2, reason, id).as_bytes());
                    }
                }
                hall.tell(conn, result("null", id).as_bytes());
            }
            "GET_PROPERTY" => {
                let value = if self.combined.contains(&conn) { "true" } else { "false" };
                hall.tell(conn, result(value, id).as_bytes());
            }
            _ => {
                let reason = "Invalid request: unknown variant, expected one of `SUBSCRIBE`, `UNSUBSCRIBE`, \
                              `LIST_SUBSCRIPTIONS`, `SET_PROPERTY`, `GET_PROPERTY`";
                hall.tell(conn, error(2, reason, id).as_bytes());
            }
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, _spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        let (variant, wrapped) = (feed.key.variant & !COMBINED, feed.key.variant & COMBINED != 0);
        if wrapped {
            put!(out, "{\"stream\":\"", stream_name(pair, variant), "\",\"data\":");
        }
        let numbers = match variant {
            TRADE | AGG_TRADE => write_trade(pair, variant, out),
            BOOK_TICKER => write_book_ticker(pair, out),
            TICKER_24H => write_ticker(pair, out),
            MINI_TICKER => write_mini_ticker(pair, out),
            KLINE_1M => write_kline(pair, out),
            DEPTH | DEPTH_100MS => write_depth(pair, out),
            part => write_part(pair, (part % 100) as usize, out),
        };
        if wrapped {
            put!(out, "}");
        }
        Some(numbers)
    }

    fn beat_of(&self, key: &Key) -> u8 {
        match key.variant & !COMBINED {
            TRADE | AGG_TRADE => TRADE_BEAT,
            TICKER_24H | MINI_TICKER | KLINE_1M => TICKER_BEAT,
            _ => BOOK_BEAT,
        }
    }

    fn notice(&mut self, hall: &mut Hall, conn: u64) {
        let event = format!(r#"{{"e":"serverShutdown","E":{}}}"#, hall.now_ms());
        let text = match self.combined.contains(&conn) {
            true => format!(r#"{{"stream":"!serverShutdown","data":{event}}}"#),
            false => event,
        };
        hall.tell(conn, text.as_bytes());
    }

    fn forget(&mut self, conn: u64) {
        self.combined.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        self.rest(market, now_us, path, ask)
    }
}

impl Binance {
    /// False: a fault refused it. A name that means nothing is taken and stays silent.
    fn subscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, name: &str) -> bool {
        let Some(key) = self.key(market, conn, name) else { return true };
        market.subscribe(hall, conn, key).1 != Admit::Refuse
    }

    fn unsubscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, name: &str) {
        if let Some(key) = self.key(market, conn, name) {
            for variant in [key.variant & !COMBINED, key.variant | COMBINED] {
                if let Some(feed) = hall.known_feed(Key { variant, ..key }) {
                    hall.leave(conn, feed);
                }
            }
        }
    }

    fn key(&self, market: &Market, conn: u64, name: &str) -> Option<Key> {
        let (symbol, kind) = name.split_once('@')?;
        if symbol.chars().any(char::is_uppercase) {
            return None; // streams are spelled in lower case
        }
        let slot = market.find(&symbol.to_uppercase())?;
        let part = |text: &str| matches!(text, "5" | "10" | "20").then(|| text.parse::<u32>().ok()).flatten();
        let (channel, variant) = match kind {
            "trade" => (TRADES, TRADE),
            "aggTrade" => (TRADES, AGG_TRADE),
            "bookTicker" => (TICKER, BOOK_TICKER),
            "ticker" => (TICKER, TICKER_24H),
            "miniTicker" => (TICKER, MINI_TICKER),
            "kline_1m" => (CANDLES, KLINE_1M),
            "depth" => (BOOK, DEPTH),
            "depth@100ms" => (BOOK, DEPTH_100MS),
            _ => {
                let rest = kind.strip_prefix("depth")?;
                match rest.strip_suffix("@100ms") {
                    Some(levels) => (BOOK, DEPTH_PART_100MS + part(levels)?),
                    None => (BOOK, DEPTH_PART + part(rest)?),
                }
            }
        };
        let wrapped = if self.combined.contains(&conn) { COMBINED } else { 0 };
        Some(Key { slot, channel, variant: variant | wrapped })
    }
}

fn stream_name(pair: &Pair, variant: u32) -> String {
    let symbol = format!("{}{}", pair.base, pair.quote).to_lowercase();
    match variant & !COMBINED {
        TRADE => symbol + "@trade",
        AGG_TRADE => symbol + "@aggTrade",
        BOOK_TICKER => symbol + "@bookTicker",
        TICKER_24H => symbol + "@ticker",
        MINI_TICKER => symbol + "@miniTicker",
        KLINE_1M => symbol + "@kline_1m",
        DEPTH => symbol + "@depth",
        DEPTH_100MS => symbol + "@depth@100ms",
        part if part >= DEPTH_PART_100MS => format!("{symbol}@depth{}@100ms", part % 100),
        part => format!("{symbol}@depth{}", part % 100),
    }
}

fn result(value: &str, id: Option<&str>) -> String {
    format!(r#"{{"result":{value},"id":{}}}"#, id.unwrap_or("null"))
}

fn error(code: u32, reason: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!(r#"{{"code":{code},"msg":"{reason}","id":{id}}}"#),
        None => format!(r#"{{"code":{code},"msg":"{reason}"}}"#),
    }
}

// ---- payloads ----

pub(super) fn price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    fixed(out, ticks as u64, pair.price_scale, 8);
}

pub(super) fn level(out: &mut Vec<u8>, pair: &Pair, Level { price: ticks, size }: Level) {
    put!(out, "[\"");
    price(out, pair, ticks);
    put!(out, "\",\"");
    size8(out, size);
    put!(out, "\"]");
}

fn levels(out: &mut Vec<u8>, pair: &Pair, levels: impl Iterator<Item = Level>) {
    out.push(b'[');
    let begin = out.len();
    for one in levels {
        if out.len() > begin {
            out.push(b',');
        }
        level(out, pair, one);
    }
    out.push(b']');
}

fn event(out: &mut Vec<u8>, name: &str, at_us: i64, pair: &Pair) {
    put!(out, "{\"e\":\"", name, "\",\"E\":");
    number(out, at_us / 1_000);
    put!(out, ",\"s\":\"", pair.base, pair.quote, "\"");
}

fn write_trade(pair: &Pair, variant: u32, out: &mut Vec<u8>) -> (u64, u64) {
    let trade = pair.last_trade();
    // The event leaves the venue a moment after the trade.
    event(out, if variant == TRADE { "trade" } else { "aggTrade" }, trade.at_us + 1_000, pair);
    put!(out, if variant == TRADE { ",\"t\":" } else { ",\"a\":" });
    number(out, trade.id);
    put!(out, ",\"p\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"q\":\"");
    size8(out, trade.size);
    put!(out, "\"");
    if variant == AGG_TRADE {
        put!(out, ",\"f\":");
        number(out, trade.id);
        put!(out, ",\"l\":");
        number(out, trade.id);
    }
    put!(out, ",\"T\":");
    number(out, trade.at_us / 1_000);
    put!(out, if trade.buy { ",\"m\":false,\"M\":true}" } else { ",\"m\":true,\"M\":true}" });
    (trade.id, trade.id)
}

fn write_depth(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    event(out, "depthUpdate", pair.book_us, pair);
    put!(out, ",\"U\":");
    number(out, pair.update.0);
    put!(out, ",\"u\":");
    number(out, pair.update.1);
    let side = |bid: bool| {
        let own = pair.changes.iter().filter(move |change| change.bid == bid);
        own.map(|change| Level { price: change.price, size: change.size })
    };
    put!(out, ",\"b\":");
    levels(out, pair, side(true));
    put!(out, ",\"a\":");
    levels(out, pair, side(false));
    put!(out, "}");
    pair.update
}

fn write_part(pair: &Pair, depth: usize, out: &mut Vec<u8>) -> (u64, u64) {
    write_book(pair, depth, out);
    (pair.update.1, pair.update.1)
}

/// `{"lastUpdateId":…,"bids":[…],"asks":[…]}`, as `/depth` and the partial streams have it.
pub(super) fn write_book(pair: &Pair, depth: usize, out: &mut Vec<u8>) {
    put!(out, "{\"lastUpdateId\":");
    number(out, pair.update.1);
    put!(out, ",\"bids\":");
    levels(out, pair, pair.side(true).take(depth).copied());
    put!(out, ",\"asks\":");
    levels(out, pair, pair.side(false).take(depth).copied());
    put!(out, "}");
}

fn write_book_ticker(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let (bid, ask) = pair.best();
    put!(out, "{\"u\":");
    number(out, pair.update.1);
    put!(out, ",\"s\":\"", pair.base, pair.quote, "\",\"b\":\"");
    price(out, pair, bid.price);
    put!(out, "\",\"B\":\"");
    size8(out, bid.size);
    put!(out, "\",\"a\":\"");
    price(out, pair, ask.price);
    put!(out, "\",\"A\":\"");
    size8(out, ask.size);
    put!(out, "\"}");
    (pair.update.1, pair.update.1)
}

/// `,"c":"61837.63000000"`
fn member(out: &mut Vec<u8>, key: &str, pair: &Pair, ticks: i64) {
    put!(out, ",\"", key, "\":\"");
    if ticks < 0 {
        out.push(b'-');
    }
    price(out, pair, ticks.abs());
    put!(out, "\"");
}

fn amount(out: &mut Vec<u8>, key: &str, size: u64) {
    put!(out, ",\"", key, "\":\"");
    size8(out, size);
    put!(out, "\"");
}

/// What was traded, in the quote: close enough for a figure of the day.
fn turnover(pair: &Pair) -> u64 {
    (u128::from(pair.volume) * pair.last_trade().price as u128 / 10u128.pow(u32::from(pair.price_scale)))
        as u64
}

fn write_mini_ticker(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let trade = pair.last_trade();
    event(out, "24hrMiniTicker", pair.book_us.max(trade.at_us), pair);
    for (key, ticks) in [("c", trade.price), ("o", pair.open), ("h", pair.high), ("l", pair.low)] {
        member(out, key, pair, ticks);
    }
    amount(out, "v", pair.volume);
    amount(out, "q", turnover(pair));
    put!(out, "}");
    (trade.id, trade.id)
}

fn write_kline(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let candle = pair.candle();
    let minute = (candle.open_us / 1_000) as u64;
    event(out, "kline", pair.ticker_us, pair);
    put!(out, ",\"k\":{\"t\":");
    number(out, minute);
    put!(out, ",\"T\":");
    number(out, minute + 59_999);
    put!(out, ",\"s\":\"", pair.base, pair.quote, "\",\"i\":\"1m\",\"f\":");
    let (first, last) = match candle.trades {
        0 => (-1, -1),
        n => (candle.first as i64, (candle.first + n - 1) as i64),
    };
    number(out, first);
    put!(out, ",\"L\":");
    number(out, last);
    for (key, ticks) in [("o", candle.open), ("c", candle.close), ("h", candle.high), ("l", candle.low)] {
        member(out, key, pair, ticks);
    }
    amount(out, "v", candle.volume);
    put!(out, ",\"n\":");
    number(out, candle.trades);
    put!(out, ",\"x\":", if candle.closed { "true" } else { "false" });
    let scale = 10u128.pow(u32::from(pair.price_scale));
    let quote = (u128::from(candle.volume) * candle.close as u128 / scale) as u64;
    amount(out, "q", quote);
    amount(out, "V", candle.volume / 2);
    amount(out, "Q", quote / 2);
    put!(out, ",\"B\":\"0\"}}");
    (minute, minute)
}

fn write_ticker(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let (trade, (bid, ask)) = (pair.last_trade(), pair.best());
    let now_us = pair.book_us.max(trade.at_us);
    event(out, "24hrTicker", now_us, pair);
    member(out, "p", pair, trade.price - pair.open);
    let percent = (trade.price - pair.open) * 100_000 / pair.open.max(1);
    put!(out, ",\"P\":\"", if percent < 0 { "-" } else { "" });
    fixed(out, percent.unsigned_abs(), 3, 3);
    put!(out, "\"");
    member(out, "w", pair, (trade.price + pair.open) / 2);
    member(out, "x", pair, pair.open);
    member(out, "c", pair, trade.price);
    amount(out, "Q", trade.size);
    member(out, "b", pair, bid.price);
    amount(out, "B", bid.size);
    member(out, "a", pair, ask.price);
    amount(out, "A", ask.size);
    for (key, ticks) in [("o", pair.open), ("h", pair.high), ("l", pair.low)] {
        member(out, key, pair, ticks);
    }
    amount(out, "v", pair.volume);
    amount(out, "q", turnover(pair));
    let first = trade.id.saturating_sub(100_000);
    for (key, value) in
        [("O", (now_us / 1_000 - 86_400_000) as u64), ("C", (now_us / 1_000) as u64), ("F", first)]
    {
        put!(out, ",\"", key, "\":");
        number(out, value);
    }
    put!(out, ",\"L\":");
    number(out, trade.id);
    put!(out, ",\"n\":");
    number(out, trade.id - first + 1);
    put!(out, "}");
    (trade.id, trade.id)
}
