//! The recorder and the simulated venues as two processes, for a good while: memory stays flat and nothing is lost.
//!
//! | | symbols a venue | for |
//! |---|---|---|
//! | with the other tests | 20 | 15 s |
//! | `scripts/torture soak` (`CATCHMENT_LONG=1`) | 500 | 10 min |
//! | `CATCHMENT_SOAK_S=60`, `CATCHMENT_SOAK_SYMBOLS=60` | as said | as said |
#![cfg(target_os = "linux")] // memory and time of a process are read from /proc
#![allow(clippy::unwrap_used)] // a test may

mod binary;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use binary::BINARY;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const VENUES: [&str; 6] = ["binance", "coinbase", "kraken", "okx", "bybit", "polymarket"];
/// In these a process's time is counted.
const TICKS_PER_S: f64 = 100.0;

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(args: &[String]) -> Self {
        let mut command = Command::new(&*BINARY);
        Self(command.args(args).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// Resident memory, in MiB.
    fn memory_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1_024.0
    }

    /// Seconds of a processor used so far.
    fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let rest = stat.rsplit_once(')').unwrap().1;
        let ticks = |at: usize| rest.split_whitespace().nth(at).unwrap().parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / TICKS_PER_S
    }
}

/// A request to the simulation; its body.
fn ask(addr: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: sim\r\nuser-agent: soak\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn from_env(name: &str, short: u64, long: u64) -> u64 {
    let usual = if std::env::var_os("CATCHMENT_LONG").is_some() { long } else { short };
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

/// The tokens of so many markets.
fn tokens(addr: &str, count: usize) -> Vec<String> {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let path = format!(
            "/polymarket/gamma/markets?limit=100&offset={}&active=true&closed=false",
            tokens.len() / 2
        );
        let markets: Vec<Value> = serde_json::from_str(&ask(addr, "GET", &path, "")).unwrap();
        assert!(!markets.is_empty(), "there are only {} tokens", tokens.len());
        for market in &markets {
            let both: Vec<String> = serde_json::from_str(market["clobTokenIds"].as_str().unwrap()).unwrap();
            tokens.extend(both);
        }
    }
    tokens.truncate(count);
    tokens
}

/// The symbols of the other venues, as the simulation names them.
fn pairs(count: usize) -> Vec<String> {
    let coins = [
        "BTC", "ETH", "SOL", "XRP", "DOGE", "ADA", "LTC", "LINK", "AVAX", "DOT", "UNI", "ATOM", "NEAR",
        "MINA", "ALGO", "XLM", "BCH", "ETC", "AAVE", "GRT",
    ];
    let name = |at: usize| {
        let quote = ["USDT", "USD"][at % 2];
        coins.get(at / 2).map_or_else(|| format!("S{:04}/{quote}", at / 2), |coin| format!("{coin}/{quote}"))
    };
    (0..count).map(name).collect()
}

fn config(addr: &str, symbols: usize, data: &std::path::Path) -> String {
    let mut text = format!("data_dir = {:?}\n[api]\nenabled = false\n", data.display().to_string());
    for venue in VENUES {
        let names = if venue == "polymarket" { tokens(addr, symbols) } else { pairs(symbols) };
        text.push_str(&format!(
            "[[streams]]\nvenue = {venue:?}\nsymbols = {names:?}\nchannels = [\"trades\", \"book_delta\", \"ticker\"]\n\
             snapshot_interval_s = 600\n"
        ));
        let rest = if venue == "polymarket" { "clob" } else { "rest" };
        text.push_str(&format!(
            "[venues.{venue}.endpoints]\n{rest} = \"http://{addr}/{venue}/{rest}\"\nstream = \"ws://{addr}/{venue}\"\n"
        ));
    }
    text
}

/// Different messages that the venues have written, by venue.
fn sent(addr: &str) -> Vec<u64> {
    let counts: Value = serde_json::from_str(&ask(addr, "GET", "/_sim/journal", "")).unwrap();
    let of = |venue: &&str| {
        let streams = counts[*venue].as_object().unwrap();
        streams.values().map(|stream| stream["frames"].as_u64().unwrap()).sum()
    };
    VENUES.iter().map(of).collect()
}

#[allow(clippy::disallowed_methods, reason = "a soak is a matter of real time")]
fn pause(length: Duration) {
    std::thread::sleep(length);
}

#[test]
fn memory_stays_flat_and_nothing_is_lost() {
    let (seconds, symbols) =
        (from_env("CATCHMENT_SOAK_S", 15, 600), from_env("CATCHMENT_SOAK_SYMBOLS", 20, 500));
    let dir = tempfile::tempdir().unwrap();
    let mut args: Vec<String> = ["sim", "--listen", "127.0.0.1:0", "--no-limits"].map(str::to_owned).to_vec();
    args.extend(["--markets".to_owned(), symbols.max(20).to_string()]);
    for venue in &VENUES[..5] {
        for rate in ["book_per_s=1", "trades_per_s=0.5", "ticker_per_s=0.5"] {
            args.extend(["--set".to_owned(), format!("{venue}.pairs.{rate}")]);
        }
    }
    let mut sim = Running::start(&args);
    let first = BufReader::new(sim.0.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
    let addr = first.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let path = dir.path().join("catchment.toml");
    #[allow(clippy::disallowed_methods, reason = "a file for a test, which no power cut will meet")]
    std::fs::write(&path, config(&addr, symbols as usize, &dir.path().join("data"))).unwrap();
    let args = ["run", "--only", "stream", "--json", "-c", path.to_str().unwrap()].map(str::to_owned);
    let mut recorder = Running::start(&args);

    let shown_every = if seconds >= 120 { 30 } else { (seconds / 4).max(1) };
    let (mut memory, mut cpu, mut sent_before) = (Vec::new(), (0.0, 0.0), 0);
    println!("{symbols} symbols x 3 channels at {} venues for {seconds} s", VENUES.len());
    println!(
        "{:>6} {:>10} {:>13} {:>8} {:>11}",
        "second", "memory_mib", "recorder_cpu", "sim_cpu", "messages/s"
    );
    for second in 1..=seconds {
        pause(Duration::from_secs(1));
        assert!(recorder.0.try_wait().unwrap().is_none(), "the recorder has ended");
        memory.push(recorder.memory_mib());
        if second % shown_every == 0 {
            let (now, sent) = ((recorder.cpu_s(), sim.cpu_s()), sent(&addr).iter().sum::<u64>());
            let share = |now: f64, before: f64| 100.0 * (now - before) / shown_every as f64;
            println!(
                "{second:>6} {:>10.1} {:>11.1} % {:>6.1} % {:>11.0}",
                memory[memory.len() - 1],
                share(now.0, cpu.0),
                share(now.1, cpu.1),
                (sent - sent_before) as f64 / shown_every as f64,
            );
            (cpu, sent_before) = (now, sent);
        }
    }
    // Everything stops; what is under way arrives; then the two are compared.
    let frozen: Vec<String> =
        VENUES.iter().map(|venue| format!(r#""{venue}":[{{"fault":"freeze"}}]"#)).collect();
    ask(&addr, "POST", "/_sim/inject", &format!("{{{}}}", frozen.join(",")));
    pause(Duration::from_secs(2));
    kill_process(Pid::from_child(&recorder.0), Signal::TERM).unwrap();
    let mut told = String::new();
    recorder.0.stdout.as_mut().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(recorder.0.wait().unwrap().code(), Some(0), "{told}");
    let figures: Value = serde_json::from_str(&told).unwrap();
    let sent = sent(&addr);
    let mut lost = Vec::new();
    println!("{:<12} {:>9} {:>9} {:>6} {:>6}", "venue", "sent", "stored", "lost", "gaps");
    for (venue, sent) in VENUES.iter().zip(sent) {
        let streams = figures["streams"].as_array().unwrap();
        let of = streams.iter().find(|of| of["venue"] == *venue).unwrap_or_else(|| panic!("{figures:#}"));
        let count = |name: &str| of["status"]["counts"][name].as_i64().unwrap();
        // A first trade may say what is known, in other words; a market's change may concern a token that nobody wants.
        let missing =
            sent as i64 - count("messages") - count("duplicates") - count("unasked") - count("repeats");
        println!("{venue:<12} {sent:>9} {:>9} {missing:>6} {:>6}", count("messages"), count("gaps_told"));
        if missing != 0 || count("gaps_told") != 0 || count("disconnects") != 0 {
            lost.push(format!("{venue}: {missing} missing, {:#}", of["status"]["counts"]));
        }
    }
    let balances = figures["balances"].as_array().unwrap();
    assert!(balances.iter().all(|line| line["lost"] == 0), "{figures:#}");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    let (half, end) = (memory[memory.len() / 2], memory[memory.len() - 1]);
    println!("memory {half:.1} MiB at half time, {end:.1} MiB at the end");
    assert!(
        end <= 1.1 * half || seconds < 60,
        "memory grew from {half:.1} to {end:.1} MiB in the second half"
    );
}
