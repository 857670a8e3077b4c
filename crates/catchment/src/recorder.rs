//! The venues that are being recorded: a governor, a courier, a discovery and a poller each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream::StreamStatus;
use catchment_collect::{
    Courier, CourierSettings, DiscoverStatus, DiscoverTask, Line, PageRetries, PollSettings, PollStatus,
    PollTask, SnapshotFile, backfill_gaps, discover, poll, snapshot_path,
};
use catchment_control as control;
use catchment_governor::Governor;
use catchment_pipeline::RealDisk;
use catchment_venues::stream::Descriptor;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::accounts::{Accounts, Door};
use crate::config::{Config, Speed, StreamConfig, VenueConfig};
use crate::floorplan::House;
use crate::jobs::{JobsRoom, JobsWindow};
use crate::{governors, say, streams};

/// How often what the limiters have learned is written down.
const REMEMBER_EVERY: Duration = Duration::from_secs(60);

/// Which rooms run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rooms {
    pub(crate) discover: bool,
    pub(crate) poll: bool,
    pub(crate) stream: bool,
    pub(crate) jobs: bool,
    pub(crate) api: bool,
}

impl Rooms {
    pub(crate) const ALL: Rooms = Rooms { discover: true, poll: true, stream: true, jobs: true, api: true };
    pub(crate) const API: Rooms =
        Rooms { discover: false, poll: false, stream: false, jobs: false, api: true };

    /// What tells the files of a process that runs only some of them from those of the other; empty if it runs all.
    pub(crate) fn suffix(self) -> &'static str {
        match (self.discover, self.poll, self.stream) {
            (false, false, false) if self.jobs => "-jobs",
            (true, false, false) => "-discover",
            (false, true, false) => "-poll",
            (false, false, true) => "-stream",
            (true, false, true) => "-discover-stream",
            (false, true, true) => "-poll-stream",
            (true, true, _) | (false, false, false) => "",
        }
    }
}

/// The venues that are being recorded.
pub(crate) struct Recorder {
    venues: Vec<Running>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    jobs: Option<JobsRoom>,
    store: Option<Door>,
}

/// What can be seen of one of them.
#[derive(Clone)]
struct Running {
    id: &'static str,
    governor: Governor,
    discover: Option<watch::Receiver<DiscoverStatus>>,
    poll: Option<watch::Receiver<PollStatus>>,
    stream: Option<watch::Receiver<StreamStatus>>,
    /// Whom it is asked by, if it is polled.
    courier: Option<Arc<Courier>>,
    has_jobs: bool,
}

impl Running {
    fn new(id: &'static str, governor: Governor) -> Self {
        Self { id, governor, discover: None, poll: None, stream: None, courier: None, has_jobs: false }
    }
}

impl Recorder {
    /// Starts recording every venue of the configuration.
    pub(crate) async fn start(config: &Config, rooms: Rooms, house: &House) -> anyhow::Result<Self> {
        let (tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let mut recorder = Self { venues: Vec::new(), tasks, stop, jobs: None, store: None };
        // Everybody spends from the store's accounts, whether or not this process works on jobs.
        let mut accounts = Accounts::open(config).await?;
        recorder.store = accounts.as_ref().map(Accounts::door);
        for venue in config.venues.iter().filter(|_| rooms.discover || rooms.poll) {
            recorder.start_venue(venue, config, rooms, house, accounts.as_ref())?;
        }
        for stream in config.streams.iter().filter(|_| rooms.stream) {
            recorder.start_stream(stream, config, rooms, house, accounts.as_ref())?;
        }
        if let Some(accounts) = &mut accounts
            && let Some(told) = accounts.told.take()
        {
            let (door, stop) = (accounts.door(), recorder.stop.clone());
            recorder.tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    store = door.opened() => backfill_gaps(store, told, stop.clone()).await,
                }
            });
        }
        if let (Some(jobs), Some(accounts)) = (config.jobs.as_ref().filter(|_| rooms.jobs), accounts.as_ref())
        {
            for venue in &jobs.venues {
                recorder.add_governor(
                    &venue.descriptor,
                    &venue.speed,
                    config,
                    rooms,
                    house,
                    Some(accounts),
                )?;
                recorder.venue(venue.descriptor.id()).has_jobs = true;
            }
            let governors = recorder.venues.iter().map(|venue| (venue.id, venue.governor.clone())).collect();
            recorder.jobs = Some(JobsRoom::start(jobs, accounts.door(), &governors, house)?);
        }
        if let Some(accounts) = accounts {
            recorder.tasks.spawn(accounts.rest().await?.run(recorder.stop.clone()));
        }
        let governors: Vec<Governor> = recorder.venues.iter().map(|venue| venue.governor.clone()).collect();
        recorder.tasks.spawn(remember(governors, recorder.stop.clone()));
        Ok(recorder)
    }

    fn start_venue(
        &mut self,
        venue: &VenueConfig,
        config: &Config,
        rooms: Rooms,
        house: &House,
        accounts: Option<&Accounts>,
    ) -> anyhow::Result<()> {
        let (spec, clock, data_dir) = (venue.spec, &house.clock, &config.data_dir);
        let seed = rand::random();
        let opened = (spec.open)(&venue.endpoints);
        let streamed = config.streams.iter().map(|stream| &stream.descriptor);
        let streamed = streamed.filter(|_| rooms.stream).find(|descriptor| descriptor.id() == spec.id);
        let notebook = notebook(data_dir, spec.id, rooms);
        let governor = governors::open(venue, &opened, streamed, accounts, &notebook, clock, seed)?;
        let settings = CourierSettings {
            deadline: venue.speed.deadline,
            connections_max: venue.speed.max_inflight as usize,
            ..CourierSettings::default()
        };
        let courier = Courier::new(spec, settings, Arc::clone(clock))
            .with_context(|| format!("cannot prepare requests to {}", spec.id))?;
        let courier = Arc::new(courier);
        let mut running = Running::new(spec.id, governor.clone());
        running.courier = Some(Arc::clone(&courier));
        if let (true, Some(discovers)) = (rooms.discover, opened.discovers) {
            let (status, seen) = watch::channel(DiscoverStatus::default());
            running.discover = Some(seen);
            let task = DiscoverTask {
                spec,
                discovers,
                governor: governor.clone(),
                courier: Arc::clone(&courier),
                intake: house.pipeline.intake(),
                disk: Arc::new(RealDisk::shared()),
                data_dir: data_dir.to_owned(),
                interval: venue.discover_interval,
                retries: PageRetries { seed, ..PageRetries::default() },
                clock: Arc::clone(clock),
                status,
            };
            self.tasks.spawn(discover(task, self.stop.clone()));
        }
        if let (true, Some(polls)) = (rooms.poll, opened.polls) {
            let (status, seen) = watch::channel(PollStatus::default());
            running.poll = Some(seen);
            let settings = PollSettings {
                interval: venue.poll_interval,
                books_per_request: venue.books_per_request,
                check_hashes: venue.check_hashes,
                through_values: venue.through_values,
                max_workers: venue.max_workers,
                seed,
                ..PollSettings::default()
            };
            let task = PollTask {
                venue: spec.venue(),
                polls,
                fetch: Arc::new(Line { governor, courier, clock: Arc::clone(clock) }),
                snapshot: SnapshotFile::new(snapshot_path(data_dir, spec.venue()), spec.venue()),
                intake: house.pipeline.intake(),
                clock: Arc::clone(clock),
                settings,
                status,
            };
            self.tasks.spawn(poll(task, self.stop.clone()));
        }
        self.venues.push(running);
        Ok(())
    }

    /// A venue that is polled too has one governor for both.
    fn start_stream(
        &mut self,
        stream: &StreamConfig,
        config: &Config,
        rooms: Rooms,
        house: &House,
        accounts: Option<&Accounts>,
    ) -> anyhow::Result<()> {
        let (id, clock) = (stream.descriptor.id(), &house.clock);
        let gaps = accounts.as_ref().and_then(|accounts| accounts.gaps_of(id));
        self.add_governor(&stream.descriptor, &stream.speed, config, rooms, house, accounts)?;
        let governor = self.venue(id).governor.clone();
        let stop = self.stop.clone();
        let seen = streams::start(stream, governor, gaps.clone(), house, &mut self.tasks, stop)?;
        self.venue(id).stream = Some(seen.clone());
        if let Some(gaps) = gaps {
            let (resumed, clock) = (house.pipeline.resumed().to_vec(), Arc::clone(clock));
            let absence = streams::tell_of_absence(stream.clone(), resumed, gaps, seen, clock);
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                // Stopped before: the gaps are in the data all the same.
                let _ = stop.run_until_cancelled(absence).await;
            });
        }
        Ok(())
    }

    /// Opens the governor of a described venue, unless it has one.
    fn add_governor(
        &mut self,
        descriptor: &Descriptor,
        speed: &Speed,
        config: &Config,
        rooms: Rooms,
        house: &House,
        accounts: Option<&Accounts>,
    ) -> anyhow::Result<()> {
        let id = descriptor.id();
        if self.venues.iter().any(|venue| venue.id == id) {
            return Ok(());
        }
        let (notebook, seed) = (notebook(&config.data_dir, id, rooms), rand::random());
        let governor = governors::open_described(descriptor, speed, accounts, &notebook, &house.clock, seed)?;
        self.venues.push(Running::new(id, governor));
        Ok(())
    }

    /// One that has a governor.
    fn venue(&mut self, id: &str) -> &mut Running {
        let found = self.venues.iter_mut().find(|venue| venue.id == id);
        found.expect("it is there or was just added")
    }

    /// Where the store is once it is open, if it is needed for jobs or for their budgets.
    pub(crate) fn store(&self) -> Option<Door> {
        self.store.clone()
    }

    /// What can be seen of it, as long as one likes.
    pub(crate) fn window(&self) -> Window {
        Window { venues: self.venues.clone(), jobs: self.jobs.as_ref().map(JobsRoom::window) }
    }

    /// Lets what is under way come to its end, and remembers what was learned. Whoever has not ended by then is left.
    pub(crate) async fn stop(mut self, by: Instant) {
        self.stop.cancel();
        let jobs = self.jobs.take();
        let jobs = async {
            if let Some(jobs) = jobs {
                jobs.stop(by).await;
            }
        };
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::join!(tokio::time::timeout_at(by, ended), jobs).0.is_err() {
            say("catchment: a venue did not come to its end in time; its last requests are given up");
        }
    }
}

/// Where a venue's governor keeps what it has learned.
fn notebook(data_dir: &Path, id: &str, rooms: Rooms) -> PathBuf {
    data_dir.join(id).join("state").join(format!("governor{}.json", rooms.suffix()))
}

/// Writes down from time to time what the limiters have learned, and once more at the end.
async fn remember(governors: Vec<Governor>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(REMEMBER_EVERY);
    tick.tick().await;
    loop {
        let is_over = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            _ = tick.tick() => false,
        };
        let governors = governors.clone();
        let written = tokio::task::spawn_blocking(move || governors.iter().for_each(Governor::remember));
        // A panic there is told by the runtime; the rates are learned again.
        let _ = written.await;
        if is_over {
            return;
        }
    }
}

/// What can be seen of the venues.
#[derive(Clone)]
pub(crate) struct Window {
    venues: Vec<Running>,
    jobs: Option<JobsWindow>,
}

impl Window {
    pub(crate) fn venues(&self) -> Vec<control::Venue> {
        self.venues.iter().map(figures).collect()
    }

    /// Where the streams stand, by venue.
    pub(crate) fn streams(&self) -> Vec<(String, StreamStatus)> {
        let of = |venue: &Running| Some((venue.id.to_owned(), venue.stream.as_ref()?.borrow().clone()));
        self.venues.iter().filter_map(of).collect()
    }

    /// Where the jobs stand.
    pub(crate) fn jobs(&self) -> Option<control::Jobs> {
        self.jobs.as_ref().map(JobsWindow::figures)
    }
}

/// What is done with a venue.
fn kinds(venue: &Running) -> Vec<&'static str> {
    let is_polled = venue.discover.is_some() || venue.poll.is_some();
    let kinds = [(is_polled, "poll"), (venue.stream.is_some(), "stream"), (venue.has_jobs, "jobs")];
    kinds.into_iter().filter(|(is_so, _)| *is_so).map(|(_, kind)| kind).collect()
}

fn figures(venue: &Running) -> control::Venue {
    let governor = venue.governor.snapshot();
    let hold = governor.hold.map(|(remaining, cause)| control::Hold {
        cause: cause.as_str().to_owned(),
        remaining_ms: remaining.as_millis() as u64,
    });
    let counts = governor.families.iter().map(|family| family.counts);
    let sent = counts.clone().map(|c| c.granted - c.unsent).sum();
    // The family that asks most is the one whose rate is of interest.
    let busiest = governor.families.iter().max_by_key(|family| family.counts.granted);
    let mut figures = control::Venue {
        venue: venue.id.to_owned(),
        requests: sent,
        refusals: counts.clone().map(|c| c.refused).sum(),
        failures: counts.clone().map(|c| c.failed + c.timed_out + c.banned).sum(),
        timeouts: counts.map(|c| c.timed_out).sum(),
        rate: busiest.and_then(|family| family.gauge).and_then(|gauge| gauge.rate),
        hold,
        kinds: kinds(venue),
        clock: venue.courier.as_ref().and_then(|courier| streams::clock(&courier.clock_quality())),
        ..control::Venue::default()
    };
    if let Some(discover) = &venue.discover {
        let discover = discover.borrow();
        figures.instruments = discover.instruments;
        figures.last_error.clone_from(&discover.last_error);
    }
    if let Some(poll) = &venue.poll {
        let poll = poll.borrow();
        figures.instruments = poll.instruments;
        figures.books = poll.counts.books;
        figures.books_per_second = poll.books_per_s;
        figures.late = poll.counts.late;
        let ms = |time: Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        figures.latency_ms_p50 = ms(poll.latency_p50);
        figures.latency_ms_p95 = ms(poll.latency_p95);
        figures.spacing_ms_p05 = ms(poll.spacing_p05);
        figures.spacing_ms_p95 = ms(poll.spacing_p95);
    }
    if let Some(stream) = &venue.stream {
        let stream = stream.borrow();
        let trouble = stream.connections.iter().find_map(|connection| connection.last_error.clone());
        figures.last_error = figures.last_error.or(trouble);
        if venue.poll.is_none() {
            figures.instruments = stream.instruments;
        }
    }
    figures
}
