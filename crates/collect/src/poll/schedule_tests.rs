use std::collections::BTreeMap;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A schedule whose requests are answered at once, and when each instrument was asked.
struct Rig {
    schedule: Schedule,
    now: Monotonic,
    asked: BTreeMap<Place, Vec<f64>>,
    /// Places of batches that the venue refuses as a whole.
    poison: Vec<Place>,
}

impl Rig {
    fn new(books_max: usize, instruments: Place) -> Self {
        let schedule = Schedule::new(SECOND, books_max, Monotonic::default());
        let mut rig =
            Self { schedule, now: Monotonic::default(), asked: BTreeMap::new(), poison: Vec::new() };
        rig.join(0..instruments);
        rig
    }

    fn join(&mut self, places: impl IntoIterator<Item = Place>) {
        let places: Vec<Place> = places.into_iter().collect();
        self.schedule.seat(&places, self.now);
    }

    /// Lets time pass, looking at every millisecond, as tokio's timer does.
    fn run(&mut self, seconds: f64) {
        let end = Monotonic(self.now.0 + Duration::from_secs_f64(seconds));
        while self.now < end {
            self.look();
            self.now = Monotonic(self.now.0 + Duration::from_millis(1));
        }
    }

    fn look(&mut self) {
        while let Some(slot) = self.schedule.next_slot(self.now) {
            if self.schedule.is_free(slot.batch, self.now) {
                self.schedule.make_ready(slot.batch, slot.due);
            }
        }
        while let Some((id, _)) = self.schedule.start_next(self.now) {
            let members = self.schedule.get(id).unwrap().members.clone();
            let is_refused = members.iter().any(|place| self.poison.contains(place));
            for place in members.iter().filter(|_| !is_refused) {
                self.asked.entry(*place).or_default().push(self.now.0.as_secs_f64());
            }
            self.schedule.ended(id, true);
            match is_refused {
                true => {
                    self.schedule.split(id);
                }
                false => self.schedule.clear_of_suspicion(id),
            }
        }
    }

    fn forget(&mut self) {
        self.asked.values_mut().for_each(|times| *times = times.split_off(times.len().saturating_sub(1)));
    }

    /// The shortest and the longest spacing since then.
    fn spacing(&self) -> (f64, f64) {
        let spacings = self.asked.values().flat_map(|times| times.windows(2).map(|two| two[1] - two[0]));
        spacings.fold((f64::MAX, 0.0), |(low, high), spacing| (low.min(spacing), high.max(spacing)))
    }

    fn assert_steady(&self, what: &str) {
        let (low, high) = self.spacing();
        assert!(low >= 0.9 && high <= 1.1, "{what}: spacings from {low:.3} to {high:.3}");
    }
}

#[test]
fn forty_batches_start_one_every_25_milliseconds_and_nothing_drifts() {
    let mut rig = Rig::new(500, 20_000);
    rig.run(100.0);
    assert_eq!(rig.schedule.len(), 40);
    let mut starts: Vec<f64> = (0..40).map(|batch| rig.asked[&(batch * 500)][7]).collect();
    starts.sort_by(f64::total_cmp);
    for two in starts.windows(2) {
        assert!((two[1] - two[0] - 0.025).abs() < 0.002, "{starts:?}");
    }
    for times in rig.asked.values() {
        assert_eq!(times.len(), 100);
        let drift = times[99] - times[0] - 99.0;
        assert!(drift.abs() < 0.002, "{drift}");
    }
}

#[test]
fn the_very_first_are_asked_at_once() {
    let mut rig = Rig::new(10, 0);
    rig.run(0.3);
    rig.join(0..10);
    rig.run(0.002);
    assert_eq!(rig.asked.len(), 10, "not at the next full second");
}

#[test]
fn instruments_that_come_disturb_nobody() {
    for instruments in [500, 1_000, 5_000] {
        let mut rig = Rig::new(500, instruments);
        rig.run(5.0);
        for more in 1..8 {
            rig.join((0..300).map(|n| 10_000 * more + n));
            rig.run(3.3);
        }
        rig.assert_steady(&format!("{instruments} and more"));
    }
}

#[test]
fn instruments_that_go_disturb_nobody_and_batches_become_fewer() {
    let mut rig = Rig::new(100, 2_000);
    rig.run(5.0);
    for place in (0..2_000).filter(|place| place % 10 != 0) {
        rig.schedule.unseat(place);
    }
    assert_eq!(rig.schedule.len(), 20, "each has ten left");
    for _ in 0..600 {
        rig.schedule.tidy();
        rig.run(1.0);
    }
    assert!(rig.schedule.len() <= 3, "{} batches for 200", rig.schedule.len());
    rig.assert_steady("while batches joined");
    let stayed = rig.asked.values().filter(|times| times.len() >= 604).count();
    assert_eq!(stayed, 200, "nobody was left out");
}

#[test]
fn a_poisonous_instrument_is_found_by_halves_and_the_others_go_on() {
    let mut rig = Rig::new(500, 500);
    rig.run(2.0);
    rig.poison = vec![123];
    rig.forget();
    rig.run(12.0);
    let missed: Vec<_> =
        rig.asked.iter().filter(|(_, times)| times.len() < 4).map(|(place, _)| *place).collect();
    assert_eq!(missed, [123], "nine halvings find it, and most go on after the first");
    assert_eq!(rig.schedule.of(123).unwrap().members, [123]);
    assert_eq!(rig.schedule.of(123).unwrap().kind, Kind::Solo);
    rig.forget();
    rig.run(10.0);
    assert!(rig.spacing().1 < 1.06);
    for _ in 0..100 {
        rig.schedule.tidy();
        rig.run(1.0);
    }
    assert!(rig.schedule.len() <= 4, "the halves have joined again: {}", rig.schedule.len());
    assert_eq!(rig.schedule.of(123).unwrap().members, [123], "and not with the poisonous one");
    let healthy = rig.asked.iter().filter(|(place, _)| **place != 123);
    for (place, times) in healthy {
        assert!(times.windows(2).all(|two| (0.9..=1.1).contains(&(two[1] - two[0]))), "{place}: {times:?}");
    }
}

#[test]
fn a_venue_that_refuses_everything_is_not_asked_ever_more() {
    let mut rig = Rig::new(500, 20_000);
    rig.poison = (0..20_000).collect();
    rig.run(60.0);
    assert!(rig.schedule.len() <= 40 + SUSPECTS_MAX, "{}", rig.schedule.len());
}

#[test]
fn after_a_standstill_nobody_is_asked_twice_and_there_is_no_burst() {
    let mut rig = Rig::new(500, 20_000);
    rig.run(5.0);
    rig.now = Monotonic(rig.now.0 + Duration::from_secs(7));
    rig.forget();
    rig.look();
    let at_once = rig.asked.values().filter(|times| times.len() > 1).count();
    assert!(at_once <= 2 * 500, "{at_once} at once");
    rig.run(1.0);
    assert!(rig.asked.values().all(|times| times.len() <= 3), "at most one owed and one of its own");
    rig.forget();
    rig.run(10.0);
    let low = rig.spacing().0;
    assert!(low >= 0.5, "{low}");
}

#[test]
fn slots_that_passed_unseen_are_counted() {
    let mut schedule = Schedule::new(SECOND, 10, Monotonic::default());
    schedule.seat(&[1], Monotonic::default());
    let at = |ms| Monotonic(Duration::from_millis(ms));
    assert_eq!(schedule.next_slot(at(0)), Some(Slot { batch: 0, due: at(0), missed: 0 }));
    assert_eq!(schedule.next_slot(at(999)), None);
    let slot = schedule.next_slot(at(5_500)).unwrap();
    assert_eq!((slot.due, slot.missed), (at(1_000), 3), "2000, 3000 and 4000 passed");
    assert_eq!(schedule.next_slot(at(5_500)).unwrap().due, at(5_000));
    assert_eq!(schedule.next_slot(at(5_500)), None);
}

#[test]
fn whoever_has_waited_longest_goes_first() {
    let mut schedule = Schedule::new(SECOND, 1, Monotonic::default());
    schedule.seat(&[0, 1, 2, 3], Monotonic::default());
    let at = |ms| Monotonic(Duration::from_millis(ms));
    while let Some(slot) = schedule.next_slot(at(999)) {
        schedule.make_ready(slot.batch, slot.due);
    }
    let (first, since) = schedule.start_next(at(999)).unwrap();
    assert_eq!((first, since), (0, at(0)));
    schedule.ended(first, false);
    let slot = schedule.next_slot(at(1_000)).unwrap();
    assert!(schedule.is_free(slot.batch, at(1_000)), "it never left");
    schedule.make_ready(slot.batch, slot.due);
    let order: Vec<_> = (0..4).map(|n| schedule.start_next(at(2_000 + 100 * n)).unwrap()).collect();
    assert_eq!(order, [(0, at(0)), (1, at(250)), (2, at(500)), (3, at(750))], "it has kept its place");
}

#[test]
fn what_is_forgiven_waits_for_its_own_slot() {
    let mut schedule = Schedule::new(SECOND, 1, Monotonic::default());
    schedule.seat(&[0, 1], Monotonic::default());
    let at = |ms| Monotonic(Duration::from_millis(ms));
    while let Some(slot) = schedule.next_slot(at(600)) {
        schedule.make_ready(slot.batch, slot.due);
    }
    assert_eq!(schedule.forgive(), 2);
    assert_eq!(schedule.start_next(at(700)), None);
    assert_eq!(schedule.wake_at(true), Some(at(1_000)));
}
