//! Frames of all kinds, right and wrong, cut anywhere; handshakes and refusals.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpListener;
use tungstenite::protocol::Role;

use super::dial::manners;
use super::pipe::{CUT_MAX, Granted, Stream};
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
        let pieces = cuts.windows(2).filter(|cut| cut[0] < cut[1]).map(|cut| bytes[cut[0]..cut[1]].to_vec());
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
    let mut pipe = Pipe::new(Stream::Script(script));
    pipe.granted = Granted::Bytes(0);
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
