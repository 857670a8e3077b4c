//! The one task that writes the spool.
//!
//! Drafts that arrive together are made durable together, as a group: one write and one sync, when `commit_bytes` have
//! gathered or `commit_age` after the last one. While a group is on its way to the disk (a *flight*) the next one
//! gathers. Whoever offered the records is told when the flight has landed, and only then do sinks see them.
//!
//! ```text
//! door ─▶ admit (policy of a full spool) ─▶ number (dedup, ids) ─▶ gathering ─▶ flight ─▶ tell, tail
//!            └─▶ parked: waits for room, or for the disk
//! ```

mod gaps;
mod group;
mod wound;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use catchment_model::{Channel, Clock, RecordId, SpoolId, UnixMs, Venue};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::gaps::MissedMap;
use self::group::{Group, Member};
use self::wound::Wound;
use crate::DedupWindow;
use crate::books::{BookKeeper, DropReason};
use crate::draft::Draft;
use crate::events;
use crate::frames::Frames;
use crate::intake::{AcceptError, OnStorageError, Receipt, Tray};
use crate::reader::{Damage, Position};
use crate::spool::{Cursor, Heard, OnFull, Spool, SpoolConfig, SpoolError};
use crate::tail::Tail;

/// How often cursors are saved, gaps are written and a failing disk is tried.
const UPKEEP: Duration = Duration::from_secs(1);
/// How often a full spool is mentioned.
const FULL_TOLD_EVERY: Duration = Duration::from_secs(10);

/// A record takes no longer than this from the socket to the spool, unless it is an old one.
const LATE_MAX: Duration = Duration::from_secs(60);

/// A draft in line.
#[derive(Debug)]
pub(crate) struct Submit {
    draft: Draft,
    /// Nobody waits for the answer to what was laid on the tray, or to what the writer itself has to say.
    reply: Option<oneshot::Sender<Result<Receipt, AcceptError>>>,
    /// The writer itself says so.
    is_own: bool,
    /// What these records tell of, if they are gaps: told again if they cannot be written.
    missed: MissedMap,
    /// Who is told that the answer is there, whatever it is.
    _waiting: Vec<oneshot::Sender<()>>,
    room: Option<OwnedSemaphorePermit>,
}

impl Submit {
    pub(crate) fn new(
        draft: Draft,
        reply: oneshot::Sender<Result<Receipt, AcceptError>>,
        room: OwnedSemaphorePermit,
    ) -> Self {
        Self { reply: Some(reply), ..Self::laid(draft, Some(room)) }
    }

    /// What lay on the tray.
    pub(crate) fn laid(draft: Draft, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { draft, reply: None, is_own: false, missed: MissedMap::new(), _waiting: Vec::new(), room }
    }

    /// The same, to be laid there again.
    pub(crate) fn into_parts(self) -> (Draft, Option<OwnedSemaphorePermit>) {
        (self.draft, self.room)
    }

    fn answer(&mut self, answer: impl FnOnce() -> Result<Receipt, AcceptError>) {
        // Whoever asked may have gone; the records are accepted all the same.
        if let Some(reply) = self.reply.take().filter(|reply| !reply.is_closed()) {
            let _ = reply.send(answer());
        }
    }
}

/// What deliveries tell the writer.
#[derive(Debug)]
pub(crate) enum Note {
    /// A sink has everything before this place.
    Settled { sink: String, cursor: Cursor },
    /// Answered once the gap that tells of it is durable, so that it goes out before the delivery ends.
    Damaged(Damage, oneshot::Sender<()>),
    /// Answered likewise.
    Refused(Vec<RefusedRecord>, oneshot::Sender<()>),
}

/// A record that a sink will never take.
#[derive(Debug)]
pub(crate) struct RefusedRecord {
    pub(crate) venue: Venue,
    pub(crate) channel: Channel,
    /// As JSON has it.
    pub(crate) symbol: String,
    pub(crate) id: RecordId,
    pub(crate) at: UnixMs,
}

/// How the writer is doing.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterStatus {
    /// Why nothing is accepted, if so.
    pub(crate) stopped: Option<String>,
    pub(crate) full: bool,
    pub(crate) spool_bytes: u64,
    pub(crate) spool_segments: usize,
    pub(crate) dedup_keys: usize,
}

/// What the writer is connected to.
pub(crate) struct Wiring {
    pub(crate) dedup: Option<DedupWindow>,
    /// A group takes what is already in line up to this, but waits for nothing beyond `commit_bytes`.
    pub(crate) group_max: usize,
    pub(crate) on_storage_error: OnStorageError,
    pub(crate) tail: Arc<Tail>,
    pub(crate) books: Arc<BookKeeper>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) door: mpsc::Receiver<Submit>,
    pub(crate) tray: Arc<Tray>,
    pub(crate) notes: mpsc::Receiver<Note>,
    pub(crate) closing: Arc<Notify>,
    /// Venues that are listened to as they speak.
    pub(crate) live: Vec<Venue>,
    /// Since when nobody listens any more.
    pub(crate) last_call: Arc<OnceLock<UnixMs>>,
    /// Set when there is no more time to wait for anything.
    pub(crate) give_up: watch::Receiver<bool>,
    pub(crate) status: watch::Sender<WriterStatus>,
    /// It has a thread to itself, and may wait for the disk on it.
    pub(crate) own_thread: bool,
}

/// The task that owns the spool.
pub(crate) struct Writer {
    wiring: Wiring,
    id: SpoolId,
    config: SpoolConfig,
    /// At home unless a flight has it.
    spool: Option<Spool>,
    flight: Option<Flight>,
    /// Has landed; those who offered it are yet to be told.
    durable: Option<Group>,
    gathering: Group,
    landed_at: Option<Instant>,
    upkeep_at: Instant,
    /// Drafts that wait for room in the spool or for the disk, oldest first.
    parked: VecDeque<Submit>,
    /// What the segments take, the flight included.
    bytes: u64,
    full: bool,
    full_told_at: Option<Instant>,
    wound: Option<Wound>,
    missed: MissedMap,
    damage_seen: HashSet<(u32, u64)>,
    cursors_moved: bool,
    heard: Heard,
    /// Since when streams are not listened to that no gap has told of yet.
    stopped: Heard,
    /// The door is closed and everybody inside was heard.
    drained: bool,
    last_words: bool,
}

/// A group on its way to the disk.
struct Flight {
    append: JoinHandle<Landing>,
    group: Group,
}

/// The spool, what was to be written, and where it lies now.
type Landing = (Spool, Vec<Frames>, Result<Position, SpoolError>);

impl Writer {
    pub(crate) fn new(spool: Spool, wiring: Wiring) -> Self {
        Self {
            id: spool.id(),
            config: spool.config().clone(),
            gathering: Group::from(spool.next_seq()),
            bytes: spool.bytes(),
            spool: Some(spool),
            wiring,
            flight: None,
            durable: None,
            landed_at: None,
            upkeep_at: Instant::now() + UPKEEP,
            parked: VecDeque::new(),
            full: false,
            full_told_at: None,
            wound: None,
            missed: MissedMap::new(),
            damage_seen: HashSet::new(),
            cursors_moved: false,
            heard: Heard::new(),
            stopped: Heard::new(),
            drained: false,
            last_words: false,
        }
    }

    /// Runs until every delivery has ended, then closes the spool.
    pub(crate) async fn run(mut self) -> Result<(), SpoolError> {
        self.tell_findings().await;
        // On its way before anything is saved that relies on it.
        self.launch_if_due();
        loop {
            let at_home = self.flight.is_none();
            if at_home {
                self.work_at_home().await;
                self.clear_tray();
                self.launch_if_due();
            }
            // After the next one has left: answering many takes a while.
            if let Some(group) = self.durable.take() {
                self.tell(group);
            }
            let (in_flight, at_home) = (self.flight.is_some(), self.flight.is_none());
            let due = self.due();
            let takes_more = self.takes_more();
            // What is laid meanwhile lies there until then anyway.
            let rests = self.launch_at().is_some_and(|at| Instant::now() < at);
            tokio::select! {
                biased;
                (group, landed) = landing(&mut self.flight), if in_flight => self.land(group, landed),
                note = self.wiring.notes.recv(), if at_home => match note {
                    Some(note) => self.take_note(note).await,
                    None => break,
                },
                () = self.wiring.closing.notified() => self.wiring.door.close(),
                submit = self.wiring.door.recv(), if takes_more => match submit {
                    Some(submit) => self.admit_all(submit),
                    None => self.drained(),
                },
                () = self.wiring.tray.laid.notified(), if takes_more && at_home && !rests => {}
                () = tokio::time::sleep_until(due), if at_home => {}
            }
        }
        self.finish().await
    }

    /// When something has to be done at home though nothing happens.
    fn due(&self) -> Instant {
        let nothing = self.gathering.is_empty() && !self.takes_more();
        match self.launch_at().filter(|at| !nothing && (*at > Instant::now() || !self.is_empty_handed())) {
            Some(at) => at.min(self.upkeep_at),
            None => self.upkeep_at,
        }
    }

    /// Neither has anything gathered nor is anything laid.
    fn is_empty_handed(&self) -> bool {
        self.gathering.is_empty() && self.wiring.tray.is_empty()
    }

    /// What needs the spool and cannot be done while a flight has it.
    async fn work_at_home(&mut self) {
        while let Ok(note) = self.wiring.notes.try_recv() {
            self.take_note(note).await;
        }
        if Instant::now() >= self.upkeep_at {
            self.upkeep().await;
        }
        if self.full && self.cursors_moved {
            self.tidy().await;
        }
        if !self.parked.is_empty() {
            self.unpark().await;
        }
        if self.drained && self.gathering.is_empty() {
            self.wind_down().await;
        }
        self.report();
    }

    /// Whether those at the door must wait outside: for room, or for the disk.
    fn waits(&self) -> bool {
        let for_room = self.full && self.config.on_full == OnFull::Block;
        (for_room || self.waits_for_disk()) && !self.wiring.door.is_closed()
    }

    /// Whether there is room for more in the group that gathers.
    fn takes_more(&self) -> bool {
        !self.drained && !self.waits() && self.gathering.bytes() < self.wiring.group_max
    }

    fn home(&mut self) -> &mut Spool {
        self.spool.as_mut().expect("no flight has it")
    }

    /// Runs file work on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Spool) -> T + Send + 'static,
    ) -> T {
        let mut spool = self.spool.take().expect("no flight has it");
        let work = move || {
            let done = work(&mut spool);
            (spool, done)
        };
        let (spool, done) = match self.wiring.own_thread {
            true => work(),
            false => tokio::task::spawn_blocking(work).await.expect("file work does not panic"),
        };
        self.bytes = spool.bytes();
        self.spool = Some(spool);
        done
    }

    fn report(&self) {
        let Some(spool) = &self.spool else { return };
        self.wiring.status.send_if_modified(|status| {
            let before = (status.spool_bytes, status.full, status.stopped.is_some());
            status.stopped = self.wound.as_ref().map(|wound| wound.error.with_source());
            status.full = self.full;
            status.spool_bytes = spool.bytes();
            status.spool_segments = spool.segments();
            status.dedup_keys = self.wiring.dedup.as_ref().map_or(0, DedupWindow::len);
            before != (status.spool_bytes, status.full, status.stopped.is_some())
        });
    }
}

/// When a stream was heard of whose newest record says `at`. Not when it became durable: what came in between is not
/// whole. A record of long ago, brought by somebody who has kept it, was heard of just now.
fn heard_at(at: UnixMs, now: UnixMs) -> UnixMs {
    let is_late = now.get().saturating_sub(at.get()) > LATE_MAX.as_millis() as i64;
    if is_late { now } else { at.min(now) }
}

/// Waits for the flight, if there is one. May be given up midway.
async fn landing(flight: &mut Option<Flight>) -> (Group, Landing) {
    let append = &mut flight.as_mut().expect("only asked while there is one").append;
    let landed = append.await.expect("file work does not panic");
    (flight.take().expect("just waited for").group, landed)
}

// In.
impl Writer {
    /// Takes the draft, and whatever else is already in line.
    fn admit_all(&mut self, first: Submit) {
        self.admit(first);
        while self.gathering.bytes() < self.wiring.group_max && !self.waits() {
            let Ok(submit) = self.wiring.door.try_recv() else { return };
            self.admit(submit);
        }
    }

    /// Takes what lies on the tray, if the group is to leave: until then it may as well lie there.
    fn clear_tray(&mut self) {
        let is_due = self.launch_at().is_none_or(|at| at <= Instant::now());
        if is_due
            && self.takes_more()
            && let Some(laid) = self.wiring.tray.take(&self.wiring.tail)
        {
            self.admit(laid);
        }
    }

    /// The door is closed and everybody inside was heard.
    fn drained(&mut self) {
        if let Some(laid) = self.wiring.tray.close(&self.wiring.tail) {
            self.admit(laid);
        }
        self.drained = true;
    }

    /// Adds a draft to the group, or lets it wait or go, as the spool's policy says.
    fn admit(&mut self, mut submit: Submit) {
        if self.waits_for_disk() {
            return self.parked.push_back(submit);
        }
        if self.wound.is_some() {
            return self.refuse(submit);
        }
        let waits_behind = !self.parked.is_empty();
        if !waits_behind && self.has_room(submit.draft.bytes()) {
            self.full = false;
            return self.number(submit);
        }
        if waits_behind && !self.full {
            // Those before it waited for the disk and are just being let in.
            return self.parked.push_back(submit);
        }
        self.note_full();
        let policy = self.config.on_full;
        let draft = &mut submit.draft;
        for mark in &mut draft.marks {
            let (venue, channel) = draft.streams[mark.stream as usize];
            mark.dropped = match policy {
                OnFull::Block => false,
                OnFull::DropAll => true,
                OnFull::DropTickerDepthKeepTrade => channel.is_quote(),
            };
            if mark.dropped {
                let frame = &draft.frames[mark.range()];
                self.missed.add(venue, channel, DropReason::SpoolFull, frame);
            }
        }
        if draft.marks.iter().any(|mark| !mark.dropped) {
            self.parked.push_back(submit);
        } else {
            self.number(submit);
        }
    }

    fn number(&mut self, submit: Submit) {
        let now = self.wiring.clock.monotonic();
        self.gathering.add(submit, self.id, &mut self.wiring.dedup, now);
    }

    fn has_room(&self, bytes: usize) -> bool {
        let taken = self.bytes + self.gathering.bytes() as u64;
        // An empty spool takes its first record whatever its size.
        taken == 0 || taken + bytes as u64 <= self.config.total_bytes_max
    }

    fn note_full(&mut self) {
        self.full = true;
        // A spool at its brim is full many times a second; once in a while is enough to know.
        if self.full_told_at.is_none_or(|at| at.elapsed() >= FULL_TOLD_EVERY) {
            self.full_told_at = Some(Instant::now());
            events::spool_full(self.bytes, self.config.on_full);
        }
    }

    /// Lets in what waited, as far as there is room.
    async fn unpark(&mut self) {
        while let Some(first) = self.parked.front() {
            let fits = self.has_room(first.draft.bytes()) && self.gathering.bytes() < self.wiring.group_max;
            if !fits || !self.probe().await {
                return;
            }
            let submit = self.parked.pop_front().expect("just looked at");
            self.number(submit);
        }
        self.full = false;
    }
}

// Out.
impl Writer {
    /// When the group may leave: long enough after the last one. At once, if enough has gathered or there was none.
    fn launch_at(&self) -> Option<Instant> {
        let enough = self.gathering.bytes() >= self.config.commit_bytes;
        self.landed_at.filter(|_| !enough).map(|at| at + self.config.commit_age)
    }

    fn launch_if_due(&mut self) {
        if self.gathering.is_empty() || self.launch_at().is_some_and(|at| Instant::now() < at) {
            return;
        }
        let next = self.gathering.next();
        let mut group = std::mem::replace(&mut self.gathering, next);
        if group.bytes() == 0 {
            // Only duplicates and dropped ones: nothing to write.
            return self.tell(group);
        }
        let mut spool = self.spool.take().expect("only at home");
        self.bytes += group.bytes() as u64;
        let (first_seq, last_seq) = (group.first_seq(), group.next_seq() - 1);
        let mut parts = group.take_parts(&self.wiring.tail);
        let fly = move || {
            let appended = spool.append(&mut parts, first_seq, last_seq);
            (spool, parts, appended)
        };
        if self.wiring.own_thread {
            // What comes meanwhile gathers at the door and on the tray.
            let landed = fly();
            if let Some(before) = self.durable.take() {
                self.tell(before);
            }
            return self.land(group, landed);
        }
        self.flight = Some(Flight { append: tokio::task::spawn_blocking(fly), group });
    }

    /// Hands the group to the sinks and tells everybody, or keeps or refuses it if the disk did not take it.
    fn land(&mut self, mut group: Group, (spool, parts, appended): Landing) {
        self.bytes = spool.bytes();
        self.spool = Some(spool);
        self.landed_at = Some(Instant::now());
        match appended {
            Ok(at) => {
                self.heal();
                self.wiring.tail.push(at, parts);
                self.durable = Some(group);
            }
            Err(error) => {
                group.put_back(parts);
                self.failed(group, error);
            }
        }
        if self.full {
            // Otherwise the open segment could hold the room for ever.
            self.home().seal();
        }
    }

    fn failed(&mut self, group: Group, error: SpoolError) {
        self.wound(error);
        // The group that has gathered meanwhile shares the fate: its records come after these.
        let next = Group::from(self.gathering.next_seq());
        let behind = std::mem::replace(&mut self.gathering, next);
        if let Some(window) = &mut self.wiring.dedup {
            window.take_back(group.keys() + behind.keys());
        }
        let waits = self.waits_for_disk();
        for submit in behind.into_submits().rev().chain(group.into_submits().rev()) {
            // What the writer itself has to say is said again when the time comes.
            if waits && !submit.is_own {
                self.parked.push_front(submit);
            } else {
                self.refuse(submit);
            }
        }
    }

    /// Counts what became of the records, and answers.
    fn tell(&mut self, group: Group) {
        let now = self.wiring.clock.wall().ms();
        for Member { mut submit, fates, tallies, .. } in group.into_members() {
            for (stream, tally) in submit.draft.streams.iter().zip(tallies) {
                if let Some(last) = tally.last {
                    let at = heard_at(last.ms(), now);
                    let heard = self.heard.entry(*stream).or_insert(at);
                    // The calendar may step back.
                    *heard = at.max((*heard).min(now));
                }
                self.wiring.books.came_in(*stream, |intake| {
                    intake.received += tally.received;
                    intake.accepted += tally.accepted;
                    intake.duplicate += tally.duplicate;
                    if tally.dropped > 0 {
                        *intake.dropped.entry(DropReason::SpoolFull).or_default() += tally.dropped;
                    }
                });
            }
            let records = submit.draft.len();
            submit.answer(|| Ok(fates.receipt(records)));
        }
    }

    /// Turns a draft away because nothing can be made durable.
    fn refuse(&mut self, mut submit: Submit) {
        let (reason, error) = match &self.wound {
            Some(wound) => (DropReason::Storage, AcceptError::Storage(Arc::clone(&wound.error))),
            None => (DropReason::Closed, AcceptError::Closed),
        };
        for mark in &submit.draft.marks {
            let stream @ (venue, channel) = submit.draft.streams[mark.stream as usize];
            // What the policy had already dropped keeps that reason.
            let reason = if mark.dropped { DropReason::SpoolFull } else { reason };
            self.wiring.books.came_in(stream, |intake| {
                intake.received += 1;
                *intake.dropped.entry(reason).or_default() += 1;
            });
            if reason == DropReason::Storage {
                let frame = &submit.draft.frames[mark.range()];
                self.missed.add(venue, channel, reason, frame);
            }
        }
        self.missed.merge(std::mem::take(&mut submit.missed));
        submit.answer(|| Err(error));
    }
}

// What the deliveries tell, and what is done from time to time.
impl Writer {
    async fn take_note(&mut self, note: Note) {
        match note {
            Note::Settled { sink, cursor } => {
                let spool = self.home();
                let before = spool.settled_before();
                spool.settle(&sink, cursor);
                let settled = spool.settled_before();
                self.cursors_moved = true;
                self.wiring.tail.settled(settled);
                if settled.segment > before.segment {
                    self.tidy().await;
                }
            }
            Note::Damaged(damage, told) => self.set_aside(damage, told).await,
            Note::Refused(records, told) => self.tell_refused(records, told),
        }
    }

    async fn upkeep(&mut self) {
        self.upkeep_at = Instant::now() + UPKEEP;
        if self.cursors_moved {
            self.tidy().await;
        }
        self.probe().await;
        self.unpark().await;
        self.flush_missed();
        self.wiring.tail.tidy();
    }

    async fn tidy(&mut self) {
        let (heard, stopped) = (self.heard.clone(), self.stopped.clone());
        let tidied = self.blocking(|spool| {
            spool.hear(heard, stopped);
            spool.tidy(false)
        });
        match tidied.await {
            Ok(gone) => {
                self.cursors_moved = false;
                self.wiring.tail.removed(&gone);
            }
            Err(error) => events::tidy_failed(&error),
        }
    }
}

// The end.
impl Writer {
    /// The door is closed and everybody inside was served: the sinks are told that nothing follows.
    async fn wind_down(&mut self) {
        if self.wiring.tail.is_closed() {
            return;
        }
        self.unpark().await;
        if !self.parked.is_empty() {
            return; // there may be room for them yet
        }
        if self.gathering.is_empty() && !std::mem::replace(&mut self.last_words, true) {
            self.flush_missed();
        }
        if self.gathering.is_empty() {
            self.wiring.tail.close();
        }
    }

    /// Every delivery has ended. What has gathered still becomes durable; what still waits has waited in vain.
    async fn finish(mut self) -> Result<(), SpoolError> {
        loop {
            if self.flight.is_some() {
                let (group, landed) = landing(&mut self.flight).await;
                self.land(group, landed);
            }
            if let Some(group) = self.durable.take() {
                self.tell(group);
            }
            self.landed_at = None; // no reason to wait for more
            self.launch_if_due();
            if self.flight.is_none() && self.durable.is_none() {
                break;
            }
        }
        for submit in std::mem::take(&mut self.parked) {
            self.refuse(submit);
        }
        self.home().seal();
        self.note_stop();
        let (heard, stopped) = (self.heard.clone(), self.stopped.clone());
        let tidied = self.blocking(|spool| {
            spool.hear(heard, stopped);
            spool.tidy(true)
        });
        let tidied = tidied.await;
        self.report();
        tidied.map(|_| ())
    }
}
