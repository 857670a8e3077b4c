//! Limitless: the order book of one market a request, and a listing in pages of 25.
//! Docs: <https://api.limitless.exchange/api-v1>, as of 2026-09. Prices are numbers from 0 to 1, sizes whole numbers in
//! millionths; a book has no time and no hash.
//!
//! Worth knowing: levels come best first; the book is that of the Yes token; markets priced by a formula (`amm`) have no
//! book and answer 400; past its end the listing has no rows and says that there are 0 markets in all.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Book, Decimal, Instrument, UnixMs};
use serde_json::value::RawValue;

use crate::book_page::BookFacts;
use crate::discover::{Row, Trail};
use crate::record::{self, Fields};
use crate::request::encoded;
use crate::wire::{self, Members};
use crate::{
    Ability, BookForm, BookPage, Discovers, Endpoint, Endpoints, InstrumentPage, Opened, Polls, ReadError,
    Reading, Request, Start, VenueSpec, Walk, status,
};

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "limitless",
    name: "Limitless",
    about: "prediction markets on Base; one order book a request",
    docs: "https://docs.limitless.exchange",
    endpoints: &[Endpoint { name: "api", url: "https://api.limitless.exchange" }],
    // There are limits and the venue does not publish them. Earlier documentation said what `start` says.
    limits: &[],
    start: Start { inflight: 2, spacing: Duration::from_millis(300) },
    abilities: &[Ability::Discovers, Ability::PollsOne],
    open: |endpoints| {
        let limitless = Arc::new(Limitless { endpoints: endpoints.clone() });
        Opened { discovers: Some(limitless.clone()), polls: Some(limitless) }
    },
    read_status,
};

/// More than this is refused, or answered with nothing.
const PAGE: usize = 25;
/// Sizes are in units of 10⁻⁶.
const SIZE_SHIFT: i32 = -6;
/// The listing moves while it is walked, so a page may hold nothing new. So many in a row, and the venue is repeating
/// itself.
const PAGES_WITHOUT_NEWS: usize = 5;

struct Limitless {
    endpoints: Endpoints,
}

impl Discovers for Limitless {
    fn walk(&self) -> Box<dyn Walk> {
        let base = self.endpoints.url("api").to_owned();
        Box::new(ActiveWalk { base, page: 1, done: false, without_news: 0, trail: Trail::default() })
    }
}

impl Polls for Limitless {
    fn books_max(&self) -> usize {
        1
    }

    fn books_request(&self, poll_keys: &[&str]) -> Request {
        let base = self.endpoints.url("api");
        Request::get(format!("{base}/markets/{}/orderbook", encoded(poll_keys[0])), "orderbook")
    }

    /// `{"bids":[{"price":0.07,"size":9428028001,"side":"BUY"}],"asks":[…],"tokenId":"5615…","midpoint":0.0725,
    /// "maxSpread":"0.035","minSize":"100000000","lastTradePrice":0.07,…}`
    fn read_books(&self, poll_keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
        page.clear();
        let members = wire::object(body)?;
        if members.get("bids").is_none() && members.get("asks").is_none() {
            return Err(wire::unexpected(&members, "there is neither bids nor asks"));
        }
        let raw: &RawValue = serde_json::from_slice(body).map_err(|e| ReadError::not_json(body, e))?;
        match read_book(&members) {
            Ok((book, facts)) => {
                let start = page.bytes.len();
                match page.form {
                    BookForm::AsSent => wire::push_on_one_line(raw.get().as_bytes(), &mut page.bytes),
                    BookForm::Normalised => {
                        write(poll_keys[0], &members, raw, &book, &facts, &mut page.bytes);
                    }
                }
                page.add(0, start, facts);
            }
            Err(reason) => page.refuse(Some(0), reason, raw.get()),
        }
        page.close(1);
        Ok(())
    }
}

fn read_book(members: &Members<'_>) -> Result<(Book, BookFacts), String> {
    let known = &["price", "size", "side"];
    let (mut bids, _) = wire::levels(members.get("bids"), "bids", known)?;
    let (mut asks, _) = wire::levels(members.get("asks"), "asks", known)?;
    let one: Decimal = "1".parse().expect("a fixed number");
    for level in bids.iter_mut().chain(&mut asks) {
        // An older form of this interface had prices in percent. Taken for the new one they would be nonsense.
        if level.price > one {
            return Err(format!(
                "price {} is above 1: another format",
                wire::shortened(level.price.as_str())
            ));
        }
        level.size = level.size.shifted(SIZE_SHIFT);
    }
    let (book, flags) = Book::arrange(bids, asks, Some(&one));
    Ok((book, BookFacts { server_time: None, flags, hash_ok: None }))
}

fn write(
    slug: &str,
    members: &Members<'_>,
    raw: &RawValue,
    book: &Book,
    facts: &BookFacts,
    out: &mut Vec<u8>,
) {
    let slug = serde_json::value::to_raw_value(slug).expect("text always serialises");
    let fields = Fields {
        market: Some(&slug),
        instrument: members.some("tokenId"),
        last_trade_price: members.some("lastTradePrice"),
        extra: members.others(&["bids", "asks", "tokenId", "lastTradePrice"]).collect(),
        raw: (!facts.flags.is_empty()).then_some(raw),
        ..Fields::default()
    };
    record::write(out, book, facts, &fields);
}

struct ActiveWalk {
    base: String,
    page: u32,
    done: bool,
    without_news: usize,
    trail: Trail,
}

impl Walk for ActiveWalk {
    fn next_request(&self) -> Option<Request> {
        let url = format!("{}/markets/active?page={}&limit={PAGE}", self.base, self.page);
        (!self.done).then(|| Request::get(url, "listing"))
    }

    /// `{"data":[market, …],"totalMarketsCount":339}`. The count is not used: past the end it is 0.
    fn read(&mut self, body: &[u8]) -> Result<InstrumentPage, ReadError> {
        let answer = wire::object(body)?;
        let Some(data) = answer.get("data") else {
            return Err(wire::unexpected(&answer, "there is no data"));
        };
        let rows = wire::array(data, "data")?;
        let mut page = InstrumentPage::default();
        for raw in &rows {
            self.read_row(raw, &mut page);
        }
        let repeats = !rows.is_empty() && page.repeated == page.rows;
        self.without_news = if repeats { self.without_news + 1 } else { 0 };
        if self.without_news >= PAGES_WITHOUT_NEWS {
            return Err(ReadError::Stuck(format!("{PAGES_WITHOUT_NEWS} pages held nothing new")));
        }
        self.done = rows.is_empty();
        self.page += 1;
        Ok(page)
    }
}

impl ActiveWalk {
    /// A market, or a group with the markets in it.
    fn read_row(&mut self, raw: &RawValue, page: &mut InstrumentPage) {
        let market: Members<'_> = match serde_json::from_str(raw.get()) {
            Ok(market) => market,
            Err(error) => return self.trail.place(page, "", Err(error.to_string())),
        };
        let slug = market.text("slug").unwrap_or_default();
        match market.some("markets").map(|inner| wire::array(inner, "markets")) {
            None => self.trail.place(page, &slug, read_market(&market)),
            Some(Err(error)) => self.trail.place(page, &slug, Err(error.to_string())),
            Some(Ok(inner)) => {
                for raw in inner {
                    let row = serde_json::from_str(raw.get())
                        .map_err(|error| error.to_string())
                        .and_then(|inner| read_market(&inner));
                    self.trail.place(page, &slug, row);
                }
            }
        }
    }
}

fn read_market(market: &Members<'_>) -> Result<Row, String> {
    let is = |key| market.flag(key) == Some(true);
    let trade_type = market.text("tradeType").unwrap_or_default();
    // A market within a group may leave out its kind; only those with a book have tokens.
    let has_book = trade_type == "clob" || (trade_type.is_empty() && market.some("tokens").is_some());
    if !has_book || is("expired") || is("hidden") || market.text("status").as_deref() != Some("FUNDED") {
        return Ok(Row::NotTradable);
    }
    let slug = market.required("slug")?;
    let expiry = market.text("expirationTimestamp").and_then(|text| wire::digits(&text));
    Ok(Row::Tradable(vec![Instrument {
        venue: SPEC.venue(),
        poll_key: slug.clone().into_owned(),
        symbol: slug.clone().into_owned(),
        market_id: market.required("conditionId")?.into_owned(),
        slug: Some(slug.into_owned()),
        outcome: Some("Yes".to_owned()),
        expiry: expiry.and_then(|ms| UnixMs::new(ms).ok()),
        tick_size: None,
        min_order_size: None,
    }]))
}

/// A request for a book that is answered with 400 names a market without one.
fn read_status(family: &str, status: u16, body: &[u8]) -> Reading {
    status::read(status, body, |said| match status {
        404 if said.contains("not found") => Some(Reading::UnknownMarket),
        400 if family == "orderbook" => Some(Reading::NoBook),
        _ => None,
    })
}
