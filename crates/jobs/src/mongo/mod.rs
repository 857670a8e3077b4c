//! Connectors, jobs and candles in MongoDB: S2's collections `connectors` and `jobs`, with S2's fields, types and indexes,
//! and `candles`. For several machines.
//!
//! Time is the server's (`$$NOW`). Each promise is kept by one atomic change of one document, so that a single mongod
//! without transactions will do. Answers count once they are journalled on a majority; tokens once they are on a majority,
//! because they are worth nothing a period later.
//!
//! * `tokens`: the budget, in one `findAndModify`
//! * `claim`: the first job that is due, in one `findAndModify`
//! * `jobs`, `connectors`, `candles`: the rest; `documents`: BSON; `schema`: indexes, by version
//!
//! Beside S2's fields a job has `due_at` (when a worker may take it; null while nobody may), `rev` (grows with every change)
//! and `slot` (it counts towards its exchange's cap); a connector has `rate_limit_log`, `rate_limit_last`, `windows`, `slots`.

mod candles;
mod claim;
mod connectors;
mod documents;
mod fault;
mod jobs;
mod schema;
mod tokens;

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use catchment_model::{Candle, UnixMs, Venue};
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, CollectionOptions, WriteConcern};
use mongodb::{Client, Collection, Database};
use tokio::time::Instant;

use crate::candles::{Coverage, Hole, Series, Span};
use crate::connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::id::{Id, IdMaker};
use crate::job::{Job, JobFilter, JobPatch, NewJob, Page, Status};
use crate::store::{
    Candles, Claim, Claimed, Connectors, Jobs, Lease, Outcome, PageSave, Standing, StateCount,
};
use crate::time::from_ms;
use crate::token::{Grant, TokenAsk, Tokens};
use crate::transition;

const CONNECTORS: &str = "connectors";
const JOBS: &str = "jobs";
const CANDLES: &str = "candles";
const HOLES: &str = "candle_holes";
const LISTINGS: &str = "listings";
const SETTINGS: &str = "catchment_settings";
/// The index that serves the sort of a claim.
const DUE: &str = "priority_1_due_at_1_exchange_id_1";

/// A system-wide limit that somebody else has set or taken away is noticed within this time.
const SYSTEM_LIMIT_KNOWN_FOR: Duration = Duration::from_secs(1);

/// How to reach a server.
#[derive(Debug, Clone)]
pub struct MongoSettings {
    /// The database.
    pub database: String,
    /// How long a server is looked for, unless the connection string says otherwise.
    pub find_within: Duration,
    /// How long a connection may take to open, unless the connection string says otherwise.
    pub connect_within: Duration,
}

impl Default for MongoSettings {
    fn default() -> Self {
        // Connecting is also how long a server may take to say that it is alive, on a machine that is busy.
        let (find_within, connect_within) = (Duration::from_secs(2), Duration::from_secs(10));
        Self { database: "market_data".to_owned(), find_within, connect_within }
    }
}

/// A store in a MongoDB database.
pub struct MongoStore {
    database: Database,
    connectors: Collection<Document>,
    jobs: Collection<Document>,
    candles: Collection<Document>,
    holes: Collection<Document>,
    listings: Collection<Document>,
    settings: Collection<Document>,
    ids: Mutex<IdMaker>,
    system_limit: Mutex<Option<(Instant, bool)>>,
    known_exchanges: claim::KnownExchanges,
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: its options hold the password.
        f.debug_struct("MongoStore").field("database", &self.database.name()).finish_non_exhaustive()
    }
}

impl MongoStore {
    /// Connects and brings the database up to date. The connection string may hold a password and is shown nowhere.
    pub async fn open(uri: &str, settings: &MongoSettings) -> Result<Self, StoreError> {
        let mut options = ClientOptions::parse(uri).await.map_err(|_| {
            // The driver's own words may quote what they complain about.
            StoreError::invalid("uri", "is not a MongoDB connection string (mongodb://host:port/?options)")
        })?;
        options.app_name.get_or_insert_with(|| "catchment".to_owned());
        options.server_selection_timeout.get_or_insert(settings.find_within);
        options.connect_timeout.get_or_insert(settings.connect_within);
        let client = Client::with_options(options).map_err(fault::error)?;
        let database = client.database(&settings.database);
        let majority = WriteConcern::majority();
        let journalled =
            WriteConcern::builder().w(mongodb::options::Acknowledgment::Majority).journal(true).build();
        let collection = |name: &str, concern: &WriteConcern| {
            let options = CollectionOptions::builder().write_concern(concern.clone()).build();
            database.collection_with_options(name, options)
        };
        let store = Self {
            connectors: collection(CONNECTORS, &majority),
            jobs: collection(JOBS, &journalled),
            candles: collection(CANDLES, &journalled),
            holes: collection(HOLES, &journalled),
            listings: collection(LISTINGS, &journalled),
            settings: collection(SETTINGS, &majority),
            ids: Mutex::new(IdMaker::new(rand::random())),
            system_limit: Mutex::new(None),
            known_exchanges: claim::KnownExchanges::default(),
            database,
        };
        schema::migrate(&store).await?;
        Ok(store)
    }

    async fn server_now(&self) -> Result<UnixMs, StoreError> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await.map_err(fault::error)?;
        let now = documents::whole(&hello, "localTime");
        now.map(from_ms)
            .ok_or_else(|| StoreError::Damaged { store: "mongo", what: "hello has no time".to_owned() })
    }

    fn make_id(&self, now: UnixMs) -> Id {
        self.ids.lock().expect("no holder of this lock can panic").make(now)
    }

    async fn find_connector(&self, exchange: Venue) -> Result<Option<Connector>, StoreError> {
        connectors::get(self, exchange).await
    }

    /// Asked of the server once a second.
    async fn has_system_limit(&self) -> Result<bool, StoreError> {
        let known = *self.system_limit.lock().expect("no holder of this lock can panic");
        if let Some((at, has_one)) = known
            && at.elapsed() < SYSTEM_LIMIT_KNOWN_FOR
        {
            return Ok(has_one);
        }
        let found = self.settings.find_one(doc! { "_id": tokens::SYSTEM }).await.map_err(fault::error)?;
        self.note_system_limit(found.is_some());
        Ok(found.is_some())
    }

    fn note_system_limit(&self, has_one: bool) {
        *self.system_limit.lock().expect("no holder of this lock can panic") =
            Some((Instant::now(), has_one));
    }
}

#[async_trait]
impl Connectors for MongoStore {
    fn kind(&self) -> &'static str {
        "mongo"
    }

    async fn now(&self) -> Result<UnixMs, StoreError> {
        self.server_now().await
    }

    async fn ensure_connector(&self, new: &NewConnector) -> Result<(Connector, bool), StoreError> {
        connectors::ensure(self, new).await
    }

    async fn connector(&self, exchange: Venue) -> Result<Option<Connector>, StoreError> {
        connectors::get(self, exchange).await
    }

    async fn connectors(&self) -> Result<Vec<Connector>, StoreError> {
        connectors::list(self).await
    }

    async fn patch_connector(
        &self,
        exchange: Venue,
        patch: &ConnectorPatch,
    ) -> Result<Connector, StoreError> {
        let changed = connectors::patch(self, exchange, patch).await;
        self.known_exchanges.forget();
        changed
    }

    async fn set_connector_status(&self, exchange: Venue, status: Status) -> Result<Connector, StoreError> {
        let changed = connectors::set_status(self, exchange, status).await;
        self.known_exchanges.forget();
        changed
    }

    async fn declare_windows(&self, exchange: Venue, windows: &[NamedWindow]) -> Result<(), StoreError> {
        connectors::declare_windows(self, exchange, windows).await
    }

    async fn set_system_limit(&self, limit: Option<RateLimit>) -> Result<(), StoreError> {
        connectors::set_system_limit(self, limit).await
    }

    async fn take_tokens(&self, ask: &TokenAsk<'_>) -> Result<Tokens, StoreError> {
        ask.check()?;
        tokens::take(self, ask).await
    }

    async fn give_back(&self, grant: &Grant, requests: u32) -> Result<(), StoreError> {
        tokens::give_back(self, grant, requests).await
    }

    async fn put_listing(&self, exchange: Venue, symbols: &[String]) -> Result<(), StoreError> {
        connectors::put_listing(self, exchange, symbols).await
    }

    async fn is_listed(&self, exchange: Venue, symbol: &str) -> Result<Option<bool>, StoreError> {
        connectors::is_listed(self, exchange, symbol).await
    }

    async fn recount(&self, exchange: Venue) -> Result<(), StoreError> {
        connectors::recount(self, exchange).await
    }
}

#[async_trait]
impl Jobs for MongoStore {
    async fn add_job(&self, new: &NewJob) -> Result<Job, StoreError> {
        jobs::add(self, new).await
    }

    async fn job(&self, id: Id) -> Result<Option<Job>, StoreError> {
        jobs::get(self, id).await
    }

    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<Job>, StoreError> {
        jobs::list(self, filter, page).await
    }

    async fn patch_job(&self, id: Id, patch: &JobPatch) -> Result<Job, StoreError> {
        jobs::change(self, id, || StoreError::no_job(id), |job, now| transition::patch(job, patch, now)).await
    }

    async fn pause_job(&self, id: Id) -> Result<Job, StoreError> {
        jobs::change(self, id, || StoreError::no_job(id), transition::pause).await
    }

    async fn resume_job(&self, id: Id) -> Result<Job, StoreError> {
        jobs::change(self, id, || StoreError::no_job(id), transition::resume).await
    }

    async fn run_job_now(&self, id: Id) -> Result<Job, StoreError> {
        jobs::change(self, id, || StoreError::no_job(id), transition::run_now).await
    }

    async fn delete_job(&self, id: Id) -> Result<Job, StoreError> {
        let delete = |job: &mut Job, now: UnixMs| {
            transition::delete(job, now);
            Ok(())
        };
        jobs::change(self, id, || StoreError::no_job(id), delete).await
    }

    async fn claim(&self, ask: &Claim<'_>) -> Result<Claimed, StoreError> {
        claim::claim(self, ask).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Standing, StoreError> {
        jobs::renew(self, lease).await
    }

    async fn save_page(&self, lease: &Lease, page: &PageSave<'_>) -> Result<Standing, StoreError> {
        jobs::save_page(self, lease, page).await
    }

    async fn finish(&self, lease: &Lease, outcome: &Outcome) -> Result<Job, StoreError> {
        jobs::finish(self, lease, outcome).await
    }

    async fn busy(&self) -> Result<Vec<StateCount>, StoreError> {
        jobs::busy(self).await
    }
}

#[async_trait]
impl Candles for MongoStore {
    async fn put_candles(&self, series: &Series, candles: &[Candle]) -> Result<(), StoreError> {
        candles::put(self, series, candles, None).await
    }

    async fn candles(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Candle>, StoreError> {
        candles::range(self, series, span, limit).await
    }

    async fn coverage(&self, series: &Series) -> Result<Option<Coverage>, StoreError> {
        candles::coverage(self, series).await
    }

    async fn missing(&self, series: &Series, span: Span, limit: u32) -> Result<Vec<Span>, StoreError> {
        candles::missing(self, series, span, limit).await
    }

    async fn note_hole(&self, series: &Series, hole: Hole) -> Result<(), StoreError> {
        candles::note_hole(self, series, hole).await
    }

    async fn holes(&self, series: &Series) -> Result<Vec<Hole>, StoreError> {
        candles::holes(self, series).await
    }
}
