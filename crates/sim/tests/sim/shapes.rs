//! The shape of what we send, held against payloads recorded from the venues: the same keys, the same types.
//!
//! The recordings are not part of the repository. Where they lie beside the checkout, or where `CATCHMENT_SAMPLES` says,
//! they are used; where not, a line says so, and the other tests still hold the formats to what we know.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Bench, small, start};

fn recorded(file: &str) -> Option<Value> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/venues/samples");
    let folder = std::env::var_os("CATCHMENT_SAMPLES").map_or_else(beside, PathBuf::from);
    let Ok(bytes) = std::fs::read(folder.join(file)) else {
        println!("no recording {file}: its shape is not compared");
        return None;
    };
    Some(serde_json::from_slice(&bytes).unwrap())
}

/// Paths to leaves and their types; elements of an array count as one. `null` goes with every type.
fn shape(value: &Value, at: &str, out: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            items.iter().for_each(|item| shape(item, &format!("{at}[]"), out));
            "array"
        }
        Value::Object(members) => {
            members.iter().for_each(|(key, item)| shape(item, &format!("{at}.{key}"), out));
            "object"
        }
    };
    let known = out.entry(at.to_owned()).or_insert(kind);
    if *known == "null" {
        *known = kind;
    }
}

fn shape_of(value: &Value) -> BTreeMap<String, &'static str> {
    let mut out = BTreeMap::new();
    shape(value, "", &mut out);
    out
}

/// Every key of the recording is in ours and the other way round, but for those that begin as listed, with equal types.
fn check(file: &str, recording: &Value, ours: &Value, but_for: &[&str]) {
    let (theirs, ours) = (shape_of(recording), shape_of(ours));
    let excused = |path: &String| but_for.iter().any(|prefix| path.starts_with(prefix));
    let mut wrong = Vec::new();
    for (path, kind) in theirs.iter().filter(|(path, _)| !excused(path)) {
        match ours.get(path) {
            None => wrong.push(format!("{path} is missing")),
            Some(own) if own != kind && *own != "null" && *kind != "null" => {
                wrong.push(format!("{path} is {own}, recorded {kind}"));
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        ours.keys()
            .filter(|path| !theirs.contains_key(*path) && !excused(path))
            .map(|p| format!("{p} is ours")),
    );
    assert!(wrong.is_empty(), "{file}: {wrong:#?}");
}

async fn against(bench: &Bench, file: &str, inside: &str, path: &str, ours: &str, but_for: &[&str]) {
    let Some(recording) = recorded(file) else { return };
    let answer = bench.json(path).await;
    let (theirs, ours) = (recording.pointer(inside).unwrap(), answer.pointer(ours).unwrap());
    check(file, theirs, ours, but_for);
}

#[tokio::test]
async fn books_of_polymarket_look_as_recorded() {
    let bench = start(small()).await;
    let path = format!("polymarket/clob/book?token_id={}", bench.tokens().await[0]);
    for file in ["clob-book.json", "clob-book-2.json", "clob-book-pair-up.json"] {
        against(&bench, &format!("polymarket/{file}"), "", &path, "", &[]).await;
    }
}

#[tokio::test]
async fn listings_of_polymarket_look_as_recorded() {
    let bench = start(small().with("polymarket.universe.neg_risk", "0").unwrap()).await;
    // `rewards.rates` is null or an array; what an event tells about itself in prose is free text.
    let row = "polymarket/clob-markets-page-2024.json";
    against(&bench, row, "", "polymarket/clob/markets", "", &[".data[].rewards.rates"]).await;
    let prose = [".events[].eventMetadata", "[].events[].eventMetadata"];
    let event_only = ["[].events[].tags", "[].events[].estimateValue", "[].events[].deployingTimestamp"];
    let market_only = ["[].oneDayPriceChange"];
    let but_for = [&prose[..], &event_only, &market_only].concat();
    against(&bench, "polymarket/gamma-markets-list.json", "", "polymarket/gamma/markets", "", &but_for).await;
}

#[tokio::test]
async fn events_of_polymarket_look_as_recorded() {
    let bench = start(small().with("polymarket.universe.neg_risk", "1").unwrap()).await;
    // Only some events belong to a series or carry prose, and only some tags say who changed them; `version` came after this recording.
    let some = [
        ".eventMetadata",
        ".series",
        ".version",
        ".sortBy",
        ".tags[].",
        ".markets[].version",
        ".markets[].comboStatus",
    ];
    let later = [".markets[].seriesColor", ".markets[].resolutionSource", ".markets[].oneYearPriceChange"];
    let but_for = [&some[..], &later].concat();
    let file = "polymarket/gamma-event-negrisk.json";
    against(&bench, file, "", "polymarket/gamma/events?limit=100", "/1", &but_for).await;
}

#[tokio::test]
async fn limitless_looks_as_recorded() {
    let config = small().with("limitless.rules.amm", "0").unwrap();
    let bench = start(config.with("limitless.rules.group", "0").unwrap()).await;
    against(&bench, "limitless/markets-active.json", "", "limitless/markets/active", "", &[]).await;
    against(&bench, "limitless/active-slugs.json", "", "limitless/markets/active/slugs", "", &[]).await;
    let listed = bench.json("limitless/markets/active").await;
    let slug = listed["data"][0]["slug"].as_str().unwrap();
    // That recording is of a market made by hand; ours come by themselves every five minutes.
    let by_hand = [".metadata", ".stableSlug", ".priceOracleMetadata"];
    against(&bench, "limitless/market-single.json", "", &format!("limitless/markets/{slug}"), "", &by_hand)
        .await;
    let book = format!("limitless/markets/{slug}/orderbook");
    against(&bench, "limitless/orderbook.json", "", &book, "", &[]).await;
    let Some(missing) = recorded("limitless/market-not-found.json") else { return };
    let theirs: Value = serde_json::from_str(missing["body"].as_str().unwrap()).unwrap();
    check("market-not-found", &theirs, &bench.get("limitless/markets/no-such").await.json(), &[]);
}

#[tokio::test]
async fn kalshi_looks_as_recorded() {
    let bench = start(small()).await;
    against(&bench, "kalshi/markets-page.json", "", "kalshi/markets?limit=1&status=open", "", &[]).await;
    let page = bench.json("kalshi/markets?mve_filter=exclude&status=open").await;
    let ticker = page["markets"][0]["ticker"].as_str().unwrap();
    against(&bench, "kalshi/market-single.json", "", &format!("kalshi/markets/{ticker}"), "", &[]).await;
    let floor = [".markets[].floor_strike"]; // that one is between two strikes, ours are below one
    against(&bench, "kalshi/markets-resolved.json", "", "kalshi/markets?status=settled", "", &floor).await;
    let book = format!("kalshi/markets/{ticker}/orderbook");
    against(&bench, "kalshi/orderbook.json", "", &book, "", &[]).await;
    against(&bench, "kalshi/exchange-status.json", "/response", "kalshi/exchange/status", "", &[]).await;
}
