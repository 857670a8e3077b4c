//! A desk to send from, and servers that misbehave as told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_collect::{Courier, CourierSettings, Reply, SendError, limits_of};
use catchment_governor::{Ask, Counts, Governor, HoldCause, Lane, MemoryBudget, Open, Parts, Settings};
use catchment_model::{Clock, SystemClock};
use catchment_sim::{Sim, SimConfig};
use catchment_venues::{Opened, Request, VenueSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What requests of these tests count as, at Limitless.
pub(crate) const FAMILY: &str = "listing";

pub(crate) fn venue(id: &str) -> &'static VenueSpec {
    catchment_venues::find(id).unwrap()
}

/// The venue's adapter, its endpoints in the simulation.
pub(crate) fn opened(id: &str, sim: &Sim) -> Opened {
    let urls: Vec<(&str, String)> = match id {
        "polymarket" => vec![("clob", sim.base("polymarket/clob")), ("gamma", sim.base("polymarket/gamma"))],
        _ => vec![("api", sim.base(id))],
    };
    let spec = venue(id);
    let endpoints = spec.endpoints(urls.iter().map(|(name, url)| (*name, url.as_str()))).unwrap();
    (spec.open)(&endpoints)
}

pub(crate) async fn sim(config: SimConfig) -> Sim {
    Sim::start(config, Arc::new(SystemClock::new())).await.unwrap()
}

/// Retries are free soon, so that no test waits for them.
pub(crate) fn quick() -> Settings {
    Settings { retry_window: Duration::from_millis(16), ..Settings::default() }
}

pub(crate) fn governor(id: &str, settings: Settings, clock: Arc<dyn Clock>) -> Governor {
    let spec = venue(id);
    let opened = (spec.open)(&spec.endpoints([]).unwrap());
    let limits = limits_of(spec, &opened, 1.0).unwrap();
    let parts = Parts {
        clock,
        budget: Arc::new(MemoryBudget::new(limits.clone())),
        limiter: Box::new(|_family, _ceiling| Box::new(Open)),
        notebook: None,
        seed: 1,
    };
    Governor::open(id, limits, settings, parts)
}

/// A governor and a courier of Limitless.
pub(crate) struct Desk {
    pub(crate) governor: Governor,
    pub(crate) courier: Arc<Courier>,
}

impl Desk {
    pub(crate) fn new(settings: CourierSettings) -> Self {
        let clock = Arc::new(SystemClock::new());
        let governor = governor("limitless", quick(), clock.clone());
        let courier = Arc::new(Courier::new(venue("limitless"), settings, clock).unwrap());
        Self { governor, courier }
    }

    pub(crate) async fn permit(&self) -> catchment_governor::Permit {
        self.governor.acquire(Ask::new(self.governor.family(FAMILY).unwrap(), Lane::Live)).await
    }

    pub(crate) async fn get(&self, url: impl Into<String>) -> Result<Reply, SendError> {
        self.courier.send(self.permit().await, &Request::get(url.into(), FAMILY)).await
    }

    /// Sends, expects a failure of this kind, and that the governor has counted it as this.
    pub(crate) async fn fails(&self, url: impl Into<String>, kind: &str, counted: &str) -> SendError {
        let error = self.get(url).await.expect_err(kind);
        assert_eq!(error.kind(), kind, "{}", error.with_sources());
        assert_eq!(self.counted(), format!("granted=1 {counted}=1"), "{}", error.with_sources());
        let failed = self.courier.counts().failed;
        assert_eq!(failed.iter().find(|(name, _)| *name == kind), Some(&(error.kind(), 1)));
        error
    }

    /// What the governor has counted, in words; nothing is under way any more.
    pub(crate) fn counted(&self) -> String {
        let snapshot = self.governor.snapshot();
        assert_eq!(snapshot.inflight, 0, "a slot is not free");
        let counts: Counts = snapshot.families.iter().find(|family| family.name == FAMILY).unwrap().counts;
        let all = [
            ("granted", counts.granted),
            ("unsent", counts.unsent),
            ("answered", counts.answered),
            ("refused", counts.refused),
            ("failed", counts.failed),
            ("timed_out", counts.timed_out),
            ("banned", counts.banned),
            ("abandoned", counts.abandoned),
        ];
        let some = all.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}={count}"));
        some.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn hold(&self) -> Option<(Duration, HoldCause)> {
        self.governor.snapshot().hold
    }
}

/// A server on loopback that does to every connection what it was told.
pub(crate) struct Raw {
    pub(crate) addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    _serving: JoinSet<()>,
}

#[derive(Default, Clone)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// The heads of the requests that came.
    pub(crate) heads: Vec<String>,
}

/// What becomes of a request.
#[derive(Clone)]
pub(crate) enum Act {
    /// These bytes, and the connection stays.
    Answer(Vec<u8>),
    /// These bytes, and it ends.
    AnswerAndClose(Vec<u8>),
    /// These bytes, and then nothing.
    AnswerAndHang(Vec<u8>),
}

impl Raw {
    /// `act` says what the n-th request gets, from 0.
    pub(crate) async fn start(act: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut serving = JoinSet::new();
        let (shared, act) = (Arc::clone(&seen), Arc::new(act));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                let (shared, act) = (Arc::clone(&shared), Arc::clone(&act));
                connections.spawn(async move { serve(stream, &shared, &*act).await });
            }
        });
        Self { addr, seen, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/path", self.addr)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, seen: &Mutex<Seen>, act: &(dyn Fn(usize) -> Act + Send + Sync)) {
    while let Some(head) = read_head(&mut stream).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.heads.push(head);
            seen.heads.len() - 1
        };
        let (bytes, then) = match act(number) {
            Act::Answer(bytes) => (bytes, "stay"),
            Act::AnswerAndClose(bytes) => (bytes, "close"),
            Act::AnswerAndHang(bytes) => (bytes, "hang"),
        };
        let _ = stream.write_all(&bytes).await;
        match then {
            "stay" => {}
            "close" => return,
            _ => std::future::pending().await,
        }
    }
}

/// The head of a request without a body; nothing once the connection has ended.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// An answer with this status, these further headers, and this body.
pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
