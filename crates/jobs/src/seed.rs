//! S2's migration: what the configuration names becomes connectors and jobs. May be done again at every start.

use catchment_model::{Timeframe, UnixMs, Venue};

use crate::connector::NewConnector;
use crate::error::StoreError;
use crate::job::{Cursor, JobType, NewJob};
use crate::store::Store;

/// A pair whose candles are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Where.
    pub exchange_id: Venue,
    /// What.
    pub symbol: String,
    /// How long each candle is.
    pub timeframe: Timeframe,
    /// Whether its history is fetched, too.
    pub history: bool,
    /// From when on; none means from the first there is.
    pub since: Option<UnixMs>,
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seeded {
    /// Connectors that were not there.
    pub connectors: usize,
    /// Jobs that were not there.
    pub jobs: usize,
}

/// Makes the connectors and, for each pair, an incremental job and, if asked for, one for its history. What is there is left
/// as it is; a history that was fetched, or a job that its owner deleted, is not begun again.
pub async fn seed(
    store: &dyn Store,
    connectors: &[NewConnector],
    pairs: &[Pair],
) -> Result<Seeded, StoreError> {
    let mut seeded = Seeded::default();
    for connector in connectors {
        let (_, is_new) = store.ensure_connector(connector).await?;
        seeded.connectors += usize::from(is_new);
    }
    for pair in pairs {
        let kinds = [Some(JobType::OhlcvIncremental), pair.history.then_some(JobType::OhlcvBackfill)];
        for kind in kinds.into_iter().flatten() {
            seeded.jobs += usize::from(seed_job(store, pair, kind).await?);
        }
    }
    Ok(seeded)
}

async fn seed_job(store: &dyn Store, pair: &Pair, kind: JobType) -> Result<bool, StoreError> {
    let filter = crate::JobFilter {
        exchange_id: Some(pair.exchange_id),
        kind: Some(kind),
        symbol: Some(pair.symbol.clone()),
        timeframe: Some(pair.timeframe),
        ..crate::JobFilter::default()
    };
    for status in crate::Status::ALL {
        let filter = crate::JobFilter { status: Some(status), ..filter.clone() };
        if !store.jobs(&filter, crate::Page::first(1)).await?.is_empty() {
            return Ok(false);
        }
    }
    let mut new = NewJob::candles(pair.exchange_id, kind, &pair.symbol, pair.timeframe);
    if let Some(since) = pair.since.filter(|_| kind == JobType::OhlcvBackfill) {
        new.cursor = Cursor::over(since, None);
    }
    match store.add_job(&new).await {
        Ok(_) => Ok(true),
        // Another process was faster.
        Err(StoreError::AlreadyActive(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
