//! The REST answers: an envelope with a code, mostly with HTTP 200.

use catchment_model::Timeframe;

use super::stream::{levels, price, size, ticker_row};
use crate::text::Json;
use crate::venue::{Answer, Ask};
use crate::ws::exchange::{Market, number, put};
use crate::ws::pair::Pair;

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "api/v5/public/time") => "rest/time",
        ("GET", "api/v5/public/instruments") => "rest/instruments",
        ("GET", "api/v5/market/books") => "rest/books",
        ("GET", "api/v5/market/ticker") => "rest/ticker",
        ("GET", "api/v5/market/candles") => "rest/candles",
        ("GET", "api/v5/market/history-candles") => "rest/history-candles",
        ("GET", "api/v5/market/trades") => "rest/trades",
        ("GET", "api/v5/market/history-trades") => "rest/history-trades",
        ("GET", path) if path.ends_with("v5/public") || path.ends_with("v5/business") => "ws",
        _ => "rest/other",
    }
}

pub(super) fn answer(market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
    let endpoint = endpoint(ask.method, path);
    match endpoint {
        "rest/time" => fine(format!(r#"{{"ts":"{}"}}"#, now_us / 1_000).as_bytes()),
        "rest/instruments" => match ask.query.get("instType").as_deref() {
            Some("SPOT") => instruments(market, ask),
            Some("MARGIN" | "SWAP" | "FUTURES") => fine(b""),
            Some(_) => problem(400, "51000", "Parameter instType error"),
            None => problem(400, "50014", "Parameter instType can not be empty."),
        },
        "rest/books"
        | "rest/ticker"
        | "rest/candles"
        | "rest/history-candles"
        | "rest/trades"
        | "rest/history-trades" => {
            let Some(name) = ask.query.get("instId") else {
                return problem(400, "50014", "Parameter instId can not be empty.");
            };
            let Some(slot) = market.find(&name).filter(|_| !name.contains('/')) else {
                return unknown();
            };
            if endpoint.ends_with("candles") {
                return candles(market, slot, now_us / 1_000, endpoint == "rest/candles", ask);
            }
            of_instrument(market.look(slot, now_us), endpoint, ask)
        }
        _ => problem(404, "50000", "Not Found"),
    }
}

fn fine(rows: &[u8]) -> Answer {
    let mut out = b"{\"code\":\"0\",\"msg\":\"\",\"data\":[".to_vec();
    put!(out, rows, "]}");
    Answer::json(200, out)
}

fn problem(status: u16, code: &str, msg: &str) -> Answer {
    Answer::json(status, format!(r#"{{"code":"{code}","data":[],"msg":"{msg}"}}"#))
}

fn unknown() -> Answer {
    problem(200, "51001", "Instrument ID, Instrument ID code, or Spread ID doesn't exist.")
}

fn of_instrument(pair: &Pair, endpoint: &str, ask: &Ask<'_>) -> Answer {
    let mut out = Vec::new();
    match endpoint {
        "rest/books" => {
            let depth = ask.query.number("sz").and_then(Result::ok).unwrap_or(1).clamp(1, 400);
            put!(out, "{\"asks\":[");
            levels(&mut out, pair, pair.side(false).take(depth).copied());
            put!(out, "],\"bids\":[");
            levels(&mut out, pair, pair.side(true).take(depth).copied());
            put!(out, "],\"ts\":\"");
            number(&mut out, pair.book_us / 1_000);
            put!(out, "\",\"seqId\":");
            number(&mut out, pair.update.1);
            put!(out, "}");
            return fine(&out).books(1);
        }
        "rest/ticker" => ticker_row(pair, &mut out),
        _ => {
            let is_past = endpoint == "rest/history-trades";
            let most = if is_past { 100 } else { 500 };
            let limit = ask.query.number("limit").and_then(Result::ok).unwrap_or(100).clamp(1, most);
            // Older ones: by their number, or with `type=2` by their time.
            let by_time = ask.query.get("type").as_deref() == Some("2");
            let after = ask.query.number("after").and_then(Result::ok).map_or(u64::MAX, |after| after as u64);
            let is_older = |trade: &&crate::ws::pair::Trade| {
                let place = if by_time { (trade.at_us / 1_000) as u64 } else { trade.id };
                !is_past || place < after
            };
            for (at, trade) in pair.trades.iter().rev().filter(is_older).take(limit).enumerate() {
                put!(out, if at > 0 { "," } else { "" });
                put!(out, "{\"instId\":\"", pair.base, "-", pair.quote, "\",\"side\":\"");
                put!(out, if trade.buy { "buy" } else { "sell" }, "\",\"sz\":\"");
                size(&mut out, trade.size);
                put!(out, "\",\"source\":\"0\",\"px\":\"");
                price(&mut out, pair, trade.price);
                put!(out, "\",\"tradeId\":\"");
                number(&mut out, trade.id);
                put!(out, "\",\"ts\":\"");
                number(&mut out, trade.at_us / 1_000);
                put!(out, "\"}");
            }
        }
    }
    fine(&out)
}

/// So many of the newest are in the quick endpoint; older ones are in the other.
const RECENT: usize = 1_440;

/// The newest first; `after` are older ones and `before` newer ones, both without the one named.
fn candles(market: &Market, slot: u32, now_ms: i64, recent: bool, ask: &Ask<'_>) -> Answer {
    let timeframe = match ask.query.get("bar").as_deref() {
        Some("1m") | None => Timeframe::M1,
        Some("3m") => Timeframe::M3,
        Some("5m") => Timeframe::M5,
        Some("15m") => Timeframe::M15,
        Some("30m") => Timeframe::M30,
        Some("1H") => Timeframe::H1,
        Some("2H") => Timeframe::H2,
        Some("4H") => Timeframe::H4,
        Some("6Hutc") => Timeframe::H6,
        Some("12Hutc") => Timeframe::H12,
        Some("1Dutc") => Timeframe::D1,
        Some("3Dutc") => Timeframe::D3,
        Some("1Wutc") => Timeframe::W1,
        Some("1Mutc") => Timeframe::Month,
        Some(_) => return problem(400, "51000", "Parameter bar error"),
    };
    let bound = |name| ask.query.get(name).map(|text| text.parse::<i64>().map_err(|_| name));
    let (after, before) = match (bound("after").transpose(), bound("before").transpose()) {
        (Ok(after), Ok(before)) => (after, before),
        (Err(name), _) | (_, Err(name)) => {
            return problem(400, "51000", &format!("Parameter {name} error"));
        }
    };
    let pair = &market.pairs[slot as usize];
    let most = ask.query.number("limit").and_then(Result::ok).unwrap_or(100).clamp(1, 300);
    let mut from = before.map_or(0, |before| before.saturating_add(1));
    if recent {
        let reach = market.history.backward(pair, timeframe, (0, i64::MAX), now_ms, RECENT);
        from = from.max(reach.first().map_or(i64::MAX, |row| row.open_ms));
    }
    let until = after.unwrap_or(i64::MAX);
    let rows = match from < until {
        true => market.history.backward(pair, timeframe, (from, until), now_ms, most),
        false => Vec::new(),
    };
    let mut out = Vec::with_capacity(rows.len() * 130);
    for (at, row) in rows.iter().rev().enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        number(&mut out, row.open_ms);
        for ticks in [row.open, row.high, row.low, row.close] {
            put!(out, "\",\"");
            price(&mut out, pair, ticks);
        }
        let quote = row.quote_volume(pair);
        for amount in [row.volume, quote, quote] {
            put!(out, "\",\"");
            size(&mut out, amount);
        }
        put!(out, "\",\"", if row.closed { "1" } else { "0" }, "\"]");
    }
    fine(&out)
}

fn instruments(market: &Market, ask: &Ask<'_>) -> Answer {
    let wanted = ask.query.get("instId");
    if wanted.as_deref().is_some_and(|name| market.find(name).is_none()) {
        return unknown();
    }
    let mut json = Json::default();
    for pair in &market.pairs {
        let name = format!("{}-{}", pair.base, pair.quote);
        if wanted.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let mut tick = Vec::new();
        price(&mut tick, pair, 1);
        json.open('{').text("instType", "SPOT").text("instId", &name);
        for key in
            ["uly", "instFamily", "settleCcy", "ctVal", "ctMult", "ctValCcy", "ctType", "expTime", "alias"]
        {
            json.text(key, "");
        }
        json.text("baseCcy", &pair.base).text("quoteCcy", pair.quote).text("listTime", "1611907686000");
        json.text("tickSz", &String::from_utf8(tick).unwrap_or_default()).text("lotSz", "0.00000001");
        json.text("minSz", "0.00001").text("state", "live").text("ruleType", "normal").close('}');
    }
    fine(json.done().as_bytes())
}
