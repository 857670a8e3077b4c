//! Coinbase Exchange: `GET /products/{id}/candles`. A range of more than 300 is refused; rows are numbers, newest first, and
//! their columns stand in an order of their own. Stretches without a trade have no row.

use catchment_model::{Candle, Timeframe as T};
use serde_json::value::RawValue;

use super::{CandleVenue, Columns, Row, Stretch, Unit};
use crate::{ReadError, Request, wire};

pub(super) static CANDLES: CandleVenue = CandleVenue {
    id: "coinbase",
    timeframes: &[
        (T::M1, "60"),
        (T::M5, "300"),
        (T::M15, "900"),
        (T::H1, "3600"),
        (T::H6, "21600"),
        (T::D1, "86400"),
    ],
    page_rows: 300,
    reach_rows: None,
    leaves_out_empty: true,
    request,
    read,
};

fn request(ask: &Stretch<'_>) -> Request {
    let (base, quote) = ask.symbol;
    // Both bounds are included, and with only one of them both would be ignored.
    let last = ask.until - ask.timeframe.ms();
    let url = format!(
        "{}/products/{}-{}/candles?granularity={}&start={}&end={}",
        ask.base,
        base.to_ascii_uppercase(),
        quote.to_ascii_uppercase(),
        ask.name,
        ask.since / 1_000,
        last.max(ask.since) / 1_000
    );
    Request::get(url, "public")
}

/// `[time_s, low, high, open, close, volume]`
fn read(ask: &Stretch<'_>, body: &[u8]) -> Result<Vec<Candle>, ReadError> {
    let rows: &RawValue = serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
    if rows.get().starts_with('{') {
        return Err(wire::unexpected(&wire::object(body)?, "it is an object, and not candles"));
    }
    let columns = Columns {
        time: (0, Unit::Seconds),
        open: 3,
        high: 2,
        low: 1,
        close: 4,
        volume: 5,
        quote_volume: None,
        trades: None,
    };
    Row::all(rows)?.iter().map(|row| ask.candle(row, columns)).collect()
}
