//! The archive's own promises, beyond those of every sink. Power cuts have a file of their own.
#![allow(clippy::unwrap_used)] // a test may

mod shelves;

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use catchment_model::{Envelope, EnvelopeLine, UnixNs};
use catchment_pipeline::disk::sim::{Op, SimDisk};
use catchment_pipeline::{Batch, Disk, Sink, SyncPoint};
use catchment_sinks::conformance::{NOON_MS, batch, plain, spool};
use catchment_sinks::{JsonlConfig, Manifest};
use sha2::{Digest, Sha256};
use shelves::{Bench, lines_of, run, write};

const HOUR_MS: i64 = 3_600_000;
const MIDNIGHT_MS: i64 = NOON_MS + 12 * HOUR_MS;

fn at(ms: i64) -> UnixNs {
    UnixNs::from_ms(ms).unwrap()
}

/// Records of one stream received at these times, numbered from `first`.
fn received_at(first: u64, times: &[i64]) -> Batch {
    let records: Vec<Envelope<'_>> = times.iter().map(|ms| plain("okx", "trades", *ms)).collect();
    Batch::of(spool(), first, &records)
}

fn all_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[test]
fn a_name_is_never_used_twice_even_when_the_clock_goes_back() {
    let bench = Bench::on_real_disk();
    let mut names = BTreeSet::new();
    for start in 0..4 {
        bench.clock.set_wall(at(NOON_MS - start * HOUR_MS));
        let sink = bench.open();
        write(&sink, &batch(1 + start as u64 * 6, 6)).unwrap();
        drop(sink);
        let numbers = bench.files_ending(".jsonl").into_iter().map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            name.rsplit('-').next().unwrap().to_owned()
        });
        names.extend(numbers);
    }
    assert_eq!(names.len(), bench.files_ending(".jsonl").len());
    assert_eq!(names.len(), 4 * 3, "every start has a file of its own for each of three streams");
}

#[test]
fn the_number_goes_on_though_sealed_files_were_moved_away() {
    let sim = SimDisk::new(1);
    let bench = Bench::on_sim(&sim);
    let sink = bench.open();
    write(&sink, &batch(1, 6)).unwrap();
    run(sink.close()).unwrap();
    for path in bench.files().iter().filter(|path| !path.starts_with("/data/.catchment")) {
        sim.remove(path).unwrap();
    }
    let sink = bench.open();
    write(&sink, &batch(1, 7)).unwrap();
    assert_eq!(bench.seqs(), [7]);
    assert!(bench.files_ending("-000003.jsonl").len() == 1, "{:?}", bench.files());
}

#[test]
fn a_torn_line_is_cut_and_comes_again_exactly_once() {
    let make = || {
        let sim = SimDisk::new(1);
        let bench = Bench::on_sim(&sim);
        write(&bench.open(), &received_at(1, &[NOON_MS; 3])).unwrap();
        (sim, bench)
    };
    let (_, whole) = make();
    let path = &whole.files_ending(".jsonl")[0];
    let bytes = whole.read(path);
    for len in 0..bytes.len() {
        let (sim, bench) = make();
        sim.damage(path, |bytes| bytes.truncate(len));
        let kept = bytes[..len].iter().filter(|byte| **byte == b'\n').count() as u64;
        let sink = bench.open();
        assert_eq!(bench.seqs(), all_to(kept), "cut to {len} bytes");
        assert_eq!(bench.files_ending(".jsonl").len(), usize::from(kept > 0), "cut to {len} bytes");
        write(&sink, &received_at(1, &[NOON_MS; 4])).unwrap();
        assert_eq!(bench.seqs(), all_to(4), "cut to {len} bytes");
    }
}

#[test]
fn a_flipped_bit_in_an_open_file_costs_at_most_one_record() {
    let make = || {
        let sim = SimDisk::new(1);
        let bench = Bench::on_sim(&sim);
        write(&bench.open(), &received_at(1, &[NOON_MS; 3])).unwrap();
        (sim, bench)
    };
    let (_, whole) = make();
    let path = &whole.files_ending(".jsonl")[0];
    let bytes = whole.read(path);
    for bit in (0..bytes.len()).flat_map(|byte| [byte * 8 + byte % 8, byte * 8 + (byte + 3) % 8]) {
        let (sim, bench) = make();
        sim.damage(path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let sink = bench.open();
        write(&sink, &received_at(4, &[NOON_MS; 20])).unwrap();
        drop(sink);
        write(&bench.open(), &received_at(24, &[NOON_MS; 20])).unwrap();
        let files = bench.files_ending(".jsonl");
        let lines: Vec<_> = files.iter().flat_map(|path| lines_of(path, &bench.read(path))).collect();
        let readable =
            lines.iter().filter_map(|line| EnvelopeLine::parse(&line[..line.len() - 1]).ok()?.id());
        let here: BTreeSet<u64> = readable.map(|id| id.seq).collect();
        let missing = all_to(43).into_iter().filter(|seq| !here.contains(seq)).count();
        // A newline that is gone makes one line of two records; their bytes are still there.
        let most = if bytes[bit / 8] == b'\n' { 2 } else { 1 };
        assert!(missing <= most, "bit {bit} of byte {} cost {missing} records", bit / 8);
    }
}

#[test]
fn records_around_midnight_are_filed_by_their_own_date_and_the_day_is_sealed_at_once() {
    let bench = Bench::on_sim(&SimDisk::new(1));
    let sink = bench.open();
    let streams = ["trades", "orderbook", "gaps"];
    let of = |first: u64, ms: i64| {
        let records: Vec<Envelope<'_>> = streams.iter().map(|channel| plain("okx", channel, ms)).collect();
        Batch::of(spool(), first, &records)
    };
    write(&sink, &of(1, MIDNIGHT_MS - 2)).unwrap();
    let mixed = [MIDNIGHT_MS, MIDNIGHT_MS - 1, MIDNIGHT_MS + 1, MIDNIGHT_MS - 1];
    write(&sink, &received_at(4, &mixed)).unwrap();
    assert_eq!(bench.files_ending(".manifest.json").len(), 0, "the old day is still coming in");
    write(&sink, &received_at(8, &[MIDNIGHT_MS + 2])).unwrap();
    assert_eq!(bench.files_ending(".manifest.json").len(), 3, "all streams of the old day");
    for path in bench.files_ending(".jsonl") {
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        for line in lines_of(&path, &bench.read(&path)) {
            let received = EnvelopeLine::parse(&line[..line.len() - 1]).unwrap().received_at().unwrap();
            assert_eq!(format!("date={}", received.date()), folder);
        }
    }
    assert_eq!(bench.seqs(), all_to(8));
    assert!(bench.files_ending(".jsonl").iter().any(|path| path.starts_with("/data/okx/orderbooks")));
}

#[test]
fn a_day_is_sealed_when_it_ends_though_nothing_comes_in() {
    let bench = Bench::on_sim(&SimDisk::new(1));
    bench.clock.set_wall(at(MIDNIGHT_MS - 1));
    let sink = bench.open();
    write(&sink, &batch(1, 6)).unwrap();
    run(sink.idle()).unwrap();
    assert_eq!(bench.files_ending(".manifest.json").len(), 0);
    bench.clock.set_wall(at(MIDNIGHT_MS));
    run(sink.idle()).unwrap();
    assert_eq!(bench.files_ending(".manifest.json").len(), 3);
}

#[test]
fn a_record_from_the_far_future_does_not_keep_days_open() {
    let bench = Bench::on_sim(&SimDisk::new(1));
    let sink = bench.open();
    write(&sink, &received_at(1, &[NOON_MS, NOON_MS + 9_000 * 24 * HOUR_MS])).unwrap();
    bench.clock.set_wall(at(MIDNIGHT_MS));
    write(&sink, &received_at(3, &[MIDNIGHT_MS])).unwrap();
    assert_eq!(bench.files_ending(".manifest.json").len(), 1);
}

#[test]
fn a_file_that_is_large_enough_is_sealed() {
    let bench = Bench::on_sim(&SimDisk::new(1)).file_bytes_max(1_000);
    let sink = bench.open();
    for first in 1..=20 {
        write(&sink, &received_at(first, &[NOON_MS])).unwrap();
    }
    let sealed = bench.files_ending(".manifest.json");
    assert!(sealed.len() >= 4, "{sealed:?}");
    for path in sealed {
        let bytes = Manifest::parse(&bench.read(&path)).unwrap().bytes;
        assert!((1_000..1_400).contains(&bytes), "{bytes}");
    }
    assert_eq!(bench.seqs(), all_to(20));
}

#[test]
fn open_files_are_never_too_many() {
    let bench = Bench::on_sim(&SimDisk::new(1));
    let sink = bench.open();
    let names: Vec<String> = (0..150).map(|n| format!("channel{n}")).collect();
    for first in [1, 151, 301] {
        let venue = format!("venue{first}");
        let records: Vec<Envelope<'_>> = names.iter().map(|name| plain(&venue, name, NOON_MS)).collect();
        write(&sink, &Batch::of(spool(), first, &records)).unwrap();
        let open = bench.files_ending(".jsonl").len() - bench.files_ending(".manifest.json").len();
        assert!(open <= 256, "{open} files are open");
    }
    assert_eq!(bench.seqs(), all_to(450));
}

#[test]
fn a_manifest_says_what_is_in_its_file() {
    for bench in [Bench::on_real_disk(), Bench::on_real_disk().compressed()] {
        let sink = bench.open();
        write(&sink, &received_at(1, &[NOON_MS + 5, NOON_MS, NOON_MS + 9])).unwrap();
        run(sink.close()).unwrap();
        let manifests = bench.files_ending(".manifest.json");
        let manifest = Manifest::parse(&bench.read(&manifests[0])).unwrap();
        let file = manifests[0].with_file_name(&manifest.file);
        let stored = bench.read(&file);
        let content: Vec<u8> = lines_of(&file, &stored).concat();
        let sha256: String = Sha256::digest(&stored).iter().map(|byte| format!("{byte:02x}")).collect();
        let packed = bench.config.compress.is_some();
        let expected = Manifest {
            version: 1,
            file: file.file_name().unwrap().to_str().unwrap().to_owned(),
            rows: 3,
            bytes: stored.len() as u64,
            content_bytes: packed.then_some(content.len() as u64),
            first_received_at_ms: Some(NOON_MS),
            last_received_at_ms: Some(NOON_MS + 9),
            first_id: Some(format!("{}-0000000000000001", spool())),
            last_id: Some(format!("{}-0000000000000003", spool())),
            sha256,
        };
        assert_eq!(manifest, expected);
        assert_eq!(file.to_str().unwrap().ends_with(".zst"), packed);
        let left: Vec<PathBuf> = bench.files().into_iter().filter(|path| !path.ends_with("x")).collect();
        assert_eq!(left.len(), 3, "the file, its manifest and the checkpoint: {left:?}");
    }
}

#[test]
fn a_checkpoint_damaged_anywhere_doubles_and_loses_nothing() {
    let make = || {
        let sim = SimDisk::new(1);
        let bench = Bench::on_sim(&sim);
        let sink = bench.open();
        write(&sink, &batch(1, 6)).unwrap();
        run(sink.close()).unwrap();
        (sim, bench)
    };
    let (_, whole) = make();
    let path = &whole.files().into_iter().find(|path| path.starts_with("/data/.catchment")).unwrap();
    for byte in 0..whole.read(path).len() {
        for change in [0x01, 0x80, 0xff] {
            let (sim, bench) = make();
            sim.damage(path, |bytes| bytes[byte] ^= change);
            write(&bench.open(), &batch(1, 9)).unwrap();
            assert_eq!(bench.seqs(), all_to(9), "byte {byte}");
            assert_eq!(bench.read(path).len(), whole.read(path).len(), "it was made again");
        }
    }
    let (sim, bench) = make();
    sim.remove(path).unwrap();
    write(&bench.open(), &batch(1, 9)).unwrap();
    assert_eq!(bench.seqs(), all_to(9), "no checkpoint at all");
}

#[test]
fn a_manifest_that_cannot_be_read_is_made_again() {
    for bench in [Bench::on_real_disk(), Bench::on_real_disk().compressed()] {
        let sink = bench.open();
        write(&sink, &batch(1, 6)).unwrap();
        run(sink.close()).unwrap();
        let manifest = &bench.files_ending(".manifest.json")[0];
        let before = bench.read(manifest);
        #[allow(clippy::disallowed_methods)] // damage need not be durable
        std::fs::write(manifest, &before[..20]).unwrap();
        write(&bench.open(), &batch(1, 9)).unwrap();
        assert_eq!(bench.read(manifest), before);
        assert_eq!(bench.seqs(), all_to(9));
    }
}

/// Every operation fails once, each in a run of its own; the disk is well again after.
#[test]
fn a_disk_that_fails_once_anywhere_loses_and_doubles_nothing() {
    for errno in [28, 5] {
        for nth in 0..200 {
            let sim = SimDisk::new(nth);
            let bench = Bench::on_sim(&sim).file_bytes_max(1_500);
            let bench = if nth % 2 == 0 { bench } else { bench.compressed() };
            let sink = bench.open();
            let failed = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
            let (seen, mut count) = (Arc::clone(&failed), 0);
            sim.inject(move |op| {
                if let Op::Sync(path, SyncPoint::ArchiveData) | Op::Append(path, _) = op {
                    assert!(
                        !seen.lock().unwrap().iter().any(|failed| failed == path),
                        "used after a failure"
                    );
                }
                count += 1;
                if count - 1 != nth {
                    return None;
                }
                if let Op::Sync(path, SyncPoint::ArchiveData) | Op::Append(path, _) = op
                    && path.extension().is_some_and(|extension| extension == "jsonl")
                {
                    seen.lock().unwrap().push(path.to_owned());
                }
                Some(errno)
            });
            for first in [1, 11, 21, 31] {
                while let Err(error) = write(&sink, &batch(first, 10)) {
                    let source = std::error::Error::source(&error).unwrap().to_string();
                    assert!(source.contains("/data"), "an error names its path: {source}");
                }
            }
            sim.heal();
            assert_eq!(bench.seqs(), all_to(40), "errno {errno}, operation {nth}");
            run(sink.close()).unwrap();
            sim.cut_power();
            write(&bench.open(), &batch(1, 45)).unwrap();
            assert_eq!(bench.seqs(), all_to(45), "errno {errno}, operation {nth}, after a restart");
        }
    }
}

#[test]
fn nothing_is_written_while_a_failed_file_cannot_be_cut_back() {
    let sim = SimDisk::new(1);
    let bench = Bench::on_sim(&sim);
    let sink = bench.open();
    write(&sink, &received_at(1, &[NOON_MS; 2])).unwrap();
    let mut syncs = 0;
    sim.inject(move |op| match op {
        Op::Sync(_, SyncPoint::ArchiveData) => {
            syncs += 1;
            (syncs == 1).then_some(5)
        }
        Op::Sync(_, SyncPoint::ArchiveRepair) => Some(30),
        _ => None,
    });
    for _ in 0..3 {
        let error = write(&sink, &received_at(3, &[NOON_MS; 2])).unwrap_err();
        assert_eq!(error.to_string(), "jsonl is unreachable");
    }
    assert_eq!(bench.files_ending(".jsonl").len(), 1, "no new file");
    sim.heal();
    write(&sink, &received_at(3, &[NOON_MS; 2])).unwrap();
    assert_eq!(bench.seqs(), all_to(4));
}

#[test]
fn records_of_another_spool_are_not_taken() {
    let bench = Bench::on_sim(&SimDisk::new(1));
    let sink = bench.open();
    let foreign = Batch::of(catchment_model::SpoolId::new(7), 1, &[plain("okx", "trades", NOON_MS)]);
    let error = write(&sink, &foreign).unwrap_err();
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.contains("records of spool 000000000007"), "{reason}");
}

#[test]
fn strange_things_in_the_archive_are_left_alone() {
    let bench = Bench::on_real_disk();
    let sink = bench.open();
    write(&sink, &batch(1, 6)).unwrap();
    drop(sink);
    let dir = bench.config.dir.clone();
    let date = dir.join("okx/trades/date=2026-12-31");
    let ours = |number: u32| date.join(format!("20270101T000000000Z-{}-{number:06}.jsonl", spool()));
    let other = date.join("20270101T000000000Z-00000000000a-000001.jsonl");
    symlink("/etc/hostname", ours(70)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        ours(71),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    std::fs::create_dir(ours(72)).unwrap();
    std::fs::create_dir_all(dir.join("okx/state/date=2026-12-31")).unwrap();
    std::fs::create_dir_all(dir.join("Not A Venue/x/date=oops")).unwrap();
    symlink(&dir, dir.join("loop")).unwrap();
    std::fs::File::create(date.join("notes.txt")).unwrap();
    let torn = b"another writer is at work here";
    std::io::Write::write_all(&mut std::fs::File::create(&other).unwrap(), torn).unwrap();
    write(&bench.open(), &batch(1, 9)).unwrap();
    assert_eq!(bench.read(&other), torn);
    for entry in [ours(70), ours(71), ours(72), date.join("notes.txt")] {
        assert!(entry.symlink_metadata().is_ok(), "{} is gone", entry.display());
    }
}

#[test]
fn a_link_in_place_of_a_folder_is_refused_by_name() {
    let bench = Bench::on_real_disk();
    let sink = bench.open();
    symlink("/tmp", bench.config.dir.join("okx")).unwrap();
    let error = write(&sink, &batch(1, 6)).unwrap_err();
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.contains("/okx is not a folder"), "{reason}");
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_by_name_and_advice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::File::create(&file).unwrap();
    let bench = Bench::new(
        JsonlConfig::new(file.join("data")),
        Arc::new(catchment_pipeline::RealDisk::shared()) as Arc<dyn Disk>,
    );
    let error = bench.try_open().unwrap_err().to_string();
    assert!(error.contains("cannot make the folder") && error.contains("/file/data; look at"), "{error}");
}
