//! Durable accepts through the whole pipeline, a JSONL sink at its end, beside a bare loop that only writes and syncs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, RecordId, SpoolId, SystemClock};
use catchment_pipeline::{
    Books, Delivery, Intake, OnFull, Pending, Pipeline, PipelineConfig, RealDisk, Sink, Spool, SpoolConfig,
};
use catchment_sinks::{JsonlConfig, JsonlSink};
use tokio::sync::mpsc;

use crate::machine::Stopwatch;
use crate::tape::Tape;
use crate::{BenchArgs, Duel, Goal, Report};

const RECORDS: usize = 300_000;
const GROUP: usize = 1_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let tape = Tape::new(10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut ours = || {
        let dir = tempfile::tempdir_in(scratch.path())?;
        let seconds = runtime.block_on(async {
            let house = open(dir.path())?;
            let watch = Stopwatch::start();
            offer(&house.intake(), &tape, 0..RECORDS).await?;
            let seconds = watch.seconds();
            let books = house.close(Duration::from_secs(60)).await?;
            ensure_written(&books, RECORDS as u64)?;
            anyhow::Ok(seconds)
        })?;
        Ok(RECORDS as f64 / seconds)
    };
    let ready = ready_groups(&tape);
    let mut theirs = || {
        let dir = tempfile::tempdir_in(scratch.path())?;
        let mut file = File::create(dir.path().join("bare"))?;
        let watch = Stopwatch::start();
        for group in &ready {
            file.write_all(group)?;
            file.sync_data()?;
        }
        Ok(RECORDS as f64 / watch.seconds())
    };
    report.duel(
        args.rounds(),
        Duel {
            what: "durable accepts through the whole pipeline, JSONL sink included",
            unit: "records/s",
            ours: ("envelopes spliced, spooled, delivered", &mut ours),
            theirs: ("ready groups of 1,000, write and fdatasync", &mut theirs),
            goal: Goal::AtLeast(0.5),
        },
    )
}

/// A pipeline as `ingest` has it.
pub(crate) fn open(dir: &Path) -> anyhow::Result<Pipeline> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // A sink that is slower than the tape makes it wait; nothing is dropped.
    let config = SpoolConfig { on_full: OnFull::Block, ..SpoolConfig::at(dir.join("spool")) };
    let spool = Spool::open(config, Arc::new(RealDisk::private()), 1)?;
    let disk = Arc::new(RealDisk::shared());
    let config = JsonlConfig { seal_in_background: true, ..JsonlConfig::new(dir.join("data")) };
    let sink: Arc<dyn Sink> = Arc::new(JsonlSink::open(config, spool.id(), disk, Arc::clone(&clock))?);
    Ok(Pipeline::start(spool, vec![(sink, Delivery::default())], PipelineConfig::default(), clock)?)
}

/// Offers the records and waits until all are durable.
pub(crate) async fn offer(intake: &Intake, tape: &Tape, range: std::ops::Range<usize>) -> anyhow::Result<()> {
    // Full: offering waits for answers.
    let (offered, mut pending) = mpsc::channel::<Pending>(64);
    let answers = tokio::spawn(async move {
        while let Some(next) = pending.recv().await {
            next.durable().await?;
        }
        anyhow::Ok(())
    });
    let mut draft = intake.draft();
    for at in range {
        draft.push(&tape.envelope(at))?;
        if draft.is_full() {
            offered.send(intake.submit(std::mem::replace(&mut draft, intake.draft())).await?).await?;
        }
    }
    offered.send(intake.submit(draft).await?).await?;
    drop(offered);
    answers.await?
}

pub(crate) fn ensure_written(books: &Books, records: u64) -> anyhow::Result<()> {
    let written: u64 = books.balances().iter().map(|line| line.written).sum();
    anyhow::ensure!(written == records, "{written} of {records} records were written");
    Ok(())
}

/// The same lines, ready to be written.
fn ready_groups(tape: &Tape) -> Vec<Vec<u8>> {
    let group = |first: usize| {
        let mut bytes = Vec::new();
        for at in first..first + GROUP {
            let id = RecordId { spool: SpoolId::new(1), seq: at as u64 };
            tape.envelope(at).write_line(&id, &mut bytes);
        }
        bytes
    };
    (0..RECORDS).step_by(GROUP).map(group).collect()
}
