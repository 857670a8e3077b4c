//! From a collector to the intake: drafts of many records, beside one send a record. PERF goal 15.

use catchment_pipeline::{Draft, Keys};
use tokio::sync::mpsc;

use crate::machine::thread_seconds;
use crate::tape::Tape;
use crate::{BenchArgs, Goal, Report};

const RECORDS: usize = 1 << 16;
const DRAFT: usize = 64;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tape = Tape::new(10_000);
    let mut rounds = Vec::new();
    for _ in 0..args.rounds().max(9) {
        let ns = |records: usize| {
            let drafts = drafts_of(&tape, records);
            thread_seconds(|| runtime.block_on(hand_over(drafts))) * 1e9 / RECORDS as f64
        };
        rounds.push((ns(DRAFT), ns(1)));
    }
    let sides = ("drafts of 64 records", "drafts of one record");
    report.note("hand-off, a record", "ns", sides, &rounds, Goal::AtMost(0.2));
    let ten: Vec<(f64, f64)> = rounds.iter().map(|(many, _)| (*many, 10.0)).collect();
    report.note(
        "hand-off, a record, beside 10 ns",
        "ns",
        ("drafts of 64 records", "10 ns"),
        &ten,
        Goal::AtMost(1.0),
    );
    Ok(())
}

fn drafts_of(tape: &Tape, records: usize) -> Vec<Draft> {
    let draft = |first: usize| {
        let mut draft = Draft::new(Keys::Off);
        for at in first..first + records {
            draft.push(&tape.envelope(at)).expect("the tape's records are small");
        }
        draft
    };
    (0..RECORDS).step_by(records).map(draft).collect()
}

/// The channel between a collector and the writer, as the pipeline has it; the drafts are kept, not freed, meanwhile.
async fn hand_over(drafts: Vec<Draft>) {
    let (send, mut receive) = mpsc::channel(256);
    let sender = async move {
        for draft in drafts {
            send.send(draft).await.expect("the other side listens");
        }
    };
    let receiver = async {
        let mut kept = Vec::with_capacity(RECORDS);
        while let Some(draft) = receive.recv().await {
            kept.push(draft);
        }
        kept
    };
    let ((), kept) = tokio::join!(sender, receiver);
    assert_eq!(kept.iter().map(Draft::len).sum::<usize>(), RECORDS);
    std::mem::forget(kept);
}
