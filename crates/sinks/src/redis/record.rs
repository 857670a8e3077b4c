//! From a record of the pipeline to what is kept of it.
//!
//! A book (channel `orderbook`, or any payload with `bids` and `asks`) becomes the six fields of a book, its sides as they
//! stand in the payload. Its time is the venue's, or else when it was received; its hash the venue's, or else one made from
//! the time and both sides. Any other record becomes `payload` and `id`, with the id as its hash: ids of one spool grow.

use std::borrow::Cow;

use catchment_pipeline::Record;
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

use super::latest::{BookParts, Entry};

/// The keys of a book that are of interest, normalised or as Polymarket sends them. Others may stand beside them.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    bids: &'a RawValue,
    #[serde(borrow)]
    asks: &'a RawValue,
    #[serde(borrow, default)]
    market: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    hash: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    timestamp_ms: Option<&'a RawValue>,
}

/// What is kept of a book, its sides as they stand in the payload.
#[derive(Debug, Clone)]
pub struct BookFields<'a> {
    market: Cow<'a, str>,
    hash: Cow<'a, str>,
    timestamp: Cow<'a, str>,
    bids: &'a RawValue,
    asks: &'a RawValue,
    updated_at: i64,
}

impl<'a> BookFields<'a> {
    /// Reads a book's payload that was received at this time, in milliseconds. Nothing if it is no book.
    pub fn read(payload: &'a [u8], received_at: i64) -> Option<Self> {
        // A list would pass for an object without names.
        if payload.first() != Some(&b'{') {
            return None;
        }
        let book: Wire<'a> = serde_json::from_slice(payload).ok()?;
        let timestamp = book.time().unwrap_or_else(|| received_at.to_string().into());
        let hash = match book.hash {
            Some(hash) if !hash.is_empty() => hash,
            _ => made_hash(&timestamp, book.bids, book.asks).into(),
        };
        let market = book.market.unwrap_or_default();
        Some(Self { market, hash, timestamp, bids: book.bids, asks: book.asks, updated_at: received_at })
    }

    /// As a snapshot under this name.
    pub fn entry<'e>(&'e self, name: &'e str) -> Entry<'e> {
        let (bids, asks) = (self.bids.get().as_bytes(), self.asks.get().as_bytes());
        let parts = BookParts { market: &self.market, bids, asks };
        Entry::book(name, &self.hash, &self.timestamp, self.updated_at, parts)
    }
}

impl<'a> Wire<'a> {
    fn time(&self) -> Option<Cow<'a, str>> {
        let raw = self.timestamp.or(self.timestamp_ms)?.get();
        match raw.as_bytes() {
            [b'"', inside @ .., b'"'] if !inside.contains(&b'\\') => {
                Some(Cow::Borrowed(&raw[1..raw.len() - 1]))
            }
            [b'0'..=b'9', ..] => Some(Cow::Borrowed(raw)),
            _ => None,
        }
    }
}

/// What is kept of a record.
pub(crate) struct Kept<'a> {
    name: Cow<'a, str>,
    venue: &'a str,
    body: Body<'a>,
}

enum Body<'a> {
    Book(BookFields<'a>),
    Other { payload: &'a [u8], id: String, time: String, updated_at: i64, line: Option<&'a [u8]> },
}

impl<'a> Kept<'a> {
    pub(crate) fn of(record: &Record<'a>, names: &Names, keep_line: bool) -> Self {
        let symbol = unescaped(record.symbol_escaped());
        let name = names.name(record, symbol);
        let updated_at = record.received_at().ms().get();
        let payload = record.payload();
        let body = match BookFields::read(payload, updated_at) {
            Some(book) => Body::Book(book),
            None => Body::Other {
                payload,
                id: record.id().to_string(),
                time: record.received_at().get().to_string(),
                updated_at,
                line: keep_line.then(|| record.line()),
            },
        };
        Self { name, venue: record.exchange(), body }
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        match &self.body {
            Body::Book(book) => book.entry(&self.name).of_venue(self.venue),
            Body::Other { payload, id, time, updated_at, line } => {
                let line = line.map(|line| ("line", line));
                let fields = [Some(("payload", *payload)), Some(("id", id.as_bytes())), line];
                let (name, venue, updated_at) = (&*self.name, self.venue, *updated_at);
                Entry { name, venue, hash: id, timestamp: time, updated_at, fields }
            }
        }
    }
}

/// What stands behind the prefix in a key: `{symbol}`, `{venue}` and `{channel}` are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(pub String);

impl Names {
    fn name<'a>(&self, record: &Record<'a>, symbol: Cow<'a, str>) -> Cow<'a, str> {
        if self.0 == "{symbol}" {
            return symbol;
        }
        let mut name = String::with_capacity(self.0.len() + symbol.len());
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('{') {
            name.push_str(&rest[..at]);
            rest = &rest[at..];
            let parts =
                [("{symbol}", &*symbol), ("{venue}", record.exchange()), ("{channel}", record.channel())];
            let (taken, text) = match parts.iter().find(|(part, _)| rest.starts_with(part)) {
                Some((part, text)) => (part.len(), *text),
                None => (1, "{"),
            };
            name.push_str(text);
            rest = &rest[taken..];
        }
        name.push_str(rest);
        name.into()
    }
}

fn unescaped(symbol: &str) -> Cow<'_, str> {
    if !symbol.contains('\\') {
        return symbol.into();
    }
    serde_json::from_str::<String>(&format!("\"{symbol}\"")).map_or(symbol.into(), Cow::Owned)
}

/// The time is inside, as in the hashes that venues make: equal sides at another time are another snapshot.
fn made_hash(timestamp: &str, bids: &RawValue, asks: &RawValue) -> String {
    let whole = [timestamp.as_bytes(), bids.get().as_bytes(), asks.get().as_bytes()].join(&b'|');
    format!("{:032x}", xxh3_128(&whole))
}
