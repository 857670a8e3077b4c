//! Redis: the latest of everything, and nothing of before.
//!
//! * [`LatestStore`]: snapshots in, compare-and-set on the server; what fetch nodes write with
//! * [`RedisSink`]: the same at the end of a pipeline
//! * [`RedisLink`]: the connection, to one server or a cluster
//! * `order`: which of two snapshots is the later one; `latest.lua` does the same on the server
//!
//! A token's snapshot is a hash under `ob:<token>`: `bids` and `asks` as the venue's own bytes, `hash`, `timestamp`,
//! `updated_at` (our milliseconds of the fetch) and `market`.
//!
//! The contract as a sink is *latest wins*: a batch that was written has left, for each of its keys, what is latest of all
//! that was ever written there. Durable is what the server calls so: with `appendfsync everysec` a power cut may take the
//! last second, and the next poll brings it back.
//!
//! Deliberately absent: reading books back, waiting, trying again. The one exception is a connection that turns out to be
//! closed; it is replaced, once.

mod events;
mod latest;
mod link;
mod memory;
mod order;
mod record;
#[cfg(feature = "redis-server")]
pub mod server;
mod slots;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use catchment_model::Clock;
use catchment_pipeline::{Batch, Refusal, Sink, SinkError};

pub use latest::{AuditStream, BookParts, Entry, LatestSettings, LatestStore, Put};
pub use link::{RedisAddress, RedisConnection, RedisFailure, RedisLink};
pub use order::{Stamp, TIE_MS, Verdict};
pub use record::{BookFields, Names};

/// What the user may set of a Redis sink.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// Its name in the pipeline.
    pub name: String,
    /// Where it is.
    pub address: RedisAddress,
    /// How the latest is kept.
    pub latest: LatestSettings,
    /// What stands behind the prefix in a key.
    pub names: Names,
    /// The channels that are kept; records of others pass by. Empty: all of them.
    pub channels: BTreeSet<String>,
    /// Keep the whole line beside the payload, for records that are no books.
    pub keep_line: bool,
}

impl RedisConfig {
    /// Books only, under `ob:<symbol>`.
    pub fn new(address: RedisAddress) -> Self {
        Self {
            name: "redis".to_owned(),
            address,
            latest: LatestSettings::default(),
            names: Names("{symbol}".to_owned()),
            channels: BTreeSet::from(["orderbook".to_owned()]),
            keep_line: false,
        }
    }
}

/// The end of a pipeline that keeps the latest of each symbol.
#[derive(Debug)]
pub struct RedisSink {
    config: RedisConfig,
    store: LatestStore,
}

impl RedisSink {
    /// Looks at the configuration; connects to nobody yet.
    pub fn open(config: RedisConfig, clock: Arc<dyn Clock>) -> Result<Self, RedisFailure> {
        let link = Arc::new(RedisLink::new(&config.address)?);
        let store = LatestStore::new(link, config.latest.clone(), clock);
        Ok(Self { config, store })
    }

    /// Whether the server answers.
    pub async fn ask(&self) -> Result<(), RedisFailure> {
        let _: String = self.store.link().ask(&redis::cmd("PING")).await?;
        Ok(())
    }

    fn takes(&self, channel: &str) -> bool {
        self.config.channels.is_empty() || self.config.channels.contains(channel)
    }
}

#[async_trait]
impl Sink for RedisSink {
    fn name(&self) -> &str {
        &self.config.name
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        let records = batch.iter().enumerate().filter(|(_, record)| self.takes(record.channel()));
        let kept: Vec<(usize, record::Kept<'_>)> = records
            .map(|(at, record)| (at, record::Kept::of(&record, &self.config.names, self.config.keep_line)))
            .collect();
        let entries: Vec<Entry<'_>> = kept.iter().map(|(_, kept)| kept.entry()).collect();
        let put = self.store.put(&entries).await;
        let put = put.map_err(|error| SinkError::unreachable(&self.config.name, error))?;
        let wrong = kept.iter().zip(&put.verdicts).filter(|(_, verdict)| **verdict == Verdict::WrongType);
        let refused: Vec<Refusal> = wrong
            .map(|((index, kept), _)| {
                let key = format!("{}{}", self.config.latest.prefix, kept.entry().name);
                Refusal { index: *index, reason: format!("the key {key} holds something else than a hash") }
            })
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        Err(SinkError::Refused { sink: self.config.name.clone(), refused })
    }
}
