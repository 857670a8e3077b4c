//! Damaged answers through the scanner and through serde_json. PERF goal 1: none taken that is invalid, no value
//! different.

use catchment_venues::polymarket::fuzz_scanner;

use crate::machine::Stopwatch;
use crate::{BenchArgs, Goal, Report};

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let mutants = args.records.clamp(1, 1_000_000);
    let watch = Stopwatch::start();
    let outcome = fuzz_scanner(mutants, 7);
    eprintln!(
        "{} of {mutants} were taken by the scanner, {} left to the general reader, in {:.0} s",
        outcome.accepted,
        outcome.refused,
        watch.seconds()
    );
    for fault in outcome.faults.iter().take(5) {
        eprintln!("  {fault}");
    }
    let figures = [(outcome.faults.len() as f64, mutants as f64)];
    let what = "answers on which the scanner and serde_json disagree";
    report.note(what, "answers", ("disagreements", "answers tried"), &figures, Goal::AtMost(0.0));
    Ok(())
}
