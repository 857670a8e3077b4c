//! Checks one file: each line by itself, the lines together, and the manifest against both.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use catchment_model::{EnvelopeLine, RecordId, UnixNs};
use catchment_pipeline::disk::with_suffix;

use super::walk::Found;
use super::{Problem, Tally};
use crate::jsonl::{MANIFEST, Manifest};
use crate::lines::{Hashing, LINE_MAX, Line, Lines};

/// Ids are handed over in groups, so that threads seldom wait for each other.
const GROUP: usize = 4_096;
const MANIFEST_BYTES_MAX: u64 = 64 << 10;

/// Reads the file and adds what it finds to the tally.
pub(super) fn check(file: &Found, tally: &Tally) {
    if let Some(packed) = packed_since(file) {
        return self::check(&packed, tally);
    }
    let mut check = Check::new(file, tally);
    let stored = match check.read() {
        Ok(stored) => Some(stored),
        Err(error) => {
            check.problem(None, format!("cannot be read to its end: {error}"));
            None
        }
    };
    check.hand_over_ids();
    check.torn(stored.as_ref().map_or(0, |(bytes, _)| *bytes));
    if file.has_manifest {
        check.manifest(stored.as_ref());
    }
    check.count(stored.map_or(0, |(bytes, _)| bytes));
}

/// The compressed file that a running recorder has put in the place of this one since the folder was listed.
fn packed_since(file: &Found) -> Option<Found> {
    let path = with_suffix(&file.path, ".zst");
    if file.is_packed || file.path.exists() || !path.exists() {
        return None;
    }
    let has_manifest = with_suffix(&path, MANIFEST).exists();
    Some(Found { path, is_packed: true, has_manifest, ..file.clone() })
}

/// Whether more has come than was read, or comes if whoever writes is let go first. A file that is gone was sealed.
fn is_growing(path: &Path, bytes_read: u64) -> bool {
    (0..20_000).any(|_| {
        std::thread::yield_now();
        fs::metadata(path).map_or(true, |metadata| metadata.len() > bytes_read)
    })
}

struct Check<'a> {
    file: &'a Found,
    tally: &'a Tally,
    rows: u64,
    /// Where the file ends within a line.
    torn: Option<u64>,
    content_bytes: u64,
    ids: Vec<(RecordId, u64)>,
    first_id: Option<RecordId>,
    last_id: Option<RecordId>,
    earliest: Option<UnixNs>,
    latest: Option<UnixNs>,
}

impl<'a> Check<'a> {
    fn new(file: &'a Found, tally: &'a Tally) -> Self {
        Self {
            file,
            tally,
            rows: 0,
            torn: None,
            content_bytes: 0,
            ids: Vec::with_capacity(GROUP),
            first_id: None,
            last_id: None,
            earliest: None,
            latest: None,
        }
    }

    /// A last line without its end is torn, unless a recorder is just writing it.
    fn torn(&mut self, bytes_read: u64) {
        let Some(line) = self.torn else { return };
        if self.file.has_manifest || !is_growing(&self.file.path, bytes_read) {
            self.problem(Some(line), "the last line is torn: it has no newline".to_owned());
        }
    }

    /// Reads every line; gives back the size and hash of the file as it lies there.
    fn read(&mut self) -> io::Result<(u64, String)> {
        let source = Hashing::new(File::open(&self.file.path)?);
        if !self.file.is_packed {
            let mut lines = Lines::new(source);
            self.lines(&mut lines)?;
            return Ok(lines.into_source().finish());
        }
        let mut lines = Lines::new(zstd::Decoder::new(source)?);
        self.lines(&mut lines)?;
        Ok(lines.into_source().finish().into_inner().finish())
    }

    fn lines(&mut self, lines: &mut Lines<impl Read>) -> io::Result<()> {
        while let Some((start, line)) = lines.next_line()? {
            match line {
                Line::Torn => {
                    self.torn = Some(self.rows + 1);
                    continue;
                }
                Line::TooLong => {
                    self.rows += 1;
                    self.problem(Some(self.rows), format!("longer than {LINE_MAX} bytes"));
                }
                Line::Whole(bytes) => {
                    self.rows += 1;
                    self.content_bytes = start + bytes.len() as u64 + 1;
                    if let Err(reason) = self.line(bytes) {
                        self.problem(Some(self.rows), reason);
                    }
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(), String> {
        let line = EnvelopeLine::parse(bytes).map_err(|error| format!("not an envelope: {error}"))?;
        let received_at = line.received_at().ok_or("it does not say when it was received")?;
        let id = line.id().ok_or("it has no id of the right form")?;
        self.order(id)?;
        self.earliest = Some(self.earliest.map_or(received_at, |earliest| earliest.min(received_at)));
        self.latest = self.latest.max(Some(received_at));
        let envelope = line.envelope(received_at);
        let Found { venue, channel, date, name, .. } = self.file;
        if (envelope.exchange, envelope.channel) != (*venue, *channel) {
            return Err(format!("it is of {}/{}, not of this folder", envelope.exchange, envelope.channel));
        }
        if received_at.date() != *date {
            return Err(format!("it was received on {}, not on the folder's date", received_at.date()));
        }
        match name {
            Some(name) if name.writer != id.spool => {
                Err(format!("its id {id} is not of the writer in the file's name"))
            }
            _ => Ok(()),
        }
    }

    fn order(&mut self, id: RecordId) -> Result<(), String> {
        self.ids.push((id, self.rows));
        if self.ids.len() == GROUP {
            self.hand_over_ids();
        }
        self.first_id.get_or_insert(id);
        match self.last_id.replace(id) {
            Some(before) if before >= id => Err(format!("its id {id} does not come after {before}")),
            _ => Ok(()),
        }
    }

    fn hand_over_ids(&mut self) {
        let mut again = Vec::new();
        {
            let mut seen = self.tally.seen.lock().expect("nothing panics while it holds this");
            again.extend(self.ids.drain(..).filter(|(id, _)| !seen.insert(*id)));
        }
        for (id, row) in again {
            self.problem(Some(row), format!("its id {id} is in the archive twice"));
        }
    }

    fn manifest(&self, stored: Option<&(u64, String)>) {
        let path = with_suffix(&self.file.path, MANIFEST);
        let say = |reason: String| self.tally.problem(Problem { path: path.clone(), line: None, reason });
        let len = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let bytes = if len <= MANIFEST_BYTES_MAX { fs::read(&path) } else { Ok(Vec::new()) };
        let manifest = match bytes.map(|bytes| Manifest::parse(&bytes)) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return say("not a manifest".to_owned()),
            Err(error) => return say(format!("cannot be read: {error}")),
        };
        let Some((bytes, sha256)) = stored else { return };
        let file = self.file.path.file_name().unwrap_or_default().to_string_lossy();
        let ms = |at: Option<UnixNs>| at.map(|at| at.ms().get());
        let id = |id: Option<RecordId>| id.map(|id| id.to_string());
        let found = Manifest {
            version: manifest.version,
            file: file.into_owned(),
            rows: self.rows,
            bytes: *bytes,
            content_bytes: self.file.is_packed.then_some(self.content_bytes),
            first_received_at_ms: ms(self.earliest),
            last_received_at_ms: ms(self.latest),
            first_id: id(self.first_id),
            last_id: id(self.last_id),
            sha256: sha256.clone(),
        };
        for difference in differences(&manifest, &found) {
            say(difference);
        }
    }

    fn count(&self, bytes: u64) {
        let mut sums = self.tally.sums.lock().expect("nothing panics while it holds this");
        sums.report.files += 1;
        if self.file.has_manifest {
            sums.report.sealed_files += 1;
        } else {
            sums.report.open_files += 1;
        }
        sums.report.rows += self.rows;
        sums.report.bytes += bytes;
        *sums.streams.entry((self.file.venue, self.file.channel)).or_default() += self.rows;
    }

    fn problem(&self, line: Option<u64>, reason: String) {
        self.tally.problem(Problem { path: self.file.path.clone(), line, reason });
    }
}

/// Every key in which a manifest says something else than its file.
fn differences(said: &Manifest, found: &Manifest) -> Vec<String> {
    let fields = |manifest: &Manifest| match serde_json::to_value(manifest) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (said, found) = (fields(said), fields(found));
    let keys: std::collections::BTreeSet<&String> = said.keys().chain(found.keys()).collect();
    let text = |value: Option<&serde_json::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
    keys.into_iter()
        .filter(|key| said.get(*key) != found.get(*key))
        .map(|key| format!("{key} is {}, the file has {}", text(said.get(key)), text(found.get(key))))
        .collect()
}
