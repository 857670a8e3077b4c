//! Polymarket: order books for up to 500 tokens a request from the CLOB, markets from Gamma.
//! Docs: <https://docs.polymarket.com>, as of 2026-10. Prices and sizes are decimal strings; times are milliseconds.
//!
//! * `books`, `scan`: the answers of `POST /books` and `GET /book`; `hash`: the hash they carry
//! * `gamma`: the listing of markets; `fuzz`: the scanner held against serde_json; `values`: what it is measured against
//!
//! Worth knowing: levels come best last; tokens without a book are left out of an answer without a word; the two tokens
//! of a market are one book seen from two sides; throttling shows as delay before it shows as 429.

mod books;
pub mod events;
mod fuzz;
mod gamma;
mod hash;
mod scan;
mod values;

use std::sync::Arc;
use std::time::Duration;

pub use fuzz::{FuzzOutcome, fuzz_scanner, sample_books};
pub(crate) use hash::hash_around;
pub use hash::{BookHash, HashInput, book_hash};
pub use scan::{FixedBook, FixedLevel, scan_books};

use crate::{
    Ability, BookPage, Discovers, Endpoint, Endpoints, Limit, Opened, Polls, ReadError, Reading, Request,
    Start, VenueSpec, Walk, request::encoded, status,
};

/// One token more and the whole request is refused.
const BOOKS_MAX: usize = 500;

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "polymarket",
    name: "Polymarket",
    about: "prediction markets; order books of outcome tokens, 500 a request",
    docs: "https://docs.polymarket.com",
    endpoints: &[
        Endpoint { name: "clob", url: "https://clob.polymarket.com" },
        Endpoint { name: "gamma", url: "https://gamma-api.polymarket.com" },
    ],
    limits: &[
        Limit::requests("all", None, 15_000, 10),
        Limit::requests("clob", Some("all"), 9_000, 10),
        Limit::requests("books", Some("clob"), 500, 10),
        Limit::requests("book", Some("clob"), 1_500, 10),
        Limit::requests("gamma", Some("all"), 4_000, 10),
        Limit::requests("listings", Some("gamma"), 900, 10),
        Limit::requests("events", Some("listings"), 500, 10),
        Limit::requests("markets", Some("listings"), 300, 10),
        // Our own: what a backfill of all events takes of them at most.
        Limit::requests("backfill", Some("events"), 40, 1),
    ],
    start: Start { inflight: 4, spacing: Duration::ZERO },
    abilities: &[Ability::Discovers, Ability::PollsOne, Ability::PollsMany(BOOKS_MAX)],
    open: |endpoints| {
        let polymarket = Arc::new(Polymarket { endpoints: endpoints.clone() });
        Opened { discovers: Some(polymarket.clone()), polls: Some(polymarket) }
    },
    read_status,
};

struct Polymarket {
    endpoints: Endpoints,
}

impl Discovers for Polymarket {
    fn walk(&self) -> Box<dyn Walk> {
        Box::new(gamma::MarketWalk::new(self.endpoints.url("gamma")))
    }
}

impl Polls for Polymarket {
    fn books_max(&self) -> usize {
        BOOKS_MAX
    }

    fn books_request(&self, poll_keys: &[&str]) -> Request {
        let clob = self.endpoints.url("clob");
        if let [token] = poll_keys {
            return Request::get(format!("{clob}/book?token_id={}", encoded(token)), "book");
        }
        let mut body = Vec::with_capacity(96 * poll_keys.len());
        for (at, token) in poll_keys.iter().enumerate() {
            body.extend_from_slice(if at == 0 { b"[{\"token_id\":" } else { b",{\"token_id\":" });
            body.extend_from_slice(serde_json::to_string(token).expect("text always serialises").as_bytes());
            body.push(b'}');
        }
        body.push(b']');
        Request::post_json(format!("{clob}/books"), "books", body)
    }

    fn read_books(&self, poll_keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
        match page.through_values {
            false => books::read(poll_keys, body, page),
            true => values::read(poll_keys, body, page),
        }
    }
}

/// The four ways in which a token can be wrong (unknown, malformed, closed, 0) have one answer.
fn read_status(_family: &str, status: u16, body: &[u8]) -> Reading {
    status::read(status, body, |said| {
        (status == 404 && said.contains("No orderbook exists")).then_some(Reading::UnknownMarket)
    })
}
