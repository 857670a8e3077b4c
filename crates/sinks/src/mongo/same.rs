//! Whether what is stored under an id is the record that has that id.

use std::collections::HashMap;

use catchment_pipeline::{Batch, Record, Refusal};
use mongodb::Collection;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;

use super::document;
use super::fault::{self, MongoFault, NotInserted, Why};

/// Reads back what is stored under the ids of these records; those that differ are refused.
pub(super) async fn compare(
    collection: &Collection<RawDocumentBuf>,
    batch: &Batch,
    taken: Vec<NotInserted>,
) -> Result<Vec<Refusal>, MongoFault> {
    let record = |index: usize| batch.get(index).expect("a place in the batch");
    let mut looked_for: HashMap<String, NotInserted> =
        taken.into_iter().map(|taken| (record(taken.index).id().to_string(), taken)).collect();
    let ids: Vec<&str> = looked_for.keys().map(String::as_str).collect();
    let said = |error: mongodb::error::Error| super::away(fault::of(&error));
    let find = collection.find(doc! { "_id": { "$in": ids } }).read_concern(ReadConcern::majority());
    let mut found = find.await.map_err(said)?;
    let mut refused = Vec::new();
    let mut room = Vec::new();
    while found.advance().await.map_err(said)? {
        let stored = found.current();
        let Some(taken) = stored.get_str("_id").ok().and_then(|id| looked_for.remove(id)) else { continue };
        if !is_same(&record(taken.index), stored, &mut room) {
            let reason = "another record is stored under its id".to_owned();
            refused.push(Refusal { index: taken.index, reason });
        }
    }
    for taken in looked_for.into_values() {
        match taken.why {
            Why::OtherIndex => refused.push(Refusal { index: taken.index, reason: taken.message }),
            // Somebody has removed it meanwhile; the next try inserts it.
            _ => return Err(MongoFault::Other(format!("{}, but it is gone", taken.message))),
        }
    }
    Ok(refused)
}

/// Equal bytes are the same record. So are others that give the same line: a field that somebody has added, keys in
/// another order.
fn is_same(record: &Record<'_>, stored: &RawDocument, room: &mut Vec<u8>) -> bool {
    room.clear();
    let same_bytes = document::push(record, room).is_ok() && *room == stored.as_bytes();
    same_bytes || document::line_of(stored).is_ok_and(|line| line == record.line())
}
