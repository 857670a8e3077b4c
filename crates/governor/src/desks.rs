//! What is under a house's lock: its families, who waits in them, and who is next for a slot.

use std::sync::Arc;

use catchment_model::Monotonic;
use rand::rngs::StdRng;
use tokio::sync::Notify;

use crate::hold::Hold;
use crate::lanes::{Lanes, Place};
use crate::limiter::{End, Limiter};
use crate::retries::RetryBudget;
use crate::snapshot::Counts;
use crate::spec::FamilyId;

pub(crate) struct State {
    pub(crate) hold: Hold,
    pub(crate) inflight: u32,
    /// As many as are not under way.
    pub(crate) free_seats: Vec<u32>,
    pub(crate) desks: Vec<Desk>,
    /// Families whose first in line lacks nothing but a slot.
    pub(crate) slots: Lanes<FamilyId>,
    pub(crate) rng: StdRng,
}

/// A family.
pub(crate) struct Desk {
    pub(crate) limiter: Option<Box<dyn Limiter>>,
    /// Remembered for the limiter, until there is one.
    pub(crate) ceiling: Option<f64>,
    pub(crate) hold: Hold,
    pub(crate) line: Lanes<Arc<Notify>>,
    /// Its place among those that want a slot.
    wants_slot: Option<Place>,
    /// Whom the budget told when to ask again.
    told: Option<(Place, Monotonic)>,
    pub(crate) retries: RetryBudget,
    pub(crate) counts: Counts,
}

impl Desk {
    pub(crate) fn new(ceiling: Option<f64>, retries: RetryBudget) -> Self {
        Self {
            limiter: None,
            ceiling,
            hold: Hold::default(),
            line: Lanes::new(),
            wants_slot: None,
            told: None,
            retries,
            counts: Counts::default(),
        }
    }

    /// Until when no bell makes whoever stands here ask the budget again. Without this, two families that wait for the
    /// same window would pass the right to the next slot to and fro.
    pub(crate) fn told_until(&self, place: Place, now: Monotonic) -> Option<Monotonic> {
        self.told.filter(|(who, at)| *who == place && now < *at).map(|(_, at)| at)
    }

    pub(crate) fn forget_told(&mut self) {
        self.told = None;
    }
}

impl State {
    #[inline]
    pub(crate) fn held_until(&self, family: FamilyId, now: Monotonic) -> Option<Monotonic> {
        self.hold.ends_at(now).max(self.desks[family.at()].hold.ends_at(now))
    }

    /// A permit has come to its end.
    #[inline]
    pub(crate) fn free(&mut self, seat: u32, family: FamilyId, end: &End, now: Monotonic) {
        self.inflight -= 1;
        self.free_seats.push(seat);
        self.desks[family.at()].limiter.as_mut().expect("it granted this one").ended(end, now);
    }

    /// Stands in line for a slot as `head` stands in its family's.
    pub(crate) fn join_slots(&mut self, family: FamilyId, head: Place) {
        let desk = &mut self.desks[family.at()];
        if let Some(place) = desk.wants_slot.filter(|place| place.lane != head.lane) {
            self.slots.leave(place);
            desk.wants_slot = None;
        }
        if desk.wants_slot.is_none() {
            desk.wants_slot = Some(self.slots.join(head.lane, head.due(), family));
        }
    }

    /// Whoever comes next in this family most likely wants a slot as well; until it says otherwise it is counted in, or
    /// families would take turns whatever their lanes.
    pub(crate) fn pass_slot_on(&mut self, family: FamilyId) {
        let desk = &mut self.desks[family.at()];
        let Some(place) = desk.wants_slot.take() else { return };
        let next = desk.line.first().map(|(next, _)| next);
        self.slots.leave(place);
        if let Some(next) = next {
            self.join_slots(family, next);
        }
    }

    /// The budget has no room for the first of this family before then: others may have the slot meanwhile.
    pub(crate) fn told(&mut self, family: FamilyId, place: Place, at: Monotonic, max_inflight: u32) {
        self.desks[family.at()].told = Some((place, at));
        self.leave_slots(family, max_inflight);
    }

    pub(crate) fn leave_slots(&mut self, family: FamilyId, max_inflight: u32) {
        if let Some(place) = self.desks[family.at()].wants_slot.take() {
            self.slots.leave(place);
            self.ring_slot(max_inflight);
        }
    }

    #[inline]
    pub(crate) fn ring_first(&self, family: FamilyId) {
        if let Some((_, bell)) = self.desks[family.at()].line.first() {
            bell.notify_one();
        }
    }

    #[inline]
    pub(crate) fn ring_slot(&self, max_inflight: u32) {
        if self.inflight < max_inflight
            && let Some((_, family)) = self.slots.first()
        {
            self.ring_first(*family);
        }
    }
}
