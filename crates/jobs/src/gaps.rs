//! Missing candles become jobs.

use std::time::Duration;

use crate::candles::{Series, Span};
use crate::error::StoreError;
use crate::events;
use crate::job::{Cursor, Job, JobFilter, JobType, NewJob, Page, State};
use crate::store::Store;
use crate::time::between;

/// What was found missing in a span, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapPlan {
    /// What is missing, the first so many stretches.
    pub missing: Vec<Span>,
    /// The job that was added for the first of them that may be asked for.
    pub added: Option<Box<Job>>,
}

/// How many stretches are looked for at once.
const SPANS_MAX: u32 = 1_000;

/// How long a stretch is left alone whose job was given up: others come first, and a venue that refuses is not asked for ever.
const DEAD_REST: Duration = Duration::from_secs(6 * 3_600);

/// Looks for what is missing in a span and adds a `gap_backfill` for the first stretch. At most one is active for a series
/// (S2's unique index), so the next stretch is planned when that one is through: whoever ends a gap job, and every
/// incremental run, asks again, and so does whoever looks over all of it now and then. Holes of the venue are not missing. A
/// stretch whose job was given up is passed over for some hours; then a new job takes the place of the dead one.
pub async fn plan_gap(store: &dyn Store, series: &Series, span: Span) -> Result<GapPlan, StoreError> {
    let missing = store.missing(series, span, SPANS_MAX).await?;
    if missing.is_empty() {
        return Ok(GapPlan { missing, added: None });
    }
    let dead = dead_jobs(store, series).await?;
    let now = store.now().await?;
    let is_resting = |job: &&Job| between(job.updated_at, now) < DEAD_REST;
    let first = missing.iter().find(|span| !dead.iter().filter(is_resting).any(|job| touches(job, span)));
    let Some(first) = first.copied() else { return Ok(GapPlan { missing, added: None }) };
    // Up to where whoever ends it looks for the next.
    let next = (first.to < span.to).then(|| span.to.get().to_string());
    let new = NewJob {
        cursor: Cursor { next, ..Cursor::over(first.from, Some(first.to)) },
        ..NewJob::candles(series.exchange_id, JobType::GapBackfill, &series.symbol, series.timeframe)
    };
    let added = match store.add_job(&new).await {
        Ok(job) => job,
        Err(StoreError::AlreadyActive(_)) => return Ok(GapPlan { missing, added: None }),
        Err(error) => return Err(error),
    };
    for old in dead.iter().filter(|job| touches(job, &first)) {
        store.delete_job(old.id).await?;
        events::dead_job_replaced(old);
    }
    Ok(GapPlan { missing, added: Some(Box::new(added)) })
}

/// Those that were given up.
async fn dead_jobs(store: &dyn Store, series: &Series) -> Result<Vec<Job>, StoreError> {
    let filter = JobFilter {
        exchange_id: Some(series.exchange_id),
        kind: Some(JobType::GapBackfill),
        symbol: Some(series.symbol.clone()),
        timeframe: Some(series.timeframe),
        state: Some(State::Dead),
        ..JobFilter::default()
    };
    store.jobs(&filter, Page::first(Page::LIMIT_MAX)).await
}

/// Whether the job was for some of it.
fn touches(job: &Job, span: &Span) -> bool {
    job.cursor.since_ms < span.to && job.cursor.until_ms.is_none_or(|until| until > span.from)
}
