//! The binary works on jobs: candles of simulated exchanges into a store, by one process and by several, some of them killed.
//!
//! Short forms run with the tests, long ones (`CATCHMENT_LONG`) by `scripts/torture jobs`.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use catchment_jobs::{Job, JobFilter, JobType, Page, Series, Span, SqliteStore, State, Store};
use catchment_model::{Clock, SystemClock, Timeframe, UnixMs, Venue};
use catchment_sim::{Faults, Sim, SimConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use workshop::BINARY;
use workshop::archive::each_line;
use workshop::run::Run;

const MINUTE: i64 = 60_000;

fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// A simulation, and a folder with a configuration for it.
struct Site {
    sim: Sim,
    dir: tempfile::TempDir,
    config: PathBuf,
    /// Stopped before its folder goes.
    #[cfg(feature = "mongo")]
    server: Option<catchment_sinks::mongo::Mongod>,
}

impl Site {
    /// The simulation as told by pairs of path and value; the configuration with this added to it.
    async fn start(venue: &str, sim: &[(&str, String)], more: &str) -> Self {
        let mut config = SimConfig::default();
        for (path, value) in sim {
            config = config.with(path, value).unwrap();
        }
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let rest = sim.base(&format!("{venue}/rest"));
        let text = format!(
            "data_dir = {:?}\n[api]\nlisten = '127.0.0.1:0'\n[venues.{venue}]\nlimit_share = 1.0\n\
             endpoints = {{ rest = {rest:?} }}\n{more}",
            dir.path().join("data")
        );
        let path = dir.path().join("catchment.toml");
        put(&path, &text);
        Self {
            sim,
            dir,
            config: path,
            #[cfg(feature = "mongo")]
            server: None,
        }
    }

    /// The store is in a server of its own from now on.
    #[cfg(feature = "mongo")]
    fn with_mongo(mut self) -> Self {
        let server = catchment_sinks::mongo::Mongod::start(self.dir.path(), &[]);
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string(&self.config).unwrap();
        put(
            &self.config,
            &format!("{text}\n[store]\nkind = 'mongo'\nuri = {:?}\ndatabase = 'jobs'\n", uri(&server)),
        );
        self.server = Some(server);
        self
    }

    async fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&*BINARY);
        command.args(args).arg("-c").arg(&self.config);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// A process that works on jobs until it is killed. Each has a spool of its own.
    fn worker(&self, number: usize) -> Worker {
        let log = self.dir.path().join(format!("worker{number}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(&*BINARY)
            .args(["run", "--only", "jobs", "-c"])
            .arg(self.own_config(number))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Worker(child.unwrap())
    }

    /// The same configuration with a spool of its own; the store is shared.
    fn own_config(&self, number: usize) -> PathBuf {
        let text = std::fs::read_to_string(&self.config).unwrap();
        let path = self.dir.path().join(format!("worker{number}.toml"));
        let spool = self.dir.path().join(format!("spool{number}"));
        let data = self.dir.path().join(format!("data{number}"));
        let text = text.replace(&format!("{:?}", self.dir.path().join("data")), &format!("{data:?}"));
        let store = match text.contains("[store]") {
            true => String::new(),
            false => format!("[store]\npath = {:?}\n", self.store_path()),
        };
        put(&path, &format!("{text}\n{store}[persistence.spool]\ndir = {spool:?}\n"));
        path
    }

    fn store_path(&self) -> PathBuf {
        self.dir.path().join("data").join("jobs.db")
    }

    async fn store(&self) -> Arc<dyn Store> {
        #[cfg(feature = "mongo")]
        if let Some(server) = &self.server {
            let settings =
                catchment_jobs::MongoSettings { database: "jobs".to_owned(), ..Default::default() };
            return Arc::new(catchment_jobs::MongoStore::open(&uri(server), &settings).await.unwrap());
        }
        Arc::new(SqliteStore::open(self.store_path()).await.unwrap())
    }

    fn requests(&self, venue: &str, endpoint: &str) -> u64 {
        self.sim.stats()[venue].get(endpoint).map_or(0, |stats| stats.requests)
    }
}

#[cfg(feature = "mongo")]
fn uri(server: &catchment_sinks::mongo::Mongod) -> String {
    format!("mongodb://127.0.0.1:{}/?directConnection=true", server.port())
}

/// A child that does not outlive its test.
struct Worker(Child);

impl Worker {
    /// Once more is no harm.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

#[allow(clippy::disallowed_methods, reason = "a file for a test, which no power cut will meet")]
fn put(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn at(ms: i64) -> UnixMs {
    UnixMs::new(ms).unwrap()
}

fn this_minute() -> i64 {
    Timeframe::M1.open_of(SystemClock::new().wall().ms()).get()
}

fn day(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap();
    time.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_filled_from_the_configuration_once() {
    let pairs =
        "[[jobs.pairs]]\nvenue = 'okx'\nsymbols = ['BTC/USDT', 'ETH/USDT']\ntimeframes = ['1m', '1h']\n";
    let site = Site::start("okx", &[], pairs).await;
    let first = site.run(&["store", "migrate", "--json"]).await;
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let told: Value = serde_json::from_slice(&first.stdout).unwrap();
    // Two jobs for each of four series, and one for the listing.
    assert_eq!((&told["connectors_added"], &told["jobs_added"]), (&1.into(), &9.into()), "{told}");
    let again = site.run(&["store", "migrate", "--json"]).await;
    let told: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&told["connectors_added"], &told["jobs_added"], &told["jobs"]),
        (&0.into(), &0.into(), &9.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn candles_are_kept_and_what_is_done_is_shown() {
    let since = this_minute() - 2_000 * MINUTE;
    let pairs = format!("[[jobs.pairs]]\nsymbols = ['BTC/USDT']\nsince = '{}'\n", day(since));
    let site = Site::start("binance", &[("binance.candles.since_ms", since.to_string())], &pairs).await;
    let ran = site.run(&["run", "--only", "jobs,api", "--for", "8s", "--json"]).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let figures: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let jobs = &figures["jobs"];
    assert!(jobs["candles"].as_u64().unwrap() >= 1_999, "{figures:#}");
    assert_eq!(jobs["connectors"][0]["exchange"], "binance", "{figures:#}");
    let store = site.store().await;
    let series = btc();
    let span = Span::new(at(since), at(this_minute() - 5 * MINUTE)).unwrap();
    assert_eq!(store.missing(&series, span, 9).await.unwrap(), []);
    let listed = site.dir.path().join("data/binance/markets");
    assert!(listed.is_dir(), "what is traded was written down");
}

fn btc() -> Series {
    Series {
        exchange_id: Venue::new("binance").unwrap(),
        symbol: "BTC/USDT".to_owned(),
        timeframe: Timeframe::M1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_traded_while_a_killed_recorder_was_away_is_fetched() {
    let symbols = ["BTC/USDT", "ETH/USDT"];
    let streams = format!(
        "[[streams]]\nvenue = 'binance'\nsymbols = {symbols:?}\nchannels = ['agg_trades']\n\
         [[jobs.pairs]]\nsymbols = ['BTC/USDT']\nsince = '{}'\n",
        day(this_minute() - 10 * MINUTE)
    );
    let site = Site::start("binance", &[("binance.pairs.trades_per_s", "20".to_owned())], &streams).await;
    let text = std::fs::read_to_string(&site.config).unwrap();
    let socket = site.sim.socket("binance");
    put(&site.config, &text.replace("{ rest =", &format!("{{ stream = {socket:?}, rest =")));

    let first = Run::start(&site.config, &[]);
    first.wait_for(|status| status["streams"][0]["messages"].as_u64().unwrap() > 100);
    first.kill();
    let killed = SystemClock::new().wall().ms();
    let second = Run::start(&site.config, &[]);
    let store = site.store().await;
    let wanted = JobFilter { kind: Some(JobType::TradesBackfill), ..JobFilter::default() };
    let mut jobs = store.jobs(&wanted, Page::first(10)).await.unwrap();
    while jobs.len() < symbols.len() || jobs.iter().any(|job| job.state != State::Success) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        jobs = store.jobs(&wanted, Page::first(10)).await.unwrap();
    }
    assert_eq!(second.stop().0, 0);

    let mut of: Vec<&str> = jobs.iter().filter_map(|job| job.symbol.as_deref()).collect();
    of.sort_unstable();
    assert_eq!(of, symbols, "one a symbol");
    for job in &jobs {
        let (since, until) = (job.cursor.since_ms, job.cursor.until_ms.unwrap());
        assert!(since < killed && killed < until, "killed at {killed:?}: {job:?}");
    }
    for symbol in symbols {
        let (mut last, mut next, mut fetched) = (0, u64::MAX, BTreeSet::new());
        each_line(&site.dir.path().join("data/binance/agg_trades"), |_, line| {
            let line: Value = serde_json::from_slice(line).unwrap();
            let id: u64 = line["message_id"].as_str().unwrap().parse().unwrap();
            if line["symbol"] != symbol {
                return;
            }
            let is_live = line["source"].as_str().unwrap().starts_with("ws:");
            match line["received_at_ms"].as_i64().unwrap() < killed.get() {
                _ if !is_live => drop(fetched.insert(id)),
                true => last = last.max(id),
                false => next = next.min(id),
            }
        });
        println!(
            "{symbol}: {last} was the last before, {next} the first after, {} were fetched",
            fetched.len()
        );
        assert!(!fetched.is_empty() && last < next, "{symbol}: nothing was fetched");
        let missing: Vec<u64> = (last + 1..next).filter(|id| !fetched.contains(id)).collect();
        assert_eq!(missing, [0; 0], "{symbol}: between {last} and {next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_lose_and_double_no_candle() {
    killed_at_random(|site| site).await;
}

#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_lose_and_double_no_candle_in_mongo() {
    killed_at_random(Site::with_mongo).await;
}

/// However often workers are killed, every candle is there once, no page is fetched again but the one in hand, and somebody
/// else goes on soon.
async fn killed_at_random(with_store: fn(Site) -> Site) {
    // The venue takes its time, so that the history is not through before the last kill.
    let (days, kills, latency_ms) = if is_long() { (5 * 365, 100, 40.0) } else { (30, 3, 100.0) };
    let (lease, late) = (Duration::from_secs(2), Duration::from_secs(5));
    let since = this_minute() - days * 1_440 * MINUTE;
    let pairs = format!(
        "[jobs]\nlease_s = {}\nworkers = 1\n[[jobs.pairs]]\nsymbols = ['BTC/USDT']\nsince = '{}'\n",
        lease.as_secs(),
        day(since)
    );
    let sim = [("binance.candles.since_ms", since.to_string()), ("binance.limits", "[]".to_owned())];
    let site = with_store(Site::start("binance", &sim, &pairs).await);
    site.sim.set_faults("binance", Faults { latency_ms, ..Faults::default() }).unwrap();
    let migrated = site.run(&["store", "migrate"]).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", said(&migrated));
    let store = site.store().await;
    // History alone, so that every request for candles is one of its pages.
    for job in store.jobs(&JobFilter::default(), Page::first(9)).await.unwrap() {
        if job.kind != JobType::OhlcvBackfill {
            store.delete_job(job.id).await.unwrap();
        }
    }
    let history = store.jobs(&JobFilter::default(), Page::first(1)).await.unwrap().remove(0).id;
    let now = async || store.job(history).await.unwrap().unwrap();
    let clock = SystemClock::new();
    let mut workers: Vec<Worker> = (0..2).map(|number| site.worker(number)).collect();
    let holder = |job: &Job, workers: &[Worker]| {
        let by = job.lock.locked_by.clone().unwrap_or_default();
        workers.iter().position(|worker| by.contains(&format!("-{}-", worker.0.id())))
    };
    let mut rng = StdRng::seed_from_u64(1);
    let (mut killed, mut taken_over, mut slowest) = (0, 0, Duration::ZERO);
    while killed < kills {
        // While somebody who lives works on it.
        let mut job = now().await;
        while job.cursor.page == 0 || holder(&job, &workers).is_none() {
            assert_ne!(job.state, State::Success, "it was through after {killed} kills");
            tokio::time::sleep(Duration::from_millis(20)).await;
            job = now().await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(200..900))).await;
        let at = rng.random_range(0..2);
        let job = now().await;
        let killed_at = clock.monotonic();
        let was_held = holder(&job, &workers) == Some(at);
        // Gone before its successor comes, which has the same spool.
        workers[at].kill();
        workers[at] = site.worker(at);
        killed += 1;
        let is_taken = |then: &Job| then.fence > job.fence || then.state != State::Running;
        while was_held && !is_taken(&now().await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if was_held {
            taken_over += 1;
            slowest = slowest.max(clock.monotonic().since(killed_at));
        }
    }
    while now().await.state != State::Success {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(workers);
    let series = btc();
    let span = Span::new(at(since), at(this_minute() - 5 * MINUTE)).unwrap();
    assert_eq!(store.missing(&series, span, 9).await.unwrap(), []);
    let coverage = store.coverage(&series).await.unwrap().unwrap();
    let minutes = (coverage.last.get() - coverage.first.get()) / MINUTE + 1;
    assert_eq!(coverage.candles, minutes as u64, "each once");
    let job = now().await;
    let (pages, asked) = (job.cursor.page, site.requests("binance", "rest/klines"));
    // A lease that ran out on a busy machine, without a kill, costs its page too.
    let logs = (0..2).map(|number| site.dir.path().join(format!("worker{number}.log")));
    let lost: usize =
        logs.map(|log| std::fs::read_to_string(log).unwrap().matches("lease lost").count()).sum();
    println!(
        "{killed} kills, {taken_over} of them of the one at work, slowest take-over {slowest:?}, {lost} leases lost otherwise, \
         {pages} pages, {asked} requests"
    );
    assert_eq!(killed, kills);
    assert!(taken_over > 0, "nobody was killed at work");
    assert!(slowest <= lease + late, "a take-over took {slowest:?}");
    assert!(asked <= pages + killed + lost as u64, "{asked} requests for {pages} pages and {killed} kills");
}

/// The store comes minutes after the recorder: everything else is there, and jobs begin by themselves.
#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_comes_later_is_waited_for() {
    let since = this_minute() - 2_000 * MINUTE;
    let pairs = format!("[[jobs.pairs]]\nsymbols = ['BTC/USDT']\nsince = '{}'\n", day(since));
    let sim = [("binance.candles.since_ms", since.to_string())];
    let mut site = Site::start("binance", &sim, &pairs).await.with_mongo();
    site.server.as_mut().unwrap().kill();
    let log = site.dir.path().join("run.log");
    let child = Command::new(&*BINARY)
        .args(["run", "--only", "jobs,api", "-c"])
        .arg(&site.config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn();
    let mut child = Worker(child.unwrap());
    let told = || std::fs::read_to_string(&log).unwrap();
    let api = loop {
        assert!(child.0.try_wait().unwrap().is_none(), "it ended: {}", told());
        let found = told().lines().find_map(|line| line.strip_prefix("api: http://").map(str::to_owned));
        if let Some(url) = found {
            break url.trim_end_matches("/api/v1/").to_owned();
        }
        tokio::task::yield_now().await;
    };
    let (status, text) = get(&api, "/api/v1/jobs").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the store is not open yet"), "{text}");
    while !told().contains("the store cannot be opened; jobs and whoever shares their budget wait") {
        assert!(child.0.try_wait().unwrap().is_none(), "it ended: {}", told());
        tokio::task::yield_now().await;
    }
    assert_eq!(site.requests("binance", "rest/klines"), 0, "nothing is sent without an account");
    site.server.as_mut().unwrap().start_again().unwrap();
    let store = site.store().await;
    let history = JobFilter { kind: Some(JobType::OhlcvBackfill), ..JobFilter::default() };
    loop {
        let jobs = store.jobs(&history, Page::first(1)).await.unwrap();
        if jobs.first().is_some_and(|job| job.state == State::Success) {
            break;
        }
        assert!(child.0.try_wait().unwrap().is_none(), "it ended: {}", told());
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&api, "/api/v1/jobs").await.0, 200);
    let span = Span::new(at(since), at(this_minute() - 5 * MINUTE)).unwrap();
    assert_eq!(store.missing(&btc(), span, 9).await.unwrap(), []);
}

/// The status, and all of the answer.
#[cfg(feature = "mongo")]
async fn get(addr: &str, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_waited_for_and_nothing_is_half_written() {
    let since = this_minute() - 30 * 1_440 * MINUTE;
    let pairs = format!(
        "[jobs]\nlease_s = 2\nworkers = 1\n[[jobs.pairs]]\nsymbols = ['BTC/USDT']\nsince = '{}'\n",
        day(since)
    );
    let sim = [("binance.candles.since_ms", since.to_string()), ("binance.limits", "[]".to_owned())];
    let mut site = Site::start("binance", &sim, &pairs).await.with_mongo();
    let migrated = site.run(&["store", "migrate"]).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", said(&migrated));
    let store = site.store().await;
    let history = JobFilter { kind: Some(JobType::OhlcvBackfill), ..JobFilter::default() };
    let history = store.jobs(&history, Page::first(1)).await.unwrap().remove(0).id;
    let mut worker = site.worker(0);
    while store.job(history).await.unwrap().unwrap().cursor.page == 0 {
        tokio::task::yield_now().await;
    }
    site.server.as_mut().unwrap().kill();
    let log = site.dir.path().join("worker0.log");
    while !std::fs::read_to_string(&log).unwrap().contains("the store cannot be reached; work waits") {
        tokio::task::yield_now().await;
    }
    let asked = site.requests("binance", "rest/klines");
    assert!(worker.0.try_wait().unwrap().is_none(), "it lives");
    site.server.as_mut().unwrap().start_again().unwrap();
    while store.job(history).await.is_ok_and(|job| job.unwrap().state != State::Success) {
        tokio::task::yield_now().await;
    }
    let span = Span::new(at(since), at(this_minute() - 5 * MINUTE)).unwrap();
    assert_eq!(store.missing(&btc(), span, 9).await.unwrap(), []);
    let coverage = store.coverage(&btc()).await.unwrap().unwrap();
    assert_eq!(
        coverage.candles as i64,
        (coverage.last.get() - coverage.first.get()) / MINUTE + 1,
        "each once"
    );
    assert!(site.requests("binance", "rest/klines") > asked, "it went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_stay_within_one_limit() {
    within_one_limit(|site| site).await;
}

#[cfg(feature = "mongo")]
#[tokio::test(flavor = "multi_thread")]
async fn several_processes_stay_within_one_limit_in_mongo() {
    within_one_limit(Site::with_mongo).await;
}

/// The venue itself counts, in every interval, whoever asks.
async fn within_one_limit(with_store: fn(Site) -> Site) {
    // Ten in a second are allowed. What the way to the venue squeezes together on a busy machine is let go.
    let (workers, window_ms) = if is_long() { (32, 900) } else { (4, 500) };
    let since = this_minute() - 900 * 1_440 * MINUTE;
    let pairs = format!(
        "[jobs]\nworkers = {workers}\n[[jobs.pairs]]\nvenue = 'coinbase'\nsince = '{}'\n\
         symbols = ['BTC/USD', 'ETH/USD', 'SOL/USD', 'XRP/USD', 'BTC/USDT', 'ETH/USDT', 'SOL/USDT', 'XRP/USDT']\n",
        day(since)
    );
    let limit =
        format!(r#"[{{"endpoints":["rest"],"requests":10,"window_ms":{window_ms},"model":"sliding"}}]"#);
    let sim = [("coinbase.candles.since_ms", since.to_string()), ("coinbase.limits", limit)];
    let site = with_store(Site::start("coinbase", &sim, &pairs).await);
    let migrated = site.run(&["store", "migrate"]).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", said(&migrated));
    let asked = || -> u64 { site.sim.stats()["coinbase"].values().map(|stats| stats.requests).sum() };
    let processes: Vec<Worker> = (0..4).map(|number| site.worker(number)).collect();
    let used = if is_long() {
        let seconds = 120;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = asked();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Some((asked() - before) as f64 / (10 * seconds) as f64)
    } else {
        while asked() < 70 {
            tokio::task::yield_now().await;
        }
        None
    };
    drop(processes);
    let refused: u64 = site.sim.stats()["coinbase"].values().map(|stats| stats.refusals).sum();
    assert_eq!(refused, 0);
    if let Some(used) = used {
        println!("{:.1} % of the limit used", 100.0 * used);
        assert!(used >= 0.90, "{:.1} % of the limit was used", 100.0 * used);
    }
}
