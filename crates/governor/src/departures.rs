//! Who has left, noted without a lock.
//!
//! Whoever is granted something gets a slot with it. To leave is to write the time into that slot, nothing else; whoever
//! asks the windows next collects what was written, before it looks at anything. Until then it counts as granted, which
//! is as much. There are only so many slots; whoever gets none leaves under the lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::spec::FamilyId;

/// Few in tests, so that the way without one is gone, too.
const SLOTS: u16 = if cfg!(test) { 4 } else { 256 };

/// The slots. What is in them is a time and one, or zero.
#[derive(Debug)]
pub(crate) struct Departures {
    slots: Box<[AtomicU64]>,
}

/// Who has a slot; this is under a lock.
#[derive(Debug)]
pub(crate) struct Holders {
    out: Vec<Holder>,
    free: Vec<u16>,
    gone: Vec<(u64, Holder)>,
}

/// Something granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    slot: u16,
    pub(crate) family: FamilyId,
    pub(crate) cost: u32,
}

impl Departures {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whoever has this mark leaves now. `false` if the mark names no slot.
    #[inline]
    pub(crate) fn note(&self, mark: u64, now_ns: u64) -> bool {
        let slot = usize::try_from(mark).ok().and_then(|mark| self.slots.get(mark.checked_sub(1)?));
        if let Some(slot) = slot {
            slot.store(now_ns + 1, Ordering::Release);
        }
        slot.is_some()
    }
}

impl Holders {
    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), free: (0..SLOTS).rev().collect(), gone: Vec::new() }
    }

    /// A mark for what was granted; zero if there is none left.
    #[inline]
    pub(crate) fn add(&mut self, family: FamilyId, cost: u32) -> u64 {
        let Some(slot) = self.free.pop() else { return 0 };
        self.out.push(Holder { slot, family, cost });
        u64::from(slot) + 1
    }

    /// Whoever had this mark surely does not leave.
    pub(crate) fn remove(&mut self, mark: u64) {
        if let Some(at) = self.out.iter().position(|holder| u64::from(holder.slot) + 1 == mark) {
            self.free.push(self.out.swap_remove(at).slot);
        }
    }

    /// Those who have left, with their times, in the order in which they did.
    #[inline]
    pub(crate) fn collect(&mut self, departures: &Departures, mut left: impl FnMut(Holder, u64)) {
        let mut at = 0;
        while let Some(holder) = self.out.get(at) {
            let slot = &departures.slots[usize::from(holder.slot)];
            match slot.load(Ordering::Acquire) {
                0 => at += 1,
                noted => {
                    slot.store(0, Ordering::Relaxed);
                    self.gone.push((noted - 1, self.out.swap_remove(at)));
                }
            }
        }
        if self.gone.len() > 1 {
            self.gone.sort_unstable_by_key(|(at_ns, _)| *at_ns);
        }
        for (at_ns, holder) in self.gone.drain(..) {
            self.free.push(holder.slot);
            left(holder, at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_left_are_told_once_in_their_order_and_their_slots_are_there_for_others() {
        let (departures, mut holders) = (Departures::new(), Holders::new());
        let marks: Vec<u64> = (0..4).map(|cost| holders.add(FamilyId::new(0), cost)).collect();
        assert_eq!(holders.add(FamilyId::new(0), 9), 0, "there are no more");
        assert!(!departures.note(0, 5) && !departures.note(5, 5) && !departures.note(u64::MAX, 5));
        for (holder, at_ns) in [(3, 0), (0, 30), (2, 10)] {
            assert!(departures.note(marks[holder], at_ns));
        }
        let mut told = Vec::new();
        holders.collect(&departures, |holder, at_ns| told.push((holder.cost, at_ns)));
        holders.collect(&departures, |_, _| unreachable!("nobody has left since"));
        assert_eq!(told, [(3, 0), (2, 10), (0, 30)]);
        holders.remove(marks[1]);
        assert!((0..4).all(|cost| holders.add(FamilyId::new(0), cost) > 0));
        assert_eq!(holders.add(FamilyId::new(0), 9), 0);
    }
}
