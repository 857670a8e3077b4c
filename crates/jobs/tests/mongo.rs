//! The store in a real mongod: its promises, and what lies in its collections.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catchment_jobs::conformance::{self, Rig, binance, by, claim, connect, history, hourly, minutes, span};
use catchment_jobs::{
    Candles, Connectors, Hole, Jobs, MongoSettings, MongoStore, NewJob, Outcome, State, Status, Store,
    StoreError, TokenAsk,
};
use catchment_sinks::mongo::Mongod;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Database};

const SECOND: Duration = Duration::from_secs(1);

/// A server and its folder.
struct Server {
    mongod: Mongod,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Arc<Self> {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mongod = Mongod::start(dir.path(), options).unwrap_or_else(|error| panic!("{error}"));
        Arc::new(Self { mongod, _dir: dir })
    }

    fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.mongod.port())
    }
}

/// A database of its own in a server that many share.
struct MongoRig {
    server: Arc<Server>,
    database: String,
    raw: Database,
    store: Arc<MongoStore>,
}

async fn open(server: &Server, database: &str) -> MongoStore {
    let settings = MongoSettings { database: database.to_owned(), ..MongoSettings::default() };
    MongoStore::open(&server.uri(), &settings).await.unwrap()
}

impl MongoRig {
    async fn new(server: &Arc<Server>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let database = format!("rig{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let raw = Client::with_uri_str(server.uri()).await.unwrap().database(&database);
        let store = Arc::new(open(server, &database).await);
        Self { server: server.clone(), database, raw, store }
    }
}

#[async_trait]
impl Rig for MongoRig {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn beside(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.server, &self.database).await)
    }

    /// The server's clock is its own. What it is compared with can be moved the other way.
    async fn pass(&self, length: Duration) {
        let ms = length.as_millis() as i64;
        let back = |path: &str| {
            let value = format!("${path}");
            doc! { "$cond": [{ "$isNumber": &value }, { "$subtract": [&value, ms] }, &value] }
        };
        let log = |path: &str| {
            let entry = doc! { "u": { "$subtract": ["$$this.u", ms] }, "n": "$$this.n" };
            doc! { "$map": { "input": { "$ifNull": [format!("${path}"), []] }, "in": entry } }
        };
        let jobs = doc! {
            "next_run_at": back("next_run_at"), "due_at": back("due_at"), "lock.lock_until": back("lock.lock_until"),
            "updated_at": { "$subtract": ["$updated_at", ms] },
        };
        self.raw
            .collection::<Document>("jobs")
            .update_many(doc! {}, vec![doc! { "$set": jobs }])
            .await
            .unwrap();
        let slot = doc! { "job": "$$this.job", "until": { "$subtract": ["$$this.until", ms] } };
        let connectors = doc! {
            "rate_limit_window_start": back("rate_limit_window_start"),
            "rate_limit_reset_at": back("rate_limit_reset_at"),
            "rate_limit_last.at": back("rate_limit_last.at"),
            "rate_limit_log": log("rate_limit_log"),
            "slots": { "$map": { "input": "$slots", "in": slot } },
        };
        let all = self.raw.collection::<Document>("connectors");
        all.update_many(doc! {}, vec![doc! { "$set": connectors }]).await.unwrap();
    }

    fn slack(&self) -> Duration {
        SECOND * 20
    }
}

/// Each test has a server, each promise a database.
macro_rules! promises {
    ($($name:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let server = Server::start();
            let make = async || Box::new(MongoRig::new(&server).await) as Box<dyn Rig>;
            conformance::$name::all(&make).await;
        }
    )*};
}

promises!(connectors, tokens, jobs, leases, candles);

/// S2's list of what must be true, a test each.
mod checklist {
    use super::{Rig, rig};

    async fn make() -> Box<dyn Rig> {
        Box::new(rig().await)
    }

    catchment_jobs::checklist_tests!(make);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims() {
    let server = Server::start();
    let make = async |jobs| {
        let rig = Box::new(MongoRig::new(&server).await) as Box<dyn Rig>;
        conformance::claims::of_store(rig, jobs).await
    };
    conformance::claims::all(&make).await;
}

async fn rig() -> MongoRig {
    MongoRig::new(&Server::start()).await
}

/// S2's indexes, as S2 writes them, and the one that serves the sort.
#[tokio::test]
async fn the_indexes_are_those_of_the_seed() {
    let rig = rig().await;
    let indexes = async |collection: &str| {
        let mut found = Vec::new();
        let answer = rig.raw.run_command(doc! { "listIndexes": collection }).await.unwrap();
        for index in answer.get_document("cursor").unwrap().get_array("firstBatch").unwrap() {
            let index = index.as_document().unwrap();
            let key: Vec<String> = index.get_document("key").unwrap().keys().cloned().collect();
            let unique = index.get_bool("unique").unwrap_or(false);
            let partial = index.get_document("partialFilterExpression").ok().cloned();
            found.push((key.join(" "), unique, partial));
        }
        found
    };
    let connectors = indexes("connectors").await;
    assert!(connectors.contains(&("exchange_id".to_owned(), true, None)), "{connectors:?}");
    assert!(connectors.contains(&("status".to_owned(), false, None)), "{connectors:?}");
    let jobs = indexes("jobs").await;
    let key = "exchange_id type symbol timeframe".to_owned();
    for expected in [
        ("status state next_run_at priority".to_owned(), false, None),
        (key.clone(), false, None),
        (key, true, Some(doc! { "status": "active" })),
        ("priority due_at exchange_id".to_owned(), false, None),
    ] {
        assert!(jobs.contains(&expected), "{expected:?} is not in {jobs:?}");
    }
    let candles = indexes("candles").await;
    assert!(
        candles.contains(&("exchange_id symbol timeframe open_time".to_owned(), true, None)),
        "{candles:?}"
    );
}

/// Field by field, in S2's types.
#[tokio::test]
async fn the_documents_are_those_of_the_seed() {
    let rig = rig().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    rig.store.add_job(&hourly(binance(), "BTC/USDT")).await.unwrap();
    rig.store.take_tokens(&TokenAsk::one(binance())).await.unwrap();
    let types = |document: &Document, keys: &[(&str, &str)]| {
        for (key, kind) in keys {
            let found = match document.get(key).unwrap_or_else(|| panic!("no {key} in {document}")) {
                Bson::ObjectId(_) => "id",
                Bson::String(_) => "text",
                Bson::DateTime(_) => "date",
                Bson::Int32(_) | Bson::Int64(_) => "number",
                Bson::Boolean(_) => "bool",
                Bson::Document(_) => "document",
                Bson::Null => "null",
                other => panic!("{key} is {other:?}"),
            };
            assert_eq!(found, *kind, "{key}");
        }
    };
    let connector = rig.raw.collection::<Document>("connectors").find_one(doc! {}).await.unwrap().unwrap();
    let keys = [
        ("_id", "id"),
        ("exchange_id", "text"),
        ("creation_date", "date"),
        ("status", "text"),
        ("notes", "null"),
        ("rate_limit_period_ms", "number"),
        ("rate_limit", "number"),
        ("rate_limit_usage", "number"),
        ("rate_limit_window_start", "number"),
        ("rate_limit_reset_at", "number"),
        ("last_job_run_time", "null"),
        ("jobs_count", "number"),
        ("active_jobs_count", "number"),
        ("updated_at", "date"),
    ];
    types(&connector, &keys);
    assert!(!connector.contains_key("t"), "nothing of the pipeline is left");
    let job = rig.raw.collection::<Document>("jobs").find_one(doc! {}).await.unwrap().unwrap();
    let keys = [
        ("_id", "id"),
        ("exchange_id", "text"),
        ("type", "text"),
        ("symbol", "text"),
        ("timeframe", "text"),
        ("status", "text"),
        ("state", "text"),
        ("schedule", "document"),
        ("next_run_at", "number"),
        ("priority", "number"),
        ("cursor", "document"),
        ("stats", "document"),
        ("lock", "document"),
        ("created_at", "date"),
        ("updated_at", "date"),
    ];
    types(&job, &keys);
    let part = |name: &str, keys: &[(&str, &str)]| types(job.get_document(name).unwrap(), keys);
    part("schedule", &[("mode", "text"), ("interval_ms", "number")]);
    let cursor = [
        ("since_ms", "number"),
        ("until_ms", "null"),
        ("page", "number"),
        ("last_ts", "number"),
        ("done", "bool"),
    ];
    part("cursor", &cursor);
    let counts = [("runs", "number"), ("success", "number"), ("fail", "number")];
    part("stats", &counts);
    part("stats", &[("last_run_at", "null"), ("last_success_at", "null"), ("last_error", "null")]);
    part("lock", &[("locked_by", "null"), ("lock_until", "null")]);
}

/// A claim looks at one key for each priority, however many jobs are not due.
#[tokio::test]
async fn claims_seek() {
    let rig = rig().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    let job = rig.store.add_job(&hourly(binance(), "A")).await.unwrap();
    let all = rig.raw.collection::<Document>("jobs");
    let one = all.find_one(doc! {}).await.unwrap().unwrap();
    let mut others = Vec::new();
    for n in 0..3_000_i64 {
        let mut other = one.clone();
        other.insert("_id", mongodb::bson::oid::ObjectId::new());
        other.insert("symbol", format!("S{n}"));
        other.insert("priority", 1 + (n % 3) as i32);
        other.insert("due_at", 4_000_000_000_000_i64 + n);
        others.push(other);
    }
    all.insert_many(others).await.unwrap();
    let explain = doc! {
        "explain": {
            "findAndModify": "jobs",
            "query": {
                "priority": { "$gte": 0_i32, "$lte": 255_i32 },
                "due_at": { "$gte": 0_i64, "$lte": 2_500_000_000_000_i64 },
            },
            "sort": { "priority": 1, "due_at": 1 },
            "hint": "priority_1_due_at_1_exchange_id_1",
            "update": [{ "$set": { "state": "running" } }],
        },
        "verbosity": "executionStats",
    };
    let said = rig.raw.run_command(explain).await.unwrap();
    let stats = said.get_document("executionStats").unwrap();
    let keys = stats.get("totalKeysExamined").unwrap().as_i32().map_or(9_999, i64::from);
    assert!(keys <= 20, "{keys} keys were looked at: {said}");
    let (found, _) = claim(&*rig.store, "w").await;
    assert_eq!(found.id, job.id);
    assert!(rig.store.claim(&by("w")).await.unwrap().job().is_none());
}

#[tokio::test]
async fn a_newer_database_is_left_alone() {
    let rig = rig().await;
    let settings = rig.raw.collection::<Document>("catchment_settings");
    settings.update_one(doc! { "_id": "schema" }, doc! { "$set": { "version": 99 } }).await.unwrap();
    let again = MongoSettings { database: rig.database.clone(), ..MongoSettings::default() };
    let error = MongoStore::open(&rig.server.uri(), &again).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable_and_a_password_is_shown_nowhere() {
    let settings = MongoSettings { find_within: Duration::from_millis(200), ..MongoSettings::default() };
    for uri in ["mongodb://alice:sesame@127.0.0.1:1/", "mongodb://alice:sesame@@127.0.0.1:1/", "alice:sesame"]
    {
        let error = MongoStore::open(uri, &settings).await.unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(!said.contains("sesame") && !said.contains("alice"), "{said}");
        assert!(
            matches!(error, StoreError::Unreachable { .. } | StoreError::Invalid { field: "uri", .. }),
            "{error}"
        );
    }
    let rig = rig().await;
    assert!(!format!("{:?}", rig.store).contains("127.0.0.1"));
}

/// A text that means something to MongoDB is a text.
#[tokio::test]
async fn operators_in_texts_are_texts() {
    let rig = rig().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    for symbol in ["$symbol", "{\"$gt\":\"\"}", "$$NOW", "a.b", "."] {
        let job = rig.store.add_job(&NewJob { ..hourly(binance(), symbol) }).await.unwrap();
        assert_eq!(rig.store.job(job.id).await.unwrap().unwrap().symbol.as_deref(), Some(symbol));
        let (found, lease) = claim(&*rig.store, "$fence").await;
        assert_eq!(
            (found.symbol.as_deref(), found.lock.locked_by.as_deref()),
            (Some(symbol), Some("$fence"))
        );
        rig.store.renew(&lease).await.unwrap();
        let patch = catchment_jobs::ConnectorPatch { notes: Some(symbol.to_owned()), ..Default::default() };
        let patched = rig.store.patch_connector(binance(), &patch).await.unwrap();
        assert_eq!(patched.notes.as_deref(), Some(symbol));
    }
}

/// A rig whose server can be told to fail.
async fn fragile() -> MongoRig {
    MongoRig::new(&Server::with(&["--setParameter", "enableTestCommands=1"])).await
}

impl MongoRig {
    /// The next update of that collection fails like this.
    async fn fail_next(&self, collection: &str, how: Document) {
        let mut data = doc! {
            "failCommands": ["update"],
            "namespace": format!("{}.{collection}", self.database),
        };
        data.extend(how);
        let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        let admin = Client::with_uri_str(self.server.uri()).await.unwrap().database("admin");
        admin.run_command(fail).await.unwrap();
    }

    async fn counts(&self) -> (u64, u64) {
        let found = self.store.connector(binance()).await.unwrap().unwrap();
        (found.jobs_count, found.active_jobs_count)
    }
}

/// A job and the count of it are two writes. If the second fails, the first is done, and said to be.
#[tokio::test]
async fn a_count_that_fails_undoes_nothing_and_is_made_good() {
    let rig = fragile().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    let cut = || doc! { "closeConnection": true };
    rig.fail_next("connectors", cut()).await;
    let job = rig.store.add_job(&history(binance(), "A")).await.expect("it is stored, and says so");
    assert_eq!(rig.store.job(job.id).await.unwrap().unwrap().status, Status::Active);
    assert_eq!(rig.counts().await, (0, 0), "it was not counted");
    let (_, lease) = claim(&*rig.store, "w").await;
    let ended = rig.store.finish(&lease, &Outcome::Success { next_in: None }).await.unwrap();
    assert_eq!(ended.state, State::Success);
    assert_eq!(rig.counts().await, (0, 0), "less than nothing is shown as nothing");
    rig.store.recount(binance()).await.unwrap();
    assert_eq!(rig.counts().await, (1, 0));
    rig.store.resume_job(job.id).await.unwrap();
    let (_, lease) = claim(&*rig.store, "w").await;
    rig.fail_next("connectors", cut()).await;
    let ended = rig.store.finish(&lease, &Outcome::Success { next_in: None }).await;
    assert_eq!(ended.expect("the run is over").state, State::Success);
    assert_eq!(rig.counts().await, (1, 1));
    rig.store.recount(binance()).await.unwrap();
    assert_eq!(rig.counts().await, (1, 0));
}

/// The server ends the run, and its answer says that it does not know.
#[tokio::test]
async fn an_end_whose_answer_was_lost_is_no_lost_lease() {
    let rig = fragile().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    rig.store.add_job(&history(binance(), "A")).await.unwrap();
    let (_, lease) = claim(&*rig.store, "w").await;
    let unsure = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    rig.fail_next("jobs", unsure).await;
    let outcome = Outcome::Success { next_in: None };
    let error = rig.store.finish(&lease, &outcome).await.expect_err("nobody knows");
    assert!(error.is_passing(), "{error}");
    let ended = rig.store.finish(&lease, &outcome).await.expect("it is over, and said again");
    assert_eq!((ended.state, ended.stats.success), (State::Success, 1));
}

/// A database of the first schema: its holes stay, and what was given up makes room.
#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_up_to_date() {
    let rig = rig().await;
    connect(&*rig.store, binance(), 20, SECOND).await;
    let job = rig.store.add_job(&history(binance(), "A")).await.unwrap();
    rig.store.note_hole(&minutes(binance(), "A"), Hole::absent(span(3, 5))).await.unwrap();
    let update = async |collection: &str, change: Document| {
        let collection = rig.raw.collection::<Document>(collection);
        collection.update_many(doc! {}, change).await.unwrap();
    };
    update("jobs", doc! { "$set": { "state": "dead", "due_at": Bson::Null } }).await;
    update("candle_holes", doc! { "$unset": { "holes.$[].kind": "" } }).await;
    let schema = rig.raw.collection::<Document>("catchment_settings");
    schema.update_one(doc! { "_id": "schema" }, doc! { "$set": { "version": 1_i64 } }).await.unwrap();
    let store = rig.beside().await;
    assert_eq!(store.holes(&minutes(binance(), "A")).await.unwrap(), [Hole::absent(span(3, 5))]);
    assert_eq!(store.job(job.id).await.unwrap().unwrap().status, Status::Paused);
    assert_eq!(rig.counts().await, (1, 0));
    store.note_hole(&minutes(binance(), "A"), Hole::absent(span(5, 6))).await.unwrap();
    assert_eq!(store.holes(&minutes(binance(), "A")).await.unwrap(), [Hole::absent(span(3, 6))]);
    store.add_job(&history(binance(), "A")).await.expect("it makes room");
}
