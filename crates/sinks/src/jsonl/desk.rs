//! Where lines are laid out on their way to a file.

use std::mem;

/// A file is written in blocks of this size wherever that can be chosen.
pub(super) const BLOCK: usize = 4096;
/// Memory that is kept from batch to batch, for all files together.
const SPARE_MAX: usize = 4 << 20;

/// Lines in memory, each byte as far into a block as it will be in the file: so a disk that takes whole blocks can take
/// them from here, and nobody has to copy them again.
#[derive(Debug, Default)]
pub(super) struct Desk {
    memory: Vec<u8>,
    /// Where the lines begin in it.
    start: usize,
}

impl Desk {
    /// Whether there is none: no memory to lay anything on.
    pub(super) fn is_missing(&self) -> bool {
        self.memory.capacity() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    pub(super) fn lines(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    pub(super) fn push(&mut self, line: &[u8]) {
        self.memory.extend_from_slice(line);
    }

    /// Clears it for what will lie at this offset of the file, but for so many bytes at its end: they are the first of it.
    pub(super) fn turn_to(&mut self, offset: u64, kept: usize) {
        let kept = self.memory.len() - kept..self.memory.len();
        let into_block = (offset % BLOCK as u64) as usize;
        // Where more room is needed later, the lines move and are copied once more; that is all.
        self.memory.reserve((2 * BLOCK).saturating_sub(self.memory.len()));
        self.start = (self.memory.as_ptr().align_offset(BLOCK) % BLOCK + into_block) % BLOCK;
        let end = self.start + kept.len();
        self.memory.resize(self.memory.len().max(end), 0);
        self.memory.copy_within(kept, self.start);
        self.memory.truncate(end);
    }
}

/// Memory of desks that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Desks {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

impl Desks {
    /// An empty desk for what will lie at this offset of a file.
    pub(super) fn take(&mut self, offset: u64) -> Desk {
        let memory = self.spare.pop().unwrap_or_default();
        self.bytes -= memory.capacity();
        let mut desk = Desk { memory, start: 0 };
        desk.turn_to(offset, 0);
        desk
    }

    /// Keeps the memory of a desk, if it is not too much.
    pub(super) fn give_back(&mut self, desk: &mut Desk) {
        let mut memory = mem::take(desk).memory;
        memory.clear();
        if self.bytes + memory.capacity() <= SPARE_MAX {
            self.bytes += memory.capacity();
            self.spare.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_as_far_into_a_block_as_in_the_file() {
        let mut desks = Desks::default();
        for offset in [0, 1, 4_095, 4_096, 123_456_789] {
            let mut desk = desks.take(offset);
            let check = |desk: &Desk, offset: u64, lines: &[u8]| {
                assert_eq!(desk.lines(), lines);
                assert_eq!(desk.lines().as_ptr() as usize % BLOCK, offset as usize % BLOCK);
            };
            desk.push(b"abc");
            check(&desk, offset, b"abc");
            desk.turn_to(offset + 1, 2);
            check(&desk, offset + 1, b"bc");
            desk.push(b"d");
            check(&desk, offset + 1, b"bcd");
            desks.give_back(&mut desk);
            assert_eq!(desk.len(), 0);
        }
    }
}
