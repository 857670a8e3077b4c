//! Reading the file that discovery writes, without ever dying of it.
//!
//! A poller loads it again and again. Whatever is wrong with the file, what was read last stays in force: a file that is
//! missing, cut off, of another venue, of a later version, or older than what was read already is told of and left alone.
//! A listing without instruments is not wrong: discovery has thought twice before it wrote one.
//!
//! A look costs one `stat` as long as nothing has changed. The file is replaced as a whole, so a new one has another
//! inode, even within the tick of a coarse file system's clock.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use catchment_model::{Snapshot, SnapshotError, UnixMs, Venue};
use catchment_pipeline::disk::{self, RealDisk};

/// The most that is read: some 400,000 instruments.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

/// Where a venue's snapshot is, below the folder of the data.
pub fn snapshot_path(data_dir: &Path, venue: Venue) -> PathBuf {
    data_dir.join(venue.as_str()).join("state").join("active_instruments.snapshot.json")
}

/// A venue's snapshot, and what was last seen of it.
#[derive(Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    venue: Venue,
    /// The file as it was when it was last read, good or bad.
    seen: Option<Stamp>,
    /// When the newest snapshot that was taken was written.
    newest: Option<UnixMs>,
}

/// What a look at the file has given.
#[derive(Debug)]
pub enum Loaded {
    /// A snapshot to take over.
    New(Snapshot),
    /// The file is the one of the last look.
    Unchanged,
    /// There is none to be had; what was read before stays in force. Told once for each file that is wrong.
    Kept {
        /// Why.
        reason: KeptReason,
    },
}

/// Why a file was not taken.
#[derive(Debug)]
pub enum KeptReason {
    /// There is none.
    Missing,
    /// The disk does not give it.
    Disk(io::Error),
    /// Not a snapshot of this venue, or cut off.
    Unusable(SnapshotError),
    /// None of its instruments can be read. How many, and what is wrong with the first.
    NothingReadable(usize, String),
    /// Written before the one that was read last.
    Older {
        /// When it was written.
        written_at: UnixMs,
        /// When that one was.
        newest: UnixMs,
    },
}

impl KeptReason {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Disk(_) => "disk",
            Self::Unusable(_) => "unusable",
            Self::NothingReadable(..) => "nothing_readable",
            Self::Older { .. } => "older",
        }
    }
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "there is no snapshot of instruments"),
            Self::Disk(error) => write!(f, "the snapshot of instruments could not be read: {error}"),
            Self::Unusable(error) => error.fmt(f),
            Self::NothingReadable(count, first) => {
                write!(f, "none of {count} instruments can be read: {first}")
            }
            Self::Older { written_at, newest } => {
                write!(f, "the snapshot of instruments is of {written_at}, the last one read was of {newest}")
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl SnapshotFile {
    /// The snapshot at this path, of this venue. Reads nothing yet.
    pub fn new(path: impl Into<PathBuf>, venue: Venue) -> Self {
        Self { path: path.into(), venue, seen: None, newest: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file and reads it if it has changed. It waits for the disk, and a file of 100,000 instruments takes a
    /// while to parse, so not from an async task.
    pub fn load(&mut self) -> Loaded {
        match self.look() {
            Ok(Some(snapshot)) => Loaded::New(snapshot),
            Ok(None) => Loaded::Unchanged,
            Err(reason) => Loaded::Kept { reason },
        }
    }

    fn look(&mut self) -> Result<Option<Snapshot>, KeptReason> {
        let stamp = match std::fs::metadata(&self.path) {
            Ok(meta) => {
                Stamp { inode: meta.ino(), len: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
            }
            Err(error) => return Err(self.not_read(error)),
        };
        if self.seen == Some(stamp) {
            return Ok(None);
        }
        // Looked at before it is read: if it changes in between, the next look reads it again.
        let read = disk::read_file(&RealDisk::shared(), &self.path, SNAPSHOT_BYTES_MAX);
        let bytes = read.map_err(|error| self.not_read(error))?;
        self.seen = Some(stamp);
        self.judge(&bytes).map(Some)
    }

    fn judge(&mut self, bytes: &[u8]) -> Result<Snapshot, KeptReason> {
        let snapshot = Snapshot::read(self.venue, bytes).map_err(KeptReason::Unusable)?;
        if let (true, Some(first)) = (snapshot.instruments.is_empty(), snapshot.unreadable.first()) {
            return Err(KeptReason::NothingReadable(snapshot.unreadable.len(), first.clone()));
        }
        let written_at = snapshot.written_at;
        if let Some(newest) = self.newest
            && written_at < newest
        {
            return Err(KeptReason::Older { written_at, newest });
        }
        self.newest = Some(written_at);
        Ok(snapshot)
    }

    /// Nothing is remembered of it: the next look tries again.
    fn not_read(&mut self, error: io::Error) -> KeptReason {
        self.seen = None;
        match error.kind() {
            io::ErrorKind::NotFound => KeptReason::Missing,
            _ => KeptReason::Disk(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_model::Instrument;
    use catchment_pipeline::SyncPoint;

    fn venue(name: &str) -> Venue {
        Venue::new(name).unwrap()
    }

    fn snapshot(of: &str, written_at: i64, count: usize) -> Snapshot {
        let instrument = |n: usize| Instrument {
            venue: venue(of),
            poll_key: format!("key-{n}"),
            symbol: format!("symbol-{n}"),
            market_id: format!("market-{n}"),
            slug: None,
            outcome: None,
            expiry: None,
            tick_size: None,
            min_order_size: None,
        };
        let instruments = (0..count).map(instrument).collect();
        Snapshot::new(venue(of), UnixMs::new(written_at).unwrap(), instruments)
    }

    /// A folder with a snapshot in it, and whoever reads it.
    struct Bench {
        _dir: tempfile::TempDir,
        file: SnapshotFile,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = SnapshotFile::new(dir.path().join("s.json"), venue("kalshi"));
            Self { _dir: dir, file }
        }

        fn put(&self, bytes: &[u8]) {
            let disk = RealDisk::shared();
            disk::replace_file(&disk, self.file.path(), bytes, SyncPoint::StateData, SyncPoint::StateEntry)
                .unwrap();
        }

        /// What a look gives, in words.
        fn look(&mut self) -> String {
            match self.file.load() {
                Loaded::New(snapshot) => format!("new {}", snapshot.instruments.len()),
                Loaded::Unchanged => "unchanged".to_owned(),
                Loaded::Kept { reason } => format!("kept {}: {reason}", reason.kind()),
            }
        }

        fn check(&mut self, bytes: &[u8], looks: &str) {
            self.put(bytes);
            let seen = self.look();
            assert!(seen.starts_with(looks), "expected {looks:?}, got {seen:?}");
            assert_eq!(self.look(), "unchanged", "after {looks}");
        }
    }

    #[test]
    fn a_file_is_read_once_until_it_is_replaced() {
        let mut bench = Bench::new();
        bench.check(&snapshot("kalshi", 10, 3).to_json(), "new 3");
        bench.check(&snapshot("kalshi", 11, 2).to_json(), "new 2");
        // Of the same length and, on a coarse clock, of the same time.
        bench.check(&snapshot("kalshi", 12, 2).to_json(), "new 2");
        bench.check(&snapshot("kalshi", 13, 0).to_json(), "new 0");
    }

    #[test]
    fn a_file_that_is_wrong_is_told_of_once_and_left_alone() {
        let mut bench = Bench::new();
        assert!(bench.look().starts_with("kept missing"));
        let good = snapshot("kalshi", 10, 3).to_json();
        bench.check(&good, "new 3");
        bench.check(b"", "kept unusable: the snapshot of instruments cannot be read: EOF");
        for cut in [1, good.len() / 2, good.len() - 3] {
            bench.check(&good[..cut], "kept unusable");
        }
        bench.check(
            &snapshot("polymarket", 99, 3).to_json(),
            "kept unusable: the snapshot of instruments is of polymarket",
        );
        bench.check(br#"{"version":9}"#, "kept unusable: the snapshot of instruments has version 9");
        bench.check(&snapshot("kalshi", 9, 3).to_json(), "kept older");
        bench.check(
            br#"{"version":1,"venue":"kalshi","written_at_ms":20,"instruments":[7,8]}"#,
            "kept nothing_readable: none of 2 instruments",
        );
        bench.check(&snapshot("kalshi", 20, 4).to_json(), "new 4");
    }

    #[test]
    fn a_file_that_goes_and_comes_back_is_read_again() {
        let mut bench = Bench::new();
        bench.check(&snapshot("kalshi", 10, 1).to_json(), "new 1");
        std::fs::remove_file(bench.file.path()).unwrap();
        assert!(bench.look().starts_with("kept missing"));
        assert!(bench.look().starts_with("kept missing"));
        bench.check(&snapshot("kalshi", 10, 1).to_json(), "new 1");
    }

    #[test]
    fn what_is_no_file_is_not_read_and_not_waited_for() {
        let mut bench = Bench::new();
        std::fs::create_dir(bench.file.path()).unwrap();
        assert!(bench.look().starts_with("kept disk"));
    }

    #[test]
    fn a_hundred_thousand_instruments_are_read() {
        let mut bench = Bench::new();
        bench.check(&snapshot("kalshi", 10, 100_000).to_json(), "new 100000");
    }
}
