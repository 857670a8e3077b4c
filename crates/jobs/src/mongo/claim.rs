//! Taking the first job that is due: one `findAndModify`, by the index on priority and due time.
//!
//! Exchanges that are paused, at their cap, or not this worker's are left out; they are read at most a second before (where one
//! has a cap, just before), and with them the server's clock. (As a plain number it bounds the index; the clock within the query might not.) The lease itself
//! begins by the server's clock at the moment of the claim. The cap is kept by slots in the connector: a job that was claimed
//! and finds its exchange paused, or no slot, goes back as it was.

use std::sync::Mutex;
use std::time::Duration;

use catchment_model::{UnixMs, Venue};
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use tokio::time::Instant;

use super::documents::{oid, whole};
use super::{MongoStore, documents, fault};
use crate::error::StoreError;
use crate::job::Job;
use crate::store::{Claim, Claimed, Lease};
use crate::time::{between, from_ms, whole_ms};

/// Whom to leave out, and who has a cap.
#[derive(Debug, Clone)]
struct Exchanges {
    /// The server's clock when they were read: a moment ago, so that what was due then is due.
    now: i64,
    open: Vec<Venue>,
    closed: Vec<Venue>,
    caps: Vec<(Venue, u32)>,
}

pub(super) async fn claim(store: &MongoStore, ask: &Claim<'_>) -> Result<Claimed, StoreError> {
    let (mut exchanges, mut is_fresh) = match store.known_exchanges.get(ask) {
        Some(known) => (known, false),
        None => (read_exchanges(store, ask).await?, true),
    };
    loop {
        let Some(after) = claim_one(store, ask, &exchanges).await? else {
            if is_fresh {
                return nothing(store, &exchanges).await;
            }
            (exchanges, is_fresh) = (read_exchanges(store, ask).await?, true);
            continue;
        };
        let job = documents::job(&after)?;
        if !begin(store, &job, exchanges.cap(job.exchange_id)).await? {
            put_back(store, &job).await?;
            let full = job.exchange_id;
            exchanges = read_exchanges(store, ask).await?;
            exchanges.close(full);
            is_fresh = true;
            continue;
        }
        let lease = Lease { job: job.id, worker: ask.worker.to_owned(), fence: job.fence, lasts: ask.lease };
        return Ok(Claimed::Job(Box::new(job), lease));
    }
}

async fn read_exchanges(store: &MongoStore, ask: &Claim<'_>) -> Result<Exchanges, StoreError> {
    let found = exchanges(store, ask).await?;
    store.known_exchanges.put(ask, &found);
    Ok(found)
}

/// The exchanges as they were read last. They are believed for a second where none has a cap: a job of an exchange that was
/// paused meanwhile may still be claimed, and gets no token.
#[derive(Debug, Default)]
pub(super) struct KnownExchanges(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    at: Instant,
    /// For whoever asks the same.
    cap: Option<u32>,
    only: Option<Vec<Venue>>,
    exchanges: Exchanges,
    /// Which of them know that a job of theirs began.
    told: Vec<Venue>,
}

impl KnownExchanges {
    const BELIEVED_FOR: Duration = Duration::from_secs(1);

    /// With the server's clock as it must be by now, at least.
    fn get(&self, ask: &Claim<'_>) -> Option<Exchanges> {
        let known = self.0.lock().expect("no holder of this lock can panic");
        let known = known.as_ref()?;
        let elapsed = known.at.elapsed();
        let is_same = known.cap == ask.cap && known.only.as_deref() == ask.only;
        let is_good = elapsed < Self::BELIEVED_FOR && known.exchanges.caps.is_empty();
        (is_same && is_good).then(|| {
            let mut exchanges = known.exchanges.clone();
            exchanges.now += whole_ms(elapsed);
            exchanges
        })
    }

    fn put(&self, ask: &Claim<'_>, exchanges: &Exchanges) {
        let only = ask.only.map(<[Venue]>::to_vec);
        let exchanges = exchanges.clone();
        let known = Known { at: Instant::now(), cap: ask.cap, only, exchanges, told: Vec::new() };
        *self.0.lock().expect("no holder of this lock can panic") = Some(known);
    }

    /// One of them was changed.
    pub(super) fn forget(&self) {
        *self.0.lock().expect("no holder of this lock can panic") = None;
    }

    /// Whether the exchange is still to be told that a job of it began: once for each time they are read.
    fn is_to_be_told(&self, exchange: Venue) -> bool {
        let mut known = self.0.lock().expect("no holder of this lock can panic");
        let Some(known) = known.as_mut() else { return true };
        let is_new = !known.told.contains(&exchange);
        if is_new {
            known.told.push(exchange);
        }
        is_new
    }
}

async fn exchanges(store: &MongoStore, ask: &Claim<'_>) -> Result<Exchanges, StoreError> {
    let fields = doc! {
        "exchange_id": 1, "status": 1, "max_concurrent_jobs": 1, "now": "$$NOW",
        // Those whose lease is not over, by the server's clock.
        "running": { "$size": { "$filter": { "input": { "$ifNull": ["$slots", []] },
            "cond": { "$gt": ["$$this.until", { "$toLong": "$$NOW" }] } } } },
    };
    let found: Vec<Document> = store
        .connectors
        .aggregate(vec![doc! { "$project": fields }])
        .await
        .map_err(fault::error)?
        .try_collect()
        .await
        .map_err(fault::error)?;
    let mut exchanges = Exchanges { now: 0, open: Vec::new(), closed: Vec::new(), caps: Vec::new() };
    for one in &found {
        exchanges.now = exchanges.now.max(whole(one, "now").unwrap_or(0));
        let Some(exchange) = one.get_str("exchange_id").ok().and_then(|name| Venue::new(name).ok()) else {
            continue;
        };
        let is_active = one.get_str("status").is_ok_and(|status| status == "active");
        let is_mine = ask.only.is_none_or(|only| only.contains(&exchange));
        let own = whole(one, "max_concurrent_jobs").and_then(|cap| u32::try_from(cap).ok());
        let cap = own.or(ask.cap);
        let is_full = cap.is_some_and(|cap| whole(one, "running").unwrap_or(0) >= i64::from(cap));
        if is_active && is_mine && !is_full {
            exchanges.open.push(exchange);
            exchanges.caps.extend(cap.map(|cap| (exchange, cap)));
        } else {
            exchanges.closed.push(exchange);
        }
    }
    Ok(exchanges)
}

impl Exchanges {
    fn cap(&self, exchange: Venue) -> Option<u32> {
        self.caps.iter().find(|(capped, _)| *capped == exchange).map(|(_, cap)| *cap)
    }

    fn close(&mut self, exchange: Venue) {
        self.open.retain(|open| *open != exchange);
        self.closed.push(exchange);
    }

    /// As a filter; nothing where all are open, which lets the index answer alone.
    fn filter(&self) -> Document {
        if self.closed.is_empty() {
            return Document::new();
        }
        let open: Vec<&str> = self.open.iter().map(Venue::as_str).collect();
        doc! { "exchange_id": { "$in": open } }
    }
}

/// The job as it is once it is claimed.
async fn claim_one(
    store: &MongoStore,
    ask: &Claim<'_>,
    exchanges: &Exchanges,
) -> Result<Option<Document>, StoreError> {
    if exchanges.open.is_empty() {
        return Ok(None);
    }
    // A number, not NULL; and not later than now. With bounds for the priority, too, the index is sought once for each
    // priority; without them the server would walk all of it.
    let mut due = doc! {
        "priority": { "$gte": 0_i32, "$lte": 255_i32 },
        "due_at": { "$gte": 0_i64, "$lte": exchanges.now },
    };
    due.extend(exchanges.filter());
    let until = doc! { "$add": [{ "$toLong": "$$NOW" }, whole_ms(ask.lease)] };
    let set = doc! {
        "state": "running",
        "fence": { "$add": ["$fence", 1_i64] },
        "lock": { "locked_by": { "$literal": ask.worker }, "lock_until": until.clone() },
        "due_at": until,
        "stats.runs": { "$add": ["$stats.runs", 1_i64] },
        "stats.last_run_at": "$$NOW",
        "updated_at": "$$NOW",
        "rev": { "$add": ["$rev", 1_i64] },
        "slot": !exchanges.caps.is_empty(),
    };
    let update = store
        .jobs
        .find_one_and_update(due, vec![doc! { "$set": set }])
        .sort(doc! { "priority": 1, "due_at": 1 })
        .hint(mongodb::options::Hint::Name(super::DUE.to_owned()))
        .return_document(ReturnDocument::After);
    update.await.map_err(fault::error)
}

/// Tells the exchange that a job of it begins, and takes the slot where it has a cap. Not so if it was paused, or has no room.
async fn begin(store: &MongoStore, job: &Job, cap: Option<u32>) -> Result<bool, StoreError> {
    let begun = job.stats.last_run_at.map(|at| DateTime::from_millis(at.get()));
    let active = doc! { "exchange_id": job.exchange_id.as_str(), "status": "active" };
    let Some(cap) = cap else {
        if !store.known_exchanges.is_to_be_told(job.exchange_id) {
            return Ok(true);
        }
        let told = doc! { "$set": { "last_job_run_time": begun } };
        let update = store.connectors.update_one(active, told);
        return Ok(update.await.map_err(fault::error)?.matched_count > 0);
    };
    let until = job.lock.lock_until.map_or(0, UnixMs::get);
    let own = doc! { "job": oid(job.id), "until": until };
    // Those that count: not over, and not this job's own of an earlier lease.
    let others = doc! { "$filter": { "input": { "$ifNull": ["$slots", []] }, "cond": { "$and": [
        { "$gt": ["$$this.until", { "$toLong": "$$NOW" }] },
        { "$ne": ["$$this.job", oid(job.id)] },
    ] } } };
    let has_room = doc! { "$lt": [{ "$size": "$slots" }, i64::from(cap)] };
    let taken = doc! {
        "slots": { "$cond": [has_room.clone(), { "$concatArrays": ["$slots", [own]] }, "$slots"] },
        "last_job_run_time": { "$cond": [has_room, begun, "$last_job_run_time"] },
    };
    let pipeline = vec![doc! { "$set": { "slots": others } }, doc! { "$set": taken }];
    let update = store
        .connectors
        .find_one_and_update(active, pipeline)
        .return_document(ReturnDocument::After)
        .projection(doc! { "slots": 1 });
    let found = update.await.map_err(fault::error)?;
    let own = Some(oid(job.id));
    let is_own = |slot: &Bson| slot.as_document().is_some_and(|slot| slot.get_object_id("job").ok() == own);
    let has_it = |found: &Document| found.get_array("slots").is_ok_and(|slots| slots.iter().any(is_own));
    Ok(found.as_ref().is_some_and(has_it))
}

/// It was claimed and cannot be worked on: nobody has begun, and it is due as it was.
async fn put_back(store: &MongoStore, job: &Job) -> Result<(), StoreError> {
    let held = doc! { "_id": oid(job.id), "fence": job.fence as i64, "state": "running" };
    let set = doc! {
        "state": "queued",
        "lock": { "locked_by": Bson::Null, "lock_until": Bson::Null },
        "due_at": { "$cond": [{ "$eq": ["$status", "active"] }, "$next_run_at", Bson::Null] },
        "stats.runs": { "$subtract": ["$stats.runs", 1_i64] },
        "rev": { "$add": ["$rev", 1_i64] },
        "slot": false,
    };
    store.jobs.update_one(held, vec![doc! { "$set": set }]).await.map_err(fault::error)?;
    Ok(())
}

/// When the next is due, by an index of its own.
async fn nothing(store: &MongoStore, exchanges: &Exchanges) -> Result<Claimed, StoreError> {
    if exchanges.open.is_empty() {
        return Ok(Claimed::Nothing { next_in: None });
    }
    let mut later = doc! { "due_at": { "$gte": 0_i64 } };
    later.extend(exchanges.filter());
    let pipeline = vec![
        doc! { "$match": later },
        doc! { "$sort": { "due_at": 1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "due_at": 1, "now": "$$NOW" } },
    ];
    let mut found = store.jobs.aggregate(pipeline).await.map_err(fault::error)?;
    let next = found.try_next().await.map_err(fault::error)?;
    let next_in = next.and_then(|next| {
        let (due, now) = (whole(&next, "due_at")?, whole(&next, "now")?);
        Some(between(from_ms(now), from_ms(due)).max(Duration::from_millis(1)))
    });
    Ok(Claimed::Nothing { next_in })
}
