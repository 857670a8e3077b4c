//! Lines of a file of any size, in memory that does not grow with it.
//!
//! Blocks of 1 MiB are read into one buffer and lines are handed out in place; only the part of a line that crosses a
//! block is moved. A line longer than [`LINE_MAX`] is passed over without being held.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// No record is this long; what is was not written by us.
pub(crate) const LINE_MAX: usize = 32 << 20;
const BLOCK: usize = 1 << 20;

/// Reads lines one by one.
pub(crate) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where in the file the buffer starts.
    base: u64,
    start: usize,
    /// No newline lies between `start` and here.
    searched: usize,
    end: usize,
    /// In the midst of a line that is too long.
    skipping: bool,
}

/// What lies between two newlines, the newline left out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line with its newline.
    Whole(&'a [u8]),
    /// The last bytes of a file that does not end in a newline.
    Torn,
    /// More than [`LINE_MAX`] bytes.
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), base: 0, start: 0, searched: 0, end: 0, skipping: false }
    }

    /// The next line and the offset of its first byte behind the previous newline.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) {
                let (start, end) = (self.start, self.searched + at);
                self.start = end + 1;
                self.searched = self.start;
                let offset = self.base + start as u64;
                if std::mem::take(&mut self.skipping) {
                    return Ok(Some((offset, Line::TooLong)));
                }
                return Ok(Some((offset, Line::Whole(&self.buffer[start..end]))));
            }
            self.searched = self.end;
            if self.end - self.start > LINE_MAX {
                self.skipping = true;
                self.start = self.end;
            }
            if self.fill()? == 0 {
                let offset = self.base + self.start as u64;
                let rest = std::mem::replace(&mut self.start, self.end) < self.end;
                let skipping = std::mem::take(&mut self.skipping);
                return Ok((rest || skipping).then_some((offset, Line::Torn)));
            }
        }
    }

    /// Gives the source back, to ask it what it has seen.
    pub(crate) fn into_source(self) -> R {
        self.source
    }

    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + BLOCK {
            self.buffer.resize(self.end + BLOCK, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..self.end + BLOCK]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.end += read;
                    return Ok(read);
                }
            }
        }
    }
}

/// Hashes and counts what is read through it.
pub(crate) struct Hashing<R> {
    source: R,
    sha256: Sha256,
    bytes: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, sha256: Sha256::new(), bytes: 0 }
    }

    /// How many bytes went through, and their hash in hex.
    pub(crate) fn finish(self) -> (u64, String) {
        (self.bytes, hex(self.sha256))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        self.sha256.update(&buf[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The finished hash as 64 lower-case hex digits.
pub(crate) fn hex(sha256: Sha256) -> String {
    use std::fmt::Write;
    sha256.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &[(u64, Line<'_>)]) {
        let mut lines = Lines::new(bytes);
        for (offset, line) in expected {
            assert_eq!(lines.next_line().unwrap(), Some((*offset, Line::clone_of(line))));
        }
        assert_eq!(lines.next_line().unwrap(), None);
        assert_eq!(lines.next_line().unwrap(), None, "the end stays the end");
    }

    impl Line<'_> {
        fn clone_of<'a>(line: &Line<'a>) -> Line<'a> {
            match line {
                Line::Whole(bytes) => Line::Whole(bytes),
                Line::Torn => Line::Torn,
                Line::TooLong => Line::TooLong,
            }
        }
    }

    #[test]
    fn lines_come_with_their_offsets() {
        check(b"", &[]);
        check(b"\n", &[(0, Line::Whole(b""))]);
        check(b"a\nbc\n", &[(0, Line::Whole(b"a")), (2, Line::Whole(b"bc"))]);
        check(b"a\nbc", &[(0, Line::Whole(b"a")), (2, Line::Torn)]);
    }

    #[test]
    fn lines_longer_than_a_block_are_whole() {
        let long = vec![b'x'; 3 * BLOCK + 7];
        let mut bytes = b"first\n".to_vec();
        bytes.extend_from_slice(&long);
        bytes.extend_from_slice(b"\nlast\n");
        let after = 6 + long.len() as u64 + 1;
        check(&bytes, &[(0, Line::Whole(b"first")), (6, Line::Whole(&long)), (after, Line::Whole(b"last"))]);
    }

    #[test]
    fn a_line_too_long_is_passed_over_and_not_held() {
        let endless = io::repeat(b'x').take(3 * LINE_MAX as u64).chain(&b"\nnext\n"[..]);
        let mut lines = Lines::new(endless);
        assert!(matches!(lines.next_line().unwrap(), Some((_, Line::TooLong))));
        assert_eq!(lines.next_line().unwrap(), Some((3 * LINE_MAX as u64 + 1, Line::Whole(b"next"))));
        assert!(lines.buffer.len() <= LINE_MAX + 3 * BLOCK);
    }
}
