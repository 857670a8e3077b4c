//! Bybit v5 spot: `GET /v5/market/kline`. Without `category` it would answer for the perpetual of the same name; where more
//! than a page lies in the range, the newest win.

use catchment_model::{Candle, Timeframe as T};

use super::{CandleVenue, Columns, Row, Stretch, Unit};
use crate::{ReadError, Request, wire};

pub(super) static CANDLES: CandleVenue = CandleVenue {
    id: "bybit",
    timeframes: &[
        (T::M1, "1"),
        (T::M3, "3"),
        (T::M5, "5"),
        (T::M15, "15"),
        (T::M30, "30"),
        (T::H1, "60"),
        (T::H2, "120"),
        (T::H4, "240"),
        (T::H6, "360"),
        (T::H12, "720"),
        (T::D1, "D"),
        (T::W1, "W"),
        (T::Month, "M"),
    ],
    page_rows: 1_000,
    reach_rows: None,
    leaves_out_empty: false,
    request,
    read,
};

fn request(ask: &Stretch<'_>) -> Request {
    let (base, quote) = ask.symbol;
    let url = format!(
        "{}/v5/market/kline?category=spot&symbol={}{}&interval={}&start={}&end={}&limit={}",
        ask.base,
        base.to_ascii_uppercase(),
        quote.to_ascii_uppercase(),
        ask.name,
        ask.since,
        ask.until - 1,
        ask.rows
    );
    Request::get(url, "ip")
}

/// `{"retCode":0,"retMsg":"OK","result":{"list":[[start_ms,o,h,l,c,volume,turnover],…]}}`
fn read(ask: &Stretch<'_>, body: &[u8]) -> Result<Vec<Candle>, ReadError> {
    let answer = wire::object(body)?;
    match answer.text("retCode").as_deref() {
        Some("0") => {}
        Some(code) => {
            let said = answer.text("retMsg").unwrap_or_default();
            return Err(ReadError::Said(format!("{code}: {}", wire::shortened(&said))));
        }
        None => return Err(ReadError::Shape("it has no retCode".to_owned())),
    }
    let result = answer.some("result").ok_or_else(|| ReadError::Shape("it has no result".to_owned()))?;
    let result = wire::object(result.get().as_bytes())?;
    let rows = result.some("list").ok_or_else(|| ReadError::Shape("the result has no list".to_owned()))?;
    let columns = Columns {
        time: (0, Unit::Milliseconds),
        open: 1,
        high: 2,
        low: 3,
        close: 4,
        volume: 5,
        quote_volume: Some(6),
        trades: None,
    };
    Row::all(rows)?.iter().map(|row| ask.candle(row, columns)).collect()
}
