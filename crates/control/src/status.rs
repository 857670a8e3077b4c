//! The figures, as they are shown and as JSON.

use serde::Serialize;

/// How a recorder is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// The build.
    pub version: &'static str,
    /// How long it has been running.
    pub uptime_s: u64,
    /// Why it is not ready, if so; empty when it is.
    pub not_ready: Vec<String>,
    /// Each venue, in the order of the configuration.
    pub venues: Vec<Venue>,
    /// Each sink.
    pub sinks: Vec<Sink>,
    /// What is on its way to the sinks.
    pub spool: Spool,
    /// What came in and what became of it, by sink and venue. Both sides are equal, or something is lost.
    pub balances: Vec<Balance>,
}

/// How one venue is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Venue {
    /// Its name.
    pub venue: String,
    /// How many instruments are recorded.
    pub instruments: usize,
    /// Books recorded since the start.
    pub books: u64,
    /// Over the last ten seconds.
    pub books_per_second: f64,
    /// Requests sent since the start.
    pub requests: u64,
    /// Times the venue said that it was too fast.
    pub refusals: u64,
    /// Requests that failed otherwise.
    pub failures: u64,
    /// Of these, those without an answer in time.
    pub timeouts: u64,
    /// Slots that were skipped because no request could leave in time.
    pub late: u64,
    /// The middle of the latest latencies.
    pub latency_ms_p50: f64,
    /// 95 of 100 were quicker.
    pub latency_ms_p95: f64,
    /// Between two reads of one book: 95 of 100 came sooner.
    pub spacing_ms_p95: f64,
    /// Cost a second the limiter lets through, if it paces. A request costs 1 at most venues.
    pub rate: Option<f64>,
    /// What keeps everything from being sent, if anything does.
    pub hold: Option<Hold>,
    /// What went wrong last, if anything did.
    pub last_error: Option<String>,
}

/// A venue that is left alone for a while.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hold {
    /// Why.
    pub cause: String,
    /// For how long yet.
    pub remaining_ms: u64,
}

/// How one sink is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// `ok`, `unreachable` or `degraded`.
    pub state: String,
    /// How long its last batch took.
    pub write_batch_latency_ms: f64,
}

/// What is durable and not yet in every sink.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spool {
    /// On disk.
    pub bytes: u64,
    /// In so many files.
    pub segments: usize,
    /// Whether there is room for no more.
    pub full: bool,
}

/// One line of the books.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Balance {
    /// Which sink.
    pub sink: String,
    /// Which venue.
    pub venue: String,
    /// Came in, those of an earlier run included.
    pub received: u64,
    /// Are in the sink.
    pub written: u64,
    /// Had come before.
    pub duplicate: u64,
    /// Were not accepted.
    pub dropped: u64,
    /// Were refused by the sink.
    pub quarantined: u64,
    /// Are on their way.
    pub pending: u64,
    /// `received` less all the others: 0, or something is lost.
    pub lost: i64,
}
