//! Every promise of a sink, with the contract that the latest wins.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use catchment_model::{RecordId, SystemClock};
use catchment_pipeline::Sink;
use catchment_sinks::conformance::{self, Contract, Shelf};
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{Names, RedisAddress, RedisConfig, RedisLink, RedisSink};

struct OnRedis {
    config: RedisConfig,
    link: RedisLink,
}

impl OnRedis {
    fn new(server: &RedisServer, number: u64) -> Self {
        let address = RedisAddress::new(server.url());
        let link = RedisLink::new(&address).unwrap();
        let mut config = RedisConfig::new(address);
        config.latest.prefix = format!("{number}:");
        config.names = Names("{venue}/{channel}/{symbol}".to_owned());
        config.channels = BTreeSet::new();
        config.keep_line = true;
        Self { config, link }
    }

    async fn all(&self) -> HashMap<RecordId, Vec<u8>> {
        let keys: Vec<Vec<u8>> =
            self.link.ask(redis::cmd("KEYS").arg(format!("{}*", self.config.latest.prefix))).await.unwrap();
        let mut all = HashMap::new();
        for key in keys {
            let found: (String, Vec<u8>) =
                self.link.ask(redis::cmd("HMGET").arg(key).arg("id").arg("line")).await.unwrap();
            all.insert(found.0.parse().unwrap(), found.1);
        }
        all
    }
}

#[async_trait]
impl Shelf for OnRedis {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(RedisSink::open(self.config.clone(), Arc::new(SystemClock::new())).unwrap())
    }

    async fn ids(&self) -> Vec<RecordId> {
        self.all().await.into_keys().collect()
    }

    async fn line(&self, id: RecordId) -> Option<Vec<u8>> {
        self.all().await.remove(&id)
    }

    async fn reopen(&self) -> Arc<dyn Sink> {
        self.sink()
    }

    fn contract(&self) -> Contract {
        Contract::LatestWins
    }
}

#[tokio::test]
async fn redis_keeps_every_promise() {
    let server = RedisServer::start().unwrap();
    let number = AtomicU64::new(0);
    let make = || OnRedis::new(&server, number.fetch_add(1, Ordering::Relaxed));
    conformance::all(async || Box::new(make()) as _).await;
}
