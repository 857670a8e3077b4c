//! What all handles, waiters and permits of one venue share. Everything here is short and under one lock, which is
//! never held while anything is awaited; the budget's own lock is taken inside it, never the other way round.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::{Clock, Monotonic};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;

use crate::budget::{Answer, Bill, Budget, Charge, Reply};
use crate::desks::{Desk, State};
use crate::events;
use crate::feedback::Found;
use crate::governor::{Ask, MakeLimiter, Parts, Scope, Settings};
use crate::hold::{Cooldown, Held, Hold, HoldCause};
use crate::lanes::{Lanes, Place};
use crate::limiter::{End, Feedback, Outcome, Verdict};
use crate::notebook::Notebook;
use crate::permit::{Expired, Permit, Report, Seat, Stage};
use crate::retries::RetryBudget;
use crate::retry_after::{BAN_CAP, CAP, RetryAfter};
use crate::seats::{SEATS_MAX, Seats, Sitting};
use crate::snapshot::{FamilySnapshot, Snapshot};
use crate::spec::{FamilyId, Limits};

/// When a limiter waits for an end and none comes, it is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Each governor of this process is a client of its own to a budget.
static CLIENTS: AtomicU64 = AtomicU64::new(1);

pub(crate) struct House {
    pub(crate) venue: String,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) budget: Arc<dyn Budget>,
    settings: Settings,
    limiter: MakeLimiter,
    notebook: Option<Arc<Notebook>>,
    client: u64,
    /// How often something was held. Written under the lock; a permit that still finds the number of its grant need not
    /// take the lock to depart.
    holds: AtomicU64,
    seats: Seats,
    state: Mutex<State>,
}

/// What comes of looking.
pub(crate) enum Step<'h> {
    Granted(Permit),
    NotBefore(Monotonic),
    Bell,
    /// A shared budget is being asked; the lock is free meanwhile.
    Asking(Pin<Box<dyn Future<Output = Answer> + Send + 'h>>),
}

/// What speaks against a request.
enum Lack {
    Time(Monotonic),
    Slot,
}

impl House {
    pub(crate) fn open(venue: String, limits: Limits, mut settings: Settings, parts: Parts) -> Self {
        settings.max_inflight = settings.max_inflight.min(SEATS_MAX);
        let seats = Seats::new(settings.max_inflight);
        let Parts { clock, budget, limiter, notebook, seed } = parts;
        let wall = clock.wall();
        let desk = |family| {
            let ceiling = notebook.as_ref().and_then(|book| book.ceiling(&venue, limits.name(family), wall));
            Desk::new(ceiling, RetryBudget::new(settings.retry_share, settings.retry_window))
        };
        let mut state = State {
            hold: Hold::default(),
            inflight: 0,
            free_seats: (0..settings.max_inflight).rev().collect(),
            desks: limits.families().map(desk).collect(),
            slots: Lanes::new(),
            rng: StdRng::seed_from_u64(seed),
        };
        if let Some((length, strikes)) = notebook.as_ref().and_then(|book| book.ban(&venue, wall)) {
            state.hold.still_banned(clock.monotonic(), length, strikes);
            if !length.is_zero() {
                events::ban_goes_on(&venue, length);
            }
        }
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let (holds, state) = (AtomicU64::new(0), Mutex::new(state));
        Self { venue, limits, clock, budget, settings, limiter, notebook, client, holds, seats, state }
    }

    /// A permit, if nobody waits and nothing speaks against it.
    pub(crate) fn grant_at_once(self: &Arc<Self>, ask: &Ask) -> Option<Permit> {
        let mut state = self.lock();
        if !state.desks[ask.family.at()].line.is_empty() {
            return None;
        }
        let now = self.clock.monotonic();
        if self.lacks(&mut state, ask, now).is_some() {
            return None;
        }
        match self.budget.charge(&self.bill(ask, 0), now) {
            Reply::Ready(Answer::Now(charge)) => Some(self.grant(&mut state, ask, charge, now)),
            _ => None,
        }
    }

    /// Whoever was not granted at once does not wait either.
    pub(crate) fn gave_up(&self, ask: &Ask) {
        let mut state = self.lock();
        self.forget_wish(&mut state, ask);
    }

    pub(crate) fn join_line(&self, ask: &Ask, bell: Arc<Notify>) -> Place {
        let mut state = self.lock();
        let due = ask.due.unwrap_or_else(|| self.clock.monotonic());
        state.desks[ask.family.at()].line.join(ask.lane, due, bell)
    }

    /// Looks whether whoever stands at `place` may go; `paid` is what a shared budget has charged already.
    pub(crate) fn step<'h>(self: &'h Arc<Self>, ask: &Ask, place: Place, paid: Option<Charge>) -> Step<'h> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let now = self.clock.monotonic();
        let is_first = state.desks[ask.family.at()].line.first().is_some_and(|(first, _)| first == place);
        if paid.is_none() {
            if !is_first {
                return Step::Bell;
            }
            if let Some(at) = state.desks[ask.family.at()].told_until(place, now) {
                return Step::NotBefore(at);
            }
        }
        match self.lacks(state, ask, now) {
            Some(Lack::Time(at)) => {
                state.leave_slots(ask.family, self.settings.max_inflight);
                return Step::NotBefore(at);
            }
            Some(Lack::Slot) => {
                state.join_slots(ask.family, place);
                // Whoever is first now may not have been when the last slot was freed.
                state.ring_slot(self.settings.max_inflight);
                return Step::Bell;
            }
            None => {}
        }
        let behind = state.desks[ask.family.at()].line.waiting()[ask.lane as usize].saturating_sub(1);
        let charge = match paid {
            Some(charge) => charge,
            None => match self.budget.charge(&self.bill(ask, behind), now) {
                Reply::Ready(Answer::Now(charge)) => charge,
                Reply::Ready(Answer::NotBefore(at)) => {
                    state.told(ask.family, place, at, self.settings.max_inflight);
                    return Step::NotBefore(at);
                }
                Reply::Later(answer) => return Step::Asking(answer),
            },
        };
        state.desks[ask.family.at()].line.leave(place);
        Step::Granted(self.grant(state, ask, charge, now))
    }

    /// Whether it is too late for what a shared budget has charged.
    pub(crate) fn is_too_late(&self, charge: &Charge) -> bool {
        charge.leaves_by.is_some_and(|by| self.clock.monotonic() > by)
    }

    /// A shared budget said "not before".
    pub(crate) fn told(&self, ask: &Ask, place: Place, at: Monotonic) {
        self.lock().told(ask.family, place, at, self.settings.max_inflight);
    }

    /// Somebody who waited is gone: the next takes over.
    pub(crate) fn leave_line(&self, ask: &Ask, place: Place) {
        let mut state = self.lock();
        state.desks[ask.family.at()].line.leave(place);
        self.forget_wish(&mut state, ask);
        state.leave_slots(ask.family, self.settings.max_inflight);
        state.ring_first(ask.family);
    }

    pub(crate) fn take_retry(&self, family: FamilyId) -> Result<(), Monotonic> {
        let mut state = self.lock();
        state.desks[family.at()].retries.take(self.clock.monotonic())
    }

    pub(crate) fn late(&self, family: FamilyId) {
        self.lock().desks[family.at()].counts.late += 1;
    }

    /// A permit is used.
    pub(crate) fn depart(&self, seat: u32) -> Result<(), Expired> {
        let Sitting { charge, since, holds } = self.seats.look(seat);
        let now = self.clock.monotonic();
        let is_held = self.holds.load(Ordering::Acquire) != holds
            && self.lock().held_until(charge.family, now).is_some();
        let is_late = charge.leaves_by.is_some_and(|by| now > by);
        if is_held || is_late || now.since(since) > self.settings.permit_validity {
            return Err(Expired);
        }
        self.budget.left(charge, now);
        self.seats.departed(seat, now);
        Ok(())
    }

    /// What a permit may cost.
    pub(crate) fn cost(&self, seat: u32) -> u32 {
        self.seats.look(seat).charge.cost
    }

    /// A permit was dropped unused.
    pub(crate) fn never_left(&self, seat: u32) {
        let Sitting { charge, since, .. } = self.seats.look(seat);
        self.budget.unsent(charge);
        let mut state = self.lock();
        let feedback = Feedback::default();
        let end = End { sent_at: since, cost: charge.cost, outcome: Outcome::Abandoned, feedback };
        state.desks[charge.family.at()].counts.unsent += 1;
        state.free(seat, charge.family, &end, self.clock.monotonic());
        // There is room again in windows that others share.
        for family in self.limits.families() {
            state.desks[family.at()].forget_told();
            state.ring_first(family);
        }
        state.ring_slot(self.settings.max_inflight);
    }

    /// A request was dropped under way.
    pub(crate) fn abandoned(&self, seat: u32) {
        let Sitting { charge, since, .. } = self.seats.look(seat);
        let feedback = Feedback::default();
        let end = End { sent_at: since, cost: charge.cost, outcome: Outcome::Abandoned, feedback };
        let mut state = self.lock();
        state.desks[charge.family.at()].counts.abandoned += 1;
        state.free(seat, charge.family, &end, self.clock.monotonic());
        state.ring_first(charge.family);
        state.ring_slot(self.settings.max_inflight);
    }

    /// A request has ended, and these headers came with it.
    pub(crate) fn end(&self, seat: u32, report: Report, found: &Found<'_>) -> Outcome {
        let Sitting { charge, since, .. } = self.seats.look(seat);
        let (family, feedback) = (charge.family, Feedback::default());
        let mut end = End { sent_at: since, cost: charge.cost, outcome: report.outcome(), feedback };
        let said = found.read(&self.limits, family, || self.clock.wall(), &mut end.feedback);
        let mut state = self.lock();
        let now = self.clock.monotonic();
        state.desks[family.at()].counts.note(end.outcome);
        state.free(seat, family, &end, now);
        let strange = end.feedback.used.map_or(0, |used| self.budget.venue_counts(family, &used, now));
        state.desks[family.at()].counts.strange += strange;
        let held = self.hold_after(&mut state, family, &end, report.status, said, now);
        state.ring_first(family);
        state.ring_slot(self.settings.max_inflight);
        drop(state);
        if said.is_some() || strange > 0 {
            self.tell_end(family, &end, said, strange);
        }
        if let Some(held) = held {
            self.tell_hold(&held, Some(family));
        }
        let took = now.since(since);
        events::request_ended(&self.venue, self.limits.name(family), end.outcome, report.status, took);
        end.outcome
    }

    pub(crate) fn loop_ended(&self, failed: usize, total: usize) {
        if total == 0 || failed as f64 / total as f64 <= self.settings.failed_share_max {
            return;
        }
        let mut state = self.lock();
        let jitter = state.rng.random_range(0.0..=1.0);
        let now = self.clock.monotonic();
        if state.hold.ends_at(now).is_some() {
            return;
        }
        let held = state.hold.failing(now, self.cooldown(), jitter);
        self.holds.fetch_add(1, Ordering::Release);
        drop(state);
        if let Some(held) = held {
            self.tell_hold(&held, None);
        }
    }

    pub(crate) fn remember(&self) {
        let Some(notebook) = &self.notebook else { return };
        let rate_of = |(family, desk): (FamilyId, &Desk)| {
            Some((self.limits.name(family), desk.limiter.as_ref()?.ceiling()?))
        };
        let state = self.lock();
        let rates: Vec<(&str, f64)> = self.limits.families().zip(&state.desks).filter_map(rate_of).collect();
        drop(state);
        notebook.note_ceilings(&self.venue, rates, self.clock.wall());
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let now = self.clock.monotonic();
        let family = |(family, desk): (FamilyId, &Desk)| FamilySnapshot {
            name: self.limits.name(family).to_owned(),
            gauge: desk.limiter.as_ref().map(|limiter| limiter.gauge(now)),
            windows: self.budget.fill(family, now),
            waiting: desk.line.waiting(),
            hold: desk.hold.remaining(now),
            counts: desk.counts,
        };
        Snapshot {
            venue: self.venue.clone(),
            inflight: state.inflight,
            inflight_max: self.settings.max_inflight,
            hold: state.hold.remaining(now),
            families: self.limits.families().zip(&state.desks).map(family).collect(),
        }
    }

    /// What speaks against it, other than the declared windows.
    #[inline]
    fn lacks(&self, state: &mut State, ask: &Ask, now: Monotonic) -> Option<Lack> {
        if let Some(until) = state.held_until(ask.family, now) {
            return Some(Lack::Time(until));
        }
        let desk = &mut state.desks[ask.family.at()];
        let limiter = desk
            .limiter
            .get_or_insert_with(|| (self.limiter)(self.limits.name(ask.family), desk.ceiling.take()));
        match limiter.ask(ask.cost, now) {
            Verdict::Now => {}
            Verdict::NotBefore(at) => return Some(Lack::Time(at)),
            Verdict::WhenOneEnds => return Some(Lack::Time(Monotonic(now.0 + ASK_AGAIN))),
        }
        let is_next = state.slots.first().is_none_or(|(_, family)| *family == ask.family);
        (state.inflight >= self.settings.max_inflight || !is_next).then_some(Lack::Slot)
    }

    fn grant(self: &Arc<Self>, state: &mut State, ask: &Ask, charge: Charge, now: Monotonic) -> Permit {
        state.inflight += 1;
        let desk = &mut state.desks[ask.family.at()];
        desk.limiter.as_mut().expect("it was asked").sent(ask.cost, now);
        desk.counts.granted += 1;
        if ask.is_retry {
            desk.counts.retries += 1;
        } else {
            desk.retries.request(now);
        }
        if !desk.line.is_empty() {
            desk.line.served(ask.lane, |_| true);
            state.ring_first(ask.family);
        }
        if !state.slots.is_empty() {
            state.slots.served(ask.lane, |_| true);
            state.pass_slot_on(ask.family);
            state.ring_slot(self.settings.max_inflight);
        }
        let number = state.free_seats.pop().expect("there are as many as may be under way");
        self.seats.take(number, &Sitting { charge, since: now, holds: self.holds.load(Ordering::Relaxed) });
        Permit { seat: Seat { house: self.clone(), number, stage: Stage::Granted } }
    }

    /// Begins or extends a hold, if the answer says so.
    fn hold_after(
        &self,
        state: &mut State,
        family: FamilyId,
        end: &End,
        status: Option<u16>,
        said: Option<RetryAfter>,
        now: Monotonic,
    ) -> Option<Held> {
        if end.outcome == Outcome::Banned {
            self.holds.fetch_add(1, Ordering::Release);
            return state.hold.banned(end.sent_at, now, said, self.settings.ban);
        }
        // A success may carry the header, too; it then says nothing about this request.
        let is_told_to_wait =
            end.feedback.retry_after.is_some() && status.is_some_and(|status| status >= 300);
        if end.outcome != Outcome::Refused && !is_told_to_wait {
            return None;
        }
        self.holds.fetch_add(1, Ordering::Release);
        let jitter = state.rng.random_range(0.0..=1.0);
        let hold = match self.settings.cooldown_scope {
            Scope::Venue => &mut state.hold,
            Scope::Family => &mut state.desks[family.at()].hold,
        };
        hold.refused(end.sent_at, now, end.feedback.retry_after, self.cooldown(), jitter)
    }

    fn tell_end(&self, family: FamilyId, end: &End, said: Option<RetryAfter>, strange: u64) {
        if let Some(said) = said {
            let cap = if end.outcome == Outcome::Banned { BAN_CAP } else { CAP };
            if said.asked > cap {
                events::retry_after_capped(&self.venue, said, cap);
            }
        }
        if strange > 0 {
            events::stranger_seen(&self.venue, self.limits.name(family), strange);
        }
    }

    /// Outside of the lock: a ban waits for the disk.
    fn tell_hold(&self, held: &Held, family: Option<FamilyId>) {
        if held.cause == HoldCause::Ban {
            if let Some(notebook) = &self.notebook {
                notebook.note_ban(&self.venue, held.length, held.strikes, self.clock.wall());
            }
            events::ban_began(&self.venue, held);
            return;
        }
        let family = family.filter(|_| self.settings.cooldown_scope == Scope::Family);
        events::hold_began(&self.venue, family.map(|family| self.limits.name(family)), held);
    }

    /// A retry it took is there for another, and so is its turn at the budget unless one of its lane takes over.
    fn forget_wish(&self, state: &mut State, ask: &Ask) {
        let desk = &mut state.desks[ask.family.at()];
        if ask.is_retry {
            desk.retries.give_back();
        }
        if desk.line.waiting()[ask.lane as usize] == 0 {
            self.budget.withdraw(&self.bill(ask, 0));
        }
    }

    #[inline]
    fn bill(&self, ask: &Ask, behind: usize) -> Bill {
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        Bill { client: self.client, family: ask.family, lane: ask.lane, cost: ask.cost, behind }
    }

    fn cooldown(&self) -> Cooldown {
        Cooldown {
            first: self.settings.cooldown,
            max: self.settings.cooldown_max,
            forgotten_after: self.settings.cooldown_forgotten_after,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("venue", &self.venue).finish_non_exhaustive()
    }
}
