//! barter-data at its parse layer: `barter-peer depth|trade DIR`. The protocol is in `crates/bench/src/peers.rs`.

use std::io::BufRead;
use std::path::Path;

use barter_data::books::OrderBook;
use barter_data::event::{MarketEvent, MarketIter};
use barter_data::exchange::binance::book::l2::BinanceOrderBookL2Snapshot;
use barter_data::exchange::binance::spot::l2::BinanceSpotOrderBookL2Update;
use barter_data::exchange::binance::trade::BinanceTrade;
use barter_data::subscription::book::OrderBookEvent;
use barter_data::subscription::trade::PublicTrade;
use barter_instrument::exchange::ExchangeId;

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().expect("depth or trade");
    let dir = args.next().expect("a folder");
    let read = |name: &str| std::fs::read_to_string(Path::new(&dir).join(name)).expect("a file of the bench");
    let (text, snapshot) = (read("lines.jsonl"), read("snapshot.json"));
    let lines: Vec<&str> = text.lines().collect();
    println!("ready");
    for _ in std::io::stdin().lock().lines() {
        let (seconds, best) = match mode.as_str() {
            "depth" => depth(&lines, &snapshot),
            _ => (trades(&lines), String::new()),
        };
        println!("{{\"lines\":{},\"cpu_seconds\":{seconds},\"best\":[{best}]}}", lines.len());
    }
}

fn depth(lines: &[&str], snapshot: &str) -> (f64, String) {
    let snapshot: BinanceOrderBookL2Snapshot = serde_json::from_str(snapshot).expect("a snapshot");
    let mut book = OrderBook::default();
    book.update(&OrderBookEvent::from(snapshot));
    let mut last = 0;
    let seconds = cpu_seconds(|| {
        for line in lines {
            let update: BinanceSpotOrderBookL2Update = serde_json::from_str(line).expect("an update");
            assert!(last == 0 || update.first_update_id == last + 1);
            last = update.last_update_id;
            let events: MarketIter<u32, OrderBookEvent> = (ExchangeId::BinanceSpot, 1, update).into();
            for event in events.0.into_iter().flatten() {
                let event: MarketEvent<u32, OrderBookEvent> = event;
                book.update(&event.kind);
            }
        }
    });
    let best = [book.bids().best(), book.asks().best()].map(|level| level.expect("levels on both sides").price);
    (seconds, format!("\"{}\",\"{}\"", best[0], best[1]))
}

fn trades(lines: &[&str]) -> f64 {
    cpu_seconds(|| {
        for line in lines {
            let trade: BinanceTrade = serde_json::from_str(line).expect("a trade");
            let events: MarketIter<u32, PublicTrade> = (ExchangeId::BinanceSpot, 1, trade).into();
            std::hint::black_box(events.0);
        }
    })
}

fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let before = now();
    work();
    now() - before
}
