//! A traded pair: its book, moved by a seeded walk, its trades and its numbers.
//!
//! Prices are whole ticks of `10^-price_scale`, sizes whole hundred-millionths. Event `k` of a kind (book, trade, ticker)
//! has its time from the seed, the pair and `k` alone. A pair nobody looked at for long makes up only for the last few
//! moves; its numbers count all of them.

mod book;

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
}

/// Between a thousandth and a thousand; some with few decimals, most with all eight.
fn size(dice: &mut Dice) -> u64 {
    let magnitude = [100, 10_000, 1_000_000, 10_000_000][dice.below(4) as usize];
    let size = (1_000 + dice.below(9_000)) * magnitude;
    if dice.below(4) == 0 { size } else { size + dice.below(magnitude) }
}

#[cfg(test)]
mod tests;
