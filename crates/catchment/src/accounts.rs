//! The store that jobs and budgets are in, and the accounts that this process spends from.
//!
//! A store that cannot be reached when the program starts is waited for: everything else begins, the API answers 503, whoever
//! spends from an account in the store gets no permit, and jobs begin once it is open.
//!
//! ```text
//! Accounts::open ─▶ tried once ─▶ budget(): a LateBudget each ─▶ Opening::run ─▶ Door: API, workers, gaps
//!                                    nothing is granted yet        │ until the store and every account are open
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::Context;
use catchment_collect::GapNotice;
use catchment_governor::limiter::Used;
use catchment_governor::{Answer, Bill, Budget, Charge, FamilyId, Fill, Limits, Reply};
use catchment_jobs::{BudgetSettings, Store, StoreBudget, StoreError};
use catchment_model::{Clock, Monotonic, Venue};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, JobsConfig, StoreConfig};
use crate::{say, store};

/// How long is waited before the store is tried again; twice as long each time,
const AGAIN: Duration = Duration::from_millis(500);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// When whoever asks an account that is not open is told to ask again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The accounts of this process.
pub(crate) struct Accounts {
    opening: Opening,
    door: Door,
    shares_all: bool,
    with_jobs: Vec<&'static str>,
    gaps: mpsc::Sender<GapNotice>,
    /// What streams say they have missed.
    pub(crate) told: Option<mpsc::Receiver<GapNotice>>,
}

/// Where the store is found once it is open.
#[derive(Clone)]
pub(crate) struct Door(watch::Receiver<Option<Arc<dyn Store>>>);

impl Door {
    /// If it is open.
    pub(crate) fn store(&self) -> Option<Arc<dyn Store>> {
        self.0.borrow().clone()
    }

    /// Waits until it is.
    pub(crate) async fn opened(mut self) -> Arc<dyn Store> {
        loop {
            if let Some(store) = self.store() {
                return store;
            }
            if self.0.changed().await.is_err() {
                // Nobody opens it any more: the program ends.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Accounts {
    /// Opens the store if anything here needs it, and fills it from the configuration. One that cannot be reached is left for
    /// later; one that is wrong is an error.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Option<Self>> {
        let shares_all = config.store.shares_all;
        if config.jobs.is_none() && !shares_all {
            return Ok(None);
        }
        let (tell, door) = watch::channel(None);
        let opening = Opening {
            place: config.store.clone(),
            jobs: config.jobs.clone(),
            store: None,
            accounts: Arc::default(),
            tell,
        };
        let venues = config.jobs.iter().flat_map(|jobs| &jobs.venues);
        let with_jobs = venues.map(|venue| venue.descriptor.id()).collect();
        // Full: the gap is in the data, and nobody is told to fill it.
        let (gaps, told) = mpsc::channel(1_024);
        let mut accounts = Self { opening, door: Door(door), shares_all, with_jobs, gaps, told: Some(told) };
        match accounts.opening.open().await {
            Err(error) if !is_passing(&error) => Err(error),
            // What passes is told by whoever tries again.
            _ => Ok(Some(accounts)),
        }
    }

    /// Whom to tell what a stream of that venue has missed.
    pub(crate) fn gaps_of(&self, id: &str) -> Option<mpsc::Sender<GapNotice>> {
        self.with_jobs.contains(&id).then(|| self.gaps.clone())
    }

    /// Where the store is, once it is open.
    pub(crate) fn door(&self) -> Door {
        self.door.clone()
    }

    /// The account of a venue, if its limits are kept in the store. It gives nothing until it is open.
    pub(crate) fn budget(
        &self,
        id: &'static str,
        limits: &Limits,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Arc<dyn Budget>>> {
        if !self.shares_all && !self.with_jobs.contains(&id) {
            return Ok(None);
        }
        let venue = Venue::new(id).with_context(|| format!("{id} is no name of a venue"))?;
        let budget = Arc::new(LateBudget { limits: limits.clone(), opened: OnceLock::new() });
        let account = Account { venue, budget: Arc::clone(&budget), clock: Arc::clone(clock) };
        self.opening.accounts.lock().expect("no holder of this lock can panic").push(account);
        Ok(Some(budget))
    }

    /// What opens the rest; to be run once every account was asked for. Where the store is open, that is done here, so that
    /// what is wrong is told at once.
    pub(crate) async fn rest(self) -> anyhow::Result<Opening> {
        let mut opening = self.opening;
        if opening.store.is_none() {
            return Ok(opening);
        }
        match opening.open_all().await {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(opening),
        }
    }
}

/// Whether it may be otherwise later.
fn is_passing(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_passing))
}

/// What is to be opened.
pub(crate) struct Opening {
    place: StoreConfig,
    jobs: Option<JobsConfig>,
    store: Option<Arc<dyn Store>>,
    accounts: Arc<Mutex<Vec<Account>>>,
    tell: watch::Sender<Option<Arc<dyn Store>>>,
}

/// An account that somebody waits for.
struct Account {
    venue: Venue,
    budget: Arc<LateBudget>,
    clock: Arc<dyn Clock>,
}

impl Opening {
    /// Tries until everything is open, or it is time to stop.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut wait = AGAIN;
        while let Err(error) = self.open_all().await {
            let words = format!("{error:#}");
            tracing::warn!(
                error = words,
                wait_ms = wait.as_millis() as u64,
                "the store cannot be opened; jobs and whoever shares their budget wait"
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(AGAIN_MAX);
        }
        // The door stays for whoever comes later.
        stop.cancelled().await;
    }

    /// The store, filled from the configuration.
    async fn open(&mut self) -> anyhow::Result<Arc<dyn Store>> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let opened = store::open(&self.place).await?;
        if let Some(jobs) = &self.jobs {
            let seeded = store::fill(&*opened, jobs).await.context("cannot write to the store")?;
            if seeded.connectors + seeded.jobs > 0 {
                say(&format!("store: {} connectors and {} jobs are new", seeded.connectors, seeded.jobs));
            }
        }
        self.store = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The store and every account that was asked for; then everybody is let in.
    async fn open_all(&mut self) -> anyhow::Result<()> {
        let opened = self.open().await?;
        loop {
            let next = self.accounts.lock().expect("no holder of this lock can panic").pop();
            let Some(account) = next else { break };
            if let Err(error) = account.open(&opened).await {
                let told = format!("cannot open the account of {} in the store", account.venue);
                self.accounts.lock().expect("no holder of this lock can panic").push(account);
                return Err(anyhow::Error::new(error).context(told));
            }
        }
        if self.tell.borrow().is_none() {
            self.tell.send_replace(Some(opened));
        }
        Ok(())
    }
}

impl Account {
    async fn open(&self, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        let (limits, clock) = (self.budget.limits.clone(), Arc::clone(&self.clock));
        let opened =
            StoreBudget::open(Arc::clone(store), self.venue, limits, clock, BudgetSettings::default());
        // What is given back is given back by itself, for as long as the budget is there.
        let (budget, _giving_back) = opened.await?;
        self.budget.opened.get_or_init(|| budget);
        Ok(())
    }
}

/// An account that gives nothing until it is open.
struct LateBudget {
    limits: Limits,
    opened: OnceLock<StoreBudget>,
}

impl fmt::Debug for LateBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateBudget").field("opened", &self.opened.get()).finish_non_exhaustive()
    }
}

impl Budget for LateBudget {
    fn charge(&self, bill: &Bill, now: Monotonic) -> Reply<'_> {
        match self.opened.get() {
            Some(budget) => budget.charge(bill, now),
            None => Reply::Ready(Answer::NotBefore(Monotonic(now.0 + ASK_AGAIN))),
        }
    }

    fn left(&self, charge: Charge, now: Monotonic) {
        if let Some(budget) = self.opened.get() {
            budget.left(charge, now);
        }
    }

    fn unsent(&self, charge: Charge) {
        if let Some(budget) = self.opened.get() {
            budget.unsent(charge);
        }
    }

    fn withdraw(&self, bill: &Bill) {
        if let Some(budget) = self.opened.get() {
            budget.withdraw(bill);
        }
    }

    fn venue_counts(&self, family: FamilyId, used: &Used, now: Monotonic) -> u64 {
        self.opened.get().map_or(0, |budget| budget.venue_counts(family, used, now))
    }

    fn fill(&self, family: FamilyId, now: Monotonic) -> Vec<Fill> {
        let empty = |at: &usize| {
            let window = self.limits.windows()[*at];
            Fill { used: 0, allowed: window.allowed, length: window.length }
        };
        match self.opened.get() {
            Some(budget) => budget.fill(family, now),
            None => self.limits.path(family).iter().map(empty).collect(),
        }
    }
}
