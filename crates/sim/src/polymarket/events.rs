//! Gamma's events as a plain roll, for whoever reads all of them: as many as wanted, and each made when it is asked for.
//!
//! The events of `gamma.rs` are made of markets with books; two hundred thousand of those would not fit. When the rule
//! `events` says how many there are, `/events` and `/events/keyset` answer from here instead.
//!
//! What is as at the venue: pages of at most `gamma_page_max`, offsets up to `gamma_offset_max`, `after_cursor` and no other
//! spelling, no `next_cursor` on the last page, `closed` false unless said. Where offsets have no end (as in early 2026),
//! `closed` had no default yet either, and a listing without it has everything.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::text::{Json, iso_us};

/// The roll. Open and closed ones are mixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventRoll {
    /// How many there are.
    pub events: u64,
    /// Every so manyth is open; the others are closed.
    pub open_every: u64,
    /// So many of the open ones close when somebody begins to read the closed ones.
    pub closing: u64,
    /// Bytes of each one's description.
    pub text_bytes: usize,
}

impl Default for EventRoll {
    fn default() -> Self {
        Self { events: 0, open_every: 10, closing: 0, text_bytes: 400 }
    }
}

/// The roll and what has become of it.
#[derive(Debug)]
pub(super) struct Roll {
    rules: EventRoll,
    has_turned: AtomicBool,
}

/// Which ones are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    Open,
    Closed,
}

impl Roll {
    pub(super) fn new(rules: &EventRoll) -> Option<Self> {
        (rules.events > 0).then(|| Self { rules: rules.clone(), has_turned: AtomicBool::new(false) })
    }

    /// Somebody begins to read the closed ones: those that were to close do.
    pub(super) fn turn(&self) {
        self.has_turned.store(true, Ordering::Relaxed);
    }

    /// The numbers of a page, and whether there are more: those after `after`, less the first `skip`.
    pub(super) fn page(&self, which: Which, after: Option<u64>, skip: u64, limit: u64) -> (Vec<u64>, bool) {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let mut rows: Vec<u64> = Vec::new();
        let mut skipped = 0;
        let mut number = match which {
            // Every one counts: no need to look at them.
            Which::All => {
                skipped = skip;
                from.saturating_add(skip)
            }
            _ => from,
        };
        while number < self.rules.events {
            if self.is_of(which, number) {
                if skipped < skip {
                    skipped += 1;
                } else if rows.len() as u64 == limit {
                    return (rows, true);
                } else {
                    rows.push(number);
                }
            }
            number += 1;
        }
        (rows, false)
    }

    fn is_of(&self, which: Which, number: u64) -> bool {
        match which {
            Which::All => true,
            Which::Open => self.is_open(number),
            Which::Closed => !self.is_open(number),
        }
    }

    fn is_open(&self, number: u64) -> bool {
        let every = self.rules.open_every.max(1);
        let is_open = number.is_multiple_of(every);
        let closes = self.has_turned.load(Ordering::Relaxed) && number / every < self.rules.closing;
        is_open && !closes
    }

    /// Writes one. The same number gives the same bytes, but for whether it is closed.
    pub(super) fn push(&self, number: u64, json: &mut Json) {
        let mut dice = Dice::at(&[number, 0xe7e]);
        let text = dice.hex(self.rules.text_bytes);
        let born = iso_us(1_600_000_000_000 + i64::try_from(number).unwrap_or(0) * 60_000);
        json.open('{');
        json.text("id", &number.to_string()).text("slug", &format!("event-{number}"));
        json.text("title", &format!("Event {number} \u{2014} of the roll")).text("description", &text);
        json.text("startDate", &born).raw("volume", 0.1 * (number % 1_000) as f64);
        json.raw("closed", !self.is_open(number)).raw("active", true);
        json.close('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(events: u64, closing: u64) -> Roll {
        Roll::new(&EventRoll { events, open_every: 3, closing, text_bytes: 8 }).unwrap()
    }

    #[test]
    fn a_walk_meets_every_event_once() {
        let roll = roll(100, 0);
        for (which, count) in [(Which::All, 100), (Which::Open, 34), (Which::Closed, 66)] {
            let (mut met, mut after) = (Vec::new(), None);
            loop {
                let (rows, is_more) = roll.page(which, after, 0, 7);
                after = rows.last().copied();
                met.extend(rows);
                if !is_more {
                    break;
                }
            }
            assert_eq!(met.len(), count);
            assert!(met.is_sorted_by(|a, b| a < b));
        }
        assert_eq!(roll.page(Which::Closed, None, 60, 10).0.len(), 6);
        assert_eq!(roll.page(Which::All, None, 95, 10), ((95..100).collect(), false));
    }

    #[test]
    fn some_close_between_the_passes() {
        let roll = roll(30, 2);
        assert_eq!(roll.page(Which::Open, None, 0, 3).0, [0, 3, 6]);
        roll.turn();
        assert_eq!(roll.page(Which::Open, None, 0, 3).0, [6, 9, 12]);
        assert_eq!(roll.page(Which::Closed, None, 0, 4).0, [0, 1, 2, 3]);
    }
}
