//! The ladder's inner work: what it does when a book begins, ends, waits for its snapshot, or is to be proved.

use std::sync::Arc;

use super::plan::{Kind, Member, Reading};
use super::scan::{Change, Scan, as_text};
use super::sequence::{Numbers, Step};
use super::{
    Checked, Checksum, Crc, Digest, Ignored, Ladder, LadderState, Outcome, Unreadable, Verdict, Why, amount,
    as_crc, span,
};
use crate::mould::Two;

impl Ladder {
    pub(super) fn verdict(&self, outcome: Outcome, checked: Checked) -> Verdict {
        Verdict { outcome, checked, crossed: self.is_crossed() }
    }

    /// What a message has proved stays true until the book changes.
    pub(super) fn noted(&mut self, verdict: Verdict) -> Verdict {
        if !matches!(verdict.outcome, Outcome::Ignored(_)) {
            self.checked = verdict.checked;
        }
        verdict
    }

    pub(super) fn ignore(&self, why: Ignored) -> Verdict {
        self.verdict(Outcome::Ignored(why), Checked::None)
    }

    /// The message is of no use, and with it the book.
    pub(super) fn refuse(&mut self, unreadable: Unreadable) -> Verdict {
        self.lose(LadderState::Broken);
        self.verdict(Outcome::Unreadable(unreadable), Checked::None)
    }

    pub(super) fn mismatch(&mut self, expected: Digest, computed: Digest) -> Verdict {
        self.lose(LadderState::Broken);
        self.verdict(Outcome::Mismatch { expected, computed }, Checked::Differs)
    }

    /// Ends the book. Where snapshots come over REST, keeping begins.
    pub(super) fn lose(&mut self, state: LadderState) {
        self.bids.clear();
        self.asks.clear();
        self.chain.reset();
        self.forget_buffer();
        self.proof.forget_batch();
        self.state = self.state_without_book(state);
    }

    pub(super) fn state_without_book(&self, state: LadderState) -> LadderState {
        if self.plan.snapshot_over_rest() { LadderState::Buffering } else { state }
    }

    pub(super) fn forget_buffer(&mut self) {
        self.buffer.clear();
        self.buffer_bytes = 0;
    }

    /// Keeps a message until the snapshot is there.
    pub(super) fn keep(&mut self, message: &[u8], numbers: Numbers) -> Verdict {
        let mut outcome = match self.chain.follow(numbers) {
            Step::Apply | Step::Stale | Step::KeepAlive => Outcome::Buffered,
            Step::Duplicate => return self.ignore(Ignored::Duplicate),
            Step::Bad => return self.refuse(Unreadable { why: Why::BadSequence, at: 0 }),
            Step::Gap { first_missing, last_missing } => {
                self.forget_buffer();
                self.chain.reset();
                let _ = self.chain.follow(numbers);
                Outcome::Gap { first_missing, last_missing }
            }
        };
        let full = self.buffer.len() >= self.plan.buffer_messages_max
            || self.buffer_bytes + message.len() > self.plan.buffer_bytes_max;
        if full {
            outcome = Outcome::BufferFull { dropped: self.buffer.len() };
            self.forget_buffer();
        }
        // A single message above the limit is not kept: the snapshot is then found to be too old, or the gap is seen.
        if message.len() <= self.plan.buffer_bytes_max {
            self.buffer_bytes += message.len();
            self.buffer.push_back(message.into());
        }
        self.verdict(outcome, Checked::None)
    }

    /// Whether a snapshot ends before the first message kept begins.
    pub(super) fn is_too_old(&mut self, last: Option<i64>) -> bool {
        let (Some(last), Some(first)) = (last, self.buffer.front()) else { return false };
        let plan = Arc::clone(&self.plan);
        let mut scan = Scan::default();
        let read = as_text(first).and_then(|text| scan.read(&plan.stream, text, &mut Two::default()));
        if read.is_err() {
            return true;
        }
        // Kept because it was read once, so the first item that fits is the one that was kept.
        let fitting = (0..scan.items.len())
            .find_map(|at| super::kind_of(&plan.stream, &scan, at, first).map(|kind| (kind, at)));
        let Some((kind, at)) = fitting else { return false };
        let numbers = super::numbers(kind, &scan, at, first).unwrap_or_default();
        let begins =
            numbers.previous.map(|previous| previous.saturating_add(1)).or(numbers.first).or(numbers.last);
        match self.plan.sequence {
            super::SequenceRule::None | super::SequenceRule::Later => false,
            _ => begins.is_some_and(|begins| begins > last.saturating_add(1)),
        }
    }

    /// Applies what was kept, after a snapshot.
    pub(super) fn apply_kept(&mut self, snapshot: Verdict) -> Verdict {
        let kept = std::mem::take(&mut self.buffer);
        self.buffer_bytes = 0;
        // The kept messages come once more, this time for the book.
        self.chain.rewind();
        let mut last = snapshot;
        for message in kept {
            let verdict = self.message(&message);
            match verdict.outcome {
                // What follows a gap is kept again, by `message` itself; what is unreadable was so before.
                Outcome::Gap { .. } | Outcome::Mismatch { .. } | Outcome::Unreadable(_) => last = verdict,
                _ if last.outcome == snapshot.outcome => {
                    last = Verdict { outcome: snapshot.outcome, ..verdict }
                }
                _ => {}
            }
        }
        if last.outcome == snapshot.outcome && last.checked == Checked::None {
            last.checked = snapshot.checked;
        }
        Verdict { crossed: self.is_crossed(), ..last }
    }

    /// Makes sure that the levels of an item are among the changes.
    pub(super) fn find_changes(
        &self,
        reading: &Reading,
        kind: &Kind,
        message: &[u8],
        scan: &mut Scan,
        at: usize,
    ) -> Result<(), Unreadable> {
        if let Some(single) = &kind.single {
            let list = &reading.lists[usize::from(single.list)];
            let spans = [single.price, single.size, single.side].map(|member| span(member, scan, at));
            if spans.iter().any(|span| !span.there) {
                return Err(Unreadable { why: Why::LevelShape, at: 0 });
            }
            let mut change = Scan::single(message, list, spans[0], spans[1], spans[2])?;
            change.item = u16::try_from(at).map_err(|_| Unreadable { why: Why::TooLarge, at: 0 })?;
            scan.changes.push(change);
            return Ok(());
        }
        let item = &scan.items[at];
        match item.bad_list {
            Some(unreadable) => Err(unreadable),
            None if item.lists & kind.lists == 0 => Err(Unreadable { why: Why::NoLevels, at: 0 }),
            None => Ok(()),
        }
    }

    /// Makes the price of each change a number of the book's units. The unit is the smallest that a snapshot needs, and becomes smaller if a change needs
    /// that.
    pub(super) fn rank(&mut self, scan: &mut Scan, at: usize, anew: bool) -> Result<(), Unreadable> {
        let too_precise = Unreadable { why: Why::TooPrecise, at: 0 };
        let own = |change: &&mut Change| usize::from(change.item) == at;
        if anew {
            let places = scan.changes.iter_mut().filter(own).map(|change| change.places);
            self.places = places.max().unwrap_or(0);
        }
        for change in scan.changes.iter_mut().filter(own).filter(|change| change.places != self.places) {
            let units = match change.price().in_units(self.places) {
                Some(units) => units,
                None if anew => return self.rank_in_fewest(scan, at),
                None => {
                    let places = change.price().places_needed();
                    if places <= self.places || !self.rescale(places) {
                        return Err(too_precise);
                    }
                    // Those before it are in the old unit: begin again. There are few units to go through.
                    return self.rank(scan, at, false);
                }
            };
            (change.mantissa, change.places) = (units, self.places);
        }
        Ok(())
    }

    /// The same for a snapshot whose prices only fit without the zeros at their ends.
    #[cold]
    fn rank_in_fewest(&mut self, scan: &mut Scan, at: usize) -> Result<(), Unreadable> {
        let own = |change: &&mut Change| usize::from(change.item) == at;
        let needed = scan.changes.iter_mut().filter(own).map(|change| change.price().places_needed());
        self.places = needed.max().unwrap_or(0);
        for change in scan.changes.iter_mut().filter(own) {
            let units =
                change.price().in_units(self.places).ok_or(Unreadable { why: Why::TooPrecise, at: 0 })?;
            (change.mantissa, change.places) = (units, self.places);
        }
        Ok(())
    }

    /// Makes the unit of the book smaller.
    #[cold]
    fn rescale(&mut self, places: u8) -> bool {
        let factor = 10_u64.pow(u32::from(places - self.places));
        self.places = places;
        self.bids.rescale(factor, false) && self.asks.rescale(factor, true)
    }

    /// Merges many changes. Of two for one price the later counts.
    pub(super) fn apply_many(&mut self, message: &[u8], scan: &Scan, at: usize) {
        for (ask, half) in [(false, &mut self.bids), (true, &mut self.asks)] {
            let own = |change: &&Change| usize::from(change.item) == at && change.ask == ask;
            let mut changes: Vec<&Change> = scan.changes.iter().filter(own).collect();
            changes.sort_by_key(|change| change.rank());
            half.merge(&changes, message);
        }
    }

    /// Makes the item's levels the book.
    pub(super) fn replace(&mut self, message: &[u8], scan: &mut Scan, at: usize) -> Result<(), Unreadable> {
        self.bids.clear();
        self.asks.clear();
        self.rank(scan, at, true)?;
        let mut levels: Vec<_> =
            scan.changes.iter().filter(|change| usize::from(change.item) == at).collect();
        // A venue sends best first or best last; either is a run, and sorting runs is quick.
        levels.sort_by_key(|change| (change.ask, change.rank()));
        for change in levels.into_iter().filter(|change| !change.gone) {
            let half = if change.ask { &mut self.asks } else { &mut self.bids };
            if !half.push(change, message) {
                return Err(Unreadable { why: Why::PriceTwice, at: 0 });
            }
        }
        if self.bids.len().max(self.asks.len()) > self.plan.levels_max {
            return Err(Unreadable { why: Why::TooManyLevels, at: 0 });
        }
        Ok(())
    }

    /// After the levels: cuts to the depth and looks at the checksum.
    pub(super) fn finish(
        &mut self,
        kind: &Kind,
        message: &[u8],
        scan: &Scan,
        at: usize,
        outcome: Outcome,
    ) -> Verdict {
        if let Some(depth) = self.plan.depth {
            self.bids.truncate(depth);
            self.asks.truncate(depth);
        }
        let sent = kind.checksum.map(|member| span(member, scan, at)).filter(|span| span.there);
        if self.plan.checksum.is_none() {
            return self.verdict(outcome, Checked::None);
        }
        let plan = Arc::clone(&self.plan);
        match &plan.checksum {
            None => self.verdict(outcome, Checked::None),
            Some(Checksum::PolymarketHash) => self.take_hash(kind, message, scan, at, outcome),
            Some(Checksum::Crc32 { levels, order, amounts, join, absent }) => {
                let Some(sent) = sent else { return self.verdict(outcome, Checked::None) };
                let value = amount::integer(sent.of(message));
                if value.is_some() && value == *absent {
                    return self.verdict(outcome, Checked::None);
                }
                let Some(expected) = value.and_then(as_crc) else {
                    return self.refuse(Unreadable { why: Why::BadChecksum, at: sent.start() });
                };
                let crc = Crc { levels: *levels, order: *order, amounts: *amounts, join };
                let computed = crc.of(&self.bids, &self.asks, &mut self.text);
                if expected == computed {
                    self.verdict(outcome, Checked::Agrees)
                } else {
                    self.mismatch(Digest::Crc32(expected), Digest::Crc32(computed))
                }
            }
        }
    }

    /// A hash that came with an item: proved at once for a snapshot, noted for a change.
    fn take_hash(
        &mut self,
        kind: &Kind,
        message: &[u8],
        scan: &Scan,
        at: usize,
        outcome: Outcome,
    ) -> Verdict {
        if outcome == Outcome::Replaced {
            self.proof.note(kind, scan, at, message);
        }
        let hash = match self.proof.sent(kind, scan, at, message) {
            Ok(Some(hash)) => hash,
            Ok(None) => return self.verdict(outcome, Checked::None),
            Err(why) => return self.refuse(Unreadable { why, at: 0 }),
        };
        if outcome == Outcome::Replaced {
            let told = |member: Option<Member>| member.is_some_and(|member| span(member, scan, at).there);
            let whole = told(kind.tick_size) && told(kind.last_trade_price);
            let (bids, asks) = (&self.bids, &self.asks);
            let checked = self.proof.snapshot(hash, whole, &self.instrument, bids, asks, &mut self.text);
            return self.verdict(outcome, checked);
        }
        self.proof.expect(hash, kind, scan, at, message);
        self.verdict(outcome, Checked::None)
    }

    /// Before a change: whether the batch before it, if this is another one, was proved.
    pub(super) fn unmet(
        &mut self,
        kind: &Kind,
        message: &[u8],
        scan: &Scan,
        at: usize,
    ) -> Option<(Digest, Digest)> {
        if !self.proof.is_another_batch(kind, scan, at, message) {
            return None;
        }
        let (expected, computed) =
            self.proof.settle(&self.instrument, &self.bids, &self.asks, &mut self.text)?;
        Some((Digest::Sha1(expected), Digest::Sha1(computed)))
    }

    /// After a message: whether the batch is proved by now.
    pub(super) fn prove_batch(&mut self, verdict: Verdict) -> Verdict {
        if verdict.outcome != Outcome::Applied {
            return verdict;
        }
        match self.proof.batch(&self.instrument, &self.bids, &self.asks, &mut self.text) {
            Some(checked) => Verdict { checked, ..verdict },
            None => verdict,
        }
    }
}
