//! The one thread of this process that writes. It takes whatever is in line, does it all in one transaction, syncs once,
//! and only then answers: so eight workers cost one sync, and what was answered is on disk.
//!
//! Each piece of work is inside a savepoint of its own: one that fails leaves nothing behind, and the others go on.
//!
//! Other processes write to the same file. `BEGIN IMMEDIATE` waits for them, five seconds at most. SQLite lets whoever
//! comes at the right moment go first, and a process with much to do could keep the others out; so whoever waits holds a
//! shared lock on a file beside, and whoever has just committed looks at that lock and steps back for a moment.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, SystemClock, UnixMs};
use rusqlite::{Connection, ErrorCode};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{mpsc, oneshot};

use super::host::{self, HostClock};
use crate::error::StoreError;
use crate::id::IdMaker;

/// Full: whoever wants to write waits.
const IN_LINE: usize = 1_024;
/// So much is done in one transaction.
const GROUP_MAX: usize = 256;
/// So long is waited for other processes.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// So long is waited for those just answered to come back: less than the sync that is saved.
const COME_BACK: Duration = Duration::from_micros(100);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_micros(300);
/// Long enough for somebody who tries again to get in.
const STEP_BACK: Duration = Duration::from_micros(600);

/// What a piece of work may use.
pub(super) struct Desk<'a> {
    pub(super) conn: &'a Connection,
    /// The store's time, the same for the whole group.
    pub(super) now: UnixMs,
    pub(super) ids: &'a mut IdMaker,
}

/// Told whether the group was committed.
type Answer = Box<dyn FnOnce(Result<(), &str>) + Send>;

/// A piece of work and whoever waits for it.
trait Work: Send {
    /// Does it; the flag says whether it went well.
    fn run(self: Box<Self>, desk: &mut Desk<'_>) -> (bool, Answer);

    /// It cannot be done.
    fn refuse(self: Box<Self>, reason: &str);
}

struct Piece<T, F> {
    work: F,
    tell: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Work for Piece<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Desk<'_>) -> Result<T, StoreError> + Send + 'static,
{
    fn run(self: Box<Self>, desk: &mut Desk<'_>) -> (bool, Answer) {
        let Self { work, tell } = *self;
        let result = work(desk);
        let is_ok = result.is_ok();
        let answer = move |committed: Result<(), &str>| {
            let result = match (result, committed) {
                (Ok(_), Err(reason)) => Err(unreachable(reason)),
                (result, _) => result,
            };
            // Whoever asked may be gone.
            let _ = tell.send(result);
        };
        (is_ok, Box::new(answer))
    }

    fn refuse(self: Box<Self>, reason: &str) {
        let _ = self.tell.send(Err(unreachable(reason)));
    }
}

/// The way to the thread. The thread ends when all are gone.
#[derive(Clone)]
pub(super) struct Writer {
    line: mpsc::Sender<Box<dyn Work>>,
}

impl Writer {
    pub(super) fn start(
        conn: Connection,
        path: &Path,
        host: Arc<dyn HostClock>,
        ids: IdMaker,
    ) -> std::io::Result<Self> {
        let (line, work) = mpsc::channel(IN_LINE);
        let mut beside = path.as_os_str().to_owned();
        beside.push("-turns");
        let turns = File::options().create(true).truncate(false).write(true).open(beside)?;
        let boot = host.boot();
        let thread = Thread { conn, host, boot, ids, turns, work, clock: SystemClock::new() };
        std::thread::Builder::new().name("sqlite-writer".to_owned()).spawn(move || thread.run())?;
        Ok(Self { line })
    }

    /// Does it in the next group, and gives back the result once it is durable. May be dropped midway: the work may then be
    /// done or not, but never in part.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let gone = || unreachable("its thread has ended");
        self.line.send(Box::new(Piece { work, tell })).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

struct Thread {
    conn: Connection,
    host: Arc<dyn HostClock>,
    boot: String,
    ids: IdMaker,
    /// See the module's head.
    turns: File,
    work: mpsc::Receiver<Box<dyn Work>>,
    clock: SystemClock,
}

impl Thread {
    fn run(mut self) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        let mut callers = 0;
        while self.work.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
            self.gather(&mut group, callers);
            let at_work = group.len();
            let (answers, done) = self.do_all(&mut group);
            let committed = done.and_then(|()| self.end());
            callers = at_work + self.work.len();
            if committed.is_err() && !self.conn.is_autocommit() {
                let _ = self.conn.execute_batch("ROLLBACK");
            }
            if let Err(reason) = &committed {
                tracing::warn!(reason, "sqlite transaction failed; nothing of it was written");
            }
            for answer in answers {
                answer(committed.as_ref().map_err(String::as_str).copied());
            }
            // What the transaction did not live to see.
            for work in group.drain(..) {
                work.refuse(committed.as_ref().err().map_or("", String::as_str));
            }
            self.let_others_in();
        }
    }

    /// Waits a moment until as many are in line as waited at the end of the last group. Who works in a loop is answered,
    /// turns round and asks again: without this, half of them would always just miss the group.
    fn gather(&mut self, group: &mut Vec<Box<dyn Work>>, callers: usize) {
        let since = self.clock.monotonic();
        while group.len() < callers.min(GROUP_MAX) && self.clock.monotonic().since(since) < COME_BACK {
            match self.work.try_recv() {
                Ok(work) => group.push(work),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Begins, and does piece after piece. The reason, if the transaction did not survive it.
    fn do_all(&mut self, group: &mut Vec<Box<dyn Work>>) -> (Vec<Answer>, Result<(), String>) {
        let mut answers = Vec::with_capacity(group.len());
        if let Err(error) = self.begin() {
            return (answers, Err(error.to_string()));
        }
        let now = match host::now(&self.conn, &*self.host, &self.boot) {
            Ok(now) => now,
            Err(error) => return (answers, Err(error.to_string())),
        };
        // The last is the first.
        group.reverse();
        while let Some(work) = group.pop() {
            answers.push(self.do_one(work, now));
            if self.conn.is_autocommit() {
                // A full disk, an I/O error: SQLite has rolled everything back by itself.
                return (answers, Err("the disk refused it".to_owned()));
            }
        }
        (answers, Ok(()))
    }

    fn do_one(&mut self, work: Box<dyn Work>, now: UnixMs) -> Answer {
        // Errors here show at the commit.
        let step = |conn: &Connection, sql: &str| {
            let _ = conn.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        };
        step(&self.conn, "SAVEPOINT work");
        let mut desk = Desk { conn: &self.conn, now, ids: &mut self.ids };
        let (is_ok, answer) = work.run(&mut desk);
        if !is_ok {
            step(&self.conn, "ROLLBACK TO work");
        }
        step(&self.conn, "RELEASE work");
        answer
    }

    fn begin(&mut self) -> Result<(), rusqlite::Error> {
        let begin = || self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
        match begin() {
            Err(error) if is_busy(&error) => {}
            other => return other,
        }
        // Only a courtesy: without the lock it is waited all the same.
        let _ = flock(&self.turns, FlockOperation::NonBlockingLockShared);
        rest(TRY_AGAIN);
        let result = once_free(&self.clock, begin);
        let _ = flock(&self.turns, FlockOperation::Unlock);
        result
    }

    fn end(&mut self) -> Result<(), String> {
        let commit = self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        commit.map(drop).map_err(|error| error.to_string())
    }

    fn let_others_in(&self) {
        match flock(&self.turns, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = flock(&self.turns, FlockOperation::Unlock);
            }
            Err(_) => rest(STEP_BACK),
        }
    }
}

/// Tries until nobody else holds the file, [`BUSY_MAX`] at most.
pub(super) fn once_free<T>(
    clock: &dyn Clock,
    work: impl Fn() -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let since = clock.monotonic();
    loop {
        match work() {
            Err(error) if is_busy(&error) && clock.monotonic().since(since) < BUSY_MAX => rest(TRY_AGAIN),
            other => return other,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a thread of its own, between tries for a lock nobody can signal"
)]
fn rest(length: Duration) {
    std::thread::sleep(length);
}

pub(super) fn unreachable(reason: &str) -> StoreError {
    StoreError::Unreachable { store: "sqlite", source: reason.into() }
}
