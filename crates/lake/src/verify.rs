//! Whether all of it is true: every file against its row, every event once, every lease given to one worker at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use catchment_model::UnixMs;
use catchment_venues::polymarket::events::read_events;
use futures_util::StreamExt;
use object_store::ObjectStoreExt;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::bronze::{FILES, file_of};
use crate::error::LakeError;
use crate::job::{Job, State, Task, read_holder};
use crate::lake::Lake;
use crate::ledger::Ledger;
use crate::place::Place;
use crate::table::JobTable;

/// So much is told of what is wrong.
const WRONG_MAX: usize = 100;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// Files that were read.
    pub files: usize,
    /// Events in them.
    pub records: u64,
    /// Different events, by id.
    pub distinct: u64,
    /// Events of one pass that came again in the other: they closed meanwhile, and both states are kept.
    pub in_both_passes: u64,
    /// Events that came again within one pass or by offset: the venue moved its list while it was read.
    pub repeated: u64,
    /// Versions of the table that could be read.
    pub versions: u64,
    /// Leases given in them.
    pub leases: u64,
    /// Of these, to somebody else because the one before was over.
    pub taken_over: u64,
    /// What is wrong, in words; at most a hundred.
    pub wrong: Vec<String>,
}

impl Findings {
    fn note(&mut self, wrong: String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push(wrong);
        }
    }
}

/// Reads every file and every version that is still there.
pub async fn verify(lake: &Lake, table: &mut JobTable) -> Result<Findings, LakeError> {
    let mut findings = Findings::default();
    let ledger = table.refresh().await?.clone();
    check_files(&lake.bronze, &ledger, &mut findings).await?;
    check_history(table, &mut findings).await?;
    Ok(findings)
}

async fn check_files(bronze: &Place, ledger: &Ledger, findings: &mut Findings) -> Result<(), LakeError> {
    let mut seen: HashMap<u64, u8> = HashMap::new();
    let mut named = BTreeSet::new();
    for job in ledger.jobs.iter().filter(|job| job.state == State::Done) {
        let Some(task) = Task::read(&job.job_id) else { continue };
        let inner = file_of(job, &task);
        if job.payload_path.as_deref() != Some(bronze.show(&inner).as_str()) {
            // Moved with its lake is fine; another file is not.
            let is_moved = job.payload_path.as_deref().is_some_and(|path| path.ends_with(&inner));
            if !is_moved {
                findings.note(format!("{} names {:?}, which is not its file", job.job_id, job.payload_path));
                continue;
            }
        }
        let path = bronze.path(&inner);
        named.insert(path.to_string());
        let bytes = match bronze.store().get(&path).await {
            Ok(found) => found.bytes().await,
            Err(object_store::Error::NotFound { .. }) => {
                findings.note(format!("{} is done, and {inner} is not there", job.job_id));
                continue;
            }
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(|error| LakeError::store(format!("reading {inner}"), &error))?;
        check_lines(job, &task, &bytes, &mut seen, findings);
    }
    findings.distinct = seen.len() as u64;
    let mut listed = bronze.store().list(Some(&bronze.path(FILES)));
    while let Some(found) = listed.next().await {
        let found = found.map_err(|error| LakeError::store(format!("listing {FILES}"), &error))?;
        // One that is written and not yet marked belongs to a job that is not done.
        let is_of_open_job = ledger.jobs.iter().filter(|job| job.state != State::Done).any(|job| {
            Task::read(&job.job_id).is_some_and(|task| bronze.path(&file_of(job, &task)) == found.location)
        });
        if !named.contains(found.location.as_ref()) && !is_of_open_job {
            findings.note(format!("{} belongs to no job", found.location));
        }
    }
    Ok(())
}

fn check_lines(job: &Job, task: &Task, bytes: &[u8], seen: &mut HashMap<u64, u8>, findings: &mut Findings) {
    let pass = match task {
        Task::Offset { .. } => 1,
        Task::Keyset { pass, .. } => 2 << (*pass as u8),
    };
    findings.files += 1;
    if !bytes.is_empty() && bytes.last() != Some(&b'\n') {
        findings.note(format!("the file of {} ends within a line", job.job_id));
    }
    let mut lines = 0;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        lines += 1;
        let page = [b"[", line, b"]"].concat();
        let id = match read_events(&page) {
            Ok(page) if page.events.len() == 1 => xxh3_64(page.events[0].id.as_bytes()),
            _ => {
                findings.note(format!("line {lines} of the file of {} is not one event", job.job_id));
                continue;
            }
        };
        let passes = seen.entry(id).or_insert(0);
        findings.repeated += u64::from(*passes & pass != 0);
        findings.in_both_passes += u64::from(*passes != 0 && *passes & pass == 0);
        *passes |= pass;
    }
    findings.records += lines;
    if job.records_written.and_then(|records| u64::try_from(records).ok()) != Some(lines) {
        let said = job.records_written;
        findings.note(format!("{} says {said:?} records, and its file has {lines}", job.job_id));
    }
}

/// Walks the versions and looks at every row that changed.
async fn check_history(table: &JobTable, findings: &mut Findings) -> Result<(), LakeError> {
    let mut before: Option<(u64, BTreeMap<String, Job>)> = None;
    for version in 0..=table.version() {
        // Otherwise a commit of the housekeeping, or one whose file is older than a day.
        let Ok(Some(read)) = table.files.written_by(version).await else { continue };
        findings.versions += 1;
        let (time, ledger) = read;
        let rows: BTreeMap<String, Job> =
            ledger.jobs.into_iter().map(|job| (job.job_id.clone(), job)).collect();
        if let Some((old_version, old_rows)) = &before {
            for (id, old) in old_rows {
                match rows.get(id) {
                    Some(new) => check_step(old, new, time, (*old_version, version), findings),
                    None => {
                        findings
                            .note(format!("{id} was there in version {old_version} and not in {version}"));
                    }
                }
            }
            for (id, new) in rows.iter().filter(|(id, _)| !old_rows.contains_key(*id)) {
                // A job that came of the one before may be leased in the same commit.
                if new.state == State::Leased {
                    findings.leases += 1;
                    check_fence(id, new, version, findings);
                }
            }
        }
        before = Some((version, rows));
    }
    Ok(())
}

fn check_step(old: &Job, new: &Job, time: UnixMs, versions: (u64, u64), findings: &mut Findings) {
    let (from, to) = versions;
    let id = &old.job_id;
    if old.state == State::Done && old != new {
        findings.note(format!("{id} was done in version {from} and was changed in {to}"));
    }
    if new.state != State::Leased || new.leased_by == old.leased_by {
        return;
    }
    findings.leases += 1;
    check_fence(id, new, to, findings);
    if old.state == State::Leased {
        findings.taken_over += 1;
        if old.lease_expires_at.is_none_or(|until| until >= time) {
            let (old, new) = (&old.leased_by, &new.leased_by);
            findings.note(format!("{id} was leased to {new:?} in version {to} while {old:?} held it"));
        }
    }
}

fn check_fence(id: &str, job: &Job, version: u64, findings: &mut Findings) {
    let fence = job.leased_by.as_deref().and_then(|holder| read_holder(holder).1);
    if fence != Some(version) {
        findings.note(format!("{id} was leased in version {version} with the fence {fence:?}"));
    }
}
