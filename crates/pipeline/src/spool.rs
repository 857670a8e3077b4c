//! The spool: where a record becomes durable, and stays until every sink has it.
//!
//! ```text
//! spool/
//!   lock                  held while a process uses the folder
//!   spool_000007.dat      segments, oldest first; the last one is open (layout: frame.rs)
//!   spool_000008.dat
//!   cursors               how far each sink has come, the spool's id, whether it was closed properly
//!   reserve               space kept back, so that a full disk can still be told of in the data
//!   quarantine/           damaged bytes
//!   dead_letter/          records a sink refused
//! ```
//!
//! Rules: a name once written is durable before anything relies on it; a file whose write or sync failed is never
//! synced again, its group is written anew to another segment; cursors are saved before segments go; a number once given
//! to a record is never given to another. A start always succeeds: what is damaged is set aside and told of.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Channel, RecordId, SpoolId, UnixMs, Venue};
use serde::{Deserialize, Serialize};

use crate::disk::{self, Disk, DiskFile, SyncPoint};
use crate::frame::{self, HEADER, Header};
use crate::frames::{Frames, Index};
use crate::reader::{Damage, DamageKind, Position};
use crate::{Draft, events, s1};

/// `[persistence.spool]`, checked.
#[derive(Debug, Clone)]
pub struct SpoolConfig {
    /// The folder; one process at a time.
    pub dir: PathBuf,
    /// A segment that would grow beyond this is followed by another.
    pub segment_bytes_max: u64,
    /// What all segments together may take.
    pub total_bytes_max: u64,
    /// What happens when they do.
    pub on_full: OnFull,
    /// How long a record may wait for others to be made durable with it.
    pub commit_age: Duration,
    /// How many bytes are made durable at once.
    pub commit_bytes: usize,
    /// Space kept back for a full disk.
    pub reserve_bytes: u64,
}

impl SpoolConfig {
    /// S1's defaults, in this folder.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            segment_bytes_max: 64 << 20,
            total_bytes_max: 1024 << 20,
            on_full: OnFull::DropTickerDepthKeepTrade,
            commit_age: Duration::from_millis(5),
            commit_bytes: 1 << 20,
            reserve_bytes: 1 << 20,
        }
    }
}

/// What happens to new records while the spool is full: S1's three policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// They are dropped and counted.
    DropAll,
    /// Tickers and books are dropped and counted; trades and the rest wait.
    DropTickerDepthKeepTrade,
    /// They wait.
    Block,
}

/// Why the spool could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process has the folder.
    #[error(
        "the spool {} is in use by another process; give this one its own [persistence.spool] dir, or stop the other",
        .0.display()
    )]
    InUse(PathBuf),
    /// The folder cannot be used at all.
    #[error("cannot use the spool {}; check that the folder is one, and may be written", path.display())]
    Open {
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing can be made durable just now.
    #[error("cannot write to the spool {}; {}", dir.display(), advice(source))]
    Storage {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SpoolError {
    /// The message with what the system said, for where only text will do.
    pub fn with_source(&self) -> String {
        match self {
            Self::InUse(_) => self.to_string(),
            Self::Open { source, .. } | Self::Storage { source, .. } => format!("{self}: {source}"),
        }
    }
}

/// What a person can do about it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "free some space or move [persistence.spool] dir to a larger disk",
        io::ErrorKind::ReadOnlyFilesystem => "the file system has become read-only, look at the system's log",
        io::ErrorKind::PermissionDenied => "let this user write there",
        _ => "the disk may be failing, look at the system's log",
    }
}

/// How far a sink has come: everything before this place is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub(crate) at: Position,
    /// The number of the last settled record.
    pub(crate) seq: u64,
}

/// What a start noticed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// There was a spool, and it was not closed properly.
    pub(crate) unclean: bool,
    /// Segments whose header is not as written.
    pub(crate) damage: Vec<Damage>,
    /// When each stream was last heard of, as the cursors and the newest segments know it.
    pub(crate) last_seen: Heard,
    /// Since when nobody listens to a stream, by a stop that no gap has told of yet.
    pub(crate) stopped: Heard,
}

/// When streams were last heard of.
pub(crate) type Heard = BTreeMap<(Venue, Channel), UnixMs>;

/// An open spool. Only one task writes to it; see `intake`.
pub struct Spool {
    config: SpoolConfig,
    id: SpoolId,
    next_seq: u64,
    next_segment: u32,
    open: Option<OpenSegment>,
    segments: BTreeMap<u32, Segment>,
    cursors: BTreeMap<String, Cursor>,
    /// Saved with the cursors: once its segments are gone, only they know that there was a stream.
    heard: Heard,
    /// Saved likewise, until a gap has told of it.
    stopped: Heard,
    findings: Findings,
    /// None: the memory-only path, `enabled = false`.
    files: Option<Files>,
}

struct Files {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn Send + Sync>,
    reserved: bool,
}

struct OpenSegment {
    number: u32,
    len: u64,
    file: Option<Box<dyn DiskFile>>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    /// How much of it may be read.
    durable: u64,
    /// It could not be read to its end, so it is kept for a person to look at.
    unreadable: bool,
}

/// What the first bytes of a segment's file say it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Ours.
    Ours(Header),
    /// Ours, with a damaged header; or nothing that could be read.
    Headless,
    /// In S1's format.
    Old,
}

impl Found {
    fn at_the_start_of(bytes: &[u8]) -> Self {
        match Header::decode(bytes) {
            Some(header) => Self::Ours(header),
            None if !Header::looks_like_ours(bytes) && s1::looks_old(bytes) => Self::Old,
            None => Self::Headless,
        }
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Ours(header) => Some(header),
            Self::Headless | Self::Old => None,
        }
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool")
            .field("id", &self.id)
            .field("next_seq", &self.next_seq)
            .finish_non_exhaustive()
    }
}

// Writing.
impl Spool {
    /// Makes a draft durable at once, without a pipeline around it: for tools and benches. Says the first record's number.
    pub fn accept(&mut self, draft: Draft) -> Result<u64, SpoolError> {
        let first = self.next_seq;
        if !draft.marks.is_empty() {
            let frames = Frames { bytes: draft.frames, index: Index::default() };
            self.append(&mut [frames], first, first + draft.marks.len() as u64 - 1)?;
        }
        Ok(first)
    }

    /// Numbers whole frames from `first_seq` on, writes them, one part behind the other, and waits until they are durable;
    /// says where they lie. If it fails, the numbers up to `last_seq` are spent all the same: part of the group may be on
    /// the disk.
    pub(crate) fn append(
        &mut self,
        parts: &mut [Frames],
        first_seq: u64,
        last_seq: u64,
    ) -> Result<Position, SpoolError> {
        debug_assert!(first_seq >= self.next_seq && last_seq >= first_seq, "numbers only grow");
        let appended = self.append_once(parts, first_seq).or_else(|error| {
            // The file that failed is left alone for good; the group goes to another.
            events::segment_abandoned(&self.config.dir, self.open.as_ref().map(|open| open.number), &error);
            self.abandon();
            self.append_once(parts, first_seq)
        });
        self.next_seq = last_seq + 1;
        appended.map_err(|source| {
            self.abandon();
            self.release_reserve(&source);
            SpoolError::Storage { dir: self.config.dir.clone(), source }
        })
    }

    fn append_once(&mut self, parts: &mut [Frames], first_seq: u64) -> io::Result<Position> {
        let bytes: u64 = parts.iter().map(|part| part.bytes.len() as u64).sum();
        let full =
            |open: &OpenSegment| open.len > HEADER as u64 && open.len + bytes > self.config.segment_bytes_max;
        if self.open.as_ref().is_some_and(full) {
            self.open = None;
        }
        let is_new = self.open.is_none();
        if is_new {
            self.create_segment(first_seq)?;
        }
        let open = self.open.as_mut().expect("just made");
        let at = Position { segment: open.number, offset: open.len };
        if open.file.is_none() {
            let mut next_id = RecordId { spool: self.id, seq: first_seq };
            parts.iter_mut().for_each(|part| frame::number_all(&mut part.bytes, &mut next_id));
        }
        if let Some(file) = &mut open.file {
            let (mut next_id, mut offset) = (RecordId { spool: self.id, seq: first_seq }, at.offset);
            let mut stamped = parts.iter_mut().map(|part| {
                frame::stamp(&mut part.bytes, &mut next_id, at.segment, offset);
                offset += part.bytes.len() as u64;
                part.bytes.as_slice()
            });
            file.append_all(&mut stamped, bytes as usize)?;
            file.sync(SyncPoint::SegmentData)?;
            if is_new {
                self.files
                    .as_ref()
                    .expect("a file has a disk")
                    .disk
                    .sync_dir(&self.config.dir, SyncPoint::SegmentEntry)?;
            }
        }
        open.len += bytes;
        self.segments.insert(open.number, Segment { durable: open.len, unreadable: false });
        Ok(at)
    }

    fn create_segment(&mut self, first_seq: u64) -> io::Result<()> {
        let number = self.next_segment;
        let header = Header { segment: number, converted_from: None, spool: self.id, first_seq };
        let mut file = None;
        if let Some(files) = &self.files {
            file = Some(files.disk.create(&self.segment_path(number))?);
        }
        self.next_segment += 1;
        let open = self.open.insert(OpenSegment { number, len: HEADER as u64, file });
        match &mut open.file {
            Some(file) => file.append(&header.encode()),
            None => Ok(()),
        }
    }

    /// Turns away from the open segment after an error. What was durable in it stays; the rest is cut off if the disk
    /// lets us, and is never synced again either way.
    fn abandon(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Some(mut file) = open.file else { return };
        let path = self.segment_path(open.number);
        let cleared = match self.segments.get(&open.number) {
            Some(segment) => file.cut(segment.durable),
            None => self.disk().remove(&path),
        };
        match cleared {
            // No hole in the numbers: a hole means that a segment was lost.
            Ok(()) if !self.segments.contains_key(&open.number) => self.next_segment = open.number,
            Ok(()) => {}
            Err(error) => events::abandoned_segment_left(&path, &error),
        }
    }

    /// Begins a new segment with the next record, so that the open one can go once it is settled.
    pub(crate) fn seal(&mut self) {
        self.open = None;
    }

    /// Keeps back the space without which a full disk could not even be told of.
    fn take_reserve(&mut self) -> io::Result<()> {
        let path = self.config.dir.join("reserve");
        let kept = self.disk().open(&path).and_then(|file| file.len()).unwrap_or(0);
        if kept != self.config.reserve_bytes {
            return self.try_disk();
        }
        self.set_reserved(true);
        Ok(())
    }

    /// Writes the reserve anew: the trial of a disk that has failed.
    pub(crate) fn try_disk(&mut self) -> io::Result<()> {
        let zeros = vec![0; self.config.reserve_bytes as usize];
        let path = self.config.dir.join("reserve");
        disk::replace_file(&*self.disk(), &path, &zeros, SyncPoint::ReserveData, SyncPoint::ReserveEntry)?;
        self.set_reserved(true);
        Ok(())
    }

    fn set_reserved(&mut self, reserved: bool) {
        if let Some(files) = &mut self.files {
            files.reserved = reserved;
        }
    }

    /// Whether the reserve is in place; while it is not, the disk counts as failing.
    pub(crate) fn has_reserve(&self) -> bool {
        self.files.as_ref().is_none_or(|files| files.reserved)
    }

    /// After a failure the reserve counts as gone; on a full disk it really goes, and makes room for the gap.
    fn release_reserve(&mut self, error: &io::Error) {
        self.set_reserved(false);
        if error.kind() == io::ErrorKind::StorageFull {
            for name in ["reserve", "reserve.tmp"] {
                // Already gone, or read-only: there is nothing more to be done about it here.
                let _ = self.disk().remove(&self.config.dir.join(name));
            }
        }
    }
}

// Cursors and removal.
impl Spool {
    /// Names the sinks that will read. A sink not seen before starts with the oldest record; one that is no longer
    /// there holds nothing back any more.
    pub(crate) fn serve(&mut self, sinks: &[String]) -> Vec<Cursor> {
        for gone in self.cursors.keys().filter(|name| !sinks.contains(name)) {
            events::cursor_dropped(gone);
        }
        self.cursors.retain(|name, _| sinks.contains(name));
        for name in sinks {
            self.cursors.entry(name.clone()).or_default();
        }
        sinks.iter().map(|name| self.cursors[name]).collect()
    }

    /// A sink has everything before this place.
    pub(crate) fn settle(&mut self, sink: &str, cursor: Cursor) {
        if let Some(known) = self.cursors.get_mut(sink) {
            debug_assert!(cursor >= *known, "cursors only move forward");
            *known = cursor;
        }
    }

    /// Takes over when streams were last heard of, and since when they are not listened to; saved with the cursors.
    pub(crate) fn hear(&mut self, heard: Heard, stopped: Heard) {
        (self.heard, self.stopped) = (heard, stopped);
    }

    /// Saves the cursors, then removes the segments that every sink is done with. Says which are gone.
    pub(crate) fn tidy(&mut self, clean: bool) -> Result<Vec<u32>, SpoolError> {
        let done = self.settled_segments();
        if self.files.is_some() {
            self.save_and_remove(&done, clean)
                .map_err(|source| SpoolError::Storage { dir: self.config.dir.clone(), source })?;
        }
        for number in &done {
            self.segments.remove(number);
        }
        Ok(done)
    }

    fn save_and_remove(&self, done: &[u32], clean: bool) -> io::Result<()> {
        // In this order: with the segments gone, only the cursors know which numbers are spent.
        self.save_cursors(clean)?;
        if done.is_empty() {
            return Ok(());
        }
        let disk = self.disk();
        for number in done {
            let path = self.segment_path(*number);
            if self.segments[number].unreadable {
                disk.rename(&path, &disk::with_suffix(&path, ".unreadable"))?;
            } else {
                disk.remove(&path)?;
            }
        }
        disk.sync_dir(&self.config.dir, SyncPoint::SegmentRemoval)
    }

    /// Segments, other than the open one, that lie before every cursor.
    fn settled_segments(&self) -> Vec<u32> {
        let open = self.open.as_ref().map(|open| open.number);
        let settled = |number: u32, segment: &Segment| {
            self.cursors
                .values()
                .all(|c| c.at.segment > number || (c.at.segment == number && c.at.offset >= segment.durable))
        };
        let done = self.segments.iter().filter(|(n, s)| Some(**n) != open && settled(**n, s));
        done.map(|(number, _)| *number).collect()
    }

    /// Everything before this place is settled with every sink.
    pub(crate) fn settled_before(&self) -> Position {
        self.cursors.values().map(|cursor| cursor.at).min().unwrap_or_default()
    }

    fn save_cursors(&self, clean: bool) -> io::Result<()> {
        let sinks = self.cursors.iter().map(|(name, c)| {
            (name.clone(), SavedCursor { segment: c.at.segment, offset: c.at.offset, seq: c.seq })
        });
        let saved = SavedCursors {
            version: 1,
            spool: self.id.to_string(),
            next_seq: self.next_seq,
            clean,
            sinks: sinks.collect(),
            heard: by_name(&self.heard),
            stopped: by_name(&self.stopped),
        };
        let path = self.config.dir.join("cursors");
        disk::replace_file(
            &*self.disk(),
            &path,
            &saved.encode(),
            SyncPoint::CursorsData,
            SyncPoint::CursorsEntry,
        )
    }

    /// Keeps the segment's file when it is settled: a person should look at it.
    pub(crate) fn mark_unreadable(&mut self, number: u32) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.unreadable = true;
        }
    }
}

// What others may know.
impl Spool {
    /// The spool's id, the first half of every record's id.
    pub fn id(&self) -> SpoolId {
        self.id
    }

    /// What the segments take on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.durable).sum()
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn config(&self) -> &SpoolConfig {
        &self.config
    }

    /// What the start noticed, left where it is.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }

    pub(crate) fn take_findings(&mut self) -> Findings {
        std::mem::take(&mut self.findings)
    }

    /// How much of each segment may be read.
    pub(crate) fn readable(&self) -> BTreeMap<u32, u64> {
        self.segments.iter().map(|(number, segment)| (*number, segment.durable)).collect()
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.files.is_some()
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.files.as_ref().expect("only asked of a spool on disk").disk)
    }

    pub(crate) fn maybe_disk(&self) -> Option<Arc<dyn Disk>> {
        self.files.as_ref().map(|files| Arc::clone(&files.disk))
    }

    pub(crate) fn segment_path(&self, number: u32) -> PathBuf {
        segment_path(&self.config.dir, number)
    }
}

// For `s1`, which adds whole segments made from old ones.
impl Spool {
    pub(crate) fn adopt(&mut self, number: u32, len: u64, next_seq: u64) {
        self.segments.insert(number, Segment { durable: len, unreadable: false });
        self.next_segment = self.next_segment.max(number + 1);
        self.next_seq = next_seq;
    }

    pub(crate) fn disown(&mut self, number: u32) {
        self.segments.remove(&number);
    }

    pub(crate) fn next_segment(&self) -> u32 {
        self.next_segment
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.at.partial_cmp(&other.at)
    }
}

/// Tries a read three times: a disk may have a bad moment.
fn persistently<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    read().or_else(|_| read()).or_else(|_| read())
}

pub(crate) fn segment_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("spool_{number:06}.dat"))
}

fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("spool_")?.strip_suffix(".dat")?;
    let number = digits.parse().ok()?;
    (format!("{number:06}") == digits).then_some(number)
}

fn damaged_header(segment: u32) -> Damage {
    let at = Position { segment, offset: 0 };
    Damage::new(at, HEADER as u64, DamageKind::Header, 0)
}

/// The spool's id, from the text of the first record.
fn first_id(frames: &[u8]) -> Option<SpoolId> {
    let len = frame::frame_len(frames)?;
    let line = frames.get(frame::HEAD..len)?.strip_suffix(b"\n")?;
    let parsed = catchment_model::EnvelopeLine::parse(line).ok()?;
    parsed.id().map(|id| id.spool)
}

/// The file `cursors`: one line of JSON, one line with its checksum.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedCursors {
    version: u32,
    spool: String,
    next_seq: u64,
    clean: bool,
    sinks: BTreeMap<String, SavedCursor>,
    /// By venue/channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    heard: BTreeMap<String, UnixMs>,
    /// By venue/channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    stopped: BTreeMap<String, UnixMs>,
}

fn by_name(streams: &Heard) -> BTreeMap<String, UnixMs> {
    streams.iter().map(|((venue, channel), at)| (format!("{venue}/{channel}"), *at)).collect()
}

fn by_stream(names: &BTreeMap<String, UnixMs>) -> Heard {
    let stream = |name: &str| {
        let (venue, channel) = name.split_once('/')?;
        Some((Venue::new(venue).ok()?, Channel::new(channel).ok()?))
    };
    names.iter().filter_map(|(name, at)| Some((stream(name)?, *at))).collect()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedCursor {
    segment: u32,
    offset: u64,
    seq: u64,
}

impl SavedCursors {
    fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("plain fields always serialise");
        format!("{json}\n{:08x}\n", crc_fast::crc32_iscsi(json.as_bytes())).into_bytes()
    }

    /// Nothing if any bit is not as written; every sink then starts with the oldest record and keeps one copy.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (json, crc) = text.strip_suffix('\n')?.split_once('\n')?;
        let sound = crc == format!("{:08x}", crc_fast::crc32_iscsi(json.as_bytes()));
        let saved: Self = serde_json::from_str(json).ok().filter(|_| sound)?;
        (saved.version == 1).then_some(saved)
    }

    fn cursors(&self) -> BTreeMap<String, Cursor> {
        let cursor =
            |c: &SavedCursor| Cursor { at: Position { segment: c.segment, offset: c.offset }, seq: c.seq };
        self.sinks.iter().map(|(name, saved)| (name.clone(), cursor(saved))).collect()
    }
}

/// Where a damaged stretch lay, in words.
pub(crate) fn describe(damage: &Damage) -> String {
    format!("{} in spool_{:06}.dat at byte {}", damage.kind.as_str(), damage.at.segment, damage.at.offset)
}

mod recover;
#[cfg(test)]
mod tests;
