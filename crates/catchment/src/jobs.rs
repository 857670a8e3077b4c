//! The room of the jobs: the workers, and what can be seen of them. They begin when the store is open.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use catchment_collect::{
    Backfill, BackfillCounts, BackfillSettings, BackfillVenue, Courier, CourierSettings,
};
use catchment_control as control;
use catchment_governor::Governor;
use catchment_jobs::{State, Store, StoreError, WorkerCounts, WorkerSettings, Workers};
use catchment_model::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::accounts::Door;
use crate::config::{JobVenue, JobsConfig};
use crate::floorplan::House;
use crate::say;

/// How often the figures are read anew.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a page under way may take when it is time to stop.
const GRACE: Duration = Duration::from_secs(4);

/// The workers of this process.
pub(crate) struct JobsRoom {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    window: JobsWindow,
}

/// What can be seen of them.
#[derive(Clone)]
pub(crate) struct JobsWindow {
    /// None as long as the store is not open.
    workers: Arc<OnceLock<Arc<Workers>>>,
    backfill: Arc<Backfill>,
    seen: watch::Receiver<control::Jobs>,
}

impl JobsRoom {
    /// Starts the workers, once there is a store. `governors` has one for each venue with jobs.
    pub(crate) fn start(
        config: &JobsConfig,
        door: Door,
        governors: &BTreeMap<&'static str, Governor>,
        house: &House,
    ) -> anyhow::Result<Self> {
        let clock = &house.clock;
        let mut venues = Vec::new();
        for venue in &config.venues {
            let id = venue.descriptor.id();
            let governor = governors.get(id).with_context(|| format!("{id} has no governor"))?.clone();
            venues.push(served(venue, governor, clock)?);
        }
        let only = venues.iter().map(|venue| venue.venue).collect();
        let backfill = Backfill::new(venues, Arc::clone(clock), BackfillSettings::default());
        let backfill = Arc::new(backfill.recording(house.pipeline.intake()));
        let settings = WorkerSettings {
            name: format!("{}-{}", host(), std::process::id()),
            workers: config.workers,
            lease: config.lease,
            cap: config.per_exchange,
            only: Some(only),
            attempts_max: config.attempts_max,
            grace: GRACE,
            seed: rand::random(),
            ..WorkerSettings::default()
        };
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (telling, seen) = watch::channel(control::Jobs::default());
        let window = JobsWindow { workers: Arc::default(), backfill: Arc::clone(&backfill), seen };
        let (at_work, told) = (Arc::clone(&window.workers), stop.clone());
        tasks.spawn(async move {
            let store = tokio::select! {
                biased;
                () = told.cancelled() => return,
                store = door.opened() => store,
            };
            let workers = Arc::new(Workers::new(Arc::clone(&store), backfill, settings));
            let workers = Arc::clone(at_work.get_or_init(|| workers));
            tokio::join!(workers.run(told.clone()), look(store, telling, told));
        });
        Ok(Self { stop, tasks, window })
    }

    pub(crate) fn window(&self) -> JobsWindow {
        self.window.clone()
    }

    /// Every job in hand is ended or handed back, if there is time for it.
    pub(crate) async fn stop(mut self, by: Instant) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout_at(by, ended).await.is_err() {
            say(
                "catchment: a job did not come to its end in time; another process takes it over when its lease is over",
            );
        }
    }
}

impl JobsWindow {
    /// The figures, as they are shown.
    pub(crate) fn figures(&self) -> control::Jobs {
        let mut jobs = self.seen.borrow().clone();
        let WorkerCounts {
            claimed,
            succeeded,
            failed,
            dead,
            out_of_tokens,
            handed_back,
            lost,
            store_errors,
            pages,
            candles,
            running,
        } = self.workers.get().map(|workers| workers.counts()).unwrap_or_default();
        let BackfillCounts { holes, unreachable, gaps_planned, .. } = self.backfill.counts();
        jobs.runs = BTreeMap::from([
            ("claimed", claimed),
            ("success", succeeded),
            ("failed", failed),
            ("dead", dead),
            ("waiting_rate_limit", out_of_tokens),
            ("handed_back", handed_back),
            ("lost", lost),
        ]);
        jobs.store_errors = store_errors;
        jobs.in_hand = running;
        (jobs.pages, jobs.candles) = (pages, candles);
        (jobs.holes, jobs.unreachable, jobs.gaps_planned) = (holes, unreachable, gaps_planned);
        jobs
    }
}

fn served(venue: &JobVenue, governor: Governor, clock: &Arc<dyn Clock>) -> anyhow::Result<BackfillVenue> {
    let settings = CourierSettings {
        deadline: venue.speed.deadline,
        connections_max: venue.speed.max_inflight as usize,
        ..CourierSettings::default()
    };
    let courier = Courier::described(&venue.descriptor, settings, Arc::clone(clock))
        .with_context(|| format!("cannot prepare requests to {}", venue.descriptor.id()))?;
    Ok(BackfillVenue {
        venue: venue.descriptor.venue(),
        candles: venue.candles,
        base: venue.endpoints.url("rest").trim_end_matches('/').to_owned(),
        governor,
        courier: Arc::new(courier),
    })
}

/// Reads the store's own figures from time to time.
async fn look(store: Arc<dyn Store>, telling: watch::Sender<control::Jobs>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        match read(&*store).await {
            Ok(jobs) => drop(telling.send_replace(jobs)),
            Err(error) => {
                tracing::debug!(%error, "the store cannot be asked for its figures");
                telling.send_modify(|jobs| jobs.store_up = false);
            }
        }
    }
}

async fn read(store: &dyn Store) -> Result<control::Jobs, StoreError> {
    let connectors = store.connectors().await?.into_iter().map(|connector| control::Connector {
        exchange: connector.exchange_id.to_string(),
        status: connector.status.as_str().to_owned(),
        rate_limit: connector.rate_limit,
        rate_limit_usage: connector.rate_limit_usage,
        rate_limit_reset_at_ms: connector.rate_limit_reset_at.get(),
        rate_limit_saturated: connector.rate_limit_saturated,
        jobs: connector.jobs_count,
        active_jobs: connector.active_jobs_count,
    });
    let connectors: Vec<control::Connector> = connectors.collect();
    let shown = [State::Queued, State::Running, State::WaitingRateLimit];
    let mut states: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for connector in &connectors {
        for state in shown {
            states.insert((connector.exchange.clone(), state.as_str()), 0);
        }
    }
    for count in store.busy().await? {
        *states.entry((count.exchange.to_string(), count.state.as_str())).or_default() += count.jobs;
    }
    let states =
        states.into_iter().map(|((exchange, state), jobs)| control::JobState { exchange, state, jobs });
    Ok(control::Jobs { store_up: true, connectors, states: states.collect(), ..control::Jobs::default() })
}

/// This machine's name, as far as it is plain.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    if plain.is_empty() { "catchment".to_owned() } else { plain }
}
