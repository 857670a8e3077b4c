//! What is told, one function each.

use std::time::Duration;

use catchment_model::Venue;
use tracing::{debug, error, info, warn};

use crate::error::StoreError;
use crate::id::Id;
use crate::job::Job;

pub(crate) fn tokens_unreachable(exchange: Venue, error: &StoreError) {
    warn!(venue = %exchange, error = words(error), "no tokens: the store cannot be asked; nothing is sent meanwhile");
}

pub(crate) fn tokens_not_given_back(exchange: Venue, error: &StoreError) {
    debug!(venue = %exchange, error = words(error), "unused tokens were not given back");
}

pub(crate) fn job_claimed(job: &Job, worker: &str) {
    debug!(job = %job.id, venue = %job.exchange_id, kind = job.kind.as_str(), worker, fence = job.fence, "job claimed");
}

pub(crate) fn job_failed(job: &Job, error: &str, retry_in: Duration) {
    let retry_in_ms = retry_in.as_millis();
    warn!(job = %job.id, venue = %job.exchange_id, kind = job.kind.as_str(), attempts = job.attempts + 1, error,
        retry_in_ms, "job failed");
}

pub(crate) fn job_dead(job: &Job, error: &str) {
    error!(job = %job.id, venue = %job.exchange_id, kind = job.kind.as_str(), attempts = job.attempts + 1, error,
        "job failed too often and is given up; look at it, then `catchment jobs run`");
}

#[cfg(feature = "mongo")]
pub(crate) fn jobs_miscounted(exchange: Venue, error: &StoreError) {
    warn!(venue = %exchange, error = words(error), "a job was not counted in its connector; it is counted anew later");
}

#[cfg(feature = "mongo")]
pub(crate) fn slot_kept(job: &Job, error: &StoreError) {
    warn!(job = %job.id, venue = %job.exchange_id, error = words(error),
        "a job's place under its exchange's cap was not given back; it is free when the lease would have been over");
}

pub(crate) fn not_looked_over(error: &StoreError) {
    warn!(error = words(error), "connectors were not counted anew; that is done again later");
}

pub(crate) fn dead_job_replaced(job: &Job) {
    info!(job = %job.id, venue = %job.exchange_id, kind = job.kind.as_str(), "a job that was given up makes way for a new one");
}

pub(crate) fn lease_lost(job: Id, worker: &str) {
    warn!(%job, worker, "lease lost; another worker has the job");
}

pub(crate) fn store_unreachable(error: &StoreError, wait: Duration) {
    warn!(error = words(error), wait_ms = wait.as_millis(), "the store cannot be reached; work waits");
}

pub(crate) fn workers_began(workers: usize, lease: Duration) {
    info!(workers, lease_ms = lease.as_millis(), "job workers began");
}

pub(crate) fn workers_ended(handed_back: u64) {
    info!(handed_back, "job workers ended");
}

/// The whole chain in one line.
fn words(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
