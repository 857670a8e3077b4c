//! A job: work on one exchange that is done again and again, or page by page until it is finished. S2's document, field
//! for field, with a fence beside its lock, the attempts since it last went well, and a state for what is given up.
//!
//! ```text
//! {"_id":"65a7f2c0…","exchange_id":"binance","type":"ohlcv_incremental","symbol":"BTC/USDT","timeframe":"1h",
//!  "status":"active","state":"idle","schedule":{"mode":"interval","interval_ms":3600000},"next_run_at":1700003600000,
//!  "priority":50,"cursor":{"since_ms":0,"until_ms":null,"page":0,"last_ts":0,"done":false},
//!  "stats":{"runs":0,"success":0,"fail":0,"last_run_at":null,"last_success_at":null,"last_error":null},
//!  "lock":{"locked_by":null,"lock_until":null},"fence":0,"attempts":0,
//!  "created_at":"2026-01-17T00:00:00.000Z","updated_at":"2026-01-17T10:30:00.000Z"}
//! ```

use std::time::Duration;

use catchment_model::{Symbol, Timeframe, UnixMs, Venue};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::id::Id;
use crate::{iso, time};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobType {
    /// Fetches what is traded.
    MarketsRefresh,
    /// Fetches the candles since the last one.
    OhlcvIncremental,
    /// Fetches the history of candles, page by page.
    OhlcvBackfill,
    /// Fetches candles that are missing.
    GapBackfill,
    /// Fetches trades that a stream has missed, where the venue still has them.
    TradesBackfill,
}

impl JobType {
    /// All of them.
    pub const ALL: [JobType; 5] = [
        Self::MarketsRefresh,
        Self::OhlcvIncremental,
        Self::OhlcvBackfill,
        Self::GapBackfill,
        Self::TradesBackfill,
    ];

    /// As it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MarketsRefresh => "markets_refresh",
            Self::OhlcvIncremental => "ohlcv_incremental",
            Self::OhlcvBackfill => "ohlcv_backfill",
            Self::GapBackfill => "gap_backfill",
            Self::TradesBackfill => "trades_backfill",
        }
    }

    /// Whether it is about one symbol.
    pub fn has_symbol(self) -> bool {
        self != Self::MarketsRefresh
    }

    /// Whether it is about candles.
    pub fn has_timeframe(self) -> bool {
        matches!(self, Self::OhlcvIncremental | Self::OhlcvBackfill | Self::GapBackfill)
    }

    /// Where nothing is said: what somebody waits for comes before what is done anyway, and history last.
    pub fn default_priority(self) -> u8 {
        match self {
            Self::GapBackfill | Self::TradesBackfill => 10,
            Self::OhlcvIncremental => 50,
            Self::MarketsRefresh => 60,
            Self::OhlcvBackfill => 80,
        }
    }
}

/// What the owner of a job wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It runs when it is due.
    Active,
    /// It does not run until resumed.
    Paused,
    /// It never runs again, and is not listed unless asked for.
    Deleted,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 3] = [Self::Active, Self::Paused, Self::Deleted];

    /// As it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Deleted => "deleted",
        }
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for its time.
    Idle,
    /// Somebody wants it now, or it was handed back unfinished.
    Queued,
    /// A worker holds it.
    Running,
    /// Waits until the exchange's budget has room.
    WaitingRateLimit,
    /// Finished for good.
    Success,
    /// Failed, and is tried again at its next time.
    Failed,
    /// Failed too often; a person has to look.
    Dead,
}

impl State {
    /// All of them.
    pub const ALL: [State; 7] = [
        Self::Idle,
        Self::Queued,
        Self::Running,
        Self::WaitingRateLimit,
        Self::Success,
        Self::Failed,
        Self::Dead,
    ];

    /// As it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::WaitingRateLimit => "waiting_rate_limit",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }
}

/// When it runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Every so often, give or take a twentieth.
    Interval {
        /// How often.
        interval_ms: u64,
    },
    /// Until it is finished.
    Once,
}

impl Schedule {
    /// The shortest interval taken.
    pub const INTERVAL_MS_MIN: u64 = 100;
    /// The longest interval taken: a year.
    pub const INTERVAL_MS_MAX: u64 = 366 * 86_400_000;

    /// What S2 recommends for the type.
    pub fn default_for(kind: JobType, timeframe: Option<Timeframe>) -> Self {
        match (kind, timeframe) {
            (JobType::OhlcvIncremental, Some(timeframe)) => {
                Self::Interval { interval_ms: timeframe.ms().unsigned_abs() }
            }
            (JobType::MarketsRefresh, _) => Self::Interval { interval_ms: 12 * 3_600_000 },
            _ => Self::Once,
        }
    }

    fn check(self) -> Result<(), StoreError> {
        let Self::Interval { interval_ms } = self else { return Ok(()) };
        if (Self::INTERVAL_MS_MIN..=Self::INTERVAL_MS_MAX).contains(&interval_ms) {
            return Ok(());
        }
        let (min, max) = (Self::INTERVAL_MS_MIN, Self::INTERVAL_MS_MAX);
        Err(StoreError::invalid(
            "schedule.interval_ms",
            format!("is {interval_ms}; it must be from {min} to {max}"),
        ))
    }
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cursor {
    /// From here on; 0 means from the first there is.
    pub since_ms: UnixMs,
    /// Up to here and not further; none means up to now.
    pub until_ms: Option<UnixMs>,
    /// How many pages were saved.
    pub page: u64,
    /// The time of the last record saved.
    pub last_ts: UnixMs,
    /// There is nothing more to fetch.
    pub done: bool,
    /// What the venue wants to see for the next page, where a time does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Default for Cursor {
    fn default() -> Self {
        let zero = time::from_ms(0);
        Self { since_ms: zero, until_ms: None, page: 0, last_ts: zero, done: false, next: None }
    }
}

impl Cursor {
    /// For a stretch of time.
    pub fn over(since_ms: UnixMs, until_ms: Option<UnixMs>) -> Self {
        Self { since_ms, until_ms, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if let Some(until) = self.until_ms
            && until <= self.since_ms
        {
            let (since, until) = (self.since_ms.get(), until.get());
            return Err(StoreError::invalid(
                "cursor.until_ms",
                format!("is {until}, which is not after since_ms {since}"),
            ));
        }
        if self.next.as_ref().is_some_and(|next| next.len() > 4_096) {
            return Err(StoreError::invalid("cursor.next", "is longer than 4096 bytes"));
        }
        Ok(())
    }
}

/// What became of its runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// How often it was begun.
    pub runs: u64,
    /// How often it went well.
    pub success: u64,
    /// How often it failed.
    pub fail: u64,
    /// When it was last begun.
    #[serde(with = "iso::maybe")]
    pub last_run_at: Option<UnixMs>,
    /// When it last went well.
    #[serde(with = "iso::maybe")]
    pub last_success_at: Option<UnixMs>,
    /// What went wrong last; cleared when it goes well.
    pub last_error: Option<String>,
}

/// Who works on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lock {
    /// The worker.
    pub locked_by: Option<String>,
    /// By the store's clock; from then on another may take it.
    pub lock_until: Option<UnixMs>,
}

/// A job as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    #[serde(rename = "_id")]
    pub id: Id,
    /// On which exchange.
    pub exchange_id: Venue,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: JobType,
    /// For which symbol; none where it is about the whole exchange.
    pub symbol: Option<String>,
    /// For which candles.
    pub timeframe: Option<Timeframe>,
    /// What its owner wants.
    pub status: Status,
    /// Where it stands.
    pub state: State,
    /// When it runs again.
    pub schedule: Schedule,
    /// Not before.
    pub next_run_at: UnixMs,
    /// The lower, the sooner.
    pub priority: u8,
    /// How far it is.
    pub cursor: Cursor,
    /// What became of its runs.
    pub stats: Stats,
    /// Who works on it.
    pub lock: Lock,
    /// Grows with every claim. Whoever writes names it, and an old one is refused.
    pub fence: u64,
    /// Failures since it last went well.
    pub attempts: u32,
    /// When it was added.
    #[serde(with = "iso")]
    pub created_at: UnixMs,
    /// When it last changed.
    #[serde(with = "iso")]
    pub updated_at: UnixMs,
}

impl Job {
    /// When a worker may take it: its next run, or the end of its lease. Never, for what rests.
    pub fn due_at(&self) -> Option<UnixMs> {
        if self.status != Status::Active {
            return None;
        }
        match self.state {
            State::Running => self.lock.lock_until,
            State::Idle | State::Queued | State::WaitingRateLimit | State::Failed => Some(self.next_run_at),
            State::Success | State::Dead => None,
        }
    }
}

/// A job to be added. What is not said gets the type's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// On which exchange; its connector must exist.
    pub exchange_id: Venue,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: JobType,
    /// For which symbol.
    #[serde(default)]
    pub symbol: Option<String>,
    /// For which candles.
    #[serde(default)]
    pub timeframe: Option<Timeframe>,
    /// When it runs again.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// Not before; none means now.
    #[serde(default)]
    pub next_run_at: Option<UnixMs>,
    /// The lower, the sooner.
    #[serde(default)]
    pub priority: Option<u8>,
    /// Where it begins, and ends.
    #[serde(default)]
    pub cursor: Cursor,
}

impl NewJob {
    /// With the type's defaults, due now.
    pub fn new(exchange_id: Venue, kind: JobType) -> Self {
        Self {
            exchange_id,
            kind,
            symbol: None,
            timeframe: None,
            schedule: None,
            next_run_at: None,
            priority: None,
            cursor: Cursor::default(),
        }
    }

    /// For candles of a symbol.
    pub fn candles(exchange_id: Venue, kind: JobType, symbol: &str, timeframe: Timeframe) -> Self {
        Self { symbol: Some(symbol.to_owned()), timeframe: Some(timeframe), ..Self::new(exchange_id, kind) }
    }

    /// Says which field is wrong, if one is.
    pub fn check(&self) -> Result<(), StoreError> {
        let kind = self.kind.as_str();
        match (&self.symbol, self.kind.has_symbol()) {
            (None, true) => {
                return Err(StoreError::invalid("symbol", format!("is missing; {kind} needs one")));
            }
            (Some(_), false) => {
                return Err(StoreError::invalid(
                    "symbol",
                    format!("must not be given; {kind} is about all of them"),
                ));
            }
            (Some(symbol), true) => {
                Symbol::new(symbol)
                    .map_err(|error| StoreError::invalid("symbol", format!("is refused: {error}")))?;
            }
            (None, false) => {}
        }
        match (self.timeframe, self.kind.has_timeframe()) {
            (None, true) => {
                return Err(StoreError::invalid("timeframe", format!("is missing; {kind} needs one")));
            }
            (Some(_), false) => {
                return Err(StoreError::invalid("timeframe", format!("must not be given; {kind} has none")));
            }
            _ => {}
        }
        if self.kind == JobType::GapBackfill && self.cursor.until_ms.is_none() {
            return Err(StoreError::invalid("cursor.until_ms", "is missing; a gap has an end"));
        }
        self.schedule().check()?;
        self.cursor.check()
    }

    /// Its own, or the type's.
    pub fn schedule(&self) -> Schedule {
        self.schedule.unwrap_or_else(|| Schedule::default_for(self.kind, self.timeframe))
    }

    /// The job as it begins.
    pub(crate) fn into_job(self, id: Id, now: UnixMs) -> Job {
        Job {
            id,
            schedule: self.schedule(),
            priority: self.priority.unwrap_or_else(|| self.kind.default_priority()),
            next_run_at: self.next_run_at.unwrap_or(now),
            exchange_id: self.exchange_id,
            kind: self.kind,
            symbol: self.symbol,
            timeframe: self.timeframe,
            status: Status::Active,
            state: State::Idle,
            cursor: self.cursor,
            stats: Stats::default(),
            lock: Lock::default(),
            fence: 0,
            attempts: 0,
            created_at: now,
            updated_at: now,
        }
    }
}

/// What may be changed of a job; what is not said stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPatch {
    /// When it runs again.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// Not before.
    #[serde(default)]
    pub next_run_at: Option<UnixMs>,
    /// The lower, the sooner.
    #[serde(default)]
    pub priority: Option<u8>,
    /// Where it goes on; only while nobody works on it.
    #[serde(default)]
    pub cursor: Option<Cursor>,
}

impl JobPatch {
    /// Says which field is wrong, if one is.
    pub fn check(&self) -> Result<(), StoreError> {
        self.schedule.map_or(Ok(()), Schedule::check)?;
        self.cursor.as_ref().map_or(Ok(()), Cursor::check)
    }
}

/// Which jobs are meant; what is not said does not matter. Deleted ones are left out unless asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// On this exchange.
    pub exchange_id: Option<Venue>,
    /// Of this type.
    pub kind: Option<JobType>,
    /// For this symbol.
    pub symbol: Option<String>,
    /// For these candles.
    pub timeframe: Option<Timeframe>,
    /// With this status.
    pub status: Option<Status>,
    /// In this state.
    pub state: Option<State>,
}

/// A part of a list, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// After this one.
    pub after: Option<Id>,
    /// So many at most.
    pub limit: u32,
}

impl Page {
    /// The most that is given at once.
    pub const LIMIT_MAX: u32 = 1_000;

    /// The first so many.
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit: limit.clamp(1, Self::LIMIT_MAX) }
    }
}

/// Words of an error that are kept: enough to know, not enough to fill a store.
pub(crate) fn short_error(error: &str) -> String {
    error.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// Intervals are drawn out or cut by up to a twentieth, so that jobs do not all come due at once. `share` is from 0 to 1.
pub fn jittered(interval: Duration, share: f64) -> Duration {
    interval.mul_f64(0.95 + 0.1 * share.clamp(0.0, 1.0))
}
