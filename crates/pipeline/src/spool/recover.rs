//! Opening a spool, and repairing what a crash has left. A start always succeeds while the folder itself can be used.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use catchment_model::{SpoolId, UnixMs};

use super::{
    Files, Findings, Found, Heard, SavedCursors, Segment, Spool, SpoolConfig, SpoolError, by_stream,
    damaged_header, first_id, persistently, segment_number,
};
use crate::batch::BatchBuilder;
use crate::disk::{self, Disk, SyncPoint};
use crate::frame::{self, HEADER};
use crate::frames::Frames;
use crate::reader::{self, DamageKind, Piece, Position};
use crate::{events, s1};

impl Spool {
    /// Opens the folder, making it if need be, and repairs what a crash has left. `random` becomes the spool's id if it
    /// has none yet.
    pub fn open(config: SpoolConfig, disk: Arc<dyn Disk>, random: u64) -> Result<Self, SpoolError> {
        let failed = |source| SpoolError::Open { path: config.dir.clone(), source };
        disk::create_dir_all(&*disk, &config.dir, SyncPoint::SpoolFolder).map_err(failed)?;
        let lock = disk.lock(&config.dir.join("lock")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => SpoolError::InUse(config.dir.clone()),
            _ => failed(error),
        })?;
        let files = Files { disk, _lock: lock, reserved: false };
        let mut spool = Self::empty(config, SpoolId::new(random), Some(files));
        spool.recover().map_err(|source| SpoolError::Open { path: spool.config.dir.clone(), source })?;
        Ok(spool)
    }

    /// A spool that keeps nothing on disk: what is not delivered when the process ends is lost.
    pub fn in_memory(config: SpoolConfig, random: u64) -> Self {
        Self::empty(config, SpoolId::new(random), None)
    }

    fn empty(config: SpoolConfig, id: SpoolId, files: Option<Files>) -> Self {
        Self {
            config,
            id,
            next_seq: 1,
            next_segment: 1,
            open: None,
            segments: BTreeMap::new(),
            cursors: BTreeMap::new(),
            heard: Heard::new(),
            stopped: Heard::new(),
            findings: Findings::default(),
            files,
        }
    }

    fn recover(&mut self) -> io::Result<()> {
        let disk = self.disk();
        let cursors = self.config.dir.join("cursors");
        let saved = match persistently(|| disk::read_file(&*disk, &cursors, 1 << 20)) {
            Ok(bytes) => SavedCursors::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut headers = self.find_segments()?;
        if let Some(id) = self.find_id(saved.as_ref(), &headers)? {
            self.id = id;
        }
        if let Some(saved) = &saved {
            self.next_seq = saved.next_seq;
            self.cursors = saved.cursors();
            // After a crash they stay until it has been told; who closed it properly expects nothing more of them.
            self.heard = if saved.clean { Heard::new() } else { by_stream(&saved.heard) };
            self.stopped = by_stream(&saved.stopped);
            self.findings.stopped = self.stopped.clone();
        }
        // With the segments gone, only the cursors know which numbers they had.
        let newest_read = self.cursors.values().map(|cursor| cursor.at.segment).max();
        self.next_segment = self.next_segment.max(newest_read.map_or(1, |number| number + 1));
        self.number_after_newest(&headers)?;
        s1::convert_all(self, &mut headers)?;
        let headless = headers.iter().filter(|(_, found)| **found == Found::Headless);
        self.findings.damage = headless.map(|(number, _)| damaged_header(*number)).collect();
        self.findings.unclean = match &saved {
            Some(saved) => !saved.clean,
            None => !headers.is_empty(),
        };
        if let Err(error) = self.save_cursors(false) {
            self.release_reserve(&error);
            // What is in the spool can still be delivered; a new spool has nothing to deliver.
            if self.save_cursors(false).is_err() && saved.is_none() {
                return Err(error);
            }
        }
        // A full disk must not keep us from starting: what is in the spool can still be delivered.
        if let Err(error) = self.take_reserve() {
            events::reserve_missing(&self.config.dir, &error);
        }
        Ok(())
    }

    /// Lists the segments and reads their headers; clears away what a crash left half made.
    fn find_segments(&mut self) -> io::Result<BTreeMap<u32, Found>> {
        let disk = self.disk();
        let mut headers = BTreeMap::new();
        for entry in disk.list(&self.config.dir)? {
            if entry.name.ends_with(".tmp") {
                disk.remove(&self.config.dir.join(&entry.name))?;
                continue;
            }
            let Some(number) = segment_number(&entry.name) else { continue };
            let path = self.config.dir.join(&entry.name);
            let file = disk.open(&path)?;
            let len = file.len()?;
            if len < HEADER as u64 && !s1::looks_old(&disk::read_file(&*disk, &path, HEADER as u64)?) {
                disk.remove(&path)?; // made, and nothing written to it any more
                continue;
            }
            let mut bytes = [0; HEADER];
            // A header that cannot be read is as good as a damaged one.
            let read = persistently(|| file.read_at(&mut bytes, 0)).unwrap_or(0);
            headers.insert(number, Found::at_the_start_of(&bytes[..read]));
            self.segments.insert(number, Segment { durable: len, unreadable: false });
            self.next_segment = number + 1;
        }
        Ok(headers)
    }

    /// The id this folder has had so far: from the cursors, a header, or any record's own text.
    fn find_id(
        &self,
        saved: Option<&SavedCursors>,
        headers: &BTreeMap<u32, Found>,
    ) -> io::Result<Option<SpoolId>> {
        let named = saved.and_then(|s| s.spool.parse().ok());
        if let Some(id) = named.or_else(|| headers.values().find_map(Found::header).map(|h| h.spool)) {
            return Ok(Some(id));
        }
        for number in headers.keys() {
            let mut found = None;
            // One that cannot be read may be followed by one that can.
            let _ = self.scan(*number, |frames| found = found.or_else(|| first_id(&frames.bytes)));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Continues the numbering after whatever the newest segments hold, torn records included.
    fn number_after_newest(&mut self, headers: &BTreeMap<u32, Found>) -> io::Result<()> {
        let mut seq = self.next_seq - 1;
        seq = self.cursors.values().map(|c| c.seq).fold(seq, u64::max);
        seq = headers
            .values()
            .filter_map(Found::header)
            .map(|h| h.first_seq.saturating_sub(1))
            .fold(seq, u64::max);
        let mut last_seen = self.heard.clone();
        // The newest two: the last one may have been opened a moment before the end.
        let ours = headers.iter().rev().filter(|(_, found)| **found != Found::Old);
        for number in ours.map(|(number, _)| number).take(2) {
            let scanned = self.scan(*number, |frames| {
                let mut builder = BatchBuilder::new(self.id);
                let (_, last) = builder.take(&Arc::new(frames), 0, 0, usize::MAX, usize::MAX);
                seq = seq.max(last);
                for record in builder.build().iter() {
                    let seen: &mut UnixMs =
                        last_seen.entry(record.stream()).or_insert(record.received_at().ms());
                    *seen = (*seen).max(record.received_at().ms());
                }
            });
            // A stretch that is torn or cannot be read may hold records that a sink has seen: their numbers are spent.
            let unknown = scanned.unwrap_or_else(|_| self.segments[number].durable);
            seq += unknown / frame::HEAD as u64;
        }
        self.findings.last_seen = last_seen;
        self.next_seq = seq + 1;
        Ok(())
    }

    /// Shows all sound frames of a segment, a piece at a time; says how many bytes at its end are not sound.
    fn scan(&self, number: u32, mut each: impl FnMut(Frames)) -> io::Result<u64> {
        let file = self.disk().open(&self.segment_path(number))?;
        let end = file.len()?;
        let mut at = Position { segment: number, offset: HEADER as u64 };
        let mut torn = 0;
        loop {
            match persistently(|| reader::read_piece(&*file, at, end, 0))? {
                Piece::Frames(frames) => {
                    at.offset += frames.bytes.len() as u64;
                    each(frames);
                }
                Piece::Damage(damage) => {
                    torn = if damage.kind == DamageKind::TornTail { damage.len } else { 0 };
                    at.offset += damage.len;
                }
                Piece::End => return Ok(torn),
            }
        }
    }
}
