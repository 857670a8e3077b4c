//! What is durable, in one small file that replaces its older self.
//!
//! ```text
//! {"version":1,"writer":"0123456789ab","next_number":7,"streams":{"binance/trades":{"high":12,"also":[]}}}
//! 1f2e3d4c                            CRC-32C of the line above without its newline, 8 hex digits
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use catchment_model::SpoolId;
use catchment_pipeline::{Disk, SyncPoint, disk};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;
/// Far more than any archive has streams.
const BYTES_MAX: u64 = 64 << 20;

/// What a writer remembers from start to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    version: u32,
    writer: String,
    /// The number of the next file; all smaller ones may have been used.
    pub(super) next_number: u64,
    /// By `<venue>/<channel>`.
    pub(super) streams: BTreeMap<String, Mark>,
}

/// What is durable of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    /// Every record up to this number.
    pub(super) high: u64,
    /// And these. The last line of a repaired file is not trusted to say more than that it is there.
    pub(super) also: Vec<u64>,
}

impl Mark {
    /// Whether this record is durable.
    pub(super) fn covers(&self, seq: u64) -> bool {
        seq <= self.high || self.also.contains(&seq)
    }

    /// All up to this number is durable now.
    pub(super) fn raise(&mut self, high: u64) {
        if high > self.high {
            self.high = high;
            self.also.retain(|seq| *seq > high);
        }
    }

    /// This one record is durable.
    pub(super) fn add(&mut self, seq: u64) {
        if !self.covers(seq) {
            self.also.push(seq);
        }
    }
}

/// What was found at start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A sound checkpoint.
    Sound(Checkpoint),
    /// None.
    Missing,
    /// Bytes that are not a checkpoint of this writer.
    Damaged,
}

impl Checkpoint {
    pub(super) fn new(writer: SpoolId, next_number: u64, streams: BTreeMap<String, Mark>) -> Self {
        Self { version: VERSION, writer: writer.to_string(), next_number, streams }
    }

    /// Where a writer's checkpoint is.
    pub(super) fn path(dir: &Path, writer: SpoolId) -> PathBuf {
        dir.join(".catchment").join(format!("jsonl-{writer}.json"))
    }

    /// Replaces the checkpoint on disk.
    pub(super) fn store(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let bytes = self.encode();
        assert_eq!(Self::decode(&bytes).as_ref(), Some(self), "a checkpoint reads as written");
        disk::replace_file(disk, path, &bytes, SyncPoint::CheckpointData, SyncPoint::CheckpointEntry)
    }

    /// Reads the checkpoint on disk.
    pub(super) fn load(disk: &dyn Disk, path: &Path, writer: SpoolId) -> io::Result<Found> {
        let bytes = match disk::read_file(disk, path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Found::Damaged),
            Err(error) => return Err(error),
        };
        let ours = Self::decode(&bytes).filter(|found| found.writer == writer.to_string());
        Ok(ours.map_or(Found::Damaged, Found::Sound))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("plain fields always serialise");
        let crc = crc_fast::crc32_iscsi(&bytes);
        bytes.extend_from_slice(format!("\n{crc:08x}\n").as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (json, crc) = text.strip_suffix('\n')?.split_once('\n')?;
        // One spelling only, so that every flipped bit is noticed.
        if crc != format!("{:08x}", crc_fast::crc32_iscsi(json.as_bytes())) {
            return None;
        }
        serde_json::from_str(json).ok().filter(|found: &Self| found.version == VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let streams = BTreeMap::from([("okx/trades".to_owned(), Mark { high: 12, also: vec![15] })]);
        let checkpoint = Checkpoint::new(SpoolId::new(0xab), 7, streams);
        let bytes = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&bytes), Some(checkpoint));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Checkpoint::decode(&flipped), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Checkpoint::decode(&bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn a_mark_covers_what_is_durable_and_nothing_else() {
        let mut mark = Mark::default();
        mark.raise(5);
        mark.add(9);
        mark.add(3);
        let covered: Vec<u64> = (1..12).filter(|seq| mark.covers(*seq)).collect();
        assert_eq!(covered, [1, 2, 3, 4, 5, 9]);
        mark.raise(10);
        assert_eq!(mark, Mark { high: 10, also: vec![] });
        mark.raise(4);
        assert_eq!(mark.high, 10);
    }
}
