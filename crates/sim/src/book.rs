//! One matching book for each market, moved by a seeded walk, and the bytes made of it.
//!
//! Prices are whole ticks, sizes hundredths of a share. Both sides are kept in the order in which Polymarket and Kalshi
//! send them: the best level last. The book of the other outcome is the same one mirrored: a bid at `p` is an ask at
//! `1 - p` of the same size; so No bids are Yes asks in the same order, with the price turned round.

use crate::dice::Dice;

/// At most so many moves are made up for at once. A book nobody asked about for an hour starts near its present.
const CATCH_UP_MAX: u64 = 64;

/// The prices a market may have: `steps` ticks to a dollar, each of `unit` ten-thousandths.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) unit: u32,
    pub(crate) steps: u16,
    /// `{"price":"0.47","size":"` for each tick: most of a level's bytes, made once.
    pub(crate) heads: Vec<Snippet<32>>,
}

impl Grid {
    pub(crate) fn new(unit: u32) -> Self {
        let steps = (10_000 / unit) as u16;
        let open = |ticks: u16| format!("{{\"price\":\"{}\",\"size\":\"", plain(u32::from(ticks) * unit));
        let heads = (0..=steps).map(|ticks| Snippet::new(&[open(ticks).as_bytes()])).collect();
        Self { unit, steps, heads }
    }

    /// A price in ten-thousandths of a dollar.
    pub(crate) fn price(&self, ticks: u16) -> u32 {
        u32::from(ticks) * self.unit
    }
}

/// Ten-thousandths as a decimal without trailing zeros: `0.47`, `1`, `0`.
pub(crate) fn plain(units: u32) -> String {
    let text = format!("{}.{:04}", units / 10_000, units % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Ten-thousandths with four decimals: `0.4700`.
pub(crate) fn four(units: u32) -> String {
    format!("{}.{:04}", units / 10_000, units % 10_000)
}

/// A short text in a fixed place. Copying all of its `N` bytes is quicker than copying just as many as it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snippet<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Snippet<N> {
    fn new(parts: &[&[u8]]) -> Self {
        let mut snippet = Self { bytes: [0; N], len: 0 };
        for part in parts {
            let at = usize::from(snippet.len);
            snippet.bytes[at..at + part.len()].copy_from_slice(part);
            snippet.len += part.len() as u8;
        }
        snippet
    }

    /// Writes it at `at`, and up to `N` bytes of nothing behind it; gives the place behind its end.
    pub(crate) fn put(&self, out: &mut [u8], at: usize) -> usize {
        out[at..at + N].copy_from_slice(&self.bytes);
        at + usize::from(self.len)
    }
}

/// What is wanted at one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) price: u16,
    pub(crate) size: u32,
    /// The size and what closes the level (`120.5"},`), for the venue that is asked for the most books.
    pub(crate) tail: Snippet<16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Bid,
    Ask,
}

/// How a book is to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) levels: usize,
    /// This side has no orders, ever.
    pub(crate) empty: Option<Side>,
    pub(crate) untraded: bool,
}

/// What was traded: the whole of the best level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sold {
    pub(crate) price: u16,
    pub(crate) size: u32,
    /// The taker bought.
    pub(crate) buy: bool,
}

/// One move of a book.
pub(crate) struct Move<'a> {
    /// Bids and asks as they were.
    pub(crate) before: [Vec<Level>; 2],
    pub(crate) book: &'a Book,
    pub(crate) at_ms: i64,
    pub(crate) sold: Option<Sold>,
}

/// The Yes book.
#[derive(Debug)]
pub(crate) struct Book {
    /// Ascending: the best is last.
    pub(crate) bids: Vec<Level>,
    /// Descending: the best is last.
    pub(crate) asks: Vec<Level>,
    /// The last trade's price, if there ever was one.
    pub(crate) last: Option<u16>,
    /// This was traded in the last move, and counts as the last trade from the next move on: the venue says it a little
    /// later than it shows it in the book.
    pub(crate) pending: Option<Sold>,
    /// The last trade's taker bought.
    pub(crate) last_buy: bool,
    steps: u16,
    shape: Shape,
}

impl Book {
    pub(crate) fn open(steps: u16, shape: Shape, dice: &mut Dice) -> Self {
        // Away from the rims, so that both sides have room for their levels.
        let mid = (f64::from(steps) * (0.35 + 0.3 * dice.unit())) as u16;
        let mid = mid.clamp(1, steps - 2);
        let mut book = Self {
            bids: Vec::new(),
            asks: Vec::new(),
            last: Some(mid),
            pending: None,
            last_buy: true,
            steps,
            shape,
        };
        if shape.empty != Some(Side::Bid) {
            let prices = ladder(steps, shape.levels, dice).map_while(|away| mid.checked_sub(away));
            book.bids = prices.take_while(|price| *price > 0).map(|price| level(price, size(dice))).collect();
            book.bids.reverse();
        }
        if shape.empty != Some(Side::Ask) {
            let prices = ladder(steps, shape.levels, dice).map(|away| mid + 1 + away);
            book.asks =
                prices.take_while(|price| *price < steps).map(|price| level(price, size(dice))).collect();
            book.asks.reverse();
        }
        if shape.untraded {
            book.last = None;
        }
        book
    }

    /// The best bid and the best ask.
    pub(crate) fn best(&self) -> (Option<Level>, Option<Level>) {
        (self.bids.last().copied(), self.asks.last().copied())
    }

    /// One move: somebody trades, quotes, cancels or changes an order. Gives what was traded.
    pub(crate) fn step(&mut self, dice: &mut Dice) -> Option<Sold> {
        if let Some(sold) = self.pending.take() {
            self.last = Some(sold.price);
        }
        let mut sold = None;
        match (dice.below(10), self.shape.empty) {
            (0, None) => sold = self.trade(Side::Ask, dice),
            (1, None) => sold = self.trade(Side::Bid, dice),
            (2, _) => self.cancel(dice),
            (3, _) => self.quote(dice),
            _ => self.resize(dice),
        }
        debug_assert!(self.is_sound(), "{self:?}");
        sold
    }

    /// The tick is a `times`th of what it was.
    fn refine(&mut self, times: u16) {
        for side in [&mut self.bids, &mut self.asks] {
            for level in side {
                level.price *= times;
            }
        }
        self.steps *= times;
        self.last = self.last.map(|price| price * times);
        self.pending = self.pending.map(|sold| Sold { price: sold.price * times, ..sold });
    }

    /// The best level of `side` is taken; the other side follows by a tick, and the far ends are kept at their length.
    fn trade(&mut self, side: Side, dice: &mut Dice) -> Option<Sold> {
        let (steps, length) = (self.steps, self.shape.levels);
        let (taken, follows) = match side {
            Side::Ask => (&mut self.asks, &mut self.bids),
            Side::Bid => (&mut self.bids, &mut self.asks),
        };
        if taken.len() < 2 {
            self.resize(dice);
            return None;
        }
        let gone = taken.pop().expect("there are two");
        follows.push(level(gone.price, size(dice)));
        if follows.len() > length {
            follows.remove(0);
        }
        let far = taken[0].price;
        let next = if side == Side::Ask { far + 1 } else { far - 1 };
        if taken.len() < length && next > 0 && next < steps {
            taken.insert(0, level(next, size(dice)));
        }
        if !self.shape.untraded {
            self.pending = Some(Sold { price: gone.price, size: gone.size, buy: side == Side::Ask });
            self.last_buy = side == Side::Ask;
        }
        self.pending
    }

    /// A level other than the best goes, if the side is not thin already.
    fn cancel(&mut self, dice: &mut Dice) {
        let length = self.shape.levels;
        let side = self.a_side(dice);
        if side.len() > length.div_ceil(2).max(1) {
            let at = dice.below(side.len() as u64 - 1) as usize;
            side.remove(at);
            return;
        }
        self.resize(dice);
    }

    /// A level is put between two others or at the far end, if there is room.
    fn quote(&mut self, dice: &mut Dice) {
        let (steps, length) = (self.steps, self.shape.levels);
        let side = self.a_side(dice);
        if side.len() >= length || side.len() < 2 {
            return self.resize(dice);
        }
        let descending = side[0].price > side[1].price;
        let gap = side.windows(2).rposition(|pair| pair[0].price.abs_diff(pair[1].price) > 1);
        let (at, price) = match (gap, descending) {
            (Some(at), true) => (at + 1, side[at].price - 1),
            (Some(at), false) => (at + 1, side[at].price + 1),
            (None, true) => (0, side[0].price + 1),
            (None, false) => (0, side[0].price - 1),
        };
        if price > 0 && price < steps {
            side.insert(at, level(price, size(dice)));
        }
    }

    /// A level gets another size; mostly one near the best.
    fn resize(&mut self, dice: &mut Dice) {
        let side = self.a_side(dice);
        let near = side.len().min(5) as u64;
        let from_best = if dice.below(4) > 0 { dice.below(near) } else { dice.below(side.len() as u64) };
        let at = side.len() - 1 - from_best as usize;
        side[at] = level(side[at].price, size(dice));
    }

    /// A side with orders in it.
    fn a_side(&mut self, dice: &mut Dice) -> &mut Vec<Level> {
        match self.shape.empty {
            Some(Side::Bid) => &mut self.asks,
            Some(Side::Ask) => &mut self.bids,
            None if dice.below(2) == 0 => &mut self.bids,
            None => &mut self.asks,
        }
    }

    fn is_sound(&self) -> bool {
        let inside = |level: &Level| level.price > 0 && level.price < self.steps && level.size > 0;
        let (bid, ask) = self.best();
        let apart = bid.zip(ask).is_none_or(|(bid, ask)| bid.price < ask.price);
        apart
            && self.bids.iter().chain(&self.asks).all(inside)
            && self.bids.windows(2).all(|pair| pair[0].price < pair[1].price)
            && self.asks.windows(2).all(|pair| pair[0].price > pair[1].price)
    }
}

/// How far from the middle each of `levels` is; finer grids have holes.
fn ladder(steps: u16, levels: usize, dice: &mut Dice) -> impl Iterator<Item = u16> + use<> {
    let gap = u64::from(steps / 400).clamp(1, 4);
    let mut away = 0;
    let mut draws = Dice::at(&[dice.next()]);
    (0..levels).map(move |_| {
        let at = away;
        away += 1 + draws.below(gap) as u16;
        at
    })
}

fn level(price: u16, size: u32) -> Level {
    // Up to two decimals, without trailing zeros.
    let (tenths, hundredths) = (b'0' + (size / 10 % 10) as u8, b'0' + (size % 10) as u8);
    let decimals: &[u8] = match (tenths, hundredths) {
        (b'0', b'0') => &[],
        (_, b'0') => &[b'.', tenths],
        _ => &[b'.', tenths, hundredths],
    };
    let mut whole = itoa::Buffer::new();
    Level { price, size, tail: Snippet::new(&[whole.format(size / 100).as_bytes(), decimals, b"\"},"]) }
}

/// Mostly odd sizes between one share and a hundred thousand, some round.
fn size(dice: &mut Dice) -> u32 {
    let magnitude = [1, 10, 100, 1_000][dice.below(4) as usize];
    let size = (100 + dice.below(9_900) as u32) * magnitude;
    if dice.below(4) == 0 { size - size % 100 } else { size + dice.below(u64::from(magnitude)) as u32 }
}

/// When a market's book moves: at `origin_ms`, and every `period_us` from a moment of its own on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) origin_ms: i64,
    /// 0: never.
    pub(crate) period_us: u64,
    pub(crate) phase_us: u64,
}

impl Pace {
    fn steps_until(&self, now_ms: i64) -> u64 {
        let passed = u64::try_from(now_ms - self.origin_ms).unwrap_or(0) * 1_000;
        if self.period_us == 0 || passed < self.phase_us {
            return 0;
        }
        (passed - self.phase_us) / self.period_us + 1
    }

    fn at_ms(&self, step: u64) -> i64 {
        match step {
            0 => self.origin_ms,
            // Rounded up: a move is never stamped before it is due, and never after the question that shows it.
            _ => self.origin_ms + ((self.phase_us + (step - 1) * self.period_us).div_ceil(1_000)) as i64,
        }
    }
}

/// A book on its way, and what was last written of it.
#[derive(Debug)]
pub(crate) struct Walk {
    book: Option<Book>,
    step: u64,
    texts: Vec<(u64, Vec<u8>)>,
}

impl Walk {
    /// A walk whose book is opened when it is first asked for.
    pub(crate) fn new(texts: usize) -> Self {
        Self { book: None, step: 0, texts: vec![(u64::MAX, Vec::new()); texts] }
    }

    /// The book as it is at `now_ms`, and when it last moved. `seeds` are the universe's and the market's.
    pub(crate) fn at(
        &mut self,
        now_ms: i64,
        pace: &Pace,
        seeds: [u64; 2],
        open: impl FnOnce(&mut Dice) -> Book,
    ) -> (&Book, i64) {
        let [seed, number] = seeds;
        let due = pace.steps_until(now_ms);
        let book = self.book.get_or_insert_with(|| open(&mut Dice::at(&[seed, number, u64::MAX])));
        let first = (self.step + 1).max((due + 1).saturating_sub(CATCH_UP_MAX));
        for step in first..=due {
            book.step(&mut Dice::at(&[seed, number, step]));
        }
        self.step = self.step.max(due);
        (book, pace.at_ms(self.step))
    }

    /// When the next move is due.
    pub(crate) fn due_ms(&self, pace: &Pace) -> Option<i64> {
        (pace.period_us > 0).then(|| pace.at_ms(self.step + 1))
    }

    /// The next move happens. `at` comes first.
    pub(crate) fn step_once<T>(
        &mut self,
        pace: &Pace,
        seeds: [u64; 2],
        look: impl FnOnce(&Move<'_>) -> T,
    ) -> T {
        let [seed, number] = seeds;
        let book = self.book.as_mut().expect("`at` comes before");
        self.step += 1;
        let before = [book.bids.clone(), book.asks.clone()];
        let sold = book.step(&mut Dice::at(&[seed, number, self.step]));
        look(&Move { before, book, at_ms: pace.at_ms(self.step), sold })
    }

    /// The tick is a `times`th of what it was; what was written before does not hold any more.
    pub(crate) fn refine(&mut self, times: u16) {
        if let Some(book) = &mut self.book {
            book.refine(times);
        }
        for (written, _) in &mut self.texts {
            *written = u64::MAX;
        }
    }

    /// What `slot` looks like on the wire, written anew only if the book has moved since. `at` comes first.
    pub(crate) fn text(
        &mut self,
        slot: usize,
        pace: &Pace,
        write: impl FnOnce(&Book, i64, &mut Vec<u8>),
    ) -> &[u8] {
        let (written, text) = &mut self.texts[slot];
        if *written != self.step {
            text.clear();
            write(self.book.as_ref().expect("`at` comes before"), pace.at_ms(self.step), text);
            *written = self.step;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(steps: u16, levels: usize, empty: Option<Side>) {
        let shape = Shape { levels, empty, untraded: false };
        for seed in 0..20 {
            let mut book = Book::open(steps, shape, &mut Dice::at(&[seed]));
            assert!(book.is_sound(), "{book:?}");
            for step in 0..5_000 {
                book.step(&mut Dice::at(&[seed, step]));
                assert!(book.is_sound(), "step {step}: {book:?}");
            }
            assert!(book.bids.len() <= levels && book.asks.len() <= levels);
            assert_eq!(book.bids.is_empty(), empty == Some(Side::Bid));
            assert_eq!(book.asks.is_empty(), empty == Some(Side::Ask));
        }
    }

    #[test]
    fn a_book_stays_sound_however_long_it_walks() {
        for steps in [10, 100, 200, 400, 1_000, 10_000] {
            check(steps, 39, None);
            check(steps, 1, None);
            check(steps, 10, Some(Side::Bid));
            check(steps, 10, Some(Side::Ask));
        }
    }

    #[test]
    fn prices_are_spelled_as_the_venues_spell_them() {
        let check = |units: u32, short: &str, long: &str| {
            assert_eq!(plain(units), short);
            assert_eq!(four(units), long);
        };
        check(4_700, "0.47", "0.4700");
        check(1_000, "0.1", "0.1000");
        check(25, "0.0025", "0.0025");
        check(10_000, "1", "1.0000");
        check(0, "0", "0.0000");
    }

    #[test]
    fn a_book_moves_when_it_is_due_and_not_before() {
        let pace = Pace { origin_ms: 1_000, period_us: 1_000_000, phase_us: 250_500 };
        let check = |now_ms: i64, steps: u64, at_ms: i64| {
            assert_eq!((pace.steps_until(now_ms), pace.at_ms(steps)), (steps, at_ms), "at {now_ms}");
        };
        check(1_000, 0, 1_000);
        check(1_250, 0, 1_000);
        check(1_251, 1, 1_251);
        check(2_250, 1, 1_251);
        check(2_251, 2, 2_251);
        check(500, 0, 1_000);
    }
}
