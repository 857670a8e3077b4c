//! A fetch node: takes orders over TCP, asks the venue, writes to Redis, and never exceeds its own limit.
//!
//! ```text
//! accept ─▶ hello ─▶ Fetch ─▶ fence? ─▶ governor (capacity_rps, whatever it is told) ─▶ /books ─▶ Redis ─▶ Result
//!    └ garbage, silence, no key: closed within a second, nothing done
//! beat, twice a second ─▶ Redis: here I am; and which fence is the highest
//! ```
//!
//! * `fetch`: one batch; `landing`: no second with too many at the venue; `connection`: one coordinator; here: what they
//!   share, and the beat
//!
//! Without a key it listens on loopback only, whatever `bind_addr` says. In every interval of a second and a little more
//! (`slack`) at most `capacity_rps` requests leave. The little more is for the network, which delivers unevenly; what it
//! delivers less evenly than that is seen by `landing`, so that the venue, too, sees no second with more.

mod connection;
mod fetch;
mod landing;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_collect::{Courier, CourierSettings, SendError};
use catchment_governor::{Family, Governor, Limits, LimitsError, MemoryBudget, Open, Parts, Settings};
use catchment_model::{Clock, Monotonic};
use catchment_sinks::redis::{LatestSettings, LatestStore, RedisAddress, RedisFailure, RedisLink};
use catchment_venues::{EndpointsError, VenueSpec};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub use fetch::Fetcher;
use landing::Landings;

use crate::brain::Counts;
use crate::events;
use crate::hello::FleetKey;
use crate::lease::Fences;
use crate::registry::{Beat, Registry};

/// So many connections at once; more are closed at the door.
const CONNECTIONS_MAX: usize = 64;
/// So many batches at once, of all coordinators together.
const UNDER_WAY_MAX: usize = 64;
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// How much of the venue's own limits is used.
const VENUE_SHARE: (u32, u32) = (95, 100);

/// What the user may set.
#[derive(Clone)]
pub struct NodeConfig {
    /// Its name, unique in the fleet.
    pub node_id: String,
    /// Where it listens.
    pub bind: SocketAddr,
    /// Where coordinators reach it, if not where it listens.
    pub advertise: Option<String>,
    /// Requests in any second, at most.
    pub capacity_rps: u32,
    /// What a network may add to or take from the time between two requests.
    pub slack: Duration,
    /// The venue.
    pub spec: &'static VenueSpec,
    /// The venue's address for books.
    pub base_url: String,
    /// The local address requests leave from; the system's choice without one.
    pub source: Option<IpAddr>,
    /// A request without a whole answer by then has failed.
    pub deadline: Duration,
    /// The fleet's key.
    pub key: Option<FleetKey>,
    /// Where the books go.
    pub redis: RedisAddress,
    /// The fleet's name in Redis.
    pub namespace: String,
    /// How the latest is kept.
    pub latest: LatestSettings,
}

impl std::fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeConfig")
            .field("node_id", &self.node_id)
            .field("bind", &self.bind)
            .field("capacity_rps", &self.capacity_rps)
            .finish_non_exhaustive()
    }
}

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The address could not be had.
    #[error("cannot listen on {addr}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The venue's address is none.
    #[error(transparent)]
    Endpoints(#[from] EndpointsError),
    /// The limits do not fit together.
    #[error("the limits do not fit together")]
    Limits(#[from] LimitsError),
    /// The client could not be made.
    #[error("cannot prepare requests")]
    Courier(#[from] SendError),
    /// The address of Redis is none.
    #[error(transparent)]
    Redis(#[from] RedisFailure),
    /// It does not have what a node needs.
    #[error("{0} gives no books on request")]
    Venue(&'static str),
}

/// A node that listens.
#[derive(Debug)]
pub struct FetchNode {
    listener: TcpListener,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

/// What its connections share.
#[derive(Debug)]
struct Shared {
    config: NodeConfig,
    fetcher: Fetcher,
    fences: Fences,
    clock: Arc<dyn Clock>,
    books_max: usize,
    under_way: Arc<Semaphore>,
    last_tokens: Mutex<Arc<Vec<String>>>,
    counts: Mutex<Counts>,
    /// Connections closed for what came over them.
    turned_away: std::sync::atomic::AtomicU64,
}

impl Shared {
    fn pace_mrps(&self) -> u64 {
        let window_us = 1_000_000 + self.config.slack.as_micros() as u64;
        u64::from(self.config.capacity_rps) * 1_000_000_000 / window_us
    }
}

impl FetchNode {
    /// Opens everything and listens. Asks nobody for anything yet.
    pub async fn open(mut config: NodeConfig, clock: Arc<dyn Clock>) -> Result<Self, NodeError> {
        if config.key.is_none() && !config.bind.ip().is_loopback() {
            let wanted = config.bind;
            config.bind.set_ip(Ipv4Addr::LOCALHOST.into());
            events::loopback_only(wanted, config.bind);
        }
        let spec = config.spec;
        let endpoint = spec.endpoints.first().map_or("", |endpoint| endpoint.name);
        let opened = (spec.open)(&spec.endpoints([(endpoint, config.base_url.as_str())])?);
        let polls = opened.polls.ok_or(NodeError::Venue(spec.id))?;
        let limits = limits(spec, config.capacity_rps, config.slack)?;
        let parts = Parts {
            clock: Arc::clone(&clock),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed: rand::random(),
        };
        let governor = Governor::open(spec.id, limits, Settings::default(), parts);
        let settings = CourierSettings {
            deadline: config.deadline,
            local_address: config.source,
            ..CourierSettings::default()
        };
        let courier = Courier::new(spec, settings, Arc::clone(&clock))?;
        let link = Arc::new(RedisLink::new(&config.redis)?);
        let store = LatestStore::new(link, config.latest.clone(), Arc::clone(&clock));
        let refused = |source| NodeError::Listen { addr: config.bind, source };
        let listener = TcpListener::bind(config.bind).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let books_max = polls.books_max();
        let fetcher = Fetcher {
            governor,
            landings: Landings::new(config.capacity_rps, Arc::clone(&clock)),
            courier,
            polls,
            store,
            venue: spec.id,
            clock: Arc::clone(&clock),
            patience: Duration::from_secs(1),
            pages: Mutex::default(),
        };
        let shared = Shared {
            config,
            fetcher,
            fences: Fences::default(),
            clock,
            books_max,
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            last_tokens: Mutex::default(),
            counts: Mutex::default(),
            turned_away: std::sync::atomic::AtomicU64::new(0),
        };
        Ok(Self { listener, addr, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Counts since its start; look as long as you like.
    pub fn watch(&self) -> NodeWindow {
        NodeWindow(Arc::clone(&self.shared))
    }

    /// Serves until told to stop. What is under way then is given up; Redis is told that it goes.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, addr, shared } = self;
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut guests = JoinSet::new();
        let beating = tokio::spawn(beat(Arc::clone(&shared), addr, stop.clone()));
        loop {
            let taken = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = guests.join_next(), if !guests.is_empty() => continue,
                taken = listener.accept() => taken,
            };
            match (taken, Arc::clone(&seats).try_acquire_owned()) {
                (Ok((stream, peer)), Ok(seat)) => {
                    let (shared, stop) = (Arc::clone(&shared), stop.clone());
                    guests.spawn(async move {
                        connection::attend(stream, peer, &shared, stop).await;
                        drop(seat);
                    });
                }
                (Ok((_, peer)), Err(_)) => events::door_full(peer),
                // Out of descriptors, most often: others end before long.
                (Err(error), _) => {
                    events::door_broken(&error);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        guests.shutdown().await;
        let _ = beating.await;
    }
}

/// What can be seen of a node.
#[derive(Debug, Clone)]
pub struct NodeWindow(Arc<Shared>);

impl NodeWindow {
    /// Counts since its start.
    pub fn counts(&self) -> Counts {
        self.0.counts.lock().expect("no holder of this lock can panic").clone()
    }

    /// Connections closed for what came over them.
    pub fn turned_away(&self) -> u64 {
        self.0.turned_away.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The highest fence it has seen.
    pub fn fence(&self) -> u64 {
        self.0.fences.highest()
    }
}

/// Twice a second: here I am. A server that has lost the last beat has lost books, too, so all are offered again.
async fn beat(shared: Arc<Shared>, addr: SocketAddr, stop: CancellationToken) {
    let config = &shared.config;
    let registry = Registry::new(Arc::clone(shared.fetcher.store.link()), &config.namespace);
    let reachable = config.advertise.clone().or((!addr.ip().is_unspecified()).then(|| addr.to_string()));
    let Some(reachable) = reachable else {
        events::not_registered(addr);
        return;
    };
    let began = shared.clock.monotonic();
    let (mut last, mut is_first): (Option<Monotonic>, bool) = (None, true);
    let mut tick = tokio::time::interval(BEAT_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = tick.tick() => {}
        }
        let now = shared.clock.monotonic();
        let beat = Beat {
            node: config.node_id.clone(),
            addr: reachable.clone(),
            capacity_rps: config.capacity_rps,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up_ms: now.since(began).as_millis() as u64,
            counts: shared.counts.lock().expect("no holder of this lock can panic").clone(),
        };
        match registry.beat(&beat).await {
            Ok(beaten) => {
                shared.fences.admits(beaten.fence);
                if !beaten.was_known && !is_first {
                    shared.fetcher.store.forget();
                }
                events::beat_heard(&config.node_id, &mut last, now);
                is_first = false;
            }
            Err(error) => events::beat_failed(&config.node_id, &error),
        }
    }
    if let Err(error) = registry.leave(&config.node_id).await {
        events::beat_failed(&config.node_id, &error);
    }
}

/// The node's own limit above everything the venue declares.
fn limits(spec: &VenueSpec, capacity_rps: u32, slack: Duration) -> Result<Limits, LimitsError> {
    let mut families = vec![Family::top("node").limit(capacity_rps, Duration::from_secs(1) + slack)];
    for limit in spec.limits {
        let allowed = (limit.budget * VENUE_SHARE.0 / VENUE_SHARE.1).max(1);
        match families.iter_mut().find(|family| family.name == limit.family) {
            Some(family) => *family = family.clone().limit(allowed, limit.window),
            None => {
                let family = Family::under(limit.parent.unwrap_or("node"), limit.family);
                families.push(family.limit(allowed, limit.window));
            }
        }
    }
    Limits::new(families, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_pays_in_the_nodes_own_window() {
        let spec = catchment_venues::find("polymarket").unwrap();
        let limits = limits(spec, 20, Duration::from_millis(25)).unwrap();
        for family in ["books", "book"] {
            let last = limits.windows_of(limits.family(family).unwrap()).last().unwrap();
            assert_eq!((last.allowed, last.length), (20, Duration::from_millis(1_025)));
        }
    }
}
