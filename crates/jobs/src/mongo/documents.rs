//! S2's documents as BSON and back. Times that S2 writes as text are dates here; those it writes as numbers are longs.
//! Numbers are read in whatever width a server or a person has stored them.

use catchment_model::{Candle, Decimal, Timeframe, UnixMs};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::connector::{Connector, NamedWindow, RateLimit};
use crate::error::StoreError;
use crate::id::Id;
use crate::job::{Cursor, Job, JobType, Lock, Schedule, State, Stats, Status};
use crate::time::from_ms;

pub(super) fn oid(id: Id) -> ObjectId {
    ObjectId::from_bytes(id.bytes())
}

fn id(oid: ObjectId) -> Id {
    Id::new(oid.bytes())
}

fn date(at: UnixMs) -> DateTime {
    DateTime::from_millis(at.get())
}

/// The document as it is stored, with the fields that are ours: `due_at`, `rev`, `slot`.
pub(super) fn of_job(job: &Job, rev: i64, slot: bool) -> Document {
    let schedule = match job.schedule {
        Schedule::Interval { interval_ms } => doc! { "mode": "interval", "interval_ms": interval_ms as i64 },
        Schedule::Once => doc! { "mode": "once" },
    };
    doc! {
        "_id": oid(job.id),
        "exchange_id": job.exchange_id.as_str(),
        "type": job.kind.as_str(),
        "symbol": job.symbol.clone(),
        "timeframe": job.timeframe.map(Timeframe::as_str),
        "status": job.status.as_str(),
        "state": job.state.as_str(),
        "schedule": schedule,
        "next_run_at": job.next_run_at.get(),
        "priority": i32::from(job.priority),
        "cursor": of_cursor(&job.cursor),
        "stats": {
            "runs": job.stats.runs as i64,
            "success": job.stats.success as i64,
            "fail": job.stats.fail as i64,
            "last_run_at": job.stats.last_run_at.map(date),
            "last_success_at": job.stats.last_success_at.map(date),
            "last_error": job.stats.last_error.clone(),
        },
        "lock": {
            "locked_by": job.lock.locked_by.clone(),
            "lock_until": job.lock.lock_until.map(UnixMs::get),
        },
        "fence": job.fence as i64,
        "attempts": i64::from(job.attempts),
        "created_at": date(job.created_at),
        "updated_at": date(job.updated_at),
        "due_at": job.due_at().map(UnixMs::get),
        "rev": rev,
        "slot": slot,
    }
}

fn of_cursor(cursor: &Cursor) -> Document {
    doc! {
        "since_ms": cursor.since_ms.get(),
        "until_ms": cursor.until_ms.map(UnixMs::get),
        "page": cursor.page as i64,
        "last_ts": cursor.last_ts.get(),
        "done": cursor.done,
        "next": cursor.next.clone(),
    }
}

pub(super) fn job(document: &Document) -> Result<Job, StoreError> {
    let read = Reader { document, what: "jobs" };
    let (cursor, stats, lock) = (read.part("cursor")?, read.part("stats")?, read.part("lock")?);
    let schedule = read.part("schedule")?;
    let schedule = match schedule.text("mode")? {
        "interval" => Schedule::Interval { interval_ms: schedule.count("interval_ms")? },
        "once" => Schedule::Once,
        other => return Err(read.odd("schedule.mode", &format!("{other:?}"))),
    };
    Ok(Job {
        id: read.id()?,
        exchange_id: read.parsed("exchange_id")?,
        kind: read.named("type", &JobType::ALL, JobType::as_str)?,
        symbol: read.maybe_text("symbol").map(str::to_owned),
        timeframe: match read.maybe_text("timeframe") {
            Some(_) => Some(read.parsed("timeframe")?),
            None => None,
        },
        status: read.named("status", &Status::ALL, Status::as_str)?,
        state: read.named("state", &State::ALL, State::as_str)?,
        schedule,
        next_run_at: read.moment("next_run_at")?,
        priority: read.count("priority")?.min(255) as u8,
        cursor: Cursor {
            since_ms: cursor.moment("since_ms")?,
            until_ms: cursor.maybe_moment("until_ms"),
            page: cursor.count("page")?,
            last_ts: cursor.moment("last_ts")?,
            done: cursor.document.get_bool("done").unwrap_or(false),
            next: cursor.maybe_text("next").map(str::to_owned),
        },
        stats: Stats {
            runs: stats.count("runs")?,
            success: stats.count("success")?,
            fail: stats.count("fail")?,
            last_run_at: stats.maybe_moment("last_run_at"),
            last_success_at: stats.maybe_moment("last_success_at"),
            last_error: stats.maybe_text("last_error").map(str::to_owned),
        },
        lock: Lock {
            locked_by: lock.maybe_text("locked_by").map(str::to_owned),
            lock_until: lock.maybe_moment("lock_until"),
        },
        fence: read.count("fence")?,
        attempts: read.count("attempts")?.try_into().unwrap_or(u32::MAX),
        created_at: read.moment("created_at")?,
        updated_at: read.moment("updated_at")?,
    })
}

pub(super) fn connector(document: &Document) -> Result<Connector, StoreError> {
    let read = Reader { document, what: "connectors" };
    let small = |key: &'static str| Ok::<u32, StoreError>(read.count(key)?.try_into().unwrap_or(u32::MAX));
    let mut windows = Vec::new();
    if let Ok(named) = document.get_document("windows") {
        while let Ok(window) = named.get_document(format!("w{}", windows.len())) {
            let window = Reader { document: window, what: "connectors.windows" };
            windows.push(NamedWindow { name: window.text("name")?.to_owned(), rate: window.rate()? });
        }
    }
    Ok(Connector {
        id: read.id()?,
        exchange_id: read.parsed("exchange_id")?,
        creation_date: read.moment("creation_date")?,
        status: read.named("status", &Status::ALL, Status::as_str)?,
        notes: read.maybe_text("notes").map(str::to_owned),
        rate_limit_period_ms: read.count("rate_limit_period_ms")?,
        rate_limit: small("rate_limit")?,
        rate_limit_usage: small("rate_limit_usage")?,
        rate_limit_window_start: read.moment("rate_limit_window_start")?,
        rate_limit_reset_at: read.moment("rate_limit_reset_at")?,
        rate_limit_saturated: read.count("rate_limit_saturated")?,
        last_job_run_time: read.maybe_moment("last_job_run_time"),
        // Less than nothing, for as long as a count that was missed is not made good.
        jobs_count: whole(document, "jobs_count").unwrap_or(0).max(0).unsigned_abs(),
        active_jobs_count: whole(document, "active_jobs_count").unwrap_or(0).max(0).unsigned_abs(),
        max_concurrent_jobs: whole(document, "max_concurrent_jobs").and_then(|cap| cap.try_into().ok()),
        windows,
        updated_at: read.moment("updated_at")?,
    })
}

/// The fields of a candle, without its key.
pub(super) fn of_candle(candle: &Candle) -> Document {
    doc! {
        "open": candle.open.as_str(),
        "high": candle.high.as_str(),
        "low": candle.low.as_str(),
        "close": candle.close.as_str(),
        "volume": candle.volume.as_str(),
        "quote_volume": candle.quote_volume.as_ref().map(Decimal::as_str),
        "trades": candle.trades.map(|trades| trades as i64),
    }
}

pub(super) fn candle(document: &Document) -> Result<Candle, StoreError> {
    let read = Reader { document, what: "candles" };
    Ok(Candle {
        open_time: read.moment("open_time")?,
        open: read.parsed("open")?,
        high: read.parsed("high")?,
        low: read.parsed("low")?,
        close: read.parsed("close")?,
        volume: read.parsed("volume")?,
        quote_volume: match read.maybe_text("quote_volume") {
            Some(_) => Some(read.parsed("quote_volume")?),
            None => None,
        },
        trades: whole(document, "trades").map(i64::unsigned_abs),
        is_final: true,
    })
}

/// A number or a date, in milliseconds where it is one.
pub(super) fn whole(document: &Document, key: &str) -> Option<i64> {
    match document.get(key)? {
        Bson::Int64(value) => Some(*value),
        Bson::Int32(value) => Some(i64::from(*value)),
        // A shell writes numbers so.
        Bson::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
        Bson::DateTime(at) => Some(at.timestamp_millis()),
        _ => None,
    }
}

struct Reader<'a> {
    document: &'a Document,
    what: &'static str,
}

impl<'a> Reader<'a> {
    fn odd(&self, key: &str, how: &str) -> StoreError {
        let what = format!("{}.{key} is {how}", self.what);
        StoreError::Damaged { store: "mongo", what: what.chars().take(200).collect() }
    }

    fn part(&self, key: &'static str) -> Result<Reader<'a>, StoreError> {
        match self.document.get_document(key) {
            Ok(document) => Ok(Reader { document, what: self.what }),
            Err(error) => Err(self.odd(key, &error.to_string())),
        }
    }

    fn id(&self) -> Result<Id, StoreError> {
        self.document.get_object_id("_id").map(id).map_err(|error| self.odd("_id", &error.to_string()))
    }

    fn text(&self, key: &'static str) -> Result<&'a str, StoreError> {
        self.document.get_str(key).map_err(|error| self.odd(key, &error.to_string()))
    }

    fn maybe_text(&self, key: &str) -> Option<&'a str> {
        self.document.get_str(key).ok()
    }

    fn count(&self, key: &'static str) -> Result<u64, StoreError> {
        let value = whole(self.document, key).and_then(|value| u64::try_from(value).ok());
        value.ok_or_else(|| self.odd(key, "not a number of something"))
    }

    fn moment(&self, key: &'static str) -> Result<UnixMs, StoreError> {
        self.maybe_moment(key).ok_or_else(|| self.odd(key, "not a time"))
    }

    fn maybe_moment(&self, key: &str) -> Option<UnixMs> {
        whole(self.document, key).map(from_ms)
    }

    fn rate(&self) -> Result<RateLimit, StoreError> {
        let limit = self.count("limit")?.try_into().unwrap_or(u32::MAX);
        Ok(RateLimit { limit, period_ms: self.count("period_ms")? })
    }

    fn parsed<T>(&self, key: &'static str) -> Result<T, StoreError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.text(key)?.parse().map_err(|error: T::Err| self.odd(key, &error.to_string()))
    }

    fn named<T: Copy>(
        &self,
        key: &'static str,
        all: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<T, StoreError> {
        let text = self.text(key)?;
        let found = all.iter().copied().find(|one| name(*one) == text);
        found.ok_or_else(|| self.odd(key, &format!("{text:?}, which is none of those known")))
    }
}
