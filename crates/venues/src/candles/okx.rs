//! OKX: `GET /api/v5/market/history-candles`. `before` means newer and `after` older, both excluded; errors come with a good
//! status. From six hours up, a bar without `utc` behind it opens by the clock of Hong Kong.

use catchment_model::{Candle, Timeframe as T};

use super::{CandleVenue, Columns, Row, Stretch, Unit};
use crate::{ReadError, Request, wire};

pub(super) static CANDLES: CandleVenue = CandleVenue {
    id: "okx",
    timeframes: &[
        (T::M1, "1m"),
        (T::M3, "3m"),
        (T::M5, "5m"),
        (T::M15, "15m"),
        (T::M30, "30m"),
        (T::H1, "1H"),
        (T::H2, "2H"),
        (T::H4, "4H"),
        (T::H6, "6Hutc"),
        (T::H12, "12Hutc"),
        (T::D1, "1Dutc"),
        (T::D3, "3Dutc"),
        (T::W1, "1Wutc"),
        (T::Month, "1Mutc"),
    ],
    page_rows: 300,
    reach_rows: None,
    leaves_out_empty: false,
    request,
    read,
};

fn request(ask: &Stretch<'_>) -> Request {
    let (base, quote) = ask.symbol;
    let url = format!(
        "{}/api/v5/market/history-candles?instId={}-{}&bar={}&before={}&after={}&limit={}",
        ask.base,
        base.to_ascii_uppercase(),
        quote.to_ascii_uppercase(),
        ask.name,
        ask.since - 1,
        ask.until,
        ask.rows
    );
    Request::get(url, "history_candles")
}

/// `{"code":"0","msg":"","data":[[ts,o,h,l,c,vol,volCcy,volCcyQuote,confirm],…]}`
fn read(ask: &Stretch<'_>, body: &[u8]) -> Result<Vec<Candle>, ReadError> {
    let answer = wire::object(body)?;
    match answer.text("code").as_deref() {
        Some("0") => {}
        Some(code) => {
            let said = answer.text("msg").unwrap_or_default();
            return Err(ReadError::Said(format!("{code}: {}", wire::shortened(&said))));
        }
        None => return Err(ReadError::Shape("it has no code".to_owned())),
    }
    let rows = answer.some("data").ok_or_else(|| ReadError::Shape("it has no data".to_owned()))?;
    let columns = Columns {
        time: (0, Unit::Milliseconds),
        open: 1,
        high: 2,
        low: 3,
        close: 4,
        volume: 5,
        quote_volume: Some(7),
        trades: None,
    };
    let candle = |row: &Row<'_>| {
        let confirmed = row.text(8).is_some_and(|text| text == "1");
        let candle = ask.candle(row, columns)?;
        Ok(Candle { is_final: confirmed, ..candle })
    };
    Row::all(rows)?.iter().map(candle).collect()
}
