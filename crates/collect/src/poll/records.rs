//! What a poller writes besides books: ordinary envelopes on the channels `poll_stats`, `poll_errors` and `gaps`.
//!
//! `poll_stats`, symbol `*`, every ten seconds and once at the end. `total` counts since the poller's start, `period`
//! since the record before; both have all the keys of [`PollCounts`].
//!
//! ```text
//! {"venue":"polymarket","uptime_ms":20000,"period_ms":10000,"active_instruments":20000,"batches":40,"resting":3,
//!  "total":{"slots":800,"late":0,…},"period":{"slots":400,"late":0,…},
//!  "latency_ms_p50":41.2,"latency_ms_p95":88.0,"latency_window_ms":60000,
//!  "spacing_ms_p05":998.4,"spacing_ms_p50":1000.4,"spacing_ms_p95":1009.7,
//!  "cooldown_remaining_ms":0,"cooldown_cause":null,"workers_max":16,"workers_busy":2,"inflight":2,"inflight_max":32,
//!  "limiter":[{"family":"books","rate":50.0,"ceiling":null,"inflight":2,"inflight_max":32,"phase":"hold",
//!    "cooldown_remaining_ms":0,"waiting":0,"refused":0,"late":0,"windows":[{"used":400,"allowed":475,"window_ms":10000}]}]}
//! ```
//!
//! `poll_errors`, a few of each type a minute; `suppressed` is how many of the type had no record since the last that
//! did. An error of a whole request for many instruments has `null` for what only one of them has, and symbol `*`.
//!
//! ```text
//! {"venue":"polymarket","market_id":null,"slug":null,"instrument_key":null,"instruments":500,
//!  "http_status":503,"latency_ms":12.3,"error_type":"trouble","message":"maintenance","suppressed":0}
//! ```

use std::time::Duration;

use catchment_governor::Snapshot;
use catchment_model::{Channel, Envelope, Gap, Instrument, Payload, Symbol, UnixNs, Venue};
use catchment_pipeline::{Draft, DraftError};
use serde::Serialize;

use super::errand::source;
use crate::stats::PollCounts;

/// The longest message that is kept.
const MESSAGE_MAX: usize = 256;

/// A record of `poll_stats`.
#[derive(Debug, Serialize)]
pub(crate) struct StatsRecord {
    pub(crate) venue: Venue,
    pub(crate) uptime_ms: u64,
    pub(crate) period_ms: u64,
    pub(crate) active_instruments: usize,
    pub(crate) batches: usize,
    pub(crate) resting: usize,
    pub(crate) total: PollCounts,
    pub(crate) period: PollCounts,
    pub(crate) latency_ms_p50: Option<f64>,
    pub(crate) latency_ms_p95: Option<f64>,
    pub(crate) latency_window_ms: u64,
    pub(crate) spacing_ms_p05: Option<f64>,
    pub(crate) spacing_ms_p50: Option<f64>,
    pub(crate) spacing_ms_p95: Option<f64>,
    pub(crate) cooldown_remaining_ms: u64,
    pub(crate) cooldown_cause: Option<&'static str>,
    pub(crate) workers_max: usize,
    pub(crate) workers_busy: usize,
    pub(crate) inflight: u32,
    pub(crate) inflight_max: u32,
    pub(crate) limiter: Vec<LimiterRecord>,
}

/// A family of the governor.
#[derive(Debug, Serialize)]
pub(crate) struct LimiterRecord {
    family: String,
    rate: Option<f64>,
    ceiling: Option<f64>,
    inflight: u32,
    inflight_max: u32,
    phase: &'static str,
    cooldown_remaining_ms: u64,
    waiting: usize,
    refused: u64,
    late: u64,
    windows: Vec<WindowRecord>,
}

#[derive(Debug, Serialize)]
struct WindowRecord {
    used: u64,
    allowed: u32,
    window_ms: u64,
}

impl LimiterRecord {
    /// The families that have been used.
    pub(crate) fn all(snapshot: Snapshot) -> Vec<Self> {
        let families = snapshot.families.into_iter().filter_map(|family| {
            let gauge = family.gauge?;
            let windows = family.windows.iter().map(|fill| WindowRecord {
                used: fill.used,
                allowed: fill.allowed,
                window_ms: ms(fill.length),
            });
            Some(Self {
                windows: windows.collect(),
                family: family.name,
                rate: gauge.rate,
                ceiling: gauge.ceiling,
                inflight: gauge.inflight,
                inflight_max: gauge.inflight_max,
                phase: gauge.phase,
                cooldown_remaining_ms: family.hold.map_or(0, |(left, _)| ms(left)),
                waiting: family.waiting.iter().sum(),
                refused: family.counts.refused,
                late: family.counts.late,
            })
        });
        families.collect()
    }
}

/// A record of `poll_errors`.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorRecord<'a> {
    pub(crate) venue: Venue,
    pub(crate) market_id: Option<&'a str>,
    pub(crate) slug: Option<&'a str>,
    pub(crate) instrument_key: Option<&'a str>,
    pub(crate) instruments: usize,
    pub(crate) http_status: Option<u16>,
    pub(crate) latency_ms: f64,
    pub(crate) error_type: &'static str,
    pub(crate) message: &'a str,
    pub(crate) suppressed: u64,
}

/// An error, before it is known whether it will be told.
#[derive(Debug)]
pub(crate) struct PollError<'a> {
    /// Whom it concerns, if that is one.
    pub(crate) instrument: Option<&'a Instrument>,
    pub(crate) instruments: usize,
    pub(crate) status: Option<u16>,
    pub(crate) latency: Duration,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

pub(crate) fn push_stats(draft: &mut Draft, stats: &StatsRecord, now: UnixNs) -> Result<(), DraftError> {
    push(draft, stats.venue, "poll_stats", Symbol::ALL, stats, now)
}

pub(crate) fn push_error(
    draft: &mut Draft,
    venue: Venue,
    error: &PollError<'_>,
    suppressed: u64,
    now: UnixNs,
) -> Result<(), DraftError> {
    let one = error.instrument;
    let record = ErrorRecord {
        venue,
        market_id: one.map(|one| one.market_id.as_str()),
        slug: one.and_then(|one| one.slug.as_deref()),
        instrument_key: one.map(|one| one.poll_key.as_str()),
        instruments: error.instruments,
        http_status: error.status,
        latency_ms: millis(error.latency),
        error_type: error.kind,
        message: cut(&error.message),
        suppressed,
    };
    let symbol = one.and_then(|one| Symbol::new(&one.symbol).ok()).unwrap_or(Symbol::ALL);
    push(draft, venue, "poll_errors", symbol, &record, now)
}

pub(crate) fn push_gap(
    draft: &mut Draft,
    venue: Venue,
    symbol: Option<&str>,
    gap: &Gap,
    now: UnixNs,
) -> Result<(), DraftError> {
    let symbol = symbol.and_then(|symbol| Symbol::new(symbol).ok()).unwrap_or(Symbol::ALL);
    push(draft, venue, "gaps", symbol, gap, now)
}

/// Milliseconds with three digits.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn push(
    draft: &mut Draft,
    venue: Venue,
    channel: &str,
    symbol: Symbol<'_>,
    record: &impl Serialize,
    now: UnixNs,
) -> Result<(), DraftError> {
    let payload = serde_json::to_string(record).expect("plain fields always serialise");
    draft.push(&Envelope {
        message_id: None,
        sequence: None,
        exchange: venue,
        channel: Channel::new(channel).expect("a fixed, plain name"),
        symbol,
        server_time: None,
        received_at: now,
        payload: Payload::already_validated(payload.as_bytes()).expect("it is written on one line"),
        source: source(),
    })
}

fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_MAX)]
}
