//! The poller against simulated venues: what it says it counted is what they say they sent.

use std::sync::Arc;
use std::time::Duration;

use catchment_collect::{
    Courier, CourierSettings, DiscoverStatus, DiscoverTask, Line, PageRetries, PollSettings, PollStatus,
    PollTask, SnapshotFile, discover, poll, snapshot_path,
};
use catchment_governor::{Governor, Settings};
use catchment_model::{Channel, Clock, SystemClock};
use catchment_pipeline::disk::sim::SimDisk;
use catchment_pipeline::{Delivery, Pipeline, PipelineConfig, RealDisk, Sink, Spool, SpoolConfig};
use catchment_sim::{EndpointStats, Faults, RetryAfter, Sim, SimConfig};
use catchment_sinks::MemorySink;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{governor, opened, sim, venue};

/// A simulated venue, its poller, and what was recorded.
struct Rig {
    id: &'static str,
    sim: Sim,
    clock: Arc<dyn Clock>,
    governor: Governor,
    courier: Arc<Courier>,
    sink: MemorySink,
    pipeline: Pipeline,
    dir: tempfile::TempDir,
}

impl Rig {
    async fn new(id: &'static str, markets: u32, settings: Settings) -> Self {
        let mut config = SimConfig::default();
        for universe in
            [&mut config.polymarket.universe, &mut config.limitless.universe, &mut config.kalshi.universe]
        {
            (universe.markets, universe.closed) = (markets, 0);
        }
        (config.polymarket.limits, config.limitless.limits, config.kalshi.limits) =
            (Some(Vec::new()), Some(Vec::new()), Some(Vec::new()));
        let sim = sim(config).await;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let courier = CourierSettings { deadline: Duration::from_millis(400), ..CourierSettings::default() };
        let courier = Arc::new(Courier::new(venue(id), courier, clock.clone()).unwrap());
        let sink = MemorySink::new("memory");
        let sinks: Vec<(Arc<dyn Sink>, Delivery)> = vec![(Arc::new(sink.clone()), Delivery::default())];
        let spool = Spool::open(SpoolConfig::at("/spool"), Arc::new(SimDisk::new(1)), 42).unwrap();
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock.clone()).unwrap();
        let rig = Self {
            id,
            sim,
            governor: governor(id, settings, clock.clone()),
            clock,
            courier,
            sink,
            pipeline,
            dir: tempfile::tempdir().unwrap(),
        };
        rig.discover().await;
        rig
    }

    /// Lets discovery write the snapshot once.
    async fn discover(&self) {
        let (status, mut seen) = watch::channel(DiscoverStatus::default());
        let task = DiscoverTask {
            spec: venue(self.id),
            discovers: opened(self.id, &self.sim).discovers.unwrap(),
            governor: self.governor.clone(),
            courier: self.courier.clone(),
            intake: self.pipeline.intake(),
            disk: Arc::new(RealDisk::shared()),
            data_dir: self.dir.path().to_owned(),
            interval: Duration::from_secs(300),
            retries: PageRetries::default(),
            clock: self.clock.clone(),
            status,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(discover(task, stop.clone()));
        let path = snapshot_path(self.dir.path(), venue(self.id).venue());
        seen.wait_for(|_| path.exists()).await.unwrap();
        stop.cancel();
        task.await.unwrap();
    }

    fn poll(&self) -> Running {
        let venue = venue(self.id).venue();
        let (status, seen) = watch::channel(PollStatus::default());
        let line = Line {
            governor: self.governor.clone(),
            courier: self.courier.clone(),
            clock: self.clock.clone(),
        };
        let task = PollTask {
            venue,
            polls: opened(self.id, &self.sim).polls.unwrap(),
            fetch: Arc::new(line),
            snapshot: SnapshotFile::new(snapshot_path(self.dir.path(), venue), venue),
            intake: self.pipeline.intake(),
            clock: self.clock.clone(),
            settings: PollSettings {
                interval: Duration::from_millis(200),
                books_per_request: 10,
                ..PollSettings::default()
            },
            status,
        };
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(poll(task, stop.clone())), stop, seen }
    }

    /// What the simulation says of the endpoints whose name ends so.
    fn sent(&self, endpoints: &[&str]) -> EndpointStats {
        let stats = self.sim.stats();
        let mut sum = EndpointStats::default();
        for (_, one) in stats[self.id].iter().filter(|(name, _)| endpoints.contains(name)) {
            sum.requests += one.requests;
            sum.books += one.books;
            one.answers.iter().for_each(|(status, count)| *sum.answers.entry(*status).or_default() += count);
            one.faults.iter().for_each(|(fault, count)| *sum.faults.entry(fault).or_default() += count);
        }
        sum
    }

    async fn close(self) -> Recorded {
        self.pipeline.close(Duration::from_secs(5)).await.unwrap();
        self.sim.stop().await;
        Recorded { id: self.id, sink: self.sink }
    }
}

struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
    seen: watch::Receiver<PollStatus>,
}

impl Running {
    async fn until(&mut self, is_so: impl Fn(&PollStatus) -> bool) {
        let is_seen = {
            let waiting = self.seen.wait_for(|now| is_so(now));
            tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok()
        };
        assert!(is_seen, "it never came true: {:?}", *self.seen.borrow());
    }

    async fn stop(self) -> PollStatus {
        self.stop.cancel();
        self.task.await.unwrap();
        self.seen.borrow().clone()
    }
}

struct Recorded {
    id: &'static str,
    sink: MemorySink,
}

impl Recorded {
    fn payloads(&self, channel: &str) -> Vec<Value> {
        let lines = self.sink.lines_of(venue(self.id).venue(), Channel::new(channel).unwrap());
        let line = |line: &Vec<u8>| serde_json::from_slice::<Value>(line).unwrap()["payload"].clone();
        lines.iter().map(line).collect()
    }

    /// A total of the last `poll_stats`.
    fn total(&self, key: &str) -> u64 {
        self.payloads("poll_stats").last().unwrap()["total"][key].as_u64().unwrap()
    }
}

const BOOKS: [&str; 2] = ["clob/books", "clob/book"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_is_what_the_venue_sent() {
    let rig = Rig::new("polymarket", 25, Settings::default()).await;
    let mut running = rig.poll();
    running.until(|now| now.counts.books >= 500).await;
    let status = running.stop().await;
    assert_eq!((status.instruments, status.batches), (50, 5));
    let sent = rig.sent(&BOOKS);
    let recorded = rig.close().await;
    assert_eq!(recorded.total("requests_submitted"), sent.requests);
    assert_eq!(recorded.total("books"), sent.books);
    assert_eq!(recorded.payloads("orderbook").len() as u64, sent.books);
    assert_eq!(recorded.total("hash_mismatches"), 0);
    assert_eq!((recorded.total("requests_failed"), recorded.total("records_lost")), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_refusals_is_counted_as_it_was_sent_and_waited_out() {
    let settings = Settings {
        cooldown: Duration::from_millis(100),
        cooldown_max: Duration::from_millis(200),
        ..Settings::default()
    };
    let rig = Rig::new("polymarket", 25, settings).await;
    let faults = Faults { refused: 0.3, retry_after: RetryAfter::None, ..Faults::default() };
    rig.sim.set_faults("polymarket", faults).unwrap();
    let mut running = rig.poll();
    running.until(|now| now.counts.http_429 >= 3 && now.counts.books >= 50).await;
    let status = running.stop().await;
    let sent = rig.sent(&BOOKS);
    let recorded = rig.close().await;
    assert_eq!(recorded.total("http_429"), sent.answers[&429]);
    assert_eq!(recorded.total("refused"), sent.answers[&429]);
    assert_eq!(recorded.total("requests_submitted"), sent.requests);
    assert_eq!(recorded.total("books"), sent.books);
    assert!(status.counts.held > 0);
    let errors = recorded.payloads("poll_errors");
    assert!(errors.iter().all(|error| error["error_type"] == "refused" && error["http_status"] == 429));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_answers_nothing_costs_timeouts_and_then_goes_on() {
    let rig = Rig::new("polymarket", 10, Settings::default()).await;
    rig.sim.set_faults("polymarket", Faults { hang: 1.0, ..Faults::default() }).unwrap();
    let mut running = rig.poll();
    running.until(|now| now.counts.timeouts >= 2).await;
    let requests = rig.sent(&BOOKS).requests;
    assert!(requests < 20, "{requests} requests: it backs off");
    rig.sim.set_faults("polymarket", Faults::default()).unwrap();
    running.until(|now| now.counts.books >= 40).await;
    running.stop().await;
    let sent = rig.sent(&BOOKS);
    let recorded = rig.close().await;
    assert_eq!(recorded.total("timeouts"), sent.faults["hang"]);
    assert_eq!(recorded.total("books"), sent.books);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_counted_by_its_kind_and_costs_nothing_else() {
    let rig = Rig::new("polymarket", 25, Settings { failed_share_max: 1.0, ..Settings::default() }).await;
    let faults = Faults { truncated: 0.3, html_200: 0.2, server_error: 0.2, ..Faults::default() };
    rig.sim.set_faults("polymarket", faults).unwrap();
    let mut running = rig.poll();
    running.until(|now| now.counts.garbage >= 2 && now.counts.http_5xx >= 1 && now.counts.books >= 50).await;
    running.stop().await;
    let sent = rig.sent(&BOOKS);
    let recorded = rig.close().await;
    let fault = |name: &str| sent.faults.get(name).copied().unwrap_or(0);
    assert_eq!(recorded.total("http_5xx"), fault("server_error"));
    assert_eq!(recorded.total("garbage"), fault("truncated") + fault("html_200"));
    let failed = fault("server_error") + fault("truncated") + fault("html_200");
    assert_eq!(recorded.total("requests_failed"), failed);
    assert_eq!(recorded.total("requests_successful"), sent.requests - failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn venues_that_give_one_book_a_request_are_polled_as_well() {
    for id in ["limitless", "kalshi"] {
        let rig = Rig::new(id, 8, Settings::default()).await;
        let mut running = rig.poll();
        running.until(|now| now.counts.books >= 16).await;
        let status = running.stop().await;
        let recorded = rig.close().await;
        assert_eq!(recorded.payloads("orderbook").len() as u64, status.counts.books, "{id}");
        assert_eq!((status.counts.requests_failed, status.counts.missing), (0, 0), "{id}");
    }
}
