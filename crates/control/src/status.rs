//! The figures, as they are shown and as JSON.

use std::collections::BTreeMap;

use catchment_pipeline::WriteTimes;
use serde::Serialize;

use crate::Jobs;

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
    /// Each venue whose streams are recorded.
    pub streams: Vec<Stream>,
    /// Each sink.
    pub sinks: Vec<Sink>,
    /// Tries to write to a sink that failed, by exchange: S1's `ingest_errors_total`.
    pub ingest_errors: BTreeMap<String, u64>,
    /// What is on its way to the sinks.
    pub spool: Spool,
    /// By what duplicates are known, if they are looked for.
    pub dedup: Option<Dedup>,
    /// What came in, by venue and channel.
    pub channels: Vec<ChannelCounts>,
    /// What came in and what became of it, by sink and venue. Both sides are equal, or something is lost.
    pub balances: Vec<Balance>,
    /// Connectors and jobs, where this process works on some.
    pub jobs: Option<Jobs>,
}

/// How one venue is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Venue {
    /// Its name.
    pub venue: String,
    /// What is done with it: `poll`, `stream`, `jobs`.
    pub kinds: Vec<&'static str>,
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
    /// Between two reads of one book: 5 of 100 came sooner.
    pub spacing_ms_p05: f64,
    /// Between two reads of one book: 95 of 100 came sooner.
    pub spacing_ms_p95: f64,
    /// Cost a second the limiter lets through, if it paces. A request costs 1 at most venues.
    pub rate: Option<f64>,
    /// What keeps everything from being sent, if anything does.
    pub hold: Option<Hold>,
    /// How its clock goes beside ours, by the time that its answers carry, if it is polled.
    pub clock: Option<Clock>,
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
    /// How long all of them took.
    pub write_times: WriteTimes,
}

/// How the streams of one venue are doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stream {
    /// Its name.
    pub venue: String,
    /// Instruments that are recorded.
    pub instruments: usize,
    /// Each connection.
    pub connections: Vec<Connection>,
    /// Data messages since the start.
    pub messages: u64,
    /// Over the last ten seconds.
    pub messages_per_second: f64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// Gaps recorded.
    pub gaps: u64,
    /// Messages that had come before, and were not recorded again.
    pub duplicates: u64,
    /// Books that agreed with the venue's checksum.
    pub checks_agree: u64,
    /// Books that did not.
    pub checks_differ: u64,
    /// Books begun anew.
    pub resyncs: u64,
    /// Instruments that say less than they should.
    pub silent: usize,
    /// How the venue's clock goes beside ours.
    pub clock: Option<Clock>,
    /// What went wrong last, if anything did.
    pub last_error: Option<String>,
}

impl Stream {
    /// How many connections bring what they should.
    pub fn live(&self) -> usize {
        self.connections.iter().filter(|one| matches!(one.state.as_str(), "live" | "switching")).count()
    }

    /// How many connections are in which state.
    pub(crate) fn connections_by_state(&self) -> BTreeMap<&str, usize> {
        let mut states = BTreeMap::new();
        self.connections.iter().for_each(|c| *states.entry(c.state.as_str()).or_default() += 1);
        states
    }
}

/// One connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Connection {
    /// Its name, as in the records' `source`.
    pub id: String,
    /// `waiting`, `connecting`, `subscribing`, `live`, `switching` or `over`.
    pub state: String,
    /// How long its socket has been open.
    pub up_s: u64,
    /// What it was asked to carry.
    pub streams: usize,
    /// Of these, what the venue has agreed to.
    pub subscribed: usize,
    /// Data messages since the start.
    pub messages: u64,
    /// Since the last frame of any kind.
    pub silent_ms: Option<u64>,
    /// From the venue's time of a message to its receipt, lately; holds the difference of the clocks.
    pub lag_ms: Option<f64>,
    /// How much that varies.
    pub lag_jitter_ms: Option<f64>,
    /// What went wrong last, if anything did.
    pub last_error: Option<String>,
}

/// A venue's clock beside ours: S1's time quality.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Clock {
    /// Theirs less ours.
    pub offset_ms: f64,
    /// It is right to within this, either way: half of the way there and back, and half of the step in which they tell it.
    pub uncertainty_ms: f64,
    /// How much that differs from one look to the next.
    pub jitter_ms: f64,
    /// Looks it is made from.
    pub samples: u64,
}

/// What came in on one channel of one venue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ChannelCounts {
    /// Which venue.
    pub venue: String,
    /// Which channel.
    pub channel: String,
    /// Offered.
    pub received: u64,
    /// Durable.
    pub accepted: u64,
    /// Had come before.
    pub duplicate: u64,
    /// Not accepted because the spool was full.
    pub spool_full: u64,
}

/// What is durable and not yet in every sink.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spool {
    /// Whether it is on disk; otherwise it is memory alone.
    pub enabled: bool,
    /// On disk.
    pub bytes: u64,
    /// In so many files.
    pub segments: usize,
    /// Whether there is room for no more.
    pub full: bool,
    /// Records delivered from it instead of from memory.
    pub replayed: u64,
}

/// By what duplicates are known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Dedup {
    /// For how long.
    pub window_s: f64,
    /// So many records at most.
    pub keys_max: usize,
    /// So many now.
    pub keys: usize,
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
