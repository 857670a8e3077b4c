//! The real binary in front of a real MongoDB that is killed, and killed again while it is caught up with, under a steady
//! stream of records. And a primary that steps down, likewise.
//!
//! `scripts/torture mongo` runs the long forms: 5,000 records a second, a minute away, and the drain is timed.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod workshop;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use catchment_model::{Clock, RecordId, SystemClock};
use catchment_sinks::mongo::Mongod;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use tempfile::TempDir;
use workshop::recorder::{Ended, Recorder};
use workshop::{BINARY, Site, Stopwatch, is_long};

/// How hard it is.
#[derive(Debug, Clone, Copy)]
struct Trial {
    records_per_s: u64,
    away: Duration,
    away_again: Duration,
    steady: Duration,
    /// Whether the clock is watched; on a machine that has other things to do it says nothing.
    is_timed: bool,
}

impl Trial {
    fn get() -> Self {
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        match is_long() {
            true => {
                Self { records_per_s: 5_000, away: s(60), away_again: s(10), steady: s(10), is_timed: true }
            }
            false => {
                Self { records_per_s: 1_000, away: s(3), away_again: ms(500), steady: s(1), is_timed: false }
            }
        }
    }
}

/// How the server goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    Killed,
    SteppedDown,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_and_again_during_the_drain_nothing_is_lost_or_doubled() {
    go_through(Going::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stepping_down_under_load_and_again_during_the_drain_nothing_is_lost_or_doubled() {
    go_through(Going::SteppedDown).await;
}

async fn go_through(going: Going) {
    let trial = Trial::get();
    let mut cellar = Cellar::open(going).await;
    let site = Site::new(&cellar.config());
    let mut recorder = site.start();
    let feeder = Feeder::start(&mut recorder, trial.records_per_s);
    until(async || cellar.latest().await.is_some()).await;
    let before = cellar.lag_max(trial.steady).await;

    let last = cellar.latest().await.unwrap().seq;
    cellar.goes_away(trial.away).await;
    let backlog = feeder.fed() - last;
    let back = Stopwatch::start();
    until(async || cellar.latest().await.is_some_and(|now| now.seq > last)).await;
    let found_after = back.elapsed();
    until(async || cellar.latest().await.is_some_and(|now| now.seq > last + backlog / 3)).await;

    let last = cellar.latest().await.unwrap().seq;
    cellar.goes_away(trial.away_again).await;
    until(async || cellar.latest().await.is_some_and(|now| now.seq > last)).await;
    // From the first record that arrives to the moment at which it is live again.
    let (drain, first) = (Stopwatch::start(), cellar.latest().await.unwrap().seq);
    until(async || cellar.latest().await.is_some_and(|now| now.lag_ms < 1_000)).await;
    let drained = cellar.latest().await.unwrap().seq - first;
    let seconds = drain.elapsed().as_secs_f64().max(0.001);
    let after = cellar.lag_max(trial.steady).await;

    let fed = feeder.stop();
    let ended = recorder.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
    let ratio = drained as f64 / seconds / trial.records_per_s as f64;
    println!(
        "{going:?} for {:?} and {:?} under {} records/s: {fed} records, found again after {found_after:.1?}, drained \
         {drained} in {seconds:.1} s = {:.0} records/s = {ratio:.1} x the intake; lag at most {before} ms before and \
         {after} ms after",
        trial.away,
        trial.away_again,
        trial.records_per_s,
        drained as f64 / seconds,
    );
    cellar.account(&ended, fed).await;
    if trial.is_timed {
        assert!(ratio >= 3.0, "the drain is {ratio:.1} x the intake, and should be 3");
        assert!(after < 5_000, "the live lag is {after} ms afterwards, and should be under 5 s");
    }
}

/// Waits for something that other processes do; the run's own time limit ends it if they do not.
async fn until(what: impl AsyncFn() -> bool) {
    while !what().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The newest record in the collection.
struct Latest {
    seq: u64,
    /// How long ago it was received.
    lag_ms: i64,
}

/// A server, and a look at what it holds.
struct Cellar {
    server: Mongod,
    going: Going,
    collection: Collection<Document>,
    _dir: TempDir,
}

impl Cellar {
    async fn open(going: Going) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options: &[&str] = if going == Going::SteppedDown { &["--replSet", "rs0"] } else { &[] };
        let server = Mongod::start(dir.path(), options).unwrap_or_else(|error| panic!("{error}"));
        if going == Going::SteppedDown {
            let member = doc! { "_id": 0, "host": format!("127.0.0.1:{}", server.port()) };
            let settings = doc! { "electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 500 };
            let config = doc! { "_id": "rs0", "members": [member], "settings": settings };
            let admin = client(server.port()).await.database("admin");
            admin.run_command(doc! { "replSetInitiate": config }).await.unwrap();
        }
        let collection = client(server.port()).await.database("market_data").collection("crypto_envelopes");
        Self { server, going, collection, _dir: dir }
    }

    fn config(&self) -> String {
        let options =
            if self.going == Going::SteppedDown { "replicaSet=rs0" } else { "directConnection=true" };
        format!(
            "[persistence]\nmongo_uri = \"mongodb://127.0.0.1:{}/?{options}\"\n[[sinks]]\nkind = \"mongo\"\n",
            self.server.port()
        )
    }

    /// Is away for so long, and comes back.
    async fn goes_away(&mut self, away: Duration) {
        match self.going {
            Going::Killed => {
                self.server.kill();
                tokio::time::sleep(away).await;
                self.server.start_again().unwrap();
            }
            Going::SteppedDown => {
                let seconds = away.as_secs().max(1) as i64;
                let admin = client(self.server.port()).await.database("admin");
                admin.run_command(doc! { "replSetStepDown": seconds, "force": true }).await.unwrap();
                let is_primary = async || {
                    let hello = admin.run_command(doc! { "hello": 1 }).await;
                    hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
                };
                until(async || !is_primary().await).await;
                until(is_primary).await;
            }
        }
    }

    async fn latest(&self) -> Option<Latest> {
        let newest = self.collection.find_one(doc! {}).sort(doc! { "_id": -1 }).await.ok()??;
        let id: RecordId = newest.get_str("_id").unwrap().parse().unwrap();
        let received = newest.get_i64("received_at_ms").unwrap();
        Some(Latest { seq: id.seq, lag_ms: SystemClock::new().wall().ms().get() - received })
    }

    /// The longest lag seen in a while.
    async fn lag_max(&self, time: Duration) -> i64 {
        let watched = Stopwatch::start();
        let mut most = 0;
        while watched.elapsed() < time {
            most = most.max(self.latest().await.unwrap().lag_ms);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    }

    /// The longest time between two messages of an exchange, in milliseconds.
    async fn longest_pause(&self, exchange: &str) -> i64 {
        let of = doc! { "exchange": exchange, "channel": { "$in": ["trades", "book_delta", "ticker"] } };
        let (mut last, mut longest) = (None, 0);
        let sorted = doc! { "received_at_ms": 1 };
        let mut found = self.collection.find(of).sort(sorted).await.unwrap();
        while found.advance().await.unwrap() {
            let at = found.current().get_i64("received_at_ms").unwrap();
            longest = longest.max(last.map_or(0, |last| at - last));
            last = Some(at);
        }
        longest
    }

    /// Every acknowledged record is there under its id, and no record twice under any.
    async fn account(&self, ended: &Ended, fed: u64) {
        assert_eq!(ended.ids.len() as u64, fed, "acknowledged");
        let mut seen = HashSet::new();
        let only = doc! { "payload.n": 1 };
        let mut found = self.collection.find(doc! {}).projection(only).batch_size(10_000).await.unwrap();
        while found.advance().await.unwrap() {
            let document = found.current();
            let id: RecordId = document.get_str("_id").unwrap().parse().unwrap();
            let n = document.get_document("payload").unwrap().get_i64("n").unwrap() as u64;
            assert_eq!(ended.ids[n as usize].1, id.seq, "record {n} has another's id");
            assert!(seen.insert(n), "record {n} is there twice");
        }
        assert_eq!(seen.len() as u64, fed, "lost");
    }
}

async fn client(port: u16) -> Client {
    let text = format!("mongodb://127.0.0.1:{port}/?directConnection=true&serverSelectionTimeoutMS=1000");
    Client::with_options(ClientOptions::parse(text).await.unwrap()).unwrap()
}

/// Feeds records at a steady pace until it is stopped.
struct Feeder {
    fed: Arc<AtomicU64>,
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Feeder {
    fn start(recorder: &mut Recorder, records_per_s: u64) -> Self {
        let mut input = recorder.input();
        let fed = Arc::new(AtomicU64::new(0));
        let (stop, stopped): (SyncSender<()>, Receiver<()>) = sync_channel(1);
        let counter = Arc::clone(&fed);
        let thread = std::thread::spawn(move || {
            let running = Stopwatch::start();
            let (mut next, mut text) = (0, String::new());
            while stopped.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                let due = (running.elapsed().as_secs_f64() * records_per_s as f64) as u64;
                text.clear();
                (next..due).for_each(|n| text.push_str(&line(n)));
                input.write_all(text.as_bytes()).unwrap();
                next = due;
                counter.store(due, Ordering::Relaxed);
            }
        });
        Self { fed, stop, thread }
    }

    fn fed(&self) -> u64 {
        self.fed.load(Ordering::Relaxed)
    }

    fn stop(self) -> u64 {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        self.fed.load(Ordering::Relaxed)
    }
}

/// A trade as Binance sends it, and its number.
fn line(n: u64) -> String {
    let symbol = ["BTC/USDT", "ETH/USDT", "SOL/USDT"][n as usize % 3];
    let payload = format!(
        r#"{{"stream":"btcusdt@trade","data":{{"e":"trade","E":{},"s":"BTCUSDT","p":"{}.10","q":0.00{}1,"m":true}},"n":{n}}}"#,
        1_798_761_600_000 + n,
        60_000 + n % 977,
        n % 90 + 10,
    );
    format!(
        r#"{{"exchange":"binance","channel":"trades","symbol":"{symbol}","sequence":{n},"payload":{payload}}}"#
    ) + "\n"
}

#[test]
fn check_says_whether_mongo_answers_and_shows_no_password() {
    let dir = tempfile::tempdir().unwrap();
    let server = Mongod::start(dir.path(), &[]).unwrap_or_else(|error| panic!("{error}"));
    let check = |uri: &str, environment: Option<&str>| {
        let config = format!("[persistence]\nmongo_uri = \"{uri}\"\n[[sinks]]\nkind = \"mongo\"\n");
        let site = Site::new(&config);
        let mut command = std::process::Command::new(&*BINARY);
        command.args(["check", "--connect", "--config"]).arg(site.beside("catchment.toml"));
        command.env("CATCHMENT_LOG", "trace");
        command.envs(environment.map(|uri| ("CATCHMENT_MONGO_URI", uri)));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).join("\n");
        assert!(!text.contains("sesame") && !text.contains("alibaba"), "{text}");
        (output.status.code(), text)
    };
    let here = format!("mongodb://127.0.0.1:{}", server.port());
    let (code, text) = check(&here, None);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("mongo answers"), "{text}");
    // This server has no users: any name is wrong.
    let (code, text) = check(&here.replace("//", "//alibaba:sesame@"), None);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("refuses the user name or password"), "{text}");
    let (code, text) = check(&here.replace("//", "//alibaba:se/same@"), None);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("percent-encoded"), "{text}");
    let (code, text) = check("mongodb://alibaba:sesame@nowhere.invalid", Some(&here));
    assert_eq!(code, Some(0), "{text}");
}

/// Asks as the oldest clients do: the whole answer.
fn ask(addr: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Opens a socket, says one thing, and gives back the first frame that answers it.
fn say_on_socket(addr: &str, path: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    // A text of less than 126 bytes, masked with zeros.
    stream.write_all(&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0]).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut frame = [0; 2];
    stream.read_exact(&mut frame).unwrap();
    let mut answer = vec![0; frame[1] as usize];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mock_goes_wrong_in_all_five_ways_and_is_found_under_the_recorders_own_address() {
    let cellar = Cellar::open(Going::Killed).await;
    let site = Site::new(&(cellar.config() + "[api]\nlisten = \"127.0.0.1:0\"\n"));
    let mut command = std::process::Command::new(&*BINARY);
    command.current_dir(site.beside(".")).args(["run", "--mock", "--for", "24s", "--json"]);
    command.args(["--mock-gap-every", "40", "--mock-disconnect-every", "115", "--mock-silence-ms", "8000"]);
    command.args(["--mock-mongo-down-ms", "3000", "--mock-binary-rate", "0.05"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains("/mock/rest/snapshot")) {
        told.push(talk.next().expect("it says where its mock is").unwrap());
    }
    let rest = std::thread::spawn(move || talk.map_while(Result::ok).collect::<Vec<_>>());
    let addr = told
        .iter()
        .find_map(|line| line.strip_prefix("mock: ws://")?.strip_suffix("/mock/ws/public"))
        .unwrap();

    let time = ask(addr, "/mock/rest/time");
    assert!(time.starts_with("HTTP/1.1 200 ") && time.contains("{\"time\":"), "{time}");
    let book = ask(addr, "/mock/rest/snapshot?symbol=BTC/USDT");
    assert!(book.starts_with("HTTP/1.1 200 ") && book.contains("\"bids\":[["), "{book}");
    assert!(ask(addr, "/livez").starts_with("HTTP/1.1 200 "));
    assert_eq!(say_on_socket(addr, "/mock/ws/public", r#"{"op":"ping"}"#), r#"{"op":"pong"}"#);
    let refused = say_on_socket(addr, "/mock/ws/private", r#"{"op":"subscribe","args":["fills:BTC/USDT"]}"#);
    assert!(refused.contains("log in first"), "{refused}");

    let ended = child.wait_with_output().unwrap();
    let talk = rest.join().unwrap().join("\n");
    assert_eq!(ended.status.code(), Some(0), "{talk}");
    let figures: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let counts = &figures["streams"][0]["status"]["counts"];
    let count = |key: &str| counts[key].as_u64().unwrap_or_else(|| panic!("{key} in {counts}"));
    assert!(count("binary") > 0 && count("disconnects") > 0, "{counts}");
    assert!(talk.contains("--mock-mongo-down-ms keeps it away"), "{talk}");
    let mut causes = HashSet::new();
    let mut gaps = cellar.collection.find(doc! { "exchange": "mock", "channel": "gaps" }).await.unwrap();
    while gaps.advance().await.unwrap() {
        let payload = gaps.current().get_document("payload").unwrap();
        causes.insert(payload.get_str("cause").unwrap().to_owned());
    }
    assert!(causes.contains("sequence") && causes.contains("disconnect"), "{causes:?}");
    assert!(
        cellar.longest_pause("mock").await >= 3_000,
        "it was silent for eight seconds, if it was not cut before"
    );
    let written: u64 =
        figures["balances"].as_array().unwrap().iter().map(|line| line["written"].as_u64().unwrap()).sum();
    assert_eq!(cellar.collection.count_documents(doc! {}).await.unwrap(), written, "{figures:#}");
    assert!(written >= count("messages"), "{figures:#}");
}

#[test]
fn a_mock_that_is_to_keep_mongo_away_says_what_is_missing() {
    let site = Site::new("");
    let mut command = std::process::Command::new(&*BINARY);
    command.arg("run").arg("-c").arg(site.beside("catchment.toml")).args([
        "--mock",
        "--mock-mongo-down-ms",
        "5",
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(
        talk.contains("[[sinks]]") && talk.contains("kind = \"mongo\"") && talk.contains("mongo_uri"),
        "{talk}"
    );
}
