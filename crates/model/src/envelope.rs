//! The envelope: one message of one venue, and its line of JSON.
//!
//! A line is S1's eight keys, in S1's order, then ours:
//!
//! ```text
//! {"message_id":null,"sequence":7,"exchange":"binance","channel":"trades","symbol":"BTC/USDT",
//!  "server_time_ms":1798761600000,"received_at_ms":1798761600012,"payload":{…},
//!  "id":"0123456789ab-0000000000000001","received_at_ns":1798761600012345678,"source":"ws:1"}
//! ```
//!
//! The payload's bytes are spliced in as they came: nothing is parsed that nobody needs, nothing is written
//! differently from how it was received.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Channel, NameError, RecordId, Source, Symbol, TimeError, UnixMs, UnixNs, Venue};

/// One message of one venue, borrowed from wherever its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The venue's own id of the message, where it gives one.
    pub message_id: Option<&'a str>,
    /// The venue's sequence number, where it gives one.
    pub sequence: Option<u64>,
    /// Who said it.
    pub exchange: Venue,
    /// What kind of message it is.
    pub channel: Channel,
    /// What it is about.
    pub symbol: Symbol<'a>,
    /// The venue's time of the message, where it gives one.
    pub server_time: Option<UnixMs>,
    /// When it was read from the socket, before anything was parsed.
    pub received_at: UnixNs,
    /// The message.
    pub payload: Payload<'a>,
    /// How it reached us.
    pub source: Source<'a>,
}

/// Why a line is not an envelope.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the JSON of an envelope.
    #[error("{}", json_reason(.0))]
    Json(#[from] serde_json::Error),
    /// Some other JSON value, or none at all.
    #[error("an envelope is a JSON object, and this line does not start with '{{'")]
    NotAnObject,
    /// A name or text that may not stand in an envelope.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A time out of range.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A message id too long to be one.
    #[error("message_id has {0} bytes; at most {max} are taken", max = Envelope::MESSAGE_ID_MAX)]
    MessageId(usize),
    /// The two receive times are not the same instant.
    #[error("received_at_ns {ns} and received_at_ms {ms} are not the same millisecond")]
    TimesDiffer {
        /// As given.
        ns: i64,
        /// As given.
        ms: i64,
    },
}

/// serde_json's text without "at line 1": the line number a user needs is the one in their input.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line 1 column ") {
        Some((reason, column)) => format!("{reason} (column {column})"),
        None => text,
    }
}

/// Where the parts of a written line are, counted from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineParts {
    /// First byte of the exchange's name.
    pub exchange: usize,
    /// First byte of the symbol, escaped as JSON has it.
    pub symbol: usize,
    /// The symbol's escaped length.
    pub symbol_len: usize,
    /// First byte of the payload.
    pub payload: usize,
    /// First byte of the id.
    pub id: usize,
}

impl Envelope<'_> {
    /// The longest message id taken.
    pub const MESSAGE_ID_MAX: usize = 1_024;

    /// What stands between the exchange's name and the channel's; [`LineParts`] relies on it.
    pub const BEFORE_CHANNEL: &'static str = r#"","channel":""#;

    /// What stands between the payload and the id.
    pub const BEFORE_ID: &'static str = r#","id":""#;

    /// Appends the envelope as one line, newline included.
    pub fn write_line(&self, id: &RecordId, out: &mut Vec<u8>) -> LineParts {
        let start = out.len();
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(br#"{"message_id":"#);
        match self.message_id {
            Some(text) => {
                out.push(b'"');
                push_escaped(text, out);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","sequence":"#);
        push_number(self.sequence.map(|n| number.format(n)), out);
        out.extend_from_slice(br#","exchange":""#);
        let exchange = out.len() - start;
        out.extend_from_slice(self.exchange.as_bytes());
        out.extend_from_slice(Self::BEFORE_CHANNEL.as_bytes());
        out.extend_from_slice(self.channel.as_bytes());
        out.extend_from_slice(br#"","symbol":""#);
        let symbol = out.len() - start;
        push_escaped(self.symbol.as_str(), out);
        let symbol_len = out.len() - start - symbol;
        out.extend_from_slice(br#"","server_time_ms":"#);
        push_number(self.server_time.map(|t| number.format(t.get())), out);
        out.extend_from_slice(br#","received_at_ms":"#);
        // Milliseconds are nanoseconds without their last six digits.
        let ns = number.format(self.received_at.get());
        push_number(
            Some(ns.get(..ns.len().saturating_sub(6)).filter(|ms| !ms.is_empty()).unwrap_or("0")),
            out,
        );
        out.extend_from_slice(br#","payload":"#);
        let payload = out.len() - start;
        out.extend_from_slice(self.payload.0);
        out.extend_from_slice(Self::BEFORE_ID.as_bytes());
        let id_at = out.len() - start;
        out.extend_from_slice(&id.text());
        out.extend_from_slice(br#"","received_at_ns":"#);
        push_number(Some(ns), out);
        out.extend_from_slice(br#","source":""#);
        push_escaped(self.source.as_str(), out);
        out.extend_from_slice(b"\"}\n");
        LineParts { exchange, symbol, symbol_len, payload, id: id_at }
    }
}

pub(crate) fn push_number(text: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(text.unwrap_or("null").as_bytes());
}

/// Appends the inside of a JSON string. Almost every symbol needs no escape and is copied.
pub(crate) fn push_escaped(text: &str, out: &mut Vec<u8>) {
    let odd = |b: u8| b < 0x20 || b == b'"' || b == b'\\';
    // Looking at all of them without stopping takes several at a time.
    if !text.bytes().fold(false, |any, b| any | odd(b)) {
        return out.extend_from_slice(text.as_bytes());
    }
    let quoted = serde_json::to_string(text).expect("text always serialises");
    out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
}

/// A message as raw JSON: one value, valid, on one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a>(&'a [u8]);

/// Why bytes are not a payload.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// Not one JSON value.
    #[error("the payload is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but spread over lines, so it cannot be kept as it is on one.
    #[error("the payload holds a line break at byte {0}")]
    LineBreak(usize),
}

impl<'a> Payload<'a> {
    /// Checks that the bytes are one JSON value, in UTF-8, on one line. Numbers are not read, nesting costs no stack.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PayloadError> {
        let raw: &RawValue = serde_json::from_slice(bytes)?;
        match memchr::memchr(b'\n', raw.get().as_bytes()) {
            Some(at) => Err(PayloadError::LineBreak(at)),
            None => Ok(Self(raw.get().as_bytes())),
        }
    }

    /// Takes bytes that a strict reader has already been through. A line break would tear the archive, so that one
    /// thing is looked for all the same.
    pub fn already_validated(bytes: &'a [u8]) -> Result<Self, PayloadError> {
        debug_assert!(serde_json::from_slice::<&RawValue>(bytes).is_ok(), "the caller has validated it");
        match memchr::memchr(b'\n', bytes) {
            Some(at) => Err(PayloadError::LineBreak(at)),
            None => Ok(Self(bytes)),
        }
    }

    /// Takes bytes that were written on one line by a reader that has validated them: nothing is looked for.
    pub fn written_on_one_line(bytes: &'a [u8]) -> Self {
        debug_assert!(Self::parse(bytes).is_ok(), "the caller has written it so");
        Self(bytes)
    }

    /// The bytes, as received.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// An envelope read from a line of JSON. Holds the few texts that had to be unescaped; the rest is borrowed.
#[derive(Debug)]
pub struct EnvelopeLine<'a> {
    wire: Wire<'a>,
    exchange: Venue,
    channel: Channel,
    server_time: Option<UnixMs>,
    received_at: Option<UnixNs>,
    id: Option<RecordId>,
}

/// The keys as they stand on the line. An unknown key is an error: what is not stored would be lost without a word.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow, default)]
    message_id: Option<Text<'a>>,
    #[serde(default)]
    sequence: Option<u64>,
    #[serde(borrow)]
    exchange: Text<'a>,
    #[serde(borrow)]
    channel: Text<'a>,
    #[serde(borrow)]
    symbol: Text<'a>,
    #[serde(default)]
    server_time_ms: Option<i64>,
    #[serde(default)]
    received_at_ms: Option<i64>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default)]
    received_at_ns: Option<i64>,
    #[serde(borrow, default)]
    source: Option<Text<'a>>,
}

/// Text that is borrowed unless it was escaped. (serde borrows a bare `Cow`, but not one inside an `Option`.)
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> EnvelopeLine<'a> {
    /// Reads one line, without its newline. The payload is checked to be JSON and otherwise left alone.
    pub fn parse(line: &'a [u8]) -> Result<Self, EnvelopeError> {
        // serde would also take an array of the fields in order.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(EnvelopeError::NotAnObject);
        }
        let wire: Wire<'a> = serde_json::from_slice(line)?;
        let exchange = Venue::new(&wire.exchange.0)?;
        let channel = Channel::new(&wire.channel.0)?;
        Symbol::new(&wire.symbol.0)?;
        if let Some(Text(source)) = &wire.source {
            Source::new(source)?;
        }
        if let Some(Text(id)) = wire.message_id.as_ref().filter(|t| t.0.len() > Envelope::MESSAGE_ID_MAX) {
            return Err(EnvelopeError::MessageId(id.len()));
        }
        let server_time = wire.server_time_ms.map(UnixMs::new).transpose()?;
        let received_at = match (wire.received_at_ms, wire.received_at_ns) {
            (Some(ms), None) => Some(UnixNs::from_ms(ms)?),
            (None, Some(ns)) => Some(UnixNs::new(ns)?),
            (Some(ms), Some(ns)) => {
                let at = UnixNs::new(ns)?;
                if at.ms().get() != ms {
                    return Err(EnvelopeError::TimesDiffer { ns, ms });
                }
                Some(at)
            }
            (None, None) => None,
        };
        let id = wire.id.as_ref().and_then(|Text(id)| id.parse().ok());
        Ok(Self { wire, exchange, channel, server_time, received_at, id })
    }

    /// The id on the line, if it is one of ours.
    pub fn id(&self) -> Option<RecordId> {
        self.id
    }

    /// When the line says it was received.
    pub fn received_at(&self) -> Option<UnixNs> {
        self.received_at
    }

    /// The envelope. A line that says nothing of its receive time or source gets `now` and `ingest`.
    pub fn envelope(&self, now: UnixNs) -> Envelope<'_> {
        Envelope {
            message_id: self.wire.message_id.as_ref().map(|t| &*t.0),
            sequence: self.wire.sequence,
            exchange: self.exchange,
            channel: self.channel,
            symbol: Symbol::new(&self.wire.symbol.0).expect("checked when the line was read"),
            server_time: self.server_time,
            received_at: self.received_at.unwrap_or(now),
            payload: Payload(self.wire.payload.get().as_bytes()),
            source: match &self.wire.source {
                Some(Text(source)) => Source::new(source).expect("checked when the line was read"),
                None => Source::INGEST,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpoolId;
    use proptest::prelude::*;

    const ID: &str = "0123456789ab-0000000000000001";

    fn line(payload: &str) -> String {
        format!(
            r#"{{"message_id":null,"sequence":7,"exchange":"binance","channel":"trades","symbol":"BTC/USDT","server_time_ms":null,"received_at_ms":1798761600012,"payload":{payload},"id":"{ID}","received_at_ns":1798761600012345678,"source":"ws:1"}}"#
        )
    }

    fn written(line: &str) -> String {
        let parsed = EnvelopeLine::parse(line.as_bytes()).unwrap();
        let mut out = Vec::new();
        parsed.envelope(UnixNs::from_ms(0).unwrap()).write_line(&ID.parse().unwrap(), &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_read_and_written_is_the_same_line() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for payload in [
            r#"{"p":"0.010","q":1e999}"#,
            r#"[ 1 , -0.0, 123456789012345678901234567890.10 ]"#,
            r#""caf\u00e9 \ud83d""#,
            "null",
            &deep,
        ] {
            let line = line(payload);
            assert_eq!(written(&line), line);
        }
    }

    #[test]
    fn the_parts_of_a_line_are_where_they_are_said_to_be() {
        let payload = br#"{"a":1}"#;
        let envelope = Envelope {
            message_id: Some("x\"y"),
            sequence: None,
            exchange: Venue::new("okx").unwrap(),
            channel: Channel::new("trades").unwrap(),
            symbol: Symbol::new("A\\B").unwrap(),
            server_time: None,
            received_at: UnixNs::from_ms(5).unwrap(),
            payload: Payload::parse(payload).unwrap(),
            source: Source::INGEST,
        };
        let mut out = b"earlier".to_vec();
        let parts = envelope.write_line(&ID.parse().unwrap(), &mut out);
        let line = &out[7..];
        assert_eq!(&line[parts.exchange..][..3], b"okx");
        assert_eq!(&line[parts.exchange + 3 + Envelope::BEFORE_CHANNEL.len()..][..6], b"trades");
        assert_eq!(&line[parts.symbol..][..parts.symbol_len], br"A\\B");
        assert_eq!(&line[parts.payload..][..payload.len()], payload);
        assert_eq!(&line[parts.id..][..RecordId::LEN], ID.as_bytes());
        assert_eq!(
            EnvelopeLine::parse(&line[..line.len() - 1]).unwrap().envelope(UnixNs::from_ms(0).unwrap()),
            envelope
        );
    }

    #[test]
    fn what_is_not_an_envelope_is_refused_with_the_reason() {
        let check = |line: &str, reason: &str| {
            let error = EnvelopeLine::parse(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(reason), "{line} gave {error:?}, expected {reason:?}");
        };
        check("", "does not start with '{'");
        check("hello", "does not start with '{'");
        check("[null,7,\"a\",\"b\",\"c\",null,1,{},null,null,null]", "does not start with '{'");
        check("{hello", "key must be a string (column 2)");
        check("{}", "missing field `exchange`");
        check(&line("1").replace("ws:1\"}", ""), "EOF while parsing");
        check(&line("1").replace("\"source\"", "\"sauce\""), "unknown field `sauce`");
        check(&line("1").replace("binance", "../../etc"), "venue \"../../etc\" may hold only");
        check(&line("1").replace("BTC/USDT", ""), "symbol must have 1 to 256 bytes");
        check(&line("1").replace("1798761600012,", "1798761600013,"), "not the same millisecond");
        check(&line("1").replace(":7,", ":-7,"), "invalid value: integer `-7`, expected u64");
        check(
            &line("1").replace("null,\"sequence", &format!("\"{}\",\"sequence", "x".repeat(2000))),
            "message_id has 2000",
        );
        check(
            &line("1").replace("\"sequence\":7", "\"sequence\":7,\"sequence\":7"),
            "duplicate field `sequence`",
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_whole() {
        let mut bytes = line(r#""abc""#).into_bytes();
        let at = bytes.windows(3).position(|w| w == b"abc").unwrap();
        bytes[at] = 0xff;
        assert!(EnvelopeLine::parse(&bytes).is_err());
        assert!(Payload::parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn a_payload_is_one_value_on_one_line() {
        assert!(matches!(Payload::parse(b"{\n}"), Err(PayloadError::LineBreak(1))));
        assert!(matches!(Payload::already_validated(b"{\n}"), Err(PayloadError::LineBreak(1))));
        assert!(matches!(Payload::parse(b"{} {}"), Err(PayloadError::Json(_))));
        assert_eq!(Payload::parse(b" {} ").unwrap().as_bytes(), b"{}");
    }

    proptest! {
        #[test]
        fn any_text_survives_the_line(message_id in ".{0,40}", symbol in "[^\\p{Cc}]{1,40}", source in "[^\\p{Cc}]{1,20}", sequence: Option<u64>, ns in 0..i64::MAX, seq: u64) {
            let envelope = Envelope {
                message_id: Some(&message_id),
                sequence,
                exchange: Venue::new("okx").unwrap(),
                channel: Channel::new("trades").unwrap(),
                symbol: Symbol::new(&symbol).unwrap(),
                server_time: None,
                received_at: UnixNs::new(ns).unwrap(),
                payload: Payload::parse(b"{}").unwrap(),
                source: Source::new(&source).unwrap(),
            };
            let id = RecordId { spool: SpoolId::new(seq), seq };
            let mut out = Vec::new();
            envelope.write_line(&id, &mut out);
            prop_assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
            let parsed = EnvelopeLine::parse(&out[..out.len() - 1]).unwrap();
            prop_assert_eq!(parsed.envelope(UnixNs::from_ms(0).unwrap()), envelope);
            prop_assert_eq!(parsed.id(), Some(id));
        }
    }
}
