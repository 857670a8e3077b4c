//! What streams tell: one function per event. What is counted is counted by the caller, from the same values.

use std::time::Duration;

use catchment_model::Venue;
use tracing::{debug, error, info, warn};

use super::status::ms;

pub(crate) fn started(venue: Venue, connections: usize, streams: usize) {
    info!(venue = %venue, connections, streams, "streams started");
}

pub(crate) fn stopped(venue: Venue, messages: u64) {
    info!(venue = %venue, messages, "streams stopped");
}

pub(crate) fn connected(venue: Venue, connection: &str, is_standby: bool, took: Duration) {
    info!(venue = %venue, connection, is_standby, took_ms = ms(took), "connected");
}

pub(crate) fn not_connected(venue: Venue, connection: &str, failures: u32, wait: Duration, error: &str) {
    warn!(venue = %venue, connection, failures, wait_ms = ms(wait), error, "not connected, will be tried again");
}

pub(crate) fn lost(venue: Venue, connection: &str, reason: &str, wait: Duration) {
    warn!(venue = %venue, connection, reason, wait_ms = ms(wait), "connection lost");
}

pub(crate) fn switching(venue: Venue, connection: &str, reason: &str) {
    info!(venue = %venue, connection, reason, "a new connection will take over");
}

pub(crate) fn switched(venue: Venue, old: &str, new: &str, took: Duration, unjoined: usize) {
    info!(venue = %venue, old, new, took_ms = ms(took), unjoined, "a new connection has taken over");
}

pub(crate) fn subscription_failed(venue: Venue, channel: &str, symbol: &str, reason: &str) {
    warn!(venue = %venue, channel, symbol, reason, "subscription failed, will be tried again");
}

pub(crate) fn complaint(venue: Venue, connection: &str, reason: &str) {
    warn!(venue = %venue, connection, reason, "the venue complains, about nothing we asked for");
}

pub(crate) fn frozen(venue: Venue, channel: &str, symbol: &str, silence: Duration) {
    warn!(venue = %venue, channel, symbol, silent_ms = ms(silence), "stream frozen, subscribed anew");
}

pub(crate) fn all_frozen(venue: Venue, connection: &str) {
    warn!(venue = %venue, connection, "connection frozen, though it answers");
}

pub(crate) fn odd_frame(venue: Venue, connection: &str, kind: &'static str, bytes: usize, total: u64) {
    // The first, the tenth, the hundredth …
    if total == 10u64.pow(total.checked_ilog10().unwrap_or(0)) {
        warn!(venue = %venue, connection, kind, bytes, total, "frame of no use");
    }
}

pub(crate) fn connection_gap(venue: Venue, connection: &str, first: u64, last: u64) {
    warn!(%venue, connection, first, last, "numbers of the connection were left out; any of its streams may miss something");
}

pub(crate) fn sequence_gap(venue: Venue, channel: &str, symbol: &str, first: u64, last: u64) {
    debug!(venue = %venue, channel, symbol, first, last, "numbers skipped");
}

pub(crate) fn book_wrong(venue: Venue, symbol: &str, outcome: &str, detail: &str) {
    warn!(venue = %venue, symbol, outcome, detail, "book not to be used, begun anew");
}

pub(crate) fn rest_failed(venue: Venue, what: &'static str, symbol: &str, error: &str) {
    debug!(venue = %venue, what, symbol, error, "request beside the stream failed");
}

pub(crate) fn held_up(venue: Venue, connection: &str, stall: Duration) {
    warn!(venue = %venue, connection, stall_ms = ms(stall), "the pipeline took nothing, the socket was not read");
}

pub(crate) fn records_lost(venue: Venue, records: u64) {
    error!(venue = %venue, records, "records not accepted by the pipeline");
}
