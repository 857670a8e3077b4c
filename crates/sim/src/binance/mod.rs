//! Binance spot: `/ws` and `/stream` sockets, and the REST answers a recorder needs. As of July 2026.
//!
//! Kept: any stream name is acknowledged with `null`, also one that does not exist; a ping frame every 20 seconds and a
//! pong within 60; five messages a second; 1,024 streams; 24 hours; update ids `U` to `u` without a hole; weights per
//! minute with their header, 429 and then 418. Left out: orders, `timeUnit`.

mod rest;
mod stream;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use catchment_model::Clock;
use serde::{Deserialize, Serialize};

use crate::config::SimConfig;
use crate::limit::{LimitModel, LimitRule};
use crate::venue::{Answer, Opened, VenueSpec};
use crate::ws::exchange::{Opening, open};

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "binance",
    apis: &["binance/rest"],
    sockets: &["binance/ws"],
    size_key: "pairs.symbols",
    open: open_binance,
};

/// What only Binance has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BinanceRules {
    /// Weight a client may use in a minute; `limits = []` switches it off.
    pub weight_per_min: u32,
    /// Requests after a 429, still inside the minute, that turn it into a ban (418).
    pub ban_after: u32,
    /// How long a ban is.
    pub ban_ms: u64,
}

impl Default for BinanceRules {
    fn default() -> Self {
        Self { weight_per_min: 6_000, ban_after: 5, ban_ms: 120_000 }
    }
}

/// How it writes and reads.
struct Binance {
    rules: BinanceRules,
    /// Weights are counted.
    counts: bool,
    weights: HashMap<IpAddr, rest::Weight>,
    /// Connections whose payloads are wrapped with the stream's name.
    combined: std::collections::HashSet<u64>,
}

fn open_binance(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let here = &config.binance;
    let wire = Binance {
        rules: here.rules.clone(),
        counts: here.limits.as_ref().is_none_or(|limits| !limits.is_empty()),
        weights: HashMap::new(),
        combined: std::collections::HashSet::new(),
    };
    let opening = Opening {
        id: SPEC.id,
        wire,
        endpoint: rest::endpoint,
        refusal: || Answer::json(429, r#"{"code":-1003,"msg":"Too many requests."}"#),
        published: vec![
            LimitRule::new(&["ws"], 300, 300_000, LimitModel::Sliding),
            LimitRule::new(&["rest"], 300_000, 300_000, LimitModel::Fixed),
        ],
    };
    open(opening, config.seed, &config.streams, here, clock)
}
