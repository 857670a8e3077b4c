//! OKX v5, spot: the public, the business and the private socket, and the REST answers a recorder needs. As of July 2026.
//!
//! Kept: an acknowledgement for each argument; the bare words `ping` and `pong`; a connection that is silent for 30
//! seconds is dropped; 480 requests an hour and connection; `prevSeqId` linked to the last `seqId`, with empty updates
//! where nothing happens for a minute; a checksum of 0, or the old one if it is asked for; codes in answers with HTTP 200.
//! A login on the private socket is taken only with the right signature. Left out: `books-l2-tbt`, contracts, and all
//! private channels but `orders` and `account`.

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
    id: "okx",
    apis: &["okx/rest"],
    sockets: &["okx/ws"],
    size_key: "pairs.symbols",
    open: open_okx,
};

/// What only OKX has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OkxRules {
    /// Books carry a true checksum, as they did until June 2026; otherwise it is 0.
    pub checksum: bool,
}

struct Okx {
    rules: OkxRules,
    sessions: HashMap<u64, Session>,
}

/// What is known of a connection.
struct Session {
    /// `a4d3ae55`
    id: String,
    business: bool,
    private: bool,
    /// On the private socket.
    logged_in: bool,
    /// Requests left of the hour's, in thousandths, and when that was so.
    left: (i64, i64),
}

fn open_okx(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let per_2s = |endpoint: &str, requests| LimitRule::new(&[endpoint], requests, 2_000, LimitModel::Fixed);
    let opening = Opening {
        id: SPEC.id,
        wire: Okx { rules: config.okx.rules.clone(), sessions: HashMap::new() },
        endpoint: rest::endpoint,
        refusal: || Answer::json(429, r#"{"code":"50011","msg":"Too Many Requests","data":[]}"#),
        published: vec![
            LimitRule::new(&["ws"], 3, 1_000, LimitModel::Sliding),
            per_2s("rest/time", 10),
            per_2s("rest/instruments", 20),
            per_2s("rest/books", 40),
            per_2s("rest/ticker", 20),
            per_2s("rest/candles", 40),
            per_2s("rest/history-candles", 20),
            per_2s("rest/trades", 100),
            per_2s("rest/history-trades", 20),
        ],
    };
    open(opening, config.seed, &config.streams, &config.okx, clock)
}
