//! Limitless: pages of 25, kinds of rows, books.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::{Bench, small, start};

async fn page(bench: &Bench, query: &str) -> (usize, Value) {
    let page = bench.json(&format!("limitless/markets/active?{query}")).await;
    (page["data"].as_array().unwrap().len(), page["totalMarketsCount"].clone())
}

async fn rows(bench: &Bench) -> Vec<Value> {
    let mut rows = Vec::new();
    for number in 1.. {
        let page = bench.json(&format!("limitless/markets/active?limit=25&page={number}")).await;
        let here = page["data"].as_array().unwrap().clone();
        if here.is_empty() {
            break;
        }
        rows.extend(here);
    }
    rows
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["tradeType"] == kind).collect()
}

fn mixed() -> catchment_sim::SimConfig {
    small().with("limitless.rules.group", "0.2").unwrap()
}

#[tokio::test]
async fn pages_hold_25_and_the_one_past_the_end_counts_nothing() {
    let bench = start(small()).await;
    assert_eq!(page(&bench, "limit=25").await, (25, json!(60)));
    assert_eq!(page(&bench, "limit=25&page=3").await, (10, json!(60)));
    assert_eq!(page(&bench, "limit=25&page=4").await, (0, json!(0)));
    let over = bench.get("limitless/markets/active?limit=26").await;
    assert_eq!(over.status, 400);
    assert!(over.json()["message"].as_str().unwrap().contains("25"));
    let other = start(small().with("limitless.rules.over_cap", "empty").unwrap()).await;
    assert_eq!(page(&other, "limit=50").await, (0, json!(0)));
}

#[tokio::test]
async fn a_walk_sees_every_market_and_the_newest_first() {
    let bench = start(small().with("limitless.universe.births_per_min", "60").unwrap()).await;
    let before = rows(&bench).await;
    let slugs: BTreeSet<_> = before.iter().map(|row| row["slug"].to_string()).collect();
    assert_eq!((before.len(), slugs.len()), (60, 60));
    bench.advance(1_000);
    let after = rows(&bench).await;
    assert_eq!(after[1]["slug"], before[0]["slug"]);
    assert!(!slugs.contains(&after[0]["slug"].to_string()));
    let listed = bench.json("limitless/markets/active/slugs").await;
    assert_eq!(listed.as_array().unwrap().len(), 61);
    assert_eq!(listed[0]["slug"], after[0]["slug"]);
}

#[tokio::test]
async fn only_order_book_rows_have_a_book() {
    let bench = start(mixed()).await;
    let rows = rows(&bench).await;
    for (kind, status) in [("clob", 200), ("amm", 400), ("group", 400)] {
        let these = of_kind(&rows, kind);
        assert!(!these.is_empty(), "{kind}");
        for row in these {
            let path = format!("limitless/markets/{}/orderbook", row["slug"].as_str().unwrap());
            assert_eq!(bench.get(&path).await.status, status, "{kind}");
            assert_eq!(row["tokens"]["yes"].is_string(), kind == "clob");
        }
    }
    let missing = bench.get("limitless/markets/no-such/orderbook").await;
    assert_eq!(
        (missing.status, missing.body),
        (404, r#"{"message":"Market not found for slug: no-such"}"#.into())
    );
    assert_eq!(bench.get("limitless/markets/no-such").await.status, 404);
}

#[tokio::test]
async fn a_book_has_the_best_level_first_and_belongs_to_the_yes_token() {
    let bench = start(small()).await;
    let rows = rows(&bench).await;
    for row in of_kind(&rows, "clob") {
        let slug = row["slug"].as_str().unwrap();
        let book = bench.json(&format!("limitless/markets/{slug}/orderbook")).await;
        let prices = |side: &str| -> Vec<f64> {
            book[side].as_array().unwrap().iter().map(|level| level["price"].as_f64().unwrap()).collect()
        };
        assert!(prices("bids").is_sorted_by(|a, b| a > b) && prices("asks").is_sorted_by(|a, b| a < b));
        assert_eq!(book["tokenId"], row["tokens"]["yes"]);
        let sides = |side: &str, word: &str| book[side].as_array().unwrap().iter().all(|l| l["side"] == word);
        assert!(sides("bids", "BUY") && sides("asks", "SELL"));
        let sizes = book["bids"].as_array().unwrap().iter().map(|level| level["size"].as_u64().unwrap());
        assert!(sizes.into_iter().all(|size| size >= 1_000_000));
    }
}

#[tokio::test]
async fn a_group_holds_two_markets_whose_books_mirror_each_other() {
    let bench = start(mixed()).await;
    let rows = rows(&bench).await;
    let group = of_kind(&rows, "group")[0];
    let inside: Vec<&str> =
        group["markets"].as_array().unwrap().iter().map(|m| m["slug"].as_str().unwrap()).collect();
    assert_eq!((group["marketType"].as_str().unwrap(), inside.len()), ("group", 2));
    let book = async |slug: &str| bench.json(&format!("limitless/markets/{slug}/orderbook")).await;
    let (a, b) = (book(inside[0]).await, book(inside[1]).await);
    let ladder = |book: &Value, side: &str, turn: bool| -> Vec<(i64, Value)> {
        let price = |level: &Value| (level["price"].as_f64().unwrap() * 1_000.0).round() as i64;
        let turned = |p: i64| if turn { 1_000 - p } else { p };
        book[side].as_array().unwrap().iter().map(|l| (turned(price(l)), l["size"].clone())).collect()
    };
    assert_eq!(ladder(&a, "bids", true), ladder(&b, "asks", false));
    assert_eq!(ladder(&a, "asks", true), ladder(&b, "bids", false));
    assert_ne!(a["tokenId"], b["tokenId"]);
}

#[tokio::test]
async fn a_market_expires_at_its_deadline_and_resolves_a_minute_later() {
    let bench = start(small().with("limitless.universe.deaths_per_min", "1").unwrap()).await;
    let oldest = rows(&bench).await.pop().unwrap();
    let deadline = oldest["expirationTimestamp"].as_i64().unwrap();
    assert_eq!(deadline, crate::client::START_MS + 60_000);
    let path = format!("limitless/markets/{}", oldest["slug"].as_str().unwrap());
    let state = async || {
        let row = bench.json(&path).await;
        (row["expired"].as_bool().unwrap(), row["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(state().await, (false, "FUNDED".into()));
    bench.advance(60_000);
    assert_eq!(state().await, (true, "FUNDED".into()));
    assert_eq!(rows(&bench).await.len(), 59);
    bench.advance(60_000);
    assert_eq!(state().await, (true, "RESOLVED".into()));
    assert!(bench.json(&path).await["winningOutcomeIndex"].is_number());
}
