use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::spec::Family;

fn at(ms: u64) -> Monotonic {
    Monotonic(Duration::from_millis(ms))
}

fn answer(budget: &MemoryBudget, bill: &Bill, now: Monotonic) -> Answer {
    match budget.charge(bill, now) {
        Reply::Ready(answer) => answer,
        Reply::Later(_) => panic!("memory answers at once"),
    }
}

/// What left, and when, beside what is allowed: the ten-line model.
struct Model {
    limits: Limits,
    left: Vec<(u64, Bill)>,
    held: Vec<(Charge, Bill)>,
}

impl Model {
    /// In every closed interval of the window's length that begins with a departure. A request dearer than the safety
    /// factor leaves may have one to itself.
    fn check(&self, seed: u64) {
        for (at, spec) in self.limits.windows().iter().enumerate() {
            let here: Vec<(u64, u64)> = self
                .left
                .iter()
                .filter(|(_, bill)| self.limits.path(bill.family).contains(&at))
                .map(|(ns, bill)| (*ns, u64::from(bill.cost.min(spec.declared))))
                .collect();
            let length = spec.length.as_nanos() as u64;
            for (first, (start, _)) in here.iter().enumerate() {
                let within: Vec<u64> = here[first..]
                    .iter()
                    .take_while(|(ns, _)| ns - start <= length)
                    .map(|(_, cost)| *cost)
                    .collect();
                let sum: u64 = within.iter().sum();
                assert!(
                    sum <= spec.allowed.into() || within.len() == 1,
                    "seed {seed}: {sum} of {} left within {:?} from {start} ns on",
                    spec.allowed,
                    spec.length
                );
            }
        }
    }

    fn granted(&self) -> Vec<u64> {
        let granted_in = |(at, spec): (usize, &crate::spec::WindowSpec)| {
            let mine = self.held.iter().filter(|(_, bill)| self.limits.path(bill.family).contains(&at));
            mine.map(|(_, bill)| u64::from(bill.cost.min(spec.declared))).sum()
        };
        self.limits.windows().iter().enumerate().map(granted_in).collect()
    }
}

fn random_limits(rng: &mut StdRng, unit: u64) -> Limits {
    let mut windows = |mut family: Family, most: u32| {
        for _ in 0..rng.random_range(0..=2_u32) {
            let length = Duration::from_nanos(unit * rng.random_range(1..=60_u64));
            family = family.limit(rng.random_range(1..=most), length);
        }
        family
    };
    let families = [
        windows(Family::top("all"), 20),
        windows(Family::under("all", "clob"), 12),
        windows(Family::under("clob", "books"), 6),
        windows(Family::under("all", "gamma"), 6),
    ];
    Limits::new(families, if rng.random() { 1.0 } else { 0.95 }).unwrap()
}

/// Clients ask, leave, hold their permits for any time, give them back, and learn of strangers.
fn random_schedule(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    // Departures of one tick share an entry only where the unit is far below it.
    let unit = [1_000_000, 5_000][usize::from(rng.random::<bool>())];
    let limits = random_limits(&mut rng, unit);
    let budget = MemoryBudget::new(limits.clone());
    let mut model = Model { limits: limits.clone(), left: Vec::new(), held: Vec::new() };
    let families: Vec<FamilyId> = limits.families().collect();
    let mut ns = rng.random_range(0..100 * unit);
    for _ in 0..rng.random_range(10..80) {
        let now = Monotonic(Duration::from_nanos(ns));
        match rng.random_range(0..100) {
            0..30 => ns += rng.random_range(0..8) * unit,
            30..36 => ns += rng.random_range(0..3),
            36..75 => {
                let bill = Bill {
                    client: rng.random_range(0..3),
                    family: families[rng.random_range(0..families.len())],
                    lane: Lane::ALL[rng.random_range(0..4)],
                    behind: rng.random_range(0..4),
                    cost: if rng.random_range(0..10) == 0 {
                        rng.random_range(1..25)
                    } else {
                        rng.random_range(1..4)
                    },
                };
                match answer(&budget, &bill, now) {
                    Answer::Now(charge) => model.held.push((charge, bill)),
                    Answer::NotBefore(then) => {
                        assert!(then > now, "seed {seed}: not before now");
                        // To the very moment, now and then, and just before it.
                        if rng.random_range(0..4) == 0 {
                            ns = (then.0.as_nanos() as u64 - rng.random_range(0..2_u64)).max(ns);
                        }
                    }
                }
            }
            75..95 if !model.held.is_empty() => {
                let (charge, bill) = model.held.swap_remove(rng.random_range(0..model.held.len()));
                budget.left(charge, now);
                model.left.push((ns, bill));
            }
            95..98 if !model.held.is_empty() => {
                budget.unsent(model.held.swap_remove(rng.random_range(0..model.held.len())).0);
            }
            98.. => {
                let window = limits.windows().first().map_or(Duration::from_secs(1), |spec| spec.length);
                let used = Used { used: rng.random_range(0..30), limit: 20, allowed: 19, window };
                budget.venue_counts(families[0], &used, now);
            }
            _ => {}
        }
    }
    assert_eq!(budget.granted(), model.granted(), "seed {seed}: a refusal charges nothing");
    for (charge, bill) in std::mem::take(&mut model.held) {
        ns += rng.random_range(0..3) * unit;
        budget.left(charge, Monotonic(Duration::from_nanos(ns)));
        model.left.push((ns, bill));
    }
    model.check(seed);
    assert!(budget.granted().iter().all(|granted| *granted == 0));
    everybody_gets_through(&budget, &families, ns, seed);
}

/// Once the others have given up, whoever comes back when told to is let through.
fn everybody_gets_through(budget: &MemoryBudget, families: &[FamilyId], ns: u64, seed: u64) {
    let mut now = Monotonic(Duration::from_nanos(ns));
    for (client, lane) in (0..3).flat_map(|client| Lane::ALL.map(|lane| (client, lane))) {
        for family in families {
            budget.withdraw(&Bill { client, family: *family, lane, cost: 1, behind: 0 });
        }
    }
    for family in families {
        let bill = Bill { client: 9, family: *family, lane: Lane::Backfill, cost: 1, behind: 0 };
        let mut asked = 0;
        loop {
            asked += 1;
            assert!(asked <= 8, "seed {seed}: still waiting");
            match answer(budget, &bill, now) {
                Answer::Now(charge) => break budget.left(charge, now),
                Answer::NotBefore(then) => now = then,
            }
        }
    }
    assert_eq!(budget.tickets_of(9), 0, "seed {seed}");
}

#[test]
fn in_every_interval_of_every_window_at_most_the_limit_leaves() {
    let is_long = std::env::var_os("CATCHMENT_LONG").is_some();
    let schedules = if is_long { 1_000_000 } else { 20_000 };
    for seed in 0..schedules {
        random_schedule(seed);
    }
}

fn polymarket() -> Limits {
    let ten = Duration::from_secs(10);
    let families = [
        Family::top("all").limit(15, ten),
        Family::under("all", "clob").limit(9, ten),
        Family::under("clob", "books").limit(5, ten),
    ];
    Limits::new(families, 1.0).unwrap()
}

#[test]
fn a_refusal_by_one_window_charges_none() {
    let limits = polymarket();
    let budget = MemoryBudget::new(limits.clone());
    let bill = |name, cost| Bill {
        client: 1,
        family: limits.family(name).unwrap(),
        lane: Lane::Live,
        cost,
        behind: 0,
    };
    let now = |name, cost| matches!(answer(&budget, &bill(name, cost), at(0)), Answer::Now(_));
    assert!(now("books", 5));
    assert!(!now("books", 1));
    assert_eq!(budget.granted(), [5, 5, 5]);
    assert!(now("clob", 4), "books are full, clob is not");
    assert!(!now("clob", 1));
    assert_eq!(budget.granted(), [9, 9, 5]);
    assert!(now("all", 6));
    assert!(!now("all", 1));
    assert_eq!(budget.granted(), [15, 9, 5]);
}

#[test]
fn whoever_was_told_to_wait_is_not_overtaken() {
    let limits = Limits::new([Family::top("all").limit(1, Duration::from_secs(1))], 1.0).unwrap();
    let budget = MemoryBudget::new(limits.clone());
    let family = limits.family("all").unwrap();
    let ask = |client, ms| {
        let granted = answer(&budget, &Bill { client, family, lane: Lane::Live, cost: 1, behind: 0 }, at(ms));
        match granted {
            Answer::Now(charge) => {
                budget.left(charge, at(ms));
                true
            }
            Answer::NotBefore(_) => false,
        }
    };
    assert!(ask(1, 0));
    assert!(!ask(2, 10));
    assert!(!ask(1, 20));
    assert!(!ask(1, 1_001), "client 2 was told first");
    assert!(ask(2, 1_002));
    assert!(!ask(1, 1_101));
    assert!(!ask(2, 2_003), "now it is the other's turn");
    assert!(ask(1, 2_004));
    assert!(!ask(1, 2_005));
    assert!(ask(1, 4_000), "client 2 has not come back and lost its turn");
}

#[test]
fn a_family_that_waits_for_its_own_window_keeps_nothing_of_the_shared_one() {
    let ten = Duration::from_secs(10);
    let families = [Family::top("all").limit(3, ten), Family::under("all", "books").limit(1, ten)];
    let limits = Limits::new(families, 1.0).unwrap();
    let budget = MemoryBudget::new(limits.clone());
    let now = |name| {
        let bill =
            Bill { client: 1, family: limits.family(name).unwrap(), lane: Lane::Live, cost: 1, behind: 0 };
        matches!(answer(&budget, &bill, at(0)), Answer::Now(_))
    };
    assert!(now("books"));
    assert!(!now("books"));
    assert!(now("all") && now("all"));
    assert!(!now("all"));
}

#[test]
fn one_who_gives_up_makes_way() {
    let limits = Limits::new([Family::top("all").limit(1, Duration::from_secs(1))], 1.0).unwrap();
    let budget = MemoryBudget::new(limits.clone());
    let bill =
        |client| Bill { client, family: limits.family("all").unwrap(), lane: Lane::Live, cost: 1, behind: 0 };
    let Answer::Now(charge) = answer(&budget, &bill(1), at(0)) else { panic!("it is empty") };
    budget.left(charge, at(0));
    assert!(matches!(answer(&budget, &bill(2), at(0)), Answer::NotBefore(_)));
    assert!(matches!(answer(&budget, &bill(3), at(0)), Answer::NotBefore(_)));
    budget.withdraw(&bill(2));
    assert!(matches!(answer(&budget, &bill(3), at(1_001)), Answer::Now(_)));
}

#[test]
fn nothing_is_lost_when_many_threads_leave_while_others_ask() {
    const EACH: u64 = 20_000;
    let limits = Limits::new([Family::top("all").limit(u32::MAX, Duration::from_secs(3_600))], 1.0).unwrap();
    let budget = MemoryBudget::new(limits.clone());
    let family = limits.family("all").unwrap();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let budget = &budget;
            scope.spawn(move || {
                let bill = Bill { client, family, lane: Lane::Live, cost: 1, behind: 0 };
                for ms in 0..EACH {
                    let Answer::Now(charge) = answer(budget, &bill, at(ms)) else { panic!("there is room") };
                    match ms % 7 {
                        0 => budget.unsent(charge),
                        _ => budget.left(charge, at(ms)),
                    }
                }
            });
        }
    });
    let unsent = EACH.div_ceil(7);
    assert_eq!(budget.fill(family, at(EACH))[0].used, 4 * (EACH - unsent));
    assert_eq!(budget.granted(), [0]);
}
