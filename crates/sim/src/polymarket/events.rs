//! Gamma's events as a plain roll, for whoever reads all of them: as many as wanted, and each made when it is asked for.
//!
//! The events of `gamma.rs` are made of markets with books; two hundred thousand of those would not fit. When the rule
//! `events` says how many there are, `/events` and `/events/keyset` answer from here instead.
//!
//! What is as at the venue: pages of at most `gamma_page_max`, offsets up to `gamma_offset_max`, `after_cursor` and no other
//! spelling, no `next_cursor` on the last page, `closed` false unless said, `start_date_min` and `start_date_max` (an event that
//! says no start date is in neither), `order=startDate` with those that say none last, as a database has it. Where offsets have
//! no end (as in early 2026), `closed` had no default yet either, and a listing without it has everything.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::text::{Json, Query, iso_us};

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
    /// Seconds from one's start to the next one's. Every fiftieth starts at its day's midnight instead, as many do.
    pub apart_s: u32,
    /// Every so manyth says no start date; 0: all say one.
    pub undated_every: u64,
}

impl Default for EventRoll {
    fn default() -> Self {
        Self { events: 0, open_every: 10, closing: 0, text_bytes: 400, apart_s: 60, undated_every: 0 }
    }
}

/// The roll and what has become of it.
#[derive(Debug)]
pub(super) struct Roll {
    rules: EventRoll,
    has_turned: AtomicBool,
}

/// The first one starts then.
const FIRST_MS: i64 = 1_600_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// Which ones are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    Open,
    Closed,
}

/// When they are to start, both ends included; none: whenever, and those that say no start as well.
pub(super) type Starting = Option<(i64, i64)>;

/// `start_date_min` and `start_date_max`.
pub(super) fn starting(query: Query<'_>) -> Result<Starting, ()> {
    let ms = |name| match query.get(name) {
        Some(text) => text.parse::<jiff::Timestamp>().map(|time| Some(time.as_millisecond())).map_err(|_| ()),
        None => Ok(None),
    };
    Ok(match (ms("start_date_min")?, ms("start_date_max")?) {
        (None, None) => None,
        (min, max) => Some((min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX))),
    })
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
    pub(super) fn page(
        &self,
        (which, starting): (Which, Starting),
        after: Option<u64>,
        skip: u64,
        limit: u64,
    ) -> (Vec<u64>, bool) {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let mut rows: Vec<u64> = Vec::new();
        let mut skipped = 0;
        let mut number = match which {
            // Every one counts: no need to look at them.
            Which::All if starting.is_none() => {
                skipped = skip;
                from.saturating_add(skip)
            }
            _ => from.max(self.first_from(starting)),
        };
        let end = self.end_of(starting);
        while number < end {
            if self.is_of(which, number) && self.starts_within(starting, number) {
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

    /// The same in the order of their starts; those that say none come last, so first when descending.
    pub(super) fn page_by_start(
        &self,
        (which, starting): (Which, Starting),
        descending: bool,
        after: Option<u64>,
        limit: u64,
    ) -> (Vec<u64>, bool) {
        let key = |number: &u64| (self.start_ms(*number).unwrap_or(i64::MAX), *number);
        let compare = |a: &u64, b: &u64| {
            let order = key(a).cmp(&key(b));
            if descending { order.reverse() } else { order }
        };
        let is_here = |number: &u64| {
            self.is_of(which, *number)
                && self.starts_within(starting, *number)
                && after.is_none_or(|after| compare(number, &after).is_gt())
        };
        let mut rows: Vec<u64> = (0..self.rules.events).filter(is_here).collect();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_more = rows.len() > limit;
        if is_more {
            // The page's own are in front then; putting all of them in order would take a while.
            rows.select_nth_unstable_by(limit, compare);
            rows.truncate(limit);
        }
        rows.sort_by(compare);
        (rows, is_more)
    }

    /// When it starts, if it says so.
    fn start_ms(&self, number: u64) -> Option<i64> {
        let every = self.rules.undated_every;
        if every > 0 && number % every == every - 1 {
            return None;
        }
        let ms = FIRST_MS + i64::try_from(number).unwrap_or(0) * i64::from(self.rules.apart_s) * 1_000;
        Some(if number.is_multiple_of(50) { ms - ms.rem_euclid(DAY_MS) } else { ms })
    }

    fn starts_within(&self, starting: Starting, number: u64) -> bool {
        starting.is_none_or(|(min, max)| self.start_ms(number).is_some_and(|ms| (min..=max).contains(&ms)))
    }

    /// None before this one starts so late.
    fn first_from(&self, starting: Starting) -> u64 {
        let apart_ms = i64::from(self.rules.apart_s.max(1)) * 1_000;
        starting.map_or(0, |(min, _)| u64::try_from(min.saturating_sub(FIRST_MS) / apart_ms).unwrap_or(0))
    }

    /// None from this one on starts so early.
    fn end_of(&self, starting: Starting) -> u64 {
        let apart_ms = i64::from(self.rules.apart_s.max(1)) * 1_000;
        let end = starting.map_or(i64::MAX, |(_, max)| {
            max.saturating_add(DAY_MS + apart_ms).saturating_sub(FIRST_MS) / apart_ms
        });
        self.rules.events.min(u64::try_from(end).unwrap_or(0))
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
        json.open('{');
        json.text("id", &number.to_string()).text("slug", &format!("event-{number}"));
        json.text("title", &format!("Event {number} \u{2014} of the roll")).text("description", &text);
        if let Some(start) = self.start_ms(number) {
            json.text("startDate", &iso_us(start));
        }
        json.raw("volume", 0.1 * (number % 1_000) as f64);
        json.raw("closed", !self.is_open(number)).raw("active", true);
        json.close('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(events: u64, closing: u64) -> Roll {
        let rules = EventRoll { events, open_every: 3, closing, text_bytes: 8, ..EventRoll::default() };
        Roll::new(&rules).unwrap()
    }

    fn walk(page: impl Fn(Option<u64>) -> (Vec<u64>, bool)) -> Vec<u64> {
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let (rows, is_more) = page(after);
            after = rows.last().copied();
            met.extend(rows);
            if !is_more {
                return met;
            }
        }
    }

    #[test]
    fn a_walk_meets_every_event_once() {
        let roll = roll(100, 0);
        for (which, count) in [(Which::All, 100), (Which::Open, 34), (Which::Closed, 66)] {
            let met = walk(|after| roll.page((which, None), after, 0, 7));
            assert_eq!(met.len(), count);
            assert!(met.is_sorted_by(|a, b| a < b));
        }
        assert_eq!(roll.page((Which::Closed, None), None, 60, 10).0.len(), 6);
        assert_eq!(roll.page((Which::All, None), None, 95, 10), ((95..100).collect(), false));
    }

    #[test]
    fn some_close_between_the_passes() {
        let roll = roll(30, 2);
        assert_eq!(roll.page((Which::Open, None), None, 0, 3).0, [0, 3, 6]);
        roll.turn();
        assert_eq!(roll.page((Which::Open, None), None, 0, 3).0, [6, 9, 12]);
        assert_eq!(roll.page((Which::Closed, None), None, 0, 4).0, [0, 1, 2, 3]);
    }

    #[test]
    fn those_that_start_within_a_range_are_all_that_do_with_both_its_ends() {
        let rules = EventRoll { events: 3_000, apart_s: 1_000, undated_every: 9, ..EventRoll::default() };
        let roll = Roll::new(&rules).unwrap();
        for (from, days) in [(-3, 1), (0, 1), (0, 4), (5, 1), (30, 9)] {
            let min = FIRST_MS - FIRST_MS.rem_euclid(DAY_MS) + from * DAY_MS;
            let starting = Some((min, min + days * DAY_MS));
            let met = walk(|after| roll.page((Which::All, starting), after, 0, 7));
            let all: Vec<u64> = (0..3_000).filter(|number| roll.starts_within(starting, *number)).collect();
            assert_eq!(met, all, "{from} {days}");
        }
        let midnight = roll.start_ms(50).unwrap();
        assert_eq!(midnight.rem_euclid(DAY_MS), 0);
        assert_eq!(roll.page((Which::All, Some((midnight, midnight))), None, 0, 9).0, [50, 100]);
    }

    #[test]
    fn those_that_say_no_start_are_at_one_end_of_the_order() {
        let rules = EventRoll { events: 100, undated_every: 9, ..EventRoll::default() };
        let roll = Roll::new(&rules).unwrap();
        let down = walk(|after| roll.page_by_start((Which::All, None), true, after, 7));
        assert_eq!(down.len(), 100);
        assert!(down[..11].iter().all(|number| number % 9 == 8), "{down:?}");
        let up = walk(|after| roll.page_by_start((Which::All, None), false, after, 7));
        assert!(up.iter().eq(down.iter().rev()));
    }
}
