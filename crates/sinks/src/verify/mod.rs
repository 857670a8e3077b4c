//! Re-reads an archive: every line, id, checksum and manifest.
//!
//! Each file is read once, in blocks; a line is parsed once and copied never. Ids are remembered as one bit each. Files
//! are shared out over the machine's cores. Nothing is changed, and nothing outside `<venue>/<channel>/date=…/` is
//! looked at. What is found wanting is a [`Problem`] in the report; only a folder that cannot be listed is an error.

mod file;
pub(crate) mod seen;
mod walk;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use catchment_model::{Channel, Venue};
use serde::Serialize;

use self::seen::Seen;

/// How to verify.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How many files are read at once; none: as many as the machine has cores.
    pub threads: Option<NonZeroUsize>,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files read.
    pub files_done: usize,
    /// Files to be read in all.
    pub files: usize,
    /// Bytes read.
    pub bytes_done: u64,
    /// Bytes to be read in all, as far as was known at the start.
    pub bytes: u64,
}

/// What is in an archive, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Files of lines.
    pub files: u64,
    /// Those with a manifest.
    pub sealed_files: u64,
    /// Those without: being written, or left by a crash until the next start. No problem.
    pub open_files: u64,
    /// Lines.
    pub rows: u64,
    /// Bytes of the files, as they lie there.
    pub bytes: u64,
    /// Lines by venue and channel.
    pub streams: Vec<StreamRows>,
    /// Lines on channel `gaps`: what the recorder knows it missed.
    pub gaps: u64,
    /// What is wrong: the first thousand.
    pub problems: Vec<Problem>,
    /// How much is wrong in all.
    pub problems_total: u64,
}

/// How many lines a stream has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamRows {
    /// The venue.
    pub venue: Venue,
    /// The channel.
    pub channel: Channel,
    /// Lines in all its files.
    pub rows: u64,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// In which file.
    pub path: PathBuf,
    /// In which line, counted from 1, if in one.
    pub line: Option<u64>,
    /// What.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path.display(), self.reason),
            None => write!(f, "{}: {}", self.path.display(), self.reason),
        }
    }
}

/// Why an archive could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A folder that cannot be listed.
    #[error("cannot list the folder {}; check that it is there and may be read", path.display())]
    List {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How many problems the report names; the others are counted.
const PROBLEMS_MAX: usize = 1_000;

/// Re-reads the archive in `dir`. `progress` is called after every file.
pub fn verify(
    dir: &Path,
    options: Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, VerifyError> {
    let found = walk::walk(dir)?;
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok());
    let tally = Tally::default();
    for problem in found.problems {
        tally.problem(problem);
    }
    let bytes = found.files.iter().map(|file| file.len).sum();
    let (next, done) = (AtomicUsize::new(0), Mutex::new((0, 0)));
    std::thread::scope(|scope| {
        for _ in 0..threads.map_or(1, NonZeroUsize::get).min(found.files.len()) {
            scope.spawn(|| {
                while let Some(file) = found.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    file::check(file, &tally);
                    let mut done = done.lock().expect("progress does not panic");
                    *done = (done.0 + 1, done.1 + file.len);
                    let (files_done, bytes_done) = *done;
                    progress(Progress { files_done, files: found.files.len(), bytes_done, bytes });
                }
            });
        }
    });
    Ok(tally.report())
}

/// What the threads share.
#[derive(Default)]
struct Tally {
    seen: Mutex<Seen>,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    report: Report,
    streams: BTreeMap<(Venue, Channel), u64>,
}

impl Tally {
    /// Takes note of a problem.
    fn problem(&self, problem: Problem) {
        let report = &mut self.sums.lock().expect("nothing panics while it holds this").report;
        report.problems_total += 1;
        if report.problems.len() < PROBLEMS_MAX {
            report.problems.push(problem);
        }
    }

    fn report(self) -> Report {
        let Sums { mut report, streams } =
            self.sums.into_inner().expect("nothing panics while it holds this");
        let gaps = Channel::gaps();
        report.gaps = streams.iter().filter(|((_, channel), _)| *channel == gaps).map(|(_, rows)| rows).sum();
        let rows = streams.into_iter();
        report.streams = rows.map(|((venue, channel), rows)| StreamRows { venue, channel, rows }).collect();
        // Threads come in any order; a report does not.
        report.problems.sort();
        report
    }
}
