//! The wiring of the streams: a venue's connections, started and looked at.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream::{
    self, ClockQuality, ConnectionStatus, StreamSettings, StreamStatus, StreamTask,
};
use catchment_collect::{Courier, CourierSettings, GapNotice, gaps_of_absence};
use catchment_control as control;
use catchment_governor::Governor;
use catchment_model::Clock;
use catchment_pipeline::Resumed;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::StreamConfig;
use crate::floorplan::House;
use crate::say;

/// How long streams may take to flow before what they have missed is fetched.
const FLOW_WITHIN: Duration = Duration::from_secs(20);

/// Starts recording a venue's streams. What can be seen of it.
pub(crate) fn start(
    config: &StreamConfig,
    governor: Governor,
    gaps: Option<mpsc::Sender<GapNotice>>,
    house: &House,
    tasks: &mut JoinSet<()>,
    stop: CancellationToken,
) -> anyhow::Result<watch::Receiver<StreamStatus>> {
    let (id, clock) = (config.descriptor.id(), &house.clock);
    let client = client(config);
    let courier = Courier::described(&config.descriptor, client.clone(), Arc::clone(clock))
        .with_context(|| format!("cannot prepare requests to {id}"))?;
    let (status, seen) = watch::channel(StreamStatus::default());
    let task = StreamTask {
        descriptor: config.descriptor.clone(),
        endpoints: config.endpoints.clone(),
        wanted: config.wanted.clone(),
        secrets: config.secrets.clone(),
        governor,
        courier: Arc::new(courier),
        client,
        intake: house.pipeline.intake(),
        clock: Arc::clone(clock),
        settings: StreamSettings {
            keeps_books: config.keeps_books,
            snapshot_interval: config.snapshot_interval,
            depth: config.snapshot_depth,
            through_values: config.through_values,
            seed: rand::random(),
            ..StreamSettings::default()
        },
        status,
        resumed: house.pipeline.resumed().to_vec(),
        gaps,
    };
    let over = on_its_own_thread(id, async move {
        if let Err(error) = stream::stream(task, stop).await {
            say(&format!("catchment: the streams of {id} are not recorded: {error}"));
        }
    })?;
    // If it panicked, the thread has told so.
    tasks.spawn(async move { drop(over.await) });
    Ok(seen)
}

/// What was missed since a crash or a stop is told to whoever fills gaps as soon as the streams flow again: until then more
/// is missing. A venue whose sockets cannot be reached may still answer otherwise, so they are not waited for for long.
pub(crate) async fn tell_of_absence(
    config: StreamConfig,
    resumed: Vec<Resumed>,
    gaps: mpsc::Sender<GapNotice>,
    mut seen: watch::Receiver<StreamStatus>,
    clock: Arc<dyn Clock>,
) {
    let flow = |status: &StreamStatus| status.live() > 0 && status.live() == status.connections.len();
    // Over or too late: what is known is told.
    let _ = tokio::time::timeout(FLOW_WITHIN, seen.wait_for(flow)).await;
    for notice in gaps_of_absence(&config.descriptor, &config.wanted, &resumed, clock.wall().ms()) {
        if gaps.send(notice).await.is_err() {
            return;
        }
    }
}

/// Runs a venue's sockets on a thread of their own. They speak all the time, each a little: whoever wakes for one of them
/// takes the others along, and nobody else is woken. Tells when it is over.
fn on_its_own_thread(
    id: &str,
    sockets: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.with_context(|| format!("cannot start the streams of {id}"))?;
    let (ended, over) = oneshot::channel();
    let work = move || {
        runtime.block_on(sockets);
        // A name that is still being looked up is not waited for.
        runtime.shutdown_background();
        let _ = ended.send(());
    };
    std::thread::Builder::new()
        .name(format!("streams-{id}"))
        .spawn(work)
        .with_context(|| format!("cannot start the streams of {id}"))?;
    Ok(over)
}

/// How the venue is asked.
pub(crate) fn client(config: &StreamConfig) -> CourierSettings {
    CourierSettings {
        deadline: config.speed.deadline,
        connections_max: config.speed.max_inflight as usize,
        ..CourierSettings::default()
    }
}

/// The figures of a venue's streams, as they are shown.
pub(crate) fn figures(venue: &str, status: &StreamStatus) -> control::Stream {
    let (counts, clock) = (&status.counts, &status.clock);
    let connection = |one: &ConnectionStatus| control::Connection {
        id: one.name.clone(),
        state: one.state.as_str().to_owned(),
        up_s: one.up_s,
        streams: one.streams,
        subscribed: one.subscribed,
        messages: one.counts.messages,
        silent_ms: one.silent_ms,
        lag_ms: one.lag_ms,
        lag_jitter_ms: one.lag_jitter_ms,
        last_error: one.last_error.clone(),
    };
    control::Stream {
        venue: venue.to_owned(),
        instruments: status.instruments,
        connections: status.connections.iter().map(connection).collect(),
        messages: counts.messages,
        messages_per_second: status.messages_per_s,
        bytes: counts.bytes,
        reconnects: counts.disconnects + counts.switches,
        gaps: counts.gaps_told,
        duplicates: counts.duplicates + counts.repeats,
        checks_agree: counts.checks_agreed,
        checks_differ: counts.checks_failed,
        resyncs: counts.resyncs,
        silent: status.connections.iter().map(|one| one.frozen).sum(),
        clock: self::clock(clock),
        last_error: status.connections.iter().find_map(|one| one.last_error.clone()),
    }
}

/// How a venue's clock goes, once it was looked at.
pub(crate) fn clock(clock: &ClockQuality) -> Option<control::Clock> {
    clock.offset_ms.map(|offset_ms| control::Clock {
        offset_ms,
        uncertainty_ms: clock.uncertainty_ms.unwrap_or_default(),
        jitter_ms: clock.jitter_ms.unwrap_or_default(),
        samples: clock.samples,
    })
}

/// One line of how it goes.
pub(crate) fn words(venue: &str, status: &StreamStatus) -> String {
    let (live, all) = (status.live(), status.connections.len());
    format!("{venue}: {:.0} messages/s, {live} of {all} connections live", status.messages_per_s)
}

/// What came of the streams, one line a venue.
pub(crate) fn print(streams: &[(String, StreamStatus)]) {
    if streams.is_empty() {
        return;
    }
    tell!(
        "{:<12} {:>11} {:>7} {:>11} {:>9} {:>7} {:>8} {:>6} {:>7} {:>9}",
        "venue",
        "connections",
        "streams",
        "messages",
        "duplicate",
        "refused",
        "lost",
        "gaps",
        "resyncs",
        "offset_ms"
    );
    for (venue, status) in streams {
        let counts = &status.counts;
        let streams: usize = status.connections.iter().map(|connection| connection.streams).sum();
        let offset = match status.clock.offset_ms.zip(status.clock.uncertainty_ms) {
            Some((offset, within)) => format!("{offset:.0}±{within:.0}"),
            None => "-".to_owned(),
        };
        tell!(
            "{venue:<12} {:>11} {streams:>7} {:>11} {:>9} {:>7} {:>8} {:>6} {:>7} {offset:>9}",
            status.connections.len(),
            counts.messages,
            counts.duplicates,
            counts.subscriptions_failed,
            counts.disconnects,
            counts.gaps_told,
            counts.resyncs,
        );
        for trouble in status.connections.iter().flat_map(|connection| &connection.troubles) {
            say(&format!(
                "catchment: {venue}: {} of {} is not recorded: {}",
                trouble.channel, trouble.symbol, trouble.reason
            ));
        }
    }
}

/// The same for programs.
pub(crate) fn as_json(streams: &[(String, StreamStatus)]) -> serde_json::Value {
    streams.iter().map(|(venue, status)| json!({ "venue": venue, "status": status })).collect()
}
