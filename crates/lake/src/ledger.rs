//! What may become of the rows. Rows and a time in, rows out: nothing here waits, stores or asks a clock, so the same
//! decision can be made again when somebody else's commit came first.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use catchment_model::UnixMs;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64;

use crate::job::{Job, Lease, State, Task};

/// A job has failed for good after so many attempts.
pub const ATTEMPTS_MAX: i32 = 10;
/// How long a job rests after its first, second, … failure; the last also after every further one.
const BACKOFF: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(3_600),
    Duration::from_secs(21_600),
];
/// Of a message in the table.
const MESSAGE_CHARS_MAX: usize = 300;

/// The code and the words of a walk that would come by again.
pub(crate) const CURSOR_CIRCLE: (&str, &str) =
    ("CURSOR_CIRCLE", "the venue's next_cursor is one that this walk has been at before");

/// What the holder of a lease has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// It is still at work.
    Renew,
    /// The file is written.
    Done {
        /// Where.
        payload_path: String,
        /// Events in it.
        records: i32,
        /// What comes after it, in a walk by keyset.
        next: Option<Task>,
    },
    /// It did not go well.
    Failed(Failure),
    /// The worker stops; another may begin it at once.
    HandBack,
}

/// Why a job is to be tried again, or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// `HTTP_503`, `TIMEOUT`.
    pub code: String,
    /// In words.
    pub message: String,
    /// The venue asked to wait so long.
    pub retry_after: Option<Duration>,
    /// Asking again changes nothing.
    pub is_final: bool,
    /// By how much the rest is longer or shorter: from -0.2 to -0.1, or from 0.1 to 0.2.
    pub jitter: f64,
}

/// What a holder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is done as said.
    Taken,
    /// The lease is not its any more; nothing was written.
    Lost,
    /// The cursor it goes on with leads back to where the walk has been; the job has failed.
    Circle,
}

/// The rows, in the order of the walk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Sorted by what they ask for.
    pub jobs: Vec<Job>,
}

impl Ledger {
    /// Puts rows in order.
    pub fn new(mut jobs: Vec<Job>) -> Self {
        jobs.sort_by_cached_key(|job| (Task::read(&job.job_id), job.job_id.clone()));
        Self { jobs }
    }

    /// Adds those that are not there yet. Gives back how many.
    pub fn add(&mut self, tasks: &[Task], now: UnixMs) -> usize {
        let here: BTreeSet<&str> = self.jobs.iter().map(|job| job.job_id.as_str()).collect();
        let new: Vec<Job> = tasks
            .iter()
            .map(|task| Job::new(task, now))
            .filter(|job| !here.contains(job.job_id.as_str()))
            .collect();
        let added = new.len();
        if added > 0 {
            let mut jobs = std::mem::take(&mut self.jobs);
            jobs.extend(new);
            *self = Self::new(jobs);
        }
        added
    }

    /// Leases up to `want` jobs that are due, the first of the walk first.
    pub fn claim(
        &mut self,
        worker: &str,
        fence: u64,
        want: usize,
        lease: Duration,
        now: UnixMs,
    ) -> Vec<(Job, Lease)> {
        let mut claimed = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| is_due(job, now)).take(want) {
            let lease_held = Lease { job_id: job.job_id.clone(), worker: worker.to_owned(), fence };
            job.state = State::Leased;
            job.leased_by = Some(lease_held.holder());
            job.lease_expires_at = Some(later(now, lease));
            job.updated_at = now;
            claimed.push((job.clone(), lease_held));
        }
        claimed
    }

    /// Writes what a holder says, if the lease is still its own. A lease that is over but nobody else's is good.
    pub fn settle(&mut self, held: &Lease, write: &Write, lease: Duration, now: UnixMs) -> Verdict {
        let holder = held.holder();
        let Some(at) = self.jobs.iter().position(|job| job.job_id == held.job_id) else {
            return Verdict::Lost;
        };
        let job = &self.jobs[at];
        if job.state != State::Leased || job.leased_by.as_deref() != Some(holder.as_str()) {
            return Verdict::Lost;
        }
        let circle = match write {
            Write::Done { next: Some(next), .. } => self.jobs.iter().any(|job| leads_back(next, job)),
            _ => false,
        };
        let job = &mut self.jobs[at];
        job.updated_at = now;
        if circle {
            fail(job, &circle_failure(held), now);
            return Verdict::Circle;
        }
        match write {
            Write::Renew => job.lease_expires_at = Some(later(now, lease)),
            Write::HandBack => {
                release(job, State::Pending);
                job.next_attempt_at = Some(now);
            }
            Write::Failed(failure) => fail(job, failure, now),
            Write::Done { payload_path, records, next } => {
                release(job, State::Done);
                job.done_at = Some(now);
                job.next_attempt_at = None;
                job.payload_path = Some(payload_path.clone());
                job.records_written = Some(*records);
                if let Some(next) = next {
                    self.add(std::slice::from_ref(next), now);
                }
            }
        }
        Verdict::Taken
    }

    /// The cursors from which the walk of a task has gone on, its own with them.
    pub(crate) fn been(&self, task: &Task) -> HashSet<String> {
        let Task::Keyset { pass, span, .. } = task else { return HashSet::new() };
        let cursor = |job: &Job| match Task::read(&job.job_id) {
            Some(Task::Keyset { pass: its, span: its_span, after, .. })
                if (its, its_span) == (*pass, *span) =>
            {
                after
            }
            _ => None,
        };
        self.jobs.iter().filter_map(cursor).collect()
    }

    /// Gives leased jobs back: those whose lease is over, or with `force` all. The fence moves with it: whoever held one
    /// can write no more. Gives back how many, and how many live ones it left alone.
    pub fn reset_leased(&mut self, force: bool, now: UnixMs) -> (usize, usize) {
        let (mut reset, mut live) = (0, 0);
        for job in self.jobs.iter_mut().filter(|job| job.state == State::Leased) {
            if !force && job.lease_expires_at.is_some_and(|until| until >= now) {
                live += 1;
                continue;
            }
            release(job, State::Pending);
            job.next_attempt_at = Some(now);
            job.updated_at = now;
            reset += 1;
        }
        (reset, live)
    }

    /// Gives failed jobs all their attempts again. What they failed of stays to be read.
    pub fn reset_failed(&mut self, now: UnixMs) -> usize {
        let failed = self.jobs.iter_mut().filter(|job| job.state == State::Failed);
        failed
            .map(|job| {
                release(job, State::Pending);
                (job.attempts, job.next_attempt_at, job.updated_at) = (0, Some(now), now);
            })
            .count()
    }

    /// Whether any job is, or may become, due.
    pub fn is_finished(&self) -> bool {
        self.jobs.iter().all(|job| matches!(job.state, State::Done | State::Failed))
    }

    /// How long until a job is due, if any will be; zero if one is.
    pub fn next_due_in(&self, now: UnixMs) -> Option<Duration> {
        let due_at = |job: &Job| match job.state {
            State::Pending => Some(job.next_attempt_at.map_or(0, UnixMs::get)),
            State::Leased => Some(job.lease_expires_at.map_or(0, |until| until.get().saturating_add(1))),
            State::Done | State::Failed => None,
        };
        let first = self.jobs.iter().filter_map(due_at).min()?;
        Some(Duration::from_millis(u64::try_from(first.saturating_sub(now.get())).unwrap_or(0)))
    }
}

fn is_due(job: &Job, now: UnixMs) -> bool {
    match job.state {
        State::Pending => job.next_attempt_at.is_none_or(|at| at <= now),
        State::Leased => job.lease_expires_at.is_none_or(|until| until < now),
        State::Done | State::Failed => false,
    }
}

fn release(job: &mut Job, state: State) {
    job.state = state;
    job.leased_by = None;
    job.lease_expires_at = None;
}

fn fail(job: &mut Job, failure: &Failure, now: UnixMs) {
    job.attempts = job.attempts.saturating_add(1);
    job.last_error_code = Some(failure.code.clone());
    job.last_error_message = Some(failure.message.chars().take(MESSAGE_CHARS_MAX).collect());
    job.last_error_at = Some(now);
    if failure.is_final || job.attempts >= ATTEMPTS_MAX {
        release(job, State::Failed);
        job.next_attempt_at = None;
        return;
    }
    release(job, State::Pending);
    let rest = backoff(job.attempts).mul_f64((1.0 + failure.jitter).clamp(0.5, 1.5));
    job.next_attempt_at = Some(later(now, rest.max(failure.retry_after.unwrap_or_default())));
}

/// The rest after so many failures, before chance has its say.
fn backoff(attempts: i32) -> Duration {
    let nth = usize::try_from(attempts.saturating_sub(1)).unwrap_or(0);
    BACKOFF[nth.min(BACKOFF.len() - 1)]
}

/// Whether the next step of a walk is one that the walk has made before.
fn leads_back(next: &Task, job: &Job) -> bool {
    let (
        Task::Keyset { pass, span, offset, after, .. },
        Some(Task::Keyset { pass: its, span: its_span, offset: at, after: from, .. }),
    ) = (next, Task::read(&job.job_id))
    else {
        return false;
    };
    (*pass, *span) == (its, its_span) && at < *offset && *after == from
}

/// Its chance comes of the lease, so that the same decision can be made again.
fn circle_failure(held: &Lease) -> Failure {
    let mut chance = StdRng::seed_from_u64(held.fence ^ xxh3_64(held.job_id.as_bytes()));
    Failure {
        code: CURSOR_CIRCLE.0.to_owned(),
        message: CURSOR_CIRCLE.1.to_owned(),
        retry_after: None,
        is_final: false,
        jitter: jitter(&mut chance),
    }
}

/// By how much a rest is longer or shorter: from 10 to 20 per cent, either way.
pub(crate) fn jitter(chance: &mut StdRng) -> f64 {
    let size = chance.random_range(0.1..0.2);
    if chance.random::<bool>() { size } else { -size }
}

/// A while after a time.
pub(crate) fn later(time: UnixMs, by: Duration) -> UnixMs {
    let ms = time.get().saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    UnixMs::new(ms).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Mode, Pass, plan};
    use catchment_venues::polymarket::events::Span;

    const LEASE: Duration = Duration::from_secs(300);

    fn at(seconds: i64) -> UnixMs {
        UnixMs::new(1_770_000_000_000 + seconds * 1_000).unwrap()
    }

    fn two() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add(&plan(Mode::Offset, 500, 500), at(0));
        ledger
    }

    fn failed(jitter: f64) -> Write {
        let (code, message) = ("HTTP_503".to_owned(), "x".repeat(1_000));
        Write::Failed(Failure { code, message, retry_after: None, is_final: false, jitter })
    }

    #[test]
    fn a_job_is_leased_once_and_again_when_the_lease_is_over() {
        let mut ledger = two();
        assert_eq!(ledger.claim("a", 1, 10, LEASE, at(0)).len(), 2);
        assert_eq!(ledger.claim("b", 2, 10, LEASE, at(300)), []);
        assert_eq!(ledger.next_due_in(at(299)), Some(Duration::from_millis(1_001)));
        assert_eq!(ledger.claim("b", 3, 1, LEASE, at(301)).len(), 1);
        assert_eq!(ledger.jobs[0].leased_by.as_deref(), Some("b@3"));
    }

    #[test]
    fn a_stale_holder_writes_nothing() {
        let mut ledger = two();
        let (_, old) = ledger.claim("a", 1, 1, LEASE, at(0)).remove(0);
        let (_, new) = ledger.claim("a", 2, 1, LEASE, at(400)).remove(0);
        let done = Write::Done { payload_path: "p".to_owned(), records: 3, next: None };
        let before = ledger.clone();
        for write in [Write::Renew, Write::HandBack, failed(0.1), done.clone()] {
            assert_eq!(ledger.settle(&old, &write, LEASE, at(401)), Verdict::Lost);
        }
        assert_eq!(ledger, before);
        assert_eq!(ledger.settle(&new, &done, LEASE, at(401)), Verdict::Taken);
        assert_eq!(ledger.settle(&new, &Write::Renew, LEASE, at(402)), Verdict::Lost, "done is done");
    }

    #[test]
    fn failures_rest_as_the_seed_says_and_the_tenth_is_the_last() {
        let mut ledger = two();
        let mut now = 0;
        for (attempt, rest) in [(1, 33), (2, 132), (3, 660), (4, 3_960), (5, 23_760), (6, 23_760)] {
            let (_, lease) = ledger.claim("a", attempt, 1, LEASE, at(now)).remove(0);
            ledger.settle(&lease, &failed(0.1), LEASE, at(now));
            assert_eq!(ledger.jobs[0].next_attempt_at, Some(at(now + rest)), "attempt {attempt}");
            now += rest;
        }
        for attempt in 7..=10 {
            let (_, lease) = ledger.claim("a", attempt, 1, LEASE, at(now)).remove(0);
            ledger.settle(&lease, &failed(-0.2), LEASE, at(now));
            now += 18_000;
        }
        let job = &ledger.jobs[0];
        assert_eq!(
            (job.state, job.attempts, job.last_error_code.as_deref()),
            (State::Failed, 10, Some("HTTP_503"))
        );
        assert_eq!(job.last_error_message.as_ref().unwrap().len(), 300);
        assert_eq!(ledger.reset_failed(at(now)), 1);
        assert_eq!((ledger.jobs[0].state, ledger.jobs[0].attempts), (State::Pending, 0));
    }

    #[test]
    fn every_rest_is_longer_or_shorter_by_chance() {
        let mut chance = StdRng::seed_from_u64(7);
        let drawn: Vec<f64> = (0..1_000).map(|_| jitter(&mut chance)).collect();
        assert!(drawn.iter().all(|by| (0.1..0.2).contains(&by.abs())), "{drawn:?}");
        assert!((400..600).contains(&drawn.iter().filter(|by| **by > 0.0).count()));
        let circle = |fence| {
            circle_failure(&Lease {
                job_id: "closed=true&offset=500&limit=500".to_owned(),
                worker: "w".to_owned(),
                fence,
            })
        };
        assert_eq!(circle(1), circle(1));
        let rests: BTreeSet<u64> = (0..100).map(|fence| circle(fence).jitter.to_bits()).collect();
        assert_eq!(rests.len(), 100, "two workers do not rest alike");
    }

    #[test]
    fn the_venue_may_ask_for_a_longer_rest() {
        let mut ledger = two();
        let (_, lease) = ledger.claim("a", 1, 1, LEASE, at(0)).remove(0);
        let Write::Failed(failure) = failed(0.1) else { unreachable!() };
        let failure = Failure { retry_after: Some(Duration::from_secs(90)), ..failure };
        ledger.settle(&lease, &Write::Failed(failure), LEASE, at(0));
        assert_eq!(ledger.jobs[0].next_attempt_at, Some(at(90)));
    }

    #[test]
    fn a_live_lease_is_reset_by_force_only() {
        let mut ledger = two();
        let (_, lease) = ledger.claim("a", 1, 2, LEASE, at(0)).remove(0);
        assert_eq!(ledger.reset_leased(false, at(10)), (0, 2));
        assert_eq!(ledger.reset_leased(true, at(10)), (2, 0));
        assert_eq!(ledger.settle(&lease, &Write::Renew, LEASE, at(11)), Verdict::Lost);
        ledger.claim("a", 3, 2, LEASE, at(12));
        assert_eq!(ledger.reset_leased(false, at(313)), (2, 0));
    }

    #[test]
    fn one_page_of_a_walk_brings_the_next_and_never_one_that_was_there() {
        let mut ledger = Ledger::default();
        ledger.add(&plan(Mode::Keyset, 0, 500), at(0));
        let step = |offset, cursor: &str| Task::Keyset {
            pass: Pass::Open,
            span: Span::All,
            offset,
            limit: 500,
            after: Some(cursor.to_owned()),
        };
        let mut verdicts = Vec::new();
        for (fence, next) in [(1, step(500, "a")), (2, step(1_000, "b")), (3, step(1_500, "a"))] {
            let (_, lease) = ledger.claim("w", fence, 1, LEASE, at(0)).remove(0);
            let done = Write::Done { payload_path: "p".to_owned(), records: 500, next: Some(next) };
            verdicts.push(ledger.settle(&lease, &done, LEASE, at(0)));
        }
        assert_eq!(verdicts, [Verdict::Taken, Verdict::Taken, Verdict::Circle]);
        assert_eq!(ledger.jobs.len(), 3);
        assert_eq!(ledger.jobs[2].last_error_code.as_deref(), Some("CURSOR_CIRCLE"));
        assert!(!ledger.is_finished());
    }
}
