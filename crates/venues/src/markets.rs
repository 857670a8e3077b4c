//! What is traded on the exchanges that have candles: their listings over REST, one request each.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::wire::Members;
use crate::{ReadError, Request, wire};

/// An exchange that lists its pairs.
#[derive(Debug)]
pub struct MarketVenue {
    /// Its name.
    pub id: &'static str,
    path: &'static str,
    family: &'static str,
    cost: u32,
    read: fn(&[u8]) -> Result<Vec<Market>, ReadError>,
}

/// One pair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Market {
    /// `BASE/QUOTE`.
    pub symbol: String,
    /// The venue's own name.
    pub id: String,
    /// Whether it is traded now.
    pub active: bool,
}

/// Every exchange that lists its pairs.
pub static MARKET_VENUES: &[&MarketVenue] = &[
    &MarketVenue { id: "binance", path: "/api/v3/exchangeInfo", family: "weight", cost: 20, read: binance },
    &MarketVenue { id: "coinbase", path: "/products", family: "public", cost: 1, read: coinbase },
    &MarketVenue { id: "kraken", path: "/0/public/AssetPairs", family: "public", cost: 1, read: kraken },
    &MarketVenue {
        id: "okx",
        path: "/api/v5/public/instruments?instType=SPOT",
        family: "instruments",
        cost: 1,
        read: okx,
    },
    &MarketVenue {
        id: "bybit",
        path: "/v5/market/instruments-info?category=spot",
        family: "ip",
        cost: 1,
        read: bybit,
    },
];

/// The exchange of that name, if it lists its pairs.
pub fn markets_of(id: &str) -> Option<&'static MarketVenue> {
    MARKET_VENUES.iter().find(|venue| venue.id == id).copied()
}

impl MarketVenue {
    /// What to send.
    pub fn request(&self, base: &str) -> Request {
        Request::get(format!("{base}{}", self.path), self.family).costing(self.cost)
    }

    /// The pairs, by symbol.
    pub fn read(&self, body: &[u8]) -> Result<Vec<Market>, ReadError> {
        let mut markets = (self.read)(body)?;
        markets.sort();
        Ok(markets)
    }
}

fn binance(body: &[u8]) -> Result<Vec<Market>, ReadError> {
    let answer = wire::object(body)?;
    let Some(rows) = answer.some("symbols") else {
        return Err(wire::unexpected(&answer, "it has no symbols"));
    };
    list(rows, |row| {
        market(row, "symbol", "baseAsset", "quoteAsset", |row| Some(row.text("status")? == "TRADING"))
    })
}

fn coinbase(body: &[u8]) -> Result<Vec<Market>, ReadError> {
    let rows: &RawValue = serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
    if rows.get().starts_with('{') {
        return Err(wire::unexpected(&wire::object(body)?, "it is an object, and not products"));
    }
    list(rows, |row| {
        market(row, "id", "base_currency", "quote_currency", |row| {
            Some(row.text("status")? == "online" && !row.flag("trading_disabled").unwrap_or(false))
        })
    })
}

/// Its old names for two currencies are written as everybody writes them.
fn kraken(body: &[u8]) -> Result<Vec<Market>, ReadError> {
    #[derive(serde::Deserialize)]
    struct Answer<'a> {
        error: Vec<String>,
        #[serde(borrow)]
        result: Option<std::collections::BTreeMap<String, Listed<'a>>>,
    }
    #[derive(serde::Deserialize)]
    struct Listed<'a> {
        #[serde(borrow)]
        wsname: Option<std::borrow::Cow<'a, str>>,
        #[serde(borrow)]
        status: Option<std::borrow::Cow<'a, str>>,
    }
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|error| match error.is_data() {
        true => ReadError::Shape(error.to_string()),
        false => ReadError::not_json(body, error),
    })?;
    if let Some(said) = answer.error.first() {
        return Err(ReadError::Said(wire::shortened(said)));
    }
    let pairs = answer.result.ok_or_else(|| ReadError::Shape("it has no result".to_owned()))?;
    let read = |(id, pair): (String, Listed<'_>)| {
        let wsname = pair.wsname?;
        let (base, quote) = wsname.split_once('/')?;
        let usual = |name: &str| match name {
            "XBT" => "BTC".to_owned(),
            "XDG" => "DOGE".to_owned(),
            other => other.to_owned(),
        };
        let symbol = format!("{}/{}", usual(base), usual(quote));
        Some(Market { symbol, id, active: pair.status.is_none_or(|status| status == "online") })
    };
    Ok(pairs.into_iter().filter_map(read).collect())
}

fn okx(body: &[u8]) -> Result<Vec<Market>, ReadError> {
    let answer = wire::object(body)?;
    if answer.text("code").as_deref() != Some("0") {
        let said = answer.text("msg").unwrap_or_default();
        return Err(ReadError::Said(wire::shortened(&said)));
    }
    let rows = answer.some("data").ok_or_else(|| ReadError::Shape("it has no data".to_owned()))?;
    list(rows, |row| market(row, "instId", "baseCcy", "quoteCcy", |row| Some(row.text("state")? == "live")))
}

fn bybit(body: &[u8]) -> Result<Vec<Market>, ReadError> {
    let answer = wire::object(body)?;
    if answer.text("retCode").as_deref() != Some("0") {
        let said = answer.text("retMsg").unwrap_or_default();
        return Err(ReadError::Said(wire::shortened(&said)));
    }
    let result = answer.some("result").ok_or_else(|| ReadError::Shape("it has no result".to_owned()))?;
    let result = wire::object(result.get().as_bytes())?;
    let rows = result.some("list").ok_or_else(|| ReadError::Shape("the result has no list".to_owned()))?;
    list(rows, |row| {
        market(row, "symbol", "baseCoin", "quoteCoin", |row| Some(row.text("status")? == "Trading"))
    })
}

/// Rows that are of another kind are left out; if all are, the format has changed.
fn list(rows: &RawValue, read: impl Fn(&Members<'_>) -> Option<Market>) -> Result<Vec<Market>, ReadError> {
    let rows = wire::array(rows, "the listing")?;
    let one = |row: &&RawValue| read(&wire::object(row.get().as_bytes()).ok()?);
    let markets: Vec<Market> = rows.iter().filter_map(one).collect();
    if markets.is_empty() && !rows.is_empty() {
        return Err(ReadError::Shape("no row of the listing can be read".to_owned()));
    }
    Ok(markets)
}

fn market(
    row: &Members<'_>,
    id: &str,
    base: &str,
    quote: &str,
    is_active: impl Fn(&Members<'_>) -> Option<bool>,
) -> Option<Market> {
    let (id, base, quote) = (row.required(id).ok()?, row.required(base).ok()?, row.required(quote).ok()?);
    let symbol = format!("{base}/{quote}");
    Some(Market { symbol, id: id.into_owned(), active: is_active(row).unwrap_or(false) })
}
