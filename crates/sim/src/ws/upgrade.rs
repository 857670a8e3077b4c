//! From a request to a socket: the handshake is hyper's up to the answer, ours from there on.

use std::sync::Arc;

use bytes::BytesMut;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::codec::accept_key;
use super::floor::Floor;
use super::line::Line;
use super::session;

/// A client that wants a socket.
pub(crate) struct Handshake {
    on_upgrade: OnUpgrade,
    /// What it is to be answered.
    pub(crate) accept: HeaderValue,
}

impl Handshake {
    pub(crate) fn of(request: &mut Request<Incoming>) -> Option<Self> {
        let headers = request.headers();
        let wants = headers.get(header::UPGRADE)?.as_bytes().eq_ignore_ascii_case(b"websocket");
        let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
        let accept = HeaderValue::from_str(&accept_key(key)).ok().filter(|_| wants)?;
        Some(Self { on_upgrade: hyper::upgrade::on(request), accept })
    }
}

/// A socket that is about to be.
pub(crate) struct Pending {
    pub(crate) handshake: Handshake,
    pub(crate) floor: Arc<Floor>,
    pub(crate) conn: u64,
    pub(crate) line: Arc<Line>,
}

impl Pending {
    /// Serves the client until one of the two ends it.
    pub(crate) async fn run(self) {
        let Self { handshake, floor, conn, line } = self;
        let parts = handshake.on_upgrade.await.ok().and_then(|upgraded: Upgraded| {
            let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
            Some((parts.io.into_inner(), BytesMut::from(&parts.read_buf[..])))
        });
        match parts {
            Some((stream, read)) => session::run(stream, read, floor, conn, line).await,
            None => {
                line.end();
                floor.left(conn);
            }
        }
    }
}
