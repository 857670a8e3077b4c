//! Trades of the past from REST: what to ask for the next page of a range, and how to read the answer.
//!
//! | venue | channel | pages go | a page is found by | how far back |
//! |---|---|---|---|---|
//! | Binance | `agg_trades` | forward | a time, then `fromId` | all of it, in aggregates: single trades need a key |
//! | Kraken | `trades` | forward | `since` in nanoseconds | all of it |
//! | OKX | `trades` | backward | a time, then a trade's id | three months |
//! | Coinbase | `trades` | backward | a trade's id | all of it, from the newest on |
//!
//! Bybit has no history of trades. Each trade is given as the venue wrote it.

use std::borrow::Cow;

use catchment_model::UnixMs;
use serde_json::value::RawValue;

use crate::{ReadError, Request, wire};

/// A venue that has trades of the past.
#[derive(Debug)]
pub struct TradeVenue {
    /// Its name.
    pub id: &'static str,
    /// Which of its channels they belong to.
    pub channel: &'static str,
    /// Whether a page is found by the id of a trade that is younger than all of it.
    pub goes_back: bool,
    request: fn(&TradeAsk, (&str, &str)) -> Request,
    read: for<'a> fn(&TradeAsk, &'a [u8]) -> Result<TradePage<'a>, ReadError>,
}

/// Every venue with trades of the past.
pub static TRADE_VENUES: &[&TradeVenue] = &[
    &TradeVenue {
        id: "binance",
        channel: "agg_trades",
        goes_back: false,
        request: ask_binance,
        read: read_binance,
    },
    &TradeVenue { id: "kraken", channel: "trades", goes_back: false, request: ask_kraken, read: read_kraken },
    &TradeVenue { id: "okx", channel: "trades", goes_back: true, request: ask_okx, read: read_okx },
    &TradeVenue {
        id: "coinbase",
        channel: "trades",
        goes_back: true,
        request: ask_coinbase,
        read: read_coinbase,
    },
];

/// The venue of that name, if it has trades of the past.
pub fn trades_of(id: &str) -> Option<&'static TradeVenue> {
    TRADE_VENUES.iter().find(|venue| venue.id == id).copied()
}

/// Which trades are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TradeAsk {
    /// Where the venue's REST is, without a slash at the end.
    pub base: String,
    /// `BASE/QUOTE`.
    pub symbol: String,
    /// Those from here on,
    pub since: UnixMs,
    /// and before this.
    pub until: UnixMs,
    /// What the page before said; none for the first.
    pub cursor: Option<String>,
}

/// A trade as the venue wrote it.
#[derive(Debug, Clone)]
pub struct PastTrade<'a> {
    /// The venue's name for it.
    pub id: Cow<'a, str>,
    /// When it happened.
    pub time: UnixMs,
    /// All of it.
    pub raw: &'a RawValue,
}

/// What an answer held.
#[derive(Debug, Clone)]
pub struct TradePage<'a> {
    /// Those within the range, in the venue's order.
    pub trades: Vec<PastTrade<'a>>,
    /// What to say for the next page; `None` when the range is answered.
    pub next: Option<String>,
}

impl TradeVenue {
    /// What to send for a page. `None`: the symbol is not like `BTC/USDT`.
    pub fn request(&self, ask: &TradeAsk) -> Option<Request> {
        let plain = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_plain = |cursor: &String| cursor.bytes().all(|b| b.is_ascii_digit());
        if !ask.cursor.iter().all(is_plain) {
            return None;
        }
        let pair = ask.symbol.split_once('/').filter(|(base, quote)| plain(base) && plain(quote))?;
        Some((self.request)(ask, pair))
    }

    /// Reads the answer to [`TradeVenue::request`] of the same ask.
    pub fn read<'a>(&self, ask: &TradeAsk, body: &'a [u8]) -> Result<TradePage<'a>, ReadError> {
        let mut page = (self.read)(ask, body)?;
        page.trades.retain(|trade| (ask.since..ask.until).contains(&trade.time));
        if page.next.is_some() && page.next == ask.cursor {
            return Err(ReadError::Stuck(format!("the page after {:?} is itself", ask.cursor)));
        }
        Ok(page)
    }
}

const BINANCE_ROWS: usize = 1_000;

fn ask_binance(ask: &TradeAsk, (base, quote): (&str, &str)) -> Request {
    let from = match &ask.cursor {
        Some(id) => format!("fromId={id}"),
        None => format!("startTime={}", ask.since.get()),
    };
    let (base, quote) = (base.to_ascii_uppercase(), quote.to_ascii_uppercase());
    let url = format!("{}/api/v3/aggTrades?symbol={base}{quote}&{from}&limit={BINANCE_ROWS}", ask.base);
    Request::get(url, "weight").costing(4)
}

/// `[{"a":26129,"p":"0.01633102","q":"4.70443515","f":27781,"l":27781,"T":1498793709153,"m":true,"M":true}]`
fn read_binance<'a>(ask: &TradeAsk, body: &'a [u8]) -> Result<TradePage<'a>, ReadError> {
    let trades = rows_of(body)?.into_iter().map(|raw| by_name(raw, "a", "T", milliseconds));
    let trades = trades.collect::<Result<Vec<_>, _>>()?;
    let goes_on = |last: &&PastTrade<'_>| trades.len() >= BINANCE_ROWS && last.time < ask.until;
    let next = trades.last().filter(goes_on).and_then(|last| Some((wire::digits(&last.id)? + 1).to_string()));
    Ok(TradePage { trades, next })
}

const KRAKEN_ROWS: usize = 1_000;

fn ask_kraken(ask: &TradeAsk, (base, quote): (&str, &str)) -> Request {
    // It gives what comes after.
    let first = || (ask.since.get().saturating_mul(1_000_000) - 1).max(0).to_string();
    let since = ask.cursor.clone().unwrap_or_else(first);
    let (base, quote) = (base.to_ascii_uppercase(), quote.to_ascii_uppercase());
    let url = format!("{}/0/public/Trades?pair={base}%2F{quote}&since={since}&count={KRAKEN_ROWS}", ask.base);
    Request::get(url, "public")
}

/// `{"error":[],"result":{"BTC/USD":[["30243.4","0.345",1688669597.827,"b","m","",61044952]],"last":"1688671969993150842"}}`
fn read_kraken<'a>(ask: &TradeAsk, body: &'a [u8]) -> Result<TradePage<'a>, ReadError> {
    let answer = wire::object(body)?;
    let errors = answer.get("error").map(|raw| wire::array(raw, "error")).transpose()?.unwrap_or_default();
    if let Some(said) = errors.first().and_then(|raw| wire::text(raw)) {
        return Err(ReadError::Said(wire::shortened(&said)));
    }
    let result = answer.some("result").ok_or_else(|| ReadError::Shape("it has no result".to_owned()))?;
    let result = wire::object(result.get().as_bytes())?;
    let mut pairs = result.others(&["last"]);
    let (Some((_, rows)), None) = (pairs.next(), pairs.next()) else {
        return Err(ReadError::Shape("the result does not hold one pair".to_owned()));
    };
    let read = |raw: &'a RawValue| {
        let row = wire::array(raw, "a trade")?;
        let (time, id) =
            (row.get(2).and_then(|raw| wire::text(raw)), row.get(6).and_then(|raw| wire::text(raw)));
        match (time.and_then(|time| fractional_seconds(&time)), id) {
            (Some(time), Some(id)) => Ok(PastTrade { id, time, raw }),
            _ => Err(ReadError::Shape("a trade has no time or no id".to_owned())),
        }
    };
    let trades = wire::array(rows, "the trades")?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let goes_on = |last: &PastTrade<'_>| trades.len() >= KRAKEN_ROWS && last.time < ask.until;
    let next = result.text("last").filter(|_| trades.last().is_some_and(goes_on)).map(Cow::into_owned);
    Ok(TradePage { trades, next })
}

const OKX_ROWS: usize = 100;

fn ask_okx(ask: &TradeAsk, (base, quote): (&str, &str)) -> Request {
    // By time first, then by id: of trades in the same millisecond none is passed over.
    let from = match &ask.cursor {
        Some(id) => format!("type=1&after={id}"),
        None => format!("type=2&after={}", ask.until.get()),
    };
    let (base, quote) = (base.to_ascii_uppercase(), quote.to_ascii_uppercase());
    let url =
        format!("{}/api/v5/market/history-trades?instId={base}-{quote}&{from}&limit={OKX_ROWS}", ask.base);
    Request::get(url, "history_trades")
}

/// `{"code":"0","msg":"","data":[{"instId":"BTC-USDT","side":"sell","sz":"0.1","px":"29963.2","tradeId":"242720720","ts":"1654161646974"}]}`
fn read_okx<'a>(ask: &TradeAsk, body: &'a [u8]) -> Result<TradePage<'a>, ReadError> {
    let answer = wire::object(body)?;
    if answer.text("code").as_deref() != Some("0") {
        let (code, said) = (answer.text("code").unwrap_or_default(), answer.text("msg").unwrap_or_default());
        return Err(ReadError::Said(format!("{code}: {}", wire::shortened(&said))));
    }
    let rows = answer.some("data").ok_or_else(|| ReadError::Shape("it has no data".to_owned()))?;
    let trades =
        wire::array(rows, "data")?.into_iter().map(|raw| by_name(raw, "tradeId", "ts", milliseconds));
    Ok(backward(ask, trades.collect::<Result<_, _>>()?, OKX_ROWS))
}

const COINBASE_ROWS: usize = 1_000;

fn ask_coinbase(ask: &TradeAsk, (base, quote): (&str, &str)) -> Request {
    let after = ask.cursor.as_ref().map(|id| format!("&after={id}")).unwrap_or_default();
    let (base, quote) = (base.to_ascii_uppercase(), quote.to_ascii_uppercase());
    let url = format!("{}/products/{base}-{quote}/trades?limit={COINBASE_ROWS}{after}", ask.base);
    Request::get(url, "public")
}

/// `[{"trade_id":74,"side":"sell","size":"0.01","price":"10.00","time":"2014-11-07T22:19:28.578544Z"}]`
fn read_coinbase<'a>(ask: &TradeAsk, body: &'a [u8]) -> Result<TradePage<'a>, ReadError> {
    let trades = rows_of(body)?.into_iter().map(|raw| by_name(raw, "trade_id", "time", wire::time));
    Ok(backward(ask, trades.collect::<Result<_, _>>()?, COINBASE_ROWS))
}

/// A page of the newest first goes on with what is older than its last.
fn backward<'a>(ask: &TradeAsk, trades: Vec<PastTrade<'a>>, rows: usize) -> TradePage<'a> {
    let goes_on = |oldest: &&PastTrade<'_>| trades.len() >= rows && oldest.time >= ask.since;
    let next = trades.last().filter(goes_on).map(|oldest| oldest.id.clone().into_owned());
    TradePage { trades, next }
}

fn rows_of(body: &[u8]) -> Result<Vec<&RawValue>, ReadError> {
    let rows: &RawValue = serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
    if rows.get().starts_with('{') {
        return Err(wire::unexpected(&wire::object(body)?, "it is an object, and not trades"));
    }
    wire::array(rows, "the list of trades")
}

fn by_name<'a>(
    raw: &'a RawValue,
    id: &str,
    time: &str,
    read_time: fn(&str) -> Option<UnixMs>,
) -> Result<PastTrade<'a>, ReadError> {
    let trade = wire::object(raw.get().as_bytes())?;
    match (trade.text(id), trade.text(time).and_then(|time| read_time(&time))) {
        (Some(id), Some(time)) => Ok(PastTrade { id, time, raw }),
        _ => Err(ReadError::Shape(format!("a trade has no {id} or no {time}"))),
    }
}

fn milliseconds(text: &str) -> Option<UnixMs> {
    UnixMs::new(wire::digits(text)?).ok()
}

/// `1688669597.827`: what is finer than a millisecond is cut off.
fn fractional_seconds(text: &str) -> Option<UnixMs> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    UnixMs::new(wire::digits(whole)?.checked_mul(1_000)? + wire::digits(&part)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cursor: Option<&str>) -> TradeAsk {
        TradeAsk {
            base: "http://x".to_owned(),
            symbol: "btc/usdt".to_owned(),
            since: UnixMs::new(1_700_000_000_000).unwrap(),
            until: UnixMs::new(1_700_000_060_000).unwrap(),
            cursor: cursor.map(str::to_owned),
        }
    }

    fn check(venue: &str, cursor: Option<&str>, path: &str) {
        let request = trades_of(venue).unwrap().request(&ask(cursor)).unwrap();
        assert_eq!(request.url, format!("http://x{path}"), "{venue}");
    }

    #[test]
    fn every_venue_is_asked_in_its_own_words() {
        check("binance", None, "/api/v3/aggTrades?symbol=BTCUSDT&startTime=1700000000000&limit=1000");
        check("binance", Some("7"), "/api/v3/aggTrades?symbol=BTCUSDT&fromId=7&limit=1000");
        check("kraken", None, "/0/public/Trades?pair=BTC%2FUSDT&since=1699999999999999999&count=1000");
        check(
            "okx",
            None,
            "/api/v5/market/history-trades?instId=BTC-USDT&type=2&after=1700000060000&limit=100",
        );
        check("okx", Some("9"), "/api/v5/market/history-trades?instId=BTC-USDT&type=1&after=9&limit=100");
        check("coinbase", None, "/products/BTC-USDT/trades?limit=1000");
        check("coinbase", Some("9"), "/products/BTC-USDT/trades?limit=1000&after=9");
        assert!(trades_of("bybit").is_none());
        assert!(trades_of("okx").unwrap().request(&ask(Some("9&x=1"))).is_none(), "a cursor is digits");
    }

    #[test]
    fn only_what_was_asked_for_is_given_and_as_it_was_sent() {
        let body = br#"[{"a":1,"p":"1","q":"2","f":1,"l":1,"T":1699999999999,"m":true,"M":true},{"a":2,"p":"1","q":"2","f":2,"l":2,"T":1700000000000,"m":true,"M":true}]"#;
        let page = trades_of("binance").unwrap().read(&ask(None), body).unwrap();
        assert_eq!((page.trades.len(), page.next), (1, None));
        assert_eq!(page.trades[0].id, "2");
        assert!(page.trades[0].raw.get().starts_with(r#"{"a":2,"#));
        let body =
            br#"{"error":[],"result":{"BTC/USD":[["3","0.3",1700000001.8274981,"b","m","",6]],"last":"1"}}"#;
        let page = trades_of("kraken").unwrap().read(&ask(None), body).unwrap();
        assert_eq!(page.trades[0].time.get(), 1_700_000_001_827);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for venue in TRADE_VENUES {
            for body in ["", "{}", "null", "7", "[7]", r#"[{"a":1}]"#, r#"{"code":"1","msg":"no"}"#, "<html>"]
            {
                assert!(venue.read(&ask(None), body.as_bytes()).is_err(), "{} takes {body:?}", venue.id);
            }
        }
    }
}
