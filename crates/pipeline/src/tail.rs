//! The newest groups, kept in memory so that a healthy sink costs no read from disk, and how far the spool reaches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::reader::Position;

/// A durable group of frames.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) at: Position,
    pub(crate) frames: Arc<Vec<u8>>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.at.offset + self.frames.len() as u64
    }
}

/// Where the spool ends for now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Frontier {
    pub(crate) end: Position,
    /// Nothing will follow.
    pub(crate) closed: bool,
}

/// Shared by the one writer and all deliveries.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes_max: usize,
    state: Mutex<State>,
    frontier: watch::Sender<Frontier>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// How much of each segment may be read.
    readable: BTreeMap<u32, u64>,
}

impl Whereabouts {
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::End)
    }
}

/// Where the next records are.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// In memory, from this byte of the chunk on.
    Memory(Chunk, usize),
    /// On disk, up to this offset of the segment.
    Disk { at: Position, end: u64 },
    /// In a later segment; the ones between are gone if `missing`.
    Next { at: Position, missing: bool },
    /// Nowhere yet.
    End,
}

impl Tail {
    /// `bytes_max` bounds what is kept; without a disk below, nothing is let go before it is settled.
    pub(crate) fn new(readable: BTreeMap<u32, u64>, bytes_max: usize) -> Self {
        let end = readable.last_key_value().map(|(n, len)| Position { segment: *n, offset: *len });
        let frontier = Frontier { end: end.unwrap_or_default(), closed: false };
        let state = State { readable, ..State::default() };
        Self { bytes_max, state: Mutex::new(state), frontier: watch::Sender::new(frontier) }
    }

    /// A group has become durable.
    pub(crate) fn push(&self, chunk: Chunk) {
        let end = Position { segment: chunk.at.segment, offset: chunk.end() };
        {
            let mut state = self.lock();
            state.readable.insert(end.segment, end.offset);
            state.bytes += chunk.frames.len();
            state.chunks.push_back(chunk);
            while state.bytes > self.bytes_max && state.chunks.len() > 1 {
                state.forget_oldest();
            }
        }
        self.frontier.send_modify(|frontier| frontier.end = end);
    }

    /// These segments are settled and gone.
    pub(crate) fn removed(&self, segments: &[u32]) {
        let mut state = self.lock();
        for number in segments {
            state.readable.remove(number);
        }
        let newest_gone = segments.iter().max().copied().unwrap_or(0);
        while state.chunks.front().is_some_and(|chunk| chunk.at.segment <= newest_gone) {
            state.forget_oldest();
        }
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.frontier.send_modify(|frontier| frontier.closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.frontier.borrow().closed
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Frontier> {
        self.frontier.subscribe()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Where the records at and after `at` are.
    pub(crate) fn find(&self, at: Position) -> Whereabouts {
        let state = self.lock();
        let later = state.chunks.partition_point(|chunk| chunk.at <= at);
        if let Some(chunk) = later.checked_sub(1).map(|index| &state.chunks[index])
            && chunk.at.segment == at.segment
            && at.offset < chunk.end()
        {
            return Whereabouts::Memory(chunk.clone(), (at.offset - chunk.at.offset) as usize);
        }
        if let Some(end) = state.readable.get(&at.segment).filter(|end| at.offset < **end) {
            return Whereabouts::Disk { at, end: *end };
        }
        let next = state.readable.range(at.segment + 1..).next();
        match next {
            Some((segment, _)) => {
                let at_start = Position { segment: *segment, offset: crate::frame::HEADER as u64 };
                Whereabouts::Next { at: at_start, missing: at.segment != 0 && *segment > at.segment + 1 }
            }
            None => Whereabouts::End,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

impl State {
    fn forget_oldest(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= chunk.frames.len();
        }
    }
}
