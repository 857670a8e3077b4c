//! The public REST methods. Errors come with HTTP 200 and a list.

use catchment_model::Timeframe;

use super::stream::price;
use super::{alt_name, id};
use crate::text::{Json, iso};
use crate::venue::{Answer, Ask};
use crate::ws::exchange::{Market, fixed, number, put, size8, trimmed};
use crate::ws::pair::{Pair, SIZE_SCALE};

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET" | "POST", "0/public/Time") => "rest/Time",
        ("GET" | "POST", "0/public/SystemStatus") => "rest/SystemStatus",
        ("GET" | "POST", "0/public/AssetPairs") => "rest/AssetPairs",
        ("GET" | "POST", "0/public/Depth") => "rest/Depth",
        ("GET" | "POST", "0/public/Trades") => "rest/Trades",
        ("GET" | "POST", "0/public/Ticker") => "rest/Ticker",
        ("GET" | "POST", "0/public/OHLC") => "rest/OHLC",
        ("GET", "ws" | "ws/v2" | "v2" | "ws/ws/v2") => "ws",
        _ => "rest/other",
    }
}

pub(super) fn answer(market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
    match endpoint(ask.method, path) {
        "rest/Time" => {
            let rfc1123 = jiff::fmt::strtime::format(
                "%a, %d %b %y %H:%M:%S +0000",
                jiff::tz::Offset::UTC
                    .to_datetime(jiff::Timestamp::from_microsecond(now_us).unwrap_or_default()),
            )
            .unwrap_or_default();
            let unix = now_us / 1_000_000;
            result(&format!(r#"{{"unixtime":{unix},"rfc1123":"{rfc1123}"}}"#))
        }
        "rest/SystemStatus" => {
            result(&format!(r#"{{"status":"online","timestamp":"{}"}}"#, iso(now_us / 1_000)))
        }
        "rest/AssetPairs" => asset_pairs(market, ask),
        "rest/Depth" | "rest/Trades" => of_pair(market, now_us, path.ends_with("Depth"), ask),
        "rest/Ticker" => ticker(market, now_us, ask),
        "rest/OHLC" => candles(market, now_us / 1_000, ask),
        _ => problem("EGeneral:Unknown method"),
    }
}

fn result(json: &str) -> Answer {
    Answer::json(200, format!(r#"{{"error":[],"result":{json}}}"#))
}

fn problem(error: &str) -> Answer {
    Answer::json(200, format!(r#"{{"error":["{error}"],"result":null}}"#))
}

/// The result is under the name asked for if that has a slash, under Kraken's own otherwise.
fn of_pair(market: &mut Market, now_us: i64, depth: bool, ask: &Ask<'_>) -> Answer {
    let Some(name) = ask.query.get("pair") else { return problem("EGeneral:Invalid arguments") };
    let Some(slot) = market.find(&name) else { return problem("EQuery:Unknown asset pair") };
    let count = ask.query.number("count").and_then(Result::ok);
    let pair = market.look(slot, now_us);
    let key = if name.contains('/') { name.into_owned() } else { id(pair) };
    let mut out = Vec::new();
    put!(out, "{\"error\":[],\"result\":{\"", key, "\":");
    if depth {
        let count = count.unwrap_or(100).clamp(1, 500);
        put!(out, "{");
        for (bid, key) in [(false, "\"asks\":["), (true, ",\"bids\":[")] {
            put!(out, key);
            for (at, level) in pair.side(bid).take(count).enumerate() {
                put!(out, if at > 0 { ",[\"" } else { "[\"" });
                long_price(&mut out, pair, level.price);
                put!(out, "\",\"");
                fixed(&mut out, level.size / 100_000, 3, 3);
                put!(out, "\",");
                number(&mut out, pair.book_us / 1_000_000);
                put!(out, "]");
            }
            put!(out, "]");
        }
        put!(out, "}}}");
        return Answer::json(200, out).books(1);
    }
    let since = ask.query.get("since").and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let trades: Vec<_> = pair.trades.iter().filter(|trade| trade.at_us * 1_000 > since).collect();
    let skip = if since > 0 { 0 } else { trades.len().saturating_sub(count.unwrap_or(1_000)) };
    put!(out, "[");
    let shown = trades.iter().skip(skip).take(count.unwrap_or(1_000).clamp(1, 1_000));
    let mut last = since;
    for (at, trade) in shown.enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        long_price(&mut out, pair, trade.price);
        put!(out, "\",\"");
        size8(&mut out, trade.size);
        put!(out, "\",");
        fixed(&mut out, trade.at_us as u64, 6, 7);
        put!(
            out,
            if trade.buy { ",\"b\",\"" } else { ",\"s\",\"" },
            if trade.id % 3 == 0 { "m" } else { "l" }
        );
        put!(out, "\",\"\",");
        number(&mut out, trade.id);
        put!(out, "]");
        last = trade.at_us * 1_000;
    }
    put!(out, "],\"last\":\"");
    number(&mut out, last);
    put!(out, "\"}}");
    Answer::json(200, out)
}

/// So many that are over can be had, and the one that is not.
const REACH: usize = 720;

fn candles(market: &Market, now_ms: i64, ask: &Ask<'_>) -> Answer {
    let Some(name) = ask.query.get("pair") else { return problem("EGeneral:Invalid arguments") };
    let Some(slot) = market.find(&name) else { return problem("EQuery:Unknown asset pair") };
    let timeframe = match ask.query.get("interval").as_deref() {
        Some("1") | None => Timeframe::M1,
        Some("5") => Timeframe::M5,
        Some("15") => Timeframe::M15,
        Some("30") => Timeframe::M30,
        Some("60") => Timeframe::H1,
        Some("240") => Timeframe::H4,
        Some("1440") => Timeframe::D1,
        Some("10080") => Timeframe::W1,
        Some("21600") => Timeframe::W2,
        Some(_) => return problem("EGeneral:Invalid arguments"),
    };
    let since = ask.query.get("since").and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let pair = &market.pairs[slot as usize];
    let key = if name.contains('/') { name.into_owned() } else { id(pair) };
    let rows = market.history.backward(pair, timeframe, (0, i64::MAX), now_ms, REACH + 1);
    let mut out = Vec::with_capacity(rows.len() * 100);
    put!(out, "{\"error\":[],\"result\":{\"", key, "\":[");
    let (mut is_first, mut last) = (true, since);
    // What came after `since`, and whatever it says the one that is not over.
    for row in rows.iter().filter(|row| row.open_ms / 1_000 > since || !row.closed) {
        put!(out, if std::mem::take(&mut is_first) { "[" } else { ",[" });
        number(&mut out, row.open_ms / 1_000);
        for ticks in [row.open, row.high, row.low, row.close] {
            put!(out, ",\"");
            long_price(&mut out, pair, ticks);
            put!(out, "\"");
        }
        put!(out, ",\"");
        match row.trades {
            0 => put!(out, "0.0"),
            _ => long_price(&mut out, pair, (row.high + row.low) / 2),
        }
        put!(out, "\",\"");
        size8(&mut out, row.volume);
        put!(out, "\",");
        number(&mut out, row.trades);
        put!(out, "]");
        if row.closed {
            last = row.open_ms / 1_000;
        }
    }
    put!(out, "],\"last\":");
    number(&mut out, last);
    put!(out, "}}");
    Answer::json(200, out)
}

fn ticker(market: &mut Market, now_us: i64, ask: &Ask<'_>) -> Answer {
    let Some(name) = ask.query.get("pair") else { return problem("EGeneral:Invalid arguments") };
    let Some(slot) = market.find(&name) else { return problem("EQuery:Unknown asset pair") };
    let pair = market.look(slot, now_us);
    let key = if name.contains('/') { name.into_owned() } else { id(pair) };
    let money = |ticks: i64| {
        let mut out = Vec::new();
        long_price(&mut out, pair, ticks);
        String::from_utf8(out).unwrap_or_default()
    };
    let amount = |size: u64| {
        let mut out = Vec::new();
        size8(&mut out, size);
        String::from_utf8(out).unwrap_or_default()
    };
    let mut json = Json::default();
    json.open('{').key(&key);
    let ((bid, ask), trade) = (pair.best(), pair.last_trade());
    json.open('{');
    for (key, level) in [("a", ask), ("b", bid)] {
        json.key(key)
            .open('[')
            .string(&money(level.price))
            .string("1")
            .string(&amount(level.size))
            .close(']');
    }
    json.key("c").open('[').string(&money(trade.price)).string(&amount(trade.size)).close(']');
    for (key, text) in [("v", amount(pair.volume)), ("p", money((trade.price + pair.open) / 2))] {
        json.key(key).open('[').string(&text).string(&text).close(']');
    }
    json.key("t").value(&format!("[{0},{0}]", 100_000 + trade.id % 100_000));
    for (key, ticks) in [("l", pair.low), ("h", pair.high)] {
        json.key(key).open('[').string(&money(ticks)).string(&money(ticks)).close(']');
    }
    json.text("o", &money(pair.open)).close('}');
    result(&json.close('}').done())
}

/// REST has five decimals where the socket has the pair's own.
fn long_price(out: &mut Vec<u8>, pair: &Pair, ticks: i64) {
    fixed(out, ticks as u64, pair.price_scale, pair.price_scale.max(5));
}

fn asset_pairs(market: &Market, ask: &Ask<'_>) -> Answer {
    let wanted = ask.query.get("pair");
    let wanted: Option<Vec<u32>> = match wanted.as_deref() {
        None => None,
        Some(names) => match names.split(',').map(|name| market.find(name)).collect() {
            Some(slots) => Some(slots),
            None => return problem("EQuery:Unknown asset pair"),
        },
    };
    let mut json = Json::default();
    json.open('{');
    for (slot, pair) in (0..).zip(&market.pairs) {
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&slot)) {
            continue;
        }
        let own = id(pair);
        let (base, quote) = match own.len() == 8 && own.starts_with('X') && own.contains("ZUSD") {
            true => (own[..4].to_owned(), own[4..].to_owned()),
            false => (super::old_name(&pair.base).to_owned(), pair.quote.to_owned()),
        };
        let (mut tick, mut least) = (Vec::new(), Vec::new());
        price(&mut tick, pair, 1);
        trimmed(&mut least, 5_000, SIZE_SCALE);
        json.key(&own).open('{').text("altname", &alt_name(pair));
        json.text("wsname", &format!("{}/{}", super::old_name(&pair.base), pair.quote));
        json.text("aclass_base", "currency").text("base", &base).text("aclass_quote", "currency");
        json.text("quote", &quote).text("lot", "unit").raw("cost_decimals", 5);
        json.raw("pair_decimals", pair.price_scale).raw("lot_decimals", SIZE_SCALE).raw("lot_multiplier", 1);
        json.key("leverage_buy").value("[]").key("leverage_sell").value("[]");
        json.key("fees").value("[]").key("fees_maker").value("[]");
        json.text("ordermin", &String::from_utf8(least).unwrap_or_default()).text("costmin", "0.5");
        json.text("tick_size", &String::from_utf8(tick).unwrap_or_default())
            .text("status", "online")
            .close('}');
    }
    result(&json.close('}').done())
}
