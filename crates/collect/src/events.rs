//! What this room tells: one function per event. What is counted is counted here, from the same values.

use std::time::Duration;

use tracing::debug;

use crate::send_error::SendError;
use crate::tally::Tally;

pub(crate) fn answered(tally: &Tally, venue: &str, family: &str, status: u16, reading: &str, bytes: usize, took: Duration) {
    tally.answer(bytes);
    debug!(venue, family, status, reading, bytes, took_ms = ms(took), "answer received");
}

pub(crate) fn not_answered(tally: &Tally, venue: &str, family: &str, error: &SendError) {
    tally.failure(error);
    debug!(venue, family, kind = error.kind(), error = error.with_sources(), "no answer");
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
