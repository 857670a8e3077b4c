//! What the tests of the real binary share: a place for one recorder, numbered envelopes, and the account of what was
//! acknowledged against what the archive holds.
#![allow(dead_code, unreachable_pub)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // a test may

pub mod archive;
#[path = "../binary/mod.rs"]
mod binary;
pub mod recorder;
pub mod run;
pub mod small_disk;
pub mod strace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use archive::Archive;
pub use binary::BINARY;
use recorder::{Acknowledged, Recorder};

/// Longer than any of these processes takes on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Segments and files as small as they may be, so that a few megabytes fill, seal and remove many.
pub const SMALL: &str = r#"
[persistence.spool]
max_segment_mb = 1
max_total_mb = 64
on_full = "block"
commit_ms = 1
commit_kb = 64

[[sinks]]
file_mb = 1
batch_kb = 256
batch_ms = 10
retry_base_ms = 20
retry_cap_ms = 100
"#;

/// The same with compressed files, and records that come twice dropped.
pub const SMALL_COMPRESSED_DEDUP: &str = r#"
[persistence.spool]
max_segment_mb = 1
max_total_mb = 64
on_full = "block"
commit_ms = 1
commit_kb = 64

[persistence.dedup]
enabled = true

[[sinks]]
file_mb = 1
compress = true
batch_kb = 256
batch_ms = 10
retry_base_ms = 20
retry_cap_ms = 100
"#;

/// A folder with a configuration, a data folder and room for logs.
pub struct Site {
    /// Removed with the site; none if the folder belongs to somebody else.
    _own: Option<tempfile::TempDir>,
    root: PathBuf,
    data: PathBuf,
}

impl Site {
    /// A site of its own.
    pub fn new(config: &str) -> Self {
        let own = tempfile::tempdir().unwrap();
        let root = own.path().to_owned();
        let site = Self { data: root.join("data"), root, _own: Some(own) };
        put(&site.config(), config.as_bytes());
        site
    }

    /// A site whose data lie elsewhere: on a small disk, or where another site has them.
    pub fn with_data(config: &str, data: &Path) -> Self {
        Self { data: data.to_owned(), ..Self::new(config) }
    }

    /// The archive, and in it the spool.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A place beside the data.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn config(&self) -> PathBuf {
        self.root.join("catchment.toml")
    }

    /// The words after `catchment` that start a recorder here.
    pub fn ingest_args(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let args = ["ingest", "--config", &path(&self.config()), "--data-dir", &path(&self.data), "--ack"];
        args.map(str::to_owned).to_vec()
    }

    /// The command that starts a recorder here.
    pub fn ingest(&self) -> Command {
        let mut command = Command::new(&*BINARY);
        command.args(self.ingest_args());
        command
    }

    /// The same, and when the disk takes nothing it waits and says so.
    pub fn ingest_waiting(&self) -> Command {
        let mut command = self.ingest();
        command.arg("--wait-for-disk").env("CATCHMENT_LOG", "info");
        command
    }

    /// Puts files where the archive's folders belong: nothing can be delivered, and everything stays in the spool.
    pub fn block_archive(&self) {
        std::fs::create_dir_all(&self.data).unwrap();
        VENUES.iter().for_each(|venue| put(&self.data.join(venue), b""));
    }

    /// Takes them away.
    pub fn unblock_archive(&self) {
        VENUES.iter().for_each(|venue| std::fs::remove_file(self.data.join(venue)).unwrap());
    }

    /// A recorder that acknowledged these envelopes, delivered none of them, and was killed.
    pub fn fill_spool(&self, numbers: std::ops::Range<u64>, line: fn(u64) -> String) -> Acknowledged {
        self.block_archive();
        let mut recorder = self.start();
        let feeder = recorder.feed(numbers.clone(), line);
        let count = (numbers.end - numbers.start) as usize;
        assert!(recorder.wait_for_acks(count, PATIENCE), "only {} acknowledged", recorder.acks());
        recorder.signal(rustix::process::Signal::KILL);
        feeder.join().unwrap();
        let acknowledged = recorder.end().acknowledged(numbers);
        self.unblock_archive();
        acknowledged
    }

    /// Starts a recorder here and leaves it running.
    pub fn start(&self) -> Recorder {
        Recorder::start(self.ingest())
    }

    /// A start with nothing to read: everything in the spool is delivered, and the exit is clean.
    pub fn drain(&self) -> Output {
        let output = self.ingest().stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "a start with empty input: {}", said(&output));
        output
    }

    /// Drains, verifies, and holds the archive to what was acknowledged: nothing lost, nothing twice.
    pub fn settle(&self, acknowledged: &Acknowledged) -> Archive {
        self.drain();
        self.account(acknowledged)
    }

    /// Verifies the archive as it is and holds it to what was acknowledged.
    pub fn account(&self, acknowledged: &Acknowledged) -> Archive {
        let report = self.verify();
        let archive = Archive::read(&self.data);
        let losses = archive.compare(acknowledged);
        assert_eq!(losses.to_string(), "lost 0, doubled 0", "of {} acknowledged", acknowledged.len());
        assert_eq!(report["rows"], archive.rows() as u64, "verify counts what is there");
        archive
    }

    /// `catchment verify`, which must find nothing wrong. Gives back its report.
    pub fn verify(&self) -> serde_json::Value {
        let output = Command::new(&*BINARY).arg("verify").arg(&self.data).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "verify: {}", said(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["problems_total"], 0, "{report}");
        report
    }
}

const VENUES: [&str; 3] = ["binance", "okx", "kraken"];
const CHANNELS: [&str; 3] = ["trades", "ticker", "orderbook"];

/// The `n`-th envelope, newline included. Everything about it follows from `n`, and its payload says `n`.
pub fn line(n: u64) -> String {
    let fill = match n % 500 {
        499 => 50_000,
        _ => 100 + (n * 7_919 % 500) as usize,
    };
    line_of(n, fill)
}

/// The `n`-th envelope with a payload of about this many bytes.
pub fn line_of(n: u64, payload_bytes: usize) -> String {
    let venue = VENUES[n as usize % 3];
    let channel = CHANNELS[n as usize / 3 % 3];
    let fill = "x".repeat(payload_bytes);
    format!(
        r#"{{"message_id":"m{n}","exchange":"{venue}","channel":"{channel}","symbol":"BTC/USDT","payload":{{"n":{n},"fill":"{fill}"}}}}"#
    ) + "\n"
}

/// What a process printed, for the message of a failed assertion.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let start: String = stdout.chars().take(2_000).collect();
    format!("{}\nstderr: {text}\nstdout starts: {start}", output.status)
}

/// Whether the long forms are asked for.
pub fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// Writes a file that need not be durable.
#[allow(clippy::disallowed_methods)] // what a test prepares need not survive it
pub fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// Adds bytes to the end of a file.
pub fn append(path: &Path, bytes: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// A stopwatch on the real clock: a real process is being timed.
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts it.
    #[allow(clippy::disallowed_methods)] // the process under test lives in real time
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
