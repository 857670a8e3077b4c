//! Memory over ten million records: what a long run would show, in a minute.

use std::time::Duration;

use crate::machine::resident_mib;
use crate::tape::Tape;
use crate::{BenchArgs, Goal, Report, pipeline};

/// Parts of the run; memory is read after each. The first half fills caches and buffers.
const PARTS: usize = 10;
const WARM: usize = 5;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let tape = Tape::new(10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let part = (args.records as usize / PARTS).max(tape.len());
    let resident = runtime.block_on(async {
        let house = pipeline::open(scratch.path())?;
        let mut resident = Vec::new();
        for first in (0..PARTS).map(|n| n * part) {
            pipeline::offer(&house.intake(), &tape, first..first + part).await?;
            resident.push(resident_mib()?);
            eprintln!(
                "  {:>10} records durable, {:.1} MiB resident",
                first + part,
                resident[resident.len() - 1]
            );
        }
        pipeline::ensure_written(&house.close(Duration::from_secs(600)).await?, (part * PARTS) as u64)?;
        anyhow::Ok(resident)
    })?;
    let warm = resident[..WARM].iter().copied().fold(0.0, f64::max);
    let later: Vec<(f64, f64)> = resident[WARM..].iter().map(|mib| (*mib, warm)).collect();
    let sides = ("afterwards", "most in the first half");
    report.note("memory", "MiB", sides, &later, Goal::AtMost(1.1));
    let cap = resident.iter().copied().fold(0.0, f64::max);
    report.note("most memory", "MiB", ("resident", "a cap of 256 MiB"), &[(cap, 256.0)], Goal::AtMost(1.0));
    Ok(())
}
