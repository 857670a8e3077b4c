//! What this room tells: one function per event.

use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::reader::Damage;
use crate::spool::describe;
use crate::{SinkError, SinkState};

pub(crate) fn damage_found(damage: &Damage, kept: &Path) {
    error!(
        what = describe(damage),
        bytes = damage.len,
        after_seq = damage.after_seq,
        kept = %kept.display(),
        "spool damaged"
    );
}

pub(crate) fn damage_not_kept(damage: &Damage, error: &io::Error) {
    error!(what = describe(damage), %error, "damaged bytes could not be put into quarantine");
}

pub(crate) fn crash_found(streams: usize) {
    warn!(streams, "the spool was not closed properly last time, gaps say since when");
}

pub(crate) fn stop_found(streams: usize) {
    info!(streams, "recording goes on after a stop, gaps say since when nobody listened");
}

pub(crate) fn segment_abandoned(dir: &Path, segment: Option<u32>, error: &io::Error) {
    warn!(spool = %dir.display(), segment, %error, "segment abandoned, writing to another");
}

pub(crate) fn abandoned_segment_left(path: &Path, error: &io::Error) {
    debug!(path = %path.display(), %error, "abandoned segment could not be cut");
}

pub(crate) fn segment_converted(from: u32, to: u32, records: usize) {
    info!(from, to, records, "segment in the old format taken over");
}

pub(crate) fn cursor_dropped(sink: &str) {
    warn!(sink, "sink is no longer configured, its cursor is dropped");
}

pub(crate) fn reserve_missing(dir: &Path, error: &io::Error) {
    warn!(spool = %dir.display(), %error, "no space for the spool's reserve");
}

pub(crate) fn intake_stopped(error: &str) {
    error!(error, "intake stopped");
}

pub(crate) fn intake_resumed(stopped_for: Duration) {
    info!(stopped_for_ms = stopped_for.as_millis() as u64, "intake resumed");
}

pub(crate) fn spool_full(bytes: u64, policy: crate::OnFull) {
    warn!(bytes, ?policy, "spool is full");
}

pub(crate) fn tidy_failed(error: &dyn std::error::Error) {
    warn!(%error, "cursors could not be saved");
}

pub(crate) fn write_failed(sink: &str, attempt: u32, error: &SinkError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    debug!(sink, attempt, %error, source, "batch not written");
}

pub(crate) fn state_changed(sink: &str, from: SinkState, to: SinkState, error: Option<&SinkError>) {
    let source = error.and_then(std::error::Error::source).map(ToString::to_string);
    match to {
        // As loud as what it ends, or whoever reads the log takes it for still away.
        SinkState::Ok => warn!(sink, from = from.as_str(), "sink is back"),
        SinkState::Unreachable => warn!(sink, source, "sink is unreachable, records wait in the spool"),
        SinkState::Degraded => error!(sink, source, "sink is degraded, records wait in the spool"),
    }
}

pub(crate) fn records_refused(sink: &str, records: usize, reason: &str) {
    error!(sink, records, reason, "records refused, kept as dead letters");
}

pub(crate) fn dead_letter_failed(sink: &str, error: &io::Error) {
    error!(sink, %error, "dead letters could not be written");
}

pub(crate) fn read_failed(sink: &str, segment: u32, error: &io::Error) {
    warn!(sink, segment, %error, "segment could not be read");
}

pub(crate) fn sink_not_closed(sink: &str, error: &SinkError) {
    warn!(sink, %error, "sink did not close");
}
