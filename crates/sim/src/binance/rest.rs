//! The REST answers, and the weights they cost.

use catchment_model::Timeframe;

use super::Binance;
use super::stream::{price, write_book};
use crate::text::Json;
use crate::venue::{Answer, Ask};
use crate::ws::exchange::{Market, number, put, size8};
use crate::ws::pair::Trade;

/// Clients remembered.
const CLIENTS_MAX: usize = 1_024;
const MINUTE_US: i64 = 60_000_000;

/// What a client has used.
#[derive(Debug, Default)]
pub(super) struct Weight {
    minute: i64,
    used: u32,
    /// Refusals in this minute.
    refused: u32,
    banned_until_us: i64,
}

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "api/v3/ping") => "rest/ping",
        ("GET", "api/v3/time") => "rest/time",
        ("GET", "api/v3/exchangeInfo") => "rest/exchangeInfo",
        ("GET", "api/v3/depth") => "rest/depth",
        ("GET", "api/v3/trades") => "rest/trades",
        ("GET", "api/v3/aggTrades") => "rest/aggTrades",
        ("GET", "api/v3/ticker/bookTicker") => "rest/bookTicker",
        ("GET", "api/v3/klines") => "rest/klines",
        ("GET", path) if path == "ws" || path == "stream" || path.starts_with("ws/") => "ws",
        _ => "rest/other",
    }
}

impl Binance {
    pub(super) fn rest(&mut self, market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
        let endpoint = endpoint(ask.method, path);
        let limit = ask.query.number("limit");
        let weight = match endpoint {
            "rest/exchangeInfo" => 20,
            "rest/trades" => 25,
            "rest/aggTrades" => 4,
            "rest/bookTicker" | "rest/klines" => 2,
            "rest/depth" => match limit.and_then(Result::ok).unwrap_or(100) {
                0..=100 => 5,
                101..=500 => 25,
                501..=1_000 => 50,
                _ => 250,
            },
            _ => 1,
        };
        let used = match self.weigh(ask, now_us, weight) {
            Ok(used) => used,
            Err(refused) => return refused,
        };
        let answer = match endpoint {
            "rest/ping" => Answer::json(200, "{}"),
            "rest/time" => Answer::json(200, format!(r#"{{"serverTime":{}}}"#, now_us / 1_000)),
            "rest/exchangeInfo" => exchange_info(market, self.rules.weight_per_min, now_us, ask),
            "rest/depth" | "rest/trades" | "rest/aggTrades" | "rest/bookTicker" | "rest/klines" => {
                match limit {
                    Some(Err(())) => problem(-1100, "Illegal characters found in parameter 'limit'."),
                    _ => of_symbol(market, now_us, endpoint, limit.and_then(Result::ok), ask),
                }
            }
            _ => Answer::text(404, "<html><body>404 Not Found</body></html>"),
        };
        answer
            .header("x-mbx-used-weight", &used.to_string())
            .header("x-mbx-used-weight-1m", &used.to_string())
    }

    /// Counts the weight; what a client gets that has used too much.
    fn weigh(&mut self, ask: &Ask<'_>, now_us: i64, weight: u32) -> Result<u32, Answer> {
        if self.weights.len() >= CLIENTS_MAX && !self.weights.contains_key(&ask.client) {
            self.weights.clear();
        }
        let own = self.weights.entry(ask.client).or_default();
        let minute = now_us.div_euclid(MINUTE_US);
        if own.minute != minute {
            *own = Weight { minute, banned_until_us: own.banned_until_us, ..Weight::default() };
        }
        if !self.counts {
            own.used = own.used.saturating_add(weight);
            return Ok(own.used);
        }
        let seconds = |until_us: i64| ((until_us - now_us).max(1) as u64).div_ceil(1_000_000).to_string();
        let refuse = |status: u16, until_us: i64, used: u32| {
            let msg = match status {
                418 => format!(
                    "Way too much request weight used; IP banned until {}. Please use WebSocket Streams for live \
                     updates to avoid bans.",
                    until_us / 1_000
                ),
                _ => format!(
                    "Too much request weight used; current limit is {} request weight per 1 MINUTE. Please use \
                     WebSocket Streams for live updates to avoid polling the API.",
                    self.rules.weight_per_min
                ),
            };
            let body = Json::default().open('{').raw("code", -1003).text("msg", &msg).close('}').done();
            Err(Answer::json(status, body)
                .header("retry-after", &seconds(until_us))
                .header("x-mbx-used-weight-1m", &used.to_string()))
        };
        if now_us < own.banned_until_us {
            return refuse(418, own.banned_until_us, own.used);
        }
        own.used = own.used.saturating_add(weight);
        if own.used <= self.rules.weight_per_min {
            return Ok(own.used);
        }
        own.refused += 1;
        if own.refused > self.rules.ban_after {
            own.banned_until_us = now_us + self.rules.ban_ms as i64 * 1_000;
            return refuse(418, own.banned_until_us, own.used);
        }
        refuse(429, (minute + 1) * MINUTE_US, own.used)
    }
}

fn problem(code: i32, msg: &str) -> Answer {
    Answer::json(400, Json::default().open('{').raw("code", code).text("msg", msg).close('}').done())
}

fn of_symbol(
    market: &mut Market,
    now_us: i64,
    endpoint: &str,
    limit: Option<usize>,
    ask: &Ask<'_>,
) -> Answer {
    let Some(symbol) = ask.query.get("symbol") else {
        return problem(-1102, "Mandatory parameter 'symbol' was not sent, was empty/null, or malformed.");
    };
    let Some(slot) = market.find(&symbol).filter(|_| !symbol.contains('/')) else {
        return problem(-1121, "Invalid symbol.");
    };
    if endpoint == "rest/klines" {
        return klines(market, slot, now_us / 1_000, limit, ask);
    }
    let pair = market.look(slot, now_us);
    let mut out = Vec::new();
    let mut books = 0;
    match endpoint {
        "rest/depth" => {
            write_book(pair, limit.unwrap_or(100).min(5_000), &mut out);
            books = 1;
        }
        "rest/bookTicker" => {
            let (bid, ask) = pair.best();
            put!(out, "{\"symbol\":\"", pair.base, pair.quote, "\",\"bidPrice\":\"");
            price(&mut out, pair, bid.price);
            put!(out, "\",\"bidQty\":\"");
            size8(&mut out, bid.size);
            put!(out, "\",\"askPrice\":\"");
            price(&mut out, pair, ask.price);
            put!(out, "\",\"askQty\":\"");
            size8(&mut out, ask.size);
            put!(out, "\"}");
        }
        _ => {
            let limit = limit.unwrap_or(500).min(1_000);
            let bound = |name| ask.query.get(name).and_then(|text| text.parse::<i64>().ok());
            let (first, start) = (bound("fromId"), bound("startTime"));
            let end = bound("endTime").unwrap_or(i64::MAX);
            let is_wanted = |trade: &&Trade| {
                let at_ms = trade.at_us / 1_000;
                endpoint != "rest/aggTrades"
                    || (first.is_none_or(|first| trade.id as i64 >= first)
                        && start.is_none_or(|start| at_ms >= start)
                        && at_ms <= end)
            };
            let wanted: Vec<&Trade> = pair.trades.iter().filter(is_wanted).collect();
            // From a beginning on the oldest; without one the newest.
            let is_from = endpoint == "rest/aggTrades" && (first.is_some() || start.is_some());
            let skip = if is_from { 0 } else { wanted.len().saturating_sub(limit) };
            out.push(b'[');
            for trade in wanted.into_iter().skip(skip).take(limit) {
                if out.len() > 1 {
                    out.push(b',');
                }
                match endpoint {
                    "rest/trades" => push_trade(pair, trade, &mut out),
                    _ => push_agg_trade(pair, trade, &mut out),
                }
            }
            out.push(b']');
        }
    }
    Answer::json(200, out).books(books)
}

/// `startTime` alone: the oldest from there on; `endTime` alone: the newest up to there; both bounds are included.
fn klines(market: &Market, slot: u32, now_ms: i64, limit: Option<usize>, ask: &Ask<'_>) -> Answer {
    let Some(timeframe) = ask.query.get("interval").and_then(|name| name.parse::<Timeframe>().ok()) else {
        return problem(-1120, "Invalid interval.");
    };
    let bound = |name| ask.query.get(name).map(|text| text.parse::<i64>().map_err(|_| name));
    let (start, end) = match (bound("startTime").transpose(), bound("endTime").transpose()) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(name), _) | (_, Err(name)) => {
            return problem(-1100, &format!("Illegal characters found in parameter '{name}'."));
        }
    };
    let (pair, most) = (&market.pairs[slot as usize], limit.unwrap_or(500).clamp(1, 1_000));
    let until = end.map_or(i64::MAX, |end| end.saturating_add(1));
    let rows = match start {
        Some(start) => market.history.forward(pair, timeframe, (start, until), now_ms, most),
        None => market.history.backward(pair, timeframe, (0, until), now_ms, most),
    };
    let mut out = Vec::with_capacity(rows.len() * 170);
    out.push(b'[');
    for (at, row) in rows.iter().enumerate() {
        put!(out, if at > 0 { ",[" } else { "[" });
        number(&mut out, row.open_ms);
        for ticks in [row.open, row.high, row.low, row.close] {
            put!(out, ",\"");
            price(&mut out, pair, ticks);
            put!(out, "\"");
        }
        put!(out, ",\"");
        size8(&mut out, row.volume);
        put!(out, "\",");
        number(&mut out, row.next_ms - 1);
        put!(out, ",\"");
        size8(&mut out, row.quote_volume(pair));
        put!(out, "\",");
        number(&mut out, row.trades);
        put!(out, ",\"");
        size8(&mut out, row.volume / 2);
        put!(out, "\",\"");
        size8(&mut out, row.quote_volume(pair) / 2);
        put!(out, "\",\"0\"]");
    }
    out.push(b']');
    Answer::json(200, out)
}

fn push_trade(pair: &crate::ws::pair::Pair, trade: &Trade, out: &mut Vec<u8>) {
    put!(out, "{\"id\":");
    number(out, trade.id);
    put!(out, ",\"price\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"qty\":\"");
    size8(out, trade.size);
    put!(out, "\",\"quoteQty\":\"");
    let scale = 10u128.pow(u32::from(pair.price_scale));
    size8(out, (u128::from(trade.size) * trade.price as u128 / scale) as u64);
    put!(out, "\",\"time\":");
    number(out, trade.at_us / 1_000);
    put!(out, ",\"isBuyerMaker\":", if trade.buy { "false" } else { "true" }, ",\"isBestMatch\":true}");
}

fn push_agg_trade(pair: &crate::ws::pair::Pair, trade: &Trade, out: &mut Vec<u8>) {
    put!(out, "{\"a\":");
    number(out, trade.id);
    put!(out, ",\"p\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"q\":\"");
    size8(out, trade.size);
    put!(out, "\",\"f\":");
    number(out, trade.id);
    put!(out, ",\"l\":");
    number(out, trade.id);
    put!(out, ",\"T\":");
    number(out, trade.at_us / 1_000);
    put!(out, ",\"m\":", if trade.buy { "false" } else { "true" }, ",\"M\":true}");
}

fn exchange_info(market: &Market, weight_per_min: u32, now_us: i64, ask: &Ask<'_>) -> Answer {
    let mut wanted: Vec<String> = ask.query.all("symbol").map(std::borrow::Cow::into_owned).collect();
    if let Some(list) = ask.query.get("symbols") {
        match serde_json::from_str::<Vec<String>>(&list) {
            Ok(names) => wanted.extend(names),
            Err(_) => return problem(-1100, "Illegal characters found in parameter 'symbols'."),
        }
    }
    if wanted.iter().any(|name| name.contains('/') || market.find(name).is_none()) {
        return problem(-1121, "Invalid symbol.");
    }
    let mut json = Json::default();
    json.open('{').text("timezone", "UTC").raw("serverTime", now_us / 1_000).key("rateLimits").open('[');
    for (kind, interval, n, limit) in [
        ("REQUEST_WEIGHT", "MINUTE", 1, weight_per_min),
        ("ORDERS", "SECOND", 10, 100),
        ("ORDERS", "DAY", 1, 200_000),
        ("RAW_REQUESTS", "MINUTE", 5, 300_000),
    ] {
        json.open('{').text("rateLimitType", kind).text("interval", interval);
        json.raw("intervalNum", n).raw("limit", limit).close('}');
    }
    json.close(']').key("exchangeFilters").value("[]").key("symbols").open('[');
    for pair in &market.pairs {
        let name = format!("{}{}", pair.base, pair.quote);
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let mut tick = Vec::new();
        price(&mut tick, pair, 1);
        let tick = String::from_utf8(tick).unwrap_or_default();
        json.open('{').text("symbol", &name).text("status", "TRADING").text("baseAsset", &pair.base);
        json.raw("baseAssetPrecision", 8).text("quoteAsset", pair.quote).raw("quotePrecision", 8);
        json.raw("quoteAssetPrecision", 8)
            .raw("baseCommissionPrecision", 8)
            .raw("quoteCommissionPrecision", 8);
        json.key("orderTypes").value(r#"["LIMIT","LIMIT_MAKER","MARKET"]"#);
        json.flags(&["icebergAllowed", "ocoAllowed", "isSpotTradingAllowed"], true);
        json.raw("isMarginTradingAllowed", false).key("filters").open('[').open('{');
        json.text("filterType", "PRICE_FILTER").text("minPrice", &tick).text("maxPrice", "1000000.00000000");
        json.text("tickSize", &tick).close('}').open('{').text("filterType", "LOT_SIZE");
        json.text("minQty", "0.00000001").text("maxQty", "9000.00000000").text("stepSize", "0.00000001");
        json.close('}').open('{').text("filterType", "NOTIONAL").text("minNotional", "5.00000000");
        json.raw("applyMinToMarket", true).text("maxNotional", "9000000.00000000");
        json.raw("applyMaxToMarket", false).raw("avgPriceMins", 5).close('}').close(']');
        json.key("permissions").value("[]").key("permissionSets").value(r#"[["SPOT"]]"#);
        json.text("defaultSelfTradePreventionMode", "EXPIRE_MAKER");
        json.key("allowedSelfTradePreventionModes").value(r#"["EXPIRE_TAKER","EXPIRE_MAKER","EXPIRE_BOTH"]"#);
        json.close('}');
    }
    Answer::json(200, json.close(']').close('}').done())
}
