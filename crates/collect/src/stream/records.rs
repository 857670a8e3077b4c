//! What streams write besides messages: ordinary envelopes on the channels `gaps`, `orderbook` and `book_checks`.
//!
//! `orderbook`: the whole book, in the form that polled books have; see `Ladder::write_snapshot`.
//!
//! `book_checks`: when a book is not to be used any more, and once a minute what was checked:
//!
//! ```text
//! {"channel":"book_delta","outcome":"mismatch","detail":"the venue says 12, the book gives 34","sequence":null,"epoch":0,
//!  "resync":"resubscribe","connection":"public-0.1"}
//! {"channel":"book_delta","outcome":"summary","state":"live","period_ms":60000,"messages":600,"agreed":600,"failed":0,
//!  "crossed":0,"resyncs":0,"bids":25,"asks":25,"sequence":17,"epoch":0,"connection":"public-0.1"}
//! ```

use catchment_model::{Channel, Envelope, Gap, Payload, Source, Symbol, UnixMs, UnixNs, Venue};
use catchment_pipeline::{Draft, DraftError};
use serde::Serialize;

/// A book that went wrong.
#[derive(Debug, Serialize)]
pub(crate) struct CheckRecord<'a> {
    pub(crate) channel: &'a str,
    pub(crate) outcome: &'static str,
    pub(crate) detail: &'a str,
    pub(crate) sequence: Option<i64>,
    pub(crate) epoch: u32,
    /// What is done about it.
    pub(crate) resync: &'static str,
    pub(crate) connection: &'a str,
}

/// What was checked in a minute.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryRecord<'a> {
    pub(crate) channel: &'a str,
    pub(crate) outcome: &'static str,
    pub(crate) state: &'static str,
    pub(crate) period_ms: u64,
    pub(crate) messages: u64,
    pub(crate) agreed: u64,
    pub(crate) failed: u64,
    pub(crate) crossed: u64,
    pub(crate) resyncs: u64,
    pub(crate) bids: usize,
    pub(crate) asks: usize,
    pub(crate) sequence: Option<i64>,
    pub(crate) epoch: u32,
    pub(crate) connection: &'a str,
}

/// Whose record it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) venue: Venue,
    /// Without one: of all.
    pub(crate) symbol: Option<&'a str>,
    pub(crate) now: UnixNs,
    pub(crate) source: &'a str,
}

pub(crate) fn push_gap(draft: &mut Draft, of: Of<'_>, gap: &Gap) -> Result<(), DraftError> {
    push(draft, of, Channel::gaps(), None, gap.to_json().as_bytes())
}

pub(crate) fn push_check(draft: &mut Draft, of: Of<'_>, record: &impl Serialize) -> Result<(), DraftError> {
    let json = serde_json::to_vec(record).expect("plain fields always serialise");
    push(draft, of, Channel::new("book_checks").expect("a plain name"), None, &json)
}

pub(crate) fn push_book(
    draft: &mut Draft,
    of: Of<'_>,
    time: Option<UnixMs>,
    json: &[u8],
) -> Result<(), DraftError> {
    push(draft, of, Channel::new("orderbook").expect("a plain name"), time, json)
}

fn push(
    draft: &mut Draft,
    of: Of<'_>,
    channel: Channel,
    server_time: Option<UnixMs>,
    json: &[u8],
) -> Result<(), DraftError> {
    let symbol = of.symbol.and_then(|symbol| Symbol::new(symbol).ok()).unwrap_or(Symbol::ALL);
    draft.push(&Envelope {
        message_id: None,
        sequence: None,
        exchange: of.venue,
        channel,
        symbol,
        server_time,
        received_at: of.now,
        payload: Payload::already_validated(json).expect("it is written on one line"),
        source: Source::new(of.source).unwrap_or(Source::RECORDER),
    })
}
