//! Polymarket: no acknowledgements, both tokens in every change, and a hash that a reader can recompute.

use catchment_sim::{StreamFault, StreamFaultKind as Kind};
use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::client::{Bench, small, start};

/// A token's book, kept from the stream alone; the terms come from the first frame and from REST.
struct Book {
    market: String,
    token: String,
    sides: [Vec<(String, String)>; 2],
    tick: String,
    neg_risk: bool,
    last: String,
}

impl Book {
    fn new(first: &Value, rest: &Value) -> Self {
        let mut book = Self {
            market: first["market"].as_str().unwrap().into(),
            token: first["asset_id"].as_str().unwrap().into(),
            sides: Default::default(),
            tick: first["tick_size"].as_str().unwrap().into(),
            neg_risk: rest["neg_risk"].as_bool().unwrap(),
            last: first["last_trade_price"].as_str().unwrap().into(),
        };
        book.replace(first);
        book
    }

    fn replace(&mut self, frame: &Value) {
        for (side, key) in self.sides.iter_mut().zip(["bids", "asks"]) {
            let levels = frame[key].as_array().unwrap().iter();
            *side = levels
                .map(|level| {
                    (level["price"].as_str().unwrap().into(), level["size"].as_str().unwrap().into())
                })
                .collect();
        }
    }

    fn change(&mut self, change: &Value) {
        let at = usize::from(change["side"] == "SELL");
        let (price, size) = (change["price"].as_str().unwrap(), change["size"].as_str().unwrap());
        let side = &mut self.sides[at];
        side.retain(|(other, _)| other != price);
        if size != "0" {
            side.push((price.into(), size.into()));
        }
        // Both sides have the best level last.
        side.sort_by(|a, b| a.0.parse::<f64>().unwrap().total_cmp(&b.0.parse().unwrap()));
        if at == 1 {
            side.reverse();
        }
    }

    fn hash(&self, timestamp: &str) -> String {
        let levels = |side: &[(String, String)]| {
            let texts: Vec<String> = side
                .iter()
                .map(|(price, size)| format!(r#"{{"price":"{price}","size":"{size}"}}"#))
                .collect();
            texts.join(",")
        };
        let text = format!(
            r#"{{"market":"{}","asset_id":"{}","timestamp":"{timestamp}","hash":"","bids":[{}],"asks":[{}],"min_order_size":"5","tick_size":"{}","neg_risk":{},"last_trade_price":"{}"}}"#,
            self.market,
            self.token,
            levels(&self.sides[0]),
            levels(&self.sides[1]),
            self.tick,
            self.neg_risk,
            self.last
        );
        Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// At least three decimals, as books spell a last price.
fn three(price: &str) -> String {
    let decimals = price.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let point = if decimals == 0 { "." } else { "" };
    format!("{price}{point}{}", "0".repeat(3usize.saturating_sub(decimals)))
}

async fn tokens(bench: &Bench) -> Vec<[String; 2]> {
    let page = bench.json("polymarket/gamma/markets/keyset?limit=100").await;
    let markets = page["markets"].as_array().unwrap();
    markets
        .iter()
        .map(|market| serde_json::from_str(market["clobTokenIds"].as_str().unwrap()).unwrap())
        .collect()
}

fn lively() -> catchment_sim::SimConfig {
    small().with("polymarket.universe.moves_per_s", "10").unwrap()
}

fn subscription(tokens: &[String]) -> String {
    format!(
        r#"{{"assets_ids":{},"type":"market","custom_feature_enabled":true}}"#,
        serde_json::to_string(tokens).unwrap()
    )
}

/// Follows the books of both tokens through these frames; how many batches there were, how many hashes differed, and how
/// many trades were seen.
fn follow(books: &mut [Book], frames: &[Value]) -> (usize, usize, usize) {
    let (mut batches, mut wrong, mut trades) = (0, 0, 0);
    for (at, frame) in frames.iter().enumerate() {
        match frame["event_type"].as_str().unwrap() {
            "price_change" => {
                let next = frames[at + 1..].iter().find(|next| next["event_type"] == "price_change");
                let stamp = frame["timestamp"].as_str().unwrap();
                let hash = |frame: &Value, token: &str| {
                    let mut own = frame["price_changes"].as_array().unwrap().iter();
                    own.rfind(|change| change["asset_id"] == token).map(|change| change["hash"].clone())
                };
                for book in &mut *books {
                    for change in frame["price_changes"].as_array().unwrap() {
                        if change["asset_id"] == book.token.as_str() {
                            book.change(change);
                        }
                    }
                    let best = book
                        .sides
                        .each_ref()
                        .map(|side| side.last().map(|level| level.0.parse::<f64>().unwrap()));
                    assert!(
                        best[0].zip(best[1]).is_none_or(|(bid, ask)| bid < ask),
                        "crossed between frames"
                    );
                    let told = hash(frame, &book.token).unwrap();
                    let is_last = next.is_none_or(|next| hash(next, &book.token).unwrap() != told);
                    if is_last {
                        batches += 1;
                        wrong += usize::from(book.hash(stamp) != told.as_str().unwrap());
                    }
                }
            }
            "book" => {
                for book in books.iter_mut().filter(|book| frame["asset_id"] == book.token.as_str()) {
                    let before = book.sides.clone();
                    book.replace(frame);
                    assert_eq!(book.sides, before, "the changes had said it all");
                }
            }
            "last_trade_price" => {
                trades += 1;
                for book in &mut *books {
                    book.last = three(frame["price"].as_str().unwrap());
                }
            }
            "tick_size_change" => {
                for book in books.iter_mut().filter(|book| frame["asset_id"] == book.token.as_str()) {
                    book.tick = frame["new_tick_size"].as_str().unwrap().into();
                }
            }
            "best_bid_ask" => {}
            other => panic!("{other}"),
        }
    }
    (batches, wrong, trades)
}

#[tokio::test]
async fn every_batch_has_the_hash_of_the_book_it_makes() {
    let bench = start(lively()).await;
    let mut checked = (0, 0);
    for pair in tokens(&bench).await.into_iter().take(8) {
        let mut client = bench.connect("polymarket/ws/market").await;
        client.say(&subscription(&pair)).await;
        let first = client.text().await;
        assert!(first.starts_with("[{\"market\":") && first.ends_with("]\n"));
        let first: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(first.as_array().unwrap().len(), 2);
        let mut books = Vec::new();
        for book in first.as_array().unwrap() {
            let rest = bench
                .json(&format!("polymarket/clob/book?token_id={}", book["asset_id"].as_str().unwrap()))
                .await;
            assert_eq!(book["hash"], rest["hash"]);
            books.push(Book::new(book, &rest));
        }
        bench.pass(20_000).await;
        let frames = client.drain_json().await;
        let (batches, wrong, trades) = follow(&mut books, &frames);
        assert_eq!(wrong, 0, "of {batches}");
        checked = (checked.0 + batches, checked.1 + trades);
        for book in &books {
            let rest = bench.json(&format!("polymarket/clob/book?token_id={}", book.token)).await;
            let change = frames.iter().rev().find(|frame| frame["event_type"] == "price_change").unwrap();
            let own = change["price_changes"]
                .as_array()
                .unwrap()
                .iter()
                .rfind(|change| change["asset_id"] == book.token.as_str());
            assert_eq!(own.unwrap()["hash"], rest["hash"], "REST passes through the same hashes");
        }
    }
    assert!(checked.0 > 2_000 && checked.1 > 100, "{checked:?}");
}

#[tokio::test]
async fn the_first_books_are_those_of_rest_also_of_markets_that_were_never_traded_or_have_an_empty_side() {
    let config = small().with("polymarket.universe.untraded", "0.3").unwrap();
    let bench = start(config.with("polymarket.universe.empty_side", "0.3").unwrap()).await;
    let all: Vec<String> = tokens(&bench).await.concat();
    let mut client = bench.connect("polymarket/ws/market").await;
    client.say(&subscription(&all)).await;
    let first = client.read().await;
    let books = first.as_array().unwrap();
    assert_eq!(books.len(), all.len());
    for book in books {
        let token = book["asset_id"].as_str().unwrap();
        let rest = bench.json(&format!("polymarket/clob/book?token_id={token}")).await;
        for member in ["market", "hash", "bids", "asks", "tick_size", "last_trade_price"] {
            assert_eq!(book[member], rest[member], "{member} of {token}");
        }
    }
    assert!(books.iter().any(|book| book["last_trade_price"] == ""));
}

#[tokio::test]
async fn nothing_is_acknowledged_and_unknown_tokens_get_an_empty_list() {
    let bench = start(lively()).await;
    let mut client = bench.connect("polymarket/ws/ws/market").await;
    client.say(&subscription(&["1234".to_owned()])).await;
    assert_eq!(client.text().await, "[]\n");
    client.say("PING").await;
    assert_eq!(client.text().await, "PONG");
    client.say("nonsense").await;
    let pairs = tokens(&bench).await;
    let yes = &pairs[0][0];
    client.say(&format!(r#"{{"operation":"subscribe","assets_ids":["{yes}"]}}"#)).await;
    assert_eq!(client.read().await[0]["asset_id"], yes.as_str());
    bench.pass(3_000).await;
    let frames = client.drain_json().await;
    let change = frames.iter().find(|frame| frame["event_type"] == "price_change").unwrap();
    let assets: Vec<&Value> =
        change["price_changes"].as_array().unwrap().iter().map(|change| &change["asset_id"]).collect();
    assert!(assets.iter().any(|asset| **asset == pairs[0][1].as_str()), "also of the one not subscribed to");
    client.say(&format!(r#"{{"operation":"unsubscribe","assets_ids":["{yes}"]}}"#)).await;
    client.drain().await;
    bench.pass(3_000).await;
    assert!(client.drain().await.is_empty());
}

#[tokio::test]
async fn a_lost_frame_a_wrong_hash_and_a_finer_tick_show_in_the_hash() {
    let bench = start(lively()).await;
    let pair = tokens(&bench).await.remove(1);
    let mut client = bench.connect("polymarket/ws/market").await;
    client.say(&subscription(&pair)).await;
    let first = client.read().await;
    let mut books = Vec::new();
    for book in first.as_array().unwrap() {
        let rest = bench
            .json(&format!("polymarket/clob/book?token_id={}", book["asset_id"].as_str().unwrap()))
            .await;
        books.push(Book::new(book, &rest));
    }
    let id = bench.inject("polymarket", &StreamFault::new(Kind::WrongChecksum).on(&pair[0], "book_delta"));
    bench.pass(3_000).await;
    let (_, wrong, _) = follow(&mut books, &client.drain_json().await);
    assert!((1..=2).contains(&wrong), "{wrong}");
    assert_eq!(bench.sim.log()[id as usize - 1].streams[0].frames, 1);

    let old = books[0].tick.clone();
    bench.inject("polymarket", &StreamFault::new(Kind::TickSize).on(&pair[0], "book_delta"));
    bench.pass(5_000).await;
    let frames = client.drain_json().await;
    assert_eq!(frames.iter().filter(|frame| frame["event_type"] == "tick_size_change").count(), 2);
    let (batches, wrong, _) = follow(&mut books, &frames);
    assert_eq!((wrong, books[0].tick.len()), (0, old.len() + 1), "of {batches}");
    let rest = bench.json(&format!("polymarket/clob/book?token_id={}", pair[0])).await;
    assert_eq!(rest["tick_size"], books[0].tick.as_str());

    bench.inject("polymarket", &StreamFault::new(Kind::Gap).on(&pair[0], "book_delta").times(2));
    bench.pass(2_000).await;
    assert!(follow_loosely(&mut books, &client.drain_json().await) > 0);
}

/// As `follow`, for books that may be wrong.
fn follow_loosely(books: &mut [Book], frames: &[Value]) -> usize {
    let only: Vec<Value> = frames.iter().filter(|frame| frame["event_type"] != "book").cloned().collect();
    follow(books, &only).1
}
