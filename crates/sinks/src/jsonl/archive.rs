//! The write path: records of a batch to the files of their streams and dates, durable before it returns.
//!
//! Files change hands only between batches: `files` (open) to `closed` (to be sealed), or, after a failure, to `owed`
//! (to be cut back first).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use catchment_model::{Channel, UtcDate, Venue};
use catchment_pipeline::{Batch, Disk, Run};
use tracing::{error, warn};

use super::checkpoint::{Checkpoint, Mark};
use super::scan::Scan;
use super::store::{OpenFile, Store};
use super::{JsonlConfig, JsonlError, seal};

/// More open files than this, and the one not used for longest is sealed.
const FILES_MAX: usize = 256;

/// So many streams are looked through one by one.
const NEAR: usize = 8;

/// The archive of one writer.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) store: Store,
    config: JsonlConfig,
    streams: Vec<Stream>,
    by_names: HashMap<(Venue, Channel), usize>,
    files: Vec<OpenFile>,
    pub(super) closed: Vec<ClosedFile>,
    owed: Vec<OwedCut>,
    /// The stream that was placed last.
    last: Option<usize>,
    /// The newest date seen.
    newest: Option<UtcDate>,
    batches: u64,
}

/// One venue and channel.
#[derive(Debug)]
struct Stream {
    names: (Venue, Channel),
    mark: Mark,
    /// Its open files, by date. Mostly one.
    files: Vec<(UtcDate, usize)>,
    /// The file this batch has last put a record of it into.
    writing: Option<usize>,
    /// The number of that record.
    placed: u64,
}

/// A file that waits to be sealed.
#[derive(Debug)]
pub(super) struct ClosedFile {
    pub(super) path: PathBuf,
    /// How many lines this process wrote into it.
    pub(super) rows: Option<u64>,
    /// What is in it, if it has been read.
    pub(super) scan: Option<Scan>,
}

/// Files that can be sealed without the archive.
pub(super) struct Sealing {
    disk: Arc<dyn Disk>,
    files: Vec<ClosedFile>,
    compress: Option<i32>,
}

impl Sealing {
    /// Seals them; gives back those that could not be.
    pub(super) fn seal(self) -> Vec<ClosedFile> {
        let mut failed = Vec::new();
        for file in self.files {
            if let Err(error) = seal::seal(&*self.disk, &file, self.compress) {
                warn!(%error, file = %file.path.display(), "sealing put off");
                failed.push(file);
            }
        }
        failed
    }
}

/// A file that must be cut back before anything else is written.
#[derive(Debug)]
struct OwedCut {
    path: PathBuf,
    durable_len: u64,
    durable_rows: u64,
}

impl Archive {
    pub(super) fn new(store: Store, config: JsonlConfig) -> Self {
        Self {
            store,
            config,
            streams: Vec::new(),
            by_names: HashMap::new(),
            files: Vec::new(),
            closed: Vec::new(),
            owed: Vec::new(),
            last: None,
            newest: None,
            batches: 0,
        }
    }

    /// Writes what is not here yet. On an error some of the batch may be durable; it is known which.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), JsonlError> {
        self.check_spool(batch)?;
        self.settle_owed()?;
        self.batches += 1;
        let mut oldest = None;
        let placed = self.place_all(batch, &mut oldest);
        // After a failure too: what was placed before it is the beginning of its stream's part of the batch.
        let synced = self.sync_all();
        self.abandon_failed();
        placed.and(synced)?;
        self.roll_over_after(oldest);
        Ok(())
    }

    /// Rolls over at midnight though nothing comes in, and tries again what failed before.
    pub(super) fn idle(&mut self) -> Result<(), JsonlError> {
        let today = self.store.clock.wall().date();
        self.close_files(|file| file.date < today);
        let settled = self.settle_owed();
        self.seal_closed();
        settled
    }

    /// Seals everything.
    pub(super) fn close(&mut self) -> Result<(), JsonlError> {
        self.close_files(|_| true);
        self.settle_owed()?;
        self.seal_closed();
        if self.closed.is_empty() { Ok(()) } else { Err(JsonlError::NotSealed { files: self.closed.len() }) }
    }

    /// What is durable of a stream, to be corrected at start.
    pub(super) fn mark(&mut self, venue: Venue, channel: Channel) -> &mut Mark {
        let stream = self.stream((venue, channel));
        &mut self.streams[stream].mark
    }

    fn check_spool(&self, batch: &Batch) -> Result<(), JsonlError> {
        let writer = self.store.writer;
        match batch.get(0).map(|record| record.id().spool) {
            Some(given) if given != writer => Err(JsonlError::OtherSpool { writer, given }),
            _ => Ok(()),
        }
    }

    /// Places what is not here yet, and says the oldest date of the batch.
    fn place_all(&mut self, batch: &Batch, oldest: &mut Option<UtcDate>) -> Result<(), JsonlError> {
        for run in batch.runs() {
            let date = run.date();
            *oldest = Some(oldest.map_or(date, |oldest| oldest.min(date)));
            self.newest = self.newest.max(Some(date));
            let stream = self.stream(run.stream());
            let run = run.after(self.streams[stream].placed.max(self.streams[stream].mark.high));
            let mark = &self.streams[stream].mark;
            let is_here = run.seqs().all(|seq| mark.covers(seq));
            if !is_here {
                self.place(stream, &run)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, stream: usize, run: &Run<'_>) -> Result<(), JsonlError> {
        let at = self.file_of(stream, run.date())?;
        let before = self.streams[stream].writing.replace(at);
        if let Some(before) = before.filter(|before| *before != at) {
            // A stream becomes durable in order, or the highest number would not say what is here.
            self.sync(stream, before)?;
        }
        self.last = Some(stream);
        let Stream { mark, placed, .. } = &mut self.streams[stream];
        let file = &mut self.files[at];
        file.used = self.batches;
        file.lend(&mut self.store.desks);
        for (seq, line) in run.lines().filter(|(seq, _)| !mark.covers(*seq)) {
            file.push(seq, line)?;
            *placed = seq;
        }
        Ok(())
    }

    fn stream(&mut self, names: (Venue, Channel)) -> usize {
        // Neighbours are often of one stream, most archives have few, and comparing is quicker than hashing.
        let near = self.last.into_iter().chain(0..self.streams.len().min(NEAR));
        let is_it = |at: &usize| self.streams[*at].names == names;
        if let Some(at) = near.into_iter().find(is_it).or_else(|| self.by_names.get(&names).copied()) {
            return at;
        }
        self.by_names.insert(names, self.streams.len());
        self.streams.push(Stream {
            names,
            mark: Mark::default(),
            files: Vec::new(),
            writing: None,
            placed: 0,
        });
        self.streams.len() - 1
    }

    fn file_of(&mut self, stream: usize, date: UtcDate) -> Result<usize, JsonlError> {
        if let Some((_, at)) = self.streams[stream].files.iter().find(|(of, _)| *of == date) {
            return Ok(*at);
        }
        let file = self.store.create(self.streams[stream].names, date)?;
        self.files.push(file);
        self.streams[stream].files.push((date, self.files.len() - 1));
        Ok(self.files.len() - 1)
    }

    fn sync(&mut self, stream: usize, at: usize) -> Result<(), JsonlError> {
        self.files[at].sync()?;
        self.files[at].give_back(&mut self.store.desks);
        self.streams[stream].mark.raise(self.files[at].seq);
        Ok(())
    }

    /// Makes what was placed durable, each file whatever becomes of the others.
    fn sync_all(&mut self) -> Result<(), JsonlError> {
        let mut result = Ok(());
        let touched: Vec<(usize, usize)> =
            self.streams.iter().enumerate().filter_map(|(at, stream)| Some((at, stream.writing?))).collect();
        for (_, file) in &touched {
            let file = &mut self.files[*file];
            let flushed = if file.has_failed { Ok(()) } else { file.flush() };
            result = result.and(flushed);
            if touched.len() > 1 {
                // So that the disk works on all of them while the first is waited for.
                file.begin();
            }
        }
        for (stream, file) in touched {
            let synced = if self.files[file].has_failed { Ok(()) } else { self.sync(stream, file) };
            result = result.and(synced);
            self.streams[stream].writing = None;
            self.streams[stream].placed = 0;
        }
        result
    }

    fn abandon_failed(&mut self) {
        for file in self.take_files(|file| file.has_failed) {
            let OpenFile { path, durable_len, durable_rows, .. } = file;
            self.owed.push(OwedCut { path, durable_len, durable_rows });
        }
        if let Err(error) = self.settle_owed() {
            warn!(%error, "a file could not be cut back yet; nothing is written until it is");
        }
    }

    /// Cuts back what is owed. Until that is done, writing the same records elsewhere could double them.
    fn settle_owed(&mut self) -> Result<(), JsonlError> {
        while let Some(owed) = self.owed.last() {
            self.store.cut_back(&owed.path, owed.durable_len)?;
            let OwedCut { path, durable_len, durable_rows } = self.owed.pop().expect("just looked at");
            if durable_len > 0 {
                self.closed.push(ClosedFile { path, rows: Some(durable_rows), scan: None });
            }
        }
        Ok(())
    }

    /// After a batch whose oldest record is of this date: closes what is full, what is of a day that is over, and what is
    /// too many.
    fn roll_over_after(&mut self, oldest: Option<UtcDate>) {
        // A day is over once a batch holds nothing of it: by the newest record or, lest one record from the far future
        // hold it open for ever, by the calendar.
        let today = Some(self.store.clock.wall().date());
        let current = [self.newest, today].into_iter().flatten().filter(|day| oldest >= Some(*day)).max();
        let bytes_max = self.config.file_bytes_max;
        let is_over = |file: &OpenFile| current.is_some_and(|day| file.date < day);
        let mut closed = self.close_files(|file| file.durable_len >= bytes_max || is_over(file));
        if self.files.len() > FILES_MAX {
            let mut used: Vec<u64> = self.files.iter().map(|file| file.used).collect();
            used.sort_unstable();
            let spare = used[used.len() - FILES_MAX - 1];
            closed += self.close_files(|file| file.used <= spare);
        }
        if closed > 0 && !self.config.seal_in_background {
            self.seal_closed();
        }
    }

    /// Says how many.
    fn close_files(&mut self, which: impl Fn(&OpenFile) -> bool) -> usize {
        let taken = self.take_files(which);
        let count = taken.len();
        for file in taken {
            let OpenFile { path, durable_len, durable_rows, .. } = file;
            if durable_len > 0 {
                self.closed.push(ClosedFile { path, rows: Some(durable_rows), scan: None });
            } else {
                let _ = self.store.disk.remove(&path);
            }
        }
        count
    }

    fn take_files(&mut self, which: impl Fn(&OpenFile) -> bool) -> Vec<OpenFile> {
        if !self.files.iter().any(&which) {
            return Vec::new();
        }
        let mut place = vec![None; self.files.len()];
        let (mut kept, mut taken) = (Vec::new(), Vec::new());
        for (at, file) in std::mem::take(&mut self.files).into_iter().enumerate() {
            if which(&file) {
                taken.push(file);
            } else {
                place[at] = Some(kept.len());
                kept.push(file);
            }
        }
        self.files = kept;
        for stream in &mut self.streams {
            stream.files =
                stream.files.iter().filter_map(|(date, at)| place[*at].map(|new| (*date, new))).collect();
        }
        taken
    }

    /// Seals what is closed: the checkpoint first, so that no record of a sealed file is ever written again. What fails
    /// is durable all the same, and stays in the list.
    pub(super) fn seal_closed(&mut self) {
        if let Some(work) = self.hand_over_closed() {
            self.closed = work.seal();
        }
    }

    /// What is to be sealed, once the checkpoint says that none of it is ever written again.
    pub(super) fn hand_over_closed(&mut self) -> Option<Sealing> {
        if self.closed.is_empty() {
            return None;
        }
        if let Err(error) = self.store_checkpoint() {
            warn!(%error, files = self.closed.len(), "sealing put off");
            return None;
        }
        let files = std::mem::take(&mut self.closed);
        Some(Sealing { disk: Arc::clone(&self.store.disk), files, compress: self.config.compress })
    }

    /// Writes down what is durable.
    pub(super) fn store_checkpoint(&mut self) -> Result<(), JsonlError> {
        let path = Checkpoint::path(&self.store.dir, self.store.writer);
        self.store.ensure_folder(path.parent().expect("it is in a folder"))?;
        let named = |stream: &Stream| format!("{}/{}", stream.names.0, stream.names.1);
        let streams: BTreeMap<String, Mark> =
            self.streams.iter().map(|stream| (named(stream), stream.mark.clone())).collect();
        let checkpoint = Checkpoint::new(self.store.writer, self.store.next_number, streams);
        checkpoint.store(&*self.store.disk, &path).map_err(JsonlError::disk("replace", &path))
    }
}

/// A file that does not hold what was written into it is said so; that is all that can be done.
pub(super) fn check_rows(file: &ClosedFile, scan: &Scan) {
    if scan.damaged > 0 || file.rows.is_some_and(|rows| rows != scan.rows) {
        error!(
            file = %file.path.display(),
            rows_written = file.rows,
            rows_found = scan.rows,
            rows_damaged = scan.damaged,
            "an archive file does not hold what was written"
        );
    }
}
