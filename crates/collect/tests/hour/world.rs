//! Six simulated venues and the runtime that records them, on a clock that only moves when everybody waits.

use std::sync::Arc;
use std::time::Duration;

use catchment_collect::stream::{
    RedialSettings, StreamSettings, StreamStatus, StreamTask, families_of, stream,
};
use catchment_collect::{Courier, CourierSettings};
use catchment_governor::{Governor, Limits, MemoryBudget, Open, Parts, Settings};
use catchment_model::{Clock, Monotonic, UnixNs};
use catchment_pipeline::{Delivery, OnFull, Pipeline, PipelineConfig, Sink, Spool, SpoolConfig};
use catchment_sim::{PairsConfig, Sim, SimConfig, StreamsConfig};
use catchment_venues::stream::Descriptor;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::ledger::{Kepts, Ledger};

/// The venues, all of them.
pub(crate) const VENUES: [&str; 6] = ["binance", "coinbase", "kraken", "okx", "bybit", "polymarket"];
/// When everything begins.
pub(crate) const START_MS: i64 = 1_790_000_000_000;
/// Of simulated time.
const PATIENCE: Duration = Duration::from_secs(600);

/// The clock of the runtime's timers, which jumps when nothing else is to be done.
#[derive(Debug)]
pub(crate) struct Paused(Instant);

impl Paused {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for Paused {
    fn wall(&self) -> UnixNs {
        let since = i64::try_from(self.0.elapsed().as_nanos()).unwrap();
        UnixNs::new(START_MS * 1_000_000 + since).unwrap()
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.elapsed())
    }
}

/// As in production, but that a connection counts as healthy sooner: these have a fault every few seconds.
pub(crate) fn settings() -> StreamSettings {
    let redial = RedialSettings {
        max: Duration::from_secs(4),
        healthy_after: Duration::from_secs(2),
        ..RedialSettings::default()
    };
    StreamSettings {
        redial,
        snapshot_interval: Duration::from_secs(300),
        seed: 5,
        ..StreamSettings::default()
    }
}

/// Simulated venues with a journal: so many symbols each, and so many that are silent.
pub(crate) fn config(symbols: u32, quiet: u32) -> SimConfig {
    let streams = StreamsConfig { journal_frames: 4_000_000, ..StreamsConfig::default() };
    let mut config = SimConfig { streams, ..SimConfig::default() };
    let pairs = PairsConfig {
        symbols,
        quiet,
        levels: 20,
        book_per_s: 2.0,
        trades_per_s: 2.0,
        ticker_per_s: 1.0,
        ..PairsConfig::default()
    };
    config.binance.pairs = pairs.clone();
    config.coinbase.pairs = pairs.clone();
    config.kraken.pairs = pairs.clone();
    config.okx.pairs = pairs.clone();
    config.okx.rules.checksum = true;
    config.bybit.pairs = pairs;
    config.polymarket.universe.markets = 50;
    config.polymarket.universe.moves_per_s = 1.0;
    (config.polymarket.universe.untraded, config.polymarket.universe.empty_side) = (0.0, 0.0);
    config
}

/// Everything.
pub(crate) struct World {
    pub(crate) sim: Arc<Sim>,
    pub(crate) clock: Arc<Paused>,
    pub(crate) ledger: Ledger,
    pipeline: Pipeline,
    recorders: Vec<Recorder>,
}

/// A venue that is recorded.
struct Recorder {
    venue: &'static str,
    status: watch::Receiver<StreamStatus>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl World {
    /// Venues, none of them recorded yet.
    pub(crate) async fn start(config: SimConfig) -> Self {
        let clock = Paused::new();
        let sim = Sim::start(config, Arc::clone(&clock) as Arc<dyn Clock>).await.unwrap();
        let spool = SpoolConfig {
            segment_bytes_max: 64 << 20,
            total_bytes_max: 1 << 30,
            on_full: OnFull::Block,
            ..SpoolConfig::at("unused")
        };
        let ledger = Ledger::default();
        let delivery = Delivery { batch_age: Duration::from_millis(200), ..Delivery::default() };
        let sinks = vec![(Arc::new(ledger.clone()) as Arc<dyn Sink>, delivery)];
        let on = Arc::clone(&clock) as Arc<dyn Clock>;
        let pipeline =
            Pipeline::start(Spool::in_memory(spool, 7), sinks, PipelineConfig::default(), on).unwrap();
        Self { sim: Arc::new(sim), clock, ledger, pipeline, recorders: Vec::new() }
    }

    /// Records these channels of these symbols.
    pub(crate) fn record(
        &mut self,
        venue: &'static str,
        channels: &[&str],
        symbols: &[String],
        settings: StreamSettings,
    ) {
        self.record_as(Descriptor::find(venue).unwrap(), venue, channels, symbols, settings);
    }

    /// The same, with another description of the venue.
    pub(crate) fn record_as(
        &mut self,
        descriptor: Descriptor,
        venue: &'static str,
        channels: &[&str],
        symbols: &[String],
        settings: StreamSettings,
    ) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let rest = match venue {
            "polymarket" => ("clob", self.sim.base("polymarket/clob")),
            other => ("rest", self.sim.base(&format!("{other}/rest"))),
        };
        let urls = [rest, ("stream", self.sim.socket(venue))];
        let endpoints = descriptor.endpoints(urls.iter().map(|(name, url)| (*name, url.as_str()))).unwrap();
        let limits = Limits::new(families_of(&descriptor), 1.0).unwrap();
        let parts = Parts {
            clock: Arc::clone(&clock),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed: 1,
        };
        let client = CourierSettings::default();
        let (told, status) = watch::channel(StreamStatus::default());
        let wanted = symbols.iter().flat_map(|symbol| channels.iter().map(move |channel| (*channel, symbol)));
        let task = StreamTask {
            secrets: None,
            wanted: wanted.map(|(channel, symbol)| descriptor.want(channel, symbol).unwrap()).collect(),
            endpoints,
            governor: Governor::open(descriptor.id(), limits, Settings::default(), parts),
            courier: Arc::new(Courier::described(&descriptor, client.clone(), Arc::clone(&clock)).unwrap()),
            client,
            intake: self.pipeline.intake(),
            resumed: Vec::new(),
            gaps: None,
            clock,
            settings,
            status: told,
            descriptor,
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { stream(task, stopped).await.unwrap() });
        self.recorders.push(Recorder { venue, status, stop, running });
    }

    /// Where a venue's streams stand.
    pub(crate) fn status(&self, venue: &str) -> watch::Receiver<StreamStatus> {
        self.recorders.iter().find(|recorder| recorder.venue == venue).unwrap().status.clone()
    }

    /// Tokens of markets that trade: the first of each.
    pub(crate) async fn tokens(&self, markets: usize) -> Vec<String> {
        let mut tcp = tokio::net::TcpStream::connect(self.sim.addr()).await.unwrap();
        let request = format!(
            "GET /polymarket/gamma/markets?limit={markets}&active=true&closed=false HTTP/1.1\r\nhost: sim\r\n\
             user-agent: tester\r\nconnection: close\r\n\r\n"
        );
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let markets: Vec<Value> = serde_json::from_str(body).unwrap();
        let first = |market: &Value| {
            let tokens = market["clobTokenIds"].as_str().unwrap();
            serde_json::from_str::<Vec<String>>(tokens).unwrap().swap_remove(0)
        };
        markets.iter().map(first).collect()
    }

    /// Stops recording, and gives back what was stored and the last figures.
    pub(crate) async fn finish(self) -> (Arc<Sim>, Kepts, Vec<(&'static str, StreamStatus)>) {
        self.recorders.iter().for_each(|recorder| recorder.stop.cancel());
        let mut statuses = Vec::new();
        for recorder in self.recorders {
            timeout(PATIENCE, recorder.running).await.expect("it stops").unwrap();
            statuses.push((recorder.venue, recorder.status.borrow().clone()));
        }
        self.pipeline.close(PATIENCE).await.unwrap();
        let kepts = std::mem::take(&mut *self.ledger.0.lock().unwrap());
        (self.sim, kepts, statuses)
    }
}

/// Whether that comes to be in so long.
pub(crate) async fn is_well_within(status: &mut watch::Receiver<StreamStatus>, within: Duration) -> bool {
    timeout(within, status.wait_for(is_well)).await.is_ok()
}

/// Whether everything is subscribed in so long, though books at which nothing happens may be none yet.
pub(crate) async fn flows_within(status: &mut watch::Receiver<StreamStatus>, within: Duration) -> bool {
    timeout(within, status.wait_for(flows)).await.is_ok()
}

/// Everything of a venue flows and nothing is open.
pub(crate) fn is_well(status: &StreamStatus) -> bool {
    flows(status) && status.connections.iter().all(|one| one.books_live == one.books)
}

fn flows(status: &StreamStatus) -> bool {
    !status.connections.is_empty()
        && status.live() == status.connections.len()
        && status
            .connections
            .iter()
            .all(|one| one.gaps_open == 0 && one.subscribed == one.streams && one.frozen == 0)
}
