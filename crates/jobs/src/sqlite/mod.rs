//! Connectors, jobs and candles in one SQLite file: the store that needs no server.
//!
//! The file is in WAL mode with `synchronous=FULL`: what was answered survives a power cut. Several processes on one
//! machine may use it at once; not over a network file system, where WAL does not work.
//!
//! * `writer`: the one thread that writes, many answers to a sync
//! * `host`: the clock, which a set calendar does not disturb
//! * `schema`: tables and indexes, by version
//! * `connectors`, `tokens`, `jobs`, `claim`, `candles`: what is done within a transaction
//!
//! Beside `jobs.db` there are `jobs.db-wal` and `jobs.db-shm` (SQLite's) and `jobs.db-turns` (an empty file that is
//! locked while somebody waits; see `writer`).

mod candles;
mod claim;
mod connectors;
mod host;
mod jobs;
mod rows;
mod schema;
mod tokens;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use catchment_model::{Candle, SystemClock, UnixMs, Venue};
use rusqlite::{Connection, ErrorCode};

pub use host::{HostClock, Machine};

use crate::candles::{Coverage, Hole, Series, Span};
use crate::connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::id::{Id, IdMaker};
use crate::job::{Job, JobFilter, JobPatch, NewJob, Page, Status};
use crate::store::{
    Candles, Claim, Claimed, Connectors, Jobs, Lease, Outcome, PageSave, Standing, StateCount,
};
use crate::token::{Grant, TokenAsk, Tokens};
use crate::transition;
use writer::{Desk, Writer};

/// So many read at once, and no more files are open for it.
const READERS_MAX: usize = 4;
/// How long whoever reads waits for SQLite to recover a file.
const READ_WAIT: Duration = Duration::from_secs(5);

/// A store in a file. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct SqliteStore {
    path: PathBuf,
    host: Arc<dyn HostClock>,
    writer: Writer,
    readers: Arc<Readers>,
}

/// Connections that only read.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    turns: tokio::sync::Semaphore,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, making it and its folder if need be, and brings it up to date.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(path, Arc::new(Machine), rand::random()).await
    }

    /// The same with clocks and a number of one's own; the number tells ids of processes apart.
    pub async fn open_with(
        path: impl Into<PathBuf>,
        host: Arc<dyn HostClock>,
        random: u64,
    ) -> Result<Self, StoreError> {
        let path = path.into();
        let file = path.clone();
        let conn = blocking(move || open_file(&file)).await?;
        let ids = IdMaker::new(random);
        let writer = Writer::start(conn, &path, host.clone(), ids)
            .map_err(|error| writer::unreachable(&error.to_string()))?;
        let readers = Readers {
            path: path.clone(),
            idle: Mutex::new(Vec::new()),
            turns: tokio::sync::Semaphore::new(READERS_MAX),
        };
        Ok(Self { path, host, writer, readers: Arc::new(readers) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(work).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.readers.clone();
        let _turn = self.readers.turns.acquire().await.expect("it is never closed");
        blocking(move || {
            let conn = readers.take()?;
            let result = work(&conn);
            readers.put_back(conn);
            result
        })
        .await
    }
}

impl Readers {
    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().expect("no holder of this lock can panic").pop();
        if let Some(conn) = idle {
            return Ok(conn);
        }
        let conn = Connection::open(&self.path)?;
        conn.busy_timeout(READ_WAIT)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(conn)
    }

    fn put_back(&self, conn: Connection) {
        self.idle.lock().expect("no holder of this lock can panic").push(conn);
    }
}

fn open_file(path: &Path) -> Result<Connection, StoreError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(|error| {
            writer::unreachable(&format!("the folder {} cannot be made: {error}", dir.display()))
        })?;
    }
    let mut conn = Connection::open(path)?;
    conn.busy_timeout(READ_WAIT)?;
    // When several turn a new file at the same moment, SQLite tells all but one that it is busy, and does not wait.
    writer::once_free(&SystemClock::new(), || conn.pragma_update(None, "journal_mode", "wal"))?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    // 16 MiB of log before it is copied into the file, and not more than 64 MiB kept on disk.
    conn.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
    conn.pragma_update(None, "cache_size", -32_000)?;
    conn.set_prepared_statement_cache_capacity(128);
    schema::migrate(&mut conn)?;
    // From here on the writer waits by itself.
    conn.busy_timeout(Duration::ZERO)?;
    Ok(conn)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(writer::unreachable(&error.to_string())),
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch,
            ) => Self::Damaged { store: "sqlite", what: error.to_string() },
            Some(_) => Self::Unreachable { store: "sqlite", source: error.into() },
            None => Self::Damaged { store: "sqlite", what: error.to_string() },
        }
    }
}

#[async_trait]
impl Connectors for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    async fn now(&self) -> Result<UnixMs, StoreError> {
        let host = self.host.clone();
        self.read(move |conn| host::read_now(conn, &*host)).await
    }

    async fn ensure_connector(&self, new: &NewConnector) -> Result<(Connector, bool), StoreError> {
        let new = *new;
        self.write(move |desk| connectors::ensure(desk, &new)).await
    }

    async fn connector(&self, exchange: Venue) -> Result<Option<Connector>, StoreError> {
        self.read(move |conn| connectors::get(conn, exchange)).await
    }

    async fn connectors(&self) -> Result<Vec<Connector>, StoreError> {
        self.read(connectors::list).await
    }

    async fn patch_connector(
        &self,
        exchange: Venue,
        patch: &ConnectorPatch,
    ) -> Result<Connector, StoreError> {
        let patch = patch.clone();
        self.write(move |desk| connectors::patch(desk, exchange, &patch)).await
    }

    async fn set_connector_status(&self, exchange: Venue, status: Status) -> Result<Connector, StoreError> {
        self.write(move |desk| connectors::set_status(desk, exchange, status)).await
    }

    async fn declare_windows(&self, exchange: Venue, windows: &[NamedWindow]) -> Result<(), StoreError> {
        let windows = windows.to_vec();
        self.write(move |desk| connectors::declare_windows(desk, exchange, &windows)).await
    }

    async fn set_system_limit(&self, limit: Option<RateLimit>) -> Result<(), StoreError> {
        self.write(move |desk| connectors::set_system_limit(desk, limit)).await
    }

    async fn take_tokens(&self, ask: &TokenAsk<'_>) -> Result<Tokens, StoreError> {
        ask.check()?;
        let ask = tokens::OwnAsk::from(ask);
        self.write(move |desk| tokens::take(desk, &ask)).await
    }

    async fn give_back(&self, grant: &Grant, requests: u32) -> Result<(), StoreError> {
        let grant = grant.clone();
        self.write(move |desk| tokens::give_back(desk, &grant, requests)).await
    }

    async fn put_listing(&self, exchange: Venue, symbols: &[String]) -> Result<(), StoreError> {
        let symbols = symbols.to_vec();
        self.write(move |desk| connectors::put_listing(desk, exchange, &symbols)).await
    }

    async fn is_listed(&self, exchange: Venue, symbol: &str) -> Result<Option<bool>, StoreError> {
        let symbol = symbol.to_owned();
        self.read(move |conn| connectors::is_listed(conn, exchange, &symbol)).await
    }

    async fn recount(&self, exchange: Venue) -> Result<(), StoreError> {
        self.write(move |desk| connectors::recount(desk, exchange)).await
    }
}

#[async_trait]
impl Jobs for SqliteStore {
    async fn add_job(&self, new: &NewJob) -> Result<Job, StoreError> {
        let new = new.clone();
        self.write(move |desk| jobs::add(desk, new)).await
    }

    async fn job(&self, id: Id) -> Result<Option<Job>, StoreError> {
        self.read(move |conn| jobs::get(conn, id)).await
    }

    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<Job>, StoreError> {
        let filter = filter.clone();
        self.read(move |conn| jobs::list(conn, &filter, page)).await
    }

    async fn patch_job(&self, id: Id, patch: &JobPatch) -> Result<Job, StoreError> {
        let patch = patch.clone();
        self.write(move |desk| jobs::change(desk, id, |job, desk| transition::patch(job, &patch, desk.now)))
            .await
    }

    async fn pause_job(&self, id: Id) -> Result<Job, StoreError> {
        self.write(move |desk| jobs::change(desk, id, |job, desk| transition::pause(job, desk.now))).await
    }

    async fn resume_job(&self, id: Id) -> Result<Job, StoreError> {
        self.write(move |desk| jobs::change(desk, id, |job, desk| transition::resume(job, desk.now))).await
    }

    async fn run_job_now(&self, id: Id) -> Result<Job, StoreError> {
        self.write(move |desk| jobs::change(desk, id, |job, desk| transition::run_now(job, desk.now))).await
    }

    async fn delete_job(&self, id: Id) -> Result<Job, StoreError> {
        let delete = |job: &mut Job, desk: &Desk<'_>| {
            transition::delete(job, desk.now);
            Ok(())
        };
        self.write(move |desk| jobs::change(desk, id, delete)).await
    }

    async fn claim(&self, ask: &Claim<'_>) -> Result<Claimed, StoreError> {
        let ask = claim::OwnClaim {
            worker: ask.worker.to_owned(),
            lease: ask.lease,
            cap: ask.cap,
            only: ask.only.map(<[Venue]>::to_vec),
        };
        self.write(move |desk| claim::claim(desk, &ask)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Standing, StoreError> {
        let lease = lease.clone();
        self.write(move |desk| jobs::renew(desk, &lease)).await
    }

    async fn save_page(&self, lease: &Lease, page: &PageSave<'_>) -> Result<Standing, StoreError> {
        let lease = lease.clone();
        let page = jobs::OwnPage {
            cursor: page.cursor.clone(),
            candles: page.candles.to_vec(),
            holes: page.holes.to_vec(),
        };
        self.write(move |desk| jobs::save_page(desk, &lease, &page)).await
    }

    async fn finish(&self, lease: &Lease, outcome: &Outcome) -> Result<Job, StoreError> {
        let (lease, outcome) = (lease.clone(), outcome.clone());
        self.write(move |desk| jobs::finish(desk, &lease, &outcome)).await
    }

    async fn busy(&self) -> Result<Vec<StateCount>, StoreError> {
        self.read(jobs::busy).await
    }
}

#[async_trait]
impl Candles for SqliteStore {
    async fn put_candles(&self, series: &Series, candles: &[Candle]) -> Result<(), StoreError> {
        let (series, candles) = (series.clone(), candles.to_vec());
        self.write(move |desk| candles::put(desk.conn, &series, &candles)).await
    }

    async fn candles(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Candle>, StoreError> {
        let series = series.clone();
        self.read(move |conn| candles::range(conn, &series, span, limit)).await
    }

    async fn coverage(&self, series: &Series) -> Result<Option<Coverage>, StoreError> {
        let series = series.clone();
        self.read(move |conn| candles::coverage(conn, &series)).await
    }

    async fn missing(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Span>, StoreError> {
        let (series, host) = (series.clone(), self.host.clone());
        self.read(move |conn| {
            let now = host::read_now(conn, &*host)?;
            candles::missing(conn, &series, span, limit, now)
        })
        .await
    }

    async fn note_hole(&self, series: &Series, hole: Hole) -> Result<(), StoreError> {
        let series = series.clone();
        self.write(move |desk| candles::note_hole(desk.conn, &series, hole)).await
    }

    async fn holes(&self, series: &Series) -> Result<Vec<Hole>, StoreError> {
        let series = series.clone();
        self.read(move |conn| candles::holes(conn, &series)).await
    }
}
