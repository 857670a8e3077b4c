//! The running whole: one task that writes the spool, one that feeds each sink.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use catchment_model::{Cause, Channel, Clock, UnixMs, Venue};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::books::{BookKeeper, Books};
use crate::dead_letter::DeadLetters;
use crate::deliver::{Deliverer, Delivery, DeliveryStatus, Storage, random_for};
use crate::intake::{Intake, OnStorageError, Tray};
use crate::sink::{Sink, SinkState};
use crate::spool::{Findings, Spool, SpoolError};
use crate::tail::Tail;
use crate::writer::{Wiring, Writer, WriterStatus};
use crate::{DedupConfig, DedupWindow, Keys, WriteTimes};

/// How the pipeline as a whole behaves.
#[derive(Debug, Clone)]
pub struct PipelineConfig {
    /// Which records are dropped as duplicates, if any.
    pub dedup: Option<DedupConfig>,
    /// How much of the newest records is kept in memory for the sinks.
    pub tail_bytes: usize,
    /// How much may be on its way into the spool at once.
    pub intake_bytes: usize,
    /// What happens while the disk takes nothing.
    pub on_storage_error: OnStorageError,
    /// Venues that are listened to as they speak: what they say while nobody does is missing, so a stop is told as a gap
    /// by the next start that listens to them again.
    pub live: Vec<Venue>,
    /// Whether the spool is written on a thread of its own, by whoever gathers what is written: nobody has to be woken
    /// for that, and nobody to be told. Not for tests that stop the clock, which is each runtime's own.
    pub own_thread: bool,
    /// The seed of the jitter.
    pub seed: u64,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            dedup: None,
            tail_bytes: 32 << 20,
            intake_bytes: 32 << 20,
            on_storage_error: OnStorageError::Wait,
            live: Vec::new(),
            own_thread: false,
            seed: 0,
        }
    }
}

/// No group that is written at once is larger; a quarter of what may be on its way is the other bound.
const GROUP_MAX: usize = 8 << 20;

/// A stream that nobody has listened to since a crash or a stop. The start writes a gap for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// Whose it is.
    pub venue: Venue,
    /// Which.
    pub channel: Channel,
    /// When it was last heard of, or stopped.
    pub since: UnixMs,
    /// Which of the two it was.
    pub cause: Cause,
}

/// A running pipeline.
#[derive(Debug)]
pub struct Pipeline {
    intake: Intake,
    monitor: Monitor,
    resumed: Vec<Resumed>,
    closing: Arc<Notify>,
    last_call: Arc<OnceLock<UnixMs>>,
    clock: Arc<dyn Clock>,
    give_up: watch::Sender<bool>,
    writer: tokio::task::JoinHandle<Result<(), SpoolError>>,
    deliveries: JoinSet<()>,
}

/// Looks at a pipeline while it runs, and while it closes. Clones look at the same one.
#[derive(Debug, Clone)]
pub struct Monitor {
    books: Arc<BookKeeper>,
    tail: Arc<Tail>,
    writer: watch::Receiver<WriterStatus>,
    sinks: Vec<(String, watch::Receiver<DeliveryStatus>)>,
}

/// How the pipeline is doing.
#[derive(Debug, Clone)]
pub struct Health {
    /// Why nothing is accepted, if so.
    pub stopped: Option<String>,
    /// Whether the spool is full.
    pub full: bool,
    /// What the spool takes on disk.
    pub spool_bytes: u64,
    /// In how many segments.
    pub spool_segments: usize,
    /// What is kept in memory for the sinks.
    pub tail_bytes: usize,
    /// Keys of records by which duplicates are known, as of the last group.
    pub dedup_keys: usize,
    /// How each sink is doing.
    pub sinks: Vec<SinkHealth>,
}

/// How one sink is doing.
#[derive(Debug, Clone)]
pub struct SinkHealth {
    /// Which.
    pub name: String,
    /// Its state.
    pub state: SinkState,
    /// How long its last batch took: S1's `write_batch_latency_ms`.
    pub last_write: Duration,
    /// How long all of them took.
    pub write_times: WriteTimes,
}

impl Health {
    /// Whether records are accepted.
    pub fn is_ready(&self) -> bool {
        self.stopped.is_none()
    }
}

impl Pipeline {
    /// Starts the tasks. Each sink goes on where its cursor is; a new one starts with the oldest record.
    pub fn start(
        mut spool: Spool,
        sinks: Vec<(Arc<dyn Sink>, Delivery)>,
        config: PipelineConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SpoolError> {
        assert!(!sinks.is_empty(), "a pipeline without a sink would fill its spool for ever");
        let names: Vec<String> = sinks.iter().map(|(sink, _)| sink.name().to_owned()).collect();
        let cursors = spool.serve(&names);
        let books = Arc::new(BookKeeper::default());
        let tail_bytes = if spool.is_on_disk() { config.tail_bytes } else { usize::MAX };
        let tail = Arc::new(Tail::new(spool.readable(), tail_bytes));
        let storage = spool.maybe_disk().map(|disk| Storage { disk, dir: spool.config().dir.clone() });
        let (give_up, giving_up) = watch::channel(false);
        // Full: deliveries wait for the writer to note how far they are.
        let (notes, noted) = mpsc::channel(1_024);
        let mut deliveries = JoinSet::new();
        let mut statuses = Vec::new();
        for ((sink, delivery), cursor) in sinks.into_iter().zip(cursors) {
            books.sink_known(sink.name());
            let status = watch::Sender::new(DeliveryStatus {
                state: SinkState::Ok,
                cursor,
                last_write: Duration::ZERO,
                write_times: WriteTimes::default(),
            });
            statuses.push((sink.name().to_owned(), status.subscribe()));
            let open_letters = |s: &Storage| DeadLetters::open(Arc::clone(&s.disk), &s.dir, sink.name());
            let dead_letters = storage.as_ref().map(open_letters).transpose();
            deliveries.spawn(
                Deliverer {
                    random: random_for(config.seed, sink.name()),
                    config: delivery,
                    spool: spool.id(),
                    start_seq: spool.next_seq(),
                    cursor,
                    tail: Arc::clone(&tail),
                    frontier: tail.watch(),
                    give_up: giving_up.clone(),
                    notes: notes.clone(),
                    books: Arc::clone(&books),
                    clock: Arc::clone(&clock),
                    dead_letters: dead_letters.map_err(|source| SpoolError::Open {
                        path: spool.config().dir.join("dead_letter"),
                        source,
                    })?,
                    storage: storage.clone(),
                    status,
                    failures: 0,
                    last_received: None,
                    sink,
                }
                .run(),
            );
        }
        drop(notes);
        let keys = match &config.dedup {
            Some(dedup) => Keys::On { by_payload: dedup.by_payload.clone().into() },
            None => Keys::Off,
        };
        // No room: whoever offers a draft waits, and the sockets behind them back up. A draft takes a KiB at least.
        let room_kib = (config.intake_bytes / 1024).max(1) as u32;
        let (door, offered) = mpsc::channel(room_kib as usize);
        let tray = Arc::new(Tray::new());
        let intake = Intake {
            door,
            tray: Arc::clone(&tray),
            tail: Arc::clone(&tail),
            room: Arc::new(Semaphore::new(room_kib as usize)),
            room_kib,
            keys,
            usual: Arc::default(),
        };
        let closing = Arc::new(Notify::new());
        let last_call = Arc::new(OnceLock::new());
        let resumed = resumed(spool.findings(), &config.live);
        let (status, writer_status) = watch::channel(WriterStatus::default());
        let wiring = Wiring {
            dedup: config.dedup.as_ref().map(DedupWindow::new),
            group_max: (config.intake_bytes / 4).min(GROUP_MAX),
            on_storage_error: config.on_storage_error,
            tail: Arc::clone(&tail),
            books: Arc::clone(&books),
            clock: Arc::clone(&clock),
            door: offered,
            tray,
            notes: noted,
            closing: Arc::clone(&closing),
            live: config.live,
            last_call: Arc::clone(&last_call),
            give_up: giving_up,
            status,
            own_thread: config.own_thread,
        };
        let writer = match config.own_thread {
            true => tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let runtime = runtime.expect("a runtime without sockets needs nothing of the system");
                runtime.block_on(Writer::new(spool, wiring).run())
            }),
            false => tokio::spawn(Writer::new(spool, wiring).run()),
        };
        let monitor = Monitor { books, tail, writer: writer_status, sinks: statuses };
        Ok(Self { intake, monitor, resumed, closing, last_call, clock, give_up, writer, deliveries })
    }

    /// The door for records.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// The streams that go on after a crash or a stop, of which this start writes a gap.
    pub fn resumed(&self) -> &[Resumed] {
        &self.resumed
    }

    /// Looks at it, also while it closes.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// The counters as they are now.
    pub fn books(&self) -> Books {
        self.monitor.books()
    }

    /// How it is doing.
    pub fn health(&self) -> Health {
        self.monitor.health()
    }

    /// From now on live venues are not listened to any more, though what is under way may still come. Without it that is
    /// so when the pipeline has closed.
    pub fn last_call(&self) {
        // The first call counts.
        let _ = self.last_call.set(self.clock.wall().ms());
    }

    /// Takes no more records, makes durable what was offered, delivers what is in the spool, and closes. A sink that has
    /// not taken everything after `patience` is left: its records stay in the spool for the next start.
    pub async fn close(self, patience: Duration) -> Result<Books, SpoolError> {
        self.close_until(tokio::time::sleep(patience)).await
    }

    /// The same, with a patience that ends when the future does.
    pub async fn close_until(mut self, patience: impl Future<Output = ()>) -> Result<Books, SpoolError> {
        self.closing.notify_one();
        let drained = async { while self.deliveries.join_next().await.is_some() {} };
        let in_time = tokio::select! {
            biased;
            () = drained => true,
            () = patience => false,
        };
        if !in_time {
            self.give_up.send_replace(true);
            // A sink that hangs in the middle of a write is not waited for.
            let last = async { while self.deliveries.join_next().await.is_some() {} };
            if tokio::time::timeout(Duration::from_secs(1), last).await.is_err() {
                self.deliveries.shutdown().await;
            }
        }
        self.writer.await.expect("the writer does not panic")?;
        Ok(self.monitor.books())
    }
}

/// Those of whom the writer tells a gap.
fn resumed(findings: &Findings, live: &[Venue]) -> Vec<Resumed> {
    let crashed = findings.last_seen.iter().filter(|_| findings.unclean).map(|seen| (seen, Cause::Crash));
    let stopped = findings.stopped.iter().filter(|((venue, _), _)| live.contains(venue));
    let all = crashed.chain(stopped.map(|seen| (seen, Cause::Stopped)));
    let all = all.filter(|(((_, channel), _), _)| *channel != Channel::gaps());
    all.map(|(((venue, channel), since), cause)| Resumed {
        venue: *venue,
        channel: *channel,
        since: *since,
        cause,
    })
    .collect()
}

impl Monitor {
    /// The counters as they are now.
    pub fn books(&self) -> Books {
        self.books.snapshot()
    }

    /// How it is doing.
    pub fn health(&self) -> Health {
        let status = self.writer.borrow().clone();
        let sinks = self.sinks.iter().map(|(name, status)| {
            let status = status.borrow();
            SinkHealth {
                name: name.clone(),
                state: status.state,
                last_write: status.last_write,
                write_times: status.write_times,
            }
        });
        Health {
            stopped: status.stopped,
            full: status.full,
            spool_bytes: status.spool_bytes,
            spool_segments: status.spool_segments,
            tail_bytes: self.tail.bytes(),
            dedup_keys: status.dedup_keys,
            sinks: sinks.collect(),
        }
    }
}
