//! Who has not been read for too long, told as gaps of channel `orderbook`.
//!
//! An instrument is silent when its book has not come for longer than three intervals, and at least five seconds,
//! *because something went wrong*: a request failed, its book was missing, the venue was held. One that merely waits its
//! turn at a slow venue is not; lateness is counted, and the spacing shows it.
//!
//! A gap is told in pieces that adjoin: the first within a few seconds of being noticed, another every minute while it lasts,
//! the last when the instrument is back, leaves, or the poller stops. A reader takes them together; if the process dies
//! in between, what is known of the gap is there up to a minute.
//!
//! When half of the instruments or more are silent, one gap for all of them (symbol `*`) is told instead of one each. It
//! ends when nearly all are back; the few that are not get their own.

use std::time::Duration;

use catchment_model::{Cause, Gap, Monotonic, UnixMs, UnixNs};

use super::roster::{Entry, Roster};
use super::schedule::Schedule;

/// A piece is told again after this.
const PIECE: Duration = Duration::from_secs(60);

/// Once half are back, the others have this long, which is longer than a batch's back-off.
const EASING: Duration = Duration::from_secs(20);

/// Watches for silence.
#[derive(Debug)]
pub(crate) struct Silence {
    after: Duration,
    /// For a single one: a little later, so that a venue that falls silent has done so in whole by then.
    one_after: Duration,
    whole: Option<Whole>,
}

/// A silence of the whole venue.
#[derive(Debug)]
struct Whole {
    told_to: UnixMs,
    told_at: Monotonic,
    cause: Cause,
    /// Since when less than half are silent.
    easing_since: Option<Monotonic>,
}

/// A gap to be told; without a symbol, of all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) symbol: Option<String>,
    pub(crate) gap: Gap,
}

impl Silence {
    pub(crate) fn new(interval: Duration) -> Self {
        let after = (3 * interval).max(Duration::from_secs(5));
        Self { after, one_after: after + interval + Duration::from_secs(1), whole: None }
    }

    /// To be called every second. Gives back what is to be told.
    pub(crate) fn look(
        &mut self,
        roster: &mut Roster,
        schedule: &Schedule,
        now: Monotonic,
        wall: UnixNs,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        let wall = wall.ms();
        let silent = roster.iter().filter(|entry| self.is_silent(entry, schedule, now)).count();
        let all = roster.len();
        match &mut self.whole {
            None if silent > 1 && 2 * silent >= all => {
                let whole = self.begin(roster, schedule, now, wall, &mut told);
                self.whole = Some(whole);
                return told;
            }
            None => {}
            Some(whole) => {
                let is_easing = 2 * silent < all || all == 0;
                let since = *whole.easing_since.get_or_insert(now);
                if !is_easing {
                    whole.easing_since = None;
                }
                let is_over = 20 * silent <= all || (is_easing && now.since(since) >= EASING);
                if is_over || now.since(whole.told_at) >= PIECE {
                    told.push(piece(None, whole.told_to, wall, whole.cause));
                    (whole.told_to, whole.told_at) = (wall, now);
                }
                if !is_over {
                    return told;
                }
                self.whole = None;
            }
        }
        let after = self.one_after;
        for entry in roster.iter_mut() {
            let is_overdue = now.since(entry.read_at) > after;
            let cause = is_overdue.then(|| trouble(entry, schedule)).flatten();
            tell_one(entry, cause, wall, &mut told);
        }
        told
    }

    /// Ends every gap that is open.
    pub(crate) fn end(&mut self, roster: &mut Roster, wall: UnixNs) -> Vec<Told> {
        let whole = self.whole.take().map(|whole| piece(None, whole.told_to, wall.ms(), whole.cause));
        let ones = roster.iter_mut().filter_map(|entry| Self::left(entry, wall));
        whole.into_iter().chain(ones).collect()
    }

    /// An instrument is polled no more: its gap, if it has one, ends here.
    pub(crate) fn left(entry: &mut Entry, wall: UnixNs) -> Option<Told> {
        let told_to = entry.gap_told_to.take()?;
        Some(piece(Some(entry.what.symbol.clone()), told_to, wall.ms(), entry.gap_cause))
    }

    fn is_silent(&self, entry: &Entry, schedule: &Schedule, now: Monotonic) -> bool {
        now.since(entry.read_at) > self.after && trouble(entry, schedule).is_some()
    }

    fn begin(
        &self,
        roster: &Roster,
        schedule: &Schedule,
        now: Monotonic,
        wall: UnixMs,
        told: &mut Vec<Told>,
    ) -> Whole {
        let is_new = |entry: &&Entry| entry.gap_told_to.is_none() && self.is_silent(entry, schedule, now);
        let from = roster.iter().filter(is_new).map(|entry| entry.read_at_ms).min().unwrap_or(wall);
        let cause = roster.iter().filter(is_new).find_map(|entry| trouble(entry, schedule));
        let cause = cause.unwrap_or(Cause::Failure);
        told.push(piece(None, from, wall, cause));
        Whole { told_to: wall, told_at: now, cause, easing_since: None }
    }
}

fn tell_one(entry: &mut Entry, silent: Option<Cause>, wall: UnixMs, told: &mut Vec<Told>) {
    let symbol = || Some(entry.what.symbol.clone());
    match (silent, entry.gap_told_to) {
        (None, None) => {}
        (Some(cause), None) => {
            told.push(piece(symbol(), entry.read_at_ms, wall, cause));
            (entry.gap_told_to, entry.gap_cause) = (Some(wall), cause);
        }
        (Some(cause), Some(told_to)) => {
            if wall.get() - told_to.get() >= PIECE.as_millis() as i64 {
                told.push(piece(symbol(), told_to, wall, cause));
                entry.gap_told_to = Some(wall);
            }
        }
        (None, Some(told_to)) => {
            told.push(piece(symbol(), told_to, entry.read_at_ms, entry.gap_cause));
            entry.gap_told_to = None;
        }
    }
}

/// Why the instrument's last poll brought nothing, if that is so.
fn trouble(entry: &Entry, schedule: &Schedule) -> Option<Cause> {
    entry.trouble.or_else(|| schedule.of_ref(entry.place)?.trouble)
}

/// The calendar may step back; a gap does not.
fn piece(symbol: Option<String>, from: UnixMs, to: UnixMs, cause: Cause) -> Told {
    Told { symbol, gap: Gap::new("orderbook", from, to.max(from), cause) }
}
