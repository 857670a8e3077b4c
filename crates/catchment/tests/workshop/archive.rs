//! Reads an archive with nothing of the recorder's own code, and compares it with what was acknowledged.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::recorder::{Acknowledged, Id, parse_id};

/// Every record of an archive.
#[derive(Debug, Default)]
pub struct Archive {
    rows: usize,
    /// The envelope's number under each id; none for what the recorder itself wrote.
    ids: HashMap<Id, Option<u64>>,
    /// How often each number was seen.
    numbers: HashMap<u64, u32>,
    /// Ids seen more than once.
    ids_again: Vec<Id>,
    /// The payloads on channel `gaps`.
    pub gaps: Vec<serde_json::Value>,
}

/// What is wrong with an archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Acknowledged, and not there.
    pub lost: Vec<u64>,
    /// There more than once, by number.
    pub doubled: Vec<u64>,
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost {}, doubled {}", self.lost.len(), self.doubled.len())?;
        if let Some(first) = self.lost.first() {
            write!(f, "; the first one lost is {first}")?;
        }
        if let Some(first) = self.doubled.first() {
            write!(f, "; the first one doubled is {first}")?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Row<'a> {
    id: &'a str,
    channel: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Numbered {
    n: u64,
}

impl Archive {
    /// Reads every file of lines under `<dir>/<venue>/<channel>/date=…/`.
    pub fn read(dir: &Path) -> Self {
        let mut archive = Self::default();
        each_line(dir, |path, line| {
            let row: Row<'_> =
                serde_json::from_slice(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            archive.take(&row);
        });
        archive
    }

    fn take(&mut self, row: &Row<'_>) {
        self.rows += 1;
        let id = parse_id(row.id);
        let n = if row.channel == "gaps" {
            self.gaps.push(serde_json::from_str(row.payload.get()).unwrap());
            None
        } else {
            let Numbered { n } = serde_json::from_str(row.payload.get()).unwrap();
            *self.numbers.entry(n).or_default() += 1;
            Some(n)
        };
        if self.ids.insert(id, n).is_some() {
            self.ids_again.push(id);
        }
    }

    /// Lines in all.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Different envelopes.
    pub fn envelopes(&self) -> usize {
        self.numbers.len()
    }

    /// What was acknowledged and is not here under its id, and what is here twice under any.
    pub fn compare(&self, acknowledged: &Acknowledged) -> Losses {
        let is_here = |id: &Id, n: u64| self.ids.get(id) == Some(&Some(n));
        let mut lost: Vec<u64> =
            acknowledged.iter().filter(|(id, n)| !is_here(id, *n)).map(|(_, n)| n).collect();
        let again = self.ids_again.iter().map(|id| self.ids[id].unwrap_or(u64::MAX));
        let mut doubled: Vec<u64> =
            self.numbers.iter().filter(|(_, times)| **times > 1).map(|(n, _)| *n).chain(again).collect();
        lost.sort_unstable();
        doubled.sort_unstable();
        doubled.dedup();
        Losses { lost, doubled }
    }
}

/// Shows every line of an archive, newline left out.
pub fn each_line(dir: &Path, mut each: impl FnMut(&Path, &[u8])) {
    for path in files(dir) {
        let file = File::open(&path).unwrap();
        let source: Box<dyn Read> = match path.extension().is_some_and(|e| e == "zst") {
            true => Box::new(zstd::Decoder::new(file).unwrap()),
            false => Box::new(file),
        };
        let mut lines = BufReader::with_capacity(1 << 20, source);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).unwrap() > 0 {
            let text = line.strip_suffix(b"\n");
            each(&path, text.unwrap_or_else(|| panic!("{} ends in a torn line", path.display())));
            line.clear();
        }
    }
}

/// The files of lines, sorted.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let is_lines = |name: &str| name.ends_with(".jsonl") || name.ends_with(".jsonl.zst");
    let mut found = tree(dir);
    found.retain(|path| {
        let dated = path.parent().is_some_and(|dir| dir.to_string_lossy().contains("/date="));
        dated && is_lines(&path.to_string_lossy())
    });
    found
}

/// Every file and folder below `dir`, sorted.
pub fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
