//! `catchment ingest`: envelopes as JSON lines on standard input, into the pipeline. How people bring a source we do not
//! know, and how the crash tests drive the real binary.
//!
//! A thread reads and parses; the records go on in drafts; answers come back in order. Everything in between is bounded,
//! so a slow disk slows the reading down and nothing piles up.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use catchment_model::{Clock, EnvelopeLine};
use catchment_pipeline::{AcceptError, Balance, Draft, Intake, Monitor, OnStorageError, Pending};
use tokio::sync::{mpsc, watch};

use crate::cli::IngestArgs;
use crate::floorplan::{self, House, Manner, OpenSinks};
use crate::lines::{Line, Lines};
use crate::signals::{self, told};
use crate::summary::{self, Progress};
use crate::{DONE, WANTING, say};

/// How long the sinks may take for the rest after a signal.
const DRAIN_ON_SIGNAL: Duration = Duration::from_secs(9);
/// And after the spool's disk has failed: most often it is the sinks' disk, too.
const DRAIN_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// So many refusals are printed; the rest is counted, and kept with `--rejects`.
const REFUSALS_SHOWN: u64 = 100;

/// What the threads and tasks share.
#[derive(Default)]
struct Counts {
    lines: AtomicU64,
    refused: AtomicU64,
    durable: AtomicU64,
    bytes: AtomicU64,
}

pub(crate) fn run(args: IngestArgs) -> anyhow::Result<u8> {
    let config = args.config.read()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let outcome = runtime.block_on(async {
        let on_storage_error = if args.wait_for_disk { OnStorageError::Wait } else { OnStorageError::Refuse };
        // What comes is whatever somebody has kept: between two runs nothing is missing.
        let manner = Manner { on_storage_error, open_sinks: OpenSinks::First, live: Vec::new() };
        let house = floorplan::build(&config, manner)?;
        ingest(house, &args).await
    });
    // The reading thread may sit in a read that never returns.
    runtime.shutdown_background();
    outcome
}

async fn ingest(house: House, args: &IngestArgs) -> anyhow::Result<u8> {
    let House { pipeline, clock, .. } = house;
    let counts = Arc::new(Counts::default());
    let intake = pipeline.intake();
    let mut enough = signals::listen("what was accepted is being delivered")?;
    // Full: reading waits. A draft holds about 256 KiB.
    let (drafts, drafted) = mpsc::channel(8);
    // Full: submitting waits.
    let (offered, pending) = mpsc::channel(64);
    let rejects = Rejects::open(args.rejects.clone())?;
    read_in_background(std::io::stdin(), intake.clone(), drafts, rejects, Arc::clone(&counts), clock);
    let mut acknowledging = tokio::spawn(acknowledge_all(pending, args.ack, Arc::clone(&counts)));
    let progress = Progress::start("ingest");
    let mut acknowledged = None;
    tokio::select! {
        biased;
        () = told(&mut enough) => {}
        ended = &mut acknowledging => acknowledged = Some(ended),
        () = submit_all(drafted, intake, offered) => {}
        () = show(&progress, &counts) => {}
    }
    if acknowledged.is_none() {
        // Everything was offered; now everything is answered, unless it is enough.
        tokio::select! {
            biased;
            () = told(&mut enough) => {}
            ended = &mut acknowledging => acknowledged = Some(ended),
            () = show(&progress, &counts) => {}
        }
    }
    let (monitor, signal) = (pipeline.monitor(), enough.clone());
    let failed = matches!(acknowledged, Some(Ok(Err(_))));
    let closed = pipeline.close_until(patience(failed, enough, monitor)).await;
    let acknowledged = match acknowledged {
        Some(ended) => ended,
        None => acknowledging.await,
    }
    .context("acknowledging ended early")?;
    progress.finish();
    let (lines, refused) = (counts.lines.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed));
    if let Ok(books) = &closed {
        summary::print(books, lines, refused, args.json)?;
    }
    acknowledged?;
    let waiting: u64 = closed?.balances().iter().map(|line: &Balance| line.pending).sum();
    if waiting > 0 {
        say(&format!(
            "catchment: {waiting} records wait in the spool for a sink; the next start delivers them"
        ));
    }
    // Whoever sends a signal asks for an end, not for a delivery.
    let left_undone = waiting > 0 && !*signal.borrow();
    Ok(if refused > 0 || left_undone { WANTING } else { DONE })
}

/// Waits for the sinks to take the rest: as long as they do, and after a signal or a failure not much longer.
async fn patience(failed: bool, mut enough: watch::Receiver<bool>, monitor: Monitor) {
    tokio::select! {
        biased;
        () = tokio::time::sleep(DRAIN_AFTER_FAILURE), if failed => {}
        () = told(&mut enough) => tokio::time::sleep(DRAIN_ON_SIGNAL).await,
        () = floorplan::until_a_sink_is_stuck(&monitor) => {}
    }
}

/// Shows how far it is; never ends by itself.
async fn show(progress: &Progress, counts: &Counts) {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        progress.show(&format!(
            "{} lines, {} durable, {} MB",
            counts.lines.load(Ordering::Relaxed),
            counts.durable.load(Ordering::Relaxed),
            counts.bytes.load(Ordering::Relaxed) / 1_000_000,
        ));
    }
}

/// Reads on a thread of its own: nobody can interrupt a read from standard input, so nobody waits for this thread.
fn read_in_background(
    input: impl Read + Send + 'static,
    intake: Intake,
    drafts: mpsc::Sender<Draft>,
    mut rejects: Rejects,
    counts: Arc<Counts>,
    clock: Arc<dyn Clock>,
) {
    std::thread::spawn(move || {
        let mut lines = Lines::new(input);
        let mut draft = intake.draft();
        loop {
            let read = lines.read(|number, line| {
                counts.lines.fetch_add(1, Ordering::Relaxed);
                if let Err(reason) = take(line, &mut draft, &*clock) {
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                    rejects.add(number, &reason);
                }
                if draft.is_full() {
                    send(&mut draft, &intake, &drafts, &counts);
                }
            });
            send(&mut draft, &intake, &drafts, &counts);
            match read {
                Ok(true) if !drafts.is_closed() => {}
                Ok(_) => break,
                Err(error) => {
                    say(&format!("catchment: cannot read standard input: {error}"));
                    break;
                }
            }
        }
        rejects.finish();
    });
}

/// One line into the draft, or the reason why not and the line itself.
fn take(line: Line<'_>, draft: &mut Draft, clock: &dyn Clock) -> Result<(), Refused> {
    let text = match line {
        Line::Text(text) => text,
        Line::TooLong { bytes } => {
            return Err(Refused {
                reason: format!("the line has {bytes} bytes, too many for a record"),
                line: None,
            });
        }
    };
    let refuse = |reason: String| Refused { reason, line: Some(text.to_vec()) };
    let parsed = EnvelopeLine::parse(text).map_err(|error| refuse(error.to_string()))?;
    let now = clock.wall();
    draft.push(&parsed.envelope(now)).map_err(|error| refuse(error.to_string()))
}

fn send(draft: &mut Draft, intake: &Intake, drafts: &mpsc::Sender<Draft>, counts: &Counts) {
    if draft.is_empty() {
        return;
    }
    counts.bytes.fetch_add(draft.bytes() as u64, Ordering::Relaxed);
    // Closed: the pipeline has failed or a signal has come; the lines were never acknowledged.
    let _ = drafts.blocking_send(std::mem::replace(draft, intake.draft()));
}

/// Offers drafts in order until there are no more, or nobody takes them.
async fn submit_all(mut drafts: mpsc::Receiver<Draft>, intake: Intake, offered: mpsc::Sender<Pending>) {
    while let Some(draft) = drafts.recv().await {
        let Ok(pending) = intake.submit(draft).await else { return };
        if offered.send(pending).await.is_err() {
            return;
        }
    }
}

/// Waits for each draft in turn and prints its ids.
async fn acknowledge_all(
    mut pending: mpsc::Receiver<Pending>,
    print: bool,
    counts: Arc<Counts>,
) -> Result<(), AcceptError> {
    let mut text = Vec::new();
    while let Some(next) = pending.recv().await {
        let receipt = next.durable().await?;
        text.clear();
        for id in receipt.ids() {
            counts.durable.fetch_add(1, Ordering::Relaxed);
            text.extend_from_slice(&id.text());
            text.push(b'\n');
        }
        if print {
            let mut out = std::io::stdout().lock();
            // Nobody listens to the ids any more; the records are accepted all the same.
            let _ = out.write_all(&text).and_then(|()| out.flush());
        }
    }
    Ok(())
}

/// A line that is not taken.
struct Refused {
    reason: String,
    line: Option<Vec<u8>>,
}

/// Refused lines: the first hundred are shown, all are kept where `--rejects` says.
struct Rejects {
    shown: u64,
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl Rejects {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let file = match path {
            None => None,
            Some(path) => {
                let file = File::options().create(true).append(true).open(&path);
                let file =
                    file.with_context(|| format!("cannot write the file of --rejects, {}", path.display()))?;
                Some((path, BufWriter::new(file)))
            }
        };
        Ok(Self { shown: 0, file })
    }

    fn add(&mut self, number: u64, refused: &Refused) {
        self.shown += 1;
        match self.shown {
            ..=REFUSALS_SHOWN => say(&format!("line {number}: refused: {}", refused.reason)),
            n if n == REFUSALS_SHOWN + 1 => {
                say("further refused lines are only counted; --rejects FILE keeps them");
            }
            _ => {}
        }
        let Some((path, file)) = &mut self.file else { return };
        let text = refused.line.as_deref().map(String::from_utf8_lossy);
        let entry = serde_json::json!({ "line": number, "reason": refused.reason, "text": text });
        if let Err(error) = writeln!(file, "{entry}") {
            say(&format!("catchment: cannot write {}: {error}", path.display()));
            self.file = None;
        }
    }

    fn finish(&mut self) {
        if let Some((path, file)) = &mut self.file
            && let Err(error) = file.flush()
        {
            say(&format!("catchment: cannot write {}: {error}", path.display()));
        }
    }
}
