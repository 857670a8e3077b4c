//! Reading JSON without trusting it: an object as its members, each value as the text it was sent as.
//!
//! Numbers are taken from their text, never through floating point. Venues send the same value now as a number and now
//! as a string; both are taken.

use std::borrow::Cow;
use std::fmt;

use catchment_model::{Decimal, Level, UnixMs};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::ReadError;

/// Looking for duplicates takes time by the square of the members, so there is an end to them. Gamma's markets have about
/// a hundred.
const MEMBERS_MAX: usize = 1_024;

/// The members of an object, in the order of the wire, their values unread.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// A member that is there and not null.
    pub(crate) fn some(&self, key: &str) -> Option<&'a RawValue> {
        self.get(key).filter(|value| value.get() != "null")
    }

    pub(crate) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.some(key).and_then(text)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)?.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    pub(crate) fn decimal(&self, key: &str) -> Option<Decimal> {
        self.text(key)?.parse().ok()
    }

    /// The text of a member that must be there and say something.
    pub(crate) fn required(&self, key: &str) -> Result<Cow<'a, str>, String> {
        match self.text(key) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(format!("{key} is missing or not a text")),
        }
    }

    /// Members besides these.
    pub(crate) fn others<'b>(&'b self, known: &'b [&str]) -> impl Iterator<Item = (&'b str, &'a RawValue)> {
        self.0.iter().filter(|(key, _)| !known.contains(&&**key)).map(|(key, value)| (&**key, *value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Collect<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'a>, M::Error> {
                let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::new();
                while let Some(Name(key)) = map.next_key()? {
                    // Two values under one name: nobody can say which one counts.
                    if members.iter().any(|(name, _)| *name == key) {
                        return Err(serde::de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                    if members.len() == MEMBERS_MAX {
                        return Err(serde::de::Error::custom("more members than any venue's object has"));
                    }
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect(std::marker::PhantomData))
    }
}

/// A key, borrowed unless it was escaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string's text or a number's digits; nothing for anything else.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match raw.get().as_bytes()[0] {
        b'"' => serde_json::from_str::<Name<'_>>(raw.get()).ok().map(|name| name.0),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(raw.get())),
        _ => None,
    }
}

/// A price or size, with its key for the reason.
pub(crate) fn decimal(raw: Option<&RawValue>, key: &str) -> Result<Decimal, String> {
    let raw = raw.ok_or_else(|| format!("a level has no {key}"))?;
    text(raw)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{key} {} is not a decimal number", shortened(raw.get())))
}

/// The levels of a side that are objects with `price` and `size`; an absent side is not an empty one. The flag says
/// whether a level had more members than that.
pub(crate) fn levels(
    raw: Option<&RawValue>,
    key: &str,
    known: &[&str],
) -> Result<(Vec<Level>, bool), String> {
    let raw = raw.ok_or_else(|| format!("{key} is missing"))?;
    let wire: Vec<Members<'_>> =
        serde_json::from_str(raw.get()).map_err(|error| format!("{key}: {error}"))?;
    let more = wire.iter().any(|level| level.others(known).next().is_some());
    let read = |level: Members<'_>| {
        let (price, size) = (decimal(level.get("price"), "price")?, decimal(level.get("size"), "size")?);
        Ok(Level { price, size })
    };
    Ok((wire.into_iter().map(read).collect::<Result<_, String>>()?, more))
}

/// Reads a body that must be one object.
pub(crate) fn object(body: &[u8]) -> Result<Members<'_>, ReadError> {
    match body.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => ReadError::Shape(error.to_string()),
            _ => ReadError::not_json(body, error),
        }),
        _ => match serde_json::from_slice::<&RawValue>(body) {
            Ok(_) => Err(ReadError::Shape("it is not an object".to_owned())),
            Err(error) => Err(ReadError::not_json(body, error)),
        },
    }
}

/// Why an object is not what was expected: the venue's own words, or the shape.
pub(crate) fn unexpected(answer: &Members<'_>, shape: &str) -> ReadError {
    match answer.text("message").or_else(|| answer.text("error")) {
        Some(said) => ReadError::Said(shortened(&said)),
        None => ReadError::Shape(shape.to_owned()),
    }
}

/// The elements of an array, unread.
pub(crate) fn array<'a>(raw: &'a RawValue, key: &str) -> Result<Vec<&'a RawValue>, ReadError> {
    serde_json::from_str(raw.get()).map_err(|_| ReadError::Shape(format!("{key} is not an array")))
}

/// A time as venues write it: RFC 3339, or with a space and a short offset: `2026-05-24 05:25:46+00`.
pub(crate) fn time(text: &str) -> Option<UnixMs> {
    let at: jiff::Timestamp = text.parse().ok()?;
    UnixMs::new(at.as_millisecond()).ok()
}

/// A whole number, of digits only.
pub(crate) fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Copies JSON on one line: line breaks between tokens become spaces. Within strings JSON has none.
pub(crate) fn push_on_one_line(json: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(json);
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
