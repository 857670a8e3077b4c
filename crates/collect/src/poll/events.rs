//! What a poller tells: one function per event. What is told about requests is counted in `poll_stats`.

use catchment_model::Venue;
use tracing::{debug, error, info, warn};

use super::records::PollError;
use crate::KeptReason;

pub(crate) fn poller_started(venue: Venue, interval_ms: u64, workers: usize) {
    info!(venue = %venue, interval_ms, workers, "poller started");
}

pub(crate) fn poller_stopped(venue: Venue, books: u64, abandoned: usize) {
    info!(venue = %venue, books, abandoned, "poller stopped");
}

pub(crate) fn instruments_changed(venue: Venue, joined: usize, left: usize, refused: usize, all: usize) {
    info!(venue = %venue, joined, left, refused, all, "instruments changed");
}

pub(crate) fn snapshot_kept(venue: Venue, reason: &KeptReason) {
    match reason {
        // Discovery has not been there yet: so begins every recording.
        KeptReason::Missing => info!(venue = %venue, "there is no snapshot of instruments yet"),
        _ => warn!(venue = %venue, kind = reason.kind(), %reason, "snapshot of instruments not taken over"),
    }
}

pub(crate) fn poll_failed(venue: Venue, failure: &PollError<'_>) {
    let PollError { kind, status, message, instruments, .. } = failure;
    debug!(venue = %venue, kind, status, instruments, message, "poll failed");
}

pub(crate) fn batch_split(venue: Venue, members: usize) {
    warn!(venue = %venue, members, "batch refused, taken apart to find out why");
}

pub(crate) fn records_lost(venue: Venue, records: u64) {
    error!(venue = %venue, records, "records not accepted by the pipeline");
}

pub(crate) fn errand_panicked(venue: Venue, reason: &str) {
    error!(venue = %venue, reason, "reading an answer failed in a way it should not");
}
