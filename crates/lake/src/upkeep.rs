//! Housekeeping, so that the table stays small and quick to open.
//!
//! Nothing here is needed for a job to be right: whatever fails is told, and the next worker tries again. There is nothing to
//! compact; the table has one data file.

use deltalake_core::operations::vacuum::VacuumMode;
use deltalake_core::protocol::checkpoints;
use futures_util::StreamExt;
use object_store::ObjectStoreExt;

use crate::bronze::CURSORS;
use crate::error::LakeError;
use crate::events;
use crate::lake::Lake;
use crate::table::JobTable;

/// What was cleared away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tidied {
    /// Data files that were replaced more than a day ago, or never named.
    pub files: usize,
    /// Log entries older than thirty days.
    pub entries: usize,
}

impl JobTable {
    /// Writes a checkpoint of the newest version, so that opening reads one file instead of a hundred.
    pub async fn checkpoint(&self) {
        let mut table = self.files.open();
        let done = match table.load().await {
            Ok(()) => checkpoints::create_checkpoint(&table, None).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            events::upkeep_failed("checkpoint", &LakeError::delta("writing a checkpoint", &error));
        }
    }

    /// Removes files that no version of the last day needs, and log entries older than thirty days. Somebody who reads an old
    /// version has a day for it; somebody who is just writing a file has as long to commit it.
    pub async fn tidy(&self) -> Result<Tidied, LakeError> {
        let told = |error| LakeError::delta("clearing old files of the table of jobs", &error);
        let mut table = self.files.open();
        table.load().await.map_err(told)?;
        let (table, removed) = table.vacuum().with_mode(VacuumMode::Full).await.map_err(told)?;
        let entries = checkpoints::cleanup_metadata(&table, None).await.map_err(told)?;
        Ok(Tidied { files: removed.files_deleted.len(), entries })
    }
}

/// Removes the cursors that are no longer needed, when everything is done.
pub(crate) async fn clear_cursors(lake: &Lake) {
    let bronze = &lake.bronze;
    let mut listed = bronze.store().list(Some(&bronze.path(CURSORS)));
    while let Some(found) = listed.next().await {
        let Ok(found) = found else { return };
        if bronze.store().delete(&found.location).await.is_err() {
            return;
        }
    }
}
