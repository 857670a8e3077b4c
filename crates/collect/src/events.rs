//! What this room tells: one function per event. What is counted is counted from the same values: requests in the
//! [`CourierCounts`](crate::CourierCounts), here; rounds in the [`DiscoverStatus`](crate::DiscoverStatus), by the caller.

use std::error::Error;
use std::time::Duration;

use catchment_jobs::{Id, Series, Span, StoreError};
use catchment_model::{UnixMs, Venue};
use tracing::{debug, error, info, warn};

use crate::courier::Reply;
use crate::discover::{PageError, Settled};
use crate::send_error::SendError;
use crate::tally::Tally;

/// Rounds that fail one after the other before a person should look.
const FAILED_ROUNDS_ODD: u64 = 3;

pub(crate) fn answered(tally: &Tally, venue: &str, family: &str, reply: &Reply) {
    let Reply { status, reading, body, latency, .. } = reply;
    let bytes = body.len();
    tally.answer(bytes);
    debug!(venue, family, status, reading = reading.name(), bytes, took_ms = ms(*latency), "answer received");
}

pub(crate) fn not_answered(tally: &Tally, venue: &str, family: &str, error: &SendError) {
    tally.failure(error);
    debug!(venue, family, kind = error.kind(), error = error.with_sources(), "no answer");
}

pub(crate) fn no_last_snapshot(venue: &str, reason: &str) {
    info!(venue, reason, "no snapshot of instruments to go on from, every instrument will be new");
}

pub(crate) fn page_failed(venue: &str, attempt: u32, wait: Duration, error: &PageError) {
    debug!(venue, attempt, wait_ms = ms(wait), %error, "page of the listing not had, will be asked for again");
}

pub(crate) fn round_ended(venue: &str, instruments: usize, settled: &Settled, took: Duration) {
    let Settled { joined, left, pages, skipped } = settled;
    let took_ms = ms(took);
    if *skipped > 0 {
        warn!(venue, instruments, skipped, "some markets could not be read");
    }
    if joined + left > 0 {
        info!(venue, instruments, joined, left, pages, took_ms, "instruments changed");
    } else {
        debug!(venue, instruments, pages, took_ms, "instruments are the same");
    }
}

pub(crate) fn round_failed(venue: &str, cause: &'static str, error: &str, in_a_row: u64) {
    if in_a_row == FAILED_ROUNDS_ODD {
        error!(venue, cause, error, in_a_row, "discovery keeps failing, the last snapshot grows old");
    } else {
        warn!(venue, cause, error, in_a_row, "discovery failed, the last snapshot stays");
    }
}

pub(crate) fn change_not_recorded(venue: &str, error: &dyn Error) {
    error!(venue, %error, "change of instruments not recorded");
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn candles_fetched(venue: Venue, symbol: &str, timeframe: &str, candles: usize, holes: usize) {
    debug!(%venue, symbol, timeframe, candles, holes, "candles fetched");
}

pub(crate) fn candles_unreachable(venue: Venue, symbol: &str, timeframe: &str, span: Span, rows: u32) {
    let Span { from, to } = span;
    warn!(%venue, symbol, timeframe, %from, %to,
        "the venue gives only its newest {rows} candles; these cannot be had any more, and are not asked for again");
}

pub(crate) fn gap_planned(series: &Series, from: UnixMs, to: UnixMs, stretches: usize, job: Id) {
    let Series { exchange_id: venue, symbol, timeframe } = series;
    info!(%venue, symbol, %timeframe, %from, %to, stretches, %job, "candles are missing; a job fetches them");
}

pub(crate) fn not_looked_over(error: &StoreError) {
    warn!(%error, "missing candles were not looked for; that is done again in a few hours");
}

pub(crate) fn gaps_not_looked_for(series: &Series, error: &StoreError) {
    let Series { exchange_id: venue, symbol, timeframe } = series;
    warn!(%venue, symbol, %timeframe, %error, "missing candles were not looked for; the next run does");
}

pub(crate) fn gap_to_be_filled(venue: Venue, symbol: &str, from: UnixMs, to: UnixMs, job: Id) {
    info!(%venue, symbol, %from, %to, %job, "a stream missed trades; a job fetches them");
}

pub(crate) fn gap_not_filled(venue: Venue, symbol: &str, reason: &str) {
    warn!(%venue, symbol, reason, "a stream missed trades, and nobody fetches them");
}
