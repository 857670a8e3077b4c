//! The binary records simulated venues, over real sockets: as a whole, in two processes, killed, and with one venue in
//! trouble.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, SystemClock};
use catchment_sim::{Sim, SimConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use workshop::archive::{each_line, files};
use workshop::{BINARY, PATIENCE, Stopwatch, put};

/// How soon a recorder that was killed records again: from the start of the process to the first book that came.
const RESTARTS_WITHIN_MS: i64 = 2_000;

#[test]
fn the_demo_records_three_venues_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = Command::new(&*BINARY);
    command.args(["demo", "--for", "6s", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let output = command.output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (venue, instruments_min) in [("polymarket", 900), ("limitless", 20), ("kalshi", 300)] {
        let of_it = |list: &str| {
            let lines = figures[list].as_array().unwrap().iter();
            lines.filter(|line| line["venue"] == venue).cloned().collect::<Vec<_>>()
        };
        let line = &of_it("venues")[0];
        assert!(line["instruments"].as_u64().unwrap() >= instruments_min, "{line}");
        assert!(line["books"].as_u64().unwrap() > 0 && line["refusals"] == 0, "{line}");
        assert!(of_it("balances").iter().all(|line| line["lost"] == 0 && line["pending"] == 0), "{figures}");
    }
    verify(&data);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_polls_it_soon_records_again_and_the_hole_is_in_the_gaps() {
    let site = Site::start(SimConfig::default()).await;
    let mut first = site.run(&[]);
    first.wait_for(|status| venue(status, "polymarket")["books"].as_u64().unwrap() > 4_000);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let left: Vec<(PathBuf, Vec<u8>)> =
        files(&site.data).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();

    let restarted = SystemClock::new().wall().ms().get();
    let second = site.run(&[]);
    second.wait_for(|status| {
        let books = |name| venue(status, name)["books"].as_u64().unwrap();
        books("polymarket") > 0 && books("kalshi") > 0
    });
    assert_eq!(second.stop().0, 0);
    verify(&site.data);
    // Torn ends are cut, whole lines stay, and nothing is written into a file of the first life.
    for (path, before) in left.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "jsonl")) {
        let after = std::fs::read(path).unwrap();
        assert!(before.starts_with(&after), "{} was written to", path.display());
    }
    for name in ["polymarket", "kalshi"] {
        let hole = Hole::of(&site.data.join(name), restarted, "crash");
        let took = hole.first - restarted;
        println!("killed: the first book of {name} came {took} ms after the start");
        assert!(took < RESTARTS_WITHIN_MS, "{name}: the first book came {took} ms after the start");
        // From the last that is known to be whole: nothing in between is without a gap.
        let tells = |(from, to): &(i64, i64)| *from <= hole.last && (restarted..=hole.first).contains(to);
        assert!(hole.told.iter().any(tells), "{name}: {hole:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_and_started_again_it_tells_since_when_nobody_listened() {
    let site = Site::start(SimConfig::default()).await;
    let books = |status: &Value, name: &str| venue(status, name)["books"].as_u64().unwrap();
    let first = site.run(&[]);
    first.wait_for(|status| books(status, "polymarket") > 4_000 && books(status, "kalshi") > 1_000);
    let stopped = SystemClock::new().wall().ms().get();
    assert_eq!(first.stop().0, 0);
    let restarted = SystemClock::new().wall().ms().get();
    let second = site.run(&[]);
    second.wait_for(|status| books(status, "polymarket") > 0 && books(status, "kalshi") > 0);
    assert_eq!(second.stop().0, 0);
    verify(&site.data);
    for name in ["polymarket", "kalshi"] {
        let hole = Hole::of(&site.data.join(name), restarted, "stopped");
        let tells = |(from, to): &(i64, i64)| {
            (stopped..=restarted).contains(from) && (restarted..=hole.first).contains(to)
        };
        assert!(matches!(&hole.told[..], [one] if tells(one)), "{name}: stopped {stopped}, {hole:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_polling_may_be_two_processes() {
    let site = Site::start(SimConfig::default()).await;
    let poller = site.run(&["--only", "poll,api"]);
    let discovery = site.run(&["--only", "discover,api"]);
    poller.wait_for(|status| venue(status, "kalshi")["books"].as_u64().unwrap() > 0);
    assert_eq!(discovery.stop().0, 0);
    assert_eq!(poller.stop().0, 0);
    verify(&site.data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_venue_in_trouble_is_left_alone_and_the_others_go_on() {
    let config = SimConfig::default()
        .with("polymarket.faults.refused", "1.0")
        .and_then(|config| config.with("polymarket.universe.markets", "100"))
        .unwrap();
    let site = Site::start(config).await;
    let recorder = site.run(&[]);
    recorder.wait_for(|status| venue(status, "kalshi")["books"].as_u64().unwrap() > 1_000);
    let status = recorder.status();
    let (kalshi, polymarket) = (venue(&status, "kalshi"), venue(&status, "polymarket"));
    assert_eq!((&kalshi["late"], &kalshi["refusals"]), (&0.into(), &0.into()), "{kalshi}");
    assert!(polymarket["refusals"].as_u64().unwrap() > 0, "{polymarket}");
    assert!(polymarket["hold"]["cause"].is_string(), "{polymarket}");
    assert!(polymarket["requests"].as_u64().unwrap() < 20, "nothing is sent while it is held: {polymarket}");
    assert_eq!(recorder.stop().0, 0);
}

#[test]
fn without_a_venue_there_is_nothing_to_record_and_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(&*BINARY).arg("run").current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.contains("nothing to record") && talk.contains("[venues.polymarket]"), "{talk}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_asks_each_venue_and_says_which_does_not_answer() {
    let config = SimConfig::default().with("kalshi.faults.server_error", "1.0").unwrap();
    let site = Site::start(config).await;
    let mut command = Command::new(&*BINARY);
    command.args(["check", "--connect", "-c"]).arg(&site.config);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("polymarket answers, after"), "{said}");
    assert!(said.contains("kalshi: it answers 5"), "{said}");
}

/// Simulated venues, and a configuration that records them.
struct Site {
    _dir: tempfile::TempDir,
    _sim: Sim,
    config: PathBuf,
    data: PathBuf,
}

impl Site {
    async fn start(config: SimConfig) -> Self {
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (data, path) = (dir.path().join("data"), dir.path().join("catchment.toml"));
        let text = format!(
            "data_dir = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\n\
             [venues.polymarket]\nendpoints = {{ clob = {clob:?}, gamma = {gamma:?} }}\n\
             [venues.kalshi]\nendpoints = {{ api = {kalshi:?} }}\n",
            clob = sim.base("polymarket/clob"),
            gamma = sim.base("polymarket/gamma"),
            kalshi = sim.base("kalshi"),
        );
        put(&path, text.as_bytes());
        Self { _dir: dir, _sim: sim, config: path, data }
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new(&*BINARY);
        command.arg("run").arg("-c").arg(&self.config).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
        let page =
            talk.find_map(|line| Some(line.unwrap().strip_prefix("live figures: http://")?.to_owned()));
        // Whoever talks and is not listened to stands still at last.
        std::thread::spawn(move || talk.for_each(drop));
        Run { child, page: page.unwrap().trim_end_matches('/').to_owned() }
    }
}

/// A recorder and its page.
struct Run {
    child: Child,
    page: String,
}

impl Run {
    fn status(&self) -> Value {
        let mut stream = TcpStream::connect(&self.page).unwrap();
        write!(stream, "GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[allow(clippy::disallowed_methods)] // between two looks; nothing depends on how long it is
    fn wait_for(&self, is_so: impl Fn(&Value) -> bool) {
        let watch = Stopwatch::start();
        let mut status = self.status();
        while !is_so(&status) {
            assert!(watch.elapsed() < PATIENCE, "it never came: {status}");
            std::thread::sleep(Duration::from_millis(20));
            status = self.status();
        }
    }

    /// Asks it to end; gives back its exit code and what it printed.
    fn stop(mut self) -> (i32, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap().code().unwrap(), printed)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a recorder missed between two lives.
#[derive(Debug)]
struct Hole {
    /// The last book of the first life.
    last: i64,
    /// The first of the second.
    first: i64,
    /// Gaps in the books with that cause.
    told: Vec<(i64, i64)>,
}

impl Hole {
    /// In the data of a venue, by when the second life began.
    fn of(data: &Path, restarted: i64, cause: &str) -> Self {
        let mut hole = Hole { last: i64::MIN, first: i64::MAX, told: Vec::new() };
        each_line(data, |path, line| {
            let folder = path.to_string_lossy();
            let read = || serde_json::from_slice::<Value>(line).unwrap();
            if folder.contains("/gaps/") {
                let gap = &read()["payload"];
                let time = |key: &str| gap[key].as_i64().unwrap();
                if gap["cause"] == cause && gap["channel"] == "orderbook" {
                    hole.told.push((time("from_ms"), time("to_ms")));
                }
            } else if folder.contains("/orderbooks/") {
                // What the first life left in its spool is in the files of the second.
                match read()["received_at_ms"].as_i64().unwrap() {
                    at if at < restarted => hole.last = hole.last.max(at),
                    at => hole.first = hole.first.min(at),
                }
            }
        });
        hole
    }
}

fn venue(status: &Value, name: &str) -> Value {
    let venues = status["venues"].as_array().unwrap().iter();
    venues.clone().find(|venue| venue["venue"] == name).unwrap().clone()
}

fn verify(data: &Path) {
    let output = Command::new(&*BINARY).arg("verify").arg(data).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}
