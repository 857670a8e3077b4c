//! A connection's line: what waits to be written to it, and what was done to it on purpose.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

/// A frame, encoded once for everybody who gets it.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Head and payload.
    pub(crate) wire: Bytes,
    /// Where the payload begins.
    pub(crate) payload_at: usize,
    /// What it is of; control frames have none.
    pub(crate) data: Option<DataOf>,
    /// What an array is of, element by element: where in the payload each is.
    pub(crate) parts: Vec<(DataOf, std::ops::Range<usize>)>,
    /// It went out to somebody.
    pub(crate) sent: AtomicBool,
}

/// What a data frame holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataOf {
    pub(crate) feed: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) at_us: i64,
}

impl Frame {
    pub(crate) fn new(opcode: u8, payload: &[u8], data: Option<DataOf>) -> Arc<Self> {
        let payload_at = super::codec::head_len(payload.len());
        let wire = super::codec::frame(opcode, payload).into();
        Arc::new(Self { wire, payload_at, data, parts: Vec::new(), sent: AtomicBool::new(false) })
    }

    /// An array whose elements belong to different streams.
    pub(crate) fn of_parts(payload: &[u8], parts: Vec<(DataOf, std::ops::Range<usize>)>) -> Arc<Self> {
        let payload_at = super::codec::head_len(payload.len());
        let wire = super::codec::frame(super::codec::TEXT, payload).into();
        Arc::new(Self { wire, payload_at, data: None, parts, sent: AtomicBool::new(false) })
    }

    /// Each message in it, and what it is of.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (DataOf, &[u8])> {
        let whole = self.data.map(|of| (of, self.payload()));
        whole.into_iter().chain(self.parts.iter().map(|(of, range)| (*of, &self.payload()[range.clone()])))
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.wire[self.payload_at..]
    }
}

/// Something to be done with a connection, in its turn.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Frame(Arc<Frame>),
    /// The first half of the frame; then the connection ends.
    Torn(Arc<Frame>),
    Close(u16, &'static str),
    /// The connection ends without a word.
    Cut,
    /// The connection is reset.
    Reset,
}

/// Between the hall, which fills it, and the connection's task, which empties it.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Mutex<VecDeque<Item>>,
    /// Waiting, or taken and not yet written.
    unwritten: AtomicUsize,
    ended: AtomicBool,
    filled: Notify,
    /// Data and answers are withheld; signs of life are not.
    pub(crate) frozen: AtomicBool,
    /// Nothing is read from the client.
    pub(crate) deaf: AtomicBool,
    pub(crate) hears_again: Notify,
    /// Bytes a second at most; 0: as fast as they go.
    pub(crate) trickle: AtomicU32,
}

impl Line {
    /// Adds to the end. False: the connection is over.
    pub(crate) fn push(&self, item: Item) -> bool {
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        self.lock().push_back(item);
        self.filled.notify_one();
        true
    }

    /// How many are still to be written.
    pub(crate) fn unwritten(&self) -> usize {
        if self.ended.load(Ordering::Acquire) { 0 } else { self.unwritten.load(Ordering::Acquire) }
    }

    /// Waits until there is something and takes up to `max` of it.
    pub(crate) async fn take(&self, max: usize, into: &mut Vec<Item>) {
        loop {
            let filled = self.filled.notified();
            {
                let mut waiting = self.lock();
                let n = waiting.len().min(max);
                into.extend(waiting.drain(..n));
            }
            if !into.is_empty() {
                return;
            }
            filled.await;
        }
    }

    pub(crate) fn written(&self, n: usize) {
        self.unwritten.fetch_sub(n, Ordering::AcqRel);
    }

    /// Nothing will be written any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Item>> {
        self.waiting.lock().expect("no holder of this lock can panic")
    }
}
