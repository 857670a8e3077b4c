//! A venue's floor: the hall and the dialect behind one lock, and the clock that drives them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::Clock;
use serde::Serialize;
use tokio::sync::Notify;

use super::config::{Pace, StreamsConfig};
use super::dialect::Dialect;
use super::fault::{LogEntry, StreamFault};
use super::hall::{CONNECTIONS_MAX, Due, Hall};
use super::journal::{Journal, JournalEntry, StreamCounts};
use super::line::{Frame, Item, Line};
use crate::text::Query;

/// Events handled before others get the lock.
const SLICE: usize = 256;

/// A connection that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionView {
    /// Its number.
    pub connection: u64,
    /// How long it has been open.
    pub age_ms: i64,
    /// What it has subscribed to: `book_delta BTC/USDT`.
    pub streams: Vec<String>,
    /// Frames that wait to be written to it.
    pub unwritten: usize,
}

pub(crate) struct Floor {
    pub(crate) id: &'static str,
    clock: Arc<dyn Clock>,
    pace: Pace,
    inner: Mutex<Inner>,
    journal: Mutex<Journal>,
    /// Something may be due earlier than was thought.
    wake: Notify,
    /// Something was written.
    drained: Notify,
}

impl std::fmt::Debug for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floor").field("venue", &self.id).finish_non_exhaustive()
    }
}

struct Inner {
    hall: Hall,
    dialect: Box<dyn Dialect>,
}

enum Slice {
    /// Everything due is done; this is due next.
    Done(Option<i64>),
    More,
    /// A line is full.
    Full,
}

impl Floor {
    pub(crate) fn new(
        id: &'static str,
        config: &StreamsConfig,
        clock: Arc<dyn Clock>,
        dialect: Box<dyn Dialect>,
    ) -> Arc<Self> {
        let now_us = clock.wall().get() / 1_000;
        let waits = config.pace == Pace::Manual;
        let hall = Hall::new(id, dialect.manners(), now_us, waits, config.queue_frames as usize);
        Arc::new(Self {
            id,
            clock,
            pace: config.pace,
            inner: Mutex::new(Inner { hall, dialect }),
            journal: Mutex::new(Journal::new(config.journal_frames as usize)),
            wake: Notify::new(),
            drained: Notify::new(),
        })
    }

    /// Looks at the hall and the dialect as they are now.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Hall, &mut dyn Dialect) -> T) -> T {
        let mut inner = self.lock();
        let Inner { hall, dialect } = &mut *inner;
        hall.now_us = hall.now_us.max(self.clock.wall().get() / 1_000);
        let result = look(hall, &mut **dialect);
        while let Some(conn) = hall.gone.pop() {
            dialect.forget(conn);
        }
        drop(inner);
        self.wake.notify_one();
        result
    }

    pub(crate) fn has_socket(&self, path: &str) -> bool {
        self.lock().dialect.has_socket(path)
    }

    /// Takes a client in; `None`: there are too many.
    pub(crate) fn open(&self, path: &str, query: Query<'_>) -> Option<(u64, Arc<Line>)> {
        self.with(|hall, dialect| {
            if hall.conns.len() >= CONNECTIONS_MAX {
                return None;
            }
            let (conn, line) = hall.open();
            dialect.greet(hall, conn, path, query);
            Some((conn, line))
        })
    }

    pub(crate) fn hear(&self, conn: u64, text: &str) {
        self.with(|hall, dialect| {
            if hall.heard(conn) {
                dialect.hear(hall, conn, text);
            }
        });
    }

    pub(crate) fn ping_came(&self, conn: u64, payload: &[u8]) {
        self.with(|hall, _| {
            if hall.heard(conn) {
                hall.pong(conn, payload);
            }
        });
    }

    pub(crate) fn pong_came(&self, conn: u64) {
        self.with(|hall, _| {
            hall.pong_came(conn);
            hall.heard(conn);
        });
    }

    pub(crate) fn hang_up(&self, conn: u64, how: Item) {
        self.with(|hall, _| hall.hang_up(conn, how));
    }

    pub(crate) fn left(&self, conn: u64) {
        self.with(|hall, _| hall.left(conn));
        self.drained.notify_waiters();
    }

    /// These went out.
    pub(crate) fn wrote(&self, conn: u64, frames: &[Arc<Frame>]) {
        if frames.iter().any(|frame| frame.data.is_some() || !frame.parts.is_empty()) {
            let mut journal = self.journal.lock().expect("no holder of this lock can panic");
            for frame in frames {
                journal.wrote(conn, frame);
            }
        }
    }

    pub(crate) fn has_written(&self) {
        self.drained.notify_waiters();
    }

    // ---- time ----

    /// Lets happen what is due, as the clock goes. Never ends.
    pub(crate) async fn run(self: Arc<Self>) {
        if self.pace == Pace::Manual {
            return;
        }
        loop {
            let now_us = self.clock.wall().get() / 1_000;
            let next = match self.slice(now_us) {
                Slice::More | Slice::Full => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Slice::Done(next) => next,
            };
            let woken = self.wake.notified();
            match next {
                None => woken.await,
                Some(due_us) => {
                    // Not more often than a thousand times a second: what falls due together goes out together.
                    let wait = Duration::from_micros((due_us - now_us).max(1_000) as u64);
                    tokio::select! {
                        () = woken => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Lets happen everything that is due by now; waits where a line is full.
    pub(crate) async fn catch_up(&self) {
        let now_us = self.clock.wall().get() / 1_000;
        loop {
            match self.slice(now_us) {
                Slice::Done(_) => return,
                Slice::More => tokio::task::yield_now().await,
                Slice::Full => self.until(Hall::has_room).await,
            }
        }
    }

    /// The same without waiting, for those who are about to look at what the streams have told.
    pub(crate) fn catch_up_at_once(&self) {
        let now_us = self.clock.wall().get() / 1_000;
        while !matches!(self.slice(now_us), Slice::Done(_)) {}
    }

    /// The same, and waits until all of it has been written.
    pub(crate) async fn settle(&self) {
        self.catch_up().await;
        self.until(Hall::is_written).await;
    }

    async fn until(&self, holds: impl Fn(&Hall) -> bool) {
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            if holds(&self.lock().hall) {
                return;
            }
            drained.await;
        }
    }

    fn slice(&self, until_us: i64) -> Slice {
        let mut inner = self.lock();
        let Inner { hall, dialect } = &mut *inner;
        hall.pressed = false;
        for _ in 0..SLICE {
            let (at_us, due) = match hall.next_due(until_us) {
                Ok(due) => due,
                Err(next) => {
                    hall.now_us = hall.now_us.max(until_us);
                    return Slice::Done(next);
                }
            };
            hall.now_us = hall.now_us.max(at_us);
            match due {
                Due::Beat { slot, kind } => {
                    if let Some(next) = dialect.beat(hall, slot, kind, at_us) {
                        hall.arm(next, due);
                    }
                }
                Due::FaultBegins(id) => hall.begin(&mut **dialect, id),
                Due::FaultEnds(id) => hall.end(id),
                _ => {
                    if let Some(conn) = hall.connection_due(due) {
                        dialect.heartbeat(hall, conn);
                    }
                }
            }
            while let Some(conn) = hall.gone.pop() {
                dialect.forget(conn);
            }
            if hall.pressed {
                return Slice::Full;
            }
        }
        Slice::More
    }

    // ---- faults and figures ----

    pub(crate) fn inject(&self, fault: &StreamFault) -> Result<u64, String> {
        self.with(|hall, dialect| hall.inject(dialect, fault))
    }

    pub(crate) fn lift(&self) {
        self.with(|hall, _| hall.lift());
    }

    pub(crate) fn log(&self) -> Vec<LogEntry> {
        self.lock().hall.log.iter().cloned().collect()
    }

    pub(crate) fn connections(&self) -> Vec<ConnectionView> {
        self.with(|hall, _| {
            let stream = |feed: &u32| {
                let feed = &hall.feeds[*feed as usize];
                format!("{} {}", feed.key.channel, feed.symbol)
            };
            let view = |(id, conn): (&u64, &super::hall::Conn)| ConnectionView {
                connection: *id,
                age_ms: hall.age_ms(conn),
                streams: conn.feeds.iter().map(stream).collect(),
                unwritten: conn.line.unwritten(),
            };
            hall.conns.iter().map(view).collect()
        })
    }

    /// Figures by `channel symbol`; the forms of one stream are added up.
    pub(crate) fn counts(&self) -> StreamCounts {
        let mut counts: StreamCounts = BTreeMap::new();
        let names = self.names();
        let journal = self.journal.lock().expect("no holder of this lock can panic");
        for (feed, name) in (0..).zip(names) {
            let more = journal.count(feed);
            if more.written == 0 {
                continue;
            }
            let count = counts.entry(format!("{} {}", name.0, name.1)).or_default();
            count.frames += more.frames;
            count.bytes += more.bytes;
            count.written += more.written;
            count.digest = count.digest.wrapping_add(more.digest);
        }
        counts
    }

    /// What was written of a stream, in the order in which it was.
    pub(crate) fn journal(&self, channel: &str, symbol: &str) -> Vec<JournalEntry> {
        let names = self.names();
        let journal = self.journal.lock().expect("no holder of this lock can panic");
        let wanted = (0..).zip(names).filter(|(_, name)| name.0 == channel && name.1 == symbol);
        wanted.flat_map(|(feed, _)| journal.entries(feed).to_vec()).collect()
    }

    fn names(&self) -> Vec<(&'static str, String)> {
        self.lock().hall.feeds.iter().map(|feed| (feed.key.channel, feed.symbol.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock can panic")
    }
}
