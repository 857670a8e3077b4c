//! What may leave by the declared limits. A [`Budget`] is asked with a cost and answers *now* or *not before*.
//!
//! [`MemoryBudget`] serves every governor of one process that uses the same limits. A budget that lives in a store, for
//! several processes, implements the same trait: it answers with a future, and it charges what is granted for the
//! window's length *and* the time a permit stays valid, so that it need not be told when the request leaves.

use std::cmp::Ordering;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::Monotonic;

use crate::departures::{Departures, Holders};
use crate::lanes::{Lane, Lanes, Place};
use crate::limiter::Used;
use crate::spec::{FamilyId, Limits};
use crate::window::{Window, from_ns, ns};

/// Declared limits, shared by everybody who asks the venue from one address.
pub trait Budget: Send + Sync + fmt::Debug {
    /// Takes the cost from every window of the family's path, or from none. A store that cannot be reached says when to
    /// ask again. Dropping the future may leave a charge behind, never the other way round.
    fn charge(&self, bill: &Bill, now: Monotonic) -> Reply<'_>;

    /// What was charged has left.
    fn left(&self, charge: Charge, now: Monotonic);

    /// What was charged surely never leaves.
    fn unsent(&self, charge: Charge);

    /// Whoever was told to wait with this bill does not want it any more.
    fn withdraw(&self, bill: &Bill);

    /// The venue's own count of a window. Gives back what strangers have used of it.
    fn venue_counts(&self, family: FamilyId, used: &Used, now: Monotonic) -> u64;

    /// How full the windows of the family's path are, its own first.
    fn fill(&self, family: FamilyId, now: Monotonic) -> Vec<Fill>;
}

/// Who wants to pay how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bill {
    /// Which of the clients behind this budget; their turns alternate.
    pub client: u64,
    /// In the windows of this family and those above it.
    pub family: FamilyId,
    /// How urgent it is.
    pub lane: Lane,
    /// How much.
    pub cost: u32,
    /// How many more of this client, family and lane stand in line behind it.
    pub behind: u32,
}

/// An answer, or the future of one where somebody else has to be asked.
pub enum Reply<'a> {
    /// Here it is.
    Ready(Answer),
    /// It takes a while.
    Later(Pin<Box<dyn Future<Output = Answer> + Send + 'a>>),
}

/// What a budget says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is charged.
    Now(Charge),
    /// Nothing is charged; ask again then.
    NotBefore(Monotonic),
}

/// What was taken from the windows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Whose path.
    pub family: FamilyId,
    /// How much.
    pub cost: u32,
    /// Whatever the budget finds it by; 0 where nothing is needed.
    pub mark: u64,
    /// It may leave until then and not later; none where the budget is told when it leaves.
    pub leaves_by: Option<Monotonic>,
}

/// How full a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// What counts at this moment.
    pub used: u64,
    /// What is let through.
    pub allowed: u32,
    /// In every interval of this length.
    pub length: Duration,
}

/// The windows of one venue, in memory. Everybody who uses it reads the same clock.
#[derive(Debug)]
pub struct MemoryBudget {
    limits: Limits,
    departures: Departures,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    windows: Vec<Window>,
    holders: Holders,
    /// Who was told to wait. Within a lane, whoever had the fewest turns is first, so nobody is overtaken by whoever asks
    /// more often; a newcomer begins where the first of the line is.
    waiting: Lanes<Ticket>,
}

#[derive(Debug)]
struct Ticket {
    client: u64,
    family: FamilyId,
    cost: u32,
    behind: u32,
    /// How many it had while it stood in line.
    turns: u64,
    /// A bit for each window that had no room for it.
    short: u64,
    /// Whoever does not come back by then has lost the turn.
    lapses: Monotonic,
}

/// How late somebody may come back and still have the turn.
const GRACE: Duration = Duration::from_millis(100);

impl MemoryBudget {
    /// Empty windows.
    pub fn new(limits: Limits) -> Self {
        let windows = limits.windows().iter().copied().map(Window::new).collect();
        let state = State { windows, holders: Holders::new(), waiting: Lanes::new() };
        Self { limits, departures: Departures::new(), state: Mutex::new(state) }
    }

    /// The windows as they are, with everything in them that has left.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut guard = self.state.lock().expect("no holder of this lock can panic");
        let State { windows, holders, .. } = &mut *guard;
        holders.collect(&self.departures, |holder, at_ns| {
            for window in self.limits.path(holder.family) {
                windows[*window].left(holder.cost, at_ns);
            }
        });
        guard
    }

    /// What was granted and has not left, in every window.
    #[cfg(test)]
    pub(crate) fn granted(&self) -> Vec<u64> {
        self.lock().windows.iter().map(Window::granted).collect()
    }

    /// How often this client was told to wait and has not come back.
    #[cfg(test)]
    pub(crate) fn tickets_of(&self, client: u64) -> usize {
        self.lock().waiting.iter().filter(|(_, ticket)| ticket.client == client).count()
    }
}

impl Budget for MemoryBudget {
    fn charge(&self, bill: &Bill, now: Monotonic) -> Reply<'_> {
        Reply::Ready(self.lock().charge(bill, self.limits.path(bill.family), now))
    }

    fn left(&self, charge: Charge, now: Monotonic) {
        let now_ns = ns(now);
        if self.departures.note(charge.mark, now_ns) {
            return;
        }
        let mut state = self.lock();
        for window in self.limits.path(charge.family) {
            state.windows[*window].left(charge.cost, now_ns);
        }
    }

    fn unsent(&self, charge: Charge) {
        let mut state = self.lock();
        state.holders.remove(charge.mark);
        for window in self.limits.path(charge.family) {
            state.windows[*window].unsent(charge.cost);
        }
    }

    fn withdraw(&self, bill: &Bill) {
        let mut state = self.lock();
        if let Some(place) = state.ticket_of(bill) {
            state.waiting.leave(place);
        }
    }

    fn venue_counts(&self, family: FamilyId, used: &Used, now: Monotonic) -> u64 {
        let mut state = self.lock();
        let mut strange = 0;
        for window in self.limits.path(family) {
            if self.limits.windows()[*window].length == used.window {
                strange = strange.max(state.windows[*window].venue_counts(used.used, ns(now)));
            }
        }
        strange
    }

    fn fill(&self, family: FamilyId, now: Monotonic) -> Vec<Fill> {
        let mut state = self.lock();
        let mut fill = |window: &usize| {
            let spec = self.limits.windows()[*window];
            Fill { used: state.windows[*window].used(ns(now)), allowed: spec.allowed, length: spec.length }
        };
        self.limits.path(family).iter().map(&mut fill).collect()
    }
}

impl State {
    fn charge(&mut self, bill: &Bill, path: &[usize], now: Monotonic) -> Answer {
        let now_ns = ns(now);
        if self.waiting.is_empty() && path.iter().all(|at| self.windows[*at].fits(bill.cost, 0, now_ns)) {
            return self.grant(bill, path); // as nearly always
        }
        let place = self.place_in_line(bill, now);
        let mut short = 0;
        let mut fits_at_ns = now_ns;
        for &window in path {
            let ahead = self.reserved(window, bill.lane, place);
            if !self.windows[window].fits(bill.cost, ahead, now_ns) {
                short |= 1 << window;
                let fits_alone = self.windows[window].fits(bill.cost, 0, now_ns);
                // Those ahead take their turns, or lose them.
                let then_ns = match fits_alone {
                    true => ns(Monotonic(now.0 + GRACE)),
                    false => self.windows[window].fits_at(bill.cost, ahead, now_ns),
                };
                fits_at_ns = fits_at_ns.max(then_ns);
            }
        }
        if short != 0 {
            let fits_at = from_ns(fits_at_ns);
            self.tell_to_wait(bill, place, short, fits_at);
            return Answer::NotBefore(fits_at);
        }
        if let Some(mut ticket) = place.and_then(|place| self.waiting.leave(place))
            && bill.behind > 0
        {
            // It has had a turn and has more waiting: it stays in line, behind those who had fewer.
            ticket.lapses = Monotonic(now.0 + GRACE);
            ticket.behind = bill.behind - 1;
            ticket.turns += 1;
            self.waiting.join(bill.lane, by_turns(ticket.turns), ticket);
        }
        if !self.waiting.is_empty() {
            let mask = path.iter().fold(0, |mask, window| mask | 1_u64 << window);
            self.waiting.served(bill.lane, |ticket| ticket.short & mask != 0);
        }
        self.grant(bill, path)
    }

    #[inline]
    fn grant(&mut self, bill: &Bill, path: &[usize]) -> Answer {
        for &window in path {
            self.windows[window].grant(bill.cost);
        }
        let mark = self.holders.add(bill.family, bill.cost);
        Answer::Now(Charge { family: bill.family, cost: bill.cost, mark, leaves_by: None })
    }

    fn place_in_line(&mut self, bill: &Bill, now: Monotonic) -> Option<Place> {
        if self.waiting.is_empty() {
            return None;
        }
        let lapsed: Vec<Place> =
            self.waiting.iter().filter(|(_, ticket)| ticket.lapses < now).map(|(place, _)| place).collect();
        let mine = self.ticket_of(bill);
        for place in lapsed {
            if Some(place) != mine {
                self.waiting.leave(place);
            }
        }
        mine
    }

    fn ticket_of(&self, bill: &Bill) -> Option<Place> {
        let is_mine = |place: Place, ticket: &Ticket| {
            place.lane == bill.lane && ticket.client == bill.client && ticket.family == bill.family
        };
        self.waiting.iter().find(|(place, ticket)| is_mine(*place, ticket)).map(|(place, _)| place)
    }

    /// What those ahead in line have yet to take from this window: everything that waits in a better lane, and of the
    /// same lane what others need to have had as many turns. Only who was short of *this* window keeps room in it: a
    /// family that waits for a window of its own takes nothing from the others meanwhile.
    fn reserved(&self, window: usize, lane: Lane, place: Option<Place>) -> u64 {
        if self.waiting.is_empty() {
            return 0;
        }
        let my_turns = self.turns_of(lane, place);
        let ahead =
            self.waiting.ahead_of(lane, place).filter(|(_, ticket)| ticket.short & (1 << window) != 0);
        let cost_of = |(other, ticket): (Lane, &Ticket)| {
            let all = 1 + u64::from(ticket.behind);
            let turns = match other.cmp(&lane) {
                Ordering::Less => all,
                Ordering::Equal => all.min(1 + my_turns.saturating_sub(ticket.turns)),
                Ordering::Greater => 1, // its patience is over: one turn
            };
            turns * u64::from(ticket.cost)
        };
        ahead.map(cost_of).sum()
    }

    fn turns_of(&self, lane: Lane, place: Option<Place>) -> u64 {
        let mine = self.waiting.iter().filter(|(other, _)| other.lane == lane);
        let mut mine = mine.filter(|(other, _)| place.is_none_or(|place| *other == place));
        mine.next().map_or(0, |(_, ticket)| ticket.turns)
    }

    fn tell_to_wait(&mut self, bill: &Bill, place: Option<Place>, short: u64, fits_at: Monotonic) {
        let lapses = Monotonic(fits_at.0 + GRACE);
        let Bill { client, family, cost, behind, .. } = *bill;
        let turns = self.turns_of(bill.lane, place);
        let ticket = Ticket { client, family, cost, behind, turns, short, lapses };
        match place.and_then(|place| self.waiting.get_mut(place)) {
            Some(old) => *old = ticket,
            None => {
                self.waiting.join(bill.lane, by_turns(turns), ticket);
            }
        }
    }
}

/// Here a line is ordered by turns; due times of different clients mean nothing.
fn by_turns(turns: u64) -> Monotonic {
    Monotonic(Duration::from_nanos(turns))
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => answer.fmt(f),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

#[cfg(test)]
mod tests;
