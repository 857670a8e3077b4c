//! What the five exchanges share: pairs that move while somebody listens, REST answers about them, and the way from an
//! event to a frame. What a frame looks like is the exchange's own [`Wire`].

use std::collections::HashMap;
use std::sync::Arc;

use catchment_model::Clock;
use hyper::Method;

use super::config::{ExchangeConfig, SessionConfig, StreamsConfig};
use super::dialect::{Dialect, Manners};
use super::fault::StreamFaultKind;
use super::floor::Floor;
use super::hall::{Admit, Due, Feed, Hall, Key};
use super::history::History;
use super::pair::{BOOK_BEAT, Pair, SIZE_SCALE, TICKER_BEAT, TRADE_BEAT};
use super::{BOOK, TRADES};
use crate::dice::Dice;
use crate::text::Query;
use crate::venue::{Answer, Ask, Opened, Venue};

/// The markets of an exchange.
pub(crate) struct Market {
    pub(crate) pairs: Vec<Pair>,
    by_name: HashMap<String, u32>,
    pub(crate) seed: u64,
    /// Candles of the past.
    pub(crate) history: History,
    /// Where frames are written before they are sent.
    pub(crate) scratch: Vec<u8>,
    heard: Vec<u32>,
}

impl Market {
    /// The pair with this name of the venue's.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The pair as it is now: one that nobody listens to makes up for what it slept through.
    pub(crate) fn look(&mut self, slot: u32, now_us: i64) -> &mut Pair {
        let pair = &mut self.pairs[slot as usize];
        pair.catch_up(now_us);
        pair
    }

    /// Somebody listens to the pair from now on.
    pub(crate) fn wake(&mut self, hall: &mut Hall, slot: u32) {
        let pair = &mut self.pairs[slot as usize];
        pair.catch_up(hall.now_us);
        for kind in [BOOK_BEAT, TRADE_BEAT, TICKER_BEAT] {
            let armed = &mut pair.armed[usize::from(kind)];
            if !std::mem::replace(armed, true) {
                match pair.due(kind) {
                    Some(due_us) => hall.arm(due_us, Due::Beat { slot, kind }),
                    None => pair.armed[usize::from(kind)] = false,
                }
            }
        }
    }

    /// Puts a connection on a stream, if no fault is against it. The first number of the stream, and what came of it.
    pub(crate) fn subscribe(&mut self, hall: &mut Hall, conn: u64, key: Key) -> (u32, Admit) {
        let feed = hall.feed(key, &self.pairs[key.slot as usize].unified);
        let admit = hall.admit(conn, key.slot, key.channel);
        hall.admitted(admit, feed);
        if admit != Admit::Refuse {
            self.wake(hall, key.slot);
            hall.join(conn, feed, admit);
        }
        (feed, admit)
    }
}

/// How an exchange writes and reads.
pub(crate) trait Wire: Send + 'static {
    fn manners(&self) -> Manners;
    /// The venue's names for a pair.
    fn names(&self, pair: &Pair) -> Vec<String>;
    fn has_socket(&self, path: &str) -> bool;
    fn greet(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, path: &str, query: Query<'_>);
    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str);

    /// Writes what has just happened at the pair, for this stream. The numbers of the first and the last update in it;
    /// `None`: nothing is sent.
    fn write(&self, pair: &Pair, feed: &Feed, spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)>;

    /// What makes the stream send: by its channel, unless the venue has it otherwise.
    fn beat_of(&self, key: &Key) -> u8 {
        match key.channel {
            BOOK => BOOK_BEAT,
            TRADES => TRADE_BEAT,
            _ => TICKER_BEAT,
        }
    }

    /// A frame is about to be made for this stream: the last moment to let something go wrong with it.
    fn before(&mut self, _hall: &mut Hall, _feed: u32) {}

    fn heartbeat(&mut self, _market: &mut Market, _hall: &mut Hall, _conn: u64) {}
    fn notice(&mut self, _hall: &mut Hall, _conn: u64) {}
    fn restart(&mut self, _market: &mut Market, _hall: &mut Hall, _slot: u32) {}
    fn forget(&mut self, _conn: u64) {}

    /// The answer to a request; `path` is without `rest/`.
    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer;
}

pub(crate) struct Exchange<W> {
    wire: W,
    market: Market,
    manners: Manners,
}

impl<W: Wire> Dialect for Exchange<W> {
    fn manners(&self) -> Manners {
        self.manners
    }

    fn has_socket(&self, path: &str) -> bool {
        self.wire.has_socket(socket_path(path))
    }

    fn greet(&mut self, hall: &mut Hall, conn: u64, path: &str, query: Query<'_>) {
        self.wire.greet(&mut self.market, hall, conn, socket_path(path), query);
    }

    fn hear(&mut self, hall: &mut Hall, conn: u64, text: &str) {
        self.wire.hear(&mut self.market, hall, conn, text);
    }

    fn beat(&mut self, hall: &mut Hall, slot: u32, kind: u8, _due_us: i64) -> Option<i64> {
        let Market { pairs, heard, scratch, .. } = &mut self.market;
        let pair = &mut pairs[slot as usize];
        hall.heard_feeds(slot, heard);
        if heard.is_empty() {
            pair.armed[usize::from(kind)] = false;
            return None;
        }
        pair.step(kind);
        for feed in heard.iter().copied() {
            if self.wire.beat_of(&hall.feeds[feed as usize].key) != kind {
                continue;
            }
            self.wire.before(hall, feed);
            let spoil = hall.spoils(feed);
            scratch.clear();
            if let Some((first, last)) = self.wire.write(pair, &hall.feeds[feed as usize], spoil, scratch) {
                let count = &mut hall.feeds[feed as usize].count;
                *count = count.wrapping_add(1);
                hall.publish(feed, scratch, first, last);
            }
        }
        pair.due(kind)
    }

    fn heartbeat(&mut self, hall: &mut Hall, conn: u64) {
        self.wire.heartbeat(&mut self.market, hall, conn);
    }

    fn notice(&mut self, hall: &mut Hall, conn: u64) {
        self.wire.notice(hall, conn);
    }

    fn happen(&mut self, hall: &mut Hall, what: StreamFaultKind, slot: u32) {
        if what == StreamFaultKind::Restart {
            self.wire.restart(&mut self.market, hall, slot);
        }
    }

    fn forget(&mut self, conn: u64) {
        self.wire.forget(conn);
    }

    fn find(&self, symbol: &str) -> Option<u32> {
        self.market.find(symbol)
    }

    fn answer(&mut self, now_us: i64, ask: &Ask<'_>) -> Answer {
        let path = ask.path.strip_prefix("rest/").unwrap_or(ask.path);
        self.wire.answer(&mut self.market, now_us, path, ask)
    }
}

/// `/binance/ws/stream` is what `/stream` is at the venue; so is `/binance/stream`.
fn socket_path(path: &str) -> &str {
    match path.strip_prefix("ws/") {
        Some(rest)
            if matches!(rest, "ws" | "stream") || rest.starts_with("ws/") || rest.starts_with("v5/") =>
        {
            rest
        }
        _ => path,
    }
}

/// The REST side of an exchange.
struct Desk {
    floor: Arc<Floor>,
    endpoint: fn(&Method, &str) -> &'static str,
    refusal: fn() -> Answer,
}

impl Venue for Desk {
    fn endpoint(&self, method: &Method, path: &str) -> &'static str {
        (self.endpoint)(method, path.strip_prefix("rest/").unwrap_or(path))
    }

    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        self.floor.with(|hall, dialect| dialect.answer(hall.now_us, ask))
    }

    fn refusal(&self) -> Answer {
        (self.refusal)()
    }

    fn turn_away(&self, _user_agent: &str) -> Option<Answer> {
        None
    }

    fn set_rates(&self, _now_ms: i64, _births_per_min: Option<f64>, _deaths_per_min: Option<f64>) {}
}

/// What an exchange's file gives to be opened.
pub(crate) struct Opening<W> {
    pub(crate) id: &'static str,
    pub(crate) wire: W,
    pub(crate) endpoint: fn(&Method, &str) -> &'static str,
    pub(crate) refusal: fn() -> Answer,
    pub(crate) published: Vec<crate::limit::LimitRule>,
}

/// Opens an exchange: its floor, and the desk before it.
pub(crate) fn open<W: Wire, R>(
    opening: Opening<W>,
    seed: u64,
    streams: &StreamsConfig,
    config: &ExchangeConfig<R>,
    clock: &Arc<dyn Clock>,
) -> Opened {
    let Opening { id, wire, endpoint, refusal, published } = opening;
    let seed = Dice::at(&[seed, id.bytes().fold(0, |hash, byte| hash * 31 + u64::from(byte))]).next();
    let pairs = Pair::all(&config.pairs, seed, clock.wall().get() / 1_000);
    let mut by_name = HashMap::new();
    for (slot, pair) in (0..).zip(&pairs) {
        by_name.insert(pair.unified.clone(), slot);
        by_name.extend(wire.names(pair).into_iter().map(|name| (name, slot)));
    }
    let history = History::new(seed, &config.candles);
    let market = Market { pairs, by_name, seed, history, scratch: Vec::new(), heard: Vec::new() };
    let manners = tuned(wire.manners(), &config.session);
    let floor = Floor::new(id, streams, Arc::clone(clock), Box::new(Exchange { wire, market, manners }));
    Opened {
        venue: Box::new(Desk { floor: Arc::clone(&floor), endpoint, refusal }),
        limits: config.limits.clone().unwrap_or(published),
        faults: config.faults.clone(),
        floor: Some(floor),
    }
}

fn tuned(mut manners: Manners, session: &SessionConfig) -> Manners {
    let us = |ms: Option<u64>, usual: Option<i64>| ms.map(|ms| ms.max(1) as i64 * 1_000).or(usual);
    manners.life_us = us(session.life_ms, manners.life_us);
    if manners.ping_us.is_some() {
        manners.ping_us = us(session.ping_ms, manners.ping_us);
        manners.pong_within_us = us(session.pong_within_ms, manners.pong_within_us);
    }
    if manners.heartbeat_us.is_some() {
        manners.heartbeat_us = us(session.heartbeat_ms, manners.heartbeat_us);
    }
    if session.unlimited_messages {
        manners.messages = None;
    }
    manners
}

// ---- writing ----

/// Adds texts one after the other.
macro_rules! put {
    ($out:expr, $($part:expr),+ $(,)?) => {{ $( $out.extend_from_slice($part.as_ref()); )+ }};
}
pub(crate) use put;

/// A whole number.
pub(crate) fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// `units` of `10^-scale` with `decimals` of them, at least `scale`: `0.02800000`.
pub(crate) fn fixed(out: &mut Vec<u8>, units: u64, scale: u8, decimals: u8) {
    let one = 10u64.pow(u32::from(scale));
    number(out, units / one);
    if decimals == 0 {
        return;
    }
    out.push(b'.');
    let mut digits = [b'0'; 20];
    let mut rest = units % one;
    for at in (0..usize::from(scale)).rev() {
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[..usize::from(decimals)]);
}

/// The same without trailing zeros: `0.028`, `5`.
pub(crate) fn trimmed(out: &mut Vec<u8>, units: u64, scale: u8) {
    fixed(out, units, scale, scale);
    if scale > 0 {
        while out.last() == Some(&b'0') {
            out.pop();
        }
        if out.last() == Some(&b'.') {
            out.pop();
        }
    }
}

/// `2026-07-31T08:55:00.123456`, with so many decimals of a second; what follows is the venue's affair.
pub(crate) fn stamp(out: &mut Vec<u8>, us: i64, decimals: usize) {
    let (day, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000) as u64);
    // Days since the year 0, counted from March on so that the leap day is the last of its year.
    let z = day + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let digits = |out: &mut Vec<u8>, value: u64, n: u32| {
        out.extend((0..n).rev().map(|at| b'0' + (value / 10u64.pow(at) % 10) as u8));
    };
    digits(out, year as u64, 4);
    for (mark, value) in [
        (b'-', month as u64),
        (b'-', day as u64),
        (b'T', rest / 3_600_000_000),
        (b':', rest / 60_000_000 % 60),
        (b':', rest / 1_000_000 % 60),
    ] {
        out.push(mark);
        digits(out, value, 2);
    }
    out.push(b'.');
    digits(out, rest % 1_000_000, 6);
    // Nanoseconds nobody has measured.
    out.extend((6..decimals).map(|_| b'0'));
}

/// A size with all eight decimals.
pub(crate) fn size8(out: &mut Vec<u8>, size: u64) {
    fixed(out, size, SIZE_SCALE, SIZE_SCALE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_exactly() {
        let check = |units, scale, long: &str, short: &str| {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            fixed(&mut a, units, scale, 8);
            trimmed(&mut b, units, scale);
            assert_eq!((a, b), (long.into(), short.into()));
        };
        check(6_173_763, 2, "61737.63000000", "61737.63");
        check(2_800_000, 8, "0.02800000", "0.028");
        check(500, 2, "5.00000000", "5");
        check(0, 8, "0.00000000", "0");
        check(7, 0, "7.00000000", "7");
        check(100, 0, "100.00000000", "100");
    }

    #[test]
    fn times_are_spelled_as_the_calendar_has_them() {
        let day = 86_400_000_000;
        for us in [
            0,
            1,
            day - 1,
            951_782_400_000_000,
            951_868_799_999_999,
            4_107_542_400_000_000,
            1_785_488_100_123_456,
        ] {
            let mut out = Vec::new();
            stamp(&mut out, us, 6);
            out.push(b'Z');
            let want = format!("{:.6}", jiff::Timestamp::from_microsecond(us).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn a_socket_is_found_below_either_base() {
        let check = |path: &str, want: &str| assert_eq!(socket_path(path), want);
        check("ws", "ws");
        check("ws/ws", "ws");
        check("ws/stream", "stream");
        check("stream", "stream");
        check("ws/btcusdt@trade", "ws/btcusdt@trade");
        check("ws/ws/btcusdt@trade", "ws/btcusdt@trade");
        check("ws/v2", "ws/v2");
        check("ws/ws/v5/public", "ws/v5/public");
        check("ws/btcusdt@depth/btcusdt@trade", "ws/btcusdt@depth/btcusdt@trade");
        check("ws/v5/public/spot", "v5/public/spot");
    }
}
