//! What happens at start: what an earlier run of this writer left open is repaired, made durable and sealed, and what
//! is durable of each stream is found out. Files of other writers are left alone: they may be in use.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catchment_model::{Channel, Clock, RecordId, SpoolId, UtcDate, Venue};
use catchment_pipeline::{Disk, SyncPoint};
use tracing::{info, warn};

use super::archive::{Archive, ClosedFile};
use super::checkpoint::{Checkpoint, Found};
use super::scan::Scan;
use super::store::Store;
use super::{FileName, JsonlConfig, JsonlError, Kind, channel_of_folder, seal};

/// Opens the archive as it is and leaves it as it should be.
pub(super) fn open(
    config: JsonlConfig,
    writer: SpoolId,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
) -> Result<Archive, JsonlError> {
    let store = Store::open(config.dir.clone(), writer, disk, clock)?;
    let folders = walk(&store)?;
    let mut start = Start { archive: Archive::new(store, config), sealed: 0, sealed_high: Vec::new() };
    for folder in &folders {
        start.recover_folder(folder)?;
    }
    start.finish()
}

/// A folder of one stream and date.
struct Folder {
    path: PathBuf,
    stream: (Venue, Channel),
    files: BTreeMap<FileName, Kinds>,
}

/// Which files there are under one name.
#[derive(Default)]
struct Kinds {
    plain: bool,
    packed: bool,
    temporary: Vec<String>,
}

struct Start {
    archive: Archive,
    sealed: usize,
    /// The last ids of sealed files, in case the checkpoint is gone.
    sealed_high: Vec<((Venue, Channel), RecordId)>,
}

impl Start {
    fn recover_folder(&mut self, folder: &Folder) -> Result<(), JsonlError> {
        for (name, kinds) in &folder.files {
            let store = &mut self.archive.store;
            store.next_number = store.next_number.max(name.number + 1);
            for temporary in &kinds.temporary {
                let path = folder.path.join(temporary);
                store.disk.remove(&path).map_err(JsonlError::disk("remove", &path))?;
            }
            self.recover_name(folder, name, kinds)?;
        }
        Ok(())
    }

    fn recover_name(&mut self, folder: &Folder, name: &FileName, kinds: &Kinds) -> Result<(), JsonlError> {
        let disk = Arc::clone(&self.archive.store.disk);
        let (plain, packed) = (folder.path.join(name.plain()), folder.path.join(name.packed()));
        if let Some(manifest) = seal::manifest_of(&*disk, &packed)? {
            self.note_sealed(folder, manifest.last_id.as_deref());
            if kinds.plain && kinds.packed {
                // Should the manifest not be durable yet, it is made again from the compressed file, which is.
                seal::remove(&*disk, &plain)?;
            }
            return Ok(());
        }
        if !kinds.plain {
            return if kinds.packed { self.reseal_packed(folder, &packed) } else { Ok(()) };
        }
        if kinds.packed {
            // Made from the original, which is still here, and not finished.
            seal::remove(&*disk, &packed)?;
        }
        match seal::manifest_of(&*disk, &plain)? {
            Some(manifest) => self.note_sealed(folder, manifest.last_id.as_deref()),
            None => self.repair(folder, plain)?,
        }
        Ok(())
    }

    fn note_sealed(&mut self, folder: &Folder, last_id: Option<&str>) {
        self.sealed += 1;
        if let Some(id) = last_id.and_then(|id| id.parse().ok()) {
            self.sealed_high.push((folder.stream, id));
        }
    }

    fn reseal_packed(&mut self, folder: &Folder, packed: &Path) -> Result<(), JsonlError> {
        warn!(file = %packed.display(), "a compressed file had no manifest; it gets one again");
        match seal::seal_packed(&*self.archive.store.disk, packed) {
            Ok(scan) => self.raise(folder.stream, &scan),
            // Damaged beyond reading. `verify` names it; it must not keep the recorder from starting.
            Err(error) => warn!(%error, file = %packed.display(), "a compressed file cannot be read"),
        }
        Ok(())
    }

    /// Cuts off what a crash left half written, and makes the rest durable before anybody counts on it: the process
    /// that wrote it may have died before its sync. Its name is durable: that was seen to before the first line.
    fn repair(&mut self, folder: &Folder, path: PathBuf) -> Result<(), JsonlError> {
        let store = &mut self.archive.store;
        let mut file = match store.disk.open_to_cut(&path) {
            Ok(file) => file,
            Err(error) if is_planted(&error) => {
                warn!(file = %path.display(), %error, "not a file of ours, left alone");
                return Ok(());
            }
            Err(error) => return Err(JsonlError::disk("open", &path)(error)),
        };
        let scan = Scan::plain(&*file).map_err(JsonlError::disk("read", &path))?;
        if !scan.is_whole {
            info!(file = %path.display(), bytes = scan.sound_len, "cut off what a crash left half written");
            file.cut(scan.sound_len).map_err(JsonlError::disk("cut", &path))?;
        }
        file.sync(SyncPoint::ArchiveRepair).map_err(JsonlError::disk("sync", &path))?;
        drop(file);
        if scan.rows == 0 {
            return store.disk.remove(&path).map_err(JsonlError::disk("remove", &path));
        }
        self.raise(folder.stream, &scan);
        let scan = scan.is_whole.then_some(scan);
        self.archive.closed.push(ClosedFile { path, rows: None, scan });
        Ok(())
    }

    fn raise(&mut self, (venue, channel): (Venue, Channel), scan: &Scan) {
        let mark = self.archive.mark(venue, channel);
        mark.raise(scan.confirmed.unwrap_or(0));
        if let Some(last) = scan.last_id {
            mark.add(last.seq);
        }
    }

    fn finish(mut self) -> Result<Archive, JsonlError> {
        let store = &self.archive.store;
        let path = Checkpoint::path(&store.dir, store.writer);
        let found = Checkpoint::load(&*store.disk, &path, store.writer)
            .map_err(JsonlError::disk("read the checkpoint", &path))?;
        match found {
            Found::Sound(checkpoint) => self.take(checkpoint),
            Found::Missing if self.sealed == 0 => {}
            Found::Missing | Found::Damaged => {
                warn!(file = %path.display(), sealed = self.sealed, "checkpoint lost, made again from the manifests");
                for ((venue, channel), id) in std::mem::take(&mut self.sealed_high) {
                    self.archive.mark(venue, channel).raise(id.seq);
                }
                self.archive.store_checkpoint()?;
            }
        }
        self.archive.seal_closed();
        Ok(self.archive)
    }

    fn take(&mut self, checkpoint: Checkpoint) {
        let store = &mut self.archive.store;
        store.next_number = store.next_number.max(checkpoint.next_number);
        for (name, found) in checkpoint.streams {
            let names =
                name.split_once('/').map(|(venue, channel)| (Venue::new(venue), Channel::new(channel)));
            if let Some((Ok(venue), Ok(channel))) = names {
                let mark = self.archive.mark(venue, channel);
                mark.raise(found.high);
                found.also.into_iter().for_each(|seq| mark.add(seq));
            }
        }
    }
}

/// A symbolic link, a pipe or a device that bears one of our names.
fn is_planted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Finds the folders of the archive, and in them this writer's files. Whatever else lies there is passed over.
fn walk(store: &Store) -> Result<Vec<Folder>, JsonlError> {
    let mut folders = Vec::new();
    for (venue_name, venue_dir) in subfolders(store, &store.dir)? {
        let Ok(venue) = Venue::new(&venue_name) else { continue };
        for (channel_name, channel_dir) in subfolders(store, &venue_dir)? {
            let Some(channel) = channel_of_folder(&channel_name) else { continue };
            for (date_name, path) in subfolders(store, &channel_dir)? {
                let date = date_name.strip_prefix("date=").and_then(|date| date.parse::<UtcDate>().ok());
                if date.is_some() {
                    let files = files_in(store, &path)?;
                    folders.push(Folder { path, stream: (venue, channel), files });
                }
            }
        }
    }
    Ok(folders)
}

fn subfolders(store: &Store, dir: &Path) -> Result<Vec<(String, PathBuf)>, JsonlError> {
    let entries = store.disk.list(dir).map_err(JsonlError::disk("list the folder", dir))?;
    let folders = entries.into_iter().filter(|entry| entry.is_dir);
    Ok(folders.map(|entry| (entry.name.clone(), dir.join(entry.name))).collect())
}

fn files_in(store: &Store, dir: &Path) -> Result<BTreeMap<FileName, Kinds>, JsonlError> {
    let entries = store.disk.list(dir).map_err(JsonlError::disk("list the folder", dir))?;
    let mut files: BTreeMap<FileName, Kinds> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        let Some((name, kind)) = FileName::parse(&entry.name) else { continue };
        if name.writer != store.writer {
            continue;
        }
        let kinds = files.entry(name).or_default();
        match kind {
            Kind::Plain => kinds.plain = true,
            Kind::Packed => kinds.packed = true,
            Kind::Temporary => kinds.temporary.push(entry.name),
            Kind::PlainManifest | Kind::PackedManifest => {}
        }
    }
    Ok(files)
}
