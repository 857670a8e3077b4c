//! Sealing: a file gets its manifest, and perhaps its compressed form, and is final.
//!
//! ```text
//! {"version":1,"file":"20270101T000000012Z-0123456789ab-000007.jsonl","rows":3,"bytes":812,
//!  "first_received_at_ms":1798761600012,"last_received_at_ms":1798761600312,
//!  "first_id":"0123456789ab-0000000000000001","last_id":"0123456789ab-0000000000000003","sha256":"…"}
//! ```
//!
//! `bytes` and `sha256` are of the file as it lies there; a compressed one adds `content_bytes`. Every step is durable
//! before the next, so whichever manifest is seen, its file is there and is what it says. The original goes last.

use std::io::{self, Write};
use std::path::Path;

use catchment_pipeline::disk::{parent, replace_file, with_suffix};
use catchment_pipeline::{Disk, DiskFile, SyncPoint};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::archive::{ClosedFile, check_rows};
use super::scan::{FileReader, Scan};
use super::{JsonlError, MANIFEST};
use crate::lines;

const VERSION: u32 = 1;
const BYTES_MAX: u64 = 64 << 10;

/// What is in a sealed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this format: 1.
    pub version: u32,
    /// The file's name, without its folder.
    pub file: String,
    /// How many lines it holds.
    pub rows: u64,
    /// How many bytes it has, as it lies there.
    pub bytes: u64,
    /// How many bytes its lines have, if it is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_bytes: Option<u64>,
    /// The earliest receive time in it.
    pub first_received_at_ms: Option<i64>,
    /// The latest.
    pub last_received_at_ms: Option<i64>,
    /// The id of its first line.
    pub first_id: Option<String>,
    /// The id of its last line.
    pub last_id: Option<String>,
    /// SHA-256 of the file as it lies there, 64 hex digits.
    pub sha256: String,
}

impl Manifest {
    /// Reads a manifest; none if the bytes are not one.
    pub fn parse(bytes: &[u8]) -> Option<Manifest> {
        serde_json::from_slice(bytes).ok().filter(|manifest: &Manifest| manifest.version == VERSION)
    }

    fn new(path: &Path, scan: &Scan) -> Manifest {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name of ours is text");
        let (bytes, sha256) = scan.stored.clone();
        Manifest {
            version: VERSION,
            file: name.to_owned(),
            rows: scan.rows,
            bytes,
            content_bytes: None,
            first_received_at_ms: scan.first_received_at.map(|at| at.ms().get()),
            last_received_at_ms: scan.last_received_at.map(|at| at.ms().get()),
            first_id: scan.first_id.map(|id| id.to_string()),
            last_id: scan.last_id.map(|id| id.to_string()),
            sha256,
        }
    }

    /// Gives the file its manifest.
    fn store(&self, disk: &dyn Disk, file: &Path) -> Result<(), JsonlError> {
        let path = with_suffix(file, MANIFEST);
        let mut bytes = serde_json::to_vec(self).expect("plain fields always serialise");
        bytes.push(b'\n');
        replace_file(disk, &path, &bytes, SyncPoint::SealData, SyncPoint::SealEntry)
            .map_err(JsonlError::disk("write the manifest", &path))
    }
}

/// Reads the manifest of a file; none if there is none that can be read as one.
pub(super) fn manifest_of(disk: &dyn Disk, file: &Path) -> Result<Option<Manifest>, JsonlError> {
    let path = with_suffix(file, MANIFEST);
    match catchment_pipeline::disk::read_file(disk, &path, BYTES_MAX) {
        Ok(bytes) => Ok(Manifest::parse(&bytes).filter(|manifest| file.ends_with(&manifest.file))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
            Ok(None)
        }
        Err(error) => Err(JsonlError::disk("read the manifest", &path)(error)),
    }
}

/// Seals a closed file of lines.
pub(super) fn seal(disk: &dyn Disk, closed: &ClosedFile, compress: Option<i32>) -> Result<(), JsonlError> {
    let path = &closed.path;
    let scan = match &closed.scan {
        Some(scan) => scan.clone(),
        None => match read(disk, path, Scan::plain) {
            Err(error) if error.is_not_found() => return gone(disk, path),
            scan => scan?,
        },
    };
    check_rows(closed, &scan);
    let manifest = Manifest::new(path, &scan);
    let Some(level) = compress else { return manifest.store(disk, path) };

    let packed = with_suffix(path, ".zst");
    let stored = pack(disk, path, &packed, level).map_err(JsonlError::disk("compress", path))?;
    let content_bytes = Some(manifest.bytes);
    let scan = Scan { stored, ..scan };
    Manifest { content_bytes, ..Manifest::new(&packed, &scan) }.store(disk, &packed)?;
    remove(disk, path)
}

/// The file is not there. Either an earlier attempt got as far as removing it, or somebody has moved it away.
fn gone(disk: &dyn Disk, path: &Path) -> Result<(), JsonlError> {
    if manifest_of(disk, &with_suffix(path, ".zst"))?.is_none() {
        warn!(file = %path.display(), "a file was moved away before it was sealed");
    }
    disk.sync_dir(parent(path), SyncPoint::SealEntry).map_err(JsonlError::disk("sync the folder of", path))
}

/// Gives a compressed file that has lost its manifest and its original a manifest again.
pub(super) fn seal_packed(disk: &dyn Disk, path: &Path) -> Result<Scan, JsonlError> {
    let scan = read(disk, path, Scan::packed)?;
    let content_bytes = Some(scan.sound_len);
    Manifest { content_bytes, ..Manifest::new(path, &scan) }.store(disk, path)?;
    Ok(scan)
}

/// Removes a file that is no longer needed, durably.
pub(super) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), JsonlError> {
    disk.remove(path)
        .and_then(|()| disk.sync_dir(parent(path), SyncPoint::SealEntry))
        .map_err(JsonlError::disk("remove", path))
}

fn read(
    disk: &dyn Disk,
    path: &Path,
    scan: impl FnOnce(&dyn DiskFile) -> io::Result<Scan>,
) -> Result<Scan, JsonlError> {
    let file = disk.open(path).map_err(JsonlError::disk("open", path))?;
    scan(&*file).map_err(JsonlError::disk("read", path))
}

/// Writes the compressed form under a temporary name, then gives it its own. Says its size and hash.
fn pack(disk: &dyn Disk, from: &Path, to: &Path, level: i32) -> io::Result<(u64, String)> {
    let fresh = with_suffix(to, ".tmp");
    match disk.remove(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let source = disk.open(from)?;
    let mut target = Appending { file: disk.create(&fresh)?, sha256: Sha256::new(), bytes: 0 };
    let mut encoder = zstd::Encoder::new(&mut target, level)?;
    encoder.include_checksum(true)?;
    io::copy(&mut io::BufReader::with_capacity(1 << 20, FileReader { file: &*source, at: 0 }), &mut encoder)?;
    encoder.finish()?;
    target.file.sync(SyncPoint::SealData)?;
    disk.rename(&fresh, to)?;
    disk.sync_dir(parent(to), SyncPoint::SealEntry)?;
    Ok((target.bytes, lines::hex(target.sha256)))
}

/// A file to append to, which hashes and counts what it is given.
struct Appending {
    file: Box<dyn DiskFile>,
    sha256: Sha256,
    bytes: u64,
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.append(bytes)?;
        self.sha256.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
