//! All connections of a venue: planned, started, watched, and stopped together. Its clock.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use catchment_governor::{Governor, Lane};
use catchment_model::{Clock, Monotonic};
use catchment_pipeline::{Intake, Resumed};
use catchment_venues::Endpoints;
use catchment_venues::stream::{Descriptor, LoginError, Secrets, Wanted};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::link::Route;
use super::rest::Rest;
use super::shard::{Ground, Shard};
use super::socket::Dialer;
use super::status::{ClockGauge, ClockQuality, ConnectionStatus, StreamCounts, StreamStatus};
use super::{StreamSettings, connects_family, events};
use crate::{Courier, CourierSettings, GapNotice, tls};

/// A venue whose streams are to be recorded.
pub struct StreamTask {
    /// Which, and how it speaks.
    pub descriptor: Descriptor,
    /// Where it is.
    pub endpoints: Endpoints,
    /// What is recorded.
    pub wanted: Vec<Wanted>,
    /// Who we are to the venue, for channels that are not for everyone.
    pub secrets: Option<Secrets>,
    /// How fast it may be asked. Has the families of [`families_of`](super::families_of).
    pub governor: Governor,
    /// How it is asked.
    pub courier: Arc<Courier>,
    /// Whom to trust besides the built-in authorities, and who we are.
    pub client: CourierSettings,
    /// Where messages go.
    pub intake: Intake,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// What may be set.
    pub settings: StreamSettings,
    /// Told every second.
    pub status: watch::Sender<StreamStatus>,
    /// Channels that were recorded before this start: until a stream of theirs flows again, it has a gap.
    pub resumed: Vec<Resumed>,
    /// Told of every gap of one symbol as it is recorded, by whoever can fill it. Full: not told; the record is there.
    pub gaps: Option<mpsc::Sender<GapNotice>>,
}

/// Why a venue's streams cannot be recorded at all.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The client could not be made.
    #[error(transparent)]
    Client(#[from] crate::SendError),
    /// A channel wants a login that cannot be made.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The description does not hold together.
    #[error("{venue}: {reason}")]
    Descriptor {
        /// Whose.
        venue: String,
        /// What is wrong.
        reason: String,
    },
}

/// Records a venue's streams until `stop`. An error is one of configuration and comes before anything is opened.
pub async fn stream(task: StreamTask, stop: CancellationToken) -> Result<(), StreamError> {
    let venue = task.descriptor.venue();
    let rest = Rest {
        descriptor: task.descriptor.clone(),
        endpoints: task.endpoints.clone(),
        governor: task.governor.clone(),
        courier: Arc::clone(&task.courier),
        clock: Arc::clone(&task.clock),
    };
    let routes = plan(&task.descriptor, &task.endpoints, &task.wanted);
    let secrets = task.secrets.unwrap_or_default();
    for (_, route) in &routes {
        // Tried once, so that what is missing is told before anything is opened.
        task.descriptor.login(route.socket, &secrets, task.clock.wall().ms(), &mut 0)?;
    }
    let (clock_told, clock_seen) = watch::channel(ClockQuality::default());
    let ground = Ground {
        secrets: Arc::new(secrets),
        venue_clock: clock_seen.clone(),
        dialer: dialer(&task.client, &task.settings)?,
        governor: task.governor.clone(),
        intake: task.intake.clone(),
        clock: Arc::clone(&task.clock),
        settings: task.settings,
        gaps: task.gaps.clone(),
        resumed: task.resumed.into_iter().filter(|stream| stream.venue == venue).collect(),
        rest,
    };
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    for (at, (name, route)) in routes.into_iter().enumerate() {
        let wrong = |reason| StreamError::Descriptor { venue: venue.to_string(), reason };
        let family = connects_family(&route.descriptor, route.socket);
        let family = task.governor.family(&family);
        let family =
            family.ok_or_else(|| wrong("the governor has no family for its connections".to_owned()))?;
        let (status, seen) = watch::channel(ConnectionStatus { name: name.clone(), ..Default::default() });
        let seed = task.settings.seed.wrapping_add(at as u64);
        let shard = Shard::new(ground.clone(), route, name, family, seed, status);
        connections.push(seen);
        tasks.spawn(shard.run(stop.clone()));
    }
    events::started(venue, connections.len(), task.wanted.len());
    tasks.spawn(ask_the_time(ground.rest.clone(), task.settings.clock_interval, clock_told, stop.clone()));
    let symbols: HashSet<&str> = task.wanted.iter().map(|wanted| wanted.instrument.symbol.as_str()).collect();
    let mut watcher = Watcher {
        instruments: symbols.len(),
        connections,
        clock: clock_seen,
        speed: VecDeque::new(),
        status: task.status,
    };
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            ended = tasks.join_next() => if ended.is_none() { break },
            _ = tick.tick() => { watcher.tell(false); }
        }
    }
    let messages = watcher.tell(true);
    events::stopped(venue, messages);
    Ok(())
}

/// Tries whether a socket of the venue opens, with a permit as always. Gives back how long it took.
pub async fn try_socket(
    descriptor: &Descriptor,
    endpoints: &Endpoints,
    socket: usize,
    governor: &Governor,
    client: &CourierSettings,
    clock: &dyn Clock,
) -> Result<Duration, String> {
    let settings = StreamSettings::default();
    let dialer = dialer(client, &settings).map_err(|error| error.to_string())?;
    let family = connects_family(descriptor, socket);
    let family = governor.family(&family).ok_or("the governor has no family for its connections")?;
    let latest = Monotonic(clock.monotonic().0 + settings.connect_deadline);
    let permit = governor.acquire_before(catchment_governor::Ask::new(family, Lane::Live), latest).await;
    let flight =
        permit.ok_or("no connection may be opened yet")?.depart().map_err(|error| error.to_string())?;
    let began = clock.monotonic();
    match dialer.dial(&descriptor.socket_url(socket, endpoints)).await {
        Ok(mut socket) => {
            flight.end(catchment_governor::Report::status(101), []);
            socket.close();
            Ok(clock.monotonic().since(began))
        }
        Err(error) => {
            flight.end(error.report(), []);
            Err(error.to_string())
        }
    }
}

fn dialer(client: &CourierSettings, settings: &StreamSettings) -> Result<Dialer, StreamError> {
    Ok(Dialer::new(tls::client(&client.extra_roots)?, &client.user_agent, settings.connect_deadline))
}

/// Which streams share a connection, and what each connection is called.
fn plan(descriptor: &Descriptor, endpoints: &Endpoints, wanted: &[Wanted]) -> Vec<(String, Route)> {
    let mut routes = Vec::new();
    for (socket, spec) in descriptor.sockets().iter().enumerate() {
        let of_it = |wanted: &&Wanted| descriptor.channels()[wanted.channel].socket == socket;
        let mut of_socket: Vec<Wanted> = wanted.iter().filter(of_it).cloned().collect();
        // An instrument's streams beside one another, so that they mostly share a connection.
        of_socket.sort_by(|a, b| (&a.instrument.symbol, a.channel).cmp(&(&b.instrument.symbol, b.channel)));
        of_socket.dedup();
        for (shard, places) in descriptor.shard(socket, &of_socket).iter().enumerate() {
            let table = places.iter().map(|place| of_socket[*place as usize].clone()).collect();
            let url = descriptor.socket_url(socket, endpoints);
            let route = Route { descriptor: descriptor.clone(), socket, url, table };
            routes.push((format!("{}-{shard}", spec.name), route));
        }
    }
    routes
}

/// Puts together what the connections tell.
struct Watcher {
    instruments: usize,
    connections: Vec<watch::Receiver<ConnectionStatus>>,
    clock: watch::Receiver<ClockQuality>,
    speed: VecDeque<u64>,
    status: watch::Sender<StreamStatus>,
}

impl Watcher {
    fn tell(&mut self, is_over: bool) -> u64 {
        let connections: Vec<ConnectionStatus> =
            self.connections.iter().map(|connection| connection.borrow().clone()).collect();
        let counts = connections.iter().fold(StreamCounts::default(), |sum, one| sum.and(&one.counts));
        self.speed.push_back(counts.messages);
        if self.speed.len() > 11 {
            self.speed.pop_front();
        }
        let seconds = self.speed.len().saturating_sub(1).max(1) as f64;
        let first = self.speed.front().copied().unwrap_or(0);
        self.status.send_replace(StreamStatus {
            instruments: self.instruments,
            connections,
            counts,
            messages_per_s: counts.messages.saturating_sub(first) as f64 / seconds,
            clock: *self.clock.borrow(),
            is_over,
        });
        counts.messages
    }
}

/// Asks the venue for its time now and then, when nobody else wants to ask anything.
async fn ask_the_time(
    rest: Rest,
    every: Duration,
    told: watch::Sender<ClockQuality>,
    stop: CancellationToken,
) {
    let Some(request) = rest.descriptor.time_request(&rest.endpoints) else { return };
    let mut gauge = ClockGauge::default();
    loop {
        let asked = async {
            let reply = rest.send(&request, Lane::Backfill).await.ok()?;
            Some((rest.descriptor.read_clock(&reply.body)?, reply))
        };
        let answer = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            answer = asked => answer,
        };
        match answer {
            Some(((theirs, step), reply)) => gauge.note(theirs, step, reply.received_at, reply.latency),
            None => gauge.failed(),
        }
        let quality = gauge.quality();
        told.send_replace(quality);
        // The first few soon, so that the jitter is known.
        let wait = if quality.samples < 3 { every.min(Duration::from_secs(5)) } else { every };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}
