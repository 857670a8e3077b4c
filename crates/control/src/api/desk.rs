//! What can be done, whoever asks: over HTTP or from the command line. Everything given is checked here first, field by
//! field; each act is one act of the store, so it is done or not done.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use catchment_jobs::{
    Connector, ConnectorPatch, Cursor, Id, Job, JobFilter, JobPatch, JobType, NewConnector, NewJob, Page,
    RateLimit, Schedule, State, Status, Store, StoreError,
};
use catchment_model::{Timeframe, Venue};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::catalogue::{Catalogue, Exchange, check_symbol};
use super::fields::{Fields, shown};
use super::problem::Problem;

/// A list's page, where nothing is said.
pub(crate) const PAGE: u32 = 100;
/// The longest.
pub(crate) const PAGE_MAX: u32 = 500;
/// Fields of a job that its owner reads, and the store writes.
const JOB_READ_ONLY: [&str; 8] =
    ["_id", "state", "stats", "lock", "fence", "attempts", "created_at", "updated_at"];
/// The same of a cursor.
const CURSOR_READ_ONLY: [&str; 4] = ["page", "last_ts", "done", "next"];
/// The same of a connector.
const CONNECTOR_READ_ONLY: [&str; 12] = [
    "_id",
    "creation_date",
    "status",
    "rate_limit_usage",
    "rate_limit_window_start",
    "rate_limit_reset_at",
    "rate_limit_saturated",
    "last_job_run_time",
    "jobs_count",
    "active_jobs_count",
    "windows",
    "updated_at",
];

/// The store, or why it could not be opened.
pub type Opened = Result<Arc<dyn Store>, String>;
type Opening = Pin<Box<dyn Future<Output = Opened> + Send>>;

/// Where everything is asked for.
#[derive(Clone)]
pub struct Desk {
    store: Arc<OnceCell<Arc<dyn Store>>>,
    open: Arc<dyn Fn() -> Opening + Send + Sync>,
    catalogue: Arc<Catalogue>,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    /// So far.
    pub items: Vec<T>,
    /// What to give as `after` for the rest; none: that is all.
    pub next: Option<String>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("catalogue", &self.catalogue).finish_non_exhaustive()
    }
}

impl Desk {
    /// Over a store that is opened when somebody first needs it; again, if that fails.
    pub fn opening<F>(open: impl Fn() -> F + Send + Sync + 'static, catalogue: Catalogue) -> Self
    where
        F: Future<Output = Opened> + Send + 'static,
    {
        let open = Arc::new(move || -> Opening { Box::pin(open()) });
        Self { store: Arc::default(), open, catalogue: Arc::new(catalogue) }
    }

    /// Over a store that is open.
    pub fn over(store: Arc<dyn Store>, catalogue: Catalogue) -> Self {
        Self::opening(move || std::future::ready(Ok(Arc::clone(&store))), catalogue)
    }

    pub(crate) async fn store(&self) -> Result<&dyn Store, Problem> {
        let opened = self.store.get_or_try_init(|| (self.open)()).await;
        opened.map(|store| &**store).map_err(|why| Problem::unavailable(&why))
    }

    pub(crate) fn exchange(&self, id: &str) -> Result<&Exchange, String> {
        self.catalogue.find(id)
    }

    /// S2's `POST /connectors`: there is one afterwards, with the limits that were given. The flag says whether it is new.
    pub async fn upsert_connector(&self, body: Value) -> Result<(Connector, bool), Problem> {
        let mut fields = Fields::of_body(body)?;
        let exchange = fields.text("exchange_id", |text| self.exchange(text));
        let exchange = fields.needs("exchange_id", exchange);
        let patch = read_limits(&mut fields);
        fields.end(&CONNECTOR_READ_ONLY)?;
        let exchange = exchange.expect("what is missing was refused");
        let new = NewConnector {
            exchange_id: exchange.id,
            rate: RateLimit {
                limit: patch.rate_limit.unwrap_or(exchange.rate.limit),
                period_ms: patch.rate_limit_period_ms.unwrap_or(exchange.rate.period_ms),
            },
            max_concurrent_jobs: patch.max_concurrent_jobs.filter(|cap| *cap > 0),
        };
        let store = self.store().await?;
        let (connector, is_new) = store.ensure_connector(&new).await?;
        if is_new || agrees(&connector, &patch) {
            return Ok((connector, is_new));
        }
        Ok((store.patch_connector(exchange.id, &patch).await?, false))
    }

    /// Those that are not deleted, by name.
    pub async fn connectors(&self, query: &str) -> Result<Listed<Connector>, Problem> {
        let mut fields = Fields::of_query(query);
        let status = fields.word("status", [Status::Active, Status::Paused], Status::as_str);
        let after =
            fields.text("after", |text| Venue::new(text).map_err(|error| format!("is refused: {error}")));
        let limit = read_limit(&mut fields, PAGE, PAGE_MAX) as usize;
        fields.end(&[])?;
        let mut items = self.store().await?.connectors().await?;
        items.retain(|one| status.is_none_or(|status| one.status == status));
        items.retain(|one| after.is_none_or(|after| one.exchange_id > after));
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| last.exchange_id.to_string());
        Ok(Listed { items, next })
    }

    /// The connector of an exchange.
    pub async fn connector(&self, exchange: &str) -> Result<Connector, Problem> {
        let venue = read_venue(exchange)?;
        self.store()
            .await?
            .connector(venue)
            .await?
            .filter(|connector| connector.status != Status::Deleted)
            .ok_or_else(|| Problem::missing("connector", venue))
    }

    /// Changes what is given of it.
    pub async fn change_connector(&self, exchange: &str, body: Value) -> Result<Connector, Problem> {
        let mut fields = Fields::of_body(body)?;
        let mut patch = read_limits(&mut fields);
        patch.notes = fields.text("notes", |text| match text.chars().count() {
            0..=NOTES_MAX => Ok(text.to_owned()),
            long => Err(format!("has {long} characters; it may have {NOTES_MAX}")),
        });
        fields.end(&[&CONNECTOR_READ_ONLY[..], &["exchange_id"]].concat())?;
        let venue = self.connector(exchange).await?.exchange_id;
        Ok(self.store().await?.patch_connector(venue, &patch).await?)
    }

    /// Pauses it, or lets it go on.
    pub async fn set_connector_status(&self, exchange: &str, status: Status) -> Result<Connector, Problem> {
        let venue = self.connector(exchange).await?.exchange_id;
        Ok(self.store().await?.set_connector_status(venue, status).await?)
    }

    /// Deletes it; once it is, that is no news.
    pub async fn delete_connector(&self, exchange: &str) -> Result<(), Problem> {
        let venue = read_venue(exchange)?;
        let store = self.store().await?;
        match store.connector(venue).await? {
            None => Err(Problem::missing("connector", venue)),
            Some(connector) if connector.status == Status::Deleted => Ok(()),
            Some(_) => Ok(store.set_connector_status(venue, Status::Deleted).await.map(|_| ())?),
        }
    }

    /// Adds a job. If an active one agrees with what is asked, that is the answer, so asking twice is asking once; if one
    /// is there that does not agree, it is a conflict. The flag says whether it is new.
    pub async fn add_job(&self, body: Value) -> Result<(Job, bool), Problem> {
        let new = self.read_new_job(body)?;
        let store = self.store().await?;
        if let Some(symbol) = &new.symbol
            && store.is_listed(new.exchange_id, symbol).await? == Some(false)
        {
            let detail = format!("is {}, which {} does not list", shown(symbol), new.exchange_id);
            return Err(Problem::field("symbol", detail));
        }
        match store.add_job(&new).await {
            Ok(job) => Ok((job, true)),
            Err(StoreError::AlreadyActive(id)) => {
                let there = store.job(id).await?.filter(|job| is_same(job, &new));
                there.map(|job| (job, false)).ok_or_else(|| StoreError::AlreadyActive(id).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Those that match, the oldest first.
    pub async fn jobs(&self, query: &str) -> Result<Listed<Job>, Problem> {
        let mut fields = Fields::of_query(query);
        let filter = JobFilter {
            exchange_id: fields.text("exchange_id", |text| Ok(self.exchange(text)?.id)),
            kind: fields.word("type", JobType::ALL, JobType::as_str),
            symbol: fields.text("symbol", check_symbol),
            timeframe: fields.word("timeframe", Timeframe::ALL, Timeframe::as_str),
            status: fields.word("status", Status::ALL, Status::as_str),
            state: fields.word("state", State::ALL, State::as_str),
        };
        let after = fields.text("after", read_id);
        let limit = read_limit(&mut fields, PAGE, PAGE_MAX);
        fields.end(&[])?;
        // One more than asked for tells whether there are more.
        let mut items = self.store().await?.jobs(&filter, Page { after, limit: limit + 1 }).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| more).map(|last| last.id.to_string());
        Ok(Listed { items, next })
    }

    /// The job of that name, unless it is deleted.
    pub async fn job(&self, id: &str) -> Result<Job, Problem> {
        let id = read_id(id).map_err(|reason| Problem::field("id", reason))?;
        let found = self.store().await?.job(id).await?.filter(|job| job.status != Status::Deleted);
        found.ok_or_else(|| Problem::missing("job", id))
    }

    /// Changes what is given of it.
    pub async fn change_job(&self, id: &str, body: Value) -> Result<Job, Problem> {
        let mut fields = Fields::of_body(body)?;
        let patch = JobPatch {
            schedule: read_schedule(&mut fields),
            next_run_at: fields.moment("next_run_at"),
            priority: read_priority(&mut fields),
            cursor: read_cursor(&mut fields),
        };
        let fixed = ["exchange_id", "type", "symbol", "timeframe", "status"];
        fields.end(&[&JOB_READ_ONLY[..], &fixed].concat())?;
        let job = self.job(id).await?;
        if job.kind == JobType::GapBackfill
            && patch.cursor.as_ref().is_some_and(|cursor| cursor.until_ms.is_none())
        {
            return Err(Problem::field("cursor.until_ms", "is missing; a gap has an end"));
        }
        Ok(self.store().await?.patch_job(job.id, &patch).await?)
    }

    /// It is not begun again until resumed.
    pub async fn pause_job(&self, id: &str) -> Result<Job, Problem> {
        let id = self.job(id).await?.id;
        Ok(self.store().await?.pause_job(id).await?)
    }

    /// It goes on.
    pub async fn resume_job(&self, id: &str) -> Result<Job, Problem> {
        let id = self.job(id).await?.id;
        Ok(self.store().await?.resume_job(id).await?)
    }

    /// It is due now.
    pub async fn run_job(&self, id: &str) -> Result<Job, Problem> {
        let id = self.job(id).await?.id;
        Ok(self.store().await?.run_job_now(id).await?)
    }

    /// Deletes it; once it is, that is no news.
    pub async fn delete_job(&self, id: &str) -> Result<(), Problem> {
        let id = read_id(id).map_err(|reason| Problem::field("id", reason))?;
        Ok(self.store().await?.delete_job(id).await.map(|_| ())?)
    }

    fn read_new_job(&self, body: Value) -> Result<NewJob, Problem> {
        let mut fields = Fields::of_body(body)?;
        let exchange = fields.text("exchange_id", |text| self.exchange(text));
        let exchange = fields.needs("exchange_id", exchange);
        let kind = fields.word("type", JobType::ALL, JobType::as_str);
        let kind = fields.needs("type", kind);
        let symbol = fields.text("symbol", check_symbol);
        let timeframe = fields.word("timeframe", Timeframe::ALL, Timeframe::as_str);
        if let (Some(exchange), Some(kind)) = (exchange, kind) {
            let wrong = exchange.check_type(kind).err();
            wrong.map(|reason| fields.refuse::<()>("type", reason));
        }
        if let (Some(exchange), Some(timeframe)) = (exchange, timeframe) {
            let wrong = exchange.check_timeframe(timeframe).err();
            wrong.map(|reason| fields.refuse::<()>("timeframe", reason));
        }
        let schedule = read_schedule(&mut fields);
        let next_run_at = fields.moment("next_run_at");
        let priority = read_priority(&mut fields);
        let cursor = read_cursor(&mut fields).unwrap_or_default();
        fields.end(&[&JOB_READ_ONLY[..], &["status"]].concat())?;
        let exchange_id = exchange.expect("what is missing was refused").id;
        let kind = kind.expect("what is missing was refused");
        let new = NewJob { exchange_id, kind, symbol, timeframe, schedule, next_run_at, priority, cursor };
        new.check()?;
        Ok(new)
    }
}

/// What a connector lets through.
fn read_limits(fields: &mut Fields) -> ConnectorPatch {
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    ConnectorPatch {
        rate_limit: small(fields.number("rate_limit", 1..=u64::from(RateLimit::LIMIT_MAX))),
        rate_limit_period_ms: fields
            .number("rate_limit_period_ms", RateLimit::PERIOD_MS_MIN..=RateLimit::PERIOD_MS_MAX),
        max_concurrent_jobs: small(fields.number("max_concurrent_jobs", 0..=CAP_MAX)),
        notes: None,
    }
}

/// Characters of a connector's notes; in bytes no more than a store takes.
const NOTES_MAX: usize = 1_024;
/// More jobs at once than that are no cap.
pub(crate) const CAP_MAX: u64 = 1_000_000;

/// Whether the connector is as it was asked to be.
fn agrees(connector: &Connector, patch: &ConnectorPatch) -> bool {
    patch.rate_limit.is_none_or(|limit| limit == connector.rate_limit)
        && patch.rate_limit_period_ms.is_none_or(|period| period == connector.rate_limit_period_ms)
        && patch.max_concurrent_jobs.is_none_or(|cap| cap == connector.max_concurrent_jobs.unwrap_or(0))
}

/// Whether a job that is there is the one that was asked for. Where it begins moves once it has begun.
fn is_same(job: &Job, new: &NewJob) -> bool {
    let has_begun = job.cursor.page > 0 || job.stats.runs > 0;
    job.schedule == new.schedule()
        && job.priority == new.priority.unwrap_or_else(|| new.kind.default_priority())
        && job.cursor.until_ms == new.cursor.until_ms
        && (has_begun || job.cursor.since_ms == new.cursor.since_ms)
}

fn read_schedule(fields: &mut Fields) -> Option<Schedule> {
    let mut inner = fields.object("schedule")?;
    let mode = inner.word("mode", ["interval", "once"], |mode| mode);
    let mode = inner.needs("mode", mode);
    let range = Schedule::INTERVAL_MS_MIN..=Schedule::INTERVAL_MS_MAX;
    let interval = match mode {
        Some("interval") => {
            let interval = inner.number("interval_ms", range);
            inner.needs("interval_ms", interval)
        }
        _ => None,
    };
    fields.close(inner, &[]);
    match mode? {
        "interval" => interval.map(|interval_ms| Schedule::Interval { interval_ms }),
        _ => Some(Schedule::Once),
    }
}

fn read_cursor(fields: &mut Fields) -> Option<Cursor> {
    let mut inner = fields.object("cursor")?;
    let since = inner.moment("since_ms").unwrap_or(Cursor::default().since_ms);
    let until = inner.moment("until_ms");
    if let Some(until) = until.filter(|until| *until <= since) {
        let (since, until) = (since.get(), until.get());
        inner.refuse::<()>("until_ms", format!("is {until}, which is not after since_ms {since}"));
    }
    fields.close(inner, &CURSOR_READ_ONLY);
    Some(Cursor::over(since, until))
}

fn read_priority(fields: &mut Fields) -> Option<u8> {
    fields.number("priority", 0..=u64::from(u8::MAX)).and_then(|number| u8::try_from(number).ok())
}

pub(crate) fn read_limit(fields: &mut Fields, usual: u32, max: u32) -> u32 {
    fields.number("limit", 1..=u64::from(max)).and_then(|limit| u32::try_from(limit).ok()).unwrap_or(usual)
}

fn read_id(text: &str) -> Result<Id, String> {
    text.parse().map_err(|_| format!("is {}; an id has 24 hex digits in lower case", shown(text)))
}

fn read_venue(text: &str) -> Result<Venue, Problem> {
    Venue::new(text).map_err(|error| Problem::field("exchange_id", format!("is refused: {error}")))
}
