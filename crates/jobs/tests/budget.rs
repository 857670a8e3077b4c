//! The store's tokens as a governor's budget.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod rigs;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_governor::{Ask, Family, Governor, Lane, Limits, Open, Parts, Permit, Report, Settings};
use catchment_jobs::conformance::{Rig, binance};
use catchment_jobs::{BudgetSettings, GivingBack, Status, Store, StoreBudget};
use catchment_model::{Clock, Monotonic, SimClock, SystemClock, UnixNs};
use rigs::SqliteRig;

const MINUTE: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    let families = [
        Family::top("all").limit(10, MINUTE),
        Family::under("all", "books").limit(4, MINUTE),
        Family::under("all", "klines").limit(8, MINUTE),
    ];
    Limits::new(families, 1.0).unwrap()
}

async fn governor(
    store: Arc<dyn Store>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    settings: BudgetSettings,
) -> (Governor, GivingBack) {
    let (budget, giving_back) =
        StoreBudget::open(store, binance(), limits.clone(), clock.clone(), settings).await.unwrap();
    let parts = Parts {
        clock,
        budget: Arc::new(budget),
        limiter: Box::new(|_family, _ceiling| Box::new(Open)),
        notebook: None,
        seed: 1,
    };
    (Governor::open("binance", limits, Settings::default(), parts), giving_back)
}

async fn usage(store: &dyn Store) -> u32 {
    store.connector(binance()).await.unwrap().unwrap().rate_limit_usage
}

fn send(permit: Permit) {
    permit.depart().unwrap().end(Report::status(200), []);
}

fn sim_clock() -> Arc<SimClock> {
    Arc::new(SimClock::at(UnixNs::from_ms(1_800_000_000_000).unwrap()))
}

#[tokio::test]
async fn two_governors_share_every_window() {
    let rig = SqliteRig::new().await;
    let clock = sim_clock();
    let (one, _) = governor(rig.store(), limits(), clock.clone(), BudgetSettings::default()).await;
    let (two, _) = governor(rig.beside().await, limits(), clock.clone(), BudgetSettings::default()).await;
    let books = one.family("books").unwrap();
    let klines = one.family("klines").unwrap();
    for (governor, family) in [(&one, books), (&two, books), (&one, books), (&two, books), (&one, klines)] {
        send(governor.acquire(Ask::new(family, Lane::Live)).await);
    }
    let now = || clock.monotonic();
    let late = two.acquire_before(Ask::new(books, Lane::Live), Monotonic(now().0 + MINUTE)).await;
    assert!(late.is_none(), "four books a minute, over both");
    for _ in 0..5 {
        send(two.acquire(Ask::new(klines, Lane::Live)).await);
    }
    let late = one.acquire_before(Ask::new(klines, Lane::Live), Monotonic(now().0 + MINUTE)).await;
    assert!(late.is_none(), "ten of all a minute, over both");
    assert_eq!(usage(&*rig.store()).await, 10);
}

#[tokio::test]
async fn a_token_that_is_too_old_does_not_leave() {
    let rig = SqliteRig::new().await;
    let clock = sim_clock();
    let (governor, _) = governor(rig.store(), limits(), clock.clone(), BudgetSettings::default()).await;
    let books = governor.family("books").unwrap();
    let permit = governor.acquire(Ask::new(books, Lane::Live)).await;
    // The validity at this period is a second, of which nine tenths are used.
    clock.advance(Duration::from_millis(899));
    send(permit);
    let permit = governor.acquire(Ask::new(books, Lane::Live)).await;
    clock.advance(Duration::from_millis(901));
    permit.depart().unwrap_err();
}

#[tokio::test]
async fn what_is_not_used_is_given_back() {
    let rig = SqliteRig::new().await;
    let clock = sim_clock();
    let (governor, giving_back) = governor(rig.store(), limits(), clock, BudgetSettings::default()).await;
    let books = governor.family("books").unwrap();
    // Several stand in line: one trip fetches for all of them.
    let permits: Vec<_> = {
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let governor = governor.clone();
            asking.spawn(async move { governor.acquire(Ask::new(books, Lane::Live)).await });
        }
        asking.join_all().await
    };
    assert_eq!(usage(&*rig.store()).await, 4);
    let mut permits = permits.into_iter();
    send(permits.next().unwrap());
    drop(permits);
    drop(governor);
    giving_back.ended().await;
    assert_eq!(usage(&*rig.store()).await, 1, "only what left");
}

#[tokio::test]
async fn a_paused_connector_holds_everybody_back() {
    let rig = SqliteRig::new().await;
    let clock = sim_clock();
    let (governor, _) = governor(rig.store(), limits(), clock.clone(), BudgetSettings::default()).await;
    rig.store().set_connector_status(binance(), Status::Paused).await.unwrap();
    let books = governor.family("books").unwrap();
    let deadline = Monotonic(clock.monotonic().0 + Duration::from_millis(500));
    assert!(governor.acquire_before(Ask::new(books, Lane::Live), deadline).await.is_none());
    rig.store().set_connector_status(binance(), Status::Active).await.unwrap();
    send(governor.acquire(Ask::new(books, Lane::Live)).await);
}

/// Two governors with a file each on the real clock, sixteen who send as fast as they may: in no interval of the period
/// more than the limit leaves, and it goes on from one to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_every_interval_at_most_the_limit_leaves() {
    const LIMIT: u32 = 40;
    const PERIOD: Duration = Duration::from_millis(500);
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let limits = Limits::new([Family::top("all").limit(LIMIT, PERIOD)], 1.0).unwrap();
    let left: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let mut senders = tokio::task::JoinSet::new();
    let ends_at = Monotonic(clock.monotonic().0 + PERIOD * 6);
    for _ in 0..2 {
        let store = catchment_jobs::SqliteStore::open(dir.path().join("jobs.db")).await.unwrap();
        let (governor, _) =
            governor(Arc::new(store), limits.clone(), clock.clone(), BudgetSettings::default()).await;
        let all = governor.family("all").unwrap();
        for _ in 0..16 {
            let (governor, left, clock) = (governor.clone(), left.clone(), clock.clone());
            senders.spawn(async move {
                while let Some(permit) = governor.acquire_before(Ask::new(all, Lane::Backfill), ends_at).await
                {
                    if let Ok(flight) = permit.depart() {
                        left.lock().unwrap().push(clock.monotonic().0);
                        flight.end(Report::status(200), []);
                    }
                }
            });
        }
    }
    senders.join_all().await;
    let mut left = left.lock().unwrap().clone();
    left.sort();
    for (first, start) in left.iter().enumerate() {
        let within = left[first..].iter().take_while(|at| **at - *start <= PERIOD).count();
        assert!(within <= LIMIT as usize, "{within} left within {PERIOD:?}");
    }
    // A machine with other things to do is slow; how much can be used is shown by `scripts/torture jobs`.
    assert!(left.len() >= 2 * LIMIT as usize, "{} left in six periods", left.len());
}
