//! An archive of JSON lines on disk, each record in it exactly once.
//!
//! ```text
//! <dir>/<venue>/<channel's folder>/date=YYYY-MM-DD/<name>.jsonl                      being written, or
//!                                                 <name>.jsonl + <name>.jsonl.manifest.json          sealed, or
//!                                                 <name>.jsonl.zst + <name>.jsonl.zst.manifest.json  sealed
//! <dir>/.catchment/jsonl-<writer>.json                                               the writer's checkpoint
//!
//! name = <opened at, YYYYMMDDTHHMMSSmmmZ>-<writer, 12 hex digits>-<number, 6 digits>
//! ```
//!
//! A line is the record's, byte for byte. The date is that of `received_at`. The number only grows, over restarts
//! too, so no name is used twice even when the wall clock steps back. A file is never opened again for writing.
//!
//! **Exactly once.** Within a stream (venue and channel) records become durable in the order of their numbers: when a
//! batch goes from one date to another, the first file is synced before the second is written. So one number a stream,
//! the highest durable, tells which records that come again are already here. At start it is read from the checkpoint
//! and from the ends of the files that were not sealed.
//!
//! Limits: a batch whose records of one stream go back and forth between dates costs a sync at each turn; sealing happens
//! inside the write that filled the file, after its batch is durable.
//!
//! **After a failure** of an append or a sync, the file is cut back to what is known to be durable and never written
//! again; until the cut succeeds, every write fails. What was not acknowledged comes again, into a new file.
//!
//! **Sealing** (between batches): checkpoint, compressed copy, manifest, removal of the original, each durable
//! before the next. A file that has a manifest is final: it may be moved away at any time, with whatever bears its name,
//! and its records are not written again. A sealing that fails is tried again when idle, at close and at the next start.

mod archive;
mod checkpoint;
mod desk;
mod name;
mod recover;
mod scan;
mod seal;
mod store;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use catchment_model::{Clock, SpoolId};
use catchment_pipeline::{Batch, Disk, Sink, SinkError};

use self::archive::Archive;
pub(crate) use self::name::{FileName, Kind, MANIFEST, channel_of_folder};
pub use self::seal::Manifest;

/// Where the archive is and how its files are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlConfig {
    /// The archive's folder.
    pub dir: PathBuf,
    /// A file that has grown this large is sealed after the batch.
    pub file_bytes_max: u64,
    /// The zstd level sealed files are compressed with; none: they stay as they are.
    pub compress: Option<i32>,
    /// Whether full files are sealed beside the writing, instead of before a write returns. Tests that look at every
    /// step want it off.
    pub seal_in_background: bool,
    /// The sink's name, under which its cursor is kept.
    pub name: String,
}

impl JsonlConfig {
    /// An archive in `dir`: files of 256 MiB, not compressed, under the name `jsonl`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            file_bytes_max: 256 << 20,
            compress: None,
            seal_in_background: false,
            name: "jsonl".to_owned(),
        }
    }
}

/// Why the archive could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// The disk did not do what it was asked to.
    #[error("cannot {act} {}; {}", path.display(), advice(source))]
    Disk {
        /// What was tried.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that is no folder stands where a folder of the archive belongs.
    #[error("{} is not a folder (a symbolic link does not count as one); move it away", path.display())]
    NotAFolder {
        /// What stands there.
        path: PathBuf,
    },
    /// Records of one spool were given to the archive of another.
    #[error("this sink was opened for spool {writer} and was given records of spool {given}; open it anew")]
    OtherSpool {
        /// The spool it was opened for.
        writer: SpoolId,
        /// The spool the records are from.
        given: SpoolId,
    },
    /// Sealing has not succeeded yet; nothing is lost.
    #[error("{files} files are not sealed yet; the next start seals them")]
    NotSealed {
        /// How many.
        files: usize,
    },
    /// An earlier call panicked, and what it left behind is not known.
    #[error("an earlier write did not end; start the recorder again, which repairs the archive")]
    Broken,
}

impl JsonlError {
    fn disk<'a>(act: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> JsonlError + 'a {
        move |source| JsonlError::Disk { act, path: path.to_owned(), source }
    }

    fn is_not_found(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What the person in front of it can do.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space on its disk",
        io::ErrorKind::ReadOnlyFilesystem => "make its file system writable again",
        io::ErrorKind::PermissionDenied => "give the recorder's user the right to",
        _ => "look at the state of its disk",
    }
}

/// Writes records to an archive of JSON lines.
#[derive(Debug)]
pub struct JsonlSink {
    name: String,
    archive: Arc<Mutex<Archive>>,
    /// The sealing that goes on beside the writing, if any does.
    sealing: Option<Mutex<Option<tokio::task::JoinHandle<()>>>>,
}

impl JsonlSink {
    /// Opens the archive for the records of the spool `writer`, repairing and sealing what an earlier run of the same
    /// writer left open. Files of other writers are left alone. Blocks while it does.
    pub fn open(
        config: JsonlConfig,
        writer: SpoolId,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<JsonlSink, JsonlError> {
        let name = config.name.clone();
        let sealing = config.seal_in_background.then(Mutex::default);
        let archive = recover::open(config, writer, disk, clock)?;
        Ok(Self { name, archive: Arc::new(Mutex::new(archive)), sealing })
    }

    /// Starts sealing what is full, unless that is going on already.
    fn seal_in_background(&self) {
        let Some(sealing) = &self.sealing else { return };
        let mut running = sealing.lock().expect("no holder of this lock can panic");
        if running.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let archive = Arc::clone(&self.archive);
        *running = Some(tokio::task::spawn_blocking(move || seal_beside(&archive)));
    }

    /// Waits for the sealing beside the writing.
    async fn sealed(&self) {
        let running = self
            .sealing
            .as_ref()
            .and_then(|sealing| sealing.lock().expect("no holder of this lock can panic").take());
        if let Some(task) = running {
            // If it panicked, its files are sealed by the next start.
            let _ = task.await;
        }
    }

    /// Does the work where blocking is allowed. If the caller stops waiting, the work is done all the same.
    async fn run(
        &self,
        act: impl FnOnce(&mut Archive) -> Result<(), JsonlError> + Send + 'static,
    ) -> Result<(), SinkError> {
        let archive = Arc::clone(&self.archive);
        let work = move || act(&mut *archive.lock().map_err(|_| JsonlError::Broken)?);
        let done = tokio::task::spawn_blocking(work).await.unwrap_or(Err(JsonlError::Broken));
        done.map_err(|error| SinkError::unreachable(&self.name, error))
    }
}

/// Seals what is closed, holding the archive only to take it over and to give back what failed.
fn seal_beside(archive: &Mutex<Archive>) {
    let Ok(Some(work)) = archive.lock().map(|mut archive| archive.hand_over_closed()) else { return };
    let failed = work.seal();
    if let Ok(mut archive) = archive.lock() {
        archive.closed.extend(failed);
    }
}

#[async_trait]
impl Sink for JsonlSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        if batch.is_empty() {
            return Ok(());
        }
        let batch = batch.clone();
        self.run(move |archive| archive.write(&batch)).await?;
        self.seal_in_background();
        Ok(())
    }

    async fn idle(&self) -> Result<(), SinkError> {
        self.run(Archive::idle).await
    }

    async fn close(&self) -> Result<(), SinkError> {
        self.sealed().await;
        self.run(Archive::close).await
    }
}
