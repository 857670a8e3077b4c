//! Many who want to send: who waits, for how long, and that nobody waits for somebody else's limit.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod workshop;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_governor::limiter::{End, Gauge, Limiter, Verdict};
use catchment_governor::{Ask, Expired, Family, Governor, Lane, MemoryBudget, Report};
use catchment_model::{Clock, Monotonic};
use tokio::task::JoinSet;
use workshop::{Departures, Rig, Slow, answer};

const SECOND: Duration = Duration::from_secs(1);

/// Asks for ever, each time as soon as the last answer is there.
fn ask_for_ever(tasks: &mut JoinSet<()>, governor: &Governor, ask: Ask, count: &Arc<AtomicU64>) {
    let (governor, count) = (governor.clone(), count.clone());
    tasks.spawn(async move {
        loop {
            let flight = governor.acquire(ask).await.depart().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            flight.end(Report::status(200), []);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn three_clients_behind_one_limit_get_the_same_within_five_percent() {
    let rig = Rig::one(50, 1);
    let mut tasks = JoinSet::new();
    let counts: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
    // However many each has waiting.
    for (count, workers) in counts.iter().zip([200, 50, 20]) {
        let governor = rig.open();
        for _ in 0..workers {
            ask_for_ever(&mut tasks, &governor, rig.ask("a"), count);
        }
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let counts: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let (least, most) = (*counts.iter().min().unwrap() as f64, *counts.iter().max().unwrap() as f64);
    assert!(most / least <= 1.05, "{counts:?}");
    let used = counts.iter().sum::<u64>() as f64 / (120.0 * 50.0);
    assert!(used >= 0.97, "{used} of the limit is used");
}

#[tokio::test(start_paused = true)]
async fn no_instrument_waits_much_longer_than_the_others() {
    let rig = Rig::one(20, 1);
    let governor = rig.open();
    let waits = Arc::new(Mutex::new(vec![Vec::new(); 100]));
    let mut tasks = JoinSet::new();
    for instrument in 0..100 {
        let (governor, waits, clock) = (governor.clone(), waits.clone(), rig.clock.clone());
        let ask = rig.ask("a");
        tasks.spawn(async move {
            loop {
                let due = clock.monotonic();
                let permit = governor.acquire(ask.due(due)).await;
                waits.lock().unwrap()[instrument].push(clock.monotonic().since(due).as_secs_f64());
                answer(permit, 200, &[]);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let waits = waits.lock().unwrap();
    // The first round finds an empty window.
    let later: Vec<f64> = waits.iter().flat_map(|waits| waits[1..].iter().copied()).collect();
    let mean = later.iter().sum::<f64>() / later.len() as f64;
    let longest = later.iter().copied().fold(0.0, f64::max);
    assert!(longest <= 1.5 * mean, "longest {longest} s, mean {mean} s");
}

#[tokio::test(start_paused = true)]
async fn the_urgent_go_first_and_the_backfill_is_never_starved() {
    let rig = Rig::one(50, 1);
    let governor = rig.open();
    let mut tasks = JoinSet::new();
    let counts: Vec<Arc<AtomicU64>> = Lane::ALL.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    for (lane, count) in Lane::ALL.into_iter().zip(&counts) {
        for _ in 0..60 {
            ask_for_ever(&mut tasks, &governor, Ask { lane, ..rig.ask("a") }, count);
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counts: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let share = |lane: usize| counts[lane] as f64 / counts.iter().sum::<u64>() as f64;
    assert!(share(0) >= 0.55, "{counts:?}");
    assert!(share(1) >= 0.15 && share(2) >= 0.07 && share(3) >= 0.04, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn lanes_hold_between_families_that_share_a_window_or_the_slots() {
    for max_inflight in [32, 2] {
        let wide = if max_inflight == 2 { 10_000 } else { 50 };
        let mut rig = Rig::new([
            Family::top("all").limit(wide, SECOND),
            Family::under("all", "books"),
            Family::under("all", "history"),
        ]);
        rig.settings.max_inflight = max_inflight;
        let governor = rig.open();
        let mut tasks = JoinSet::new();
        let (live, backfill) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for _ in 0..60 {
            ask_for_ever(&mut tasks, &governor, rig.ask("books"), &live);
            let history = Ask { lane: Lane::Backfill, ..rig.ask("history") };
            ask_for_ever(&mut tasks, &governor, history, &backfill);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (live, backfill) = (live.load(Ordering::Relaxed), backfill.load(Ordering::Relaxed));
        let share = backfill as f64 / (live + backfill) as f64;
        assert!((0.02..=0.20).contains(&share), "{live} live, {backfill} backfill, {max_inflight} slots");
    }
}

#[tokio::test(start_paused = true)]
async fn a_family_at_its_limit_keeps_no_other_waiting_and_neither_does_a_venue() {
    let rig = Rig::new([
        Family::top("all").limit(100, SECOND),
        Family::under("all", "books").limit(1, Duration::from_secs(60)),
        Family::under("all", "trades").limit(50, SECOND),
    ]);
    let governor = rig.open();
    answer(governor.acquire(rig.ask("books")).await, 200, &[]);
    let mut stuck = JoinSet::new();
    for _ in 0..5 {
        ask_for_ever(&mut stuck, &governor, rig.ask("books"), &Arc::new(AtomicU64::new(0)));
    }
    tokio::time::sleep(SECOND).await;
    let before = rig.seconds();
    for _ in 0..50 {
        answer(governor.acquire(rig.ask("trades")).await, 200, &[]);
    }
    assert_eq!(rig.seconds(), before);
    let other = Rig::one(1, 1);
    answer(governor.acquire(rig.ask("trades")).await, 418, &[]);
    assert!(governor.try_acquire(rig.ask("trades")).is_none());
    assert!(other.open().try_acquire(other.ask("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn no_more_are_under_way_than_may_be() {
    let mut rig = Rig::new([Family::top("books"), Family::top("trades")]);
    rig.settings.max_inflight = 3;
    let governor = rig.open();
    let most = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..40_u64 {
        let (governor, most) = (governor.clone(), most.clone());
        let ask = rig.ask(["books", "trades"][n as usize % 2]);
        tasks.spawn(async move {
            let permit = governor.acquire(ask).await;
            most.fetch_max(governor.snapshot().inflight.into(), Ordering::Relaxed);
            let flight = permit.depart().unwrap();
            tokio::time::sleep(Duration::from_millis(10 + n % 7)).await;
            flight.end(Report::status(200), []);
        });
    }
    tasks.join_all().await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
    assert!(rig.seconds() <= 0.25, "no slot stands idle: {} s", rig.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_goes_to_another_family_at_once() {
    let mut rig = Rig::new([Family::top("books"), Family::top("trades")]);
    rig.settings.max_inflight = 1;
    let governor = rig.open();
    let permit = governor.acquire(rig.ask("books")).await;
    let (waiting, ask) = (governor.clone(), rig.ask("trades"));
    let trades = tokio::spawn(async move { waiting.acquire(ask).await });
    tokio::time::sleep(SECOND / 2).await;
    answer(permit, 200, &[]);
    let permit = tokio::time::timeout(SECOND, trades).await.expect("nobody woke it");
    drop(permit.unwrap());
    assert_eq!(rig.seconds(), 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_keeps_no_turn_from_the_others() {
    let rig = Rig::one(1, 1);
    let (first, second, third) = (rig.open(), rig.open(), rig.open());
    answer(first.acquire(rig.ask("a")).await, 200, &[]);
    let gave_up = tokio::time::timeout(SECOND / 2, second.acquire(rig.ask("a"))).await;
    assert!(gave_up.is_err() && first.try_acquire(rig.ask("a")).is_none());
    tokio::time::sleep(SECOND / 2 + Duration::from_millis(5)).await;
    assert!(third.try_acquire(rig.ask("a")).is_some(), "nobody else wants it");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_given_up_is_there_for_another() {
    let rig = Rig::one(1, 1);
    let governor = rig.open();
    answer(governor.acquire(rig.ask("a")).await, 200, &[]);
    let gave_up = tokio::time::timeout(SECOND / 2, governor.acquire(rig.ask("a").retry())).await;
    assert!(gave_up.is_err() && governor.try_acquire(rig.ask("a").retry()).is_none());
    tokio::time::sleep(SECOND).await;
    assert!(governor.try_acquire(rig.ask("a").retry()).is_some(), "one a window is free, and was not used");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_store_keeps_no_slot_from_others() {
    let families = [Family::top("books").limit(1, Duration::from_secs(60)), Family::top("trades")];
    let mut rig = Rig::new(families);
    rig.settings.max_inflight = 1;
    let inner = MemoryBudget::new(rig.limits.clone());
    let delay = Duration::from_millis(3);
    rig.budget = Arc::new(Slow { inner, clock: rig.clock.clone(), yields: 1, delay });
    let governor = rig.open();
    answer(governor.acquire(rig.ask("books")).await, 200, &[]);
    // Both want the slot that is taken; books then learns that its window is full.
    let taken = governor.acquire(rig.ask("trades")).await;
    let mut waiting = JoinSet::new();
    for family in ["books", "trades"] {
        let (governor, ask, clock) = (governor.clone(), rig.ask(family), rig.clock.clone());
        waiting.spawn(async move {
            drop(governor.acquire(ask).await);
            clock.monotonic().0.as_secs_f64()
        });
    }
    tokio::time::sleep(SECOND / 2).await;
    answer(taken, 200, &[]);
    let first = waiting.join_next().await.unwrap().unwrap();
    assert!(first <= 0.6, "trades waited until {first} s");
}

#[tokio::test(start_paused = true)]
async fn room_that_is_given_back_is_used_at_once() {
    let rig = Rig::new([Family::top("all").limit(1, Duration::from_secs(60)), Family::under("all", "books")]);
    let governor = rig.open();
    let permit = governor.acquire(rig.ask("all")).await;
    let (waiting, ask) = (governor.clone(), rig.ask("books"));
    let books = tokio::spawn(async move { waiting.acquire(ask).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(permit);
    drop(books.await.unwrap());
    assert_eq!(rig.seconds(), 0.3);
}

#[tokio::test(start_paused = true)]
async fn a_permit_expires_and_its_room_is_back() {
    let rig = Rig::one(1, 60);
    let governor = rig.open();
    let permit = governor.acquire(rig.ask("a")).await;
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert!(governor.try_acquire(rig.ask("a")).is_none(), "somebody may still use it");
    assert_eq!(permit.depart().unwrap_err(), Expired);
    let permit = governor.try_acquire(rig.ask("a")).unwrap();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let flight = permit.depart().unwrap();
    flight.end(Report::status(200), []);
    let _permit = governor.acquire(rig.ask("a")).await;
    assert!((62.001..=62.003).contains(&rig.seconds()), "a window from when it left: {} s", rig.seconds());
    let counts = governor.snapshot().families[0].counts;
    assert_eq!((counts.granted, counts.unsent, counts.answered), (3, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_would_come_too_late_is_told_at_once_and_counted() {
    let rig = Rig::one(1, 10);
    let governor = rig.open();
    let deadline = |seconds| Monotonic(Duration::from_secs(seconds));
    assert!(governor.acquire_before(rig.ask("a"), deadline(1)).await.is_some_and(|permit| {
        answer(permit, 200, &[]);
        true
    }));
    assert!(governor.acquire_before(rig.ask("a"), deadline(5)).await.is_none());
    assert_eq!(rig.seconds(), 0.0, "it is known at once");
    assert!(governor.acquire_before(rig.ask("a"), deadline(11)).await.is_some());
    assert!(governor.try_acquire(rig.ask("a")).is_some(), "the permit above was dropped");
    assert_eq!(governor.snapshot().families[0].counts.late, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_behind_others_gives_up_at_its_deadline() {
    let rig = Rig::one(1, 10);
    let governor = rig.open();
    answer(governor.acquire(rig.ask("a")).await, 200, &[]);
    let mut tasks = JoinSet::new();
    ask_for_ever(&mut tasks, &governor, rig.ask("a"), &Arc::new(AtomicU64::new(0)));
    tokio::time::sleep(SECOND).await;
    assert!(governor.acquire_before(rig.ask("a"), Monotonic(2 * SECOND)).await.is_none());
    assert!((2.0..=2.01).contains(&rig.seconds()));
}

#[tokio::test(start_paused = true)]
async fn retries_add_at_most_a_tenth_however_much_fails() {
    let rig = Rig::one(100, 1);
    let governor = rig.open();
    let mut tasks = JoinSet::new();
    for worker in 0..20_u64 {
        let governor = governor.clone();
        let ask = rig.ask("a");
        tasks.spawn(async move {
            for n in 0_u64.. {
                let flight = governor.acquire(ask).await.depart().unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                let has_failed = (n + worker).is_multiple_of(2);
                flight.end(Report::status(if has_failed { 503 } else { 200 }), []);
                if has_failed && let Some(permit) = governor.try_acquire(ask.retry()) {
                    permit.depart().unwrap().end(Report::status(503), []);
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let counts = governor.snapshot().families[0].counts;
    let firsts = counts.granted - counts.retries;
    let share = counts.retries as f64 / firsts as f64;
    assert!((0.02..=0.1005).contains(&share), "{} retries of {firsts} requests", counts.retries);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_for_its_share_keeps_no_first_attempt_waiting() {
    let rig = Rig::one(1_000, 1);
    let governor = rig.open();
    drop(governor.acquire(rig.ask("a").retry()).await);
    assert!(governor.try_acquire(rig.ask("a").retry()).is_none(), "one a window is free, the second is not");
    let waiting = governor.clone();
    let ask = rig.ask("a").retry();
    let retry = tokio::spawn(async move { drop(waiting.acquire(ask).await) });
    tokio::time::sleep(SECOND).await;
    for _ in 0..20 {
        answer(governor.try_acquire(rig.ask("a")).unwrap(), 200, &[]);
    }
    retry.await.unwrap();
    assert!(rig.seconds() <= 2.0, "twenty requests have earned it: {} s", rig.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_stranger_on_the_same_address_is_made_room_for() {
    let rig = Rig::new([Family::top("rest").limit(6_000, Duration::from_secs(60))]);
    let governor = rig.open();
    answer(governor.acquire(rig.ask("rest").cost(50)).await, 200, &[("X-MBX-USED-WEIGHT-1M", "5990")]);
    assert!(governor.try_acquire(rig.ask("rest").cost(11)).is_none());
    answer(governor.try_acquire(rig.ask("rest").cost(10)).unwrap(), 200, &[("X-MBX-USED-WEIGHT-1M", "6000")]);
    let _permit = governor.acquire(rig.ask("rest")).await;
    assert!((60.0..=60.01).contains(&rig.seconds()));
    assert_eq!(governor.snapshot().families[0].counts.strange, 5_940);
}

#[tokio::test(start_paused = true)]
async fn every_interval_is_within_the_limit_with_the_windows_polymarket_publishes() {
    let ten = Duration::from_secs(10);
    let mut rig = Rig::new([
        Family::top("all").limit(1_500, ten),
        Family::under("all", "clob").limit(900, ten),
        Family::under("clob", "books").limit(50, ten),
        Family::under("clob", "book").limit(150, ten),
        Family::under("all", "gamma").limit(400, ten),
    ]);
    rig.settings.max_inflight = 64;
    let governor = rig.open();
    let log = Departures::default();
    let mut tasks = JoinSet::new();
    for n in 0..60 {
        let (governor, clock, log) = (governor.clone(), rig.clock.clone(), log.clone());
        let ask = rig.ask(["all", "clob", "books", "book", "gamma"][n % 5]);
        tasks.spawn(async move {
            loop {
                let permit = governor.acquire(ask).await;
                tokio::time::sleep(Duration::from_millis(n as u64 * 7)).await;
                let flight = permit.depart().unwrap();
                log.note(clock.monotonic(), ask.family, ask.cost);
                tokio::time::sleep(Duration::from_millis(30)).await;
                flight.end(Report::status(200), []);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(45)).await;
    tasks.shutdown().await;
    assert!(log.len() >= 3_000, "{} left", log.len());
    log.check(&rig.limits);
}

/// At most one under way, and a tenth of a second between two.
#[derive(Debug, Default)]
struct OneByOne {
    inflight: u32,
    not_before: Monotonic,
}

impl Limiter for OneByOne {
    fn ask(&mut self, _cost: u32, now: Monotonic) -> Verdict {
        match () {
            () if self.inflight > 0 => Verdict::WhenOneEnds,
            () if now < self.not_before => Verdict::NotBefore(self.not_before),
            () => Verdict::Now,
        }
    }

    fn sent(&mut self, _cost: u32, now: Monotonic) {
        self.inflight += 1;
        self.not_before = Monotonic(now.0 + SECOND / 10);
    }

    fn ended(&mut self, _end: &End, _now: Monotonic) {
        self.inflight -= 1;
    }

    fn ceiling(&self) -> Option<f64> {
        None
    }

    fn gauge(&self, _now: Monotonic) -> Gauge {
        Gauge { inflight: self.inflight, phase: "one by one", ..Gauge::default() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_obeyed_and_told_of_every_end() {
    let rig = Rig::new([Family::top("a")]);
    let governor = rig.open_with(|_, _| Box::new(OneByOne::default()));
    let mut tasks = JoinSet::new();
    for n in 0..20_u64 {
        let governor = governor.clone();
        let ask = rig.ask("a");
        tasks.spawn(async move {
            let permit = governor.acquire(ask).await;
            assert_eq!(governor.snapshot().families[0].gauge.unwrap().inflight, 1);
            match n % 3 {
                0 => answer(permit, 200, &[]),
                1 => drop(permit),
                _ => drop(permit.depart().unwrap()),
            }
        });
    }
    tasks.join_all().await;
    assert!((1.9..=1.92).contains(&rig.seconds()), "{} s", rig.seconds());
    assert_eq!(governor.snapshot().families[0].gauge.unwrap().inflight, 0);
}
