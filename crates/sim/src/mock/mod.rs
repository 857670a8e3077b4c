//! An exchange of its own, small and regular, for trying a recorder: `run --mock` records from it.
//!
//! | path | what |
//! |---|---|
//! | `/mock/ws/public` | `trades:BTC/USDT`, `book_delta:BTC/USDT`, `ticker:BTC/USDT` |
//! | `/mock/ws/private` | `fills:BTC/USDT`, after a login |
//! | `/mock/rest/time`, `/mock/rest/snapshot?symbol=BTC/USDT` | its clock; a whole book, numbered as the stream is |
//!
//! It goes wrong by itself, as [`MockArgs`] say: every so many updates one is not sent, every so many messages a
//! connection ends, now and then all connections fall silent, and binary frames come between. Each of these is in the
//! simulation's log. [`DESCRIPTOR`] tells a recorder how to read it.
//!
//! Deliberately absent: anything real. The key and the secret are in the open.

mod args;
mod stream;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Clock;
use serde::{Deserialize, Serialize};

pub use args::MockArgs;

use crate::config::{SimConfig, SimError};
use crate::server::Sim;
use crate::venue::{Answer, Opened, VenueSpec};
use crate::ws::exchange::{Opening, open};

/// Who may log in to the private socket.
pub const KEY: &str = "mock-key";
/// What they sign with.
pub const SECRET: &str = "mock-secret";
/// The word that OKX wants besides.
pub const PASSPHRASE: &str = "mock-passphrase";
/// How a recorder is to read it: a descriptor, as TOML.
pub const DESCRIPTOR: &str = include_str!("mock.toml");

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "mock",
    apis: &["mock/rest"],
    sockets: &["mock/ws"],
    size_key: "pairs.symbols",
    open: open_mock,
};

/// What goes wrong by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MockRules {
    /// Of every stream, one update in so many is not sent; 0: all are.
    pub gap_every: u64,
    /// A connection ends after so many messages; 0: it does not.
    pub disconnect_every: u64,
    /// So long all connections are silent, once in `silence_every_ms`; 0: they are not.
    pub silence_ms: u64,
    /// See there.
    pub silence_every_ms: u64,
    /// The first time is so long after the first connection; none: as long as between two.
    pub silence_first_ms: Option<u64>,
    /// Share of messages before which a binary frame comes.
    pub binary_rate: f64,
}

impl Default for MockRules {
    fn default() -> Self {
        Self {
            gap_every: 0,
            disconnect_every: 0,
            silence_ms: 0,
            silence_every_ms: 60_000,
            silence_first_ms: None,
            binary_rate: 0.0,
        }
    }
}

impl MockRules {
    pub(crate) fn check(&self) -> Result<(), SimError> {
        if !(0.0..=1.0).contains(&self.binary_rate) {
            return Err(SimError::config("mock.rules.binary_rate", "is a share from 0 to 1"));
        }
        if self.gap_every == 1 {
            return Err(SimError::config("mock.rules.gap_every", "of 1 would leave nothing to send"));
        }
        if self.silence_ms > 0 && self.silence_every_ms <= self.silence_ms {
            return Err(SimError::config("mock.rules.silence_every_ms", "has to be more than silence_ms"));
        }
        Ok(())
    }
}

struct Mock {
    rules: MockRules,
    seed: u64,
    private: HashSet<u64>,
    logged_in: HashSet<u64>,
    /// Messages of each connection.
    said: HashMap<u64, u64>,
    silent_at_us: Option<i64>,
}

fn open_mock(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let wire = Mock {
        rules: config.mock.rules.clone(),
        seed: config.seed,
        private: HashSet::new(),
        logged_in: HashSet::new(),
        said: HashMap::new(),
        silent_at_us: None,
    };
    let opening = Opening {
        id: SPEC.id,
        wire,
        endpoint: stream::endpoint,
        refusal: || Answer::json(429, r#"{"error":"too many requests"}"#),
        published: Vec::new(),
    };
    open(opening, config.seed, &config.streams, &config.mock, clock)
}

/// The mock, running by itself on an address of its own.
#[derive(Debug)]
pub struct MockExchange {
    sim: Sim,
    args: MockArgs,
}

impl MockExchange {
    /// Starts it on a free port of this machine.
    pub async fn start(args: &MockArgs, clock: Arc<dyn Clock>) -> Result<Self, SimError> {
        let mut config = args.apply(SimConfig::default());
        // The other venues are there, too, but they are not what this is about.
        config.polymarket.universe.markets = 1;
        config.limitless.universe.markets = 1;
        config.kalshi.universe.markets = 1;
        for other in ["binance", "coinbase", "kraken", "okx", "bybit"] {
            config = config.with(&format!("{other}.pairs.symbols"), "1")?;
        }
        Ok(Self { sim: Sim::start(config, clock).await?, args: args.clone() })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.sim.addr()
    }

    /// What stands in the descriptor's `[endpoints]`, with the addresses it truly has.
    pub fn endpoints(&self) -> [(&'static str, String); 2] {
        [("rest", self.sim.base("mock/rest")), ("stream", self.sim.socket("mock/ws"))]
    }

    /// How long the database is to be away, once: it is the recorder's, so the recorder has to see to it.
    pub fn mongo_down(&self) -> Option<Duration> {
        (self.args.mock_mongo_down_ms > 0).then(|| Duration::from_millis(self.args.mock_mongo_down_ms))
    }

    /// The simulation behind it: its log, its journal, its faults.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Ends it and waits for it to be gone.
    pub async fn stop(self) {
        self.sim.stop().await;
    }
}
