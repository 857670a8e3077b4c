//! Envelopes on their way in: written once, as the very bytes the spool and the archive will hold.

use std::ops::Range;

use catchment_model::{Channel, Envelope, Leaf, LineParts, Payload, RecordId, SpoolId, Stem, UnixNs, Venue};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::frame::{self, HEAD, LINE_MAX, Parts};

/// Envelopes written one behind the other, ready to be accepted together. One hand-off then costs little a record.
#[derive(Debug)]
pub struct Draft {
    pub(crate) frames: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) streams: Vec<(Venue, Channel)>,
    keyer: Keyer,
}

/// Which records get a key to be told apart by.
#[derive(Debug, Clone, Default)]
pub enum Keys {
    /// None: nobody looks for duplicates.
    #[default]
    Off,
    /// Those with a message id or a sequence, and in these channels every one, by its payload.
    On {
        /// The channels.
        by_payload: std::sync::Arc<[Channel]>,
    },
}

/// What the intake needs to know of a record without reading it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Where its frame starts.
    pub(crate) start: u32,
    /// How long its frame is.
    pub(crate) len: u32,
    /// Which of the draft's streams it belongs to.
    pub(crate) stream: u32,
    pub(crate) received_at: UnixNs,
    /// What tells it from another record of its stream; 0: nothing does.
    pub(crate) key: u128,
    /// The spool was full and its policy lets this one go.
    pub(crate) dropped: bool,
}

impl Mark {
    /// Where its frame is.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// Why an envelope cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// Longer than every sink could take.
    #[error("the record has {len} bytes; at most {max} are taken", max = LINE_MAX)]
    TooLarge {
        /// How long its line would be.
        len: usize,
    },
}

/// A line that was just written, and what is noted of it. By reference: a processor is held up by comparing names that it
/// has just copied.
struct Line<'a> {
    parts: LineParts,
    exchange: &'a Venue,
    channel: &'a Channel,
    received_at: UnixNs,
    payload: &'a Payload<'a>,
    key: u128,
}

impl Draft {
    /// A draft that is this large is better accepted than added to.
    const FULL: usize = 256 << 10;

    /// An empty draft, as [`crate::Intake::draft`] gives it.
    pub fn new(keys: Keys) -> Self {
        Self { frames: Vec::new(), marks: Vec::new(), streams: Vec::new(), keyer: Keyer::new(keys) }
    }

    /// Writes the envelope behind the others. On an error the draft is as it was.
    pub fn push(&mut self, envelope: &Envelope<'_>) -> Result<(), DraftError> {
        let start = self.frames.len();
        self.frames.resize(start + HEAD, 0);
        // The id takes its place now and its value when the record is accepted.
        let id = RecordId { spool: SpoolId::new(0), seq: 0 };
        let parts = envelope.write_line(&id, &mut self.frames);
        let key = self.keyer.key(envelope);
        let Envelope { exchange, channel, received_at, payload, .. } = envelope;
        self.finish(start, Line { parts, exchange, channel, received_at: *received_at, payload, key })
    }

    /// The same for a message of a stream whose lines were written before: what they share is at hand.
    pub fn push_leaf(&mut self, stem: &mut Stem, leaf: &Leaf<'_>) -> Result<(), DraftError> {
        let start = self.frames.len();
        self.frames.extend_from_slice(&[0; HEAD]);
        let parts = stem.write_line(leaf, &mut self.frames);
        let key = if self.keyer.is_off() { 0 } else { self.keyer.key(&stem.envelope(leaf)) };
        let Leaf { received_at, payload, .. } = leaf;
        let (exchange, channel) = stem.names();
        self.finish(start, Line { parts, exchange, channel, received_at: *received_at, payload, key })
    }

    /// Writes the head in front of a line that stands behind the others, and notes it.
    #[inline]
    fn finish(&mut self, start: usize, line: Line<'_>) -> Result<(), DraftError> {
        let line_len = self.frames.len() - start - HEAD;
        if line_len > LINE_MAX {
            self.frames.truncate(start);
            return Err(DraftError::TooLarge { len: line_len });
        }
        Parts {
            received_at_ns: line.received_at.get(),
            payload: line.parts.payload as u32,
            payload_len: line.payload.as_bytes().len() as u32,
            exchange: line.parts.exchange as u16,
            exchange_len: line.exchange.as_bytes().len() as u8,
            channel_len: line.channel.as_bytes().len() as u8,
            symbol: line.parts.symbol as u16,
            symbol_len: line.parts.symbol_len as u16,
        }
        .encode(&mut self.frames[start..start + HEAD], line_len);
        let stream = self.stream(line.exchange, line.channel);
        self.marks.push(Mark {
            start: start as u32,
            len: (HEAD + line_len) as u32,
            stream,
            received_at: line.received_at,
            key: line.key,
            dropped: false,
        });
        debug_assert_eq!(frame::frame_len(&self.frames[start..]), Some(HEAD + line_len));
        Ok(())
    }

    /// Makes room for so many more bytes and records.
    pub(crate) fn reserve(&mut self, bytes: usize, records: usize) {
        self.frames.reserve(bytes);
        self.marks.reserve(records);
    }

    /// Takes over the records of another draft, behind its own. The other is empty then, and keeps its memory.
    pub(crate) fn absorb(&mut self, other: &mut Draft) {
        let offset = self.frames.len() as u32;
        self.frames.extend_from_slice(&other.frames);
        // Mostly all are of one stream.
        let mut last = None;
        for mark in &other.marks {
            let stream = match last {
                Some((theirs, ours)) if theirs == mark.stream => ours,
                _ => {
                    let (venue, channel) = &other.streams[mark.stream as usize];
                    self.stream(venue, channel)
                }
            };
            last = Some((mark.stream, stream));
            self.marks.push(Mark { start: offset + mark.start, stream, ..*mark });
        }
        other.frames.clear();
        other.marks.clear();
        other.streams.clear();
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// How many bytes its records take.
    pub fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Whether it is large enough to be accepted rather than added to.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= Self::FULL
    }

    #[inline]
    fn stream(&mut self, venue: &Venue, channel: &Channel) -> u32 {
        // Newest first: neighbours are mostly of one stream.
        match self.streams.iter().rposition(|(v, c)| c == channel && v == venue) {
            Some(at) => at as u32,
            None => {
                self.streams.push((*venue, *channel));
                self.streams.len() as u32 - 1
            }
        }
    }
}

/// Makes the keys records are told apart by.
#[derive(Debug, Default)]
pub struct Keyer {
    keys: Keys,
    /// What the names of the streams seen lately hash to.
    seeds: Vec<((Venue, Channel), u64)>,
}

/// More streams than this are not remembered.
const SEEDS_MAX: usize = 16;

impl Keyer {
    /// For these records.
    pub fn new(keys: Keys) -> Self {
        Self { keys, seeds: Vec::new() }
    }

    /// Whether no record gets a key.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.keys, Keys::Off)
    }

    /// S1's dedup key, scoped by exchange, channel and symbol: the message id, else the sequence, else (only where the
    /// channel says so) the payload. 0 is no key: the record is never taken for a duplicate.
    pub fn key(&mut self, envelope: &Envelope<'_>) -> u128 {
        let Keys::On { by_payload } = &self.keys else { return 0 };
        let sequence = envelope.sequence.map(u64::to_le_bytes);
        let (kind, what): (u8, &[u8]) = match (envelope.message_id, &sequence) {
            (Some(id), _) => (b'm', id.as_bytes()),
            (None, Some(sequence)) => (b's', sequence),
            (None, None) if by_payload.contains(&envelope.channel) => (b'p', envelope.payload.as_bytes()),
            (None, None) => return 0,
        };
        // The venue and channel go in as the seed, which neighbours mostly share.
        let stream = (envelope.exchange, envelope.channel);
        let known = self.seeds.iter().rev().find(|(known, _)| *known == stream);
        let seed = match known {
            Some((_, seed)) => *seed,
            None => {
                let seed = xxh3_64(format!("{}\0{}", envelope.exchange, envelope.channel).as_bytes());
                if self.seeds.len() == SEEDS_MAX {
                    self.seeds.clear();
                }
                self.seeds.push((stream, seed));
                seed
            }
        };
        // The symbol goes in as the seed of what is hashed, so the parts cannot run into each other and need no copy.
        let symbol = xxh3_128_with_seed(envelope.symbol.as_str().as_bytes(), seed ^ u64::from(kind));
        (xxh3_128_with_seed(what, symbol as u64) ^ symbol).max(1)
    }
}
