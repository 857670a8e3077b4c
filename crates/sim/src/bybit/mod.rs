//! Bybit v5, spot: the public and the private socket and the REST answers a recorder needs. As of July 2026.
//!
//! Kept: at most ten arguments a request; the heartbeat is the client's, and the answer's `op` says `ping`; `u` counts a
//! topic's messages and begins at 1 after a restart; the best level comes as snapshots only and again after three quiet
//! seconds; 600 requests in five seconds, then 403 for ten minutes. Left out: contracts, options, and
//! all private topics but `order` and `execution`, which want a login.

mod private;
mod rest;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;

use catchment_model::Clock;
use serde::{Deserialize, Serialize};

use crate::config::SimConfig;
use crate::limit::{LimitModel, LimitRule};
use crate::venue::{Answer, Opened, VenueSpec};
use crate::ws::exchange::{Opening, open};

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "bybit",
    apis: &["bybit/rest"],
    sockets: &["bybit/ws"],
    size_key: "pairs.symbols",
    open: open_bybit,
};

/// What only Bybit has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BybitRules {
    /// How long everything is refused after one request too many.
    pub ban_ms: u64,
}

impl Default for BybitRules {
    fn default() -> Self {
        Self { ban_ms: 600_000 }
    }
}

struct Bybit {
    /// The names of connections, and the length of what they have subscribed to.
    sessions: HashMap<u64, (String, usize)>,
    /// The connections of the private socket, and whether they have logged in.
    private: HashMap<u64, bool>,
}

fn open_bybit(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let opening = Opening {
        id: SPEC.id,
        wire: Bybit { sessions: HashMap::new(), private: HashMap::new() },
        endpoint: rest::endpoint,
        refusal: || Answer::text(403, "access too frequent. please try again later"),
        published: vec![
            LimitRule::new(&["ws"], 500, 300_000, LimitModel::Sliding),
            LimitRule {
                penalty_ms: config.bybit.rules.ban_ms,
                ..LimitRule::new(&["rest"], 600, 5_000, LimitModel::Sliding)
            },
        ],
    };
    open(opening, config.seed, &config.streams, &config.bybit, clock)
}
