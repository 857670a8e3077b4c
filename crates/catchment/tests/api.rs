//! The API of the real binary, and the commands that do the same.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use catchment_jobs::{Connectors, SqliteStore};
use catchment_model::Venue;
use serde_json::{Value, json};
use workshop::{BINARY, put, said};

/// A folder with a configuration.
struct Place(tempfile::TempDir);

impl Place {
    fn new(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config =
            format!("data_dir = {:?}\n[api]\nlisten = '127.0.0.1:0'\n{more}", dir.path().join("data"));
        put(&dir.path().join("catchment.toml"), config.as_bytes());
        Self(dir)
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(&*BINARY);
        command.args(args.split(' ')).current_dir(self.path()).env_remove("CATCHMENT_API_TOKEN");
        command
    }

    fn run(&self, args: &str) -> Output {
        self.command(args).output().unwrap()
    }

    /// What it printed as JSON.
    fn json(&self, args: &str) -> Value {
        let output = self.run(&format!("{args} --json"));
        assert!(output.status.success(), "{args}: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// `run --only api`, for as long as this lives.
struct Serving {
    child: Child,
    addr: String,
}

impl Serving {
    fn start(place: &Place) -> Self {
        let child = place.command("run --only api").stderr(Stdio::piped()).spawn().unwrap();
        let mut serving = Self { child, addr: String::new() };
        let talk = BufReader::new(serving.child.stderr.take().unwrap());
        let mut told = String::new();
        for line in talk.lines() {
            let line = line.unwrap();
            if let Some(url) = line.strip_prefix("api: http://") {
                url.strip_suffix("/api/v1/").unwrap().clone_into(&mut serving.addr);
                return serving;
            }
            told += &line;
        }
        panic!("it never said where: {told}");
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        write!(
            stream,
            "{method} /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_the_commands_do_the_api_shows() {
    let place = Place::new("");
    let connector = place.json("connectors add binance");
    assert_eq!(connector["exchange_id"], "binance");
    let job = place.json(
        "jobs add --exchange binance --type ohlcv_backfill --symbol BTC/USDT --timeframe 1m --since 2021-01-01 --priority 7",
    );
    assert_eq!(job["cursor"]["since_ms"], json!(1_609_459_200_000_u64));
    let id = job["_id"].as_str().unwrap();
    let serving = Serving::start(&place);
    assert_eq!(serving.ask("GET", &format!("jobs/{id}"), "", ""), (200, job.clone()));
    assert_eq!(serving.ask("GET", "connectors/binance", "", "").1["jobs_count"], 1);
    assert_eq!(serving.ask("GET", "jobs", "", "").1, place.json("jobs list"));
    // Both at once, on one store.
    assert_eq!(place.json(&format!("jobs pause {id}"))["status"], "paused");
    assert_eq!(serving.ask("GET", "jobs?status=paused", "", "").1["items"][0]["_id"], job["_id"]);
    assert_eq!(serving.ask("POST", &format!("jobs/{id}/resume"), "", "").1["status"], "active");
    assert_eq!(place.json(&format!("jobs run {id}"))["state"], "queued");
    assert_eq!(place.json(&format!("jobs set {id} --every 2h"))["schedule"]["interval_ms"], 7_200_000);
    assert!(place.run(&format!("jobs delete {id}")).status.success());
    assert_eq!(serving.ask("GET", &format!("jobs/{id}"), "", "").0, 404);
    let (status, problem) = serving.ask("POST", "connectors", "", r#"{"exchange_id": {"$gt": ""}}"#);
    assert_eq!((status, &problem["errors"][0]["field"]), (422, &json!("exchange_id")));
}

#[test]
fn tables_are_for_people() {
    let place = Place::new("");
    place.json("connectors add kraken --rate-limit 1 --period 2s --max-concurrent-jobs 1");
    place.json("jobs add --exchange kraken --type markets_refresh");
    let listed = place.run("connectors list");
    let table = String::from_utf8(listed.stdout).unwrap();
    assert!(table.starts_with("exchange  status") && table.contains("kraken    active  1 in 2 s"), "{table}");
    let table = String::from_utf8(place.run("jobs list").stdout).unwrap();
    assert!(table.contains("markets_refresh") && table.contains("12 h"), "{table}");
    let id = place.json("jobs list")["items"][0]["_id"].as_str().unwrap().to_owned();
    let shown = String::from_utf8(place.run(&format!("jobs show {id}")).stdout).unwrap();
    assert!(
        shown
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>() == ["schedule.mode", "interval"]),
        "{shown}"
    );
    let covered = place.run("candles coverage kraken BTC/EUR 1h");
    assert!(covered.status.success(), "{}", said(&covered));
    let csv = String::from_utf8(place.run("candles list kraken BTC/EUR 1h").stdout).unwrap();
    assert_eq!(csv, "open_time,open,high,low,close,volume,quote_volume,trades\n");
}

#[test]
fn what_is_refused_says_why_and_how_badly() {
    let place = Place::new("");
    let check = |args: &str, code: i32, words: &str| {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(code), "{args}: {}", said(&output));
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(talk.contains(words) && output.stdout.is_empty(), "{args}: {}", said(&output));
    };
    check(
        "connectors add mtgox",
        2,
        "exchange_id is \"mtgox\", which is no exchange we know; there is binance",
    );
    check(
        "jobs add --exchange binance --type markets_refresh",
        2,
        "exchange_id is binance, which has no connector",
    );
    check(
        "jobs add --exchange binance --type ohlcv_backfill --symbol X --timeframe 7m",
        2,
        "timeframe is \"7m\"",
    );
    check("jobs list --state gone", 2, "state is \"gone\"; there is idle");
    check(
        "candles list binance BTC/USDT 1m --since 5 --until 5",
        2,
        "until_ms is 5, which is not after since_ms 5",
    );
    place.json("connectors add binance");
    let id = "000000000000000000000000";
    for act in ["pause", "resume", "run", "delete"] {
        let output = place.run(&format!("jobs {act} {id}"));
        assert_eq!(output.status.code(), Some(1), "{act}: {}", said(&output));
    }
    check(&format!("jobs show {id}"), 1, "there is no job");
    check(&format!("jobs show {id} --json"), 1, "urn:catchment:problem:not-found");
}

#[test]
fn beyond_loopback_a_token_is_needed_to_start_and_to_ask() {
    let place = Place::new("");
    let config = place.path().join("catchment.toml");
    put(
        &config,
        format!("data_dir = {:?}\n[api]\nlisten = '0.0.0.0:0'\n", place.path().join("data")).as_bytes(),
    );
    let refused = place.run("run --only api");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("there is no token"), "{}", said(&refused));
    let short = place.command("run --only api").env("CATCHMENT_API_TOKEN", "sesame").output().unwrap();
    assert!(
        said(&short).contains("needs at least 16") && !said(&short).contains("sesame"),
        "{}",
        said(&short)
    );
    put(&place.path().join("token"), b"0123456789abcdef0123\n");
    let with = format!(
        "data_dir = {:?}\n[api]\nlisten = '127.0.0.1:0'\ntoken_file = 'token'\n",
        place.path().join("data")
    );
    put(&config, with.as_bytes());
    let serving = Serving::start(&place);
    assert_eq!(serving.ask("GET", "jobs", "", "").0, 401);
    assert_eq!(serving.ask("GET", "jobs", "authorization: Bearer 0123456789abcdef0123\r\n", "").0, 200);
}

#[test]
fn check_refuses_what_the_start_would_refuse() {
    let place = Place::new("");
    put(
        &place.path().join("catchment.toml"),
        format!("data_dir = {:?}\n[api]\nlisten = '0.0.0.0:0'\n", place.path().join("data")).as_bytes(),
    );
    let refused = place.run("check");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("there is no token"), "{}", said(&refused));
    let token = "0123456789abcdef0123";
    let good = place.command("check").env("CATCHMENT_API_TOKEN", token).output().unwrap();
    assert_eq!(good.status.code(), Some(0), "{}", said(&good));
}

#[test]
fn a_port_that_is_taken_ends_it_before_anything_is_opened() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let place = Place::new("");
    let data = place.path().join("data");
    let config = format!("data_dir = {data:?}\n[api]\nlisten = '{addr}'\n[venues.kalshi]\n");
    put(&place.path().join("catchment.toml"), config.as_bytes());
    let refused = place.run("run");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains(&format!("cannot listen on {addr}")), "{}", said(&refused));
    assert!(!data.exists(), "nothing was made");
    // Whoever names a place for the demo's page wants that one.
    let refused = place.run(&format!("demo --for 1s --listen {addr}"));
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[test]
fn the_demo_goes_elsewhere_if_its_usual_place_is_taken() {
    // Or somebody else has it, which is as good.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    let place = Place::new("");
    let output = place.run("demo --for 1s");
    let talk = said(&output);
    assert_eq!(output.status.code(), Some(0), "{talk}");
    assert!(talk.contains("127.0.0.1:8080 is taken by another program"), "{talk}");
    let page = talk.lines().find_map(|line| line.strip_prefix("live figures: http://127.0.0.1:"));
    assert!(page.is_some_and(|port| !port.starts_with("8080")), "{talk}");
}

#[test]
fn a_store_that_cannot_be_opened_is_503_and_no_reason_to_end() {
    let place = Place::new("[store]\npath = 'in/the/way/jobs.db'\n");
    put(&place.path().join("in"), b"a file, not a folder");
    let serving = Serving::start(&place);
    let (status, problem) = serving.ask("GET", "jobs", "", "");
    assert_eq!((status, &problem["type"]), (503, &json!("urn:catchment:problem:unavailable")), "{problem}");
    let output = place.run("jobs list");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    std::fs::remove_file(place.path().join("in")).unwrap();
    assert_eq!(serving.ask("GET", "jobs", "", "").0, 200, "it is opened once it can be");
}

#[test]
fn a_symbol_that_is_not_listed_is_refused_on_the_command_line_too() {
    let place = Place::new("");
    place.json("connectors add binance");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(place.path().join("data/jobs.db")).await.unwrap();
        store.put_listing(Venue::new("binance").unwrap(), &["BTC/USDT".to_owned()]).await.unwrap();
    });
    let add = "jobs add --exchange binance --type ohlcv_incremental --timeframe 1h --symbol";
    let refused = place.run(&format!("{add} FOO/BAR"));
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        said(&refused).contains("symbol is \"FOO/BAR\", which binance does not list"),
        "{}",
        said(&refused)
    );
    assert_eq!(place.json("jobs list")["items"], json!([]), "nothing is stored");
    assert_eq!(place.json(&format!("{add} BTC/USDT"))["symbol"], "BTC/USDT");
}
