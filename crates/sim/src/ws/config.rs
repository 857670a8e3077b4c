//! What the streams are like: as the user writes it, with a default for everything.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::{RATE_MAX, SimError};
use crate::faults::Faults;
use crate::limit::LimitRule;
use crate::ws::history::CandlesConfig;

/// What drives the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// The clock does, as it goes. A client that does not read is closed.
    #[default]
    Clock,
    /// Nothing happens until the simulation is told to catch up with its clock ([`Sim::settle`](crate::Sim::settle)); a
    /// client that does not read holds it up. For tests, and for filling a recorder as fast as it takes it.
    Manual,
}

/// What all venues' streams have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsConfig {
    /// What drives them.
    pub pace: Pace,
    /// Frames that may wait for one connection.
    pub queue_frames: u32,
    /// Frames listed in each venue's journal; 0: they are only counted.
    pub journal_frames: u32,
}

impl Default for StreamsConfig {
    fn default() -> Self {
        Self { pace: Pace::Clock, queue_frames: 20_000, journal_frames: 0 }
    }
}

/// An exchange: pairs, not prediction markets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[serde(bound(deserialize = "Rules: DeserializeOwned + Default"))]
pub struct ExchangeConfig<Rules> {
    /// What is traded, and how often something happens.
    pub pairs: PairsConfig,
    /// What candles it has of the past.
    pub candles: CandlesConfig,
    /// Its connections; what is absent is as at the venue.
    pub session: SessionConfig,
    /// Its limits for requests; absent: the venue's published ones. Empty: none.
    pub limits: Option<Vec<LimitRule>>,
    /// What goes wrong from the start.
    pub faults: Faults,
    /// What only this venue has.
    pub rules: Rules,
}

/// The life of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// How long a connection may live; 24 hours at Binance.
    pub life_ms: Option<u64>,
    /// How often the server pings, where it does.
    pub ping_ms: Option<u64>,
    /// How long it waits for the pong.
    pub pong_within_ms: Option<u64>,
    /// How often the venue's own heartbeat comes, where it has one.
    pub heartbeat_ms: Option<u64>,
    /// No limit for messages of a client.
    pub unlimited_messages: bool,
}

/// The pairs of an exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PairsConfig {
    /// How many: BTC/USDT, BTC/USD, ETH/USDT, …
    pub symbols: u32,
    /// So many more at which nothing ever happens: QUIET0/USDT, QUIET1/USDT, …
    pub quiet: u32,
    /// Levels on each side of a book.
    pub levels: u32,
    /// Book updates of a symbol.
    pub book_per_s: f64,
    /// Trades of a symbol.
    pub trades_per_s: f64,
    /// Tickers of a symbol.
    pub ticker_per_s: f64,
    /// Other rates for some: `rates."BTC/USDT".book_per_s = 50`.
    pub rates: BTreeMap<String, Rates>,
}

impl Default for PairsConfig {
    fn default() -> Self {
        Self {
            symbols: 40,
            quiet: 0,
            levels: 60,
            book_per_s: 5.0,
            trades_per_s: 1.0,
            ticker_per_s: 1.0,
            rates: BTreeMap::new(),
        }
    }
}

/// Rates of one symbol; what is absent is as for the others.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Book updates.
    pub book_per_s: Option<f64>,
    /// Trades.
    pub trades_per_s: Option<f64>,
    /// Tickers.
    pub ticker_per_s: Option<f64>,
}

impl StreamsConfig {
    pub(crate) fn check(&self) -> Result<(), SimError> {
        if !(16..=10_000_000).contains(&self.queue_frames) {
            return Err(SimError::config("streams.queue_frames", "is from 16 to 10000000"));
        }
        Ok(())
    }
}

impl PairsConfig {
    pub(crate) fn check(&self, venue: &str) -> Result<(), SimError> {
        let at = |key: &str, why: &str| Err(SimError::config(format!("{venue}.pairs.{key}"), why));
        if self.symbols.max(self.quiet) > 100_000 {
            return at("symbols", "and quiet are at most 100000");
        }
        if !(10..=5_000).contains(&self.levels) {
            return at("levels", "are from 10 to 5000");
        }
        let usual = [self.book_per_s, self.trades_per_s, self.ticker_per_s];
        let others = self.rates.values().flat_map(|rates| {
            [rates.book_per_s, rates.trades_per_s, rates.ticker_per_s].into_iter().flatten()
        });
        if usual.into_iter().chain(others).any(|rate| !(0.0..=RATE_MAX).contains(&rate)) {
            return at("rates", "and the other rates are from 0 to 60000 a second");
        }
        Ok(())
    }
}
