//! Which markets there are: at the start, and as time goes on. Driven by the questions asked, so that nothing runs
//! while nobody asks.
//!
//! Markets are numbered. `0..over` have ended, the rest are open; births add at the end, deaths take the oldest. What a
//! market is like follows from the seed and its number alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use crate::book::{Book, Grid, Move, Pace, Shape, Side, Walk};
use crate::config::UniverseConfig;
use crate::dice::Dice;

/// Markets of one event.
pub(crate) const EVENT_SIZE: u64 = 4;
/// How long a market that nothing ends is meant to run.
const LIFE_MS: i64 = 30 * 86_400_000;
/// At most so many births and deaths are made up for at once.
const CATCH_UP_MAX: usize = 100_000;

/// What a venue calls a market. Its keys are what it can be asked for by.
pub(crate) trait Names: Send + Sync + 'static {
    /// Makes the names of the market with this number.
    fn make(seed: u64, number: u64) -> Self;
    /// The position of a key is its slot: which of the market's books is meant.
    fn keys(&self) -> Vec<&str>;
}

/// One market.
#[derive(Debug)]
pub(crate) struct Market<N> {
    pub(crate) number: u64,
    pub(crate) names: N,
    pub(crate) born_ms: i64,
    grid: RwLock<Arc<Grid>>,
    pub(crate) neg_risk: bool,
    seed: u64,
    shape: Shape,
    pace: Pace,
    walk: Mutex<Walk>,
}

impl<N> Market<N> {
    /// The prices it may have now.
    pub(crate) fn grid(&self) -> Arc<Grid> {
        Arc::clone(&self.grid.read().expect("no holder of this lock can panic"))
    }

    /// When its book moves next, if it ever does.
    pub(crate) fn due_ms(&self) -> Option<i64> {
        self.walk.lock().expect("no holder of this lock can panic").due_ms(&self.pace)
    }

    /// The book's next move happens, whatever the time. It has been looked at before.
    pub(crate) fn step<T>(&self, look: impl FnOnce(&Move<'_>) -> T) -> T {
        let mut walk = self.walk.lock().expect("no holder of this lock can panic");
        walk.step_once(&self.pace, [self.seed, self.number], look)
    }

    /// Its tick becomes a tenth of what it is; what it was and is. `None`: there is no finer one.
    pub(crate) fn refine(&self) -> Option<[u32; 2]> {
        let mut walk = self.walk.lock().expect("no holder of this lock can panic");
        let mut grid = self.grid.write().expect("no holder of this lock can panic");
        let (old, new) = (grid.unit, grid.unit / 10);
        if new == 0 || old % 10 != 0 {
            return None;
        }
        walk.refine(10);
        *grid = Arc::new(Grid::new(new));
        Some([old, new])
    }

    /// Looks at the book as it is now, and when it last moved.
    pub(crate) fn book<T>(&self, now_ms: i64, look: impl FnOnce(&Book, i64) -> T) -> T {
        let mut walk = self.walk.lock().expect("no holder of this lock can panic");
        let (book, at_ms) = walk.at(now_ms, &self.pace, [self.seed, self.number], |dice| self.open(dice));
        look(book, at_ms)
    }

    /// Takes the bytes of the book in `slot`; `write` makes them if it has moved since the last time.
    pub(crate) fn text<T>(
        &self,
        now_ms: i64,
        slot: usize,
        write: impl FnOnce(&Book, i64, &mut Vec<u8>),
        take: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let mut walk = self.walk.lock().expect("no holder of this lock can panic");
        walk.at(now_ms, &self.pace, [self.seed, self.number], |dice| self.open(dice));
        take(walk.text(slot, &self.pace, write))
    }

    fn open(&self, dice: &mut Dice) -> Book {
        Book::open(self.grid().steps, self.shape, dice)
    }

    /// A figure that belongs to this market, such as its volume.
    pub(crate) fn figure(&self, what: u64, below: u64) -> u64 {
        Dice::at(&[self.seed, self.number, what, 0xf16]).below(below)
    }
}

/// The markets as they are now.
#[derive(Debug)]
pub(crate) struct Roll<N> {
    pub(crate) markets: Vec<Arc<Market<N>>>,
    /// So many of them have ended; `ended_ms` says when.
    pub(crate) over: usize,
    pub(crate) ended_ms: Vec<i64>,
    by_key: HashMap<Box<str>, (u32, u8)>,
    births: Beat,
    deaths: Beat,
}

impl<N> Roll<N> {
    pub(crate) fn open(&self) -> &[Arc<Market<N>>] {
        &self.markets[self.over..]
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        number >= self.over as u64
    }

    /// The market and the slot a key stands for, open or not.
    pub(crate) fn find(&self, key: &str) -> Option<(&Arc<Market<N>>, usize)> {
        let (at, slot) = self.by_key.get(key)?;
        Some((&self.markets[*at as usize], usize::from(*slot)))
    }

    /// When the market ends or has ended, as far as is known now.
    pub(crate) fn end_ms(&self, market: &Market<N>) -> i64 {
        let number = market.number as usize;
        if number < self.over {
            return self.ended_ms[number];
        }
        match self.deaths.after(number - self.over) {
            Some(at) => at.max(market.born_ms),
            None => market.born_ms + LIFE_MS,
        }
    }
}

/// Something that happens evenly.
#[derive(Debug, Clone, Copy)]
struct Beat {
    from_ms: i64,
    done: u64,
    per_min: f64,
}

impl Beat {
    fn new(from_ms: i64, per_min: f64) -> Self {
        Self { from_ms, done: 0, per_min }
    }

    /// When the next but `n` is due.
    fn after(&self, n: usize) -> Option<i64> {
        (self.per_min > 0.0)
            .then(|| self.from_ms + ((self.done + n as u64 + 1) as f64 * 60_000.0 / self.per_min) as i64)
    }

    fn due(&self, now_ms: i64) -> Option<i64> {
        self.after(0).filter(|at| *at <= now_ms)
    }
}

/// The markets of one venue.
#[derive(Debug)]
pub(crate) struct Universe<N> {
    seed: u64,
    start_ms: i64,
    config: UniverseConfig,
    levels: usize,
    grids: Vec<Arc<Grid>>,
    texts: usize,
    roll: RwLock<Roll<N>>,
}

/// What is usual at a venue.
pub(crate) struct Usual<'a> {
    pub(crate) levels: usize,
    pub(crate) ticks: &'a [u32],
    /// How many texts a market's book is written as.
    pub(crate) texts: usize,
}

impl<N: Names> Universe<N> {
    pub(crate) fn new(config: &UniverseConfig, seed: u64, start_ms: i64, usual: &Usual<'_>) -> Self {
        let units = config.tick_units(usual.ticks);
        let roll = Roll {
            markets: Vec::new(),
            over: config.closed as usize,
            ended_ms: (1..=i64::from(config.closed)).rev().map(|ago| start_ms - ago * 60_000).collect(),
            by_key: HashMap::new(),
            births: Beat::new(start_ms, config.births_per_min),
            deaths: Beat::new(start_ms, config.deaths_per_min),
        };
        let universe = Self {
            seed,
            start_ms,
            config: config.clone(),
            levels: config.levels.map_or(usual.levels, |levels| levels as usize),
            grids: units.into_iter().map(|unit| Arc::new(Grid::new(unit))).collect(),
            texts: usual.texts,
            roll: RwLock::new(roll),
        };
        let mut roll = universe.roll.write().expect("no holder of this lock can panic");
        let all = u64::from(config.closed) + u64::from(config.markets);
        for number in 0..all {
            // Listed one an hour up to now, the newest last.
            let born_ms = start_ms - (all - number) as i64 * 3_600_000;
            universe.list(&mut roll, born_ms.max(0));
        }
        drop(roll);
        universe
    }

    /// The markets at `now_ms`, after the births and deaths that are due by then.
    pub(crate) fn at(&self, now_ms: i64) -> RwLockReadGuard<'_, Roll<N>> {
        let roll = self.roll.read().expect("no holder of this lock can panic");
        if roll.births.due(now_ms).is_none() && roll.deaths.due(now_ms).is_none() {
            return roll;
        }
        drop(roll);
        self.catch_up(now_ms);
        self.roll.read().expect("no holder of this lock can panic")
    }

    /// The markets as they were last seen, whatever the time.
    pub(crate) fn newest(&self) -> RwLockReadGuard<'_, Roll<N>> {
        self.roll.read().expect("no holder of this lock can panic")
    }

    /// From now on markets appear and end at these rates.
    pub(crate) fn set_rates(&self, now_ms: i64, births_per_min: Option<f64>, deaths_per_min: Option<f64>) {
        self.catch_up(now_ms);
        let mut roll = self.roll.write().expect("no holder of this lock can panic");
        let births = births_per_min.unwrap_or(self.config.births_per_min);
        let deaths = deaths_per_min.unwrap_or(self.config.deaths_per_min);
        if roll.births.per_min != births {
            roll.births = Beat::new(now_ms, births);
        }
        if roll.deaths.per_min != deaths {
            roll.deaths = Beat::new(now_ms, deaths);
        }
    }

    fn catch_up(&self, now_ms: i64) {
        let mut roll = self.roll.write().expect("no holder of this lock can panic");
        for _ in 0..CATCH_UP_MAX {
            let Some(at) = roll.births.due(now_ms) else { break };
            roll.births.done += 1;
            self.list(&mut roll, at);
        }
        for _ in 0..CATCH_UP_MAX {
            let Some(at) = roll.deaths.due(now_ms) else { break };
            roll.deaths.done += 1;
            if roll.over < roll.markets.len() {
                roll.over += 1;
                roll.ended_ms.push(at);
            }
        }
    }

    fn list(&self, roll: &mut Roll<N>, born_ms: i64) {
        let number = roll.markets.len() as u64;
        let mut dice = Dice::at(&[self.seed, number]);
        let names = N::make(self.seed, number);
        for (slot, key) in names.keys().into_iter().enumerate() {
            roll.by_key.insert(key.into(), (number as u32, slot as u8));
        }
        let grid = Arc::clone(&self.grids[dice.below(self.grids.len() as u64) as usize]);
        let empty = dice.hit(self.config.empty_side).then(|| [Side::Bid, Side::Ask][dice.below(2) as usize]);
        let untraded = dice.hit(self.config.untraded);
        let period_us = match self.config.moves_per_s {
            0.0 => 0,
            rate => (1_000_000.0 / rate).max(1.0) as u64,
        };
        let pace = Pace { origin_ms: born_ms.max(self.start_ms), period_us, phase_us: dice.below(period_us) };
        let neg_risk = Dice::at(&[self.seed, number / EVENT_SIZE, 0xe7e]).hit(self.config.neg_risk);
        roll.markets.push(Arc::new(Market {
            number,
            names,
            born_ms,
            grid: RwLock::new(grid),
            neg_risk,
            seed: self.seed,
            shape: Shape { levels: self.levels, empty, untraded },
            pace,
            walk: Mutex::new(Walk::new(self.texts)),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered(String);

    impl Names for Numbered {
        fn make(_seed: u64, number: u64) -> Self {
            Self(format!("m{number}"))
        }

        fn keys(&self) -> Vec<&str> {
            vec![&self.0]
        }
    }

    const USUAL: Usual<'_> = Usual { levels: 5, ticks: &[100], texts: 1 };

    fn universe(births_per_min: f64, deaths_per_min: f64) -> Universe<Numbered> {
        let config =
            UniverseConfig { markets: 3, closed: 1, births_per_min, deaths_per_min, ..Default::default() };
        Universe::new(&config, 1, 1_000_000, &USUAL)
    }

    fn open(universe: &Universe<Numbered>, now_ms: i64) -> String {
        let roll = universe.at(now_ms);
        roll.open().iter().map(|market| market.names.0.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn markets_appear_and_the_oldest_end() {
        let universe = universe(2.0, 1.0);
        assert_eq!(open(&universe, 1_000_000), "m1 m2 m3");
        assert_eq!(open(&universe, 1_029_999), "m1 m2 m3");
        assert_eq!(open(&universe, 1_030_000), "m1 m2 m3 m4");
        assert_eq!(open(&universe, 1_060_000), "m2 m3 m4 m5");
        assert_eq!(universe.at(1_060_000).ended_ms[1], 1_060_000);
    }

    #[test]
    fn an_end_that_was_announced_is_kept() {
        let universe = universe(0.0, 1.0);
        let announced = |now_ms| {
            let roll = universe.at(now_ms);
            roll.end_ms(roll.find("m2").unwrap().0)
        };
        assert_eq!(announced(1_000_000), 1_120_000);
        assert_eq!(announced(1_060_000), 1_120_000);
        assert_eq!(announced(1_500_000), 1_120_000);
    }

    #[test]
    fn rates_can_change_while_it_runs() {
        let universe = universe(0.0, 0.0);
        assert_eq!(open(&universe, 9_000_000), "m1 m2 m3");
        universe.set_rates(9_000_000, Some(60.0), Some(60.0));
        assert_eq!(open(&universe, 9_001_000), "m2 m3 m4");
        universe.set_rates(9_001_500, None, None);
        assert_eq!(open(&universe, 9_900_000), "m2 m3 m4");
    }

    #[test]
    fn a_book_nobody_asked_for_costs_nothing_and_moves_when_asked() {
        let universe = universe(0.0, 0.0);
        let roll = universe.at(1_000_000);
        let market = roll.find("m1").unwrap().0;
        let text = |now_ms| {
            let write =
                |book: &Book, at_ms, out: &mut Vec<u8>| out.extend(format!("{at_ms} {book:?}").bytes());
            market.text(now_ms, 0, write, |bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        let first = text(1_000_000);
        assert_eq!(first, text(1_000_000));
        assert!(first.starts_with("1000000 "));
        let hour_later = text(4_600_000);
        assert_ne!(first, hour_later);
        assert!(hour_later.starts_with("4599") || hour_later.starts_with("4600000"), "{hour_later}");
    }
}
