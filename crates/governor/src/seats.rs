//! What every permit stands for. A permit itself is a number, so that it goes from hand to hand in a register.
//!
//! As many seats as may be under way, each written under the house's lock when it is taken and read by its holder alone
//! until it is free again. Nobody else looks, so no order between threads is needed but the one in which the permit was
//! handed on.

use std::sync::atomic::{AtomicU64, Ordering};

use catchment_model::Monotonic;

use crate::budget::Charge;
use crate::spec::FamilyId;
use crate::window::{from_ns, ns};

/// So many may be under way at one venue.
pub(crate) const SEATS_MAX: u32 = 4_096;

#[derive(Debug)]
pub(crate) struct Seats(Box<[Entry]>);

/// What is written down of one seat.
#[derive(Debug, Default)]
struct Entry {
    mark: AtomicU64,
    /// When it has to have left; the end of time where nobody says so.
    leaves_by_ns: AtomicU64,
    since_ns: AtomicU64,
    holds: AtomicU64,
    /// The family, then 32 bits of cost.
    whose: AtomicU64,
}

/// What one stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sitting {
    pub(crate) charge: Charge,
    /// When it was granted, or, once it has departed, when that was.
    pub(crate) since: Monotonic,
    /// How many holds there had been when it was granted.
    pub(crate) holds: u64,
}

impl Seats {
    pub(crate) fn new(count: u32) -> Self {
        Self((0..count.min(SEATS_MAX)).map(|_| Entry::default()).collect())
    }

    #[inline]
    pub(crate) fn take(&self, number: u32, sitting: &Sitting) {
        let Sitting { charge, since, holds } = sitting;
        let entry = &self.0[number as usize];
        entry.mark.store(charge.mark, Ordering::Relaxed);
        entry.leaves_by_ns.store(charge.leaves_by.map_or(u64::MAX, ns), Ordering::Relaxed);
        entry.since_ns.store(ns(*since), Ordering::Relaxed);
        entry.holds.store(*holds, Ordering::Relaxed);
        entry.whose.store((charge.family.at() as u64) << 32 | u64::from(charge.cost), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn departed(&self, number: u32, at: Monotonic) {
        self.0[number as usize].since_ns.store(ns(at), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn look(&self, number: u32) -> Sitting {
        let entry = &self.0[number as usize];
        let leaves_by_ns = entry.leaves_by_ns.load(Ordering::Relaxed);
        let whose = entry.whose.load(Ordering::Relaxed);
        let charge = Charge {
            family: FamilyId::new((whose >> 32) as u16),
            cost: whose as u32,
            mark: entry.mark.load(Ordering::Relaxed),
            leaves_by: (leaves_by_ns != u64::MAX).then(|| from_ns(leaves_by_ns)),
        };
        let since = from_ns(entry.since_ns.load(Ordering::Relaxed));
        Sitting { charge, since, holds: entry.holds.load(Ordering::Relaxed) }
    }
}
