//! Binance spot: `GET /api/v3/klines`.

use catchment_model::{Candle, Timeframe as T};
use serde_json::value::RawValue;

use super::{CandleVenue, Columns, Row, Stretch, Unit};
use crate::{ReadError, Request, wire};

pub(super) static CANDLES: CandleVenue = CandleVenue {
    id: "binance",
    timeframes: &[
        (T::S1, "1s"),
        (T::M1, "1m"),
        (T::M3, "3m"),
        (T::M5, "5m"),
        (T::M15, "15m"),
        (T::M30, "30m"),
        (T::H1, "1h"),
        (T::H2, "2h"),
        (T::H4, "4h"),
        (T::H6, "6h"),
        (T::H8, "8h"),
        (T::H12, "12h"),
        (T::D1, "1d"),
        (T::D3, "3d"),
        (T::W1, "1w"),
        (T::Month, "1M"),
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
        "{}/api/v3/klines?symbol={}{}&interval={}&startTime={}&endTime={}&limit={}",
        ask.base,
        base.to_ascii_uppercase(),
        quote.to_ascii_uppercase(),
        ask.name,
        ask.since,
        ask.until - 1,
        ask.rows
    );
    Request::get(url, "weight").costing(2)
}

/// `[openTime, o, h, l, c, baseVolume, closeTime, quoteVolume, trades, …]`
fn read(ask: &Stretch<'_>, body: &[u8]) -> Result<Vec<Candle>, ReadError> {
    let rows: &RawValue = serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
    if rows.get().starts_with('{') {
        return Err(refused(body));
    }
    let columns = Columns {
        time: (0, Unit::Milliseconds),
        open: 1,
        high: 2,
        low: 3,
        close: 4,
        volume: 5,
        quote_volume: Some(7),
        trades: Some(8),
    };
    Row::all(rows)?.iter().map(|row| ask.candle(row, columns)).collect()
}

/// `{"code":-1121,"msg":"Invalid symbol."}`
fn refused(body: &[u8]) -> ReadError {
    match wire::object(body) {
        Ok(answer) => match (answer.text("code"), answer.text("msg")) {
            (Some(code), Some(said)) => ReadError::Said(format!("{code}: {}", wire::shortened(&said))),
            _ => ReadError::Shape("it is an object, and neither candles nor an error".to_owned()),
        },
        Err(error) => error,
    }
}
