//! A poller on a pipeline in memory, and a venue that does as it is told.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use catchment_governor::{HoldCause, Snapshot as Standing};
use catchment_model::{Channel, Clock, Instrument, Monotonic, Snapshot, UnixMs, UnixNs, Venue};
use catchment_pipeline::disk::sim::SimDisk;
use catchment_pipeline::{Delivery, Pipeline, PipelineConfig, RealDisk, Sink, Spool, SpoolConfig};
use catchment_sinks::{JsonlConfig, JsonlSink, MemorySink};
use catchment_venues::{BookPage, Polls, ReadError, Request, VenueSpec};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::SnapshotFile;
use crate::poll::{Answer, Fetch, Fetched, Lost, PollSettings, PollStatus, PollTask, poll};

/// 2027-01-01.
pub(super) const WALL_MS: i64 = 1_798_761_600_000;

/// Follows tokio's clock, which stands still unless everybody sleeps.
#[derive(Debug)]
pub(super) struct PausedClock {
    started: Instant,
    wall_ms: i64,
}

impl PausedClock {
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

impl Clock for PausedClock {
    fn wall(&self) -> UnixNs {
        UnixNs::new(self.wall_ms * 1_000_000 + self.started.elapsed().as_nanos() as i64).unwrap()
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.started.elapsed())
    }
}

/// What the venue does with a request.
pub(super) enum Behave {
    Books,
    Without(String),
    Status(u16, String),
    /// Refuses, and the governor holds from then on.
    Held(u16, HoldCause, Duration),
    TimedOut,
    Hang,
}

type Script = Box<dyn FnMut(&[String], usize) -> Behave + Send>;

pub(super) struct FakeVenue {
    clock: Arc<PausedClock>,
    spec: &'static VenueSpec,
    state: Mutex<State>,
}

struct State {
    script: Script,
    latency: Duration,
    hold: Option<(Monotonic, HoldCause)>,
    sends: Vec<(f64, Vec<String>)>,
    rounds: Vec<(usize, usize)>,
    under_way: usize,
    most_at_once: usize,
    is_mute: bool,
}

impl FakeVenue {
    pub(super) fn behave(&self, script: impl FnMut(&[String], usize) -> Behave + Send + 'static) {
        self.state.lock().unwrap().script = Box::new(script);
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.state.lock().unwrap().latency = latency;
    }

    /// Every answer is an empty list, so that many instruments cost little.
    pub(super) fn answer_with_nothing(&self) {
        self.state.lock().unwrap().is_mute = true;
    }

    pub(super) fn sent(&self) -> usize {
        self.state.lock().unwrap().sends.len()
    }

    pub(super) fn starts(&self) -> Vec<f64> {
        self.state.lock().unwrap().sends.iter().map(|(at, _)| *at).collect()
    }

    /// Instruments asked for so far, over all requests.
    pub(super) fn books_asked(&self) -> usize {
        self.state.lock().unwrap().sends.iter().map(|(_, keys)| keys.len()).sum()
    }

    pub(super) fn rounds(&self) -> Vec<(usize, usize)> {
        self.state.lock().unwrap().rounds.clone()
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().most_at_once
    }

    /// How often an instrument was asked for in that time.
    pub(super) fn asked(&self, key: &str, from: f64, to: f64) -> usize {
        let state = self.state.lock().unwrap();
        let sends = state.sends.iter().filter(|(at, _)| (from..to).contains(at));
        sends.filter(|(_, keys)| keys.iter().any(|other| other == key)).count()
    }

    fn answer(&self, request: &Request, sent_at: Monotonic, status: u16, body: String) -> Fetched {
        let body = Bytes::from(body);
        Fetched::Answer(Answer {
            status,
            reading: (self.spec.read_status)(request.family, status, &body),
            body,
            received_at: self.clock.wall(),
            sent_at,
            latency: self.clock.monotonic().since(sent_at),
        })
    }
}

#[async_trait]
impl Fetch for FakeVenue {
    async fn fetch(&self, request: &Request, _due: Monotonic, deadline: Monotonic) -> Fetched {
        let sent_at = self.clock.monotonic();
        let keys = keys_of(request);
        let (behave, latency, is_mute) = {
            let mut state = self.state.lock().unwrap();
            if state.hold.is_some_and(|(until, _)| until > deadline || until > sent_at) {
                return Fetched::Late;
            }
            let n = state.sends.len();
            state.sends.push((sent_at.0.as_secs_f64(), keys.clone()));
            state.under_way += 1;
            state.most_at_once = state.most_at_once.max(state.under_way);
            ((state.script)(&keys, n), state.latency, state.is_mute)
        };
        if matches!(behave, Behave::Hang) {
            std::future::pending::<()>().await;
        }
        sleep(latency).await;
        self.state.lock().unwrap().under_way -= 1;
        let without = |key: &str| keys.iter().filter(|other| *other != key).cloned().collect::<Vec<_>>();
        match behave {
            _ if is_mute => self.answer(request, sent_at, 200, "[]".to_owned()),
            Behave::Books => self.answer(request, sent_at, 200, books(&keys, request)),
            Behave::Without(key) => self.answer(request, sent_at, 200, books(&without(&key), request)),
            Behave::Status(status, body) => self.answer(request, sent_at, status, body),
            Behave::Held(status, cause, length) => {
                let until = Monotonic(self.clock.monotonic().0 + length);
                self.state.lock().unwrap().hold = Some((until, cause));
                self.answer(request, sent_at, status, "{\"error\":\"Too Many Requests\"}".to_owned())
            }
            Behave::TimedOut | Behave::Hang => Fetched::Lost(Lost {
                kind: "timeout",
                message: "no complete answer".to_owned(),
                has_timed_out: true,
                latency,
            }),
        }
    }

    fn round_ended(&self, failed: usize, total: usize) {
        self.state.lock().unwrap().rounds.push((failed, total));
    }

    fn snapshot(&self) -> Standing {
        let now = self.clock.monotonic();
        let hold = self.state.lock().unwrap().hold.filter(|(until, _)| *until > now);
        Standing {
            venue: "polymarket".to_owned(),
            inflight: 0,
            inflight_max: 32,
            hold: hold.map(|(until, cause)| (until.since(now), cause)),
            families: Vec::new(),
        }
    }
}

fn keys_of(request: &Request) -> Vec<String> {
    match &request.body {
        Some(body) => {
            let asked: Vec<Value> = serde_json::from_slice(body).unwrap();
            asked.iter().map(|one| one["token_id"].as_str().unwrap().to_owned()).collect()
        }
        None => vec![request.url.split_once("token_id=").unwrap().1.to_owned()],
    }
}

fn books(keys: &[String], request: &Request) -> String {
    let book = |key: &String| {
        format!(
            r#"{{"market":"M-{key}","asset_id":"{key}","timestamp":"1798000000000","bids":[{{"price":"0.47","size":"120"}}],"asks":[{{"price":"0.49","size":"80.5"}}]}}"#
        )
    };
    let books: Vec<String> = keys.iter().map(book).collect();
    match &request.body {
        Some(_) => format!("[{}]", books.join(",")),
        None => books.into_iter().next().unwrap_or_default(),
    }
}

/// The venue's adapter, and a body at which it falls over.
struct Brittle(Arc<dyn Polls>);

impl Polls for Brittle {
    fn books_max(&self) -> usize {
        self.0.books_max()
    }

    fn books_request(&self, poll_keys: &[&str]) -> Request {
        self.0.books_request(poll_keys)
    }

    fn read_books(&self, poll_keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
        assert_ne!(body, b"[\"panic\"]", "told to");
        self.0.read_books(poll_keys, body, page)
    }
}

/// A gap as it was told; times in seconds since the start.
#[derive(Debug)]
pub(super) struct GapTold {
    pub(super) symbol: String,
    pub(super) cause: String,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) told: f64,
}

pub(super) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(super) struct Rig {
    pub(super) clock: Arc<PausedClock>,
    pub(super) venue: Arc<FakeVenue>,
    sink: MemorySink,
    pipeline: Option<Pipeline>,
    intake: catchment_pipeline::Intake,
    dir: tempfile::TempDir,
    status: (watch::Sender<PollStatus>, watch::Receiver<PollStatus>),
    written: Mutex<i64>,
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::at(WALL_MS).await
    }

    pub(super) async fn at(wall_ms: i64) -> Self {
        let sink = MemorySink::new("memory");
        Self::into_sink(wall_ms, sink.clone(), |_, _, _| Arc::new(sink)).await
    }

    /// With the archive of the recorder at the end, in the rig's folder.
    pub(super) async fn with_archive(wall_ms: i64) -> Self {
        let open = |spool: &Spool, clock: Arc<PausedClock>, dir: &Path| -> Arc<dyn Sink> {
            let config = JsonlConfig { file_bytes_max: 4 << 20, ..JsonlConfig::new(dir) };
            Arc::new(JsonlSink::open(config, spool.id(), Arc::new(RealDisk::shared()), clock).unwrap())
        };
        Self::into_sink(wall_ms, MemorySink::new("unused"), open).await
    }

    async fn into_sink(
        wall_ms: i64,
        sink: MemorySink,
        open: impl FnOnce(&Spool, Arc<PausedClock>, &Path) -> Arc<dyn Sink>,
    ) -> Self {
        let clock = Arc::new(PausedClock { started: Instant::now(), wall_ms });
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(SpoolConfig::at("/spool"), Arc::new(SimDisk::new(1)), 42).unwrap();
        let end = open(&spool, clock.clone(), &dir.path().join("archive"));
        let sinks: Vec<(Arc<dyn Sink>, Delivery)> = vec![(end, Delivery::default())];
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock.clone()).unwrap();
        let state = State {
            script: Box::new(|_, _| Behave::Books),
            latency: Duration::from_millis(20),
            hold: None,
            sends: Vec::new(),
            rounds: Vec::new(),
            under_way: 0,
            most_at_once: 0,
            is_mute: false,
        };
        let spec = catchment_venues::find("polymarket").unwrap();
        let venue = Arc::new(FakeVenue { clock: clock.clone(), spec, state: Mutex::new(state) });
        Self {
            clock,
            venue,
            sink,
            intake: pipeline.intake(),
            pipeline: Some(pipeline),
            dir,
            status: watch::channel(PollStatus::default()),
            written: Mutex::new(wall_ms),
        }
    }

    /// Writes a snapshot with so many instruments: `1000`, `1001`, …
    pub(super) fn list(&self, count: usize) {
        self.write_list(count, None);
    }

    pub(super) fn list_with_expiry(&self, count: usize, expiry_ms: i64) {
        self.write_list(count, Some(expiry_ms));
    }

    fn write_list(&self, count: usize, expiry_ms: Option<i64>) {
        let venue = Venue::new("polymarket").unwrap();
        let instruments = (1_000..1_000 + count).map(|key| Instrument {
            venue,
            poll_key: key.to_string(),
            symbol: format!("S-{key}"),
            market_id: format!("M-{key}"),
            slug: Some(format!("slug-{key}")),
            outcome: None,
            expiry: expiry_ms.map(|ms| UnixMs::new(ms).unwrap()),
            tick_size: None,
            min_order_size: None,
        });
        let mut written = self.written.lock().unwrap();
        *written += 1;
        let snapshot = Snapshot::new(venue, UnixMs::new(*written).unwrap(), instruments.collect());
        self.write_snapshot(&snapshot.to_json());
    }

    /// What the archive holds of a channel's folder: the date of each folder, and its lines.
    pub(super) fn archived(&self, folder: &str) -> Vec<(String, Vec<u8>)> {
        let read = |dir: &Path| {
            let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
            paths.collect::<Vec<PathBuf>>()
        };
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut lines = Vec::new();
        for date in read(&self.dir.path().join("archive/polymarket").join(folder)) {
            for file in read(&date).into_iter().filter(|file| name(file).ends_with(".jsonl")) {
                let bytes = std::fs::read(file).unwrap();
                let whole = bytes.split_inclusive(|byte| *byte == b'\n');
                lines.extend(whole.map(|line| (name(&date), line.to_vec())));
            }
        }
        lines
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("snapshot.json")
    }

    #[allow(clippy::disallowed_methods)] // a file of a test need not survive a power cut
    pub(super) fn write_snapshot(&self, bytes: &[u8]) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    pub(super) fn remove_snapshot(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }

    pub(super) fn poll(&self, set: impl FnOnce(&mut PollSettings)) -> Running {
        let spec = catchment_venues::find("polymarket").unwrap();
        let opened = (spec.open)(&spec.endpoints([]).unwrap());
        let polls = Arc::new(Brittle(opened.polls.unwrap()));
        let mut settings = PollSettings::default();
        set(&mut settings);
        let task = PollTask {
            venue: spec.venue(),
            polls,
            fetch: self.venue.clone(),
            snapshot: SnapshotFile::new(self.path(), spec.venue()),
            intake: self.intake.clone(),
            clock: self.clock.clone(),
            settings,
            status: self.status.0.clone(),
        };
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(poll(task, stop.clone())), stop }
    }

    /// Stops the poller and lets the sink take everything.
    pub(super) async fn stop(&self, running: Running) {
        running.stop.cancel();
        running.task.await.unwrap();
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) async fn close_pipeline(&mut self) {
        self.pipeline.take().unwrap().close(Duration::from_secs(5)).await.unwrap();
    }

    pub(super) fn status(&self) -> PollStatus {
        self.status.1.borrow().clone()
    }

    pub(super) fn lines(&self, channel: &str) -> Vec<Value> {
        let venue = Venue::new("polymarket").unwrap();
        let lines = self.sink.lines_of(venue, Channel::new(channel).unwrap());
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    pub(super) fn reads(&self, symbol: &str) -> usize {
        self.lines("orderbook").iter().filter(|line| line["symbol"] == symbol).count()
    }

    /// The shortest and the longest time between two books of an instrument.
    pub(super) fn spacing(&self) -> (f64, f64) {
        let mut last = std::collections::HashMap::new();
        let (mut low, mut high) = (f64::MAX, 0.0_f64);
        for line in self.lines("orderbook") {
            let at = line["received_at_ns"].as_i64().unwrap();
            if let Some(before) = last.insert(line["symbol"].as_str().unwrap().to_owned(), at) {
                let spacing = (at - before) as f64 / 1e9;
                (low, high) = (low.min(spacing), high.max(spacing));
            }
        }
        (low, high)
    }

    pub(super) fn gaps(&self) -> Vec<GapTold> {
        let since = |ms: &Value| (ms.as_i64().unwrap() - self.clock.wall_ms) as f64 / 1_000.0;
        let lines = self.lines("gaps").into_iter();
        lines
            .map(|line| GapTold {
                symbol: line["symbol"].as_str().unwrap().to_owned(),
                cause: line["payload"]["cause"].as_str().unwrap().to_owned(),
                from: since(&line["payload"]["from_ms"]),
                to: since(&line["payload"]["to_ms"]),
                told: since(&line["received_at_ms"]),
            })
            .collect()
    }
}
