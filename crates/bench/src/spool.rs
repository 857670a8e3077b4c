//! The spool, beside the disk's own sync rate. PERF goal 10.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::SystemClock;
use catchment_pipeline::{
    Delivery, Draft, Keys, Pipeline, PipelineConfig, RealDisk, SegmentScan, Sink, Spool, SpoolConfig,
};
use catchment_sinks::MemorySink;
use tokio::sync::mpsc;

use crate::machine::{Stopwatch, thread_seconds};
use crate::tape::Tape;
use crate::{BenchArgs, Duel, Goal, Report};

/// How long a round of single appends lasts.
const SINGLE_SECONDS: f64 = 0.5;
/// How many records a round in groups has.
const GROUPED: usize = 400_000;
/// Drafts of 500 records that may wait for their answer at once.
const IN_FLIGHT: usize = 56;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let tape = Tape::new(10_000);
    let mut sync_rate = 0.0;
    let mut ours = || single_appends(scratch.path(), &tape);
    let mut theirs = || {
        sync_rate = bare_syncs(scratch.path())?;
        Ok(sync_rate)
    };
    report.duel(
        args.rounds(),
        Duel {
            what: "durable append, one record at a time",
            unit: "records/s",
            ours: ("spool", &mut ours),
            theirs: ("write of 512 bytes and fdatasync", &mut theirs),
            goal: Goal::AtLeast(0.85),
        },
    )?;
    let (mut grouped, mut latencies) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds() {
        let (rate, p99) = in_groups(scratch.path(), &tape)?;
        grouped.push((rate, bare_syncs(scratch.path())?));
        latencies.push((p99 * 1e3, 50.0));
    }
    let sides = ("pipeline, synced every 5 ms or 1 MiB", "write of 512 bytes and fdatasync");
    report.note("durable append, in groups", "records/s", sides, &grouped, Goal::AtLeast(200.0));
    let sides = ("p99 from offer to durable", "50 ms");
    report.note("acknowledgement, in groups", "ms", sides, &latencies, Goal::AtMost(1.0));
    replay(args, report, scratch.path(), &tape)
}

fn spool_in(dir: &Path, change: impl FnOnce(&mut SpoolConfig)) -> anyhow::Result<Spool> {
    let mut config = SpoolConfig::at(dir);
    change(&mut config);
    Ok(Spool::open(config, Arc::new(RealDisk::private()), 1)?)
}

fn draft_of(tape: &Tape, first: usize, records: usize) -> anyhow::Result<Draft> {
    let mut draft = Draft::new(Keys::Off);
    for at in first..first + records {
        draft.push(&tape.envelope(at))?;
    }
    Ok(draft)
}

fn single_appends(dir: &Path, tape: &Tape) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir_in(dir)?;
    let mut spool = spool_in(dir.path(), |_| {})?;
    let watch = Stopwatch::start();
    let mut records = 0;
    while watch.seconds() < SINGLE_SECONDS {
        spool.accept(draft_of(tape, records, 1)?)?;
        records += 1;
    }
    Ok(records as f64 / watch.seconds())
}

fn bare_syncs(dir: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(dir.join("bare"))?;
    let watch = Stopwatch::start();
    let mut writes = 0;
    while watch.seconds() < SINGLE_SECONDS {
        file.write_all(&[b'x'; 512])?;
        file.sync_data()?;
        writes += 1;
    }
    Ok(f64::from(writes) / watch.seconds())
}

/// Records a second, and the 99th percentile of the time from offer to durable.
fn in_groups(dir: &Path, tape: &Tape) -> anyhow::Result<(f64, f64)> {
    let dir = tempfile::tempdir_in(dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let spool = spool_in(dir.path(), |_| {})?;
        let sink: Arc<dyn Sink> = Arc::new(MemorySink::counting("count"));
        let sinks = vec![(sink, Delivery::default())];
        let pipeline =
            Pipeline::start(spool, sinks, PipelineConfig::default(), Arc::new(SystemClock::new()))?;
        let intake = pipeline.intake();
        let watch = Stopwatch::start();
        // Full: offering waits for answers, as a collector's socket would.
        let (offered, mut pending) = mpsc::channel(IN_FLIGHT);
        let answers = tokio::spawn(async move {
            let mut waits = Vec::new();
            while let Some((at, next)) = pending.recv().await {
                let next: catchment_pipeline::Pending = next;
                next.durable().await?;
                let at: Stopwatch = at;
                waits.push(at.seconds());
            }
            anyhow::Ok(waits)
        });
        for first in (0..GROUPED).step_by(500) {
            let mut draft = intake.draft();
            for at in first..first + 500 {
                draft.push(&tape.envelope(at))?;
            }
            let at = Stopwatch::start();
            offered.send((at, intake.submit(draft).await?)).await?;
        }
        drop(offered);
        let mut waits = answers.await??;
        let rate = GROUPED as f64 / watch.seconds();
        waits.sort_by(f64::total_cmp);
        pipeline.close(Duration::from_secs(60)).await?;
        Ok((rate, waits[waits.len() * 99 / 100]))
    })
}

fn replay(args: &BenchArgs, report: &mut Report, dir: &Path, tape: &Tape) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(dir)?;
    let mut spool = spool_in(dir.path(), |config| config.segment_bytes_max = u64::MAX)?;
    for first in (0..64_000).step_by(1_000) {
        spool.accept(draft_of(tape, first, 1_000)?)?;
    }
    let segment = std::fs::read(dir.path().join("spool_000001.dat"))?;
    let mb = segment.len() as f64 / 1e6;
    let mut ours = || {
        let mut scan = SegmentScan::default();
        let seconds = thread_seconds(|| scan = SegmentScan::of(1, &segment));
        anyhow::ensure!(scan.records == 64_000, "only {} of 64000 records are sound", scan.records);
        Ok(mb / seconds)
    };
    let mut theirs = || {
        let seconds = thread_seconds(|| {
            std::hint::black_box(crc32c::crc32c(&segment));
        });
        Ok(mb / seconds)
    };
    report.duel(
        args.rounds().max(15),
        Duel {
            what: "replay scan of a segment in memory",
            unit: "MB/s",
            ours: ("frames walked, every checksum verified", &mut ours),
            theirs: ("crc32c of the same bytes", &mut theirs),
            goal: Goal::AtLeast(0.5),
        },
    )
}
