//! The hot path: asks for the books of every instrument, once an interval, and never waits for discovery.
//!
//! ```text
//! snapshot file ─▶ Roster ─▶ Schedule ─▶ Errand (permit ─▶ courier ─▶ read ─▶ draft ─▶ Intake) ─▶ Poller::settle
//!                  who       when        up to max_workers at once                              state changes here
//! ```
//!
//! One task owns all that changes about a venue: roster, schedule, back-off, counters. Errands run beside it, share
//! nothing, and hand back what came of them. Start reading at [`Poller::turn`].
//!
//! * `roster`: who is polled, sticky until expiry; `schedule`: batches, phases, whose turn it is
//! * `errand`: one request, from the permit to the pipeline; `fetch`: permit and courier behind a trait
//! * `records`, `errors`: `poll_stats` and `poll_errors`, with samples; `silence`: gaps
//!
//! What goes wrong costs as little as it can:
//! * A book that is missing, unreadable or unknown: that instrument backs off (1 s to 5 min), the others go on.
//! * A request refused for what it asks (400): its batch is halved until the one that spoils it is alone.
//! * A request that fails, times out, or brings garbage or not one of many books: its batch backs off as one (1 s to 15 s), so that a venue that
//!   recovers is polled in full within seconds. If most requests of a round fail, the governor holds the venue. A round
//!   is one interval and at least four requests: a venue with one batch is not held for one failure.
//! * A refusal for the speed, or a ban: the governor holds the venue. Slots that come meanwhile are skipped; after it
//!   everybody goes on at their own slot, so there is no burst.
//! * A pipeline that takes nothing: errands wait with their books, there are fewer to send, slots are late.

mod errand;
mod errors;
mod events;
mod fetch;
mod records;
mod roster;
mod schedule;
mod settle;
mod silence;
mod status;
mod telling;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catchment_governor::{Backoff, BackoffSettings, HoldCause};
use catchment_model::{Cause, Clock, Monotonic, Venue};
use catchment_pipeline::{AcceptError, Draft, Intake, Receipt};
use catchment_venues::{BookForm, BookPage, Polls};
use tokio::sync::watch;
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::errand::{Errand, Returned};
use self::errors::Sampler;
use self::roster::{Place, Roster};
use self::schedule::{BatchId, Schedule, Sheet, Slot};
use self::silence::Silence;
use self::status::Speed;
use crate::stats::{Latencies, PollCounts, Spacings};
use crate::{Loaded, SnapshotFile};

pub use self::fetch::{Answer, Fetch, Fetched, Line, Lost};
pub use self::status::PollStatus;

/// Looks at the snapshot, at silences and at itself this often.
const TICK: Duration = Duration::from_secs(1);
/// A round that ended with fewer requests goes on.
const ROUND_REQUESTS_MIN: usize = 4;
/// So many drafts may be on their way to the disk before new requests wait.
const LANDING_MAX: usize = 256;

/// A venue to be polled.
pub struct PollTask {
    /// Which.
    pub venue: Venue,
    /// Its adapter.
    pub polls: Arc<dyn Polls>,
    /// How it is asked.
    pub fetch: Arc<dyn Fetch>,
    /// Its instruments.
    pub snapshot: SnapshotFile,
    /// Where books go.
    pub intake: Intake,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// What the user may set.
    pub settings: PollSettings,
    /// Told every second.
    pub status: watch::Sender<PollStatus>,
}

/// What the user may set, per venue.
#[derive(Debug, Clone)]
pub struct PollSettings {
    /// Every instrument is asked for this often.
    pub interval: Duration,
    /// At most so many instruments a request; no more than the venue takes.
    pub books_per_request: usize,
    /// So many requests may be waiting for a permit or under way.
    pub max_workers: usize,
    /// How books are recorded.
    pub book_form: BookForm,
    /// Whether the hash that a book carries is made anew and compared.
    pub check_hashes: bool,
    /// Whether books are read as nobody should: for benches.
    pub through_values: bool,
    /// A record of `poll_stats` this often.
    pub stats_every: Duration,
    /// So many error records of each type a minute.
    pub errors_per_minute: u32,
    /// Of instruments that fail.
    pub backoff: BackoffSettings,
    /// Of requests that fail.
    pub batch_backoff: BackoffSettings,
    /// When stopped, what is under way is waited for at most this long.
    pub patience: Duration,
    /// Of the jitter.
    pub seed: u64,
}

impl Default for PollSettings {
    fn default() -> Self {
        let batch_backoff = BackoffSettings { max: Duration::from_secs(15), ..BackoffSettings::default() };
        Self {
            interval: Duration::from_secs(1),
            books_per_request: 500,
            max_workers: 16,
            book_form: BookForm::Normalised,
            check_hashes: true,
            through_values: false,
            stats_every: Duration::from_secs(10),
            errors_per_minute: 10,
            backoff: BackoffSettings::default(),
            batch_backoff,
            patience: Duration::from_secs(5),
            seed: 0,
        }
    }
}

impl PollSettings {
    fn new_page(&self) -> BookPage {
        let page = BookPage::new(self.book_form);
        let page = if self.check_hashes { page } else { page.trusting_hashes() };
        if self.through_values { page.through_values() } else { page }
    }
}

/// Polls a venue until `stop`. Then nothing new is sent, what is under way is finished within the patience, open gaps
/// are ended and a last `poll_stats` is written.
pub async fn poll(task: PollTask, stop: CancellationToken) {
    let mut poller = Poller::new(task);
    events::poller_started(poller.venue, records::ms(poller.settings.interval), poller.settings.max_workers);
    loop {
        let now = poller.clock.monotonic();
        let wake_at = poller.turn(now);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = poller.under_way.join_next_with_id() => poller.errand_ended(ended),
            Some(landed) = poller.landing.join_next() => poller.landed(landed),
            Some(landed) = poller.mail.join_next() => poller.landed(landed),
            loaded = wait_for(&mut poller.loading) => poller.loaded(loaded),
            () = sleep(wake_at.since(now)) => {}
        }
    }
    poller.finish().await;
}

type Load = (SnapshotFile, Loaded);
/// Records offered, and what became of them.
type Landed = (u64, Result<Receipt, AcceptError>);

/// All that changes about a venue.
struct Poller {
    venue: Venue,
    polls: Arc<dyn Polls>,
    fetch: Arc<dyn Fetch>,
    intake: Intake,
    clock: Arc<dyn Clock>,
    settings: PollSettings,
    status: watch::Sender<PollStatus>,

    roster: Roster,
    schedule: Schedule,
    backoff: Backoff,
    batch_backoff: Backoff,
    /// Until when nothing is sent.
    hold: Option<(Monotonic, HoldCause)>,
    round: Round,

    under_way: JoinSet<Returned>,
    batch_of: HashMap<task::Id, BatchId>,
    /// Books on their way to the disk.
    landing: JoinSet<Landed>,
    /// Telemetry on its way to the disk: one draft at a time, the next is gathered meanwhile.
    mail: JoinSet<Landed>,
    outbox: Draft,
    /// Pages that nobody uses just now.
    pages: Vec<BookPage>,

    snapshot: Option<SnapshotFile>,
    snapshot_path: PathBuf,
    loading: Option<JoinHandle<Load>>,
    snapshot_kept: Option<String>,

    counts: PollCounts,
    latencies: Latencies,
    spacings: Spacings,
    speed: Speed,
    errors: Sampler,
    silence: Silence,

    started_at: Monotonic,
    tick_at: Monotonic,
    stats_at: Monotonic,
    /// The counters as the last record had them, and when that was.
    told: (Monotonic, PollCounts),
}

/// The requests of an interval.
struct Round {
    ends_at: Monotonic,
    failed: usize,
    total: usize,
}

impl Poller {
    fn new(task: PollTask) -> Self {
        let PollTask { venue, polls, fetch, snapshot, intake, clock, settings, status } = task;
        let now = clock.monotonic();
        let books_max = settings.books_per_request.clamp(1, polls.books_max().max(1));
        Self {
            venue,
            polls,
            fetch,
            outbox: intake.draft(),
            intake,
            clock,
            status,
            roster: Roster::new(venue),
            schedule: Schedule::new(settings.interval, books_max, now),
            backoff: Backoff::new(settings.backoff, settings.seed),
            batch_backoff: Backoff::new(settings.batch_backoff, settings.seed.wrapping_add(1)),
            hold: None,
            round: Round { ends_at: Monotonic(now.0 + settings.interval), failed: 0, total: 0 },
            under_way: JoinSet::new(),
            batch_of: HashMap::new(),
            landing: JoinSet::new(),
            mail: JoinSet::new(),
            pages: Vec::new(),
            snapshot_path: snapshot.path().to_owned(),
            snapshot: Some(snapshot),
            loading: None,
            snapshot_kept: None,
            counts: PollCounts::default(),
            latencies: Latencies::default(),
            spacings: Spacings::new(),
            speed: Speed::default(),
            errors: Sampler::new(settings.errors_per_minute),
            silence: Silence::new(settings.interval),
            started_at: now,
            tick_at: now,
            stats_at: Monotonic(now.0 + settings.stats_every),
            told: (now, PollCounts::default()),
            settings,
        }
    }

    /// Does whatever is due. Gives back when to look again.
    fn turn(&mut self, now: Monotonic) -> Monotonic {
        if self.tick_at <= now {
            self.tick(now);
            self.tick_at = next_after(self.tick_at, TICK, now);
        }
        if self.round.ends_at <= now {
            self.end_round(now);
        }
        if self.stats_at <= now {
            self.tell_stats(now);
            self.stats_at = next_after(self.stats_at, self.settings.stats_every, now);
        }
        while let Some(slot) = self.schedule.next_slot(now) {
            self.slot(&slot, now);
        }
        while self.may_start() {
            let Some((id, since)) = self.schedule.start_next(now) else { break };
            self.send(id, since, now);
        }
        self.post();
        let fixed = self.tick_at.min(self.round.ends_at).min(self.stats_at);
        self.schedule.wake_at(self.may_start()).map_or(fixed, |at| at.min(fixed))
    }

    /// A batch's slot has come.
    fn slot(&mut self, slot: &Slot, now: Monotonic) {
        self.counts.slots += 1 + slot.missed;
        self.counts.late += slot.missed;
        let is_free = self.schedule.is_free(slot.batch, now);
        let held = self.hold.filter(|(until, _)| *until > now);
        let Some(batch) = self.schedule.get_mut(slot.batch) else { return };
        if let Some((_, cause)) = held {
            self.counts.held += 1;
            batch.trouble = Some(cause_of(cause, batch.trouble));
        } else if !is_free {
            self.counts.late += 1;
        } else if batch.rests_until.is_some_and(|until| until > now) {
            self.counts.rested += 1;
        } else if batch.resting.iter().filter(|(_, until)| *until > now).count() == batch.members.len() {
            self.counts.rested += 1;
            self.counts.polls_resting += batch.members.len() as u64;
        } else {
            self.schedule.make_ready(slot.batch, slot.due);
        }
    }

    fn may_start(&self) -> bool {
        self.under_way.len() < self.settings.max_workers && self.landing.len() < LANDING_MAX
    }

    /// Sends an errand for the batch, which waits since then.
    fn send(&mut self, id: BatchId, since: Monotonic, now: Monotonic) {
        let deadline = self.schedule.due(id).unwrap_or(now);
        let Some(sheet) = self.sheet(id, now) else {
            // Everybody has begun to rest while it waited.
            self.counts.rested += 1;
            return self.schedule.ended(id, false);
        };
        let page = self.pages.pop().unwrap_or_else(|| self.settings.new_page());
        let errand = Errand {
            batch: id,
            sheet,
            due: since,
            deadline,
            page,
            venue: self.venue,
            fetch: self.fetch.clone(),
            polls: self.polls.clone(),
            intake: self.intake.clone(),
        };
        let handle = self.under_way.spawn(errand.run());
        self.batch_of.insert(handle.id(), id);
    }

    /// The request of a batch, made anew only if somebody has come, gone, begun or ceased to rest.
    fn sheet(&mut self, id: BatchId, now: Monotonic) -> Option<Arc<Sheet>> {
        let batch = self.schedule.get_mut(id)?;
        let resting = batch.resting.len();
        batch.resting.retain(|(_, until)| *until > now);
        if batch.resting.len() != resting {
            batch.sheet = None;
        }
        self.counts.polls_resting += batch.resting.len() as u64;
        if let Some(sheet) = &batch.sheet {
            return Some(sheet.clone());
        }
        let rests = |place: &Place| batch.resting.iter().any(|(other, _)| other == place);
        let asked = batch.members.iter().filter(|place| batch.resting.is_empty() || !rests(place));
        let members: Vec<_> =
            asked.filter_map(|place| Some((*place, self.roster.get(*place)?.what.clone()))).collect();
        if members.is_empty() {
            return None;
        }
        let keys: Vec<&str> = members.iter().map(|(_, what)| what.poll_key.as_str()).collect();
        let sheet = Arc::new(Sheet { request: self.polls.books_request(&keys), members });
        batch.sheet = Some(sheet.clone());
        Some(sheet)
    }

    /// The venue is held: whoever waits goes at its next slot.
    fn look_for_hold(&mut self, family: &str, now: Monotonic) {
        let snapshot = self.fetch.snapshot();
        let own = snapshot.families.iter().find(|other| other.name == family).and_then(|own| own.hold);
        let longest = snapshot.hold.into_iter().chain(own).max_by_key(|(left, _)| *left);
        let Some((left, cause)) = longest else { return };
        let until = Monotonic(now.0 + left);
        if self.hold.is_none_or(|(known, _)| known < until) {
            self.hold = Some((until, cause));
        }
        self.counts.held += self.schedule.forgive() as u64;
    }

    fn end_round(&mut self, now: Monotonic) {
        self.round.ends_at = next_after(self.round.ends_at, self.settings.interval, now);
        if self.round.total < ROUND_REQUESTS_MIN {
            return;
        }
        let is_bad = self.round.failed > 0;
        self.fetch.round_ended(self.round.failed, self.round.total);
        (self.round.failed, self.round.total) = (0, 0);
        if is_bad {
            self.look_for_hold("", now);
        }
    }

    /// Once a second.
    fn tick(&mut self, now: Monotonic) {
        if let Some(mut snapshot) = self.snapshot.take() {
            self.loading = Some(task::spawn_blocking(move || {
                let loaded = snapshot.load();
                (snapshot, loaded)
            }));
        }
        let wall = self.clock.wall();
        for place in self.roster.leaving(wall) {
            self.leave(place);
        }
        self.schedule.tidy();
        self.tell_silence(now);
        self.tell_status(now, false);
    }

    fn loaded(&mut self, loaded: Result<Load, task::JoinError>) {
        let Ok((file, loaded)) = loaded else {
            // Whatever made the reader fall over, the next look starts anew.
            self.snapshot = Some(SnapshotFile::new(&self.snapshot_path, self.venue));
            return;
        };
        self.snapshot = Some(file);
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        match loaded {
            Loaded::Unchanged => {}
            Loaded::Kept { reason } => {
                events::snapshot_kept(self.venue, &reason);
                self.snapshot_kept = Some(reason.to_string());
            }
            Loaded::New(snapshot) => {
                self.snapshot_kept = None;
                let changes = self.roster.adopt(snapshot, now, wall);
                for place in &changes.changed {
                    if let Some(batch) = self.schedule.of(*place) {
                        batch.sheet = None;
                    }
                }
                changes.left.iter().for_each(|place| self.leave(*place));
                self.schedule.seat(&changes.joined, now);
                let (joined, left) = (changes.joined.len(), changes.left.len());
                events::instruments_changed(self.venue, joined, left, changes.refused, self.roster.len());
            }
        }
    }

    fn leave(&mut self, place: Place) {
        self.schedule.unseat(place);
        let Some(mut entry) = self.roster.remove(place) else { return };
        if let Some(told) = Silence::left(&mut entry, self.clock.wall()) {
            self.tell_gaps(&[told]);
        }
    }

    /// Ends in order: requests, books, then the last words.
    async fn finish(mut self) {
        let end = Instant::now() + self.settings.patience;
        // What is not through after most of the patience is left; the rest of it is for the disk.
        let last_call = end - self.settings.patience / 5;
        while let Ok(Some(ended)) = timeout_at(last_call, self.under_way.join_next_with_id()).await {
            self.errand_ended(ended);
        }
        let abandoned = self.under_way.len();
        self.counts.requests_abandoned += abandoned as u64;
        self.under_way.shutdown().await;
        let last_call = end - self.settings.patience / 10;
        while let Ok(Some(landed)) = timeout_at(last_call, self.landing.join_next()).await {
            self.landed(landed);
        }
        let told = self.silence.end(&mut self.roster, self.clock.wall());
        self.tell_gaps(&told);
        let now = self.clock.monotonic();
        self.tell_stats(now);
        while !self.mail.is_empty() || !self.outbox.is_empty() {
            self.post();
            let Ok(Some(landed)) = timeout_at(end, self.mail.join_next()).await else { break };
            self.landed(landed);
        }
        self.tell_status(now, true);
        events::poller_stopped(self.venue, self.counts.books, abandoned);
    }
}

/// The next point of a grid; what was missed is skipped.
fn next_after(last: Monotonic, every: Duration, now: Monotonic) -> Monotonic {
    let next = Monotonic(last.0 + every);
    if next > now { next } else { Monotonic(now.0 + every) }
}

/// Of a hold. One for failures does not hide what failed.
fn cause_of(hold: HoldCause, known: Option<Cause>) -> Cause {
    match hold {
        HoldCause::Ban => Cause::Ban,
        HoldCause::Failures => known.unwrap_or(Cause::Failure),
        HoldCause::Refused | HoldCause::RetryAfter => Cause::Cooldown,
    }
}

/// What is being loaded, or never. May be dropped midway.
async fn wait_for(loading: &mut Option<JoinHandle<Load>>) -> Result<Load, task::JoinError> {
    let Some(handle) = loading else { return std::future::pending().await };
    let loaded = handle.await;
    *loading = None;
    loaded
}

#[cfg(test)]
mod tests;
