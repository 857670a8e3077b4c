//! The REST answers: an envelope with a code, with HTTP 200 whatever it says.

use catchment_model::{Timeframe, UnixMs};

use super::stream::{levels, price, size, trade_name};
use crate::text::Json;
use crate::venue::{Answer, Ask};
use crate::ws::exchange::{Market, number, put};
use crate::ws::pair::Pair;

pub(super) fn endpoint(method: &hyper::Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("GET", "v5/market/time") => "rest/time",
        ("GET", "v5/market/instruments-info") => "rest/instruments-info",
        ("GET", "v5/market/orderbook") => "rest/orderbook",
        ("GET", "v5/market/recent-trade") => "rest/recent-trade",
        ("GET", "v5/market/tickers") => "rest/tickers",
        ("GET", "v5/market/kline") => "rest/kline",
        ("GET", path) if path.ends_with("v5/public/spot") => "ws",
        _ => "rest/other",
    }
}

pub(super) fn answer(market: &mut Market, now_us: i64, path: &str, ask: &Ask<'_>) -> Answer {
    let now_ms = now_us / 1_000;
    let endpoint = endpoint(ask.method, path);
    match endpoint {
        "rest/time" => {
            let (second, nano) = (now_us / 1_000_000, now_us * 1_000);
            fine(format!(r#"{{"timeSecond":"{second}","timeNano":"{nano}"}}"#).as_bytes(), now_ms)
        }
        "rest/other" => Answer::text(404, "404 page not found"),
        _ if ask.query.get("category").as_deref() != Some("spot") => {
            problem(10_001, "params error: category is invalid", now_ms)
        }
        "rest/instruments-info" => instruments(market, now_ms, ask),
        _ => {
            let name = ask.query.get("symbol").unwrap_or_default();
            match market.find(&name).filter(|_| !name.contains('/')) {
                Some(slot) if endpoint == "rest/kline" => candles(market, slot, now_ms, ask),
                Some(slot) => of_symbol(market.look(slot, now_us), endpoint, now_ms, ask),
                None => problem(10_001, "Not supported symbols", now_ms),
            }
        }
    }
}

fn fine(result: &[u8], now_ms: i64) -> Answer {
    let mut out = b"{\"retCode\":0,\"retMsg\":\"OK\",\"result\":".to_vec();
    put!(out, result, ",\"retExtInfo\":{},\"time\":");
    number(&mut out, now_ms);
    put!(out, "}");
    Answer::json(200, out)
}

fn problem(code: u32, msg: &str, now_ms: i64) -> Answer {
    let body =
        format!(r#"{{"retCode":{code},"retMsg":"{msg}","result":{{}},"retExtInfo":{{}},"time":{now_ms}}}"#);
    Answer::json(200, body)
}

fn of_symbol(pair: &Pair, endpoint: &str, now_ms: i64, ask: &Ask<'_>) -> Answer {
    let mut out = Vec::new();
    let limit = ask.query.number("limit").and_then(Result::ok);
    match endpoint {
        "rest/orderbook" => {
            put!(out, "{\"s\":\"", pair.base, pair.quote, "\"");
            for (bid, key) in [(false, ",\"a\":["), (true, ",\"b\":[")] {
                put!(out, key);
                levels(&mut out, pair, pair.side(bid).take(limit.unwrap_or(1).clamp(1, 1_000)).copied());
                put!(out, "]");
            }
            put!(out, ",\"ts\":");
            number(&mut out, now_ms);
            // Counts the moves of the book, as the topic of a thousand levels would if it had been on from the start.
            put!(out, ",\"u\":");
            number(&mut out, pair.update.1 % 100_000_000);
            put!(out, ",\"seq\":");
            number(&mut out, pair.sequence);
            put!(out, ",\"cts\":");
            number(&mut out, pair.book_us / 1_000);
            put!(out, "}");
            return fine(&out, now_ms).books(1);
        }
        "rest/recent-trade" => {
            put!(out, "{\"category\":\"spot\",\"list\":[");
            for (at, trade) in pair.trades.iter().rev().take(limit.unwrap_or(60).clamp(1, 60)).enumerate() {
                put!(out, if at > 0 { ",{\"execId\":\"" } else { "{\"execId\":\"" });
                number(&mut out, trade_name(trade));
                put!(out, "\",\"symbol\":\"", pair.base, pair.quote, "\",\"price\":\"");
                price(&mut out, pair, trade.price);
                put!(out, "\",\"size\":\"");
                size(&mut out, trade.size);
                put!(out, "\",\"side\":\"", if trade.buy { "Buy" } else { "Sell" }, "\",\"time\":\"");
                number(&mut out, trade.at_us / 1_000);
                put!(out, "\",\"isBlockTrade\":false,\"isRPITrade\":false,\"seq\":\"");
                number(&mut out, pair.sequence);
                put!(out, "\"}");
            }
            put!(out, "]}");
        }
        "rest/tickers" => {
            let ((bid, best), trade) = (pair.best(), pair.last_trade());
            put!(out, "{\"category\":\"spot\",\"list\":[{\"symbol\":\"", pair.base, pair.quote, "\"");
            for (key, level) in [("bid1", bid), ("ask1", best)] {
                put!(out, ",\"", key, "Price\":\"");
                price(&mut out, pair, level.price);
                put!(out, "\",\"", key, "Size\":\"");
                size(&mut out, level.size);
                put!(out, "\"");
            }
            for (key, ticks) in [
                ("lastPrice", trade.price),
                ("prevPrice24h", pair.open),
                ("highPrice24h", pair.high),
                ("lowPrice24h", pair.low),
            ] {
                put!(out, ",\"", key, "\":\"");
                price(&mut out, pair, ticks);
                put!(out, "\"");
            }
            put!(out, ",\"volume24h\":\"");
            size(&mut out, pair.volume);
            put!(out, "\"}]}");
        }
        _ => return Answer::text(404, "404 page not found"),
    }
    fine(&out, now_ms)
}

/// The newest first; both bounds are included, and where more lies between them than fits, the newest win. A start in the
/// midst of a candle is that candle's.
fn candles(market: &Market, slot: u32, now_ms: i64, ask: &Ask<'_>) -> Answer {
    let timeframe = match ask.query.get("interval").as_deref() {
        Some("1") => Timeframe::M1,
        Some("3") => Timeframe::M3,
        Some("5") => Timeframe::M5,
        Some("15") => Timeframe::M15,
        Some("30") => Timeframe::M30,
        Some("60") => Timeframe::H1,
        Some("120") => Timeframe::H2,
        Some("240") => Timeframe::H4,
        Some("360") => Timeframe::H6,
        Some("720") => Timeframe::H12,
        Some("D") => Timeframe::D1,
        Some("W") => Timeframe::W1,
        Some("M") => Timeframe::Month,
        _ => return problem(10_001, "Invalid period!", now_ms),
    };
    let bound = |name| ask.query.get(name).map(|text| text.parse::<i64>().map_err(|_| name));
    let (start, end) = match (bound("start").transpose(), bound("end").transpose()) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(name), _) | (_, Err(name)) => {
            return problem(10_001, &format!("params error: {name} is invalid"), now_ms);
        }
    };
    let pair = &market.pairs[slot as usize];
    let most = ask.query.number("limit").and_then(Result::ok).unwrap_or(200).clamp(1, 1_000);
    let from =
        start.and_then(|start| UnixMs::new(start).ok()).map_or(0, |start| timeframe.open_of(start).get());
    let until = end.map_or(i64::MAX, |end| end.saturating_add(1));
    let rows = match from < until {
        true => market.history.backward(pair, timeframe, (from, until), now_ms, most),
        false => Vec::new(),
    };
    let mut out = Vec::with_capacity(100 + rows.len() * 100);
    put!(out, "{\"symbol\":\"", pair.base, pair.quote, "\",\"category\":\"spot\",\"list\":[");
    for (at, row) in rows.iter().rev().enumerate() {
        put!(out, if at > 0 { ",[\"" } else { "[\"" });
        number(&mut out, row.open_ms);
        for ticks in [row.open, row.high, row.low, row.close] {
            put!(out, "\",\"");
            price(&mut out, pair, ticks);
        }
        for amount in [row.volume, row.quote_volume(pair)] {
            put!(out, "\",\"");
            size(&mut out, amount);
        }
        put!(out, "\"]");
    }
    put!(out, "]}");
    fine(&out, now_ms)
}

fn instruments(market: &Market, now_ms: i64, ask: &Ask<'_>) -> Answer {
    let wanted = ask.query.get("symbol");
    let mut json = Json::default();
    json.open('{').text("category", "spot").key("list").open('[');
    for pair in &market.pairs {
        let name = format!("{}{}", pair.base, pair.quote);
        if wanted.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let mut tick = Vec::new();
        price(&mut tick, pair, 1);
        json.open('{').text("symbol", &name).text("baseCoin", &pair.base).text("quoteCoin", pair.quote);
        json.text("innovation", "0").text("status", "Trading").text("marginTrading", "none");
        json.key("lotSizeFilter").open('{').text("basePrecision", "0.00000001");
        json.text("quotePrecision", "0.00000001").text("minOrderQty", "0.00001").text("maxOrderQty", "500");
        json.text("minOrderAmt", "1").text("maxOrderAmt", "1200000").close('}');
        json.key("priceFilter").open('{').text("tickSize", &String::from_utf8(tick).unwrap_or_default());
        json.close('}').close('}');
    }
    fine(json.close(']').close('}').done().as_bytes(), now_ms)
}
