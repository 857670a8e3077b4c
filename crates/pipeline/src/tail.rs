//! The newest groups, kept in memory so that a healthy sink costs no read from disk, and how far the spool reaches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::frames::Frames;
use crate::reader::Position;

/// Less is quickly had from the system.
const SPARE_MIN: usize = 8 << 10;
/// More is not kept, however much the tail may hold.
const SPARE_MAX: usize = 64 << 20;

/// A durable group of frames, or a part of one.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) at: Position,
    pub(crate) frames: Arc<Frames>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.at.offset + self.frames.bytes.len() as u64
    }

    /// What it takes in memory.
    fn memory(&self) -> usize {
        self.frames.bytes.len() + self.frames.index.memory()
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

/// A delivery that waits, as long as this is there.
pub(crate) struct Waiting<'a> {
    tail: &'a Tail,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.tail.lock().waiting.retain(|(id, _)| *id != self.id);
    }
}

#[derive(Debug, Default)]
struct State {
    /// Deliveries that wait, and how many bytes more each waits for.
    waiting: Vec<(u64, usize)>,
    next_waiting: u64,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// How much of each segment may be read.
    readable: BTreeMap<u32, u64>,
    /// Memory of groups that are no longer kept, for those to come: the system takes its time to clear what it gives out.
    /// No more than what those that are kept leave of `bytes_max`.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Some of it was wanted since it was last looked at.
    spare_wanted: bool,
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
        let (state, frontier) = (Mutex::new(state), watch::Sender::new(frontier));
        Self { bytes_max, state, frontier }
    }

    /// A group has become durable: its parts lie there, one behind the other.
    pub(crate) fn push(&self, at: Position, parts: Vec<Frames>) {
        let mut end = at;
        let is_told = {
            let mut state = self.lock();
            for frames in parts {
                let chunk = Chunk { at: end, frames: Arc::new(frames) };
                if chunk.frames.bytes.is_empty() {
                    continue;
                }
                end.offset = chunk.end();
                state.bytes += chunk.memory();
                state.chunks.push_back(chunk);
            }
            state.readable.insert(end.segment, end.offset);
            while state.bytes > self.bytes_max && state.chunks.len() > 1 {
                state.forget_oldest(self.bytes_max);
            }
            let came = (end.offset - at.offset) as usize;
            state.waiting.iter_mut().fold(false, |any, (_, bytes)| {
                *bytes = bytes.saturating_sub(came);
                any || *bytes == 0
            })
        };
        self.frontier.send_if_modified(|frontier| {
            frontier.end = end;
            is_told
        });
    }

    /// To be held while waiting for so many bytes of frames, and taken before looking for the last time: once they have
    /// come, it is told. Nobody is woken for less.
    pub(crate) fn wait_for(&self, bytes: usize) -> Waiting<'_> {
        let mut state = self.lock();
        let id = state.next_waiting;
        state.next_waiting += 1;
        state.waiting.push((id, bytes));
        Waiting { tail: self, id }
    }

    /// Empty memory for about so many bytes.
    pub(crate) fn spare(&self, bytes: usize) -> Vec<u8> {
        if bytes < SPARE_MIN {
            return Vec::with_capacity(bytes);
        }
        let (spare, misfit) = {
            let mut state = self.lock();
            state.spare_wanted = true;
            match state
                .spare
                .iter()
                .rposition(|memory| (bytes..=2 * rounded(bytes)).contains(&memory.capacity()))
            {
                Some(at) => (Some(state.take_spare(at)), None),
                // What nobody has use for makes room for what comes back.
                None if state.spare.is_empty() => (None, None),
                None => (None, Some(state.take_spare(0))),
            }
        };
        drop(misfit);
        spare.unwrap_or_else(|| Vec::with_capacity(rounded(bytes)))
    }

    /// Memory that is no longer needed.
    pub(crate) fn give_back(&self, memory: Vec<u8>) {
        self.lock().keep(memory, self.bytes_max);
    }

    /// To be called now and then: lets go what nobody has wanted since the last time.
    pub(crate) fn tidy(&self) {
        let unwanted = {
            let mut state = self.lock();
            if std::mem::take(&mut state.spare_wanted) {
                return;
            }
            state.spare_bytes = 0;
            std::mem::take(&mut state.spare)
        };
        drop(unwanted);
    }

    /// Every sink has all that comes before this place: nobody will ask for it again, and its memory is for what comes.
    pub(crate) fn settled(&self, before: Position) {
        let mut state = self.lock();
        let is_done = |chunk: &Chunk| Position { offset: chunk.end(), ..chunk.at } <= before;
        while state.chunks.front().is_some_and(is_done) {
            state.forget_oldest(self.bytes_max);
        }
    }

    /// These segments are settled and gone.
    pub(crate) fn removed(&self, segments: &[u32]) {
        let mut state = self.lock();
        for number in segments {
            state.readable.remove(number);
        }
        let newest_gone = segments.iter().max().copied().unwrap_or(0);
        while state.chunks.front().is_some_and(|chunk| chunk.at.segment <= newest_gone) {
            state.forget_oldest(self.bytes_max);
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

/// A size that others will want as well: four of them to a doubling.
fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(1))
}

impl State {
    fn take_spare(&mut self, at: usize) -> Vec<u8> {
        let memory = self.spare.remove(at);
        self.spare_bytes -= memory.capacity();
        memory
    }

    fn forget_oldest(&mut self, bytes_max: usize) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= chunk.memory();
            // A sink may still be at it; then it goes when the sink is done.
            if let Ok(frames) = Arc::try_unwrap(chunk.frames) {
                self.keep(frames.bytes, bytes_max);
            }
        }
    }

    fn keep(&mut self, mut memory: Vec<u8>, bytes_max: usize) {
        let bytes_max = bytes_max.min(SPARE_MAX);
        let bytes = self.bytes + self.spare_bytes + memory.capacity();
        if memory.capacity() >= SPARE_MIN && bytes <= bytes_max {
            memory.clear();
            self.spare_bytes += memory.capacity();
            self.spare.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_comes_back_is_used_for_what_is_about_as_large_and_no_other() {
        let tail = Tail::new(BTreeMap::new(), 1 << 20);
        for bytes in [9_000, 10_000, 65_537, 262_400, 300_000] {
            let memory = tail.spare(bytes);
            let (place, capacity) = (memory.as_ptr(), memory.capacity());
            assert!((bytes..=bytes + bytes / 3).contains(&capacity), "{bytes}: {capacity}");
            tail.give_back(memory);
            let again = tail.spare(bytes - bytes / 50);
            assert_eq!((again.as_ptr(), again.capacity(), again.len()), (place, capacity, 0), "{bytes}");
        }
        // Ten times too large: it goes, and makes room for what fits.
        tail.give_back(Vec::with_capacity(1 << 19));
        assert!(tail.spare(50_000).capacity() < 1 << 18);
        let state = tail.lock();
        assert_eq!((state.spare.len(), state.spare_bytes), (0, 0));
    }
}
