//! What went out: every data frame that was written to a connection, counted by stream and, on demand, listed.
//!
//! A frame shared by several connections is one entry, written by however many. The digest is the wrapping sum of the
//! XXH3-64 hashes of the payloads, each counted once: whoever has stored the same payloads, in any order, gets the same.

use std::collections::BTreeMap;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::line::Frame;

/// The figures of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StreamCount {
    /// Different frames that were written to at least one connection.
    pub frames: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Frames written, each as often as there were connections to write it to; duplicates made on purpose count, too.
    pub written: u64,
    /// Wrapping sum of the XXH3-64 hashes of the different frames' payloads; 0 unless the journal is kept.
    pub digest: u64,
}

/// One frame of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JournalEntry {
    /// The venue's number for the first update in it, or a count where the venue has none.
    pub first: u64,
    /// And for the last.
    pub last: u64,
    /// When it happened at the venue.
    pub at_ms: i64,
    /// XXH3-64 of the payload.
    pub hash: u64,
    /// The connection it was first written to.
    pub connection: u64,
}

/// By channel and symbol (`book_delta`, `BTC/USDT`).
pub type StreamCounts = BTreeMap<String, StreamCount>;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    streams: Vec<(StreamCount, Vec<JournalEntry>)>,
    /// Entries kept altogether; 0: none, and no hashes are made.
    room: usize,
    kept: usize,
    pub(crate) dropped: u64,
}

impl Journal {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// A frame was written to a connection.
    pub(crate) fn wrote(&mut self, connection: u64, frame: &Frame) {
        if frame.data.is_none() && frame.parts.is_empty() {
            return;
        }
        let again = frame.sent.swap(true, std::sync::atomic::Ordering::AcqRel);
        for (of, payload) in frame.messages() {
            let at = of.feed as usize;
            if self.streams.len() <= at {
                self.streams.resize_with(at + 1, Default::default);
            }
            let (count, entries) = &mut self.streams[at];
            count.written += 1;
            if again {
                continue;
            }
            count.frames += 1;
            count.bytes += payload.len() as u64;
            if self.room == 0 {
                continue;
            }
            let hash = xxh3_64(payload);
            count.digest = count.digest.wrapping_add(hash);
            if self.kept == self.room {
                self.dropped += 1;
                continue;
            }
            self.kept += 1;
            let at_ms = of.at_us.div_euclid(1_000);
            entries.push(JournalEntry { first: of.first, last: of.last, at_ms, hash, connection });
        }
    }

    pub(crate) fn count(&self, feed: u32) -> StreamCount {
        self.streams.get(feed as usize).map_or_else(StreamCount::default, |(count, _)| count.clone())
    }

    pub(crate) fn entries(&self, feed: u32) -> &[JournalEntry] {
        self.streams.get(feed as usize).map_or(&[], |(_, entries)| entries)
    }
}
