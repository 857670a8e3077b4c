//! Who is asked when.
//!
//! Instruments are asked in batches. Each batch has a phase within the interval, and its slots are at
//! `epoch + n * interval + phase`, whatever answers take: nothing drifts. The phases are even: the k-th of 40 batches
//! has `k/40` of the interval.
//!
//! ```text
//! interval   |0   25   50   75   ...                 975 |
//! batches    |#0  #1   #2   #3                       #39 |#0 ...
//! ```
//!
//! When batches come or go, phases slide to their new places by at most 5 % of the interval a round, so an instrument's
//! own spacing stays within that. An instrument stays in its batch. Newcomers fill batches that have room before a new
//! one is begun. When all would fit into one batch fewer with a tenth to spare, the smallest slides to the phase of a
//! neighbour and joins it there, where nobody notices.
//!
//! A batch never owes more than one request. If its slot comes while it still waits, that slot is skipped, and of those
//! that wait, whoever has waited longest goes first. After a jam requests start at no more than twice the usual rate.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Cause, Instrument, Monotonic};
use catchment_venues::Request;

use super::roster::Place;

/// Never given twice.
pub(crate) type BatchId = u32;

/// Phases slide by at most this part of the interval in a round.
const SLIDE: u32 = 20;
/// The timer's own coarseness must not slow a full schedule down.
const START_SLACK: Duration = Duration::from_millis(4);
/// So many batches may be there because of a refused instrument, taken apart or alone.
const SUSPECTS_MAX: usize = 64;

/// Instruments that are asked for together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) members: Vec<Place>,
    /// Members that are left out, and until when.
    pub(crate) resting: Vec<(Place, Monotonic)>,
    /// All of it is left out until then.
    pub(crate) rests_until: Option<Monotonic>,
    /// It has a record in the back-off.
    pub(crate) has_failed: bool,
    /// The request, as long as nobody comes or goes.
    pub(crate) sheet: Option<Arc<Sheet>>,
    /// Why its last slot brought nothing.
    pub(crate) trouble: Option<Cause>,
    /// Its slot comes and it waits for a worker since then; kept while it gets none.
    owed_since: Option<Monotonic>,
    started_at: Option<Monotonic>,
    state: State,
    kind: Kind,
    phase: Duration,
    round: u64,
    due: Monotonic,
    rank: usize,
    /// The batch that it will join.
    host: Option<BatchId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Ready,
    UnderWay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Usual,
    /// A part of a batch that was refused.
    Suspect,
    /// One instrument that was refused on its own.
    Solo,
}

/// A request and who is asked for by it, in order.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) request: Request,
    pub(crate) members: Vec<(Place, Arc<Instrument>)>,
}

/// A slot that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) batch: BatchId,
    pub(crate) due: Monotonic,
    /// Slots that passed unseen, because nobody looked for so long.
    pub(crate) missed: u64,
}

/// The batches of a venue.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Duration,
    epoch: Monotonic,
    books_max: usize,
    batches: HashMap<BatchId, Batch>,
    batch_of: HashMap<Place, BatchId>,
    next_id: BatchId,
    /// Those with a phase of their own, in its order.
    order: Vec<BatchId>,
    /// Some of these are gone. Many go at once, and the order is put right once.
    is_order_stale: bool,
    /// Leaving batches come before others that are due at the same time.
    slots: BinaryHeap<Reverse<(Monotonic, bool, BatchId)>>,
    ready: BTreeSet<(Monotonic, BatchId)>,
    leaver: Option<BatchId>,
    /// The next request starts no earlier.
    start_at: Monotonic,
}

impl Schedule {
    pub(crate) fn new(interval: Duration, books_max: usize, epoch: Monotonic) -> Self {
        let (batches, batch_of, order, slots, ready) = Default::default();
        let (next_id, leaver) = (0, None);
        Self {
            interval,
            epoch,
            books_max,
            batches,
            batch_of,
            next_id,
            order,
            is_order_stale: false,
            slots,
            ready,
            leaver,
            start_at: epoch,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// How many instruments are left out now.
    pub(crate) fn resting(&self, now: Monotonic) -> usize {
        let resting = |batch: &Batch| match batch.rests_until {
            Some(until) if until > now => batch.members.len(),
            _ => batch.resting.iter().filter(|(_, until)| *until > now).count(),
        };
        self.batches.values().map(resting).sum()
    }

    pub(crate) fn get(&self, id: BatchId) -> Option<&Batch> {
        self.batches.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: BatchId) -> Option<&mut Batch> {
        self.batches.get_mut(&id)
    }

    /// When the batch's next slot is.
    pub(crate) fn due(&self, id: BatchId) -> Option<Monotonic> {
        Some(self.batches.get(&id)?.due)
    }

    /// The batch that an instrument is in.
    pub(crate) fn of(&mut self, place: Place) -> Option<&mut Batch> {
        self.batches.get_mut(self.batch_of.get(&place)?)
    }

    pub(crate) fn of_ref(&self, place: Place) -> Option<&Batch> {
        self.batches.get(self.batch_of.get(&place)?)
    }

    /// Gives newcomers a batch: one that has room, or a new one. The very first are asked at once.
    pub(crate) fn seat(&mut self, joined: &[Place], now: Monotonic) {
        if self.batches.is_empty() {
            self.epoch = now;
        }
        let has_room = |id: &BatchId| {
            self.batches
                .get(id)
                .is_some_and(|batch| batch.kind == Kind::Usual && batch.members.len() < self.books_max)
        };
        let mut roomy: Vec<BatchId> = self.order.iter().rev().copied().filter(has_room).collect();
        let mut fresh = Vec::new();
        for place in joined {
            let id = match roomy.last() {
                Some(id) => *id,
                None => {
                    let id = self.begin(Kind::Usual);
                    self.order.push(id);
                    fresh.push(id);
                    roomy.push(id);
                    id
                }
            };
            let batch = self.batches.get_mut(&id).expect("it was found or begun just now");
            batch.members.push(*place);
            batch.sheet = None;
            self.batch_of.insert(*place, id);
            if batch.members.len() >= self.books_max {
                roomy.pop();
            }
        }
        if fresh.is_empty() {
            return;
        }
        self.rank();
        for id in fresh {
            let phase = self.target(id);
            self.enter(id, phase, now);
        }
    }

    /// Takes one out of its batch.
    pub(crate) fn unseat(&mut self, place: Place) {
        let Some(id) = self.batch_of.remove(&place) else { return };
        let batch = self.batches.get_mut(&id).expect("seats are in batches");
        batch.members.retain(|member| *member != place);
        batch.resting.retain(|(member, _)| *member != place);
        batch.sheet = None;
        if batch.members.is_empty() {
            self.end(id);
        }
    }

    /// The next slot that is due, if one is. Its successor takes its place at once.
    pub(crate) fn next_slot(&mut self, now: Monotonic) -> Option<Slot> {
        self.refresh();
        loop {
            let Reverse((due, _, id)) = *self.slots.peek().filter(|slot| slot.0.0 <= now)?;
            self.slots.pop();
            if self.batches.get(&id).is_none_or(|batch| batch.due != due) {
                continue; // the batch is gone, or has been given another time
            }
            if self.joins_host(id) {
                continue;
            }
            let missed = self.advance(id, now);
            return Some(Slot { batch: id, due, missed });
        }
    }

    /// When there is something to do next, given that requests may start.
    pub(crate) fn wake_at(&self, may_start: bool) -> Option<Monotonic> {
        let slot = self.slots.peek().map(|slot| slot.0.0);
        let start = (may_start && !self.ready.is_empty()).then_some(self.start_at);
        slot.into_iter().chain(start).min()
    }

    /// Whether the batch is neither waiting nor under way, and was not sent a moment ago.
    pub(crate) fn is_free(&self, id: BatchId, now: Monotonic) -> bool {
        self.batches.get(&id).is_some_and(|batch| {
            let is_fresh = batch.started_at.is_some_and(|at| now.since(at) < self.interval / 2);
            batch.state == State::Idle && !is_fresh
        })
    }

    /// Its slot has come: it waits for a worker.
    pub(crate) fn make_ready(&mut self, id: BatchId, due: Monotonic) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        debug_assert_eq!(batch.state, State::Idle);
        batch.state = State::Ready;
        let since = *batch.owed_since.get_or_insert(due);
        self.ready.insert((since, id));
    }

    /// Whoever waits longest, if a request may start now. It is under way from here on.
    pub(crate) fn start_next(&mut self, now: Monotonic) -> Option<(BatchId, Monotonic)> {
        if self.start_at > now {
            return None;
        }
        let (since, id) = self.ready.pop_first()?;
        let batch = self.batches.get_mut(&id).expect("batches that end are taken out");
        batch.state = State::UnderWay;
        batch.started_at = Some(now);
        let slots = u32::try_from(2 * self.order.len().max(1)).unwrap_or(u32::MAX);
        let gap = (self.interval / slots).min(self.interval / SLIDE);
        let earliest = Monotonic(now.0.saturating_sub(START_SLACK));
        self.start_at = Monotonic(self.start_at.max(earliest).0 + gap);
        Some((id, since))
    }

    /// The request is through. If it never left, the batch still waits as long as it did.
    pub(crate) fn ended(&mut self, id: BatchId, was_sent: bool) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.state = State::Idle;
        if was_sent {
            batch.owed_since = None;
        } else {
            batch.started_at = None;
        }
    }

    /// Nobody waits any more: what is due goes at its next slot.
    pub(crate) fn forgive(&mut self) -> usize {
        let waiting = std::mem::take(&mut self.ready);
        for (_, id) in &waiting {
            if let Some(batch) = self.batches.get_mut(id) {
                batch.state = State::Idle;
            }
        }
        self.batches.values_mut().for_each(|batch| batch.owed_since = None);
        waiting.len()
    }

    /// The venue refused the whole batch because of one of its instruments: halves it, to find out which. `false` if it
    /// is one already, or if so many are refused that the fault cannot be theirs.
    pub(crate) fn split(&mut self, id: BatchId) -> bool {
        self.refresh();
        let suspects = self.batches.values().filter(|batch| batch.kind != Kind::Usual).count();
        let Some(batch) = self.batches.get_mut(&id) else { return false };
        if batch.members.len() < 2 {
            batch.kind = Kind::Solo;
            return false;
        }
        if suspects + 2 > SUSPECTS_MAX {
            return false;
        }
        batch.sheet = None;
        batch.kind = Kind::Suspect;
        let half = batch.members.split_off(batch.members.len().div_ceil(2));
        let is_half = |place: &Place| half.contains(place);
        let (moved, resting) = batch.resting.drain(..).partition(|(place, _)| is_half(place));
        batch.resting = resting;
        let (phase, due, round, rank) = (batch.phase, batch.due, batch.round, batch.rank);
        let trouble = batch.trouble;
        let new = self.begin(Kind::Suspect);
        for place in &half {
            self.batch_of.insert(*place, new);
        }
        let batch = self.batches.get_mut(&new).expect("it was begun just now");
        (batch.members, batch.resting, batch.trouble) = (half, moved, trouble);
        (batch.phase, batch.due, batch.round) = (phase, due, round);
        self.slots.push(Reverse((due, true, new)));
        self.order.insert((rank + 1).min(self.order.len()), new);
        self.rank();
        true
    }

    /// One that was asked for alone was refused: if it is alone in its batch, it stays so.
    pub(crate) fn keep_alone(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.get_mut(&id).filter(|batch| batch.members.len() == 1) {
            batch.kind = Kind::Solo;
        }
    }

    /// It was answered: it is suspected no more.
    pub(crate) fn clear_of_suspicion(&mut self, id: BatchId) {
        if let Some(batch) = self.batches.get_mut(&id) {
            batch.kind = Kind::Usual;
        }
    }

    /// If there are more batches than needed, lets the smallest go. For a quiet moment.
    pub(crate) fn tidy(&mut self) {
        self.refresh();
        if self.leaver.is_some() || self.books_max < 2 {
            return;
        }
        let usual = |id: &&BatchId| self.batches[*id].kind == Kind::Usual;
        let size = |id: &BatchId| self.batches[id].members.len();
        let (count, total) =
            self.order.iter().filter(usual).fold((0, 0), |(count, total), id| (count + 1, total + size(id)));
        if count < 2 || total * 10 > (count - 1) * self.books_max * 9 {
            return;
        }
        let Some(leaver) = self.order.iter().filter(usual).min_by_key(|id| size(id)).copied() else { return };
        let rank = self.batches[&leaver].rank;
        let has_room = |id: &&BatchId| **id != leaver && size(id) + size(&leaver) <= self.books_max;
        let hosts = self.order.iter().filter(usual).filter(has_room);
        let Some(host) = hosts.min_by_key(|id| self.batches[*id].rank.abs_diff(rank)).copied() else {
            return;
        };
        self.batches.get_mut(&leaver).expect("it is in the order").host = Some(host);
        self.leaver = Some(leaver);
        self.rank();
    }

    fn begin(&mut self, kind: Kind) -> BatchId {
        let id = self.next_id;
        self.next_id += 1;
        let batch = Batch {
            members: Vec::new(),
            resting: Vec::new(),
            rests_until: None,
            has_failed: false,
            sheet: None,
            trouble: None,
            owed_since: None,
            started_at: None,
            state: State::Idle,
            kind,
            phase: Duration::ZERO,
            round: 0,
            due: Monotonic::default(),
            rank: 0,
            host: None,
        };
        self.batches.insert(id, batch);
        id
    }

    /// Gives a new batch its first slot.
    fn enter(&mut self, id: BatchId, phase: Duration, now: Monotonic) {
        let past = now.since(Monotonic(self.epoch.0 + phase));
        let round = past.as_nanos().div_ceil(self.interval.as_nanos()) as u64;
        let due = self.slot_at(round, phase);
        let batch = self.batches.get_mut(&id).expect("it was begun just now");
        (batch.phase, batch.round, batch.due) = (phase, round, due);
        self.slots.push(Reverse((due, true, id)));
    }

    fn end(&mut self, id: BatchId) {
        let batch = self.batches.remove(&id).expect("it ends once");
        if let Some(since) = batch.owed_since {
            self.ready.remove(&(since, id));
        }
        if self.leaver == Some(id) {
            self.leaver = None;
        }
        self.is_order_stale = true;
    }

    /// The batch's next slot. Gives back how many have passed meanwhile.
    fn advance(&mut self, id: BatchId, now: Monotonic) -> u64 {
        let target = self.target(id);
        let step = self.interval / SLIDE;
        let batch = &self.batches[&id];
        let phase = target.clamp(batch.phase.saturating_sub(step), batch.phase + step);
        let next = self.slot_at(batch.round + 1, phase);
        let missed = (now.since(next).as_nanos() / self.interval.as_nanos()) as u64;
        let round = batch.round + 1 + missed;
        let due = self.slot_at(round, phase);
        let batch = self.batches.get_mut(&id).expect("it was there just now");
        (batch.phase, batch.round, batch.due) = (phase, round, due);
        self.slots.push(Reverse((due, batch.host.is_none(), id)));
        missed
    }

    /// A leaving batch that is due at the same time as its host hands it everybody.
    fn joins_host(&mut self, id: BatchId) -> bool {
        let Some(host) = self.batches[&id].host else { return false };
        let size = self.batches[&id].members.len();
        let is_welcome = self
            .batches
            .get(&host)
            .is_some_and(|host| host.kind == Kind::Usual && host.members.len() + size <= self.books_max);
        if !is_welcome {
            let batch = self.batches.get_mut(&id).expect("it was there just now");
            batch.host = None;
            self.leaver = None;
            let at = self.order.partition_point(|other| self.batches[other].phase <= self.batches[&id].phase);
            self.order.insert(at, id);
            self.rank();
            return false;
        }
        if self.batches[&id].due != self.batches[&host].due || self.batches[&id].state != State::Idle {
            return false;
        }
        let batch = self.batches.remove(&id).expect("it was there just now");
        for place in &batch.members {
            self.batch_of.insert(*place, host);
        }
        let host = self.batches.get_mut(&host).expect("it was there just now");
        host.members.extend(batch.members);
        host.resting.extend(batch.resting);
        host.sheet = None;
        self.leaver = None;
        true
    }

    fn slot_at(&self, round: u64, phase: Duration) -> Monotonic {
        let rounds = Duration::from_nanos(self.interval.as_nanos() as u64 * round);
        Monotonic(self.epoch.0 + rounds + phase)
    }

    /// Where its phase belongs.
    fn target(&self, id: BatchId) -> Duration {
        let batch = &self.batches[&id];
        match batch.host.and_then(|host| self.batches.get(&host)) {
            Some(host) => host.phase,
            None => {
                let nanos = self.interval.as_nanos() * batch.rank as u128 / self.order.len().max(1) as u128;
                Duration::from_nanos(nanos as u64)
            }
        }
    }

    fn refresh(&mut self) {
        if self.is_order_stale {
            self.rank();
        }
    }

    fn rank(&mut self) {
        self.is_order_stale = false;
        let batches = &self.batches;
        self.order.retain(|id| batches.get(id).is_some_and(|batch| batch.host.is_none()));
        for (rank, id) in self.order.iter().enumerate() {
            self.batches.get_mut(id).expect("only these were retained").rank = rank;
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
