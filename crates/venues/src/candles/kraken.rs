//! Kraken: `GET /0/public/OHLC`. Only the newest 720 closed candles can be had, whatever `since` says; the last row is
//! always the one that is still open. What is older must be built from trades.

use catchment_model::{Candle, Timeframe as T};

use super::{CandleVenue, Columns, Row, Stretch, Unit};
use crate::{ReadError, Request, wire};

pub(super) static CANDLES: CandleVenue = CandleVenue {
    id: "kraken",
    timeframes: &[
        (T::M1, "1"),
        (T::M5, "5"),
        (T::M15, "15"),
        (T::M30, "30"),
        (T::H1, "60"),
        (T::H4, "240"),
        (T::D1, "1440"),
        (T::W1, "10080"),
        (T::W2, "21600"),
    ],
    page_rows: 720,
    reach_rows: Some(720),
    leaves_out_empty: false,
    request,
    read,
};

fn request(ask: &Stretch<'_>) -> Request {
    let (base, quote) = ask.symbol;
    // It gives what comes after `since`, so one candle earlier.
    let since = (ask.since - ask.timeframe.ms()).max(0) / 1_000;
    let url = format!(
        "{}/0/public/OHLC?pair={}%2F{}&interval={}&since={since}",
        ask.base,
        base.to_ascii_uppercase(),
        quote.to_ascii_uppercase(),
        ask.name
    );
    Request::get(url, "public")
}

/// `{"error":[],"result":{"BTC/USD":[[open_s,o,h,l,c,vwap,volume,count],…],"last":open_s}}`
fn read(ask: &Stretch<'_>, body: &[u8]) -> Result<Vec<Candle>, ReadError> {
    let answer = wire::object(body)?;
    let errors = answer.get("error").map(|raw| wire::array(raw, "error")).transpose()?.unwrap_or_default();
    if let Some(said) = errors.first().and_then(|raw| wire::text(raw)) {
        return Err(ReadError::Said(wire::shortened(&said)));
    }
    let result = answer.some("result").ok_or_else(|| ReadError::Shape("it has no result".to_owned()))?;
    let result = wire::object(result.get().as_bytes())?;
    // Under whichever of the pair's four names the venue chose.
    let mut pairs = result.others(&["last"]);
    let (Some((_, rows)), None) = (pairs.next(), pairs.next()) else {
        return Err(ReadError::Shape("the result does not hold one pair".to_owned()));
    };
    let columns = Columns {
        time: (0, Unit::Seconds),
        open: 1,
        high: 2,
        low: 3,
        close: 4,
        volume: 6,
        quote_volume: None,
        trades: Some(7),
    };
    let mut candles: Vec<Candle> =
        Row::all(rows)?.iter().map(|row| ask.candle(row, columns)).collect::<Result<_, _>>()?;
    if let Some(open) = candles.iter_mut().max_by_key(|candle| candle.open_time) {
        open.is_final = false;
    }
    Ok(candles)
}
