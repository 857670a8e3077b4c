//! Candles of the past, for whoever asks over REST: any minute of any pair since it was listed, from the seed alone.
//!
//! Nothing is kept. A candle that is not over has a part of the volume it will have, so that whoever takes it for a final
//! one is found out. Where the venue was out ([`CandlesConfig::outages`]) it has no candles, and never will.

use catchment_model::{Timeframe, UnixMs};
use serde::{Deserialize, Serialize};

use super::pair::Pair;
use crate::config::SimError;
use crate::dice::Dice;

/// The candles of an exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CandlesConfig {
    /// When its pairs were listed; there is nothing before.
    pub since_ms: i64,
    /// Stretches, from and to, of which the venue has no candles.
    pub outages: Vec<(i64, i64)>,
    /// Share of candles without a trade. Most venues send flat ones; Coinbase leaves them out.
    pub untraded: f64,
}

impl Default for CandlesConfig {
    /// Since 2020.
    fn default() -> Self {
        Self { since_ms: 1_577_836_800_000, outages: Vec::new(), untraded: 0.0 }
    }
}

impl CandlesConfig {
    pub(crate) fn check(&self, venue: &str) -> Result<(), SimError> {
        let at = |key: &str, why: &str| Err(SimError::config(format!("{venue}.candles.{key}"), why));
        if !(0..=253_402_300_799_999).contains(&self.since_ms) {
            return at("since_ms", "is a time from 1970 on");
        }
        if self.outages.iter().any(|(from, to)| from >= to) {
            return at("outages", "each have a beginning and a later end");
        }
        if !(0.0..=1.0).contains(&self.untraded) {
            return at("untraded", "is a share from 0 to 1");
        }
        Ok(())
    }
}

/// A candle. Prices in ticks of the pair, volume in hundred-millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) open_ms: i64,
    pub(crate) open: i64,
    pub(crate) high: i64,
    pub(crate) low: i64,
    pub(crate) close: i64,
    pub(crate) volume: u64,
    pub(crate) trades: u64,
    /// When the next one opens.
    pub(crate) next_ms: i64,
    pub(crate) closed: bool,
}

impl Row {
    /// What was traded, in the quote currency.
    pub(crate) fn quote_volume(&self, pair: &Pair) -> u64 {
        (u128::from(self.volume) * self.close as u128 / 10u128.pow(u32::from(pair.price_scale))) as u64
    }
}

/// Where candles come from.
#[derive(Debug, Clone)]
pub(crate) struct History {
    seed: u64,
    config: CandlesConfig,
}

impl History {
    pub(crate) fn new(seed: u64, config: &CandlesConfig) -> Self {
        Self { seed, config: config.clone() }
    }

    /// The first so many candles that open from then on, and before `to_ms`; the one that is not over included.
    pub(crate) fn forward(
        &self,
        pair: &Pair,
        timeframe: Timeframe,
        (from_ms, to_ms): (i64, i64),
        now_ms: i64,
        most: usize,
    ) -> Vec<Row> {
        let listed = open_of(timeframe, self.config.since_ms);
        let first = from_ms.max(listed);
        let mut open = open_of(timeframe, first);
        if open < first {
            open = next(timeframe, open);
        }
        let mut rows = Vec::new();
        while open < to_ms && open <= now_ms && rows.len() < most {
            rows.extend(self.row(pair, timeframe, open, now_ms));
            open = next(timeframe, open);
        }
        rows
    }

    /// The last so many candles that open before then, oldest first.
    pub(crate) fn backward(
        &self,
        pair: &Pair,
        timeframe: Timeframe,
        (from_ms, to_ms): (i64, i64),
        now_ms: i64,
        most: usize,
    ) -> Vec<Row> {
        let first = from_ms.max(open_of(timeframe, self.config.since_ms));
        let mut open = open_of(timeframe, now_ms.min(to_ms - 1));
        let mut rows = Vec::new();
        while open >= first && rows.len() < most {
            rows.extend(self.row(pair, timeframe, open, now_ms));
            open = open_of(timeframe, open - 1);
        }
        rows.reverse();
        rows
    }

    /// The candle that opens then, if the venue has it.
    fn row(&self, pair: &Pair, timeframe: Timeframe, open_ms: i64, now_ms: i64) -> Option<Row> {
        let next_ms = next(timeframe, open_ms);
        let is_out = |(from, to): &(i64, i64)| *from <= open_ms && next_ms <= *to;
        if self.config.outages.iter().any(is_out) {
            return None;
        }
        let (open, close) = (self.price(pair, open_ms), self.price(pair, next_ms));
        let mut dice = Dice::at(&[self.seed, name(pair), timeframe.ms() as u64, open_ms as u64, 0xca4d]);
        let closed = next_ms <= now_ms;
        if dice.hit(self.config.untraded) {
            let flat = Row {
                open_ms,
                open,
                high: open,
                low: open,
                close: open,
                volume: 0,
                trades: 0,
                next_ms,
                closed,
            };
            return Some(flat);
        }
        let (low, high) = (open.min(close), open.max(close));
        let spread = (open / 1_000).max(1) as u64;
        let (up, down) = (dice.below(spread) as i64, dice.below(spread) as i64);
        let (volume, trades) = (1 + dice.below(90_000_000_000), 1 + dice.below(500));
        let gone = (now_ms - open_ms).clamp(1, timeframe.ms()) as u64;
        let part = |whole: u64| match closed {
            true => whole,
            // Less than all of it, however late it is.
            false => (u128::from(whole) * u128::from(gone) / u128::from(timeframe.ms() as u64 + 1)) as u64,
        };
        let (low, high) = ((low - down).max(1), high + up);
        Some(Row {
            open_ms,
            open,
            high,
            low,
            close,
            volume: part(volume),
            trades: part(trades),
            next_ms,
            closed,
        })
    }

    /// What a pair cost at that moment.
    fn price(&self, pair: &Pair, at_ms: i64) -> i64 {
        let mut dice = Dice::at(&[self.seed, name(pair), at_ms as u64, 0x971c]);
        let base = pair.open.max(100);
        (base - base / 50 + dice.below((base / 25) as u64) as i64).max(1)
    }
}

fn name(pair: &Pair) -> u64 {
    pair.unified.bytes().fold(0, |hash, byte| hash * 31 + u64::from(byte))
}

fn time(ms: i64) -> UnixMs {
    UnixMs::new(ms.max(0)).unwrap_or_else(|_| UnixMs::new(0).expect("zero is a time"))
}

fn open_of(timeframe: Timeframe, ms: i64) -> i64 {
    // Before the first of all there is nothing; so that whoever goes back gets there.
    if ms < 0 { -1 } else { timeframe.open_of(time(ms)).get() }
}

fn next(timeframe: Timeframe, open_ms: i64) -> i64 {
    timeframe.next(time(open_ms)).get().max(open_ms + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::config::PairsConfig;

    const MINUTE: i64 = 60_000;
    const SINCE: i64 = 1_700_000_040_000;

    fn history(outages: &[(i64, i64)]) -> (History, Pair) {
        let config = CandlesConfig { since_ms: SINCE, outages: outages.to_vec(), untraded: 0.0 };
        let pair = Pair::all(&PairsConfig::default(), 1, SINCE * 1_000).swap_remove(0);
        (History::new(7, &config), pair)
    }

    #[test]
    fn a_candle_is_the_same_whoever_asks_and_whenever() {
        let (history, pair) = history(&[]);
        let now = SINCE + 500 * MINUTE + 1;
        let all = history.forward(&pair, Timeframe::M1, (0, i64::MAX), now, 10_000);
        assert_eq!((all.len(), all[0].open_ms), (501, SINCE));
        assert!(
            all.iter().all(|row| row.low <= row.open.min(row.close) && row.high >= row.open.max(row.close))
        );
        let newest = history.backward(&pair, Timeframe::M1, (0, i64::MAX), now, 10);
        assert_eq!(newest, all[491..]);
        let later = history.forward(&pair, Timeframe::M1, (0, i64::MAX), now + 99 * MINUTE, 500);
        assert_eq!(later, all[..500]);
    }

    #[test]
    fn one_that_is_not_over_has_not_all_of_its_volume() {
        let (history, pair) = history(&[]);
        let at = |now: i64| history.forward(&pair, Timeframe::M1, (SINCE, SINCE + 1), now, 1)[0];
        let (early, late, over) = (at(SINCE + 1_000), at(SINCE + 59_999), at(SINCE + MINUTE));
        assert!(!early.closed && !late.closed && over.closed);
        assert!(early.volume < late.volume && late.volume < over.volume);
    }

    #[test]
    fn an_outage_has_no_candles_and_longer_ones_go_over_it() {
        let (history, pair) = history(&[(SINCE + 3 * MINUTE, SINCE + 5 * MINUTE)]);
        let now = SINCE + 600 * MINUTE;
        let opens = |timeframe| -> Vec<i64> {
            let rows = history.forward(&pair, timeframe, (SINCE, SINCE + 8 * MINUTE), now, 100);
            rows.iter().map(|row| (row.open_ms - SINCE) / MINUTE).collect()
        };
        assert_eq!(opens(Timeframe::M1), [0, 1, 2, 5, 6, 7]);
        assert_eq!(opens(Timeframe::M5).len(), 2);
    }
}
