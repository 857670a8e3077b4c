//! Candles, each once by its key; holes, a document a series.
//!
//! There is no transaction around a page here (a single mongod has none). A candle remembers the job and the fence that wrote
//! it: a worker that was paused midway and comes back cannot replace what its successor has written.

use catchment_model::Candle;
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};

use super::documents::{oid, whole};
use super::{MongoStore, documents, fault};
use crate::candles::{Coverage, Hole, HoleKind, Missing, Series, Span};
use crate::error::StoreError;
use crate::id::Id;
use crate::time::from_ms;

/// So many in one command.
const COMMAND_MAX: usize = 1_000;

/// Refuses what has not closed.
pub(super) fn check(candles: &[Candle]) -> Result<(), StoreError> {
    match candles.iter().find(|candle| !candle.is_final) {
        None => Ok(()),
        Some(open) => {
            let reason = format!("has one that opened at {} and has not closed", open.open_time);
            Err(StoreError::invalid("candles", reason))
        }
    }
}

/// Stores them; `by` is the job and its fence.
pub(super) async fn put(
    store: &MongoStore,
    series: &Series,
    candles: &[Candle],
    by: Option<(Id, u64)>,
) -> Result<(), StoreError> {
    check(candles)?;
    for part in candles.chunks(COMMAND_MAX) {
        let updates: Vec<Bson> = part.iter().map(|candle| update(series, candle, by).into()).collect();
        let command = doc! {
            "update": super::CANDLES,
            "updates": updates,
            "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let answer = store.database.run_command(command).await.map_err(fault::error)?;
        let failed = answer.get_array("writeErrors").ok().and_then(|errors| errors.first());
        if let Some(failed) = failed.or(answer.get("writeConcernError")) {
            let said: String = failed.to_string().chars().take(300).collect();
            return Err(StoreError::Unreachable { store: "mongo", source: said.into() });
        }
    }
    Ok(())
}

fn update(series: &Series, candle: &Candle, by: Option<(Id, u64)>) -> Document {
    let mut fields = documents::of_candle(candle);
    let (job, fence) = match by {
        Some((job, fence)) => (Bson::ObjectId(oid(job)), fence as i64),
        None => (Bson::Null, 0),
    };
    fields.insert("job", job.clone());
    fields.insert("fence", fence);
    // Written by the same job with a later lease: then this one is stale.
    let is_stale = doc! { "$and": [{ "$eq": ["$job", job] }, { "$gt": ["$fence", fence] }] };
    let change = doc! { "$cond": [is_stale, {}, { "$literal": fields }] };
    let mut key = of(series);
    key.insert("open_time", candle.open_time.get());
    doc! { "q": key, "u": [{ "$replaceWith": { "$mergeObjects": ["$$ROOT", change] } }], "upsert": true }
}

pub(super) async fn range(
    store: &MongoStore,
    series: &Series,
    span: Span,
    limit: u32,
) -> Result<Vec<Candle>, StoreError> {
    let find =
        store.candles.find(within(series, span)).sort(doc! { "open_time": 1 }).limit(i64::from(limit.max(1)));
    let mut found = find.await.map_err(fault::error)?;
    let mut candles = Vec::new();
    while let Some(document) = found.try_next().await.map_err(fault::error)? {
        candles.push(documents::candle(&document)?);
    }
    candles.truncate(limit as usize);
    Ok(candles)
}

pub(super) async fn coverage(store: &MongoStore, series: &Series) -> Result<Option<Coverage>, StoreError> {
    let end = async |direction: i32| {
        let find = store.candles.find_one(of(series)).sort(doc! { "open_time": direction });
        let found = find.projection(doc! { "open_time": 1 }).await.map_err(fault::error)?;
        Ok::<_, StoreError>(found.and_then(|found| whole(&found, "open_time")).map(from_ms))
    };
    let (Some(first), Some(last)) = (end(1).await?, end(-1).await?) else { return Ok(None) };
    let candles = store.candles.count_documents(of(series)).await.map_err(fault::error)?;
    Ok(Some(Coverage { candles, first, last }))
}

pub(super) async fn missing(
    store: &MongoStore,
    series: &Series,
    span: Span,
    limit: u32,
) -> Result<Vec<Span>, StoreError> {
    let holes = holes(store, series).await?.into_iter().map(|hole| hole.span).collect();
    let now = store.server_now().await?;
    let mut missing = Missing::new(series.timeframe, span, holes, now, limit as usize);
    let fields = doc! { "_id": 0, "open_time": 1 };
    let find = store.candles.find(within(series, span)).sort(doc! { "open_time": 1 }).projection(fields);
    let mut found = find.batch_size(10_000).await.map_err(fault::error)?;
    while let Some(document) = found.try_next().await.map_err(fault::error)? {
        let open = whole(&document, "open_time").map(from_ms);
        if !open.is_none_or(|open| missing.there_is(open)) {
            break;
        }
    }
    Ok(missing.end())
}

/// Merged by the server, so that two who note at once lose nothing: what touches the new one, and is of its kind, becomes one
/// with it. One without a kind was written before there were several.
pub(super) async fn note_hole(store: &MongoStore, series: &Series, hole: Hole) -> Result<(), StoreError> {
    let old = doc! { "$ifNull": ["$holes", []] };
    let (from, to, kind) = (hole.span.from.get(), hole.span.to.get(), hole.kind.as_str());
    let kind_of = doc! { "$ifNull": ["$$this.kind", HoleKind::Absent.as_str()] };
    let touches = doc! { "$and": [
        { "$lte": ["$$this.from", to] }, { "$gte": ["$$this.to", from] }, { "$eq": [kind_of, kind] },
    ] };
    let apart = doc! { "$filter": { "input": "$t.old", "cond": { "$not": [touches.clone()] } } };
    let touching = doc! { "$filter": { "input": "$t.old", "cond": touches } };
    let one = doc! {
        "from": { "$min": [from, { "$min": "$t.touching.from" }] },
        "to": { "$max": [to, { "$max": "$t.touching.to" }] },
        "kind": kind,
    };
    let pipeline = vec![
        doc! { "$set": { "t.old": old } },
        doc! { "$set": { "t.touching": touching, "t.apart": apart } },
        doc! { "$set": { "holes": { "$concatArrays": ["$t.apart", [one]] } } },
        doc! { "$unset": "t" },
    ];
    store.holes.update_one(of(series), pipeline).upsert(true).await.map_err(fault::error)?;
    Ok(())
}

pub(super) async fn holes(store: &MongoStore, series: &Series) -> Result<Vec<Hole>, StoreError> {
    let found = store.holes.find_one(of(series)).await.map_err(fault::error)?;
    let mut holes = Vec::new();
    for hole in found.iter().filter_map(|found| found.get_array("holes").ok()).flatten() {
        let Some(hole) = hole.as_document() else { continue };
        let Some((from, to)) = whole(hole, "from").zip(whole(hole, "to")) else { continue };
        let said = hole.get_str("kind").unwrap_or_default();
        let kind = HoleKind::ALL.into_iter().find(|kind| kind.as_str() == said).unwrap_or(HoleKind::Absent);
        holes.push(Hole { span: Span { from: from_ms(from), to: from_ms(to) }, kind });
    }
    holes.sort_unstable();
    Ok(holes)
}

/// Equal to these texts, whatever is in them.
fn of(series: &Series) -> Document {
    doc! {
        "exchange_id": series.exchange_id.as_str(),
        "symbol": { "$eq": &series.symbol },
        "timeframe": series.timeframe.as_str(),
    }
}

fn within(series: &Series, span: Span) -> Document {
    let mut find = of(series);
    find.insert("open_time", doc! { "$gte": span.from.get(), "$lt": span.to.get() });
    find
}
