//! What was stored, kept as little as can be compared with what was sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use catchment_model::Gap;
use catchment_pipeline::{Batch, Sink, SinkError};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

/// Venue, channel and symbol.
pub(crate) type StreamName = (String, String, String);

/// One stored message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) received_ms: i64,
    /// Of its payload.
    pub(crate) hash: u64,
    pub(crate) sequence: Option<u64>,
    /// It is a whole book, or whatever a subscription begins with.
    pub(crate) is_snapshot: bool,
}

/// One gap, as told.
#[derive(Debug, Clone)]
pub(crate) struct ToldGap {
    pub(crate) venue: String,
    pub(crate) symbol: String,
    pub(crate) told_ms: i64,
    pub(crate) gap: Gap,
}

/// Everything stored.
#[derive(Debug, Default)]
pub(crate) struct Kepts {
    pub(crate) streams: BTreeMap<StreamName, Vec<Kept>>,
    pub(crate) gaps: Vec<ToldGap>,
    pub(crate) messages: u64,
}

/// A sink that remembers hashes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(pub(crate) Arc<Mutex<Kepts>>);

#[derive(Deserialize)]
struct Line<'a> {
    sequence: Option<u64>,
    exchange: &'a str,
    channel: &'a str,
    symbol: &'a str,
    received_at_ms: i64,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[async_trait]
impl Sink for Ledger {
    fn name(&self) -> &str {
        "ledger"
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        let mut kepts = self.0.lock().unwrap();
        for record in batch.iter() {
            let line: Line<'_> = serde_json::from_slice(record.line()).unwrap();
            let payload = line.payload.get();
            match line.channel {
                "gaps" => kepts.gaps.push(ToldGap {
                    venue: line.exchange.to_owned(),
                    symbol: line.symbol.to_owned(),
                    told_ms: line.received_at_ms,
                    gap: serde_json::from_str(payload).unwrap(),
                }),
                "orderbook" | "book_checks" => {}
                channel => {
                    let name = (line.exchange.to_owned(), channel.to_owned(), line.symbol.to_owned());
                    let kept = Kept {
                        received_ms: line.received_at_ms,
                        hash: xxh3_64(payload.as_bytes()),
                        sequence: line.sequence,
                        is_snapshot: payload.contains(r#""snapshot""#)
                            || payload.contains(r#""event_type":"book""#),
                    };
                    kepts.streams.entry(name).or_default().push(kept);
                    kepts.messages += 1;
                }
            }
        }
        Ok(())
    }
}
