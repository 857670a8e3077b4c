//! The REST answers: an envelope with a code, mostly with HTTP 200.

use super::stream::{candle_row, levels, price, size, ticker_row};
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
        ("GET", "api/v5/market/trades") => "rest/trades",
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
        "rest/books" | "rest/ticker" | "rest/candles" | "rest/trades" => {
            let Some(name) = ask.query.get("instId") else {
                return problem(400, "50014", "Parameter instId can not be empty.");
            };
            let Some(slot) = market.find(&name).filter(|_| !name.contains('/')) else {
                return unknown();
            };
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
        "rest/candles" => drop(candle_row(pair, &mut out)),
        _ => {
            let limit = ask.query.number("limit").and_then(Result::ok).unwrap_or(100).clamp(1, 500);
            for (at, trade) in pair.trades.iter().rev().take(limit).enumerate() {
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
