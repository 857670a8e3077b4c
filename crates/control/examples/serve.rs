//! The API alone, over a store in a file: `cargo run -p catchment-control --example serve -- jobs.db 127.0.0.1:8081`.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::sync::Arc;

use catchment_control::api::{Catalogue, Desk, Exchange};
use catchment_control::{Control, Status};
use catchment_jobs::{JobType, RateLimit, SqliteStore};
use catchment_model::{Timeframe, Venue};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let store = SqliteStore::open(args.next().unwrap()).await.unwrap();
    let listen: std::net::SocketAddr = args.next().unwrap().parse().unwrap();
    let exchange = |id: &str| Exchange {
        id: Venue::new(id).unwrap(),
        rate: RateLimit { limit: 20, period_ms: 1_000 },
        types: JobType::ALL.to_vec(),
        timeframes: Timeframe::ALL.to_vec(),
    };
    let catalogue = Catalogue::new(["binance", "kraken"].map(exchange).to_vec());
    let desk = Desk::over(Arc::new(store), catalogue);
    let control = Control::start(listen, Status::default, Some(desk)).await.unwrap();
    println!("http://{}/", control.addr());
    std::future::pending::<()>().await;
}
