//! What this room tells: one function per event. What is told about requests is counted in the
//! [`Snapshot`](crate::Snapshot), by the same functions' callers.

use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::hold::Held;
use crate::limiter::Outcome;
use crate::retry_after::RetryAfter;

pub(crate) fn hold_began(venue: &str, family: Option<&str>, held: &Held) {
    let cause = held.cause.as_str();
    warn!(venue, family, cause, length_ms = ms(held.length), "venue cooldown began");
}

pub(crate) fn ban_began(venue: &str, held: &Held) {
    error!(
        venue,
        length_ms = ms(held.length),
        strikes = held.strikes,
        "venue has banned us, nothing is sent"
    );
}

pub(crate) fn ban_goes_on(venue: &str, length: Duration) {
    warn!(venue, length_ms = ms(length), "venue had banned us before this start, nothing is sent");
}

pub(crate) fn retry_after_capped(venue: &str, said: RetryAfter, used: Duration) {
    warn!(
        venue,
        said_s = said.asked.as_secs(),
        used_s = used.as_secs(),
        "retry-after is too long to believe"
    );
}

pub(crate) fn request_ended(
    venue: &str,
    family: &str,
    outcome: Outcome,
    status: Option<u16>,
    took: Duration,
) {
    debug!(venue, family, ?outcome, status, took_ms = ms(took), "request ended");
}

pub(crate) fn stranger_seen(venue: &str, family: &str, cost: u64) {
    debug!(venue, family, cost, "somebody else uses this address");
}

pub(crate) fn notebook_set_aside(path: &Path, kept: &Path, reason: &str) {
    warn!(path = %path.display(), kept = %kept.display(), reason, "governor's notebook set aside, starting anew");
}

pub(crate) fn notebook_unreadable(path: &Path, error: &io::Error) {
    warn!(path = %path.display(), %error, "governor's notebook could not be read");
}

pub(crate) fn notebook_not_saved(path: &Path, error: &io::Error) {
    error!(path = %path.display(), %error, "governor's notebook could not be saved, a restart will not know of bans");
}

pub(crate) fn notebook_opened(path: &Path, venues: usize) {
    info!(path = %path.display(), venues, "governor's notebook opened");
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
