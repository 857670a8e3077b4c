//! A proxy before a storage that loses answers: some requests are answered 503 without being passed on, and of some the answer
//! is thrown away after the storage has done what was asked: the connection is closed, or left silent until the client's patience
//! is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What it has done.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests.
    pub requests: AtomicU64,
    /// Answered 503.
    pub refused: AtomicU64,
    /// Done, and the answer thrown away.
    pub swallowed: AtomicU64,
    /// Of these, with the connection left open.
    pub silent: AtomicU64,
}

/// How often what happens.
#[derive(Debug, Clone, Copy)]
pub struct Losses {
    /// Of so many requests one is refused, and one answer is swallowed.
    pub every: u64,
    /// Of so many swallowed answers one is waited for in vain; 0: none.
    pub silent_every: u64,
}

/// Listens until the runtime ends.
pub async fn start(upstream: &str, losses: Losses) -> (String, Arc<Counts>) {
    let upstream: SocketAddr = upstream.trim_start_matches("http://").parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let counts = Arc::new(Counts::default());
    let shared = Arc::clone(&counts);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let counts = Arc::clone(&shared);
            // Whatever breaks, breaks the connection: that is what it is for.
            tokio::spawn(async move { serve(client, upstream, losses, &counts).await });
        }
    });
    (address, counts)
}

/// One request a connection.
async fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    losses: Losses,
    counts: &Counts,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let body_at = loop {
        let n = client.read(&mut chunk).await?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..n]);
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..body_at]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    while request.len() < body_at + length {
        let n = client.read(&mut chunk).await?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..n]);
    }
    let nth = counts.requests.fetch_add(1, Ordering::Relaxed) + 1;
    if nth.is_multiple_of(losses.every) {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        let answer = b"HTTP/1.1 503 Server Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(answer).await;
    }
    let mut server = TcpStream::connect(upstream).await?;
    // The storage closes when it has answered, so that the answer's end is the connection's.
    let first_line = request.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    server.write_all(&request[..first_line]).await?;
    server.write_all(b"connection: close\r\n").await?;
    server.write_all(&request[first_line..]).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    if nth % losses.every == losses.every / 2 {
        let swallowed = counts.swallowed.fetch_add(1, Ordering::Relaxed) + 1;
        if losses.silent_every > 0 && swallowed.is_multiple_of(losses.silent_every) {
            counts.silent.fetch_add(1, Ordering::Relaxed);
            // Until the client hangs up.
            let _ = client.read(&mut chunk).await?;
        }
        return Ok(());
    }
    client.write_all(&answer).await?;
    client.shutdown().await
}
