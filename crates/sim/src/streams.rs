//! The streams of a simulation, for those who hold it in their hands: faults, the log, the journal, time.

use std::sync::Arc;

use crate::config::SimError;
use crate::server::{House, Sim, lock};
use crate::ws::fault::{LogEntry, StreamFault};
use crate::ws::floor::{ConnectionView, Floor};
use crate::ws::journal::{JournalEntry, StreamCounts};

impl Sim {
    /// Lets something go wrong with a venue's streams. Gives its number in the log.
    pub fn inject(&self, venue: &str, fault: &StreamFault) -> Result<u64, SimError> {
        self.house.inject(venue, fault)
    }

    /// Lifts every fault of a venue's streams that is in force.
    pub fn lift(&self, venue: &str) -> Result<(), SimError> {
        self.house.floor(venue)?.lift();
        Ok(())
    }

    /// What was done to the streams of all venues, by venue and then in the order in which it was asked for.
    pub fn log(&self) -> Vec<LogEntry> {
        self.house.floors().flat_map(|floor| floor.log()).collect()
    }

    /// The connections a venue has.
    pub fn connections(&self, venue: &str) -> Result<Vec<ConnectionView>, SimError> {
        Ok(self.house.floor(venue)?.connections())
    }

    /// What went out at a venue, by `channel symbol`.
    pub fn counts(&self, venue: &str) -> Result<StreamCounts, SimError> {
        Ok(self.house.floor(venue)?.counts())
    }

    /// Every frame of a stream that went out, if the journal is kept.
    pub fn journal(&self, venue: &str, channel: &str, symbol: &str) -> Result<Vec<JournalEntry>, SimError> {
        Ok(self.house.floor(venue)?.journal(channel, symbol))
    }

    /// Lets happen on the streams what is due by the clock, waiting for clients that are slow to read. For
    /// [`Pace::Manual`](crate::Pace::Manual).
    pub async fn catch_up(&self) {
        for floor in self.house.floors() {
            floor.catch_up().await;
        }
    }

    /// The same, and waits until all of it has been written to the connections.
    pub async fn settle(&self) {
        for floor in self.house.floors() {
            floor.settle().await;
        }
    }
}

impl House {
    /// Puts in force what is configured to go wrong with streams.
    pub(crate) fn begin_stream_faults(&self) -> Result<(), SimError> {
        for desk in &self.desks {
            let faults = Arc::clone(&lock(&desk.trouble).faults);
            faults.stream.iter().try_for_each(|fault| self.inject(desk.spec.id, fault).map(drop))?;
        }
        Ok(())
    }

    pub(crate) fn inject(&self, venue: &str, fault: &StreamFault) -> Result<u64, SimError> {
        let wrong = |reason| SimError::config(format!("{venue}.faults.stream"), reason);
        self.floor(venue)?.inject(fault).map_err(wrong)
    }

    pub(crate) fn floors(&self) -> impl Iterator<Item = &Arc<Floor>> {
        self.desks.iter().filter_map(|desk| desk.floor.as_ref())
    }

    pub(crate) fn floor(&self, venue: &str) -> Result<&Arc<Floor>, SimError> {
        let none = || SimError::config(venue, "has no streams");
        self.desk(venue)?.floor.as_ref().ok_or_else(none)
    }
}
