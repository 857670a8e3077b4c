//! Records that a sink will never take: kept with the reason, one line each.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catchment_model::{RecordId, UnixNs};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Record;
use crate::disk::{self, Disk, DiskFile, SyncPoint};

/// Older dead letters are looked through for repetitions only up to this size.
const READ_BACK_MAX: u64 = 64 << 20;

/// The dead letters of one sink: `dead_letter/<sink>-<first id>.jsonl` in the spool's folder, a new file a start.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    sink: String,
    file: Option<Box<dyn DiskFile>>,
    known: HashSet<String>,
}

/// A line of the file.
#[derive(Serialize)]
struct Letter<'a> {
    id: String,
    sink: &'a str,
    at_ms: i64,
    reason: &'a str,
    record: &'a RawValue,
}

impl DeadLetters {
    /// Reads back which records of this sink are already there: after a crash the same ones are refused again.
    pub(crate) fn open(disk: Arc<dyn Disk>, spool_dir: &Path, sink: &str) -> io::Result<Self> {
        let dir = spool_dir.join("dead_letter");
        disk::create_dir_all(&*disk, &dir, SyncPoint::DeadLetterFolder)?;
        let mut known = HashSet::new();
        for entry in disk.list(&dir)? {
            let ours = entry.name.strip_prefix(sink).is_some_and(|rest| rest.starts_with('-'));
            if ours {
                let bytes = disk::read_file(&*disk, &dir.join(&entry.name), READ_BACK_MAX)?;
                known.extend(bytes.split(|b| *b == b'\n').filter_map(id_of));
            }
        }
        Ok(Self { disk, dir, sink: sink.to_owned(), file: None, known })
    }

    /// Adds the records, durable when this returns. One that is already there is not added again.
    pub(crate) fn add(&mut self, letters: &[(Record<'_>, &str)], now: UnixNs) -> io::Result<()> {
        let mut lines = Vec::new();
        let mut added = Vec::new();
        for (record, reason) in letters {
            let id = record.id().to_string();
            if !self.known.contains(&id) {
                self.write_line(record, reason, now, &mut lines);
                added.push(id);
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        // After an error the file is left as it is and the next letter starts another.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.create(&added[0])?,
        };
        file.append(&lines)?;
        file.sync(SyncPoint::DeadLetterData)?;
        self.file = Some(file);
        self.known.extend(added);
        Ok(())
    }

    fn create(&self, first_id: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut attempt = 1;
        loop {
            let name = match attempt {
                1 => format!("{}-{first_id}.jsonl", self.sink),
                n => format!("{}-{first_id}-{n}.jsonl", self.sink),
            };
            match self.disk.create(&self.dir.join(name)) {
                Ok(file) => {
                    self.disk.sync_dir(&self.dir, SyncPoint::DeadLetterEntry)?;
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn write_line(&self, record: &Record<'_>, reason: &str, now: UnixNs, out: &mut Vec<u8>) {
        let line = std::str::from_utf8(record.line()).expect("lines are written from text");
        let letter = Letter {
            id: record.id().to_string(),
            sink: &self.sink,
            at_ms: now.ms().get(),
            reason,
            record: serde_json::from_str(line).expect("a line is one JSON value"),
        };
        serde_json::to_writer(&mut *out, &letter).expect("writing to memory");
        out.push(b'\n');
    }
}

/// The id at the start of a whole line, as [`Letter`] writes it.
fn id_of(line: &[u8]) -> Option<String> {
    let id = line.strip_prefix(br#"{"id":""#)?.get(..RecordId::LEN)?;
    let whole = line.ends_with(b"}");
    whole.then(|| String::from_utf8_lossy(id).into_owned())
}
