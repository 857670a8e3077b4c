//! The whole wiring on one page: configuration in, running pipeline out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_model::{Clock, SpoolId, SystemClock, Venue};
use catchment_pipeline::{
    Delivery, Monitor, OnStorageError, Pipeline, PipelineConfig, RealDisk, Sink, SinkState, Spool, SyncPoint,
    disk,
};
use catchment_sinks::{JsonlConfig, JsonlSink};

use crate::config::{Config, Place, SinkConfig};
use crate::mock::Away;
use crate::opening::Opening;

/// When the sinks are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenSinks {
    /// Before anything is accepted.
    First,
    /// While records already come in: they wait in the spool. Venues do not wait.
    Beside,
}

/// What the pipeline is for.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) on_storage_error: OnStorageError,
    pub(crate) open_sinks: OpenSinks,
    /// Venues that are listened to as they speak: a stop is a gap.
    pub(crate) live: Vec<Venue>,
}

/// Opens the spool and the sinks and starts the pipeline between them.
pub(crate) fn build(config: &Config, manner: Manner) -> anyhow::Result<House> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let seed = rand::random();
    // First of all, or the spool would make it for this user alone.
    disk::create_dir_all(&RealDisk::shared(), &config.data_dir, SyncPoint::ArchiveFolder)
        .with_context(|| format!("cannot make data_dir, {}", config.data_dir.display()))?;
    let spool = if config.spool_enabled {
        Spool::open(config.spool.clone(), Arc::new(RealDisk::private()), rand::random())?
    } else {
        Spool::in_memory(config.spool.clone(), rand::random())
    };
    let mut sinks: Vec<(Arc<dyn Sink>, Delivery)> = Vec::new();
    let mut opening = Opening::default();
    for sink in &config.sinks {
        let (what, spool, clock) = (sink.clone(), spool.id(), Arc::clone(&clock));
        let away = config.mongo_away.filter(|_| matches!(sink.place, Place::Mongo(_)));
        let open = move || -> anyhow::Result<Arc<dyn Sink>> {
            let opened = open_sink(&what, spool, &clock)?;
            Ok(match away {
                Some(times) => Arc::new(Away::new(opened, &clock, times)),
                None => opened,
            })
        };
        let opened = match manner.open_sinks {
            OpenSinks::First => open()?,
            OpenSinks::Beside => opening.add(&sink.name, open),
        };
        sinks.push((opened, sink.delivery.clone()));
    }
    let pipeline = PipelineConfig {
        dedup: config.dedup.clone(),
        tail_bytes: config.memory_bytes / 2,
        // What waits for the disk gains nothing by being more, but memory that was not used before is slow.
        intake_bytes: config.memory_bytes / 4,
        on_storage_error: manner.on_storage_error,
        live: manner.live,
        own_thread: true,
        seed,
    };
    let pipeline = Pipeline::start(spool, sinks, pipeline, Arc::clone(&clock))?;
    Ok(House { pipeline, clock, opening })
}

/// What runs.
pub(crate) struct House {
    pub(crate) pipeline: Pipeline,
    pub(crate) clock: Arc<dyn Clock>,
    /// The sinks that are yet to be opened.
    pub(crate) opening: Opening,
}

/// Ends when a sink takes nothing any more: there is no use in waiting for it.
pub(crate) async fn until_a_sink_is_stuck(monitor: &Monitor) {
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        look.tick().await;
        if monitor.health().sinks.iter().any(|sink| sink.state == SinkState::Degraded) {
            return;
        }
    }
}

fn open_sink(sink: &SinkConfig, spool: SpoolId, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Sink>> {
    let cannot = || format!("cannot open the sink {:?}", sink.name);
    match &sink.place {
        Place::Jsonl { dir, file_bytes_max, compress } => {
            let jsonl = JsonlConfig {
                dir: dir.clone(),
                file_bytes_max: *file_bytes_max,
                compress: *compress,
                seal_in_background: true,
                name: sink.name.clone(),
            };
            let disk = Arc::new(RealDisk::shared());
            let opened = JsonlSink::open(jsonl, spool, disk, Arc::clone(clock)).with_context(cannot)?;
            Ok(Arc::new(opened))
        }
        #[cfg(feature = "mongo")]
        Place::Mongo(place) => {
            let mongo = place.open(&sink.name).with_context(cannot)?;
            Ok(Arc::new(catchment_sinks::mongo::MongoSink::new(mongo)))
        }
        #[cfg(feature = "redis")]
        Place::Redis(redis) => {
            let opened = catchment_sinks::redis::RedisSink::open(redis.clone(), Arc::clone(clock));
            Ok(Arc::new(opened.with_context(cannot)?))
        }
        #[cfg(not(feature = "mongo"))]
        Place::Mongo(_) => anyhow::bail!("this build has no MongoDB"),
    }
}
