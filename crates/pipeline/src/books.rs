//! Counters that balance. For every venue and sink, at any moment:
//!
//! ```text
//! received + recovered = written + duplicate + dropped{reason} + quarantined + pending
//! ```
//!
//! *received* came in through [`crate::Intake`]; *recovered* was in the spool from an earlier run; *quarantined* was
//! refused by the sink and is in its dead-letter file; *pending* is accepted and not yet settled with this sink.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use catchment_model::{Channel, Venue};
use serde::Serialize;

/// Why records were dropped instead of accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The spool was full and its policy says so.
    SpoolFull,
    /// The disk took nothing; whoever offered the records was told.
    Storage,
    /// They came after the pipeline had closed.
    Closed,
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Books {
    /// What came in, by venue and channel.
    pub intake: BTreeMap<(Venue, Channel), Intake>,
    /// What went out, by sink, then by venue and channel.
    pub sinks: BTreeMap<String, BTreeMap<(Venue, Channel), Outlet>>,
    /// Damaged stretches of the spool that were put into quarantine.
    pub damaged: u64,
    /// Records delivered from disk instead of from memory.
    pub replayed: u64,
    /// Tries to write that failed, by sink and venue: a batch counts once for each venue it holds records of.
    pub write_errors: BTreeMap<String, BTreeMap<Venue, u64>>,
}

/// What came in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intake {
    /// Offered.
    pub received: u64,
    /// Durable in the spool.
    pub accepted: u64,
    /// Seen before.
    pub duplicate: u64,
    /// Not accepted.
    pub dropped: BTreeMap<DropReason, u64>,
}

/// What went out to one sink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlet {
    /// Found in the spool, from before this start.
    pub recovered: u64,
    /// Durable in the sink.
    pub written: u64,
    /// Refused by the sink.
    pub quarantined: u64,
}

/// One venue's line for one sink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// The sink.
    pub sink: String,
    /// The venue.
    pub venue: String,
    /// Offered.
    pub received: u64,
    /// In the spool from an earlier run.
    pub recovered: u64,
    /// Durable in the sink.
    pub written: u64,
    /// Seen before.
    pub duplicate: u64,
    /// Not accepted, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// In the dead-letter file.
    pub quarantined: u64,
    /// Accepted, not yet settled.
    pub pending: u64,
}

impl Balance {
    /// Whether the two sides are equal.
    pub fn is_even(&self) -> bool {
        let dropped: u64 = self.dropped.values().sum();
        self.received + self.recovered
            == self.written + self.duplicate + dropped + self.quarantined + self.pending
    }
}

impl Books {
    /// How many tries to write this venue's records to this sink have failed.
    pub fn write_errors(&self, sink: &str, venue: &str) -> u64 {
        let venues = self.write_errors.get(sink).into_iter().flatten();
        venues.filter(|(name, _)| name.as_str() == venue).map(|(_, count)| count).sum()
    }

    /// One line per sink and venue.
    pub fn balances(&self) -> Vec<Balance> {
        let mut lines: BTreeMap<(&str, Venue), (Balance, u64)> = BTreeMap::new();
        for (sink, outlets) in &self.sinks {
            for ((venue, _), intake) in &self.intake {
                let (line, accepted) = lines.entry((sink, *venue)).or_default();
                line.received += intake.received;
                line.duplicate += intake.duplicate;
                *accepted += intake.accepted;
                for (reason, count) in &intake.dropped {
                    *line.dropped.entry(*reason).or_default() += count;
                }
            }
            for ((venue, _), outlet) in outlets {
                let (line, accepted) = lines.entry((sink, *venue)).or_default();
                line.recovered += outlet.recovered;
                line.written += outlet.written;
                line.quarantined += outlet.quarantined;
                *accepted += outlet.recovered;
            }
        }
        lines
            .into_iter()
            .map(|((sink, venue), (line, accepted))| Balance {
                sink: sink.to_owned(),
                venue: venue.to_string(),
                pending: accepted.saturating_sub(line.written + line.quarantined),
                ..line
            })
            .collect()
    }
}

/// The books while they are being kept. Locked once a group or batch, never once a record.
#[derive(Debug, Default)]
pub(crate) struct BookKeeper {
    books: Mutex<Books>,
}

impl BookKeeper {
    pub(crate) fn snapshot(&self) -> Books {
        self.lock().clone()
    }

    pub(crate) fn came_in(&self, stream: (Venue, Channel), change: impl FnOnce(&mut Intake)) {
        change(self.lock().intake.entry(stream).or_default());
    }

    pub(crate) fn sink_known(&self, sink: &str) {
        self.lock().sinks.entry(sink.to_owned()).or_default();
    }

    pub(crate) fn went_out(&self, sink: &str, counts: &BTreeMap<(Venue, Channel), Outlet>) {
        let mut books = self.lock();
        let outlets = books.sinks.get_mut(sink).expect("sinks are made known before they deliver");
        for (stream, count) in counts {
            let outlet = outlets.entry(*stream).or_default();
            outlet.recovered += count.recovered;
            outlet.written += count.written;
            outlet.quarantined += count.quarantined;
        }
    }

    /// A try to write these records has failed.
    pub(crate) fn not_written(&self, sink: &str, counts: &BTreeMap<(Venue, Channel), Outlet>) {
        let mut books = self.lock();
        let venues = books.write_errors.entry(sink.to_owned()).or_default();
        // Sorted by venue first, so that neighbours are of one.
        let mut last = None;
        for (venue, _) in counts.keys() {
            if last.replace(*venue) != Some(*venue) {
                *venues.entry(*venue).or_default() += 1;
            }
        }
    }

    pub(crate) fn damaged(&self) {
        self.lock().damaged += 1;
    }

    pub(crate) fn replayed(&self, records: u64) {
        self.lock().replayed += records;
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no holder of this lock can panic")
    }
}
