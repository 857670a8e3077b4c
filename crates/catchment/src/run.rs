//! `catchment run`: records what the configuration names until a signal comes, or for as long as it is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream::StreamStatus;
use catchment_control::{self as control, Reserved, Status};
use catchment_model::{Clock, Monotonic};
use catchment_pipeline::{Balance, Books, DropReason, Health, Monitor, OnFull, OnStorageError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cli::RunArgs;
use crate::config::Config;
use crate::desk::serve;
use crate::floorplan::{self, House, Manner, OpenSinks};
use crate::opening::OpeningWindow;
use crate::readiness::{self, Seen};
use crate::recorder::{Recorder, Rooms, Window};
use crate::signals::{self, told};
use crate::summary::Progress;
use crate::{DONE, WANTING, mock, say, streams};

/// From the signal to the end, whoever hangs: the venues' last requests, the sinks' rest and the spool's last words share it.
const STOP_WITHIN: Duration = Duration::from_secs(9);
/// What of it the sinks have at least, however long venues and jobs take.
const FOR_SINKS: Duration = Duration::from_secs(4);
/// What of it is left to turn away from a sink that hangs, and to close the spool.
const FOR_CLOSING: Duration = Duration::from_millis(1_500);

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let mut config = args.config.read()?;
    for venue in &mut config.venues {
        venue.through_values = args.through_values;
        venue.unlimited = args.unlimited;
        if args.unlimited && !venue.endpoints.are_local() {
            anyhow::bail!(
                "--unlimited is for servers on this machine, and {} has others: its limits are kept",
                venue.spec.id
            );
        }
    }
    config.streams.iter_mut().for_each(|stream| stream.through_values = args.through_values);
    for note in &config.notes {
        say(&format!("catchment: {note}"));
    }
    let rooms = rooms(&args.only)?;
    if rooms == Rooms::API {
        return serve::only(&config, args.length);
    }
    if config.venues.is_empty() && config.streams.is_empty() && config.jobs.is_none() && !args.mock.mock {
        anyhow::bail!(
            "there is nothing to record: name a venue in the configuration, such as [venues.polymarket], \
             [[streams]] or [[jobs.pairs]] (`catchment venues` lists them)"
        );
    }
    let mut name = config.spool.dir.clone().into_os_string();
    name.push(rooms.suffix());
    config.spool.dir = PathBuf::from(name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let code = runtime.block_on(async {
        let enough = signals::listen("what was accepted is being delivered")?;
        let place = match config.api.as_ref().filter(|_| rooms.api) {
            Some(api) => Some(serve::reserve(api).await?),
            None => None,
        };
        let _mock = match args.mock.mock {
            true => Some(mock::start(&args.mock, &mut config).await?),
            false => None,
        };
        let ended = record(&config, rooms, args.length, enough, place).await?;
        ended.print(args.json)?;
        Ok(ended.code())
    });
    // A sink may still be busy opening; whatever it leaves half done is made good by the next start.
    runtime.shutdown_background();
    code
}

/// `--only`.
fn rooms(only: &[String]) -> anyhow::Result<Rooms> {
    if only.is_empty() {
        return Ok(Rooms::ALL);
    }
    let mut rooms = Rooms { discover: false, poll: false, stream: false, jobs: false, api: false };
    for name in only {
        match name.as_str() {
            "discover" => rooms.discover = true,
            "poll" => rooms.poll = true,
            "stream" => rooms.stream = true,
            "jobs" => rooms.jobs = true,
            "api" => rooms.api = true,
            other => anyhow::bail!("--only {other}: there is discover, poll, stream, jobs and api"),
        }
    }
    Ok(rooms)
}

/// Records until it is enough, or for `length`; then stops, drains and says what came of it. Who asks how it goes is
/// answered at `place`.
pub(crate) async fn record(
    config: &Config,
    rooms: Rooms,
    length: Option<Duration>,
    mut enough: watch::Receiver<bool>,
    place: Option<Reserved>,
) -> anyhow::Result<Ended> {
    let polled = config.venues.iter().map(|venue| venue.spec.venue());
    let streamed = config.streams.iter().filter(|_| rooms.stream).map(|stream| stream.descriptor.venue());
    let live = polled.chain(streamed).collect();
    let manner = Manner { on_storage_error: OnStorageError::Wait, open_sinks: OpenSinks::Beside, live };
    let mut house = floorplan::build(config, manner)?;
    let recorder = Recorder::start(config, rooms, &house).await?;
    let view = View::of(config, &house, recorder.window());
    let view_of_it = view.clone();
    let control =
        place.map(|place| serve::start(config, place, move || view_of_it.status(), recorder.store()));
    for venue in config.venues.iter().filter(|_| rooms.discover || rooms.poll) {
        say(&format!("recording {} into {}", venue.spec.id, config.data_dir.join(venue.spec.id).display()));
    }
    for stream in config.streams.iter().filter(|_| rooms.stream) {
        let (id, streams) = (stream.descriptor.id(), stream.wanted.len());
        say(&format!("recording {streams} streams of {id} into {}", config.data_dir.join(id).display()));
    }
    for jobs in config.jobs.iter().filter(|_| rooms.jobs) {
        let venues: Vec<&str> = jobs.venues.iter().map(|venue| venue.descriptor.id()).collect();
        say(&format!("working on jobs of {} with {} workers", venues.join(", "), jobs.workers));
    }
    let progress = Progress::start("record");
    let time_is_up = async {
        match length {
            Some(length) => tokio::time::sleep(length).await,
            None => std::future::pending().await,
        }
    };
    let mut failed = None;
    tokio::select! {
        biased;
        error = house.opening.failed() => failed = Some(error),
        () = told(&mut enough) => {}
        () = time_is_up => {}
        () = show(&progress, &view) => {}
    }
    let end = Instant::now() + STOP_WITHIN;
    house.pipeline.last_call();
    recorder.stop(end - FOR_SINKS).await;
    if let Some(error) = failed {
        // What was accepted stays in the spool, for the start that can open it.
        house.pipeline.close(Duration::ZERO).await?;
        return Err(error);
    }
    let (venues, streams, jobs) = (view.window.venues(), view.window.streams(), view.window.jobs());
    let monitor = view.monitor.clone();
    let books = house.pipeline.close_until(patience(monitor, end - FOR_CLOSING)).await?;
    progress.finish();
    drop(control);
    Ok(Ended { venues, streams, jobs, books, keeps_pending: config.spool_enabled })
}

/// Waits for the sinks to take the rest: as long as they do, and not longer than the whole stop may take.
async fn patience(monitor: Monitor, until: Instant) {
    let _ = tokio::time::timeout_at(until, floorplan::until_a_sink_is_stuck(&monitor)).await;
}

/// Shows how it goes; never ends by itself.
async fn show(progress: &Progress, view: &View) {
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tick.tick().await;
        let venues = view.window.venues();
        let streams = view.window.streams();
        let streamed = streams.iter().map(|(venue, status)| streams::words(venue, status));
        let polled = venues.iter().filter(|venue| venue.kinds.contains(&"poll"));
        let words = polled.map(|venue| {
            let held = venue.hold.as_ref().map_or(String::new(), |hold| format!(" ({})", hold.cause));
            format!("{}: {:.0} books/s of {}{held}", venue.venue, venue.books_per_second, venue.instruments)
        });
        progress.show(&words.chain(streamed).collect::<Vec<_>>().join(", "));
    }
}

/// All that can be seen from outside.
#[derive(Clone)]
struct View {
    monitor: Monitor,
    window: Window,
    opening: OpeningWindow,
    spool_enabled: bool,
    on_full: OnFull,
    dedup: Option<control::Dedup>,
    clock: std::sync::Arc<dyn Clock>,
    started: Monotonic,
}

impl View {
    fn of(config: &Config, house: &House, window: Window) -> Self {
        let clock = std::sync::Arc::clone(&house.clock);
        let dedup = config.dedup.as_ref().map(|dedup| control::Dedup {
            window_s: dedup.window.as_secs_f64(),
            keys_max: dedup.keys_max,
            keys: 0,
        });
        Self {
            monitor: house.pipeline.monitor(),
            window,
            opening: house.opening.window(),
            spool_enabled: config.spool_enabled,
            on_full: config.spool.on_full,
            dedup,
            started: clock.monotonic(),
            clock,
        }
    }

    fn status(&self) -> Status {
        let (health, books) = (self.monitor.health(), self.monitor.books());
        let streams = self.window.streams();
        let streams: Vec<_> = streams.iter().map(|(venue, status)| streams::figures(venue, status)).collect();
        let venues = self.window.venues();
        let seen = Seen {
            health: &health,
            on_full: self.on_full,
            opening: self.opening.names(),
            venues: &venues,
            streams: &streams,
        };
        Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: self.clock.monotonic().since(self.started).as_secs(),
            not_ready: seen.reasons(),
            sinks: sinks(&health),
            dedup: self.dedup.clone().map(|dedup| control::Dedup { keys: health.dedup_keys, ..dedup }),
            spool: control::Spool {
                enabled: self.spool_enabled,
                bytes: health.spool_bytes,
                segments: health.spool_segments,
                full: health.full,
                replayed: books.replayed,
            },
            ingest_errors: ingest_errors(&books),
            channels: channels(&books),
            balances: balances(&books),
            jobs: self.window.jobs(),
            venues,
            streams,
        }
    }
}

fn sinks(health: &Health) -> Vec<control::Sink> {
    let sinks = health.sinks.iter().map(|sink| control::Sink {
        name: sink.name.clone(),
        state: readiness::state(sink.state).to_owned(),
        write_batch_latency_ms: sink.last_write.as_secs_f64() * 1e3,
        write_times: sink.write_times,
    });
    sinks.collect()
}

/// Tries to write that failed, over all sinks.
fn ingest_errors(books: &Books) -> BTreeMap<String, u64> {
    let mut errors = BTreeMap::new();
    for (venue, count) in books.write_errors.values().flatten() {
        *errors.entry(venue.to_string()).or_default() += count;
    }
    errors
}

fn channels(books: &Books) -> Vec<control::ChannelCounts> {
    let lines = books.intake.iter().map(|((venue, channel), intake)| control::ChannelCounts {
        venue: venue.to_string(),
        channel: channel.to_string(),
        received: intake.received,
        accepted: intake.accepted,
        duplicate: intake.duplicate,
        spool_full: intake.dropped.get(&DropReason::SpoolFull).copied().unwrap_or_default(),
    });
    lines.collect()
}

fn balances(books: &Books) -> Vec<control::Balance> {
    let line = |line: &Balance| {
        let dropped = line.dropped.values().sum::<u64>();
        let received = line.received + line.recovered;
        let accounted = line.written + line.duplicate + dropped + line.quarantined + line.pending;
        control::Balance {
            sink: line.sink.clone(),
            venue: line.venue.clone(),
            received,
            written: line.written,
            duplicate: line.duplicate,
            dropped,
            quarantined: line.quarantined,
            pending: line.pending,
            lost: received as i64 - accounted as i64,
        }
    };
    books.balances().iter().map(line).collect()
}

/// What came of it.
pub(crate) struct Ended {
    venues: Vec<control::Venue>,
    streams: Vec<(String, StreamStatus)>,
    jobs: Option<control::Jobs>,
    books: Books,
    /// What still waits for a sink is in the spool.
    keeps_pending: bool,
}

impl Ended {
    /// 1 if something was lost. What waits in the spool for a sink is not: the next start delivers it.
    pub(crate) fn code(&self) -> u8 {
        let is_kept = |line: &control::Balance| line.pending == 0 || self.keeps_pending;
        let is_even = |line: &control::Balance| line.lost == 0 && line.dropped == 0 && is_kept(line);
        if balances(&self.books).iter().all(is_even) { DONE } else { WANTING }
    }

    /// One line a venue, on standard output.
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        let lines = balances(&self.books);
        if json {
            let all = serde_json::json!({
                "venues": self.venues,
                "streams": streams::as_json(&self.streams),
                "jobs": self.jobs,
                "balances": lines,
            });
            tell!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(());
        }
        tell!(
            "{:<12} {:>11} {:>10} {:>9} {:>9} {:>8} {:>7} {:>5} {:>9} {:>5}",
            "venue",
            "instruments",
            "books",
            "books/s",
            "requests",
            "refused",
            "failed",
            "late",
            "written",
            "lost"
        );
        for venue in &self.venues {
            let of_it = || lines.iter().filter(|line| line.venue == venue.venue);
            tell!(
                "{:<12} {:>11} {:>10} {:>9.1} {:>9} {:>8} {:>7} {:>5} {:>9} {:>5}",
                venue.venue,
                venue.instruments,
                venue.books,
                venue.books_per_second,
                venue.requests,
                venue.refusals,
                venue.failures,
                venue.late,
                of_it().map(|line| line.written).max().unwrap_or(0),
                of_it().map(|line| line.lost + line.dropped as i64).sum::<i64>(),
            );
        }
        streams::print(&self.streams);
        if let Some(jobs) = &self.jobs {
            let runs = |outcome: &str| jobs.runs.get(outcome).copied().unwrap_or_default();
            tell!(
                "jobs: {} runs went well, {} failed, {} given up; {} candles on {} pages; {} stretches a venue has not",
                runs("success"),
                runs("failed"),
                runs("dead"),
                jobs.candles,
                jobs.pages,
                jobs.holes
            );
        }
        let pending: u64 = lines.iter().map(|line| line.pending).sum();
        if pending > 0 {
            let fate = match self.keeps_pending {
                true => "wait in the spool for a sink; the next start delivers them",
                false => "were not delivered and are lost: there is no spool on disk",
            };
            say(&format!("catchment: {pending} records {fate}"));
        }
        Ok(())
    }
}
