//! The REST answers.

use catchment_model::Timeframe;

use super::stream::price;
use crate::text::{Json, iso_ms};
use crate::venue::{Answer, Ask};
use crate::ws::exchange::{Market, fixed, number, put, size8, stamp, trimmed};
use crate::ws::pair::{Pair, SIZE_SCALE};

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "time") => "rest/time",
        ("GET", "products") => "rest/products",
        ("GET", "" | "ws" | "ws/") => "ws",
        ("GET", path) if path.starts_with("products/") => match path.rsplit('/').next() {
            Some("book") => "rest/book",
            Some("trades") => "rest/trades",
            Some("ticker") => "rest/ticker",
            Some("candles") => "rest/candles",
            _ => "rest/product",
        },
        _ => "rest/other",
    }
}

pub(super) fn answer(market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
    let endpoint = endpoint(ask.method, path);
    match endpoint {
        "rest/time" => {
            let mut epoch = Vec::new();
            fixed(&mut epoch, (now_us / 1_000) as u64, 3, 3);
            let epoch = String::from_utf8(epoch).unwrap_or_default();
            Answer::json(200, format!(r#"{{"iso":"{}","epoch":{epoch}}}"#, iso_ms(now_us / 1_000)))
        }
        "rest/products" => {
            let mut json = Json::default();
            json.open('[');
            for pair in &market.pairs {
                product(pair, &mut json);
            }
            Answer::json(200, json.close(']').done())
        }
        "rest/book" | "rest/trades" | "rest/ticker" | "rest/product" => {
            let name = path.split('/').nth(1).unwrap_or("");
            let Some(slot) = market.find(name) else { return problem(404, "NotFound") };
            of_product(market.look(slot, now_us), endpoint, now_us, ask)
        }
        "rest/candles" => {
            let name = path.split('/').nth(1).unwrap_or("");
            let Some(slot) = market.find(name) else { return problem(404, "NotFound") };
            candles(market, slot, now_us / 1_000, ask)
        }
        _ => problem(404, "NotFound"),
    }
}

fn problem(status: u16, message: &str) -> Answer {
    Answer::json(status, format!(r#"{{"message":"{message}"}}"#))
}

fn of_product(pair: &Pair, endpoint: &str, now_us: i64, ask: &Ask<'_>) -> Answer {
    let mut out = Vec::new();
    match endpoint {
        "rest/product" => {
            let mut json = Json::default();
            product(pair, &mut json);
            Answer::json(200, json.done())
        }
        "rest/book" => {
            let depth = match ask.query.number("level").unwrap_or(Ok(1)) {
                Ok(1) => 1,
                Ok(2 | 3) => usize::MAX,
                _ => return problem(400, "Invalid level"),
            };
            put!(out, "{\"bids\":[");
            levels(&mut out, pair, true, depth);
            put!(out, "],\"asks\":[");
            levels(&mut out, pair, false, depth);
            put!(out, "],\"sequence\":");
            number(&mut out, pair.sequence);
            put!(out, ",\"auction_mode\":false,\"auction\":null,\"time\":\"");
            stamp(&mut out, now_us, 9);
            put!(out, "Z\"}");
            Answer::json(200, out).books(1)
        }
        "rest/ticker" => {
            let ((bid, best), trade) = (pair.best(), pair.last_trade());
            put!(out, "{\"ask\":\"");
            price(&mut out, pair, best.price);
            put!(out, "\",\"bid\":\"");
            price(&mut out, pair, bid.price);
            put!(out, "\",\"volume\":\"");
            size8(&mut out, pair.volume);
            put!(out, "\",\"trade_id\":");
            number(&mut out, trade.id);
            put!(out, ",\"price\":\"");
            price(&mut out, pair, trade.price);
            put!(out, "\",\"size\":\"");
            size8(&mut out, trade.size);
            put!(out, "\",\"time\":\"");
            stamp(&mut out, trade.at_us, 9);
            put!(out, "Z\"}");
            Answer::json(200, out)
        }
        _ => {
            // The newest first.
            let limit = ask.query.number("limit").and_then(Result::ok).unwrap_or(1_000).min(1_000);
            let after = ask.query.number("after").and_then(Result::ok).unwrap_or(usize::MAX) as u64;
            let shown: Vec<_> =
                pair.trades.iter().rev().filter(|trade| trade.id < after).take(limit).collect();
            put!(out, "[");
            for (at, trade) in shown.iter().enumerate() {
                put!(out, if at > 0 { ",{\"trade_id\":" } else { "{\"trade_id\":" });
                number(&mut out, trade.id);
                put!(out, ",\"side\":\"", if trade.buy { "sell" } else { "buy" }, "\",\"size\":\"");
                size8(&mut out, trade.size);
                put!(out, "\",\"price\":\"");
                price(&mut out, pair, trade.price);
                put!(out, "\",\"time\":\"");
                stamp(&mut out, trade.at_us, 6);
                put!(out, "Z\"}");
            }
            put!(out, "]");
            let cursor =
                |trade: Option<&&crate::ws::pair::Trade>| trade.map_or(0, |trade| trade.id).to_string();
            Answer::json(200, out)
                .header("cb-before", &cursor(shown.first()))
                .header("cb-after", &cursor(shown.last()))
        }
    }
}

/// At most 300, the newest first, without those in which nothing was traded. With one bound missing both are ignored.
fn candles(market: &Market, slot: u32, now_ms: i64, ask: &Ask<'_>) -> Answer {
    let timeframe = match ask.query.get("granularity").as_deref() {
        Some("60") | None => Timeframe::M1,
        Some("300") => Timeframe::M5,
        Some("900") => Timeframe::M15,
        Some("3600") => Timeframe::H1,
        Some("21600") => Timeframe::H6,
        Some("86400") => Timeframe::D1,
        Some(_) => return problem(400, "Unsupported granularity"),
    };
    let bound = |name| ask.query.get(name).map(|text| moment(&text).ok_or(name));
    let (start, end) = match (bound("start").transpose(), bound("end").transpose()) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(name), _) | (_, Err(name)) => return problem(400, &format!("Invalid {name}")),
    };
    let (pair, step) = (&market.pairs[slot as usize], timeframe.ms());
    let rows = match start.zip(end) {
        Some((start, end)) if (end - start) / step >= 300 => {
            let said = "granularity too small for the requested time range. Count of aggregations requested exceeds 300";
            return problem(400, said);
        }
        Some((start, end)) => {
            // Now and then the row before comes along.
            let early = if (start / step) % 3 == 0 { start - step } else { start };
            market.history.forward(pair, timeframe, (early, end.saturating_add(1)), now_ms, 301)
        }
        None => market.history.backward(pair, timeframe, (0, i64::MAX), now_ms, 300),
    };
    let mut out = Vec::with_capacity(rows.len() * 80);
    put!(out, "[");
    for row in rows.iter().rev().filter(|row| row.trades > 0 || !row.closed) {
        put!(out, if out.len() > 1 { ",[" } else { "[" });
        number(&mut out, row.open_ms / 1_000);
        for ticks in [row.low, row.high, row.open, row.close] {
            put!(out, ",");
            trimmed(&mut out, ticks as u64, pair.price_scale);
        }
        put!(out, ",");
        trimmed(&mut out, row.volume, SIZE_SCALE);
        put!(out, "]");
    }
    put!(out, "]");
    Answer::json(200, out)
}

/// ISO 8601, or seconds.
fn moment(text: &str) -> Option<i64> {
    match text.parse::<i64>() {
        Ok(seconds) => seconds.checked_mul(1_000),
        Err(_) => Some(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()),
    }
}

fn levels(out: &mut Vec<u8>, pair: &Pair, bid: bool, depth: usize) {
    for (at, level) in pair.side(bid).take(depth).enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        price(out, pair, level.price);
        put!(out, "\",\"");
        size8(out, level.size);
        put!(out, "\",");
        number(out, 1 + level.size % 7);
        put!(out, "]");
    }
}

fn product(pair: &Pair, json: &mut Json) {
    let mut tick = Vec::new();
    price(&mut tick, pair, 1);
    let name = format!("{}-{}", pair.base, pair.quote);
    json.open('{').text("id", &name).text("base_currency", &pair.base).text("quote_currency", pair.quote);
    json.text("quote_increment", &String::from_utf8(tick).unwrap_or_default());
    json.text("base_increment", "0.00000001").text("display_name", &name).text("min_market_funds", "1");
    json.raw("margin_enabled", false).flags(&["post_only", "limit_only", "cancel_only"], false);
    json.text("status", "online").text("status_message", "").raw("trading_disabled", false);
    json.raw("fx_stablecoin", false).text("max_slippage_percentage", "0.02000000");
    json.raw("auction_mode", false).text("high_bid_limit_percentage", "").close('}');
}
