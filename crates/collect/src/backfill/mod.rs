//! What jobs do: history, what is new, and what is missing, page by page, each page with a permit.
//!
//! ```text
//! Workers ─▶ Backfill::run ─▶ Errand::send ─(permit, Courier)─▶ venue
//!                 │                                              │
//!                 └── Work::save: page, holes and cursor ◀── CandleVenue::read, final ones only
//! ```
//!
//! * `errand`: one request: waits for its permit for a while, tries again what may pass, and says how a run ends otherwise
//! * `candles`: `ohlcv_backfill`, `ohlcv_incremental`, `gap_backfill`
//! * `first`: where a venue's history begins
//! * `holes`: which candles an answer lacks
//! * `markets`: `markets_refresh`; `trades`: `trades_backfill`; `gaps`: a stream's gap becomes such a job
//!
//! A page is saved together with how far the job is with it; whoever takes over goes on from there, so a worker that dies
//! costs the page it was about. Pages of a job are fetched one after the other: what uses a venue's whole budget is several
//! jobs at once.
//!
//! Deliberately absent: schedules, leases and retries of whole jobs, which are the workers'.

mod candles;
mod errand;
mod first;
mod gaps;
mod holes;
mod markets;
mod trades;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catchment_governor::Governor;
use catchment_jobs::{Done, Job, JobHandler, JobType, RunError, Store, Work};
use catchment_model::{Clock, Venue};
use catchment_pipeline::Intake;
use catchment_venues::candles::CandleVenue;

use crate::Courier;
use errand::{Errand, Halt};
pub use gaps::{GapNotice, backfill_gaps, gaps_of_absence};

/// A venue whose history can be asked for.
#[derive(Clone)]
pub struct BackfillVenue {
    /// Which.
    pub venue: Venue,
    /// How its candles are asked for.
    pub candles: &'static CandleVenue,
    /// Where its REST is, without a slash at the end.
    pub base: String,
    /// When it may be asked.
    pub governor: Governor,
    /// How it is asked.
    pub courier: Arc<Courier>,
}

/// How history is fetched.
#[derive(Debug, Clone, Copy)]
pub struct BackfillSettings {
    /// How long a job waits for a permit before it makes room for another and is tried again when there is one.
    pub patience: Duration,
    /// How long after its close a candle may still be on its way into the venue's history. Only what is older can be missing.
    pub settle: Duration,
    /// How long after an answer without candles, where some were missing, the venue is asked once more.
    pub doubt: Duration,
    /// How often a page is asked for before its run has failed.
    pub tries: u32,
    /// How many of the newest candles are looked through for missing ones after each incremental run.
    pub look_back: u32,
}

impl Default for BackfillSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { patience: seconds(2), settle: seconds(90), doubt: seconds(120), tries: 3, look_back: 5_000 }
    }
}

/// What has come of it, over all jobs of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackfillCounts {
    /// Requests that were answered as they should be.
    pub pages: u64,
    /// Requests that were not.
    pub failures: u64,
    /// Requests that a venue refused as too many.
    pub refusals: u64,
    /// Stretches noted that a venue has no candles of.
    pub holes: u64,
    /// Stretches that a venue will never give any more.
    pub unreachable: u64,
    /// Jobs added for missing candles.
    pub gaps_planned: u64,
    /// Trades recorded.
    pub trades: u64,
}

#[derive(Debug, Default)]
struct Tally {
    pages: AtomicU64,
    failures: AtomicU64,
    refusals: AtomicU64,
    holes: AtomicU64,
    unreachable: AtomicU64,
    gaps_planned: AtomicU64,
    trades: AtomicU64,
}

/// Does the jobs of S2.
pub struct Backfill {
    venues: BTreeMap<Venue, BackfillVenue>,
    clock: Arc<dyn Clock>,
    settings: BackfillSettings,
    /// Where trades and listings go; candles go into the store.
    intake: Option<Intake>,
    tally: Tally,
}

impl Backfill {
    /// For these venues.
    pub fn new(
        venues: impl IntoIterator<Item = BackfillVenue>,
        clock: Arc<dyn Clock>,
        settings: BackfillSettings,
    ) -> Self {
        let venues = venues.into_iter().map(|venue| (venue.venue, venue)).collect();
        Self { venues, clock, settings, intake: None, tally: Tally::default() }
    }

    /// Trades and listings go here. Without it there are none.
    #[must_use]
    pub fn recording(self, intake: Intake) -> Self {
        Self { intake: Some(intake), ..self }
    }

    /// What has come of it so far.
    pub fn counts(&self) -> BackfillCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tally = &self.tally;
        BackfillCounts {
            pages: get(&tally.pages),
            failures: get(&tally.failures),
            refusals: get(&tally.refusals),
            holes: get(&tally.holes),
            unreachable: get(&tally.unreachable),
            gaps_planned: get(&tally.gaps_planned),
            trades: get(&tally.trades),
        }
    }

    fn errand<'a>(&'a self, work: &'a Work) -> Result<Errand<'a>, RunError> {
        let exchange = work.job().exchange_id;
        let venue = self.venues.get(&exchange).ok_or_else(|| {
            RunError::failed(format!(
                "this process cannot ask {exchange}; another may, or the configuration lacks it"
            ))
        })?;
        Ok(Errand { work, venue, clock: &*self.clock, settings: self.settings, tally: &self.tally })
    }
}

#[async_trait]
impl JobHandler for Backfill {
    async fn run(&self, work: &Work) -> Result<Done, RunError> {
        let errand = self.errand(work)?;
        let ended = match work.job().kind {
            JobType::OhlcvBackfill => candles::backfill(&errand).await,
            JobType::OhlcvIncremental => candles::incremental(&errand).await,
            JobType::GapBackfill => candles::gap(&errand).await,
            JobType::MarketsRefresh => markets::markets(&errand, self.intake.as_ref()).await,
            JobType::TradesBackfill => trades::trades(&errand, self.intake.as_ref()).await,
        };
        match ended {
            Ok(done) | Err(Halt::Done(done)) => Ok(done),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    async fn after(&self, store: &Arc<dyn Store>, job: &Job) {
        candles::look_for_gaps(self, &**store, job).await;
    }

    async fn look_over(&self, store: &Arc<dyn Store>) {
        candles::look_for_all_gaps(self, &**store).await;
    }
}
