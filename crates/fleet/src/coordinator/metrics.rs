//! The figures for Prometheus: one answer, whatever is asked.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::status::FleetStatus;

const DEADLINE: Duration = Duration::from_secs(1);

/// Answers one after the other; nobody takes longer than a second.
pub(super) async fn serve(
    listener: TcpListener,
    status: watch::Receiver<FleetStatus>,
    stop: CancellationToken,
) {
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            taken = listener.accept() => match taken {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let text = status.borrow().to_metrics();
        // Whoever hangs up in the middle is nobody's trouble.
        let _ = timeout(DEADLINE, answer(stream, &text)).await;
    }
}

async fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let mut chunk = [0; 1_024];
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") && asked.len() < 8 << 10 {
        match stream.read(&mut chunk).await? {
            0 => break,
            read => asked.extend_from_slice(&chunk[..read]),
        }
    }
    let len = text.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
