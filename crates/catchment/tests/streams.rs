//! The binary records the streams of simulated venues, over real sockets.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use catchment_model::{Clock, SystemClock};
use catchment_sim::{Sim, SimConfig};
use serde_json::Value;
use workshop::BINARY;
use workshop::archive::each_line;
use workshop::run::Run;

struct Site {
    sim: Sim,
    dir: tempfile::TempDir,
}

impl Site {
    async fn start() -> Self {
        let sim = Sim::start(SimConfig::default(), Arc::new(SystemClock::new())).await.unwrap();
        Self { sim, dir: tempfile::tempdir().unwrap() }
    }

    /// Runs the binary with a configuration of these streams.
    async fn run(&self, streams: &str, args: &[&str]) -> Output {
        let path = self.config(streams, "enabled = false");
        let mut command = Command::new(&*BINARY);
        command.arg(args[0]).arg("-c").arg(path).args(&args[1..]);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// A configuration of these streams, with this in `[api]`.
    fn config(&self, streams: &str, api: &str) -> PathBuf {
        let (rest, socket) = (self.sim.base("binance/rest"), self.sim.socket("binance"));
        let config = format!(
            "data_dir = {:?}\n{streams}\n[api]\n{api}\n\
             [venues.binance.endpoints]\nrest = {rest:?}\nstream = {socket:?}\n",
            self.data()
        );
        let path = self.dir.path().join("catchment.toml");
        put(&path, &config);
        path
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

#[allow(clippy::disallowed_methods, reason = "a file for a test, which no power cut will meet")]
fn put(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const BINANCE: &str = "[[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT', 'ETH/USDT']\n\
                       channels = ['trades', 'book_delta', 'ticker']\n";

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_recorded_and_nothing_is_lost() {
    let site = Site::start().await;
    let checked = site.run(BINANCE, &["check", "--connect"]).await;
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    assert!(said(&checked).contains("binance, socket public answers"), "{}", said(&checked));

    let ran = site.run(BINANCE, &["run", "--only", "stream", "--for", "4s", "--json"]).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let figures: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let status = &figures["streams"][0]["status"];
    assert!(status["counts"]["messages"].as_u64().unwrap() > 20, "{figures:#}");
    assert_eq!((&status["counts"]["gaps_told"], &status["counts"]["disconnects"]), (&0.into(), &0.into()));
    assert_eq!(status["connections"][0]["books_live"], 2, "{figures:#}");
    assert!(figures["balances"].as_array().unwrap().iter().all(|line| line["lost"] == 0), "{figures:#}");
    for folder in ["trades", "book_delta", "ticker", "orderbooks"] {
        assert!(site.data().join("binance").join(folder).is_dir(), "{folder}");
    }
    let verified = Command::new(&*BINARY).arg("verify").arg(site.data()).output().unwrap();
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_venue_described_in_a_folder_is_recorded_and_a_wrong_one_refused_by_its_line() {
    let site = Site::start().await;
    let descriptors = site.dir.path().join("descriptors");
    std::fs::create_dir(&descriptors).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../venues/descriptors/binance.toml");
    let text = std::fs::read_to_string(shipped).unwrap();
    let mine = text
        .replace("id = \"binance\"", "id = \"lantern\"")
        .replace("https://data-api.binance.vision", &site.sim.base("binance/rest"))
        .replace("wss://data-stream.binance.vision", &site.sim.socket("binance"));
    put(&descriptors.join("lantern.toml"), &mine);
    let streams = format!(
        "descriptors_dir = {descriptors:?}\n[[streams]]\nvenue = 'lantern'\nsymbols = ['BTC/USDT']\nchannels = ['trades']\n"
    );
    let ran = site.run(&streams, &["run", "--only", "stream", "--for", "4s", "--json"]).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let figures: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(figures["streams"][0]["status"]["counts"]["messages"].as_u64().unwrap() > 0, "{figures:#}");
    assert!(site.data().join("lantern/trades").is_dir());

    put(&descriptors.join("wrong.toml"), &mine.replace("kind = \"trades\"", "kind = \"moods\""));
    let refused = site.run(&streams, &["check"]).await;
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let text = said(&refused);
    assert!(text.contains("wrong.toml:") && text.contains("moods"), "{text}");
}

fn now() -> i64 {
    SystemClock::new().wall().ms().get()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_and_started_again_it_tells_since_when_nobody_listened() {
    let site = Site::start().await;
    let run = ["run", "--only", "stream", "--for", "3s"];
    let began = now();
    let ran = site.run(BINANCE, &run).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let restarted = now();
    let ran = site.run(BINANCE, &run).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    for channel in ["trades", "book_delta", "ticker"] {
        // The first message of each symbol after the restart, and the gaps of all and of each.
        let (mut first, mut told, mut own) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        each_line(&site.data().join("binance"), |path, line| {
            let line: Value = serde_json::from_slice(line).unwrap();
            let (time, gap) = (line["received_at_ms"].as_i64().unwrap(), &line["payload"]);
            let symbol = line["symbol"].as_str().unwrap().to_owned();
            if path.to_string_lossy().contains("/gaps/") && gap["channel"] == channel {
                assert_eq!(gap["cause"], "stopped", "{line}");
                let bounds = (gap["from_ms"].as_i64().unwrap(), gap["to_ms"].as_i64().unwrap());
                match symbol.as_str() {
                    "*" => told.push(bounds),
                    _ => assert_eq!(own.insert(symbol, bounds), None, "{line}"),
                }
            } else if line["channel"] == channel && time >= restarted {
                let first = first.entry(symbol).or_insert(time);
                *first = time.min(*first);
            }
        });
        let heard = *first.values().min().unwrap();
        let tells = |(from, to): &(i64, i64)| {
            (began + 3_000..=restarted).contains(from) && (restarted..=heard).contains(to)
        };
        assert!(
            matches!(&told[..], [one] if tells(one)),
            "{channel}: began {began}, restarted {restarted}, heard {heard}: {told:?}"
        );
        // From there on each has its own, until it flows; a book does so when its snapshot is there.
        for (symbol, first) in &first {
            let (from, to) = own[symbol];
            assert!((told[0].1..=*first).contains(&from), "{channel} of {symbol}: {told:?}, {from}..{to}");
            assert!(
                to == *first || channel == "book_delta" && to > *first,
                "{channel} of {symbol}: {first}, {to}"
            );
        }
    }
}

#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn with_venue_and_sink_away_it_lives_and_says_why_it_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    // Taken, and nobody listens.
    let place = tokio::net::TcpSocket::new_v4().unwrap();
    place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nowhere = place.local_addr().unwrap();
    let config = format!(
        "data_dir = {:?}\n{BINANCE}[api]\nlisten = '127.0.0.1:0'\n\
         [venues.binance.endpoints]\nrest = 'http://{nowhere}'\nstream = 'ws://{nowhere}'\n\
         [persistence]\nmongo_uri = 'mongodb://{nowhere}/?directConnection=true&serverSelectionTimeoutMS=500'\n\
         [[sinks]]\nkind = 'mongo'\n",
        dir.path().join("data")
    );
    let path = dir.path().join("catchment.toml");
    put(&path, &config);
    let recorder = Run::start(&path, &[]);
    let has = |answer: &Value, words: &str| {
        let reasons = answer["reasons"].as_array().unwrap().iter();
        reasons.filter_map(Value::as_str).any(|reason| reason.contains(words))
    };
    let is_told = |answer: &Value| {
        has(answer, "no stream is live: binance (")
            && has(answer, "no sink takes anything: mongo is unreachable")
    };
    let told = recorder.wait_at("/readyz", |code, answer| code == 503 && is_told(answer));
    assert_eq!(told["ready"], false);
    assert_eq!(recorder.ask("/livez").0, 200);
    let (code, health) = recorder.ask("/healthz");
    assert_eq!((code, &health["instances"][0]["state"]), (503, &"down".into()), "{health:#}");
    assert_eq!(recorder.stop().0, 0, "nothing is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_once_a_stream_is_live() {
    let site = Site::start().await;
    let path = site.config(BINANCE, "listen = '127.0.0.1:0'");
    let recorder = Run::start(&path, &[]);
    let ready = recorder.wait_at("/readyz", |code, _| code == 200);
    assert_eq!(ready, serde_json::json!({ "ready": true, "reasons": [] }));
    assert_eq!(recorder.stop().0, 0);
}
