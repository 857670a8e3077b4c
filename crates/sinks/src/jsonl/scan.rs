//! Reads a file of the archive from its first byte: what is sound in it, what a manifest says of it.
//!
//! A power cut may leave zeros where an unsynced write should be, and later bytes of the same write behind them. None of
//! that was acknowledged, so the file is sound only up to such a *hole*. A flipped bit is another matter: what lies
//! behind it was acknowledged and is kept. The two are told apart by the zeros: no line holds a NUL, one flipped bit makes at
//! most one of them, and it cannot make one out of a newline.

use std::io::{self, Read};

use catchment_model::{RecordId, UnixNs};
use catchment_pipeline::DiskFile;

use crate::lines::{Hashing, Line, Lines};

/// What a file of lines holds.
#[derive(Debug, Default, Clone)]
pub(super) struct Scan {
    /// Lines, damaged ones included.
    pub(super) rows: u64,
    /// Lines whose id or time cannot be read.
    pub(super) damaged: u64,
    /// How far the file is sound: up to a hole, or to the end of its last whole line.
    pub(super) sound_len: u64,
    /// Whether that is all of it.
    pub(super) is_whole: bool,
    /// The id of its first line.
    pub(super) first_id: Option<RecordId>,
    /// The id of its last line.
    pub(super) last_id: Option<RecordId>,
    /// The highest number that a later line with a higher one stands behind; a flipped bit does not reach it.
    pub(super) confirmed: Option<u64>,
    /// The earliest receive time.
    pub(super) first_received_at: Option<UnixNs>,
    /// The latest.
    pub(super) last_received_at: Option<UnixNs>,
    /// Bytes read in all, and their hash. Of the compressed form, if that is what was read.
    pub(super) stored: (u64, String),
}

impl Scan {
    /// Reads a file of lines, as it lies on disk.
    pub(super) fn plain(file: &dyn DiskFile) -> io::Result<Scan> {
        let mut lines = Lines::new(Hashing::new(FileReader { file, at: 0 }));
        let mut scan = Scan::of(&mut lines)?;
        scan.stored = lines.into_source().finish();
        Ok(scan)
    }

    /// Reads a compressed file of lines.
    pub(super) fn packed(file: &dyn DiskFile) -> io::Result<Scan> {
        let mut lines = Lines::new(zstd::Decoder::new(Hashing::new(FileReader { file, at: 0 }))?);
        let mut scan = Scan::of(&mut lines)?;
        scan.stored = lines.into_source().finish().into_inner().finish();
        Ok(scan)
    }

    fn of(lines: &mut Lines<impl Read>) -> io::Result<Scan> {
        let mut scan = Scan { is_whole: true, ..Scan::default() };
        while let Some((start, line)) = lines.next_line()? {
            match line {
                Line::Torn => scan.is_whole = false,
                Line::Whole(bytes) if is_hole(bytes) => scan.is_whole = false,
                Line::TooLong => scan.add(None),
                Line::Whole(bytes) => {
                    scan.add(tail(bytes));
                    scan.sound_len = start + bytes.len() as u64 + 1;
                }
            }
            if !scan.is_whole {
                break;
            }
        }
        Ok(scan)
    }

    fn add(&mut self, line: Option<(RecordId, UnixNs)>) {
        self.rows += 1;
        let Some((id, received_at)) = line else {
            self.damaged += 1;
            return;
        };
        if let Some(before) = self.last_id.filter(|before| before.seq < id.seq) {
            self.confirmed = self.confirmed.max(Some(before.seq));
        }
        self.first_id.get_or_insert(id);
        self.last_id = Some(id);
        self.first_received_at =
            Some(self.first_received_at.map_or(received_at, |first| first.min(received_at)));
        self.last_received_at = self.last_received_at.max(Some(received_at));
    }
}

/// The id and receive time of a line, found from its end: behind the payload stand only `id`, `received_at_ns`
/// and `source`, and whatever a source holds is escaped.
fn tail(line: &[u8]) -> Option<(RecordId, UnixNs)> {
    const KEY: &[u8] = br#","id":""#;
    const NEXT: &[u8] = br#"","received_at_ns":"#;
    /// More than the keys, an id, a time and the longest source take.
    const TAIL_MAX: usize = 512;
    let tail = &line[line.len().saturating_sub(TAIL_MAX)..];
    let at = memchr::memmem::rfind(tail, KEY)? + KEY.len();
    let (id, rest) = tail[at..].split_at_checked(RecordId::LEN)?;
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    let rest = rest.strip_prefix(NEXT)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ns = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    Some((id, UnixNs::new(ns).ok()?))
}

/// Whether zeros stand where bytes were never written: two of them, or one in the place of a newline.
fn is_hole(line: &[u8]) -> bool {
    let mut zeros = memchr::memchr_iter(0, line);
    let Some(first) = zeros.next() else { return false };
    zeros.next().is_some() || line[first + 1..].starts_with(br#"{"message_id":"#)
}

/// A file as a stream of bytes.
pub(super) struct FileReader<'a> {
    pub(super) file: &'a dyn DiskFile,
    pub(super) at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, source: &str) -> Vec<u8> {
        format!(
            r#"{{"message_id":null,"payload":{{"x":","id":""}},"id":"00000000000a-{seq:016x}","received_at_ns":{},"source":"{source}"}}"#,
            1_000_000 * seq
        )
        .into_bytes()
    }

    fn scan(bytes: &[u8]) -> Scan {
        Scan::of(&mut Lines::new(bytes)).unwrap()
    }

    fn file(lines: &[Vec<u8>]) -> Vec<u8> {
        lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
    }

    #[test]
    fn the_end_of_a_line_is_found_whatever_the_source_says() {
        let worst = r#"\","#.repeat(42) + r#"\"id\":\"x"#;
        for source in ["ws:1", "", &worst] {
            let (id, at) = tail(&line(7, source)).unwrap();
            assert_eq!((id.seq, at.get()), (7, 7_000_000));
        }
        assert!(tail(b"").is_none());
        assert!(tail(br#","id":""#).is_none());
    }

    #[test]
    fn a_flipped_number_is_not_taken_for_the_highest() {
        let bogus = [line(1, ""), line(2, ""), line(0x8000_0003, "")];
        assert_eq!(scan(&file(&bogus)).confirmed, Some(2));
        let bogus = [line(1, ""), line(0x8000_0002, ""), line(3, "")];
        assert_eq!(scan(&file(&bogus)).confirmed, Some(1));
    }

    #[test]
    fn a_hole_ends_what_is_sound_and_a_flipped_bit_does_not() {
        let good = file(&[line(1, "a b"), line(2, "a b"), line(3, "a b")]);
        let second = good.iter().position(|b| *b == b'\n').unwrap() + 1;
        assert!(scan(&good).is_whole);
        for hole in [second..second + 9, second + 5..second + 60, second - 1..second] {
            let mut bytes = good.clone();
            bytes[hole.clone()].fill(0);
            let found = scan(&bytes);
            assert!(!found.is_whole, "{hole:?}");
            assert!(found.sound_len <= hole.start as u64, "{hole:?}");
        }
        for bit in 0..(good.len() - 1) * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(scan(&bytes).is_whole, "bit {bit}");
        }
    }
}
