//! The only HTTP client of the program. One a venue.
//!
//! ```text
//! send(permit, request) ─▶ depart ─▶ connect ─▶ headers ─▶ body, counted chunk by chunk ─▶ read_status ─▶ flight.end
//!                            │           └────────── one deadline over all of it ──────────┘                 │
//!                       too old: Expired                                        whatever came of it, the governor knows
//! ```
//!
//! What it does not do, and why:
//! * It does not follow redirects. Each would be a request without a permit, and an API that moves is a matter for a
//!   person: the error names the place.
//! * It does not try again. Retries have a budget, and the governor has it. A connection that turns out to be closed
//!   before anything was written on it is replaced; nothing has left then.
//! * It asks for gzip and deflate only. Their windows have 32 KiB whatever the sender says; zstd and brotli let the
//!   sender choose how much memory the receiver takes. What comes packed otherwise is refused.
//! * It looks at no proxy variable of the environment. A proxy is configured or there is none.
//! * HTTP/1.1 only: a request that hangs holds up no other.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catchment_governor::{Permit, Report};
use catchment_model::{Clock, Monotonic, UnixMs, UnixNs};
use catchment_venues::stream::Descriptor;
use catchment_venues::{Method, Reading, Request, VenueSpec};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_ENCODING, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Proxy, Url, redirect, retry};
use tokio::time::timeout;

use crate::events;
use crate::send_error::{Phase, SendError, Unresolved};
use crate::spares::Spares;
use crate::stream::{ClockGauge, ClockQuality};
use crate::tally::{CourierCounts, Tally};
use crate::tls;

/// Room for a body whose length is not known yet, and at most for one whose length is merely claimed.
const BODY_ROOM: usize = 256 << 10;

/// `Date` has whole seconds.
const DATE_STEP: Duration = Duration::from_secs(1);

/// Carries requests to one venue and brings back what it says.
pub struct Courier {
    venue: &'static str,
    read_status: ReadStatus,
    settings: CourierSettings,
    client: Client,
    clock: Arc<dyn Clock>,
    tally: Tally,
    /// What the `Date` of its answers says of its clock.
    dates: Mutex<ClockGauge>,
    spares: Spares,
}

/// What a status and a body mean at a venue, in answer to a request of that family.
pub type ReadStatus = Box<dyn Fn(&str, u16, &[u8]) -> Reading + Send + Sync>;

/// What the user may set.
#[derive(Clone)]
pub struct CourierSettings {
    /// Who we are. Venues turn away clients without a name of their own.
    pub user_agent: String,
    /// From departure to the body's last byte.
    pub deadline: Duration,
    /// For name, connection and handshake together.
    pub connect_deadline: Duration,
    /// The longest answer taken, unpacked.
    pub body_bytes_max: usize,
    /// Connections kept open for the next request, to each host. Those in use are as many as the governor lets fly.
    pub connections_max: usize,
    /// How long one is kept unused.
    pub connection_idle: Duration,
    /// `http://…`: requests go by way of it. The environment is not asked.
    pub proxy: Option<String>,
    /// Authorities to trust besides the built-in ones, in PEM.
    pub extra_roots: Vec<Vec<u8>>,
    /// The local address requests leave from; the system's choice without one.
    pub local_address: Option<std::net::IpAddr>,
}

impl Default for CourierSettings {
    fn default() -> Self {
        Self {
            user_agent: concat!("catchment/", env!("CARGO_PKG_VERSION"), " (+market data recorder)")
                .to_owned(),
            deadline: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(3),
            body_bytes_max: 32 << 20,
            connections_max: 32,
            connection_idle: Duration::from_secs(30),
            proxy: None,
            extra_roots: Vec::new(),
            local_address: None,
        }
    }
}

impl fmt::Debug for CourierSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CourierSettings")
            .field("user_agent", &self.user_agent)
            .field("deadline", &self.deadline)
            .field("connect_deadline", &self.connect_deadline)
            .field("body_bytes_max", &self.body_bytes_max)
            .field("connections_max", &self.connections_max)
            .field("connection_idle", &self.connection_idle)
            // Its address may hold a password.
            .field("proxy", &self.proxy.as_ref().map(|_| "set"))
            .field("extra_roots", &self.extra_roots.len())
            .field("local_address", &self.local_address)
            .finish()
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// What status and body mean at this venue.
    pub reading: Reading,
    /// The body, unpacked.
    pub body: Bytes,
    /// When the body's last byte was read, before anything was parsed.
    pub received_at: UnixNs,
    /// When the request left.
    pub sent_at: Monotonic,
    /// From there to the body's last byte.
    pub latency: Duration,
    /// The venue's clock, as its `Date` header has it: whole seconds.
    pub date: Option<UnixMs>,
}

impl Courier {
    /// A courier to this venue. Connects to nobody yet.
    pub fn new(
        spec: &'static VenueSpec,
        settings: CourierSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SendError> {
        Self::with_resolver(spec.id, Box::new(spec.read_status), settings, clock, Arc::new(SystemNames))
    }

    /// A courier to a venue that is described in a file.
    pub fn described(
        descriptor: &Descriptor,
        settings: CourierSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SendError> {
        let (venue, descriptor) = (descriptor.id(), descriptor.clone());
        let read_status = move |_family: &str, status, body: &[u8]| descriptor.read_status(status, body);
        Self::with_resolver(venue, Box::new(read_status), settings, clock, Arc::new(SystemNames))
    }

    pub(crate) fn with_resolver(
        venue: &'static str,
        read_status: ReadStatus,
        settings: CourierSettings,
        clock: Arc<dyn Clock>,
        names: Arc<dyn Resolve>,
    ) -> Result<Self, SendError> {
        let setup = |error: reqwest::Error| SendError::Setup { reason: error.without_url().to_string() };
        let builder = Client::builder()
            .user_agent(settings.user_agent.as_str())
            .connect_timeout(settings.connect_deadline)
            .pool_max_idle_per_host(settings.connections_max)
            .pool_idle_timeout(settings.connection_idle)
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .http1_only()
            .dns_resolver(names)
            .tls_backend_preconfigured(tls::client(&settings.extra_roots)?)
            .local_address(settings.local_address)
            .no_proxy();
        let builder = match &settings.proxy {
            Some(url) => builder.proxy(Proxy::all(url.as_str()).map_err(setup)?),
            None => builder,
        };
        let client = builder.build().map_err(setup)?;
        Ok(Self {
            venue,
            read_status,
            settings,
            client,
            clock,
            tally: Tally::default(),
            dates: Mutex::default(),
            spares: Spares::default(),
        })
    }

    /// The only way a request leaves the process. Ends the permit's flight with what came of it. May be dropped
    /// midway: the connection is closed, and the flight counts as abandoned.
    pub async fn send(&self, permit: Permit, request: &Request) -> Result<Reply, SendError> {
        let sent = self.send_and_report(permit, request).await;
        let (venue, family) = (self.venue, request.family);
        match &sent {
            Ok(reply) => events::answered(&self.tally, venue, family, reply),
            Err(error) => events::not_answered(&self.tally, venue, family, error),
        }
        sent
    }

    /// How the venue's clock goes, by the `Date` of its answers: good to half a second and half of the way there and back.
    pub fn clock_quality(&self) -> ClockQuality {
        self.lock_dates().quality()
    }

    fn lock_dates(&self) -> MutexGuard<'_, ClockGauge> {
        self.dates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of the requests so far.
    pub fn counts(&self) -> CourierCounts {
        self.tally.counts()
    }

    async fn send_and_report(&self, permit: Permit, request: &Request) -> Result<Reply, SendError> {
        let prepared = self.prepare(request)?;
        let flight = permit.depart().map_err(|_expired| SendError::Expired)?;
        let sent_at = self.clock.monotonic();

        // Outside of the future that may be given up: a refusal counts even if its body never ends.
        let mut answer = Answer::default();
        let deadline = self.settings.deadline;
        let carried = timeout(deadline, self.carry(prepared, &mut answer)).await;
        let received_at = self.clock.wall();
        let latency = self.clock.monotonic().since(sent_at);

        let fault = match carried {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_elapsed) => Some(SendError::TimedOut { phase: answer.phase(), after: deadline }),
        };
        let Answer { status, headers, body } = answer;
        let told = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let (status, reading) = match (fault, status) {
            (None, Some(status)) => (status, (self.read_status)(request.family, status, &body)),
            (None, None) => unreachable!("what was carried without a fault has a status"),
            (Some(error), status) => {
                flight.end(report_of_fault(status, &error), told);
                return Err(error);
            }
        };
        flight.end(report(status, &reading), told);
        let date = headers.get(DATE).and_then(read_date);
        if let Some(date) = date {
            self.lock_dates().note(date, DATE_STEP, received_at, latency);
        }
        Ok(Reply { status, reading, body: self.spares.lend(body), received_at, sent_at, latency, date })
    }

    fn prepare(&self, request: &Request) -> Result<reqwest::Request, SendError> {
        let bad = |reason: String| SendError::BadRequest { reason };
        let url = Url::parse(&request.url).map_err(|error| bad(format!("its address is none: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("{} is neither http nor https", url.scheme())));
        }
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
        };
        let mut prepared = reqwest::Request::new(method, url);
        for (name, value) in &request.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|error| bad(error.to_string()))?;
            let value = HeaderValue::from_str(value).map_err(|error| bad(format!("{name}: {error}")))?;
            prepared.headers_mut().insert(known, value);
        }
        *prepared.body_mut() = request.body.clone().map(Into::into);
        Ok(prepared)
    }

    /// Fills in the answer as it comes.
    async fn carry(&self, prepared: reqwest::Request, answer: &mut Answer) -> Result<(), SendError> {
        let connect_deadline = self.settings.connect_deadline;
        let failed = |error| SendError::from_client(error, connect_deadline);
        let asked = prepared.url().clone();
        let mut response = self.client.execute(prepared).await.map_err(failed)?;
        answer.status = Some(response.status().as_u16());
        answer.headers = std::mem::take(response.headers_mut());
        answer.refuse_to_be_led(&asked)?;
        answer.refuse_strange_packing()?;

        let limit = self.settings.body_bytes_max;
        let too_large = || SendError::TooLarge { limit };
        let claimed = usize::try_from(response.content_length().unwrap_or(0)).unwrap_or(usize::MAX);
        if claimed > limit {
            return Err(too_large());
        }
        answer.body = self.spares.take(claimed);
        answer.body.reserve(claimed.min(BODY_ROOM));
        // Chunks come unpacked and are a few KiB each, so a bomb is noticed one chunk beyond the limit.
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if answer.body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            answer.body.extend_from_slice(&chunk);
        }
        Ok(())
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("venue", &self.venue).finish_non_exhaustive()
    }
}

/// What has come so far.
#[derive(Default)]
struct Answer {
    status: Option<u16>,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn phase(&self) -> Phase {
        if self.status.is_some() { Phase::Body } else { Phase::Answer }
    }

    fn refuse_to_be_led(&self, asked: &Url) -> Result<(), SendError> {
        let (Some(status @ 300..=399), Some(place)) = (self.status, self.headers.get(LOCATION)) else {
            return Ok(());
        };
        let place = String::from_utf8_lossy(place.as_bytes());
        let to = match asked.join(&place) {
            Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
            Err(_) => place.into_owned(),
        };
        Err(SendError::Redirected { status, to: to.chars().take(256).collect() })
    }

    /// The client takes the header away where it unpacks.
    fn refuse_strange_packing(&self) -> Result<(), SendError> {
        match self.headers.get(CONTENT_ENCODING) {
            Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
                let encoding: String =
                    String::from_utf8_lossy(encoding.as_bytes()).chars().take(64).collect();
                Err(SendError::Garbled { reason: format!("it is packed as {encoding:?}") })
            }
            _ => Ok(()),
        }
    }
}

/// What a whole answer means for the speed.
fn report(status: u16, reading: &Reading) -> Report {
    match (status, reading) {
        (_, Reading::Refused) => Report { is_refused: true, ..Report::status(status) },
        (418, _) => Report::status(418),
        // A firewall's page may come with any status. The governor knows a ban by 403.
        (_, Reading::Banned) => Report { is_firewall: true, ..Report::status(403) },
        // A page for people, with a good status: somebody else answers in the venue's place.
        (200..=299, Reading::Trouble(_)) => Report::broken(),
        _ => Report::status(status),
    }
}

/// What half an answer, or none, means for the speed.
fn report_of_fault(status: Option<u16>, error: &SendError) -> Report {
    match (status, error) {
        (Some(status @ (418 | 429 | 500..)), _) => Report::status(status),
        (_, SendError::TimedOut { .. }) => Report::timed_out(),
        _ => Report::broken(),
    }
}

fn read_date(value: &HeaderValue) -> Option<UnixMs> {
    let at = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    UnixMs::new(i64::try_from(since.as_millis()).ok()?).ok()
}

/// Asks the machine. Its own error type, so that it can be told from every other failure to connect.
struct SystemNames;

impl Resolve for SystemNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(Unresolved)?;
            let found: Vec<_> = found.collect();
            if found.is_empty() {
                return Err(Unresolved(io::ErrorKind::NotFound.into()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_governor::{Ask, Governor, Lane, MemoryBudget, Open, Parts, Settings};
    use catchment_model::SystemClock;

    use crate::families::limits_of;

    /// Says that there is no such name, or says nothing.
    struct Names {
        are_silent: bool,
    }

    impl Resolve for Names {
        fn resolve(&self, _name: Name) -> Resolving {
            let are_silent = self.are_silent;
            Box::pin(async move {
                if are_silent {
                    std::future::pending::<()>().await;
                }
                Err(Unresolved(io::Error::other("no such host")).into())
            })
        }
    }

    async fn send_with(names: Names) -> (SendError, Governor) {
        let spec = catchment_venues::find("limitless").unwrap();
        let opened = (spec.open)(&spec.endpoints([]).unwrap());
        let limits = limits_of(spec, &opened, 1.0).unwrap();
        let clock = Arc::new(SystemClock::new());
        let parts = Parts {
            clock: clock.clone(),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed: 1,
        };
        let governor = Governor::open("limitless", limits, Settings::default(), parts);
        let settings = CourierSettings { connect_deadline: Duration::from_millis(60), ..Default::default() };
        let read_status = Box::new(spec.read_status);
        let courier = Courier::with_resolver(spec.id, read_status, settings, clock, Arc::new(names)).unwrap();
        let permit = governor.acquire(Ask::new(governor.family("listing").unwrap(), Lane::Live)).await;
        let request = Request::get("http://venue.example/".to_owned(), "listing");
        (courier.send(permit, &request).await.unwrap_err(), governor)
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_told_as_such() {
        let (error, governor) = send_with(Names { are_silent: false }).await;
        assert_eq!(error.kind(), "dns", "{error:?}");
        assert!(error.with_sources().contains("no such host"), "{}", error.with_sources());
        assert_eq!(governor.snapshot().inflight, 0);
    }

    #[tokio::test]
    async fn names_that_are_not_answered_end_at_the_deadline_for_connecting() {
        let (error, governor) = send_with(Names { are_silent: true }).await;
        assert!(matches!(error, SendError::TimedOut { phase: Phase::Connect, .. }), "{error:?}");
        assert_eq!(governor.snapshot().inflight, 0);
    }
}
