//! Gamma's listing of markets, by keyset: `GET /markets/keyset?closed=false&limit=100&after_cursor=…`.
//!
//! ```text
//! {"markets":[{"conditionId":"0x…","slug":"…","outcomes":"[\"Yes\", \"No\"]","clobTokenIds":"[\"71…\", \"28…\"]",
//!   "enableOrderBook":true,"acceptingOrders":true,"closed":false,"orderPriceMinTickSize":0.01,"orderMinSize":5,
//!   "endDate":"2026-12-31T00:00:00Z",…}],"next_cursor":"…"}
//! ```
//!
//! A page is at most 100 markets whatever is asked for, so a short page is not the end; the end is a page without
//! `next_cursor`. Under another name than `after_cursor` a cursor is ignored and the first page comes for ever.

use catchment_model::Instrument;
use serde_json::value::RawValue;

use super::SPEC;
use crate::discover::{Row, Trail};
use crate::request::encoded;
use crate::wire::{self, Members};
use crate::{InstrumentPage, ReadError, Request, Walk};

const PAGE: usize = 100;

pub(super) struct MarketWalk {
    base: String,
    cursor: Option<String>,
    done: bool,
    trail: Trail,
}

impl MarketWalk {
    pub(super) fn new(base: &str) -> Self {
        Self { base: base.to_owned(), cursor: None, done: false, trail: Trail::default() }
    }
}

impl Walk for MarketWalk {
    fn next_request(&self) -> Option<Request> {
        let mut url = format!("{}/markets/keyset?closed=false&limit={PAGE}", self.base);
        if let Some(cursor) = &self.cursor {
            url.push_str("&after_cursor=");
            url.push_str(&encoded(cursor));
        }
        (!self.done).then(|| Request::get(url, "markets"))
    }

    fn read(&mut self, body: &[u8]) -> Result<InstrumentPage, ReadError> {
        let answer = wire::object(body)?;
        let Some(markets) = answer.get("markets") else {
            return Err(wire::unexpected(&answer, "there is no markets"));
        };
        let rows = wire::array(markets, "markets")?;
        let cursor = answer.text("next_cursor").filter(|cursor| !cursor.is_empty());
        if let Some(cursor) = &cursor {
            self.trail.follow(cursor)?;
        }
        let mut page = InstrumentPage::default();
        for raw in rows {
            match serde_json::from_str::<Members<'_>>(raw.get()) {
                Ok(market) => {
                    let name = market.text("conditionId").or(market.text("slug")).unwrap_or_default();
                    self.trail.place(&mut page, &name, read_market(&market));
                }
                Err(error) => self.trail.place(&mut page, "", Err(error.to_string())),
            }
        }
        self.done = cursor.is_none();
        self.cursor = cursor.map(Into::into);
        Ok(page)
    }
}

fn read_market(market: &Members<'_>) -> Result<Row, String> {
    let is = |key| market.flag(key) == Some(true);
    if !is("enableOrderBook") || !is("acceptingOrders") || is("closed") || is("archived") {
        return Ok(Row::NotTradable);
    }
    let market_id = market.required("conditionId")?;
    let tokens = texts(market, "clobTokenIds")?.ok_or("clobTokenIds is missing")?;
    let outcomes = texts(market, "outcomes")?;
    if tokens.is_empty() {
        return Err("clobTokenIds is empty".to_owned());
    }
    if let Some(bad) = tokens.iter().find(|t| t.is_empty() || !t.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("token id {:?} is not a number", wire::shortened(bad)));
    }
    if let Some(outcomes) = outcomes.as_ref().filter(|outcomes| outcomes.len() != tokens.len()) {
        return Err(format!("{} token ids and {} outcomes", tokens.len(), outcomes.len()));
    }
    let instrument = |(at, token): (usize, &String)| Instrument {
        venue: SPEC.venue(),
        poll_key: token.clone(),
        symbol: token.clone(),
        market_id: market_id.clone().into_owned(),
        slug: market.text("slug").map(Into::into),
        outcome: outcomes.as_ref().map(|outcomes| outcomes[at].clone()),
        expiry: market.text("endDate").and_then(|text| wire::time(&text)),
        tick_size: market.decimal("orderPriceMinTickSize"),
        min_order_size: market.decimal("orderMinSize"),
    };
    Ok(Row::Tradable(tokens.iter().enumerate().map(instrument).collect()))
}

/// A list of texts: an array, or an array inside a string.
fn texts(market: &Members<'_>, key: &str) -> Result<Option<Vec<String>>, String> {
    let Some(raw) = market.some(key) else { return Ok(None) };
    let wrong = |error: serde_json::Error| format!("{key}: {error}");
    let inner: String;
    let list: &str = if raw.get().starts_with('"') {
        inner = serde_json::from_str(raw.get()).map_err(wrong)?;
        &inner
    } else {
        raw.get()
    };
    let items: Vec<&RawValue> = serde_json::from_str(list).map_err(wrong)?;
    let text = |item: &&RawValue| wire::text(item).map(Into::into).ok_or(format!("{key} holds no texts"));
    items.iter().map(text).collect::<Result<_, String>>().map(Some)
}
