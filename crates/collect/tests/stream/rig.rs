//! A venue on a [`Stage`], its streams, and what was recorded of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use catchment_collect::stream::{
    AckSettings, GapSettings, OverlapSettings, RedialSettings, SilenceSettings, StreamSettings, StreamStatus,
    StreamTask, families_of, stream,
};
use catchment_collect::{Courier, CourierSettings};
use catchment_governor::{Governor, Limits, MemoryBudget, Open, Parts, Settings};
use catchment_model::{Clock, SystemClock};
use catchment_pipeline::{
    Batch, Delivery, OnFull, Pipeline, PipelineConfig, Resumed, Sink, SinkError, Spool, SpoolConfig,
};
use catchment_venues::stream::{Descriptor, Secrets};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use crate::stage::{PATIENCE, Stage};

/// Everything that takes minutes takes milliseconds.
pub(crate) fn quick() -> StreamSettings {
    let ms = Duration::from_millis;
    StreamSettings {
        acks: AckSettings {
            ack_within: ms(2_000),
            first_within: ms(2_000),
            again_after: ms(200),
            again_max: ms(400),
        },
        redial: RedialSettings { first: ms(2), max: ms(20), healthy_after: ms(100) },
        overlap: OverlapSettings { min: ms(40), max: ms(2_000), ..OverlapSettings::default() },
        gaps: GapSettings { tell_after: ms(1_500), piece: ms(60_000), late_by: ms(30) },
        tick: ms(5),
        look_every: ms(10),
        seed: 1,
        ..StreamSettings::default()
    }
}

/// Silence that is told within a second.
pub(crate) fn impatient() -> SilenceSettings {
    let ms = Duration::from_millis;
    SilenceSettings {
        doubt_min: ms(100),
        doubt_max: ms(400),
        ask_every_max: ms(2_000),
        grace: ms(60),
        alone_min: ms(500),
        asks_max: 4,
    }
}

/// A sink that can be watched and stalled.
#[derive(Clone)]
pub(crate) struct Shelf {
    lines: Arc<Mutex<Vec<Value>>>,
    raw: Arc<Mutex<Vec<String>>>,
    count: watch::Sender<usize>,
    stalled: watch::Sender<bool>,
}

#[async_trait]
impl Sink for Shelf {
    fn name(&self) -> &str {
        "shelf"
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
        let raw = batch.iter().map(|record| String::from_utf8(record.line().to_vec()).unwrap());
        self.raw.lock().unwrap().extend(raw);
        let mut lines = self.lines.lock().unwrap();
        lines.extend(batch.iter().map(|record| serde_json::from_slice::<Value>(record.line()).unwrap()));
        self.count.send_replace(lines.len());
        Ok(())
    }
}

impl Shelf {
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }
}

/// A venue's streams while they are recorded.
pub(crate) struct Rig {
    pub(crate) shelf: Shelf,
    pub(crate) status: watch::Receiver<StreamStatus>,
    pub(crate) pipeline: Pipeline,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// What to start.
pub(crate) struct Start<'a> {
    pub(crate) descriptor: Descriptor,
    pub(crate) streams: &'a [(&'a str, &'a str)],
    pub(crate) settings: StreamSettings,
    pub(crate) pipeline: PipelineConfig,
    pub(crate) delivery: Delivery,
    pub(crate) spool_bytes: u64,
    pub(crate) secrets: Option<Secrets>,
    pub(crate) resumed: Vec<Resumed>,
}

impl<'a> Start<'a> {
    /// A shipped venue: channels and symbols.
    pub(crate) fn venue(id: &str, streams: &'a [(&'a str, &'a str)]) -> Self {
        Self::described(Descriptor::find(id).unwrap(), streams)
    }

    pub(crate) fn described(descriptor: Descriptor, streams: &'a [(&'a str, &'a str)]) -> Self {
        let delivery = Delivery { batch_age: Duration::from_millis(1), ..Delivery::default() };
        Self {
            descriptor,
            streams,
            settings: quick(),
            pipeline: PipelineConfig::default(),
            delivery,
            spool_bytes: 1 << 30,
            secrets: None,
            resumed: Vec::new(),
        }
    }

    /// At a venue on stage.
    pub(crate) fn on(self, stage: &Stage) -> Rig {
        self.where_it_is(stage.addr)
    }

    /// At a venue that is there, whether or not anybody listens.
    pub(crate) fn where_it_is(self, addr: SocketAddr) -> Rig {
        let (http, ws) = (format!("http://{addr}"), format!("ws://{addr}"));
        let urls = self.descriptor.default_endpoints().map(|(name, url)| {
            let is_socket = url.starts_with("ws");
            (name.to_owned(), if is_socket { ws.clone() } else { http.clone() })
        });
        let urls: Vec<(String, String)> = urls.collect();
        let urls: Vec<(&str, String)> = urls.iter().map(|(name, url)| (name.as_str(), url.clone())).collect();
        self.at(&urls)
    }

    /// With these endpoints.
    pub(crate) fn at(self, urls: &[(&str, String)]) -> Rig {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let shelf = Shelf {
            lines: Arc::default(),
            raw: Arc::default(),
            count: watch::Sender::new(0),
            stalled: watch::Sender::new(false),
        };
        let spool = SpoolConfig {
            segment_bytes_max: self.spool_bytes / 4,
            total_bytes_max: self.spool_bytes,
            on_full: OnFull::Block,
            ..SpoolConfig::at("unused")
        };
        let spool = Spool::in_memory(spool, 7);
        let sinks = vec![(Arc::new(shelf.clone()) as Arc<dyn Sink>, self.delivery)];
        let pipeline = Pipeline::start(spool, sinks, self.pipeline, Arc::clone(&clock)).unwrap();
        let endpoints = self.descriptor.endpoints(urls.iter().map(|(name, url)| (*name, url.as_str())));
        let limits = Limits::new(families_of(&self.descriptor), 1.0).unwrap();
        let parts = Parts {
            clock: Arc::clone(&clock),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed: 1,
        };
        let governor = Governor::open(self.descriptor.id(), limits, Settings::default(), parts);
        let client = CourierSettings::default();
        let courier = Courier::described(&self.descriptor, client.clone(), Arc::clone(&clock)).unwrap();
        let (told, status) = watch::channel(StreamStatus::default());
        let wanted =
            self.streams.iter().map(|(channel, symbol)| self.descriptor.want(channel, symbol).unwrap());
        let task = StreamTask {
            secrets: self.secrets,
            wanted: wanted.collect(),
            endpoints: endpoints.unwrap(),
            descriptor: self.descriptor,
            governor,
            courier: Arc::new(courier),
            client,
            intake: pipeline.intake(),
            clock,
            settings: self.settings,
            status: told,
            resumed: self.resumed,
            gaps: None,
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { stream(task, stopped).await.unwrap() });
        Rig { shelf, status, pipeline, stop, running }
    }
}

impl Rig {
    /// The records of a channel so far.
    pub(crate) fn records(&self, channel: &str) -> Vec<Value> {
        let lines = self.shelf.lines.lock().unwrap();
        lines.iter().filter(|line| line["channel"] == channel).cloned().collect()
    }

    /// Whether a record with exactly this payload is there.
    pub(crate) fn has_payload(&self, payload: &str) -> bool {
        let raw = self.shelf.raw.lock().unwrap();
        raw.iter().any(|line| line.contains(&format!(r#","payload":{payload},"id":"#)))
    }

    /// Channel, symbol and hash of the payload of every record so far.
    pub(crate) fn hashes(&self) -> Vec<(String, String, u64)> {
        let raw = self.shelf.raw.lock().unwrap();
        let lines = self.shelf.lines.lock().unwrap();
        let hash = |(line, value): (&String, &Value)| {
            let start = line.find(r#","payload":"#).unwrap() + r#","payload":"#.len();
            let end = line.rfind(r#","id":""#).unwrap();
            let text = |key: &str| value[key].as_str().unwrap().to_owned();
            (text("channel"), text("symbol"), xxh3_64(&line.as_bytes()[start..end]))
        };
        raw.iter().zip(lines.iter()).map(hash).collect()
    }

    /// Waits until so many records of a channel are there, and gives them back.
    pub(crate) async fn wait_for(&self, channel: &str, count: usize) -> Vec<Value> {
        self.wait_until(&format!("{count} records of {channel}"), |rig| rig.records(channel).len() >= count)
            .await;
        self.records(channel)
    }

    /// Waits until so many records of any kind are there.
    pub(crate) async fn wait_count(&self, count: usize) {
        let mut seen = self.shelf.count.subscribe();
        let waited = timeout(PATIENCE, seen.wait_for(|seen| *seen >= count)).await;
        assert!(waited.is_ok(), "waited in vain for {count} records");
    }

    pub(crate) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut count = self.shelf.count.subscribe();
        let wait = async {
            while !holds(self) {
                count.changed().await.unwrap();
            }
        };
        if timeout(PATIENCE, wait).await.is_err() {
            let lines = self.shelf.lines.lock().unwrap();
            panic!("waited in vain for {what}; there are {lines:#?}\n{:#?}", self.status.borrow());
        }
    }

    /// Waits until the status is so.
    pub(crate) async fn wait_status(&mut self, what: &str, holds: impl FnMut(&StreamStatus) -> bool) {
        let is_so = timeout(PATIENCE, self.status.wait_for(holds)).await.is_ok();
        assert!(is_so, "waited in vain for {what}: {:#?}", self.status.borrow());
    }

    /// Stops, and gives back what was recorded and the last status.
    pub(crate) async fn finish(self) -> (Vec<Value>, StreamStatus) {
        self.stop.cancel();
        timeout(PATIENCE, self.running).await.expect("it stops").unwrap();
        let status = self.status.borrow().clone();
        self.pipeline.close(PATIENCE).await.unwrap();
        let lines = self.shelf.lines.lock().unwrap().clone();
        (lines, status)
    }
}

/// The sequences of a channel's records of a symbol.
pub(crate) fn sequences(records: &[Value], channel: &str, symbol: &str) -> Vec<u64> {
    let of = records.iter().filter(|line| line["channel"] == channel && line["symbol"] == symbol);
    of.map(|line| line["sequence"].as_u64().unwrap()).collect()
}

/// A gap in words: channel, symbol, cause, first and last missing.
pub(crate) fn gap(record: &Value) -> String {
    let payload = &record["payload"];
    let text = |key: &str| payload[key].as_str().unwrap_or("-").to_owned();
    format!(
        "{} {} {} {}..{}",
        text("channel"),
        record["symbol"].as_str().unwrap(),
        text("cause"),
        text("first_missing"),
        text("last_missing")
    )
}
