//! One WebSocket, as a client: connecting, frames in, text out. Knows no venue.
//!
//! The protocol is tungstenite's; this puts it on tokio's sockets. Reading may be given up at any point and resumed: what
//! has come of a frame stays in the buffer. A text frame that is not UTF-8 is told and costs only itself.
//!
//! What almost every frame is, a text that stands in the buffer whole, is cut out of it here, with all those that stand
//! behind it. Everything else (pings, pieces, goodbyes, what is too large or against the rules) is handed to tungstenite,
//! one frame at a time.
//!
//! Pongs are sent by tungstenite, with the ping's own bytes, while we read. Nothing is compressed: no venue here insists.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::str::Utf8Error;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use catchment_governor::Report;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::io::poll_read_buf;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::handshake::HandshakeError;
use tungstenite::handshake::client::Response;
use tungstenite::http::{HeaderValue, Uri};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, Utf8Bytes, WebSocket};

/// What one read from the network may bring at first; twice as much after one that brought it all, …
const READ_MIN: usize = 16 << 10;
/// … up to this.
const READ_MAX: usize = 256 << 10;
/// A longer text is put together by tungstenite.
const CUT_MAX: usize = 256 << 10;
/// A run of texts is not continued beyond this.
const RUN_MAX: usize = 32 << 10;
/// What tungstenite is handed at once. It clears as much memory each time, so it is small.
const READ_BUFFER: usize = 8 << 10;
/// What may wait to be written: a venue that reads nothing is given up when it is more.
const WRITE_BUFFER_MAX: usize = 1 << 20;
/// Beyond this a frame costs the connection, whatever the venue allows: it would have to be held in memory.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// An open WebSocket.
pub(crate) struct Socket {
    ws: WebSocket<Pipe>,
    must_flush: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Texts that came one behind the other.
    Run(Run),
    /// A text that came in pieces.
    Text(Utf8Bytes),
    /// So many bytes that no venue sends.
    Binary(usize),
    /// A text frame that is not UTF-8; its bytes are gone.
    NotUtf8,
    /// A sign of life.
    Ping,
    /// An answer to ours.
    Pong,
    /// The venue says goodbye.
    Close(String),
}

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

fn manners() -> WebSocketConfig {
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

impl Socket {
    /// The next frame, as soon as there is one. An error ends the socket.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Error>> {
        self.ws.get_mut().waker.clone_from(cx.waker());
        if self.must_flush {
            self.flush()?;
        }
        match self.try_frame() {
            Some(frame) => Poll::Ready(frame),
            None => Poll::Pending,
        }
    }

    /// The next frame, if it is already here. Whoever finds none is woken as by the last [`Socket::poll_frame`].
    pub(crate) fn try_frame(&mut self) -> Option<Result<Frame, Error>> {
        loop {
            match self.ws.get_mut().cut() {
                Cut::Texts(frames) => return Some(Ok(Frame::Run(Run { frames, at: 0 }))),
                Cut::Other => {}
                Cut::More => match self.ws.get_mut().read_ahead() {
                    Ok(()) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                    Err(error) => return Some(Err(Error::Io(error))),
                },
            }
            return Some(match self.ws.read() {
                Ok(Message::Text(text)) => Ok(Frame::Text(text)),
                Ok(Message::Binary(bytes)) => Ok(Frame::Binary(bytes.len())),
                // The pong is in line.
                Ok(Message::Ping(_)) => self.flush().map(|()| Frame::Ping),
                Ok(Message::Pong(_)) => Ok(Frame::Pong),
                Ok(Message::Close(frame)) => {
                    self.ws.get_mut().is_over = true;
                    Ok(Frame::Close(match frame {
                        Some(frame) => format!("{} {}", u16::from(frame.code), frame.reason),
                        None => "without a reason".to_owned(),
                    }))
                }
                Ok(Message::Frame(_)) => continue,
                Err(Error::Utf8(_)) => {
                    // Tungstenite may or may not wait for more of it: it is asked about the next text, whole as that may be.
                    self.ws.get_mut().in_pieces = true;
                    Ok(Frame::NotUtf8)
                }
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.ws.get_ref().owes() {
                        return None;
                    }
                    // It has had all of a frame that is no message yet.
                    continue;
                }
                Err(error) => Err(error),
            });
        }
    }

    /// How often the network was read: frames with the same number came together.
    pub(crate) fn reads(&self) -> u64 {
        self.ws.get_ref().reads
    }

    /// Sends text, or puts it in line.
    pub(crate) fn send(&mut self, text: String) -> Result<(), Error> {
        match self.ws.write(Message::text(text)) {
            Ok(()) => self.flush(),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.must_flush = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Says goodbye, without waiting for an answer.
    pub(crate) fn close(&mut self) {
        // It is given up either way.
        let _ = self.ws.close(None);
        let _ = self.ws.flush();
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.ws.flush() {
            Ok(()) => {
                self.must_flush = false;
                Ok(())
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.must_flush = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// tokio's socket as tungstenite wants it: what would have to wait is `WouldBlock`, and the task is woken when it is time.
/// It is given no more than one frame at a time, so that the others can be cut out of what was read.
struct Pipe {
    stream: Stream,
    waker: Waker,
    /// What was read and not yet handed on.
    ahead: BytesMut,
    /// What the next read may bring.
    room: usize,
    reads: u64,
    /// What tungstenite may have of it.
    granted: Granted,
    /// A message has begun and is not whole.
    in_pieces: bool,
    /// Nothing more is cut: the other side has said goodbye, or closed.
    is_over: bool,
}

#[derive(Debug, Clone, Copy)]
enum Granted {
    /// The answer to the handshake, to the end of its blank line, of which so many bytes have come.
    Head(usize),
    /// So many bytes.
    Bytes(usize),
}

/// What stands at the beginning of what was read.
enum Cut {
    /// Whole text frames, taken out.
    Texts(Bytes),
    /// Something for tungstenite.
    Other,
    /// Not enough to tell.
    More,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Script(tests::Script),
}

/// What ends the head of an answer.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

impl Pipe {
    fn new(stream: Stream) -> Self {
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
    fn owes(&self) -> bool {
        !matches!(self.granted, Granted::Bytes(0))
    }

    /// Looks at the next frame. A text is taken out, and those behind it; what is not ours is granted to tungstenite.
    #[inline]
    fn cut(&mut self) -> Cut {
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
        Cut::Texts(self.ahead.split_to(end).freeze())
    }

    /// Reads behind what is there. At the end of the stream nothing more is cut, and tungstenite is told.
    fn read_ahead(&mut self) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;

    use futures_util::{SinkExt, StreamExt};
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
    use tokio::net::TcpListener;
    use tungstenite::protocol::Role;

    use super::*;
    use crate::tls;

    fn dialer() -> Dialer {
        Dialer::new(tls::client(&[]).unwrap(), "tester", Duration::from_secs(5))
    }

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/ws", listener.local_addr().unwrap());
        (listener, url)
    }

    async fn next(socket: &mut Socket) -> Result<Frame, Error> {
        poll_fn(|cx| socket.poll_frame(cx)).await
    }

    /// The next so many, each by itself.
    async fn next_few(socket: &mut Socket, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            frames.extend(each(next(socket).await.unwrap()));
        }
        frames
    }

    fn each(frame: Frame) -> Vec<Frame> {
        let Frame::Run(mut run) = frame else { return vec![frame] };
        let mut frames = Vec::new();
        while let Some(text) = run.next_text() {
            frames.push(text.map_or(Frame::NotUtf8, |text| Frame::Text(text.into())));
        }
        frames
    }

    #[tokio::test]
    async fn frames_of_all_kinds_come_and_pings_are_answered_with_their_own_bytes() {
        let (listener, url) = listener().await;
        let server = async {
            let (tcp, _) = listener.accept().await.unwrap();
            let mut ws = tokio_tungstenite::accept_async(tcp).await.unwrap();
            for message in [Message::text("{}"), Message::binary(vec![1, 2]), Message::Ping("abc".into())] {
                ws.send(message).await.unwrap();
            }
            let pong = ws.next().await.unwrap().unwrap();
            ws.send(Message::text("after")).await.unwrap();
            let hello = ws.next().await.unwrap().unwrap();
            ws.close(None).await.unwrap();
            (pong, hello)
        };
        let client = async {
            let mut socket = dialer().dial(&url).await.unwrap();
            let mut frames = next_few(&mut socket, 4).await;
            socket.send("hello".to_owned()).unwrap();
            frames.push(next(&mut socket).await.unwrap());
            assert!(next(&mut socket).await.is_err(), "after the goodbye there is nothing");
            frames
        };
        let ((pong, hello), frames) = tokio::join!(server, client);
        assert_eq!((pong, hello), (Message::Pong("abc".into()), Message::text("hello")));
        let text = |text: &'static str| Frame::Text(Utf8Bytes::from_static(text));
        assert_eq!(frames[..4], [text("{}"), Frame::Binary(2), Frame::Ping, text("after")]);
        assert!(matches!(frames[4], Frame::Close(_)));
    }

    #[tokio::test]
    async fn a_text_that_is_no_text_costs_only_itself() {
        let (listener, url) = listener().await;
        let server = async {
            let (tcp, _) = listener.accept().await.unwrap();
            let mut tcp = tokio_tungstenite::accept_async(tcp).await.unwrap().into_inner();
            tcp.write_all(b"\x81\x03a\xffb\x81\x02ok").await.unwrap();
            tcp
        };
        let client = async {
            let mut socket = dialer().dial(&url).await.unwrap();
            next_few(&mut socket, 2).await
        };
        let (_tcp, frames) = tokio::join!(server, client);
        assert_eq!(frames, [Frame::NotUtf8, Frame::Text(Utf8Bytes::from_static("ok"))]);
    }

    /// Brings these pieces, one at a read, with nothing between any two. Takes whatever is written.
    #[derive(Clone)]
    pub(super) struct Script {
        pieces: VecDeque<Vec<u8>>,
        pauses: bool,
    }

    impl Script {
        fn new(bytes: &[u8], cuts: &[usize]) -> Self {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces =
                cuts.windows(2).filter(|cut| cut[0] < cut[1]).map(|cut| bytes[cut[0]..cut[1]].to_vec());
            Self { pieces: pieces.collect(), pauses: false }
        }
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.pauses = !self.pauses;
            if self.pauses {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let Some(piece) = self.pieces.front_mut() else { return Ok(0) };
            let len = piece.len().min(buffer.len());
            buffer[..len].copy_from_slice(&piece[..len]);
            piece.drain(..len);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            Ok(len)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsyncRead for Script {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let mut bytes = vec![0; buffer.remaining()];
            match Read::read(self.get_mut(), &mut bytes) {
                Ok(len) => buffer.put_slice(&bytes[..len]),
                Err(_) => return Poll::Pending,
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Script {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// What tungstenite alone makes of it, to the first error.
    fn theirs(script: Script) -> Vec<String> {
        let mut ws = WebSocket::from_raw_socket(script, Role::Client, Some(manners()));
        let mut told = Vec::new();
        loop {
            let frame = match ws.read() {
                Ok(Message::Text(text)) => Frame::Text(text),
                Ok(Message::Binary(bytes)) => Frame::Binary(bytes.len()),
                Ok(Message::Ping(_)) => Frame::Ping,
                Ok(Message::Pong(_)) => Frame::Pong,
                Ok(Message::Close(None)) => Frame::Close("without a reason".to_owned()),
                Ok(Message::Close(Some(frame))) => {
                    Frame::Close(format!("{} {}", u16::from(frame.code), frame.reason))
                }
                Ok(Message::Frame(_)) => continue,
                Err(Error::Utf8(_)) => Frame::NotUtf8,
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    told.push(error.to_string());
                    return told;
                }
            };
            let is_last = matches!(frame, Frame::Close(_));
            told.push(format!("{frame:?}"));
            if is_last {
                return told;
            }
        }
    }

    fn ours(script: Script) -> Vec<String> {
        let pipe = Pipe { granted: Granted::Bytes(0), ..Pipe::new(Stream::Script(script)) };
        let ws = WebSocket::from_raw_socket(pipe, Role::Client, Some(manners()));
        let mut socket = Socket { ws, must_flush: false };
        let mut told = Vec::new();
        loop {
            match socket.poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(Ok(frame)) => {
                    let is_last = matches!(frame, Frame::Close(_));
                    told.extend(each(frame).iter().map(|frame| format!("{frame:?}")));
                    if is_last {
                        return told;
                    }
                }
                Poll::Ready(Err(error)) => {
                    told.push(error.to_string());
                    return told;
                }
            }
        }
    }

    /// A frame as a server sends it, or should not.
    fn frame(first: u8, is_masked: bool, payload: &[u8]) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut frame = vec![first];
        match payload.len() {
            short @ 0..126 => frame.push(mask | short as u8),
            len @ 126..=0xffff => {
                frame.push(mask | 126);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4][..if is_masked { 4 } else { 0 }]);
        frame.extend_from_slice(payload);
        frame
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let firsts = prop_oneof![
            20 => Just(0x81_u8),
            2 => Just(0x82),
            3 => Just(0x01),
            1 => Just(0x02),
            6 => Just(0x80),
            3 => Just(0x00),
            3 => Just(0x89),
            2 => Just(0x8a),
            1 => Just(0x88),
            1 => any::<u8>(),
        ];
        let payload = prop_oneof![
            6 => "[a-zé{}\":0-9]{0,40}".prop_map(String::into_bytes),
            2 => prop::collection::vec(any::<u8>(), 0..8),
            1 => (120..140_usize).prop_map(|len| vec![b'x'; len]),
            1 => (65_530..65_540_usize).prop_map(|len| vec![b'y'; len]),
        ];
        (firsts, 0..60_u8, payload).prop_map(|(first, mask, payload)| frame(first, mask == 0, &payload))
    }

    proptest! {
        /// Frames of all kinds, right and wrong, cut anywhere.
        #[test]
        fn frames_are_what_tungstenite_makes_of_them(
            frames in prop::collection::vec(any_frame(), 0..24),
            cuts in prop::collection::vec(any::<usize>(), 0..40),
            torn in 0..4_usize,
        ) {
            let mut bytes = frames.concat();
            bytes.truncate(bytes.len().saturating_sub(torn));
            let script = Script::new(&bytes, &cuts);
            prop_assert_eq!(ours(script.clone()), theirs(script));
        }
    }

    #[test]
    fn after_pieces_that_are_no_text_a_message_is_what_tungstenite_makes_of_it() {
        // Bad in the middle, where tungstenite goes on waiting for pieces, and bad at the end, where it does not.
        for bad in [b"\x80".as_slice(), b"\xc3"] {
            let frames = [frame(0x01, false, b""), frame(0x80, false, bad), frame(0x81, false, b"next")];
            let script = Script::new(&frames.concat(), &[]);
            let told = ours(script.clone());
            assert_eq!(told[0], "NotUtf8");
            assert_eq!(told, theirs(script));
        }
    }

    #[test]
    fn a_text_longer_than_any_buffer_is_whole_and_what_follows_it_too() {
        let long = frame(0x81, false, &vec![b'z'; CUT_MAX + 7]);
        let bytes = [long, frame(0x81, false, b"after")].concat();
        let told = ours(Script::new(&bytes, &[5, 70_000, 200_000, 262_160]));
        assert_eq!((told.len(), told[0].len() > CUT_MAX), (3, true));
        assert!(told[1].contains("after"), "{}", told[1]);
    }

    #[tokio::test]
    async fn what_comes_with_the_answer_to_the_handshake_is_not_lost() {
        let (listener, url) = listener().await;
        let server = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = tcp.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let key = |line: &str| {
                Some(
                    line.split_once(": ")
                        .filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))?
                        .1
                        .to_owned(),
                )
            };
            let key = head.lines().find_map(key).unwrap();
            let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-accept: {accept}\r\n\r\n"
            );
            let all = [answer.as_bytes(), b"\x81\x02ok\x89\x00\x81\x03end"].concat();
            tcp.write_all(&all).await.unwrap();
            tcp
        };
        let client = async {
            let mut socket = dialer().dial(&url).await.unwrap();
            next_few(&mut socket, 3).await
        };
        let (_tcp, frames) = tokio::join!(server, client);
        let text = |text: &'static str| Frame::Text(Utf8Bytes::from_static(text));
        assert_eq!(frames, [text("ok"), Frame::Ping, text("end")]);
    }

    #[tokio::test]
    async fn a_refusal_has_its_status_and_its_headers() {
        let (listener, url) = listener().await;
        let server = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = tcp.read(&mut head).await.unwrap();
            assert!(String::from_utf8_lossy(&head[..read]).contains("user-agent: tester"));
            tcp.write_all(b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            tcp
        };
        let (_tcp, answer) = tokio::join!(server, async { dialer().dial(&url).await });
        let Err(ConnectError::Refused { status: 429, headers }) = answer else { panic!("it was refused") };
        assert!(headers.contains(&("retry-after".to_owned(), b"7".to_vec())));
    }

    #[tokio::test]
    async fn addresses_that_are_none_are_told() {
        for url in ["http://127.0.0.1:1/", "ws:///x", "nonsense", ""] {
            assert!(matches!(dialer().dial(url).await, Err(ConnectError::Url(_))), "{url}");
        }
        let (listener, url) = listener().await;
        drop(listener);
        assert!(matches!(dialer().dial(&url).await, Err(ConnectError::Unreachable(_))));
    }
}
