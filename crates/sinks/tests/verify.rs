//! What is wrong with an archive is named, by file and line; what is right is not.
#![allow(clippy::unwrap_used)] // a test may

mod shelves;

use std::path::{Path, PathBuf};

use catchment_model::Envelope;
use catchment_pipeline::{Batch, Sink};
use catchment_sinks::conformance::{NOON_MS, batch, plain, spool};
use catchment_sinks::{Options, Report, verify};
use shelves::{Bench, run, write};

/// A sealed archive of three streams, ten records each.
fn archive() -> Bench {
    let bench = Bench::on_real_disk();
    let sink = bench.open();
    write(&sink, &batch(1, 30)).unwrap();
    run(sink.close()).unwrap();
    bench
}

fn report(bench: &Bench) -> Report {
    verify(&bench.config.dir, Options::default(), &|_| {}).unwrap()
}

#[allow(clippy::disallowed_methods)] // damage need not be durable
fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

fn a_file(bench: &Bench) -> PathBuf {
    bench
        .files_ending(".jsonl")
        .into_iter()
        .find(|path| path.to_str().unwrap().contains("okx/trades"))
        .unwrap()
}

/// The report must name this line (0: the file as a whole) and say this.
fn expect(bench: &Bench, path: &Path, line: u64, reason: &str) {
    let report = report(bench);
    let named = |problem: &&catchment_sinks::Problem| {
        problem.path == path && problem.line.unwrap_or(0) == line && problem.reason.contains(reason)
    };
    assert!(report.problems.iter().any(|p| named(&p)), "expected {reason:?} in line {line}: {report:#?}");
}

#[test]
fn a_clean_archive_passes() {
    for bench in [archive(), archive().compressed()] {
        let sink = bench.open();
        let gap = Batch::of(spool(), 31, &[plain("okx", "gaps", NOON_MS)]);
        write(&sink, &gap).unwrap();
        run(sink.close()).unwrap();
        write(&sink, &batch(32, 3)).unwrap();
        let progress = std::sync::Mutex::new(Vec::new());
        let note = |step| progress.lock().unwrap().push(step);
        let report = verify(&bench.config.dir, Options::default(), &note).unwrap();
        assert_eq!(report.problems, []);
        assert_eq!((report.files, report.sealed_files, report.open_files), (7, 4, 3));
        assert_eq!((report.rows, report.gaps, report.problems_total), (34, 1, 0));
        let streams: Vec<String> =
            report.streams.iter().map(|s| format!("{}/{}: {}", s.venue, s.channel, s.rows)).collect();
        assert_eq!(streams, ["binance/trades: 11", "okx/gaps: 1", "okx/orderbook: 11", "okx/trades: 11"]);
        let progress = progress.into_inner().unwrap();
        let last = progress.last().unwrap();
        assert_eq!((last.files_done, last.files, progress.len()), (7, 7, 7));
        assert_eq!((last.bytes_done, last.bytes), (report.bytes, report.bytes));
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_file_or_its_manifest_is_noticed() {
    for compress in [None, Some(1)] {
        let mut bench = Bench::on_real_disk();
        bench.config.compress = compress;
        let sink = bench.open();
        write(&sink, &Batch::of(spool(), 1, &[plain("okx", "trades", NOON_MS); 2])).unwrap();
        run(sink.close()).unwrap();
        for path in bench.files().into_iter().filter(|path| path.to_str().unwrap().contains("date=")) {
            let bytes = bench.read(&path);
            for bit in (0..bytes.len()).flat_map(|byte| [byte * 8 + byte % 8, byte * 8 + (byte + 3) % 8]) {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                put(&path, &flipped);
                assert!(report(&bench).problems_total > 0, "bit {bit} of {}", path.display());
            }
            put(&path, &bytes);
        }
        assert_eq!(report(&bench).problems_total, 0);
    }
}

#[test]
fn a_flipped_byte_is_named_with_file_and_line() {
    let bench = archive();
    let path = a_file(&bench);
    let mut bytes = bench.read(&path);
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second] = b'[';
    put(&path, &bytes);
    expect(&bench, &path, 2, "not an envelope");
    expect(&bench, &catchment_pipeline::disk::with_suffix(&path, ".manifest.json"), 0, "sha256 is");
}

#[test]
fn a_row_that_is_gone_or_there_twice_is_named() {
    let bench = archive();
    let path = a_file(&bench);
    let lines = shelves::lines_of(&path, &bench.read(&path));
    let manifest = catchment_pipeline::disk::with_suffix(&path, ".manifest.json");
    put(&path, &[&lines[..3], &lines[4..]].concat().concat());
    expect(&bench, &manifest, 0, "rows is 10, the file has 9");
    put(&path, &[&lines[..4], &lines[3..]].concat().concat());
    expect(&bench, &path, 5, "does not come after");
    expect(&bench, &path, 5, "is in the archive twice");
    expect(&bench, &manifest, 0, "rows is 10, the file has 11");
}

#[test]
fn a_record_in_two_files_is_named() {
    let bench = archive();
    let path = a_file(&bench);
    let copy = PathBuf::from(path.to_str().unwrap().replace("-000", "-100"));
    put(&copy, &shelves::lines_of(&path, &bench.read(&path))[0]);
    let report = report(&bench);
    assert_eq!(report.problems_total, 1, "{report:#?}");
    assert!(report.problems[0].reason.contains("twice"));
}

#[test]
fn a_file_in_the_wrong_folder_is_named() {
    let bench = archive();
    let path = a_file(&bench);
    let bytes = bench.read(&path);
    for (folder, reason) in [
        ("okx/trades/date=2026-12-30", "not on the folder's date"),
        ("okx/orderbooks/date=2026-12-31", "of okx/trades, not of this folder"),
    ] {
        let wrong = bench.config.dir.join(folder).join(path.file_name().unwrap());
        std::fs::create_dir_all(wrong.parent().unwrap()).unwrap();
        put(&wrong, &bytes);
        expect(&bench, &wrong, 1, reason);
        std::fs::remove_file(wrong).unwrap();
    }
    let wrong = path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace("c0ffee", "aaaaaa"));
    put(&wrong, &bytes);
    expect(&bench, &wrong, 1, "not of the writer in the file's name");
}

#[test]
fn a_manifest_without_its_file_is_named() {
    let bench = archive();
    let path = a_file(&bench);
    std::fs::remove_file(&path).unwrap();
    expect(&bench, &catchment_pipeline::disk::with_suffix(&path, ".manifest.json"), 0, "its file is missing");
}

#[test]
fn lines_that_are_no_records_are_named() {
    let bench = Bench::on_real_disk();
    let records: Vec<Envelope<'_>> = vec![plain("okx", "trades", NOON_MS); 3];
    write(&bench.open(), &Batch::of(spool(), 1, &records)).unwrap();
    let path = a_file(&bench);
    let good = String::from_utf8(bench.read(&path)).unwrap();
    let id = format!("{}-0000000000000002", spool());
    let received = format!(r#""received_at_ms":{NOON_MS},"#);
    for (from, to, line, reason) in [
        (id.as_str(), "2", 2, "no id of the right form"),
        (received.as_str(), r#""received_at_ms":1,"#, 1, "not the same millisecond"),
        ("\"symbol\"", "\"simbol\"", 1, "unknown field"),
        (good.as_str(), "\n", 1, "not an envelope"),
        (good.as_str(), "{\"torn", 1, "torn"),
    ] {
        put(&path, good.replacen(from, to, 1).as_bytes());
        expect(&bench, &path, line, reason);
    }
    let mut bytes = good.clone().into_bytes();
    let at = good.find("0.010").unwrap();
    bytes[at] = 0xff;
    put(&path, &bytes);
    expect(&bench, &path, 1, "not an envelope");
    let mut long = vec![b'x'; 40 << 20];
    long.push(b'\n');
    long.extend_from_slice(good.as_bytes());
    put(&path, &long);
    expect(&bench, &path, 1, "longer than 33554432 bytes");
    assert_eq!(report(&bench).problems_total, 1);
}

#[test]
fn what_is_no_file_of_ours_is_named_and_not_read() {
    let bench = archive();
    let date = a_file(&bench).parent().unwrap().to_owned();
    std::os::unix::fs::symlink("/dev/zero", date.join("zero.jsonl")).unwrap();
    expect(&bench, &date.join("zero.jsonl"), 0, "not a regular file");
    put(&date.join("mine.jsonl"), b"");
    expect(&bench, &date.join("mine.jsonl"), 0, "not a name the recorder gives");
    std::fs::create_dir(date.with_file_name("date=today")).unwrap();
    expect(&bench, &date.with_file_name("date=today"), 0, "not date=YYYY-MM-DD");
}

#[test]
fn an_original_beside_its_sealed_compressed_form_does_not_count() {
    let bench = Bench::on_real_disk();
    write(&bench.open(), &batch(1, 30)).unwrap();
    let (path, bytes) = (a_file(&bench), bench.read(&a_file(&bench)));
    let bench = bench.compressed();
    run(bench.open().close()).unwrap();
    assert!(!path.exists());
    put(&path, &bytes);
    let report = report(&bench);
    assert_eq!((report.problems_total, report.rows, report.files), (0, 30, 3));
}

#[test]
fn only_so_many_problems_are_named_and_all_are_counted() {
    let bench = Bench::on_real_disk();
    write(&bench.open(), &batch(1, 3)).unwrap();
    put(&a_file(&bench), "x\n".repeat(1_500).as_bytes());
    let report = report(&bench);
    assert_eq!((report.problems.len(), report.problems_total), (1_000, 1_500));
}

#[test]
fn a_folder_that_is_not_there_is_an_error_by_name() {
    let error = verify(Path::new("/no/such/archive"), Options::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("/no/such/archive"), "{error}");
}
