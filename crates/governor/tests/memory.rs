//! What a hundred thousand instruments with back-off state cost: by the process's own resident memory.

#![cfg(target_os = "linux")] // reads /proc
#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use catchment_governor::{Backoff, BackoffSettings};
use catchment_model::Monotonic;

const INSTRUMENTS: usize = 100_000;

#[test]
fn a_hundred_thousand_resting_instruments_fit_into_64_mib() {
    // Polymarket's token ids have 77 digits, the longest names there are.
    let name = |n: usize| format!("{n:077}");
    let before = resident_kib();
    let mut backoff = Backoff::new(BackoffSettings::default(), 1);
    for n in 0..INSTRUMENTS {
        backoff.failed(&name(n), Monotonic::default());
    }
    let grown = resident_kib() - before;
    assert_eq!(backoff.len(), INSTRUMENTS);
    assert!(backoff.rests_until(&name(99_999), Monotonic::default()).is_some());
    let least = INSTRUMENTS as i64 * 77 / 1_024;
    assert!(grown > least, "{grown} KiB are less than the names alone: nothing was measured");
    println!("{grown} KiB for {INSTRUMENTS} instruments");
    assert!(grown <= 64 << 10, "{grown} KiB");
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}
