//! Where damaged bytes go: kept as they are, beside a line that says what they were.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{self, Disk, SyncPoint};
use crate::reader::{Damage, DamageKind};

/// More than this of one damaged stretch is not kept.
const KEPT_MAX: u64 = 64 << 20;

/// `quarantine/` in the spool's folder.
#[derive(Debug, Clone)]
pub(crate) struct Quarantine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Quarantine {
    pub(crate) fn new(disk: Arc<dyn Disk>, spool_dir: &Path) -> Self {
        Self { disk, dir: spool_dir.join("quarantine") }
    }

    /// Copies the damaged bytes to `spool_000003-<offset>.bad`. Bytes already kept are not kept twice.
    pub(crate) fn keep(&self, segment: &Path, damage: &Damage) -> io::Result<PathBuf> {
        let name = format!("spool_{:06}-{}.bad", damage.at.segment, damage.at.offset);
        let path = self.dir.join(name);
        if matches!(damage.kind, DamageKind::Missing | DamageKind::Unreadable) {
            return Ok(path);
        }
        let bytes = self.read(segment, damage)?;
        self.write(&path, &bytes)?;
        Ok(path)
    }

    fn read(&self, segment: &Path, damage: &Damage) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; damage.len.min(KEPT_MAX) as usize];
        let read = self.disk.open(segment)?.read_at(&mut bytes, damage.at.offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        disk::create_dir_all(&*self.disk, &self.dir, SyncPoint::QuarantineFolder)?;
        if self.disk.open(path).is_ok() {
            return Ok(());
        }
        disk::replace_file(&*self.disk, path, bytes, SyncPoint::QuarantineData, SyncPoint::QuarantineEntry)
    }
}
