//! A worker: leases jobs, does them side by side, writes what came of them.
//!
//! ```text
//!        ┌── one commit: what has ended, what is to be renewed, what is leased next ◀──┐
//!        ▼                                                                             │
//!   leased jobs ─▶ fetch (each request with a permit) ─▶ bronze file ─▶ ended ─────────┘
//! ```
//!
//! While a commit is under way the jobs go on, so that the next commit has more to say: a slow storage makes commits larger
//! and not the work slower. A worker that is told to stop gives its leases back; one that is killed lets them run out; one
//! that was stopped for longer than its lease finds its fence gone, and what it says is not written.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, Monotonic};
use catchment_venues::polymarket::events::Span;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::bronze::{self, Kept};
use crate::error::LakeError;
use crate::events;
use crate::fetch::Fetcher;
use crate::job::{Job, Lease, Pass, State, Task};
use crate::lake::Lake;
use crate::ledger::{Failure, Verdict, Write};
use crate::table::{CommitCounts, JobTable};
use crate::upkeep;

/// Commits that fail are tried again after a while, up to this.
const STORAGE_WAIT_MAX: Duration = Duration::from_secs(30);
/// So long a worker that is to stop waits for the storage.
const STOP_PATIENCE: Duration = Duration::from_secs(8);
/// Nobody is idle for less.
const IDLE_MIN: Duration = Duration::from_millis(50);

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name, for people; the fence tells two of the same name apart.
    pub worker: String,
    /// So many jobs at once.
    pub leases_max: usize,
    /// How long it may be silent.
    pub lease: Duration,
    /// It ends after so many jobs.
    pub jobs_max: Option<u64>,
    /// How long it waits when no job is due, at most.
    pub idle: Duration,
    /// Of its chance.
    pub seed: u64,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkReport {
    /// Jobs done.
    pub done: u64,
    /// Events in their files.
    pub records: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Leases that were lost to others.
    pub lost: u64,
    /// Leases given back at the end.
    pub handed_back: u64,
    /// Jobs of the table that have failed for good, when it ended.
    pub failed_for_good: u64,
    /// Whether every job of the table was done or failed, when it ended.
    pub is_finished: bool,
    /// What its commits took.
    pub commits: CommitCounts,
}

/// A worker and all it needs.
pub struct Worker {
    /// The lake.
    pub lake: Lake,
    /// Its table.
    pub table: JobTable,
    /// Who asks the venue.
    pub fetcher: Arc<Fetcher>,
    /// How it works.
    pub settings: WorkerSettings,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

struct Held {
    lease: Lease,
    task: AbortHandle,
    renewed: Monotonic,
}

type Ended = (Lease, Result<(Kept, Option<Task>), Failure>);

struct Shift {
    worker: Worker,
    running: JoinSet<Ended>,
    held: BTreeMap<String, Held>,
    ended: Vec<(Lease, Write)>,
    report: WorkReport,
    claimed: u64,
    chance: StdRng,
}

impl Worker {
    /// Works until every job is done or has failed, `jobs_max` are done, or it is told to stop.
    pub async fn work(self, stop: CancellationToken) -> Result<WorkReport, LakeError> {
        let chance = StdRng::seed_from_u64(self.settings.seed);
        let (running, held, ended, report) =
            (JoinSet::new(), BTreeMap::new(), Vec::new(), WorkReport::default());
        Shift { worker: self, running, held, ended, report, claimed: 0, chance }.run(stop).await
    }
}

impl Shift {
    async fn run(mut self, stop: CancellationToken) -> Result<WorkReport, LakeError> {
        let mut look_again = self.now();
        let mut failures = 0;
        loop {
            if stop.is_cancelled() {
                return tokio::select! {
                    biased;
                    report = self.hand_back() => report,
                    () = long_after(&stop) => Err(no_answer()),
                };
            }
            let want = if self.now() >= look_again || !self.ended.is_empty() { self.room() } else { 0 };
            let writes = self.writes();
            if want > 0 || !writes.is_empty() {
                let committed = tokio::select! {
                    biased;
                    committed = self.commit(&writes, want) => committed,
                    () = long_after(&stop) => return Err(no_answer()),
                };
                match committed {
                    Ok(claimed) => {
                        failures = 0;
                        let is_short = claimed < want;
                        look_again = if is_short { later(self.now(), self.idle_wait()) } else { self.now() };
                    }
                    Err(error) if error.may_pass() => {
                        let wait = Duration::from_millis(500)
                            .saturating_mul(1 << failures.min(6))
                            .min(STORAGE_WAIT_MAX);
                        let wait = wait.mul_f64(self.chance.random_range(0.5..1.0));
                        failures += 1;
                        events::storage_failed(&self.worker.settings.worker, &error, wait);
                        tokio::select! { biased; () = stop.cancelled() => {}, () = sleep(wait) => {} }
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            if self.is_over() {
                return Ok(self.end().await);
            }
            let wait = self.until_next(look_again);
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(ended) = self.running.join_next() => self.note(ended),
                () = sleep(wait) => {}
            }
            while let Some(ended) = self.running.try_join_next() {
                self.note(ended);
            }
        }
    }

    /// How many more jobs it may take.
    fn room(&self) -> usize {
        let settings = &self.worker.settings;
        let under_way = self.held.len().saturating_sub(self.ended.len());
        let room = settings.leases_max.saturating_sub(under_way);
        let left = settings.jobs_max.map_or(u64::MAX, |max| max.saturating_sub(self.claimed));
        room.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// What has ended, and a renewal for each that has not and is a third through its lease.
    fn writes(&self) -> Vec<(Lease, Write)> {
        let mut writes = self.ended.clone();
        let now = self.now();
        let third = self.worker.settings.lease / 3;
        let has_ended = |lease: &Lease| self.ended.iter().any(|(ended, _)| ended == lease);
        let due =
            self.held.values().filter(|held| now.since(held.renewed) >= third && !has_ended(&held.lease));
        writes.extend(due.map(|held| (held.lease.clone(), Write::Renew)));
        writes
    }

    /// Writes and leases in one commit, and begins what was leased. Gives back how many that were.
    async fn commit(&mut self, writes: &[(Lease, Write)], want: usize) -> Result<usize, LakeError> {
        let settings = self.worker.settings.clone();
        // What a renewal holds is counted from before it was asked for.
        let asked = self.now();
        let acted = self.worker.table.act(&settings.worker, writes, want, settings.lease).await?;
        self.ended.clear();
        for ((lease, write), verdict) in writes.iter().zip(&acted.verdicts) {
            self.count(lease, write, *verdict);
            match (write, verdict) {
                (Write::Renew, Verdict::Taken) => {
                    if let Some(held) = self.held.get_mut(&lease.job_id) {
                        held.renewed = asked;
                    }
                }
                _ => {
                    if let Some(held) = self.held.remove(&lease.job_id) {
                        held.task.abort();
                    }
                }
            }
        }
        let claimed = acted.claimed.len();
        self.claimed += claimed as u64;
        for (job, lease) in acted.claimed {
            events::claimed(&settings.worker, &lease.job_id, lease.fence);
            let task = self.running.spawn(self.work_on(job, lease.clone()));
            self.held.insert(lease.job_id.clone(), Held { lease, task, renewed: asked });
        }
        Ok(claimed)
    }

    /// One job, on its own from here on.
    fn work_on(&self, job: Job, lease: Lease) -> impl Future<Output = Ended> + use<> {
        let (lake, fetcher) = (self.worker.lake.clone(), Arc::clone(&self.worker.fetcher));
        let task = Task::read(&job.job_id);
        let been = task.as_ref().map(|task| self.worker.table.ledger().been(task)).unwrap_or_default();
        async move { (lease, fetch_and_keep(&lake, &fetcher, &job, task, been).await) }
    }

    fn count(&mut self, lease: &Lease, write: &Write, verdict: Verdict) {
        let worker = &self.worker.settings.worker;
        match (write, verdict) {
            (_, Verdict::Lost) => {
                self.report.lost += 1;
                events::lease_lost(worker, &lease.job_id);
            }
            (_, Verdict::Circle) => {
                self.report.failed += 1;
                events::circle(worker, &lease.job_id);
            }
            (Write::Done { payload_path, records, .. }, Verdict::Taken) => {
                self.report.done += 1;
                self.report.records += u64::try_from(*records).unwrap_or(0);
                events::done(worker, &lease.job_id, *records, payload_path);
            }
            (Write::Failed(failure), Verdict::Taken) => {
                self.report.failed += 1;
                events::failed(worker, &lease.job_id, failure);
            }
            (Write::HandBack, Verdict::Taken) => self.report.handed_back += 1,
            (Write::Renew, Verdict::Taken) => {}
        }
    }

    fn note(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        // One that was aborted has nothing to say; its lease is gone already.
        let Ok((lease, result)) = ended else { return };
        let is_held = self.held.get(&lease.job_id).is_some_and(|held| held.lease == lease);
        if !is_held {
            return;
        }
        let write = match result {
            Ok((kept, next)) => Write::Done { payload_path: kept.path, records: kept.records, next },
            Err(failure) => Write::Failed(failure),
        };
        self.ended.push((lease, write));
    }

    fn is_over(&self) -> bool {
        let is_idle = self.held.is_empty() && self.ended.is_empty();
        let has_had_enough = self.worker.settings.jobs_max.is_some_and(|max| self.claimed >= max);
        is_idle && (has_had_enough || self.worker.table.ledger().is_finished())
    }

    /// How long to look at the table no more, when there was less to do than wanted.
    fn idle_wait(&self) -> Duration {
        let due = self.worker.table.ledger().next_due_in(self.worker.clock.wall().ms());
        // Those that are leased include our own; they are not what we wait for while they run.
        let wait =
            due.unwrap_or(self.worker.settings.idle).clamp(IDLE_MIN, self.worker.settings.idle.max(IDLE_MIN));
        if self.held.is_empty() {
            events::idle(&self.worker.settings.worker, wait);
        }
        wait
    }

    /// Until the next renewal is due, or the table is looked at again.
    fn until_next(&self, look_again: Monotonic) -> Duration {
        let third = self.worker.settings.lease / 3;
        let renewals = self.held.values().map(|held| later(held.renewed, third));
        let next = if self.room() > 0 { renewals.chain([look_again]).min() } else { renewals.min() };
        next.map_or(self.worker.settings.idle, |next| next.since(self.now())).max(Duration::from_millis(1))
    }

    /// A clean stop: what has ended is written, the rest is given back.
    async fn hand_back(mut self) -> Result<WorkReport, LakeError> {
        while let Some(ended) = self.running.try_join_next() {
            self.note(ended);
        }
        self.running.abort_all();
        // A commit that was in doubt may turn out to have leased some more; those are given back after it.
        while !self.held.is_empty() {
            let mut writes = self.ended.clone();
            let rest = self.held.values().map(|held| &held.lease);
            let rest = rest.filter(|lease| self.ended.iter().all(|(ended, _)| ended != *lease));
            let rest: Vec<(Lease, Write)> = rest.map(|lease| (lease.clone(), Write::HandBack)).collect();
            writes.extend(rest);
            self.commit(&writes, 0).await?;
        }
        Ok(self.end().await)
    }

    async fn end(mut self) -> WorkReport {
        let ledger = self.worker.table.ledger();
        self.report.is_finished = ledger.is_finished();
        self.report.failed_for_good =
            ledger.jobs.iter().filter(|job| job.state == State::Failed).count() as u64;
        self.report.commits = self.worker.table.commits();
        if self.report.is_finished {
            self.worker.table.checkpoint().await;
        }
        // A job that has failed may be begun again, and needs the cursor of the file it has written.
        if self.report.is_finished && self.report.failed_for_good == 0 {
            upkeep::clear_cursors(&self.worker.lake).await;
        }
        if let Err(error) = self.worker.table.tidy().await {
            events::upkeep_failed("tidy", &error);
        }
        self.report
    }

    fn now(&self) -> Monotonic {
        self.worker.clock.monotonic()
    }
}

/// From the first request to the file.
async fn fetch_and_keep(
    lake: &Lake,
    fetcher: &Fetcher,
    job: &Job,
    task: Option<Task>,
    been: HashSet<String>,
) -> Result<(Kept, Option<Task>), Failure> {
    let unknown = || fetcher.failure("UNKNOWN_JOB", "its id says nothing that could be asked for", true);
    let task = task.ok_or_else(unknown)?;
    let harvest = fetcher.fetch(&task, been).await?;
    let kept = bronze::keep(&lake.bronze, job, &task, &harvest).await;
    let kept = kept.map_err(|error| fetcher.failure("STORAGE", &error.to_string(), false))?;
    let next = next_of(&task, &kept);
    Ok((kept, next))
}

/// What comes after a stretch of a walk: the next one, after the open events the closed ones, after these nothing.
fn next_of(task: &Task, kept: &Kept) -> Option<Task> {
    let Task::Keyset { pass, span, offset, limit, .. } = task else { return None };
    if let Some(cursor) = kept.follow.as_ref().and_then(|follow| follow.next_cursor.clone()) {
        let offset = offset.saturating_add(i64::from(kept.records));
        return Some(Task::Keyset { pass: *pass, span: *span, offset, limit: *limit, after: Some(cursor) });
    }
    match (pass, span) {
        // None at this end of the order; had there been one here, there would be none at the other.
        (_, Span::Undated { ascending: false }) if *offset == 0 && kept.records == 0 => {
            Some(Task::first(*pass, Span::Undated { ascending: true }, *limit))
        }
        (Pass::Open, Span::Undated { .. }) => {
            Some(Task::first(Pass::Closed, Span::Undated { ascending: false }, *limit))
        }
        (Pass::Open, span) => Some(Task::first(Pass::Closed, *span, *limit)),
        (Pass::Closed, _) => None,
    }
}

/// A worker that is to stop waits no longer than this for the storage.
async fn long_after(stop: &CancellationToken) {
    stop.cancelled().await;
    sleep(STOP_PATIENCE).await;
}

fn no_answer() -> LakeError {
    LakeError::Storage {
        what: "giving the leases back".to_owned(),
        reason: "the storage does not answer; others can have the jobs when the leases are over".to_owned(),
        may_pass: true,
    }
}

fn later(time: Monotonic, by: Duration) -> Monotonic {
    Monotonic(time.0.saturating_add(by))
}
