//! The door of the pipeline, and the one task that writes the spool.
//!
//! Drafts that arrive together are made durable together: one write, one sync, at most every `commit_age` or
//! `commit_bytes`. Whoever offered them is told only then, and only then do sinks see them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{
    Cause, Channel, Clock, Envelope, Gap, Payload, RecordId, Source, Symbol, UnixMs, Venue,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::DedupWindow;
use crate::books::{BookKeeper, DropReason};
use crate::draft::{Draft, Keys};
use crate::events;
use crate::frame;
use crate::quarantine::Quarantine;
use crate::reader::{Damage, DamageKind};
use crate::spool::{Cursor, OnFull, Spool, SpoolError, gap_times};
use crate::tail::{Chunk, Tail};

/// How often cursors are saved, gaps are written and a failing disk is tried.
const UPKEEP: Duration = Duration::from_secs(1);
/// A group takes what is already in line up to this, but waits for nothing beyond `commit_bytes`.
const GROUP_MAX: usize = 8 << 20;
/// How long a disk that has just failed is left alone.
const WOUND_REST: Duration = Duration::from_millis(500);

/// The door: offers drafts to the spool. Clones are the same door.
#[derive(Debug, Clone)]
pub struct Intake {
    pub(crate) door: mpsc::Sender<Submit>,
    /// Bytes that may be on their way at once, in KiB; whoever finds it full waits.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) room_kib: u32,
    pub(crate) keys: Keys,
}

/// What became of the records of a draft, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// One fate a record.
    pub fates: Vec<Fate>,
}

impl Receipt {
    /// The ids of the records that are now durable.
    pub fn ids(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.fates.iter().filter_map(|fate| match fate {
            Fate::Accepted(id) => Some(*id),
            Fate::Duplicate | Fate::Dropped => None,
        })
    }
}

/// What became of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is durable under this id and will reach every sink.
    Accepted(RecordId),
    /// It was accepted before.
    Duplicate,
    /// The spool is full and its policy drops such records; counted, and told as a gap.
    Dropped,
}

/// Why a draft was not accepted. Nothing of it will be delivered under an id that anybody was told.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcceptError {
    /// Nothing can be made durable just now; try again in a while.
    #[error(transparent)]
    Storage(Arc<SpoolError>),
    /// The pipeline is closed.
    #[error("the pipeline is closed")]
    Closed,
}

/// A draft that is on its way to the disk.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Receipt, AcceptError>>);

impl Pending {
    /// Waits until the draft is durable. May be dropped; the records are then accepted all the same.
    pub async fn durable(self) -> Result<Receipt, AcceptError> {
        self.0.await.unwrap_or(Err(AcceptError::Closed))
    }
}

impl Intake {
    /// An empty draft for this door.
    pub fn draft(&self) -> Draft {
        Draft::new(self.keys.clone())
    }

    /// Offers the draft and waits until it is durable.
    pub async fn accept(&self, draft: Draft) -> Result<Receipt, AcceptError> {
        self.submit(draft).await?.durable().await
    }

    /// Offers the draft and returns as soon as it is in line, so that more can follow before it is durable. Waits while
    /// too much is on its way.
    pub async fn submit(&self, draft: Draft) -> Result<Pending, AcceptError> {
        let kib = (draft.bytes() as u32 / 1024 + 1).min(self.room_kib);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| AcceptError::Closed)?;
        let (reply, told) = oneshot::channel();
        let submit = Submit { draft, reply: Some(reply), _room: Some(room) };
        self.door.send(submit).await.map_err(|_| AcceptError::Closed)?;
        Ok(Pending(told))
    }
}

/// A draft in line.
#[derive(Debug)]
pub(crate) struct Submit {
    draft: Draft,
    reply: Option<oneshot::Sender<Result<Receipt, AcceptError>>>,
    _room: Option<OwnedSemaphorePermit>,
}

/// What deliveries tell the writer.
#[derive(Debug)]
pub(crate) enum Note {
    Settled {
        sink: String,
        cursor: Cursor,
    },
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

/// What happens to drafts while the disk takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStorageError {
    /// They wait, and whoever offers them; nothing is missed that can wait.
    #[default]
    Wait,
    /// They are refused with the reason, counted, and told as a gap as soon as anything can be written.
    Refuse,
}

/// How the writer is doing.
#[derive(Debug, Clone, Default)]
pub(crate) struct IntakeStatus {
    /// Why nothing is accepted, if so.
    pub(crate) stopped: Option<String>,
    pub(crate) full: bool,
    pub(crate) spool_bytes: u64,
    pub(crate) spool_segments: usize,
}

/// The task that owns the spool.
pub(crate) struct Writer {
    pub(crate) spool: Spool,
    pub(crate) dedup: Option<DedupWindow>,
    pub(crate) on_storage_error: OnStorageError,
    pub(crate) tail: Arc<Tail>,
    pub(crate) books: Arc<BookKeeper>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) door: mpsc::Receiver<Submit>,
    pub(crate) notes: mpsc::Receiver<Note>,
    pub(crate) closing: Arc<Notify>,
    pub(crate) status: watch::Sender<IntakeStatus>,
    pub(crate) state: WriterState,
}

/// What the writer remembers from one group to the next.
#[derive(Default)]
pub(crate) struct WriterState {
    committed_at: Option<Instant>,
    /// Drafts that wait for room in the spool, oldest first.
    parked: VecDeque<Submit>,
    full: bool,
    wound: Option<Wound>,
    missed: BTreeMap<(Venue, Channel, DropReason), Missed>,
    damage_seen: HashSet<(u32, u64)>,
    moved: bool,
    /// The door is closed and everybody inside was served.
    drained: bool,
}

/// The disk failed, and when.
struct Wound {
    since: Instant,
    tried: Instant,
    error: Arc<SpoolError>,
    told: bool,
}

/// Records that were not accepted, until a gap says so.
struct Missed {
    from: UnixMs,
    to: UnixMs,
    records: u64,
    /// The symbol, as JSON has it, while there is only one.
    symbol: Option<String>,
}

/// Records that become durable together.
struct Group {
    frames: Vec<u8>,
    next_seq: u64,
    keys: usize,
    members: Vec<Member>,
}

struct Member {
    submit: Submit,
    receipt: Receipt,
    accepted: Vec<u64>,
}

impl Writer {
    /// Runs until every delivery has ended, then closes the spool.
    pub(crate) async fn run(mut self) -> Result<(), SpoolError> {
        self.tell_findings().await;
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // While everybody must wait for room, nobody is let in and they wait outside.
            let waits =
                self.state.full && self.spool.config().on_full == OnFull::Block && !self.door.is_closed();
            tokio::select! {
                biased;
                note = self.notes.recv() => match note {
                    Some(note) => self.take_notes(note).await,
                    None => break,
                },
                () = self.closing.notified() => self.door.close(),
                submit = self.door.recv(), if !waits && !self.state.drained => match submit {
                    Some(submit) => self.gather(submit).await,
                    None => self.close_tail().await,
                },
                _ = upkeep.tick() => self.upkeep().await,
            }
            self.report();
        }
        self.finish().await
    }

    /// Takes what else is in line, up to a group's size and age, and makes it durable.
    async fn gather(&mut self, first: Submit) {
        if self.state.wound.is_some() && !self.probe().await {
            return self.refuse(first);
        }
        let config = self.spool.config();
        let (age, bytes_max) = (config.commit_age, config.commit_bytes);
        let due = self.state.committed_at.map_or_else(Instant::now, |at| at + age);
        let mut group = self.new_group();
        self.admit(first, &mut group);
        while group.frames.len() < GROUP_MAX {
            let next = match self.door.try_recv() {
                Ok(submit) => Some(submit),
                Err(_) if group.frames.len() >= bytes_max => None,
                Err(_) => tokio::time::timeout_at(due, self.door.recv()).await.ok().flatten(),
            };
            let Some(submit) = next else { break };
            self.admit(submit, &mut group);
        }
        self.commit(group).await;
    }

    fn new_group(&self) -> Group {
        let frames = Vec::with_capacity(self.spool.config().commit_bytes + (256 << 10));
        Group { frames, next_seq: self.spool.next_seq(), keys: 0, members: Vec::new() }
    }

    /// Adds a draft to the group, or lets it wait or go, as the spool's policy says.
    fn admit(&mut self, mut submit: Submit, group: &mut Group) {
        let waits_behind = !self.state.parked.is_empty();
        if !waits_behind && self.spool.has_room(group.frames.len() + submit.draft.bytes()) {
            return self.number(submit, group);
        }
        self.note_full();
        let policy = self.spool.config().on_full;
        let draft = &mut submit.draft;
        for mark in &mut draft.marks {
            let (venue, channel) = draft.streams[mark.stream];
            mark.dropped = match policy {
                OnFull::Block => false,
                OnFull::DropAll => true,
                OnFull::DropTickerDepthKeepTrade => channel.is_quote(),
            };
            if mark.dropped {
                let frame = &draft.frames[mark.start..mark.start + mark.len];
                self.state.miss(venue, channel, DropReason::SpoolFull, frame);
            }
        }
        if draft.marks.iter().any(|mark| !mark.dropped) {
            self.state.parked.push_back(submit);
        } else {
            self.number(submit, group);
        }
    }

    /// Gives the records their ids and copies their frames into the group, duplicates and dropped ones left out.
    fn number(&mut self, submit: Submit, group: &mut Group) {
        let now = self.clock.monotonic();
        let draft = &submit.draft;
        let mut accepted = vec![0; draft.streams.len()];
        let mut fates = Vec::with_capacity(draft.len());
        for mark in &draft.marks {
            if mark.dropped {
                fates.push(Fate::Dropped);
                continue;
            }
            if let Some(window) = self.dedup.as_mut().filter(|_| mark.key != 0) {
                if !window.insert(mark.key, now) {
                    fates.push(Fate::Duplicate);
                    continue;
                }
                group.keys += 1;
            }
            let id = RecordId { spool: self.spool.id(), seq: group.next_seq };
            let start = group.frames.len();
            group.frames.extend_from_slice(&draft.frames[mark.start..mark.start + mark.len]);
            frame::number(&mut group.frames[start..], id, mark.id_at);
            group.next_seq += 1;
            accepted[mark.stream] += 1;
            fates.push(Fate::Accepted(id));
        }
        group.members.push(Member { submit, receipt: Receipt { fates }, accepted });
    }

    /// Makes the group durable, hands it to the sinks and tells everybody. Says whether it is durable.
    async fn commit(&mut self, mut group: Group) -> bool {
        if group.frames.is_empty() {
            self.tell(group.members);
            return true;
        }
        let last_seq = group.next_seq - 1;
        let mut frames = std::mem::take(&mut group.frames);
        let (frames, appended) = self
            .blocking(move |spool| {
                let appended = spool.append(&mut frames, last_seq);
                (frames, appended)
            })
            .await;
        self.state.committed_at = Some(Instant::now());
        match appended {
            Ok(at) => {
                self.heal();
                self.tail.push(Chunk { at, frames: Arc::new(frames) });
                self.tell(group.members);
                true
            }
            Err(error) => {
                if let Some(window) = &mut self.dedup {
                    window.take_back(group.keys);
                }
                self.wound(error);
                for member in group.members.into_iter().rev() {
                    if self.waits_for_disk() && member.submit.reply.is_some() {
                        self.state.parked.push_front(member.submit);
                    } else {
                        self.refuse(member.submit);
                    }
                }
                false
            }
        }
    }

    /// Counts what became of the records, and answers.
    fn tell(&mut self, members: Vec<Member>) {
        for Member { mut submit, receipt, accepted } in members {
            let mut tallies = vec![(0, 0, 0); submit.draft.streams.len()];
            for (mark, fate) in submit.draft.marks.iter().zip(&receipt.fates) {
                let (received, duplicate, dropped) = &mut tallies[mark.stream];
                *received += 1;
                *duplicate += u64::from(*fate == Fate::Duplicate);
                *dropped += u64::from(*fate == Fate::Dropped);
            }
            for ((stream, (received, duplicate, dropped)), accepted) in
                submit.draft.streams.iter().zip(tallies).zip(accepted)
            {
                self.books.came_in(*stream, |intake| {
                    intake.received += received;
                    intake.duplicate += duplicate;
                    intake.accepted += accepted;
                    if dropped > 0 {
                        *intake.dropped.entry(DropReason::SpoolFull).or_default() += dropped;
                    }
                });
            }
            submit.answer(Ok(receipt));
        }
    }

    /// Turns a draft away because nothing can be made durable.
    fn refuse(&mut self, mut submit: Submit) {
        let (reason, error) = match &self.state.wound {
            Some(wound) => (DropReason::Storage, AcceptError::Storage(Arc::clone(&wound.error))),
            None => (DropReason::Closed, AcceptError::Closed),
        };
        for mark in &submit.draft.marks {
            let stream @ (venue, channel) = submit.draft.streams[mark.stream];
            // What the policy had already dropped keeps that reason.
            let reason = if mark.dropped { DropReason::SpoolFull } else { reason };
            self.books.came_in(stream, |intake| {
                intake.received += 1;
                *intake.dropped.entry(reason).or_default() += 1;
            });
            if reason == DropReason::Storage {
                let frame = &submit.draft.frames[mark.start..mark.start + mark.len];
                self.state.miss(venue, channel, reason, frame);
            }
        }
        submit.answer(Err(error));
    }

    /// Runs file work on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Spool) -> T + Send + 'static,
    ) -> T {
        let placeholder = Spool::in_memory(self.spool.config().clone(), 0);
        let mut spool = std::mem::replace(&mut self.spool, placeholder);
        let ended = tokio::task::spawn_blocking(move || {
            let done = work(&mut spool);
            (spool, done)
        });
        let (spool, done) = ended.await.expect("file work does not panic");
        self.spool = spool;
        done
    }
}

// A failing disk.
impl Writer {
    /// Whether drafts are kept until the disk is back, instead of being refused.
    fn waits_for_disk(&self) -> bool {
        self.state.wound.is_some() && self.on_storage_error == OnStorageError::Wait && !self.door.is_closed()
    }

    fn wound(&mut self, error: SpoolError) {
        let now = Instant::now();
        match &mut self.state.wound {
            Some(wound) => {
                wound.tried = now;
                wound.error = Arc::new(error);
            }
            None => {
                events::intake_stopped(&error);
                self.state.wound =
                    Some(Wound { since: now, tried: now, error: Arc::new(error), told: false });
            }
        }
    }

    /// A group became durable; with the reserve back in place the disk counts as well.
    fn heal(&mut self) {
        if self.spool.has_reserve()
            && let Some(wound) = self.state.wound.take()
        {
            events::intake_resumed(wound.since.elapsed());
        }
    }

    /// Whether the disk takes something again. Writing the reserve anew is the trial.
    async fn probe(&mut self) -> bool {
        let Some(wound) = &mut self.state.wound else { return true };
        if wound.tried.elapsed() < WOUND_REST {
            return false;
        }
        wound.tried = Instant::now();
        self.blocking(Spool::try_disk).await.is_ok()
    }
}

// A full spool.
impl Writer {
    fn note_full(&mut self) {
        if !self.state.full {
            self.state.full = true;
            events::spool_full(self.spool.bytes(), self.spool.config().on_full);
        }
        // Otherwise the open segment could hold the room for ever.
        self.spool.seal();
    }

    /// Lets in what waited, as far as there is room.
    async fn unpark(&mut self) {
        while let Some(first) = self.state.parked.front() {
            if !self.spool.has_room(first.draft.bytes()) {
                return;
            }
            if self.state.wound.is_some() && !self.probe().await {
                return;
            }
            let mut group = self.new_group();
            while let Some(submit) = self.state.parked.pop_front() {
                self.number(submit, &mut group);
                let next = self.state.parked.front().map_or(0, |submit| submit.draft.bytes());
                let enough = group.frames.len() >= self.spool.config().commit_bytes;
                if enough || !self.spool.has_room(group.frames.len() + next) {
                    break;
                }
            }
            self.commit(group).await;
        }
        self.state.full = false;
    }
}

// What the deliveries tell, and what is done from time to time.
impl Writer {
    async fn take_notes(&mut self, first: Note) {
        let mut next = Some(first);
        let before = self.spool.settled_before();
        while let Some(note) = next {
            match note {
                Note::Settled { sink, cursor } => {
                    self.spool.settle(&sink, cursor);
                    self.state.moved = true;
                }
                Note::Damaged(damage, told) => {
                    self.set_aside(damage).await;
                    let _ = told.send(());
                }
                Note::Refused(records, told) => {
                    let gaps = records.into_iter().map(|record| {
                        let RefusedRecord { venue, channel, symbol, id, at } = record;
                        let gap =
                            Gap::new(channel.as_str(), at, at, Cause::Refused).missing(id, id).records(1);
                        (venue, Some(symbol), gap)
                    });
                    self.write_gaps(gaps.collect()).await;
                    let _ = told.send(());
                }
            }
            next = self.notes.try_recv().ok();
        }
        let crossed = self.spool.settled_before() > before;
        if self.state.full || crossed {
            self.tidy(false).await;
        }
        if self.state.full {
            self.unpark().await;
        }
    }

    async fn upkeep(&mut self) {
        if self.state.moved {
            self.tidy(false).await;
        }
        self.unpark().await;
        if self.state.wound.is_some() && self.probe().await {
            // Nobody may be offering anything just now; the gaps show that the disk is back.
            self.flush_missed().await;
            self.heal();
        } else {
            self.flush_missed().await;
        }
    }

    async fn tidy(&mut self, clean: bool) {
        let tidied = self.blocking(move |spool| spool.tidy(clean)).await;
        match tidied {
            Ok(gone) => {
                self.state.moved = false;
                self.tail.removed(&gone);
            }
            Err(error) => events::tidy_failed(&error),
        }
    }

    /// Damage is told once, however many sinks come across it.
    async fn set_aside(&mut self, damage: Damage) {
        if !self.state.damage_seen.insert((damage.at.segment, damage.at.offset)) {
            return;
        }
        let path = self.spool.segment_path(damage.at.segment);
        if damage.kind == DamageKind::Unreadable {
            self.spool.mark_unreadable(damage.at.segment);
        }
        let Some(disk) = self.spool.maybe_disk() else { return };
        let quarantine = Quarantine::new(disk, &self.spool.config().dir);
        match self.blocking(move |_| quarantine.keep(&path, &damage)).await {
            Ok(kept) => events::damage_found(&damage, &kept),
            Err(error) => events::damage_not_kept(&damage, &error),
        }
        self.books.damaged();
        if damage.kind == DamageKind::Header {
            return; // no record is lost with it
        }
        let (from, to) = gap_times(None, self.clock.wall());
        let mut gap = Gap::new("*", from, to, Cause::Corruption);
        let id = |seq| RecordId { spool: self.spool.id(), seq };
        if let Some(before) = damage.before_seq.filter(|before| *before > damage.after_seq + 1) {
            let count = before - damage.after_seq - 1;
            gap = gap.missing(id(damage.after_seq + 1), id(before - 1)).records(count);
        }
        self.write_gaps(vec![(Venue::recorder(), None, gap)]).await;
    }

    /// What the start noticed becomes the first records.
    async fn tell_findings(&mut self) {
        let findings = self.spool.take_findings();
        for damage in findings.damage {
            self.set_aside(damage).await;
        }
        if !findings.unclean {
            return;
        }
        let now = self.clock.wall();
        let gaps = findings.last_seen.iter().filter(|((_, channel), _)| *channel != Channel::gaps());
        let gaps = gaps.map(|((venue, channel), seen)| {
            let (from, to) = gap_times(Some(*seen), now);
            (*venue, None, Gap::new(channel.as_str(), from, to, Cause::Crash))
        });
        self.write_gaps(gaps.collect()).await;
    }

    /// Says in the data what was not accepted.
    async fn flush_missed(&mut self) {
        let may_tell = self.state.wound.as_ref().is_none_or(|wound| !wound.told);
        if self.state.missed.is_empty() || !may_tell {
            return;
        }
        if let Some(wound) = &mut self.state.wound {
            wound.told = true;
        }
        let missed = std::mem::take(&mut self.state.missed);
        let gaps = missed.iter().map(|((venue, channel, reason), missed)| {
            let cause = if *reason == DropReason::SpoolFull { Cause::Overflow } else { Cause::Storage };
            let gap = Gap::new(channel.as_str(), missed.from, missed.to, cause).records(missed.records);
            (*venue, missed.symbol.clone(), gap)
        });
        if !self.write_gaps(gaps.collect()).await {
            self.state.missed = missed;
        }
    }

    /// Writes gaps past every policy: a few hundred bytes that say what the policies cost.
    async fn write_gaps(&mut self, gaps: Vec<(Venue, Option<String>, Gap)>) -> bool {
        if gaps.is_empty() {
            return true;
        }
        let now = self.clock.wall();
        let mut draft = Draft::new(Keys::Off);
        for (venue, symbol, gap) in &gaps {
            let json = gap.to_json();
            let symbol: Option<String> =
                symbol.as_ref().and_then(|s| serde_json::from_str(&format!("\"{s}\"")).ok());
            let envelope = Envelope {
                message_id: None,
                sequence: None,
                exchange: *venue,
                channel: Channel::gaps(),
                symbol: symbol.as_deref().and_then(|s| Symbol::new(s).ok()).unwrap_or(Symbol::ALL),
                server_time: None,
                received_at: now,
                payload: Payload::parse(json.as_bytes()).expect("a gap is JSON on one line"),
                source: Source::RECORDER,
            };
            draft.push(&envelope).expect("a gap is small");
        }
        let mut group = self.new_group();
        self.number(Submit { draft, reply: None, _room: None }, &mut group);
        self.commit(group).await
    }
}

// The end.
impl Writer {
    /// The door is closed and everybody inside was served: the sinks are told that nothing follows.
    async fn close_tail(&mut self) {
        self.state.drained = true;
        self.unpark().await;
        for submit in std::mem::take(&mut self.state.parked) {
            self.state.wound = None;
            self.refuse(submit);
        }
        self.flush_missed().await;
        self.tail.close();
    }

    async fn finish(mut self) -> Result<(), SpoolError> {
        self.spool.seal();
        let tidied = self.blocking(|spool| spool.tidy(true)).await;
        self.report();
        tidied.map(|_| ())
    }

    fn report(&self) {
        self.status.send_modify(|status| {
            status.stopped = self.state.wound.as_ref().map(|wound| wound.error.to_string());
            status.full = self.state.full;
            status.spool_bytes = self.spool.bytes();
            status.spool_segments = self.spool.segments();
        });
    }
}

impl WriterState {
    /// Counts a record that is not accepted, for the gap that will say so.
    fn miss(&mut self, venue: Venue, channel: Channel, reason: DropReason, frame: &[u8]) {
        if channel == Channel::gaps() {
            return;
        }
        let parts = frame::Parts::decode(frame);
        let at = catchment_model::UnixNs::new(parts.received_at_ns).expect("written from a time").ms();
        let line = &frame[frame::HEAD..];
        let symbol = &line[usize::from(parts.symbol)..][..usize::from(parts.symbol_len)];
        let missed = self.missed.entry((venue, channel, reason)).or_insert_with(|| Missed {
            from: at,
            to: at,
            records: 0,
            symbol: Some(String::from_utf8_lossy(symbol).into_owned()),
        });
        missed.from = missed.from.min(at);
        missed.to = missed.to.max(at);
        missed.records += 1;
        if missed.symbol.as_ref().is_some_and(|one| one.as_bytes() != symbol) {
            missed.symbol = None;
        }
    }
}

impl Submit {
    fn answer(&mut self, answer: Result<Receipt, AcceptError>) {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have gone; the records are accepted all the same.
            let _ = reply.send(answer);
        }
    }
}
