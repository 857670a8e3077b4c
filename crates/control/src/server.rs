//! A small HTTP server. It answers what it was asked at the moment it was asked; nothing is kept between requests.
//!
//! What anybody can make it hold is bounded: connections, their age, the length and the number of headers, the length of a
//! body, and the time that each of them may take.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::api::http::json;
use crate::api::{self, Desk, Problem};
use crate::gate::{Gate, Token, gate};
use crate::health::Health;
use crate::{Status, metrics, mount};

/// The page; it asks for the figures once a second.
const PAGE: &str = include_str!("page.html");
/// The page brings all it needs; nothing is loaded from elsewhere and nobody may frame it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
/// So many connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 64;
/// How long somebody may take to say what they want, and to want something more.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// So many headers,
const HEADERS_MAX: usize = 64;
/// and so many bytes of them.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// How long an answer may take to be made.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// After so long a connection is asked to end with what it is at,
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// and has so long for it: whoever does not read his answer is not waited for.
const LAST_ANSWER: Duration = Duration::from_secs(30);
/// How long the door rests after it could not be opened: out of file descriptors, most likely.
const REST: Duration = Duration::from_millis(200);

type Look = Arc<dyn Fn() -> Status + Send + Sync>;

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct Control {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

/// Where it listens and to whom.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// Where. Beyond loopback only with a token.
    pub listen: SocketAddr,
    /// What everybody has to show; none: nothing.
    pub token: Option<Token>,
    /// A server on this machine whose paths under `/mock/` are to be found here, too.
    pub mock: Option<SocketAddr>,
}

impl From<SocketAddr> for ControlSettings {
    fn from(listen: SocketAddr) -> Self {
        Self { listen, token: None, mock: None }
    }
}

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Other machines could come, and nobody would ask them for anything.
    #[error(
        "{0} can be reached from other machines, and there is no token: name a file with one in [api] token_file, put \
         it into CATCHMENT_API_TOKEN, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// Somebody else is there.
    #[error("cannot listen on {addr}; choose another place for [api] listen")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl ControlSettings {
    /// Whether these may be used at all. Touches nothing.
    pub fn check(&self) -> Result<(), ControlError> {
        match self.listen.ip().is_loopback() || self.token.is_some() {
            true => Ok(()),
            false => Err(ControlError::Exposed(self.listen)),
        }
    }
}

/// A place of its own, where nobody is answered yet: whoever comes waits.
#[derive(Debug)]
pub struct Reserved {
    addr: SocketAddr,
    listener: TcpListener,
    mock: Option<SocketAddr>,
    gate: Gate,
}

impl Reserved {
    /// Where it is.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// With the paths under `/mock/` of that server on this machine.
    #[must_use]
    pub fn mount(self, mock: Option<SocketAddr>) -> Self {
        Self { mock, ..self }
    }

    /// Starts to answer; `look` gives the figures whenever somebody asks, `desk` does what somebody wants. Without a desk
    /// there are only figures.
    pub fn serve(self, look: impl Fn() -> Status + Send + Sync + 'static, desk: Option<Desk>) -> Control {
        let router = router(Arc::new(look), desk, self.mock, Arc::new(self.gate));
        Control { addr: self.addr, serving: tokio::spawn(serve(self.listener, router)) }
    }
}

impl Control {
    /// Takes the place, if it is free.
    pub async fn reserve(settings: impl Into<ControlSettings>) -> Result<Reserved, ControlError> {
        let settings = settings.into();
        settings.check()?;
        let ControlSettings { listen: addr, token, mock } = settings;
        let refused = |source| ControlError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(refused)?;
        let is_loopback = addr.ip().is_loopback();
        let addr = listener.local_addr().map_err(refused)?;
        Ok(Reserved { addr, listener, mock, gate: Gate { token, is_loopback } })
    }

    /// Both at once.
    pub async fn start(
        settings: impl Into<ControlSettings>,
        look: impl Fn() -> Status + Send + Sync + 'static,
        desk: Option<Desk>,
    ) -> Result<Self, ControlError> {
        Ok(Self::reserve(settings).await?.serve(look, desk))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut guests = tokio::task::JoinSet::new();
    loop {
        while guests.try_join_next().is_some() {}
        let seat = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                guests.spawn(async move {
                    attend(stream, router).await;
                    drop(seat);
                });
            }
            Err(error) => {
                warn!(%error, "the status page could not take a connection");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Whoever hangs up in the middle is nobody's trouble.
async fn attend(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    tokio::pin!(connection);
    if tokio::time::timeout(CONNECTION_AGE, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
}

#[derive(Clone)]
struct Figures {
    look: Look,
    gate: Arc<Gate>,
}

fn router(look: Look, desk: Option<Desk>, mock: Option<SocketAddr>, the_gate: Arc<Gate>) -> Router {
    let figures = Router::new()
        .route("/", get(page))
        .route("/livez", get(async || text("ok\n")))
        .route("/readyz", get(ready))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(status))
        .with_state(Figures { look, gate: Arc::clone(&the_gate) });
    let all = match desk {
        Some(desk) => {
            let (router, _) = api::routes();
            let description: Bytes = api::openapi().into();
            let describe = move || async move { respond("application/json", description) };
            let router = router.route("/openapi.json", get(describe)).with_state(desk);
            figures.nest("/api/v1", router)
        }
        None => figures,
    };
    let all = match mock {
        Some(mock) => all.merge(Router::new().route("/mock/{*path}", get(mount::forward)).with_state(mock)),
        None => all,
    };
    all.method_not_allowed_fallback(async |method: Method| Problem::method(&method))
        .fallback(async |uri: Uri| Problem::no_place(uri.path()))
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn_with_state(the_gate, gate))
        .layer(middleware::map_response(with_policy))
}

async fn page() -> Response {
    respond("text/html; charset=utf-8", PAGE.into())
}

async fn status(State(figures): State<Figures>) -> Response {
    json(StatusCode::OK, &(figures.look)())
}

/// Why it is not ready is told to whoever may see the rest, too.
async fn ready(State(figures): State<Figures>, headers: HeaderMap) -> Response {
    let reasons = (figures.look)().not_ready;
    let code = readiness(&reasons);
    let is_ready = reasons.is_empty();
    let reasons = if figures.gate.knows(&headers) { reasons } else { Vec::new() };
    json(code, &serde_json::json!({ "ready": is_ready, "reasons": reasons }))
}

async fn health(State(figures): State<Figures>) -> Response {
    let status = (figures.look)();
    json(readiness(&status.not_ready), &Health::of(&status))
}

async fn metrics(State(figures): State<Figures>) -> Response {
    respond(metrics::CONTENT_TYPE, metrics::page(&(figures.look)()).into())
}

fn readiness(not_ready: &[String]) -> StatusCode {
    if not_ready.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Nobody waits for ever.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::too_late(ANSWER_DEADLINE).into_response(),
    }
}

async fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn text(text: &'static str) -> Response {
    respond("text/plain; charset=utf-8", text.into())
}

fn respond(kind: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(axum::body::Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn start(not_ready: &'static [&'static str]) -> Control {
        let look = move || Status {
            not_ready: not_ready.iter().map(|&reason| reason.to_owned()).collect(),
            ..Status::default()
        };
        Control::start("127.0.0.1:0".parse::<SocketAddr>().unwrap(), look, None).await.unwrap()
    }

    /// The status line and the rest.
    async fn ask(control: &Control, method: &str, path: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(control.addr()).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (status, rest) = answer.split_once("\r\n").unwrap();
        (status.to_owned(), rest.to_owned())
    }

    #[tokio::test]
    async fn the_figures_are_shown_as_a_page_and_as_json() {
        let control = start(&[]).await;
        let (status, page) = ask(&control, "GET", "/", "localhost:8080").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(page.contains("<title>Catchment</title>") && page.contains("default-src 'none'"), "{page}");
        let (status, figures) = ask(&control, "GET", "/api/v1/status", "127.0.0.1").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(figures.contains("\"balances\":[]"), "{figures}");
    }

    #[tokio::test]
    async fn a_recorder_that_accepts_nothing_is_alive_but_not_ready() {
        let control = start(&["the disk is full"]).await;
        assert_eq!(ask(&control, "GET", "/livez", "localhost").await.0, "HTTP/1.1 200 OK");
        let (status, reasons) = ask(&control, "GET", "/readyz", "[::1]:80").await;
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
        assert!(reasons.ends_with(r#"{"ready":false,"reasons":["the disk is full"]}"#), "{reasons}");
        assert_eq!(ask(&start(&[]).await, "GET", "/readyz", "localhost").await.0, "HTTP/1.1 200 OK");
        let (status, health) = ask(&control, "GET", "/healthz", "localhost").await;
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
        assert!(health.contains(r#""status":"not ready""#), "{health}");
    }

    #[tokio::test]
    async fn the_figures_are_there_for_prometheus_too() {
        let (status, page) = ask(&start(&[]).await, "GET", "/metrics", "localhost").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(page.contains("text/plain; version=0.0.4"), "{page}");
        assert!(page.contains("\ncatchment_ready 1\n"), "{page}");
    }

    #[tokio::test]
    async fn nothing_can_be_changed_and_no_other_name_is_answered() {
        let control = start(&[]).await;
        assert_eq!(ask(&control, "POST", "/", "localhost").await.0, "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(ask(&control, "GET", "/nowhere", "localhost").await.0, "HTTP/1.1 404 Not Found");
        assert_eq!(ask(&control, "GET", "/", "evil.example").await.0, "HTTP/1.1 403 Forbidden");
        assert_eq!(ask(&control, "GET", "/", "127.0.0.1.evil.example").await.0, "HTTP/1.1 403 Forbidden");
    }

    #[tokio::test]
    async fn what_is_shown_of_another_server_is_its_answer_and_only_under_its_path() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = ControlSettings::from("127.0.0.1:0".parse::<SocketAddr>().unwrap());
        settings.mock = Some(other.local_addr().unwrap());
        let control = Control::start(settings, Status::default, None).await.unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = other.accept().await.unwrap();
            let mut asked = vec![0; 1024];
            let read = stream.read(&mut asked).await.unwrap();
            stream.write_all(b"HTTP/1.0 418 Teapot\r\ncontent-type: text/tea\r\n\r\nhot").await.unwrap();
            String::from_utf8(asked[..read].to_vec()).unwrap()
        });
        let (status, rest) = ask(&control, "GET", "/mock/rest/time?x=1", "localhost").await;
        assert_eq!(status, "HTTP/1.1 418 I'm a teapot");
        assert!(rest.contains("content-type: text/tea") && rest.ends_with("\r\n\r\nhot"), "{rest}");
        assert!(served.await.unwrap().starts_with("GET /mock/rest/time?x=1 HTTP/1.0\r\n"));
        assert_eq!(ask(&control, "GET", "/mock/rest/time", "localhost").await.0, "HTTP/1.1 502 Bad Gateway");
        assert_eq!(ask(&control, "GET", "/_sim", "localhost").await.0, "HTTP/1.1 404 Not Found");
        assert_eq!(ask(&start(&[]).await, "GET", "/mock/x", "localhost").await.0, "HTTP/1.1 404 Not Found");
    }

    #[tokio::test]
    async fn beyond_loopback_it_listens_only_with_a_token() {
        let error = Control::start("0.0.0.0:0".parse::<SocketAddr>().unwrap(), Status::default, None)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("there is no token"), "{error}");
        let first = start(&[]).await;
        let taken = Control::start(first.addr(), Status::default, None).await.unwrap_err();
        assert!(taken.to_string().contains("[api] listen"), "{taken}");
    }
}
