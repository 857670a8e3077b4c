//! The binary records the streams of simulated venues, over real sockets.
#![allow(clippy::unwrap_used)] // a test may

mod binary;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use binary::BINARY;
use catchment_model::SystemClock;
use catchment_sim::{Sim, SimConfig};
use serde_json::Value;

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
        let (rest, socket) = (self.sim.base("binance/rest"), self.sim.socket("binance"));
        let config = format!(
            "data_dir = {:?}\n{streams}\n[api]\nenabled = false\n\
             [venues.binance.endpoints]\nrest = {rest:?}\nstream = {socket:?}\n",
            self.data()
        );
        let path = self.dir.path().join("catchment.toml");
        put(&path, &config);
        let mut command = Command::new(&*BINARY);
        command.arg(args[0]).arg("-c").arg(path).args(&args[1..]);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    fn data(&self) -> std::path::PathBuf {
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
