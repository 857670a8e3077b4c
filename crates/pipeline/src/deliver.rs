//! One delivery a sink: reads from its cursor on, from memory while it keeps up and from disk when it lags, offers
//! batches until they are taken, and moves the cursor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Channel, Clock, SpoolId, UnixNs, Venue};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::batch::{Batch, BatchBuilder};
use crate::books::{BookKeeper, Outlet};
use crate::dead_letter::DeadLetters;
use crate::disk::Disk;
use crate::events;
use crate::frame::{FRAME_MIN, HEADER, Header};
use crate::reader::{self, Damage, DamageKind, Piece, Position};
use crate::sink::{Next, Refusal, Sink, SinkError, SinkState};
use crate::spool::{Cursor, segment_path};
use crate::tail::{Frontier, Tail, Whereabouts};
use crate::write_times::WriteTimes;
use crate::writer::{Note, RefusedRecord};

/// How a sink is fed.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// A batch holds at most so many records,
    pub batch_records: usize,
    /// and at most so many bytes (one record may be larger),
    pub batch_bytes: usize,
    /// and waits at most so long for more.
    pub batch_age: Duration,
    /// A batch that fails is offered so many times more before the sink counts as unreachable.
    pub retries_max: u32,
    /// The first wait; each further one is twice as long, with jitter.
    pub retry_base: Duration,
    /// No wait is longer.
    pub retry_cap: Duration,
    /// So many exhausted batches in a row make the sink degraded.
    pub degraded_after: u32,
    /// A rest between batches that come from disk, so that catching up leaves the sink some air.
    pub replay_rest: Duration,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            batch_records: 10_000,
            batch_bytes: 4 << 20,
            batch_age: Duration::from_millis(100),
            retries_max: 3,
            retry_base: Duration::from_millis(100),
            retry_cap: Duration::from_secs(5),
            degraded_after: 3,
            replay_rest: Duration::ZERO,
        }
    }
}

/// A sink is told that nothing comes after this long.
const IDLE: Duration = Duration::from_secs(1);
/// How often a segment is read in vain before it is given up.
const READS_MAX: u32 = 3;

/// How a delivery is doing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveryStatus {
    pub(crate) state: SinkState,
    pub(crate) cursor: Cursor,
    pub(crate) last_write: Duration,
    pub(crate) write_times: WriteTimes,
}

/// The task that feeds one sink.
pub(crate) struct Deliverer {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) config: Delivery,
    pub(crate) spool: SpoolId,
    /// Records below this number were in the spool before this start.
    pub(crate) start_seq: u64,
    pub(crate) cursor: Cursor,
    pub(crate) tail: Arc<Tail>,
    pub(crate) frontier: watch::Receiver<Frontier>,
    /// Set when there is no more time to wait for a sink that does not answer.
    pub(crate) give_up: watch::Receiver<bool>,
    pub(crate) notes: mpsc::Sender<Note>,
    pub(crate) books: Arc<BookKeeper>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) storage: Option<Storage>,
    pub(crate) dead_letters: Option<DeadLetters>,
    pub(crate) status: watch::Sender<DeliveryStatus>,
    pub(crate) random: StdRng,
    pub(crate) failures: u32,
    /// When the last delivered record was received.
    pub(crate) last_received: Option<UnixNs>,
}

/// Where segments are read from.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
}

/// A batch and where the cursor is once it is written.
struct Gathered {
    batch: Batch,
    after: Cursor,
    from_disk: bool,
}

impl Deliverer {
    /// Runs until the pipeline is closed and everything is delivered, or there is no more time.
    pub(crate) async fn run(mut self) {
        while let Some(gathered) = self.gather().await {
            let from_disk = gathered.from_disk;
            if !self.deliver(gathered).await {
                break;
            }
            if from_disk && !self.config.replay_rest.is_zero() {
                tokio::time::sleep(self.config.replay_rest).await;
            }
        }
        if let Err(error) = self.sink.close().await {
            events::sink_not_closed(self.sink.name(), &error);
        }
    }

    /// The next batch; nothing once the pipeline is closed and all is delivered.
    async fn gather(&mut self) -> Option<Gathered> {
        let mut builder = BatchBuilder::new(self.spool);
        let mut after = self.cursor;
        let mut from_disk = false;
        let mut due = None;
        let mut is_due = false;
        let mut reads_failed = 0;
        while builder.len() < self.config.batch_records && builder.bytes() < self.config.batch_bytes {
            if *self.give_up.borrow() {
                return None;
            }
            match self.tail.find(after.at) {
                Whereabouts::Memory(chunk, start) => {
                    let (records, bytes) = (self.config.batch_records, self.config.batch_bytes);
                    let (stopped, seq) = builder.take(&chunk.frames, start, after.seq, records, bytes);
                    after =
                        Cursor { at: Position { offset: chunk.at.offset + stopped as u64, ..chunk.at }, seq };
                }
                Whereabouts::Disk { at, end } => {
                    if !self.read(&mut builder, &mut after, at, end, &mut reads_failed).await {
                        continue;
                    }
                    from_disk = true;
                }
                Whereabouts::Next { at, missing } => {
                    if missing {
                        self.tell_missing(after, at, &builder).await;
                    }
                    after.at = at;
                }
                // All that is there is taken, and it has waited long enough.
                Whereabouts::End if is_due => break,
                Whereabouts::End => {
                    let tail = Arc::clone(&self.tail);
                    let _waiting = tail.wait_for(self.wanted(&builder));
                    let closed = self.frontier.borrow_and_update().closed;
                    let came_just_now = !self.tail.find(after.at).is_end();
                    if came_just_now {
                        continue;
                    }
                    if closed {
                        break;
                    }
                    if builder.len() == 0 {
                        self.wait_idle().await;
                    } else {
                        let due = *due.get_or_insert_with(|| Instant::now() + self.config.batch_age);
                        is_due = tokio::time::timeout_at(due, self.frontier.changed()).await.is_err();
                    }
                }
            }
        }
        let batch = builder.build();
        if batch.is_empty() {
            // Only damage lay there: nothing to write, but the cursor moves over it.
            return (after != self.cursor).then_some(Gathered { batch, after, from_disk });
        }
        Some(Gathered { batch, after, from_disk })
    }

    /// How many bytes of frames must come before a batch can be full; anything at all, if it is empty.
    fn wanted(&self, builder: &BatchBuilder) -> usize {
        if builder.len() == 0 {
            return 1;
        }
        let records = self.config.batch_records.saturating_sub(builder.len());
        let bytes = self.config.batch_bytes.saturating_sub(builder.bytes());
        bytes.min(records.saturating_mul(FRAME_MIN)).max(1)
    }

    /// Waits for the first record of a batch; a sink with nothing to write is given time to tidy up.
    async fn wait_idle(&mut self) {
        if tokio::time::timeout(IDLE, self.frontier.changed()).await.is_err()
            && let Err(error) = self.sink.idle().await
        {
            events::write_failed(self.sink.name(), 0, &error);
        }
    }

    /// Reads a piece from disk. `false`: it failed, or there was only damage.
    async fn read(
        &mut self,
        builder: &mut BatchBuilder,
        after: &mut Cursor,
        at: Position,
        end: u64,
        failed: &mut u32,
    ) -> bool {
        let storage = self.storage.clone().expect("what is not in memory is on disk");
        let seq = after.seq;
        let piece = tokio::task::spawn_blocking(move || {
            let file = storage.disk.open(&segment_path(&storage.dir, at.segment))?;
            reader::read_piece(&*file, at, end, seq)
        });
        match piece.await.expect("reading does not panic") {
            Ok(Piece::Frames(frames)) => {
                *failed = 0;
                let frames = Arc::new(frames);
                let (records, bytes) = (self.config.batch_records, self.config.batch_bytes);
                let before = builder.len();
                let (stopped, seq) = builder.take(&frames, 0, after.seq, records, bytes);
                *after = Cursor { at: Position { offset: at.offset + stopped as u64, ..at }, seq };
                self.books.replayed((builder.len() - before) as u64);
                return true;
            }
            Ok(Piece::Damage(damage)) => {
                self.tell_damage(damage, builder).await;
                after.at.offset = at.offset + damage.len;
            }
            Ok(Piece::End) => after.at.offset = end,
            Err(error) => {
                *failed += 1;
                events::read_failed(self.sink.name(), at.segment, &error);
                if *failed < READS_MAX {
                    tokio::time::sleep(self.back_off(*failed)).await;
                } else {
                    *failed = 0;
                    let damage = Damage::new(at, end - at.offset, DamageKind::Unreadable, after.seq);
                    self.tell_damage(damage, builder).await;
                    after.at.offset = end;
                }
            }
        }
        false
    }

    /// Segments between two others are gone: the header of the next one tells how many records that were.
    async fn tell_missing(&mut self, after: Cursor, next: Position, builder: &BatchBuilder) {
        let Some(storage) = self.storage.clone() else { return };
        let header = tokio::task::spawn_blocking(move || {
            let mut bytes = [0; HEADER];
            let path = segment_path(&storage.dir, next.segment);
            storage.disk.open(&path).and_then(|file| file.read_at(&mut bytes, 0)).ok()?;
            Header::decode(&bytes)
        });
        let header = header.await.expect("reading does not panic");
        let at = Position { segment: after.at.segment + 1, offset: 0 };
        let before_seq = header.map(|header| header.first_seq);
        let damage = Damage { before_seq, ..Damage::new(at, 0, DamageKind::Missing, after.seq) };
        self.tell_damage(damage, builder).await;
    }

    async fn tell_damage(&self, damage: Damage, builder: &BatchBuilder) {
        let damage = Damage { after_time: builder.last_received().or(self.last_received), ..damage };
        self.tell_and_wait(|told| Note::Damaged(damage, told)).await;
    }

    async fn tell(&self, note: Note) {
        // The writer outlives every delivery; if it is gone, the process is ending.
        let _ = self.notes.send(note).await;
    }

    async fn tell_and_wait(&self, note: impl FnOnce(oneshot::Sender<()>) -> Note) {
        let (told, done) = oneshot::channel();
        self.tell(note(told)).await;
        let _ = done.await;
    }

    fn back_off(&mut self, attempt: u32) -> Duration {
        let doubled = self.config.retry_base.saturating_mul(1 << attempt.min(20));
        // Equal jitter: never less than half, so that a sink that struggles gets its rest.
        doubled.min(self.config.retry_cap).mul_f64(self.random.random_range(0.5..=1.0))
    }
}

// Writing.
impl Deliverer {
    /// Offers the batch until it is taken. `false`: there is no more time; the records stay in the spool.
    async fn deliver(&mut self, gathered: Gathered) -> bool {
        let Gathered { mut batch, after, .. } = gathered;
        let last_received = batch.iter().next_back().map(|record| record.received_at());
        let mut counts = self.count(&batch);
        let mut attempt = 0;
        while !batch.is_empty() {
            let started = Instant::now();
            let written = self.sink.write(&batch).await;
            if written.is_err() {
                self.books.not_written(self.sink.name(), &counts);
            }
            match written {
                Ok(()) => {
                    self.succeeded(started.elapsed());
                    break;
                }
                Err(error) => match error.next() {
                    Next::SetAside(refused) => {
                        if !self.set_aside(&batch, refused, &mut counts).await {
                            return false;
                        }
                        let places: Vec<usize> = refused.iter().map(|r| r.index).collect();
                        batch = batch.without(&places);
                    }
                    Next::Wait(wait) => {
                        events::write_failed(self.sink.name(), attempt, &error);
                        if !self.rest(wait).await {
                            return false;
                        }
                    }
                    Next::BackOff => {
                        events::write_failed(self.sink.name(), attempt, &error);
                        let wait = if attempt < self.config.retries_max {
                            attempt += 1;
                            self.back_off(attempt - 1)
                        } else {
                            // Exhausted: S1's count goes up by one, and the batch gets a fresh set of tries.
                            attempt = 0;
                            self.failed(&error);
                            self.back_off(u32::MAX)
                        };
                        if !self.rest(wait).await {
                            return false;
                        }
                    }
                },
            }
        }
        self.books.went_out(self.sink.name(), &counts);
        self.last_received = last_received;
        // Its memory can be used again once this is told.
        drop(batch);
        self.settle(after).await;
        true
    }

    async fn settle(&mut self, after: Cursor) {
        self.cursor = after;
        self.status.send_modify(|status| status.cursor = after);
        self.tell(Note::Settled { sink: self.sink.name().to_owned(), cursor: after }).await;
    }

    /// Sleeps, unless there is no more time.
    async fn rest(&mut self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            _ = self.give_up.wait_for(|give_up| *give_up) => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    fn succeeded(&mut self, took: Duration) {
        self.failures = 0;
        self.change_state(SinkState::Ok, None);
        self.status.send_modify(|status| {
            status.last_write = took;
            status.write_times.add(took);
        });
    }

    /// S1's rule: unreachable with the first exhausted batch, degraded after several in a row.
    fn failed(&mut self, error: &SinkError) {
        self.failures += 1;
        let degraded = self.failures >= self.config.degraded_after;
        let state = if degraded { SinkState::Degraded } else { SinkState::Unreachable };
        self.change_state(state, Some(error));
    }

    fn change_state(&mut self, to: SinkState, error: Option<&SinkError>) {
        let from = self.status.borrow().state;
        if from != to {
            events::state_changed(self.sink.name(), from, to, error);
            self.status.send_modify(|status| status.state = to);
        }
    }

    /// Puts refused records into the dead-letter file; only then may the others go on without them.
    async fn set_aside(&mut self, batch: &Batch, refused: &[Refusal], counts: &mut Counts) -> bool {
        assert!(!refused.is_empty(), "{} refuses, but does not say what", self.sink.name());
        events::records_refused(self.sink.name(), refused.len(), &refused[0].reason);
        while let Some(mut letters) = self.dead_letters.take() {
            let (batch, reasons) = (batch.clone(), refused.to_vec());
            let now = self.clock.wall();
            let added = tokio::task::spawn_blocking(move || {
                let lines: Vec<_> = reasons
                    .iter()
                    .map(|r| {
                        (batch.get(r.index).expect("a sink names records of the batch"), r.reason.as_str())
                    })
                    .collect();
                let added = letters.add(&lines, now);
                (letters, added)
            });
            let (letters, added) = added.await.expect("writing letters does not panic");
            self.dead_letters = Some(letters);
            match added {
                Ok(()) => break,
                Err(error) => {
                    events::dead_letter_failed(self.sink.name(), &error);
                    let wait = self.back_off(3);
                    if !self.rest(wait).await {
                        return false;
                    }
                }
            }
        }
        let mut told = Vec::new();
        for refusal in refused {
            let record = batch.get(refusal.index).expect("a sink names records of the batch");
            let (venue, channel) = record.stream();
            let outlet = counts.entry((venue, channel)).or_default();
            outlet.written -= 1;
            outlet.quarantined += 1;
            // A sink that takes no gaps would be told of that for ever.
            if channel != Channel::gaps() {
                let (symbol, at) = (record.symbol_escaped().to_owned(), record.received_at().ms());
                told.push(RefusedRecord { venue, channel, symbol, id: record.id(), at });
            }
        }
        if !told.is_empty() {
            self.tell_and_wait(|answer| Note::Refused(told, answer)).await;
        }
        true
    }

    /// What the books will say once the whole batch is written.
    fn count(&self, batch: &Batch) -> Counts {
        let mut counts = Counts::new();
        for run in batch.runs() {
            let (seqs, outlet) = (run.seqs(), counts.entry(run.stream()).or_default());
            outlet.written += seqs.end - seqs.start;
            outlet.recovered += self.start_seq.clamp(seqs.start, seqs.end) - seqs.start;
        }
        counts
    }
}

type Counts = BTreeMap<(Venue, Channel), Outlet>;

/// A delivery's own randomness, from the pipeline's seed and the sink's name.
pub(crate) fn random_for(seed: u64, sink: &str) -> StdRng {
    StdRng::seed_from_u64(seed ^ xxhash_rust::xxh3::xxh3_64(sink.as_bytes()))
}
