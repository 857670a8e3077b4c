//! What a job does, and what it may use while it does it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use catchment_model::Candle;
use tokio_util::sync::CancellationToken;

use crate::candles::Hole;
use crate::error::StoreError;
use crate::job::{Cursor, Job};
use crate::store::{Lease, PageSave, Store};
use crate::worker::Tally;

/// Does jobs. One serves all workers.
#[async_trait]
pub trait JobHandler: Send + Sync {
    /// Works on a job from its cursor on. The future is dropped when the lease is lost, so it must leave nothing half done
    /// outside the store. It looks at [`Work::is_stopping`] between pages, and gives up by `?` when [`Work::save`] says so.
    async fn run(&self, work: &Work) -> Result<Done, RunError>;

    /// A run went well, or the job was given up, and that is written down: for what follows from it, such as another job.
    /// Nobody waits for it to succeed; it is not called if the process dies first.
    async fn after(&self, _store: &Arc<dyn Store>, _job: &Job) {}

    /// When workers begin, and every so often: looks for what should have followed from runs that ended, and did not because a
    /// process died in between. Several processes may do so at once.
    async fn look_over(&self, _store: &Arc<dyn Store>) {}
}

/// How a run ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// This time; an interval job runs again at its next time, another goes on at once.
    ForNow,
    /// For good: there is nothing more to fetch.
    ForGood,
    /// There are no tokens left; it goes on when there are.
    OutOfTokens {
        /// As the budget said.
        retry_after: Duration,
    },
    /// Midway, because it was asked to stop.
    Stopped,
}

/// How a run ended otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It failed and may be tried again.
    #[error("{reason}")]
    Failed {
        /// In words, for the job's `last_error`.
        reason: String,
        /// Not before; what a venue's Retry-After says.
        not_before: Option<Duration>,
    },
    /// It failed, and trying again is of no use.
    #[error("{0}")]
    Hopeless(String),
    /// The job was paused or the program stops; what is saved is saved.
    #[error("the job is not wanted any more")]
    Unwanted,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RunError {
    /// A failure in words.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), not_before: None }
    }
}

/// A job in somebody's hands.
pub struct Work {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) job: Job,
    pub(crate) lease: Lease,
    pub(crate) cursor: Mutex<Cursor>,
    pub(crate) stop: CancellationToken,
    pub(crate) tally: Arc<Tally>,
    /// Whether a page was saved in this run.
    pub(crate) has_saved: Arc<AtomicBool>,
}

impl Work {
    /// The job as it was claimed.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The right to it.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The store it is in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How far it is: as claimed, then as last saved.
    pub fn cursor(&self) -> Cursor {
        self.cursor.lock().expect("no holder of this lock can panic").clone()
    }

    /// Saves a page: its candles, where the venue has none, and how far the job is with it. Gives up when the lease is lost
    /// or the job was paused.
    pub async fn save(&self, cursor: Cursor, candles: &[Candle], holes: &[Hole]) -> Result<(), RunError> {
        let page = PageSave { cursor: &cursor, candles, holes };
        let standing = self.store.save_page(&self.lease, &page).await?;
        self.has_saved.store(true, Ordering::Relaxed);
        self.tally.pages.fetch_add(1, Ordering::Relaxed);
        self.tally.candles.fetch_add(candles.len() as u64, Ordering::Relaxed);
        *self.cursor.lock().expect("no holder of this lock can panic") = cursor;
        if standing.is_wanted { Ok(()) } else { Err(RunError::Unwanted) }
    }

    /// Whether the job is still this worker's; directly before something is written that the store cannot refuse. Gives up when
    /// the lease is lost or the job was paused.
    pub async fn renew(&self) -> Result<(), RunError> {
        let standing = self.store.renew(&self.lease).await?;
        if standing.is_wanted { Ok(()) } else { Err(RunError::Unwanted) }
    }

    /// Whether to stop at the next good moment.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ends when it is time to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }
}
