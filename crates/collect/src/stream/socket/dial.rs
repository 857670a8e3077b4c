//! A socket is opened: name, connection, TLS and handshake, within one deadline.

use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use catchment_governor::Report;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tungstenite::Error;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::handshake::HandshakeError;
use tungstenite::handshake::client::Response;
use tungstenite::http::{HeaderValue, Uri};
use tungstenite::protocol::WebSocketConfig;

use super::Socket;
use super::pipe::{Pipe, Stream};

/// What tungstenite is handed at once. It clears as much memory each time, so it is small.
const READ_BUFFER: usize = 8 << 10;
/// What may wait to be written: a venue that reads nothing is given up when it is more.
const WRITE_BUFFER_MAX: usize = 1 << 20;
/// Beyond this a frame costs the connection, whatever the venue allows: it would have to be held in memory.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0:?} is no address of a socket")]
    Url(String),
    #[error("no connection after {0:?}")]
    TimedOut(Duration),
    #[error("the host is unreachable: {0}")]
    Unreachable(#[source] io::Error),
    #[error("no trusted connection: {0}")]
    Tls(#[source] io::Error),
    /// With its headers, for the governor.
    #[error("the venue answers {status} instead of opening a socket")]
    Refused { status: u16, headers: Vec<(String, Vec<u8>)> },
    #[error("no WebSocket is spoken there: {0}")]
    Protocol(String),
    /// Nothing was sent.
    #[error("the permit is no longer valid")]
    Expired,
}

impl ConnectError {
    /// What it means for the speed.
    pub(crate) fn report(&self) -> Report {
        match self {
            // A firewall answers with a page; the venue itself has no 403 for public sockets.
            Self::Refused { status: 403, .. } => Report { is_firewall: true, ..Report::status(403) },
            Self::Refused { status, .. } => Report::status(*status),
            Self::TimedOut(_) => Report::timed_out(),
            _ => Report::broken(),
        }
    }
}

/// Opens sockets.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: TlsConnector,
    user_agent: HeaderValue,
    deadline: Duration,
}

impl Dialer {
    pub(crate) fn new(tls: ClientConfig, user_agent: &str, deadline: Duration) -> Self {
        let unnamed = HeaderValue::from_static("catchment");
        Self {
            tls: TlsConnector::from(Arc::new(tls)),
            user_agent: HeaderValue::from_str(user_agent).unwrap_or(unnamed),
            deadline,
        }
    }

    /// Opens one. May be dropped midway.
    pub(crate) async fn dial(&self, url: &str) -> Result<Socket, ConnectError> {
        match timeout(self.deadline, self.connect(url)).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(ConnectError::TimedOut(self.deadline)),
        }
    }

    async fn connect(&self, url: &str) -> Result<Socket, ConnectError> {
        let wrong = || ConnectError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let is_tls = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            _ => return Err(wrong()),
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let tcp = TcpStream::connect((host.as_str(), port)).await.map_err(ConnectError::Unreachable)?;
        tcp.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        let stream = if is_tls {
            let name = ServerName::try_from(host).map_err(|_| wrong())?;
            let tls = self.tls.connect(name, tcp).await.map_err(ConnectError::Tls)?;
            Stream::Tls(Box::new(tls))
        } else {
            Stream::Plain(tcp)
        };
        let mut request = url.into_client_request().map_err(|_| wrong())?;
        request.headers_mut().insert("user-agent", self.user_agent.clone());
        shake_hands(request, Pipe::new(stream)).await
    }
}

pub(super) fn manners() -> WebSocketConfig {
    let mut config = WebSocketConfig::default();
    config.read_buffer_size = READ_BUFFER;
    config.write_buffer_size = 0;
    config.max_write_buffer_size = WRITE_BUFFER_MAX;
    config.max_message_size = Some(FRAME_BYTES_MAX);
    config.max_frame_size = Some(FRAME_BYTES_MAX);
    config
}

async fn shake_hands(
    request: tungstenite::handshake::client::Request,
    pipe: Pipe,
) -> Result<Socket, ConnectError> {
    let mut step = Some(Step::Begin(request, pipe, manners()));
    let ws = std::future::poll_fn(|cx| {
        let attempt = match step.take().expect("polled until it is done") {
            Step::Begin(request, mut pipe, config) => {
                pipe.waker.clone_from(cx.waker());
                client_with_config(request, pipe, Some(config))
            }
            Step::Middle(mut middle) => {
                middle.get_mut().get_mut().waker.clone_from(cx.waker());
                middle.handshake()
            }
        };
        match attempt {
            Ok((ws, _response)) => Poll::Ready(Ok(ws)),
            Err(HandshakeError::Interrupted(middle)) => {
                step = Some(Step::Middle(middle));
                Poll::Pending
            }
            Err(HandshakeError::Failure(error)) => Poll::Ready(Err(error)),
        }
    });
    match ws.await {
        Ok(ws) => Ok(Socket { ws, must_flush: false }),
        Err(Error::Http(response)) => Err(refused(&response)),
        Err(Error::Io(error)) => Err(ConnectError::Unreachable(error)),
        Err(error) => Err(ConnectError::Protocol(error.to_string())),
    }
}

enum Step {
    Begin(tungstenite::handshake::client::Request, Pipe, WebSocketConfig),
    Middle(tungstenite::handshake::MidHandshake<tungstenite::handshake::client::ClientHandshake<Pipe>>),
}

fn refused(response: &Response) -> ConnectError {
    let headers = response.headers().iter();
    ConnectError::Refused {
        status: response.status().as_u16(),
        headers: headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
    }
}
