//! Another server's paths under this address: `run --mock` shows its exchange there, sockets included.
//!
//! What is asked for goes on as it came, over a connection of its own; what comes back goes back. Nothing of it is
//! understood here but where a head ends.

use std::io;
use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

/// So long the head of an answer may be,
const HEAD_MAX: usize = 16 << 10;
/// and so long what follows it.
const BODY_MAX: u64 = 16 << 20;

/// Asks the other server.
pub(crate) async fn forward(State(to): State<SocketAddr>, request: Request) -> Response {
    match pass(to, request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("what is shown here does not answer: {error}\n"))
            .into_response(),
    }
}

async fn pass(to: SocketAddr, mut request: Request) -> io::Result<Response> {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(&head_of(&request)).await?;
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if read.len() > HEAD_MAX || stream.read_buf(&mut read).await? == 0 {
            return Err(io::Error::other("its answer has no end"));
        }
    };
    let mut rest = read.split_off(end);
    let mut response = answer_of(&read)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        stream.take(BODY_MAX).read_to_end(&mut rest).await?;
        *response.body_mut() = Body::from(rest);
        return Ok(response);
    }
    let Some(upgrade) = upgrade else { return Err(io::Error::other("this connection carries no socket")) };
    tokio::spawn(async move {
        // It ends with either side; whoever is left learns it from the connection.
        let Ok(upgraded) = upgrade.await else { return };
        let mut client = TokioIo::new(upgraded);
        if client.write_all(&rest).await.is_ok() {
            let _ = copy_bidirectional(&mut client, &mut stream).await;
        }
    });
    Ok(response)
}

/// A socket's handshake as it came; anything else as the oldest version asks, so that the answer ends with the connection.
fn head_of(request: &Request) -> Vec<u8> {
    let is_socket = request.headers().contains_key(header::UPGRADE);
    let version = if is_socket { Version::HTTP_11 } else { Version::HTTP_10 };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} {version:?}\r\n", request.method()).into_bytes();
    for (name, value) in request.headers().iter().filter(|(name, _)| is_socket || *name == header::HOST) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn answer_of(head: &[u8]) -> io::Result<Response> {
    let odd = || io::Error::other("its answer is not HTTP");
    let text = std::str::from_utf8(head).map_err(|_| odd())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or_else(odd)?;
    let status = status.parse::<StatusCode>().map_err(|_| odd())?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let is_socket = status == StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let name = HeaderName::try_from(name.trim()).map_err(|_| odd())?;
        // The length and the connection are ours to tell.
        if is_socket || name == header::CONTENT_TYPE {
            response.headers_mut().append(name, HeaderValue::try_from(value.trim()).map_err(|_| odd())?);
        }
    }
    Ok(response)
}
