//! Collections and indexes, by version; the version stands in `catchment_settings`.

use mongodb::bson::{Document, doc};

use super::{CANDLES, CONNECTORS, DUE, HOLES, JOBS, MongoStore, documents, fault};
use crate::error::StoreError;

/// The version this build writes.
pub(super) const VERSION: u32 = 2;

/// Makes what is missing; from 1 to 2, a job that was given up, and would not have run again by itself, makes room for another
/// (its holes need not be touched: one without a kind is read as what it was). Nothing happens to a database that is up to date.
pub(super) async fn migrate(store: &MongoStore) -> Result<(), StoreError> {
    let found = store.settings.find_one(doc! { "_id": "schema" }).await.map_err(fault::error)?;
    let found = found.and_then(|found| documents::whole(&found, "version")).unwrap_or(0);
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > VERSION {
        return Err(StoreError::Newer { store: "mongo", found, known: VERSION });
    }
    if found == VERSION {
        return Ok(());
    }
    for (collection, indexes) in indexes() {
        let command = doc! { "createIndexes": collection, "indexes": indexes };
        store.database.run_command(command).await.map_err(fault::error)?;
    }
    if (1..2).contains(&found) {
        let dead = doc! { "state": "dead", "schedule.mode": "once", "status": "active" };
        let rest = doc! { "$set": { "status": "paused" }, "$inc": { "rev": 1_i64 } };
        store.jobs.update_many(dead, rest).await.map_err(fault::error)?;
        for connector in super::connectors::list(store).await? {
            super::connectors::recount(store, connector.exchange_id).await?;
        }
    }
    let set = doc! { "$max": { "version": i64::from(VERSION) } };
    store.settings.update_one(doc! { "_id": "schema" }, set).upsert(true).await.map_err(fault::error)?;
    tracing::info!(from = found, to = VERSION, "mongo store migrated");
    Ok(())
}

/// S2's, as S2 writes them, and one that serves the sort of a claim: S2's scheduling index has the time before the priority,
/// so that every claim by it sorts all jobs that are due.
fn indexes() -> Vec<(&'static str, Vec<Document>)> {
    let key = doc! { "exchange_id": 1, "type": 1, "symbol": 1, "timeframe": 1 };
    let series = doc! { "exchange_id": 1, "symbol": 1, "timeframe": 1 };
    let mut candle = series.clone();
    candle.insert("open_time", 1);
    let connectors = vec![
        doc! { "key": { "exchange_id": 1 }, "name": "exchange_id_1", "unique": true },
        doc! { "key": { "status": 1 }, "name": "status_1" },
    ];
    let jobs = vec![
        doc! {
            "key": { "status": 1, "state": 1, "next_run_at": 1, "priority": 1 },
            "name": "status_1_state_1_next_run_at_1_priority_1",
        },
        doc! { "key": key.clone(), "name": "exchange_id_1_type_1_symbol_1_timeframe_1" },
        doc! {
            "key": key,
            "name": "one_active_of_a_kind",
            "unique": true,
            "partialFilterExpression": { "status": "active" },
        },
        doc! { "key": { "priority": 1, "due_at": 1, "exchange_id": 1 }, "name": DUE },
        doc! { "key": { "due_at": 1 }, "name": "due_at_1" },
    ];
    vec![
        (CONNECTORS, connectors),
        (JOBS, jobs),
        (CANDLES, vec![doc! { "key": candle, "name": "one_of_a_kind", "unique": true }]),
        (HOLES, vec![doc! { "key": series, "name": "one_of_a_kind", "unique": true }]),
    ]
}
