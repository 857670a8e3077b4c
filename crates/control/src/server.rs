//! A small HTTP server. It answers what it was asked at the moment it was asked; nothing is kept between requests.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::health::Health;
use crate::{Status, metrics};

/// The page; it asks for the figures once a second.
const PAGE: &str = include_str!("page.html");
/// The page brings all it needs; nothing is loaded from elsewhere and nobody may frame it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
/// So many connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 64;
/// How long somebody may take to say what they want.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// How long the door rests after it could not be opened: out of file descriptors, most likely.
const REST: Duration = Duration::from_millis(200);

type Look = Arc<dyn Fn() -> Status + Send + Sync>;

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct Control {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Not an address of this machine alone.
    #[error(
        "the status page listens on loopback only, and {0} is not; put a proxy with a password in front of it"
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

impl Control {
    /// Starts to listen; `look` gives the figures whenever somebody asks.
    pub async fn start(
        addr: SocketAddr,
        look: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<Self, ControlError> {
        if !addr.ip().is_loopback() {
            return Err(ControlError::Exposed(addr));
        }
        let refused = |source| ControlError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        Ok(Self { addr, serving: tokio::spawn(serve(listener, Arc::new(look))) })
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

async fn serve(listener: TcpListener, look: Look) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut guests = tokio::task::JoinSet::new();
    loop {
        while guests.try_join_next().is_some() {}
        let seat = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let look = Arc::clone(&look);
                guests.spawn(async move {
                    attend(stream, look).await;
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

async fn attend(stream: TcpStream, look: Look) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &look);
        async move { Ok::<_, Infallible>(answer) }
    });
    // Whoever hangs up in the middle is nobody's trouble.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer<B>(request: &Request<B>, look: &Look) -> Response<Full<Bytes>> {
    if !is_meant_for_us(request) {
        return text(StatusCode::FORBIDDEN, "ask for this machine by its address or as localhost\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "this page can only be looked at\n");
    }
    match request.uri().path() {
        "/" => respond(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()),
        "/api/v1/status" => json(StatusCode::OK, &look()),
        "/livez" => text(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let reasons = look().not_ready;
            json(readiness(&reasons), &serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons }))
        }
        "/healthz" => {
            let status = look();
            json(readiness(&status.not_ready), &Health::of(&status))
        }
        "/metrics" => respond(StatusCode::OK, metrics::CONTENT_TYPE, metrics::page(&look()).into()),
        _ => text(
            StatusCode::NOT_FOUND,
            "there is /, /api/v1/status, /livez, /readyz, /healthz and /metrics\n",
        ),
    }
}

fn readiness(not_ready: &[String]) -> StatusCode {
    if not_ready.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// A page elsewhere can point a name of its own at this machine and make a browser ask us; such a request carries that
/// name.
fn is_meant_for_us<B>(request: &Request<B>) -> bool {
    let Some(host) = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return true;
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).expect("names and numbers always serialise");
    respond(status, "application/json", body.into())
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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
        Control::start("127.0.0.1:0".parse().unwrap(), look).await.unwrap()
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
        assert!(figures.ends_with("\"balances\":[]}"), "{figures}");
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
    async fn it_listens_nowhere_else() {
        let error = Control::start("0.0.0.0:0".parse().unwrap(), Status::default).await.unwrap_err();
        assert!(error.to_string().contains("loopback only"), "{error}");
        let first = start(&[]).await;
        let taken = Control::start(first.addr(), Status::default).await.unwrap_err();
        assert!(taken.to_string().contains("[api] listen"), "{taken}");
    }
}
