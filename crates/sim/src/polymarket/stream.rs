//! The market stream.
//!
//! ```text
//! [{"market":"0x94a3…","asset_id":"3469…","timestamp":"1786387645775","hash":"57cc…","bids":[…],"asks":[…],"tick_size":"0.01",
//!   "event_type":"book","last_trade_price":"0.280"}]⏎
//! {"market":"0x94a3…", "price_changes":[{"asset_id":"9556…", "price":"0.51", "size":"636", "side":"BUY", "hash":"9b69…",
//!  "best_bid":"0.71", "best_ask":"0.72"}, {…}], "timestamp":"1786387666174", "event_type":"price_change"}
//! ```
//! Nothing is acknowledged. A change names both tokens of the market, also if only one is subscribed to; what one move
//! changes may come in several frames with the same hash, which holds after the last of them. After a trade the books of
//! the subscribed tokens follow, then the trade. Its price counts in the hash from the next move on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use super::{Market, PolymarketNames, clob, hash};
use crate::book::{Grid, Level, Move, Sold, plain};
use crate::dice::Dice;
use crate::text::Query;
use crate::universe::Universe;
use crate::ws::dialect::{Dialect, Manners};
use crate::ws::exchange::{number, put};
use crate::ws::fault::StreamFaultKind;
use crate::ws::hall::{Admit, Due, Hall, Key};
use crate::ws::line::DataOf;
use crate::ws::{BOOK, TICKER, TRADES};

/// The forms of a market's streams: of the market, or of one of its tokens.
const OF_MARKET: u32 = 0;
const OF_TOKEN: u32 = 1;

/// What a trade is stamped later than the change it made.
const SETTLED_AFTER_MS: i64 = 40;

#[derive(Deserialize)]
struct Command {
    #[serde(default)]
    assets_ids: Vec<String>,
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    custom_feature_enabled: bool,
}

pub(super) struct Stream {
    universe: Arc<Universe<PolymarketNames>>,
    /// Markets that are on: somebody listens.
    armed: HashSet<u32>,
    /// What each connection has subscribed to, and whether it gets `best_bid_ask`.
    sessions: HashMap<u64, (HashSet<String>, bool)>,
    /// With more tokens than this on a connection, no first books come.
    first_books_max: usize,
    seed: u64,
}

/// A level of a token's book that has another size now, and where.
struct Told {
    bid: bool,
    price: u16,
    size: u32,
}

impl Stream {
    pub(super) fn new(universe: Arc<Universe<PolymarketNames>>, first_books_max: usize, seed: u64) -> Self {
        Self { universe, armed: HashSet::new(), sessions: HashMap::new(), first_books_max, seed }
    }

    fn market(&self, hall: &Hall, slot: u32) -> Option<Arc<Market>> {
        self.universe.at(hall.now_ms()).markets.get(slot as usize).cloned()
    }

    /// The market and the side of a token, if it has a book.
    fn token(&self, now_ms: i64, token: &str) -> Option<(Arc<Market>, u32)> {
        let roll = self.universe.at(now_ms);
        let (market, side) = roll.find(token).filter(|(market, _)| roll.is_open(market.number))?;
        Some((Arc::clone(market), side as u32))
    }

    fn subscribe(&mut self, hall: &mut Hall, conn: u64, tokens: &[String]) {
        let mut frame = b"[".to_vec();
        let mut parts = Vec::new();
        // Trades told just before: their price is not in the first books, but counts from the next move on.
        let mut unsaid: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let now_ms = hall.now_ms();
        for token in tokens {
            let Some((market, side)) = self.token(now_ms, token) else { continue };
            let slot = market.number as u32;
            let book = hall.feed(Key { slot, channel: BOOK, variant: OF_TOKEN + side }, token);
            let admit = hall.admit(conn, slot, BOOK);
            hall.admitted(admit, book);
            if admit == Admit::Refuse {
                continue;
            }
            let Some((held, features)) = self.sessions.get_mut(&conn) else { return };
            held.insert(token.clone());
            let first = &market.names.tokens[0];
            let mut feeds = vec![
                book,
                hall.feed(Key { slot, channel: BOOK, variant: OF_MARKET }, first),
                hall.feed(Key { slot, channel: TRADES, variant: OF_MARKET }, first),
            ];
            if *features {
                feeds.push(hall.feed(Key { slot, channel: TICKER, variant: OF_TOKEN + side }, token));
            }
            for feed in feeds {
                hall.join(conn, feed, admit);
            }
            if frame.len() > 1 {
                frame.push(b',');
            }
            let begin = frame.len();
            market.book(now_ms, |moved, at_ms| {
                let mut rest = Vec::new();
                clob::write_book(&market, side as usize, moved, at_ms, &mut rest);
                first_book(&rest, &mut frame);
                if let Some(sold) = moved.pending {
                    let mut out = Vec::new();
                    self.write_trade(&market, sold, at_ms, &mut out);
                    unsaid.insert(slot, out);
                }
            });
            let count = hall.feeds[book as usize].count;
            parts.push((
                DataOf { feed: book, first: count, last: count, at_us: hall.now_us },
                begin..frame.len(),
            ));
            self.wake(hall, &market);
        }
        frame.extend_from_slice(b"]\n");
        let held = self.sessions.get(&conn).map_or(0, |(tokens, _)| tokens.len());
        if held <= self.first_books_max {
            hall.publish_parts(conn, &frame, parts);
        }
        for (slot, text) in unsaid {
            if let Some(feed) = hall.known_feed(Key { slot, channel: TRADES, variant: OF_MARKET }) {
                let count = hall.feeds[feed as usize].count;
                hall.publish_to(conn, feed, &text, count, count);
            }
        }
    }

    fn write_trade(&self, market: &Market, sold: Sold, at_ms: i64, out: &mut Vec<u8>) {
        let grid = market.grid();
        put!(out, "{\"market\":\"", market.names.condition, "\", \"asset_id\":\"", market.names.tokens[0]);
        put!(
            out,
            "\", \"price\":\"",
            plain(grid.price(sold.price)),
            "\", \"size\":\"",
            hundredths(sold.size)
        );
        put!(out, "\", \"fee_rate_bps\":\"0\", \"side\":\"", if sold.buy { "BUY" } else { "SELL" });
        put!(out, "\", \"timestamp\":\"");
        number(out, at_ms + SETTLED_AFTER_MS);
        let transaction = Dice::at(&[self.seed, market.number, at_ms as u64, 1]).hex(64);
        put!(out, "\", \"event_type\":\"last_trade_price\", \"transaction_hash\":\"", transaction, "\"}");
    }

    fn unsubscribe(&mut self, hall: &mut Hall, conn: u64, tokens: &[String]) {
        for token in tokens {
            let Some((market, side)) = self.token(hall.now_ms(), token) else { continue };
            let Some((held, _)) = self.sessions.get_mut(&conn) else { return };
            held.remove(token);
            let sibling = held.contains(&market.names.tokens[1 - side as usize]);
            let slot = market.number as u32;
            let own = [(BOOK, OF_TOKEN + side), (TICKER, OF_TOKEN + side)];
            let shared = [(BOOK, OF_MARKET), (TRADES, OF_MARKET)];
            let shared = shared.into_iter().filter(|_| !sibling);
            for (channel, variant) in own.into_iter().chain(shared) {
                if let Some(feed) = hall.known_feed(Key { slot, channel, variant }) {
                    hall.leave(conn, feed);
                }
            }
        }
    }

    fn wake(&mut self, hall: &mut Hall, market: &Market) {
        let slot = market.number as u32;
        if let Some(due_ms) = market.due_ms()
            && self.armed.insert(slot)
        {
            hall.arm(due_ms * 1_000, Due::Beat { slot, kind: 0 });
        }
    }

    /// Tells of a move: the changes, then the books and the trade if there was one, then the best prices.
    fn tell(&self, hall: &mut Hall, market: &Market, moved: &Move<'_>, heard: &[u32]) {
        let grid = market.grid();
        let texts = [0, 1].map(|side| {
            let mut text = Vec::new();
            clob::write_book(market, side, moved.book, moved.at_ms, &mut text);
            text
        });
        let hashes = [&texts[0], &texts[1]].map(|text| hash::of(text).to_vec());
        let told = changes(moved);
        let slot = market.number as u32;
        let feed_of = |hall: &Hall, channel, variant| {
            hall.known_feed(Key { slot, channel, variant }).filter(|feed| heard.contains(feed))
        };
        let mut out = Vec::new();
        if let Some(feed) = feed_of(hall, BOOK, OF_MARKET) {
            let split = Dice::at(&[self.seed, market.number, moved.at_ms as u64]).below(2) == 0;
            let per_frame = if split { 1 } else { told.len().max(1) };
            for some in told.chunks(per_frame) {
                let spoil = hall.spoils(feed);
                out.clear();
                write_changes(market, &grid, moved, some, &hashes, spoil, &mut out);
                count(hall, feed, &out);
            }
        }
        if let Some(sold) = moved.sold {
            for side in [0, 1] {
                if let Some(feed) = feed_of(hall, BOOK, OF_TOKEN + side) {
                    out.clear();
                    later_book(&texts[side as usize], &mut out);
                    count(hall, feed, &out);
                }
            }
            if let Some(feed) = feed_of(hall, TRADES, OF_MARKET) {
                out.clear();
                self.write_trade(market, sold, moved.at_ms, &mut out);
                count(hall, feed, &out);
            }
        }
        let best_before = moved.before.each_ref().map(|side| side.last().map(|level| level.price));
        let (bid, ask) = moved.book.best();
        if best_before != [bid, ask].map(|level| level.map(|level| level.price)) {
            for side in [0, 1] {
                if let Some(feed) = feed_of(hall, TICKER, OF_TOKEN + side) {
                    let [bid, ask] = best(&grid, moved, side as usize);
                    out.clear();
                    put!(out, "{\"market\":\"", market.names.condition, "\", \"asset_id\":\"");
                    put!(out, market.names.tokens[side as usize], "\", \"best_bid\":\"", plain(bid));
                    put!(
                        out,
                        "\", \"best_ask\":\"",
                        plain(ask),
                        "\", \"spread\":\"",
                        plain(ask.saturating_sub(bid))
                    );
                    put!(out, "\", \"timestamp\":\"");
                    number(&mut out, moved.at_ms);
                    put!(out, "\", \"event_type\":\"best_bid_ask\"}");
                    count(hall, feed, &out);
                }
            }
        }
    }
}

impl Dialect for Stream {
    fn manners(&self) -> Manners {
        Manners { streams_max: usize::MAX, has_checksum: true, has_tick_size: true, ..Manners::default() }
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path, "ws/market" | "ws/ws/market" | "market")
    }

    fn greet(&mut self, _hall: &mut Hall, conn: u64, _path: &str, _query: Query<'_>) {
        self.sessions.insert(conn, (HashSet::new(), false));
    }

    fn hear(&mut self, hall: &mut Hall, conn: u64, text: &str) {
        if text == "PING" {
            return hall.tell_alive(conn, b"PONG");
        }
        // There is no word about a command that means nothing.
        let Ok(command) = serde_json::from_str::<Command>(text) else { return };
        let Some((_, features)) = self.sessions.get_mut(&conn) else { return };
        *features |= command.custom_feature_enabled;
        match (command.operation.as_deref(), command.r#type.as_deref()) {
            (Some("unsubscribe"), _) => self.unsubscribe(hall, conn, &command.assets_ids),
            (Some("subscribe"), _) | (None, Some("market" | "MARKET")) => {
                self.subscribe(hall, conn, &command.assets_ids);
            }
            _ => {}
        }
    }

    fn beat(&mut self, hall: &mut Hall, slot: u32, _kind: u8, _due_us: i64) -> Option<i64> {
        let mut heard = Vec::new();
        hall.heard_feeds(slot, &mut heard);
        let market = self.market(hall, slot)?;
        if heard.is_empty() {
            self.armed.remove(&slot);
            return None;
        }
        market.step(|moved| self.tell(hall, &market, moved, &heard));
        market.due_ms().map(|ms| ms * 1_000)
    }

    /// The tick becomes finer; both tokens hear of it.
    fn happen(&mut self, hall: &mut Hall, _what: StreamFaultKind, slot: u32) {
        let Some(market) = self.market(hall, slot) else { return };
        let Some([old, new]) = market.refine() else { return };
        for side in [0, 1] {
            let Some(feed) = hall.known_feed(Key { slot, channel: BOOK, variant: OF_TOKEN + side }) else {
                continue;
            };
            let mut out = Vec::new();
            put!(out, "{\"market\":\"", market.names.condition, "\", \"asset_id\":\"");
            put!(out, market.names.tokens[side as usize], "\", \"old_tick_size\":\"", plain(old));
            put!(out, "\", \"new_tick_size\":\"", plain(new), "\", \"timestamp\":\"");
            number(&mut out, hall.now_ms());
            put!(out, "\", \"event_type\":\"tick_size_change\"}");
            count(hall, feed, &out);
        }
    }

    fn forget(&mut self, conn: u64) {
        self.sessions.remove(&conn);
    }

    /// By token or by condition.
    fn find(&self, symbol: &str) -> Option<u32> {
        let roll = self.universe.newest();
        let by_token = roll.find(symbol).map(|(market, _)| market.number as u32);
        by_token.or_else(|| {
            let found = roll.markets.iter().find(|market| market.names.condition == symbol);
            found.map(|market| market.number as u32)
        })
    }
}

/// Sends a frame under the stream's next number.
fn count(hall: &mut Hall, feed: u32, payload: &[u8]) {
    hall.feeds[feed as usize].count += 1;
    let number = hall.feeds[feed as usize].count;
    hall.publish(feed, payload, number, number);
}

/// What a move changed in the Yes book: first what went, then what came, so that the book is not crossed in between.
fn changes(moved: &Move<'_>) -> Vec<Told> {
    let mut told = Vec::new();
    let sides = [(true, &moved.before[0], &moved.book.bids), (false, &moved.before[1], &moved.book.asks)];
    let size_in =
        |side: &[Level], price| side.iter().find(|level| level.price == price).map(|level| level.size);
    for (bid, before, after) in sides {
        let gone = before.iter().filter(|level| size_in(after, level.price).is_none());
        told.extend(gone.map(|level| Told { bid, price: level.price, size: 0 }));
    }
    for (bid, before, after) in sides {
        let changed = after.iter().filter(|level| size_in(before, level.price) != Some(level.size));
        told.extend(changed.map(|level| Told { bid, price: level.price, size: level.size }));
    }
    told
}

fn write_changes(
    market: &Market,
    grid: &Grid,
    moved: &Move<'_>,
    told: &[Told],
    hashes: &[Vec<u8>; 2],
    spoil: bool,
    out: &mut Vec<u8>,
) {
    put!(out, "{\"market\":\"", market.names.condition, "\", \"price_changes\":[");
    for (at, change) in told.iter().enumerate() {
        for side in [0, 1] {
            let (price, bid) = match side {
                0 => (change.price, change.bid),
                _ => (grid.steps - change.price, !change.bid),
            };
            let mut digits = hashes[side].clone();
            if spoil {
                hash::spoil(&mut digits);
            }
            let [best_bid, best_ask] = best(grid, moved, side);
            put!(out, if at + side > 0 { ", {" } else { "{" }, "\"asset_id\":\"", market.names.tokens[side]);
            put!(
                out,
                "\", \"price\":\"",
                plain(grid.price(price)),
                "\", \"size\":\"",
                hundredths(change.size)
            );
            put!(out, "\", \"side\":\"", if bid { "BUY" } else { "SELL" }, "\", \"hash\":\"", digits);
            put!(out, "\", \"best_bid\":\"", plain(best_bid), "\", \"best_ask\":\"", plain(best_ask), "\"}");
        }
    }
    put!(out, "], \"timestamp\":\"");
    number(out, moved.at_ms);
    put!(out, "\", \"event_type\":\"price_change\"}");
}

/// The best bid and ask of a token, in ten-thousandths; 0 and 1 where there is none.
fn best(grid: &Grid, moved: &Move<'_>, side: usize) -> [u32; 2] {
    let (bid, ask) = moved.book.best();
    let bid = bid.map_or(0, |level| grid.price(level.price));
    let ask = ask.map_or(10_000, |level| grid.price(level.price));
    if side == 0 { [bid, ask] } else { [10_000 - ask, 10_000 - bid] }
}

/// Up to two decimals, without trailing zeros.
fn hundredths(size: u32) -> String {
    let text = format!("{}.{:02}", size / 100, size % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A member of the REST form, from its key on: `"tick_size":"0.01"`, or `"last_trade_price":""` of one never traded.
fn member<'a>(rest: &'a [u8], key: &str) -> &'a [u8] {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let Some(at) = text.find(key) else { return b"" };
    let value = at + key.len() + 1;
    let end = text[value..].find('"').map_or(text.len(), |end| value + end + 1);
    &rest[at - 1..end]
}

/// The REST form as the first books have it: other members at the end.
fn first_book(rest: &[u8], out: &mut Vec<u8>) {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let end = text.find(",\"min_order_size\"").unwrap_or(text.len());
    put!(out, rest[..end], ",", member(rest, "tick_size\":"), ",\"event_type\":\"book\",");
    put!(out, member(rest, "last_trade_price\":"), "}");
}

/// The REST form as books after a trade have it: a space after each comma, no tick size and no last price.
fn later_book(rest: &[u8], out: &mut Vec<u8>) {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let (bids, end) =
        (text.find("\"bids\":").unwrap_or(0), text.find(",\"min_order_size\"").unwrap_or(text.len()));
    let spaced = text[bids..end].replace(',', ", ");
    put!(out, "{", member(rest, "market\":"), ", ", member(rest, "asset_id\":"), ", ", spaced, ", ");
    put!(out, member(rest, "hash\":"), ", ", member(rest, "timestamp\":"), ", \"event_type\":\"book\"}");
}
