//! Runs the binary under strace, which ends it, fails a call or slows one down at an exact place.
//!
//! strace counts calls by thread: "the third" is whichever thread's third call comes first.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BINARY, Site};

/// What is done to which calls, and where the log goes.
pub struct Strace {
    trace: String,
    inject: Option<String>,
    only: Vec<PathBuf>,
    log: PathBuf,
}

impl Strace {
    /// Logs these calls, separated by commas, and changes nothing.
    pub fn watching(calls: &str, log: PathBuf) -> Self {
        Self { trace: calls.to_owned(), inject: None, only: Vec::new(), log }
    }

    /// Does this to a call, in strace's words: `fdatasync:error=EIO:when=3`.
    pub fn inject(mut self, what: impl Into<String>) -> Self {
        self.inject = Some(what.into());
        self
    }

    /// Looks only at calls on this file.
    pub fn only_on(mut self, path: &Path) -> Self {
        // strace compares with the path without symbolic links.
        let folder = path.parent().unwrap().canonicalize().unwrap();
        self.only.push(folder.join(path.file_name().unwrap()));
        self
    }

    /// A recorder of this site under strace.
    pub fn ingest(&self, site: &Site) -> Command {
        demand();
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qq", "-o"]).arg(&self.log).args(["-e", &format!("trace={}", self.trace)]);
        for path in &self.only {
            command.arg("-P").arg(path);
        }
        if let Some(inject) = &self.inject {
            command.args(["-e", &format!("inject={inject}")]);
        }
        command.arg(&*BINARY).args(site.ingest_args());
        command
    }

    /// What was logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// How often the busiest thread made this call, by a log of strace.
pub fn calls_of_the_busiest_thread(log: &str, call: &str) -> u64 {
    let mut counts = std::collections::HashMap::<&str, u64>::new();
    let start = format!("{call}(");
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        if rest.trim_start().starts_with(&start) {
            *counts.entry(thread).or_default() += 1;
        }
    }
    counts.into_values().max().unwrap_or(0)
}

/// Fails with the command that gets strace, if it is not there.
fn demand() {
    let found = Command::new("strace").arg("-V").output().is_ok();
    assert!(found, "this test needs strace: apt-get install strace");
}
