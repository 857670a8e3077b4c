//! What a store promises. Three abilities, so that a store which has only one of them needs to write only that:
//! [`Connectors`] with their budgets, [`Jobs`] with their leases, [`Candles`]. [`Store`] is all three.
//!
//! Time is the store's: whoever shares it need not agree on the time with anybody. What is said to be done is durable.
//! The suite in `conformance` holds every store to this page.

use std::time::Duration;

use async_trait::async_trait;
use catchment_model::{Candle, UnixMs, Venue};

use crate::candles::{Coverage, Hole, Series, Span};
use crate::connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::id::Id;
use crate::job::{Cursor, Job, JobFilter, JobPatch, NewJob, Page, State, Status};
use crate::token::{Grant, TokenAsk, Tokens};

/// Everything at once.
pub trait Store: Connectors + Jobs + Candles {}

impl<T: Connectors + Jobs + Candles> Store for T {}

/// One connector an exchange, and the budget that all processes share.
#[async_trait]
pub trait Connectors: Send + Sync {
    /// `sqlite`, `mongo`.
    fn kind(&self) -> &'static str;

    /// The store's clock.
    async fn now(&self) -> Result<UnixMs, StoreError>;

    /// S2's `EnsureConnector`: makes it if there is none, else gives back the one there is, unchanged; one that was deleted is
    /// active again. The flag says whether it is new.
    async fn ensure_connector(&self, new: &NewConnector) -> Result<(Connector, bool), StoreError>;

    /// The connector of an exchange.
    async fn connector(&self, exchange: Venue) -> Result<Option<Connector>, StoreError>;

    /// All that are not deleted, by name.
    async fn connectors(&self) -> Result<Vec<Connector>, StoreError>;

    /// Changes its limit, its cap or its notes. What was granted under an old limit still counts.
    async fn patch_connector(&self, exchange: Venue, patch: &ConnectorPatch)
    -> Result<Connector, StoreError>;

    /// S2's `PauseConnector` and `ResumeConnector`, and its removal. Jobs that are running find out when they ask for a token.
    async fn set_connector_status(&self, exchange: Venue, status: Status) -> Result<Connector, StoreError>;

    /// Says which further windows the exchange has. Logs of windows that stay in their place are kept.
    async fn declare_windows(&self, exchange: Venue, windows: &[NamedWindow]) -> Result<(), StoreError>;

    /// What all exchanges together may send; none takes the limit away.
    async fn set_system_limit(&self, limit: Option<RateLimit>) -> Result<(), StoreError>;

    /// S2's `AcquireToken`, for several at once: all windows are charged, or none. In no interval of a period's length do
    /// more than the limit leave, over all processes, as long as everybody who was granted keeps to `valid_for`.
    async fn take_tokens(&self, ask: &TokenAsk<'_>) -> Result<Tokens, StoreError>;

    /// So many of the grant's requests surely never leave.
    async fn give_back(&self, grant: &Grant, requests: u32) -> Result<(), StoreError>;

    /// What the exchange lists now, in place of what it listed before. Nothing at all is no listing, and changes nothing.
    async fn put_listing(&self, exchange: Venue, symbols: &[String]) -> Result<(), StoreError>;

    /// Whether the exchange lists the symbol; none as long as its listing is not known.
    async fn is_listed(&self, exchange: Venue, symbol: &str) -> Result<Option<bool>, StoreError>;

    /// S2's `UpdateConnectorJobCounts`: counts anew. The counts are kept with every change; this mends what a crash between
    /// two writes may leave where a store has no transactions.
    async fn recount(&self, exchange: Venue) -> Result<(), StoreError>;
}

/// Jobs and who works on them.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Adds an active job. At most one is active for an exchange, type, symbol and timeframe.
    async fn add_job(&self, new: &NewJob) -> Result<Job, StoreError>;

    /// The job of that name, deleted or not.
    async fn job(&self, id: Id) -> Result<Option<Job>, StoreError>;

    /// Those that match, the oldest first.
    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<Job>, StoreError>;

    /// Changes it. Its cursor only while nobody works on it.
    async fn patch_job(&self, id: Id, patch: &JobPatch) -> Result<Job, StoreError>;

    /// It is not begun again. A worker that holds it is told at its next write, and may end in good order.
    async fn pause_job(&self, id: Id) -> Result<Job, StoreError>;

    /// It is active, and due; a finished one goes on from its cursor, a dead one has all its attempts again.
    async fn resume_job(&self, id: Id) -> Result<Job, StoreError>;

    /// It is due now. One that is running is left alone; a dead one is active again and has all its attempts.
    async fn run_job_now(&self, id: Id) -> Result<Job, StoreError>;

    /// It is gone, except for whoever asks for deleted ones. Its fence moves: a worker that holds it can write no more.
    async fn delete_job(&self, id: Id) -> Result<Job, StoreError>;

    /// Takes the first job that is due: by priority, then by time. One atomic act: of all who ask, over all processes, one
    /// gets it. A job whose lease is over is due. The fence grows.
    async fn claim(&self, ask: &Claim<'_>) -> Result<Claimed, StoreError>;

    /// Holds it for the lease's length from now on.
    async fn renew(&self, lease: &Lease) -> Result<Standing, StoreError>;

    /// Saves what a page brought and how far the job is: both, or neither, or at least the candles before the cursor. What is
    /// saved twice is there once. The lease is renewed.
    async fn save_page(&self, lease: &Lease, page: &PageSave<'_>) -> Result<Standing, StoreError>;

    /// The run is over. Gives back the job as it is now. Said again by the same lease, because an answer was lost, it changes
    /// nothing and gives the job as it is.
    async fn finish(&self, lease: &Lease, outcome: &Outcome) -> Result<Job, StoreError>;

    /// How many jobs of each exchange are in each state, except those that merely wait for their time or are finished.
    async fn busy(&self) -> Result<Vec<StateCount>, StoreError>;
}

/// Candles, each once.
#[async_trait]
pub trait Candles: Send + Sync {
    /// Stores them; what is there is replaced. Only candles that are final.
    async fn put_candles(&self, series: &Series, candles: &[Candle]) -> Result<(), StoreError>;

    /// Those that open within the span, the first so many.
    async fn candles(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Candle>, StoreError>;

    /// What is there, if anything.
    async fn coverage(&self, series: &Series) -> Result<Option<Coverage>, StoreError>;

    /// The first so many stretches that have no candles, and are no holes of the venue.
    async fn missing(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Span>, StoreError>;

    /// There are none to be had there; the venue is not asked for them again.
    async fn note_hole(&self, series: &Series, hole: Hole) -> Result<(), StoreError>;

    /// The holes, in order, none touching another of its kind.
    async fn holes(&self, series: &Series) -> Result<Vec<Hole>, StoreError>;
}

/// Who wants to work.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Its name, for people.
    pub worker: &'a str,
    /// How long it may be silent.
    pub lease: Duration,
    /// So many jobs of an exchange run at once, where its connector says nothing.
    pub cap: Option<u32>,
    /// Only of these exchanges; none means of all.
    pub only: Option<&'a [Venue]>,
}

/// What came of asking for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// This job, on this lease.
    Job(Box<Job>, Lease),
    /// None is due.
    Nothing {
        /// When the next will be, if one is known.
        next_in: Option<Duration>,
    },
}

impl Claimed {
    /// The job and the lease, if there is one.
    pub fn job(self) -> Option<(Job, Lease)> {
        match self {
            Self::Job(job, lease) => Some((*job, lease)),
            Self::Nothing { .. } => None,
        }
    }
}

/// The right to work on a job. Whoever writes shows it; a stale one is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// On this job.
    pub job: Id,
    /// This worker's.
    pub worker: String,
    /// The job's, when it was claimed.
    pub fence: u64,
    /// How long each renewal lasts.
    pub lasts: Duration,
}

/// What a write of a lease's holder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Until when it holds the job, by the store's clock.
    pub lock_until: UnixMs,
    /// Not if it was paused meanwhile: hand it back.
    pub is_wanted: bool,
}

/// What a page brought.
#[derive(Debug, Clone, Copy)]
pub struct PageSave<'a> {
    /// How far the job is with it.
    pub cursor: &'a Cursor,
    /// For the job's series; only final ones.
    pub candles: &'a [Candle],
    /// Where there are none to be had.
    pub holes: &'a [Hole],
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It went well.
    Success {
        /// When it runs again; none: it is finished for good, and rests.
        next_in: Option<Duration>,
    },
    /// There is no budget left; it goes on from its cursor then.
    WaitRateLimit {
        /// As the budget said.
        retry_after: Duration,
    },
    /// It failed and is tried again.
    Failed {
        /// In words.
        error: String,
        /// When.
        retry_in: Duration,
    },
    /// It failed for the last time.
    Dead {
        /// In words.
        error: String,
    },
    /// The worker stops; another may go on from the cursor.
    HandedBack,
}

/// How many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCount {
    /// On this exchange.
    pub exchange: Venue,
    /// In this state.
    pub state: State,
    /// So many.
    pub jobs: u64,
}
