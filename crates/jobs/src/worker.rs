//! Workers: claim a job, renew its lease while its handler works, write down how it ended.
//!
//! ```text
//! claim ─▶ run the handler ─────────────────▶ finish: success · waiting_rate_limit · failed · dead · handed back
//!            │ every third of the lease: renew
//!            │ lease lost: the handler is dropped, nothing is written
//!            └ stop: the handler is told; after the grace it is dropped and the job handed back
//! ```
//!
//! What follows from a run (`JobHandler::after`) is done after it was written down, and a process may die in between. So all
//! of it is looked over when workers begin and every few hours (`look_over`).
//!
//! Of the workers of a process one at a time looks for work; the others wait at the door until it has found some. So an
//! idle process asks the store once a second, however many workers it has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_model::Venue;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::events;
use crate::handler::{Done, JobHandler, RunError, Work};
use crate::job::{Job, Schedule, jittered};
use crate::store::{Claim, Claimed, Lease, Outcome, Store};

/// How workers work.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// What they are called; each has a number besides.
    pub name: String,
    /// How many.
    pub workers: usize,
    /// How long one may be silent before another takes over.
    pub lease: Duration,
    /// The longest time between two looks for work.
    pub idle: Duration,
    /// So many jobs of an exchange run at once, where its connector says nothing.
    pub cap: Option<u32>,
    /// Only of these exchanges.
    pub only: Option<Vec<Venue>>,
    /// A job that has failed so often in a row is given up.
    pub attempts_max: u32,
    /// How long a job waits after its first failure, its second, …; the last holds for all that follow. ± 20 %.
    pub retries: Vec<Duration>,
    /// How long a handler may take to end when it is told to stop.
    pub grace: Duration,
    /// How often everything is looked over for what was left undone; see [`JobHandler::look_over`].
    pub look_over: Duration,
    /// Of the jitter.
    pub seed: u64,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let seconds = |n| Duration::from_secs(n);
        Self {
            name: "worker".to_owned(),
            workers: 8,
            lease: seconds(30),
            idle: seconds(1),
            cap: None,
            only: None,
            attempts_max: 10,
            retries: [30, 120, 600, 3_600, 21_600].map(seconds).to_vec(),
            grace: seconds(10),
            look_over: seconds(6 * 3_600),
            seed: 1,
        }
    }
}

/// What the workers of a process have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerCounts {
    /// Jobs begun.
    pub claimed: u64,
    /// Runs that went well.
    pub succeeded: u64,
    /// Runs that failed and are tried again.
    pub failed: u64,
    /// Jobs given up.
    pub dead: u64,
    /// Runs that ended for want of tokens.
    pub out_of_tokens: u64,
    /// Jobs handed back unfinished.
    pub handed_back: u64,
    /// Jobs that another took over.
    pub lost: u64,
    /// Times the store could not be reached.
    pub store_errors: u64,
    /// Pages saved.
    pub pages: u64,
    /// Candles saved.
    pub candles: u64,
    /// Jobs in hand now.
    pub running: u64,
}

/// The same while they work.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    claimed: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    out_of_tokens: AtomicU64,
    handed_back: AtomicU64,
    lost: AtomicU64,
    store_errors: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) candles: AtomicU64,
    running: AtomicU64,
}

/// What came of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// A job was worked on, and is now like this; none if it was lost.
    Worked(Option<Box<Job>>),
    /// There was none.
    Nothing {
        /// When one will be due, if that is known.
        next_in: Option<Duration>,
    },
}

/// The workers of this process.
pub struct Workers {
    store: Arc<dyn Store>,
    handler: Arc<dyn JobHandler>,
    settings: WorkerSettings,
    tally: Arc<Tally>,
    rng: Mutex<StdRng>,
    /// Who looks for work.
    door: Semaphore,
}

impl Workers {
    /// They do nothing until they are run.
    pub fn new(store: Arc<dyn Store>, handler: Arc<dyn JobHandler>, settings: WorkerSettings) -> Self {
        let rng = Mutex::new(StdRng::seed_from_u64(settings.seed));
        Self { store, handler, settings, tally: Arc::default(), rng, door: Semaphore::new(1) }
    }

    /// What they have done.
    pub fn counts(&self) -> WorkerCounts {
        let tally = &*self.tally;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkerCounts {
            claimed: get(&tally.claimed),
            succeeded: get(&tally.succeeded),
            failed: get(&tally.failed),
            dead: get(&tally.dead),
            out_of_tokens: get(&tally.out_of_tokens),
            handed_back: get(&tally.handed_back),
            lost: get(&tally.lost),
            store_errors: get(&tally.store_errors),
            pages: get(&tally.pages),
            candles: get(&tally.candles),
            running: get(&tally.running),
        }
    }

    /// Works until told to stop; then every job in hand is ended or handed back.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        events::workers_began(self.settings.workers, self.settings.lease);
        let mut workers = JoinSet::new();
        for number in 0..self.settings.workers {
            let (house, stop) = (self.clone(), stop.clone());
            workers.spawn(async move { house.work(number, &stop).await });
        }
        let (house, stopped) = (self.clone(), stop.clone());
        workers.spawn(async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = house.look_over_for_ever() => {}
            }
        });
        // A worker catches what its handler does; it has nothing of its own to panic about.
        while workers.join_next().await.is_some() {}
        events::workers_ended(self.counts().handed_back);
    }

    async fn look_over_for_ever(&self) {
        // What was missed while the machine slept is done once.
        let mut again = tokio::time::interval(self.settings.look_over.max(Duration::from_secs(1)));
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            again.tick().await;
            self.look_over().await;
        }
    }

    /// What a process that died between two writes has left undone: connectors are counted anew, and the handler looks for
    /// what should have followed. May be dropped midway.
    pub async fn look_over(&self) {
        if let Err(error) = self.recount().await {
            self.count(|tally| &tally.store_errors);
            events::not_looked_over(&error);
        }
        self.handler.look_over(&self.store).await;
    }

    async fn recount(&self) -> Result<(), StoreError> {
        for connector in self.store.connectors().await? {
            self.store.recount(connector.exchange_id).await?;
        }
        Ok(())
    }

    async fn work(&self, number: usize, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let door = self.door.acquire().await.expect("it is never closed");
            let claimed = loop {
                if stop.is_cancelled() {
                    return;
                }
                let asked_at = Instant::now();
                let wait = match self.claim(number).await {
                    Ok(Claimed::Job(job, lease)) => break (*job, lease, asked_at),
                    Ok(Claimed::Nothing { next_in }) => {
                        next_in.unwrap_or(self.settings.idle).min(self.settings.idle)
                    }
                    Err(error) => {
                        self.count(|tally| &tally.store_errors);
                        let wait = jittered(self.settings.idle, self.dice());
                        events::store_unreachable(&error, wait);
                        wait
                    }
                };
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
                }
            };
            drop(door);
            let (job, lease, asked_at) = claimed;
            // What could not be written down is taken over when the lease is over.
            let _ = self.hold(job, lease, asked_at, stop).await;
        }
    }

    /// One turn of one worker: claims what is due and works on it to its end. For tests, and for whoever wants to drive.
    pub async fn turn(&self) -> Result<Turn, StoreError> {
        let asked_at = Instant::now();
        match self.claim(0).await? {
            Claimed::Nothing { next_in } => Ok(Turn::Nothing { next_in }),
            Claimed::Job(job, lease) => {
                let ended = self.hold(*job, lease, asked_at, &CancellationToken::new()).await?;
                Ok(Turn::Worked(ended.map(Box::new)))
            }
        }
    }

    async fn claim(&self, number: usize) -> Result<Claimed, StoreError> {
        let worker = format!("{}-{number}", self.settings.name);
        let ask = Claim {
            worker: &worker,
            lease: self.settings.lease,
            cap: self.settings.cap,
            only: self.settings.only.as_deref(),
        };
        let claimed = self.store.claim(&ask).await?;
        if let Claimed::Job(job, _) = &claimed {
            self.count(|tally| &tally.claimed);
            events::job_claimed(job, &worker);
        }
        Ok(claimed)
    }

    /// Runs the handler under the lease, and writes down how it ended. The job as it is then; none if it was lost.
    async fn hold(
        &self,
        job: Job,
        lease: Lease,
        asked_at: Instant,
        stop: &CancellationToken,
    ) -> Result<Option<Job>, StoreError> {
        self.tally.running.fetch_add(1, Ordering::Relaxed);
        let ended = self.run_held(&job, &lease, asked_at, stop).await;
        self.tally.running.fetch_sub(1, Ordering::Relaxed);
        let Some((outcome, held_until)) = ended else {
            self.count(|tally| &tally.lost);
            events::lease_lost(lease.job, &lease.worker);
            return Ok(None);
        };
        let finished = self.finish(&lease, &outcome, held_until).await;
        match &finished {
            Ok(ended) => {
                self.note(&job, &outcome);
                if matches!(outcome, Outcome::Success { .. } | Outcome::Dead { .. }) {
                    self.handler.after(&self.store, ended).await;
                }
            }
            Err(error) if error.is_stale() => {
                self.count(|tally| &tally.lost);
                events::lease_lost(lease.job, &lease.worker);
                return Ok(None);
            }
            Err(_) => {}
        }
        finished.map(Some)
    }

    /// Until the handler ends, the lease is lost (`None`) or it is time to stop.
    async fn run_held(
        &self,
        job: &Job,
        lease: &Lease,
        asked_at: Instant,
        stop: &CancellationToken,
    ) -> Option<(Outcome, Instant)> {
        let told = CancellationToken::new();
        let has_saved = Arc::new(AtomicBool::new(false));
        let work = Work {
            store: self.store.clone(),
            job: job.clone(),
            lease: lease.clone(),
            cursor: Mutex::new(job.cursor.clone()),
            stop: told.clone(),
            tally: self.tally.clone(),
            has_saved: has_saved.clone(),
        };
        let handler = self.handler.clone();
        // In a task of its own, so that a panic is a failure of this run. Dropped, it is ended.
        let mut run = JoinSet::new();
        run.spawn(async move { handler.run(&work).await });
        let lasts = self.settings.lease;
        let mut held_until = asked_at + lasts;
        let mut renew_at = asked_at + lasts / 3;
        let mut give_up_at: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                ended = run.join_next() => {
                    let ended = ended.expect("one was spawned");
                    // A page that was saved makes up for what failed before it.
                    let attempts = if has_saved.load(Ordering::Relaxed) { 0 } else { job.attempts };
                    return self.outcome(job, attempts, ended).map(|outcome| (outcome, held_until));
                }
                () = stop.cancelled(), if give_up_at.is_none() => {
                    told.cancel();
                    give_up_at = Some(Instant::now() + self.settings.grace);
                }
                () = tokio::time::sleep_until(give_up_at.unwrap_or(renew_at)), if give_up_at.is_some() => {
                    return Some((Outcome::HandedBack, held_until));
                }
                () = tokio::time::sleep_until(renew_at) => {
                    let asked_at = Instant::now();
                    match self.store.renew(lease).await {
                        Ok(standing) => {
                            held_until = asked_at + lasts;
                            renew_at = asked_at + lasts / 3;
                            if !standing.is_wanted {
                                told.cancel();
                            }
                        }
                        Err(error) if error.is_stale() => return None,
                        Err(error) => {
                            self.count(|tally| &tally.store_errors);
                            renew_at = Instant::now() + lasts / 10;
                            events::store_unreachable(&error, lasts / 10);
                            if Instant::now() >= held_until {
                                return None;
                            }
                        }
                    }
                }
            }
        }
    }

    /// What the handler's end means; none if it says that the lease is lost.
    fn outcome(
        &self,
        job: &Job,
        attempts: u32,
        ended: Result<Result<Done, RunError>, JoinError>,
    ) -> Option<Outcome> {
        let interval = match job.schedule {
            Schedule::Interval { interval_ms } => Duration::from_millis(interval_ms),
            Schedule::Once => Duration::ZERO,
        };
        let outcome = match ended {
            Ok(Ok(Done::ForNow)) => Outcome::Success { next_in: Some(jittered(interval, self.dice())) },
            Ok(Ok(Done::ForGood)) => match job.schedule {
                Schedule::Interval { .. } => {
                    Outcome::Success { next_in: Some(jittered(interval, self.dice())) }
                }
                Schedule::Once => Outcome::Success { next_in: None },
            },
            Ok(Ok(Done::OutOfTokens { retry_after })) => Outcome::WaitRateLimit { retry_after },
            Ok(Ok(Done::Stopped) | Err(RunError::Unwanted)) => Outcome::HandedBack,
            Ok(Err(RunError::Failed { reason, not_before })) => self.failed(attempts, reason, not_before),
            Ok(Err(RunError::Hopeless(reason))) => Outcome::Dead { error: reason },
            Ok(Err(RunError::Store(error))) if error.is_stale() => return None,
            // Not the job's fault; whoever takes it next goes on from its cursor.
            Ok(Err(RunError::Store(error))) if error.is_passing() => Outcome::HandedBack,
            Ok(Err(RunError::Store(error))) => self.failed(attempts, error.to_string(), None),
            Err(panicked) => self.failed(attempts, format!("its handler panicked: {panicked}"), None),
        };
        Some(outcome)
    }

    fn failed(&self, attempts: u32, error: String, not_before: Option<Duration>) -> Outcome {
        if attempts + 1 >= self.settings.attempts_max {
            return Outcome::Dead { error };
        }
        let at = (attempts as usize).min(self.settings.retries.len().saturating_sub(1));
        let rest = self.settings.retries.get(at).copied().unwrap_or_default();
        let rest = rest.mul_f64(0.8 + 0.4 * self.dice());
        Outcome::Failed { error, retry_in: rest.max(not_before.unwrap_or_default()) }
    }

    /// A store that cannot be reached is asked again for as long as the lease lasts.
    async fn finish(&self, lease: &Lease, outcome: &Outcome, held_until: Instant) -> Result<Job, StoreError> {
        loop {
            let error = match self.store.finish(lease, outcome).await {
                Err(error) if error.is_passing() => error,
                answer => return answer,
            };
            self.count(|tally| &tally.store_errors);
            if Instant::now() >= held_until {
                return Err(error);
            }
            let wait = jittered(self.settings.idle, self.dice());
            events::store_unreachable(&error, wait);
            tokio::time::sleep(wait).await;
        }
    }

    fn note(&self, job: &Job, outcome: &Outcome) {
        match outcome {
            Outcome::Success { .. } => self.count(|tally| &tally.succeeded),
            Outcome::WaitRateLimit { .. } => self.count(|tally| &tally.out_of_tokens),
            Outcome::HandedBack => self.count(|tally| &tally.handed_back),
            Outcome::Failed { error, retry_in } => {
                self.count(|tally| &tally.failed);
                events::job_failed(job, error, *retry_in);
            }
            Outcome::Dead { error } => {
                self.count(|tally| &tally.dead);
                events::job_dead(job, error);
            }
        }
    }

    fn count(&self, which: impl FnOnce(&Tally) -> &AtomicU64) {
        which(&self.tally).fetch_add(1, Ordering::Relaxed);
    }

    /// From 0 to 1.
    fn dice(&self) -> f64 {
        self.rng.lock().expect("no holder of this lock can panic").random_range(0.0..=1.0)
    }
}
