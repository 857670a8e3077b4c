//! The real binary, killed: at random moments, and before each call that changes the disk. Whatever it had acknowledged
//! is in the archive once; whatever it had not is there at most once; `verify` finds nothing wrong.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use workshop::archive::{each_line, files};
use workshop::recorder::{Acknowledged, Recorder};
use workshop::strace::{Strace, calls_of_the_busiest_thread};
use workshop::{PATIENCE, SMALL, SMALL_COMPRESSED_DEDUP, Site, Stopwatch, append, is_long, line, line_of};

#[test]
fn killed_at_random_moments_it_loses_nothing_and_doubles_nothing() {
    kill_again_and_again("plain", SMALL, line, 0x5eed_0001);
}

#[test]
fn killed_while_it_compresses_and_drops_duplicates_it_loses_nothing_and_doubles_nothing() {
    kill_again_and_again("compressed, dedup", SMALL_COMPRESSED_DEDUP, now_and_then_twice, 0x5eed_0002);
}

/// Every tenth envelope comes twice in a row; only one of the two is acknowledged.
fn now_and_then_twice(n: u64) -> String {
    line(n).repeat(if n % 10 == 3 { 2 } else { 1 })
}

/// When a life ends.
#[derive(Debug)]
enum Moment {
    /// So many looks at the process after it was started.
    StartUp { looks: u32 },
    /// When so many ids have been read, with more lines on their way.
    Recording { acks: usize },
    /// So many looks after the input has ended and everything was acknowledged: it delivers the rest and seals.
    Closing { acks: usize, looks: u32 },
}

impl Moment {
    fn any(random: &mut StdRng) -> Self {
        let acks = 1 << random.random_range(0..14);
        let acks = acks + random.random_range(0..acks);
        match random.random_range(0..10) {
            0 | 1 => Self::StartUp { looks: random.random_range(0..1_500) },
            2 | 3 => Self::Closing { acks, looks: random.random_range(0..4_000) },
            _ => Self::Recording { acks },
        }
    }
}

fn kill_again_and_again(what: &str, config: &str, line: fn(u64) -> String, seed: u64) {
    let wanted = std::env::var("CATCHMENT_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let site = Site::new(config);
    let mut random = StdRng::seed_from_u64(seed);
    let mut acknowledged = Acknowledged::default();
    let mut ready = Vec::new();
    let (mut kills, mut next) = (0, 0);
    while kills < wanted {
        let moment = Moment::any(&mut random);
        let life = one_life(&site, next, &moment, line);
        next = life.next;
        kills += u32::from(life.was_killed);
        acknowledged.extend(life.acknowledged);
        ready.extend(life.ready);
    }
    let report = site.settle(&acknowledged);
    ready.sort_unstable();
    let p99 = ready[(ready.len() * 99).div_ceil(100) - 1].as_millis();
    println!(
        "{what}: kills {kills}, acknowledged {}, in the archive {}, lost 0, doubled 0, restart to ready p99 {p99} ms",
        acknowledged.len(),
        report.envelopes(),
    );
    assert!(!acknowledged.is_empty());
}

/// What one life left behind.
struct Life {
    /// Or else it was through before the signal came.
    was_killed: bool,
    acknowledged: Acknowledged,
    /// From its start to the first id, if there was one.
    ready: Option<Duration>,
    /// The number of the next envelope that was never sent.
    next: u64,
}

fn one_life(site: &Site, first: u64, moment: &Moment, line: fn(u64) -> String) -> Life {
    let acks = match moment {
        Moment::StartUp { .. } => 2_000,
        Moment::Recording { acks } | Moment::Closing { acks, .. } => *acks,
    };
    let overrun = if matches!(moment, Moment::Recording { .. }) { 5_000 } else { 0 };
    let numbers = first..first + acks as u64 + overrun;
    let started = Stopwatch::start();
    let mut recorder = site.start();
    let feeder = recorder.feed(numbers.clone(), line);
    let mut ready = None;
    match moment {
        Moment::StartUp { looks } => look(&recorder, *looks),
        Moment::Recording { .. } | Moment::Closing { .. } => {
            assert!(recorder.wait_for_acks(1, PATIENCE), "nothing was acknowledged");
            ready = Some(started.elapsed());
            assert!(recorder.wait_for_acks(acks, PATIENCE), "only {} acknowledged", recorder.acks());
        }
    }
    if let Moment::Closing { looks, .. } = moment {
        look(&recorder, *looks);
    }
    recorder.signal(Signal::KILL);
    let ended = recorder.end();
    feeder.join().unwrap();
    let was_killed = ended.status.signal() == Some(9);
    let had_closed = matches!(moment, Moment::Closing { .. }) && ended.status.success();
    assert!(was_killed || had_closed, "{moment:?}: {}\n{}", ended.status, ended.talk);
    Life { was_killed, acknowledged: ended.acknowledged(numbers.clone()), ready, next: numbers.end }
}

/// Looks at the process so many times: a short while that is another one each time, and no sleep.
fn look(recorder: &Recorder, times: u32) {
    let stat = format!("/proc/{}/stat", recorder.id());
    for _ in 0..times {
        std::hint::black_box(std::fs::read(&stat).ok());
    }
}

#[test]
fn killed_before_any_openat_it_recovers() {
    killed_before_any("openat");
}

#[test]
fn killed_before_any_write_it_recovers() {
    killed_before_any("write");
}

#[test]
fn killed_before_any_fdatasync_it_recovers() {
    killed_before_any("fdatasync");
}

#[test]
fn killed_before_any_fsync_it_recovers() {
    killed_before_any("fsync");
}

#[test]
fn killed_before_any_rename_it_recovers() {
    killed_before_any("rename");
}

#[test]
fn killed_before_any_unlink_it_recovers() {
    killed_before_any("unlink");
}

#[test]
fn killed_before_any_mkdir_it_recovers() {
    killed_before_any("mkdir");
}

/// Records of one run; with the small configuration they fill several segments and files.
const RECORDS: u64 = 400;
/// How many places the short form tries for a call.
const PLACES: u64 = 8;

fn eight_kb(n: u64) -> String {
    line_of(n, 8_000)
}

/// Kills the process before the first such call, the second, … until one run is not hit any more (the short form leaves
/// some out). The next start is killed as well, somewhat later; the one after that must set everything right.
fn killed_before_any(call: &str) {
    let step = if is_long() { 1 } else { (count_calls(call) / PLACES).max(1) };
    let mut hits = 0;
    for nth in (1..).step_by(step as usize) {
        let site = Site::new(SMALL_COMPRESSED_DEDUP);
        let kill = |nth: u64| {
            let strace = Strace::watching(call, site.beside("strace.log"));
            strace.inject(format!("{call}:signal=SIGKILL:when={nth}")).ingest(&site)
        };
        let (acknowledged, ended) = Recorder::start(kill(nth)).run(0..RECORDS, eight_kb);
        let was_hit = ended.status.signal() == Some(9);
        assert!(was_hit || ended.status.success(), "{call} {nth}: {}\n{}", ended.status, ended.talk);
        Recorder::start(kill(1 + nth % 7)).end();
        site.settle(&acknowledged);
        if !was_hit {
            assert_eq!(acknowledged.len() as u64, RECORDS);
            break;
        }
        hits += 1;
    }
    println!("{call}: killed at {hits} places, every {step}. of its calls; lost 0, doubled 0");
    assert!(hits > 0, "{call} was never called");
}

/// How often the busiest thread makes the call in a run that nobody disturbs.
fn count_calls(call: &str) -> u64 {
    let site = Site::new(SMALL_COMPRESSED_DEDUP);
    let strace = Strace::watching(call, site.beside("strace.log"));
    let (acknowledged, ended) = Recorder::start(strace.ingest(&site)).run(0..RECORDS, eight_kb);
    assert!(ended.status.success(), "{}", ended.talk);
    assert_eq!(acknowledged.len() as u64, RECORDS);
    calls_of_the_busiest_thread(&strace.log(), call)
}

#[test]
fn killed_before_any_torn_line_is_cut_it_recovers() {
    let mut hits = 0;
    for nth in 1.. {
        let (site, acknowledged) = site_with_torn_lines();
        let strace = Strace::watching("ftruncate", site.beside("strace.log"));
        let kill = strace.inject(format!("ftruncate:signal=SIGKILL:when={nth}")).ingest(&site);
        let ended = Recorder::start(kill).end();
        let was_hit = ended.status.signal() == Some(9);
        assert!(was_hit || ended.status.success(), "{nth}: {}\n{}", ended.status, ended.talk);
        site.settle(&acknowledged);
        if !was_hit {
            break;
        }
        hits += 1;
    }
    println!("ftruncate: killed at {hits} places; lost 0, doubled 0");
    assert!(hits > 0, "no line was cut");
}

/// A recorder was killed, and the power with it: the files it was writing end in half a line.
fn site_with_torn_lines() -> (Site, Acknowledged) {
    let site = Site::new(SMALL);
    let mut recorder = site.start();
    let mut text = String::new();
    (0..90).for_each(|n| text.push_str(&line(n)));
    recorder.say(&text);
    assert!(recorder.wait_for_acks(90, PATIENCE));
    let waited = Stopwatch::start();
    while files(site.data()).len() < 9 {
        assert!(waited.elapsed() < PATIENCE, "nothing was delivered");
        std::thread::yield_now();
    }
    recorder.signal(Signal::KILL);
    let ended = recorder.end();
    for path in files(site.data()) {
        append(&path, br#"{"message_id":null,"seq"#);
    }
    (site, ended.acknowledged(0..90))
}

#[test]
fn the_account_notices_what_is_lost_and_what_is_doubled() {
    let site = Site::new(SMALL);
    let (mut acknowledged, ended) = site.start().run(0..50, line);
    assert!(ended.status.success(), "{}", ended.talk);
    let archive = site.account(&acknowledged);
    assert_eq!(archive.envelopes(), 50);
    let (spool, _) = ended.ids[0];
    acknowledged.add((spool, 1 << 40), 50);
    assert_eq!(archive.compare(&acknowledged).lost, [50]);
    let mut first = Vec::new();
    each_line(site.data(), |_, line| {
        if first.is_empty() {
            first = [line, b"\n"].concat();
        }
    });
    append(&files(site.data())[0], &first);
    assert_eq!(workshop::archive::Archive::read(site.data()).compare(&acknowledged).doubled.len(), 1);
}
