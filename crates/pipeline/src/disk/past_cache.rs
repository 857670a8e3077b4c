//! Large appends that go past the page cache.
//!
//! What is spooled is synced at once and read again only when a sink lags, and a file of the archive when it is sealed.
//! Through the cache, a large append costs the kernel several times what the copying does: pages are found, filled,
//! marked, written and given back. So its whole blocks are handed to the disk as they are, from where they lie if blocks
//! may begin there; the few bytes before and behind them take the usual way. Nothing becomes durable by that: the sync
//! that follows is the same.
//!
//! A file system that does not do this, or wants its blocks otherwise, gets everything the usual way.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::hasten;

/// What tells the system to, where there is such a thing.
const PAST: Option<OFlags> = {
    #[cfg(target_os = "linux")]
    let past = Some(OFlags::DIRECT);
    #[cfg(not(target_os = "linux"))]
    let past = None;
    past
};
/// Where blocks begin, in the file and in memory: what every disk known to us takes.
const BLOCK: usize = 4096;
/// Less than this is not worth the turn: the disk is waited for once more, and works on three stretches instead of one.
const BYTES_MIN: usize = 256 << 10;
/// So much is handed over at once: what a disk takes in one go that is told of every page on its own, as virtual ones are.
const PIECE: usize = 254 * BLOCK;

thread_local! {
    /// Where blocks are laid out in memory that do not lie so already. File work has its own threads, and few of them.
    static DESK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How large appends go to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the cache, as far as is known.
    Past,
    /// The usual one.
    Usual,
}

impl Way {
    /// Appends parts, `bytes` together, one behind the other to a file that has `len` so far.
    pub(super) fn append(
        &mut self,
        file: &mut File,
        len: u64,
        parts: &mut dyn Iterator<Item = &[u8]>,
        bytes: usize,
    ) -> io::Result<()> {
        let mut left = Left { parts, part: &[], bytes };
        let to_block = (BLOCK - (len % BLOCK as u64) as usize) % BLOCK;
        if *self == Self::Past && left.bytes >= to_block + BYTES_MIN {
            DESK.with_borrow_mut(|desk| self.append_blocks(file, to_block, &mut left, desk))?;
        }
        let mut begun = len + (bytes - left.bytes) as u64;
        while let Some(part) = left.take(usize::MAX) {
            file.write_all(part)?;
            let written = len + (bytes - left.bytes) as u64;
            if written - begun >= PIECE as u64 && left.bytes > 0 {
                // The disk begins while the other parts are made ready.
                hasten(file, begun, written - begun);
                begun = written;
            }
        }
        Ok(())
    }

    /// Appends what comes before the next block, then whole blocks.
    fn append_blocks(
        &mut self,
        file: &mut File,
        mut to_block: usize,
        left: &mut Left<'_, '_>,
        desk: &mut Vec<u8>,
    ) -> io::Result<()> {
        while to_block > 0 {
            let part = left.take(to_block).expect("there is more than that");
            file.write_all(part)?;
            to_block -= part.len();
        }
        let usual = fcntl_getfl(&*file)?;
        let is_set = |past| fcntl_setfl(&*file, usual | past).is_ok();
        if !PAST.is_some_and(is_set) {
            *self = Self::Usual;
            return Ok(());
        }
        while left.bytes >= BLOCK && *self == Self::Past {
            // No place may be known to fit; then the rest goes the usual way.
            let Some(piece) = left.blocks(desk) else { break };
            let taken = match write(file, piece) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(0),
                taken => taken,
            };
            let whole = taken.as_ref().is_ok_and(|taken| *taken == piece.len());
            if !whole {
                // Refused, or taken in part: the rest goes the usual way, which says what is wrong if anything is.
                *self = Self::Usual;
                fcntl_setfl(&*file, usual)?;
                file.write_all(&piece[taken?..])?;
            }
        }
        Ok(fcntl_setfl(&*file, usual)?)
    }
}

/// Once, unless it is interrupted.
fn write(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// What is yet to be appended.
struct Left<'a, 'b> {
    /// Asked for a part only when it is its turn: it may be made ready just then, and is still at hand.
    parts: &'b mut dyn Iterator<Item = &'a [u8]>,
    /// What is left of the part whose turn it is.
    part: &'a [u8],
    bytes: usize,
}

impl<'a> Left<'a, '_> {
    /// What is left of the part whose turn it is: never nothing.
    fn turn(&mut self) -> Option<&'a [u8]> {
        while self.part.is_empty() {
            self.part = self.parts.next()?;
        }
        Some(self.part)
    }

    /// What comes next, as far as it lies together: so many bytes at most.
    fn take(&mut self, bytes_max: usize) -> Option<&'a [u8]> {
        let part = self.turn()?;
        let (taken, rest) = part.split_at(part.len().min(bytes_max));
        self.part = rest;
        self.bytes -= taken.len();
        Some(taken)
    }

    /// The next whole blocks, where blocks may begin in memory: where they lie, if they lie so, or else on the desk.
    fn blocks<'b>(&mut self, desk: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let part = self.turn()?;
        if part.len() >= BYTES_MIN.min(self.bytes) && part.as_ptr().align_offset(BLOCK) == 0 {
            return self.take(part.len() / BLOCK * BLOCK);
        }
        desk.resize(PIECE + BLOCK, 0);
        let start = desk.as_ptr().align_offset(BLOCK);
        let desk = desk.get_mut(start..start.saturating_add(PIECE))?;
        let piece = &mut desk[..PIECE.min(self.bytes / BLOCK * BLOCK)];
        let mut filled = 0;
        while filled < piece.len() {
            let taken = self.take(piece.len() - filled).expect("the parts have as many bytes as was said");
            piece[filled..filled + taken.len()].copy_from_slice(taken);
            filled += taken.len();
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Disk, DiskFile, RealDisk};
    use super::*;

    #[test]
    fn appends_of_every_size_lie_one_behind_the_other() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let disk = RealDisk::private();
        let mut file = disk.create(&dir.path().join("file")).unwrap();
        let mut want = Vec::new();
        let sizes: [&[usize]; 8] = [
            &[1],
            &[280_000, 0, 4_096],
            &[3],
            &[262_144, 1, 524_288 - 17],
            &[0, 2_500_001],
            &[],
            &[264_000, 5],
            &[120_000, 120_000, 120_000],
        ];
        for sizes in sizes {
            let bytes = |len: &usize| (0..*len).map(|at| (at * 31 + len * 7) as u8 | 1).collect();
            let parts: Vec<Vec<u8>> = sizes.iter().map(bytes).collect();
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            file.append_all(&mut parts.iter().copied(), parts.concat().len()).unwrap();
            want.extend(parts.concat());
            assert_eq!(file.len().unwrap(), want.len() as u64);
        }
        // Cut back in the midst of a block, as after a failure, and appended to.
        file.cut(300_001).unwrap();
        want.truncate(300_001);
        file.append(&want).unwrap();
        want.extend_from_within(..);
        check(&*file, &want);
    }

    #[test]
    fn what_lies_in_memory_as_in_the_file_is_taken_from_there() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let mut file = RealDisk::private().create(&dir.path().join("file")).unwrap();
        let memory: Vec<u8> = (0..3 * BYTES_MIN).map(|at| (at * 31 % 251) as u8).collect();
        let blocks = memory.as_ptr().align_offset(BLOCK) % BLOCK;
        let mut want = Vec::new();
        // Whole blocks, then some bytes of one, then from there on: as far into a block as the file is.
        for (into_block, len) in
            [(0, 2 * BYTES_MIN), (0, 100), (100, BYTES_MIN + 5_000), (1_004, 2 * BYTES_MIN)]
        {
            let bytes = &memory[blocks + into_block..][..len];
            assert_eq!(bytes.as_ptr() as usize % BLOCK, want.len() % BLOCK);
            file.append(bytes).unwrap();
            want.extend_from_slice(bytes);
        }
        check(&*file, &want);
        assert_eq!(DESK.with_borrow(Vec::len), 0, "nothing was laid out again");
    }

    fn check(file: &dyn DiskFile, want: &[u8]) {
        let mut found = vec![0; want.len() + 1];
        let len = file.read_at(&mut found, 0).unwrap();
        assert!(found[..len] == want[..], "{len} bytes of {}", want.len());
    }
}
