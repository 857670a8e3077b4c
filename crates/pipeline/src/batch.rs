//! What a sink is given: records as they lie in the spool, whether they come from memory or from disk.

use std::sync::Arc;

use catchment_model::{Channel, Envelope, RecordId, SpoolId, UnixNs, UtcDate, Venue};

use crate::frame::{self, HEAD, Parts};

/// Records to be written together, in the order in which they were accepted. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    spool: SpoolId,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    chunks: Vec<Arc<Vec<u8>>>,
    places: Vec<Place>,
    bytes: usize,
}

/// Where a record's frame is.
#[derive(Debug, Clone, Copy)]
struct Place {
    chunk: u32,
    start: u32,
    len: u32,
}

impl Batch {
    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.inner.places.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.inner.places.is_empty()
    }

    /// How many bytes its lines take.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// The record at a place, counted from 0.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        self.inner.places.get(index).map(|place| self.record(*place))
    }

    /// The records in the order in which they were accepted.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> + DoubleEndedIterator {
        self.inner.places.iter().map(|place| self.record(*place))
    }

    /// The same batch without the records at these places.
    pub fn without(&self, refused: &[usize]) -> Batch {
        let mut builder = BatchBuilder::new(self.spool);
        builder.chunks.clone_from(&self.inner.chunks);
        for (index, place) in self.inner.places.iter().enumerate() {
            if !refused.contains(&index) {
                builder.bytes += place.len as usize - HEAD;
                builder.places.push(*place);
            }
        }
        builder.build()
    }

    /// A batch of these envelopes, numbered from `first_seq`, that has been through no spool. For tests of sinks.
    pub fn of(spool: SpoolId, first_seq: u64, envelopes: &[Envelope<'_>]) -> Batch {
        let mut draft = crate::Draft::new(crate::Keys::Off);
        let bytes: usize = envelopes.iter().map(|envelope| envelope.payload.as_bytes().len() + 512).sum();
        draft.reserve(bytes, envelopes.len());
        for envelope in envelopes {
            draft.push(envelope).expect("a test's records are small");
        }
        let mut frames = draft.frames;
        let mut places = Vec::with_capacity(envelopes.len());
        for (seq, mark) in (first_seq..).zip(&draft.marks) {
            frame::number(&mut frames[mark.start..mark.start + mark.len], RecordId { spool, seq });
            places.push(Place { chunk: 0, start: mark.start as u32, len: mark.len as u32 });
        }
        let bytes = frames.len() - places.len() * HEAD;
        BatchBuilder { spool, chunks: vec![Arc::new(frames)], places, bytes }.build()
    }

    fn record(&self, place: Place) -> Record<'_> {
        let chunk = &self.inner.chunks[place.chunk as usize];
        let frame = &chunk[place.start as usize..][..place.len as usize];
        Record {
            spool: self.spool,
            seq: frame::seq(frame),
            parts: Parts::decode(frame),
            line: &frame[HEAD..],
        }
    }
}

/// Gathers whole frames into a batch without copying them.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    spool: SpoolId,
    chunks: Vec<Arc<Vec<u8>>>,
    places: Vec<Place>,
    bytes: usize,
}

impl BatchBuilder {
    pub(crate) fn new(spool: SpoolId) -> Self {
        Self { spool, chunks: Vec::new(), places: Vec::new(), bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When its last record was received.
    pub(crate) fn last_received(&self) -> Option<UnixNs> {
        let place = self.places.last()?;
        let frame = &self.chunks[place.chunk as usize][place.start as usize..][..HEAD];
        UnixNs::new(Parts::decode(frame).received_at_ns).ok()
    }

    /// Takes sound frames from `start` on, those numbered above `after_seq`, until there are `records_max` records or
    /// `bytes_max` bytes in all. Says where it stopped and the last number it saw.
    pub(crate) fn take(
        &mut self,
        frames: &Arc<Vec<u8>>,
        start: usize,
        mut after_seq: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> (usize, u64) {
        let chunk = self.chunks.len() as u32;
        let before = self.places.len();
        self.places.reserve((frames.len() - start) / 512);
        let mut at = start;
        while at < frames.len() && self.places.len() < records_max && self.bytes < bytes_max {
            let len = frame::frame_len(&frames[at..]).expect("only sound frames are handed on");
            let seq = frame::seq(&frames[at..]);
            // A group that was written again after a failed sync lies in two segments.
            if seq > after_seq {
                self.places.push(Place { chunk, start: at as u32, len: len as u32 });
                self.bytes += len - HEAD;
                after_seq = seq;
            }
            at += len;
        }
        if self.places.len() > before {
            self.chunks.push(Arc::clone(frames));
        }
        (at, after_seq)
    }

    pub(crate) fn build(self) -> Batch {
        let Self { spool, chunks, places, bytes } = self;
        Batch { spool, inner: Arc::new(Inner { chunks, places, bytes }) }
    }
}

/// One record, borrowed from its batch.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    spool: SpoolId,
    seq: u64,
    parts: Parts,
    line: &'a [u8],
}

impl<'a> Record<'a> {
    /// Its id: the same on every retry and replay.
    pub fn id(&self) -> RecordId {
        RecordId { spool: self.spool, seq: self.seq }
    }

    /// Its number in the spool; later records have larger ones.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// When it was received.
    pub fn received_at(&self) -> UnixNs {
        UnixNs::new(self.parts.received_at_ns).expect("checked when it was accepted")
    }

    /// The UTC date it is filed under: that of its receive time.
    pub fn date(&self) -> UtcDate {
        self.received_at().date()
    }

    /// The whole envelope as one line of JSON, newline included.
    pub fn line(&self) -> &'a [u8] {
        self.line
    }

    /// The payload, as the venue sent it.
    pub fn payload(&self) -> &'a [u8] {
        self.part(self.parts.payload as usize, self.parts.payload_len as usize)
    }

    /// The venue's name.
    pub fn exchange(&self) -> &'a str {
        self.name(usize::from(self.parts.exchange), usize::from(self.parts.exchange_len))
    }

    /// The channel's name.
    pub fn channel(&self) -> &'a str {
        self.name(self.channel_start(), usize::from(self.parts.channel_len))
    }

    /// The symbol, as it stands in the line: JSON's escapes are still in it.
    pub fn symbol_escaped(&self) -> &'a str {
        self.name(usize::from(self.parts.symbol), usize::from(self.parts.symbol_len))
    }

    /// Bytes that are equal for records of one venue and channel, and differ for others: a key that costs nothing.
    pub fn stream_key(&self) -> &'a [u8] {
        let start = usize::from(self.parts.exchange);
        let end = self.channel_start() + usize::from(self.parts.channel_len);
        self.part(start, end - start)
    }

    /// The venue and channel, as values.
    pub fn stream(&self) -> (Venue, Channel) {
        let checked = "checked when it was accepted";
        (Venue::new(self.exchange()).expect(checked), Channel::new(self.channel()).expect(checked))
    }

    fn channel_start(&self) -> usize {
        usize::from(self.parts.exchange)
            + usize::from(self.parts.exchange_len)
            + Envelope::BEFORE_CHANNEL.len()
    }

    fn part(&self, start: usize, len: usize) -> &'a [u8] {
        &self.line[start..start + len]
    }

    fn name(&self, start: usize, len: usize) -> &'a str {
        std::str::from_utf8(self.part(start, len)).expect("the line was written from text")
    }
}
