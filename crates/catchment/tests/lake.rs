//! The real binary and a lake: several workers, killed and stopped, on a folder and on an Azure emulator that loses answers.
//!
//! `scripts/torture lake` runs the long forms, and prints what they took.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

#[path = "workshop/lossy_storage.rs"]
#[allow(unreachable_pub)]
mod lossy_storage;

use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catchment_lake::azurite::Azurite;
use catchment_model::SystemClock;
use catchment_sim::{EventRoll, LimitModel, LimitRule, Sim, SimConfig};
use lossy_storage::Losses;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Requests a second, of all workers together.
const RATE: u32 = 50;
const BINARY: &str = env!("CARGO_BIN_EXE_catchment");

fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// A venue and a lake.
struct Site {
    sim: Sim,
    place: String,
    emulator: Option<String>,
    dir: TempDir,
}

impl Site {
    /// On a folder. `is_old`: the venue as S3 knew it, with any offset.
    async fn start(events: u64, is_old: bool, closing: u64) -> Self {
        let mut config = SimConfig::default();
        config.polymarket.universe.markets = 4;
        config.polymarket.universe.closed = 0;
        // A tenth more than all workers together may ask: they are on their way at different speeds.
        let limit = LimitRule::new(&["gamma"], RATE + RATE / 10, 1_000, LimitModel::Sliding);
        config.polymarket.limits = Some(vec![limit]);
        config.polymarket.rules.roll = EventRoll { events, open_every: 5, closing, text_bytes: 40 };
        if is_old {
            config.polymarket.rules.gamma_offset_max = None;
        }
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("lake").to_str().unwrap().to_owned();
        Self { sim, place, emulator: None, dir }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(["backfill", "events"]).args(words).args(["--lake", &self.place]);
        command.arg("--data-dir").arg(self.dir.path().join("data"));
        if let Some(address) = &self.emulator {
            command.arg(format!("--emulator={address}"));
        }
        command.stdin(Stdio::null());
        command
    }

    async fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn json(&self, words: &[&str]) -> Value {
        let output = self.run(words).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {told}"))
    }

    fn worker(&self, name: &str, more: &[&str]) -> Child {
        let base = self.sim.base("polymarket/gamma");
        let mut command = self.command(&["worker", "--json", "--worker-id", name, "--base-url", &base]);
        command.args(["--idle-sleep", "1"]).args(more);
        if !more.contains(&"--rate") {
            command.args(["--rate", &RATE.to_string()]);
        }
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// How many leases stand under that name, run out or not.
    async fn leases_of(&self, worker: &str) -> usize {
        let status = self.json(&["status", "--json"]).await;
        assert_eq!(status["is_finished"], false, "there are jobs enough: {status}");
        let leases = status["leases"].as_array().unwrap();
        leases.iter().filter(|lease| lease["worker"] == worker).count()
    }

    /// What the table and the files say when all is done.
    async fn check(&self, events: u64) -> Value {
        let status = self.json(&["status", "--json"]).await;
        let found = self.json(&["verify", "--json"]).await;
        assert_eq!(found["wrong"], serde_json::json!([]), "{found}");
        assert_eq!(status["is_finished"], true, "{status}");
        assert_eq!(status["states"]["done"], status["jobs"], "{status}");
        assert_eq!(found["files"], status["jobs"], "{found} {status}");
        assert_eq!(found["records"], status["records"], "{found} {status}");
        assert_eq!((&found["distinct"], &found["repeated"]), (&events.into(), &0.into()), "{found}");
        found
    }
}

async fn end(child: Child) -> Value {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_bring_every_event_once_by_offset() {
    let (events, max_offset) = if is_long() { (188_321, "188000") } else { (18_321, "18000") };
    let site = Site::start(events, true, 0).await;
    let made = site.json(&["setup", "--json", "--mode", "offset"]).await;
    assert_eq!(made, serde_json::json!({ "is_new": true, "added": 377, "jobs": 377 }), "S3's plan");
    std::fs::remove_dir_all(&site.place).unwrap();
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", max_offset]).await;
    let again = site.json(&["setup", "--json", "--mode", "offset", "--max-offset", max_offset]).await;
    assert_eq!(again["added"], 0);
    let workers: Vec<Child> = (0..4).map(|n| site.worker(&format!("w{n}"), &[])).collect();
    for worker in workers {
        let report = end(worker).await;
        eprintln!("{report}");
    }
    let found = site.check(events).await;
    assert_eq!(found["taken_over"], 0);
    let asked = &site.sim.stats()["polymarket"]["gamma/events"];
    eprintln!("{} requests, {} refused", asked.requests, asked.refusals);
    assert_eq!(asked.refusals, 0, "four processes spend from one account");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_by_keyset_brings_both_passes_and_finds_what_is_in_both() {
    let site = Site::start(2_350, false, 7).await;
    site.json(&["setup", "--json"]).await;
    let report = end(site.worker("w", &[])).await;
    assert_eq!((&report["records"], &report["failed"]), (&2_357.into(), &0.into()), "{report}");
    let found = site.check(2_350).await;
    assert_eq!((&found["in_both_passes"], &found["records"]), (&7.into(), &2_357.into()));
    let left = std::fs::read_dir(format!("{}/polymarket/events/_cursors", site.place)).unwrap().count();
    assert_eq!(left, 0, "cursors are cleared away at the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_that_the_venue_refuses_fail_at_once_and_say_why() {
    let site = Site::start(20_000, false, 0).await; // a fifth of them open
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", "3000"]).await;
    let mut worker = site.worker("w", &[]);
    let status = tokio::task::spawn_blocking(move || worker.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(1));
    let status = site.json(&["status", "--json"]).await;
    // 2,000 is allowed and 2,100 is not, so five jobs begin where they may, and the last of them cannot go on.
    assert_eq!((&status["states"]["done"], &status["states"]["failed"]), (&4.into(), &3.into()), "{status}");
    let error = &status["errors"][0];
    assert_eq!(error["code"], "HTTP_422");
    assert!(error["message"].as_str().unwrap().contains("--mode keyset"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_a_worker_gives_its_leases_back() {
    let site = Site::start(9_000, true, 0).await;
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", "8500"]).await;
    let worker = site.worker("w", &["--rate", "5"]);
    loop {
        let status = site.json(&["status", "--json"]).await;
        if status["states"]["leased"].as_u64().unwrap() > 0 {
            assert_eq!(status["leases"][0]["worker"], "w");
            break;
        }
    }
    let refused = site.run(&["reset-leased"]).await;
    assert_eq!(refused.status.code(), Some(2), "live leases are left alone");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    signal(&worker, Signal::TERM);
    let report = end(worker).await;
    assert!(report["handed_back"].as_u64().unwrap() > 0, "{report}");
    let status = site.json(&["status", "--json"]).await;
    assert_eq!(status["states"]["leased"], 0, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_on_a_storage_that_loses_answers_lose_and_double_nothing() {
    let kills = if is_long() { 50 } else { 3 };
    let jobs = if is_long() { 200 } else { 30 };
    let events = jobs * 500 - 123;
    let mut site = Site::start(events, true, 0).await;
    let dir = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(dir.path()).unwrap();
    // The client's patience is a minute, so that is for the long form.
    let losses = Losses { every: 25, silent_every: if is_long() { 10 } else { 0 } };
    let (address, counts) = lossy_storage::start(azurite.address(), losses).await;
    site.place = "abfss://lake@devstoreaccount1.dfs.core.windows.net/bronze".to_owned();
    site.emulator = Some(address);
    let max_offset = (jobs * 500 - 500).to_string();
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", &max_offset]).await;
    let worker = |name: &str| site.worker(name, &["--lease", "2s", "--rate", "20", "--leases", "4"]);
    let mut workers: Vec<Child> = (0..2).map(|n| worker(&format!("w{n}"))).collect();
    for kill in 0..kills {
        // From right after the start to deep into its work, by a fixed pattern.
        tokio::time::sleep(Duration::from_millis(400 + kill * 377 % 1_100)).await;
        let mut victim = workers.remove(0);
        signal(&victim, Signal::KILL);
        victim.wait().unwrap();
        workers.push(worker(&format!("w{}", kill + 2)));
    }
    for worker in workers {
        eprintln!("{}", end(worker).await);
    }
    site.emulator = Some(azurite.address().to_owned());
    let found = site.check(events).await;
    let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    eprintln!(
        "{kills} kills; storage: {} requests, {} refused, {} answers swallowed, {} of them waited for; {found}",
        count(&counts.requests),
        count(&counts.refused),
        count(&counts.swallowed),
        count(&counts.silent)
    );
    assert!(count(&counts.refused) > 0 && count(&counts.swallowed) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_past_its_lease_changes_nothing() {
    let stops = if is_long() { 50 } else { 2 };
    let jobs = 10 + stops * 8;
    let events = jobs * 500;
    let site = Site::start(events, true, 0).await;
    let max_offset = (jobs * 500 - 500).to_string();
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", &max_offset]).await;
    let worker = |name: &str| site.worker(name, &["--lease", "1s", "--rate", "10", "--leases", "3"]);
    let (mut stopped, other) = (worker("stopped"), worker("other"));
    for stop in 0..stops {
        // Stopped with leases in its hands, at whatever it is doing.
        while site.leases_of("stopped").await == 0 {
            signal(&stopped, Signal::CONT);
            tokio::time::sleep(Duration::from_millis(300 + stop * 131 % 700)).await;
            if stopped.try_wait().unwrap().is_some() {
                stopped = worker("stopped");
            }
            signal(&stopped, Signal::STOP);
        }
        while site.leases_of("stopped").await > 0 {
            tokio::task::yield_now().await; // the other takes them when they have run out
        }
    }
    signal(&stopped, Signal::CONT);
    let (stopped, other) = (end(stopped).await, end(other).await);
    let found = site.check(events).await;
    eprintln!("{stops} stops; {stopped} {other} {found}");
    assert!(found["taken_over"].as_u64().unwrap() >= stops, "{found}");
}

/// Long only: 188,000 events at the declared limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_uses_what_is_allowed() {
    let events = if is_long() { 188_000 } else { 4_000 };
    let site = Site::start(events, false, 0).await;
    site.json(&["setup", "--json"]).await;
    let worker = site.worker("w", &["--rate", "40"]);
    let pid = worker.id();
    let watching = tokio::spawn(async move {
        let mut sizes: Vec<u64> = Vec::new();
        while let Some(size) = resident_kib(pid) {
            sizes.push(size);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        sizes
    });
    let report = end(worker).await;
    let sizes = watching.await.unwrap();
    site.check(events).await;
    let requests = site.sim.stats()["polymarket"]["gamma/events/keyset"].requests;
    let seconds = report["took_ms"].as_f64().unwrap() / 1_000.0;
    let used = requests as f64 / (40.0 * seconds);
    // The first checkpoint, which takes eight MiB for good, is in the second quarter.
    let quarter = sizes.len() / 4;
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let (early, late) = (most(&sizes[quarter..2 * quarter]), most(&sizes[3 * quarter..]));
    eprintln!(
        "{requests} requests in {seconds:.1} s: {:.1} % of 40/s; resident {early} KiB early, {late} KiB late; {report}",
        used * 100.0
    );
    if is_long() {
        assert!(used >= 0.95, "{used}");
        assert!(late < early + (10 << 10), "memory grew from {early} to {late} KiB");
    }
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
