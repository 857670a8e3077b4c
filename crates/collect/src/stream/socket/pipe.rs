//! What was read from the network and not yet handed on: texts that are whole are cut out of it, the rest is tungstenite's.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::str::Utf8Error;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::io::poll_read_buf;

/// What one read from the network may bring at first; twice as much after one that brought it all, …
const READ_MIN: usize = 16 << 10;
/// … up to this.
const READ_MAX: usize = 256 << 10;
/// A longer text is put together by tungstenite.
pub(super) const CUT_MAX: usize = 256 << 10;
/// A run of texts is not continued beyond this.
const RUN_MAX: usize = 32 << 10;

/// Whole text frames, one behind the other, as they came: cut out together, for each on its own costs as much as reading it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    frames: Bytes,
    /// Where the next one begins.
    at: usize,
}

impl Run {
    /// The next text, unless it is not UTF-8; nothing after the last.
    #[inline]
    pub(crate) fn next_text(&mut self) -> Option<Result<&str, Utf8Error>> {
        let rest = &self.frames[self.at..];
        let (head, len) = frame_bounds(rest)?;
        self.at += head + len;
        Some(std::str::from_utf8(&rest[head..head + len]))
    }
}

/// tokio's socket as tungstenite wants it: what would have to wait is `WouldBlock`, and the task is woken when it is time.
/// It is given no more than one frame at a time, so that the others can be cut out of what was read.
pub(super) struct Pipe {
    stream: Stream,
    /// Who is woken when there is more to read.
    pub(super) waker: Waker,
    /// What was read and not yet handed on.
    ahead: BytesMut,
    /// What the next read may bring.
    room: usize,
    pub(super) reads: u64,
    /// What tungstenite may have of it.
    pub(super) granted: Granted,
    /// A message has begun and is not whole.
    pub(super) in_pieces: bool,
    /// Nothing more is cut: the other side has said goodbye, or closed.
    pub(super) is_over: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Granted {
    /// The answer to the handshake, to the end of its blank line, of which so many bytes have come.
    Head(usize),
    /// So many bytes.
    Bytes(usize),
}

/// What stands at the beginning of what was read.
pub(super) enum Cut {
    /// Whole text frames, taken out.
    Texts(Run),
    /// Something for tungstenite.
    Other,
    /// Not enough to tell.
    More,
}

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Script(super::tests::Script),
}

/// What ends the head of an answer.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

impl Pipe {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            waker: Waker::noop().clone(),
            ahead: BytesMut::new(),
            room: READ_MIN,
            reads: 0,
            granted: Granted::Head(0),
            in_pieces: false,
            is_over: false,
        }
    }

    /// Whether tungstenite has not had all that it was granted.
    pub(super) fn owes(&self) -> bool {
        !matches!(self.granted, Granted::Bytes(0))
    }

    /// Looks at the next frame. A text is taken out, and those behind it; what is not ours is granted to tungstenite.
    #[inline]
    pub(super) fn cut(&mut self) -> Cut {
        if self.owes() || self.is_over {
            return Cut::Other;
        }
        let Some((head, len)) = frame_bounds(&self.ahead) else { return Cut::More };
        if !is_text(&self.ahead, len) || self.in_pieces {
            let first = self.ahead[0];
            let (is_final, kind) = (first & 0x80 != 0, first & 0x0f);
            if kind < 0x8 {
                self.in_pieces = !is_final;
            }
            self.granted = Granted::Bytes(head.saturating_add(len));
            return Cut::Other;
        }
        let mut end = head + len;
        if self.ahead.len() < end {
            return Cut::More;
        }
        while end < RUN_MAX {
            let rest = &self.ahead[end..];
            match frame_bounds(rest) {
                Some((head, len)) if is_text(rest, len) && rest.len() >= head + len => end += head + len,
                _ => break,
            }
        }
        Cut::Texts(Run { frames: self.ahead.split_to(end).freeze(), at: 0 })
    }

    /// Reads behind what is there. At the end of the stream nothing more is cut, and tungstenite is told.
    pub(super) fn read_ahead(&mut self) -> io::Result<()> {
        let mut ahead = std::mem::take(&mut self.ahead);
        // A frame that says it is large gets room as it comes.
        ahead.reserve(self.room);
        let read = self.with(|stream, cx| poll_read_buf(stream, cx, &mut ahead));
        let is_full = ahead.len() == ahead.capacity();
        self.ahead = ahead;
        match read? {
            0 => self.is_over = true,
            _ if is_full => self.room = (2 * self.room).min(READ_MAX),
            _ => {}
        }
        self.reads += 1;
        Ok(())
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(Pin<&mut dyn Duplex>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let mut cx = Context::from_waker(&self.waker);
        let stream: Pin<&mut dyn Duplex> = match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp),
            Stream::Tls(tls) => Pin::new(&mut **tls),
            #[cfg(test)]
            Stream::Script(script) => Pin::new(script),
        };
        match act(stream, &mut cx) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Both ways.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.owes() && !self.is_over {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.ahead.is_empty() && !self.is_over {
            self.read_ahead()?;
        }
        let mut len = buffer.len().min(self.ahead.len());
        match &mut self.granted {
            Granted::Head(matched) => {
                len = head_len(&self.ahead[..len], matched);
                if *matched == BLANK_LINE.len() {
                    self.granted = Granted::Bytes(0);
                }
            }
            Granted::Bytes(left) => {
                len = len.min(*left);
                *left -= len;
            }
        }
        self.ahead.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}

/// How many of the bytes belong to a head of which `matched` bytes of the blank line at its end have come before them.
fn head_len(bytes: &[u8], matched: &mut usize) -> usize {
    for (at, byte) in bytes.iter().enumerate() {
        *matched = match *byte == BLANK_LINE[*matched] {
            true => *matched + 1,
            false => usize::from(*byte == BLANK_LINE[0]),
        };
        if *matched == BLANK_LINE.len() {
            return at + 1;
        }
    }
    bytes.len()
}

/// Whether a frame is a text in one piece, with no bit set that means something else, not masked, and not too long for us.
#[inline]
fn is_text(frame: &[u8], len: usize) -> bool {
    frame[0] == 0x81 && frame[1] < 0x80 && len <= CUT_MAX
}

/// How long the head of a frame and what follows it are, as far as that has come.
#[inline]
fn frame_bounds(bytes: &[u8]) -> Option<(usize, usize)> {
    let second = *bytes.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    Some(match second & 0x7f {
        126 => (4 + mask, usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
        127 => {
            let len = u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
            (10 + mask, usize::try_from(len).unwrap_or(usize::MAX))
        }
        short => (2 + mask, usize::from(short)),
    })
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|stream, cx| stream.poll_write(cx, bytes))
    }

    #[allow(clippy::redundant_closure_for_method_calls, reason = "the method itself is not general enough")]
    fn flush(&mut self) -> io::Result<()> {
        self.with(|stream, cx| stream.poll_flush(cx))
    }
}
