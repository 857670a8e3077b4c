//! Coinbase Exchange: the public feed and the REST answers a recorder needs. As of September 2026.
//!
//! Kept: five seconds to subscribe; an answer that lists everything subscribed so far; `level2` only with a key, but
//! `level2_batch` for everybody, without a sequence; trade ids without a hole and sequences with; a heartbeat a second
//! and product for those who subscribe to it; the maker's side in matches and the taker's in tickers. Left out: `full`,
//! `level3`, `status`, Advanced Trade.

mod rest;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catchment_model::Clock;
use serde::{Deserialize, Serialize};

use crate::config::SimConfig;
use crate::limit::{LimitModel, LimitRule};
use crate::venue::{Answer, Opened, VenueSpec};
use crate::ws::exchange::{Opening, open};

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "coinbase",
    apis: &["coinbase/rest"],
    sockets: &["coinbase/ws"],
    size_key: "pairs.symbols",
    open: open_coinbase,
};

/// What only Coinbase has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoinbaseRules {
    /// `level2` is open to everybody, as it was until 2023.
    pub open_level2: bool,
}

struct Coinbase {
    rules: CoinbaseRules,
    /// What each connection has subscribed to: channel, then pairs. Kept in order, for the answers.
    lists: BTreeMap<u64, BTreeMap<&'static str, BTreeSet<u32>>>,
}

fn open_coinbase(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let opening = Opening {
        id: SPEC.id,
        wire: Coinbase { rules: config.coinbase.rules.clone(), lists: BTreeMap::new() },
        endpoint: rest::endpoint,
        refusal: || Answer::json(429, r#"{"message":"Public rate limit exceeded"}"#),
        published: vec![
            LimitRule::new(&["ws"], 8, 1_000, LimitModel::Bucket),
            // Ten a second, and fifteen at once.
            LimitRule::new(&["rest"], 15, 1_500, LimitModel::Bucket),
        ],
    };
    open(opening, config.seed, &config.streams, &config.coinbase, clock)
}
