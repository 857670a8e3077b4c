//! The table of jobs: a Delta table with one data file.
//!
//! A change is an optimistic commit: read the newest version, decide, write the rows as a new file, then create the log
//! entry of the next version **if it is not there**. That is the one act that counts, and of all who try it one succeeds. Who
//! loses reads what the winner wrote and decides again. No commit is rebased: a decision was made on the rows it replaces.
//!
//! * An answer that is lost (a timeout after the storage has written) is found out about by reading the entry: it names a file
//!   that nobody else has the name of.
//! * One file is enough. Some hundred rows are some ten kilobytes, and whoever reads the table reads one file; there is
//!   nothing to compact. Files that are replaced are removed by [`tidy`](JobTable::tidy) after a day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use catchment_model::{Clock, UnixMs};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::delta::{self, CHECKPOINT_EVERY, DeltaFiles, Version};
use crate::error::LakeError;
use crate::job::{Job, Lease, Mode, Task};
use crate::lake::Lake;
use crate::ledger::{Ledger, Verdict, Write};
use crate::note::Note;

/// So many commits are lost to others before something must be wrong.
const TRIES_MAX: u32 = 400;
/// Names of files that this process has made.
static TURNS: AtomicU64 = AtomicU64::new(0);
/// How often a commit whose fate is not known is asked about.
const DOUBTS_MAX: u32 = 6;

/// The table of jobs, as one process sees it.
pub struct JobTable {
    pub(crate) files: DeltaFiles,
    clock: Arc<dyn Clock>,
    chance: StdRng,
    /// The newest that is known.
    known: Version,
    commits: CommitCounts,
    unsure: Option<Unsure>,
}

/// A commit that was given up on without knowing what became of it.
struct Unsure {
    version: u64,
    entry: Bytes,
    settled: Vec<(Lease, Verdict)>,
    claimed: Vec<(Job, Lease)>,
}

/// What it took to change the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitCounts {
    /// Commits made.
    pub made: u64,
    /// Commits that somebody else's came before.
    pub lost: u64,
    /// Commits whose answer was lost, and that were found to be made.
    pub found: u64,
    /// From the decision to the answer, of all that were made.
    pub time: Duration,
    /// The longest.
    pub time_max: Duration,
}

/// What came of [`JobTable::act`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acted {
    /// For each write, in order.
    pub verdicts: Vec<Verdict>,
    /// What was leased besides.
    pub claimed: Vec<(Job, Lease)>,
}

/// What came of [`JobTable::set_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetUp {
    /// Whether the table is new.
    pub is_new: bool,
    /// Jobs that were added.
    pub added: usize,
    /// Jobs there are.
    pub jobs: usize,
}

enum Fate {
    Made,
    Lost,
}

impl JobTable {
    /// Makes the table with these jobs, or adds those that it does not have. What is there stays as it is.
    pub async fn set_up(
        lake: &Lake,
        tasks: &[Task],
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Result<(Self, SetUp), LakeError> {
        lake.prepare().await?;
        let wanted = tasks.first().map(Task::mode);
        let mut table = match Self::open(lake, Arc::clone(&clock), seed).await {
            Err(LakeError::NoTable { .. }) => {
                if let Some(made) = Self::create(lake, tasks, &clock, seed).await? {
                    let jobs = made.ledger().jobs.len();
                    return Ok((made, SetUp { is_new: true, added: jobs, jobs }));
                }
                Self::open(lake, clock, seed).await? // somebody else has just made it
            }
            opened => opened?,
        };
        let foreign = |reason| Err(LakeError::Foreign { place: lake.table.shown().to_owned(), reason });
        let here = table.ledger().jobs.iter().find_map(|job| Task::read(&job.job_id));
        if let (Some(wanted), Some(here)) = (tasks.first(), here) {
            if wanted.mode() != here.mode() {
                let (here, wanted) = (here.mode().as_str(), wanted.mode().as_str());
                return foreign(format!("its jobs ask by {here}, not by {wanted}"));
            }
            if wanted.limit() != here.limit() {
                let (here, wanted) = (here.limit(), wanted.limit());
                return foreign(format!(
                    "its jobs are of {here} events each, not of {wanted}, and would overlap; \
                     another lake can have others"
                ));
            }
        }
        if wanted == Some(Mode::Keyset) && !table.ledger().jobs.is_empty() {
            // Its first jobs are there, and all others come of them. A plan that was made later has its last span, which has
            // no end, in parts; those are not to be added.
            let jobs = &table.ledger().jobs;
            let is_here = |task: &Task| jobs.iter().any(|job| job.job_id == task.to_string());
            if !tasks.iter().take(3).all(is_here) {
                return foreign(
                    "its walk is not cut, or cut into other spans; another lake can have another walk"
                        .to_owned(),
                );
            }
            let done = SetUp { is_new: false, added: 0, jobs: jobs.len() };
            return Ok((table, done));
        }
        let mut added = 0;
        table
            .change(|ledger, _, now| {
                added = ledger.add(tasks, now);
                (added > 0).then(|| Note::new("SETUP", [("added", json!(added))]))
            })
            .await?;
        let jobs = table.ledger().jobs.len();
        Ok((table, SetUp { is_new: false, added, jobs }))
    }

    /// The table that is there.
    pub async fn open(lake: &Lake, clock: Arc<dyn Clock>, seed: u64) -> Result<Self, LakeError> {
        let mut table = Self::at(lake, clock, seed);
        table.known = table.files.newest().await?;
        Ok(table)
    }

    fn at(lake: &Lake, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            files: DeltaFiles::at(&lake.table),
            clock,
            chance: StdRng::seed_from_u64(seed),
            known: Version::default(),
            commits: CommitCounts::default(),
            unsure: None,
        }
    }

    /// Version 0: the columns and all jobs in one commit, so nobody sees a table without them. None if somebody was quicker.
    async fn create(
        lake: &Lake,
        tasks: &[Task],
        clock: &Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Option<Self>, LakeError> {
        let mut table = Self::at(lake, Arc::clone(clock), seed);
        let now = table.now();
        let mut ledger = Ledger::default();
        ledger.add(tasks, now);
        let name = table.new_name();
        let file = table.files.put_rows(name, &ledger).await?;
        let entry = delta::first_entry(&file, table.chance.random(), now)?;
        match table.create_entry(0, entry).await? {
            Fate::Made => {}
            Fate::Lost => {
                table.files.discard(&file).await;
                return Ok(None);
            }
        }
        table.known = Version { number: 0, files: vec![file], ledger };
        Ok(Some(table))
    }

    /// The newest version there is.
    pub async fn refresh(&mut self) -> Result<&Ledger, LakeError> {
        if let Some(newer) = self.files.newer(&self.known).await? {
            self.known = newer;
        }
        Ok(&self.known.ledger)
    }

    /// The rows as last read or written.
    pub fn ledger(&self) -> &Ledger {
        &self.known.ledger
    }

    /// The version they are of.
    pub fn version(&self) -> u64 {
        self.known.number
    }

    /// How its jobs ask.
    pub fn mode(&self) -> Option<Mode> {
        self.known.ledger.jobs.iter().find_map(|job| Task::read(&job.job_id)).map(|task| task.mode())
    }

    /// What it took so far.
    pub fn commits(&self) -> CommitCounts {
        self.commits
    }

    /// Writes what the holders say, then leases up to `want` jobs that are due: one commit for all of it, and none if
    /// nothing changes.
    pub async fn act(
        &mut self,
        worker: &str,
        writes: &[(Lease, Write)],
        want: usize,
        lease: Duration,
    ) -> Result<Acted, LakeError> {
        let known = self.recall().await?;
        let mut acted = Acted::default();
        let changed = self
            .change(|ledger, version, now| {
                let settle = |(held, write): &(Lease, Write)| {
                    let known =
                        known.iter().flat_map(|unsure| &unsure.settled).find(|(lease, _)| lease == held);
                    // A renewal can be said again; an end that is written already cannot.
                    match known.filter(|_| *write != Write::Renew) {
                        Some((_, verdict)) => *verdict,
                        None => ledger.settle(held, write, lease, now),
                    }
                };
                acted.verdicts = writes.iter().map(settle).collect();
                acted.claimed = ledger.claim(worker, version, want, lease, now);
                let is_change = !acted.claimed.is_empty()
                    || acted.verdicts.iter().any(|verdict| *verdict != Verdict::Lost);
                is_change.then(|| Note::of(worker, writes, &acted))
            })
            .await;
        if let Err(error) = changed {
            match &mut self.unsure {
                Some(unsure) => {
                    let ends =
                        writes.iter().zip(&acted.verdicts).filter(|((_, write), _)| *write != Write::Renew);
                    unsure.settled = ends.map(|((lease, _), verdict)| (lease.clone(), *verdict)).collect();
                    unsure.claimed = acted.claimed;
                }
                None => self.unsure = known,
            }
            return Err(error);
        }
        acted.claimed.extend(known.into_iter().flat_map(|unsure| unsure.claimed));
        Ok(acted)
    }

    /// What the last commit did after all, if it is one that was given up on and it was made.
    async fn recall(&mut self) -> Result<Option<Unsure>, LakeError> {
        let Some(unsure) = &self.unsure else { return Ok(None) };
        let is_made = self.files.read_entry(unsure.version).await?.is_some_and(|entry| entry == unsure.entry);
        self.commits.found += u64::from(is_made);
        Ok(self.unsure.take().filter(|_| is_made))
    }

    /// Gives leased jobs back, see [`Ledger::reset_leased`].
    pub async fn reset_leased(&mut self, force: bool) -> Result<(usize, usize), LakeError> {
        let mut done = (0, 0);
        self.change(|ledger, _, now| {
            done = ledger.reset_leased(force, now);
            (done.0 > 0)
                .then(|| Note::new("RESET LEASED", [("reset", json!(done.0)), ("force", json!(force))]))
        })
        .await?;
        Ok(done)
    }

    /// Gives failed jobs their attempts again.
    pub async fn reset_failed(&mut self) -> Result<usize, LakeError> {
        let mut reset = 0;
        self.change(|ledger, _, now| {
            reset = ledger.reset_failed(now);
            (reset > 0).then(|| Note::new("RESET FAILED", [("reset", json!(reset))]))
        })
        .await?;
        Ok(reset)
    }

    /// Decides on the newest rows and commits, again and again until nobody was quicker.
    async fn change(
        &mut self,
        mut decide: impl FnMut(&mut Ledger, u64, UnixMs) -> Option<Note>,
    ) -> Result<(), LakeError> {
        for tries in 1..=TRIES_MAX {
            self.refresh().await?;
            let (mut ledger, version, now) = (self.known.ledger.clone(), self.known.number + 1, self.now());
            let Some(note) = decide(&mut ledger, version, now) else { return Ok(()) };
            let began = self.clock.monotonic();
            let name = self.new_name();
            let file = self.files.put_rows(name, &ledger).await?;
            match self.create_entry(version, delta::entry(&self.known, &file, note, now)?).await? {
                Fate::Made => {
                    let took = self.clock.monotonic().since(began);
                    self.commits.made += 1;
                    self.commits.time += took;
                    self.commits.time_max = self.commits.time_max.max(took);
                    self.known = Version { number: version, files: vec![file], ledger };
                    if version.is_multiple_of(CHECKPOINT_EVERY) {
                        self.checkpoint().await;
                    }
                    return Ok(());
                }
                Fate::Lost => {
                    self.commits.lost += 1;
                    // The version is somebody else's now, so no log will ever name this file.
                    self.files.discard(&file).await;
                    let most = 4_u64 << tries.min(7);
                    let wait = Duration::from_millis(self.chance.random_range(0..=most));
                    tokio::time::sleep(wait).await;
                }
            }
        }
        Err(LakeError::Crowded { tries: TRIES_MAX })
    }

    /// Creates the entry of a version if there is none, and finds out what became of it.
    async fn create_entry(&mut self, version: u64, entry: Bytes) -> Result<Fate, LakeError> {
        let mut doubts = 0;
        loop {
            let Err(error) = self.files.create_entry(version, &entry).await else { return Ok(Fate::Made) };
            // There is an entry, or nobody knows. Whose is it? The storage may have written ours and lost its answer.
            match self.files.read_entry(version).await {
                Ok(Some(there)) if there == entry => {
                    self.commits.found += 1;
                    return Ok(Fate::Made);
                }
                Ok(Some(_)) => return Ok(Fate::Lost),
                Ok(None) | Err(_) if doubts < DOUBTS_MAX => {}
                unknown => {
                    self.unsure = Some(Unsure { version, entry, settled: Vec::new(), claimed: Vec::new() });
                    let what = format!("committing version {version} of the table of jobs");
                    return Err(unknown.err().unwrap_or_else(|| LakeError::store(what, &error)));
                }
            }
            // Nothing there yet: the very same entry again. Should the first one come late, it is the same commit.
            doubts += 1;
            let wait = Duration::from_millis(self.chance.random_range(0..(100 << doubts)));
            tokio::time::sleep(wait).await;
        }
    }

    /// A name for a file that nobody else has.
    fn new_name(&mut self) -> String {
        let (high, low): (u64, u64) = (self.chance.random(), self.chance.random());
        // Two that began with the same seed differ in time, process or turn.
        let own = self.clock.wall().get() as u64 ^ u64::from(std::process::id()).rotate_left(40);
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        format!("part-00000-{:016x}{low:016x}{turn:04x}-c000.snappy.parquet", high ^ own)
    }

    fn now(&self) -> UnixMs {
        self.clock.wall().ms()
    }
}
