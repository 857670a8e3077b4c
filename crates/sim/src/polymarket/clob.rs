//! The CLOB.
//!
//! ```text
//! {"market":"0x48b0…","asset_id":"5925…","timestamp":"1785561505000","hash":"bb81…","bids":[{"price":"0.01","size":"2.5"},…],
//!  "asks":[{"price":"0.99","size":"80289.27"},…],"min_order_size":"5","tick_size":"0.01","neg_risk":false,
//!  "last_trade_price":"0.940"}
//! ```
//! Bids ascend and asks descend: the best is last on both sides.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use serde::Deserialize;

use super::{Market, Polymarket, Roll, hash};
use crate::book::{Book, Grid, Level, plain};
use crate::text::{Json, base64, cursor_number, iso, pair};
use crate::venue::{Answer, Ask};

/// A book is about this long; answers for many are allocated at once.
const BOOK_BYTES: usize = 3_300;
/// Buffers kept for answers to come.
const SPARE_MAX: usize = 4;
/// Base64 of `-1`: there is no next page.
const END: &str = "LTE=";

/// One element of what `/books` is asked.
#[derive(Deserialize)]
struct Wanted<'a> {
    #[serde(borrow)]
    token_id: Cow<'a, str>,
}

impl Polymarket {
    pub(super) fn book(&self, ask: &mut Ask<'_>) -> Answer {
        let Some(token) = ask.query.get("token_id").filter(|token| !token.is_empty()) else {
            return Answer::json(400, pair("error", "Invalid token id"));
        };
        let roll = self.universe.at(ask.now_ms);
        let mut body = BytesMut::with_capacity(BOOK_BYTES);
        match push_book(&roll, &token, ask, &mut body) {
            true => Answer::json(200, body.freeze()).books(1),
            false => Answer::json(404, pair("error", "No orderbook exists for the requested token id")),
        }
    }

    pub(super) fn last_trade_price(&self, ask: &mut Ask<'_>) -> Answer {
        let token = ask.query.get("token_id").unwrap_or_default();
        let roll = self.universe.at(ask.now_ms);
        let Some((market, _)) = roll.find(&token).filter(|(market, _)| roll.is_open(market.number)) else {
            return Answer::json(404, pair("error", "No orderbook exists for the requested token id"));
        };
        let (price, side) = market.book(ask.now_ms, |book, _| {
            let price = book.last.map_or_else(|| "0.5".to_owned(), |last| plain(market.grid().price(last)));
            (price, if book.last_buy { "BUY" } else { "SELL" })
        });
        Answer::json(
            200,
            Json::default().open('{').text("price", &price).text("side", side).close('}').done(),
        )
    }

    pub(super) fn books(&self, ask: &mut Ask<'_>) -> Answer {
        let Ok(wanted) = serde_json::from_slice::<Vec<Wanted<'_>>>(ask.body) else {
            return Answer::json(400, pair("error", "Invalid payload"));
        };
        if wanted.len() > self.rules.books_max {
            return Answer::json(400, pair("error", "Payload exceeds the limit"));
        }
        if let Some(poison) = &self.rules.poison
            && wanted.iter().any(|Wanted { token_id }| *token_id == *poison)
        {
            return Answer::json(400, pair("error", "Invalid payload"));
        }
        let roll = self.universe.at(ask.now_ms);
        let mut body = self.spare_buffer();
        body.reserve(wanted.len() * BOOK_BYTES + 2);
        let mut books = 0;
        body.put_u8(b'[');
        for Wanted { token_id } in &wanted {
            if ask.twist.missing > 0.0 && ask.twist.dice.hit(ask.twist.missing) {
                continue;
            }
            if body.len() > 1 && body.last() != Some(&b',') {
                body.put_u8(b',');
            }
            books += u64::from(push_book(&roll, token_id, ask, &mut body));
        }
        if body.last() == Some(&b',') {
            body.truncate(body.len() - 1);
        }
        body.put_u8(b']');
        let answer = Answer::json(200, body.split().freeze()).books(books);
        self.keep_buffer(body);
        answer
    }

    /// The one used longest ago: what was written into it has most likely been sent. If not, `reserve` takes fresh memory.
    fn spare_buffer(&self) -> BytesMut {
        self.spare.lock().expect("no holder of this lock can panic").pop_front().unwrap_or_default()
    }

    fn keep_buffer(&self, buffer: BytesMut) {
        let mut spare = self.spare.lock().expect("no holder of this lock can panic");
        if spare.len() < SPARE_MAX {
            spare.push_back(buffer);
        }
    }

    pub(super) fn clob_markets(&self, ask: &mut Ask<'_>) -> Answer {
        let cursor = ask.query.get("next_cursor").unwrap_or_default();
        let from = match &*cursor {
            "" => 0,
            END => return Answer::json(400, pair("error", "next item should be greater than or equal to 0")),
            cursor => match cursor_number(cursor) {
                Some(from) => from as usize,
                None => return Answer::json(400, pair("error", "invalid next cursor")),
            },
        };
        let roll = self.universe.at(ask.now_ms);
        let all = &roll.markets;
        let to = (from.saturating_add(self.rules.clob_page)).min(all.len());
        let rows = if ask.twist.empty_page { &[] } else { all.get(from..to).unwrap_or_default() };
        let next = match (ask.twist.stuck_cursor, to >= all.len()) {
            (true, _) => base64(from.to_string().as_bytes()),
            (false, true) => END.to_owned(),
            (false, false) => base64(to.to_string().as_bytes()),
        };
        let mut json = Json::with_capacity(rows.len() * 2_000);
        json.open('{').key("data").open('[');
        for market in rows {
            push_market(&roll, market, ask.now_ms, &mut json);
        }
        json.close(']')
            .text("next_cursor", &next)
            .raw("limit", self.rules.clob_page)
            .raw("count", rows.len());
        Answer::json(200, json.close('}').done())
    }
}

/// Adds the token's book, unless it has none.
fn push_book(roll: &Roll, token: &str, ask: &mut Ask<'_>, body: &mut BytesMut) -> bool {
    let Some((market, slot)) = roll.find(token).filter(|(market, _)| roll.is_open(market.number)) else {
        return false;
    };
    let write = |book: &Book, at_ms: i64, out: &mut Vec<u8>| write_book(market, slot, book, at_ms, out);
    let begin = body.len();
    market.text(ask.now_ms, slot, write, |bytes| body.extend_from_slice(bytes));
    if ask.twist.wrong_hash > 0.0 && ask.twist.dice.hit(ask.twist.wrong_hash) {
        let at = begin + HASH_AT + market.names.condition.len() + market.names.tokens[slot].len() + 13;
        hash::spoil(&mut body[at..at + 40]);
    }
    true
}

/// The literal text before the hash's digits; with the condition, the token and 13 digits of time they begin there.
const HASH_AT: usize = r#"{"market":"","asset_id":"","timestamp":"","hash":""#.len();

pub(super) fn write_book(market: &Market, slot: usize, book: &Book, at_ms: i64, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let grid = &*market.grid();
    out.extend_from_slice(b"{\"market\":\"");
    out.extend_from_slice(market.names.condition.as_bytes());
    out.extend_from_slice(b"\",\"asset_id\":\"");
    out.extend_from_slice(market.names.tokens[slot].as_bytes());
    out.extend_from_slice(b"\",\"timestamp\":\"");
    out.extend_from_slice(number.format(at_ms).as_bytes());
    out.extend_from_slice(b"\",\"hash\":\"");
    let hash_at = out.len();
    out.extend_from_slice(&[b'-'; 40]);
    out.extend_from_slice(b"\",\"bids\":[");
    // The No book: what is asked for Yes is bid for No, in the same order, with the price turned round.
    match slot {
        0 => write_levels(&book.bids, |price| price, grid, out),
        _ => write_levels(&book.asks, |price| grid.steps - price, grid, out),
    }
    out.extend_from_slice(b"],\"asks\":[");
    match slot {
        0 => write_levels(&book.asks, |price| price, grid, out),
        _ => write_levels(&book.bids, |price| grid.steps - price, grid, out),
    }
    out.extend_from_slice(b"],\"min_order_size\":\"5\",\"tick_size\":\"");
    out.extend_from_slice(plain(grid.unit).as_bytes());
    out.extend_from_slice(if market.neg_risk { b"\",\"neg_risk\":true" } else { b"\",\"neg_risk\":false" });
    out.extend_from_slice(b",\"last_trade_price\":\"");
    if let Some(last) = book.last {
        out.extend_from_slice(at_least_three(grid.price(last)).as_bytes());
    }
    out.extend_from_slice(b"\"}");
    hash::stamp(out, hash_at);
}

fn write_levels(levels: &[Level], price: impl Fn(u16) -> u16, grid: &Grid, out: &mut Vec<u8>) {
    let mut at = out.len();
    out.resize(at + levels.len() * LEVEL_BYTES_MAX, 0);
    for level in levels {
        at = grid.heads[usize::from(price(level.price))].put(out, at);
        at = level.tail.put(out, at);
    }
    out.truncate(at - usize::from(!levels.is_empty())); // the last comma
}

/// What the two snippets of a level may take.
const LEVEL_BYTES_MAX: usize = 48;

/// `0.940`, `0.0025`: a last trade's price has three decimals or more.
fn at_least_three(units: u32) -> String {
    let four = format!("{}.{:04}", units / 10_000, units % 10_000);
    four.strip_suffix('0').map_or(four.clone(), str::to_owned)
}

/// A row of `/markets`.
fn push_market(roll: &Roll, market: &Market, now_ms: i64, json: &mut Json) {
    let open = roll.is_open(market.number);
    let names = &market.names;
    json.open('{').raw("enable_order_book", open).raw("active", true).raw("closed", !open);
    json.raw("archived", super::gamma::is_archived(roll, market)).raw("accepting_orders", open);
    json.text("accepting_order_timestamp", &iso(market.born_ms)).raw("minimum_order_size", 5);
    json.raw("minimum_tick_size", plain(market.grid().unit)).text("condition_id", &names.condition);
    json.text("question_id", &names.question_id).text("question", &super::gamma::question(market.number));
    json.text("description", super::gamma::DESCRIPTION).text("market_slug", &names.slug);
    json.text("end_date_iso", &iso(roll.end_ms(market)))
        .raw("game_start_time", "null")
        .raw("seconds_delay", 0);
    json.text("fpmm", "")
        .raw("maker_base_fee", 0)
        .raw("taker_base_fee", 0)
        .raw("notifications_enabled", true);
    json.raw("neg_risk", market.neg_risk).text("neg_risk_market_id", &super::gamma::neg_risk_id(market));
    json.text("neg_risk_request_id", "").text("icon", super::gamma::IMAGE).text("image", super::gamma::IMAGE);
    json.key("rewards").value(r#"{"rates":null,"min_size":0,"max_spread":0}"#).raw("is_50_50_outcome", false);
    json.key("tokens").open('[');
    let yes =
        market.book(now_ms, |book, _| market.grid().price(book.last.unwrap_or(market.grid().steps / 2)));
    let winner = market.figure(1, 2) as usize;
    for (slot, outcome) in ["Yes", "No"].into_iter().enumerate() {
        let price = match (open, slot) {
            (true, 0) => yes,
            (true, _) => 10_000 - yes,
            (false, slot) => u32::from(slot == winner) * 10_000,
        };
        json.open('{')
            .text("token_id", &names.tokens[slot])
            .text("outcome", outcome)
            .raw("price", plain(price));
        json.raw("winner", !open && slot == winner).close('}');
    }
    json.close(']').key("tags").value(r#"["Simulated","All"]"#).close('}');
}
