//! What streams cost the simulator: `cargo run --release -p catchment-sim --example stream_throughput [connections] [seconds]`.
//!
//! Simulated time runs as fast as the clients read. They run on threads of their own and only count bytes, so that the
//! CPU time of the simulator can be told apart. Prints frames made and written, and the CPU time of each.
#![allow(clippy::unwrap_used)] // a measurement may

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, SimClock, SystemClock, UnixNs};
use catchment_sim::{Sim, SimConfig};
use rustix::time::{ClockId, clock_gettime};

/// Streams of each connection; every one has the same, so each frame is made once and written as often as there are.
const STREAMS: &str = "btcusdt@depth@100ms/ethusdt@depth@100ms/solusdt@depth@100ms/xrpusdt@depth@100ms/btcusdt@trade/ethusdt@trade";
const BOOK_PER_S: f64 = 500.0;

fn main() {
    let number =
        |at: usize, usual: u64| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(usual);
    for connections in [1, number(1, 50)] {
        measure(connections, number(2, 20));
    }
}

fn measure(connections: u64, seconds: u64) {
    let mut config = SimConfig::default().with("streams.pace", "manual").unwrap();
    config.binance.pairs.book_per_s = BOOK_PER_S;
    config.binance.pairs.trades_per_s = BOOK_PER_S;
    config.binance.limits = Some(Vec::new());
    config.binance.session.ping_ms = Some(86_400_000);
    config.polymarket.universe.markets = 10;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_790_000_000_000).unwrap()));
    let sim = runtime.block_on(Sim::start(config, clock.clone())).unwrap();
    let addr = sim.addr();
    let clients: Vec<_> = (0..connections).map(|_| connect(addr)).collect();
    let readers: Vec<_> =
        clients.into_iter().map(|stream| std::thread::spawn(move || read(stream))).collect();
    while sim.connections("binance").unwrap().len() < connections as usize {
        std::thread::yield_now();
    }
    let machine = SystemClock::new();
    let before = cpu(ClockId::ProcessCPUTime);
    for _ in 0..seconds * 10 {
        clock.advance(Duration::from_millis(100));
        runtime.block_on(sim.catch_up());
    }
    runtime.block_on(sim.settle());
    let took = machine.monotonic().0;
    let whole = cpu(ClockId::ProcessCPUTime) - before;
    let counts = sim.counts("binance").unwrap();
    let (made, written): (u64, u64) =
        counts.values().fold((0, 0), |(made, written), count| (made + count.frames, written + count.written));
    let bytes: u64 = counts.values().map(|count| count.bytes).sum();
    runtime.block_on(sim.stop());
    let reading: Duration = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    let own = whole.saturating_sub(reading).as_secs_f64();
    println!(
        "{connections} connections: {made} frames of {} bytes made, {written} written in {:.2} s",
        bytes / made.max(1),
        took.as_secs_f64()
    );
    println!(
        "  {:.0} frames/s written; {:.2} µs CPU of the simulator a frame written, {:.2} a frame made",
        written as f64 / took.as_secs_f64(),
        own * 1e6 / written as f64,
        own * 1e6 / made as f64
    );
}

/// Shakes hands, and leaves the rest to be read.
fn connect(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    let request = format!(
        "GET /binance/stream?streams={STREAMS} HTTP/1.1\r\nhost: sim\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads and discards until the server ends it; gives the CPU time that took.
fn read(mut stream: TcpStream) -> Duration {
    let began = cpu(ClockId::ThreadCPUTime);
    let mut buffer = vec![0; 1 << 18];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
    cpu(ClockId::ThreadCPUTime) - began
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
