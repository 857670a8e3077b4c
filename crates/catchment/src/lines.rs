//! Lines from a reader, as they become available: what one read brings is handed on before the next one waits.

use std::io::{self, Read};

/// A line longer than this cannot be an envelope that a spool would take.
const LINE_MAX: usize = 17 << 20;
const READ: usize = 1 << 20;

/// A line, or what there was instead of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its newline.
    Text(&'a [u8]),
    /// A line too long to be kept; its bytes were passed over.
    TooLong {
        /// How long it was.
        bytes: usize,
    },
}

/// Splits what a reader brings into numbered lines.
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes of a line that is being passed over.
    skipping: Option<usize>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ], filled: 0, skipping: None, number: 0 }
    }

    /// Reads once and shows every line that is now whole, with its number counted from 1. `false` at the end, where a
    /// last line without newline is shown, too.
    pub(crate) fn read(&mut self, mut each: impl FnMut(u64, Line<'_>)) -> io::Result<bool> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() + READ, 0);
        }
        let read = loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let new_from = self.filled;
        self.filled += read;
        let mut start = 0;
        let mut search = new_from;
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[search..self.filled]) {
            let end = search + at;
            self.show(start, end, &mut each);
            start = end + 1;
            search = start;
        }
        if read == 0 && (start < self.filled || self.skipping.is_some()) {
            self.show(start, self.filled, &mut each);
            start = self.filled;
        }
        self.keep_rest(start);
        Ok(read > 0)
    }

    fn show(&mut self, start: usize, end: usize, each: &mut impl FnMut(u64, Line<'_>)) {
        self.number += 1;
        let passed_over = self.skipping.take();
        let line = &self.buffer[start..end];
        match passed_over {
            Some(before) => each(self.number, Line::TooLong { bytes: before + line.len() }),
            None if line.len() > LINE_MAX => each(self.number, Line::TooLong { bytes: line.len() }),
            None => each(self.number, Line::Text(line.strip_suffix(b"\r").unwrap_or(line))),
        }
    }

    /// Moves the unfinished line to the front; one that is too long already is not kept.
    fn keep_rest(&mut self, start: usize) {
        self.buffer.copy_within(start..self.filled, 0);
        self.filled -= start;
        if self.filled > LINE_MAX {
            self.skipping = Some(self.skipping.unwrap_or(0) + self.filled);
            self.filled = 0;
        }
        if self.filled < READ && self.buffer.len() > 2 * READ {
            self.buffer.truncate(READ);
            self.buffer.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(self.0.len()).min(buf.len());
            buf[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn all(input: &[u8], step: usize) -> Vec<(u64, String)> {
        let mut lines = Lines::new(Dribble(input, step));
        let mut seen = Vec::new();
        let mut each = |number, line: Line<'_>| {
            seen.push((
                number,
                match line {
                    Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    Line::TooLong { bytes } => format!("<{bytes}>"),
                },
            ));
        };
        while lines.read(&mut each).unwrap() {}
        seen
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"one\n\nthree\r\nlast";
        let expected = [(1, "one"), (2, ""), (3, "three"), (4, "last")].map(|(n, t)| (n, t.to_owned()));
        for step in 1..=text.len() {
            assert_eq!(all(text, step), expected, "{step} bytes at a time");
        }
        assert_eq!(all(b"", 1), []);
        assert_eq!(all(b"x\n", 1), [(1, "x".to_owned())]);
    }

    #[test]
    fn a_line_too_long_is_passed_over_and_the_next_one_read() {
        let mut text = vec![b'x'; 3 * LINE_MAX];
        text.extend_from_slice(b"\nnext\n");
        let expected = [(1, format!("<{}>", 3 * LINE_MAX)), (2, "next".to_owned())];
        assert_eq!(all(&text, READ), expected);
        let mut lines = Lines::new(&text[..]);
        while lines.read(|_, _| {}).unwrap() {
            assert!(lines.buffer.len() <= LINE_MAX + 2 * READ, "the buffer follows the line without end");
        }
    }
}
