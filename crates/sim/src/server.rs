//! The server: takes a request, finds the venue, asks its limits, lets fate have its say, and answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use catchment_model::{Clock, Monotonic};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::VENUES;
use crate::body::{Bomb, SimBody};
use crate::config::{SimConfig, SimError, check_faults};
use crate::dice::Dice;
use crate::faults::{BodyFault, Fate, Faults, Instead};
use crate::limit::{Limits, RetryAfter, Verdict};
use crate::requests::RequestLog;
use crate::stats::{EndpointStats, Stats};
use crate::text::{Query, http_date, pair};
use crate::venue::{Answer, Ask, Opened, Venue, VenueSpec};
use crate::ws::floor::Floor;
use crate::ws::upgrade::{Handshake, Pending};

/// The largest request taken; 500 token ids are 48 KB.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A running simulation. Dropped without [`Sim::stop`], its tasks end on their own soon after.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    pub(crate) house: Arc<House>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Sim {
    /// Starts listening. Books and births begin at the time `clock` shows now.
    pub async fn start(config: SimConfig, clock: Arc<dyn Clock>) -> Result<Self, SimError> {
        config.check()?;
        let refused = |source| SimError::Listen { addr: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let house = Arc::new(House::new(&config, clock));
        let (stop, stopped) = watch::channel(false);
        house.begin_stream_faults()?;
        let accepting = tokio::spawn(accept_all(listener, Arc::clone(&house), stopped));
        Ok(Self { addr, house, stop, accepting })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of an API: `base("polymarket/clob")`.
    pub fn base(&self, api: &str) -> String {
        format!("http://{}/{api}", self.addr)
    }

    /// The address of a venue's streams: `socket("binance/ws")`.
    pub fn socket(&self, path: &str) -> String {
        format!("ws://{}/{path}", self.addr)
    }

    /// Every API and its address, in the order of the table; then every socket and its.
    pub fn bases(&self) -> Vec<(&'static str, String)> {
        let apis = VENUES.iter().flat_map(|spec| spec.apis).map(|api| (*api, self.base(api)));
        let sockets = VENUES.iter().flat_map(|spec| spec.sockets).map(|path| (*path, self.socket(path)));
        apis.chain(sockets).collect()
    }

    /// What was asked and answered since the start.
    pub fn stats(&self) -> Stats {
        self.house.stats()
    }

    /// What `GET /_sim/requests` answers.
    pub fn requests(&self) -> String {
        self.house.requests.to_text()
    }

    /// From now on these are the venue's faults; those set before are off.
    pub fn set_faults(&self, venue: &str, faults: Faults) -> Result<(), SimError> {
        self.house.set_faults(venue, faults)
    }

    /// Ends every connection and waits for the tasks to be gone.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.accepting.await;
    }
}

/// Takes connections until told to stop; then ends those it has.
async fn accept_all(listener: TcpListener, house: Arc<House>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    for floor in house.floors() {
        connections.spawn(Arc::clone(floor).run());
    }
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break, // told to, or the `Sim` is gone
            Some(_) = connections.join_next() => {}
            taken = listener.accept() => match taken {
                Ok((stream, client)) => drop(connections.spawn(serve(stream, client.ip(), Arc::clone(&house)))),
                // Out of descriptors, most often: others end before long.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, client: IpAddr, house: Arc<House>) {
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(Notify::new());
    let pending = Arc::new(Mutex::new(None));
    let service = service_fn(|request| {
        let (house, reset, pending) = (Arc::clone(&house), Arc::clone(&reset), Arc::clone(&pending));
        async move { Ok::<_, Infallible>(house.answer(client, request, &reset, &pending).await) }
    });
    // The date is the clock's, not the machine's: see `Desk::respond`.
    let mut connection = http1::Builder::new()
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        biased;
        () = reset.notified() => {
            if let Some(parts) = connection.into_parts() {
                let _ = parts.io.into_inner().set_zero_linger(); // closing then sends a reset
            }
            return;
        }
        // An error here is a client that went away, or a body that was cut off on purpose.
        _ = &mut connection => {}
    }
    let upgraded: Option<Pending> = lock(&pending).take();
    if let Some(upgraded) = upgraded {
        upgraded.run().await;
    }
}

/// Every venue, and what they share.
pub(crate) struct House {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) desks: Vec<Desk>,
    pub(crate) requests: RequestLog,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let venues: Vec<&str> = self.desks.iter().map(|desk| desk.spec.id).collect();
        f.debug_struct("House").field("venues", &venues).finish_non_exhaustive()
    }
}

/// One venue, its limits, its faults and its figures.
pub(crate) struct Desk {
    pub(crate) spec: &'static VenueSpec,
    pub(crate) floor: Option<Arc<Floor>>,
    venue: Box<dyn Venue>,
    seed: u64,
    gzip: bool,
    asked: AtomicU64,
    limits: Mutex<Limits>,
    pub(crate) trouble: Mutex<Trouble>,
    stats: Mutex<BTreeMap<&'static str, EndpointStats>>,
}

/// The faults in force.
pub(crate) struct Trouble {
    pub(crate) faults: Arc<Faults>,
    hidden: Option<Limits>,
    until: Option<Monotonic>,
}

impl Trouble {
    fn new(faults: Faults, now: Monotonic) -> Self {
        Self {
            hidden: faults.hidden_limit.clone().map(|rule| Limits::new(vec![rule])),
            until: faults.for_ms.map(|ms| Monotonic(now.0 + Duration::from_millis(ms))),
            faults: Arc::new(faults),
        }
    }
}

impl House {
    fn new(config: &SimConfig, clock: Arc<dyn Clock>) -> Self {
        let (start_ms, now) = (clock.wall().ms().get(), clock.monotonic());
        let open = |(number, spec): (u64, &&'static VenueSpec)| {
            let Opened { venue, limits, faults, floor } = (spec.open)(config, &clock);
            venue.set_rates(start_ms, faults.births_per_min, faults.deaths_per_min);
            Desk {
                spec,
                floor,
                venue,
                seed: Dice::at(&[config.seed, number, 0xde5c]).next(),
                gzip: config.gzip,
                asked: AtomicU64::new(0),
                limits: Mutex::new(Limits::new(limits)),
                trouble: Mutex::new(Trouble::new(faults, now)),
                stats: Mutex::default(),
            }
        };
        let desks = (0..).zip(VENUES).map(open).collect();
        Self { clock, desks, requests: RequestLog::new(config.request_log) }
    }

    async fn answer(
        &self,
        client: IpAddr,
        mut request: Request<Incoming>,
        reset: &Notify,
        pending: &Mutex<Option<Pending>>,
    ) -> Response<SimBody> {
        let came = self.clock.monotonic();
        let handshake = Handshake::of(&mut request);
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, REQUEST_BYTES_MAX).collect().await else {
            return plain(Answer::text(413, "Payload Too Large"));
        };
        let body = body.to_bytes();
        let path = head.uri.path().trim_start_matches('/');
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let query = Query(head.uri.query().unwrap_or(""));
        if first == "_sim" {
            return plain(self.control(&head.method, rest, query, &body));
        }
        let Some(desk) = self.desks.iter().find(|desk| desk.spec.id == first) else {
            return plain(Answer::text(404, "404: no such venue; GET /_sim/stats names those there are\n"));
        };
        let upgrades = desk.floor.as_ref().zip(handshake).filter(|(floor, _)| floor.has_socket(rest));
        let endpoint = if upgrades.is_some() { "ws" } else { desk.venue.endpoint(&head.method, rest) };
        let visit = Visit {
            client,
            method: &head.method,
            path: rest,
            query,
            headers: &head.headers,
            body: &body,
            endpoint,
        };
        self.requests.note(came, client, visit.endpoint);
        match upgrades {
            Some((floor, handshake)) => desk.upgrade(&visit, floor, handshake, &*self.clock, pending),
            None => desk.serve(&visit, &*self.clock, reset).await,
        }
    }

    pub(crate) fn set_faults(&self, venue: &str, faults: Faults) -> Result<(), SimError> {
        check_faults(venue, &faults)?;
        let desk = self.desk(venue)?;
        desk.venue.set_rates(self.clock.wall().ms().get(), faults.births_per_min, faults.deaths_per_min);
        if let Some(floor) = &desk.floor {
            floor.lift();
        }
        for fault in &faults.stream {
            self.inject(venue, fault)?;
        }
        *lock(&desk.trouble) = Trouble::new(faults, self.clock.monotonic());
        Ok(())
    }

    pub(crate) fn desk(&self, venue: &str) -> Result<&Desk, SimError> {
        let unknown = || SimError::config(venue, "is not a venue of the simulation");
        self.desks.iter().find(|desk| desk.spec.id == venue).ok_or_else(unknown)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.desks.iter().map(|desk| (desk.spec.id, lock(&desk.stats).clone())).collect()
    }

    pub(crate) fn now(&self) -> (i64, Monotonic) {
        (self.clock.wall().ms().get(), self.clock.monotonic())
    }
}

/// A request, as it stands at a venue's desk.
struct Visit<'a> {
    client: IpAddr,
    method: &'a Method,
    path: &'a str,
    query: Query<'a>,
    headers: &'a HeaderMap,
    body: &'a Bytes,
    endpoint: &'static str,
}

impl Visit<'_> {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

impl Desk {
    async fn serve(&self, visit: &Visit<'_>, clock: &dyn Clock, reset: &Notify) -> Response<SimBody> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        self.count(visit.endpoint, |stats| stats.requests += 1);
        if let Some(answer) = self.venue.turn_away(visit.header(header::USER_AGENT)) {
            return self.respond(visit, answer, clock);
        }
        match self.judge(visit, clock) {
            Verdict::Pass => {}
            Verdict::Delay(delay) => {
                self.count(visit.endpoint, |stats| {
                    stats.delays += 1;
                    stats.delay_ms += delay.as_millis() as u64;
                });
                tokio::time::sleep(delay).await;
            }
            Verdict::Refuse { wait, retry_after } => {
                self.count(visit.endpoint, |stats| stats.refusals += 1);
                let answer = retry_at(self.venue.refusal(), &retry_after, clock, wait);
                return self.respond(visit, answer, clock);
            }
        }
        let faults = self.faults((clock.wall().ms().get(), clock.monotonic()));
        let fate = faults.draw(visit.endpoint, &mut Dice::at(&[self.seed, number]));
        if !fate.latency.is_zero() {
            tokio::time::sleep(fate.latency).await;
        }
        match fate.instead {
            Some(instead) => self.instead(visit, instead, &faults, clock, reset).await,
            None => self.truly(visit, fate, &faults, clock).await,
        }
    }

    /// Lets a client in to the streams, if the limits and the faults for `ws` have nothing against it.
    fn upgrade(
        &self,
        visit: &Visit<'_>,
        floor: &Arc<Floor>,
        handshake: Handshake,
        clock: &dyn Clock,
        pending: &Mutex<Option<Pending>>,
    ) -> Response<SimBody> {
        self.count(visit.endpoint, |stats| stats.requests += 1);
        if let Verdict::Refuse { wait, retry_after } = self.judge(visit, clock) {
            self.count(visit.endpoint, |stats| stats.refusals += 1);
            let refused = Answer::text(429, "Too Many Requests");
            return self.respond(visit, retry_at(refused, &retry_after, clock, wait), clock);
        }
        let Some((conn, line)) = floor.open(visit.path, visit.query) else {
            return self.respond(visit, Answer::text(503, "too many connections"), clock);
        };
        let mut response = self.respond(visit, Answer::text(101, ""), clock);
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, handshake.accept.clone());
        *lock(pending) = Some(Pending { handshake, floor: Arc::clone(floor), conn, line });
        response
    }

    fn judge(&self, visit: &Visit<'_>, clock: &dyn Clock) -> Verdict {
        let now = clock.monotonic();
        self.faults((clock.wall().ms().get(), now)); // those whose time is over are taken out of force
        if let Some(hidden) = &mut lock(&self.trouble).hidden {
            match hidden.ask(visit.client, visit.endpoint, now.0) {
                Verdict::Pass => {}
                verdict => return verdict,
            }
        }
        lock(&self.limits).ask(visit.client, visit.endpoint, now.0)
    }

    /// The faults in force; those whose time is over are not.
    pub(crate) fn faults(&self, (now_ms, now): (i64, Monotonic)) -> Arc<Faults> {
        let mut trouble = lock(&self.trouble);
        if let Some(until) = trouble.until.filter(|until| *until <= now) {
            *trouble = Trouble::new(Faults::default(), now);
            // Births and deaths stop when its time was over, not when somebody next asked.
            self.venue.set_rates(now_ms - now.since(until).as_millis() as i64, None, None);
        }
        Arc::clone(&trouble.faults)
    }

    /// The venue's answer, and what happens to it on its way.
    async fn truly(
        &self,
        visit: &Visit<'_>,
        fate: Fate,
        faults: &Faults,
        clock: &dyn Clock,
    ) -> Response<SimBody> {
        let mut ask = Ask {
            method: visit.method,
            path: visit.path,
            query: visit.query,
            body: visit.body,
            client: visit.client,
            now_ms: clock.wall().ms().get(),
            twist: fate.twist,
        };
        let mut answer = self.venue.answer(&mut ask);
        let Some(fault) = fate.body else {
            let packs = self.gzip && visit.header(header::ACCEPT_ENCODING).contains("gzip");
            let answer = if packs { pack(answer).await } else { answer };
            return self.respond(visit, answer, clock);
        };
        self.count(visit.endpoint, |stats| *stats.faults.entry(fault.name()).or_default() += 1);
        if fault == BodyFault::Truncated {
            answer.body.truncate(answer.body.len() / 2);
        }
        let mut response = self.respond(visit, answer, clock);
        if let SimBody::Whole(bytes) = response.body_mut() {
            let bytes = std::mem::take(bytes);
            *response.body_mut() = match fault {
                BodyFault::Truncated => SimBody::Whole(bytes),
                BodyFault::Cut => SimBody::cut(bytes),
                BodyFault::Slow => SimBody::slow(bytes, faults.slow_bytes_per_s),
            };
        }
        response
    }

    async fn instead(
        &self,
        visit: &Visit<'_>,
        instead: Instead,
        faults: &Faults,
        clock: &dyn Clock,
        reset: &Notify,
    ) -> Response<SimBody> {
        self.count(visit.endpoint, |stats| *stats.faults.entry(instead.name()).or_default() += 1);
        let retry = |answer| {
            retry_at(answer, &faults.retry_after, clock, Duration::from_millis(faults.retry_after_ms))
        };
        let answer = match instead {
            Instead::Hang => std::future::pending().await,
            Instead::Reset => {
                reset.notify_one();
                std::future::pending().await
            }
            Instead::Banned => retry(Answer::json(418, pair("msg", "banned until further notice"))),
            Instead::Forbidden => Answer::html(403, "Attention Required! | Cloudflare"),
            Instead::Refused if faults.refused_html => {
                retry(Answer::html(429, "Access denied | Error 1015 | You are being rate limited"))
            }
            Instead::Refused => retry(self.venue.refusal()),
            Instead::ServerError => Answer::html(faults.server_error_status, "Service unavailable"),
            Instead::Redirect => {
                let target = format!("{}/{}/{}", faults.redirect_to, self.spec.id, visit.path);
                Answer::text(302, "").header("location", &target)
            }
            Instead::Html200 => Answer::html(200, "Just a moment..."),
            Instead::Error200 => Answer::json(200, pair("error", "Too Many Requests")),
            Instead::GzipBomb => Answer::json(200, "").header("content-encoding", "gzip"),
        };
        let mut response = self.respond(visit, answer, clock);
        if instead == Instead::GzipBomb {
            *response.body_mut() = SimBody::Bomb(Bomb::new(faults.gzip_bomb_mib));
        }
        response
    }

    fn respond(&self, visit: &Visit<'_>, answer: Answer, clock: &dyn Clock) -> Response<SimBody> {
        self.count(visit.endpoint, |stats| {
            *stats.answers.entry(answer.status).or_default() += 1;
            stats.books += answer.books;
            stats.bytes += answer.body.len() as u64;
        });
        let mut response = plain(answer);
        if let Ok(date) = HeaderValue::from_str(&http_date(clock.wall().ms().get())) {
            response.headers_mut().insert(header::DATE, date);
        }
        response
    }

    fn count(&self, endpoint: &'static str, change: impl FnOnce(&mut EndpointStats)) {
        change(lock(&self.stats).entry(endpoint).or_default());
    }
}

fn retry_at(answer: Answer, retry_after: &RetryAfter, clock: &dyn Clock, wait: Duration) -> Answer {
    match retry_after.header(clock.wall().ms().get(), wait) {
        Some(value) => answer.header("retry-after", &value),
        None => answer,
    }
}

/// Compresses the body where it holds nobody up.
async fn pack(answer: Answer) -> Answer {
    let body = answer.body.clone();
    let packed = tokio::task::spawn_blocking(move || -> io::Result<Vec<u8>> {
        let mut packer = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        packer.write_all(&body)?;
        packer.finish()
    });
    match packed.await {
        Ok(Ok(packed)) => Answer { body: packed.into(), ..answer }.header("content-encoding", "gzip"),
        _ => answer,
    }
}

fn plain(answer: Answer) -> Response<SimBody> {
    let mut response = Response::new(SimBody::Whole(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).expect("our own statuses are sound");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.extend(answer.headers);
    response
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock can panic")
}
