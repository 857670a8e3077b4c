//! History of candles: how much of the limit that a venue declares is used, and ccxt doing the same beside it. A simulator and
//! this program's recorder, each a process of its own; the simulator's own figures count.
//!
//! Binance's limit: weight 6,000 in every minute, a page costs 2. Four pairs by the minute, page after page each, into SQLite,
//! every page durable together with its cursor. A minute's pages may all leave at its beginning, so what counts is how long
//! it takes from the first page of one minute's worth to the first of the next. The first minute is not counted: it begins
//! with an empty window.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::machine::{Stopwatch, process_seconds};
use crate::processes::{Process, Recorder, Simulator, pause};
use crate::{BenchArgs, Goal, Report};

/// Pages a minute that the limit allows.
const PAGES_A_MINUTE: f64 = 3_000.0;
/// Candles on a page.
const PAGE: f64 = 1_000.0;
/// From 2020 on.
const SINCE: (&str, i64) = ("2020-01-01", 1_577_836_800_000);
/// Three times what both minutes take.
const GIVE_UP: f64 = 360.0;
/// How long ccxt is watched.
const PEER_SECONDS: f64 = 20.0;
const PEER: &str = include_str!("backfill_peer.py");

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let ours = ours(scratch.path(), report)?;
    if !has_ccxt(&args.python) {
        let python = args.python.display();
        eprintln!(
            "beside ccxt: skipped, {python} cannot import ccxt. `{python} -m pip install ccxt` installs it; \
             --python names another interpreter"
        );
        return Ok(());
    }
    let theirs = ccxt(scratch.path(), &args.python)?;
    report.note(
        "candles of the past",
        "candles/s",
        ("jobs, four pairs", "ccxt in a loop, its own rate limit on"),
        &[(ours, theirs)],
        // Both are bounded by the same limit. ccxt spreads its requests, knows of nobody else who may send, and keeps in
        // memory what it has; ours leave room for what is on its way, and are on the disk.
        Goal::AtLeast(0.95),
    );
    Ok(())
}

/// Candles a second.
fn ours(dir: &Path, report: &mut Report) -> anyhow::Result<f64> {
    let sim = Simulator::start(&[])?;
    let config = dir.join("catchment.toml");
    let (data, rest) = (dir.join("data"), format!("http://{}/binance/rest", sim.addr()));
    let since = SINCE.0;
    let text = format!(
        "data_dir = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\n\
         [venues.binance]\nendpoints = {{ rest = {rest:?} }}\nlimit_share = 1.0\n\
         [jobs]\nworkers = 4\n[[jobs.pairs]]\nvenue = \"binance\"\ntimeframes = [\"1m\"]\nsince = {since:?}\n\
         symbols = [\"BTC/USDT\", \"ETH/USDT\", \"SOL/USDT\", \"XRP/USDT\"]\n"
    );
    File::create(&config)?.write_all(text.as_bytes())?;
    let recorder = Recorder::start(&config, &["--only", "jobs,api"])?;
    let asked = || {
        anyhow::Ok(
            sim.stats()?.remove("binance").unwrap_or_default().remove("rest/klines").unwrap_or_default(),
        )
    };
    let watch = Stopwatch::start();
    let reach = |pages: u64| loop {
        let stats = asked()?;
        if stats.requests >= pages {
            return anyhow::Ok(stats);
        }
        anyhow::ensure!(
            watch.seconds() < GIVE_UP,
            "only {} of {pages} pages within {GIVE_UP} s",
            stats.requests
        );
        pause(Duration::from_millis(20));
    };
    let before = reach(PAGES_A_MINUTE as u64 + 1)?;
    let (began, cpu_before) = (watch.seconds(), process_seconds(recorder.id())?);
    let after = reach(before.requests + PAGES_A_MINUTE as u64)?;
    let (length, cpu) = (watch.seconds() - began, process_seconds(recorder.id())?);
    drop(recorder);
    let pages = (after.requests - before.requests) as f64;
    let refused: u64 =
        after.answers.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    eprintln!("four pairs by the minute, for {length:.1} s");
    report.figure("pages", pages / length, "pages/s");
    report.figure("CPU", (cpu - cpu_before) / length * 100.0, "% of a core");
    report.note(
        "pages, of those that the limit allows",
        "pages/min",
        ("fetched and durable", "allowed"),
        &[(pages / length * 60.0, PAGES_A_MINUTE)],
        Goal::AtLeast(0.95),
    );
    report.note("refusals", "answers", ("not 200", "pages"), &[(refused as f64, pages)], Goal::AtMost(0.0));
    Ok(pages * PAGE / length)
}

/// Candles a second.
fn ccxt(dir: &Path, python: &Path) -> anyhow::Result<f64> {
    #[derive(Deserialize)]
    struct Done {
        candles: f64,
        seconds: f64,
    }
    // One of its own: the limit is by address.
    let sim = Simulator::start(&[])?;
    let peer = dir.join("backfill_peer.py");
    File::create(&peer)?.write_all(PEER.as_bytes())?;
    let mut command = Command::new(python);
    command.arg(peer).arg(format!("http://{}/binance/rest", sim.addr()));
    command.args([PEER_SECONDS.to_string(), SINCE.1.to_string()]);
    let mut child = Process::start(&mut command)?;
    let mut said = String::new();
    child.0.stdout.take().context("it has a stdout")?.read_to_string(&mut said)?;
    let done: Done = serde_json::from_str(&said).context("ccxt did not come to its end")?;
    Ok(done.candles / done.seconds)
}

fn has_ccxt(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import ccxt"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
