//! The Redis sink on real servers.
#![allow(clippy::unwrap_used)] // a test may

mod arrival;
mod cluster;
mod conformance;
mod failing;
mod keeping;

use std::sync::Arc;

use catchment_model::{SimClock, UnixNs};
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{BookParts, Entry, LatestSettings, LatestStore, RedisAddress, RedisLink};

/// A server, the way to it and a clock that stands still.
struct Bench {
    server: RedisServer,
    link: Arc<RedisLink>,
    clock: Arc<SimClock>,
}

impl Bench {
    fn new() -> Self {
        Self::on(RedisServer::start().unwrap())
    }

    fn on(server: RedisServer) -> Self {
        let link = Arc::new(RedisLink::new(&RedisAddress::new(server.url())).unwrap());
        let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_790_000_000_000).unwrap()));
        Self { server, link, clock }
    }

    fn store(&self, settings: LatestSettings) -> LatestStore {
        LatestStore::new(Arc::clone(&self.link), settings, self.clock.clone())
    }

    /// One of the server's answers.
    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        self.link.ask(&command).await.unwrap()
    }

    /// How many calls of a command the server has had.
    async fn calls(&self, command: &str) -> u64 {
        let info: String = self.ask(&["INFO", "commandstats"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }
}

/// A small book.
fn book<'a>(token: &'a str, hash: &'a str, timestamp: &'a str) -> Entry<'a> {
    let parts = BookParts { market: "0xm", bids: br#"[{"price":"0.1","size":"5"}]"#, asks: b"[]" };
    Entry::book(token, hash, timestamp, 1_790_000_000_000, parts)
}
