//! The slow path: which instruments a venue has, every few minutes.
//!
//! ```text
//! walk all pages ─▶ is it believable? ─▶ what joined, what left: `markets` ─▶ the snapshot file, replaced ─▶ status
//!      │ a page is tried a few times            (only if anything did)
//!      └─▶ failed: told, counted; the file and the memory of the last round stay as they were
//! ```
//!
//! * Rounds keep a steady beat: the first at once, and one that takes longer than the interval skips the beats it missed.
//! * The records come before the file. A crash between the two repeats the records at the next start; the other way
//!   round they would be missing for ever.
//! * A listing that is empty, or lacks more than half of the instruments whose time is not over, is more often a venue in
//!   trouble (an empty page, a cursor that ends early) than one that has closed. It counts as failed until it has come
//!   [`LOSS_BELIEVED_AFTER`] times in a row; and always, if there were markets and none could be read.
//! * Requests go by the lane for gaps, below the live polls and above history. A listing of hundreds of pages must not
//!   push aside books that are due now, and the governor lets no lane starve.
//! * A venue that has banned us is not waited for within a round that has begun: it fails. The next one waits with the
//!   governor until the ban ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catchment_governor::{Ask, Governor, Lane};
use catchment_model::{Clock, Monotonic, Snapshot, UnixMs, Venue};
use catchment_pipeline::disk::{self, Disk};
use catchment_pipeline::{AcceptError, Intake, SyncPoint};
use catchment_venues::{Discovers, InstrumentPage, ReadError, Reading, Request, VenueSpec, Walk};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::courier::Courier;
use crate::events;
use crate::membership::{Change, Members, members};
use crate::send_error::SendError;
use crate::snapshot_file::{SNAPSHOT_BYTES_MAX, snapshot_path};

/// Listings that lack most of what was there are believed when so many have come in a row.
pub const LOSS_BELIEVED_AFTER: u32 = 3;
/// A walk that is longer does not end.
const PAGES_MAX: usize = 20_000;
/// Permits that may expire for one page before something must be wrong with our own speed.
const EXPIRED_MAX: u32 = 16;

/// Everything that discovery of one venue needs.
pub struct DiscoverTask {
    /// The venue.
    pub spec: &'static VenueSpec,
    /// How it lists its instruments.
    pub discovers: Arc<dyn Discovers>,
    /// Its governor.
    pub governor: Governor,
    /// Its courier.
    pub courier: Arc<Courier>,
    /// Where changes are recorded.
    pub intake: Intake,
    /// Where the snapshot is written.
    pub disk: Arc<dyn Disk>,
    /// The folder of the data; the snapshot is at [`snapshot_path`].
    pub data_dir: PathBuf,
    /// From the beginning of one round to that of the next.
    pub interval: Duration,
    /// How a page that failed is tried again.
    pub retries: PageRetries,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where it tells how it is doing.
    pub status: watch::Sender<DiscoverStatus>,
}

/// How a page that failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRetries {
    /// Times that a page is asked for in all.
    pub attempts: u32,
    /// The wait after the first failure; it doubles, less up to a half by chance.
    pub wait: Duration,
    /// It grows no longer than this.
    pub wait_max: Duration,
    /// Of the chance.
    pub seed: u64,
}

impl Default for PageRetries {
    fn default() -> Self {
        Self { attempts: 4, wait: Duration::from_millis(500), wait_max: Duration::from_secs(10), seed: 0 }
    }
}

/// How discovery is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoverStatus {
    /// Instruments in the snapshot in force.
    pub instruments: usize,
    /// When it was written.
    pub written_at: Option<UnixMs>,
    /// Rounds that have ended.
    pub rounds: u64,
    /// Of these, failed.
    pub failed_rounds: u64,
    /// Failed since the last good one.
    pub failed_in_a_row: u64,
    /// What the last round failed of, if it did.
    pub last_error: Option<String>,
    /// How long the last round took.
    pub last_duration: Option<Duration>,
    /// Pages of the last good round.
    pub pages: usize,
    /// Markets in it that could not be read.
    pub skipped: usize,
}

/// Keeps the venue's snapshot up to date until told to stop.
pub async fn discover(task: DiscoverTask, stop: CancellationToken) {
    let mut beat = interval(task.interval.max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let rounds = async {
        let mut discovery = Discovery::open(task).await;
        loop {
            beat.tick().await;
            if discovery.round().await.is_err() {
                return; // the pipeline is closed: there is nobody left to tell
            }
        }
    };
    // Dropping a round midway is what a crash would do, and the order of its steps is made for that.
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = rounds => {}
    }
}

struct Discovery {
    task: DiscoverTask,
    venue: Venue,
    dice: StdRng,
    /// The instruments, as the channel `markets` has been told.
    known: Members,
    /// When the newest snapshot was written.
    written_at: Option<UnixMs>,
    losses_in_a_row: u32,
}

/// The pipeline is closed.
struct Closed;

/// What a walk has brought.
#[derive(Default)]
struct Listing {
    instruments: Vec<catchment_model::Instrument>,
    pages: usize,
    rows: usize,
    skipped: usize,
    first_skipped: Option<String>,
}

impl Discovery {
    /// Goes on where the last snapshot stands, so that a restart does not take every instrument for a new one.
    async fn open(task: DiscoverTask) -> Self {
        let venue = task.spec.venue();
        let path = snapshot_path(&task.data_dir, venue);
        let disk = Arc::clone(&task.disk);
        let read = move || -> Result<Snapshot, String> {
            let bytes =
                disk::read_file(&*disk, &path, SNAPSHOT_BYTES_MAX).map_err(|error| error.to_string())?;
            Snapshot::read(venue, &bytes).map_err(|error| error.to_string())
        };
        let last = tokio::task::spawn_blocking(read).await.expect("reading a snapshot does not panic");
        let mut known = Members::new();
        let mut written_at = None;
        match last {
            Ok(snapshot) => {
                written_at = Some(snapshot.written_at);
                known = members(snapshot.instruments);
            }
            Err(reason) => events::no_last_snapshot(venue.as_str(), &reason),
        }
        let dice = StdRng::seed_from_u64(task.retries.seed);
        let instruments = known.len();
        task.status.send_modify(|status| (status.instruments, status.written_at) = (instruments, written_at));
        Self { task, venue, dice, known, written_at, losses_in_a_row: 0 }
    }

    async fn round(&mut self) -> Result<(), Closed> {
        let began = self.task.clock.monotonic();
        let ended = match self.walk().await {
            Ok(listing) => self.settle(listing).await,
            Err(error) => Err(error),
        };
        if matches!(ended, Err(RoundError::Closed)) {
            return Err(Closed);
        }
        self.tell(ended, began);
        Ok(())
    }

    /// All pages, or none.
    async fn walk(&mut self) -> Result<Listing, RoundError> {
        let mut walk = self.task.discovers.walk();
        let mut listing = Listing::default();
        while let Some(request) = walk.next_request() {
            let number = listing.pages + 1;
            if number > PAGES_MAX {
                return Err(RoundError::Endless);
            }
            let page = self.page(&mut *walk, &request).await;
            listing.add(page.map_err(|source| RoundError::Page { number, source })?);
        }
        Ok(listing)
    }

    /// One page, asked for until it comes or there is no more point in asking.
    async fn page(&mut self, walk: &mut dyn Walk, request: &Request) -> Result<InstrumentPage, PageError> {
        let (mut attempt, mut expired) = (1, 0);
        loop {
            let error = match self.ask(walk, request, attempt > 1).await {
                Ok(page) => return Ok(page),
                Err(PageError::Send(SendError::Expired)) if expired < EXPIRED_MAX => {
                    expired += 1;
                    continue;
                }
                Err(error) => error,
            };
            if attempt >= self.task.retries.attempts || !error.may_pass() {
                return Err(error);
            }
            let wait = self.wait_after(attempt);
            events::page_failed(self.venue.as_str(), attempt, wait, &error);
            sleep(wait).await;
            attempt += 1;
        }
    }

    async fn ask(
        &self,
        walk: &mut dyn Walk,
        request: &Request,
        is_retry: bool,
    ) -> Result<InstrumentPage, PageError> {
        let DiscoverTask { governor, courier, .. } = &self.task;
        let family = governor.family(request.family).ok_or(PageError::Family(request.family))?;
        let ask = Ask::new(family, Lane::GapFill).cost(request.cost);
        let permit = governor.acquire(if is_retry { ask.retry() } else { ask }).await;
        let reply = courier.send(permit, request).await?;
        match reply.reading {
            Reading::Ok => Ok(walk.read(&reply.body)?),
            reading => Err(PageError::Said { status: reply.status, reading }),
        }
    }

    fn wait_after(&mut self, attempt: u32) -> Duration {
        let PageRetries { wait, wait_max, .. } = self.task.retries;
        let doubled = wait.saturating_mul(1 << (attempt - 1).min(16)).min(wait_max);
        doubled.mul_f64(self.dice.random_range(0.5..=1.0))
    }

    /// Takes the listing over, if it is believable.
    async fn settle(&mut self, listing: Listing) -> Result<Settled, RoundError> {
        if let (true, Some(first)) = (listing.instruments.is_empty(), listing.first_skipped) {
            return Err(RoundError::NothingReadable { rows: listing.rows, first });
        }
        let Listing { instruments, pages, skipped, .. } = listing;
        let now = members(instruments);
        let change = Change::between(&self.known, &now);
        let (before, lost) = (self.known.len(), change.lost(self.task.clock.wall().ms()));
        let is_doubtful = before > 0 && (now.is_empty() || 2 * lost > before);
        self.losses_in_a_row = if is_doubtful { self.losses_in_a_row + 1 } else { 0 };
        if is_doubtful && self.losses_in_a_row < LOSS_BELIEVED_AFTER {
            return Err(RoundError::Loss { before, lost, times: self.losses_in_a_row });
        }
        let (joined, left) = (change.joined.len(), change.left.len());
        if !change.is_none() {
            let at = self.task.clock.wall();
            match change.record(&self.task.intake, self.venue, at, self.written_at).await {
                Ok(()) => {}
                Err(AcceptError::Closed) => return Err(RoundError::Closed),
                // The pipeline has been told to refuse rather than wait, and tells the gap itself.
                Err(AcceptError::Storage(error)) => events::change_not_recorded(self.venue.as_str(), &error),
            }
        }
        // Even if the file cannot be written: what has been recorded is not recorded again.
        self.known = now;
        let written_at = self.replace_snapshot().await.map_err(RoundError::Disk)?;
        self.written_at = Some(written_at);
        Ok(Settled { joined, left, pages, skipped })
    }

    async fn replace_snapshot(&self) -> io::Result<UnixMs> {
        // Always later than the last one, even if the calendar was set back: readers take no older one.
        let now = self.task.clock.wall().ms();
        let after_last = self.written_at.and_then(|last| UnixMs::new(last.get() + 1).ok());
        let written_at = after_last.map_or(now, |after| after.max(now));
        let snapshot = Snapshot::new(self.venue, written_at, self.known.values().cloned().collect());
        let path = snapshot_path(&self.task.data_dir, self.venue);
        let disk = Arc::clone(&self.task.disk);
        let write = move || {
            disk::create_dir_all(&*disk, disk::parent(&path), SyncPoint::StateFolder)?;
            disk::replace_file(
                &*disk,
                &path,
                &snapshot.to_json(),
                SyncPoint::StateData,
                SyncPoint::StateEntry,
            )
        };
        tokio::task::spawn_blocking(write).await.expect("writing a snapshot does not panic")?;
        Ok(written_at)
    }

    fn tell(&self, ended: Result<Settled, RoundError>, began: Monotonic) {
        let took = self.task.clock.monotonic().since(began);
        self.task.status.send_modify(|status| {
            status.rounds += 1;
            status.last_duration = Some(took);
            status.written_at = self.written_at;
            match &ended {
                Ok(settled) => {
                    status.instruments = self.known.len();
                    status.pages = settled.pages;
                    status.skipped = settled.skipped;
                    status.failed_in_a_row = 0;
                    status.last_error = None;
                }
                Err(error) => {
                    status.failed_rounds += 1;
                    status.failed_in_a_row += 1;
                    status.last_error = Some(with_sources(error));
                }
            }
        });
        let venue = self.venue.as_str();
        match &ended {
            Ok(settled) => events::round_ended(venue, self.known.len(), settled, took),
            Err(error) => {
                events::round_failed(
                    venue,
                    error.kind(),
                    &with_sources(error),
                    self.task.status.borrow().failed_in_a_row,
                );
            }
        }
    }
}

impl Listing {
    fn add(&mut self, page: InstrumentPage) {
        self.pages += 1;
        self.rows += page.rows;
        self.skipped += page.skipped.len();
        if self.first_skipped.is_none() {
            let mut skipped = page.skipped.into_iter();
            self.first_skipped = skipped.next().map(|row| format!("{}: {}", row.market, row.reason));
        }
        self.instruments.extend(page.instruments);
    }
}

/// What a good round has come to.
pub(crate) struct Settled {
    pub(crate) joined: usize,
    pub(crate) left: usize,
    pub(crate) pages: usize,
    pub(crate) skipped: usize,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("page {number} of the listing could not be had")]
    Page { number: usize, source: PageError },
    #[error("the listing has more than {PAGES_MAX} pages")]
    Endless,
    #[error("the listing lacks {lost} of {before} instruments whose time is not over ({times} in a row)")]
    Loss { before: usize, lost: usize, times: u32 },
    #[error("none of {rows} markets can be read ({first})")]
    NothingReadable { rows: usize, first: String },
    #[error("the snapshot could not be written")]
    Disk(#[source] io::Error),
    #[error("the pipeline is closed")]
    Closed,
}

impl RoundError {
    /// A word for metrics.
    fn kind(&self) -> &'static str {
        match self {
            Self::Page { source: PageError::Send(error), .. } => error.kind(),
            Self::Page { source: PageError::Said { reading, .. }, .. } => reading.name(),
            Self::Page { source: PageError::Read(ReadError::Stuck(_)), .. } | Self::Endless => "stuck",
            Self::Page { source: PageError::Read(_), .. } | Self::NothingReadable { .. } => "unreadable",
            Self::Page { source: PageError::Family(_), .. } => "family",
            Self::Loss { .. } => "loss",
            Self::Disk(_) => "disk",
            Self::Closed => "closed",
        }
    }
}

/// Why a page was not had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("status {status} means {}{}", .reading.name(), words(.reading))]
    Said { status: u16, reading: Reading },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the governor does not know the family {0:?}")]
    Family(&'static str),
}

impl PageError {
    /// Whether the same request may succeed in a while.
    fn may_pass(&self) -> bool {
        match self {
            Self::Send(error) => !matches!(
                error,
                SendError::BadRequest { .. }
                    | SendError::Setup { .. }
                    | SendError::Expired
                    | SendError::Redirected { .. }
                    | SendError::TooLarge { .. }
            ),
            Self::Said { reading, .. } => matches!(reading, Reading::Refused | Reading::Trouble(_)),
            Self::Read(error) => !matches!(error, ReadError::Stuck(_)),
            Self::Family(_) => false,
        }
    }
}

fn words(reading: &Reading) -> String {
    match reading {
        Reading::BadRequest(said) | Reading::Trouble(said) => format!(" ({said})"),
        _ => String::new(),
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
