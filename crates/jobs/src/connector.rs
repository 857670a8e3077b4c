//! A connector: one exchange, its budget and its counts. S2's document, field for field; beside its window, the log that
//! makes the limit hold in every interval.
//!
//! ```text
//! {"_id":"65a7f2c0…","exchange_id":"binance","creation_date":"2026-01-17T00:00:00.000Z","status":"active","notes":null,
//!  "rate_limit_period_ms":1000,"rate_limit":20,"rate_limit_usage":0,"rate_limit_window_start":1700000000000,
//!  "rate_limit_reset_at":1700000001000,"rate_limit_saturated":0,"last_job_run_time":null,"jobs_count":0,
//!  "active_jobs_count":0,"max_concurrent_jobs":null,"windows":[],"updated_at":"2026-01-17T10:30:00.000Z"}
//! ```

use std::time::Duration;

use catchment_model::{UnixMs, Venue};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::id::Id;
use crate::iso;
use crate::job::Status;

/// So many requests in every interval of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// How many.
    pub limit: u32,
    /// How long.
    pub period_ms: u64,
}

impl RateLimit {
    /// The longest period taken: a week.
    pub const PERIOD_MS_MAX: u64 = 7 * 86_400_000;
    /// The shortest.
    pub const PERIOD_MS_MIN: u64 = 10;
    /// The most that can be counted.
    pub const LIMIT_MAX: u32 = 100_000_000;

    /// So many in every interval of this length.
    pub fn new(limit: u32, period: Duration) -> Self {
        Self { limit, period_ms: u64::try_from(period.as_millis()).unwrap_or(u64::MAX) }
    }

    /// How long.
    pub fn period(self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// How long a request may take to leave once its token is granted: 3 % of the period, from 20 ms to a second. It is
    /// what sharing costs, so it is short; and it is not shorter, because the way to the store and back is in it.
    pub fn token_validity(self) -> Duration {
        (self.period() * 3 / 100).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// Says which field is wrong, if one is.
    pub fn check(self) -> Result<(), StoreError> {
        if !(1..=Self::LIMIT_MAX).contains(&self.limit) {
            let (limit, max) = (self.limit, Self::LIMIT_MAX);
            return Err(StoreError::invalid("rate_limit", format!("is {limit}; it must be from 1 to {max}")));
        }
        if !(Self::PERIOD_MS_MIN..=Self::PERIOD_MS_MAX).contains(&self.period_ms) {
            let (period, min, max) = (self.period_ms, Self::PERIOD_MS_MIN, Self::PERIOD_MS_MAX);
            let reason = format!("is {period}; it must be from {min} to {max}");
            return Err(StoreError::invalid("rate_limit_period_ms", reason));
        }
        Ok(())
    }
}

/// What a connector begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnector {
    /// Which exchange.
    pub exchange_id: Venue,
    /// What all requests to it share.
    pub rate: RateLimit,
    /// So many of its jobs run at once, over all processes; none means no cap.
    pub max_concurrent_jobs: Option<u32>,
}

impl NewConnector {
    /// With S2's example limit, for an exchange nobody has said anything about: 20 a second.
    pub fn new(exchange_id: Venue) -> Self {
        Self { exchange_id, rate: RateLimit { limit: 20, period_ms: 1_000 }, max_concurrent_jobs: None }
    }
}

/// A further window of an exchange, kept beside the connector's own: a family of requests with a limit of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedWindow {
    /// What it is called, for people.
    pub name: String,
    /// What it lets through.
    #[serde(flatten)]
    pub rate: RateLimit,
}

/// A connector as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connector {
    /// Its name in the store.
    #[serde(rename = "_id")]
    pub id: Id,
    /// Which exchange; there is one connector for each.
    pub exchange_id: Venue,
    /// When it was made.
    #[serde(with = "iso")]
    pub creation_date: UnixMs,
    /// Paused: none of its jobs is begun, no token is given.
    pub status: Status,
    /// Whatever its owner wants to remember.
    pub notes: Option<String>,
    /// How long the window is.
    pub rate_limit_period_ms: u64,
    /// How many requests it lets through.
    pub rate_limit: u32,
    /// How many were let through since the window began.
    pub rate_limit_usage: u32,
    /// When it began.
    pub rate_limit_window_start: UnixMs,
    /// When it ends: its start and its length.
    pub rate_limit_reset_at: UnixMs,
    /// How often somebody asked for a token and there was none.
    pub rate_limit_saturated: u64,
    /// When one of its jobs was last begun.
    #[serde(with = "iso::maybe")]
    pub last_job_run_time: Option<UnixMs>,
    /// How many jobs it has that are not deleted.
    pub jobs_count: u64,
    /// How many of them are active.
    pub active_jobs_count: u64,
    /// So many of its jobs run at once.
    pub max_concurrent_jobs: Option<u32>,
    /// Further windows, by families of requests.
    pub windows: Vec<NamedWindow>,
    /// When it last changed.
    #[serde(with = "iso")]
    pub updated_at: UnixMs,
}

/// What may be changed of a connector; what is not said stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectorPatch {
    /// How many requests the window lets through.
    #[serde(default)]
    pub rate_limit: Option<u32>,
    /// How long it is.
    #[serde(default)]
    pub rate_limit_period_ms: Option<u64>,
    /// So many of its jobs run at once; 0 takes the cap away.
    #[serde(default)]
    pub max_concurrent_jobs: Option<u32>,
    /// Whatever its owner wants to remember; an empty text forgets it.
    #[serde(default)]
    pub notes: Option<String>,
}

impl ConnectorPatch {
    /// The limit it leads to.
    pub(crate) fn rate(&self, old: RateLimit) -> Result<RateLimit, StoreError> {
        let rate = RateLimit {
            limit: self.rate_limit.unwrap_or(old.limit),
            period_ms: self.rate_limit_period_ms.unwrap_or(old.period_ms),
        };
        rate.check()?;
        if self.notes.as_ref().is_some_and(|notes| notes.len() > 4_096) {
            return Err(StoreError::invalid("notes", "is longer than 4096 bytes"));
        }
        Ok(rate)
    }
}
