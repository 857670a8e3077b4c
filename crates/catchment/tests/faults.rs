//! The real binary on disks that fill up, fail and become read-only, beside a second process, and under signals. What it
//! acknowledged is never lost; what it cannot do it says, with what a person can do about it.
//!
//! Short writes come with the full disk: the kernel takes as much as fits, and says so. Making it take less at other
//! times would need a library in the process, because strace can only lie about the count.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use workshop::archive::tree;
use workshop::recorder::Recorder;
use workshop::small_disk::SmallDisk;
use workshop::strace::{Strace, calls_of_the_busiest_thread};
use workshop::{BINARY, PATIENCE, SMALL, Site, Stopwatch, is_long, line, line_of, said};

/// How soon records are accepted again once the disk takes them.
const RESUMES_WITHIN: Duration = Duration::from_secs(5);

// A full disk.

#[test]
fn a_full_disk_ends_it_with_what_to_do_and_loses_nothing() {
    let disk = SmallDisk::of_mib(256);
    disk.fill_but_kib(8 << 10);
    let site = Site::with_data(SMALL, &disk.path().join("data"));
    let (acknowledged, ended) = site.start().run(0..40_000, line);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.talk);
    let spool = site.data().join("spool").display().to_string();
    assert!(ended.talk.contains(&format!("cannot write to the spool {spool}")), "{}", ended.talk);
    assert!(ended.talk.contains("free some space or move [persistence.spool] dir"), "{}", ended.talk);
    assert!(!acknowledged.is_empty() && acknowledged.len() < 40_000, "{}", acknowledged.len());
    disk.make_room();
    let archive = site.settle(&acknowledged);
    println!(
        "full disk: acknowledged {}, in the archive {}, lost 0",
        acknowledged.len(),
        archive.envelopes()
    );
    let told = archive.gaps.iter().any(|gap| gap["cause"] == "storage");
    assert!(told, "a gap says that records were turned away: {:?}", archive.gaps);
}

#[test]
fn on_a_full_disk_it_waits_if_asked_to_and_goes_on_when_there_is_room() {
    let disk = SmallDisk::of_mib(256);
    disk.fill_but_kib(8 << 10);
    // With the policy that drops tickers and books when the spool is full: it is not, only the disk is.
    let config = SMALL.replace("\"block\"", "\"drop_ticker_depth_keep_trade\"");
    let site = Site::with_data(&config, &disk.path().join("data"));
    let mut recorder = Recorder::start(site.ingest_waiting());
    let feeder = recorder.feed(0..40_000, line);
    recorder.wait_for_talk("intake stopped", PATIENCE);
    disk.make_room();
    let room = Stopwatch::start();
    recorder.wait_for_talk("intake resumed", RESUMES_WITHIN);
    println!("full disk: intake resumed after {} ms", room.elapsed().as_millis());
    assert_all_arrives(&site, recorder, 40_000);
    feeder.join().unwrap();
}

#[test]
fn while_the_disk_of_the_archive_is_full_records_wait_in_the_spool() {
    let disk = SmallDisk::of_mib(128);
    disk.fill_but_kib(1 << 10);
    let elsewhere = tempfile::tempdir().unwrap();
    let spool = format!("[persistence.spool]\ndir = {:?}\n", elsewhere.path().join("spool"));
    let config = SMALL.replace("[persistence.spool]\n", &spool);
    let site = Site::with_data(&config, &disk.path().join("data"));
    let mut recorder = site.start();
    let numbers = 0..20_000;
    let mut text = String::new();
    numbers.clone().for_each(|n| text.push_str(&line(n)));
    recorder.say(&text);
    assert!(recorder.wait_for_acks(20_000, PATIENCE), "only {} accepted", recorder.acks());
    recorder.wait_for_talk("records wait in the spool", PATIENCE);
    disk.make_room();
    assert_all_arrives(&site, recorder, 20_000);
}

#[test]
fn on_a_full_disk_a_start_still_delivers_what_is_in_the_spool() {
    let disk = SmallDisk::of_mib(16);
    let spool = format!("[persistence.spool]\ndir = {:?}\n", disk.path().join("spool"));
    let site = Site::new(&SMALL.replace("[persistence.spool]\n", &spool));
    let acknowledged = site.fill_spool(0..2_000, line);
    disk.fill_but_kib(0);
    assert_eq!(site.settle(&acknowledged).envelopes(), 2_000);
}

/// Closes the input if it is still open; everything up to `count` must be acknowledged and in the archive, at the end of
/// this process already.
fn assert_all_arrives(site: &Site, recorder: Recorder, count: u64) {
    let ended = recorder.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
    let acknowledged = ended.acknowledged(0..count);
    assert_eq!(acknowledged.len() as u64, count, "{}", ended.talk);
    assert_eq!(site.account(&acknowledged).envelopes() as u64, count);
}

// A disk that becomes read-only.

#[test]
fn while_the_disk_is_read_only_it_rests_and_then_goes_on() {
    let mut disk = SmallDisk::of_mib(256);
    let site = Site::with_data(SMALL, &disk.path().join("data"));
    let mut recorder = Recorder::start(site.ingest_waiting());
    let feeder = recorder.feed(0..60_000, line);
    assert!(recorder.wait_for_acks(1_000, PATIENCE));
    disk.become_read_only();
    recorder.wait_for_talk("intake stopped", PATIENCE);
    let (wall, before, acks) = (Stopwatch::start(), cpu_of(recorder.id()), recorder.acks());
    recorder.wait_for_acks(usize::MAX, Duration::from_secs(3));
    let (wall, cpu) = (wall.elapsed(), cpu_of(recorder.id()) - before);
    let share = 100.0 * cpu.as_secs_f64() / wall.as_secs_f64();
    assert!(share <= 10.0, "{share:.1} % of a core while nothing can be done");
    let later = recorder.acks() - acks;
    assert!(later <= 1_000, "{later} records acknowledged on a read-only disk");
    disk.become_writable();
    let writable = Stopwatch::start();
    recorder.wait_for_talk("intake resumed", RESUMES_WITHIN);
    println!("read-only: {share:.1} % of a core, intake resumed after {} ms", writable.elapsed().as_millis());
    assert_all_arrives(&site, recorder, 60_000);
    feeder.join().unwrap();
}

/// What a process has had of the processor so far.
fn cpu_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    // utime and stime are the 14th and 15th field, the state being the third; a tick is 10 ms.
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

// A disk that fails.

const RECORDS: u64 = 400;

fn eight_kb(n: u64) -> String {
    line_of(n, 8_000)
}

/// How often the busiest thread syncs in an undisturbed run.
fn count_syncs() -> u64 {
    let site = Site::new(SMALL);
    let strace = Strace::watching("fdatasync", site.beside("strace.log"));
    let (_, ended) = Recorder::start(strace.ingest(&site)).run(0..RECORDS, eight_kb);
    assert!(ended.status.success(), "{}", ended.talk);
    calls_of_the_busiest_thread(&strace.log(), "fdatasync")
}

#[test]
fn a_sync_that_fails_once_loses_nothing_and_is_never_tried_again_on_that_file() {
    let step = if is_long() { 1 } else { (count_syncs() / 10).max(1) };
    let mut failures = 0;
    for nth in (1..).step_by(step as usize) {
        let site = Site::new(SMALL);
        let strace = Strace::watching("fdatasync,close", site.beside("strace.log"))
            .inject(format!("fdatasync:error=EIO:when={nth}"));
        let (acknowledged, ended) = Recorder::start(strace.ingest(&site)).run(0..RECORDS, eight_kb);
        let failed = assert_no_second_sync(&strace.log());
        match ended.status.code() {
            Some(0) => assert_eq!(acknowledged.len() as u64, RECORDS, "sync {nth}: {}", ended.talk),
            // The first sync of all makes the spool's own notes durable: without them there is no start.
            Some(2) => assert!(ended.talk.contains("cannot"), "sync {nth}: {}", ended.talk),
            _ => panic!("sync {nth}: {}\n{}", ended.status, ended.talk),
        }
        site.settle(&acknowledged);
        if failed == 0 {
            break;
        }
        failures += failed;
    }
    println!("fdatasync: {failures} failures, one or two a run; lost 0, doubled 0, synced again 0");
    assert!(failures > 0);
}

#[test]
fn syncs_that_fail_for_ever_end_it_with_a_message_and_lose_nothing() {
    let last = count_syncs();
    let places: Vec<u64> = if is_long() { (1..=last).collect() } else { vec![1, last / 4, last / 2] };
    // Each spends most of its time waiting for the disk to come back, so several can wait at once.
    let ended_by_it = std::thread::scope(|scope| {
        let shares = places.chunks(places.len().div_ceil(8));
        let shares: Vec<_> = shares
            .map(|share| scope.spawn(|| share.iter().filter(|nth| is_ended_by_failing_syncs(**nth)).count()))
            .collect();
        shares.into_iter().map(|share| share.join().unwrap()).sum::<usize>()
    });
    println!("fdatasync: failed for ever from {} places on, {ended_by_it} runs ended; lost 0", places.len());
    assert!(ended_by_it > 0, "no run was ended");
}

/// From this sync on all fail: it ends and says why, or everything was acknowledged before, and the archive is waited for
/// until a signal comes.
fn is_ended_by_failing_syncs(nth: u64) -> bool {
    let site = Site::new(SMALL);
    let strace = Strace::watching("fdatasync,close", site.beside("strace.log"))
        .inject(format!("fdatasync:error=EIO:when={nth}+"));
    let mut recorder = Recorder::start(strace.ingest(&site));
    let feeder = recorder.feed(0..RECORDS, eight_kb);
    if recorder.wait_for_acks(RECORDS as usize, PATIENCE)
        && let Some(process) = recorder.watched()
    {
        // It may be ending at this moment.
        let _ = kill_process(process, Signal::TERM);
    }
    assert!(recorder.wait_for_end(PATIENCE), "sync {nth} and later: it heeds no signal");
    let ended = recorder.end();
    feeder.join().unwrap();
    let acknowledged = ended.acknowledged(0..RECORDS);
    let failed = assert_no_second_sync(&strace.log());
    let is_ended = acknowledged.len() < RECORDS as usize;
    if is_ended {
        assert_eq!(ended.status.code(), Some(2), "sync {nth} and later: {}", ended.talk);
        assert!(ended.talk.contains(&site.data().display().to_string()), "{}", ended.talk);
        assert!(ended.talk.contains("cannot"), "{}", ended.talk);
    }
    assert!(failed > 0 || ended.status.success(), "sync {nth} and later: {}", ended.talk);
    site.settle(&acknowledged);
    is_ended
}

/// Reads strace's log; a descriptor whose sync failed must be closed before its number is synced again. Says how many
/// failed.
fn assert_no_second_sync(log: &str) -> usize {
    let number = |rest: &'_ str| rest.split('<').next().unwrap().to_owned();
    let mut failed = HashSet::new();
    let mut failures = 0;
    // A call that another thread's call interrupts in the log, by thread.
    let mut unfinished = HashMap::new();
    for line in log.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        match call.trim_start().split_once('(') {
            Some(("fdatasync", rest)) => {
                assert!(!failed.contains(&number(rest)), "synced again: {line}");
                unfinished.insert(thread, number(rest));
            }
            Some(("close", rest)) => {
                failed.remove(&number(rest));
            }
            _ => {}
        }
        if call.contains("fdatasync") && call.contains("EIO") {
            failures += 1;
            failed.insert(unfinished[thread].clone());
        }
    }
    failures
}

// A segment that cannot be read.

#[test]
fn a_segment_that_cannot_be_read_for_a_moment_is_read_again() {
    for nth in if is_long() { 1..=20 } else { 1..=4 } {
        let site = Site::new(SMALL);
        let acknowledged = site.fill_spool(0..RECORDS, eight_kb);
        let segment = site.data().join("spool/spool_000002.dat");
        let strace = Strace::watching("pread64", site.beside("strace.log"))
            .only_on(&segment)
            .inject(format!("pread64:error=EIO:when={nth}"));
        let ended = Recorder::start(strace.ingest(&site)).end();
        let failures = strace.log().matches("EIO").count();
        assert_eq!(ended.status.code(), Some(0), "read {nth}, {failures} failed: {}", ended.talk);
        let set_aside = segment.with_extension("dat.unreadable").exists();
        assert!(failures > 2 || !set_aside, "set aside after {failures} failures");
        if !set_aside {
            assert_eq!(site.settle(&acknowledged).envelopes() as u64, RECORDS);
        }
    }
}

#[test]
fn a_segment_that_cannot_be_read_is_set_aside_and_told_of_and_the_others_flow() {
    let site = Site::new(SMALL);
    let acknowledged = site.fill_spool(0..RECORDS, eight_kb);
    let segment = site.data().join("spool/spool_000002.dat");
    let in_it = std::fs::metadata(&segment).unwrap().len() / 8_000;
    // From the first read on: strace counts by thread, so a later one would be whichever the threads make of it.
    let strace = Strace::watching("pread64", site.beside("strace.log"))
        .only_on(&segment)
        .inject("pread64:error=EIO:when=1+".to_owned());
    let ended = Recorder::start(strace.ingest(&site)).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
    let kept = segment.with_extension("dat.unreadable");
    assert!(kept.exists(), "{:?}", tree(&site.data().join("spool")));
    site.drain();
    site.verify();
    let archive = workshop::archive::Archive::read(site.data());
    let losses = archive.compare(&acknowledged);
    assert!(losses.doubled.is_empty(), "{losses}");
    assert!((1..=in_it as usize).contains(&losses.lost.len()), "{losses}, of {in_it} in the segment");
    let told = archive.gaps.iter().any(|gap| gap["cause"] == "corruption");
    assert!(told, "{:?}", archive.gaps);
}

// A full spool.

/// Fills a spool of two segments with an archive that takes nothing, then lets the archive take everything; says what
/// the books and the gaps hold: (acknowledged, dropped, told of in gaps, trades in the archive).
fn overflow(on_full: &str, count: u64) -> (u64, u64, u64, u64) {
    let config = SMALL.replace("\"block\"", &format!("{on_full:?}")).replace("= 64\non_full", "= 2\non_full");
    let site = Site::new(&config);
    site.block_archive();
    let mut command = site.ingest();
    command.arg("--json");
    let mut recorder = Recorder::start(command);
    let feeder = recorder.feed(0..count, line);
    recorder.wait_for_talk("spool is full", PATIENCE);
    site.unblock_archive();
    let ended = recorder.end();
    feeder.join().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
    let closing: serde_json::Value = serde_json::from_str(ended.talk.lines().last().unwrap()).unwrap();
    assert_eq!(closing["balanced"], true, "{closing}");
    assert_eq!(closing["lines"], count, "every line was read");
    site.verify();
    let archive = workshop::archive::Archive::read(site.data());
    assert_eq!(archive.envelopes(), ended.ids.len(), "what was acknowledged is there, and nothing else");
    let dropped = closing["balances"].as_array().unwrap().iter();
    let dropped = dropped.map(|b| b["dropped"]["spool_full"].as_u64().unwrap_or(0)).sum();
    let told = archive.gaps.iter().filter(|gap| gap["cause"] == "overflow");
    let told = told.map(|gap| gap["records"].as_u64().unwrap()).sum();
    let mut trades = 0;
    workshop::archive::each_line(site.data(), |path, _| {
        trades += u64::from(path.to_string_lossy().contains("/trades/"));
    });
    println!("{on_full}: acknowledged {}, dropped {dropped}, told of in gaps {told}", ended.ids.len());
    (ended.ids.len() as u64, dropped, told, trades)
}

#[test]
fn a_full_spool_that_blocks_loses_nothing() {
    let (acknowledged, dropped, ..) = overflow("block", 30_000);
    assert_eq!((acknowledged, dropped), (30_000, 0));
}

#[test]
fn a_full_spool_that_keeps_trades_loses_none_and_tells_what_it_drops() {
    let (acknowledged, dropped, told, trades) = overflow("drop_ticker_depth_keep_trade", 30_000);
    assert_eq!(acknowledged + dropped, 30_000);
    assert_eq!(told, dropped, "every record dropped is in a gap");
    let sent = (0..30_000).filter(|n| line(*n).contains("\"channel\":\"trades\"")).count() as u64;
    assert_eq!(trades, sent);
}

#[test]
fn a_full_spool_that_drops_tells_what_it_drops() {
    let (acknowledged, dropped, told, _) = overflow("drop_all", 30_000);
    assert_eq!(acknowledged + dropped, 30_000);
    assert_eq!(told, dropped, "every record dropped is in a gap");
}

// Two processes.

#[test]
fn a_second_process_on_the_same_spool_is_turned_away_and_the_first_goes_on() {
    let site = Site::new(SMALL);
    let mut first = site.start();
    first.say(&line(0));
    assert!(first.wait_for_acks(1, PATIENCE));
    let second = Stopwatch::start();
    let output = site.ingest().stdin(std::process::Stdio::null()).output().unwrap();
    assert!(second.elapsed() < Duration::from_secs(1), "it took {:?}", second.elapsed());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let spool = site.data().join("spool").display().to_string();
    let expected = format!("the spool {spool} is in use by another process");
    assert!(said(&output).contains(&expected), "{}", said(&output));
    first.say(&line(1));
    assert!(first.wait_for_acks(2, PATIENCE));
    assert_all_arrives(&site, first, 2);
}

// Who may read what.

#[test]
fn the_spool_is_private_and_the_archive_is_for_the_group_whatever_the_umask() {
    for umask in ["000", "077"] {
        let site = Site::new(SMALL);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec {} \"$@\"", *BINARY), "sh"]).args(site.ingest_args());
        let (acknowledged, ended) = Recorder::start(shell).run(0..5_000, line);
        assert!(ended.status.success(), "{}", ended.talk);
        assert_eq!(acknowledged.len(), 5_000);
        // A second run, so that every kind of file is there: it is killed with files open.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec {} \"$@\"", *BINARY), "sh"]).args(site.ingest_args());
        let mut recorder = Recorder::start(shell);
        recorder.say(&line(5_000));
        assert!(recorder.wait_for_acks(1, PATIENCE));
        recorder.signal(Signal::KILL);
        recorder.end();
        let spool = site.data().join("spool");
        let mut wrong = BTreeMap::new();
        for path in tree(site.data()).into_iter().chain([site.data().to_owned()]) {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let expected = match (path.starts_with(&spool), meta.is_dir()) {
                (true, true) => 0o700,
                (true, false) => 0o600,
                (false, true) => 0o750,
                (false, false) => 0o640,
            };
            let mode = meta.permissions().mode() & 0o7777;
            if mode != expected {
                wrong.insert(path, format!("is {mode:o}, expected {expected:o}"));
            }
        }
        assert!(wrong.is_empty(), "umask {umask}: {wrong:#?}");
    }
}

// Signals.

/// How long a process may take to end after the first signal.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn after_a_signal_what_was_accepted_is_delivered_and_the_exit_is_clean() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = Site::new(SMALL);
        let mut recorder = site.start();
        // More than is read before the signal: the pipe never ends.
        let feeder = recorder.feed(0..10_000_000, line);
        assert!(recorder.wait_for_acks(3_000, PATIENCE));
        recorder.signal(signal);
        let signalled = Stopwatch::start();
        let ended = recorder.end();
        feeder.join().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
        assert!(signalled.elapsed() < ENDS_WITHIN, "{:?}", signalled.elapsed());
        let acknowledged = ended.acknowledged(0..10_000_000);
        let archive = site.account(&acknowledged);
        println!("signal: acknowledged {}, in the archive {}", acknowledged.len(), archive.envelopes());
        assert!(!site.data().join("spool/spool_000001.dat").exists(), "the spool is empty");
    }
}

#[test]
fn after_a_signal_during_replay_the_exit_is_clean_and_the_rest_waits() {
    let site = Site::new(SMALL);
    let mut acknowledged = site.fill_spool(0..20_000, line);
    let mut recorder = site.start();
    recorder.say(&line(20_000));
    assert!(recorder.wait_for_acks(1, PATIENCE));
    recorder.signal(Signal::TERM);
    let signalled = Stopwatch::start();
    let ended = recorder.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.talk);
    assert!(signalled.elapsed() < ENDS_WITHIN, "{:?}", signalled.elapsed());
    acknowledged.extend(ended.acknowledged(20_000..20_001));
    assert_eq!(site.settle(&acknowledged).envelopes(), 20_001);
}

#[test]
fn a_second_signal_ends_it_at_once_and_nothing_is_lost() {
    let site = Site::new(SMALL);
    site.block_archive();
    let mut recorder = site.start();
    recorder.say(&line(0));
    assert!(recorder.wait_for_acks(1, PATIENCE));
    recorder.signal(Signal::TERM);
    recorder.wait_for_talk("again to end at once", PATIENCE);
    recorder.signal(Signal::TERM);
    let signalled = Stopwatch::start();
    let ended = recorder.end();
    assert!(signalled.elapsed() < Duration::from_secs(1), "{:?}", signalled.elapsed());
    assert_eq!(ended.status.code(), Some(130), "{}", ended.talk);
    site.unblock_archive();
    let acknowledged = ended.acknowledged(0..1);
    assert_eq!(acknowledged.len(), 1);
    site.settle(&acknowledged);
}

#[test]
fn after_the_last_line_a_signal_still_ends_the_wait_for_the_archive() {
    let site = Site::new(SMALL);
    site.block_archive();
    let mut recorder = site.start();
    recorder.say(&line(0));
    assert!(recorder.wait_for_acks(1, PATIENCE));
    recorder.close_input();
    recorder.wait_for_talk("records wait in the spool", PATIENCE);
    recorder.signal(Signal::TERM);
    // It uses up its patience, and a busy machine some more.
    assert!(recorder.wait_for_end(2 * ENDS_WITHIN), "it heeds no signal");
    let ended = recorder.end();
    site.unblock_archive();
    site.settle(&ended.acknowledged(0..1));
}

// A slow disk.

#[test]
fn a_disk_that_is_slow_to_sync_slows_the_reading_and_costs_no_memory() {
    let site = Site::new(
        &SMALL.replace("[persistence.spool]", "[persistence]\nmemory_mb = 16\n\n[persistence.spool]"),
    );
    let strace =
        Strace::watching("fdatasync", site.beside("strace.log")).inject("fdatasync:delay_enter=200000");
    let mut recorder = Recorder::start(strace.ingest(&site));
    let feeder = recorder.feed(0..10_000_000, line);
    assert!(recorder.wait_for_acks(500, PATIENCE), "{} acknowledged", recorder.acks());
    let process = recorder.watched().unwrap();
    let peak_kib = memory_peak_kib(process);
    kill_process(process, Signal::KILL).unwrap();
    let ended = recorder.end();
    feeder.join().unwrap();
    println!("slow sync: acknowledged {}, at most {} MiB of memory", ended.ids.len(), peak_kib >> 10);
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB of memory");
    site.settle(&ended.acknowledged(0..10_000_000));
}

/// The most memory a process has had.
fn memory_peak_kib(process: Pid) -> u64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(process.as_raw_nonzero().to_string()).join("status"))
            .unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}
