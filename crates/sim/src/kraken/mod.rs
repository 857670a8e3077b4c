//! Kraken spot: the v2 socket and the public REST methods. As of September 2026.
//!
//! Kept: a status first; one acknowledgement for each symbol; depths of 10, 25, 100, 500 and 1,000 only; a CRC-32 over
//! the ten best levels of both sides in every book frame; no word about levels that fall out of view; a heartbeat every
//! second once something is subscribed; errors with HTTP 200. Left out: v1, candles, `instrument`, `level3`.

mod rest;
mod stream;

use std::sync::Arc;

use catchment_model::Clock;
use serde::{Deserialize, Serialize};

use crate::config::SimConfig;
use crate::limit::{LimitModel, LimitRule};
use crate::venue::{Answer, Opened, VenueSpec};
use crate::ws::exchange::{Opening, open};
use crate::ws::pair::Pair;

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "kraken",
    apis: &["kraken/rest"],
    sockets: &["kraken/ws"],
    size_key: "pairs.symbols",
    open: open_kraken,
};

/// What only Kraken has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KrakenRules {
    /// Heartbeats come only while nothing else does, as the documentation has it; otherwise every second.
    pub quiet_heartbeats: bool,
}

struct Kraken {
    rules: KrakenRules,
    /// When something last went to a connection.
    told_us: std::collections::HashMap<u64, i64>,
}

fn open_kraken(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let opening = Opening {
        id: SPEC.id,
        wire: Kraken { rules: config.kraken.rules.clone(), told_us: std::collections::HashMap::new() },
        endpoint: rest::endpoint,
        refusal: || Answer::json(200, r#"{"error":["EGeneral:Too many requests"]}"#),
        published: vec![
            LimitRule { penalty_ms: 600_000, ..LimitRule::new(&["ws"], 150, 600_000, LimitModel::Sliding) },
            // One a second stays safe; a small burst is forgiven.
            LimitRule { penalty_ms: 5_000, ..LimitRule::new(&["rest"], 15, 15_000, LimitModel::Bucket) },
        ],
    };
    open(opening, config.seed, &config.streams, &config.kraken, clock)
}

/// `XBT`, `XDG` and the others as they are.
fn old_name(asset: &str) -> &str {
    match asset {
        "BTC" => "XBT",
        "DOGE" => "XDG",
        other => other,
    }
}

/// `XXBTZUSD`: coins of the first hour have an X before them, and dollars a Z.
fn id(pair: &Pair) -> String {
    let base = old_name(&pair.base);
    let old = matches!(base, "XBT" | "XDG" | "ETH" | "LTC" | "XRP" | "XLM" | "ETC") && pair.quote == "USD";
    match old {
        true => format!("X{base}Z{}", pair.quote),
        false => format!("{base}{}", pair.quote),
    }
}

fn alt_name(pair: &Pair) -> String {
    format!("{}{}", old_name(&pair.base), pair.quote)
}
