//! Jobs in their collection.
//!
//! What changes a job as a whole (its owner's wishes, the end of a run) is read together with the server's time, changed by
//! a plain function, and written back if nobody has changed it meanwhile (`rev`); else it is read again. Claims and
//! renewals are pipelines, so that the end of a lease is by the server's clock at that very moment.

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReturnDocument;

use super::documents::{oid, whole};
use super::{MongoStore, candles, connectors, documents, fault};
use crate::candles::Series;
use crate::error::StoreError;
use crate::events;
use crate::id::Id;
use crate::job::{Job, JobFilter, NewJob, Page, State, Status};
use crate::store::{Lease, Outcome, PageSave, Standing, StateCount};
use crate::time::{from_ms, whole_ms};
use crate::transition;

/// So often is a change tried that others come before. Each time somebody got through.
const TRIES: u32 = 100;

/// A job with the server's time and what tells whether it has changed.
struct Read {
    job: Job,
    now: catchment_model::UnixMs,
    rev: i64,
    slot: bool,
}

pub(super) async fn add(store: &MongoStore, new: &NewJob) -> Result<Job, StoreError> {
    new.check()?;
    let known = connectors::get(store, new.exchange_id).await?;
    if known.is_none_or(|connector| connector.status == Status::Deleted) {
        let reason = format!("is {}, which has no connector; make one first", new.exchange_id);
        return Err(StoreError::invalid("exchange_id", reason));
    }
    let now = store.server_now().await?;
    let job = new.clone().into_job(store.make_id(now), now);
    match store.jobs.insert_one(documents::of_job(&job, 0, false)).await {
        Ok(_) => {}
        Err(error) if fault::is_duplicate(&error) => return Err(already_active(store, &job).await?),
        Err(error) => return Err(fault::error(error)),
    }
    count(store, &job, None).await;
    Ok(job)
}

/// Keeps the connector's counts. What fails here does not undo what was done: it is told, and counted anew now and then.
async fn count(store: &MongoStore, job: &Job, old: Option<Status>) {
    if let Err(error) = connectors::count_change(store, job.exchange_id, old, job.status).await {
        events::jobs_miscounted(job.exchange_id, &error);
    }
}

/// Which one it is.
async fn already_active(store: &MongoStore, job: &Job) -> Result<StoreError, StoreError> {
    let same = doc! {
        "exchange_id": job.exchange_id.as_str(),
        "type": job.kind.as_str(),
        "symbol": job.symbol.clone(),
        "timeframe": job.timeframe.map(catchment_model::Timeframe::as_str),
        "status": "active",
    };
    let found = store.jobs.find_one(same).await.map_err(fault::error)?;
    let found = found.as_ref().map(documents::job).transpose()?;
    // Gone since: whoever asks again may add it.
    Ok(StoreError::AlreadyActive(found.map_or(job.id, |found| found.id)))
}

pub(super) async fn get(store: &MongoStore, id: Id) -> Result<Option<Job>, StoreError> {
    let found = store.jobs.find_one(doc! { "_id": oid(id) }).await.map_err(fault::error)?;
    found.as_ref().map(documents::job).transpose()
}

pub(super) async fn list(store: &MongoStore, filter: &JobFilter, page: Page) -> Result<Vec<Job>, StoreError> {
    let mut find = Document::new();
    if let Some(after) = page.after {
        find.insert("_id", doc! { "$gt": oid(after) });
    }
    let mut also = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            find.insert(key, doc! { "$eq": value });
        }
    };
    also("exchange_id", filter.exchange_id.as_ref().map(catchment_model::Venue::as_str));
    also("type", filter.kind.map(crate::JobType::as_str));
    also("symbol", filter.symbol.as_deref());
    also("timeframe", filter.timeframe.map(catchment_model::Timeframe::as_str));
    also("status", filter.status.map(Status::as_str));
    also("state", filter.state.map(State::as_str));
    if filter.status.is_none() {
        find.insert("status", doc! { "$ne": "deleted" });
    }
    let limit = i64::from(page.limit.clamp(1, Page::LIMIT_MAX));
    let find = store.jobs.find(find).sort(doc! { "_id": 1 }).limit(limit);
    let found: Vec<Document> = find.await.map_err(fault::error)?.try_collect().await.map_err(fault::error)?;
    found.iter().map(documents::job).collect()
}

/// The job and the server's time, in one trip.
async fn read(store: &MongoStore, id: Id) -> Result<Option<Read>, StoreError> {
    let pipeline = vec![doc! { "$match": { "_id": oid(id) } }, doc! { "$set": { "now": "$$NOW" } }];
    let mut found = store.jobs.aggregate(pipeline).await.map_err(fault::error)?;
    let Some(document) = found.try_next().await.map_err(fault::error)? else { return Ok(None) };
    Ok(Some(Read {
        job: documents::job(&document)?,
        now: from_ms(whole(&document, "now").unwrap_or_default()),
        rev: whole(&document, "rev").unwrap_or_default(),
        slot: document.get_bool("slot").unwrap_or(false),
    }))
}

/// Reads it, changes it, writes it, until nobody came between.
pub(super) async fn change(
    store: &MongoStore,
    id: Id,
    missing: impl Fn() -> StoreError,
    change: impl Fn(&mut Job, catchment_model::UnixMs) -> Result<(), StoreError>,
) -> Result<Job, StoreError> {
    for _ in 0..TRIES {
        let Read { mut job, now, rev, slot } = read(store, id).await?.ok_or_else(&missing)?;
        let (old, before) = (job.status, job.clone());
        change(&mut job, now)?;
        if job == before {
            return Ok(job);
        }
        let has_slot = slot && job.state == State::Running;
        let document = documents::of_job(&job, rev + 1, has_slot);
        let unchanged = doc! { "_id": oid(id), "rev": rev };
        let replaced = match store.jobs.replace_one(unchanged, document).await {
            Ok(replaced) => replaced,
            Err(error) if fault::is_duplicate(&error) => return Err(already_active(store, &job).await?),
            Err(error) => return Err(fault::error(error)),
        };
        if replaced.matched_count == 0 {
            continue;
        }
        // What was wanted is done; the rest is bookkeeping, and mends itself.
        count(store, &job, Some(old)).await;
        if slot
            && !has_slot
            && let Err(error) = leave_slot(store, &job).await
        {
            events::slot_kept(&job, &error);
        }
        return Ok(job);
    }
    Err(StoreError::Unreachable { store: "mongo", source: format!("job {id} changes all the time").into() })
}

pub(super) async fn renew(store: &MongoStore, lease: &Lease) -> Result<Standing, StoreError> {
    renewed(store, lease).await.map(|(_, standing)| standing)
}

async fn renewed(store: &MongoStore, lease: &Lease) -> Result<(Job, Standing), StoreError> {
    let until = doc! { "$add": [{ "$toLong": "$$NOW" }, whole_ms(lease.lasts)] };
    let set = doc! {
        "lock.lock_until": until.clone(),
        "due_at": { "$cond": [{ "$eq": ["$status", "active"] }, until, Bson::Null] },
        "updated_at": "$$NOW",
        "rev": { "$add": ["$rev", 1_i64] },
    };
    let update = store
        .jobs
        .find_one_and_update(held_by(lease), vec![doc! { "$set": set }])
        .return_document(ReturnDocument::After);
    let found = update.await.map_err(fault::error)?.ok_or_else(|| stale(lease))?;
    let job = documents::job(&found)?;
    let lock_until = job.lock.lock_until.ok_or_else(|| stale(lease))?;
    if found.get_bool("slot").unwrap_or(false) {
        let filter = doc! { "exchange_id": job.exchange_id.as_str(), "slots.job": oid(job.id) };
        let set = doc! { "$set": { "slots.$.until": lock_until.get() } };
        store.connectors.update_one(filter, set).await.map_err(fault::error)?;
    }
    let is_wanted = job.status == Status::Active;
    Ok((job, Standing { lock_until, is_wanted }))
}

/// First the candles, which are there once however often they are written, then the cursor: whoever takes over between
/// the two fetches that page again.
pub(super) async fn save_page(
    store: &MongoStore,
    lease: &Lease,
    page: &PageSave<'_>,
) -> Result<Standing, StoreError> {
    page.cursor.check()?;
    candles::check(page.candles)?;
    let (job, standing) = renewed(store, lease).await?;
    if let (Some(symbol), Some(timeframe)) = (&job.symbol, job.timeframe) {
        let series = Series { exchange_id: job.exchange_id, symbol: symbol.clone(), timeframe };
        candles::put(store, &series, page.candles, Some((job.id, lease.fence))).await?;
        for hole in page.holes {
            candles::note_hole(store, &series, *hole).await?;
        }
    } else if !page.candles.is_empty() || !page.holes.is_empty() {
        return Err(StoreError::invalid("candles", format!("cannot be of a {} job", job.kind.as_str())));
    }
    change(
        store,
        lease.job,
        || stale(lease),
        |job, _now| {
            transition::check(job, lease)?;
            job.cursor = page.cursor.clone();
            job.attempts = 0;
            Ok(())
        },
    )
    .await?;
    Ok(standing)
}

pub(super) async fn finish(store: &MongoStore, lease: &Lease, outcome: &Outcome) -> Result<Job, StoreError> {
    change(store, lease.job, || stale(lease), |job, now| transition::finish(job, lease, outcome, now)).await
}

pub(super) async fn busy(store: &MongoStore) -> Result<Vec<StateCount>, StoreError> {
    let states: Vec<&str> = State::ALL
        .into_iter()
        .filter(|state| !matches!(state, State::Idle | State::Success))
        .map(State::as_str)
        .collect();
    let pipeline = vec![
        doc! { "$match": { "status": { "$in": ["active", "paused"] }, "state": { "$in": states } } },
        doc! { "$group": { "_id": { "exchange": "$exchange_id", "state": "$state" }, "jobs": { "$sum": 1_i64 } } },
    ];
    let found: Vec<Document> = store
        .jobs
        .aggregate(pipeline)
        .await
        .map_err(fault::error)?
        .try_collect()
        .await
        .map_err(fault::error)?;
    let read = |group: &Document| {
        let key = group.get_document("_id").ok()?;
        let exchange = key.get_str("exchange").ok()?.parse().ok()?;
        let state = key.get_str("state").ok()?;
        let state = State::ALL.into_iter().find(|one| one.as_str() == state)?;
        Some(StateCount { exchange, state, jobs: whole(group, "jobs")?.unsigned_abs() })
    };
    Ok(found.iter().filter_map(read).collect())
}

fn held_by(lease: &Lease) -> Document {
    doc! {
        "_id": oid(lease.job),
        "fence": lease.fence as i64,
        "state": "running",
        "lock.locked_by": { "$eq": &lease.worker },
    }
}

fn stale(lease: &Lease) -> StoreError {
    StoreError::Stale { job: lease.job, fence: lease.fence }
}

pub(super) async fn leave_slot(store: &MongoStore, job: &Job) -> Result<(), StoreError> {
    let filter = doc! { "exchange_id": job.exchange_id.as_str() };
    let pull = doc! { "$pull": { "slots": { "job": oid(job.id) } } };
    store.connectors.update_one(filter, pull).await.map_err(fault::error)?;
    Ok(())
}
