//! What one `POST /books` of 500 tokens costs the simulator: `cargo run --release -p catchment-sim --example throughput`.
//!
//! The client runs in the same process but on a thread of its own, so that the CPU time of the simulator's threads can
//! be told apart from it. Prints the CPU time of the simulator a request, and the rate at which one client was served.
#![allow(clippy::unwrap_used)] // a measurement may

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, SystemClock};
use catchment_sim::{Sim, SimConfig};
use rustix::time::{ClockId, clock_gettime};
use sha1::{Digest, Sha1};

const TOKENS: usize = 20_000;
const BATCH: usize = 500;
/// What a poller asks: 40 requests a second, so that each book is asked for once a second.
const INTERVAL: Duration = Duration::from_millis(25);

fn main() {
    let requests: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(400);
    let mut config = SimConfig::default();
    config.polymarket.universe.markets = TOKENS as u32 / 2;
    config.polymarket.limits = Some(Vec::new());
    config.limitless.universe.markets = 10;
    config.kalshi.universe.markets = 10;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sim = runtime.block_on(Sim::start(config, Arc::new(SystemClock::new()))).unwrap();
    let addr = sim.addr();

    let client = std::thread::spawn(move || {
        let mut client = Client { stream: TcpStream::connect(addr).unwrap(), buffer: vec![0; 4 << 20] };
        let batches = batches(&mut client);
        for batch in &batches {
            client.ask(batch); // every book opened and written once
        }
        let clock = SystemClock::new();
        let (whole, own) = (cpu(ClockId::ProcessCPUTime), cpu(ClockId::ThreadCPUTime));
        let mut bytes = 0;
        for number in 0..requests {
            let due = INTERVAL * number as u32;
            // A pause of the generator, not a wait for something: the pace is what is measured against.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(due.saturating_sub(clock.monotonic().0));
            bytes += client.ask(&batches[number % batches.len()]);
        }
        let took = clock.monotonic().0;
        let sim = (cpu(ClockId::ProcessCPUTime) - whole) - (cpu(ClockId::ThreadCPUTime) - own);
        let began = clock.monotonic().0;
        for number in 0..requests {
            client.ask(&batches[number % batches.len()]);
        }
        (took, sim, bytes, clock.monotonic().0 - began)
    });
    let (took, cpu, bytes, flat_out) = client.join().unwrap();
    let per_request = cpu.as_secs_f64() * 1e3 / requests as f64;
    println!("{requests} requests of {BATCH} books, {} KB each", bytes / requests / 1_000);
    println!(
        "{:.1} requests/s asked, {per_request:.2} ms CPU of the simulator a request",
        requests as f64 / took.as_secs_f64()
    );
    println!("{:.0} requests/s when asked without a pause", requests as f64 / flat_out.as_secs_f64());
    println!("{:.2} ms of it for SHA-1, measured alone just now", sha1_alone(bytes / requests));
    runtime.block_on(sim.stop());
}

/// What hashing the books of one answer costs here and now: a floor, and a measure of how busy the machine is.
fn sha1_alone(bytes: usize) -> f64 {
    let book = vec![b'0'; bytes / BATCH];
    let began = cpu(ClockId::ThreadCPUTime);
    for _ in 0..BATCH * 20 {
        std::hint::black_box(Sha1::digest(std::hint::black_box(&book)));
    }
    (cpu(ClockId::ThreadCPUTime) - began).as_secs_f64() * 1e3 / 20.0
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bodies that together ask for every token, found through Gamma as a collector would.
fn batches(client: &mut Client) -> Vec<Vec<u8>> {
    let (mut tokens, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/polymarket/gamma/markets/keyset?limit=100&after_cursor={cursor}");
        client.send(format!("GET {path} HTTP/1.1\r\nhost: sim\r\nuser-agent: throughput\r\n\r\n").as_bytes());
        let page: serde_json::Value = serde_json::from_slice(client.receive()).unwrap();
        for market in page["markets"].as_array().unwrap() {
            tokens.extend(
                serde_json::from_str::<Vec<String>>(market["clobTokenIds"].as_str().unwrap()).unwrap(),
            );
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    let body = |tokens: &[String]| {
        let wanted: Vec<String> =
            tokens.iter().map(|token| format!("{{\"token_id\":\"{token}\"}}")).collect();
        format!("[{}]", wanted.join(",")).into_bytes()
    };
    tokens.chunks(BATCH).map(body).collect()
}

/// Just enough HTTP to cost next to nothing.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn ask(&mut self, body: &[u8]) -> usize {
        let head = format!(
            "POST /polymarket/clob/books HTTP/1.1\r\nhost: sim\r\nuser-agent: throughput\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat());
        self.receive().len()
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> &[u8] {
        let mut filled = 0;
        let (body, length) = loop {
            filled += self.stream.read(&mut self.buffer[filled..]).unwrap();
            let head = &self.buffer[..filled];
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let text = std::str::from_utf8(&head[..end]).unwrap();
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            break (end + 4, length.parse::<usize>().unwrap());
        };
        while filled < body + length {
            filled += self.stream.read(&mut self.buffer[filled..]).unwrap();
        }
        &self.buffer[body..body + length]
    }
}
