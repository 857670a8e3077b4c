//! Missing candles become jobs.

use crate::candles::{Series, Span};
use crate::error::StoreError;
use crate::job::{Cursor, Job, JobType, NewJob};
use crate::store::Store;

/// What was found missing in a span, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapPlan {
    /// What is missing, the first so many stretches.
    pub missing: Vec<Span>,
    /// The job that was added for the first of them.
    pub added: Option<Box<Job>>,
}

/// How many stretches are looked for at once.
const SPANS_MAX: u32 = 1_000;

/// Looks for what is missing in a span and adds a `gap_backfill` for the first stretch. At most one is active for a series
/// (S2's unique index), so the next stretch is planned when that one is through: whoever ends a gap job, and every
/// incremental run, asks again. Holes of the venue are not missing.
pub async fn plan_gap(store: &dyn Store, series: &Series, span: Span) -> Result<GapPlan, StoreError> {
    let missing = store.missing(series, span, SPANS_MAX).await?;
    let Some(first) = missing.first() else { return Ok(GapPlan { missing, added: None }) };
    // Up to where whoever ends it looks for the next.
    let next = (first.to < span.to).then(|| span.to.get().to_string());
    let new = NewJob {
        cursor: Cursor { next, ..Cursor::over(first.from, Some(first.to)) },
        ..NewJob::candles(series.exchange_id, JobType::GapBackfill, &series.symbol, series.timeframe)
    };
    match store.add_job(&new).await {
        Ok(job) => Ok(GapPlan { missing, added: Some(Box::new(job)) }),
        Err(StoreError::AlreadyActive(_)) => Ok(GapPlan { missing, added: None }),
        Err(error) => Err(error),
    }
}
