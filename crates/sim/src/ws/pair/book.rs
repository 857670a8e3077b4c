//! How a pair's book moves, and what of a move is seen by those who see only some levels.

use super::{CHANGES_MAX, Change, Level, Pair, size};
use crate::dice::Dice;

impl Pair {
    pub(super) fn move_book(&mut self, k: u64, at_us: i64) {
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
