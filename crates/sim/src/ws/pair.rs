//! A traded pair: its book, moved by a seeded walk, its trades and its numbers.
//!
//! Prices are whole ticks of `10^-price_scale`, sizes whole hundred-millionths. Event `k` of a kind (book, trade, ticker)
//! has its time from the seed, the pair and `k` alone. A pair nobody looked at for long makes up only for the last few
//! moves; its numbers count all of them.

use std::collections::VecDeque;

use super::config::PairsConfig;
use crate::dice::Dice;

/// Sizes have so many decimals.
pub(crate) const SIZE_SCALE: u8 = 8;
/// Trades remembered for those who ask.
pub(crate) const TRADES_MAX: usize = 60;
/// Moves made up for at once.
const CATCH_UP_MAX: u64 = 256;
/// Changes of one update.
const CHANGES_MAX: u64 = 3;

pub(crate) const BOOK_BEAT: u8 = 0;
pub(crate) const TRADE_BEAT: u8 = 1;
pub(crate) const TICKER_BEAT: u8 = 2;

/// Bases with their decimals and about what they cost, in ticks.
const BASES: [(&str, u8, i64); 20] = [
    ("BTC", 2, 6_400_000),
    ("ETH", 2, 320_000),
    ("SOL", 2, 18_000),
    ("XRP", 4, 24_000),
    ("DOGE", 5, 18_500),
    ("ADA", 4, 6_600),
    ("LTC", 2, 9_100),
    ("LINK", 3, 17_300),
    ("AVAX", 2, 28_00),
    ("DOT", 3, 5_100),
    ("UNI", 3, 7_900),
    ("ATOM", 3, 5_400),
    ("NEAR", 3, 1_780),
    ("MINA", 4, 2_940),
    ("ALGO", 4, 2_200),
    ("XLM", 5, 29_000),
    ("BCH", 1, 5_600),
    ("ETC", 2, 2_050),
    ("AAVE", 2, 27_400),
    ("GRT", 5, 9_300),
];
const QUOTES: [&str; 2] = ["USDT", "USD"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) price: i64,
    pub(crate) size: u64,
}

/// A level that has another size now; 0: it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) bid: bool,
    pub(crate) price: i64,
    pub(crate) size: u64,
    /// It was not there before.
    new: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trade {
    pub(crate) id: u64,
    pub(crate) price: i64,
    pub(crate) size: u64,
    /// The taker bought.
    pub(crate) buy: bool,
    pub(crate) at_us: i64,
}

/// A minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candle {
    pub(crate) open_us: i64,
    pub(crate) open: i64,
    pub(crate) high: i64,
    pub(crate) low: i64,
    pub(crate) close: i64,
    pub(crate) volume: u64,
    pub(crate) trades: u64,
    /// The number of its first trade, or of the one before it if it has none.
    pub(crate) first: u64,
    pub(crate) closed: bool,
}

pub(crate) const MINUTE: i64 = 60_000_000;

/// When events of one kind happen.
#[derive(Debug, Clone, Copy)]
struct Beat {
    seed: u64,
    start_us: i64,
    /// 0: never.
    period_us: i64,
}

impl Beat {
    /// When event `k` happens.
    fn at(&self, k: u64) -> i64 {
        let within = Dice::at(&[self.seed, k]).below(self.period_us as u64) as i64;
        self.start_us + k as i64 * self.period_us + within
    }

    /// How many have happened by then.
    fn until(&self, now_us: i64) -> u64 {
        if self.period_us == 0 || now_us < self.start_us {
            return 0;
        }
        let k = ((now_us - self.start_us) / self.period_us) as u64;
        k + u64::from(self.at(k) <= now_us)
    }
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) base: String,
    pub(crate) quote: &'static str,
    /// `BTC/USDT`
    pub(crate) unified: String,
    pub(crate) price_scale: u8,
    /// Ascending: the best is last.
    pub(crate) bids: Vec<Level>,
    /// Descending: the best is last.
    pub(crate) asks: Vec<Level>,
    /// When the book last moved.
    pub(crate) book_us: i64,
    /// The numbers of the updates in the last move.
    pub(crate) update: (u64, u64),
    /// The last number before it.
    pub(crate) update_before: u64,
    /// What the last move changed.
    pub(crate) changes: Vec<Change>,
    /// The newest last.
    pub(crate) trades: VecDeque<Trade>,
    candle: Candle,
    /// The minute that has just ended, until it has been told.
    closing: Option<Candle>,
    told_closing: bool,
    /// When the last ticker was due.
    pub(crate) ticker_us: i64,
    /// Counts trades, orders and updates together.
    pub(crate) sequence: u64,
    /// A day ago.
    pub(crate) open: i64,
    pub(crate) high: i64,
    pub(crate) low: i64,
    /// Traded today, in hundred-millionths.
    pub(crate) volume: u64,
    seed: u64,
    levels: usize,
    beats: [Beat; 3],
    done: [u64; 3],
    pub(crate) armed: [bool; 3],
    first_trade: u64,
}

impl Pair {
    /// The pairs of a venue: the busy ones, then the quiet ones.
    pub(crate) fn all(config: &PairsConfig, seed: u64, start_us: i64) -> Vec<Self> {
        let busy = (0..config.symbols).map(|number| {
            let (at, quote) = ((number / 2) as usize, QUOTES[number as usize % 2]);
            match BASES.get(at) {
                Some((base, scale, ticks)) => ((*base).to_owned(), quote, *scale, *ticks),
                None => (format!("S{at:04}"), quote, 4, 1_000 + (at as i64 * 7_919) % 90_000),
            }
        });
        let quiet = (0..config.quiet).map(|number| (format!("QUIET{number}"), "USDT", 4, 10_000));
        let make = |(number, (base, quote, scale, ticks)): (u64, (String, &'static str, u8, i64))| {
            let unified = format!("{base}/{quote}");
            let own = config.rates.get(&unified);
            let silent = base.starts_with("QUIET");
            let rate = |own: Option<f64>, usual: f64| own.unwrap_or(if silent { 0.0 } else { usual });
            let rates = [
                rate(own.and_then(|own| own.book_per_s), config.book_per_s),
                rate(own.and_then(|own| own.trades_per_s), config.trades_per_s),
                rate(own.and_then(|own| own.ticker_per_s), config.ticker_per_s),
            ];
            let mut dice = Dice::at(&[seed, number, 0xba5e]);
            Self::open(
                (base, quote, unified),
                (scale, ticks),
                config.levels as usize,
                rates,
                &mut dice,
                start_us,
            )
        };
        (0..).zip(busy.chain(quiet)).map(make).collect()
    }

    fn open(
        (base, quote, unified): (String, &'static str, String),
        (price_scale, ticks): (u8, i64),
        levels: usize,
        rates: [f64; 3],
        dice: &mut Dice,
        start_us: i64,
    ) -> Self {
        let mid = ticks + dice.below(ticks as u64 / 20) as i64;
        let side = |dice: &mut Dice, sign: i64| {
            let mut price = mid + i64::from(sign > 0);
            let mut side: Vec<Level> = Vec::with_capacity(levels + 8);
            while side.len() < levels && price > 0 {
                side.push(Level { price, size: size(dice) });
                price += sign * (1 + dice.below(4) as i64);
            }
            side.reverse();
            side
        };
        let (bids, asks) = (side(dice, -1), side(dice, 1));
        let mut beat = |rate: f64| Beat {
            seed: dice.next(),
            start_us,
            period_us: if rate > 0.0 { (1e6 / rate).max(1.0) as i64 } else { 0 },
        };
        let beats = rates.map(&mut beat);
        let update = 1_000_000_000 + dice.below(9_000_000_000);
        let first_trade = 100_000_000 + dice.below(900_000_000);
        let mut pair = Self {
            base,
            quote,
            unified,
            price_scale,
            bids,
            asks,
            book_us: start_us,
            update: (update, update),
            update_before: update - 1,
            changes: Vec::new(),
            trades: VecDeque::with_capacity(TRADES_MAX),
            candle: Candle {
                open_us: i64::MIN,
                open: mid,
                high: mid,
                low: mid,
                close: mid,
                volume: 0,
                trades: 0,
                first: first_trade - 1,
                closed: false,
            },
            closing: None,
            told_closing: false,
            ticker_us: start_us,
            sequence: 10_000_000_000 + dice.below(9_000_000_000),
            open: mid,
            high: mid + mid / 50,
            low: mid - mid / 50,
            volume: 1_000_000_000_000 + dice.below(1_000_000_000_000),
            seed: dice.next(),
            levels,
            beats,
            done: [0; 3],
            armed: [false; 3],
            first_trade,
        };
        pair.begin_minute(start_us);
        // A past, so that those who ask for recent trades get some even of a pair at which nothing happens.
        for ago in (1..=5).rev() {
            let trade = pair.draw_trade(first_trade - ago, start_us - ago as i64 * 60_000_000);
            pair.trades.push_back(trade);
        }
        pair
    }

    pub(crate) fn best(&self) -> (Level, Level) {
        let none = Level { price: 0, size: 0 };
        (self.bids.last().copied().unwrap_or(none), self.asks.last().copied().unwrap_or(none))
    }

    pub(crate) fn last_trade(&self) -> Trade {
        *self.trades.back().expect("there is a past")
    }

    /// Bids or asks, the best first.
    pub(crate) fn side(&self, bid: bool) -> impl Iterator<Item = &Level> {
        if bid { self.bids.iter().rev() } else { self.asks.iter().rev() }
    }

    // ---- time ----

    /// When the next event of this kind is due, if ever.
    pub(crate) fn due(&self, kind: u8) -> Option<i64> {
        let beat = &self.beats[usize::from(kind)];
        (beat.period_us > 0).then(|| beat.at(self.done[usize::from(kind)]))
    }

    /// How many events of this kind there have been.
    pub(crate) fn done(&self, kind: u8) -> u64 {
        self.done[usize::from(kind)]
    }

    /// Makes up for what happened while nobody looked. Kinds that are armed are driven by the hall, not by this.
    pub(crate) fn catch_up(&mut self, now_us: i64) {
        for kind in [BOOK_BEAT, TRADE_BEAT, TICKER_BEAT] {
            let at = usize::from(kind);
            if self.armed[at] {
                continue;
            }
            let (due, done) = (self.beats[at].until(now_us), self.done[at]);
            let skipped = (due - done.min(due)).saturating_sub(CATCH_UP_MAX);
            if skipped > 0 {
                self.done[at] += skipped;
                self.sequence += skipped;
                if kind == BOOK_BEAT {
                    self.update = (self.update.1 + skipped, self.update.1 + skipped);
                }
            }
            while self.done[at] < due {
                self.step(kind);
            }
        }
    }

    /// The next event of this kind happens. Gives its time.
    pub(crate) fn step(&mut self, kind: u8) -> i64 {
        let at = usize::from(kind);
        let k = self.done[at];
        let at_us = self.beats[at].at(k);
        self.done[at] += 1;
        match kind {
            BOOK_BEAT => self.move_book(k, at_us),
            TRADE_BEAT => {
                let trade = self.draw_trade(self.first_trade + k, at_us);
                self.sequence += 1;
                self.volume += trade.size;
                self.high = self.high.max(trade.price);
                self.low = self.low.min(trade.price);
                if self.trades.len() == TRADES_MAX {
                    self.trades.pop_front();
                }
                self.trades.push_back(trade);
                self.begin_minute(at_us);
                let candle = &mut self.candle;
                if candle.trades == 0 {
                    candle.first = trade.id;
                }
                candle.high = candle.high.max(trade.price);
                candle.low = candle.low.min(trade.price);
                candle.close = trade.price;
                candle.volume += trade.size;
                candle.trades += 1;
            }
            _ => {
                if std::mem::take(&mut self.told_closing) {
                    self.closing = None;
                }
                self.begin_minute(at_us);
                self.told_closing = self.closing.is_some();
                self.ticker_us = at_us;
            }
        }
        at_us
    }

    /// The minute to be told of: one that has just ended, else the present one.
    pub(crate) fn candle(&self) -> Candle {
        self.closing.unwrap_or(self.candle)
    }

    fn begin_minute(&mut self, at_us: i64) {
        let open_us = at_us - at_us.rem_euclid(MINUTE);
        if self.candle.open_us >= open_us {
            return;
        }
        if self.candle.open_us > i64::MIN {
            self.closing = Some(Candle { closed: true, ..self.candle });
        }
        let last = self.candle.close;
        let first = self.candle.first + self.candle.trades.max(1) - 1;
        self.candle = Candle {
            open_us,
            open: last,
            high: last,
            low: last,
            close: last,
            volume: 0,
            trades: 0,
            first,
            closed: false,
        };
    }

    fn draw_trade(&self, id: u64, at_us: i64) -> Trade {
        let mut dice = Dice::at(&[self.seed, id, 0x7ade]);
        let buy = dice.below(2) == 0;
        let (bid, ask) = self.best();
        Trade {
            id,
            price: if buy { ask.price } else { bid.price },
            size: size(&mut dice) / 8 + 1,
            buy,
            at_us,
        }
    }

    // ---- the book ----

    fn move_book(&mut self, k: u64, at_us: i64) {
        let mut dice = Dice::at(&[self.seed, k, 0xb00c]);
        self.changes.clear();
        for _ in 0..=dice.below(CHANGES_MAX) {
            self.change(&mut dice);
        }
        if self.changes.is_empty() {
            self.resize(true, 0, &mut dice);
        }
        self.update_before = self.update.1;
        let first = self.update.1 + 1;
        self.update = (first, self.update.1 + self.changes.len() as u64 + dice.below(3));
        self.sequence += self.changes.len() as u64;
        self.book_us = at_us;
        debug_assert!(self.is_sound());
    }

    fn change(&mut self, dice: &mut Dice) {
        let bid = dice.below(2) == 0;
        let len = if bid { self.bids.len() } else { self.asks.len() };
        match dice.below(8) {
            0 if len > self.levels / 2 + 1 => {
                let place = dice.below(12.min(len as u64)) as usize;
                self.remove(bid, place);
            }
            1 | 2 => self.quote(bid, dice),
            _ => {
                let near = if dice.below(4) > 0 { 10.min(len) } else { len };
                self.resize(bid, dice.below(near as u64) as usize, dice);
            }
        }
    }

    /// A level appears: inside the spread, or in a hole near the best.
    fn quote(&mut self, bid: bool, dice: &mut Dice) {
        let (best_bid, best_ask) = self.best();
        let spread = best_ask.price - best_bid.price;
        let (best, inwards) = if bid { (best_bid.price, 1) } else { (best_ask.price, -1) };
        let price = match spread > 1 && dice.below(2) == 0 {
            true => best + inwards * (1 + dice.below((spread - 1).min(3) as u64) as i64),
            false => best - inwards * (1 + dice.below(30) as i64),
        };
        let full = self.len(bid) >= self.levels + 5;
        if price <= 0 || self.is_touched(bid, price) {
            return;
        }
        let side = self.side_mut(bid);
        match search(side, bid, price) {
            Ok(at) => {
                let place = side.len() - 1 - at;
                self.resize(bid, place, dice);
            }
            Err(at) => {
                let size = size(dice);
                side.insert(at, Level { price, size });
                self.changes.push(Change { bid, price, size, new: true });
                if full {
                    let far = self.len(bid) - 1;
                    self.remove(bid, far);
                }
            }
        }
    }

    fn resize(&mut self, bid: bool, place: usize, dice: &mut Dice) {
        let size = size(dice);
        let side = self.side_mut(bid);
        let Some(at) = side.len().checked_sub(place + 1) else { return };
        let price = side[at].price;
        if self.is_touched(bid, price) {
            return;
        }
        self.side_mut(bid)[at].size = size;
        self.changes.push(Change { bid, price, size, new: false });
    }

    fn remove(&mut self, bid: bool, place: usize) {
        let side = self.side_mut(bid);
        let Some(at) = side.len().checked_sub(place + 1) else { return };
        let price = side[at].price;
        if self.is_touched(bid, price) {
            return;
        }
        self.side_mut(bid).remove(at);
        self.changes.push(Change { bid, price, size: 0, new: false });
    }

    fn side_mut(&mut self, bid: bool) -> &mut Vec<Level> {
        if bid { &mut self.bids } else { &mut self.asks }
    }

    fn len(&self, bid: bool) -> usize {
        if bid { self.bids.len() } else { self.asks.len() }
    }

    /// A price changes only once in a move, so that it does not matter in which order the changes are taken.
    fn is_touched(&self, bid: bool, price: i64) -> bool {
        self.changes.iter().any(|change| change.bid == bid && change.price == price)
    }

    /// What the last move changed for those who see only `depth` levels: also the levels that came into view, and as
    /// gone those that went out of it if the venue says so.
    pub(crate) fn view(&self, depth: usize, tells_fallen: bool, out: &mut Vec<Change>) {
        out.clear();
        for bid in [true, false] {
            let side = if bid { &self.bids } else { &self.asks };
            let own = || self.changes.iter().filter(move |change| change.bid == bid);
            let better = |a: i64, b: i64| if bid { a > b } else { a < b };
            // How many are better than this price now, and how many were before the move.
            let now = |price: i64| match search(side, bid, price) {
                Ok(at) => side.len() - 1 - at,
                Err(at) => side.len() - at,
            };
            let before = |price: i64| {
                let closer = |change: &&Change| better(change.price, price);
                let new = own().filter(closer).filter(|change| change.new).count();
                let gone = own().filter(closer).filter(|change| change.size == 0).count();
                now(price) + gone - new
            };
            for change in own() {
                let (was, is) = (
                    !change.new && before(change.price) < depth,
                    change.size > 0 && now(change.price) < depth,
                );
                if is || (was && (tells_fallen || change.size == 0)) {
                    out.push(Change { size: if is { change.size } else { 0 }, ..*change });
                }
            }
            // Those beside the edge that did not change themselves.
            let edge = depth.saturating_sub(self.changes.len())..depth + self.changes.len();
            for level in edge.filter_map(|place| side.len().checked_sub(place + 1)).map(|at| side[at]) {
                if self.is_touched(bid, level.price) {
                    continue;
                }
                let (was, is) = (before(level.price) < depth, now(level.price) < depth);
                if was != is && (is || tells_fallen) {
                    let size = if is { level.size } else { 0 };
                    out.push(Change { bid, price: level.price, size, new: false });
                }
            }
        }
    }

    fn is_sound(&self) -> bool {
        let (bid, ask) = self.best();
        bid.price < ask.price
            && self.bids.windows(2).all(|pair| pair[0].price < pair[1].price)
            && self.asks.windows(2).all(|pair| pair[0].price > pair[1].price)
            && self.bids.iter().chain(&self.asks).all(|level| level.size > 0 && level.price > 0)
    }
}

fn search(side: &[Level], bid: bool, price: i64) -> Result<usize, usize> {
    match bid {
        true => side.binary_search_by(|level| level.price.cmp(&price)),
        false => side.binary_search_by(|level| price.cmp(&level.price)),
    }
}

/// Between a thousandth and a thousand; some with few decimals, most with all eight.
fn size(dice: &mut Dice) -> u64 {
    let magnitude = [100, 10_000, 1_000_000, 10_000_000][dice.below(4) as usize];
    let size = (1_000 + dice.below(9_000)) * magnitude;
    if dice.below(4) == 0 { size } else { size + dice.below(magnitude) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn pairs(config: &PairsConfig) -> Vec<Pair> {
        Pair::all(config, 7, 1_000_000)
    }

    #[test]
    fn a_book_stays_sound_and_a_reader_of_its_changes_has_the_same() {
        for levels in [10, 60, 400] {
            let config = PairsConfig { levels, symbols: 6, ..PairsConfig::default() };
            for mut pair in pairs(&config) {
                let mut copy: BTreeMap<(bool, i64), u64> = BTreeMap::new();
                for bid in [true, false] {
                    copy.extend(pair.side(bid).map(|level| ((bid, level.price), level.size)));
                }
                for _ in 0..5_000 {
                    pair.step(BOOK_BEAT);
                    for change in &pair.changes {
                        match change.size {
                            0 => drop(copy.remove(&(change.bid, change.price)).unwrap()),
                            size => drop(copy.insert((change.bid, change.price), size)),
                        }
                    }
                }
                let sides = [true, false];
                let all: BTreeMap<(bool, i64), u64> = sides
                    .iter()
                    .flat_map(|bid| pair.side(*bid).map(|level| ((*bid, level.price), level.size)))
                    .collect();
                assert_eq!(copy, all);
            }
        }
    }

    #[test]
    fn whoever_sees_only_some_levels_has_those_right_with_and_without_truncating() {
        for (depth, tells_fallen) in [(10, false), (25, false), (10, true), (50, true), (1, true)] {
            let config = PairsConfig { symbols: 4, ..PairsConfig::default() };
            for mut pair in pairs(&config) {
                let top = |pair: &Pair, bid| pair.side(bid).take(depth).copied().collect::<Vec<Level>>();
                let mut copy = [true, false].map(|bid| top(&pair, bid));
                let mut view = Vec::new();
                for step in 0..3_000 {
                    pair.step(BOOK_BEAT);
                    pair.view(depth, tells_fallen, &mut view);
                    for change in &view {
                        let side = &mut copy[usize::from(!change.bid)];
                        side.retain(|level| level.price != change.price);
                        if change.size > 0 {
                            side.push(Level { price: change.price, size: change.size });
                        }
                    }
                    for (side, bid) in copy.iter_mut().zip([true, false]) {
                        side.sort_by_key(|level| if bid { -level.price } else { level.price });
                        if !tells_fallen {
                            side.truncate(depth);
                        }
                        assert_eq!(*side, top(&pair, bid), "depth {depth}, step {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn events_keep_their_times_and_numbers_whether_anybody_looks_or_not() {
        let config = PairsConfig { book_per_s: 3.0, trades_per_s: 0.7, symbols: 1, ..PairsConfig::default() };
        let mut watched = pairs(&config).remove(0);
        let mut times = Vec::new();
        while watched.due(TRADE_BEAT).unwrap() <= 61_000_000 {
            times.push(watched.step(TRADE_BEAT));
        }
        assert!(times.is_sorted() && (38..=46).contains(&times.len()), "{times:?}");
        let mut asleep = pairs(&config).remove(0);
        asleep.catch_up(61_000_000);
        assert_eq!(asleep.last_trade().id, watched.last_trade().id);
        assert_eq!(asleep.last_trade().at_us, watched.last_trade().at_us);
    }

    #[test]
    fn quiet_pairs_never_stir() {
        let config = PairsConfig { symbols: 1, quiet: 2, ..PairsConfig::default() };
        let all = pairs(&config);
        assert_eq!(all[1].unified, "QUIET0/USDT");
        assert!((0..3).all(|kind| all[2].due(kind).is_none()));
        assert!((0..3).all(|kind| all[0].due(kind).is_some()));
    }
}
