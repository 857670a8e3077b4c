//! What this room tells: one function per event. What is counted is counted from the same values: requests in the
//! [`CourierCounts`](crate::CourierCounts), here; rounds in the [`DiscoverStatus`](crate::DiscoverStatus), by the caller.

use std::error::Error;
use std::time::Duration;

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
