//! The events as files: one a job, one event a line, as the venue sent it and in its order.
//!
//! ```text
//! mode=backfill/ingest_date=2026-02-04/offset=0000012500_limit=500.jsonl           by offset
//! mode=backfill/ingest_date=2026-02-04/closed_offset=0000012500_limit=500.jsonl    by keyset
//! _cursors/closed_offset=0000012500_limit=500.jsonl.<checksum>.json                until all is done
//! ```
//!
//! A file is created if it is not there, in one step of the storage, and never written again. The date is that of the job's
//! row, so everybody who does the job means the same file. Who finds one there (written by a worker that ended, or was
//! overtaken, before it could mark the job) compares: the same bytes are its own work done; other bytes are an earlier,
//! whole answer to the same question, and are kept.
//!
//! By keyset the file and the cursor after it belong together: a later walk of the same stretch may end at another event. So
//! before the file is written, its cursor is put under the file's own checksum; who keeps a file goes on from the cursor that
//! belongs to it.

use bytes::Bytes;
use catchment_model::UnixNs;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::LakeError;
use crate::events;
use crate::job::{Job, Task};
use crate::place::Place;

/// The folder of the files.
pub(crate) const FILES: &str = "mode=backfill";
/// The folder of the cursors of files that are written and not yet marked.
pub(crate) const CURSORS: &str = "_cursors";

/// What follows a stretch of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// Where the walk goes on; none at its end.
    pub next_cursor: Option<String>,
}

/// What a job brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harvest {
    /// One event a line.
    pub lines: Bytes,
    /// By keyset only.
    pub follow: Option<Follow>,
}

/// The file that is there now, whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// As `payload_path` has it.
    pub path: String,
    /// Events in it.
    pub records: i32,
    /// What follows it.
    pub follow: Option<Follow>,
}

/// Where a job's file is, within its place.
pub fn file_of(job: &Job, task: &Task) -> String {
    let date = UnixNs::from_ms(job.created_at.get()).map(|time| time.date().to_string());
    format!("{FILES}/ingest_date={}/{}", date.unwrap_or_default(), task.file_name())
}

/// Sees to it that the job's file is there, whole.
pub async fn keep(bronze: &Place, job: &Job, task: &Task, harvest: &Harvest) -> Result<Kept, LakeError> {
    let inner = file_of(job, task);
    bronze.is_still_there()?;
    if let Some(follow) = &harvest.follow {
        let note =
            serde_json::to_vec(follow).map_err(|error| LakeError::Rows { reason: error.to_string() })?;
        let at = cursor_of(task, &harvest.lines);
        let failed = |error| LakeError::store(format!("writing {}", bronze.show(&at)), &error);
        // The same content under the same name, however often.
        bronze.store().put(&bronze.path(&at), note.into()).await.map_err(failed)?;
        bronze.settle(&at).await.map_err(failed)?;
    }
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let put = bronze.store().put_opts(&bronze.path(&inner), harvest.lines.clone().into(), options).await;
    let unsettled = |error| LakeError::store(format!("writing {}", bronze.show(&inner)), &error);
    let Err(error) = put else {
        bronze.settle(&inner).await.map_err(unsettled)?;
        return kept(bronze, &inner, &harvest.lines, harvest.follow.clone());
    };
    // It is there, or nobody knows: the storage may have written ours and lost its answer.
    let there = match bronze.store().get(&bronze.path(&inner)).await {
        Ok(there) => there.bytes().await,
        Err(object_store::Error::NotFound { .. }) => Err(error),
        Err(error) => Err(error),
    };
    let there = there.map_err(unsettled)?;
    // Whoever wrote it may have ended before this.
    bronze.settle(&inner).await.map_err(unsettled)?;
    let is_same = there == harvest.lines;
    events::file_was_there(&inner, is_same);
    if is_same || harvest.follow.is_none() {
        return kept(bronze, &inner, &there, harvest.follow.clone());
    }
    let follow = read_cursor(bronze, task, &there).await?;
    kept(bronze, &inner, &there, Some(follow))
}

fn kept(bronze: &Place, inner: &str, lines: &[u8], follow: Option<Follow>) -> Result<Kept, LakeError> {
    let records = memchr::memchr_iter(b'\n', lines).count();
    let records = i32::try_from(records)
        .map_err(|_| LakeError::Rows { reason: "a file has too many lines".to_owned() })?;
    Ok(Kept { path: bronze.show(inner), records, follow })
}

/// Where the cursor of a file with that content is, within its place.
fn cursor_of(task: &Task, lines: &[u8]) -> String {
    format!("{CURSORS}/{}.{:032x}.json", task.file_name(), xxh3_128(lines))
}

async fn read_cursor(bronze: &Place, task: &Task, lines: &[u8]) -> Result<Follow, LakeError> {
    let at = bronze.path(&cursor_of(task, lines));
    let what = || format!("reading {at}, the cursor that belongs to a file that was there already");
    let found = bronze.store().get(&at).await.map_err(|error| LakeError::store(what(), &error))?;
    let bytes = found.bytes().await.map_err(|error| LakeError::store(what(), &error))?;
    serde_json::from_slice(&bytes).map_err(|error| LakeError::Storage {
        what: what(),
        reason: error.to_string(),
        may_pass: false,
    })
}
