//! The binary as a user meets it: exit codes, what is said and where, and what becomes of odd input.
#![allow(clippy::unwrap_used)] // a test may

mod workshop;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use workshop::archive::{each_line, files};
use workshop::{BINARY, PATIENCE, SMALL, SMALL_COMPRESSED_DEDUP, Site, line, put, said};

/// Runs the binary with these words in this folder.
fn run_in(dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(&*BINARY);
    command.args(args).current_dir(dir);
    pipe(command, input)
}

/// Runs a recorder of the site, with these words added.
fn ingest(site: &Site, args: &[&str], input: &[u8]) -> Output {
    let mut command = site.ingest();
    command.args(args);
    pipe(command, input)
}

fn pipe(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read everything, and print before it has.
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join().unwrap();
    output
}

#[test]
fn whoever_reads_no_more_ends_it_without_a_word() {
    for args in [&["venues"][..], &["config", "explain"][..], &["venues", "--json"][..]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(&*BINARY);
        let output = command.args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(&*BINARY).arg("venues").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_could_not(&output, &["standard output cannot be written"]);
}

#[test]
fn venues_of_a_folder_are_listed_with_the_configuration_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("venues")).unwrap();
    let binance = include_str!("../../venues/descriptors/binance.toml");
    put(
        &dir.path().join("venues/own.toml"),
        binance.replace("id = \"binance\"", "id = \"lantern\"").as_bytes(),
    );
    put(&dir.path().join("catchment.toml"), b"descriptors_dir = 'venues'\n");
    let plain = run_in(dir.path(), &["venues"], b"");
    assert!(!said(&plain).contains("lantern"), "{}", said(&plain));
    for args in [&["venues", "-c", "catchment.toml"][..], &["venues", "-c", "catchment.toml", "--json"][..]] {
        let listed = run_in(dir.path(), args, b"");
        assert_eq!(listed.status.code(), Some(0), "{}", said(&listed));
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(text.contains("lantern") && text.contains("polymarket") && text.contains("kraken"), "{text}");
    }
    assert_could_not(&run_in(dir.path(), &["venues", "-c", "nowhere.toml"], b""), &["nowhere.toml"]);
    std::fs::copy(dir.path().join("venues/own.toml"), dir.path().join("venues/same.toml")).unwrap();
    let both = run_in(dir.path(), &["venues", "-c", "catchment.toml"], b"");
    assert_could_not(&both, &["same.toml", "own.toml", "lantern"]);
}

#[test]
fn what_has_no_effect_is_told_by_check_and_by_run() {
    let dir = tempfile::tempdir().unwrap();
    put(
        &dir.path().join("catchment.toml"),
        b"[venues.binance]\n[persistence]\nmongo_uri = 'mongodb://10.0.0.1'\n",
    );
    let checked = run_in(dir.path(), &["check"], b"");
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    let ran = run_in(dir.path(), &["run"], b"");
    assert_eq!(ran.status.code(), Some(2), "{}", said(&ran));
    for told in [said(&checked), said(&ran)] {
        assert!(told.contains("[venues.binance] is not recorded"), "{told}");
        assert!(told.contains("[[sinks]] kind = \"mongo\""), "{told}");
    }
}

/// It could not do it: exit code 2, nothing on standard output, and a reason that holds each of these.
fn assert_could_not(output: &Output, reasons: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{}", said(output));
    assert!(output.stdout.is_empty(), "talk on standard output: {}", said(output));
    assert_says(output, reasons);
}

fn assert_says(output: &Output, texts: &[&str]) {
    let talk = String::from_utf8_lossy(&output.stderr);
    for text in texts {
        assert!(talk.contains(text), "expected {text:?} in: {talk}");
    }
    assert!(!talk.contains("panicked"), "{talk}");
}

/// The ids on standard output: all of it is ids.
fn ids(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let ids: Vec<String> = text.lines().map(str::to_owned).collect();
    ids.iter().for_each(|id| {
        workshop::recorder::parse_id(id);
    });
    ids
}

/// The lines of the archive, newest id last.
fn archived(site: &Site) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    each_line(site.data(), |_, line| lines.push(line.to_vec()));
    lines.sort_by_key(|line| {
        let at = line.windows(6).rposition(|w| w == br#""id":""#).unwrap();
        line[at..at + 36].to_vec()
    });
    lines
}

// The configuration.

#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_the_key() {
    let check = |config: &str, reasons: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("catchment.toml"), config.as_bytes());
        for command in [&["check"][..], &["ingest"]] {
            let output = run_in(dir.path(), command, b"");
            assert_could_not(&output, reasons);
            assert_says(&output, &["catchment.toml"]);
        }
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "nothing is made before the configuration is good");
    };
    check("data_dri = 'x'", &["unknown field `data_dri`", "data_dir", "line 1"]);
    check("[persistence.spool]\nmax_segmnt_mb = 1", &["unknown field `max_segmnt_mb`", "line 2"]);
    check("[persistence.spool]\nmax_segment_mb = '64MB'", &["the unit is part of the key", "line 2"]);
    check(
        "[persistence.spool]\nmax_segment_mb = 64\nmax_total_mb = 100",
        &["persistence.spool.max_total_mb is 100", "two segments"],
    );
    check("[[sinks]]\nkind = 'carrier_pigeon'", &["unknown variant `carrier_pigeon`", "jsonl"]);
    check("sinks = []", &["sinks is empty"]);
}

#[test]
fn the_limits_of_a_venue_that_is_elsewhere_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("catchment.toml"), b"[venues.limitless]");
    let output = run_in(dir.path(), &["run", "--unlimited", "--for", "1s"], b"");
    assert_could_not(&output, &["--unlimited is for servers on this machine", "limitless"]);
}

#[test]
fn a_configuration_that_is_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--config", "-c"] {
        for command in ["check", "ingest"] {
            let output = run_in(dir.path(), &[command, option, "elsewhere.toml"], b"");
            assert_could_not(&output, &["elsewhere.toml", "catchment config init", "No such file"]);
        }
    }
    let output = run_in(dir.path(), &["check"], b"");
    assert_eq!(output.status.code(), Some(0), "without a name the defaults do: {}", said(&output));
}

#[test]
fn config_init_writes_once_and_what_it_writes_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let first = run_in(dir.path(), &["config", "init"], b"");
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    assert!(first.stdout.is_empty());
    let written = std::fs::read(dir.path().join("catchment.toml")).unwrap();
    put(&dir.path().join("catchment.toml"), b"# mine\n");
    let again = run_in(dir.path(), &["config", "init"], b"");
    assert_could_not(&again, &["catchment.toml is already there", "--force"]);
    assert_eq!(std::fs::read(dir.path().join("catchment.toml")).unwrap(), b"# mine\n");
    let forced = run_in(dir.path(), &["config", "init", "--force"], b"");
    assert_eq!(forced.status.code(), Some(0), "{}", said(&forced));
    assert_eq!(std::fs::read(dir.path().join("catchment.toml")).unwrap(), written);

    let printed = run_in(dir.path(), &["config", "init", "-"], b"");
    assert_eq!(printed.status.code(), Some(0), "{}", said(&printed));
    assert_eq!(printed.stdout, written, "the same on standard output");
    let piped = run_in(dir.path(), &["check", "--config", "/dev/stdin"], &printed.stdout);
    assert_eq!(piped.status.code(), Some(0), "{}", said(&piped));
    let json = run_in(dir.path(), &["check", "--json"], b"");
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["ok"], true);
}

#[test]
fn words_that_are_no_command_are_refused_with_the_usage() {
    let dir = tempfile::tempdir().unwrap();
    assert_could_not(&run_in(dir.path(), &["ingets"], b""), &["ingets", "Usage"]);
    assert_could_not(&run_in(dir.path(), &["ingest", "--akc"], b""), &["--akc", "Usage"]);
    assert_could_not(&run_in(dir.path(), &[], b""), &["Usage"]);
}

// Places.

#[test]
fn a_folder_that_cannot_be_made_or_written_is_named() {
    let site = Site::new(SMALL);
    put(site.data(), b"a file where the folder should be");
    let output = ingest(&site, &[], line(0).as_bytes());
    assert_could_not(&output, &[&site.data().join("spool").display().to_string(), "cannot use the spool"]);

    // Root may write everywhere, so somebody else is asked to.
    let site = Site::new(SMALL);
    let (config, data) = (site.beside("catchment.toml"), site.data().to_owned());
    let mut command = Command::new(&*BINARY);
    if rustix::process::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(copied_for_all(&site));
        open_to_all(&site.beside(""));
    }
    std::fs::create_dir(&data).unwrap();
    set_mode(&data, 0o555);
    command.args(["ingest", "--config"]).arg(&config).arg("--data-dir").arg(&data);
    let output = pipe(command, line(0).as_bytes());
    assert_could_not(&output, &[&data.display().to_string(), "Permission denied"]);
}

/// The binary where anybody may run it.
fn copied_for_all(site: &Site) -> std::path::PathBuf {
    let copy = site.beside("catchment");
    std::fs::copy(&*BINARY, &copy).unwrap();
    set_mode(&copy, 0o755);
    copy
}

fn open_to_all(dir: &Path) {
    set_mode(dir, 0o755);
    set_mode(&dir.join("catchment.toml"), 0o644);
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

// Lines.

#[test]
fn bad_lines_are_refused_with_number_and_reason_and_the_rest_is_stored() {
    let site = Site::new(SMALL);
    let rejects = site.beside("rejects.jsonl");
    let mut input = line(0);
    input.push_str("hello\n");
    input.push_str(&line(1).replace("\"symbol\"", "\"cymbal\""));
    input.push_str(&line(2));
    input.push('\n');
    input.push_str(&line(3).replace("\"exchange\":\"", "\"exchange\":\"../"));
    input.push_str(&line(4));
    let output = ingest(&site, &["--rejects", &rejects.display().to_string()], input.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let reasons = ["line 2: refused: ", "line 3: refused: ", "line 5: refused: ", "line 6: refused: "];
    assert_says(&output, &reasons);
    assert_says(&output, &["unknown field `cymbal`", "7 lines read, 4 refused"]);
    assert_eq!(ids(&output).len(), 3);
    assert_eq!(archived(&site).len(), 3);
    let kept = std::fs::read_to_string(&rejects).unwrap();
    let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = kept.iter().map(|entry| entry["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [2, 3, 5, 6]);
    assert_eq!(kept[0]["text"], "hello");
    assert_eq!(kept[2]["text"], "");
    assert!(kept[1]["reason"].as_str().unwrap().contains("cymbal"), "{}", kept[1]);
    site.verify();
}

#[test]
fn a_payload_is_stored_byte_for_byte_or_refused_whole() {
    let deep = 100_000;
    let nested = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let large = format!("\"{}\"", "x".repeat(10 << 20));
    let stored = [
        "1e999",
        "-0.0",
        "0.10000000000000000000000000000000000001",
        "123456789012345678901234567890",
        r#"{"b":1,"a":2,"b":3}"#,
        r#""\u0000\ud83d\ude00\u00e9 é 😀""#,
        r#""\ud800""#,
        r#"{"id":"0123456789ab-0000000000000001","payload":{"id":"x"}}"#,
        r#"[ 1 ,	2 , { } ]"#,
        "null",
        &nested,
        &large,
    ];
    let refused: [&[u8]; 8] =
        [b"\"\xff\xfe\"", b"\"\xed\xa0\x80\"", b"NaN", b"01", b"{\"a\":1,}", b"\"\x01\"", b"[1", b""];
    let site = Site::new(SMALL);
    let around = |payload: &[u8]| {
        let start = br#"{"exchange":"okx","channel":"trades","symbol":"BTC/USDT","payload":"#;
        [&start[..], payload, b"}\n"].concat()
    };
    let mut input = Vec::new();
    stored.iter().for_each(|payload| input.extend(around(payload.as_bytes())));
    refused.iter().for_each(|payload| input.extend(around(payload)));
    let output = ingest(&site, &[], &input);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_says(
        &output,
        &[&format!("{} lines read, {} refused", stored.len() + refused.len(), refused.len())],
    );
    assert_eq!(ids(&output).len(), stored.len());
    let lines = archived(&site);
    assert_eq!(lines.len(), stored.len());
    for (line, payload) in lines.iter().zip(stored) {
        let start = line.windows(11).position(|w| w == br#","payload":"#).unwrap() + 11;
        let kept = &line[start..start + payload.len()];
        let name: String = payload.chars().take(60).collect();
        assert!(kept == payload.as_bytes(), "{name} was altered");
        assert!(line[start + payload.len()..].starts_with(br#","id":""#), "{name} was altered");
    }
    site.verify();
}

#[test]
fn a_line_of_40_mb_is_refused_and_the_next_one_stored() {
    let site = Site::new(SMALL);
    let input = [line(0), workshop::line_of(1, 40_000_000), line(2)].concat();
    let output = ingest(&site, &[], input.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_says(&output, &["line 2: refused: the line has 40000", "too many"]);
    assert_eq!(ids(&output).len(), 2);
    assert_eq!(archived(&site).len(), 2);
}

#[test]
fn lines_may_end_in_crlf_and_the_last_one_in_nothing() {
    let site = Site::new(SMALL);
    let input = format!("{}{}", line(0).replace('\n', "\r\n"), line(1).trim_end());
    let output = ingest(&site, &[], input.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let lines = archived(&site);
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| !line.contains(&b'\r')));
    site.verify();
}

#[test]
fn nothing_on_standard_input_is_no_error() {
    let site = Site::new(SMALL);
    let output = ingest(&site, &[], b"");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout.is_empty());
    assert_says(&output, &["0 lines read, 0 refused"]);
}

#[test]
fn the_closing_figures_as_json_parse_and_balance() {
    let site = Site::new(SMALL);
    let mut input = String::new();
    (0..300).for_each(|n| input.push_str(&line(n)));
    input.push_str("not an envelope\n");
    let output = ingest(&site, &["--json"], input.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(ids(&output).len(), 300, "standard output holds ids and nothing else");
    let talk = String::from_utf8(output.stderr).unwrap();
    let closing: Value = serde_json::from_str(talk.lines().last().unwrap()).unwrap();
    assert_eq!(closing["lines"], 301);
    assert_eq!(closing["refused"], 1);
    assert_eq!(closing["balanced"], true);
    let balances = closing["balances"].as_array().unwrap();
    assert_eq!(balances.len(), 3, "{closing}");
    for balance in balances {
        let count = |key: &str| balance[key].as_u64().unwrap();
        assert_eq!(count("received"), 100, "{balance}");
        assert_eq!(count("written"), 100, "{balance}");
        assert_eq!(count("pending") + count("duplicate") + count("quarantined"), 0, "{balance}");
    }
}

#[test]
fn without_ack_nothing_is_printed_on_standard_output() {
    let site = Site::new(SMALL);
    let mut command = Command::new(&*BINARY);
    command.args(site.ingest_args().iter().filter(|arg| *arg != "--ack"));
    let output = pipe(command, line(0).as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout.is_empty(), "{}", said(&output));
    assert_eq!(archived(&site).len(), 1);
}

#[test]
fn records_are_accepted_although_nobody_reads_the_ids() {
    let site = Site::new(SMALL);
    let mut command = site.ingest();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(line(0).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(archived(&site).len(), 1);
}

// Verifying.

#[test]
fn verify_names_file_and_line_of_what_is_damaged() {
    let site = Site::new(SMALL);
    let mut input = String::new();
    (0..90).for_each(|n| input.push_str(&line(n)));
    assert_eq!(ingest(&site, &[], input.as_bytes()).status.code(), Some(0));
    let damaged = &files(site.data())[0];
    let mut bytes = std::fs::read(damaged).unwrap();
    let third = bytes.split_inclusive(|b| *b == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
    bytes[third] = b'#';
    put(damaged, &bytes);
    let dir = site.data().display().to_string();
    let output = run_in(site.data(), &["verify", &dir], b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains(&format!("{}:3: ", damaged.display())), "{report}");
    assert!(output.stderr.is_empty(), "the report is data, not talk: {}", said(&output));
    let json = run_in(site.data(), &["verify", &dir, "--json"], b"");
    assert_eq!(json.status.code(), Some(1), "{}", said(&json));
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["line"] == 3), "{report}");
    assert_eq!(report["problems_total"].as_u64().unwrap(), problems.len() as u64);
}

#[test]
fn verify_beside_a_running_recorder_finds_nothing_wrong() {
    verify_while_it_records(SMALL);
}

#[test]
fn verify_beside_a_recorder_that_compresses_finds_nothing_wrong() {
    verify_while_it_records(SMALL_COMPRESSED_DEDUP);
}

fn verify_while_it_records(config: &str) {
    let site = Site::new(config);
    let mut recorder = site.start();
    let feeder = recorder.feed(0..10_000_000, line);
    for _ in 0..15 {
        // So that each finds files that were just sealed.
        assert!(recorder.wait_for_acks(recorder.acks() + 1_000, PATIENCE));
        site.verify();
    }
    recorder.signal(rustix::process::Signal::KILL);
    recorder.end();
    feeder.join().unwrap();
}

#[test]
fn verify_of_a_folder_that_is_not_there_could_not() {
    let dir = tempfile::tempdir().unwrap();
    let output = run_in(dir.path(), &["verify", "nowhere"], b"");
    assert_could_not(&output, &["cannot list the folder nowhere", "No such file"]);
}
