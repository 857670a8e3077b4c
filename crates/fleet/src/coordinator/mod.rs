//! The coordinator's body: sockets, Redis and the clock around the head in `brain`.
//!
//! ```text
//! lease   ─▶ leads or not                    nodes in Redis ─▶ links, one a node ─▶ up, down, answers ─▶ brain
//! tokens  ─▶ brain ─▶ slot due ─▶ Order ─▶ link                                     status, once a second ─▶ Redis
//! ```
//!
//! One task decides and never waits for anybody; the lease, the nodes in Redis, the tokens' files, the status and each
//! link have their own. A coordinator that does not lead keeps its links open, so that it can begin at once.

mod link;
mod links;
mod metrics;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::{Clock, Monotonic};
use catchment_sinks::redis::{RedisAddress, RedisFailure, RedisLink};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use self::link::Happened;
use self::links::Links;
use crate::brain::{Brain, BrainSettings, Counts, Order, Slot, Told};
use crate::events;
use crate::hello::FleetKey;
use crate::lease::{Lease, LeaseSettings};
use crate::message::Message;
use crate::registry::{Beat, Registry};
use crate::status::{FleetStatus, NodeStatus, Rates};
use crate::tokens::TokenSources;

const NODES_EVERY: Duration = Duration::from_millis(500);
const TOKENS_EVERY: Duration = Duration::from_secs(1);
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Rates are over so many of those.
const RATES_OVER: usize = 5;

/// What the user may set.
#[derive(Debug)]
pub struct CoordinatorConfig {
    /// Its name; no other may have it.
    pub name: String,
    /// Where the fleet meets.
    pub redis: RedisAddress,
    /// The fleet's name in Redis.
    pub namespace: String,
    /// Nodes that need not register themselves.
    pub nodes: Vec<String>,
    /// The fleet's key.
    pub key: Option<FleetKey>,
    /// What to follow.
    pub tokens: TokenSources,
    /// How.
    pub brain: BrainSettings,
    /// How long a leader may be silent.
    pub lease: LeaseSettings,
    /// Where Prometheus may ask, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// Why there is no coordinator.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The address of Redis is none.
    #[error(transparent)]
    Redis(#[from] RedisFailure),
    /// The address for metrics could not be had.
    #[error("cannot listen on {addr} for metrics")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Coordinates until told to stop; then gives the lease back. `status` has how it goes, once a second.
pub async fn coordinate(
    config: CoordinatorConfig,
    clock: Arc<dyn Clock>,
    status: watch::Sender<FleetStatus>,
    stop: CancellationToken,
) -> Result<(), CoordinatorError> {
    // What is asked here is small; who does not answer soon will not.
    let address = RedisAddress { answer_deadline: Duration::from_secs(1), ..config.redis.clone() };
    let registry = Registry::new(Arc::new(RedisLink::new(&address)?), &config.namespace);
    let leases = Registry::new(Arc::new(RedisLink::new(&address)?), &config.namespace);
    let status = Arc::new(status);
    let mut tasks = JoinSet::new();
    if let Some(addr) = config.metrics {
        let listener = tokio::net::TcpListener::bind(addr).await;
        let listener = listener.map_err(|source| CoordinatorError::Listen { addr, source })?;
        tasks.spawn(metrics::serve(listener, status.subscribe(), stop.clone()));
    }
    let lease = Arc::new(SharedLease {
        lease: Mutex::new(Lease::new(config.lease, clock.monotonic())),
        seen: Mutex::new(0),
        hurry: Notify::new(),
    });
    tasks.spawn(keep_lease(
        leases,
        config.name.clone(),
        Arc::clone(&lease),
        Arc::clone(&clock),
        stop.clone(),
    ));
    let (tell_nodes, nodes) = watch::channel(Vec::new());
    tasks.spawn(watch_nodes(registry.clone(), tell_nodes, stop.clone()));
    let (tell_tokens, tokens) = watch::channel(Vec::new());
    tasks.spawn(watch_tokens(config.tokens, tell_tokens, stop.clone()));
    let (write_status, to_write) = watch::channel(None);
    tasks.spawn(write_statuses(registry, to_write));

    // Full: links wait, and the nodes' answers wait in their sockets.
    let (happened, happenings) = mpsc::channel(1_024);
    let links = Links::new(config.nodes, config.name.clone(), config.key, happened);
    let now = clock.monotonic();
    let body = Body {
        name: config.name,
        brain: Brain::new(config.brain, now),
        clock,
        lease,
        links,
        leads: None,
        marks: VecDeque::new(),
        status,
        write_status,
    };
    body.run(happenings, nodes, tokens, stop).await;
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// What the deciding task has.
struct Body {
    name: String,
    brain: Brain,
    clock: Arc<dyn Clock>,
    lease: Arc<SharedLease>,
    links: Links,
    /// With this fence, since then.
    leads: Option<(u64, Monotonic)>,
    /// The last counts, for rates.
    marks: VecDeque<Mark>,
    status: Arc<watch::Sender<FleetStatus>>,
    write_status: watch::Sender<Option<FleetStatus>>,
}

/// Counts at a time.
struct Mark {
    at: Monotonic,
    all: Counts,
    requests: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct SharedLease {
    lease: Mutex<Lease>,
    /// The highest fence any node has told of.
    seen: Mutex<u64>,
    hurry: Notify,
}

impl SharedLease {
    fn lock(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().expect("no holder of this lock can panic")
    }

    fn saw(&self, fence: u64) {
        let mut seen = self.seen.lock().expect("no holder of this lock can panic");
        *seen = fence.max(*seen);
    }

    fn seen(&self) -> u64 {
        *self.seen.lock().expect("no holder of this lock can panic")
    }
}

impl Body {
    async fn run(
        mut self,
        mut happenings: mpsc::Receiver<(u64, Happened)>,
        mut nodes: watch::Receiver<Vec<Beat>>,
        mut tokens: watch::Receiver<Vec<Arc<str>>>,
        stop: CancellationToken,
    ) {
        let mut tell = interval(STATUS_EVERY);
        tell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.links.set_registered(&[]);
        loop {
            let now = self.clock.monotonic();
            self.look_at_lease(now);
            if let Some((fence, _)) = self.leads {
                self.use_slots(fence, now);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some((link, happened)) = happenings.recv() => self.happened(link, happened),
                Ok(()) = tokens.changed() => {
                    let names = tokens.borrow_and_update().clone();
                    events::tokens_changed(names.len());
                    self.brain.set_tokens(names, self.clock.monotonic());
                }
                Ok(()) = nodes.changed() => {
                    let beats = nodes.borrow_and_update().clone();
                    self.links.set_registered(&beats);
                }
                _ = tell.tick() => self.tell(),
                () = sleep(self.rest(now)) => {}
            }
        }
        self.links.stop().await;
    }

    /// How long there is nothing to do.
    fn rest(&self, now: Monotonic) -> Duration {
        let look_again = Duration::from_millis(50);
        match self.leads {
            Some(_) => self.brain.due().since(now).min(look_again),
            None => look_again,
        }
    }

    fn look_at_lease(&mut self, now: Monotonic) {
        let fence = self.lease.lock().fence(now);
        match (fence, self.leads) {
            (Some(fence), Some((old, _))) if fence == old => {}
            (Some(fence), _) => {
                events::leads(&self.name, fence);
                self.leads = Some((fence, now));
                self.brain.begin(now);
            }
            (None, Some(_)) => {
                events::leads_no_more(&self.name, self.lease.lock().holder().unwrap_or("the lease is over"));
                self.leads = None;
                self.brain.forget_orders();
            }
            (None, None) => {}
        }
    }

    fn use_slots(&mut self, fence: u64, now: Monotonic) {
        while let Some(slot) = self.brain.slot(now) {
            if let Slot::Order(order) = slot
                && !self.links.order(&order.node, fetch(&order, fence))
            {
                self.brain.not_sent(&order);
            }
        }
    }

    fn happened(&mut self, link: u64, happened: Happened) {
        let now = self.clock.monotonic();
        match happened {
            Happened::Up { node, facts, fence } => {
                self.lease.saw(fence);
                if self.links.up(link, &node) {
                    events::node_up(&node, &facts.addr);
                    self.brain.node_up(node, facts, now);
                }
            }
            Happened::Down { reason } => match self.links.down(link, &reason) {
                Some((node, addr)) => {
                    events::node_down(&node, &addr, &reason);
                    self.brain.node_down(&node, &reason, now);
                }
                None => events::node_unreachable(self.links.addr(link), &reason),
            },
            Happened::Answered(summary) => {
                let Some(node) = self.links.node(link) else { return };
                if let Told::Stale(fence) = self.brain.answered(&node, &summary, now) {
                    self.lease.saw(fence);
                    let mut lease = self.lease.lock();
                    // An answer to an order of before the lease was renewed with a higher fence says nothing new.
                    if lease.fence(now).is_some_and(|ours| ours < fence) {
                        lease.is_outdated(now);
                        self.lease.hurry.notify_one();
                    }
                }
            }
        }
    }

    fn tell(&mut self) {
        let now = self.clock.monotonic();
        let mut plan = self.brain.status(now);
        let mark = Mark {
            at: now,
            all: plan.counts.clone(),
            requests: plan.nodes.iter().map(|node| (node.id.clone(), node.counts.requests)).collect(),
        };
        let mut rates = Rates::default();
        if let Some(before) = self.marks.front() {
            let seconds = now.since(before.at).as_secs_f64().max(0.001);
            let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            rates = Rates {
                requests_per_s: per_s(mark.all.requests, before.all.requests),
                books_per_s: per_s(mark.all.books, before.all.books),
                written_per_s: per_s(mark.all.written, before.all.written),
            };
            for node in &mut plan.nodes {
                let then = before.requests.get(&node.id).copied().unwrap_or(0);
                node.requests_per_s = per_s(node.counts.requests, then);
            }
        }
        self.marks.push_back(mark);
        if self.marks.len() > RATES_OVER {
            self.marks.pop_front();
        }
        plan.nodes.extend(self.links.missing().map(|(addr, reason)| NodeStatus {
            id: addr.to_owned(),
            addr: addr.to_owned(),
            last_error: Some(reason.to_owned()),
            ..NodeStatus::default()
        }));
        let (leader, fence, since) = match self.leads {
            Some((fence, since)) => (self.name.clone(), fence, now.since(since)),
            None => (String::new(), 0, Duration::ZERO),
        };
        let at_ms = self.clock.wall().ms().get();
        let status = FleetStatus { leader, fence, at_ms, leading_ms: since.as_millis() as u64, rates, plan };
        if self.leads.is_some() {
            self.write_status.send_replace(Some(status.clone()));
        }
        self.status.send_replace(status);
    }
}

fn fetch(order: &Order, fence: u64) -> Vec<u8> {
    let tokens = order.tokens.iter().map(ToString::to_string).collect();
    Message::Fetch { id: order.id, fence, tokens, trigger: true }.to_json()
}

async fn keep_lease(
    registry: Registry,
    name: String,
    shared: Arc<SharedLease>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    loop {
        let (next, length) = {
            let lease = shared.lock();
            (lease.next_ask(), lease.length())
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = shared.hurry.notified() => {}
            () = sleep(next.since(clock.monotonic())) => {}
        }
        let sent = clock.monotonic();
        let answer = registry.acquire(&name, length, shared.seen()).await;
        let mut lease = shared.lock();
        match answer {
            Ok(answer) => lease.answered(sent, answer),
            Err(error) => {
                events::lease_unanswered(&error);
                lease.not_answered(clock.monotonic());
            }
        }
    }
    // Whoever waits for it need not wait for its end.
    if let Err(error) = registry.release(&name).await {
        events::lease_unanswered(&error);
    }
}

async fn watch_nodes(registry: Registry, tell: watch::Sender<Vec<Beat>>, stop: CancellationToken) {
    let mut tick = interval(NODES_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        // While Redis is away, those that were there are taken to be.
        if let Ok(beats) = registry.nodes().await {
            tell.send_replace(beats);
        }
    }
}

async fn watch_tokens(
    mut sources: TokenSources,
    tell: watch::Sender<Vec<Arc<str>>>,
    stop: CancellationToken,
) {
    let mut tick = interval(TOKENS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let load = tokio::task::spawn_blocking(move || {
            let tokens = sources.load();
            (sources, tokens)
        });
        // A panic there is told by the runtime; the tokens stay as they are.
        let Ok((back, tokens)) = load.await else { return };
        sources = back;
        if let Some(tokens) = tokens {
            tell.send_replace(tokens);
        }
    }
}

/// Writes each status, or only the newest if Redis is slow; ends when there are no more.
async fn write_statuses(registry: Registry, mut to_write: watch::Receiver<Option<FleetStatus>>) {
    while to_write.changed().await.is_ok() {
        let status = to_write.borrow_and_update().clone();
        if let Some(status) = status
            && let Err(error) = registry.tell(&status).await
        {
            events::lease_unanswered(&error);
        }
    }
}
