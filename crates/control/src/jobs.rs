//! How connectors and jobs are doing.

use std::collections::BTreeMap;

use serde::Serialize;

/// The jobs, as the store has them and as this process works on them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Jobs {
    /// Whether the store answered when it was last asked.
    pub store_up: bool,
    /// Each exchange's account.
    pub connectors: Vec<Connector>,
    /// Jobs that do not merely wait for their time.
    pub states: Vec<JobState>,
    /// What became of the runs of this process, by outcome.
    pub runs: BTreeMap<&'static str, u64>,
    /// Jobs this process works on.
    pub in_hand: u64,
    /// Times the store did not answer a worker.
    pub store_errors: u64,
    /// Pages saved.
    pub pages: u64,
    /// Candles saved.
    pub candles: u64,
    /// Stretches noted that a venue has no candles of.
    pub holes: u64,
    /// Stretches that a venue will never give any more.
    pub unreachable: u64,
    /// Jobs added for missing candles.
    pub gaps_planned: u64,
}

/// An exchange's account.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Connector {
    /// Which exchange.
    pub exchange: String,
    /// `active` or `paused`.
    pub status: String,
    /// Requests a window lets through.
    pub rate_limit: u32,
    /// Those let through since it began.
    pub rate_limit_usage: u32,
    /// When it ends.
    pub rate_limit_reset_at_ms: i64,
    /// Times somebody asked and there was none.
    pub rate_limit_saturated: u64,
    /// Jobs that are not deleted.
    pub jobs: u64,
    /// Jobs that are active.
    pub active_jobs: u64,
}

/// How many jobs of an exchange are in a state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobState {
    /// Which exchange.
    pub exchange: String,
    /// `queued`, `running`, `waiting_rate_limit`, `failed`, `dead`.
    pub state: &'static str,
    /// How many.
    pub jobs: u64,
}
