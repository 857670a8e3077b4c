//! A frame's whole way, over a real socket: read, understood, spooled, in a file of JSON lines. PERF goal 4.
//!
//! Ours is `catchment run` as a process of its own, with its spool, beside a loop that reads the same frames from the same
//! server and throws them away, beside itself reading through `serde_json::Value`, and beside cryptofeed, which is handed the
//! messages without a socket. What is compared is
//! messages for a second of CPU time: sender and reader share the machine, and the wall would tell who is the slower. As fast as
//! they are read means 64 trades or 16 depth messages with each write of the sender, which never waits. All threads of whoever is
//! measured share one processor, and the sender has another.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use tokio::io::AsyncReadExt;
use tungstenite::Message;

use crate::machine::{Processors, Stopwatch, process_seconds, thread_seconds};
use crate::peer_tape::PeerTape;
use crate::peers::Peer;
use crate::processes::{Recorder, pause};
use crate::ws_server::{Tempo, WsServer};
use crate::{BenchArgs, Duel, Goal, Report};

const TRADES: usize = 500_000;
const DEPTHS: usize = 120_000;
const DEEP: usize = 60_000;
/// Of the peer's tape, which Python reads at a few ten thousand a second.
const PEER_LINES: usize = 20_000;
const SPARSE_CONNECTIONS: usize = 50;
const SPARSE_RATE: f64 = 20_000.0;
const SPARSE_SECONDS: f64 = 3.0;
/// Until a recorder has written everything.
const WITHIN_S: f64 = 60.0;
const BINANCE: &str = include_str!("../../venues/descriptors/binance.toml");

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let (scratch, processors) = (args.scratch()?, Processors::take()?);
    let rounds = args.rounds.unwrap_or(3);
    let sparse = (SPARSE_RATE * SPARSE_SECONDS) as usize;
    let shows = [
        Show {
            what: "50 connections, a trade at a time",
            tape: PeerTape::trades(sparse, false),
            channel: "trades",
            connections: SPARSE_CONNECTIONS,
            keeps_books: true,
            tempo: Tempo::Sparse(SPARSE_RATE),
            against: vec![Against::Discarding(0.5)],
            peer: None,
        },
        Show {
            what: "trades, as fast as they are read",
            tape: PeerTape::trades(TRADES, true),
            channel: "agg_trades",
            connections: 1,
            keeps_books: true,
            tempo: Tempo::Saturated(64),
            against: vec![Against::Discarding(0.08), Against::Values(3.0)],
            peer: Some(("file", PeerTape::trades(PEER_LINES, true), 10.0)),
        },
        Show {
            what: "depth, as fast as it is read",
            tape: PeerTape::depth(DEPTHS),
            channel: "book_delta",
            connections: 1,
            keeps_books: true,
            tempo: Tempo::Saturated(16),
            against: vec![Against::Discarding(0.08)],
            peer: Some(("depth_file", PeerTape::depth(PEER_LINES), 15.0)),
        },
        Show {
            what: "depth of 1.9 KB, as fast as it is read",
            tape: PeerTape::deep(DEEP),
            channel: "book_delta",
            connections: 1,
            keeps_books: false,
            tempo: Tempo::Saturated(16),
            against: vec![Against::Values(5.0)],
            peer: None,
        },
    ];
    let only = args.only.as_deref().unwrap_or_default();
    let whats = shows.each_ref().map(|show| show.what);
    let is_there = whats.iter().any(|what| what.contains(only));
    anyhow::ensure!(is_there, "--only {only}: in none of these: {}", whats.join("; "));
    for show in shows.into_iter().filter(|show| show.what.contains(only)) {
        Stand { show, dir: scratch.path(), processors: &processors }.run(args, rounds, report)?;
    }
    Ok(())
}

/// Beside whom, and how many times their messages are wanted.
enum Against {
    /// Reading and throwing away.
    Discarding(f64),
    /// The same recorder, reading through `serde_json::Value`.
    Values(f64),
}

/// One kind of traffic.
struct Show {
    what: &'static str,
    tape: PeerTape,
    channel: &'static str,
    connections: usize,
    keeps_books: bool,
    tempo: Tempo,
    against: Vec<Against>,
    /// The mode of cryptofeed's side, its tape, and how many times its messages a second are wanted.
    peer: Option<(&'static str, PeerTape, f64)>,
}

/// Where a kind of traffic is played.
struct Stand<'a> {
    show: Show,
    dir: &'a Path,
    processors: &'a Processors,
}

impl Stand<'_> {
    fn run(self, args: &BenchArgs, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
        let (what, mut walls) = (self.show.what, Vec::new());
        for against in &self.show.against {
            let mut ours = || {
                let (cpu_rate, wall_rate) = self.record(&[])?;
                walls.push(wall_rate);
                Ok(cpu_rate)
            };
            let mut discard = || self.discard();
            let mut values = || Ok(self.record(&["--through-values"])?.0);
            let (theirs, goal): ((_, &mut dyn FnMut() -> anyhow::Result<f64>), _) = match against {
                Against::Discarding(goal) => (("read and thrown away", &mut discard), *goal),
                Against::Values(goal) => (("the same through serde_json::Value", &mut values), *goal),
            };
            let ours = ("socket to spool and file", &mut ours as &mut dyn FnMut() -> anyhow::Result<f64>);
            let duel = Duel { what, unit: "messages", ours, theirs, goal: Goal::AtLeast(goal) };
            report.duel(rounds, duel)?;
        }
        if !walls.is_empty() {
            report.figure("written, by the wall clock", crate::median(&mut walls), "messages/s");
        }
        let Some((mode, tape, goal)) = &self.show.peer else { return Ok(()) };
        tape.write(self.dir, false)?;
        let peer = self.processors.measured(|| Peer::cryptofeed(args, mode, self.dir))?;
        let Some(mut peer) = peer else { return Ok(()) };
        let duel = Duel {
            what,
            unit: "messages",
            ours: ("socket to spool and file", &mut || Ok(self.record(&[])?.0)),
            theirs: ("cryptofeed to a JSON file, no socket", &mut || Ok(peer.round()?.lines_per_second())),
            goal: Goal::AtLeast(*goal),
        };
        report.duel(rounds, duel)
    }

    /// The recorder: messages for a second of its CPU time, and for a second of the wall clock.
    fn record(&self, args: &[&str]) -> anyhow::Result<(f64, f64)> {
        let Show { tape, connections, tempo, .. } = &self.show;
        let server = WsServer::start(tape)?;
        let data = self.dir.join("data");
        let config = self.show.config(self.dir, &data, server.addr())?;
        let recorder = self.processors.measured(|| Recorder::start(&config, args))?;
        let mut stage = server.stage(*connections, &tape.lines, *tempo)?;
        let led = if *connections == 1 { 1 } else { 0 };
        if led > 0 {
            stage.lead()?;
            wait_for(&recorder, 1)?;
            pause(std::time::Duration::from_millis(500)); // for the book, which follows the first change
        }
        let (watch, cpu_before) = (Stopwatch::start(), process_seconds(recorder.id())?);
        let sender = stage.play();
        let all = tape.lines.len() as u64;
        if let Tempo::Sparse(_) = tempo {
            // It cannot be over before, and asking costs the recorder time that counts.
            pause(std::time::Duration::from_secs_f64(SPARSE_SECONDS));
        }
        let seconds = wait_for(&recorder, all).map(|()| watch.seconds())?;
        let cpu = process_seconds(recorder.id())? - cpu_before;
        let closing = recorder.stop()?;
        drop(sender.join().ok().context("the sender has panicked")?.context("the recorder hung up")?);
        let lost: i64 = closing.balances.iter().map(|line| line.lost + line.dropped + line.quarantined).sum();
        anyhow::ensure!(lost == 0, "{lost} records were lost");
        std::fs::remove_dir_all(&data)?;
        let sent = (all - led * *connections as u64) as f64;
        Ok((sent / cpu, sent / seconds))
    }

    /// Messages that are read and thrown away for a second of CPU time.
    fn discard(&self) -> anyhow::Result<f64> {
        let Show { tape, connections, channel, tempo, .. } = &self.show;
        let server = WsServer::start(tape)?;
        let sockets: Vec<TcpStream> = (0..*connections)
            .map(|at| subscribe(server.addr(), &topic(at, *connections, channel)))
            .collect::<anyhow::Result<_>>()?;
        let stage = server.stage(*connections, &tape.lines, *tempo)?;
        let bytes = stage.bytes();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let sender = stage.play();
        let seconds = self.processors.measured(|| {
            let mut failed = Ok(());
            let seconds = thread_seconds(|| failed = runtime.block_on(drain(sockets, bytes)));
            failed.map(|()| seconds)
        })?;
        drop(sender.join().ok().context("the sender has panicked")?.context("the reader hung up")?);
        Ok(tape.lines.len() as f64 / seconds)
    }
}

impl Show {
    fn config(&self, dir: &Path, data: &Path, addr: SocketAddr) -> anyhow::Result<PathBuf> {
        let descriptors = dir.join("descriptors");
        std::fs::create_dir_all(&descriptors)?;
        let mut text = BINANCE
            .replace("id = \"binance\"", "id = \"tape\"")
            .replace("https://data-api.binance.vision", &format!("http://{addr}"))
            .replace("wss://data-stream.binance.vision", &format!("ws://{addr}"));
        if self.connections > 1 {
            text = text.replace("subscriptions_max = 1024", "subscriptions_max = 1");
        }
        File::create(descriptors.join("tape.toml"))?.write_all(text.as_bytes())?;
        let symbols: Vec<String> = (0..self.connections).map(|at| symbol(at, self.connections)).collect();
        let config = dir.join("catchment.toml");
        let text = format!(
            "data_dir = {data:?}\ndescriptors_dir = {descriptors:?}\n[api]\nlisten = \"127.0.0.1:0\"\n\
             [[streams]]\nvenue = \"tape\"\nsymbols = {symbols:?}\nchannels = [{:?}]\nbooks = {}\n",
            self.channel, self.keeps_books
        );
        File::create(&config)?.write_all(text.as_bytes())?;
        Ok(config)
    }
}

fn symbol(at: usize, of: usize) -> String {
    if of == 1 { "BTC/USDT".to_owned() } else { format!("S{at:02}/USDT") }
}

fn topic(at: usize, of: usize, channel: &str) -> String {
    let symbol = symbol(at, of).replace('/', "").to_ascii_lowercase();
    let kind = match channel {
        "trades" => "trade",
        "agg_trades" => "aggTrade",
        _ => "depth@100ms",
    };
    format!("{symbol}@{kind}")
}

/// A socket that has been told that frames will come.
fn subscribe(addr: SocketAddr, topic: &str) -> anyhow::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    let (mut socket, _) = tungstenite::client(format!("ws://{addr}/stream"), socket)?;
    socket.send(Message::text(format!("{{\"method\":\"SUBSCRIBE\",\"params\":[{topic:?}],\"id\":1}}")))?;
    socket.read()?;
    Ok(socket.get_ref().try_clone()?)
}

/// Reads until `bytes` have come, over all sockets together.
async fn drain(sockets: Vec<TcpStream>, bytes: usize) -> anyhow::Result<()> {
    let left = Arc::new(AtomicUsize::new(bytes));
    let mut readers = tokio::task::JoinSet::new();
    for socket in sockets {
        socket.set_nonblocking(true)?;
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        let left = left.clone();
        readers.spawn(async move {
            let mut buffer = vec![0; 256 * 1024];
            loop {
                let len = socket.read(&mut buffer).await?;
                anyhow::ensure!(len > 0, "the server hung up");
                if left.fetch_sub(len, Ordering::Relaxed) == len {
                    return Ok(());
                }
            }
        });
    }
    // The one that read the last bytes ends; the others wait for more, and are dropped.
    readers.join_next().await.context("there are no sockets")??
}

/// Until so many records are written.
fn wait_for(recorder: &Recorder, records: u64) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    loop {
        let written: u64 = recorder.figures()?.balances.iter().map(|line| line.written).sum();
        if written >= records {
            return Ok(());
        }
        anyhow::ensure!(watch.seconds() < WITHIN_S, "{written} of {records} are written after {WITHIN_S} s");
        pause(std::time::Duration::from_millis(20));
    }
}
