//! Reads segments: whole sound frames one after the other, and over damage to the next one.

use std::io;

use catchment_model::UnixNs;

use crate::disk::DiskFile;
use crate::frame::{self, HEAD};
use crate::frames::Frames;

/// How much is read from disk at a time.
const BLOCK: u64 = 1 << 20;
/// How much is looked through at a time for the next sound frame.
const WINDOW: usize = 256 << 10;

/// A place between two frames of the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

/// Bytes of a segment that are not what was written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) at: Position,
    pub(crate) len: u64,
    pub(crate) kind: DamageKind,
    /// The numbers around it: the last record before and the first after, as far as known.
    pub(crate) after_seq: u64,
    pub(crate) before_seq: Option<u64>,
    /// When those were received, likewise.
    pub(crate) after_time: Option<UnixNs>,
    pub(crate) before_time: Option<UnixNs>,
}

impl Damage {
    pub(crate) fn new(at: Position, len: u64, kind: DamageKind, after_seq: u64) -> Self {
        Self { at, len, kind, after_seq, before_seq: None, after_time: None, before_time: None }
    }
}

/// What happened to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DamageKind {
    /// Nothing sound follows: the segment's last write was cut short.
    TornTail,
    /// Sound frames follow: something changed what had been written.
    Flipped,
    /// The segment's header; the frames say the same.
    Header,
    /// The segment is gone.
    Missing,
    /// The disk would not give the bytes back.
    Unreadable,
}

impl DamageKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TornTail => "torn tail",
            Self::Flipped => "damaged record",
            Self::Header => "damaged header",
            Self::Missing => "missing segment",
            Self::Unreadable => "unreadable segment",
        }
    }
}

/// What one read gave: some sound frames, or the damage in front of the next ones.
#[derive(Debug)]
pub(crate) enum Piece {
    Frames(Frames),
    Damage(Damage),
    End,
}

/// Reads what lies at `from`, up to `end` (the segment's length, or as much of it as is durable).
pub(crate) fn read_piece(file: &dyn DiskFile, from: Position, end: u64, after_seq: u64) -> io::Result<Piece> {
    if from.offset >= end {
        return Ok(Piece::End);
    }
    let mut want = BLOCK.min(end - from.offset);
    loop {
        let mut bytes = vec![0; want as usize];
        let read = file.read_at(&mut bytes, from.offset)?;
        bytes.truncate(read);
        let walked = walk(&bytes, from, |_| {});
        if walked.end > 0 {
            bytes.truncate(walked.end);
            return Ok(Piece::Frames(Frames::of(bytes)));
        }
        match walked.needs {
            Some(need) if want < need as u64 && from.offset + need as u64 <= end => want = need as u64,
            _ => return find_sound(file, from, end, after_seq).map(Piece::Damage),
        }
    }
}

/// How far a walk over frames got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Bytes of whole sound frames.
    pub(crate) end: usize,
    /// If the next frame is merely not all there: how long it says it is.
    pub(crate) needs: Option<usize>,
}

/// Walks over whole sound frames that lie at `at`, showing each.
pub(crate) fn walk(bytes: &[u8], at: Position, mut each: impl FnMut(&[u8])) -> Walk {
    let mut end = 0;
    loop {
        let rest = &bytes[end..];
        let Some(len) = frame::frame_len(rest) else {
            return Walk { end, needs: (rest.len() < 4).then_some(HEAD) };
        };
        let Some(frame) = rest.get(..len) else {
            return Walk { end, needs: Some(len) };
        };
        if !frame::is_sound(frame, at.segment, at.offset + end as u64) {
            return Walk { end, needs: None };
        }
        each(frame);
        end += len;
    }
}

/// Tries every offset after a bad frame until one holds a sound one. A length and a number must be plausible before the
/// checksum is even computed, so this runs at the speed of reading.
fn find_sound(file: &dyn DiskFile, bad: Position, end: u64, after_seq: u64) -> io::Result<Damage> {
    let plausible = |head: &[u8]| {
        let seq = frame::seq(head);
        frame::frame_len(head).filter(|_| seq > after_seq && seq - after_seq < 1 << 32)
    };
    let mut window = vec![0; WINDOW];
    let mut start = bad.offset + 1;
    while start + HEAD as u64 <= end {
        let len = window.len().min((end - start) as usize);
        let read = file.read_at(&mut window[..len], start)?;
        if read < HEAD {
            break;
        }
        for at in 0..=read - HEAD {
            let offset = start + at as u64;
            let Some(len) = plausible(&window[at..at + HEAD]).filter(|len| offset + *len as u64 <= end)
            else {
                continue;
            };
            let mut frame = vec![0; len];
            if file.read_at(&mut frame, offset)? == len && frame::is_sound(&frame, bad.segment, offset) {
                let damage = Damage::new(bad, offset - bad.offset, DamageKind::Flipped, after_seq);
                let before_time = UnixNs::new(frame::Parts::decode(&frame).received_at_ns).ok();
                return Ok(Damage { before_seq: Some(frame::seq(&frame)), before_time, ..damage });
            }
        }
        start += (read - HEAD + 1) as u64;
    }
    Ok(Damage::new(bad, end - bad.offset, DamageKind::TornTail, after_seq))
}

/// Counts what a segment holds, for benches and tests: the whole reading path without a spool around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentScan {
    /// Sound records.
    pub records: u64,
    /// Bytes in sound records.
    pub bytes: u64,
}

impl SegmentScan {
    /// Walks the frames of a segment that is in memory, header included, up to the first that is not sound.
    pub fn of(segment: u32, bytes: &[u8]) -> Self {
        let mut scan = Self::default();
        let at = Position { segment, offset: frame::HEADER as u64 };
        let frames = bytes.get(frame::HEADER..).unwrap_or_default();
        scan.bytes = walk(frames, at, |_| scan.records += 1).end as u64;
        scan
    }
}
