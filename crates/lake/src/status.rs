//! How far a backfill is, from the rows alone.

use std::collections::BTreeMap;
use std::time::Duration;

use catchment_model::UnixMs;
use serde::Serialize;

use crate::job::{Mode, State, Task, read_holder};
use crate::ledger::Ledger;

/// Throughput is that of the last five minutes.
const RECENT: Duration = Duration::from_secs(300);

/// How far it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The table's version.
    pub version: u64,
    /// How the jobs ask.
    pub mode: Option<&'static str>,
    /// Jobs there are. By keyset the next is known when the one before is done.
    pub jobs: usize,
    /// How many are in each state.
    pub states: BTreeMap<&'static str, usize>,
    /// Events written.
    pub records: i64,
    /// What went wrong last, by kind, the most frequent first; only of jobs that are not done.
    pub errors: Vec<ErrorGroup>,
    /// Who is at work.
    pub leases: Vec<ActiveLease>,
    /// Jobs done in a second, over the last five minutes.
    pub jobs_per_s: f64,
    /// Events written in a second, over the last five minutes.
    pub records_per_s: f64,
    /// Seconds until all is done at that speed; by keyset nobody knows how much there is.
    pub eta_s: Option<u64>,
    /// Seconds until the next job is due, if none is.
    pub next_due_s: Option<u64>,
    /// Whether every job is done or has failed.
    pub is_finished: bool,
}

/// Jobs with the same error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorGroup {
    /// Its code.
    pub code: String,
    /// So many jobs.
    pub jobs: usize,
    /// Of these, failed for good.
    pub failed: usize,
    /// The newest in words.
    pub message: String,
    /// When it was.
    pub at_ms: i64,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveLease {
    /// On this job.
    pub job_id: String,
    /// This worker's.
    pub worker: String,
    /// The version of the table that gave it.
    pub fence: Option<u64>,
    /// Milliseconds since it was given or renewed.
    pub age_ms: i64,
    /// Milliseconds until it is over; less than none if it is.
    pub expires_in_ms: i64,
}

impl Status {
    /// From the rows of a version.
    pub fn of(ledger: &Ledger, version: u64, now: UnixMs) -> Self {
        let jobs = &ledger.jobs;
        let states =
            State::ALL.map(|state| (state.as_str(), jobs.iter().filter(|job| job.state == state).count()));
        let mode = jobs.iter().find_map(|job| Task::read(&job.job_id)).map(|task| task.mode());
        let recent = jobs.iter().filter(|job| job.state == State::Done);
        let since = now.get() - i64::try_from(RECENT.as_millis()).unwrap_or(0);
        let recent: Vec<_> = recent.filter(|job| job.done_at.is_some_and(|at| at.get() >= since)).collect();
        // From the first of them on, or from the beginning of work if that was later.
        let first = recent.iter().filter_map(|job| job.done_at).map(UnixMs::get).min().unwrap_or(now.get());
        let span_s = ((now.get() - first) as f64 / 1_000.0).max(1.0);
        let records_of = |jobs: &[&crate::job::Job]| -> i64 {
            jobs.iter().filter_map(|job| job.records_written).map(i64::from).sum()
        };
        let jobs_per_s = recent.len() as f64 / span_s;
        let left = jobs.iter().filter(|job| matches!(job.state, State::Pending | State::Leased)).count();
        let eta_s = (mode == Some(Mode::Offset) && jobs_per_s > 0.0)
            .then(|| (left as f64 / jobs_per_s).ceil() as u64);
        Self {
            version,
            mode: mode.map(Mode::as_str),
            jobs: jobs.len(),
            states: states.into_iter().collect(),
            records: jobs.iter().filter_map(|job| job.records_written).map(i64::from).sum(),
            errors: errors(ledger),
            leases: leases(ledger, now),
            jobs_per_s,
            records_per_s: records_of(&recent) as f64 / span_s,
            eta_s: if left == 0 { Some(0) } else { eta_s },
            next_due_s: ledger.next_due_in(now).map(|wait| wait.as_secs()),
            is_finished: ledger.is_finished(),
        }
    }

    /// How many jobs are in a state.
    pub fn count(&self, state: State) -> usize {
        self.states.get(state.as_str()).copied().unwrap_or(0)
    }
}

fn errors(ledger: &Ledger) -> Vec<ErrorGroup> {
    let mut groups: BTreeMap<&str, ErrorGroup> = BTreeMap::new();
    for job in ledger.jobs.iter().filter(|job| job.state != State::Done) {
        let (Some(code), Some(at)) = (&job.last_error_code, job.last_error_at) else { continue };
        let group = groups.entry(code).or_insert_with(|| ErrorGroup {
            code: code.clone(),
            jobs: 0,
            failed: 0,
            message: String::new(),
            at_ms: 0,
        });
        group.jobs += 1;
        group.failed += usize::from(job.state == State::Failed);
        if at.get() >= group.at_ms {
            group.at_ms = at.get();
            group.message = job.last_error_message.clone().unwrap_or_default();
        }
    }
    let mut groups: Vec<ErrorGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.jobs));
    groups
}

fn leases(ledger: &Ledger, now: UnixMs) -> Vec<ActiveLease> {
    let leased = ledger.jobs.iter().filter(|job| job.state == State::Leased);
    leased
        .map(|job| {
            let (worker, fence) = read_holder(job.leased_by.as_deref().unwrap_or("?"));
            ActiveLease {
                job_id: job.job_id.clone(),
                worker: worker.to_owned(),
                fence,
                age_ms: now.get() - job.updated_at.get(),
                expires_in_ms: job.lease_expires_at.map_or(0, UnixMs::get) - now.get(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::plan;
    use crate::ledger::{Failure, Write};

    #[test]
    fn the_status_is_what_the_rows_say() {
        let at = |s: i64| UnixMs::new(1_770_000_000_000 + s * 1_000).unwrap();
        let lease = Duration::from_secs(300);
        let mut ledger = Ledger::default();
        ledger.add(&plan(Mode::Offset, 4_500, 500), at(0));
        let claimed = ledger.claim("w1", 1, 5, lease, at(0));
        for (n, (_, lease_of)) in claimed.iter().enumerate().take(3) {
            let write = match n {
                2 => Write::Failed(Failure {
                    code: "HTTP_503".to_owned(),
                    message: "down".to_owned(),
                    retry_after: None,
                    is_final: true,
                    jitter: 0.1,
                }),
                n => Write::Done { payload_path: format!("p{n}"), records: 500, next: None },
            };
            ledger.settle(lease_of, &write, lease, at(10));
        }
        let status = Status::of(&ledger, 7, at(20));
        assert_eq!(State::ALL.map(|state| status.count(state)), [5, 2, 2, 1]);
        assert_eq!((status.records, status.mode, status.is_finished), (1_000, Some("offset"), false));
        assert_eq!((status.jobs_per_s, status.records_per_s, status.eta_s), (0.2, 100.0, Some(35)));
        assert_eq!((status.errors[0].code.as_str(), status.errors[0].failed), ("HTTP_503", 1));
        assert_eq!((status.leases[0].worker.as_str(), status.leases[0].fence), ("w1", Some(1)));
        assert_eq!((status.leases[0].age_ms, status.leases[0].expires_in_ms), (20_000, 280_000));
    }
}
