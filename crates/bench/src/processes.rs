//! Processes that a bench starts: this program's recorder, and others. None outlives the bench.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::machine::{Stopwatch, process_seconds};

/// So many APIs the simulator prints.
const APIS: usize = 4;

/// What a process did in a stretch of time.
pub(crate) struct Stretch {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) books: f64,
    pub(crate) requests: f64,
}

impl Stretch {
    /// Books for a second of CPU time.
    pub(crate) fn books_a_cpu_second(&self) -> f64 {
        self.books / self.cpu_seconds
    }
}

/// A recorder that polls, and where it shows its figures.
pub(crate) struct Recorder {
    child: Process,
    page: String,
}

impl Recorder {
    /// `catchment run` with a configuration that has a status page.
    pub(crate) fn start(config: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", "--json", "-c"]).arg(config).args(args).stderr(Stdio::piped());
        let mut child = Process::start(&mut command)?;
        let mut talk = BufReader::new(child.0.stderr.take().context("it has a stderr")?).lines();
        let page = talk.find_map(|line| Some(line.ok()?.strip_prefix("live figures: http://")?.to_owned()));
        let page = page.context("the recorder did not start")?.trim_end_matches('/').to_owned();
        // Whoever talks and is not listened to stands still at last.
        std::thread::spawn(move || talk.for_each(drop));
        Ok(Self { child, page })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// What it does in that time, from one renewal of its figures to another.
    pub(crate) fn measure(&self, seconds: f64) -> anyhow::Result<Stretch> {
        let watch = Stopwatch::start();
        let mark = || {
            let venue = self.renewed()?;
            anyhow::Ok((watch.seconds(), process_seconds(self.id())?, venue))
        };
        let (began, cpu_before, before) = mark()?;
        pause(Duration::from_secs_f64(seconds - 0.5));
        let (ended, cpu, after) = mark()?;
        Ok(Stretch {
            seconds: ended - began,
            cpu_seconds: cpu - cpu_before,
            books: (after.books - before.books) as f64,
            requests: (after.requests - before.requests) as f64,
        })
    }

    /// The figures just after they were renewed, which is once a second.
    fn renewed(&self) -> anyhow::Result<VenueFigures> {
        let old = self.look()?;
        let watch = Stopwatch::start();
        loop {
            pause(Duration::from_millis(20));
            let new = self.look()?;
            if new.books != old.books {
                return Ok(new);
            }
            anyhow::ensure!(watch.seconds() < 10.0, "no more books come: {new:?}");
        }
    }

    pub(crate) fn look(&self) -> anyhow::Result<VenueFigures> {
        self.figures()?.venue()
    }

    pub(crate) fn figures(&self) -> anyhow::Result<Figures> {
        Ok(serde_json::from_str(&ask(&self.page, "GET", "/api/v1/status", "")?)?)
    }

    /// Lets it come to its end; gives back its closing figures.
    pub(crate) fn stop(mut self) -> anyhow::Result<Figures> {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM)?;
        let mut printed = String::new();
        self.child.0.stdout.take().context("it has a stdout")?.read_to_string(&mut printed)?;
        self.child.0.wait()?;
        Ok(serde_json::from_str(&printed)?)
    }
}

/// What a recorder says of itself, on its page and at its end.
#[derive(Deserialize)]
pub(crate) struct Figures {
    venues: Vec<VenueFigures>,
    pub(crate) balances: Vec<BalanceFigures>,
}

impl Figures {
    pub(crate) fn venue(&self) -> anyhow::Result<VenueFigures> {
        self.venues.first().cloned().context("the recorder has no venue")
    }

    pub(crate) fn of(&self, name: &str) -> anyhow::Result<VenueFigures> {
        let found = self.venues.iter().find(|venue| venue.venue == name).cloned();
        found.with_context(|| format!("the recorder has no venue {name}"))
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct VenueFigures {
    venue: String,
    pub(crate) instruments: usize,
    pub(crate) books: u64,
    pub(crate) requests: u64,
    pub(crate) refusals: u64,
    pub(crate) failures: u64,
    pub(crate) late: u64,
    pub(crate) spacing_ms_p05: f64,
    pub(crate) spacing_ms_p95: f64,
}

#[derive(Deserialize)]
pub(crate) struct BalanceFigures {
    pub(crate) written: u64,
    pub(crate) dropped: i64,
    pub(crate) quarantined: i64,
    pub(crate) lost: i64,
}

/// Simulated venues.
pub(crate) struct Simulator {
    _child: Process,
    /// By the name of the API.
    bases: BTreeMap<String, String>,
    addr: String,
}

impl Simulator {
    /// `catchment sim` with these arguments, on a port of its own.
    pub(crate) fn start(args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sim", "--listen", "127.0.0.1:0"]).args(args).stderr(Stdio::null());
        let mut child = Process::start(&mut command)?;
        // One line an API, its address last.
        let lines = child.lines()?.map_while(Result::ok).take(APIS);
        let bases: BTreeMap<String, String> = lines
            .filter_map(|line| {
                let (api, base) = line.split_once(char::is_whitespace)?;
                Some((api.to_owned(), base.trim().to_owned()))
            })
            .collect();
        let base = bases.values().next().context("the simulator did not start")?;
        let addr = base.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        Ok(Self { _child: child, bases, addr })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// The address of an API, such as `polymarket/clob`.
    pub(crate) fn base(&self, api: &str) -> anyhow::Result<&str> {
        self.bases.get(api).map(String::as_str).with_context(|| format!("the simulator has no {api}"))
    }

    /// Faults by venue, as JSON; each venue's replace what it had.
    pub(crate) fn set_faults(&self, faults: &str) -> anyhow::Result<()> {
        let said = ask(&self.addr, "POST", "/_sim/faults", faults)?;
        anyhow::ensure!(said.contains("\"ok\":true"), "the simulator does not take {faults}: {said}");
        Ok(())
    }

    /// What each endpoint of each venue was asked and answered.
    pub(crate) fn stats(&self) -> anyhow::Result<BTreeMap<String, BTreeMap<String, Endpoint>>> {
        Ok(serde_json::from_str(&ask(&self.addr, "GET", "/_sim/stats", "")?)?)
    }
}

/// What the simulator says of one endpoint.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) requests: u64,
    /// By status.
    pub(crate) answers: BTreeMap<u16, u64>,
    /// By name.
    pub(crate) faults: BTreeMap<String, u64>,
}

/// One request; gives back the body of the answer.
fn ask(addr: &str, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (_, body) = reply.split_once("\r\n\r\n").with_context(|| format!("{path} is no HTTP"))?;
    Ok(body.to_owned())
}

/// A process that does not outlive the bench.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let started = command.stdout(Stdio::piped()).spawn();
        Ok(Self(started.with_context(|| format!("cannot start {}", command.get_program().display()))?))
    }

    pub(crate) fn lines(&mut self) -> anyhow::Result<Lines<BufReader<ChildStdout>>> {
        Ok(BufReader::new(self.0.stdout.take().context("it has a stdout")?).lines())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[allow(clippy::disallowed_methods)] // between two looks; what is measured has a clock of its own
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}
