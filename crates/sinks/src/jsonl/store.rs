//! The archive's folders and open files: what is made here is durable before anybody relies on it.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catchment_model::{Channel, Clock, SpoolId, UtcDate, Venue};
use catchment_pipeline::{Disk, DiskFile, SyncPoint, disk};

use super::JsonlError;
use super::desk::{BLOCK, Desk, Desks};
use super::name::{FileName, date_folder};

/// Lines are gathered up to this size before they go to the file.
const BUFFER: usize = 2 << 20;
/// When so much of a batch is in the file, the disk may begin with it: it is busy while the rest is gathered.
const PIECE: u64 = 1 << 20;

/// The disk below one folder.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) dir: PathBuf,
    pub(super) writer: SpoolId,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    /// The number of the next file.
    pub(super) next_number: u64,
    /// For files that are being written.
    pub(super) desks: Desks,
    /// Folders that are durable as far as this process knows.
    folders: HashSet<PathBuf>,
}

impl Store {
    /// Makes the archive's own folder, if it is not there.
    pub(super) fn open(
        dir: PathBuf,
        writer: SpoolId,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JsonlError> {
        disk::create_dir_all(&*disk, &dir, SyncPoint::ArchiveFolder)
            .map_err(JsonlError::disk("make the folder", &dir))?;
        match disk.sync_dir(disk::parent(&dir), SyncPoint::ArchiveFolder) {
            // Somebody else's folder, which we may not even read: it was not us who made ours in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other.map_err(JsonlError::disk("sync the folder of", &dir))?,
        }
        let folders = HashSet::from([dir.clone()]);
        Ok(Self { dir, writer, disk, clock, next_number: 0, desks: Desks::default(), folders })
    }

    /// Makes sure of a folder below the archive's own. One that is there may have been made by a process that died
    /// before it was durable, so every folder's entry is synced once.
    pub(super) fn ensure_folder(&mut self, folder: &Path) -> Result<(), JsonlError> {
        if self.folders.contains(folder) {
            return Ok(());
        }
        assert!(folder.starts_with(&self.dir), "{} is not in the archive", folder.display());
        let above = disk::parent(folder);
        self.ensure_folder(above)?;
        match self.disk.create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check_folder(above, folder)?,
            other => other.map_err(JsonlError::disk("make the folder", folder))?,
        }
        self.disk
            .sync_dir(above, SyncPoint::ArchiveFolder)
            .map_err(JsonlError::disk("sync the folder", above))?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// What is there must be a folder: the next start does not follow links, and would not find what is behind one.
    fn check_folder(&self, above: &Path, folder: &Path) -> Result<(), JsonlError> {
        let entries = self.disk.list(above).map_err(JsonlError::disk("list the folder", above))?;
        let is_it = |name: &str| folder.file_name().is_some_and(|own| own == name);
        if entries.iter().any(|entry| entry.is_dir && is_it(&entry.name)) {
            return Ok(());
        }
        Err(JsonlError::NotAFolder { path: folder.to_owned() })
    }

    /// Makes a new, empty file for a stream and date, durable in its folder.
    pub(super) fn create(
        &mut self,
        (venue, channel): (Venue, Channel),
        date: UtcDate,
    ) -> Result<OpenFile, JsonlError> {
        let folder = self.dir.join(venue.as_str()).join(channel.folder()).join(date_folder(date));
        self.ensure_folder(&folder)?;
        let name = FileName::new(self.clock.wall(), self.writer, self.next_number);
        self.next_number += 1;
        let path = folder.join(name.plain());
        let file = self.disk.create(&path).map_err(JsonlError::disk("make the file", &path))?;
        if let Err(error) = self.disk.sync_dir(&folder, SyncPoint::ArchiveEntry) {
            // Nothing is in it, so nothing is lost or doubled if it stays.
            let _ = self.disk.remove(&path);
            return Err(JsonlError::disk("sync the folder", &folder)(error));
        }
        Ok(OpenFile::new(date, path, file))
    }

    /// Cuts a file back to what is known to be durable, and drops it if that is nothing.
    pub(super) fn cut_back(&self, path: &Path, len: u64) -> Result<(), JsonlError> {
        let cut = |file: &mut dyn DiskFile| {
            // Never the other way: a cut beyond the end would fill with zeros.
            if file.len()? > len {
                file.cut(len)?;
            }
            file.sync(SyncPoint::ArchiveRepair)
        };
        match self.disk.open_to_cut(path).and_then(|mut file| cut(&mut *file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(JsonlError::disk("cut back", path))?,
        }
        if len == 0 {
            // An empty file is harmless; the next start tries again.
            let _ = self.disk.remove(path);
        }
        Ok(())
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) date: UtcDate,
    pub(super) path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Lines that are not in the file yet. It has one only while a batch is written.
    desk: Desk,
    /// Bytes in the file, durable or not.
    len: u64,
    /// Bytes the disk has, or was told to begin with.
    begun_len: u64,
    /// Bytes known to be durable.
    pub(super) durable_len: u64,
    rows: u64,
    /// Lines known to be durable.
    pub(super) durable_rows: u64,
    /// The number of its newest record, durable or not.
    pub(super) seq: u64,
    /// The batch that last wrote to it.
    pub(super) used: u64,
    /// An append or a sync has failed: it is never written or synced again, only cut back.
    pub(super) has_failed: bool,
}

impl OpenFile {
    fn new(date: UtcDate, path: PathBuf, file: Box<dyn DiskFile>) -> Self {
        Self {
            date,
            path,
            file,
            desk: Desk::default(),
            len: 0,
            begun_len: 0,
            durable_len: 0,
            rows: 0,
            durable_rows: 0,
            seq: 0,
            used: 0,
            has_failed: false,
        }
    }

    /// Gives it a place to gather lines on, unless it has one.
    pub(super) fn lend(&mut self, desks: &mut Desks) {
        if self.desk.is_missing() {
            self.desk = desks.take(self.len);
        }
    }

    /// Takes that place back.
    pub(super) fn give_back(&mut self, desks: &mut Desks) {
        desks.give_back(&mut self.desk);
    }

    /// Takes a record's line, newline included. It is durable after [`OpenFile::sync`].
    pub(super) fn push(&mut self, seq: u64, line: &[u8]) -> Result<(), JsonlError> {
        debug_assert!(line.ends_with(b"\n") && seq > self.seq, "a whole line, in order");
        if self.desk.len() + line.len() > BUFFER {
            self.flush_blocks()?;
        }
        if line.len() > BUFFER {
            self.flush()?;
            self.append(line)?;
            self.desk.turn_to(self.len, 0);
        } else {
            self.desk.push(line);
        }
        self.rows += 1;
        self.seq = seq;
        Ok(())
    }

    /// Hands the gathered lines to the file, but for what begins a block at their end: the disk likes whole ones.
    fn flush_blocks(&mut self) -> Result<(), JsonlError> {
        let beyond = ((self.len + self.desk.len() as u64) % BLOCK as u64) as usize;
        self.flush_but(if beyond < self.desk.len() { beyond } else { 0 })
    }

    /// Hands the gathered lines to the file.
    pub(super) fn flush(&mut self) -> Result<(), JsonlError> {
        self.flush_but(0)
    }

    /// Hands the gathered lines to the file, but for so many bytes at their end.
    fn flush_but(&mut self, kept: usize) -> Result<(), JsonlError> {
        if self.desk.len() == 0 {
            return Ok(());
        }
        let mut desk = std::mem::take(&mut self.desk);
        let appended = self.append(&desk.lines()[..desk.len() - kept]);
        desk.turn_to(self.len, kept);
        self.desk = desk;
        appended
    }

    /// Lets the disk begin with what it was not told of yet.
    pub(super) fn begin(&mut self) {
        if self.len > self.begun_len {
            self.file.hasten(self.begun_len, self.len - self.begun_len);
            self.begun_len = self.len;
        }
    }

    /// Makes all of it durable. Does nothing if it is.
    pub(super) fn sync(&mut self) -> Result<(), JsonlError> {
        self.flush()?;
        if self.len == self.durable_len {
            return Ok(());
        }
        let synced = self.file.sync(SyncPoint::ArchiveData);
        self.has_failed |= synced.is_err();
        synced.map_err(JsonlError::disk("sync", &self.path))?;
        (self.durable_len, self.begun_len) = (self.len, self.len);
        self.durable_rows = self.rows;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), JsonlError> {
        assert!(!self.has_failed, "{} has failed and is not written again", self.path.display());
        let appended = self.file.append(bytes);
        self.has_failed |= appended.is_err();
        self.len += bytes.len() as u64;
        if self.len - self.begun_len >= PIECE {
            self.begin();
        }
        appended.map_err(JsonlError::disk("append to", &self.path))
    }
}
