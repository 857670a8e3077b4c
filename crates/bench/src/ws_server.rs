//! A server that plays a tape over WebSockets: every connection gets the frames of the topic it subscribes to, all at the
//! same time, as fast as it reads them or at a pace. Over HTTP it answers with the tape's book.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use tungstenite::{Message, WebSocket};

use crate::machine::Stopwatch;
use crate::peer_tape::PeerTape;
use crate::processes::pause;

/// How long a subscriber may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How frames leave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tempo {
    /// As fast as they are read, so many with one write.
    Saturated(usize),
    /// One at a time, each connection in turn, so many a second in all.
    Sparse(f64),
}

/// A tape, ready to be played to whoever comes.
pub(crate) struct WsServer {
    addr: SocketAddr,
    subscribed: Receiver<Subscriber>,
}

/// Somebody who has subscribed and waits.
struct Subscriber {
    socket: TcpStream,
    topic: String,
}

#[derive(Deserialize)]
struct Subscribe {
    params: Vec<String>,
    id: u64,
}

impl WsServer {
    pub(crate) fn start(tape: &PeerTape) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let (told, subscribed) = sync_channel(64);
        let snapshot: Arc<str> = tape.snapshot.as_str().into();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (told, snapshot) = (told.clone(), snapshot.clone());
                // Whoever hangs up midway is missed by the bench, which waits for a number of subscribers.
                std::thread::spawn(move || welcome(socket, &snapshot, &told));
            }
        });
        Ok(Self { addr, subscribed })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits for so many subscribers and gives back what plays to them.
    pub(crate) fn stage(&self, connections: usize, lines: &[String], tempo: Tempo) -> anyhow::Result<Stage> {
        let mut streams = Vec::with_capacity(connections);
        for at in 0..connections {
            let subscriber = self.subscribed.recv_timeout(PATIENCE);
            let subscriber = subscriber.with_context(|| format!("{at} of {connections} came"))?;
            // A stretch each, so that nobody misses a number.
            let mine = &lines[at * lines.len() / connections..(at + 1) * lines.len() / connections];
            let frames = mine.iter().map(|line| frame(&retold(line, &subscriber.topic)));
            streams.push((subscriber.socket, frames.collect()));
        }
        Ok(Stage { streams, tempo })
    }
}

/// All is ready to be sent.
pub(crate) struct Stage {
    streams: Vec<(TcpStream, Vec<Vec<u8>>)>,
    tempo: Tempo,
}

impl Stage {
    /// Of all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.streams.iter().flat_map(|(_, frames)| frames).map(Vec::len).sum()
    }

    /// The first frame of each connection, ahead of the others: a book begins with it.
    pub(crate) fn lead(&mut self) -> anyhow::Result<()> {
        for (socket, frames) in &mut self.streams {
            socket.write_all(&frames.remove(0))?;
        }
        Ok(())
    }

    /// Sends everything, on a thread of its own. Gives back the sockets, so that none is closed early.
    pub(crate) fn play(self) -> std::thread::JoinHandle<std::io::Result<Vec<TcpStream>>> {
        std::thread::spawn(move || match self.tempo {
            Tempo::Saturated(at_once) => saturate(self.streams, at_once),
            Tempo::Sparse(rate) => trickle(self.streams, rate),
        })
    }
}

fn saturate(streams: Vec<(TcpStream, Vec<Vec<u8>>)>, at_once: usize) -> std::io::Result<Vec<TcpStream>> {
    let mut played = Vec::new();
    for (mut socket, frames) in streams {
        let blocks: Vec<Vec<u8>> = frames.chunks(at_once).map(<[_]>::concat).collect();
        for block in blocks {
            socket.write_all(&block)?;
        }
        played.push(socket);
    }
    Ok(played)
}

fn trickle(mut streams: Vec<(TcpStream, Vec<Vec<u8>>)>, rate: f64) -> std::io::Result<Vec<TcpStream>> {
    let watch = Stopwatch::start();
    let rounds = streams.iter().map(|(_, frames)| frames.len()).max().unwrap_or(0);
    let round_seconds = streams.len() as f64 / rate;
    for round in 0..rounds {
        let ahead = round as f64 * round_seconds - watch.seconds();
        if ahead > 0.0 {
            pause(Duration::from_secs_f64(ahead));
        }
        for (socket, frames) in &mut streams {
            if let Some(frame) = frames.get(round) {
                socket.write_all(frame)?;
            }
        }
    }
    Ok(streams.into_iter().map(|(socket, _)| socket).collect())
}

/// Answers a request for the book, or waits for a subscription.
fn welcome(mut socket: TcpStream, snapshot: &str, told: &SyncSender<Subscriber>) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut head = [0; 4_096];
    let len = socket.peek(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head[..len]).to_ascii_lowercase();
    if !head.contains("upgrade: websocket") {
        let _ = socket.read(&mut [0; 4_096]).ok()?;
        let body = if head.contains("/depth") { snapshot } else { "{\"serverTime\":1798761600000}" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        return socket.write_all(answer.as_bytes()).ok();
    }
    let mut socket: WebSocket<TcpStream> = tungstenite::accept(socket).ok()?;
    loop {
        let Message::Text(text) = socket.read().ok()? else { continue };
        let Ok(wanted) = serde_json::from_str::<Subscribe>(&text) else { continue };
        socket.send(Message::text(format!("{{\"result\":null,\"id\":{}}}", wanted.id))).ok()?;
        let topic = wanted.params.first()?.clone();
        let socket = socket.get_ref().try_clone().ok()?;
        return told.send(Subscriber { socket, topic }).ok();
    }
}

/// The same line for another topic, such as `s07usdt@trade`.
fn retold(line: &str, topic: &str) -> String {
    let symbol = topic.split('@').next().unwrap_or_default();
    line.replacen("btcusdt", symbol, 1).replacen("BTCUSDT", &symbol.to_ascii_uppercase(), 1)
}

/// A text frame as a server sends it.
fn frame(text: &str) -> Vec<u8> {
    let len = text.len();
    let mut frame = Vec::with_capacity(len + 4);
    frame.push(0x81);
    match u8::try_from(len) {
        Ok(short) if short < 126 => frame.push(short),
        _ => {
            frame.push(126);
            frame.extend_from_slice(&u16::try_from(len).expect("lines are short").to_be_bytes());
        }
    }
    frame.extend_from_slice(text.as_bytes());
    frame
}
