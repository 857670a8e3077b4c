//! The dedup window, beside S1's shape: a set of strings. PERF goal 15.

use std::collections::{HashSet, VecDeque};

use catchment_model::Monotonic;
use catchment_pipeline::{DedupConfig, DedupWindow};

use crate::machine::thread_seconds;
use crate::{BenchArgs, Duel, Goal, Report};

const KEYS_MAX: usize = 100_000;
const KEYS: usize = 400_000;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    // What the records are told apart by; ours hashes them, S1 keeps the text.
    let names: Vec<String> = (0..KEYS).map(|n| format!("seq:binance:trades:BTC/USDT:{n}")).collect();
    let mut ours = || Ok(KEYS as f64 / thread_seconds(|| window_of_hashes(&names)));
    let mut theirs = || Ok(KEYS as f64 / thread_seconds(|| window_of_strings(&names)));
    report.duel(
        args.rounds.max(15),
        Duel {
            what: "dedup window of 100,000 keys",
            unit: "keys/s",
            ours: ("128-bit keys in a ring", &mut ours),
            theirs: ("HashSet<String> and a queue", &mut theirs),
            goal: Goal::AtLeast(7.0),
        },
    )
}

fn window_of_hashes(names: &[String]) {
    let config = DedupConfig { keys_max: KEYS_MAX, ..DedupConfig::default() };
    let mut window = DedupWindow::new(&config);
    for name in names {
        let key = catchment_pipeline::dedup_key(name.as_bytes());
        assert!(window.insert(key, Monotonic::default()), "every key is new");
    }
}

fn window_of_strings(names: &[String]) {
    let mut keys = HashSet::new();
    let mut order = VecDeque::new();
    for name in names {
        if order.len() == KEYS_MAX {
            let oldest: String = order.pop_front().expect("it is full");
            keys.remove(&oldest);
        }
        assert!(keys.insert(name.clone()), "every key is new");
        order.push_back(name.clone());
    }
}
