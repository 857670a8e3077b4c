//! The mock's sockets and answers.
//!
//! ```text
//! → {"op":"subscribe","id":"1","args":["trades:BTC/USDT","book_delta:BTC/USDT"]}
//! ← {"op":"subscribe","id":"1","ok":true}
//! ← {"stream":"book_delta:BTC/USDT","type":"snapshot","seq":17,"time":1790000000123,"data":{"bids":[["64000.01","0.5"]],"asks":[…]}}
//! ← {"stream":"book_delta:BTC/USDT","type":"delta","seq":18,"time":1790000000321,"data":{"bids":[["64000.01","0"]],"asks":[]}}
//! ← {"stream":"trades:BTC/USDT","type":"trade","seq":105,"time":1790000000400,"data":{"price":"64000.02","size":"0.1","side":"buy"}}
//! → {"op":"login","key":"mock-key","time":1790000000000,"sign":"…"}   HMAC-SHA256 of `1790000000000GET/mock/ws/private`
//! ```
//! `seq` goes up by one with every message of a stream.

use serde::Deserialize;

use super::{KEY, Mock, SECRET};
use crate::dice::Dice;
use crate::sign;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, number, put, trimmed};
use crate::ws::fault::StreamFaultKind;
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::line::Item;
use crate::ws::pair::{BOOK_BEAT, Level, Pair, SIZE_SCALE, TICKER_BEAT};
use crate::ws::{BOOK, TICKER, TRADES};

/// Trades as they are told to one who is logged in.
const FILLS: u32 = 1;
/// How far off a login's time may be.
const LOGIN_WITHIN_MS: i64 = 30_000;

#[derive(Deserialize)]
struct Command {
    op: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    key: String,
    #[serde(default)]
    time: i64,
    #[serde(default)]
    sign: String,
}

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "time") => "rest/time",
        ("GET", "snapshot") => "rest/snapshot",
        ("GET", "trades") => "rest/trades",
        ("GET", path) if path.starts_with("ws/") => "ws",
        _ => "rest/other",
    }
}

impl Wire for Mock {
    fn manners(&self) -> Manners {
        Manners {
            ping_us: Some(10 * SECOND),
            pong_within_us: Some(30 * SECOND),
            heartbeat_us: (self.rules.silence_ms > 0).then_some(SECOND),
            streams_max: usize::MAX,
            ..Manners::default()
        }
    }

    fn names(&self, _pair: &Pair) -> Vec<String> {
        Vec::new()
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path, "ws/public" | "ws/private")
    }

    fn greet(&mut self, _: &mut Market, hall: &mut Hall, conn: u64, path: &str, _: Query<'_>) {
        if path == "ws/private" {
            self.private.insert(conn);
        }
        let first_ms = self.rules.silence_first_ms.unwrap_or(self.rules.silence_every_ms);
        self.silent_at_us.get_or_insert(hall.now_us + first_ms as i64 * 1_000);
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        let Ok(command) = serde_json::from_str::<Command>(text) else {
            return hall.tell(conn, &respond("error", None, Some("that is not a command")));
        };
        let id = command.id.as_deref();
        match command.op.as_str() {
            "ping" => hall.tell_alive(conn, br#"{"op":"pong"}"#),
            "login" => self.login(hall, conn, &command),
            _ if self.private.contains(&conn) && !self.logged_in.contains(&conn) => {
                hall.tell(conn, &respond(&command.op, id, Some("log in first")));
            }
            "subscribe" => self.subscribe(market, hall, conn, &command),
            "unsubscribe" => {
                for feed in command
                    .args
                    .iter()
                    .filter_map(|name| hall.known_feed(self.key(market, conn, name)?))
                    .collect::<Vec<_>>()
                {
                    hall.leave(conn, feed);
                }
                hall.tell(conn, &respond("unsubscribe", id, None));
            }
            op => hall.tell(conn, &respond(op, id, Some("there is no such op"))),
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, _spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        let seq = match (feed.key.channel, feed.key.variant) {
            (BOOK, _) => {
                head(out, "book_delta", pair, "delta", pair.done(BOOK_BEAT), pair.book_us);
                let side = |bid: bool| {
                    let own = pair.changes.iter().filter(move |change| change.bid == bid);
                    own.map(|change| Level { price: change.price, size: change.size })
                };
                put!(out, "{\"bids\":[");
                levels(out, pair, side(true));
                put!(out, "],\"asks\":[");
                levels(out, pair, side(false));
                put!(out, "]}}");
                pair.done(BOOK_BEAT)
            }
            (TRADES, form) => {
                let trade = pair.last_trade();
                let (name, kind) = if form == FILLS { ("fills", "fill") } else { ("trades", "trade") };
                head(out, name, pair, kind, trade.id, trade.at_us);
                put!(out, "{\"price\":\"");
                trimmed(out, trade.price as u64, pair.price_scale);
                put!(out, "\",\"size\":\"");
                trimmed(out, trade.size, SIZE_SCALE);
                put!(out, "\",\"side\":\"", if trade.buy { "buy" } else { "sell" }, "\"}}");
                trade.id
            }
            _ => {
                let (seq, (bid, ask)) = (pair.done(TICKER_BEAT), pair.best());
                head(out, "ticker", pair, "ticker", seq, pair.ticker_us);
                put!(out, "{\"bid\":\"");
                trimmed(out, bid.price as u64, pair.price_scale);
                put!(out, "\",\"ask\":\"");
                trimmed(out, ask.price as u64, pair.price_scale);
                put!(out, "\",\"last\":\"");
                trimmed(out, pair.last_trade().price as u64, pair.price_scale);
                put!(out, "\"}}");
                seq
            }
        };
        Some((seq, seq))
    }

    /// Where the mock goes wrong by itself.
    fn before(&mut self, hall: &mut Hall, feed: u32) {
        let count = hall.feeds[feed as usize].count + 1;
        if self.rules.gap_every > 0 && count.is_multiple_of(self.rules.gap_every) {
            hall.strike_feed(StreamFaultKind::Gap, feed);
        }
        let dice = || Dice::at(&[self.seed, u64::from(feed), count, 0xb1]);
        if self.rules.binary_rate > 0.0 && dice().hit(self.rules.binary_rate) {
            hall.strike_feed(StreamFaultKind::Binary, feed);
        }
        if self.rules.disconnect_every > 0 {
            for conn in hall.subscribers(feed).collect::<Vec<_>>() {
                let said = self.said.entry(conn).or_default();
                *said += 1;
                if *said > self.rules.disconnect_every {
                    hall.strike_connections(StreamFaultKind::Cut, &[conn], None);
                }
            }
        }
    }

    /// Every second, whoever's connection it is: is it time to be silent?
    fn heartbeat(&mut self, _market: &mut Market, hall: &mut Hall, _conn: u64) {
        let Some(at_us) = self.silent_at_us.filter(|at_us| *at_us <= hall.now_us) else { return };
        self.silent_at_us = Some(at_us + self.rules.silence_every_ms as i64 * 1_000);
        let all: Vec<u64> = hall.conns.keys().copied().collect();
        hall.strike_connections(StreamFaultKind::Freeze, &all, Some(self.rules.silence_ms as i64 * 1_000));
    }

    fn forget(&mut self, conn: u64) {
        self.private.remove(&conn);
        self.logged_in.remove(&conn);
        self.said.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        let endpoint = endpoint(ask.method, path);
        if endpoint == "rest/time" {
            return Answer::json(200, format!(r#"{{"time":{}}}"#, now_us / 1_000));
        }
        let slot = ask.query.get("symbol").and_then(|symbol| market.find(&symbol));
        let (Some(slot), "rest/snapshot" | "rest/trades") = (slot, endpoint) else {
            return Answer::json(404, r#"{"error":"there is no such symbol or path"}"#);
        };
        let pair = market.look(slot, now_us);
        let mut out = Vec::new();
        put!(out, "{\"symbol\":\"", pair.unified, "\",\"seq\":");
        if endpoint == "rest/trades" {
            let trade = pair.last_trade();
            number(&mut out, trade.id);
            put!(out, ",\"time\":");
            number(&mut out, trade.at_us / 1_000);
            put!(out, "}");
            return Answer::json(200, out);
        }
        number(&mut out, pair.done(BOOK_BEAT));
        put!(out, ",\"time\":");
        number(&mut out, pair.book_us / 1_000);
        put!(out, ",\"bids\":[");
        levels(&mut out, pair, pair.side(true).copied());
        put!(out, "],\"asks\":[");
        levels(&mut out, pair, pair.side(false).copied());
        put!(out, "]}");
        Answer::json(200, out).books(1)
    }
}

impl Mock {
    fn login(&mut self, hall: &mut Hall, conn: u64, command: &Command) {
        let id = command.id.as_deref();
        let signed = format!("{}GET/mock/ws/private", command.time);
        let wrong = match () {
            () if !self.private.contains(&conn) => Some("this socket needs no login"),
            () if command.key != KEY => Some("there is no such key"),
            () if (command.time - hall.now_ms()).abs() > LOGIN_WITHIN_MS => Some("the time is off"),
            () if command.sign != sign::hmac_hex(SECRET.as_bytes(), signed.as_bytes()) => {
                Some("the signature is wrong")
            }
            () => None,
        };
        hall.tell(conn, &respond("login", id, wrong));
        match wrong {
            None => drop(self.logged_in.insert(conn)),
            Some(_) => hall.hang_up(conn, Item::Close(1008, "login failed")),
        }
    }

    fn subscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, command: &Command) {
        let id = command.id.as_deref();
        let mut keys = Vec::new();
        for name in &command.args {
            let Some(key) = self.key(market, conn, name) else {
                return hall
                    .tell(conn, &respond("subscribe", id, Some(&format!("there is no stream {name} here"))));
            };
            keys.push(key);
        }
        let mut joined = Vec::new();
        for key in keys {
            let (feed, admit) = market.subscribe(hall, conn, key);
            if admit == Admit::Refuse {
                return hall.tell(conn, &respond("subscribe", id, Some("refused")));
            }
            joined.push((key, feed));
        }
        hall.tell(conn, &respond("subscribe", id, None));
        for (key, feed) in joined.into_iter().filter(|(key, _)| key.channel == BOOK) {
            let pair = &market.pairs[key.slot as usize];
            let (mut out, seq) = (Vec::new(), pair.done(BOOK_BEAT));
            head(&mut out, "book_delta", pair, "snapshot", seq, pair.book_us);
            put!(out, "{\"bids\":[");
            levels(&mut out, pair, pair.side(true).copied());
            put!(out, "],\"asks\":[");
            levels(&mut out, pair, pair.side(false).copied());
            put!(out, "]}}");
            hall.publish_to(conn, feed, &out, seq, seq);
        }
    }

    /// What a stream's name stands for, on this kind of connection.
    fn key(&self, market: &Market, conn: u64, name: &str) -> Option<Key> {
        let (stream, symbol) = name.split_once(':')?;
        let slot = market.find(symbol)?;
        let (channel, variant) = match (stream, self.private.contains(&conn)) {
            ("trades", false) => (TRADES, 0),
            ("book_delta", false) => (BOOK, 0),
            ("ticker", false) => (TICKER, 0),
            ("fills", true) => (TRADES, FILLS),
            _ => return None,
        };
        Some(Key { slot, channel, variant })
    }
}

fn respond(op: &str, id: Option<&str>, wrong: Option<&str>) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{').text("op", op);
    if let Some(id) = id {
        json.text("id", id);
    }
    json.raw("ok", wrong.is_none());
    if let Some(wrong) = wrong {
        json.text("error", wrong);
    }
    json.close('}').done().into_bytes()
}

fn head(out: &mut Vec<u8>, stream: &str, pair: &Pair, kind: &str, seq: u64, at_us: i64) {
    put!(out, "{\"stream\":\"", stream, ":", pair.unified, "\",\"type\":\"", kind, "\",\"seq\":");
    number(out, seq);
    put!(out, ",\"time\":");
    number(out, at_us / 1_000);
    put!(out, ",\"data\":");
}

fn levels(out: &mut Vec<u8>, pair: &Pair, levels: impl Iterator<Item = Level>) {
    for (at, level) in levels.enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        trimmed(out, level.price as u64, pair.price_scale);
        put!(out, "\",\"");
        trimmed(out, level.size, SIZE_SCALE);
        put!(out, "\"]");
    }
}
