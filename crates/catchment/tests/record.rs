//! The binary records simulated venues, over real sockets: as a whole, in two processes, killed, and with one venue in
//! trouble.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use catchment_model::{Clock, SystemClock};
use catchment_sim::{Sim, SimConfig};
use serde_json::Value;
use workshop::archive::{each_line, files};
use workshop::run::Run;
use workshop::{BINARY, put};

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
    let first = site.run(&[]);
    first.wait_for(|status| venue(status, "polymarket")["books"].as_u64().unwrap() > 4_000);
    first.kill();
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

#[tokio::test(flavor = "multi_thread")]
async fn health_lists_each_venue_as_what_it_is_and_their_clocks() {
    let site = Site::start(SimConfig::default()).await;
    let (rest, socket) = (site.sim.base("binance/rest"), site.sim.socket("binance"));
    let okx = site.sim.base("okx/rest");
    site.change(|text| {
        format!(
            "{text}[venues.binance]\nendpoints = {{ rest = {rest:?}, stream = {socket:?} }}\n\
             [venues.okx]\nendpoints = {{ rest = {okx:?} }}\n\
             [[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT']\nchannels = ['trades']\n\
             [[jobs.pairs]]\nvenue = 'okx'\nsymbols = ['BTC/USDT']\n\
             [persistence.dedup]\nenabled = true\n"
        )
    });
    let recorder = site.run(&[]);
    let is_there = |health: &Value| {
        let clocks = &health["time_quality"];
        let all = ["polymarket", "kalshi", "binance"].iter().all(|name| clocks[name].is_object());
        let keys = health["persistence"]["dedup"]["keys"].as_u64();
        all && keys > Some(0) && health["instances"][3]["state"] == "running"
    };
    let health = recorder.wait_at("/healthz", |code, health| code == 200 && is_there(health));
    let word = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let listed = health["instances"].as_array().unwrap().iter();
    let listed: Vec<String> =
        listed.map(|one| ["exchange", "kind", "state"].map(|key| word(one, key)).join(" ")).collect();
    // What a venue that streams may miss is fetched by jobs.
    let expected = [
        "kalshi poll running",
        "polymarket poll running",
        "binance stream live",
        "binance jobs running",
        "okx jobs running",
    ];
    assert_eq!(listed, expected, "{health:#}");
    for name in ["polymarket", "kalshi"] {
        let clock = &health["time_quality"][name];
        let (offset, within) =
            (clock["offset_ms"].as_f64().unwrap(), clock["uncertainty_ms"].as_f64().unwrap());
        // `Date` has whole seconds, and it is this machine's own clock.
        assert!(within >= 500.0 && offset.abs() <= within, "{name}: {clock}");
    }
    let persistence = &health["persistence"];
    assert_eq!(
        (&persistence["spool"]["enabled"], &persistence["dedup"]["enabled"]),
        (&true.into(), &true.into())
    );
    assert!(persistence["dedup"]["keys"].as_u64().unwrap() > 0, "{persistence}");
    assert!(persistence["dedup"]["keys_max"].as_u64().unwrap() > 0, "{persistence}");
    assert_eq!(recorder.stop().0, 0);
}

#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn with_a_sink_and_a_venue_that_hang_a_signal_ends_it_in_ten_seconds_and_nothing_is_lost() {
    use catchment_sinks::mongo::Mongod;
    use rustix::process::{Pid, Signal, kill_process};

    let site = Site::start(SimConfig::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let server = Mongod::start(folder.path(), &[]).unwrap_or_else(|error| panic!("{error}"));
    let uri = format!("mongodb://127.0.0.1:{}/?directConnection=true", server.port());
    // Connections wait to be taken, and nobody takes them.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", nobody.local_addr().unwrap());
    site.change(|text| {
        let text = text.replace(&site.sim.base("kalshi"), &silent);
        format!(
            "{text}[persistence]\nmongo_uri = {uri:?}\n[[sinks]]\nkind = 'jsonl'\n[[sinks]]\nkind = 'mongo'\n"
        )
    });
    let books = |status: &Value| venue(status, "polymarket")["books"].as_u64().unwrap();
    let written = |status: &Value, sink: &str| {
        let lines = status["balances"].as_array().unwrap().iter();
        let of_it = lines.filter(|line| line["sink"] == sink && line["venue"] == "polymarket");
        of_it.map(|line| line["written"].as_u64().unwrap()).sum::<u64>()
    };
    let first = site.run(&[]);
    first.wait_for(|status| written(status, "mongo") > 500);
    let process = Pid::from_raw(server.pid().unwrap() as i32).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let before = books(&first.status());
    first.wait_for(|status| books(status) > before + 2_000);
    let watch = workshop::Stopwatch::start();
    let (code, printed) = first.stop();
    let took = watch.elapsed();
    println!("a sink and a venue hung: it ended after {took:.1?}");
    assert!(took < std::time::Duration::from_secs(10), "it took {took:?}");
    assert_eq!(code, 0, "what waits is in the spool: {printed}");

    kill_process(process, Signal::CONT).unwrap();
    let second = site.run(&[]);
    second.wait_for(|status| books(status) > 0);
    assert_eq!(second.stop().0, 0);
    verify(&site.data);
    let mut archived = std::collections::BTreeSet::new();
    each_line(&site.data, |_, line| {
        let line: Value = serde_json::from_slice(line).unwrap();
        assert!(archived.insert(line["id"].as_str().unwrap().to_owned()), "{line}");
    });
    let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
    let collection = client.database("market_data").collection::<mongodb::bson::Document>("crypto_envelopes");
    let kept = collection.count_documents(mongodb::bson::doc! {}).await.unwrap();
    assert_eq!(kept, archived.len() as u64, "both sinks have everything");
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
    sim: Sim,
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
        Self { _dir: dir, sim, config: path, data }
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::start(&self.config, args)
    }

    /// Writes the configuration anew.
    fn change(&self, how: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        put(&self.config, how(text).as_bytes());
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
