//! `[fleet.coordinator]` and `[fleet.fetcher]`: S4's keys with S4's meanings, and ours beside them.
//!
//! The same keys may stand alone in a file of their own, as S4 writes them: `client_config.toml`, `fetch_config.toml`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use catchment_collect::SnapshotFile;
use catchment_fleet::brain::BrainSettings;
use catchment_fleet::coordinator::CoordinatorConfig;
use catchment_fleet::hello::FleetKey;
use catchment_fleet::lease::LeaseSettings;
use catchment_fleet::message::{is_name, is_token};
use catchment_fleet::node::NodeConfig;
use catchment_fleet::tokens::TokenSources;
use catchment_sinks::redis::{AuditStream, LatestSettings, RedisAddress};
use serde::{Deserialize, Serialize};

use super::{ConfigError, between, hide_logins};

/// The environment's place for the fleet's key.
const KEY_VARIABLE: &str = "CATCHMENT_FLEET_KEY";

/// `[fleet]`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FleetToml {
    pub(crate) coordinator: CoordinatorToml,
    pub(crate) fetcher: FetcherToml,
}

/// `[fleet.coordinator]`, or S4's `client_config.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CoordinatorToml {
    redis_url: String,
    base_url: String,
    tokens: Vec<String>,
    fetch_nodes: Vec<String>,
    plan_horizon_secs: f64,
    tokens_file: Option<PathBuf>,
    snapshot: Option<PathBuf>,
    key_file: Option<PathBuf>,
    coordinator_id: Option<String>,
    namespace: String,
    inflight_max: u64,
    slow_ms: u64,
    metrics_listen: Option<SocketAddr>,
}

impl Default for CoordinatorToml {
    fn default() -> Self {
        Self {
            redis_url: "redis://127.0.0.1:6379".to_owned(),
            base_url: "https://clob.polymarket.com".to_owned(),
            tokens: Vec::new(),
            fetch_nodes: Vec::new(),
            plan_horizon_secs: 5.0,
            tokens_file: None,
            snapshot: None,
            key_file: None,
            coordinator_id: None,
            namespace: "fleet".to_owned(),
            inflight_max: 16,
            slow_ms: 2_000,
            metrics_listen: None,
        }
    }
}

/// `[fleet.fetcher]`, or S4's `fetch_config.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FetcherToml {
    redis_url: String,
    base_url: String,
    node_id: String,
    capacity_rps: u64,
    bind_addr: SocketAddr,
    advertise_addr: Option<String>,
    source_addr: Option<IpAddr>,
    key_file: Option<PathBuf>,
    namespace: String,
    slack_ms: u64,
    request_deadline_ms: u64,
    prefix: String,
    stream_len: u64,
    stream_books: bool,
    publish: Option<String>,
}

impl Default for FetcherToml {
    fn default() -> Self {
        Self {
            redis_url: "redis://127.0.0.1:6379".to_owned(),
            base_url: "https://clob.polymarket.com".to_owned(),
            node_id: "fetch-001".to_owned(),
            capacity_rps: 20,
            bind_addr: SocketAddr::from(([0, 0, 0, 0], 3_000)),
            advertise_addr: None,
            source_addr: None,
            key_file: None,
            namespace: "fleet".to_owned(),
            slack_ms: 25,
            request_deadline_ms: 5_000,
            prefix: "ob:".to_owned(),
            stream_len: 0,
            stream_books: false,
            publish: None,
        }
    }
}

/// Reads the coordinator's part of a file: S4's own, or `[fleet.coordinator]` of a `catchment.toml`.
pub(crate) fn read_coordinator(path: Option<&Path>) -> anyhow::Result<CoordinatorToml> {
    read(path, "client_config.toml", |fleet| fleet.coordinator)
}

/// Reads the fetch node's part of a file: S4's own, or `[fleet.fetcher]` of a `catchment.toml`.
pub(crate) fn read_fetcher(path: Option<&Path>) -> anyhow::Result<FetcherToml> {
    read(path, "fetch_config.toml", |fleet| fleet.fetcher)
}

fn read<T: Default + serde::de::DeserializeOwned>(
    path: Option<&Path>,
    flat: &str,
    part: fn(FleetToml) -> T,
) -> anyhow::Result<T> {
    let known = [Path::new(flat), Path::new("catchment.toml")];
    let Some(path) = path.or(known.into_iter().find(|path| path.exists())) else {
        return Ok(T::default());
    };
    let place = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {place}"))?;
    parse(&text, part).with_context(|| place.to_string())
}

/// A file of its own has S4's keys at its top; ours has tables and a few plain keys.
fn parse<T: Default + serde::de::DeserializeOwned>(
    text: &str,
    part: fn(FleetToml) -> T,
) -> anyhow::Result<T> {
    // An address may hold a password, and what complains about a line quotes it.
    let wrong = |error: toml::de::Error| anyhow::anyhow!("{}", hide_logins(error.to_string().trim_end()));
    let table: toml::Table = toml::from_str(text).map_err(wrong)?;
    let flat = [
        "redis_url",
        "base_url",
        "tokens",
        "fetch_nodes",
        "node_id",
        "bind_addr",
        "capacity_rps",
        "tokens_file",
    ];
    if flat.iter().any(|key| table.contains_key(*key)) {
        return toml::from_str(text).map_err(wrong);
    }
    Ok(part(super::parse(text)?.fleet))
}

impl CoordinatorToml {
    /// How to reach Redis, for whoever only wants to look.
    pub(crate) fn redis(&self) -> RedisAddress {
        redis(&self.redis_url)
    }

    /// The fleet's name in Redis.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn check(self, unique: u32) -> anyhow::Result<CoordinatorConfig> {
        let venue = catchment_venues::find("polymarket").context("this build knows Polymarket")?.venue();
        if let Some(odd) = self.tokens.iter().find(|token| !is_token(token)) {
            return Err(ConfigError::at("tokens", format!("holds {odd:?}, which is no token")).into());
        }
        if let Some(odd) = self.fetch_nodes.iter().find(|addr| !is_address(addr)) {
            return Err(ConfigError::at("fetch_nodes", format!("holds {odd:?}, expected host:port")).into());
        }
        if !(0.05..=86_400.0).contains(&self.plan_horizon_secs) {
            let problem = format!("is {}, expected 0.05 to 86400", self.plan_horizon_secs);
            return Err(ConfigError::at("plan_horizon_secs", problem).into());
        }
        if self.metrics_listen.is_some_and(|addr| !addr.ip().is_loopback()) {
            return Err(
                ConfigError::at("metrics_listen", "is not loopback; put a proxy in front of it").into()
            );
        }
        let id = self.coordinator_id.unwrap_or_else(|| "coordinator".to_owned());
        name("coordinator_id", &id)?;
        name("namespace", &self.namespace)?;
        Ok(CoordinatorConfig {
            // Two that were given one name must not take each other's lease for their own.
            name: format!("{}.{unique:08x}", &id[..id.len().min(48)]),
            redis: redis(&self.redis_url),
            namespace: self.namespace,
            nodes: self.fetch_nodes,
            key: key(self.key_file.as_deref())?,
            tokens: TokenSources::new(
                self.tokens,
                self.tokens_file,
                self.snapshot.map(|path| SnapshotFile::new(path, venue)),
            ),
            brain: BrainSettings {
                refresh_mhz: (1_000.0 / self.plan_horizon_secs).ceil() as u64,
                inflight_max: between("inflight_max", self.inflight_max, 1, 64)? as usize,
                slow: Duration::from_millis(between("slow_ms", self.slow_ms, 10, 60_000)?),
            },
            lease: LeaseSettings::default(),
            metrics: self.metrics_listen,
        })
    }
}

impl FetcherToml {
    pub(crate) fn check(self) -> anyhow::Result<NodeConfig> {
        name("node_id", &self.node_id)?;
        name("namespace", &self.namespace)?;
        if self.advertise_addr.as_ref().is_some_and(|addr| !is_address(addr)) {
            return Err(ConfigError::at("advertise_addr", "is no host:port").into());
        }
        let stream = (self.stream_len > 0).then(|| AuditStream {
            key: format!("{}audit", self.prefix),
            len_max: self.stream_len,
            with_books: self.stream_books,
        });
        Ok(NodeConfig {
            node_id: self.node_id,
            bind: self.bind_addr,
            advertise: self.advertise_addr,
            capacity_rps: between("capacity_rps", self.capacity_rps, 1, 10_000)? as u32,
            slack: Duration::from_millis(between("slack_ms", self.slack_ms, 0, 1_000)?),
            spec: catchment_venues::find("polymarket").context("this build knows Polymarket")?,
            base_url: self.base_url,
            source: self.source_addr,
            deadline: Duration::from_millis(between(
                "request_deadline_ms",
                self.request_deadline_ms,
                50,
                60_000,
            )?),
            key: key(self.key_file.as_deref())?,
            redis: redis(&self.redis_url),
            namespace: self.namespace,
            latest: LatestSettings {
                prefix: self.prefix,
                stream,
                publish: self.publish,
                ..LatestSettings::default()
            },
        })
    }
}

/// Several addresses, with commas between them, are nodes of one cluster.
fn redis(url: &str) -> RedisAddress {
    RedisAddress { urls: url.split(',').map(|url| url.trim().to_owned()).collect(), ..RedisAddress::new("") }
}

/// The fleet's key, from the file or else from the environment.
fn key(file: Option<&Path>) -> anyhow::Result<Option<FleetKey>> {
    let text = match file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read key_file {}", path.display()))?,
        ),
        None => std::env::var(KEY_VARIABLE).ok().filter(|text| !text.is_empty()),
    };
    Ok(text.map(|text| FleetKey::new(&text)).transpose()?)
}

fn name(key: &str, text: &str) -> Result<(), ConfigError> {
    if is_name(text) {
        return Ok(());
    }
    Err(ConfigError::at(
        key,
        format!("is {text:?}; letters, digits, '-', '_', '.' and ':' are allowed, up to 64"),
    ))
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet").join(name);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_examples_work_as_they_are_written() {
        let coordinator = parse(&example("client_config.example.toml"), |fleet| fleet.coordinator).unwrap();
        assert_eq!(coordinator.fetch_nodes, ["10.0.0.1:3000"]);
        let config = coordinator.check(7).unwrap();
        assert_eq!((config.name.as_str(), config.brain.refresh_mhz), ("coordinator.00000007", 200));
        let fetcher = parse(&example("fetch_config.example.toml"), |fleet| fleet.fetcher).unwrap();
        let config = fetcher.check().unwrap();
        assert_eq!((config.node_id.as_str(), config.capacity_rps), ("fetch-001", 20));
        assert_eq!(config.bind, "0.0.0.0:3000".parse().unwrap());
        assert_eq!(config.base_url, "https://clob.polymarket.com");
    }

    #[test]
    fn the_same_keys_stand_in_catchment_toml() {
        let text = "data_dir = 'd'\n[fleet.fetcher]\nnode_id = 'n7'\n[fleet.coordinator]\ntokens = ['1']";
        assert_eq!(parse(text, |fleet| fleet.fetcher).unwrap().node_id, "n7");
        assert_eq!(parse(text, |fleet| fleet.coordinator).unwrap().tokens, ["1"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str, names: &str| {
            let parsed = parse(text, |fleet| fleet.coordinator).and_then(|coordinator| coordinator.check(1));
            let error = format!("{:#}", parsed.unwrap_err());
            assert!(error.contains(names), "{text} gave {error:?}, expected {names:?}");
        };
        refused("tokens = ['1']\nfetch_node = []", "unknown field `fetch_node`");
        refused("redis_url = 'redis://:pw@h' 7", "redis://***@h");
        refused("tokens = ['a b']", "tokens holds \"a b\", which is no token");
        refused("fetch_nodes = ['10.0.0.1']", "fetch_nodes holds \"10.0.0.1\", expected host:port");
        refused("tokens = []\nplan_horizon_secs = 0", "plan_horizon_secs is 0");
        refused("tokens = []\nkey_file = '/nowhere'", "cannot read key_file /nowhere");
        refused("tokens = []\nmetrics_listen = '0.0.0.0:1'", "metrics_listen is not loopback");
        let fetcher = parse("node_id = 'a b'", |fleet| fleet.fetcher).unwrap().check();
        assert!(fetcher.unwrap_err().to_string().contains("node_id is \"a b\""));
    }
}
