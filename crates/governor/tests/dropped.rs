//! Futures dropped at every await, permits dropped at every stage: nothing is lost, nothing leaks, nobody is forgotten.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod workshop;

use std::sync::Arc;
use std::time::Duration;

use catchment_governor::{Ask, Budget, Family, Governor, Lane, MemoryBudget, Permit, Report};
use catchment_model::Clock;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use workshop::{Departures, PausedClock, Rig, Slow, assert_nothing_leaked, poll_at_most};

/// Where a permit's life is cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unused,
    HeldThenUnused,
    UnderWay,
    Ended,
}

const STAGES: [Stage; 4] = [Stage::Unused, Stage::HeldThenUnused, Stage::UnderWay, Stage::Ended];

fn families() -> [Family; 3] {
    [
        Family::top("all").limit(6, Duration::from_secs(1)),
        Family::under("all", "books").limit(3, Duration::from_millis(700)),
        Family::under("all", "trades").limit(4, Duration::from_secs(2)),
    ]
}

fn rig(is_slow: bool) -> Rig {
    let mut rig = Rig::new(families());
    rig.settings.max_inflight = 3;
    if is_slow {
        let inner = MemoryBudget::new(rig.limits.clone());
        let budget: Arc<dyn Budget> =
            Arc::new(Slow { inner, clock: rig.clock.clone(), yields: 2, delay: Duration::from_millis(3) });
        rig.budget = budget;
    }
    rig
}

/// Lives a permit's life up to this stage.
async fn live(permit: Permit, ask: Ask, stage: Stage, clock: Arc<PausedClock>, log: Departures) {
    if stage == Stage::Unused {
        return;
    }
    if stage == Stage::HeldThenUnused {
        return tokio::time::sleep(Duration::from_millis(1_700)).await;
    }
    let Ok(flight) = permit.depart() else { return };
    log.note(clock.monotonic(), ask.family, ask.cost);
    tokio::time::sleep(Duration::from_millis(30)).await;
    if stage == Stage::Ended {
        flight.end(Report::status(200), []);
    }
}

async fn all_end(mut tasks: JoinSet<()>) {
    let all = async { while tasks.join_next().await.is_some_and(|ended| ended.is_ok()) {} };
    tokio::time::timeout(Duration::from_secs(600), all).await.expect("somebody waits for ever");
    assert!(tasks.is_empty(), "one of them panicked");
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_at_any_await_leaves_no_hole_and_loses_no_wake_up() {
    for is_slow in [false, true] {
        let mut is_through = false;
        for polls in 1.. {
            is_through = drop_after(polls, is_slow).await;
            if is_through || polls > 100 {
                break;
            }
        }
        assert!(is_through, "it was never polled to its end");
    }
}

/// The third of nine waiters is dropped after so many polls; `true` if it had its permit by then.
async fn drop_after(polls: usize, is_slow: bool) -> bool {
    let rig = rig(is_slow);
    let governor = rig.open();
    let log = Departures::default();
    let mut tasks = JoinSet::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    for n in 0..9 {
        let governor = governor.clone();
        let (clock, log) = (rig.clock.clone(), log.clone());
        let ask = Ask { lane: Lane::ALL[n % 4], ..rig.ask(["books", "trades"][n % 2]) };
        let mut tell = if n == 2 { tell.take() } else { None };
        tasks.spawn(async move {
            let permit = match tell.take() {
                None => Some(governor.acquire(ask).await),
                Some(tell) => {
                    let permit = poll_at_most(governor.acquire(ask), polls).await;
                    tell.send(permit.is_some()).unwrap();
                    permit
                }
            };
            if let Some(permit) = permit {
                live(permit, ask, Stage::Ended, clock, log).await;
            }
        });
    }
    all_end(tasks).await;
    let is_through = told.await.unwrap();
    assert_eq!(log.len(), if is_through { 9 } else { 8 }, "the others got theirs");
    log.check(&rig.limits);
    assert_nothing_leaked(&governor).await;
    is_through
}

#[tokio::test(start_paused = true)]
async fn whatever_is_dropped_and_whenever_nothing_leaks_and_every_interval_is_within_the_limit() {
    let is_long = std::env::var_os("CATCHMENT_LONG").is_some();
    let seeds = if is_long { 20_000 } else { 150 };
    // 3,803: two families that waited for one window once passed the next slot to and fro.
    for seed in (0..seeds).chain([3_803]) {
        let mut rng = StdRng::seed_from_u64(seed);
        let rig = rig(rng.random());
        let clients: Vec<Governor> = (0..rng.random_range(1..=3)).map(|_| rig.open()).collect();
        let log = Departures::default();
        let mut tasks = JoinSet::new();
        for _ in 0..rng.random_range(1..40) {
            let governor = clients[rng.random_range(0..clients.len())].clone();
            let ask = Ask {
                lane: Lane::ALL[rng.random_range(0..4)],
                cost: rng.random_range(1..=2),
                is_retry: rng.random_range(0..6) == 0,
                ..rig.ask(["all", "books", "trades"][rng.random_range(0..3)])
            };
            let polls = if rng.random() { usize::MAX } else { rng.random_range(1..12) };
            let start = Duration::from_millis(rng.random_range(0..2_000));
            let stage = STAGES[rng.random_range(0..4)];
            let (clock, log) = (rig.clock.clone(), log.clone());
            tasks.spawn(async move {
                tokio::time::sleep(start).await;
                if let Some(permit) = poll_at_most(governor.acquire(ask), polls).await {
                    live(permit, ask, stage, clock, log).await;
                }
            });
        }
        all_end(tasks).await;
        log.check(&rig.limits);
        for governor in &clients {
            assert_nothing_leaked(governor).await;
        }
        let again = tokio::time::Instant::now();
        let permit = clients[0].acquire(rig.ask("books")).await;
        assert!(again.elapsed() <= Duration::from_millis(10), "seed {seed}: it is as free as at the start");
        drop(permit);
    }
}
