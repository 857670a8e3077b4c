//! Connectors in their collection.

use std::time::Duration;

use catchment_model::Venue;
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::{MongoStore, documents, fault, tokens};
use crate::connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::job::Status;

pub(super) async fn ensure(store: &MongoStore, new: &NewConnector) -> Result<(Connector, bool), StoreError> {
    let exchange = new.exchange_id;
    if let Some(found) = get(store, exchange).await? {
        if found.status != Status::Deleted {
            return Ok((found, false));
        }
        return Ok((set_status(store, exchange, Status::Active).await?, false));
    }
    new.rate.check()?;
    let now = store.server_now().await?;
    let id = store.make_id(now);
    let period = new.rate.period_ms as i64;
    let mut document = doc! {
        "_id": documents::oid(id),
        "exchange_id": exchange.as_str(),
        "creation_date": DateTime::from_millis(now.get()),
        "status": "active",
        "notes": Bson::Null,
        "rate_limit_usage": 0_i32,
        "rate_limit_window_start": now.get(),
        "rate_limit_reset_at": now.get() + period,
        "rate_limit_saturated": 0_i64,
        "rate_limit_log": [],
        "last_job_run_time": Bson::Null,
        "jobs_count": 0_i64,
        "active_jobs_count": 0_i64,
        "max_concurrent_jobs": new.max_concurrent_jobs.map(i64::from),
        "windows": {},
        "slots": [],
        "updated_at": DateTime::from_millis(now.get()),
    };
    document.extend(tokens::own_window(new.rate));
    match store.connectors.insert_one(document).await {
        Ok(_) => Ok((must_get(store, exchange).await?, true)),
        // Another was faster, and the unique index says so.
        Err(error) if fault::is_duplicate(&error) => Ok((must_get(store, exchange).await?, false)),
        Err(error) => Err(fault::error(error)),
    }
}

pub(super) async fn get(store: &MongoStore, exchange: Venue) -> Result<Option<Connector>, StoreError> {
    let found = store.connectors.find_one(tokens::of(exchange)).await.map_err(fault::error)?;
    found.as_ref().map(documents::connector).transpose()
}

async fn must_get(store: &MongoStore, exchange: Venue) -> Result<Connector, StoreError> {
    get(store, exchange).await?.ok_or_else(|| StoreError::no_connector(exchange))
}

pub(super) async fn list(store: &MongoStore) -> Result<Vec<Connector>, StoreError> {
    let find = store.connectors.find(doc! { "status": { "$ne": "deleted" } }).sort(doc! { "exchange_id": 1 });
    let found: Vec<Document> = find.await.map_err(fault::error)?.try_collect().await.map_err(fault::error)?;
    found.iter().map(documents::connector).collect()
}

pub(super) async fn patch(
    store: &MongoStore,
    exchange: Venue,
    patch: &ConnectorPatch,
) -> Result<Connector, StoreError> {
    let old = must_get(store, exchange).await?;
    let rate = patch.rate(RateLimit { limit: old.rate_limit, period_ms: old.rate_limit_period_ms })?;
    let mut set = doc! { "updated_at": "$$NOW" };
    if patch.rate_limit.is_some() || patch.rate_limit_period_ms.is_some() {
        set.extend(tokens::own_window(rate));
        set.insert(
            "rate_limit_reset_at",
            doc! { "$add": ["$rate_limit_window_start", rate.period_ms as i64] },
        );
    }
    if let Some(cap) = patch.max_concurrent_jobs {
        set.insert("max_concurrent_jobs", Some(i64::from(cap)).filter(|cap| *cap > 0));
    }
    if let Some(notes) = &patch.notes {
        let notes = Some(notes.clone()).filter(|notes| !notes.is_empty());
        set.insert("notes", doc! { "$literal": notes });
    }
    update(store, exchange, set).await
}

pub(super) async fn set_status(
    store: &MongoStore,
    exchange: Venue,
    status: Status,
) -> Result<Connector, StoreError> {
    update(store, exchange, doc! { "status": status.as_str(), "updated_at": "$$NOW" }).await
}

async fn update(store: &MongoStore, exchange: Venue, set: Document) -> Result<Connector, StoreError> {
    let update = store
        .connectors
        .find_one_and_update(tokens::of(exchange), vec![doc! { "$set": set }])
        .return_document(ReturnDocument::After);
    let found = update.await.map_err(fault::error)?.ok_or_else(|| StoreError::no_connector(exchange))?;
    documents::connector(&found)
}

pub(super) async fn declare_windows(
    store: &MongoStore,
    exchange: Venue,
    windows: &[NamedWindow],
) -> Result<(), StoreError> {
    let mut all = Document::new();
    for (at, window) in windows.iter().enumerate() {
        window.rate.check()?;
        all.insert(
            format!("w{at}"),
            doc! {
                "name": { "$literal": &window.name },
                "limit": i64::from(window.rate.limit),
                "period_ms": window.rate.period_ms as i64,
                "log": { "$ifNull": [format!("$windows.w{at}.log"), []] },
            },
        );
    }
    // `$set` would keep the fields of windows that are no more.
    let all = if all.is_empty() {
        doc! { "$literal": {} }
    } else {
        all
    };
    let replace = vec![
        doc! { "$set": { "new_windows": all } },
        doc! { "$unset": "windows" },
        doc! { "$set": { "windows": "$new_windows", "updated_at": "$$NOW" } },
        doc! { "$unset": "new_windows" },
    ];
    let done = store.connectors.update_one(tokens::of(exchange), replace).await.map_err(fault::error)?;
    if done.matched_count == 0 { Err(StoreError::no_connector(exchange)) } else { Ok(()) }
}

pub(super) async fn set_system_limit(store: &MongoStore, limit: Option<RateLimit>) -> Result<(), StoreError> {
    let filter = doc! { "_id": tokens::SYSTEM };
    match limit {
        None => {
            store.settings.delete_one(filter).await.map_err(fault::error)?;
        }
        Some(rate) => {
            rate.check()?;
            let fresh = doc! {
                "rate_limit_usage": 0_i32, "rate_limit_window_start": 0_i64, "rate_limit_reset_at": 0_i64,
                "rate_limit_saturated": 0_i64, "rate_limit_log": [],
            };
            let update = doc! { "$set": tokens::own_window(rate), "$setOnInsert": fresh };
            store.settings.update_one(filter, update).upsert(true).await.map_err(fault::error)?;
        }
    }
    store.note_system_limit(limit.is_some());
    Ok(())
}

/// One document an exchange: `{"_id":"binance","symbols":["BTC/USDT",…],"updated_at":…}`.
pub(super) async fn put_listing(
    store: &MongoStore,
    exchange: Venue,
    symbols: &[String],
) -> Result<(), StoreError> {
    if symbols.is_empty() {
        return Ok(());
    }
    let now = DateTime::from_millis(store.server_now().await?.get());
    let listing = doc! { "_id": exchange.as_str(), "symbols": symbols, "updated_at": now };
    let replace = store.listings.replace_one(doc! { "_id": exchange.as_str() }, listing).upsert(true);
    replace.await.map_err(fault::error)?;
    Ok(())
}

pub(super) async fn is_listed(
    store: &MongoStore,
    exchange: Venue,
    symbol: &str,
) -> Result<Option<bool>, StoreError> {
    let only_it = doc! { "symbols": { "$elemMatch": { "$eq": symbol } } };
    let find = store.listings.find_one(doc! { "_id": exchange.as_str() }).projection(only_it);
    let found = find.await.map_err(fault::error)?;
    Ok(found.map(|found| found.get_array("symbols").is_ok_and(|symbols| !symbols.is_empty())))
}

/// A job and the count of it are two writes. Somebody may be between them right now: only a difference that is the same a
/// while later is mended, and only if nobody has counted meanwhile.
pub(super) async fn recount(store: &MongoStore, exchange: Venue) -> Result<(), StoreError> {
    let mut seen = compare(store, exchange).await?;
    for _ in 0..RECOUNTS {
        let Some((counted, there)) = seen.filter(|(counted, there)| counted != there) else { return Ok(()) };
        tokio::time::sleep(BETWEEN_WRITES).await;
        let again = compare(store, exchange).await?;
        if again != seen {
            seen = again;
            continue;
        }
        let mut unchanged = tokens::of(exchange);
        unchanged.extend(doc! { "jobs_count": counted.0, "active_jobs_count": counted.1 });
        let set = doc! { "$set": { "jobs_count": there.0, "active_jobs_count": there.1 } };
        store.connectors.update_one(unchanged, set).await.map_err(fault::error)?;
        seen = compare(store, exchange).await?;
    }
    // It changes all the time; whoever counts next finds it.
    Ok(())
}

/// Longer than the way from one write to the next.
const BETWEEN_WRITES: Duration = Duration::from_millis(200);
/// So often is it looked at.
const RECOUNTS: u32 = 5;

/// All and the active ones, as the connector has counted them and as they are.
async fn compare(
    store: &MongoStore,
    exchange: Venue,
) -> Result<Option<((i64, i64), (i64, i64))>, StoreError> {
    // As it stands there: a count that was missed may have made it less than nothing.
    let found = store.connectors.find_one(tokens::of(exchange)).await.map_err(fault::error)?;
    let Some(found) = found else { return Ok(None) };
    let stands = |key: &str| documents::whole(&found, key).unwrap_or_default();
    let count = async |filter: Document| store.jobs.count_documents(filter).await.map_err(fault::error);
    let of = exchange.as_str();
    let jobs = count(doc! { "exchange_id": of, "status": { "$in": ["active", "paused"] } }).await?;
    let active = count(doc! { "exchange_id": of, "status": "active" }).await?;
    let counted = (stands("jobs_count"), stands("active_jobs_count"));
    Ok(Some((counted, (jobs as i64, active as i64))))
}

/// A job's status has changed.
pub(super) async fn count_change(
    store: &MongoStore,
    exchange: Venue,
    old: Option<Status>,
    new: Status,
) -> Result<(), StoreError> {
    let counts = |status: Option<Status>| {
        let is_there = status.is_some_and(|status| status != Status::Deleted);
        (i64::from(is_there), i64::from(status == Some(Status::Active)))
    };
    let (old, new) = (counts(old), counts(Some(new)));
    if old == new {
        return Ok(());
    }
    let more = doc! { "$inc": { "jobs_count": new.0 - old.0, "active_jobs_count": new.1 - old.1 } };
    store.connectors.update_one(tokens::of(exchange), more).await.map_err(fault::error)?;
    Ok(())
}
