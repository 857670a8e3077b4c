//! No second with more than the capacity *at the venue*, whatever happens on the way.
//!
//! The governor counts departures. A request that is held up (by the network, by a busy machine) arrives later and may then
//! share a second with requests that left a second after it. When it arrived is not known, but it arrived before its
//! answer, and the way there and back takes some time at least: the quickest trip ever seen. So
//!
//! ```text
//! arrival of i  ≤  answer to i − way back           answer to i − the quickest trip
//! arrival of k  ≥  departure of k + way there   ⇒   + 1 s  ≤  departure of k: i and k are a second apart
//! ```
//!
//! and a request waits until that holds for the one that left `capacity` requests before it. Where trips are even this
//! costs nothing; a trip that takes longer costs as much as it was longer, once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::{Clock, Monotonic};

const SECOND: Duration = Duration::from_secs(1);
/// What takes longer than the quickest trip and this has arrived, or never will.
const UNDER_WAY_MAX: Duration = Duration::from_millis(500);

/// The last requests, as many as may leave in a second.
pub(super) struct Landings {
    capacity: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    last: VecDeque<Trip>,
    departures: u64,
    quickest: Option<Duration>,
}

struct Trip {
    number: u64,
    left: Monotonic,
    answered: Option<Monotonic>,
}

impl State {
    /// When the trip had surely arrived, but for the way back.
    fn landed(&self, trip: &Trip) -> Monotonic {
        let quickest = self.quickest.unwrap_or_default();
        let latest = Monotonic(trip.left.0 + UNDER_WAY_MAX);
        let answered = trip.answered.map_or(latest, |answered| Monotonic(answered.0 - quickest));
        answered.min(latest)
    }
}

/// A request on its way. Dropped, it has arrived or never will.
pub(super) struct UnderWay<'a> {
    landings: &'a Landings,
    number: u64,
}

impl Landings {
    pub(super) fn new(capacity: u32, clock: Arc<dyn Clock>) -> Self {
        Self { capacity: capacity.max(1) as usize, clock, state: Mutex::default() }
    }

    /// Waits until one more may leave; it leaves now.
    pub(super) async fn depart(&self) -> UnderWay<'_> {
        loop {
            match self.try_depart(self.clock.monotonic()) {
                Ok(under_way) => return under_way,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// Or how long it must wait yet.
    fn try_depart(&self, now: Monotonic) -> Result<UnderWay<'_>, Duration> {
        let mut state = self.lock();
        if state.last.len() >= self.capacity {
            let first = state.last.front().expect("there are as many as may be, which is one at least");
            let may_leave = Monotonic(state.landed(first).0 + SECOND);
            if may_leave > now {
                return Err(may_leave.since(now));
            }
            state.last.pop_front();
        }
        state.departures += 1;
        let number = state.departures;
        state.last.push_back(Trip { number, left: now, answered: None });
        Ok(UnderWay { landings: self, number })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

impl UnderWay<'_> {
    /// It never left.
    pub(super) fn stayed(self) {
        self.landings.lock().last.retain(|trip| trip.number != self.number);
    }

    /// Its answer is here.
    pub(super) fn answered(self) {
        let now = self.landings.clock.monotonic();
        let mut state = self.landings.lock();
        let Some(trip) = state.last.iter().find(|trip| trip.number == self.number) else { return };
        let took = now.since(trip.left);
        state.quickest = Some(state.quickest.map_or(took, |quickest| quickest.min(took)));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let now = self.landings.clock.monotonic();
        let mut state = self.landings.lock();
        if let Some(trip) = state.last.iter_mut().find(|trip| trip.number == self.number) {
            trip.answered = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use catchment_model::{SimClock, UnixNs};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn landings(capacity: u32) -> (Landings, Arc<SimClock>) {
        let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_800_000_000_000).unwrap()));
        (Landings::new(capacity, clock.clone()), clock)
    }

    /// Leaves now and is answered so much later.
    fn trip(landings: &Landings, clock: &SimClock, takes: Duration) {
        let Ok(under_way) = landings.try_depart(clock.monotonic()) else { panic!("it may leave") };
        clock.advance(takes);
        under_way.answered();
    }

    fn wait(landings: &Landings, clock: &SimClock) -> Duration {
        landings.try_depart(clock.monotonic()).err().unwrap_or_default()
    }

    #[test]
    fn even_trips_cost_nothing() {
        let (landings, clock) = landings(2);
        trip(&landings, &clock, MS * 100);
        trip(&landings, &clock, MS * 100);
        // The first left 200 ms ago.
        assert_eq!(wait(&landings, &clock), MS * 800);
        clock.advance(MS * 800);
        trip(&landings, &clock, MS * 100);
    }

    #[test]
    fn one_that_was_held_up_holds_up_the_one_that_would_share_its_second() {
        let (landings, clock) = landings(2);
        trip(&landings, &clock, MS * 10);
        trip(&landings, &clock, MS * 10);
        clock.advance(MS * 980);
        trip(&landings, &clock, MS * 70);
        // The second left 1,060 ms ago and took 10 ms.
        trip(&landings, &clock, MS * 10);
        // The third left 80 ms ago and took 60 ms longer than it might have.
        assert_eq!(wait(&landings, &clock), MS * (1_000 + 60 - 80));
    }

    #[test]
    fn one_without_an_answer_is_not_waited_for_for_ever() {
        let (landings, clock) = landings(1);
        let Ok(under_way) = landings.try_depart(clock.monotonic()) else { panic!("it may leave") };
        assert_eq!(wait(&landings, &clock), SECOND + UNDER_WAY_MAX);
        clock.advance(SECOND * 30);
        drop(under_way);
        trip(&landings, &clock, MS);
    }

    #[test]
    fn one_that_never_left_counts_for_nothing() {
        let (landings, clock) = landings(1);
        let Ok(under_way) = landings.try_depart(clock.monotonic()) else { panic!("it may leave") };
        under_way.stayed();
        trip(&landings, &clock, MS);
        assert_eq!(wait(&landings, &clock), MS * 999);
    }
}
