//! A disk whose process dies at a chosen operation: from then on nothing reaches it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use catchment_pipeline::disk::DirEntry;
use catchment_pipeline::disk::sim::SimDisk;
use catchment_pipeline::{Disk, DiskFile, SyncPoint};

#[derive(Debug, Clone)]
pub struct Mortal {
    disk: SimDisk,
    left: Arc<AtomicI64>,
}

impl Mortal {
    pub fn new(disk: SimDisk) -> Self {
        Self { disk, left: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    /// Dies after this many more changes.
    pub fn die_after(&self, changes: i64) {
        self.left.store(changes, Ordering::SeqCst);
    }

    /// Another process, which lives.
    pub fn revive(&self) {
        self.die_after(i64::MAX);
    }

    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn change(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 { Err(io::Error::other("dead")) } else { Ok(()) }
    }

    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(MortalFile { file, disk: self.clone() })
    }
}

impl Disk for Mortal {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.change()?;
        self.disk.create_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.change()?;
        Ok(self.file(self.disk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.open(path)?))
    }

    fn open_to_cut(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.open_to_cut(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path, point: SyncPoint) -> io::Result<()> {
        self.change()?;
        self.disk.sync_dir(dir, point)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct MortalFile {
    file: Box<dyn DiskFile>,
    disk: Mortal,
}

impl DiskFile for MortalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.change()?;
        self.file.append(bytes)
    }

    fn sync(&mut self, point: SyncPoint) -> io::Result<()> {
        self.disk.change()?;
        self.file.sync(point)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.disk.change()?;
        self.file.cut(len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
