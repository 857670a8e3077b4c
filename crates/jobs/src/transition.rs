//! What happens to a job, as plain functions on the document. Stores that read, change and write within one transaction
//! use them as they are; the others say the same in their own language, and the conformance suite holds both to it.

use catchment_model::UnixMs;

use crate::error::StoreError;
use crate::job::{Job, JobPatch, Lock, Schedule, State, Status, short_error};
use crate::store::{Claim, Lease, Outcome, PageSave, Standing};
use crate::time::after;

/// A worker takes it.
pub(crate) fn claim(job: &mut Job, ask: &Claim<'_>, now: UnixMs) -> Lease {
    job.state = State::Running;
    job.fence += 1;
    job.lock = Lock { locked_by: Some(ask.worker.to_owned()), lock_until: Some(after(now, ask.lease)) };
    job.stats.runs += 1;
    job.stats.last_run_at = Some(now);
    job.updated_at = now;
    Lease { job: job.id, worker: ask.worker.to_owned(), fence: job.fence, lasts: ask.lease }
}

/// Refuses whoever does not hold it any more.
pub(crate) fn check(job: &Job, lease: &Lease) -> Result<(), StoreError> {
    let is_held = job.state == State::Running
        && job.fence == lease.fence
        && job.lock.locked_by.as_deref() == Some(lease.worker.as_str());
    if is_held { Ok(()) } else { Err(StoreError::Stale { job: lease.job, fence: lease.fence }) }
}

/// Its holder is alive.
pub(crate) fn renew(job: &mut Job, lease: &Lease, now: UnixMs) -> Result<Standing, StoreError> {
    check(job, lease)?;
    let lock_until = after(now, lease.lasts);
    job.lock.lock_until = Some(lock_until);
    job.updated_at = now;
    Ok(Standing { lock_until, is_wanted: job.status == Status::Active })
}

/// Its holder has a page.
pub(crate) fn save_page(
    job: &mut Job,
    lease: &Lease,
    page: &PageSave<'_>,
    now: UnixMs,
) -> Result<Standing, StoreError> {
    let standing = renew(job, lease, now)?;
    page.cursor.check()?;
    job.cursor = page.cursor.clone();
    // It gets on: what failed before is over.
    job.attempts = 0;
    Ok(standing)
}

/// Whether its holder has said the same before: only the end of a run takes a job out of its hands and leaves the fence alone.
/// Whoever says it again, because the answer was lost, is told the same.
pub(crate) fn is_finished(job: &Job, lease: &Lease, outcome: &Outcome) -> bool {
    let state = match outcome {
        Outcome::Success { next_in: Some(_) } => State::Idle,
        Outcome::Success { next_in: None } => State::Success,
        Outcome::WaitRateLimit { .. } => State::WaitingRateLimit,
        Outcome::Failed { .. } => State::Failed,
        Outcome::Dead { .. } => State::Dead,
        Outcome::HandedBack => State::Queued,
    };
    job.fence == lease.fence && job.state == state && job.status != Status::Deleted
}

/// Its holder is through with it.
pub(crate) fn finish(job: &mut Job, lease: &Lease, outcome: &Outcome, now: UnixMs) -> Result<(), StoreError> {
    if is_finished(job, lease, outcome) {
        return Ok(());
    }
    check(job, lease)?;
    job.lock = Lock::default();
    job.updated_at = now;
    match outcome {
        Outcome::Success { next_in } => {
            job.stats.success += 1;
            job.stats.last_success_at = Some(now);
            job.stats.last_error = None;
            job.attempts = 0;
            match next_in {
                Some(length) => {
                    job.state = State::Idle;
                    job.next_run_at = after(now, *length);
                }
                None => {
                    job.state = State::Success;
                    job.cursor.done = true;
                    make_room(job);
                }
            }
        }
        Outcome::WaitRateLimit { retry_after } => {
            job.state = State::WaitingRateLimit;
            job.next_run_at = after(now, *retry_after);
        }
        Outcome::Failed { error, retry_in } => {
            failed(job, error);
            job.state = State::Failed;
            job.next_run_at = after(now, *retry_in);
        }
        Outcome::Dead { error } => {
            failed(job, error);
            job.state = State::Dead;
            if job.schedule == Schedule::Once {
                make_room(job);
            }
        }
        Outcome::HandedBack => {
            job.state = State::Queued;
            job.next_run_at = now;
        }
    }
    Ok(())
}

/// It rests, and another of its kind may be added: one that is over, or given up, does not stand in the way of what is
/// wanted later. A job that runs again and again keeps its place, so that nobody adds a second beside it.
fn make_room(job: &mut Job) {
    if job.status == Status::Active {
        job.status = Status::Paused;
    }
}

fn failed(job: &mut Job, error: &str) {
    job.stats.fail += 1;
    job.stats.last_error = Some(short_error(error));
    job.attempts = job.attempts.saturating_add(1);
}

/// Its owner changes it.
pub(crate) fn patch(job: &mut Job, patch: &JobPatch, now: UnixMs) -> Result<(), StoreError> {
    patch.check()?;
    not_deleted(job)?;
    if patch.cursor.is_some() && job.state == State::Running {
        return Err(StoreError::Conflict {
            id: job.id,
            reason: "is running; its cursor can be set when it is not",
        });
    }
    job.schedule = patch.schedule.unwrap_or(job.schedule);
    job.next_run_at = patch.next_run_at.unwrap_or(job.next_run_at);
    job.priority = patch.priority.unwrap_or(job.priority);
    if let Some(cursor) = &patch.cursor {
        job.cursor = cursor.clone();
    }
    job.updated_at = now;
    Ok(())
}

/// Its owner does not want it begun again.
pub(crate) fn pause(job: &mut Job, now: UnixMs) -> Result<(), StoreError> {
    not_deleted(job)?;
    job.status = Status::Paused;
    job.updated_at = now;
    Ok(())
}

/// Its owner wants it again.
pub(crate) fn resume(job: &mut Job, now: UnixMs) -> Result<(), StoreError> {
    not_deleted(job)?;
    job.status = Status::Active;
    if matches!(job.state, State::Success | State::Dead | State::Failed) {
        make_due(job, State::Idle, now);
    }
    job.updated_at = now;
    Ok(())
}

/// Its owner wants it now.
pub(crate) fn run_now(job: &mut Job, now: UnixMs) -> Result<(), StoreError> {
    // One that was given up rests without anybody having asked for it.
    if job.status == Status::Paused && job.state == State::Dead {
        job.status = Status::Active;
    }
    if job.status != Status::Active {
        return Err(StoreError::Conflict { id: job.id, reason: "is not active; resume it first" });
    }
    if job.state != State::Running {
        make_due(job, State::Queued, now);
        job.updated_at = now;
    }
    Ok(())
}

/// Its owner does not want it any more.
pub(crate) fn delete(job: &mut Job, now: UnixMs) {
    if job.status == Status::Deleted {
        return;
    }
    job.status = Status::Deleted;
    job.fence += 1;
    job.lock = Lock::default();
    if job.state == State::Running {
        job.state = State::Idle;
    }
    job.updated_at = now;
}

fn make_due(job: &mut Job, state: State, now: UnixMs) {
    job.state = state;
    job.next_run_at = now;
    job.attempts = 0;
    job.cursor.done = false;
}

fn not_deleted(job: &Job) -> Result<(), StoreError> {
    if job.status == Status::Deleted {
        return Err(StoreError::Conflict { id: job.id, reason: "is deleted; add another" });
    }
    Ok(())
}
