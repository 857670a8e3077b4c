//! The sockets.
//!
//! ```text
//! {"arg":{"channel":"books","instId":"NEAR-USDT"},"action":"update","data":[{"asks":[],"bids":[["1.781","14694.07","0","31"]],
//!  "ts":"1765201257205","checksum":0,"seqId":9690930617,"prevSeqId":9690930615}]}
//! ```

use flate2::Crc;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::private::{ACCOUNT, ORDERS, write_account, write_order};
use super::{Okx, Session};
use crate::dice::Dice;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, number, put, trimmed};
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::pair::{BOOK_BEAT, Change, Level, Pair, SIZE_SCALE, TICKER_BEAT, TRADE_BEAT};
use crate::ws::{BOOK, CANDLES, TICKER, TRADES};

/// Levels of `books`.
const DEPTH: usize = 400;
const BOOKS: u32 = 0;
const BOOKS5: u32 = 5;
const BBO: u32 = 1;
/// One message a match, on the business socket.
const ALL: u32 = 1;

/// Bytes of a request's arguments.
const ARGS_MAX: usize = 64 << 10;
const REQUESTS_PER_HOUR: i64 = 480;

#[derive(Deserialize)]
pub(super) struct Command<'a> {
    pub(super) op: &'a str,
    #[serde(borrow, default)]
    pub(super) args: Vec<&'a RawValue>,
    #[serde(default)]
    pub(super) id: Option<String>,
}

#[derive(Deserialize)]
struct Arg {
    channel: String,
    #[serde(rename = "instId", default)]
    inst_id: String,
}

impl Wire for Okx {
    fn manners(&self) -> Manners {
        Manners {
            idle_us: Some(30 * SECOND),
            heartbeat_us: Some(60 * SECOND),
            streams_max: usize::MAX,
            has_checksum: self.rules.checksum,
            has_restart: true,
            has_notice: true,
            ..Manners::default()
        }
    }

    fn names(&self, pair: &Pair) -> Vec<String> {
        vec![format!("{}-{}", pair.base, pair.quote)]
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path.strip_prefix("ws/").unwrap_or(path), "v5/public" | "v5/business" | "v5/private")
    }

    fn greet(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, path: &str, _query: Query<'_>) {
        let id = format!("{:08x}", Dice::at(&[market.seed, conn, 0xc0]).next() >> 32);
        let left = (REQUESTS_PER_HOUR * 1_000, hall.now_us);
        let (business, private) = (path.ends_with("business"), path.ends_with("private"));
        self.sessions.insert(conn, Session { id, business, private, logged_in: false, left });
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        if text == "ping" {
            return hall.tell_alive(conn, b"pong");
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        let Ok(command) = serde_json::from_str::<Command<'_>>(text) else {
            return hall.tell(conn, &problem("60012", &format!("Illegal request: {text}"), session, None));
        };
        let id = command.id.as_deref();
        if session.private {
            return self.hear_private(market, hall, conn, &command);
        }
        let subscribes = match command.op {
            "subscribe" => true,
            "unsubscribe" => false,
            _ => return hall.tell(conn, &problem("60012", &format!("Illegal request: {text}"), session, id)),
        };
        if command.args.is_empty() || command.args.iter().map(|arg| arg.get().len()).sum::<usize>() > ARGS_MAX
        {
            return hall.tell(conn, &problem("60013", "Invalid args", session, id));
        }
        if !self.may_ask(conn, hall.now_us) {
            let session = &self.sessions[&conn];
            return hall.tell(conn, &problem("60014", "Requests too frequent", session, id));
        }
        for arg in &command.args {
            self.on_list(market, hall, conn, subscribes, arg.get(), id);
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        match (feed.key.channel, feed.key.variant) {
            (BOOK, BOOKS) => {
                let mut view = Vec::new();
                pair.view(DEPTH, true, &mut view);
                self.write_books(pair, Some(&view), pair.update_before as i64, spoil, out);
                Some((pair.update.1, pair.update.1))
            }
            (BOOK, depth) => {
                write_top(pair, depth, out);
                Some((pair.update.1, pair.update.1))
            }
            (TRADES, all) => Some(write_trade(pair, all == ALL, out)),
            (CANDLES, _) => Some(write_candle(pair, out)),
            (ORDERS, _) => Some(write_order(pair, out)),
            (ACCOUNT, _) => Some(write_account(pair, feed.count, out)),
            _ => Some(write_ticker(pair, out)),
        }
    }

    fn beat_of(&self, key: &Key) -> u8 {
        match key.channel {
            BOOK => BOOK_BEAT,
            TRADES | ORDERS => TRADE_BEAT,
            _ => TICKER_BEAT,
        }
    }

    /// Where a book has not moved for a minute, an update that changes nothing.
    fn heartbeat(&mut self, market: &mut Market, hall: &mut Hall, conn: u64) {
        let feeds = hall.conns.get(&conn).map(|conn| conn.feeds.clone()).unwrap_or_default();
        for feed in feeds {
            let Key { slot, channel, variant } = hall.feeds[feed as usize].key;
            let pair = &market.pairs[slot as usize];
            if (channel, variant) == (BOOK, BOOKS) && pair.book_us + 60 * SECOND <= hall.now_us {
                let mut out = Vec::new();
                self.write_books(pair, Some(&[]), pair.update.1 as i64, false, &mut out);
                hall.publish_to(conn, feed, &out, pair.update.1, pair.update.1);
            }
        }
    }

    fn notice(&mut self, hall: &mut Hall, conn: u64) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let mut json = Json::default();
        json.open('{').text("event", "notice").text("code", "64008");
        json.text("msg", "The connection will soon be closed for a service upgrade. Please reconnect.");
        hall.tell(conn, json.text("connId", &session.id).close('}').done().as_bytes());
    }

    /// Maintenance: one update whose number is below the last, and on from there.
    fn restart(&mut self, market: &mut Market, hall: &mut Hall, slot: u32) {
        let pair = &mut market.pairs[slot as usize];
        let (old, new) = (pair.update.1, 1_000 + pair.update.1 % 1_000);
        pair.update = (new, new);
        pair.update_before = old;
        let mut out = Vec::new();
        self.write_books(pair, Some(&[]), old as i64, false, &mut out);
        if let Some(feed) = hall.known_feed(Key { slot, channel: BOOK, variant: BOOKS }) {
            hall.publish(feed, &out, new, new);
        }
    }

    fn forget(&mut self, conn: u64) {
        self.sessions.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        super::rest::answer(market, now_us, path, ask)
    }
}

impl Okx {
    /// 480 an hour, refilled evenly.
    fn may_ask(&mut self, conn: u64, now_us: i64) -> bool {
        let Some(session) = self.sessions.get_mut(&conn) else { return false };
        let (left, at_us) = session.left;
        let refilled = (now_us - at_us) * REQUESTS_PER_HOUR / (3_600 * SECOND / 1_000);
        let left = (left + refilled).min(REQUESTS_PER_HOUR * 1_000);
        session.left = (left - if left >= 1_000 { 1_000 } else { 0 }, now_us);
        left >= 1_000
    }

    fn on_list(
        &mut self,
        market: &mut Market,
        hall: &mut Hall,
        conn: u64,
        subscribes: bool,
        text: &str,
        id: Option<&str>,
    ) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let Ok(arg) = serde_json::from_str::<Arg>(text) else {
            return hall.tell(conn, &problem("60013", "Invalid args", session, id));
        };
        let known = match (arg.channel.as_str(), session.business) {
            ("books", false) => Some((BOOK, BOOKS)),
            ("books5", false) => Some((BOOK, BOOKS5)),
            ("bbo-tbt", false) => Some((BOOK, BBO)),
            ("trades", false) => Some((TRADES, 0)),
            ("tickers", false) => Some((TICKER, 0)),
            ("trades-all", true) => Some((TRADES, ALL)),
            ("candle1m", true) => Some((CANDLES, 1)),
            _ => None,
        };
        let slot = market.find(&arg.inst_id).filter(|_| !arg.inst_id.contains('/'));
        let Some(((channel, variant), slot)) = known.zip(slot) else {
            let msg = format!(
                "Wrong URL or channel:{},instId:{} doesn't exist. Please use the correct URL, channel and parameters \
                 referring to API document.",
                arg.channel, arg.inst_id
            );
            return hall.tell(conn, &problem("60018", &msg, session, id));
        };
        let key = Key { slot, channel, variant };
        let acknowledge = |event: &str| {
            let mut json = Json::default();
            json.open('{').text("event", event).key("arg").open('{').text("channel", &arg.channel);
            json.text("instId", &arg.inst_id).close('}').text("connId", &session.id);
            if let Some(id) = id {
                json.text("id", id);
            }
            json.close('}').done().into_bytes()
        };
        if !subscribes {
            if let Some(feed) = hall.known_feed(key) {
                hall.leave(conn, feed);
            }
            return hall.tell(conn, &acknowledge("unsubscribe"));
        }
        let (feed, admit) = market.subscribe(hall, conn, key);
        if admit == Admit::Refuse {
            return hall.tell(conn, &problem("60029", "Subscription refused", session, id));
        }
        hall.tell(conn, &acknowledge("subscribe"));
        let pair = &market.pairs[slot as usize];
        let mut out = Vec::new();
        let number = match (channel, variant) {
            (BOOK, BOOKS) => {
                self.write_books(pair, None, -1, false, &mut out);
                pair.update.1
            }
            (BOOK, depth) => {
                write_top(pair, depth, &mut out);
                pair.update.1
            }
            (CANDLES, _) => write_candle(pair, &mut out).1,
            (TICKER, _) => write_ticker(pair, &mut out).1,
            _ => return, // no trades until there are any
        };
        hall.publish_to(conn, feed, &out, number, number);
    }

    /// A snapshot without `changes`, an update with them.
    fn write_books(
        &self,
        pair: &Pair,
        changes: Option<&[Change]>,
        prev: i64,
        spoil: bool,
        out: &mut Vec<u8>,
    ) {
        put!(
            out,
            "{\"arg\":{\"channel\":\"books\",\"instId\":\"",
            pair.base,
            "-",
            pair.quote,
            "\"},\"action\":\""
        );
        put!(out, if changes.is_some() { "update" } else { "snapshot" }, "\",\"data\":[{\"asks\":[");
        for bid in [false, true] {
            match changes {
                Some(changes) => {
                    let own = changes.iter().filter(|change| change.bid == bid);
                    levels(out, pair, own.map(|change| Level { price: change.price, size: change.size }));
                }
                None => levels(out, pair, pair.side(bid).take(DEPTH).copied()),
            }
            put!(out, if bid { "],\"ts\":\"" } else { "],\"bids\":[" });
        }
        number(out, pair.book_us / 1_000);
        put!(out, "\",\"checksum\":");
        let sum = if self.rules.checksum { checksum(pair) ^ i32::from(spoil) } else { 0 };
        number(out, sum);
        put!(out, ",\"seqId\":");
        number(out, pair.update.1);
        put!(out, ",\"prevSeqId\":");
        number(out, prev);
        put!(out, "}]}");
    }
}

pub(super) fn problem(code: &str, msg: &str, session: &Session, id: Option<&str>) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{');
    if let Some(id) = id {
        json.text("id", id);
    }
    json.text("event", "error").text("msg", msg).text("code", code).text("connId", &session.id);
    json.close('}').done().into_bytes()
}

// ---- payloads ----

pub(super) fn price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    trimmed(out, ticks as u64, pair.price_scale);
}

pub(super) fn size(out: &mut Vec<u8>, size: u64) {
    trimmed(out, size, SIZE_SCALE);
}

pub(super) fn levels(out: &mut Vec<u8>, pair: &Pair, levels: impl Iterator<Item = Level>) {
    for (at, level) in levels.enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        price(out, pair, level.price);
        put!(out, "\",\"");
        size(out, level.size);
        put!(out, "\",\"0\",\"");
        number(out, if level.size == 0 { 0 } else { 1 + level.size % 9 });
        put!(out, "\"]");
    }
}

/// CRC-32 over `bid:size:ask:size` of 25 levels, in turn while both sides have some; signed.
fn checksum(pair: &Pair) -> i32 {
    let mut text = Vec::with_capacity(2_048);
    let (mut bids, mut asks) = (pair.side(true).take(25), pair.side(false).take(25));
    loop {
        let (bid, ask) = (bids.next(), asks.next());
        if bid.is_none() && ask.is_none() {
            break;
        }
        for level in [bid, ask].into_iter().flatten() {
            price(&mut text, pair, level.price);
            text.push(b':');
            size(&mut text, level.size);
            text.push(b':');
        }
    }
    text.pop();
    let mut crc = Crc::new();
    crc.update(&text);
    crc.sum() as i32
}

/// `books5` and `bbo-tbt`: the best levels, whole, without an action.
fn write_top(pair: &Pair, depth: u32, out: &mut Vec<u8>) {
    let channel = if depth == BBO { "bbo-tbt" } else { "books5" };
    put!(
        out,
        "{\"arg\":{\"channel\":\"",
        channel,
        "\",\"instId\":\"",
        pair.base,
        "-",
        pair.quote,
        "\"},\"data\":[{\"asks\":["
    );
    levels(out, pair, pair.side(false).take(depth as usize).copied());
    put!(out, "],\"bids\":[");
    levels(out, pair, pair.side(true).take(depth as usize).copied());
    put!(out, "]");
    if depth != BBO {
        put!(out, ",\"instId\":\"", pair.base, "-", pair.quote, "\"");
    }
    put!(out, ",\"ts\":\"");
    number(out, pair.book_us / 1_000);
    put!(out, "\",\"seqId\":");
    number(out, pair.update.1);
    put!(out, "}]}");
}

fn write_trade(pair: &Pair, all: bool, out: &mut Vec<u8>) -> (u64, u64) {
    let trade = pair.last_trade();
    let channel = if all { "trades-all" } else { "trades" };
    put!(
        out,
        "{\"arg\":{\"channel\":\"",
        channel,
        "\",\"instId\":\"",
        pair.base,
        "-",
        pair.quote,
        "\"},\"data\":["
    );
    put!(out, "{\"instId\":\"", pair.base, "-", pair.quote, "\",\"tradeId\":\"");
    number(out, trade.id);
    put!(out, "\",\"px\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"sz\":\"");
    size(out, trade.size);
    put!(out, "\",\"side\":\"", if trade.buy { "buy" } else { "sell" }, "\",\"ts\":\"");
    number(out, trade.at_us / 1_000);
    put!(out, "\"");
    if !all {
        put!(out, ",\"count\":\"1\"");
    }
    put!(out, ",\"source\":\"0\"");
    if !all {
        put!(out, ",\"seqId\":");
        number(out, pair.update.1);
    }
    put!(out, "}]}");
    (trade.id, trade.id)
}

/// `["1757076060000","112600.1",…,"0"]`
fn candle_row(pair: &Pair, out: &mut Vec<u8>) -> u64 {
    let candle = pair.candle();
    let minute = (candle.open_us / 1_000) as u64;
    put!(out, "[\"");
    number(out, minute);
    for ticks in [candle.open, candle.high, candle.low, candle.close] {
        put!(out, "\",\"");
        price(out, pair, ticks);
    }
    let quote = u128::from(candle.volume) * candle.close as u128 / 10u128.pow(u32::from(pair.price_scale));
    for amount in [candle.volume, quote as u64, quote as u64] {
        put!(out, "\",\"");
        size(out, amount);
    }
    put!(out, "\",\"", if candle.closed { "1" } else { "0" }, "\"]");
    minute
}

fn write_candle(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    put!(
        out,
        "{\"arg\":{\"channel\":\"candle1m\",\"instId\":\"",
        pair.base,
        "-",
        pair.quote,
        "\"},\"data\":["
    );
    let minute = candle_row(pair, out);
    put!(out, "]}");
    (minute, minute)
}

fn write_ticker(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    put!(
        out,
        "{\"arg\":{\"channel\":\"tickers\",\"instId\":\"",
        pair.base,
        "-",
        pair.quote,
        "\"},\"data\":["
    );
    ticker_row(pair, out);
    put!(out, "]}");
    let at = (pair.ticker_us / 1_000) as u64;
    (at, at)
}

pub(super) fn ticker_row(pair: &Pair, out: &mut Vec<u8>) {
    let (trade, (bid, ask)) = (pair.last_trade(), pair.best());
    put!(out, "{\"instType\":\"SPOT\",\"instId\":\"", pair.base, "-", pair.quote, "\"");
    let money = |out: &mut Vec<u8>, key: &str, ticks: i64| {
        put!(out, ",\"", key, "\":\"");
        price(out, pair, ticks);
        put!(out, "\"");
    };
    let amount = |out: &mut Vec<u8>, key: &str, units: u64| {
        put!(out, ",\"", key, "\":\"");
        size(out, units);
        put!(out, "\"");
    };
    money(out, "last", trade.price);
    amount(out, "lastSz", trade.size);
    money(out, "askPx", ask.price);
    amount(out, "askSz", ask.size);
    money(out, "bidPx", bid.price);
    amount(out, "bidSz", bid.size);
    money(out, "open24h", pair.open);
    money(out, "high24h", pair.high);
    money(out, "low24h", pair.low);
    money(out, "sodUtc0", pair.open);
    money(out, "sodUtc8", pair.open);
    amount(out, "volCcy24h", pair.volume);
    amount(out, "vol24h", pair.volume);
    put!(out, ",\"ts\":\"");
    number(out, pair.ticker_us.max(trade.at_us) / 1_000);
    put!(out, "\"}");
}
