//! JSON lines to files, beside plain writes of the same bytes. PERF goal 8, and the cost of splicing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use catchment_model::{Envelope, SpoolId, SystemClock};
use catchment_pipeline::disk::DirEntry;
use catchment_pipeline::{Batch, Disk, DiskFile, RealDisk, Sink, SyncPoint};
use catchment_sinks::{JsonlConfig, JsonlSink};

use crate::machine::Stopwatch;
use crate::tape::Tape;
use crate::{BenchArgs, Duel, Goal, Report};

const RECORDS: usize = 800_000;
/// Fewer where nothing is synced: more, and the kernel makes writers wait for the disk after all.
const SPLICED: usize = 200_000;
/// As much as a block of the other side: 1 MiB.
const BATCH: usize = 2_000;
const BLOCK: usize = 1 << 20;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let dir = scratch.path();
    let tape = Tape::new(10_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let whole = batches(&tape, RECORDS);
    let mut ready = Vec::new();
    for record in whole.iter().flat_map(Batch::iter) {
        ready.extend_from_slice(record.line());
    }
    let mb = ready.len() as f64 / 1e6;
    let sink = |batches: &[Batch], disk: Arc<dyn Disk>| runtime.block_on(write_all(dir, batches, disk));
    let real = || -> Arc<dyn Disk> { Arc::new(RealDisk::shared()) };

    // Batches as large as what is written in 100 ms, beside everything at once.
    let mut rate = 0.0_f64;
    for _ in 0..3 {
        rate = rate.max(RECORDS as f64 / sink(&whole, real())?);
    }
    let tenth = batches(&tape, ((rate / 10.0) as usize).clamp(1_000, RECORDS));
    let mut ours = || Ok(mb / sink(&tenth, real())?);
    let mut theirs = || Ok(mb / plain(dir, &ready, tenth.len())?);
    report.duel(
        args.rounds(),
        Duel {
            what: "JSONL sink, fdatasync every 100 ms",
            unit: "MB/s",
            ours: ("sink", &mut ours),
            theirs: ("ready blocks of 1 MiB, synced as often", &mut theirs),
            goal: Goal::AtLeast(0.5),
        },
    )?;
    let mut ours = || Ok(mb / sink(&tenth, real())?);
    let mut theirs = || Ok(mb / sink(&whole, real())?);
    report.duel(
        args.rounds(),
        Duel {
            what: "fdatasync every 100 ms, beside once at the end (about a second)",
            unit: "MB/s",
            ours: ("sink, every 100 ms", &mut ours),
            theirs: ("sink, once", &mut theirs),
            goal: Goal::AtLeast(0.95),
        },
    )?;
    let part = &ready[..ready.len() * SPLICED / RECORDS];
    let mb = part.len() as f64 / 1e6;
    let envelopes: Vec<Envelope<'_>> = (0..SPLICED).map(|at| tape.envelope(at)).collect();
    let mut ours = || Ok(mb / runtime.block_on(splice_all(dir, &envelopes))?);
    let mut theirs = || Ok(mb / plain(dir, part, 0)?);
    report.duel(
        args.rounds(),
        Duel {
            what: "raw payloads spliced into lines and written, no sync",
            unit: "MB/s",
            ours: ("payload, envelope, batch, sink, file", &mut ours),
            theirs: ("ready blocks of 1 MiB", &mut theirs),
            goal: Goal::AtLeast(0.35),
        },
    )
}

/// What is measured is writing; sealing goes on beside it and is another matter.
fn one_file(dir: &Path) -> JsonlConfig {
    JsonlConfig { file_bytes_max: u64::MAX, ..JsonlConfig::new(dir) }
}

/// The tape in batches of so many records.
fn batches(tape: &Tape, records: usize) -> Vec<Batch> {
    let batch = |first: usize| {
        let last = (first + records).min(RECORDS);
        let envelopes: Vec<Envelope<'_>> = (first..last).map(|at| tape.envelope(at)).collect();
        Batch::of(SpoolId::new(1), first as u64 + 1, &envelopes)
    };
    (0..RECORDS).step_by(records).map(batch).collect()
}

/// Seconds for the sink to make all the batches durable.
async fn write_all(dir: &Path, batches: &[Batch], disk: Arc<dyn Disk>) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let sink = JsonlSink::open(one_file(dir.path()), SpoolId::new(1), disk, Arc::new(SystemClock::new()))?;
    let watch = Stopwatch::start();
    for batch in batches {
        sink.write(batch).await?;
    }
    Ok(watch.seconds())
}

/// Seconds from payloads to lines in files, nothing synced. As in the pipeline, the next batch is spliced while the sink
/// writes the last one.
async fn splice_all(dir: &Path, envelopes: &[Envelope<'_>]) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let (config, clock) = (one_file(dir.path()), Arc::new(SystemClock::new()));
    let sink = JsonlSink::open(config, SpoolId::new(1), Arc::new(Unsynced(RealDisk::shared())), clock)?;
    let watch = Stopwatch::start();
    let mut parts = (1..).step_by(BATCH).zip(envelopes.chunks(BATCH));
    let mut splice = || parts.next().map(|(first_seq, part)| Batch::of(SpoolId::new(1), first_seq, part));
    let mut next = splice();
    while let Some(batch) = next {
        let (written, spliced) = tokio::join!(sink.write(&batch), async { splice() });
        written?;
        next = spliced;
    }
    Ok(watch.seconds())
}

/// Seconds to write ready bytes in blocks, synced `syncs` times on the way.
fn plain(dir: &Path, ready: &[u8], syncs: usize) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let mut file = File::create(dir.path().join("plain"))?;
    let blocks = ready.len().div_ceil(BLOCK);
    let every = blocks.div_ceil(syncs.max(1));
    let watch = Stopwatch::start();
    for (at, block) in ready.chunks(BLOCK).enumerate() {
        file.write_all(block)?;
        if syncs > 0 && ((at + 1) % every == 0 || at + 1 == blocks) {
            file.sync_data()?;
        }
    }
    Ok(watch.seconds())
}

/// An append of so much goes through the page cache.
const CACHED_MAX: usize = 192 << 10;

/// A disk that does not wait: for what writing costs by itself.
#[derive(Debug)]
struct Unsynced(RealDisk);

impl Disk for Unsynced {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(self.0.create(path)?)))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }
    fn open_to_cut(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_to_cut(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn sync_dir(&self, _: &Path, _: SyncPoint) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

#[derive(Debug)]
struct UnsyncedFile(Box<dyn DiskFile>);

impl DiskFile for UnsyncedFile {
    /// In pieces so small that none goes past the page cache: there, whoever appends waits for the disk.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(CACHED_MAX).try_for_each(|piece| self.0.append(piece))
    }
    fn sync(&mut self, _: SyncPoint) -> io::Result<()> {
        Ok(())
    }
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.0.cut(len)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
