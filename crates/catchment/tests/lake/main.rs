//! The real binary and a lake: several workers, killed and stopped, on a folder and on an Azure emulator that loses answers.
//!
//! `scripts/torture lake` runs the long forms, and prints what they took.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

#[path = "../binary/mod.rs"]
mod binary;
mod doors;
#[path = "../workshop/lossy_storage.rs"]
#[allow(unreachable_pub)]
mod lossy_storage;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use binary::BINARY;
use catchment_lake::azurite::Azurite;
use catchment_model::SystemClock;
use catchment_sim::{EventRoll, Faults, LimitModel, LimitRule, Sim, SimConfig};
use lossy_storage::Losses;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Requests a second, of all workers together.
const RATE: u32 = 50;

fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// A venue and a lake.
struct Site {
    sim: Sim,
    place: String,
    emulator: Option<String>,
    env: Vec<(&'static str, String)>,
    dir: TempDir,
}

impl Site {
    /// On a folder. `is_old`: the venue as S3 knew it, with any offset.
    async fn start(events: u64, is_old: bool, closing: u64) -> Self {
        let roll = EventRoll { events, open_every: 5, closing, text_bytes: 40, ..EventRoll::default() };
        Self::start_with(roll, is_old, Faults::default()).await
    }

    async fn start_with(roll: EventRoll, is_old: bool, faults: Faults) -> Self {
        let mut config = SimConfig::default();
        config.polymarket.universe.markets = 4;
        config.polymarket.universe.closed = 0;
        // A tenth more than all workers together may ask: they are on their way at different speeds.
        let limit = LimitRule::new(&["gamma"], RATE + RATE / 10, 1_000, LimitModel::Sliding);
        config.polymarket.limits = Some(vec![limit]);
        config.polymarket.rules.roll = roll;
        config.polymarket.faults = faults;
        if is_old {
            config.polymarket.rules.gamma_offset_max = None;
        }
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("lake").to_str().unwrap().to_owned();
        Self { sim, place, emulator: None, env: Vec::new(), dir }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&*BINARY);
        command.args(["backfill", "events"]).args(words).args(["--lake", &self.place]);
        command.arg("--data-dir").arg(self.dir.path().join("data"));
        if let Some(address) = &self.emulator {
            command.arg(format!("--emulator={address}"));
        }
        command.stdin(Stdio::null()).envs(self.env.iter().map(|(name, value)| (name, value)));
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

    /// Under whose names leases stand, run out or not.
    async fn holders(&self) -> BTreeSet<String> {
        let status = self.json(&["status", "--json"]).await;
        assert_eq!(status["is_finished"], false, "there are jobs enough: {status}");
        let leases = status["leases"].as_array().unwrap();
        leases.iter().map(|lease| lease["worker"].as_str().unwrap().to_owned()).collect()
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

/// Waits until the store of the shared budget is open: its last file is.
async fn has_its_store(child: &mut Child) {
    let is_turns = |file: std::io::Result<std::fs::DirEntry>| {
        file.and_then(|file| file.path().read_link()).is_ok_and(|path| path.ends_with("jobs.db-turns"))
    };
    while !std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().any(is_turns) {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it began");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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
async fn what_cannot_be_meant_is_refused() {
    let site = Site::start(10, true, 0).await;
    for (words, reason) in [
        (&["setup", "--mode", "offset", "--max-offset", "4294967295", "--limit", "1"][..], "4294967296 jobs"),
        (&["worker", "--lease", "99999999999h"], "from 1s to 24h"),
        (&["worker", "--lease", "0s"], "from 1s to 24h"),
        (&["setup", "--mode", "offset", "--span-days", "7"], "--span-days is for --mode keyset"),
    ] {
        let refused = site.run(words).await;
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && told.contains(reason), "{words:?}: {told}");
    }
    assert!(!std::path::Path::new(&site.place).exists(), "nothing was made");
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
    // As `timeout` does: the process, and then its group.
    signal(&worker, Signal::TERM);
    signal(&worker, Signal::TERM);
    let report = end(worker).await;
    assert!(report["handed_back"].as_u64().unwrap() > 0, "{report}");
    let status = site.json(&["status", "--json"]).await;
    assert_eq!(status["states"]["leased"], 0, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_a_worker_waits_for_a_dead_storage_only_so_long() {
    let mut site = Site::start(9_000, true, 0).await;
    let storage = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(storage.path()).unwrap();
    (site.place, site.emulator) = ("az://lake/x".to_owned(), Some(azurite.address().to_owned()));
    site.json(&["setup", "--json", "--mode", "offset", "--max-offset", "8500"]).await;
    let worker = site.worker("w", &["--rate", "5"]);
    while site.holders().await.is_empty() {}
    let process = Pid::from_raw(azurite.process().cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    signal(&worker, Signal::TERM);
    let output = tokio::task::spawn_blocking(move || worker.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(2), "it could not give its leases back");
}

/// How the venue is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Offset,
    /// One walk.
    Keyset,
    /// Several, side by side.
    Spans,
}

impl Walk {
    /// A venue with these events over six years, and the jobs set up.
    async fn set_up(self, site: &Site, events: u64) {
        let max_offset = (events.div_ceil(500) * 500 - 500).to_string();
        let words: &[&str] = match self {
            Self::Offset => &["--mode", "offset", "--max-offset", &max_offset],
            Self::Keyset => &[],
            Self::Spans => &["--span-days", "300"],
        };
        site.json(&[&["setup", "--json"], words].concat()).await;
    }

    /// Events from 2020 until now, some of them at midnight and some without a date.
    fn roll(events: u64) -> EventRoll {
        let apart_s = u32::try_from(2_200 * 86_400 / events).unwrap();
        EventRoll { events, open_every: 5, closing: 0, text_bytes: 40, apart_s, undated_every: 97 }
    }
}

/// Workers on a storage that loses answers; now and then one of them is killed, whatever it is doing.
async fn kill_again_and_again(walk: Walk, seed: u64) {
    let (workers, kills, jobs, wait_ms) =
        if is_long() { (4, 50, 377, 50..1_500) } else { (2, 3, 16, 200..900) };
    let events = jobs * 500 - 123;
    let mut site = Site::start_with(Walk::roll(events), walk == Walk::Offset, Faults::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(dir.path()).unwrap();
    // The client's patience is a minute, so that is for the long form; and one walk stands still while it lasts.
    let silent_every = if walk == Walk::Offset { 10 } else { 50 };
    let losses = Losses { every: 25, silent_every: if is_long() { silent_every } else { 0 } };
    let (address, counts) = lossy_storage::start(azurite.address(), losses).await;
    site.place = "abfss://lake@devstoreaccount1.dfs.core.windows.net/bronze".to_owned();
    site.emulator = Some(address);
    walk.set_up(&site, events).await;
    let worker =
        |name: u64| site.worker(&format!("w{name}"), &["--lease", "2s", "--rate", "20", "--leases", "4"]);
    let mut chance = StdRng::seed_from_u64(seed);
    let mut workers: Vec<Child> = (0..workers).map(worker).collect();
    let mut killed = 0;
    while killed < kills {
        // From right after the start to deep into its work.
        tokio::time::sleep(Duration::from_millis(chance.random_range(wait_ms.clone()))).await;
        let mut victim = workers.swap_remove(chance.random_range(0..workers.len()));
        assert_eq!(victim.try_wait().unwrap(), None, "after {killed} kills there is still work");
        signal(&victim, Signal::KILL);
        assert_eq!(victim.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        killed += 1;
        workers.push(worker(100 + killed));
    }
    for worker in workers {
        eprintln!("{}", end(worker).await);
    }
    site.emulator = Some(azurite.address().to_owned());
    let found = site.check(events).await;
    let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    eprintln!(
        "{walk:?}, seed {seed}: {killed} kills; storage: {} requests, {} refused, {} answers swallowed, {} of them waited for; {found}",
        count(&counts.requests),
        count(&counts.refused),
        count(&counts.swallowed),
        count(&counts.silent)
    );
    assert_eq!(killed, kills);
    assert!(count(&counts.refused) > 0 && count(&counts.swallowed) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_on_a_storage_that_loses_answers_lose_and_double_nothing_by_offset() {
    kill_again_and_again(Walk::Offset, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_on_a_storage_that_loses_answers_lose_and_double_nothing_by_keyset() {
    kill_again_and_again(Walk::Keyset, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_on_a_storage_that_loses_answers_lose_and_double_nothing_in_several_spans() {
    kill_again_and_again(Walk::Spans, 3).await;
}

/// Two workers; now and then one of them stands still with leases in its hands until the other has taken them, and goes on.
async fn stop_again_and_again(walk: Walk, seed: u64) {
    let (stops, jobs) = if is_long() { (50, 806) } else { (2, 30) };
    let events = jobs * 500;
    let site = Site::start_with(Walk::roll(events), walk == Walk::Offset, Faults::default()).await;
    walk.set_up(&site, events).await;
    let mut workers = ["one", "two"]
        .map(|name| (name, site.worker(name, &["--lease", "1s", "--rate", "20", "--leases", "3"])));
    // One that stands still within a transaction keeps out whoever is only just coming.
    for (_, worker) in &mut workers {
        has_its_store(worker).await;
    }
    let mut chance = StdRng::seed_from_u64(seed);
    for stop in 0..stops {
        let victim = loop {
            tokio::time::sleep(Duration::from_millis(chance.random_range(50..700))).await;
            // A walk has one holder at a time, and whoever waits for it has nothing to lose.
            let holders = site.holders().await;
            let holding = (0..workers.len()).filter(|at| holders.contains(workers[*at].0));
            let Some(victim) = holding.choose(&mut chance) else { continue };
            signal(&workers[victim].1, Signal::STOP);
            if site.holders().await.contains(workers[victim].0) {
                break victim;
            }
            signal(&workers[victim].1, Signal::CONT);
        };
        // The other takes them when they have run out.
        while site.holders().await.contains(workers[victim].0) {
            for (name, worker) in &mut workers {
                assert_eq!(
                    worker.try_wait().unwrap(),
                    None,
                    "{name} has ended after {stop} stops, and there is work"
                );
            }
        }
        signal(&workers[victim].1, Signal::CONT);
    }
    let [(_, one), (_, two)] = workers;
    let (one, two) = (end(one).await, end(two).await);
    let found = site.check(events).await;
    eprintln!("{walk:?}, seed {seed}: {stops} stops; {one} {two} {found}");
    assert!(found["taken_over"].as_u64().unwrap() >= stops, "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_past_its_lease_changes_nothing_by_offset() {
    stop_again_and_again(Walk::Offset, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_past_its_lease_changes_nothing_by_keyset() {
    stop_again_and_again(Walk::Keyset, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_that_does_not_advance_is_an_error() {
    let faults = Faults { stuck_cursor: 1.0, ..Faults::default() };
    let site = Site::start_with(Walk::roll(2_000), false, faults).await;
    site.json(&["setup", "--json"]).await;
    let worker = site.worker("w", &[]);
    let status = loop {
        let status = site.json(&["status", "--json"]).await;
        if status["errors"] != serde_json::json!([]) {
            break status;
        }
    };
    let error = &status["errors"][0];
    assert_eq!((&error["code"], &error["failed"]), (&"CURSOR_STUCK".into(), &0.into()), "{status}");
    assert!(error["message"].as_str().unwrap().contains("does not advance"), "{error}");
    assert_eq!((&status["states"]["pending"], &status["records"]), (&1.into(), &0.into()), "{status}");
    signal(&worker, Signal::TERM);
    let report = end(worker).await;
    assert_eq!((&report["done"], &report["failed"]), (&0.into(), &1.into()), "{report}");
    let asked = site.sim.stats()["polymarket"]["gamma/events/keyset"].requests;
    assert_eq!(asked, 2, "the second page said to go on where it was; nobody asked again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_days_bring_every_event_once_and_those_without_a_date() {
    let roll = EventRoll { closing: 7, ..Walk::roll(3_000) };
    let site = Site::start_with(roll, false, Faults::default()).await;
    // Cut in this way, three of those that start at midnight start on an edge.
    let made = site.json(&["setup", "--json", "--span-days", "79"]).await;
    let again = site.json(&["setup", "--json", "--span-days", "79"]).await;
    assert_eq!((&again["added"], &again["jobs"]), (&0.into(), &made["jobs"]));
    let report = end(site.worker("w", &[])).await;
    assert_eq!(report["failed"], 0, "{report}");
    let found = site.check(3_000).await;
    let twice = found["in_both_passes"].as_u64().unwrap();
    assert!(twice <= 7, "{found}");
    assert_eq!(found["records"], 3_000 + twice);
}

/// The long form: 188,000 events at the declared limit.
async fn walk_at_the_limit(walk: Walk, latency_ms: f64, used_min: f64) {
    let events = if is_long() { 188_000 } else { 4_000 };
    let faults = Faults { latency_ms, ..Faults::default() };
    let site = Site::start_with(Walk::roll(events), false, faults).await;
    walk.set_up(&site, events).await;
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
        "{walk:?}, {latency_ms} ms away: {requests} requests in {seconds:.1} s: {:.1} % of 40/s; resident {early} KiB early, {late} KiB late; {report}",
        used * 100.0
    );
    if is_long() {
        assert!(used >= used_min, "{used}");
        assert!(late < early + (10 << 10), "memory grew from {early} to {late} KiB");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_uses_what_is_allowed() {
    walk_at_the_limit(Walk::Keyset, 0.0, 0.95).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_in_several_spans_uses_what_is_allowed_of_a_venue_that_is_80_ms_away() {
    // The last spans to be walked are fewer than the round trips that fit into the limit.
    walk_at_the_limit(Walk::Spans, 80.0, 0.93).await;
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
