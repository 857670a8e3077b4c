//! The normalised record of a book, the payload of channel `orderbook`: the same keys for every venue, always all of
//! them, in this order.
//!
//! ```text
//! {"market":"0x1f…","instrument":"7777…","timestamp_ms":1790000000000,
//!  "bids":[["0.47","120"],["0.46","1000"]],"asks":[["0.49","80.5"]],
//!  "min_order_size":"5","tick_size":"0.01","neg_risk":false,"last_trade_price":"0.480",
//!  "hash":"cb5c…","hash_ok":true,"flags":[]}
//! ```
//!
//! * `bids`, `asks`: `[price, size]`, best first, as text, digits as the venue wrote them. Limitless sends sizes in
//!   millionths; here they are whole units. Kalshi sends bids only; an ask is 1 minus a bid of the other side.
//! * `null` stands where a venue does not say.
//! * `hash_ok`: whether the venue's hash agrees with its book; `null` where there is none or a part of it is missing.
//! * `flags`: what is odd; see [`catchment_model::BookFlags`].
//! * `extra`, only if there is something: members of the venue's book that have no place above, as sent.
//! * `raw`, only if there are flags, the hash does not agree or a level had more members than a price and a size: the
//!   venue's own bytes, so that nothing is lost to the arranging.

use catchment_model::{Book, Level, UnixMs};
use serde_json::value::RawValue;

use crate::book_page::BookFacts;
use crate::wire::push_on_one_line;

/// What a record says besides its levels. Values are tokens of JSON, as sent.
#[derive(Default)]
pub(crate) struct Fields<'a> {
    pub(crate) market: Option<&'a RawValue>,
    pub(crate) instrument: Option<&'a RawValue>,
    pub(crate) min_order_size: Option<&'a RawValue>,
    pub(crate) tick_size: Option<&'a RawValue>,
    pub(crate) neg_risk: Option<bool>,
    pub(crate) last_trade_price: Option<&'a RawValue>,
    pub(crate) hash: Option<&'a RawValue>,
    pub(crate) extra: Vec<(&'a str, &'a RawValue)>,
    pub(crate) raw: Option<&'a RawValue>,
}

/// Appends the record.
pub(crate) fn write(out: &mut Vec<u8>, book: &Book, facts: &BookFacts, fields: &Fields<'_>) {
    put(out, "{\"market\":", Shown::Text(fields.market));
    put(out, ",\"instrument\":", Shown::Text(fields.instrument));
    put(out, ",\"timestamp_ms\":", Shown::Number(facts.server_time.map(UnixMs::get)));
    put_side(out, ",\"bids\":[", &book.bids);
    put_side(out, "],\"asks\":[", &book.asks);
    put(out, "],\"min_order_size\":", Shown::Text(fields.min_order_size));
    put(out, ",\"tick_size\":", Shown::Text(fields.tick_size));
    put(out, ",\"neg_risk\":", Shown::Flag(fields.neg_risk));
    put(out, ",\"last_trade_price\":", Shown::Text(fields.last_trade_price));
    put(out, ",\"hash\":", Shown::Text(fields.hash));
    put(out, ",\"hash_ok\":", Shown::Flag(facts.hash_ok));
    out.extend_from_slice(b",\"flags\":[");
    for (at, name) in facts.flags.names().enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.push(b'"');
    }
    out.push(b']');
    for (at, (key, value)) in fields.extra.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b",\"extra\":{" } else { b"," });
        out.extend_from_slice(serde_json::to_string(key).expect("text always serialises").as_bytes());
        out.push(b':');
        push_on_one_line(value.get().as_bytes(), out);
    }
    if !fields.extra.is_empty() {
        out.push(b'}');
    }
    if let Some(raw) = fields.raw {
        out.extend_from_slice(b",\"raw\":");
        push_on_one_line(raw.get().as_bytes(), out);
    }
    out.push(b'}');
}

enum Shown<'a> {
    Text(Option<&'a RawValue>),
    Flag(Option<bool>),
    Number(Option<i64>),
}

fn put(out: &mut Vec<u8>, key: &str, value: Shown<'_>) {
    out.extend_from_slice(key.as_bytes());
    match value {
        // A string stays as it was spelled, and a number gets quotes: amounts are text.
        Shown::Text(Some(token)) => match token.get().as_bytes() {
            string @ [b'"', ..] => out.extend_from_slice(string),
            number @ [b'-' | b'0'..=b'9', ..] => {
                out.push(b'"');
                out.extend_from_slice(number);
                out.push(b'"');
            }
            other => push_on_one_line(other, out),
        },
        Shown::Flag(Some(flag)) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        Shown::Number(Some(number)) => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        Shown::Text(None) | Shown::Flag(None) | Shown::Number(None) => out.extend_from_slice(b"null"),
    }
}

fn put_side(out: &mut Vec<u8>, opening: &str, side: &[Level]) {
    out.extend_from_slice(opening.as_bytes());
    for (at, level) in side.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"[\"" } else { b",[\"" });
        out.extend_from_slice(level.price.as_str().as_bytes());
        out.extend_from_slice(b"\",\"");
        out.extend_from_slice(level.size.as_str().as_bytes());
        out.extend_from_slice(b"\"]");
    }
}
