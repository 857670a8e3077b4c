//! `catchment.toml`: what was written, then what it means.
//!
//! The `…Toml` types are the file, key for key; [`Config`] is the same after checking, in types that need no further
//! checks. Checking does no I/O but to read descriptions of venues and the texts of logins. `reference` says what each key
//! means, and a test holds it to the defaults in the code.

mod api;
mod backfill;
#[cfg(feature = "redis")]
pub(crate) mod fleet;
mod jobs;
mod login;
mod mongo;
#[cfg(feature = "redis")]
mod redis;
mod reference;
mod streams;
mod venues;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use catchment_model::Channel;
use catchment_pipeline::{DedupConfig, Delivery, OnFull, SpoolConfig};
use serde::{Deserialize, Serialize};

pub(crate) use self::api::ApiConfig;
use self::api::ApiToml;
use self::backfill::BackfillToml;
pub(crate) use self::backfill::EventsConfig;
pub(crate) use self::jobs::{JobVenue, JobsConfig, StoreConfig, StorePlace};
use self::jobs::{JobsToml, StoreToml};
pub(crate) use self::mongo::MongoPlace;
use self::mongo::{MongoToml, hide_logins};
pub(crate) use self::reference::{explain, init};
use self::streams::StreamToml;
pub(crate) use self::streams::{Described, StreamConfig};
use self::venues::VenueToml;
pub(crate) use self::venues::{LimiterKind, Speed, VenueConfig, books_at_once};

const MIB: u64 = 1 << 20;

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    /// Where the status page listens, if anywhere.
    pub(crate) api: Option<ApiConfig>,
    pub(crate) venues: Vec<VenueConfig>,
    pub(crate) streams: Vec<StreamConfig>,
    /// Where connectors, jobs and candles are.
    pub(crate) store: StoreConfig,
    /// Who works on jobs here, if anybody does.
    pub(crate) jobs: Option<JobsConfig>,
    /// Where the events backfill keeps things.
    #[cfg_attr(not(feature = "lake"), allow(dead_code))]
    pub(crate) events: EventsConfig,
    pub(crate) spool: SpoolConfig,
    pub(crate) spool_enabled: bool,
    pub(crate) dedup: Option<DedupConfig>,
    pub(crate) memory_bytes: usize,
    pub(crate) sinks: Vec<SinkConfig>,
    /// After how long, and for how long, MongoDB is kept away; for `run --mock`.
    pub(crate) mongo_away: Option<(Duration, Duration)>,
    /// Where the mock listens; for `run --mock`.
    pub(crate) mock: Option<std::net::SocketAddr>,
    /// What is written and has no effect, in words.
    pub(crate) notes: Vec<String>,
}

/// One `[[sinks]]`, checked.
#[derive(Debug, Clone)]
pub(crate) struct SinkConfig {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) delivery: Delivery,
}

/// Where a sink writes.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Files of JSON lines.
    Jsonl { dir: PathBuf, file_bytes_max: u64, compress: Option<i32> },
    /// A collection of MongoDB.
    Mongo(MongoPlace),
    /// Keys of Redis.
    #[cfg(feature = "redis")]
    Redis(catchment_sinks::redis::RedisConfig),
}

impl Place {
    /// What another sink would write to as well.
    fn shared_with(&self, other: &Place) -> Option<(&'static str, String)> {
        match (self, other) {
            (Self::Jsonl { dir, .. }, Self::Jsonl { dir: theirs, .. }) if dir == theirs => {
                Some(("dir", format!("is {}, the folder", dir.display())))
            }
            (Self::Mongo(_), Self::Mongo(_)) => Some(("kind", "is \"mongo\", the collection".to_owned())),
            _ => None,
        }
    }
}

/// A value that makes no sense, by its key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{key} {problem}")]
pub(crate) struct ConfigError {
    key: String,
    problem: String,
}

impl ConfigError {
    fn at(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }

    /// Of a sentence that names the key itself.
    fn whole(sentence: String) -> Self {
        match sentence.split_once(' ') {
            Some((key, problem)) => Self::at(key.trim_end_matches(':'), problem),
            None => Self::at(sentence, ""),
        }
    }
}

/// `catchment.toml` as the user writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigToml {
    data_dir: PathBuf,
    descriptors_dir: Option<PathBuf>,
    api: ApiToml,
    venues: BTreeMap<String, VenueToml>,
    streams: Vec<StreamToml>,
    store: StoreToml,
    jobs: JobsToml,
    backfill: BackfillToml,
    persistence: PersistenceToml,
    sinks: Vec<SinkToml>,
    #[cfg(feature = "redis")]
    fleet: fleet::FleetToml,
}

impl Default for ConfigToml {
    fn default() -> Self {
        Self {
            data_dir: "data".into(),
            descriptors_dir: None,
            api: ApiToml::default(),
            venues: BTreeMap::new(),
            streams: Vec::new(),
            store: StoreToml::default(),
            jobs: JobsToml::default(),
            backfill: BackfillToml::default(),
            persistence: PersistenceToml::default(),
            sinks: vec![SinkToml::default()],
            #[cfg(feature = "redis")]
            fleet: fleet::FleetToml::default(),
        }
    }
}

/// `[persistence]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PersistenceToml {
    memory_mb: u64,
    #[serde(flatten)]
    mongo: MongoToml,
    spool: SpoolToml,
    dedup: DedupToml,
}

impl Default for PersistenceToml {
    fn default() -> Self {
        Self {
            memory_mb: 64,
            mongo: MongoToml::default(),
            spool: SpoolToml::default(),
            dedup: DedupToml::default(),
        }
    }
}

/// `[persistence.spool]`: S1's keys, S1's meanings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SpoolToml {
    enabled: bool,
    dir: Option<PathBuf>,
    max_segment_mb: u64,
    max_total_mb: u64,
    on_full: OnFull,
    commit_ms: u64,
    commit_kb: u64,
}

impl Default for SpoolToml {
    fn default() -> Self {
        Self {
            enabled: true,
            dir: None,
            max_segment_mb: 64,
            max_total_mb: 1024,
            on_full: OnFull::DropTickerDepthKeepTrade,
            commit_ms: 10,
            commit_kb: 1024,
        }
    }
}

/// `[persistence.dedup]`: S1's keys, S1's meanings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DedupToml {
    enabled: bool,
    window_seconds: u64,
    max_keys: usize,
    by_payload: Vec<String>,
}

impl Default for DedupToml {
    fn default() -> Self {
        Self { enabled: false, window_seconds: 300, max_keys: 100_000, by_payload: Vec::new() }
    }
}

/// One `[[sinks]]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SinkToml {
    kind: SinkKind,
    name: Option<String>,
    dir: Option<PathBuf>,
    file_mb: u64,
    compress: bool,
    compress_level: i32,
    batch_records: Option<usize>,
    batch_kb: u64,
    batch_ms: u64,
    max_retries: Option<u32>,
    retry_base_ms: Option<u64>,
    retry_cap_ms: u64,
    consecutive_failures_for_degraded: Option<u32>,
    replay_rate_limit_ms: u64,
    url: Option<String>,
    prefix: String,
    names: String,
    channels: Vec<String>,
    stream_len: u64,
    stream_books: bool,
    publish: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SinkKind {
    Jsonl,
    Mongo,
    Redis,
}

impl Default for SinkToml {
    fn default() -> Self {
        Self {
            kind: SinkKind::Jsonl,
            name: None,
            dir: None,
            file_mb: 256,
            compress: false,
            compress_level: 1,
            batch_records: None,
            batch_kb: 4096,
            batch_ms: 100,
            max_retries: None,
            retry_base_ms: None,
            retry_cap_ms: 5_000,
            consecutive_failures_for_degraded: None,
            replay_rate_limit_ms: 0,
            url: None,
            prefix: "ob:".to_owned(),
            names: "{symbol}".to_owned(),
            channels: vec!["orderbook".to_owned()],
            stream_len: 0,
            stream_books: false,
            publish: None,
        }
    }
}

/// What a sink of some kind does unless told otherwise.
struct Usual {
    name: &'static str,
    batch_records: usize,
    max_retries: u32,
    retry_base_ms: u64,
    degraded_after: u32,
}

/// Records in a batch for MongoDB: they are sent a thousand at a time, and while one thousand is synced the next is sent.
const MONGO_BATCH: usize = 4_000;

/// Reads the file (or, if none is named and there is no `catchment.toml`, the defaults) and checks it.
pub(crate) fn read(path: Option<&Path>, data_dir: Option<&Path>) -> anyhow::Result<Config> {
    let named = path.is_some();
    let path = path.unwrap_or(Path::new("catchment.toml"));
    let written = match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).with_context(|| path.display().to_string())?,
        Err(error) if error.kind() == ErrorKind::NotFound && !named => ConfigToml::default(),
        Err(error) => {
            let hint = "write one with `catchment config init`";
            return Err(error)
                .with_context(|| format!("cannot read the configuration {} ({hint})", path.display()));
        }
    };
    let written = ConfigToml { data_dir: data_dir.map_or(written.data_dir, Path::to_owned), ..written };
    let place = if named || path.exists() { path.display().to_string() } else { "the defaults".to_owned() };
    written.check().with_context(|| place)
}

/// The venues that can be streamed, with those of the folder that a configuration names.
pub(crate) fn described(path: Option<&Path>) -> anyhow::Result<Described> {
    let Some(path) = path else { return Ok(Described::shipped()) };
    let place = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(place)?;
    let written = parse(&text).with_context(place)?;
    let described =
        written.descriptors_dir.map_or_else(|| Ok(Described::shipped()), |dir| Described::with_folder(&dir));
    described.with_context(place)
}

/// A configuration that is in no file.
pub(crate) fn from_text(text: &str) -> anyhow::Result<Config> {
    Ok(parse(text)?.check()?)
}

fn parse(text: &str) -> anyhow::Result<ConfigToml> {
    toml::from_str(text).map_err(|error| {
        let text = hide_logins(&error.to_string());
        let text = text.trim_end();
        let units = ["expected u64", "expected usize", "expected u32", "expected i32"];
        let unit_in_value =
            text.contains("invalid type: string") && units.iter().any(|unit| text.contains(unit));
        match unit_in_value {
            true => anyhow::anyhow!(
                "{text}\nthe unit is part of the key (max_segment_mb = 64); write the plain number"
            ),
            false => anyhow::anyhow!("{text}"),
        }
    })
}

impl ConfigToml {
    fn check(self) -> Result<Config, ConfigError> {
        if self.sinks.is_empty() {
            return Err(ConfigError::at("sinks", "is empty: name at least one, such as kind = \"jsonl\""));
        }
        let memory_mb = between("persistence.memory_mb", self.persistence.memory_mb, 8, 1 << 20)?;
        let spool_enabled = self.persistence.spool.enabled;
        let mut sinks = Vec::new();
        for (at, sink) in self.sinks.into_iter().enumerate() {
            let sink = sink.check(at, &self.data_dir, &self.persistence.mongo)?;
            if sinks.iter().any(|other: &SinkConfig| other.name == sink.name) {
                let problem =
                    format!("{:?} is taken by another sink; names keep their cursors apart", sink.name);
                return Err(ConfigError::at(format!("sinks[{at}].name"), problem));
            }
            for other in &sinks {
                if let Some((key, what)) = sink.place.shared_with(&other.place) {
                    let problem = format!("{what} of {:?}; every record would be there twice", other.name);
                    return Err(ConfigError::at(format!("sinks[{at}].{key}"), problem));
                }
            }
            sinks.push(sink);
        }
        let mut notes = Vec::new();
        let has_mongo = sinks.iter().any(|sink| matches!(sink.place, Place::Mongo(_)));
        if !has_mongo && self.persistence.mongo.names_a_place() {
            notes.push(
                "[persistence] names a MongoDB and nothing is written to it: add [[sinks]] kind = \"mongo\""
                    .to_owned(),
            );
        }
        let described = match &self.descriptors_dir {
            Some(dir) => Described::with_folder(dir)?,
            None => Described::shipped(),
        };
        let streams = streams::check(self.streams, &described, &self.venues)?;
        let streamed: Vec<&str> = streams.iter().map(|stream| stream.descriptor.id()).collect();
        let jobs = self.jobs.check(&described, &self.venues, &streamed)?;
        let mut venues = Vec::new();
        for (id, venue) in self.venues {
            let descriptor = described.find(&id);
            // A venue that can only be streamed is recorded if `[[streams]]` names it; here are its settings.
            if descriptor.is_some() && catchment_venues::find(&id).is_none() {
                venue.check_streamed(&id, descriptor)?;
                let has_jobs =
                    jobs.iter().flat_map(|jobs| &jobs.venues).any(|venue| venue.descriptor.id() == id);
                if !has_jobs && streams.iter().all(|stream| stream.descriptor.id() != id) {
                    notes.push(format!(
                        "[venues.{id}] is not recorded: it can only be streamed; add [[streams]] venue = \"{id}\" with \
                         symbols and channels"
                    ));
                }
            } else {
                venues.push(venue.check(&id, descriptor)?);
            }
        }
        Ok(Config {
            api: self.api.check()?,
            venues,
            streams,
            store: self.store.check(&self.data_dir)?,
            jobs,
            events: self.backfill.check(&self.data_dir)?,
            spool: self.persistence.spool.check(&self.data_dir)?,
            spool_enabled,
            dedup: self.persistence.dedup.check()?,
            memory_bytes: (memory_mb * MIB) as usize,
            mongo_away: None,
            mock: None,
            notes,
            sinks,
            data_dir: self.data_dir,
        })
    }
}

impl SpoolToml {
    fn check(self, data_dir: &Path) -> Result<SpoolConfig, ConfigError> {
        let segment_mb = between("persistence.spool.max_segment_mb", self.max_segment_mb, 1, 1 << 20)?;
        let total_mb = between("persistence.spool.max_total_mb", self.max_total_mb, 2, 1 << 30)?;
        if total_mb < 2 * segment_mb {
            let problem = format!(
                "is {total_mb}, but must hold at least two segments of {segment_mb} (max_segment_mb)"
            );
            return Err(ConfigError::at("persistence.spool.max_total_mb", problem));
        }
        let commit_kb = between("persistence.spool.commit_kb", self.commit_kb, 1, 64 << 10)?;
        let commit_ms = between("persistence.spool.commit_ms", self.commit_ms, 0, 1_000)?;
        Ok(SpoolConfig {
            segment_bytes_max: segment_mb * MIB,
            total_bytes_max: total_mb * MIB,
            on_full: self.on_full,
            commit_age: Duration::from_millis(commit_ms),
            commit_bytes: (commit_kb << 10) as usize,
            ..SpoolConfig::at(self.dir.unwrap_or_else(|| data_dir.join("spool")))
        })
    }
}

impl DedupToml {
    fn check(self) -> Result<Option<DedupConfig>, ConfigError> {
        let seconds = between("persistence.dedup.window_seconds", self.window_seconds, 1, 86_400)?;
        let keys_max = between("persistence.dedup.max_keys", self.max_keys as u64, 1, 100_000_000)? as usize;
        let channel = |name: &String| {
            Channel::new(name)
                .map_err(|error| ConfigError::at("persistence.dedup.by_payload", format!("holds {error}")))
        };
        let by_payload = self.by_payload.iter().map(channel).collect::<Result<_, _>>()?;
        let config = DedupConfig { window: Duration::from_secs(seconds), keys_max, by_payload };
        Ok(self.enabled.then_some(config))
    }
}

impl SinkToml {
    fn check(self, at: usize, data_dir: &Path, mongo: &MongoToml) -> Result<SinkConfig, ConfigError> {
        let key = |name: &str| format!("sinks[{at}].{name}");
        let usual = match self.kind {
            SinkKind::Jsonl | SinkKind::Redis => Usual {
                name: if self.kind == SinkKind::Redis { "redis" } else { "jsonl" },
                batch_records: 10_000,
                max_retries: 3,
                retry_base_ms: 100,
                degraded_after: 3,
            },
            SinkKind::Mongo => Usual {
                name: "mongo",
                batch_records: MONGO_BATCH,
                max_retries: mongo.mongo_max_retries,
                retry_base_ms: mongo.mongo_retry_base_ms,
                degraded_after: mongo.mongo_consecutive_failures_for_degraded,
            },
        };
        let name = self.name.clone().unwrap_or_else(|| usual.name.to_owned());
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if name.is_empty() || name.len() > 31 || !name.bytes().all(plain) {
            return Err(ConfigError::at(
                key("name"),
                format!("{name:?} may hold only letters, digits, '_' and '-'"),
            ));
        }
        if !(1..=19).contains(&self.compress_level) {
            let problem = format!("is {}, zstd has levels 1 to 19", self.compress_level);
            return Err(ConfigError::at(key("compress_level"), problem));
        }
        let milliseconds =
            |name: &str, value, max| between(key(name), value, 0, max).map(Duration::from_millis);
        let place = match self.kind {
            SinkKind::Jsonl => Place::Jsonl {
                dir: self.dir.unwrap_or_else(|| data_dir.to_owned()),
                file_bytes_max: between(key("file_mb"), self.file_mb, 1, 1 << 20)? * MIB,
                compress: self.compress.then_some(self.compress_level),
            },
            SinkKind::Mongo if self.dir.is_some() => {
                return Err(ConfigError::at(key("dir"), "is given, but a mongo sink has no files"));
            }
            SinkKind::Mongo => Place::Mongo(mongo.check()?),
            SinkKind::Redis if self.dir.is_some() => {
                return Err(ConfigError::at(key("dir"), "is given, but a redis sink has no files"));
            }
            #[cfg(feature = "redis")]
            SinkKind::Redis => Place::Redis(redis::check(&self, &name, at)?),
            #[cfg(not(feature = "redis"))]
            SinkKind::Redis => {
                let problem = "is \"redis\", but this build has no Redis; build it with the feature redis";
                return Err(ConfigError::at(key("kind"), problem));
            }
        };
        let batch_records = self.batch_records.unwrap_or(usual.batch_records) as u64;
        let retry_base_ms = self.retry_base_ms.unwrap_or(usual.retry_base_ms).max(1);
        Ok(SinkConfig {
            name,
            place,
            delivery: Delivery {
                batch_records: between(key("batch_records"), batch_records, 1, 1_000_000)? as usize,
                batch_bytes: (between(key("batch_kb"), self.batch_kb, 1, 1 << 20)? << 10) as usize,
                batch_age: milliseconds("batch_ms", self.batch_ms, 60_000)?,
                retries_max: self.max_retries.unwrap_or(usual.max_retries),
                retry_base: milliseconds("retry_base_ms", retry_base_ms, 60_000)?,
                retry_cap: milliseconds("retry_cap_ms", self.retry_cap_ms.max(1), 600_000)?,
                degraded_after: self.consecutive_failures_for_degraded.unwrap_or(usual.degraded_after).max(1),
                replay_rest: milliseconds("replay_rate_limit_ms", self.replay_rate_limit_ms, 60_000)?,
            },
        })
    }
}

fn between(key: impl Into<String>, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::at(key, format!("is {value}, expected {min} to {max}")))
}

#[cfg(test)]
mod tests;
