//! One connection: what is read goes to the floor, what waits on its line goes out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::codec::{self, Ear, Said};
use super::floor::Floor;
use super::line::{Frame, Item, Line};

/// Frames taken from the line at once.
const BATCH: usize = 256;
/// Bytes gathered for one write.
const WRITE_BYTES: usize = 64 << 10;
/// How long a client may take to end its side after the server has ended its own.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a connection ended, if the server ended it.
enum End {
    Quietly,
    Reset,
    ClientGone,
}

pub(crate) async fn run(stream: TcpStream, read: BytesMut, floor: Arc<Floor>, conn: u64, line: Arc<Line>) {
    let (mut input, mut output) = stream.into_split();
    let (reading, writing) =
        (listen(&mut input, read, &floor, conn, &line), speak(&mut output, &floor, conn, &line));
    let end = tokio::select! {
        biased;
        end = writing => end,
        () = reading => End::ClientGone,
    };
    line.end();
    floor.left(conn);
    match end {
        // What was written is only sure to arrive if what the client still says is read: closing with unread bytes is a
        // reset, and a reset takes back what is on its way.
        End::Quietly => {
            let _ = output.shutdown().await;
            let mut rest = [0; 4_096];
            let farewell = async { while input.read(&mut rest).await.is_ok_and(|n| n > 0) {} };
            let _ = tokio::time::timeout(FAREWELL, farewell).await;
        }
        End::Reset => {
            if let Ok(stream) = input.reunite(output) {
                let _ = stream.set_zero_linger();
            }
        }
        End::ClientGone => {}
    }
}

/// Reads until the client is gone or has broken the protocol.
async fn listen(input: &mut OwnedReadHalf, mut read: BytesMut, floor: &Floor, conn: u64, line: &Line) {
    let mut ear = Ear::default();
    loop {
        loop {
            while line.deaf.load(Ordering::Acquire) {
                line.hears_again.notified().await;
            }
            match ear.next(&mut read) {
                Ok(None) => break,
                Ok(Some(Said::Text(text))) => {
                    floor.hear(conn, std::str::from_utf8(&text).expect("the ear has checked that"));
                }
                Ok(Some(Said::Binary)) => {}
                Ok(Some(Said::Ping(payload))) => floor.ping_came(conn, &payload),
                Ok(Some(Said::Pong)) => floor.pong_came(conn),
                Ok(Some(Said::Close)) => floor.hang_up(conn, Item::Close(1000, "")),
                Err(broken) => {
                    floor.hang_up(conn, Item::Close(broken.0, "protocol error"));
                    return std::future::pending().await; // the writer ends it
                }
            }
        }
        if !input.read_buf(&mut read).await.is_ok_and(|n| n > 0) {
            return;
        }
    }
}

/// Writes what waits on the line until it says that this is the end.
async fn speak(output: &mut OwnedWriteHalf, floor: &Floor, conn: u64, line: &Line) -> End {
    let mut items: Vec<Item> = Vec::with_capacity(BATCH);
    let mut frames: Vec<Arc<Frame>> = Vec::with_capacity(BATCH);
    let mut bytes: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    loop {
        line.take(BATCH, &mut items).await;
        let taken = items.len();
        let mut end = None;
        for item in items.drain(..) {
            match item {
                Item::Frame(frame) => {
                    bytes.extend_from_slice(&frame.wire);
                    frames.push(frame);
                }
                Item::Torn(frame) => {
                    bytes.extend_from_slice(&frame.wire[..frame.wire.len() / 2]);
                    end = Some(End::Quietly);
                }
                Item::Close(code, reason) => {
                    bytes.extend_from_slice(&codec::close(code, reason));
                    end = Some(End::Quietly);
                }
                Item::Cut => end = Some(End::Quietly),
                Item::Reset => end = Some(End::Reset),
            }
            let full = bytes.len() >= WRITE_BYTES;
            if (full || end.is_some()) && !flush(output, floor, conn, line, &mut bytes, &mut frames).await {
                return End::ClientGone;
            }
            if let Some(end) = end {
                return end;
            }
        }
        if !flush(output, floor, conn, line, &mut bytes, &mut frames).await {
            return End::ClientGone;
        }
        line.written(taken);
        floor.has_written();
    }
}

async fn flush(
    output: &mut OwnedWriteHalf,
    floor: &Floor,
    conn: u64,
    line: &Line,
    bytes: &mut Vec<u8>,
    frames: &mut Vec<Arc<Frame>>,
) -> bool {
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let per_s = line.trickle.load(Ordering::Acquire) as usize;
        let sent = match per_s {
            0 => output.write_all(rest).await.map(|()| rest.len()),
            _ => {
                // A tenth of a second's worth at a time.
                let n = per_s.div_ceil(10).min(rest.len());
                let sent = output.write_all(&rest[..n]).await.map(|()| n);
                tokio::time::sleep(Duration::from_millis(100)).await;
                sent
            }
        };
        match sent {
            Ok(n) => rest = &rest[n..],
            Err(_) => return false,
        }
    }
    floor.wrote(conn, frames);
    bytes.clear();
    frames.clear();
    true
}
