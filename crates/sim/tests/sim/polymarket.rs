//! Polymarket: books, batches, listings.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use crate::client::{Bench, START_MS, small, start};

/// The venue's rule, from the fields of a book and not from its bytes.
fn hash(book: &Value) -> String {
    let levels = |side: &str| {
        let level = |level: &Value| format!(r#"{{"price":{},"size":{}}}"#, level["price"], level["size"]);
        book[side].as_array().unwrap().iter().map(level).collect::<Vec<_>>().join(",")
    };
    let text = format!(
        r#"{{"market":{},"asset_id":{},"timestamp":{},"hash":"","bids":[{}],"asks":[{}],"min_order_size":{},"tick_size":{},"neg_risk":{},"last_trade_price":{}}}"#,
        book["market"],
        book["asset_id"],
        book["timestamp"],
        levels("bids"),
        levels("asks"),
        book["min_order_size"],
        book["tick_size"],
        book["neg_risk"],
        book["last_trade_price"],
    );
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A price as ten-thousandths.
fn price(level: &Value) -> u32 {
    let text = level["price"].as_str().unwrap();
    assert!(text.starts_with("0.") && !text.ends_with('0'), "{text}");
    format!("{:0<4}", &text[2..]).parse().unwrap()
}

fn ladder(book: &Value, side: &str) -> Vec<(u32, String)> {
    let level = |level: &Value| (price(level), level["size"].as_str().unwrap().to_owned());
    book[side].as_array().unwrap().iter().map(level).collect()
}

async fn all_books(bench: &Bench) -> Vec<Value> {
    let tokens = bench.tokens().await;
    assert_eq!(tokens.len(), 120);
    let books = bench.books(&tokens).await.json();
    let books = books.as_array().unwrap().clone();
    let order: Vec<&str> = books.iter().map(|book| book["asset_id"].as_str().unwrap()).collect();
    assert_eq!(order, tokens);
    books
}

#[tokio::test]
async fn every_book_carries_its_true_hash_at_every_time() {
    let bench = start(small()).await;
    for step_ms in [0, 700, 1_000, 500_000] {
        bench.advance(step_ms);
        for book in all_books(&bench).await {
            assert_eq!(book["hash"].as_str().unwrap(), hash(&book), "{book}");
        }
    }
}

#[tokio::test]
async fn the_two_tokens_of_a_market_mirror_each_other() {
    let bench = start(small()).await;
    bench.advance(7_300);
    let books = all_books(&bench).await;
    for pair in books.chunks(2) {
        let [yes, no] = pair else { unreachable!() };
        let turned = |side: &str| -> Vec<(u32, String)> {
            ladder(yes, side).into_iter().map(|(price, size)| (10_000 - price, size)).collect()
        };
        assert_eq!(ladder(no, "bids"), turned("asks"));
        assert_eq!(ladder(no, "asks"), turned("bids"));
        for same in ["market", "timestamp", "tick_size", "neg_risk", "last_trade_price"] {
            assert_eq!(yes[same], no[same], "{same}");
        }
        assert_ne!(yes["hash"], no["hash"]);
    }
}

#[tokio::test]
async fn books_have_the_best_level_last_and_some_are_one_sided_or_untraded() {
    let config = small().with("polymarket.universe.empty_side", "0.2").unwrap();
    let bench = start(config.with("polymarket.universe.untraded", "0.2").unwrap()).await;
    let books = all_books(&bench).await;
    for book in &books {
        let (bids, asks) = (ladder(book, "bids"), ladder(book, "asks"));
        assert!(bids.is_sorted_by(|a, b| a.0 < b.0) && asks.is_sorted_by(|a, b| a.0 > b.0));
        assert!(bids.last().zip(asks.last()).is_none_or(|(bid, ask)| bid.0 < ask.0));
    }
    let count = |what: fn(&Value) -> bool| books.iter().filter(|book| what(book)).count();
    assert!((4..40).contains(&count(|book| book["bids"] == json!([]))));
    assert!((4..40).contains(&count(|book| book["asks"] == json!([]))));
    assert!((8..50).contains(&count(|book| book["last_trade_price"] == "")));
    assert!(count(|book| book["neg_risk"] == true) > 0);
    let ticks: BTreeSet<_> = books.iter().map(|book| book["tick_size"].to_string()).collect();
    assert_eq!(ticks.len(), 2, "{ticks:?}");
}

#[tokio::test]
async fn a_book_moves_once_a_second_and_is_stamped_when_it_did() {
    let bench = start(small()).await;
    let before = all_books(&bench).await;
    let begin = START_MS.to_string();
    assert!(before.iter().all(|book| book["timestamp"] == begin.as_str()));
    bench.advance(1_000);
    let after = all_books(&bench).await;
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before["hash"], after["hash"]);
        let at: i64 = after["timestamp"].as_str().unwrap().parse().unwrap();
        assert!((START_MS..=START_MS + 1_000).contains(&at), "{at}");
    }
    let again = all_books(&bench).await;
    assert_eq!(after, again, "nothing moves while the clock stands");
}

#[tokio::test]
async fn five_hundred_tokens_pass_and_one_more_is_refused() {
    let bench = start(small()).await;
    let mut tokens = bench.tokens().await;
    tokens.resize_with(500, || "12345".to_owned());
    let reply = bench.books(&tokens).await;
    assert_eq!((reply.status, reply.json().as_array().unwrap().len()), (200, 120));
    tokens.push("12345".to_owned());
    let reply = bench.books(&tokens).await;
    assert_eq!((reply.status, reply.error().as_str()), (400, "Payload exceeds the limit"));
}

#[tokio::test]
async fn tokens_without_a_book_are_left_out_without_a_word() {
    let bench = start(small()).await;
    let mut tokens = bench.tokens().await;
    tokens.truncate(3);
    for (at, unknown) in [(0, "0"), (2, "77"), (5, "99")] {
        tokens.insert(at, unknown.to_owned());
    }
    let books = bench.books(&tokens).await.json();
    let got: Vec<&str> =
        books.as_array().unwrap().iter().map(|book| book["asset_id"].as_str().unwrap()).collect();
    assert_eq!(got, [&*tokens[1], &*tokens[3], &*tokens[4]]);
    assert_eq!(bench.books(&["1".into(), "2".into()]).await.body, "[]");
    assert_eq!(bench.books(&[]).await.body, "[]");
    assert_eq!(bench.post("polymarket/clob/books", "{}").await.error(), "Invalid payload");
    assert_eq!(bench.get("polymarket/clob/books?token_ids=1").await.error(), "Invalid payload");
}

#[tokio::test]
async fn a_single_book_is_the_one_of_the_batch_and_its_errors_are_the_venues() {
    let bench = start(small()).await;
    let tokens = bench.tokens().await;
    let single = bench.get(&format!("polymarket/clob/book?token_id={}", tokens[7])).await;
    let batch = bench.books(&tokens[7..8]).await;
    assert_eq!([b"[", &single.body[..], b"]"].concat(), batch.body);
    let check = async |path: &str, status: u16, text: &str| {
        let reply = bench.get(path).await;
        assert_eq!((reply.status, reply.error().as_str()), (status, text));
    };
    check("polymarket/clob/book", 400, "Invalid token id").await;
    check("polymarket/clob/book?token_id=0", 404, "No orderbook exists for the requested token id").await;
    let time = bench.get("polymarket/clob/time").await;
    assert_eq!(
        (&time.body[..], time.header("content-type").unwrap()),
        (&b"1790000000"[..], "text/plain; charset=utf-8")
    );
}

#[tokio::test]
async fn the_clobs_listing_ends_with_its_own_cursor() {
    let bench = start(small().with("polymarket.rules.clob_page", "30").unwrap()).await;
    let (mut cursor, mut rows, mut pages) = ("MA==".to_owned(), Vec::new(), 0);
    while cursor != "LTE=" {
        let page = bench.json(&format!("polymarket/clob/markets?next_cursor={cursor}")).await;
        assert_eq!(page["limit"], 30);
        assert_eq!(page["count"], page["data"].as_array().unwrap().len());
        rows.extend(page["data"].as_array().unwrap().clone());
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
        pages += 1;
    }
    assert_eq!((pages, rows.len()), (3, 70));
    assert_eq!(rows.iter().filter(|row| row["closed"] == true).count(), 10);
    assert!(rows.iter().all(|row| row["accepting_orders"] != row["closed"]));
    let end = bench.get("polymarket/clob/markets?next_cursor=LTE=").await;
    assert_eq!((end.status, end.error().as_str()), (400, "next item should be greater than or equal to 0"));
}

#[tokio::test]
async fn gamma_clamps_pages_and_refuses_deep_offsets() {
    let bench = start(small().with("polymarket.universe.markets", "130").unwrap()).await;
    let rows = async |path: &str| bench.json(path).await.as_array().unwrap().len();
    assert_eq!(rows("polymarket/gamma/markets").await, 20);
    assert_eq!(rows("polymarket/gamma/markets?limit=500").await, 100);
    assert_eq!(rows("polymarket/gamma/markets?limit=500&offset=100").await, 30);
    assert_eq!(rows("polymarket/gamma/markets?limit=5&offset=2000").await, 0);
    assert_eq!(rows("polymarket/gamma/markets?limit=100&closed=true").await, 10);
    assert_eq!(rows("polymarket/gamma/markets?closed=true&archived=true").await, 1);
    let deep = bench.get("polymarket/gamma/markets?offset=2001").await;
    assert_eq!(deep.status, 422);
    assert_eq!(deep.error(), "offset too large, use /markets/keyset for deeper pagination");
    assert_eq!(deep.json()["type"], "validation error");
    let page = bench.get("polymarket/gamma/events").await;
    assert_eq!(page.header("deprecation"), Some("true"));
    assert_eq!(bench.get("polymarket/gamma/status").await.body, "OK");
    let open = start(small().with("polymarket.rules.gamma_offset_max", "null").unwrap()).await;
    assert_eq!(open.get("polymarket/gamma/markets?offset=900000").await.status, 200);
}

#[tokio::test]
async fn a_keyset_walk_sees_every_row_once_and_ends_without_a_cursor() {
    let bench = start(small()).await;
    for (what, want) in [("markets", 60), ("events", 16)] {
        let (mut cursor, mut ids) = (String::new(), Vec::new());
        loop {
            let page =
                bench.json(&format!("polymarket/gamma/{what}/keyset?limit=7&after_cursor={cursor}")).await;
            ids.extend(page[what].as_array().unwrap().iter().map(|row| row["id"].to_string()));
            match page.get("next_cursor") {
                Some(next) => cursor = next.as_str().unwrap().to_owned(),
                None => break,
            }
        }
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), distinct.len()), (want, want), "{what}");
        let wrong = bench.json(&format!("polymarket/gamma/{what}/keyset?limit=7&next_cursor={cursor}")).await;
        assert_eq!(wrong[what][0]["id"].to_string(), ids[0], "the wrong spelling begins anew");
    }
    assert_eq!(bench.get("polymarket/gamma/events/keyset?offset=0").await.status, 422);
}

#[tokio::test]
async fn markets_appear_and_end_in_listings_and_books_alike() {
    let config = small().with("polymarket.universe.births_per_min", "1").unwrap();
    let bench = start(config.with("polymarket.universe.deaths_per_min", "2").unwrap()).await;
    let before = bench.tokens().await;
    bench.advance(60_000);
    let after = bench.tokens().await;
    assert_eq!(after.len(), before.len() - 2);
    assert_eq!(before[4..], after[..before.len() - 4]);
    let gone = bench.get(&format!("polymarket/clob/book?token_id={}", before[0])).await;
    assert_eq!(gone.status, 404);
    assert_eq!(bench.books(&before).await.json().as_array().unwrap().len(), before.len() - 4);
    let fresh = bench.get(&format!("polymarket/clob/book?token_id={}", after.last().unwrap())).await;
    assert_eq!(fresh.status, 200);
    let closed = bench.json("polymarket/gamma/markets?closed=true&limit=100").await;
    assert_eq!(closed.as_array().unwrap().len(), 12);
}

#[tokio::test]
async fn a_client_without_a_name_of_its_own_is_turned_away() {
    let bench = start(small()).await;
    for (agent, status) in [
        ("", 403),
        ("Python-urllib/3.12", 403),
        ("Go-http-client/1.1", 403),
        ("curl/8.5.0", 200),
        ("catchment", 200),
    ] {
        let reply =
            bench.send(hyper::Method::GET, "polymarket/clob/time", "", &[("user-agent", agent)]).await;
        assert_eq!(reply.unwrap().status, status, "{agent:?}");
    }
}

#[tokio::test]
async fn the_same_seed_and_the_same_questions_give_the_same_bytes() {
    let run = async |seed: &str| {
        let bench = start(small().with("seed", seed).unwrap()).await;
        let mut bytes = Vec::new();
        let tokens = bench.tokens().await;
        for step_ms in [0, 333, 90_000] {
            bench.advance(step_ms);
            for path in [
                "polymarket/gamma/events?limit=3",
                "polymarket/clob/markets",
                "limitless/markets/active?limit=5",
                "limitless/markets/active/slugs",
                "kalshi/markets?limit=50",
                "kalshi/markets/KXSIMRATE-26SIM00002-T80/orderbook",
            ] {
                let reply = bench.get(path).await;
                assert_eq!(reply.status, 200, "{path}");
                bytes.push((reply.header("date").unwrap().to_owned(), reply.body));
            }
            bytes.push((String::new(), bench.books(&tokens).await.body));
        }
        bench.sim.stop().await;
        bytes
    };
    let (one, two, other) = (run("5").await, run("5").await, run("6").await);
    assert!(one == two);
    assert_eq!(one[0].0, "Mon, 21 Sep 2026 14:13:20 GMT", "the date is the clock's, too");
    assert!(one.iter().zip(&other).filter(|(a, b)| a.1 != b.1).count() > 10);
}
