//! Simulated exchanges, a store in a file, and workers that are driven turn by turn.

use std::sync::Arc;
use std::time::Duration;

use catchment_collect::{Backfill, BackfillSettings, BackfillVenue, Courier, CourierSettings, stream};
use catchment_governor::{Governor, Limits, Open, Parts, Settings};
use catchment_jobs::{
    BudgetSettings, Cursor, Job, JobType, NewJob, Series, Span, SqliteStore, Store, StoreBudget, Turn,
    WorkerSettings, Workers,
};
use catchment_model::{Clock, SystemClock, Timeframe, UnixMs, Venue};
use catchment_sim::{Sim, SimConfig};
use catchment_venues::candles::candles_of;
use catchment_venues::stream::Descriptor;
use tempfile::TempDir;

pub(crate) const MINUTE: i64 = 60_000;

/// What a test stands on.
pub(crate) struct Rig {
    pub(crate) sim: Sim,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) workers: Workers,
    pub(crate) backfill: Arc<Backfill>,
    pub(crate) governor: Governor,
    pub(crate) now: UnixMs,
    pub(crate) id: &'static str,
    _dir: TempDir,
}

/// The present minute.
pub(crate) fn this_minute() -> UnixMs {
    Timeframe::M1.open_of(SystemClock::new().wall().ms())
}

pub(crate) fn at(ms: i64) -> UnixMs {
    UnixMs::new(ms).unwrap()
}

impl Rig {
    /// One exchange; the simulation as told by pairs of path and value.
    pub(crate) async fn new(id: &'static str, sim: &[(&str, String)]) -> Self {
        Self::with(id, sim, None).await
    }

    pub(crate) async fn with(
        id: &'static str,
        sim: &[(&str, String)],
        intake: Option<catchment_pipeline::Intake>,
    ) -> Self {
        let mut config = SimConfig::default();
        for (path, value) in sim {
            config = config.with(path, value).unwrap();
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let sim = Sim::start(config, Arc::clone(&clock)).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path().join("jobs.db")).await.unwrap());
        let descriptor = Descriptor::find(id).unwrap();
        let limits = Limits::new(stream::families_of(&descriptor), 1.0).unwrap();
        let opened = StoreBudget::open(
            Arc::clone(&store),
            descriptor.venue(),
            limits.clone(),
            Arc::clone(&clock),
            BudgetSettings::default(),
        );
        let (budget, _giving_back) = opened.await.unwrap();
        let parts = Parts {
            clock: Arc::clone(&clock),
            budget: Arc::new(budget),
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed: 1,
        };
        let governor = Governor::open(id, limits, Settings::default(), parts);
        let courier =
            Courier::described(&descriptor, CourierSettings::default(), Arc::clone(&clock)).unwrap();
        let venue = BackfillVenue {
            venue: descriptor.venue(),
            candles: candles_of(id).unwrap(),
            base: sim.base(&format!("{id}/rest")),
            governor: governor.clone(),
            courier: Arc::new(courier),
        };
        let settings =
            BackfillSettings { patience: Duration::from_millis(1_500), ..BackfillSettings::default() };
        let mut backfill = Backfill::new([venue], clock, settings);
        if let Some(intake) = intake {
            backfill = backfill.recording(intake);
        }
        let backfill = Arc::new(backfill);
        let workers = Workers::new(Arc::clone(&store), backfill.clone(), WorkerSettings::default());
        Self { sim, store, workers, backfill, governor, now: this_minute(), id, _dir: dir }
    }

    pub(crate) fn venue(&self) -> Venue {
        Venue::new(self.id).unwrap()
    }

    pub(crate) fn series(&self, symbol: &str) -> Series {
        Series { exchange_id: self.venue(), symbol: symbol.to_owned(), timeframe: Timeframe::M1 }
    }

    pub(crate) async fn add(&self, kind: JobType, symbol: &str, cursor: Cursor) -> Job {
        let new = NewJob { cursor, ..NewJob::candles(self.venue(), kind, symbol, Timeframe::M1) };
        self.store.add_job(&new).await.unwrap()
    }

    /// One run of whatever is due; it must be.
    pub(crate) async fn turn(&self) -> Job {
        match self.workers.turn().await.unwrap() {
            Turn::Worked(Some(job)) => *job,
            other => panic!("nothing was worked on: {other:?}"),
        }
    }

    /// Runs what is due until nothing is, or only later than a few seconds.
    pub(crate) async fn work(&self) -> Vec<Job> {
        let mut ended = Vec::new();
        loop {
            match self.workers.turn().await.unwrap() {
                Turn::Worked(Some(job)) => ended.push(*job),
                Turn::Worked(None) => panic!("a lease was lost"),
                Turn::Nothing { next_in: Some(wait) } if wait < Duration::from_secs(6) => {
                    tokio::time::sleep(wait).await;
                }
                Turn::Nothing { .. } => return ended,
            }
        }
    }

    /// Minutes back from now.
    pub(crate) fn ago(&self, minutes: i64) -> UnixMs {
        at(self.now.get() - minutes * MINUTE)
    }

    pub(crate) async fn missing(&self, symbol: &str, from: UnixMs) -> Vec<Span> {
        let span = Span::new(from, self.ago(2)).unwrap();
        self.store.missing(&self.series(symbol), span, 100).await.unwrap()
    }

    pub(crate) fn requests(&self, endpoint: &str) -> u64 {
        self.sim.stats()[self.id].get(endpoint).map_or(0, |stats| stats.requests)
    }
}
