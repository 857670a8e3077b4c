//! The whole way of a book, over real sockets: a simulator, and this program's recorder beside it, each a process of its
//! own. PERF goal 3.
//!
//! * Steady: 20,000 Polymarket tokens once a second, 40 requests of 500 books, through the spool into JSON lines.
//!   Nothing is lost and every book is read on time; what that costs is told.
//! * Beside itself, with books read through `serde_json::Value`: the same loop and the same files.
//! * Beside Python: books for a second of CPU time and in a second, against `poll_peer.py`, which goes as fast as it can.
//!   Ours keeps its pace of once a second, where only CPU time is compared, then goes as fast as it can, too. Like beside
//!   like: a loop that fetches, reads and appends, so ours
//!   has its spool in memory, no file grows large enough to be sealed, and hashes are not checked; what Python reads is
//!   not checked for anything. What it costs to be sure (every hash checked, the spool on disk, files sealed with their
//!   SHA-256), which is the default, is told beside it.
//!
//! CPU time is that of the whole process, user and system, from `/proc`: Linux only.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::machine::{Stopwatch, peak_mib, process_seconds};
use crate::processes::{Process, Recorder, Simulator, Stretch, pause};
use crate::{BenchArgs, Duel, Goal, Report};

const MARKETS: usize = 10_000;
const TOKENS: usize = 2 * MARKETS;
const ROUND_SECONDS: f64 = 5.0;
/// Until a recorder has found everything and polled it twice.
const WARM_WITHIN_S: f64 = 90.0;
const PEER: &str = include_str!("poll_peer.py");

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let site = Site::start(scratch.path())?;
    steady(&site, args.seconds.max(1.0), report)?;
    beside_values(&site, args.rounds.unwrap_or(3), report)?;
    if !has_httpx(&args.python) {
        let python = args.python.display();
        eprintln!(
            "beside Python: skipped, {python} cannot import httpx. `{python} -m pip install httpx` installs it; \
             --python names another interpreter"
        );
        return Ok(());
    }
    beside_python(&site, &args.python, args.rounds.unwrap_or(3), report)
}

/// The same recorder, once more with books read into generic values and written out of them.
fn beside_values(site: &Site, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let duel = Duel {
        what: "books for a second of CPU time",
        unit: "books",
        ours: ("the recorder, appending only", &mut || site.books_a_cpu_second(&site.plain_config, &[])),
        theirs: ("the same through serde_json::Value", &mut || {
            site.books_a_cpu_second(&site.plain_config, &["--through-values"])
        }),
        goal: Goal::AtLeast(6.0),
    };
    report.duel(rounds, duel)
}

/// Everything once a second: is it on time, is anything lost, what does it cost.
fn steady(site: &Site, seconds: f64, report: &mut Report) -> anyhow::Result<()> {
    let recorder = site.record(&site.config, &[])?;
    let stretch = recorder.measure(seconds)?;
    let memory = peak_mib(recorder.id())?;
    let closing = recorder.stop()?;
    let venue = closing.venue()?;
    let (soonest, latest) = (venue.spacing_ms_p05 / 1e3, venue.spacing_ms_p95 / 1e3);
    let written: u64 = closing.balances.iter().map(|line| line.written).sum();
    let lost: i64 = closing.balances.iter().map(|line| line.lost + line.dropped + line.quarantined).sum();

    eprintln!("{TOKENS} tokens once a second, for {:.1} s", stretch.seconds);
    report.figure("books", stretch.books / stretch.seconds, "books/s");
    report.figure("requests", stretch.requests / stretch.seconds, "requests/s");
    report.figure("spacing of a book's reads, 5 of 100 within", soonest, "s");
    report.figure("spacing of a book's reads, 95 of 100 within", latest, "s");
    report.figure("slots that were late", venue.late as f64, "slots");
    report.figure("requests refused or failed", (venue.refusals + venue.failures) as f64, "requests");
    report.figure("CPU", stretch.cpu_seconds / stretch.seconds * 100.0, "% of a core");
    report.figure("CPU, a book", stretch.cpu_seconds / stretch.books * 1e6, "µs");
    report.figure("most memory", memory, "MiB");

    let rate = [(stretch.books / stretch.seconds, TOKENS as f64)];
    report.note("books", "books/s", ("recorded", "asked for"), &rate, Goal::AtLeast(0.99));
    // Too soon is as wrong as too late.
    for (share, spacing) in [("5 of 100", soonest), ("95 of 100", latest)] {
        let off = [((spacing - 1.0).abs(), 0.1)];
        report.note("spacing, off 1 s", "s", (share, "what is allowed"), &off, Goal::AtMost(1.0));
    }
    let share = [(lost as f64, written as f64)];
    report.note("records lost", "records", ("lost", "written"), &share, Goal::AtMost(0.0));
    Ok(())
}

/// All against the same simulator, in turn.
fn beside_python(site: &Site, python: &Path, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let (mut whole, mut paced, mut cpu, mut wall) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let sure = site.books_a_cpu_second(&site.config, &[])?;
        let steady = site.books_a_cpu_second(&site.plain_config, &[])?;
        let fast = site.poll(&site.fast_config, &["--unlimited"])?;
        let theirs = site.python(python)?;
        whole.push((sure, theirs.books_a_cpu_second()));
        paced.push((steady, theirs.books_a_cpu_second()));
        cpu.push((fast.books_a_cpu_second(), theirs.books_a_cpu_second()));
        wall.push((fast.books / fast.seconds, theirs.books / theirs.seconds));
    }
    let peer = "Python: httpx, 16 threads, json";
    let what = "books for a second of CPU time";
    report.note(what, "books", ("once a second, appending only", peer), &paced, Goal::AtLeast(15.0));
    report.note(what, "books", ("as fast as it can, appending only", peer), &cpu, Goal::AtLeast(20.0));
    report.note("books", "books/s", ("as fast as it can, appending only", peer), &wall, Goal::AtLeast(14.0));
    // Not like beside like: Python checks no hash, keeps no spool and seals nothing.
    report.note(
        what,
        "books",
        ("once a second, sure of everything: the default", peer),
        &whole,
        Goal::AtLeast(1.0),
    );
    Ok(())
}

/// A simulator, and a folder for whoever records it.
struct Site {
    _sim: Simulator,
    clob: String,
    config: PathBuf,
    /// The same, but what is recorded is only appended to files.
    plain_config: PathBuf,
    /// Like that, and wants more than can be had.
    fast_config: PathBuf,
    data: PathBuf,
    peer: PathBuf,
}

impl Site {
    fn start(dir: &Path) -> anyhow::Result<Self> {
        let markets = MARKETS.to_string();
        let sim = Simulator::start(&["--no-limits", "--markets", &markets])?;
        let (clob, gamma) =
            (sim.base("polymarket/clob")?.to_owned(), sim.base("polymarket/gamma")?.to_owned());
        let (data, peer) = (dir.join("data"), dir.join("poll_peer.py"));
        let [config, plain_config, fast_config] =
            ["catchment.toml", "plain.toml", "fast.toml"].map(|name| dir.join(name));
        let text = |interval_ms: u32| {
            format!(
                "data_dir = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\n\
                 [venues.polymarket]\nendpoints = {{ clob = {clob:?}, gamma = {gamma:?} }}\n\
                 poll_interval_ms = {interval_ms}\n"
            )
        };
        let only_append = "check_hashes = false\n[persistence.spool]\nenabled = false\n\
                           [[sinks]]\nkind = \"jsonl\"\nfile_mb = 65536\n";
        File::create(&config)?.write_all(text(1_000).as_bytes())?;
        File::create(&plain_config)?.write_all((text(1_000) + only_append).as_bytes())?;
        File::create(&fast_config)?.write_all((text(50) + only_append).as_bytes())?;
        File::create(&peer)?.write_all(PEER.as_bytes())?;
        Ok(Self { _sim: sim, clob, config, plain_config, fast_config, data, peer })
    }

    /// Starts a recorder, in a folder where only discovery has left something, and waits until it polls everything.
    fn record(&self, config: &Path, args: &[&str]) -> anyhow::Result<Recorder> {
        self.tidy()?;
        let recorder = Recorder::start(config, args)?;
        let watch = Stopwatch::start();
        loop {
            let venue = recorder.look()?;
            if venue.instruments == TOKENS && venue.books >= 2 * TOKENS as u64 {
                return Ok(recorder);
            }
            anyhow::ensure!(watch.seconds() < WARM_WITHIN_S, "not everything is polled: {venue:?}");
            pause(Duration::from_millis(100));
        }
    }

    /// What a recorder does for a second of CPU time. Without discovery: its listing is there already, and Python is
    /// handed it too.
    fn books_a_cpu_second(&self, config: &Path, args: &[&str]) -> anyhow::Result<f64> {
        Ok(self.poll(config, args)?.books_a_cpu_second())
    }

    /// One stretch of a recorder.
    fn poll(&self, config: &Path, args: &[&str]) -> anyhow::Result<Stretch> {
        let recorder = self.record(config, &[&["--only", "poll,api"], args].concat())?;
        let stretch = recorder.measure(ROUND_SECONDS)?;
        recorder.stop()?;
        Ok(stretch)
    }

    /// One stretch of the Python poller.
    fn python(&self, python: &Path) -> anyhow::Result<Stretch> {
        self.tidy()?;
        let out = self.data.join("polymarket").join("python.jsonl");
        let mut command = Command::new(python);
        command.arg(&self.peer).arg(&self.clob).arg(self.snapshot()).arg(out).arg(ROUND_SECONDS.to_string());
        let mut child = Process::start(command.stdin(Stdio::piped()))?;
        let mut go = child.0.stdin.take().context("it has a stdin")?;
        let mut said = child.lines()?;
        let mut next =
            || said.next().context("the Python poller has ended early")?.map_err(anyhow::Error::from);
        anyhow::ensure!(next()? == "ready", "the Python poller is not ready");
        let before = process_seconds(child.0.id())?;
        writeln!(go)?;
        let done: Done = serde_json::from_str(&next()?)?;
        let cpu_seconds = process_seconds(child.0.id())? - before;
        drop(go);
        child.0.wait()?;
        Ok(Stretch { seconds: done.seconds, cpu_seconds, books: done.books, requests: done.books / 500.0 })
    }

    fn snapshot(&self) -> PathBuf {
        self.data.join("polymarket").join("state").join("active_instruments.snapshot.json")
    }

    /// Removes what was recorded: a round is a gigabyte.
    fn tidy(&self) -> anyhow::Result<()> {
        let Ok(entries) = std::fs::read_dir(self.data.join("polymarket")) else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            match path.is_dir() {
                true if path.ends_with("state") => {}
                true => std::fs::remove_dir_all(path)?,
                false => std::fs::remove_file(path)?,
            }
        }
        Ok(())
    }
}

/// What the Python poller says of itself.
#[derive(Deserialize)]
struct Done {
    books: f64,
    seconds: f64,
}

fn has_httpx(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import httpx"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
