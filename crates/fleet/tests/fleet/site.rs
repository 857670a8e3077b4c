//! A place for a fleet: a simulated venue, a Redis of its own, and whatever runs there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use catchment_fleet::brain::BrainSettings;
use catchment_fleet::coordinator::{CoordinatorConfig, coordinate};
use catchment_fleet::hello::FleetKey;
use catchment_fleet::lease::LeaseSettings;
use catchment_fleet::node::{FetchNode, NodeConfig, NodeWindow};
use catchment_fleet::status::FleetStatus;
use catchment_fleet::tokens::TokenSources;
use catchment_model::SystemClock;
use catchment_sim::{Sim, SimConfig};
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{LatestSettings, RedisAddress, RedisLink};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Site {
    pub sim: Sim,
    pub redis: RedisServer,
    pub link: Arc<RedisLink>,
    pub tokens: Vec<String>,
}

impl Site {
    /// With so many markets of two tokens each.
    pub async fn new(markets: u32) -> Self {
        Self::with(markets, None).await
    }

    /// Likewise; a batch that has this token is refused by the venue.
    pub async fn with(markets: u32, poison: Option<String>) -> Self {
        let mut config = SimConfig { request_log: 1_000_000, ..SimConfig::default() };
        config.polymarket.universe.markets = markets;
        config.polymarket.universe.levels = Some(3);
        config.polymarket.limits = Some(Vec::new());
        config.polymarket.rules.poison = poison;
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await.unwrap();
        let redis = RedisServer::start().unwrap();
        let link = Arc::new(RedisLink::new(&RedisAddress::new(redis.url())).unwrap());
        let tokens = tokens_of(sim.addr()).await;
        assert_eq!(tokens.len(), 2 * markets as usize);
        Self { sim, redis, link, tokens }
    }

    pub fn node_config(&self, number: u8) -> NodeConfig {
        let own = IpAddr::from([127, 0, 0, number]);
        NodeConfig {
            node_id: format!("fetch-{number:03}"),
            bind: SocketAddr::new(own, 0),
            advertise: None,
            capacity_rps: 20,
            slack: Duration::from_millis(40),
            spec: catchment_venues::find("polymarket").unwrap(),
            base_url: self.sim.base("polymarket/clob"),
            source: Some(own),
            deadline: Duration::from_secs(5),
            key: None,
            redis: RedisAddress::new(self.redis.url()),
            namespace: "fleet".to_owned(),
            latest: LatestSettings::default(),
        }
    }

    pub async fn node(&self, number: u8) -> RunningNode {
        RunningNode::start(self.node_config(number)).await
    }

    pub fn coordinator_config(&self, name: &str, nodes: &[SocketAddr]) -> CoordinatorConfig {
        CoordinatorConfig {
            name: name.to_owned(),
            redis: RedisAddress::new(self.redis.url()),
            namespace: "fleet".to_owned(),
            nodes: nodes.iter().map(ToString::to_string).collect(),
            key: None,
            tokens: TokenSources::new(self.tokens.clone(), None, None),
            brain: BrainSettings { refresh_mhz: 1_000, ..BrainSettings::default() },
            lease: LeaseSettings::default(),
            metrics: None,
        }
    }

    pub fn coordinator(&self, name: &str, nodes: &[SocketAddr]) -> RunningCoordinator {
        RunningCoordinator::start(self.coordinator_config(name, nodes))
    }

    /// How many tokens have a book in Redis.
    pub async fn books(&self) -> usize {
        let keys: Vec<String> = self.link.ask(redis::cmd("KEYS").arg("ob:*")).await.unwrap();
        keys.len()
    }
}

/// All tokens that the simulator knows, page by page.
async fn tokens_of(sim: SocketAddr) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/polymarket/clob/markets?next_cursor={}", cursor.replace('=', "%3D"));
        let page: serde_json::Value = serde_json::from_str(&http_get(sim, &path).await).unwrap();
        for market in page["data"].as_array().unwrap().iter().filter(|market| market["closed"] == false) {
            tokens.extend(
                market["tokens"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|token| token["token_id"].as_str().unwrap().to_owned()),
            );
        }
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
        if cursor == "LTE=" {
            return tokens;
        }
    }
}

/// The body of an answer.
pub async fn http_get(addr: SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let ask =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nuser-agent: fleet-test\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    body.to_owned()
}

pub struct RunningNode {
    pub addr: SocketAddr,
    pub window: NodeWindow,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl RunningNode {
    pub async fn start(config: NodeConfig) -> Self {
        let node = FetchNode::open(config, Arc::new(SystemClock::new())).await.unwrap();
        let (addr, window, stop) = (node.addr(), node.watch(), CancellationToken::new());
        let running = tokio::spawn(node.run(stop.clone()));
        Self { addr, window, stop, running }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }

    /// As if killed: nothing is said to anybody.
    pub async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

pub struct RunningCoordinator {
    pub status: watch::Receiver<FleetStatus>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl RunningCoordinator {
    pub fn start(config: CoordinatorConfig) -> Self {
        let (tell, status) = watch::channel(FleetStatus::default());
        let stop = CancellationToken::new();
        let ended = coordinate(config, Arc::new(SystemClock::new()), tell, stop.clone());
        let running = tokio::spawn(async move { ended.await.unwrap() });
        Self { status, stop, running }
    }

    /// Waits until its status is as wished.
    pub async fn until(&mut self, what: &str, wish: impl FnMut(&FleetStatus) -> bool) -> FleetStatus {
        let met = tokio::time::timeout(PATIENCE, self.status.wait_for(wish)).await;
        let met = met.map(|status| status.unwrap().clone());
        met.unwrap_or_else(|_| panic!("not met: {what}\n{}", self.status.borrow().to_text()))
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }

    /// As if killed: the lease is not given back.
    pub async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

/// A key of a fleet.
pub fn key(text: &str) -> Option<FleetKey> {
    Some(FleetKey::new(text).unwrap())
}
