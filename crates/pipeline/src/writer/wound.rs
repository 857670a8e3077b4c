//! A disk that fails, and whether it is back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Writer;
use crate::events;
use crate::intake::OnStorageError;
use crate::spool::{Spool, SpoolError};

/// How long a disk that has just failed is left alone.
const WOUND_REST: Duration = Duration::from_millis(500);

/// The disk failed, and when.
pub(super) struct Wound {
    since: Instant,
    tried: Instant,
    pub(super) error: Arc<SpoolError>,
    pub(super) told: bool,
}

impl Writer {
    /// Whether drafts are kept until the disk is back, instead of being refused.
    pub(super) fn waits_for_disk(&self) -> bool {
        let waits = self.wiring.on_storage_error == OnStorageError::Wait;
        self.wound.is_some() && waits && !*self.wiring.give_up.borrow()
    }

    pub(super) fn wound(&mut self, error: SpoolError) {
        let now = Instant::now();
        match &mut self.wound {
            Some(wound) => {
                wound.tried = now;
                wound.error = Arc::new(error);
            }
            None => {
                events::intake_stopped(&error.with_source());
                self.wound = Some(Wound { since: now, tried: now, error: Arc::new(error), told: false });
            }
        }
    }

    /// Something became durable; with the reserve back in place the disk counts as well.
    pub(super) fn heal(&mut self) {
        if self.home().has_reserve()
            && let Some(wound) = self.wound.take()
        {
            events::intake_resumed(wound.since.elapsed());
        }
    }

    /// Whether the disk is well, or takes something again. Writing the reserve anew is the trial.
    pub(super) async fn probe(&mut self) -> bool {
        let Some(wound) = &mut self.wound else { return true };
        if wound.tried.elapsed() < WOUND_REST {
            return false;
        }
        wound.tried = Instant::now();
        let works = self.blocking(Spool::try_disk).await.is_ok();
        if works {
            self.heal();
        }
        works
    }
}
