//! What is worth telling, in one place.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::error::LakeError;
use crate::ledger::Failure;

pub(crate) fn upkeep_failed(what: &str, error: &LakeError) {
    warn!(what, %error, "upkeep of the job table failed");
}

pub(crate) fn claimed(worker: &str, job: &str, fence: u64) {
    debug!(worker, job, fence, "job leased");
}

pub(crate) fn done(worker: &str, job: &str, records: i32, path: &str) {
    info!(worker, job, records, path, "job done");
}

pub(crate) fn failed(worker: &str, job: &str, failure: &Failure) {
    warn!(worker, job, code = failure.code, error = failure.message, "job failed");
}

pub(crate) fn circle(worker: &str, job: &str) {
    warn!(worker, job, "job failed: the cursor after it is one that its walk has been at before");
}

pub(crate) fn lease_lost(worker: &str, job: &str) {
    warn!(worker, job, "lease lost: another worker has the job; its result is not ours to write");
}

pub(crate) fn file_was_there(path: &str, is_same: bool) {
    info!(path, is_same, "the file was there already");
}

pub(crate) fn storage_failed(worker: &str, error: &LakeError, wait: Duration) {
    warn!(worker, %error, wait_ms = wait.as_millis(), "the table of jobs cannot be written");
}

pub(crate) fn idle(worker: &str, wait: Duration) {
    debug!(worker, wait_ms = wait.as_millis(), "no job is due");
}
