//! A socket that carries frames: reading with deadlines, writing with one.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame::{FrameError, Frames, framed};
use crate::hello::{Broken, Seal};

/// Once begun, a frame is whole within this, or the connection is closed.
pub(crate) const FRAME_DEADLINE: Duration = Duration::from_secs(1);
/// Whoever does not take what was sent for so long is not listening.
const WRITE_DEADLINE: Duration = Duration::from_secs(1);
/// What is read at once.
const CHUNK: usize = 8 << 10;

/// Why a connection is at its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the other side closed the connection")]
    Closed,
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("what was sent was not taken within {WRITE_DEADLINE:?}")]
    Deaf,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Seal(#[from] Broken),
}

/// The reading half.
#[derive(Debug)]
pub(crate) struct Ear {
    stream: OwnedReadHalf,
    pub(crate) frames: Frames,
    /// When the frame that is midway began.
    began: Option<Instant>,
    /// When something was last heard.
    heard: Instant,
}

/// The writing half.
#[derive(Debug)]
pub(crate) struct Mouth {
    stream: OwnedWriteHalf,
}

/// Both halves; frames of up to so many bytes are taken.
pub(crate) fn split(stream: TcpStream, frame_max: usize) -> (Ear, Mouth) {
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    (
        Ear { stream: read, frames: Frames::new(frame_max), began: None, heard: Instant::now() },
        Mouth { stream: write },
    )
}

impl Ear {
    /// The next frame. Nothing at all for `patience` is an error, and so is a frame that does not become whole. May be
    /// dropped midway: what has come is kept.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<Vec<u8>, WireError> {
        loop {
            if let Some(frame) = self.frames.take()? {
                self.began = self.frames.is_midway().then_some(self.heard);
                return Ok(frame);
            }
            let deadline = match self.began {
                Some(began) => began + FRAME_DEADLINE,
                None => self.heard + patience,
            };
            let mut chunk = [0; CHUNK];
            let read = timeout_at(deadline, self.stream.read(&mut chunk)).await;
            let read = read.map_err(|_| WireError::Silent(self.heard.elapsed()))??;
            if read == 0 {
                return Err(WireError::Closed);
            }
            self.frames.push(&chunk[..read]);
            self.heard = Instant::now();
            self.began.get_or_insert(self.heard);
        }
    }

    /// The next frame, its seal taken off.
    pub(crate) async fn next_sealed(
        &mut self,
        seal: &mut Seal,
        patience: Duration,
    ) -> Result<Vec<u8>, WireError> {
        let mut frame = self.next(patience).await?;
        let len = seal.open(&frame)?.len();
        frame.truncate(len);
        Ok(frame)
    }
}

impl Mouth {
    /// Sends these bytes as they are.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        timeout(WRITE_DEADLINE, self.stream.write_all(bytes)).await.map_err(|_| WireError::Deaf)??;
        Ok(())
    }

    /// Sends this content in a sealed frame.
    pub(crate) async fn say_sealed(&mut self, seal: &mut Seal, body: &[u8]) -> Result<(), WireError> {
        self.say(&framed(&seal.close(body))).await
    }
}
