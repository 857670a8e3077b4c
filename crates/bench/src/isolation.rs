//! One venue in trouble, and what the others notice of it: a simulator with three venues, and this program's recorder
//! beside it, each a process of its own.
//!
//! Three kinds of trouble, one after the other: every request refused (429), none answered, every answer garbage. For
//! each: the rates of the other two venues while it lasts, beside those of just before; how long after its end the
//! venue is back at its own rate. At the end what the recorder says of itself in `poll_stats` is held against what the
//! simulator says it was asked and answered.
//!
//! Rates are counted in the archive, by the times at which books were received: nothing is measured while it runs.
//! Round by round another venue is the one in trouble.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use catchment_model::{Clock, SystemClock};
use serde::Deserialize;

use crate::machine::Stopwatch;
use crate::processes::{Endpoint, Recorder, Simulator, pause};
use crate::{BenchArgs, Goal, Report};

/// Each venue, the endpoint its books come from, and how many instruments it has.
static VENUES: [(&str, &str, usize); 3] = [
    ("polymarket", "clob/books", 200),
    ("kalshi", "markets/orderbooks", 150),
    ("limitless", "markets/slug/orderbook", 20),
];

/// The simulator's side: nothing is limited, and every row of Limitless is a book.
const SIM: [&str; 10] = [
    "--set",
    "polymarket.universe.markets=100",
    "--set",
    "kalshi.universe.markets=150",
    "--set",
    "limitless.universe.markets=20",
    "--set",
    "limitless.rules.amm=0",
    "--set",
    "limitless.rules.group=0",
];

/// What goes wrong, in the simulator's words.
static TROUBLES: [(&str, &str); 3] = [
    ("429 storm", r#"{"refused":1.0}"#),
    ("no answers", r#"{"hang":1.0}"#),
    ("garbage", r#"{"server_error":0.2,"html_200":0.4,"truncated":1.0}"#),
];

/// Until every venue is polled in full: a limit that nobody has published is felt for from below.
const WARM_WITHIN_S: f64 = 120.0;
/// Trouble is told from a limit by what has worked for a minute before it.
const CALM_S: f64 = 65.0;
/// Trouble lasts a little longer than it is watched, or it would end just when requests that hang are given up.
const ODD_S: f64 = 3.5;
const RECOVERS_WITHIN_S: f64 = 30.0;
/// A rate that is back, of what it was.
const BACK: f64 = 0.95;
/// It is looked at over this long.
const GLANCE_MS: i64 = 2_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let sim = Simulator::start(&[&["--no-limits"], &SIM[..]].concat())?;
    let config = write_config(scratch.path(), &sim)?;
    let recorder = Recorder::start(&config, &[])?;
    for (venue, _, instruments) in VENUES {
        let is_polled = wait_until_polled(&recorder, venue, 1.0, instruments, WARM_WITHIN_S)?;
        anyhow::ensure!(is_polled, "{venue} is not polled in full: {:?}", recorder.figures()?.of(venue)?);
    }
    // Whole seconds: every instrument is then asked as often before as during.
    let seconds = args.seconds.max(1.0).round();
    let mut episodes = Vec::new();
    for round in 0..args.rounds.unwrap_or(1) {
        let (victim, _, instruments) = VENUES[round % VENUES.len()];
        for (trouble, faults) in TROUBLES {
            pause(Duration::from_secs_f64(seconds.max(CALM_S)));
            let began_ms = wall_ms();
            sim.set_faults(&format!(r#"{{"{victim}":{faults}}}"#))?;
            pause(Duration::from_secs_f64(seconds + ODD_S));
            sim.set_faults(&format!(r#"{{"{victim}":{{}}}}"#))?;
            episodes.push(Episode { victim, trouble, began_ms, ended_ms: wall_ms() });
            // Whether it was in time is judged by the archive.
            wait_until_polled(&recorder, victim, BACK, instruments, 2.0 * RECOVERS_WITHIN_S)?;
            pause(Duration::from_millis(2 * GLANCE_MS as u64));
        }
    }
    recorder.stop()?;
    let stats = sim.stats()?;
    let data = scratch.path().join("data");
    let received: BTreeMap<&str, Vec<i64>> = VENUES
        .iter()
        .map(|(venue, ..)| Ok((*venue, received_ms(&data, venue)?)))
        .collect::<anyhow::Result<_>>()?;
    for episode in &episodes {
        episode.judge(&received, (seconds * 1e3) as i64, report);
    }
    compare_counts(&data, &stats, report)
}

/// One stretch of trouble.
struct Episode {
    victim: &'static str,
    trouble: &'static str,
    began_ms: i64,
    ended_ms: i64,
}

impl Episode {
    fn judge(&self, received: &BTreeMap<&str, Vec<i64>>, length_ms: i64, report: &mut Report) {
        let Self { victim, trouble, began_ms, ended_ms } = *self;
        let rate = |venue: &str, from: i64| {
            count(&received[venue], from, from + length_ms) as f64 / (length_ms as f64 / 1e3)
        };
        for (other, ..) in VENUES.iter().filter(|(other, ..)| *other != victim) {
            let what = format!("{trouble} at {victim}: books of {other}");
            let rates = [(rate(other, began_ms), rate(other, began_ms - length_ms))];
            report.note(&what, "books/s", ("meanwhile", "just before"), &rates, Goal::Near(0.01));
        }
        let before = rate(victim, began_ms - length_ms);
        let back =
            recovery_ms(&received[victim], ended_ms, before).map_or(f64::INFINITY, |ms| ms as f64 / 1e3);
        let what = format!("{trouble} at {victim}: its own rate, after the end");
        let allowed = ("back at 95 % after", "what is allowed");
        report.note(&what, "s", allowed, &[(back, RECOVERS_WITHIN_S)], Goal::AtMost(1.0));
    }
}

/// How long after `ended_ms` books come as often again as they did.
fn recovery_ms(received: &[i64], ended_ms: i64, before: f64) -> Option<i64> {
    let wanted = BACK * before * (GLANCE_MS as f64 / 1e3);
    let last = *received.last()?;
    let mut starts = (ended_ms..=last - GLANCE_MS).step_by(100);
    let back = starts.find(|from| count(received, *from, from + GLANCE_MS) as f64 >= wanted)?;
    Some(back - ended_ms)
}

/// Of sorted times, those from `from` on and before `to`.
fn count(times: &[i64], from: i64, to: i64) -> usize {
    times.partition_point(|at| *at < to) - times.partition_point(|at| *at < from)
}

/// What the recorder counted, beside what the simulator did.
fn compare_counts(
    data: &Path,
    stats: &BTreeMap<String, BTreeMap<String, Endpoint>>,
    report: &mut Report,
) -> anyhow::Result<()> {
    eprintln!("counts: {:<34} {:>12} {:>12}", "", "poll_stats", "simulator");
    let (mut compared, mut different) = (0, 0);
    for (venue, endpoint, _) in VENUES {
        let ours = sums(data, venue)?;
        let theirs = stats.get(venue).and_then(|venue| venue.get(endpoint)).context("it was never asked")?;
        for (what, ours, theirs) in pairs(&ours, theirs) {
            let mark = if ours == theirs { "" } else { "  DIFFERENT" };
            eprintln!("  {venue:<12} {what:<27} {ours:>12} {theirs:>12}{mark}");
            compared += 1;
            different += u32::from(ours != theirs);
        }
    }
    let counts = [(f64::from(different), f64::from(compared))];
    report.note("counts that differ", "counts", ("different", "compared"), &counts, Goal::AtMost(0.0));
    Ok(())
}

fn pairs(ours: &Counts, theirs: &Endpoint) -> [(&'static str, u64, u64); 7] {
    let answers = |from: u16, to: u16| theirs.answers.range(from..to).map(|(_, count)| count).sum();
    let met = |fault: &str| theirs.faults.get(fault).copied().unwrap_or(0);
    let garbage = met("html_200") + met("truncated");
    [
        ("requests", ours.requests_submitted + ours.requests_abandoned, theirs.requests),
        ("answered with books", ours.requests_successful, answers(200, 201) - garbage),
        ("answered with 429", ours.http_429, answers(429, 430)),
        ("answered with 4xx", ours.http_4xx, answers(400, 500)),
        ("answered with 5xx", ours.http_5xx, answers(500, 600)),
        ("garbage", ours.garbage, garbage),
        ("not answered", ours.timeouts, met("hang")),
    ]
}

/// The counters of `poll_stats` that the simulator has too.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Counts {
    requests_submitted: u64,
    requests_successful: u64,
    requests_abandoned: u64,
    http_4xx: u64,
    http_429: u64,
    http_5xx: u64,
    timeouts: u64,
    garbage: u64,
}

/// All periods of a venue's `poll_stats` together.
fn sums(data: &Path, venue: &str) -> anyhow::Result<Counts> {
    #[derive(Deserialize)]
    struct Line {
        payload: Stats,
    }
    #[derive(Deserialize)]
    struct Stats {
        period: Counts,
    }
    let mut sum = Counts::default();
    each_line(&data.join(venue).join("poll_stats"), |Line { payload: Stats { period } }| {
        sum.requests_submitted += period.requests_submitted;
        sum.requests_successful += period.requests_successful;
        sum.requests_abandoned += period.requests_abandoned;
        sum.http_4xx += period.http_4xx;
        sum.http_429 += period.http_429;
        sum.http_5xx += period.http_5xx;
        sum.timeouts += period.timeouts;
        sum.garbage += period.garbage;
    })?;
    Ok(sum)
}

/// When the books of a venue were received, in order.
fn received_ms(data: &Path, venue: &str) -> anyhow::Result<Vec<i64>> {
    #[derive(Deserialize)]
    struct Line {
        received_at_ms: i64,
    }
    let mut times = Vec::new();
    each_line(&data.join(venue).join("orderbooks"), |line: Line| times.push(line.received_at_ms))?;
    times.sort_unstable();
    Ok(times)
}

/// Reads every line of a channel, whatever the date.
fn each_line<T: for<'a> Deserialize<'a>>(channel: &Path, mut each: impl FnMut(T)) -> anyhow::Result<()> {
    let listed = |dir: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(dir).with_context(|| format!("there is no {}", dir.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    for date in listed(channel)? {
        for path in listed(&date)?.iter().filter(|path| path.extension().is_some_and(|end| end == "jsonl")) {
            for line in BufReader::with_capacity(1 << 20, File::open(path)?).split(b'\n') {
                each(serde_json::from_slice(&line?)?);
            }
        }
    }
    Ok(())
}

/// Waits until the venue's books come at this share of once a second each; `false` if they never do.
fn wait_until_polled(
    recorder: &Recorder,
    venue: &str,
    share: f64,
    instruments: usize,
    within_s: f64,
) -> anyhow::Result<bool> {
    let watch = Stopwatch::start();
    let mut before = recorder.figures()?.of(venue)?;
    loop {
        pause(Duration::from_millis(GLANCE_MS as u64));
        let now = recorder.figures()?.of(venue)?;
        // Figures are renewed once a second: of two seconds, one may be missing or one too many.
        let books = (now.books - before.books) as f64;
        if now.instruments == instruments
            && books >= share * (instruments * (GLANCE_MS / 1_000) as usize) as f64
        {
            return Ok(true);
        }
        if watch.seconds() > within_s {
            return Ok(false);
        }
        before = now;
    }
}

fn write_config(dir: &Path, sim: &Simulator) -> anyhow::Result<PathBuf> {
    let text = format!(
        "data_dir = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\n\
         [venues.polymarket]\nendpoints = {{ clob = {clob:?}, gamma = {gamma:?} }}\nbooks_per_request = 10\n\
         [venues.kalshi]\nendpoints = {{ api = {kalshi:?} }}\nbooks_per_request = 10\n\
         [venues.limitless]\nendpoints = {{ api = {limitless:?} }}\n",
        data = dir.join("data"),
        clob = sim.base("polymarket/clob")?,
        gamma = sim.base("polymarket/gamma")?,
        kalshi = sim.base("kalshi")?,
        limitless = sim.base("limitless")?,
    );
    let path = dir.join("catchment.toml");
    File::create(&path)?.write_all(text.as_bytes())?;
    Ok(path)
}

fn wall_ms() -> i64 {
    SystemClock::new().wall().ms().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_back_when_two_seconds_hold_as_many_books_as_before() {
        // Ten a second until 10 s, none until 17.5 s, ten a second from then on.
        let times: Vec<i64> = (0..300).map(|n| n * 100).filter(|at| !(10_000..17_500).contains(at)).collect();
        assert_eq!(count(&times, 0, 10_000), 100);
        let back = recovery_ms(&times, 12_000, 10.0).unwrap();
        assert!((5_400..=5_500).contains(&back), "{back}");
        assert_eq!(recovery_ms(&times, 12_000, 11.0), None);
        assert_eq!(recovery_ms(&[], 12_000, 10.0), None);
    }

    #[test]
    fn counts_are_held_against_what_the_simulator_sent() {
        let theirs: Endpoint = serde_json::from_str(
            r#"{"requests":20,"answers":{"200":10,"404":1,"429":2,"503":3},"faults":{"hang":4,"html_200":5,"truncated":1}}"#,
        )
        .unwrap();
        let ours = Counts {
            requests_submitted: 19,
            requests_abandoned: 1,
            requests_successful: 4,
            ..Counts::default()
        };
        let theirs: Vec<u64> = pairs(&ours, &theirs).iter().map(|(_, _, theirs)| *theirs).collect();
        assert_eq!(theirs, [20, 4, 2, 3, 3, 6, 4]);
        assert_eq!(pairs(&ours, &Endpoint::default())[0].1, 20);
    }
}
