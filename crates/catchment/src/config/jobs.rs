//! `[store]`, `[jobs]` and `[[jobs.pairs]]`: where connectors, jobs and candles are kept, who works on them, and which pairs'
//! candles are fetched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catchment_jobs::Pair;
use catchment_model::{Timeframe, UnixMs};
use catchment_venues::Endpoints;
use catchment_venues::candles::{CANDLE_VENUES, CandleVenue, candles_of};
use catchment_venues::stream::Descriptor;
use serde::{Deserialize, Serialize};

use super::mongo::Hidden;
use super::streams::Described;
use super::venues::{Speed, VenueToml};
use super::{ConfigError, between};

/// What the environment may hold instead of the file.
const VARIABLE: &str = "CATCHMENT_STORE_URI";

/// Where connectors, jobs and candles are.
#[derive(Debug, Clone)]
pub(crate) struct StoreConfig {
    pub(crate) place: StorePlace,
    /// Whether the limits of all venues are kept there, not only of those that have jobs.
    pub(crate) shares_all: bool,
}

/// A file, or a server.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "mongo"), allow(dead_code))]
pub(crate) enum StorePlace {
    Sqlite(PathBuf),
    Mongo { uri: Hidden, uri_file: Option<PathBuf>, database: String },
}

impl std::fmt::Display for StorePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "the store is {}", path.display()),
            // Where it is may hold a password.
            Self::Mongo { database, .. } => write!(f, "the store is MongoDB's database {database}"),
        }
    }
}

/// The workers, and what they work on.
#[derive(Clone)]
pub(crate) struct JobsConfig {
    pub(crate) workers: usize,
    pub(crate) lease: Duration,
    pub(crate) attempts_max: u32,
    pub(crate) per_exchange: Option<u32>,
    pub(crate) system_limit: Option<u32>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) venues: Vec<JobVenue>,
}

impl std::fmt::Debug for JobsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let venues: Vec<&str> = self.venues.iter().map(|venue| venue.descriptor.id()).collect();
        f.debug_struct("JobsConfig")
            .field("workers", &self.workers)
            .field("venues", &venues)
            .finish_non_exhaustive()
    }
}

/// A venue whose jobs this process works on.
#[derive(Clone)]
pub(crate) struct JobVenue {
    pub(crate) descriptor: Descriptor,
    pub(crate) candles: &'static CandleVenue,
    pub(crate) endpoints: Endpoints,
    pub(crate) speed: Speed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoreKind {
    Sqlite,
    Mongo,
}

/// Whose limits are kept in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Limits {
    Jobs,
    All,
}

/// `[store]` as the user writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreToml {
    kind: StoreKind,
    path: Option<PathBuf>,
    uri: Hidden,
    uri_file: Option<PathBuf>,
    database: String,
    limits: Limits,
}

impl Default for StoreToml {
    fn default() -> Self {
        Self {
            kind: StoreKind::Sqlite,
            path: None,
            uri: Hidden("mongodb://localhost:27017".to_owned()),
            uri_file: None,
            database: "market_data".to_owned(),
            limits: Limits::Jobs,
        }
    }
}

/// `[jobs]` as the user writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JobsToml {
    enabled: Option<bool>,
    workers: u64,
    lease_s: u64,
    attempts_max: u64,
    max_concurrent_per_exchange: u64,
    system_requests_per_s: u64,
    pub(super) pairs: Vec<PairToml>,
}

impl Default for JobsToml {
    fn default() -> Self {
        Self {
            enabled: None,
            workers: 8,
            lease_s: 30,
            attempts_max: 10,
            max_concurrent_per_exchange: 0,
            system_requests_per_s: 0,
            pairs: Vec::new(),
        }
    }
}

/// One `[[jobs.pairs]]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PairToml {
    venue: String,
    symbols: Vec<String>,
    timeframes: Vec<String>,
    history: bool,
    since: Option<String>,
}

impl Default for PairToml {
    fn default() -> Self {
        Self {
            venue: "binance".to_owned(),
            symbols: vec!["BTC/USDT".to_owned()],
            timeframes: vec!["1m".to_owned()],
            history: true,
            since: None,
        }
    }
}

impl StoreToml {
    pub(super) fn check(self, data_dir: &Path) -> Result<StoreConfig, ConfigError> {
        let place = match self.kind {
            StoreKind::Sqlite => StorePlace::Sqlite(self.path.unwrap_or_else(|| data_dir.join("jobs.db"))),
            StoreKind::Mongo if self.path.is_some() => {
                return Err(ConfigError::at(
                    "store.path",
                    "is given; kind = \"mongo\" has a uri and a database",
                ));
            }
            StoreKind::Mongo if !cfg!(feature = "mongo") => {
                let problem = "is \"mongo\", but this build has no MongoDB; build it with the feature mongo";
                return Err(ConfigError::at("store.kind", problem));
            }
            StoreKind::Mongo => {
                #[cfg(feature = "mongo")]
                catchment_sinks::mongo::MongoUri::parse(&self.uri.0)
                    .map_err(|error| ConfigError::at("store.uri", error.to_string()))?;
                let odd = ['/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?', '\0'];
                let is_bad =
                    self.database.is_empty() || self.database.len() > 63 || self.database.contains(odd);
                if is_bad {
                    let problem = format!("is {:?}, which MongoDB does not take as a name", self.database);
                    return Err(ConfigError::at("store.database", problem));
                }
                StorePlace::Mongo { uri: self.uri, uri_file: self.uri_file, database: self.database }
            }
        };
        Ok(StoreConfig { place, shares_all: self.limits == Limits::All })
    }
}

#[cfg(feature = "mongo")]
impl StorePlace {
    /// The connection string: from the environment, else from its file, else as written.
    pub(crate) fn mongo_uri(&self) -> anyhow::Result<Option<(String, String)>> {
        use anyhow::Context;
        let Self::Mongo { uri, uri_file, database } = self else { return Ok(None) };
        let uri = match (std::env::var(VARIABLE), uri_file) {
            (Ok(uri), _) => uri,
            (Err(_), Some(path)) => {
                let read = std::fs::read_to_string(path);
                let read = read.with_context(|| format!("cannot read store.uri_file {}", path.display()))?;
                read.trim().to_owned()
            }
            (Err(_), None) => uri.0.clone(),
        };
        Ok(Some((uri, database.clone())))
    }
}

impl JobsToml {
    /// None if there are no jobs here. Venues are those that pairs, streams or `[venues.<id>]` name.
    pub(super) fn check(
        self,
        described: &Described,
        venues: &BTreeMap<String, VenueToml>,
        streamed: &[&str],
    ) -> Result<Option<JobsConfig>, ConfigError> {
        let is_enabled = self.enabled.unwrap_or(!self.pairs.is_empty());
        if !is_enabled {
            return Ok(None);
        }
        let mut pairs = Vec::new();
        for (at, pair) in self.pairs.iter().enumerate() {
            pair.check(at, described, &mut pairs)?;
        }
        let is_named = |id: &str| {
            let has_pair = self.pairs.iter().any(|pair| pair.venue == id);
            has_pair || streamed.contains(&id) || venues.contains_key(id)
        };
        let mut served = Vec::new();
        for candles in CANDLE_VENUES.iter().filter(|candles| is_named(candles.id)) {
            let Some(descriptor) = described.find(candles.id) else { continue };
            let venue = venues.get(candles.id);
            let overrides = venue.map(|venue| venue.endpoints_for(descriptor)).unwrap_or_default();
            let endpoints = descriptor.endpoints(overrides);
            let speed = match venue {
                Some(venue) => venue.speed(candles.id)?,
                None => VenueToml::default().speed(candles.id)?,
            };
            served.push(JobVenue {
                descriptor: descriptor.clone(),
                candles,
                endpoints: endpoints.map_err(|error| ConfigError::whole(error.to_string()))?,
                speed,
            });
        }
        if served.is_empty() {
            let known = CANDLE_VENUES.iter().map(|venue| venue.id).collect::<Vec<_>>().join(", ");
            let problem = format!("is true, but no venue with candles is named; there is {known}");
            return Err(ConfigError::at("jobs.enabled", problem));
        }
        let limit = |key: &str, value| between(key, value, 0, 1_000_000).map(|n| (n > 0).then_some(n as u32));
        Ok(Some(JobsConfig {
            workers: between("jobs.workers", self.workers, 1, 1_024)? as usize,
            lease: Duration::from_secs(between("jobs.lease_s", self.lease_s, 2, 3_600)?),
            attempts_max: between("jobs.attempts_max", self.attempts_max, 1, 1_000)? as u32,
            per_exchange: limit("jobs.max_concurrent_per_exchange", self.max_concurrent_per_exchange)?,
            system_limit: limit("jobs.system_requests_per_s", self.system_requests_per_s)?,
            pairs,
            venues: served,
        }))
    }
}

impl PairToml {
    fn check(&self, at: usize, described: &Described, pairs: &mut Vec<Pair>) -> Result<(), ConfigError> {
        let key = |name: &str| format!("jobs.pairs[{at}].{name}");
        let candles = candles_of(&self.venue).zip(described.find(&self.venue));
        let Some((candles, descriptor)) = candles else {
            let known = CANDLE_VENUES.iter().map(|venue| venue.id).collect::<Vec<_>>().join(", ");
            let problem = format!("is {:?}, which is no venue with candles; there is {known}", self.venue);
            return Err(ConfigError::at(key("venue"), problem));
        };
        for (name, list) in [("symbols", &self.symbols), ("timeframes", &self.timeframes)] {
            if list.is_empty() {
                return Err(ConfigError::at(key(name), "is empty: nothing would be fetched"));
            }
        }
        let since = self.since.as_deref().map(moment).transpose();
        let since = since.map_err(|problem| ConfigError::at(key("since"), problem))?;
        for name in &self.timeframes {
            let timeframe: Timeframe =
                name.parse().map_err(|error| ConfigError::at(key("timeframes"), format!("holds {error}")))?;
            if candles.timeframe(timeframe).is_none() {
                let known: Vec<&str> = candles.timeframes.iter().map(|(known, _)| known.as_str()).collect();
                let problem = format!("holds {name}; {} has {}", candles.id, known.join(", "));
                return Err(ConfigError::at(key("timeframes"), problem));
            }
            for symbol in &self.symbols {
                let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
                if !symbol.split_once('/').is_some_and(|(base, quote)| plain(base) && plain(quote)) {
                    let problem = format!("holds {symbol:?}, which is not like BTC/USDT");
                    return Err(ConfigError::at(key("symbols"), problem));
                }
                let pair = Pair {
                    exchange_id: descriptor.venue(),
                    symbol: symbol.clone(),
                    timeframe,
                    history: self.history,
                    since,
                };
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        Ok(())
    }
}

/// `2020-01-01`, or a time with its zone.
fn moment(text: &str) -> Result<UnixMs, String> {
    let day = text.parse::<jiff::civil::Date>().ok();
    let day = day.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok()).map(|day| day.timestamp());
    let time = day.or_else(|| text.parse::<jiff::Timestamp>().ok());
    let time = time.and_then(|time| UnixMs::new(time.as_millisecond()).ok());
    time.ok_or_else(|| {
        format!("is {text:?}, expected a day such as 2020-01-01, or a time such as 2020-01-01T12:00:00Z")
    })
}
