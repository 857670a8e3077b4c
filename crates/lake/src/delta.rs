//! The table as it lies in the storage: log entries and data files.
//!
//! ```text
//! _meta/backfill_jobs_events/
//!   _delta_log/00000000000000000057.json          what version 57 did: who leased, renewed, ended what; one file out, one in
//!   _delta_log/00000000000000000100.checkpoint.parquet   every hundred versions
//!   part-00000-….snappy.parquet                   every row
//! ```
//!
//! Log entries are written and read here; opening, checkpoints and cleaning are the `deltalake` crate's. (Making is not: of two
//! who make a table at once, its `CreateBuilder` lets the second one add its rows as version 1.) What is written, and what
//! to do when somebody was quicker, is decided in [`crate::table`].

use std::sync::Arc;

use bytes::Bytes;
use catchment_model::UnixMs;
use deltalake_core::DeltaTable;
use deltalake_core::kernel::transaction::CommitData;
use deltalake_core::kernel::{Action, Add, CommitInfo, PrimitiveType, Remove};
use deltalake_core::logstore::{
    LogStore, LogStoreRef, StorageConfig, commit_uri_from_version, default_logstore,
};
use deltalake_core::protocol::DeltaOperation;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path};
use serde_json::json;

use crate::columns::{self, COLUMNS};
use crate::error::LakeError;
use crate::ledger::Ledger;
use crate::note::Note;
use crate::place::Place;

/// Who writes, as the log names it.
const ENGINE: &str = concat!("catchment:", env!("CARGO_PKG_VERSION"));
/// A checkpoint so often.
pub(crate) const CHECKPOINT_EVERY: u64 = 100;
/// So many entries are read one by one before the table is opened anew instead.
const ENTRIES_MAX: u32 = 64;

/// A version of the table: its number, its files, its rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) files: Vec<DataFile>,
    pub(crate) ledger: Ledger,
}

/// A file of rows, as the log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataFile {
    path: String,
    size: i64,
}

/// The storage of one table.
pub(crate) struct DeltaFiles {
    place: Place,
    log: LogStoreRef,
    store: Arc<dyn ObjectStore>,
}

impl DeltaFiles {
    pub(crate) fn at(place: &Place) -> Self {
        let store: Arc<dyn ObjectStore> =
            Arc::new(PrefixStore::new(Arc::clone(place.store()), place.path("")));
        let config = StorageConfig::default();
        let log = default_logstore(Arc::clone(&store), Arc::clone(place.store()), place.url(), &config);
        Self { place: place.clone(), log, store }
    }

    /// Where it is, for people.
    pub(crate) fn shown(&self) -> String {
        self.place.shown().to_owned()
    }

    /// The table, for the `deltalake` crate's own operations.
    pub(crate) fn open(&self) -> DeltaTable {
        DeltaTable::new(Arc::clone(&self.log))
    }

    /// Writes rows under that name, which nobody else has.
    pub(crate) async fn put_rows(&self, path: String, ledger: &Ledger) -> Result<DataFile, LakeError> {
        let bytes = columns::write(&ledger.jobs)?;
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let what = "writing the rows of the table of jobs";
        let put = self.store.put(&Path::from(path.as_str()), bytes.into()).await;
        put.map_err(|error| LakeError::store(what, &error))?;
        self.place.settle(&path).await.map_err(|error| LakeError::store(what, &error))?;
        Ok(DataFile { path, size })
    }

    /// Removes a file that no log will ever name. If it cannot be, it is removed with the old ones.
    pub(crate) async fn discard(&self, file: &DataFile) {
        let _ = self.store.delete(&Path::from(file.path.as_str())).await;
    }

    /// Creates an entry if there is none of that version.
    pub(crate) async fn create_entry(&self, version: u64, entry: &Bytes) -> Result<(), object_store::Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let at = commit_uri_from_version(Some(version));
        self.store.put_opts(&at, entry.clone().into(), options).await?;
        self.place.settle(at.as_ref()).await
    }

    /// The entry of a version, if there is one.
    pub(crate) async fn read_entry(&self, version: u64) -> Result<Option<Bytes>, LakeError> {
        let what = || format!("reading version {version} of the table of jobs");
        match self.store.get(&commit_uri_from_version(Some(version))).await {
            Ok(found) => found.bytes().await.map(Some).map_err(|error| LakeError::store(what(), &error)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(LakeError::store(what(), &error)),
        }
    }

    /// The newest version, by the entries that came after one that is known; none if none has come.
    pub(crate) async fn newer(&self, known: &Version) -> Result<Option<Version>, LakeError> {
        let (mut number, mut files) = (known.number, known.files.clone());
        for _ in 0..ENTRIES_MAX {
            let Some(entry) = self.read_entry(number + 1).await? else {
                if number == known.number {
                    return self.is_still_there(number).await.map(|()| None);
                }
                return match self.read_rows(&files).await {
                    Ok(ledger) => Ok(Some(Version { number, files, ledger })),
                    // Replaced and removed while we looked: what is newest now?
                    Err(_) => self.newest().await.map(Some),
                };
            };
            match apply(&entry, &mut files) {
                Some(()) => number += 1,
                None => return self.newest().await.map(Some),
            }
        }
        self.newest().await.map(Some)
    }

    /// A folder whose disk is gone is empty, and would be begun anew by whoever writes there. Azure and S3 say that they are
    /// away.
    async fn is_still_there(&self, version: u64) -> Result<(), LakeError> {
        if !self.place.is_folder() {
            return Ok(());
        }
        let what = || format!("looking at version {version} of the table at {}", self.shown());
        match self.store.head(&commit_uri_from_version(Some(version))).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::NotFound { .. }) => Err(LakeError::gone(what())),
            Err(error) => Err(LakeError::store(what(), &error)),
        }
    }

    /// Opens the table from its newest checkpoint on, and looks whether it is one of ours.
    pub(crate) async fn newest(&self) -> Result<Version, LakeError> {
        let told = |error| LakeError::delta(format!("opening the table at {}", self.shown()), &error);
        let is_there = match self.log.is_delta_table_location().await {
            // Neither is there anything else.
            Err(error) if is_no_container(&error) => false,
            found => found.map_err(told)?,
        };
        if !is_there {
            return Err(LakeError::NoTable { place: self.shown() });
        }
        let mut table = self.open();
        table.load().await.map_err(told)?;
        let state = table.snapshot().map_err(told)?;
        let foreign = |reason: String| LakeError::Foreign { place: self.shown(), reason };
        let schema = state.schema();
        for (name, kind) in &COLUMNS {
            match schema.field(name) {
                Some(field) if *field.data_type() == columns::delta_type(kind) => {}
                Some(field) => {
                    return Err(foreign(format!("its column {name} is {}, not {kind}", field.data_type())));
                }
                None => return Err(foreign(format!("it has no column {name}"))),
            }
        }
        if schema.fields().count() != COLUMNS.len() {
            return Err(foreign("it has further columns, which would be lost".to_owned()));
        }
        if !state.metadata().partition_columns().is_empty() {
            return Err(foreign("it is partitioned".to_owned()));
        }
        let mut files = Vec::new();
        for file in state.log_data().iter() {
            if file.deletion_vector_descriptor().is_some() {
                let reason = "it has deletion vectors; rewrite it without them (REORG TABLE … APPLY (PURGE))";
                return Err(foreign(reason.to_owned()));
            }
            files.push(DataFile { path: file.path().into_owned(), size: file.size() });
        }
        let number = state.version();
        let ledger = self.read_rows(&files).await?;
        Ok(Version { number, files, ledger })
    }

    /// The rows as they were written by a version, with the time of the commit; none where the log or the file is gone.
    pub(crate) async fn written_by(&self, version: u64) -> Result<Option<(UnixMs, Ledger)>, LakeError> {
        let Some(entry) = self.read_entry(version).await? else { return Ok(None) };
        let mut files = Vec::new();
        let mut time = UnixMs::new(0).expect("zero is a time");
        for action in lines(&entry).filter_map(|line| serde_json::from_slice(line).ok()) {
            match action {
                Action::CommitInfo(info) => {
                    time = info.timestamp.and_then(|ms| UnixMs::new(ms).ok()).unwrap_or(time);
                }
                Action::Add(add) => files.push(DataFile { path: add.path, size: add.size }),
                _ => {}
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        Ok(Some((time, self.read_rows(&files).await?)))
    }

    async fn read_rows(&self, files: &[DataFile]) -> Result<Ledger, LakeError> {
        let mut jobs = Vec::new();
        for file in files {
            let what = || format!("reading {} of the table of jobs", file.path);
            let found = self.store.get(&Path::from(file.path.as_str())).await;
            let found = found.map_err(|error| LakeError::store(what(), &error))?;
            let bytes = found.bytes().await.map_err(|error| LakeError::store(what(), &error))?;
            let rows = columns::read(bytes);
            jobs.extend(rows.map_err(|reason| LakeError::Foreign { place: self.shown(), reason })?);
        }
        let ledger = Ledger::new(jobs);
        let twice = ledger.jobs.windows(2).find(|pair| pair[0].job_id == pair[1].job_id);
        match twice {
            Some(pair) => Err(LakeError::Foreign {
                place: self.shown(),
                reason: format!("it has the job {} twice", pair[0].job_id),
            }),
            None => Ok(ledger),
        }
    }
}

/// The entry of version 0: the columns, and the rows of a file, so that nobody sees a table without them. `id` is the table's, 128
/// bits by chance.
pub(crate) fn first_entry(file: &DataFile, id: u128, now: UnixMs) -> Result<Bytes, LakeError> {
    let wrong = |error: serde_json::Error| LakeError::Rows { reason: error.to_string() };
    let field = |(name, kind): &(&str, PrimitiveType)| json!({ "name": name, "type": columns::delta_type(kind), "nullable": true, "metadata": {} });
    let fields: Vec<serde_json::Value> = COLUMNS.iter().map(field).collect();
    let schema = json!({ "type": "struct", "fields": fields }).to_string();
    let (a, b, c, d, e) =
        (id >> 96, id >> 80 & 0xffff, id >> 64 & 0xfff, id >> 48 & 0x3fff, id & 0xffff_ffff_ffff);
    let metadata = json!({
        "id": format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{e:012x}", d | 0x8000),
        "name": "backfill_jobs_events",
        "description": "Jobs of the events backfill, written by catchment",
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema,
        "partitionColumns": [],
        "createdTime": now.get(),
        "configuration": {
            "delta.checkpointInterval": CHECKPOINT_EVERY.to_string(),
            "delta.deletedFileRetentionDuration": "interval 1 days",
            "delta.logRetentionDuration": "interval 30 days",
        },
    });
    let info = json!({
        "timestamp": now.get(),
        "operation": "CREATE TABLE",
        "operationParameters": {},
        "isBlindAppend": true,
        "engineInfo": ENGINE,
    });
    let add = serde_json::to_value(add_action(file, now)).map_err(wrong)?;
    let lines = [
        json!({ "commitInfo": info }),
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }),
        json!({ "metaData": metadata }),
        add,
    ];
    Ok(lines.map(|line| line.to_string()).join("\n").into())
}

/// The log entry that replaces a version's files by this one.
pub(crate) fn entry(old: &Version, file: &DataFile, note: Note, now: UnixMs) -> Result<Bytes, LakeError> {
    let info = CommitInfo {
        timestamp: Some(now.get()),
        operation: Some(note.operation.to_owned()),
        operation_parameters: Some(note.parameters.into_iter().collect()),
        read_version: Some(old.number),
        is_blind_append: Some(false),
        engine_info: Some(ENGINE.to_owned()),
        ..CommitInfo::default()
    };
    let mut actions = vec![Action::CommitInfo(info)];
    actions.extend(old.files.iter().map(|old| {
        Action::Remove(Remove {
            path: old.path.clone(),
            data_change: true,
            deletion_timestamp: Some(now.get()),
            extended_file_metadata: Some(true),
            partition_values: Some(Default::default()),
            size: Some(old.size),
            ..Remove::default()
        })
    }));
    actions.push(add_action(file, now));
    let operation = DeltaOperation::Update { predicate: None };
    let data = CommitData::new(actions, operation, Default::default(), Vec::new());
    data.get_bytes().map_err(|error| LakeError::Rows { reason: error.to_string() })
}

/// Azure and S3 say so in the body of an answer that is otherwise an error like any other.
fn is_no_container(error: &deltalake_core::DeltaTableError) -> bool {
    let told = format!("{error} {error:?}");
    told.contains("ContainerNotFound") || told.contains("NoSuchBucket")
}

fn add_action(file: &DataFile, now: UnixMs) -> Action {
    Action::Add(Add {
        path: file.path.clone(),
        partition_values: Default::default(),
        size: file.size,
        modification_time: now.get(),
        data_change: true,
        stats: None,
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
    })
}

/// What an entry does to the list of files. None where it does more than that, or cannot be read: then the table is opened.
fn apply(entry: &Bytes, files: &mut Vec<DataFile>) -> Option<()> {
    for line in lines(entry) {
        match serde_json::from_slice(line).ok()? {
            Action::Add(add) if add.deletion_vector.is_some() => return None,
            Action::Add(add) => files.push(DataFile { path: add.path, size: add.size }),
            Action::Remove(remove) => files.retain(|file| file.path != remove.path),
            Action::CommitInfo(_) | Action::Txn(_) => {}
            Action::Metadata(_) | Action::Protocol(_) | Action::Cdc(_) | Action::DomainMetadata(_) => {
                return None;
            }
        }
    }
    Some(())
}

fn lines(entry: &Bytes) -> impl Iterator<Item = &[u8]> {
    entry.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}
