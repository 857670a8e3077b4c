//! Frames in memory and what is known of them: where each begins, its number, its stream and its date.
//!
//! Whoever made or read the frames has gone through them once. Nobody behind them does so again: by then they have left
//! the processor's caches, and looking at the head of each takes longer than copying all of it.

use std::ops::Range;

use catchment_model::{Channel, UtcDate, Venue};

use crate::batch::Record;
use crate::frame::{self, HEAD};

/// Whole frames, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) bytes: Vec<u8>,
    pub(crate) index: Index,
}

/// What is known of frames without looking at them.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Where each frame ends; the next one begins there.
    ends: Vec<u32>,
    stretches: Vec<Stretch>,
    streams: Vec<(Venue, Channel)>,
}

/// Neighbours of one stream and one date, numbered one after the other.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Which of the frames is its first.
    first: u32,
    /// Which of the streams it belongs to.
    stream: u32,
    date: UtcDate,
    /// The number of its first record.
    seq: u64,
}

impl Frames {
    /// Frames that were found whole and sound. Goes through them.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let mut index = Index::default();
        let (mut at, mut stream, mut key): (usize, u32, &[u8]) = (0, 0, &[]);
        while at < bytes.len() {
            let len = frame::frame_len(&bytes[at..]).expect("only whole frames are handed on");
            let record = Record::read(&bytes[at..at + len]);
            if index.ends.is_empty() || record.stream_key() != key {
                key = record.stream_key();
                stream = index.stream(record.stream());
            }
            index.push(len, record.seq(), stream, record.date());
            at += len;
        }
        Self { bytes, index }
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.index.ends.len()
    }

    /// The frame of a record, counted from 0.
    pub(crate) fn frame(&self, at: usize) -> &[u8] {
        &self.bytes[self.index.start(at)..self.index.start(at + 1)]
    }

    /// The runs of these records, in their order.
    pub(crate) fn runs(&self, records: Range<usize>) -> impl Iterator<Item = Run<'_>> {
        let stretches = &self.index.stretches;
        let first = stretches.partition_point(|one| one.first as usize <= records.start).saturating_sub(1);
        (first..stretches.len()).map_while(move |at| {
            let Stretch { first, stream, date, seq } = stretches[at];
            let end = stretches.get(at + 1).map_or(self.len(), |next| next.first as usize);
            let start = records.start.max(first as usize);
            let first_seq = seq + (start - first as usize) as u64;
            let stream = self.index.streams[stream as usize];
            let records = start..end.min(records.end);
            (!records.is_empty()).then_some(Run { frames: self, records, first_seq, stream, date })
        })
    }

    /// The line of a record.
    fn line(&self, at: usize) -> &[u8] {
        &self.bytes[self.index.start(at) + HEAD..self.index.start(at + 1)]
    }
}

impl Index {
    /// Of frames that follow, so many of them, of these streams.
    pub(crate) fn with_room(frames: usize, streams: &[(Venue, Channel)]) -> Self {
        Self { ends: Vec::with_capacity(frames), stretches: Vec::new(), streams: streams.to_vec() }
    }

    /// Notes the frame that comes next.
    pub(crate) fn push(&mut self, len: usize, seq: u64, stream: u32, date: UtcDate) {
        let at = self.ends.len();
        let goes_on = |one: &Stretch| {
            one.stream == stream && one.date == date && one.seq + (at as u64 - u64::from(one.first)) == seq
        };
        if !self.stretches.last().is_some_and(goes_on) {
            self.stretches.push(Stretch { first: at as u32, stream, date, seq });
        }
        self.ends.push((self.start(at) + len) as u32);
    }

    /// Where a frame begins; of the one after the last, where that ends.
    pub(crate) fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Which frame begins at this byte.
    pub(crate) fn frame_at(&self, start: usize) -> usize {
        let at = self.ends.partition_point(|end| *end as usize <= start);
        debug_assert_eq!(self.start(at), start, "only whole frames are handed on");
        at
    }

    /// How many of these frames hold so many bytes of lines together: as few as do, or all.
    pub(crate) fn reach(&self, frames: Range<usize>, line_bytes: usize) -> usize {
        let start = self.start(frames.start);
        let is_short = |taken: usize| self.start(frames.start + taken) - start - taken * HEAD < line_bytes;
        let (mut low, mut high) = (0, frames.len());
        while low < high {
            let middle = (low + high) / 2;
            if is_short(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// How many bytes the lines of these frames have.
    pub(crate) fn line_bytes(&self, frames: Range<usize>) -> usize {
        self.start(frames.end) - self.start(frames.start) - frames.len() * HEAD
    }

    /// What it takes in memory.
    pub(crate) fn memory(&self) -> usize {
        self.ends.capacity() * size_of::<u32>()
            + self.stretches.capacity() * size_of::<Stretch>()
            + self.streams.capacity() * size_of::<(Venue, Channel)>()
    }

    fn stream(&mut self, stream: (Venue, Channel)) -> u32 {
        // Newest first: neighbours are mostly of few streams.
        let known = self.streams.iter().rposition(|known| *known == stream);
        known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        }) as u32
    }
}

/// Neighbours in a batch: of one stream and one date, numbered one after the other.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    frames: &'a Frames,
    records: Range<usize>,
    first_seq: u64,
    stream: (Venue, Channel),
    date: UtcDate,
}

impl<'a> Run<'a> {
    /// The venue and channel.
    pub fn stream(&self) -> (Venue, Channel) {
        self.stream
    }

    /// The UTC date they were received on: their folder.
    pub fn date(&self) -> UtcDate {
        self.date
    }

    /// Their numbers in the spool.
    pub fn seqs(&self) -> Range<u64> {
        self.first_seq..self.first_seq + self.records.len() as u64
    }

    /// Which of the frames they are.
    pub(crate) fn records(&self) -> Range<usize> {
        self.records.clone()
    }

    /// Their numbers and their lines, newline included, in their order.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let frames = self.frames;
        self.seqs().zip(self.records.clone().map(|at| frames.line(at)))
    }

    /// Those of them that are numbered above this one.
    pub fn after(mut self, seq: u64) -> Self {
        let gone = seq.saturating_add(1).clamp(self.first_seq, self.seqs().end) - self.first_seq;
        self.first_seq += gone;
        self.records.start += gone as usize;
        self
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use catchment_model::{Envelope, Payload, RecordId, Source, SpoolId, Symbol, UnixNs};

    use super::*;
    use crate::batch::BatchBuilder;
    use crate::{Draft, Keys};

    const DAY_MS: i64 = 86_400_000;
    fn spool() -> SpoolId {
        SpoolId::new(7)
    }

    /// A draft of one record a word: `trades0` is a trade of the first day.
    pub(crate) fn draft(words: &str) -> Draft {
        let mut draft = Draft::new(Keys::Off);
        for (at, word) in words.split(' ').enumerate() {
            let (channel, day) = word.split_at(word.len() - 1);
            let text = format!("{{\"n\":{at},\"pad\":\"{}\"}}", "x".repeat(at * 7 % 50));
            let envelope = Envelope {
                message_id: None,
                sequence: None,
                exchange: Venue::new("okx").unwrap(),
                channel: Channel::new(channel).unwrap(),
                symbol: Symbol::new("BTC/USDT").unwrap(),
                server_time: None,
                received_at: UnixNs::from_ms(day.parse::<i64>().unwrap() * DAY_MS).unwrap(),
                payload: Payload::parse(text.as_bytes()).unwrap(),
                source: Source::INGEST,
            };
            draft.push(&envelope).unwrap();
        }
        draft
    }

    /// What the runs say, one word each: `trades0:5-6` are the records 5 and 6.
    pub(crate) fn told<'a>(runs: impl Iterator<Item = Run<'a>>) -> String {
        let word = |run: Run<'_>| {
            let (day, seqs) = (run.date().start().get() / DAY_MS, run.seqs());
            format!("{}{day}:{}-{}", run.stream().1, seqs.start, seqs.end - 1)
        };
        runs.map(word).collect::<Vec<_>>().join(" ")
    }

    fn frames(first_seq: u64, words: &str) -> Arc<Frames> {
        let mut bytes = draft(words).frames;
        frame::number_all(&mut bytes, &mut RecordId { spool: spool(), seq: first_seq });
        Arc::new(Frames::of(bytes))
    }

    #[test]
    fn a_run_ends_where_the_stream_or_the_date_changes() {
        let frames = frames(5, "trades0 trades0 books0 trades0 trades1 trades1");
        let all = "trades0:5-6 books0:7-7 trades0:8-8 trades1:9-10";
        assert_eq!(told(frames.runs(0..6)), all);
        assert_eq!(told(frames.runs(1..5)), "trades0:6-6 books0:7-7 trades0:8-8 trades1:9-9");
        assert_eq!(told(frames.runs(3..3)), "");
        for run in frames.runs(0..6) {
            for (seq, line) in run.lines() {
                let record = Record::read(frames.frame((seq - 5) as usize));
                assert_eq!((record.seq(), record.line()), (seq, line));
                assert_eq!((record.stream(), record.date()), (run.stream(), run.date()));
            }
        }
    }

    #[test]
    fn a_run_ends_where_a_number_is_left_out() {
        let mut bytes = frames(5, "trades0 trades0").bytes.clone();
        bytes.extend_from_slice(&frames(9, "trades0").bytes);
        assert_eq!(told(Frames::of(bytes).runs(0..3)), "trades0:5-6 trades0:9-9");
    }

    #[test]
    fn a_batch_takes_what_is_new_until_it_is_full() {
        let frames = frames(5, "trades0 trades0 books0 trades0 trades1 trades1");
        let end = frames.bytes.len();
        let line = |at: usize| frames.line(at).len();
        let check = |from: usize, after_seq, records_max, bytes_max, want: &str, stopped: usize| {
            let mut builder = BatchBuilder::new(spool());
            let start = frames.index.start(from);
            let (at, seq) = builder.take(&frames, start, after_seq, records_max, bytes_max);
            assert_eq!(at, frames.index.start(stopped), "{want}");
            let batch = builder.build();
            assert_eq!(told(batch.runs()), want);
            assert_eq!(seq, batch.iter().next_back().map_or(after_seq, |record| record.seq()));
            assert_eq!(batch.bytes(), batch.iter().map(|record| record.line().len()).sum::<usize>());
        };
        check(0, 0, 9, end, "trades0:5-6 books0:7-7 trades0:8-8 trades1:9-10", 6);
        check(2, 0, 9, end, "books0:7-7 trades0:8-8 trades1:9-10", 6);
        check(0, 5, 9, end, "trades0:6-6 books0:7-7 trades0:8-8 trades1:9-10", 6);
        check(0, 10, 9, end, "", 6);
        check(0, 0, 1, end, "trades0:5-5", 1);
        check(0, 7, 2, end, "trades0:8-8 trades1:9-9", 5);
        check(0, 0, 9, 1, "trades0:5-5", 1);
        check(0, 0, 9, line(0) + line(1), "trades0:5-6", 2);
        check(0, 0, 9, line(0) + line(1) + 1, "trades0:5-6 books0:7-7", 3);
    }

    #[test]
    fn a_batch_goes_on_without_the_records_that_were_refused() {
        let (first, second) = (frames(5, "trades0 trades0 books0"), frames(8, "books0 trades0"));
        let mut builder = BatchBuilder::new(spool());
        for frames in [&first, &second] {
            builder.take(frames, 0, 0, usize::MAX, usize::MAX);
        }
        let batch = builder.build().without(&[1, 3]);
        assert_eq!(told(batch.runs()), "trades0:5-5 books0:7-7 trades0:9-9");
        let seqs: Vec<u64> = batch.iter().map(|record| record.seq()).collect();
        assert_eq!((seqs.as_slice(), batch.len()), (&[5, 7, 9][..], 3));
        assert_eq!(batch.get(2).map(|record| record.seq()), Some(9));
        assert!(batch.get(3).is_none());
    }
}
