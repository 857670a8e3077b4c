//! A mongod of one's own, and a look at what it holds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use catchment_model::RecordId;
use catchment_pipeline::Sink;
use catchment_sinks::conformance::Shelf;
use catchment_sinks::mongo::{MongoConfig, MongoSink, Mongod, line_of};
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use tempfile::TempDir;

/// A server and its folder.
pub(crate) struct Cellar {
    pub(crate) server: Mongod,
    /// What every connection to it says.
    options: &'static str,
    _dir: TempDir,
}

impl Cellar {
    /// A server by itself.
    pub(crate) fn alone() -> Self {
        Self::with(&[], "directConnection=true")
    }

    pub(crate) fn with(server: &[&str], options: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Mongod::start(dir.path(), server).unwrap_or_else(|error| panic!("{error}"));
        Self { server, options, _dir: dir }
    }

    /// A replica set of one, which is its primary.
    pub(crate) async fn replica_set() -> Self {
        let cellar = Self::with(&["--replSet", "rs0"], "replicaSet=rs0");
        let member = doc! { "_id": 0, "host": format!("127.0.0.1:{}", cellar.server.port()) };
        let config = doc! {
            "_id": "rs0",
            "members": [member],
            "settings": { "electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 500 },
        };
        let direct = cellar.client("directConnection=true").await;
        direct.database("admin").run_command(doc! { "replSetInitiate": config }).await.unwrap();
        // Finding a primary is what the driver waits for.
        cellar.client(cellar.options).await.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
        cellar
    }

    pub(crate) async fn client(&self, options: &str) -> Client {
        self.connect(format!("mongodb://127.0.0.1:{}/?{options}", self.server.port())).await
    }

    pub(crate) async fn client_as(&self, login: &str, options: &str) -> Client {
        self.connect(format!("mongodb://{login}@127.0.0.1:{}/?{options}", self.server.port())).await
    }

    async fn connect(&self, text: String) -> Client {
        Client::with_options(ClientOptions::parse(text).await.unwrap()).unwrap()
    }

    /// A configuration for this server, impatient enough for a test.
    pub(crate) fn config(&self, collection: &str) -> MongoConfig {
        MongoConfig {
            collection: collection.to_owned(),
            find_within: Duration::from_millis(300),
            ..MongoConfig::new(self.server.uri(self.options))
        }
    }

    /// A sink into this collection, and what looks at it.
    pub(crate) async fn rack(&self, collection: &str) -> Rack {
        let config = self.config(collection);
        let database = self.client(self.options).await.database(&config.database);
        Rack { collection: database.collection(collection), config }
    }
}

/// One collection.
pub(crate) struct Rack {
    pub(crate) config: MongoConfig,
    pub(crate) collection: Collection<RawDocumentBuf>,
}

impl Rack {
    pub(crate) fn open(&self) -> Arc<dyn Sink> {
        Arc::new(MongoSink::new(self.config.clone()))
    }

    /// Every document, in the order of the ids.
    pub(crate) async fn documents(&self) -> Vec<RawDocumentBuf> {
        let mut all = Vec::new();
        let mut found = self.collection.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        while found.advance().await.unwrap() {
            all.push(found.current().to_owned());
        }
        all
    }

    pub(crate) async fn seqs(&self) -> Vec<u64> {
        self.ids().await.iter().map(|id| id.seq).collect()
    }

    pub(crate) async fn document(&self, id: RecordId) -> Option<RawDocumentBuf> {
        self.collection.find_one(doc! { "_id": id.to_string() }).await.unwrap()
    }
}

#[async_trait]
impl Shelf for Rack {
    fn sink(&self) -> Arc<dyn Sink> {
        self.open()
    }

    async fn ids(&self) -> Vec<RecordId> {
        let documents = self.documents().await;
        documents.iter().map(|document| document.get_str("_id").unwrap().parse().unwrap()).collect()
    }

    async fn line(&self, id: RecordId) -> Option<Vec<u8>> {
        self.document(id).await.map(|document| line_of(&document).unwrap())
    }

    async fn reopen(&self) -> Arc<dyn Sink> {
        self.open()
    }
}
