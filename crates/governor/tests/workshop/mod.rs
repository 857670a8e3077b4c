//! What the tests of this room share: a governor under paused time, a log of what left, a budget that takes its time.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // not every test uses everything

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_governor::limiter::{Limiter, Used};
use catchment_governor::{
    Answer, Ask, Bill, Budget, Charge, Family, FamilyId, Fill, Governor, Lane, Limits, MemoryBudget,
    Notebook, Open, Parts, Permit, Reply, Report, Settings,
};
use catchment_model::{Clock, Monotonic, UnixNs};
use tokio::time::Instant;

/// Follows tokio's clock, which stands still unless everybody sleeps.
#[derive(Debug)]
pub struct PausedClock {
    started: Instant,
    wall_ms: i64,
}

impl PausedClock {
    pub fn at(wall_ms: i64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), wall_ms })
    }
}

impl Clock for PausedClock {
    fn wall(&self) -> UnixNs {
        UnixNs::from_ms(self.wall_ms + self.started.elapsed().as_millis() as i64).unwrap()
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.started.elapsed())
    }
}

pub const WALL_MS: i64 = 1_798_761_600_000;

/// What a governor under test stands on.
pub struct Rig {
    pub clock: Arc<PausedClock>,
    pub limits: Limits,
    pub settings: Settings,
    pub budget: Arc<dyn Budget>,
    pub notebook: Option<Arc<Notebook>>,
}

impl Rig {
    pub fn new(families: impl IntoIterator<Item = Family>) -> Self {
        let limits = Limits::new(families, 1.0).unwrap();
        Self {
            clock: PausedClock::at(WALL_MS),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limits,
            settings: Settings::default(),
            notebook: None,
        }
    }

    /// One family `a` with one limit.
    pub fn one(cost: u32, seconds: u64) -> Self {
        Self::new([Family::top("a").limit(cost, Duration::from_secs(seconds))])
    }

    pub fn open(&self) -> Governor {
        self.open_with(|_, _| Box::new(Open))
    }

    pub fn open_with(
        &self,
        limiter: impl Fn(&str, Option<f64>) -> Box<dyn Limiter> + Send + Sync + 'static,
    ) -> Governor {
        let parts = Parts {
            clock: self.clock.clone(),
            budget: self.budget.clone(),
            limiter: Box::new(limiter),
            notebook: self.notebook.clone(),
            seed: 7,
        };
        Governor::open("lantern", self.limits.clone(), self.settings.clone(), parts)
    }

    pub fn family(&self, name: &str) -> FamilyId {
        self.limits.family(name).unwrap()
    }

    pub fn ask(&self, name: &str) -> Ask {
        Ask::new(self.family(name), Lane::Live)
    }

    pub fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    pub fn seconds(&self) -> f64 {
        self.now().0.as_secs_f64()
    }
}

/// Sends and is answered at once.
pub fn answer(permit: Permit, status: u16, headers: &[(&str, &str)]) {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    permit.depart().unwrap().end(Report::status(status), headers);
}

/// A future that is dropped after it was polled so many times without an end.
pub async fn poll_at_most<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut polled = 0;
    std::future::poll_fn(move |context| {
        polled += 1;
        match future.as_mut().poll(context) {
            std::task::Poll::Pending if polled >= polls => std::task::Poll::Ready(None),
            other => other.map(Some),
        }
    })
    .await
}

/// A budget that thinks for a while before it answers, as one in a store does.
#[derive(Debug)]
pub struct Slow {
    pub inner: MemoryBudget,
    pub clock: Arc<PausedClock>,
    pub yields: u32,
    pub delay: Duration,
}

impl Budget for Slow {
    fn charge(&self, bill: &Bill, _now: Monotonic) -> Reply<'_> {
        let bill = *bill;
        let answer: Pin<Box<dyn Future<Output = Answer> + Send + '_>> = Box::pin(async move {
            for _ in 0..self.yields {
                tokio::task::yield_now().await;
            }
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            match self.inner.charge(&bill, self.clock.monotonic()) {
                Reply::Ready(answer) => answer,
                Reply::Later(_) => unreachable!("memory answers at once"),
            }
        });
        Reply::Later(answer)
    }

    fn left(&self, charge: Charge, now: Monotonic) {
        self.inner.left(charge, now);
    }

    fn unsent(&self, charge: Charge) {
        self.inner.unsent(charge);
    }

    fn withdraw(&self, bill: &Bill) {
        self.inner.withdraw(bill);
    }

    fn venue_counts(&self, family: FamilyId, used: &Used, now: Monotonic) -> u64 {
        self.inner.venue_counts(family, used, now)
    }

    fn fill(&self, family: FamilyId, now: Monotonic) -> Vec<Fill> {
        self.inner.fill(family, now)
    }
}

/// What left and when, for a check of every interval.
#[derive(Debug, Default, Clone)]
pub struct Departures(Arc<Mutex<Vec<(Monotonic, FamilyId, u32)>>>);

impl Departures {
    pub fn note(&self, at: Monotonic, family: FamilyId, cost: u32) {
        self.0.lock().unwrap().push((at, family, cost));
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Every closed interval of every window's length that begins with a departure is within the limit.
    pub fn check(&self, limits: &Limits) {
        let all = self.0.lock().unwrap();
        for (at, spec) in limits.windows().iter().enumerate() {
            let here: Vec<_> =
                all.iter().filter(|(_, family, _)| limits.path(*family).contains(&at)).collect();
            for (first, (start, _, _)) in here.iter().enumerate() {
                let within =
                    here[first..].iter().take_while(|(when, _, _)| when.since(*start) <= spec.length);
                let sum: u32 = within.map(|(_, _, cost)| cost).sum();
                assert!(
                    sum <= spec.allowed,
                    "{sum} of {} within {:?} from {start:?} on",
                    spec.allowed,
                    spec.length
                );
            }
        }
    }
}

/// Nobody waits, nothing is under way, every permit came to its end, and the windows empty themselves.
pub async fn assert_nothing_leaked(governor: &Governor) {
    let before = governor.snapshot();
    assert_eq!(before.inflight, 0, "{before:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    for family in governor.snapshot().families {
        assert_eq!(family.waiting, [0; 4], "{family:?}");
        assert_eq!(family.counts.granted, family.counts.ended(), "{family:?}");
        assert!(family.windows.iter().all(|window| window.used == 0), "{family:?}");
    }
}
