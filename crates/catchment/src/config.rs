//! `catchment.toml`: what was written, then what it means.
//!
//! The `…Toml` types are the file, key for key; [`Config`] is the same after checking, in types that need no further
//! checks. Checking does no I/O but to read descriptions of venues and the texts of logins. [`KEYS`] says what each key means; `config init` and `config explain` print it, and a
//! test holds it to the defaults in the code.

mod api;
#[cfg(feature = "redis")]
pub(crate) mod fleet;
mod jobs;
mod login;
mod mongo;
#[cfg(feature = "redis")]
mod redis;
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
pub(crate) use self::jobs::{JobVenue, JobsConfig, StoreConfig, StorePlace};
use self::jobs::{JobsToml, StoreToml};
pub(crate) use self::mongo::MongoPlace;
use self::mongo::{MongoToml, hide_logins};
use self::streams::StreamToml;
pub(crate) use self::streams::{Described, StreamConfig};
use self::venues::VenueToml;
pub(crate) use self::venues::{LimiterKind, Speed, VenueConfig, books_at_once};
use crate::DONE;

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
    pub(crate) spool: SpoolConfig,
    pub(crate) spool_enabled: bool,
    pub(crate) dedup: Option<DedupConfig>,
    pub(crate) memory_bytes: usize,
    pub(crate) sinks: Vec<SinkConfig>,
    /// After how long, and for how long, MongoDB is kept away; for `run --mock`.
    pub(crate) mongo_away: Option<(Duration, Duration)>,
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
            commit_ms: 5,
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
            spool: self.persistence.spool.check(&self.data_dir)?,
            spool_enabled,
            dedup: self.persistence.dedup.check()?,
            memory_bytes: (memory_mb * MIB) as usize,
            mongo_away: None,
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

/// What a key means.
#[derive(Debug, Serialize)]
pub(crate) struct Key {
    /// Its table; empty for the top, `[[sinks]]` for each sink.
    table: &'static str,
    name: &'static str,
    /// As it would be written.
    default: &'static str,
    /// Whether leaving it out means something else than the default shown.
    optional: bool,
    means: &'static str,
}

const fn key(table: &'static str, name: &'static str, default: &'static str, means: &'static str) -> Key {
    Key { table, name, default, optional: false, means }
}

const fn optional(
    table: &'static str,
    name: &'static str,
    default: &'static str,
    means: &'static str,
) -> Key {
    Key { table, name, default, optional: true, means }
}

/// Every key, in the order in which they are printed.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("", "data_dir", r#""data""#, "the archive: <venue>/<channel>/date=YYYY-MM-DD/*.jsonl"),
    key("[api]", "enabled", "true", "serve a page of live figures, health, metrics and the API while `run` runs"),
    key("[api]", "listen", r#""127.0.0.1:8080""#, "where; beyond loopback only with a token"),
    optional("[api]", "token_file", r#""/etc/catchment/api_token""#, "a file with the token that everybody must show; CATCHMENT_API_TOKEN in the environment comes before it"),
    optional("", "descriptors_dir", r#""descriptors""#, "a folder with descriptions of more venues that stream, a .toml file each; read at the start"),
    optional("[venues.polymarket]", "endpoints", "{}", "other addresses by name, such as { clob = \"http://127.0.0.1:9600/polymarket/clob\" }; `catchment venues` lists the names"),
    optional("[venues.polymarket]", "poll_interval_ms", "1000", "each book is asked for this often"),
    optional("[venues.polymarket]", "books_per_request", "500", "books asked for at once; default: as many as the venue takes"),
    optional("[venues.polymarket]", "check_hashes", "true", "make every book's hash anew and compare; without it a book costs about a sixth less, and hash_ok is null"),
    optional("[venues.polymarket]", "discover_interval_s", "300", "how often the venue's markets are listed anew"),
    optional("[venues.polymarket]", "limiter", r#""pace""#, "what learns the limits a venue does not declare: pace (a rate) | aimd (requests under way)"),
    optional("[venues.polymarket]", "limit_share", "0.95", "how much of the venue's declared limits is used"),
    optional("[venues.polymarket]", "max_workers", "16", "requests of the poller under way at once"),
    optional("[venues.polymarket]", "max_inflight", "32", "requests of everybody under way at once; the ceiling of aimd"),
    optional("[venues.polymarket]", "request_deadline_ms", "10000", "a request without a whole answer by then has failed"),
    optional("[venues.polymarket]", "cooldown_ms", "5000", "how long nothing is sent after a refusal that names no time, or when most requests failed"),
    optional("[venues.polymarket.login]", "key", r#"{ env = "VENUE_KEY" }"#, "where the key for private streams is: { env = … } or { file = … }"),
    optional("[venues.polymarket.login]", "secret", r#"{ file = "/etc/catchment/secret" }"#, "where the secret is; it is never in this file itself, and never shown"),
    optional("[venues.polymarket.login]", "passphrase", r#"{ env = "VENUE_PASSPHRASE" }"#, "where the passphrase is, for venues that have one"),
    optional("[venues.polymarket.aimd]", "start_inflight", "2", "requests under way at the start"),
    optional("[venues.polymarket.aimd]", "stable_s", "30", "no refusal for so long before one is added"),
    optional("[venues.polymarket.aimd]", "adjust_s", "5", "between two adjustments"),
    optional("[venues.polymarket.aimd]", "failure_share_max", "0.2", "more failures take one away; fewer than half of it may add one"),
    optional("[venues.polymarket.aimd]", "latency_low_ms", "800", "one may be added while the 95th percentile is below"),
    optional("[venues.polymarket.aimd]", "latency_high_ms", "2000", "one is taken away when it is above"),
    optional("[[streams]]", "venue", r#""binance""#, "a venue that streams; `catchment venues` lists them. Several blocks of one venue are taken together"),
    optional("[[streams]]", "symbols", r#"["BTC/USDT"]"#, "what is recorded of it: BASE/QUOTE, or the venue's own id where it has no such names"),
    optional("[[streams]]", "channels", r#"["trades", "book_delta"]"#, "which of its channels; `catchment venues` lists them"),
    optional("[[streams]]", "snapshot_interval_s", "60", "whole books are written to the channel orderbook this often, and after each new beginning"),
    optional("[[streams]]", "snapshot_depth", "5000", "levels a side in these"),
    key("[store]", "kind", r#""sqlite""#, "where connectors, jobs and candles are kept: sqlite (a file; several processes of one machine) | mongo (a server; several machines)"),
    optional("[store]", "path", r#""data/jobs.db""#, "the file; default: jobs.db in data_dir"),
    key("[store]", "uri", r#""mongodb://localhost:27017""#, "the server; may hold a password, which is never shown. CATCHMENT_STORE_URI in the environment comes first"),
    optional("[store]", "uri_file", r#""/etc/catchment/store_uri""#, "a file that holds the connection string instead"),
    key("[store]", "database", r#""market_data""#, "its database"),
    key("[store]", "limits", r#""jobs""#, "whose limits are kept there, for all processes together: jobs (of the venues that have jobs) | all"),
    optional("[jobs]", "enabled", "true", "whether this process works on jobs; default: if there are pairs"),
    optional("[jobs]", "workers", "8", "jobs worked on at once"),
    optional("[jobs]", "lease_s", "30", "a worker that was silent for so long has lost its job to another"),
    optional("[jobs]", "attempts_max", "10", "a job that has failed so often in a row is given up until somebody looks"),
    optional("[jobs]", "max_concurrent_per_exchange", "0", "so many jobs of an exchange at once, over all processes; 0: no cap"),
    optional("[jobs]", "system_requests_per_s", "0", "what all exchanges together may be asked, over all processes; 0: no limit"),
    optional("[[jobs.pairs]]", "venue", r#""binance""#, "whose candles are kept: binance, coinbase, kraken, okx, bybit"),
    optional("[[jobs.pairs]]", "symbols", r#"["BTC/USDT"]"#, "of which pairs"),
    optional("[[jobs.pairs]]", "timeframes", r#"["1m"]"#, "which candles: 1s 1m 3m 5m 15m 30m 1h 2h 4h 6h 8h 12h 1d 3d 1w 2w 1M, as far as the venue has them"),
    optional("[[jobs.pairs]]", "history", "true", "fetch those of the past, too"),
    optional("[[jobs.pairs]]", "since", r#""2020-01-01""#, "from when on; default: from the first the venue has"),
    key("[persistence]", "memory_mb", "64", "what may be in memory on its way into the spool and to the sinks; a stalled sink then reads from disk"),
    key("[persistence]", "mongo_uri", r#""mongodb://localhost:27017""#, "where [[sinks]] kind = \"mongo\" writes; may hold a password, which is never shown. CATCHMENT_MONGO_URI in the environment comes before it"),
    optional("[persistence]", "mongo_uri_file", r#""/etc/catchment/mongo_uri""#, "a file that holds the connection string instead"),
    key("[persistence]", "mongo_database", r#""market_data""#, "the database"),
    key("[persistence]", "mongo_collection", r#""crypto_envelopes""#, "the collection"),
    key("[persistence]", "mongo_max_retries", "3", "how often a failed batch is tried again before the sink counts as unreachable"),
    key("[persistence]", "mongo_retry_base_ms", "100", "the first wait between tries; each further one is twice as long, with jitter"),
    key("[persistence]", "mongo_consecutive_failures_for_degraded", "3", "so many exhausted batches in a row make the sink degraded"),
    key("[persistence.spool]", "enabled", "true", "make every record durable before it counts as accepted; false keeps them in memory only"),
    optional("[persistence.spool]", "dir", r#""data/spool""#, "its folder, one process at a time; default: spool in data_dir"),
    key("[persistence.spool]", "max_segment_mb", "64", "a segment that would grow beyond this is followed by another"),
    key("[persistence.spool]", "max_total_mb", "1024", "what all segments together may take; at least two segments"),
    key("[persistence.spool]", "on_full", r#""drop_ticker_depth_keep_trade""#, "when they do: drop_all | drop_ticker_depth_keep_trade (the rest waits) | block"),
    key("[persistence.spool]", "commit_ms", "5", "how long a record may wait for others to be synced with it; 0: no wait"),
    key("[persistence.spool]", "commit_kb", "1024", "sync at once when so much has gathered"),
    key("[persistence.dedup]", "enabled", "false", "drop records that were accepted lately, by message id, else by sequence, within exchange, channel and symbol"),
    key("[persistence.dedup]", "window_seconds", "300", "what lately means"),
    key("[persistence.dedup]", "max_keys", "100000", "how many records are remembered at most"),
    key("[persistence.dedup]", "by_payload", "[]", "channels in which equal payloads are duplicates even without an id or sequence"),
    key("[[sinks]]", "kind", r#""jsonl""#, "jsonl: files of JSON lines under data_dir | mongo: the collection that [persistence] names | redis: the latest of each symbol"),
    optional("[[sinks]]", "name", r#""jsonl""#, "what its cursor is kept under; default: its kind"),
    optional("[[sinks]]", "dir", r#""data""#, "where its files are; default: data_dir. Two sinks have two folders"),
    key("[[sinks]]", "file_mb", "256", "a file that has reached this is sealed and followed by another"),
    key("[[sinks]]", "compress", "false", "compress sealed files with zstd"),
    key("[[sinks]]", "compress_level", "1", "1 to 19"),
    optional("[[sinks]]", "batch_records", "10000", "a batch holds at most so many records (default for mongo: 4000, sent a thousand at a time),"),
    key("[[sinks]]", "batch_kb", "4096", "and so many KiB,"),
    key("[[sinks]]", "batch_ms", "100", "and waits so long for more"),
    optional("[[sinks]]", "max_retries", "3", "how often a failed batch is tried again before the sink counts as unreachable; default for mongo: mongo_max_retries"),
    optional("[[sinks]]", "retry_base_ms", "100", "the first wait between tries; each further one is twice as long, with jitter; default for mongo: mongo_retry_base_ms"),
    key("[[sinks]]", "retry_cap_ms", "5000", "no wait is longer"),
    optional("[[sinks]]", "consecutive_failures_for_degraded", "3", "so many exhausted batches in a row make the sink degraded; default for mongo: mongo_consecutive_failures_for_degraded"),
    key("[[sinks]]", "replay_rate_limit_ms", "0", "a rest between batches that come from disk while catching up"),
    optional("[[sinks]]", "url", r#""redis://127.0.0.1:6379""#, "redis: where it is; several addresses with commas between them are a cluster"),
    optional("[[sinks]]", "prefix", r#""ob:""#, "redis: what stands before a name in its key"),
    optional("[[sinks]]", "names", r#""{symbol}""#, "redis: the name, of {symbol}, {venue} and {channel}"),
    optional("[[sinks]]", "channels", r#"["orderbook"]"#, "redis: the channels whose latest is kept; none named: all"),
    optional("[[sinks]]", "stream_len", "0", "redis: keep about so many entries of an audit stream for each venue, <prefix>audit:<venue>; 0: none"),
    optional("[[sinks]]", "stream_books", "false", "redis: whether its entries have the books"),
    optional("[[sinks]]", "publish", r#""ob:changed""#, "redis: publish every changed name on this channel"),
    optional("[fleet.coordinator]", "redis_url", r#""redis://127.0.0.1:6379""#, "where the fleet meets; several addresses with commas between them are a cluster"),
    optional("[fleet.coordinator]", "base_url", r#""https://clob.polymarket.com""#, "the venue, for the record; the nodes have their own"),
    optional("[fleet.coordinator]", "tokens", "[]", "tokens to follow"),
    optional("[fleet.coordinator]", "fetch_nodes", "[]", "nodes, host:port; others register themselves in Redis"),
    optional("[fleet.coordinator]", "plan_horizon_secs", "5.0", "every token is to be fetched once in so many seconds; batches are as large as that needs"),
    optional("[fleet.coordinator]", "tokens_file", r#""tokens.txt""#, "more tokens, one a line or a JSON list; watched"),
    optional("[fleet.coordinator]", "snapshot", r#""data/polymarket/state/active_instruments.snapshot.json""#, "more tokens, from the file that discovery writes; watched"),
    optional("[fleet.coordinator]", "key_file", r#""fleet.key""#, "the key that all of the fleet share; else CATCHMENT_FLEET_KEY"),
    optional("[fleet.coordinator]", "coordinator_id", r#""coordinator""#, "its name in the status"),
    optional("[fleet.coordinator]", "namespace", r#""fleet""#, "the fleet's name in Redis"),
    optional("[fleet.coordinator]", "inflight_max", "16", "batches a node may have under way"),
    optional("[fleet.coordinator]", "slow_ms", "2000", "answers that take longer make batches smaller"),
    optional("[fleet.coordinator]", "metrics_listen", r#""127.0.0.1:9101""#, "where Prometheus may ask; loopback only"),
    optional("[fleet.fetcher]", "redis_url", r#""redis://127.0.0.1:6379""#, "where the books go and the fleet meets"),
    optional("[fleet.fetcher]", "base_url", r#""https://clob.polymarket.com""#, "the venue"),
    optional("[fleet.fetcher]", "node_id", r#""fetch-001""#, "its name, unique in the fleet"),
    optional("[fleet.fetcher]", "capacity_rps", "20", "requests in any second, at most, whatever it is told"),
    optional("[fleet.fetcher]", "bind_addr", r#""0.0.0.0:3000""#, "where it listens; without a key on loopback only"),
    optional("[fleet.fetcher]", "advertise_addr", r#""10.0.0.1:3000""#, "where coordinators reach it, if not at bind_addr"),
    optional("[fleet.fetcher]", "source_addr", r#""10.0.0.1""#, "the local address its requests leave from"),
    optional("[fleet.fetcher]", "key_file", r#""fleet.key""#, "the key that all of the fleet share; else CATCHMENT_FLEET_KEY"),
    optional("[fleet.fetcher]", "namespace", r#""fleet""#, "the fleet's name in Redis"),
    optional("[fleet.fetcher]", "slack_ms", "25", "capacity_rps holds in every second and this much more: what a network may shift"),
    optional("[fleet.fetcher]", "request_deadline_ms", "5000", "a request without a whole answer by then has failed"),
    optional("[fleet.fetcher]", "prefix", r#""ob:""#, "what stands before a token in its key"),
    optional("[fleet.fetcher]", "stream_len", "0", "keep about so many entries of an audit stream for each venue, <prefix>audit:<venue>; 0: none"),
    optional("[fleet.fetcher]", "stream_books", "false", "whether its entries have the books"),
    optional("[fleet.fetcher]", "publish", r#""ob:changed""#, "publish every changed token on this channel"),
];

/// `config init`.
pub(crate) fn init(path: &Path, force: bool) -> anyhow::Result<u8> {
    let text = starter();
    if path == Path::new("-") {
        print!("{text}");
        return Ok(DONE);
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!force);
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            anyhow::bail!("{} is already there; write over it with --force", path.display())
        }
        opened => opened.with_context(|| format!("cannot write {}", path.display()))?,
    };
    std::io::Write::write_all(&mut file, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    crate::say(&format!("wrote {}", path.display()));
    Ok(DONE)
}

/// `config explain`.
pub(crate) fn explain(json: bool, markdown: bool) -> anyhow::Result<u8> {
    if json {
        println!("{}", serde_json::to_string_pretty(KEYS)?);
    } else if markdown {
        print!("{}", reference());
    } else {
        print!("{}", starter());
    }
    Ok(DONE)
}

/// A file with every key at its default, each explained.
fn starter() -> String {
    let mut text = String::from("# catchment.toml: every key, its default and what it means.\n");
    let mut table = "";
    for key in KEYS {
        if key.table != table {
            table = key.table;
            // A venue that is named is recorded; whether to is the user's to say.
            let is_choice =
                table.starts_with("[venues") || table.starts_with("[[streams") || table.contains("[jobs");
            let off = if is_choice { "# " } else { "" };
            text.push_str(&format!("\n{off}{table}\n"));
        }
        let off = if key.optional { "# " } else { "" };
        text.push_str(&format!("# {}\n{off}{} = {}\n", key.means, key.name, key.default));
    }
    text
}

/// `docs/config.md`.
fn reference() -> String {
    let mut text = String::from(
        "# Configuration\n\nWritten by `catchment config explain --markdown`. Unknown keys are errors.\n",
    );
    let mut table = None;
    for key in KEYS {
        if table != Some(key.table) {
            table = Some(key.table);
            let heading =
                if key.table.is_empty() { "Top level".to_owned() } else { format!("`{}`", key.table) };
            text.push_str(&format!("\n## {heading}\n\n| key | default | meaning |\n|---|---|---|\n"));
        }
        let means = key.means.replace('|', "\\|");
        text.push_str(&format!("| `{}` | `{}` | {means} |\n", key.name, key.default));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::jobs::PairToml;
    use super::*;

    fn checked(text: &str) -> Result<Config, String> {
        parse(text).map_err(|e| e.to_string())?.check().map_err(|e| e.to_string())
    }

    /// The text is refused, and the message names what is wrong.
    fn refused(text: &str, names: &str) {
        let error = checked(text).expect_err(text);
        assert!(error.contains(names), "{text}\ngave {error:?}, expected {names:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused("data_dri = 'x'", "unknown field `data_dri`, expected one of `data_dir`");
        refused("[persistence.spool]\nmax_segment_mb = '64MB'", "the unit is part of the key");
        refused(
            "[persistence.spool]\nmax_segment_mb = 64\nmax_total_mb = 100",
            "persistence.spool.max_total_mb is 100",
        );
        refused(
            "[persistence.spool]\nmax_segment_mb = 0",
            "persistence.spool.max_segment_mb is 0, expected 1 to",
        );
        refused("[persistence.spool]\non_full = 'explode'", "unknown variant `explode`");
        refused(
            "[persistence.dedup]\nby_payload = ['Ticker']",
            "persistence.dedup.by_payload holds channel \"Ticker\"",
        );
        refused("[[sinks]]\nkind = 'paper'", "unknown variant `paper`");
        refused("[[sinks]]\nkind = 'redis'", "sinks[0].url is missing");
        refused("[[sinks]]\nkind = 'redis'\nurl = 'http://x'", "sinks[0].url is not an address");
        refused("[[sinks]]\n[[sinks]]", "sinks[1].name \"jsonl\" is taken");
        refused("[[sinks]]\n[[sinks]]\nname = 'b'", "sinks[1].dir is data, the folder of \"jsonl\"");
        refused("[[sinks]]\nname = '../x'", "sinks[0].name");
        refused("[[sinks]]\ncompress_level = 40", "sinks[0].compress_level is 40");
        refused("sinks = []", "sinks is empty");
        refused("[persistence]\nmongo_url = 'x'", "unknown field `mongo_url`");
        refused("data_dir = ", "line 1");
        refused(
            "[[streams]]\nvenue = 'bourse'",
            "streams[0].venue is \"bourse\", which is no venue that streams",
        );
        refused("[[streams]]\nsymbols = []", "streams[0].symbols is empty");
        refused("[[streams]]\nsymbols = ['BTC/']", "streams[0].symbols is wrong: \"BTC/\"");
        refused(
            "[[streams]]\nchannels = ['moods']",
            "streams[0].channels is wrong: binance has no channel \"moods\"",
        );
        refused("[[streams]]\nsnapshot_interval_s = 0", "streams[0].snapshot_interval_s is 0");
        refused(
            "[venues.binance]\nendpoints = { moon = 'ws://x' }",
            "venues.binance.endpoints.moon does not exist",
        );
        refused("[venues.binance]\nlimit_share = 2.0", "venues.binance.limit_share is 2");
        refused(
            "descriptors_dir = 'nowhere/at/all'",
            "descriptors_dir is nowhere/at/all, which cannot be read",
        );
        refused(
            "[venues.bourse]",
            "venues.bourse is not a venue we know; there is polymarket, limitless, kalshi",
        );
        refused(
            "[venues.kalshi]\npoll_interval_ms = 1",
            "venues.kalshi.poll_interval_ms is 1, expected 50 to",
        );
        refused("[venues.polymarket]\nbooks_per_request = 501", "venues.polymarket.books_per_request is 501");
        refused("[venues.polymarket]\nlimit_share = 2.0", "venues.polymarket.limit_share is 2");
        refused(
            "[venues.kalshi]\nendpoints = { moon = 'http://x' }",
            "venues.kalshi.endpoints.moon does not exist",
        );
        refused("[venues.kalshi]\nendpoints = { api = 'x' }", "venues.kalshi.endpoints.api");
        refused("[api]\nlisten = 'here'", "api.listen is \"here\"");
        refused(
            "[[jobs.pairs]]\nvenue = 'kalshi'",
            "jobs.pairs[0].venue is \"kalshi\", which is no venue with candles",
        );
        refused(
            "[[jobs.pairs]]\ntimeframes = ['7m']",
            "jobs.pairs[0].timeframes holds \"7m\" is not a timeframe",
        );
        refused(
            "[[jobs.pairs]]\nvenue = 'coinbase'\ntimeframes = ['4h']",
            "jobs.pairs[0].timeframes holds 4h; coinbase has 1m,",
        );
        refused("[[jobs.pairs]]\nsymbols = ['BTC-USDT']", "jobs.pairs[0].symbols holds \"BTC-USDT\"");
        refused("[[jobs.pairs]]\nsince = 'soon'", "jobs.pairs[0].since is \"soon\"");
        refused("[jobs]\nworkers = 0\n[[jobs.pairs]]", "jobs.workers is 0");
        refused("[jobs]\nenabled = true", "jobs.enabled is true, but no venue with candles is named");
        refused("[store]\nkind = 'paper'", "unknown variant `paper`");
        refused("[store]\nkind = 'mongo'\npath = 'x'", "store.path is given");
    }

    #[cfg(feature = "mongo")]
    #[test]
    fn a_mongo_sink_takes_s1s_keys_and_its_own_come_first() {
        let mongo = |persistence: &str, sink: &str| {
            checked(&format!("[persistence]\n{persistence}\n[[sinks]]\nkind = 'mongo'\n{sink}"))
        };
        let delivery = |persistence: &str, sink: &str| {
            let config = mongo(persistence, sink).unwrap();
            assert_eq!(config.sinks[0].name, "mongo");
            let delivery = config.sinks[0].delivery.clone();
            (delivery.batch_records, delivery.retries_max, delivery.retry_base, delivery.degraded_after)
        };
        let ms = Duration::from_millis;
        assert_eq!(delivery("", ""), (4_000, 3, ms(100), 3));
        let keys =
            "mongo_max_retries = 5\nmongo_retry_base_ms = 7\nmongo_consecutive_failures_for_degraded = 9";
        assert_eq!(delivery(keys, ""), (4_000, 5, ms(7), 9));
        assert_eq!(delivery(keys, "max_retries = 1\nbatch_records = 10"), (10, 1, ms(7), 9));
        let refused = |persistence: &str, sink: &str, names: &str| {
            let error = mongo(persistence, sink).unwrap_err();
            assert!(error.contains(names) && !error.contains("sesame"), "{error:?}, expected {names:?}");
        };
        refused("mongo_database = 'a.b'", "", "persistence.mongo_database is \"a.b\"");
        refused("mongo_collection = ''", "", "persistence.mongo_collection is \"\"");
        refused("mongo_uri = 'mongodb://u:sesame/1@h'", "", "percent-encoded");
        refused("mongo_uri = 'mongodb://u:sesame@h", "", "mongodb://***");
        refused("mongo_uri = 'mongodb://u:sesame", "", "mongodb://***");
        refused("", "dir = 'x'", "sinks[0].dir is given");
        refused(
            "",
            "name = 'a'\n[[sinks]]\nkind = 'mongo'",
            "sinks[1].kind is \"mongo\", the collection of \"a\"",
        );
        let shown = format!("{:?}", mongo("mongo_uri = 'mongodb://u:sesame@h'", "").unwrap());
        assert!(!shown.contains("sesame"), "{shown}");
    }

    #[test]
    fn private_streams_need_a_login_whose_texts_are_elsewhere() {
        const ORDERS: &str = "[[streams]]\nvenue = 'okx'\nchannels = ['orders']\n[venues.okx.login]\n";
        refused(
            "[[streams]]\nvenue = 'okx'\nchannels = ['orders']",
            "venues.okx.login is needed for \"orders\": the login of okx needs a key",
        );
        refused(
            &format!("{ORDERS}key = {{ env = 'CATCHMENT_NO_SUCH_VARIABLE' }}"),
            "venues.okx.login.key names the environment variable CATCHMENT_NO_SUCH_VARIABLE, which is not set",
        );
        let error = checked(&format!("{ORDERS}key = 'sesame'")).unwrap_err();
        assert!(
            error.contains("venues.okx.login.key is to say where") && !error.contains("sesame"),
            "{error}"
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        #[allow(clippy::disallowed_methods, reason = "a file for a test, which no power cut will meet")]
        std::fs::write(&path, "sesame\n").unwrap();
        let place = format!("{{ file = {:?} }}", path.display().to_string());
        let config =
            checked(&format!("{ORDERS}key = {place}\nsecret = {place}\npassphrase = {place}")).unwrap();
        assert_eq!(config.streams[0].secrets.as_ref().unwrap().passphrase, "sesame");
        assert!(!format!("{config:?}").contains("sesame"), "{config:?}");
    }

    #[test]
    fn blocks_of_one_venue_are_taken_together() {
        let config = checked(
            "[[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT', 'ETH/USDT']\nchannels = ['trades']\n\
             [[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT']\nchannels = ['book_delta']\n\
             snapshot_interval_s = 5\n\
             [venues.binance]\nendpoints = { stream = 'ws://127.0.0.1:1' }\nmax_inflight = 7",
        )
        .unwrap();
        let [binance] = &config.streams[..] else { panic!("{:?}", config.streams) };
        assert_eq!((binance.wanted.len(), binance.snapshot_interval.as_secs()), (3, 5));
        assert_eq!((binance.endpoints.url("stream"), binance.speed.max_inflight), ("ws://127.0.0.1:1", 7));
        assert!(config.venues.is_empty(), "it is not polled");
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = checked("").unwrap();
        assert_eq!(config.data_dir, Path::new("data"));
        assert_eq!(config.spool.dir, Path::new("data/spool"));
        assert_eq!(config.spool.total_bytes_max, 1 << 30);
        assert!(config.spool_enabled && config.dedup.is_none());
        assert_eq!(config.sinks.len(), 1);
    }

    #[test]
    fn the_explained_defaults_are_the_defaults() {
        let mut explained = BTreeMap::new();
        for key in KEYS {
            let table = key.table.trim_matches(['[', ']']);
            let path = if table.is_empty() { key.name.to_owned() } else { format!("{table}.{}", key.name) };
            let toml = format!("x = {}", key.default);
            let value: BTreeMap<String, serde_json::Value> = toml::from_str(&toml).unwrap();
            explained.insert(path, (key.optional, value["x"].clone()));
        }
        let mut real = BTreeMap::new();
        let venues = BTreeMap::from([("polymarket".to_owned(), VenueToml::default())]);
        let streams = vec![StreamToml::default()];
        let mut jobs = JobsToml::default();
        jobs.pairs.push(PairToml::default());
        let whole = ConfigToml { venues, streams, jobs, ..ConfigToml::default() };
        flatten("", serde_json::to_value(whole).unwrap(), &mut real);
        assert_eq!(explained.keys().collect::<Vec<_>>(), real.keys().collect::<Vec<_>>());
        for (path, value) in real {
            let (optional, explained) = &explained[&path];
            assert!(*optional || *explained == value, "{path} is {value}, explained as {explained}");
        }
    }

    fn flatten(at: &str, value: serde_json::Value, out: &mut BTreeMap<String, serde_json::Value>) {
        match value {
            serde_json::Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    let path = if at.is_empty() { name } else { format!("{at}.{name}") };
                    flatten(&path, value, out);
                }
            }
            serde_json::Value::Array(mut items)
                if items.first().is_some_and(serde_json::Value::is_object) =>
            {
                flatten(at, items.remove(0), out);
            }
            value => {
                out.insert(at.to_owned(), value);
            }
        }
    }

    #[test]
    fn the_starter_is_a_configuration() {
        let started = format!("{:?}", checked(&starter()).unwrap());
        assert_eq!(started, format!("{:?}", checked("").unwrap()));
    }

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            written,
            reference(),
            "write it again: catchment config explain --markdown > docs/config.md"
        );
    }
}
