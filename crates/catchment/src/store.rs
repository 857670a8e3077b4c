//! The store of connectors, jobs and candles: opened as the configuration says; and `catchment store migrate`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream;
use catchment_governor::Limits;
use catchment_jobs::{
    JobFilter, JobType, NewConnector, NewJob, Page, RateLimit, Seeded, SqliteStore, Status, Store,
    StoreError, connector_of, seed,
};

use crate::config::{Config, JobVenue, JobsConfig, StoreConfig, StorePlace};
use crate::{DONE, say};

/// Opens it, and brings it up to date.
pub(crate) async fn open(config: &StoreConfig) -> anyhow::Result<Arc<dyn Store>> {
    match &config.place {
        StorePlace::Sqlite(path) => {
            let store = SqliteStore::open(path).await;
            Ok(Arc::new(store.with_context(|| format!("cannot open the store {}", path.display()))?))
        }
        #[cfg(feature = "mongo")]
        StorePlace::Mongo { .. } => {
            let (uri, database) = config.place.mongo_uri()?.expect("it is one");
            let settings = catchment_jobs::MongoSettings { database, ..Default::default() };
            let store = catchment_jobs::MongoStore::open(&uri, &settings).await;
            Ok(Arc::new(store.context("cannot open the store in MongoDB")?))
        }
        #[cfg(not(feature = "mongo"))]
        StorePlace::Mongo { .. } => anyhow::bail!("this build has no MongoDB"),
    }
}

/// What a venue with jobs declares, as the governor wants it.
pub(crate) fn limits_of(venue: &JobVenue) -> anyhow::Result<Limits> {
    let id = venue.descriptor.id();
    Limits::new(stream::families_of(&venue.descriptor), venue.speed.limit_share)
        .with_context(|| format!("the limits of {id} do not fit together"))
}

/// S2's migration: connectors for the venues, jobs for the pairs. What is there is left as it is.
pub(crate) async fn fill(store: &dyn Store, jobs: &JobsConfig) -> anyhow::Result<Seeded> {
    let mut connectors: Vec<NewConnector> = Vec::new();
    for venue in &jobs.venues {
        let new = connector_of(venue.descriptor.venue(), &limits_of(venue)?);
        connectors.push(NewConnector { max_concurrent_jobs: jobs.per_exchange, ..new });
    }
    let mut seeded = seed(store, &connectors, &jobs.pairs).await?;
    for connector in &connectors {
        seeded.jobs += usize::from(add_markets_refresh(store, connector).await?);
    }
    let limit = jobs.system_limit.map(|limit| RateLimit::new(limit, Duration::from_secs(1)));
    store.set_system_limit(limit).await?;
    Ok(seeded)
}

/// One for each exchange, unless there is one, or was one that its owner deleted.
async fn add_markets_refresh(store: &dyn Store, connector: &NewConnector) -> Result<bool, StoreError> {
    let filter = JobFilter {
        exchange_id: Some(connector.exchange_id),
        kind: Some(JobType::MarketsRefresh),
        ..JobFilter::default()
    };
    for status in Status::ALL {
        let filter = JobFilter { status: Some(status), ..filter.clone() };
        if !store.jobs(&filter, Page::first(1)).await?.is_empty() {
            return Ok(false);
        }
    }
    match store.add_job(&NewJob::new(connector.exchange_id, JobType::MarketsRefresh)).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyActive(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `catchment store migrate`.
pub(crate) fn migrate(config: &Config, json: bool) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let store = open(&config.store).await?;
        let seeded = match &config.jobs {
            Some(jobs) => fill(&*store, jobs).await?,
            None => Seeded::default(),
        };
        let (connectors, kind) = (store.connectors().await?, store.kind());
        let jobs: u64 = connectors.iter().map(|connector| connector.jobs_count).sum();
        if json {
            let told = serde_json::json!({
                "store": kind,
                "connectors_added": seeded.connectors,
                "jobs_added": seeded.jobs,
                "connectors": connectors.len(),
                "jobs": jobs,
            });
            tell!("{told}");
            return Ok(DONE);
        }
        if config.jobs.is_none() {
            say("catchment: the configuration names no [[jobs.pairs]]; only the schema was brought up to date");
        }
        tell!(
            "the {kind} store is up to date: {} connectors ({} new), {jobs} jobs ({} new)",
            connectors.len(),
            seeded.connectors,
            seeded.jobs
        );
        Ok(DONE)
    })
}
