//! The feed.
//!
//! ```text
//! {"type":"l2update","product_id":"BAND-GBP","changes":[["sell","14.8098","0.00"]],"time":"2021-04-17T16:43:37.083117Z"}
//! {"type":"match","trade_id":881614,"maker_order_id":"5ed3…","taker_order_id":"5966…","side":"buy","size":"5","price":"14.7646",
//!  "product_id":"BAND-GBP","sequence":333939588,"time":"2021-04-17T16:44:05.617399Z"}
//! ```

use serde::Deserialize;

use super::Coinbase;
use crate::dice::Dice;
use crate::text::{Json, Query};
use crate::venue::{Answer, Ask};
use crate::ws::dialect::{Manners, SECOND};
use crate::ws::exchange::{Market, Wire, fixed, number, put, size8, stamp};
use crate::ws::hall::{Admit, Feed, Hall, Key};
use crate::ws::pair::{Level, Pair, TICKER_BEAT, TRADE_BEAT, Trade};
use crate::ws::{BOOK, TICKER, TRADES};

const HEARTBEAT: &str = "heartbeat";
/// Every five seconds instead of with each trade.
const BATCHED: u32 = 1;

#[derive(Deserialize)]
struct Command {
    r#type: String,
    #[serde(default)]
    product_ids: Vec<String>,
    #[serde(default)]
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Channel {
    Name(String),
    Own {
        name: String,
        #[serde(default)]
        product_ids: Vec<String>,
    },
}

/// The venue's channels, and what they are here.
fn channel_of(name: &str) -> Option<(&'static str, &'static str, u32)> {
    Some(match name {
        "level2" => ("level2", BOOK, 0),
        "level2_batch" => ("level2_batch", BOOK, 0),
        "matches" => ("matches", TRADES, 0),
        "ticker" => ("ticker", TICKER, 0),
        "ticker_batch" => ("ticker_batch", TICKER, BATCHED),
        "heartbeat" => (HEARTBEAT, "", 0),
        _ => return None,
    })
}

impl Wire for Coinbase {
    fn manners(&self) -> Manners {
        Manners {
            heartbeat_us: Some(SECOND),
            subscribe_within_us: Some(5 * SECOND),
            messages: Some((100, SECOND)),
            streams_max: usize::MAX,
            ..Manners::default()
        }
    }

    fn names(&self, pair: &Pair) -> Vec<String> {
        vec![format!("{}-{}", pair.base, pair.quote)]
    }

    fn has_socket(&self, path: &str) -> bool {
        matches!(path, "" | "ws" | "ws/")
    }

    fn greet(&mut self, _: &mut Market, _: &mut Hall, conn: u64, _path: &str, _query: Query<'_>) {
        self.lists.insert(conn, Default::default());
    }

    fn hear(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        let Ok(command) = serde_json::from_str::<Command>(text) else {
            return hall.tell(conn, &problem("Malformed JSON", ""));
        };
        let subscribes = match command.r#type.as_str() {
            "subscribe" => true,
            "unsubscribe" => false,
            other => {
                return hall.tell(
                    conn,
                    &problem(&format!("Type has to be either subscribe or unsubscribe, not {other}"), ""),
                );
            }
        };
        let mut wanted = Vec::new();
        for channel in &command.channels {
            let (name, products) = match channel {
                Channel::Name(name) => (name, &command.product_ids),
                Channel::Own { name, product_ids } if product_ids.is_empty() => (name, &command.product_ids),
                Channel::Own { name, product_ids } => (name, product_ids),
            };
            let Some(channel) = channel_of(name) else {
                return hall
                    .tell(conn, &problem("Failed to subscribe", &format!("{name} is not a valid channel")));
            };
            if channel.0 == "level2" && !self.rules.open_level2 {
                let reason = "level2, level3, and full channels now require authentication. \
                              https://docs.cloud.coinbase.com/exchange/docs/websocket-auth";
                return hall.tell(conn, &problem("Failed to subscribe", reason));
            }
            for product in products {
                let Some(slot) = market.find(product).filter(|_| !product.contains('/')) else {
                    let reason = format!("{product} is not a valid product");
                    return hall.tell(conn, &problem("Failed to subscribe", &reason));
                };
                wanted.push((channel, slot));
            }
        }
        if wanted.is_empty() && subscribes {
            return hall.tell(conn, &problem("Failed to subscribe", "no channels provided"));
        }
        match subscribes {
            true => self.subscribe(market, hall, conn, &wanted),
            false => self.unsubscribe(market, hall, conn, &wanted),
        }
    }

    fn write(&self, pair: &Pair, feed: &Feed, _spoil: bool, out: &mut Vec<u8>) -> Option<(u64, u64)> {
        match feed.key.channel {
            BOOK => {
                put!(
                    out,
                    "{\"type\":\"l2update\",\"product_id\":\"",
                    pair.base,
                    "-",
                    pair.quote,
                    "\",\"changes\":["
                );
                for (at, change) in pair.changes.iter().enumerate() {
                    put!(
                        out,
                        if at > 0 { ",[\"" } else { "[\"" },
                        if change.bid { "buy" } else { "sell" },
                        "\",\""
                    );
                    price(out, pair, change.price);
                    put!(out, "\",\"");
                    size8(out, change.size);
                    put!(out, "\"]");
                }
                put!(out, "],\"time\":\"");
                stamp(out, pair.book_us, 6);
                put!(out, "Z\"}");
                Some((feed.count + 1, feed.count + 1))
            }
            TRADES => {
                let trade = pair.last_trade();
                write_match(pair, &trade, "match", out);
                Some((trade.id, trade.id))
            }
            _ => {
                write_ticker(pair, out);
                Some((pair.sequence, pair.sequence))
            }
        }
    }

    fn beat_of(&self, key: &Key) -> u8 {
        match (key.channel, key.variant) {
            (BOOK, _) => crate::ws::pair::BOOK_BEAT,
            (TICKER, BATCHED) => TICKER_BEAT,
            _ => TRADE_BEAT,
        }
    }

    fn heartbeat(&mut self, market: &mut Market, hall: &mut Hall, conn: u64) {
        let Some(products) = self.lists.get(&conn).and_then(|list| list.get(HEARTBEAT)) else { return };
        for slot in products {
            let pair = market.look(*slot, hall.now_us);
            let mut out = Vec::new();
            put!(out, "{\"type\":\"heartbeat\",\"sequence\":");
            number(&mut out, pair.sequence);
            put!(out, ",\"last_trade_id\":");
            number(&mut out, pair.last_trade().id);
            put!(out, ",\"product_id\":\"", pair.base, "-", pair.quote, "\",\"time\":\"");
            stamp(&mut out, hall.now_us, 6);
            put!(out, "Z\"}");
            hall.tell_alive(conn, &out);
        }
    }

    fn forget(&mut self, conn: u64) {
        self.lists.remove(&conn);
    }

    fn answer(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        super::rest::answer(market, now_us, path, ask)
    }
}

type Wanted = ((&'static str, &'static str, u32), u32);

impl Coinbase {
    fn subscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, wanted: &[Wanted]) {
        let mut states = Vec::new();
        for ((name, channel, variant), slot) in wanted.iter().copied() {
            let list = self.lists.entry(conn).or_default().entry(name).or_default();
            if name == HEARTBEAT {
                list.insert(slot);
                market.wake(hall, slot);
                continue;
            }
            let (feed, admit) = market.subscribe(hall, conn, Key { slot, channel, variant });
            if admit == Admit::Refuse {
                return hall.tell(conn, &problem("Failed to subscribe", "subscription refused"));
            }
            list.insert(slot);
            states.push((channel, slot, feed));
        }
        let told = self.listed(market, conn);
        hall.tell(conn, &told);
        for (channel, slot, feed) in states {
            let pair = &market.pairs[slot as usize];
            let mut out = Vec::new();
            let number = match channel {
                BOOK => {
                    write_snapshot(pair, &mut out);
                    hall.feeds[feed as usize].count
                }
                TRADES => {
                    write_match(pair, &pair.last_trade(), "last_match", &mut out);
                    pair.last_trade().id
                }
                _ => {
                    write_ticker(pair, &mut out);
                    pair.sequence
                }
            };
            hall.publish_to(conn, feed, &out, number, number);
        }
    }

    fn unsubscribe(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, wanted: &[Wanted]) {
        let lists = self.lists.entry(conn).or_default();
        for ((name, channel, variant), slot) in wanted.iter().copied() {
            if let Some(list) = lists.get_mut(name) {
                list.remove(&slot);
            }
            if let Some(feed) = hall.known_feed(Key { slot, channel, variant }) {
                hall.leave(conn, feed);
            }
        }
        lists.retain(|_, products| !products.is_empty());
        let told = self.listed(market, conn);
        hall.tell(conn, &told);
    }

    /// Everything the connection has subscribed to.
    fn listed(&self, market: &Market, conn: u64) -> Vec<u8> {
        let mut json = Json::default();
        json.open('{').text("type", "subscriptions").key("channels").open('[');
        for (name, products) in self.lists.get(&conn).into_iter().flatten() {
            json.open('{').text("name", name).key("product_ids").open('[');
            for slot in products {
                let pair = &market.pairs[*slot as usize];
                json.string(&format!("{}-{}", pair.base, pair.quote));
            }
            json.close(']').close('}');
        }
        json.close(']').close('}').done().into_bytes()
    }
}

fn problem(message: &str, reason: &str) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{').text("type", "error").text("message", message);
    if !reason.is_empty() {
        json.text("reason", reason);
    }
    json.close('}').done().into_bytes()
}

// ---- payloads ----

pub(super) fn price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    fixed(out, ticks as u64, pair.price_scale, pair.price_scale);
}

fn write_snapshot(pair: &Pair, out: &mut Vec<u8>) {
    put!(out, "{\"type\":\"snapshot\",\"product_id\":\"", pair.base, "-", pair.quote, "\"");
    for (bid, key) in [(false, ",\"asks\":["), (true, ",\"bids\":[")] {
        put!(out, key);
        for (at, Level { price: ticks, size }) in pair.side(bid).copied().enumerate() {
            put!(out, if at > 0 { ",[\"" } else { "[\"" });
            price(out, pair, ticks);
            put!(out, "\",\"");
            size8(out, size);
            put!(out, "\"]");
        }
        put!(out, "]");
    }
    put!(out, "}");
}

/// `1da6ce16-c8da-4732-9f71-6049f4c6aaf8`
fn uuid(out: &mut Vec<u8>, dice: &mut Dice) {
    let (a, b) = (dice.next(), dice.next());
    let hex = format!("{a:016x}{b:016x}");
    put!(out, hex[..8], "-", hex[8..12], "-4", hex[13..16], "-a", hex[17..20], "-", hex[20..]);
}

fn write_match(pair: &Pair, trade: &Trade, kind: &str, out: &mut Vec<u8>) {
    let mut dice = Dice::at(&[trade.id, trade.at_us as u64]);
    put!(out, "{\"type\":\"", kind, "\",\"trade_id\":");
    number(out, trade.id);
    put!(out, ",\"maker_order_id\":\"");
    uuid(out, &mut dice);
    put!(out, "\",\"taker_order_id\":\"");
    uuid(out, &mut dice);
    // The maker's side: whoever bought met somebody who had offered to sell.
    put!(out, "\",\"side\":\"", if trade.buy { "sell" } else { "buy" }, "\",\"size\":\"");
    size8(out, trade.size);
    put!(out, "\",\"price\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"product_id\":\"", pair.base, "-", pair.quote, "\",\"sequence\":");
    number(out, pair.sequence);
    put!(out, ",\"time\":\"");
    stamp(out, trade.at_us, 6);
    put!(out, "Z\"}");
}

fn write_ticker(pair: &Pair, out: &mut Vec<u8>) {
    let (trade, (bid, ask)) = (pair.last_trade(), pair.best());
    put!(out, "{\"type\":\"ticker\",\"sequence\":");
    number(out, pair.sequence);
    put!(out, ",\"product_id\":\"", pair.base, "-", pair.quote, "\"");
    let money = |out: &mut Vec<u8>, key: &str, ticks: i64| {
        put!(out, ",\"", key, "\":\"");
        price(out, pair, ticks);
        put!(out, "\"");
    };
    let amount = |out: &mut Vec<u8>, key: &str, size: u64| {
        put!(out, ",\"", key, "\":\"");
        size8(out, size);
        put!(out, "\"");
    };
    money(out, "price", trade.price);
    money(out, "open_24h", pair.open);
    amount(out, "volume_24h", pair.volume);
    money(out, "low_24h", pair.low);
    money(out, "high_24h", pair.high);
    amount(out, "volume_30d", pair.volume * 30);
    money(out, "best_bid", bid.price);
    amount(out, "best_bid_size", bid.size);
    money(out, "best_ask", ask.price);
    amount(out, "best_ask_size", ask.size);
    put!(out, ",\"side\":\"", if trade.buy { "buy" } else { "sell" }, "\",\"time\":\"");
    stamp(out, trade.at_us, 6);
    put!(out, "Z\",\"trade_id\":");
    number(out, trade.id);
    amount(out, "last_size", trade.size);
    put!(out, "}");
}
