//! A lake: where the table of jobs is, and where the events' files are.

use crate::error::LakeError;
use crate::place::Place;
use crate::sign_in::Access;

/// The table of jobs, within a lake that is one place.
pub const TABLE: &str = "_meta/backfill_jobs_events";
/// The events, likewise.
pub const BRONZE: &str = "polymarket/events";

/// A lake that can be read and written.
#[derive(Debug, Clone)]
pub struct Lake {
    /// The table of jobs.
    pub table: Place,
    /// The events' files.
    pub bronze: Place,
}

impl Lake {
    /// The lake at that place, with everything where it usually is. Connects to nobody yet.
    pub fn open(place: &str, access: &Access) -> Result<Self, LakeError> {
        if place.is_empty() {
            let reason = "name a folder or an address (`.` is the folder you are in)".to_owned();
            return Err(LakeError::Place { place: "\"\"".to_owned(), reason });
        }
        let place = place.trim_end_matches('/');
        Self::of(&format!("{place}/{TABLE}"), &format!("{place}/{BRONZE}"), access)
    }

    /// The lake whose table is here and whose files are there.
    pub fn of(table: &str, bronze: &str, access: &Access) -> Result<Self, LakeError> {
        Ok(Self { table: Place::open(table, access)?, bronze: Place::open(bronze, access)? })
    }

    /// Makes what must be there before anything is written.
    pub async fn prepare(&self) -> Result<(), LakeError> {
        self.table.prepare().await?;
        self.bronze.prepare().await
    }
}
