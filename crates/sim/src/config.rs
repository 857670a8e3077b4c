//! What is simulated: as the user writes it, with a default for everything.

use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::binance::BinanceRules;
use crate::bybit::BybitRules;
use crate::coinbase::CoinbaseRules;
use crate::faults::Faults;
use crate::kalshi::KalshiRules;
use crate::kraken::KrakenRules;
use crate::limit::LimitRule;
use crate::limitless::LimitlessRules;
use crate::mock::MockRules;
use crate::okx::OkxRules;
use crate::polymarket::PolymarketRules;
use crate::ws::config::{ExchangeConfig, StreamsConfig};

/// Births, deaths (a minute) and moves (a second) beyond this are a slip of the pen.
pub(crate) const RATE_MAX: f64 = 60_000.0;

/// A simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// The same seed gives the same markets, books and faults.
    pub seed: u64,
    /// Where to listen; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Listen on an address other machines can reach. Without it such an address is refused.
    pub beyond_loopback: bool,
    /// Compress answers for clients that say they take gzip. Costs far more than everything else together.
    pub gzip: bool,
    /// So many requests are kept in `/_sim/requests`, with their times and clients; 0 for none.
    pub request_log: usize,
    /// Polymarket: CLOB and Gamma.
    pub polymarket: VenueConfig<PolymarketRules>,
    /// Limitless.
    pub limitless: VenueConfig<LimitlessRules>,
    /// Kalshi.
    pub kalshi: VenueConfig<KalshiRules>,
    /// What the streams of all venues have in common.
    pub streams: StreamsConfig,
    /// Binance.
    pub binance: ExchangeConfig<BinanceRules>,
    /// Coinbase Exchange.
    pub coinbase: ExchangeConfig<CoinbaseRules>,
    /// Kraken.
    pub kraken: ExchangeConfig<KrakenRules>,
    /// OKX.
    pub okx: ExchangeConfig<OkxRules>,
    /// Bybit.
    pub bybit: ExchangeConfig<BybitRules>,
    /// The small exchange of [`mock`](crate::mock).
    pub mock: ExchangeConfig<MockRules>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            beyond_loopback: false,
            gzip: false,
            request_log: 0,
            polymarket: VenueConfig::default(),
            limitless: VenueConfig::default(),
            kalshi: VenueConfig::default(),
            streams: StreamsConfig::default(),
            binance: ExchangeConfig::default(),
            coinbase: ExchangeConfig::default(),
            kraken: ExchangeConfig::default(),
            okx: ExchangeConfig::default(),
            bybit: ExchangeConfig::default(),
            mock: ExchangeConfig::default(),
        }
    }
}

/// One venue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[serde(bound(deserialize = "Rules: DeserializeOwned + Default"))]
pub struct VenueConfig<Rules> {
    /// Its markets.
    pub universe: UniverseConfig,
    /// Its limits; absent: the venue's published ones, or what is known of them.
    pub limits: Option<Vec<LimitRule>>,
    /// What goes wrong from the start.
    pub faults: Faults,
    /// What only this venue has.
    pub rules: Rules,
}

/// The markets of a venue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UniverseConfig {
    /// Open at the start. Polymarket has two tokens to each.
    pub markets: u32,
    /// Over already at the start; in listings that show such.
    pub closed: u32,
    /// Of a book, on each side; absent: 39 on Polymarket, 10 on Limitless, 20 on Kalshi.
    pub levels: Option<u32>,
    /// How often a book moves.
    pub moves_per_s: f64,
    /// Markets that appear.
    pub births_per_min: f64,
    /// Markets that end, the oldest first.
    pub deaths_per_min: f64,
    /// Tick sizes, drawn with equal chance; empty: what is usual at the venue.
    pub ticks: Vec<String>,
    /// Share of events of which exactly one market resolves to Yes.
    pub neg_risk: f64,
    /// Share of markets that were never traded.
    pub untraded: f64,
    /// Share of markets with nothing on one side.
    pub empty_side: f64,
}

impl Default for UniverseConfig {
    fn default() -> Self {
        Self {
            markets: 1_000,
            closed: 50,
            levels: None,
            moves_per_s: 1.0,
            births_per_min: 0.0,
            deaths_per_min: 0.0,
            ticks: Vec::new(),
            neg_risk: 0.3,
            untraded: 0.05,
            empty_side: 0.02,
        }
    }
}

/// Tick sizes there are, and each in ten-thousandths.
const TICKS: [(&str, u32); 6] =
    [("0.1", 1_000), ("0.01", 100), ("0.005", 50), ("0.0025", 25), ("0.001", 10), ("0.0001", 1)];

impl UniverseConfig {
    /// The tick sizes in ten-thousandths.
    pub(crate) fn tick_units(&self, usual: &[u32]) -> Vec<u32> {
        let unit = |tick: &String| TICKS.iter().find(|(text, _)| text == tick).map(|(_, unit)| *unit);
        let units: Vec<u32> = self.ticks.iter().filter_map(unit).collect();
        if units.is_empty() { usual.to_vec() } else { units }
    }

    fn check(&self, venue: &str) -> Result<(), SimError> {
        let at = |key: &str, why: &str| Err(SimError::config(format!("{venue}.universe.{key}"), why));
        if self.ticks.iter().any(|tick| TICKS.iter().all(|(text, _)| text != tick)) {
            return at("ticks", "are among 0.1, 0.01, 0.005, 0.0025, 0.001 and 0.0001");
        }
        if self.levels.is_some_and(|levels| !(1..=5_000).contains(&levels)) {
            return at("levels", "are from 1 to 5000");
        }
        if self.markets.max(self.closed) > 1_000_000 {
            return at("markets", "and closed are at most 1000000");
        }
        for (key, rate) in [
            ("moves_per_s", self.moves_per_s),
            ("births_per_min", self.births_per_min),
            ("deaths_per_min", self.deaths_per_min),
        ] {
            if !(0.0..=RATE_MAX).contains(&rate) {
                return at(key, "is from 0 to 60000");
            }
        }
        for (key, share) in
            [("neg_risk", self.neg_risk), ("untraded", self.untraded), ("empty_side", self.empty_side)]
        {
            if !(0.0..=1.0).contains(&share) {
                return at(key, "is a share from 0 to 1");
            }
        }
        Ok(())
    }
}

impl SimConfig {
    /// Says which key does not hold, if any.
    pub fn check(&self) -> Result<(), SimError> {
        if !self.beyond_loopback && !self.listen.ip().is_loopback() {
            return Err(SimError::config("listen", "is not loopback; beyond_loopback allows that"));
        }
        check_venue("polymarket", &self.polymarket)?;
        check_venue("limitless", &self.limitless)?;
        check_venue("kalshi", &self.kalshi)?;
        self.streams.check()?;
        check_exchange("binance", &self.binance)?;
        check_exchange("coinbase", &self.coinbase)?;
        check_exchange("kraken", &self.kraken)?;
        check_exchange("okx", &self.okx)?;
        check_exchange("bybit", &self.bybit)?;
        self.mock.rules.check()?;
        check_exchange("mock", &self.mock)
    }

    /// This configuration with the value at a dotted path replaced: `("polymarket.faults.hang", "0.1")`. What is not
    /// JSON is taken as text.
    pub fn with(&self, path: &str, value: &str) -> Result<Self, SimError> {
        let mut whole = serde_json::to_value(self).expect("a configuration is plain data");
        let mut at = &mut whole;
        for key in path.split('.') {
            at = at.get_mut(key).ok_or_else(|| SimError::config(path, "is no key of the simulation"))?;
        }
        *at = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        serde_json::from_value(whole).map_err(|error| SimError::config(path, error.to_string()))
    }
}

fn check_venue<Rules>(venue: &str, config: &VenueConfig<Rules>) -> Result<(), SimError> {
    config.universe.check(venue)?;
    check_faults(venue, &config.faults)?;
    let mut rules = config.limits.iter().flatten();
    rules.try_for_each(|rule| check_limit(&format!("{venue}.limits"), rule))
}

fn check_exchange<Rules>(venue: &str, config: &ExchangeConfig<Rules>) -> Result<(), SimError> {
    config.pairs.check(venue)?;
    config.candles.check(venue)?;
    check_faults(venue, &config.faults)?;
    let mut rules = config.limits.iter().flatten();
    rules.try_for_each(|rule| check_limit(&format!("{venue}.limits"), rule))
}

pub(crate) fn check_faults(venue: &str, faults: &Faults) -> Result<(), SimError> {
    faults.check().map_err(|(key, why)| SimError::config(format!("{venue}.faults.{key}"), why))?;
    let mut hidden = faults.hidden_limit.iter();
    hidden.try_for_each(|rule| check_limit(&format!("{venue}.faults.hidden_limit"), rule))
}

fn check_limit(key: &str, rule: &LimitRule) -> Result<(), SimError> {
    let window = 1..=86_400_000;
    if rule.requests > 0 && window.contains(&rule.window_ms) {
        return Ok(());
    }
    Err(SimError::config(key, "needs requests of 1 or more and window_ms from 1 to 86400000"))
}

/// Why there is no simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The configuration does not hold.
    #[error("{key} {reason}")]
    Config {
        /// The key's dotted path.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address could not be had.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SimError {
    pub(crate) fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { key: key.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, value: &str, want: &str) {
        let got = SimConfig::default().with(path, value).and_then(|config| config.check());
        assert_eq!(got.unwrap_err().to_string(), want);
    }

    #[test]
    fn a_mistake_is_named_by_its_key() {
        check("polymarket.universe.market", "5", "polymarket.universe.market is no key of the simulation");
        check("kalshi.faults.hang", "2", "kalshi.faults.hang is a share from 0 to 1");
        check("listen", "0.0.0.0:80", "listen is not loopback; beyond_loopback allows that");
        check(
            "polymarket.universe.ticks",
            r#"["0.02"]"#,
            "polymarket.universe.ticks are among 0.1, 0.01, 0.005, 0.0025, 0.001 and 0.0001",
        );
        check(
            "limitless.limits",
            r#"[{"requests":0,"window_ms":1}]"#,
            "limitless.limits needs requests of 1 or more and window_ms from 1 to 86400000",
        );
    }

    #[test]
    fn a_value_is_set_by_its_path() {
        let config = SimConfig::default().with("polymarket.universe.markets", "7").unwrap();
        assert_eq!(config.polymarket.universe.markets, 7);
        let config = config.with("kalshi.faults.retry_after", "soon").unwrap();
        assert_eq!(config.kalshi.faults.retry_after, crate::RetryAfter::Text("soon".into()));
        assert_eq!(config.polymarket.universe.markets, 7);
    }
}
