//! Every promise of a [`Store`], as a test. A store that passes [`all`] may be trusted with jobs.
//!
//! ```no_run
//! # async fn example(make: impl AsyncFn() -> Box<dyn catchment_jobs::conformance::Rig>) {
//! catchment_jobs::conformance::all(make).await;
//! # }
//! ```
//!
//! A failed promise panics and names itself, as a test does. A store with some of the abilities runs the parts it has:
//! [`connectors`], [`tokens`], [`jobs`], [`leases`], [`candles`]; [`checklist`] is S2's list of what must be true. [`claims`] is
//! for any table of leased jobs, a [`Store`] or not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use catchment_model::{Candle, Timeframe, UnixMs, Venue};

use crate::candles::{Series, Span};
use crate::connector::{NewConnector, RateLimit};
use crate::id::Id;
use crate::job::{Job, JobType, NewJob};
use crate::store::{Claim, Claimed, Lease, Store};
use crate::time::from_ms;

pub mod candles;
pub mod checklist;
pub mod claims;
pub mod connectors;
pub mod jobs;
pub mod leases;
pub mod tokens;

/// A store under test, empty, and its clock.
#[async_trait]
pub trait Rig: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// The same store as another process has it.
    async fn beside(&self) -> Arc<dyn Store>;

    /// Lets time pass by the store's clock.
    async fn pass(&self, length: Duration);

    /// How much time may pass by itself within a test. Nothing, where the clock stands still.
    fn slack(&self) -> Duration;
}

/// Runs every promise, each on a rig of its own.
pub async fn all(make: impl AsyncFn() -> Box<dyn Rig>) {
    connectors::all(&make).await;
    tokens::all(&make).await;
    jobs::all(&make).await;
    leases::all(&make).await;
    claims::all(&async |jobs| claims::of_store(make().await, jobs).await).await;
    candles::all(&make).await;
    checklist::all(&make).await;
}

/// An exchange.
pub fn binance() -> Venue {
    Venue::new("binance").expect("a name")
}

/// Another.
pub fn okx() -> Venue {
    Venue::new("okx").expect("a name")
}

/// A connector of that exchange with that limit.
pub async fn connect(store: &dyn Store, exchange: Venue, limit: u32, period: Duration) {
    let new = NewConnector {
        exchange_id: exchange,
        rate: RateLimit::new(limit, period),
        max_concurrent_jobs: None,
    };
    let (_, is_new) = store.ensure_connector(&new).await.expect("a connector");
    assert!(is_new, "the rig was not empty");
}

/// An hourly job for that symbol.
pub fn hourly(exchange: Venue, symbol: &str) -> NewJob {
    NewJob::candles(exchange, JobType::OhlcvIncremental, symbol, Timeframe::H1)
}

/// A job for that symbol's history.
pub fn history(exchange: Venue, symbol: &str) -> NewJob {
    NewJob::candles(exchange, JobType::OhlcvBackfill, symbol, Timeframe::M1)
}

/// What a worker asks for.
pub fn by(worker: &str) -> Claim<'_> {
    Claim { worker, lease: LEASE, cap: None, only: None }
}

/// How long the suite's leases last.
pub const LEASE: Duration = Duration::from_secs(30);

/// The job that is due; there must be one.
pub async fn claim(store: &dyn Store, worker: &str) -> (Job, Lease) {
    store.claim(&by(worker)).await.expect("a claim").job().expect("a job is due")
}

/// None is due.
pub async fn nothing_due(store: &dyn Store) -> Option<Duration> {
    match store.claim(&by("idle")).await.expect("a claim") {
        Claimed::Nothing { next_in } => next_in,
        Claimed::Job(job, _) => panic!("{} for {:?} was due", job.kind.as_str(), job.symbol),
    }
}

/// Minute candles of a symbol.
pub fn minutes(exchange: Venue, symbol: &str) -> Series {
    Series { exchange_id: exchange, symbol: symbol.to_owned(), timeframe: Timeframe::M1 }
}

/// So many candles from that minute on. `mark` stands in their prices.
pub fn some_candles(first: i64, len: i64, mark: u32) -> Vec<Candle> {
    let decimal = |text: String| text.parse().expect("a decimal");
    let candle = |minute: i64| Candle {
        open_time: minute_at(minute),
        open: decimal(format!("{mark}.10")),
        high: decimal(format!("{mark}.90")),
        low: decimal(format!("{mark}.01")),
        close: decimal(format!("{mark}.5000")),
        volume: decimal(format!("{minute}")),
        quote_volume: (minute % 2 == 0).then(|| decimal("0.000000001".to_owned())),
        trades: (minute % 3 == 0).then_some(7),
        is_final: true,
    };
    (first..first + len).map(candle).collect()
}

/// A minute of the suite's calendar, which begins in 2023.
pub fn minute_at(minute: i64) -> UnixMs {
    from_ms(1_700_000_040_000 + minute * 60_000)
}

/// From a minute up to another.
pub fn span(from: i64, to: i64) -> Span {
    Span { from: minute_at(from), to: minute_at(to) }
}

/// Whether a length is as said, give or take what may pass by itself.
pub fn about(length: Duration, said: Duration, slack: Duration) {
    assert!(length <= said && length + slack >= said, "{length:?} is not {said:?} (less {slack:?} at most)");
}
