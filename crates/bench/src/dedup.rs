//! The dedup window, beside S1's shape: a set of strings. PERF goal 15.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use catchment_model::{Envelope, Monotonic};
use catchment_pipeline::{DedupConfig, DedupWindow, Keyer, Keys};

use crate::machine::thread_seconds;
use crate::tape::Tape;
use crate::{BenchArgs, Duel, Goal, Report};

const KEYS_MAX: usize = 100_000;
const RECORDS: usize = 400_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let tape = Tape::new(100);
    let records: Vec<Envelope<'_>> = (0..tape.len()).map(|at| tape.envelope(at)).collect();
    let mut ours = || Ok(RECORDS as f64 / thread_seconds(|| window_of_hashes(&records)));
    let mut theirs = || Ok(RECORDS as f64 / thread_seconds(|| window_of_strings(&records)));
    report.duel(
        args.rounds().max(15),
        Duel {
            what: "dedup window of 100,000 keys, from the record on",
            unit: "records/s",
            ours: ("128-bit keys in a ring", &mut ours),
            theirs: ("HashSet<String> and a queue", &mut theirs),
            goal: Goal::AtLeast(7.0),
        },
    )
}

fn window_of_hashes(records: &[Envelope<'_>]) {
    let config = DedupConfig { keys_max: KEYS_MAX, ..DedupConfig::default() };
    let mut window = DedupWindow::new(&config);
    let mut keyer = Keyer::new(Keys::On { by_payload: Arc::new([]) });
    let mut records = records.to_vec();
    let mut sequence = 0;
    for _ in 0..RECORDS / records.len() {
        for record in &mut records {
            sequence += 1;
            record.sequence = Some(sequence);
            assert!(window.insert(keyer.key(record), Monotonic::default()), "every record is new");
        }
    }
}

/// As S1 describes it: a text for every record, looked up, then kept in a set and in a queue.
fn window_of_strings(records: &[Envelope<'_>]) {
    let mut keys: HashSet<String> = HashSet::new();
    let mut order: VecDeque<String> = VecDeque::new();
    let mut sequence = 0;
    for _ in 0..RECORDS / records.len() {
        for record in records {
            sequence += 1;
            let key =
                format!("seq:{}:{}:{}:{sequence}", record.exchange, record.channel, record.symbol.as_str());
            assert!(!keys.contains(&key), "every record is new");
            while order.len() >= KEYS_MAX {
                let oldest = order.pop_front().expect("it is full");
                keys.remove(&oldest);
            }
            keys.insert(key.clone());
            order.push_back(key);
        }
    }
}
