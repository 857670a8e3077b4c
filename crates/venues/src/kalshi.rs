//! Kalshi: order books for one market or up to 100 a request, and a listing by cursor.
//! Docs: <https://docs.kalshi.com>, as of 2026-10. Prices are strings with four decimals, counts with two; a book has no
//! time and no hash.
//!
//! Worth knowing: a book is two ladders of bids, one for Yes and one for No, best last; an ask for Yes is 1 minus a bid
//! for No. Without `mve_filter=exclude` the listing drowns in combinations. Until March 2026 books stood under
//! `orderbook` in cents; a reader of the one form sees the other as an empty book, so here that is an error.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Book, Decimal, Instrument, Level};
use serde_json::value::RawValue;

use crate::book_page::{BookFacts, Matcher};
use crate::discover::{Row, Trail};
use crate::record::{self, Fields};
use crate::request::encoded;
use crate::wire::{self, Members};
use crate::{
    Ability, BookForm, BookPage, Discovers, Endpoint, Endpoints, InstrumentPage, Limit, Opened, Polls,
    ReadError, Reading, Request, Start, VenueSpec, Walk, status,
};

/// What a request costs of the budget of 200 a second.
const COST: u32 = 10;
const BOOKS_MAX: usize = 100;
const PAGE: usize = 1_000;

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "kalshi",
    name: "Kalshi",
    about: "event contracts; order books, 100 a request",
    docs: "https://docs.kalshi.com",
    endpoints: &[Endpoint { name: "api", url: "https://external-api.kalshi.com/trade-api/v2" }],
    // The lowest tier's budget. Without a key the limit is not published; this is the most it can be.
    limits: &[Limit {
        family: "read",
        parent: None,
        budget: 200,
        window: Duration::from_secs(1),
        cost: COST,
    }],
    start: Start { inflight: 2, spacing: Duration::from_millis(50) },
    abilities: &[Ability::Discovers, Ability::PollsOne, Ability::PollsMany(BOOKS_MAX)],
    open: |endpoints| {
        let kalshi = Arc::new(Kalshi { endpoints: endpoints.clone() });
        Opened { discovers: Some(kalshi.clone()), polls: Some(kalshi) }
    },
    read_status,
};

struct Kalshi {
    endpoints: Endpoints,
}

impl Discovers for Kalshi {
    fn walk(&self) -> Box<dyn Walk> {
        let base = self.endpoints.url("api").to_owned();
        Box::new(MarketWalk { base, cursor: String::new(), done: false, trail: Trail::default() })
    }
}

impl Polls for Kalshi {
    fn books_max(&self) -> usize {
        BOOKS_MAX
    }

    fn books_request(&self, poll_keys: &[&str]) -> Request {
        let base = self.endpoints.url("api");
        if let [ticker] = poll_keys {
            return Request::get(format!("{base}/markets/{}/orderbook", encoded(ticker)), "read")
                .costing(COST);
        }
        let tickers: Vec<String> = poll_keys.iter().map(|key| format!("tickers={}", encoded(key))).collect();
        // What stands in a batch may be billed one by one; the documentation says so of batches in general.
        let url = format!("{base}/markets/orderbooks?{}", tickers.join("&"));
        Request::get(url, "read").costing(COST)
    }

    /// One: `{"orderbook_fp":{"yes_dollars":[["0.4100","120.00"],…],"no_dollars":[…]}}`. Many:
    /// `{"orderbooks":[{"ticker":"…","orderbook_fp":{…}},…]}`.
    fn read_books(&self, poll_keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
        page.clear();
        let answer = wire::object(body)?;
        if let Some(books) = answer.get("orderbooks") {
            let mut matcher = Matcher::new(poll_keys);
            for raw in wire::array(books, "orderbooks")? {
                place_one_of_many(raw, poll_keys, &mut matcher, page);
            }
        } else if let Some(book) = answer.get("orderbook_fp") {
            let raw: &RawValue = serde_json::from_slice(body).map_err(|e| ReadError::not_json(body, e))?;
            place(0, poll_keys[0], book, raw, page);
        } else if answer.get("orderbook").is_some() {
            return Err(ReadError::Shape("a book under orderbook, as until March 2026, in cents".to_owned()));
        } else {
            return Err(wire::unexpected(&answer, "there is no orderbook_fp"));
        }
        page.close(poll_keys.len());
        Ok(())
    }
}

fn place_one_of_many(raw: &RawValue, keys: &[&str], matcher: &mut Matcher<'_>, page: &mut BookPage) {
    let members: Members<'_> = match serde_json::from_str(raw.get()) {
        Ok(members) => members,
        Err(error) => return page.refuse(None, error.to_string(), raw.get()),
    };
    let ticker = match members.required("ticker") {
        Ok(ticker) => ticker,
        Err(reason) => return page.refuse(None, reason, raw.get()),
    };
    match (matcher.find(&ticker), members.get("orderbook_fp")) {
        (None, _) => page.refuse(None, format!("{} was not asked for", wire::shortened(&ticker)), raw.get()),
        (Some(asked), None) => page.refuse(Some(asked), "orderbook_fp is missing".to_owned(), raw.get()),
        (Some(asked), Some(book)) => place(asked, keys[asked], book, raw, page),
    }
}

fn place(asked: usize, ticker: &str, book: &RawValue, raw: &RawValue, page: &mut BookPage) {
    let (book, facts) = match read_book(book) {
        Ok(read) => read,
        Err(reason) => return page.refuse(Some(asked), reason, raw.get()),
    };
    let start = page.bytes.len();
    match page.form {
        BookForm::AsSent => wire::push_on_one_line(raw.get().as_bytes(), &mut page.bytes),
        BookForm::Normalised => {
            let ticker = serde_json::value::to_raw_value(ticker).expect("text always serialises");
            let fields = Fields {
                market: Some(&ticker),
                instrument: Some(&ticker),
                raw: (!facts.flags.is_empty()).then_some(raw),
                ..Fields::default()
            };
            record::write(&mut page.bytes, &book, &facts, &fields);
        }
    }
    page.add(asked, start, facts);
}

fn read_book(raw: &RawValue) -> Result<(Book, BookFacts), String> {
    let members: Members<'_> = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    let bids = ladder(members.get("yes_dollars"), "yes_dollars")?;
    let mut asks = ladder(members.get("no_dollars"), "no_dollars")?;
    for level in &mut asks {
        level.price = level
            .price
            .one_minus()
            .ok_or_else(|| format!("price {} cannot be mirrored", wire::shortened(level.price.as_str())))?;
    }
    let one: Decimal = "1".parse().expect("a fixed number");
    let (book, flags) = Book::arrange(bids, asks, Some(&one));
    Ok((book, BookFacts { server_time: None, flags, hash_ok: None }))
}

/// `[["0.4100","120.00"],…]`; an absent side is not an empty one, but null is: so it was once written.
fn ladder(raw: Option<&RawValue>, key: &str) -> Result<Vec<Level>, String> {
    let raw = raw.ok_or_else(|| format!("{key} is missing"))?;
    let wire: Option<Vec<[&RawValue; 2]>> =
        serde_json::from_str(raw.get()).map_err(|error| format!("{key}: {error}"))?;
    let level = |[price, size]: [&RawValue; 2]| {
        Ok(Level { price: wire::decimal(Some(price), "price")?, size: wire::decimal(Some(size), "size")? })
    };
    wire.unwrap_or_default().into_iter().map(level).collect()
}

struct MarketWalk {
    base: String,
    cursor: String,
    done: bool,
    trail: Trail,
}

impl Walk for MarketWalk {
    fn next_request(&self) -> Option<Request> {
        let mut url = format!("{}/markets?status=open&mve_filter=exclude&limit={PAGE}", self.base);
        if !self.cursor.is_empty() {
            url.push_str("&cursor=");
            url.push_str(&encoded(&self.cursor));
        }
        (!self.done).then(|| Request::get(url, "read").costing(COST))
    }

    /// `{"markets":[{"ticker":"…","status":"active",…}],"cursor":"…"}`; an empty cursor is the end.
    fn read(&mut self, body: &[u8]) -> Result<InstrumentPage, ReadError> {
        let answer = wire::object(body)?;
        let Some(markets) = answer.get("markets") else {
            return Err(wire::unexpected(&answer, "there is no markets"));
        };
        let rows = wire::array(markets, "markets")?;
        let cursor = answer.text("cursor").unwrap_or_default();
        if !cursor.is_empty() {
            self.trail.follow(&cursor)?;
        }
        let mut page = InstrumentPage::default();
        for raw in rows {
            match serde_json::from_str::<Members<'_>>(raw.get()) {
                Ok(market) => {
                    let ticker = market.text("ticker").unwrap_or_default();
                    self.trail.place(&mut page, &ticker, read_market(&market));
                }
                Err(error) => self.trail.place(&mut page, "", Err(error.to_string())),
            }
        }
        self.done = cursor.is_empty();
        self.cursor = cursor.into_owned();
        Ok(page)
    }
}

fn read_market(market: &Members<'_>) -> Result<Row, String> {
    // Asked for as `open`, answered as `active`.
    let open = matches!(market.text("status").as_deref(), Some("active" | "open"));
    if !open || market.some("mve_collection_ticker").is_some() {
        return Ok(Row::NotTradable);
    }
    let ticker = market.required("ticker")?;
    Ok(Row::Tradable(vec![Instrument {
        venue: SPEC.venue(),
        poll_key: ticker.clone().into_owned(),
        symbol: ticker.into_owned(),
        market_id: market.required("event_ticker")?.into_owned(),
        slug: None,
        outcome: Some("Yes".to_owned()),
        expiry: market.text("close_time").and_then(|text| wire::time(&text)),
        tick_size: finest_step(market),
        min_order_size: None,
    }]))
}

/// The least of the steps in `price_ranges`: a market may have a finer grid near its ends.
fn finest_step(market: &Members<'_>) -> Option<Decimal> {
    let ranges: Vec<Members<'_>> = serde_json::from_str(market.some("price_ranges")?.get()).ok()?;
    ranges.iter().filter_map(|range| range.decimal("step")).min()
}

fn read_status(_family: &str, status: u16, body: &[u8]) -> Reading {
    status::read(status, body, |said| {
        let unknown = said.contains("not found") || said.contains("not_found");
        (status == 404 && unknown).then_some(Reading::UnknownMarket)
    })
}
