//! Kalshi: listings with combos, books as ladders of bids.

use serde_json::{Value, json};

use crate::client::{Bench, small, start};

async fn walk(bench: &Bench, query: &str) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = bench.json(&format!("kalshi/trade-api/v2/markets?{query}&cursor={cursor}")).await;
        rows.extend(page["markets"].as_array().unwrap().clone());
        cursor = page["cursor"].as_str().unwrap().to_owned();
        if cursor.is_empty() {
            return rows;
        }
        assert!(!cursor.contains('='), "cursors have no padding");
    }
}

#[tokio::test]
async fn combos_head_the_listing_unless_excluded() {
    let bench = start(small()).await;
    let all = walk(&bench, "limit=7&status=open").await;
    let combos = all.iter().take_while(|row| row["ticker"].as_str().unwrap().starts_with("KXMVE")).count();
    assert_eq!((combos, all.len()), (30, 90));
    assert!(all[..30].iter().all(|row| row["is_provisional"] == true && row["volume_fp"] == "0.00"));
    assert!(all.iter().all(|row| row["status"] == "active"));
    assert_eq!(walk(&bench, "limit=1000&status=open&mve_filter=exclude").await, all[30..]);
    assert_eq!(walk(&bench, "mve_filter=only").await, all[..30]);
    assert_eq!(walk(&bench, "limit=13").await.len(), 100);
    for wrong in ["limit=1001", "limit=0", "status=active", "mve_filter=no", "cursor=!"] {
        let reply = bench.get(&format!("kalshi/markets?{wrong}")).await;
        assert_eq!(reply.status, 400, "{wrong}");
        assert!(reply.json()["message"].is_string() && reply.json()["code"].is_string());
    }
}

#[tokio::test]
async fn a_book_is_two_ascending_ladders_of_bids_and_depth_keeps_the_best() {
    let bench = start(small()).await;
    for row in walk(&bench, "mve_filter=exclude&status=open").await {
        let ticker = row["ticker"].as_str().unwrap();
        let book = bench.json(&format!("kalshi/markets/{ticker}/orderbook")).await;
        let ladder = |side: &str| -> Vec<(String, String)> {
            serde_json::from_value(book["orderbook_fp"][side].clone()).unwrap()
        };
        let (yes, no) = (ladder("yes_dollars"), ladder("no_dollars"));
        for side in [&yes, &no] {
            assert!(side.is_sorted_by(|a, b| a.0 < b.0));
            assert!(
                side.iter()
                    .all(|(price, size)| price.len() == 6 && size.split_once('.').unwrap().1.len() == 2)
            );
        }
        let best =
            |side: &[(String, String)]| side.last().cloned().unwrap_or(("0.0000".into(), "0.00".into()));
        assert_eq!(
            (&row["yes_bid_dollars"], &row["yes_bid_size_fp"]),
            (&json!(best(&yes).0), &json!(best(&yes).1))
        );
        assert_eq!(
            (&row["no_bid_dollars"], &row["yes_ask_size_fp"]),
            (&json!(best(&no).0), &json!(best(&no).1))
        );
        let few = bench.json(&format!("kalshi/markets/{ticker}/orderbook?depth=3")).await;
        let kept = few["orderbook_fp"]["yes_dollars"].as_array().unwrap().len();
        assert_eq!(kept, yes.len().min(3));
        assert_eq!(few["orderbook_fp"]["yes_dollars"], json!(yes[yes.len() - kept..]));
    }
}

#[tokio::test]
async fn many_books_come_in_one_answer_and_unknown_tickers_are_left_out() {
    let bench = start(small()).await;
    let rows = walk(&bench, "mve_filter=exclude&status=open").await;
    let tickers: Vec<&str> = rows.iter().map(|row| row["ticker"].as_str().unwrap()).collect();
    let answer = bench
        .json(&format!("kalshi/markets/orderbooks?tickers={}&tickers=NONE", tickers.join("&tickers=")))
        .await;
    let books = answer["orderbooks"].as_array().unwrap();
    assert_eq!(books.iter().map(|book| book["ticker"].as_str().unwrap()).collect::<Vec<_>>(), tickers);
    let single = bench.json(&format!("kalshi/markets/{}/orderbook", tickers[5])).await;
    assert_eq!(books[5]["orderbook_fp"], single["orderbook_fp"]);
    let many = vec!["A"; 101].join("&tickers=");
    assert_eq!(bench.get(&format!("kalshi/markets/orderbooks?tickers={many}")).await.status, 400);
    assert_eq!(bench.get("kalshi/markets/orderbooks").await.status, 400);
    assert_eq!(bench.get("kalshi/markets/NONE/orderbook").await.status, 404);
    assert_eq!(bench.get("kalshi/markets/NONE").await.json()["code"], "not_found");
}

#[tokio::test]
async fn a_market_closes_then_settles() {
    let bench = start(small().with("kalshi.universe.deaths_per_min", "1").unwrap()).await;
    let first =
        walk(&bench, "mve_filter=exclude&status=open").await[0]["ticker"].as_str().unwrap().to_owned();
    let status = async || bench.json(&format!("kalshi/markets/{first}")).await["market"]["status"].clone();
    assert_eq!(status().await, "active");
    bench.advance(60_000);
    assert_eq!(status().await, "closed");
    assert_eq!(walk(&bench, "status=closed").await.len(), 1);
    let book = bench.json(&format!("kalshi/markets/{first}/orderbook")).await;
    assert_eq!(book, json!({"orderbook_fp":{"no_dollars":[],"yes_dollars":[]}}));
    bench.advance(60_000);
    assert_eq!(status().await, "finalized");
    assert_eq!(walk(&bench, "status=settled").await.len(), 11);
    let empty_agent =
        bench.send(hyper::Method::GET, "kalshi/exchange/status", "", &[("user-agent", "")]).await;
    assert_eq!(empty_agent.unwrap().status, 200);
}
