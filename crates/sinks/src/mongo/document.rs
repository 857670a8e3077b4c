//! A record as a MongoDB document, and back.
//!
//! ```text
//! { _id: "0123456789ab-0000000000000001",        the record's id
//!   message_id: null, sequence: 7, exchange: "binance", channel: "trades", symbol: "BTC/USDT",
//!   server_time_ms: 1798761600000, received_at_ms: 1798761600012,
//!   payload: { p: "64250.10", q: 0.010 },        a document, so that it can be queried
//!   payload_text: "{ \"p\": …",                  only where `payload` cannot give back the very bytes
//!   received_at_ns: 1798761600012345678, source: "ws:1" }
//! ```
//!
//! The document is written from the record's line in one pass. [`line_of`] turns it into the line again, byte for byte:
//! whoever compares or exports reads what was received, not something like it. A payload that BSON cannot hold (nested
//! too deep, a NUL in a key, too large as a document) is `null` with its text in `payload_text`.

use catchment_model::RecordId;
use catchment_pipeline::Record;
use mongodb::bson::{RawArray, RawBsonRef, RawDocument};

use super::json::{self, Json, NULL, STRING, Unfit};
use super::number;

/// The largest document MongoDB takes.
pub(super) const DOCUMENT_MAX: usize = 16 << 20;

/// The keys before the payload: what stands before each value on the line, and the key as BSON has it.
static BEFORE_PAYLOAD: [(&[u8], &[u8]); 7] = [
    (br#"{"message_id":"#, b"message_id\0"),
    (br#","sequence":"#, b"sequence\0"),
    (br#","exchange":"#, b"exchange\0"),
    (br#","channel":"#, b"channel\0"),
    (br#","symbol":"#, b"symbol\0"),
    (br#","server_time_ms":"#, b"server_time_ms\0"),
    (br#","received_at_ms":"#, b"received_at_ms\0"),
];

/// And those after it.
static AFTER_PAYLOAD: [(&[u8], &[u8]); 2] =
    [(br#","received_at_ns":"#, b"received_at_ns\0"), (br#","source":"#, b"source\0")];

/// Appends the record's document. If it can be none, says why and leaves `out` as it was.
pub(super) fn push(record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    let mut written = push_as(record, Form::Document, out);
    if written.is_err() || out.len() - start > DOCUMENT_MAX {
        out.truncate(start);
        written = push_as(record, Form::Text, out);
    }
    let len = out.len() - start;
    let refused = match written {
        Ok(()) if len <= DOCUMENT_MAX => return Ok(()),
        Ok(()) => format!("its document would have {len} bytes, and MongoDB takes at most {DOCUMENT_MAX}"),
        Err(unfit) => format!("its line cannot be read as an envelope's ({unfit:?})"),
    };
    out.truncate(start);
    Err(refused)
}

/// How the payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As a value, and as text where the value is not enough.
    Document,
    /// As text alone.
    Text,
}

fn push_as(record: &Record<'_>, form: Form, out: &mut Vec<u8>) -> Result<(), Unfit> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(b"\x02_id\0");
    json::push_string(&record.id().text(), out);
    let mut line = Json::new(record.line(), usize::MAX);
    for field in &BEFORE_PAYLOAD {
        push_field(&mut line, field, out)?;
    }
    line.pass(br#","payload":"#)?;
    let payload = line.take(record.payload().len())?;
    push_payload(payload, form, out)?;
    line.pass(br#","id":""#)?;
    line.take(RecordId::LEN)?;
    line.pass(b"\"")?;
    for field in &AFTER_PAYLOAD {
        push_field(&mut line, field, out)?;
    }
    line.pass(b"}\n")?;
    json::close(out, start)
}

fn push_field(line: &mut Json<'_>, (before, key): &(&[u8], &[u8]), out: &mut Vec<u8>) -> Result<(), Unfit> {
    line.pass(before)?;
    let kind = out.len();
    out.push(NULL);
    out.extend_from_slice(key);
    out[kind] = line.value(out)?;
    Ok(())
}

fn push_payload(payload: &[u8], form: Form, out: &mut Vec<u8>) -> Result<(), Unfit> {
    let kind = out.len();
    out.push(NULL);
    out.extend_from_slice(b"payload\0");
    if form == Form::Document {
        let mut json = Json::new(payload, out.len() + DOCUMENT_MAX);
        out[kind] = json.value(out)?;
        if !json.is_at_end() {
            return Err(Unfit::NotJson);
        }
        if json.is_exact() {
            return Ok(());
        }
    }
    out.push(STRING);
    out.extend_from_slice(b"payload_text\0");
    json::push_string(payload, out);
    Ok(())
}

/// A document that is no record of ours.
#[derive(Debug, thiserror::Error)]
#[error("not a record: {0}")]
pub struct NotARecord(String);

impl NotARecord {
    fn key(key: &str) -> Self {
        Self(format!("{key} is missing or of another type"))
    }
}

/// The line of the record a document holds, newline included. Fields that are not ours are left out.
pub fn line_of(document: &RawDocument) -> Result<Vec<u8>, NotARecord> {
    let mut out = Vec::with_capacity(document.as_bytes().len());
    for (before, key) in &BEFORE_PAYLOAD {
        write_field(document, before, key, &mut out)?;
    }
    out.extend_from_slice(br#","payload":"#);
    match document.get_str("payload_text") {
        Ok(text) => out.extend_from_slice(text.as_bytes()),
        Err(_) => write_value(field(document, "payload")?, &mut out, 0)?,
    }
    let id = document.get_str("_id").map_err(|_| NotARecord::key("_id"))?;
    out.extend_from_slice(br#","id":""#);
    out.extend_from_slice(id.as_bytes());
    out.push(b'"');
    for (before, key) in &AFTER_PAYLOAD {
        write_field(document, before, key, &mut out)?;
    }
    out.extend_from_slice(b"}\n");
    Ok(out)
}

fn field<'a>(document: &'a RawDocument, key: &str) -> Result<RawBsonRef<'a>, NotARecord> {
    document.get(key).ok().flatten().ok_or_else(|| NotARecord::key(key))
}

fn write_field(
    document: &RawDocument,
    before: &[u8],
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), NotARecord> {
    let key = std::str::from_utf8(&key[..key.len() - 1]).expect("our keys are text");
    out.extend_from_slice(before);
    write_value(field(document, key)?, out, 0)
}

/// Levels read back at most; no server stores more than 200.
const LEVELS_MAX: u32 = 256;

fn write_value(value: RawBsonRef<'_>, out: &mut Vec<u8>, level: u32) -> Result<(), NotARecord> {
    if level > LEVELS_MAX {
        return Err(NotARecord("it is nested too deep".to_owned()));
    }
    match value {
        RawBsonRef::Null => out.extend_from_slice(b"null"),
        RawBsonRef::Boolean(yes) => out.extend_from_slice(if yes { b"true" } else { b"false" }),
        RawBsonRef::Int32(whole) => out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes()),
        RawBsonRef::Int64(whole) => out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes()),
        RawBsonRef::Decimal128(decimal) => {
            if !number::write_decimal(decimal.bytes(), out) {
                return Err(NotARecord("a number in it has no digits".to_owned()));
            }
        }
        RawBsonRef::String(text) => write_quoted(text, out),
        RawBsonRef::Document(document) => write_object(document, out, level)?,
        RawBsonRef::Array(array) => write_array(array, out, level)?,
        other => {
            let kind = other.element_type();
            return Err(NotARecord(format!("it holds a {kind:?}, which JSON does not have")));
        }
    }
    Ok(())
}

fn write_object(document: &RawDocument, out: &mut Vec<u8>, level: u32) -> Result<(), NotARecord> {
    out.push(b'{');
    for (at, element) in document.iter().enumerate() {
        let (key, value) = element.map_err(|error| NotARecord(error.to_string()))?;
        if at > 0 {
            out.push(b',');
        }
        write_quoted(key.as_str(), out);
        out.push(b':');
        write_value(value, out, level + 1)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_array(array: &RawArray, out: &mut Vec<u8>, level: u32) -> Result<(), NotARecord> {
    out.push(b'[');
    for (at, element) in array.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(element.map_err(|error| NotARecord(error.to_string()))?, out, level + 1)?;
    }
    out.push(b']');
    Ok(())
}

fn write_quoted(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text always serialises");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{NOON_MS, plain, spool};
    use catchment_model::{Envelope, Payload};
    use catchment_pipeline::Batch;
    use proptest::prelude::*;
    use serde_json::Value;

    /// The document of a record with this payload, as another reader of BSON sees it.
    fn document(payload: &str) -> (Batch, Vec<u8>) {
        let payload = Payload::parse(payload.as_bytes()).unwrap();
        let batch = Batch::of(spool(), 1, &[Envelope { payload, ..plain("okx", "trades", NOON_MS) }]);
        let mut out = b"before".to_vec();
        push(&batch.get(0).unwrap(), &mut out).unwrap();
        let bytes = out.split_off(6);
        mongodb::bson::Document::try_from(RawDocument::from_bytes(&bytes).unwrap()).unwrap();
        (batch, bytes)
    }

    /// JSON as anybody might write it: blanks, needless escapes, numbers of every kind.
    fn json() -> impl Strategy<Value = String> {
        let number = "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?";
        let inside = "([a-z \u{e9}\u{1f30a}\u{7f}$.]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}){0,12}";
        let string = move || inside.prop_map(|text| format!("\"{text}\""));
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            number.prop_map(|text| text),
            string(),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            let blank = prop_oneof![9 => Just(""), 1 => Just(" "), 1 => Just("\t")];
            let items = prop::collection::vec(inner.clone(), 0..6);
            let fields = prop::collection::vec((string(), inner), 0..6);
            prop_oneof![
                (items, blank.clone())
                    .prop_map(|(items, blank)| format!("[{}{blank}]", items.join(&format!(",{blank}")))),
                (fields, blank).prop_map(|(fields, blank)| {
                    let fields: Vec<_> =
                        fields.iter().map(|(key, value)| format!("{key}{blank}:{value}")).collect();
                    format!("{{{blank}{}}}", fields.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_line_comes_back_byte_for_byte_and_the_value_means_the_same(text in json()) {
            let (batch, bytes) = document(&text);
            let stored = RawDocument::from_bytes(&bytes).unwrap();
            let line = line_of(stored).unwrap();
            prop_assert_eq!(line.as_slice(), batch.get(0).unwrap().line());
            let has_text = stored.get_str("payload_text").is_ok();
            let mut shown = Vec::new();
            let value = stored.get("payload").unwrap().unwrap();
            write_value(value, &mut shown, 0).unwrap();
            prop_assert!(has_text || shown == text.as_bytes());
            // Halves of pairs have no text, and serde does not read them; the rest it does. Large numbers became text.
            let (Ok(Value::Object(_) | Value::Array(_)), false) = (serde_json::from_str(&text), text.contains("\\u")) else {
                return Ok(());
            };
            let shown: Value = serde_json::from_slice(&shown).unwrap();
            let meant: Value = serde_json::from_str(&text).unwrap();
            prop_assert!(is_alike(&shown, &meant), "{text} became {shown}");
        }

        #[test]
        fn what_is_no_json_is_an_error_and_nothing_worse(bytes in prop::collection::vec(prop_oneof![
            Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b'"'), Just(b'\\'), Just(b','), Just(b':'), Just(b'u'),
            Just(b'1'), Just(b'-'), Just(b'e'), Just(b't'), any::<u8>(),
        ], 0..40)) {
            let mut out = Vec::new();
            let _ = Json::new(&bytes, usize::MAX).value(&mut out);
        }
    }

    /// Equal, where a number that was too long may have become its text.
    fn is_alike(shown: &Value, meant: &Value) -> bool {
        match (shown, meant) {
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_alike(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && is_alike(a, b))
            }
            (Value::String(text), Value::Number(b)) => text.parse::<f64>().is_ok_and(|a| is_near(a, b)),
            (Value::Number(a), Value::Number(b)) => a.as_f64().is_some_and(|a| is_near(a, b)),
            (a, b) => a == b,
        }
    }

    /// serde reads long numbers to the last bit but one.
    fn is_near(a: f64, b: &serde_json::Number) -> bool {
        b.as_f64().is_some_and(|b| (a - b).abs() <= 1e-12 * b.abs())
    }

    #[test]
    fn a_document_that_is_no_record_is_named_so() {
        let check = |document: mongodb::bson::Document, reason: &str| {
            let raw = mongodb::bson::RawDocumentBuf::try_from(&document).unwrap();
            assert_eq!(line_of(&raw).unwrap_err().to_string(), format!("not a record: {reason}"));
        };
        check(mongodb::bson::doc! {}, "message_id is missing or of another type");
        check(mongodb::bson::doc! { "message_id": 1.5 }, "it holds a Double, which JSON does not have");
    }
}
