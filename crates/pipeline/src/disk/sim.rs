//! A disk in memory whose power can be cut.
//!
//! Between a write and its sync anything may happen to it, and here it does: when the power goes, every unsynced write
//! is kept, dropped, or torn at 512-byte sectors, each by itself and so in any order; every unsynced entry of a folder
//! (made, renamed, removed) is kept or dropped the same way. What was synced stays. A sync that is told to fail throws
//! the dirty pages away, as Linux does: the file reads as written until the power goes, and is not there after.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{DirEntry, Disk, DiskFile, SyncPoint, parent};

const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// What is about to be done, for a fault to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// A file is made.
    Create(&'a Path),
    /// Bytes are appended.
    Append(&'a Path, usize),
    /// A file is synced.
    Sync(&'a Path, SyncPoint),
    /// A folder is synced.
    SyncDir(&'a Path, SyncPoint),
    /// A file is read.
    Read(&'a Path),
    /// A file is renamed.
    Rename(&'a Path),
    /// A file is removed.
    Remove(&'a Path),
}

type Fault = Box<dyn FnMut(Op<'_>) -> Option<i32> + Send>;

struct State {
    random: StdRng,
    /// Grows with every power cut; what was opened before is no longer usable.
    life: u64,
    next_inode: u64,
    files: HashMap<u64, Inode>,
    dirs: HashMap<PathBuf, Dir>,
    locks: HashSet<PathBuf>,
    left_out: HashSet<SyncPoint>,
    syncs: BTreeMap<SyncPoint, u64>,
    fault: Option<Fault>,
    /// So many operations still work; then none has any effect until the power is cut for good.
    power_left: Option<u64>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("life", &self.life).field("files", &self.files.len()).finish()
    }
}

#[derive(Debug, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Append { at: usize, bytes: Vec<u8> },
    Cut { len: usize },
}

#[derive(Debug, Default)]
struct Dir {
    live: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    pending: Vec<EntryChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File(u64),
    Dir,
}

#[derive(Debug)]
enum EntryChange {
    Made(String, Entry),
    Renamed { from: String, to: String, entry: Entry },
    Removed(String),
}

impl SimDisk {
    /// An empty disk. The seed decides what survives each power cut.
    pub fn new(seed: u64) -> Self {
        let root = HashMap::from([(PathBuf::from("/"), Dir::default())]);
        let state = State {
            random: StdRng::seed_from_u64(seed),
            life: 0,
            next_inode: 0,
            files: HashMap::new(),
            dirs: root,
            locks: HashSet::new(),
            left_out: HashSet::new(),
            syncs: BTreeMap::new(),
            fault: None,
            power_left: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// From now on these syncs do nothing: the mutation that a test must notice.
    pub fn leave_out(&self, point: SyncPoint) {
        self.lock_state().left_out.insert(point);
    }

    /// From now on each operation may fail with the error number the closure gives.
    pub fn inject(&self, fault: impl FnMut(Op<'_>) -> Option<i32> + Send + 'static) {
        self.lock_state().fault = Some(Box::new(fault));
    }

    /// No more faults.
    pub fn heal(&self) {
        self.lock_state().fault = None;
    }

    /// How often each sync was asked for.
    pub fn syncs(&self) -> BTreeMap<SyncPoint, u64> {
        self.lock_state().syncs.clone()
    }

    /// After so many more operations nothing works any more: a power cut in the middle of something. What was going on
    /// sees errors; then [`SimDisk::cut_power`] decides what is left.
    pub fn fail_power_after(&self, operations: u64) {
        self.lock_state().power_left = Some(operations);
    }

    /// Puts a file there, durably, making its folders.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut dir = PathBuf::new();
        for part in parent(path) {
            dir.push(part);
            let _ = self.create_dir(&dir);
        }
        let _ = self.remove(path);
        self.create(path)
            .and_then(|mut file| file.append(bytes))
            .expect("nothing fails while a test sets the stage");
        let mut state = self.lock_state();
        for inode in state.files.values_mut() {
            inode.durable.clone_from(&inode.live);
            inode.pending.clear();
        }
        for dir in state.dirs.values_mut() {
            dir.durable.clone_from(&dir.live);
            dir.pending.clear();
        }
    }

    /// Cuts the power: what was not synced may be gone, torn or there; open files and locks are gone.
    pub fn cut_power(&self) {
        let state = &mut *self.lock_state();
        state.life += 1;
        state.locks.clear();
        state.power_left = None;
        for inode in state.files.values_mut() {
            inode.lose_power(&mut state.random);
        }
        for dir in state.dirs.values_mut() {
            dir.lose_power(&mut state.random);
        }
        let paths: Vec<PathBuf> = state.dirs.keys().filter(|p| !state.reachable(p)).cloned().collect();
        for path in paths {
            state.dirs.remove(&path);
        }
    }

    /// Ends the process without cutting the power: everything written stays, open files and locks are gone.
    pub fn kill(&self) {
        let mut state = self.lock_state();
        state.life += 1;
        state.locks.clear();
    }

    /// Changes a file's bytes behind everybody's back, durably.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock_state();
        let inode = state.find(path).expect("the file is there");
        let file = state.files.get_mut(&inode).expect("a name has a file");
        change(&mut file.live);
        file.durable = file.live.clone();
        file.pending.clear();
    }

    fn has_failed(&self) -> bool {
        self.lock_state().power_left == Some(0)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    fn handle(&self, state: &State, path: &Path, inode: u64) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), path: path.to_owned(), inode, life: state.life })
    }
}

impl State {
    fn has_power(&mut self) -> io::Result<()> {
        match &mut self.power_left {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn attempt(&mut self, op: Op<'_>) -> io::Result<()> {
        match self.fault.as_mut().and_then(|fault| fault(op)) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    fn dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        self.dirs.get_mut(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let dir = self.dirs.get(parent(path)).ok_or(io::ErrorKind::NotFound)?;
        match dir.live.get(&name(path)) {
            Some(Entry::File(inode)) => Ok(*inode),
            Some(Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn reachable(&self, path: &Path) -> bool {
        path == Path::new("/")
            || (self.dirs.get(parent(path)).is_some_and(|dir| dir.live.get(&name(path)) == Some(&Entry::Dir))
                && self.reachable(parent(path)))
    }

    /// Counts the sync and says whether it is really to be done.
    fn does_sync(&mut self, point: SyncPoint) -> bool {
        *self.syncs.entry(point).or_default() += 1;
        !self.left_out.contains(&point)
    }
}

impl Inode {
    fn lose_power(&mut self, random: &mut StdRng) {
        for change in std::mem::take(&mut self.pending) {
            match (change, random.random_range(0..3)) {
                (_, 0) => {}
                (Change::Cut { len }, _) => self.durable.truncate(len),
                (Change::Append { at, bytes }, fate) => {
                    let end = at + bytes.len();
                    self.durable.resize(self.durable.len().max(end), 0);
                    for (sector, part) in bytes.chunks(SECTOR).enumerate() {
                        if fate == 1 || random.random_bool(0.5) {
                            let start = at + sector * SECTOR;
                            self.durable[start..start + part.len()].copy_from_slice(part);
                        }
                    }
                }
            }
        }
        self.live.clone_from(&self.durable);
    }
}

impl Dir {
    fn change(&mut self, change: EntryChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn lose_power(&mut self, random: &mut StdRng) {
        for change in std::mem::take(&mut self.pending) {
            if random.random_bool(0.5) {
                change.apply(&mut self.durable);
            }
        }
        self.live.clone_from(&self.durable);
    }
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<String, Entry>) {
        match self {
            Self::Made(name, entry) => {
                entries.insert(name.clone(), *entry);
            }
            Self::Renamed { from, to, entry } => {
                entries.remove(from);
                entries.insert(to.clone(), *entry);
            }
            Self::Removed(name) => {
                entries.remove(name);
            }
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().expect("a file has a name").to_string_lossy().into_owned()
}

impl Disk for SimDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.lock_state();
        let entries = state.dir(dir)?.live.iter();
        Ok(entries
            .map(|(name, entry)| DirEntry { name: name.clone(), is_dir: *entry == Entry::Dir })
            .collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.has_power()?;
        if state.dirs.contains_key(dir) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.dir(parent(dir))?.change(EntryChange::Made(name(dir), Entry::Dir));
        state.dirs.insert(dir.to_owned(), Dir::default());
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock_state();
        state.has_power()?;
        state.attempt(Op::Create(path))?;
        if state.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.next_inode;
        state.dir(parent(path))?.change(EntryChange::Made(name(path), Entry::File(inode)));
        state.next_inode += 1;
        state.files.insert(inode, Inode::default());
        Ok(self.handle(&state, path, inode))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let state = self.lock_state();
        let inode = state.find(path)?;
        Ok(self.handle(&state, path, inode))
    }

    fn open_to_cut(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(parent(from), parent(to), "files are renamed within their folder");
        let mut state = self.lock_state();
        state.has_power()?;
        state.attempt(Op::Rename(from))?;
        let entry = Entry::File(state.find(from)?);
        state.dir(parent(from))?.change(EntryChange::Renamed { from: name(from), to: name(to), entry });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.has_power()?;
        state.attempt(Op::Remove(path))?;
        state.find(path)?;
        state.dir(parent(path))?.change(EntryChange::Removed(name(path)));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path, point: SyncPoint) -> io::Result<()> {
        let mut state = self.lock_state();
        state.has_power()?;
        state.attempt(Op::SyncDir(dir, point))?;
        let really = state.does_sync(point);
        let entries = state.dir(dir)?;
        if really {
            entries.durable.clone_from(&entries.live);
            entries.pending.clear();
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.lock_state();
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life: state.life }))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: u64,
    life: u64,
}

impl SimFile {
    fn with<T>(&self, op: Option<Op<'_>>, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.disk.lock_state();
        if state.life != self.life {
            return Err(io::Error::other("this file was opened before the power went"));
        }
        if let Some(op) = op {
            // A read changes nothing: where the power goes around it does not matter.
            if !matches!(op, Op::Read(_)) {
                state.has_power()?;
            }
            state.attempt(op)?;
        }
        Ok(act(state.files.get_mut(&self.inode).expect("files outlive their names")))
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(Some(Op::Append(&self.path, bytes.len())), |inode| {
            inode.pending.push(Change::Append { at: inode.live.len(), bytes: bytes.to_vec() });
            inode.live.extend_from_slice(bytes);
        })
    }

    fn sync(&mut self, point: SyncPoint) -> io::Result<()> {
        let really = self.disk.lock_state().does_sync(point);
        let synced = self.with(Some(Op::Sync(&self.path, point)), |inode| {
            if really {
                inode.durable.clone_from(&inode.live);
                inode.pending.clear();
            }
        });
        if synced.is_err() && !self.disk.has_failed() {
            // Linux marks the pages clean: another sync would succeed and save nothing.
            self.with(None, |inode| inode.pending.clear())?;
        }
        synced
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.disk.lock_state().has_power()?;
        self.with(None, |inode| {
            inode.live.truncate(len as usize);
            inode.pending.push(Change::Cut { len: len as usize });
        })
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(Some(Op::Read(&self.path)), |inode| {
            let rest = inode.live.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            len
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(None, |inode| inode.live.len() as u64)
    }
}
