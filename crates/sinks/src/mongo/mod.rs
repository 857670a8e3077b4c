//! Records as documents in MongoDB, each under its own id.
//!
//! A batch becomes unordered `insert` commands of raw BSON, written straight from the records' lines; the driver copies
//! them to the socket and looks no closer. An answer counts once it is journalled on a majority (`w: "majority", j:
//! true`), so a mongod that is killed has lost nothing it acknowledged. What comes again meets its own `_id`: what is
//! stored there is read back and compared, and if it is the same record, it is written.
//!
//! Time is bounded everywhere: finding a server, connecting, each command. Whoever is away is
//! [`SinkError::Unreachable`] after seconds, and is found again without a restart.
//!
//! Deliberately absent: retries (the pipeline's), and any change to a document once it is there.

mod document;
mod fault;
mod insert;
mod json;
mod mongod;
mod number;
mod same;
mod uri;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catchment_pipeline::{Batch, Refusal, Sink, SinkError};
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};
use tokio::sync::OnceCell;
use tracing::{info, warn};

pub use document::{NotARecord, line_of};
pub use fault::MongoFault;
pub use mongod::{Mongod, MongodError};
pub use uri::{MongoUri, UriError};

use fault::{Fault, Why};

/// Where records go, and how long each step may take.
#[derive(Debug, Clone)]
pub struct MongoConfig {
    /// What the sink is called, and its cursor kept under.
    pub name: String,
    /// The server or servers.
    pub uri: MongoUri,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// How long a server is looked for, unless the connection string says otherwise.
    pub find_within: Duration,
    /// How long a connection may take to open, unless the connection string says otherwise.
    pub connect_within: Duration,
    /// How long a command may take.
    pub answer_within: Duration,
}

impl MongoConfig {
    /// S1's database and collection on these servers.
    pub fn new(uri: MongoUri) -> Self {
        Self {
            name: "mongo".to_owned(),
            uri,
            database: "market_data".to_owned(),
            collection: "crypto_envelopes".to_owned(),
            find_within: Duration::from_secs(2),
            connect_within: Duration::from_secs(2),
            answer_within: Duration::from_secs(15),
        }
    }
}

/// Writes records to a collection.
pub struct MongoSink {
    config: MongoConfig,
    link: OnceCell<Link>,
}

/// The way to the collection. The driver keeps the connections, and opens new ones when they break.
struct Link {
    database: Database,
    collection: Collection<RawDocumentBuf>,
    indexed: AtomicBool,
}

impl fmt::Debug for MongoSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoSink").field("config", &self.config).finish_non_exhaustive()
    }
}

impl MongoSink {
    /// A sink that has asked nobody anything yet: a server that is away now may be there when the first batch comes.
    pub fn new(config: MongoConfig) -> Self {
        Self { config, link: OnceCell::new() }
    }

    /// Whether the server answers, knows us and lets us see the collection.
    pub async fn ask(&self) -> Result<(), MongoFault> {
        let link = self.link().await?;
        let find = async { link.collection.find_one(doc! { "_id": "" }).await };
        match self.in_time(find).await? {
            Ok(_) => Ok(()),
            Err(error) => Err(away(fault::of(&error))),
        }
    }

    async fn link(&self) -> Result<&Link, MongoFault> {
        let connect = || async {
            // With mongodb+srv:// this asks the name server; the other form asks nobody.
            let parse = async { ClientOptions::parse(self.config.uri.secret()).await };
            let mut options = match self.in_time(parse).await? {
                Ok(options) => options,
                Err(error) => return Err(MongoFault::Other(fault::words(&error))),
            };
            options.app_name.get_or_insert_with(|| "catchment".to_owned());
            options.server_selection_timeout.get_or_insert(self.config.find_within);
            options.connect_timeout.get_or_insert(self.config.connect_within);
            let client = Client::with_options(options);
            let client = client.map_err(|error| MongoFault::Other(fault::words(&error)))?;
            let database = client.database(&self.config.database);
            let collection = database.collection(&self.config.collection);
            Ok(Link { database, collection, indexed: AtomicBool::new(false) })
        };
        self.link.get_or_try_init(connect).await
    }

    /// Makes the index once a start. Records are worth more than an index: only a server that does not answer holds
    /// them up.
    async fn ensure_index(&self, link: &Link) -> Result<(), MongoFault> {
        if link.indexed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let index = doc! {
            "key": { "exchange": 1, "channel": 1, "symbol": 1, "received_at_ms": 1 },
            "name": "stream_and_time",
        };
        let make = doc! { "createIndexes": &self.config.collection, "indexes": [index] };
        let make = async { link.database.run_command(make).await };
        let (database, collection) = (&self.config.database, &self.config.collection);
        match self.in_time(make).await {
            Ok(Ok(_)) => info!(sink = self.config.name, database, collection, "mongo collection is ready"),
            // It is being built on the server, and goes on without us.
            Err(MongoFault::Late(_)) => warn!(sink = self.config.name, "mongo index takes long to build"),
            Err(other) => return Err(other),
            Ok(Err(error)) => match &*error.kind {
                mongodb::error::ErrorKind::Command(command) if !is_passing(command.code) => {
                    let error = fault::words(&error);
                    warn!(
                        sink = self.config.name,
                        error, "mongo index could not be made; queries will be slow"
                    );
                }
                _ => return Err(away(fault::of(&error))),
            },
        }
        link.indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, MongoFault> {
        let within = self.config.answer_within;
        tokio::time::timeout(within, work).await.map_err(|_| MongoFault::Late(within))
    }

    fn unreachable(&self, fault: MongoFault) -> SinkError {
        SinkError::unreachable(&self.config.name, fault)
    }

    fn refused(&self, refused: Vec<Refusal>) -> SinkError {
        SinkError::Refused { sink: self.config.name.clone(), refused }
    }

    /// Sorts out the records that were not inserted. What is there already, and the same, is written.
    async fn settle(
        &self,
        link: &Link,
        batch: &Batch,
        missing: Vec<fault::NotInserted>,
    ) -> Result<Vec<Refusal>, MongoFault> {
        let mut refused = Vec::new();
        let mut taken = Vec::new();
        for record in missing {
            match record.why {
                Why::Moment => return Err(MongoFault::Other(record.message)),
                Why::Content => {
                    refused.push(Refusal { index: record.index, reason: record.message });
                }
                Why::SameId | Why::OtherIndex => taken.push(record),
            }
        }
        if !taken.is_empty() {
            let compared = self.in_time(same::compare(&link.collection, batch, taken)).await?;
            refused.extend(compared?);
        }
        refused.sort_by_key(|refusal| refusal.index);
        Ok(refused)
    }
}

#[async_trait]
impl Sink for MongoSink {
    fn name(&self) -> &str {
        &self.config.name
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        if batch.is_empty() {
            return Ok(());
        }
        // Before anything is sent: what can be no document is set aside, and the others come again without it.
        let commands = insert::commands(batch, &self.config.collection, self.config.answer_within)
            .map_err(|refused| self.refused(refused))?;
        let written = async {
            let link = self.link().await?;
            self.ensure_index(link).await?;
            let missing = insert::send(link, batch, commands, &self.config).await?;
            self.settle(link, batch, missing).await
        };
        match written.await {
            Ok(refused) if refused.is_empty() => Ok(()),
            Ok(refused) => Err(self.refused(refused)),
            Err(fault) => Err(self.unreachable(fault)),
        }
    }

    /// The index is there before the first record, which may be long in coming.
    async fn idle(&self) -> Result<(), SinkError> {
        let made = async { self.ensure_index(self.link().await?).await };
        made.await.map_err(|fault| self.unreachable(fault))
    }

    async fn close(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The fault of a question that has no content to be at fault.
fn away(fault: Fault) -> MongoFault {
    match fault {
        Fault::Away(fault) => fault,
        Fault::Content(text) => MongoFault::Other(text),
    }
}

/// Codes of a server that is on its way out or not yet in: interrupted, not the primary, shutting down, timed out.
fn is_passing(code: i32) -> bool {
    [6, 7, 18, 50, 64, 89, 91, 112, 189, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436].contains(&code)
}
