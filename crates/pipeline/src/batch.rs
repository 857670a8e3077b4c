//! What a sink is given: records as they lie in the spool, whether they come from memory or from disk.

use std::ops::Range;
use std::sync::Arc;

use catchment_model::{Channel, Envelope, RecordId, SpoolId, UnixNs, UtcDate, Venue};

use crate::frame::{self, HEAD, Parts};
use crate::frames::{Frames, Run};

/// Records to be written together, in the order in which they were accepted. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    spool: SpoolId,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pieces: Vec<Piece>,
    bytes: usize,
}

/// Neighbours that lie in one place.
#[derive(Debug, Clone)]
struct Piece {
    frames: Arc<Frames>,
    records: Range<usize>,
    /// How many records of the batch there are up to its end.
    end: usize,
}

impl Batch {
    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.inner.pieces.last().map_or(0, |piece| piece.end)
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes its lines take.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// The record at a place, counted from 0.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        let piece = self.inner.pieces.partition_point(|piece| piece.end <= index);
        self.inner.pieces.get(piece).map(|piece| self.record(piece, index))
    }

    /// The records in the order in which they were accepted.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> + DoubleEndedIterator {
        Records { batch: self, places: 0..self.len(), piece: 0 }
    }

    /// The same, in runs of those that have a stream and a date in common.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.inner.pieces.iter().flat_map(|piece| piece.frames.runs(piece.records.clone()))
    }

    /// The same batch without the records at these places.
    pub fn without(&self, refused: &[usize]) -> Batch {
        let mut builder = BatchBuilder::new(self.spool);
        let mut index = 0;
        for piece in &self.inner.pieces {
            for at in piece.records.clone() {
                if !refused.contains(&index) {
                    builder.push(&piece.frames, at..at + 1);
                }
                index += 1;
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
        let mut bytes = draft.frames;
        frame::number_all(&mut bytes, &mut RecordId { spool, seq: first_seq });
        let frames = Arc::new(Frames::of(bytes));
        let mut builder = BatchBuilder::new(spool);
        builder.push(&frames, 0..frames.len());
        builder.build()
    }

    fn record<'a>(&self, piece: &'a Piece, index: usize) -> Record<'a> {
        let at = piece.records.end - (piece.end - index);
        Record { spool: self.spool, ..Record::read(piece.frames.frame(at)) }
    }
}

/// The records of a batch, one by one.
struct Records<'a> {
    batch: &'a Batch,
    /// Those yet to come.
    places: Range<usize>,
    /// The piece the last one was in.
    piece: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let index = self.places.next()?;
        while self.batch.inner.pieces[self.piece].end <= index {
            self.piece += 1;
        }
        Some(self.batch.record(&self.batch.inner.pieces[self.piece], index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl ExactSizeIterator for Records<'_> {}

impl DoubleEndedIterator for Records<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.places.next_back().and_then(|index| self.batch.get(index))
    }
}

/// Gathers whole frames into a batch without copying them.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    spool: SpoolId,
    pieces: Vec<Piece>,
    bytes: usize,
}

impl BatchBuilder {
    pub(crate) fn new(spool: SpoolId) -> Self {
        Self { spool, pieces: Vec::new(), bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |piece| piece.end)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When its last record was received.
    pub(crate) fn last_received(&self) -> Option<UnixNs> {
        let piece = self.pieces.last()?;
        Some(frame::received_at(piece.frames.frame(piece.records.end - 1)))
    }

    /// Takes sound frames from byte `start` on, those numbered above `after_seq`, until there are `records_max` records
    /// or `bytes_max` bytes in all. Says where it stopped and the last number it saw.
    pub(crate) fn take(
        &mut self,
        frames: &Arc<Frames>,
        start: usize,
        mut after_seq: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> (usize, u64) {
        let mut at = frames.index.frame_at(start);
        for run in frames.runs(at..frames.len()) {
            // A group that was written again after a failed sync lies in two segments.
            let fresh = run.after(after_seq);
            let records = fresh.records();
            let room = records_max.saturating_sub(self.len());
            let reach = frames.index.reach(records.clone(), bytes_max.saturating_sub(self.bytes));
            let taken = records.len().min(room).min(reach);
            at = records.start + taken;
            if taken > 0 {
                self.push(frames, records.start..at);
                after_seq = fresh.seqs().start + taken as u64 - 1;
            }
            if taken < records.len() {
                break;
            }
        }
        (frames.index.start(at), after_seq)
    }

    fn push(&mut self, frames: &Arc<Frames>, records: Range<usize>) {
        if records.is_empty() {
            return;
        }
        self.bytes += frames.index.line_bytes(records.clone());
        let end = self.len() + records.len();
        match self.pieces.last_mut() {
            Some(last) if Arc::ptr_eq(&last.frames, frames) && last.records.end == records.start => {
                (last.records.end, last.end) = (records.end, end);
            }
            _ => self.pieces.push(Piece { frames: Arc::clone(frames), records, end }),
        }
    }

    pub(crate) fn build(self) -> Batch {
        let Self { spool, pieces, bytes } = self;
        Batch { spool, inner: Arc::new(Inner { pieces, bytes }) }
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
    /// Reads a frame. Which spool it is of is not in it.
    pub(crate) fn read(frame: &'a [u8]) -> Self {
        let (spool, line) = (SpoolId::new(0), &frame[HEAD..]);
        Self { spool, seq: frame::seq(frame), parts: Parts::decode(frame), line }
    }

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
