//! What it costs to be allowed to send: acquire, departure and report, beside an uncontended lock and unlock.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_governor::{
    Ask, Family, FamilyId, Governor, Lane, Limits, MemoryBudget, Open, Parts, Report, Settings,
};
use catchment_model::SystemClock;

use crate::machine::thread_seconds;
use crate::{BenchArgs, Duel, Goal, Report as Results};

const PERMITS: usize = 200_000;
const LOCKS: usize = 2_000_000;

/// What Binance answers with, as far as anybody reads it.
const HEADERS: [(&str, &[u8]); 5] = [
    ("content-type", b"application/json;charset=UTF-8"),
    ("content-length", b"1843"),
    ("date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
    ("server", b"nginx"),
    ("x-mbx-used-weight-1m", b"37"),
];

pub(crate) fn run(args: &BenchArgs, results: &mut Results) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (governor, family) = polymarket()?;
    let mut locks = || Ok(lock_ns());
    for (what, headers) in [
        ("acquire, depart and report, three windows", &[][..]),
        ("the same, with the headers of an answer", &HEADERS[..]),
    ] {
        let mut ours = || {
            let all = permits(&governor, family, headers);
            Ok(thread_seconds(|| runtime.block_on(all)) * 1e9 / PERMITS as f64)
        };
        results.duel(
            args.rounds().max(9),
            Duel {
                what,
                unit: "ns",
                ours: ("a permit", &mut ours),
                theirs: ("Mutex lock and unlock", &mut locks),
                goal: Goal::AtMost(20.0),
            },
        )?;
    }
    Ok(())
}

/// Three windows for each request, wide enough that nobody waits.
fn polymarket() -> anyhow::Result<(Governor, FamilyId)> {
    let ten = Duration::from_secs(10);
    let families = [
        Family::top("all").limit(1_500_000_000, ten),
        Family::under("all", "clob").limit(900_000_000, ten),
        Family::under("clob", "books").limit(500_000_000, ten),
    ];
    let limits = Limits::new(families, 0.95)?;
    let parts = Parts {
        clock: Arc::new(SystemClock::new()),
        budget: Arc::new(MemoryBudget::new(limits.clone())),
        limiter: Box::new(|_, _| Box::new(Open)),
        notebook: None,
        seed: 1,
    };
    let governor = Governor::open("bench", limits, Settings::default(), parts);
    let family = governor.family("books").expect("it is declared above");
    Ok((governor, family))
}

async fn permits(governor: &Governor, family: FamilyId, headers: &[(&str, &[u8])]) {
    for _ in 0..PERMITS {
        let permit = governor.acquire(Ask::new(family, Lane::Live)).await;
        let flight = permit.depart().expect("it was granted a moment ago");
        flight.end(Report::status(200), headers.iter().copied());
    }
}

fn lock_ns() -> f64 {
    let lock = Mutex::new(0_u64);
    let seconds = thread_seconds(|| {
        for _ in 0..LOCKS {
            *black_box(&lock).lock().expect("nobody else has it") += 1;
        }
    });
    seconds * 1e9 / LOCKS as f64
}
