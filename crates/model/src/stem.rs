//! What the lines of one stream share, written once and copied into each: most of a line is the same as in the one before.

use crate::envelope::{LineParts, push_escaped, push_number};
use crate::{Channel, Envelope, Payload, RecordId, Source, Symbol, UnixMs, UnixNs, Venue};

/// The lines of one stream: those of a venue, channel and symbol.
#[derive(Debug, Clone)]
pub struct Stem {
    exchange: Venue,
    channel: Channel,
    symbol: Box<str>,
    /// `,"exchange":"…","channel":"…","symbol":"…","server_time_ms":`
    middle: Box<[u8]>,
    /// The symbol's place there, and its escaped length.
    symbol_at: usize,
    symbol_len: usize,
    /// Of the last line; neighbours often came together.
    received_at: Option<UnixNs>,
    source: Box<str>,
    /// `,"received_at_ms":…,"payload":`
    before_payload: Vec<u8>,
    /// `,"id":"000000000000-0000000000000000","received_at_ns":…,"source":"…"}` and the newline.
    end: Vec<u8>,
}

/// What a line of a stream has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// The venue's own id of the message, where it gives one.
    pub message_id: Option<&'a str>,
    /// The venue's sequence number, where it gives one.
    pub sequence: Option<u64>,
    /// The venue's time of the message, where it gives one.
    pub server_time: Option<UnixMs>,
    /// When it was read from the socket, before anything was parsed.
    pub received_at: UnixNs,
    /// The message.
    pub payload: Payload<'a>,
    /// How it reached us. What may not be a source is said to be the recorder's.
    pub source: &'a str,
}

const BEFORE_EXCHANGE: &str = r#","exchange":""#;
/// An id that is yet to be given.
const NO_ID: &[u8; RecordId::LEN] = b"000000000000-0000000000000000";

impl Stem {
    /// For a stream.
    pub fn new(exchange: Venue, channel: Channel, symbol: Symbol<'_>) -> Self {
        let mut middle = BEFORE_EXCHANGE.as_bytes().to_vec();
        middle.extend_from_slice(exchange.as_bytes());
        middle.extend_from_slice(Envelope::BEFORE_CHANNEL.as_bytes());
        middle.extend_from_slice(channel.as_bytes());
        middle.extend_from_slice(br#"","symbol":""#);
        let symbol_at = middle.len();
        push_escaped(symbol.as_str(), &mut middle);
        let symbol_len = middle.len() - symbol_at;
        middle.extend_from_slice(br#"","server_time_ms":"#);
        Self {
            exchange,
            channel,
            symbol: symbol.as_str().into(),
            middle: middle.into(),
            symbol_at,
            symbol_len,
            received_at: None,
            source: "".into(),
            before_payload: Vec::new(),
            end: Vec::new(),
        }
    }

    /// The venue and the channel.
    pub fn names(&self) -> (&Venue, &Channel) {
        (&self.exchange, &self.channel)
    }

    /// The line as an envelope. Its source is that of the last line written.
    pub fn envelope<'a>(&'a self, leaf: &Leaf<'a>) -> Envelope<'a> {
        Envelope {
            message_id: leaf.message_id,
            sequence: leaf.sequence,
            exchange: self.exchange,
            channel: self.channel,
            symbol: Symbol::already_checked(&self.symbol),
            server_time: leaf.server_time,
            received_at: leaf.received_at,
            payload: leaf.payload,
            source: Source::already_checked(&self.source),
        }
    }

    /// Appends a line, newline included, as [`Envelope::write_line`] does; but for the id, which is yet to be given and
    /// is all zeros.
    pub fn write_line(&mut self, leaf: &Leaf<'_>, out: &mut Vec<u8>) -> LineParts {
        if self.received_at != Some(leaf.received_at) || *self.source != *leaf.source {
            self.note(leaf.received_at, leaf.source);
        }
        let start = out.len();
        let mut number = itoa::Buffer::new();
        match leaf.message_id {
            Some(text) => {
                out.extend_from_slice(br#"{"message_id":""#);
                push_escaped(text, out);
                out.extend_from_slice(br#"","sequence":"#);
            }
            None => out.extend_from_slice(br#"{"message_id":null,"sequence":"#),
        }
        push_number(leaf.sequence.map(|n| number.format(n)), out);
        let middle = out.len() - start;
        out.extend_from_slice(&self.middle);
        push_number(leaf.server_time.map(|t| number.format(t.get())), out);
        out.extend_from_slice(&self.before_payload);
        let payload = out.len() - start;
        out.extend_from_slice(leaf.payload.as_bytes());
        let id = out.len() - start + Envelope::BEFORE_ID.len();
        out.extend_from_slice(&self.end);
        LineParts {
            exchange: middle + BEFORE_EXCHANGE.len(),
            symbol: middle + self.symbol_at,
            symbol_len: self.symbol_len,
            payload,
            id,
        }
    }

    /// Writes anew what hangs on these.
    fn note(&mut self, received_at: UnixNs, source: &str) {
        if *self.source != *source {
            self.source = Source::new(source).unwrap_or(Source::RECORDER).as_str().into();
        }
        self.received_at = Some(received_at);
        let mut number = itoa::Buffer::new();
        // Milliseconds are nanoseconds without their last six digits.
        let ns = number.format(received_at.get());
        let ms = ns.get(..ns.len().saturating_sub(6)).filter(|ms| !ms.is_empty()).unwrap_or("0");
        self.before_payload.clear();
        self.before_payload.extend_from_slice(br#","received_at_ms":"#);
        self.before_payload.extend_from_slice(ms.as_bytes());
        self.before_payload.extend_from_slice(br#","payload":"#);
        self.end.clear();
        self.end.extend_from_slice(Envelope::BEFORE_ID.as_bytes());
        self.end.extend_from_slice(NO_ID);
        self.end.extend_from_slice(br#"","received_at_ns":"#);
        self.end.extend_from_slice(ns.as_bytes());
        self.end.extend_from_slice(br#","source":""#);
        push_escaped(&self.source, &mut self.end);
        self.end.extend_from_slice(b"\"}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpoolId;
    use proptest::prelude::*;

    proptest! {
        /// Line after line of one stream, against the envelope's own.
        #[test]
        fn a_line_from_a_stem_is_the_envelopes_own(
            symbol in "[^\\p{Cc}]{1,20}",
            lines in prop::collection::vec(
                (prop::option::of(".{0,20}"), any::<Option<u64>>(), prop::option::of(0..1_u64 << 40), 0..4_i64, 0..3_usize),
                1..8,
            ),
        ) {
            let (exchange, channel) = (Venue::new("okx").unwrap(), Channel::new("trades").unwrap());
            let mut stem = Stem::new(exchange, channel, Symbol::new(&symbol).unwrap());
            for (message_id, sequence, server_time, at, source) in &lines {
                let source = ["ws:1", "ws:\"é\\", "poll"][*source];
                let leaf = Leaf {
                    message_id: message_id.as_deref(),
                    sequence: *sequence,
                    server_time: server_time.map(|ms| UnixMs::new(ms as i64).unwrap()),
                    received_at: UnixNs::new([0, 7, 1_000_000, 1_798_761_600_012_345_678][*at as usize]).unwrap(),
                    payload: Payload::parse(br#"{"a":1}"#).unwrap(),
                    source,
                };
                let (mut ours, mut theirs) = (b"before".to_vec(), b"before".to_vec());
                let parts = stem.write_line(&leaf, &mut ours);
                let envelope = Envelope { source: Source::new(source).unwrap(), ..stem.envelope(&leaf) };
                prop_assert_eq!(stem.envelope(&leaf), envelope);
                let id = RecordId { spool: SpoolId::new(0), seq: 0 };
                prop_assert_eq!(envelope.write_line(&id, &mut theirs), parts);
                prop_assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
            }
        }
    }

    #[test]
    fn what_is_no_source_is_the_recorders() {
        let mut stem = Stem::new(Venue::new("okx").unwrap(), Channel::new("trades").unwrap(), Symbol::ALL);
        let (received_at, payload) = (UnixNs::new(5).unwrap(), Payload::parse(b"{}").unwrap());
        let leaf =
            Leaf { message_id: None, sequence: None, server_time: None, received_at, payload, source: "\n" };
        let mut out = Vec::new();
        stem.write_line(&leaf, &mut out);
        assert!(out.ends_with(b"\"source\":\"catchment\"}\n"));
    }
}
