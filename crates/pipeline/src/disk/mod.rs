//! The file system as a seam.
//!
//! Everything Catchment writes to disk goes through [`Disk`]. In production that is [`RealDisk`]; in tests it is
//! `sim::SimDisk` (feature `sim`), which forgets whatever was not synced when its power is cut. Every sync names its
//! [`SyncPoint`], so that a test can leave out one of them and show that it was needed.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Advice;

mod past_cache;

use past_cache::Way;

#[cfg(any(test, feature = "sim"))]
pub mod sim;

/// What the spool and the file sinks need of a file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The entries of a folder, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes one folder; its parent must exist. Not durable before the parent was synced.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes a file that was not there before, for appending. Not durable before its folder was synced.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file to cut it short; nothing is ever appended to it again.
    fn open_to_cut(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, replacing what had it. Not durable before the folder was synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Not durable before its folder was synced.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the folder's entries durable: what was made, renamed and removed in it.
    fn sync_dir(&self, dir: &Path, point: SyncPoint) -> io::Result<()>;

    /// Takes the folder's lock for as long as the returned value lives; `WouldBlock` if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Appends all the bytes. Not durable before a sync.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Appends all the parts, `bytes` together, one behind the other; each is asked for when it is its turn. Not durable
    /// before a sync.
    fn append_all(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, _bytes: usize) -> io::Result<()> {
        for part in parts {
            self.append(part)?;
        }
        Ok(())
    }

    /// Lets the disk begin with bytes that were appended and will be synced soon, without waiting for it. A hint: nothing
    /// becomes durable by it, and what goes wrong is told by the sync.
    fn hasten(&mut self, _offset: u64, _len: u64) {}

    /// Makes the contents durable. After an error the state of the file is unknown: it is never synced again.
    fn sync(&mut self, point: SyncPoint) -> io::Result<()>;

    /// Cuts the file to `len` bytes. Not durable before a sync.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// How long the file is.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name; entries whose name is not UTF-8 are not ours and are left out.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// Every place that waits for the disk, by what it makes durable. Each is needed: the power-loss tests fail when any
/// one of them is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyncPoint {
    /// A group of records in a segment, before it is acknowledged.
    SegmentData,
    /// The name of a new segment.
    SegmentEntry,
    /// The removal of a settled segment.
    SegmentRemoval,
    /// The cursors' new contents, before they replace the old.
    CursorsData,
    /// The replacing itself.
    CursorsEntry,
    /// The spool's folder.
    SpoolFolder,
    /// A segment made from one in S1's format, before it gets its name.
    ConvertedData,
    /// That name, before the old segment goes.
    ConvertedEntry,
    /// The folder of the dead letters.
    DeadLetterFolder,
    /// A refused record in the dead-letter file.
    DeadLetterData,
    /// The name of a new dead-letter file.
    DeadLetterEntry,
    /// The folder for damaged bytes.
    QuarantineFolder,
    /// Damaged bytes, kept.
    QuarantineData,
    /// The name of a quarantine file.
    QuarantineEntry,
    /// Space kept back for a full disk: really taken.
    ReserveData,
    /// Its name.
    ReserveEntry,
    /// Lines of the archive, before the batch counts as written.
    ArchiveData,
    /// The name of a new archive file.
    ArchiveEntry,
    /// A new folder of the archive.
    ArchiveFolder,
    /// A torn last line cut off at start.
    ArchiveRepair,
    /// What has been sealed, before it replaces the old.
    CheckpointData,
    /// The replacing itself.
    CheckpointEntry,
    /// A manifest, or a compressed file, before it gets its name.
    SealData,
    /// That name.
    SealEntry,
    /// The folder of a venue's state, and those above it.
    StateFolder,
    /// A venue's instruments, before they replace the old.
    StateData,
    /// The replacing itself.
    StateEntry,
}

impl SyncPoint {
    /// Those of the spool, in the order of their names here.
    pub const SPOOL: [SyncPoint; 16] = [
        Self::SegmentData,
        Self::SegmentEntry,
        Self::SegmentRemoval,
        Self::CursorsData,
        Self::CursorsEntry,
        Self::SpoolFolder,
        Self::ConvertedData,
        Self::ConvertedEntry,
        Self::DeadLetterFolder,
        Self::DeadLetterData,
        Self::DeadLetterEntry,
        Self::QuarantineFolder,
        Self::QuarantineData,
        Self::QuarantineEntry,
        Self::ReserveData,
        Self::ReserveEntry,
    ];
}

/// The machine's own file system.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk {
    dir_mode: u32,
    file_mode: u32,
    way: Way,
}

impl RealDisk {
    /// Files for this user alone (0600 in 0700): the spool.
    pub fn private() -> Self {
        Self { dir_mode: 0o700, file_mode: 0o600, way: Way::Past }
    }

    /// Files the group may read (0640 in 0750): the archive.
    pub fn shared() -> Self {
        Self { dir_mode: 0o750, file_mode: 0o640, way: Way::Past }
    }

    /// Never through a symbolic link, and never waiting on a pipe somebody planted.
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.mode(self.file_mode).custom_flags(flags.bits() as i32);
        options
    }

    fn opened(&self, file: File) -> io::Result<Box<dyn DiskFile>> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(RealFile { len: file.metadata()?.len(), way: self.way, file }))
    }
}

impl Disk for RealDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(self.dir_mode).create(dir)?;
        // The umask may have taken bits away.
        fs::set_permissions(dir, Permissions::from_mode(self.dir_mode))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.options().read(true).append(true).create_new(true).open(path)?;
        file.set_permissions(Permissions::from_mode(self.file_mode))?;
        self.opened(file)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.opened(self.options().read(true).open(path)?)
    }

    fn open_to_cut(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.opened(self.options().read(true).write(true).open(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path, _point: SyncPoint) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let file = self.options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// Where the next append begins.
    len: u64,
    way: Way,
}

impl DiskFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.append_all(&mut std::iter::once(bytes), bytes.len())
    }

    fn append_all(&mut self, parts: &mut dyn Iterator<Item = &[u8]>, bytes: usize) -> io::Result<()> {
        self.way.append(&mut self.file, self.len, parts, bytes)?;
        self.len += bytes as u64;
        Ok(())
    }

    fn hasten(&mut self, offset: u64, len: u64) {
        hasten(&self.file, offset, len);
    }

    fn sync(&mut self, _point: SyncPoint) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.len = len;
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Pages that are not wanted in memory are first written out, if they have to be: Linux begins at once, and keeps those it
/// is still writing.
fn hasten(file: &File, offset: u64, len: u64) {
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed);
}

/// Reads a whole file of at most `max` bytes; a longer one is not what we wrote.
pub fn read_file(disk: &dyn Disk, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let len = file.len()?;
    if len > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{len} bytes, expected at most {max}"),
        ));
    }
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Replaces a small file in one step: a reader, and the next start, sees the old contents or the new, never a mix.
pub fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
    data: SyncPoint,
    entry: SyncPoint,
) -> io::Result<()> {
    let fresh = with_suffix(path, ".tmp");
    match disk.remove(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&fresh)?;
    file.append(bytes)?;
    file.sync(data)?;
    drop(file);
    disk.rename(&fresh, path)?;
    disk.sync_dir(parent(path), entry)
}

/// Makes a folder and whichever of its parents are missing, each durable before the next is made in it.
pub fn create_dir_all(disk: &dyn Disk, dir: &Path, point: SyncPoint) -> io::Result<()> {
    if dir.as_os_str().is_empty() {
        return Ok(());
    }
    match disk.create_dir(dir) {
        Ok(()) => disk.sync_dir(parent(dir), point),
        // Whoever made it may have ended before it was synced.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.sync_dir(parent(dir), point),
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir.parent().is_some() => {
            create_dir_all(disk, parent(dir), point)?;
            create_dir_all(disk, dir, point)
        }
        Err(error) => Err(error),
    }
}

/// The folder a path is in; a bare name is in the current one.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// `a/b.json` with `.tmp` becomes `a/b.json.tmp`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
