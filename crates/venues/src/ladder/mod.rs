//! Live order books: one [`Ladder`] for each instrument, fed with the venue's own messages.
//!
//! ```text
//! BookForm (data, from a descriptor) ─▶ BookPlan (pointers made ready, shared) ─▶ Ladder ─▶ Verdict for each message
//! ```
//!
//! * [`BookForm`]: how messages read and what holds them together; [`BookPlan`]: the same, made ready
//! * [`Ladder`]: a book, its sequence, its checks; [`Verdict`]: what became of a message
//!
//! A message is read in one pass and checked as a whole before anything of it is applied. What is malformed, missing,
//! out of order or disproved by the venue's own checksum is said at once, and the book is then not to be used until the
//! next snapshot: a wrong book is never silent. Levels keep the venue's text, for checksums and for output.
//!
//! Deliberately absent: nothing here asks for a snapshot, waits or keeps time; the runtime does, told by the verdicts.
//! There are no books of single orders, and no deltas that add to a size (Kalshi).

mod amount;
mod check;
mod form;
mod half;
mod keep;
mod level;
mod plan;
mod proof;
mod scan;
mod sequence;
mod verdict;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use catchment_model::UnixMs;

pub use form::{
    Act, BookForm, Checksum, CrcAmounts, CrcOrder, LevelForm, MessageForm, OneOrMore, Place, SequenceRule,
    Terms, When,
};
pub use plan::{BookPlan, FormError, Side};
pub use verdict::{Checked, Digest, Ignored, Outcome, Unreadable, Verdict, Why};

use check::{Crc, as_crc};
use half::{Half, Texts};
use level::LevelMould;
use plan::{Kind, Member, Reading};
use proof::Proof;
use scan::{Change, Item, Scan, Span, as_text};
use sequence::{Chain, Numbers, Step};

use crate::mould::Two;

/// So many changes are merged into the book at once: one by one, each might move all the levels above it.
const MANY: usize = 128;

/// The live book of one instrument.
#[derive(Debug)]
pub struct Ladder {
    plan: Arc<BookPlan>,
    instrument: Box<[u8]>,
    state: LadderState,
    epoch: u32,
    /// Prices are whole numbers of 10^-`places`.
    places: u8,
    bids: Half,
    asks: Half,
    chain: Chain,
    buffer: VecDeque<Box<[u8]>>,
    buffer_bytes: usize,
    proof: Proof,
    /// What was proved of the book as it is.
    checked: Checked,
    scan: Scan,
    moulds: Two<LevelMould>,
    text: Vec<u8>,
}

/// What a ladder's book is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LadderState {
    /// There was no snapshot yet; the stream will send one.
    Empty,
    /// A snapshot over REST is needed. What the stream sends is kept for it.
    Buffering,
    /// The book is what the venue has, as far as can be known.
    Live,
    /// Something was lost or wrong. The book is empty until the stream sends a snapshot.
    Broken,
}

/// A level, best first, in the venue's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelText<'a> {
    /// The price.
    pub price: &'a str,
    /// The size.
    pub size: &'a str,
}

impl Ladder {
    /// An empty book. `instrument` is the venue's own name, as its messages have it; messages of others are ignored if
    /// the form says where the name is.
    pub fn new(plan: &Arc<BookPlan>, instrument: &str) -> Self {
        let mut ladder = Self {
            plan: Arc::clone(plan),
            instrument: instrument.as_bytes().into(),
            state: LadderState::Empty,
            epoch: 0,
            places: 0,
            bids: Half::default(),
            asks: Half::default(),
            chain: Chain::new(plan.sequence),
            buffer: VecDeque::new(),
            buffer_bytes: 0,
            proof: Proof::default(),
            checked: Checked::None,
            scan: Scan::default(),
            moulds: Two::default(),
            text: Vec::new(),
        };
        ladder.state = ladder.state_without_book(LadderState::Empty);
        ladder
    }

    /// Takes a message of the stream.
    pub fn message(&mut self, message: &[u8]) -> Verdict {
        match as_text(message) {
            Ok(text) => self.message_text(text),
            Err(unreadable) => {
                let verdict = self.refuse(unreadable);
                self.noted(verdict)
            }
        }
    }

    /// The same for a message that is known to be text.
    pub fn message_text(&mut self, message: &str) -> Verdict {
        let plan = Arc::clone(&self.plan);
        let mut scan = std::mem::take(&mut self.scan);
        let verdict = match scan.read(&plan.stream, message, &mut self.moulds) {
            Ok(()) => self.items(&plan.stream, message.as_bytes(), &mut scan),
            Err(unreadable) => self.refuse(unreadable),
        };
        scan.shrink();
        self.scan = scan;
        self.noted(verdict)
    }

    /// Takes the answer to a request for a snapshot, and applies what was kept for it.
    pub fn rest_snapshot(&mut self, body: &[u8]) -> Verdict {
        let plan = Arc::clone(&self.plan);
        let Some(reading) = &plan.rest else { return self.ignore(Ignored::NotABook) };
        let mut scan = std::mem::take(&mut self.scan);
        let read = as_text(body).and_then(|text| scan.read(reading, text, &mut self.moulds));
        let verdict = match read {
            Ok(()) => self.rest_items(reading, body, &mut scan),
            // The stream goes on as it was: only this answer is of no use.
            Err(unreadable) => self.verdict(Outcome::Unreadable(unreadable), Checked::None),
        };
        scan.shrink();
        self.scan = scan;
        self.noted(verdict)
    }

    /// Says that no more of a batch will come. Where a hash was still to be met (Polymarket), this is its verdict.
    pub fn settle(&mut self) -> Option<Verdict> {
        let (expected, computed) =
            self.proof.settle(&self.instrument, &self.bids, &self.asks, &mut self.text)?;
        Some(self.mismatch(Digest::Sha1(expected), Digest::Sha1(computed)))
    }

    /// Forgets the book: the connection is a new one.
    pub fn reset(&mut self) {
        self.lose(LadderState::Empty);
    }

    /// What the book is worth.
    pub fn state(&self) -> LadderState {
        self.state
    }

    /// How often the terms of the book changed.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The market it belongs to, where the venue has several books of one and says which it is.
    pub fn market(&self) -> Option<&str> {
        self.proof.market()
    }

    /// The number of the last change in the book, where the venue numbers them.
    pub fn sequence(&self) -> Option<i64> {
        self.chain.book()
    }

    /// Messages kept for a snapshot.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// How many levels a side has.
    pub fn len(&self, side: Side) -> usize {
        self.half(side).len()
    }

    /// Whether neither side has a level.
    pub fn is_empty(&self) -> bool {
        self.bids.len() + self.asks.len() == 0
    }

    /// The levels of a side, best first.
    pub fn levels(&self, side: Side) -> impl ExactSizeIterator<Item = LevelText<'_>> {
        self.half(side).best_first().map(level_text)
    }

    /// The best level of a side.
    pub fn best(&self, side: Side) -> Option<LevelText<'_>> {
        self.half(side).best_first().next().map(level_text)
    }

    /// Whether the best bid is not below the best ask.
    pub fn is_crossed(&self) -> bool {
        matches!((self.bids.best(), self.asks.best()), (Some(bid), Some(ask)) if bid >= !ask)
    }

    /// Appends the book as the payload of channel `orderbook`: the same keys as polled books have, with `sequence` and
    /// `epoch` under `extra`; `hash_ok` is what the venue's checksum or hash said of the book as it is. `symbol` is the instrument's name there; `depth` is the number of levels a side.
    pub fn write_snapshot(&self, symbol: &str, time: Option<UnixMs>, depth: usize, out: &mut Vec<u8>) {
        let proof = &self.proof;
        put(out, "{\"market\":", proof.market());
        put(out, ",\"instrument\":", Some(symbol));
        out.extend_from_slice(b",\"timestamp_ms\":");
        put_number(out, time.map(UnixMs::get));
        for (opening, half) in [(",\"bids\":[", &self.bids), ("],\"asks\":[", &self.asks)] {
            out.extend_from_slice(opening.as_bytes());
            for (at, level) in half.best_first().take(depth).enumerate() {
                out.extend_from_slice(if at == 0 { b"[\"" } else { b",[\"" });
                out.extend_from_slice(level.price());
                out.extend_from_slice(b"\",\"");
                out.extend_from_slice(level.size());
                out.extend_from_slice(b"\"]");
            }
        }
        put(out, "],\"min_order_size\":", proof.min_order_size());
        put(out, ",\"tick_size\":", proof.tick_size());
        out.extend_from_slice(b",\"neg_risk\":");
        out.extend_from_slice(match proof.neg_risk() {
            Some(true) => b"true",
            Some(false) => b"false",
            None => b"null",
        });
        put(out, ",\"last_trade_price\":", proof.last_trade_price());
        out.extend_from_slice(b",\"hash\":null,\"hash_ok\":");
        out.extend_from_slice(match self.checked {
            Checked::Agrees => b"true",
            Checked::Differs => b"false",
            Checked::None | Checked::Pending => b"null",
        });
        out.extend_from_slice(b",\"flags\":[");
        if self.is_crossed() {
            out.extend_from_slice(b"\"crossed\"");
        }
        out.extend_from_slice(b"],\"extra\":{\"sequence\":");
        put_number(out, self.sequence());
        out.extend_from_slice(b",\"epoch\":");
        put_number(out, Some(i64::from(self.epoch)));
        out.extend_from_slice(b"}}");
    }

    fn half(&self, side: Side) -> &Half {
        match side {
            Side::Bid => &self.bids,
            Side::Ask => &self.asks,
        }
    }

    /// All items of a message, one after another. The first that ends the book ends the message.
    fn items(&mut self, reading: &Reading, message: &[u8], scan: &mut Scan) -> Verdict {
        let mut worst: Option<Verdict> = None;
        for at in 0..scan.items.len() {
            let Some(kind) = kind_of(reading, scan, at, message) else { continue };
            let verdict = match self.is_ours(kind, scan, at, message) {
                Ok(true) => self.item(reading, kind, message, scan, at),
                Ok(false) => self.ignore(Ignored::OtherInstrument),
                Err(why) => self.refuse(Unreadable { why, at: 0 }),
            };
            if verdict.outcome.needs_resync() {
                return verdict;
            }
            worst = Some(match worst {
                Some(before) => joined(before, verdict),
                None => verdict,
            });
            // Kept whole: the items after this one are kept with it.
            if verdict.outcome == Outcome::Buffered {
                break;
            }
        }
        let verdict = worst.unwrap_or_else(|| self.ignore(Ignored::NotABook));
        self.prove_batch(verdict)
    }

    fn is_ours(&self, kind: &Kind, scan: &Scan, at: usize, message: &[u8]) -> Result<bool, Why> {
        let Some(member) = kind.instrument else { return Ok(true) };
        if self.instrument.is_empty() {
            return Ok(true);
        }
        let span = span(member, scan, at);
        if !span.there {
            return Err(Why::NoInstrument);
        }
        Ok(same(span, message, &self.instrument))
    }

    fn item(
        &mut self,
        reading: &Reading,
        kind: &Kind,
        message: &[u8],
        scan: &mut Scan,
        at: usize,
    ) -> Verdict {
        let numbers = match numbers(kind, scan, at, message) {
            Ok(numbers) => numbers,
            Err(unreadable) => return self.refuse(unreadable),
        };
        let restarted = self.plan.restart.is_some() && numbers.last == self.plan.restart;
        match kind.act {
            Act::Ignore => self.ignore(Ignored::NotABook),
            Act::Snapshot => self.snapshot(reading, kind, message, scan, at, numbers),
            Act::Delta if restarted => self.snapshot(reading, kind, message, scan, at, numbers),
            Act::Delta => self.delta(reading, kind, message, scan, at, numbers),
            Act::Epoch => {
                self.proof.note(kind, scan, at, message);
                self.epoch += 1;
                self.proof.new_terms();
                self.verdict(Outcome::NewEpoch, Checked::None)
            }
            Act::Terms => {
                self.proof.note(kind, scan, at, message);
                self.ignore(Ignored::TermsNoted)
            }
        }
    }

    fn delta(
        &mut self,
        reading: &Reading,
        kind: &Kind,
        message: &[u8],
        scan: &mut Scan,
        at: usize,
        numbers: Numbers,
    ) -> Verdict {
        match self.state {
            LadderState::Empty | LadderState::Broken => return self.ignore(Ignored::NoBook),
            LadderState::Buffering => return self.keep(message, numbers),
            LadderState::Live => {}
        }
        let found = self.find_changes(reading, kind, message, scan, at);
        if let Err(unreadable) = found.and_then(|()| self.rank(scan, at, false)) {
            return self.refuse(unreadable);
        }
        // A hash that was not met by the batch before is not met any more.
        if let Some((expected, computed)) = self.unmet(kind, message, scan, at) {
            return self.mismatch(expected, computed);
        }
        match self.chain.step(numbers) {
            Step::Apply => {}
            Step::KeepAlive if scan.changes.iter().any(|change| usize::from(change.item) == at) => {}
            Step::KeepAlive => {
                return self.finish(kind, message, scan, at, Outcome::Ignored(Ignored::KeepAlive));
            }
            Step::Stale => return self.ignore(Ignored::Stale),
            Step::Duplicate => return self.ignore(Ignored::Duplicate),
            Step::Bad => return self.refuse(Unreadable { why: Why::BadSequence, at: 0 }),
            Step::Gap { first_missing, last_missing } => {
                self.lose(LadderState::Broken);
                if self.state == LadderState::Buffering {
                    let _ = self.keep(message, numbers);
                }
                return self.verdict(Outcome::Gap { first_missing, last_missing }, Checked::None);
            }
        }
        if scan.changes.len() < MANY {
            for change in scan.changes.iter().filter(|change| usize::from(change.item) == at) {
                self.apply(change, message);
            }
        } else {
            self.apply_many(message, scan, at);
        }
        if self.bids.len().max(self.asks.len()) > self.plan.levels_max {
            return self.refuse(Unreadable { why: Why::TooManyLevels, at: 0 });
        }
        self.finish(kind, message, scan, at, Outcome::Applied)
    }

    #[inline]
    fn apply(&mut self, change: &Change, message: &[u8]) {
        let half = if change.ask { &mut self.asks } else { &mut self.bids };
        half.apply(change, message);
    }

    fn snapshot(
        &mut self,
        reading: &Reading,
        kind: &Kind,
        message: &[u8],
        scan: &mut Scan,
        at: usize,
        numbers: Numbers,
    ) -> Verdict {
        if let Err(unreadable) = self.find_changes(reading, kind, message, scan, at) {
            return self.refuse(unreadable);
        }
        self.chain.snapshot(numbers.last);
        if let Err(unreadable) = self.replace(message, scan, at) {
            return self.refuse(unreadable);
        }
        self.forget_buffer();
        self.state = LadderState::Live;
        self.finish(kind, message, scan, at, Outcome::Replaced)
    }

    fn rest_items(&mut self, reading: &Reading, body: &[u8], scan: &mut Scan) -> Verdict {
        let kind = &reading.kinds[0];
        let ours = (0..scan.items.len())
            .find(|at| fits(kind, scan, *at, body) && self.is_ours(kind, scan, *at, body) == Ok(true));
        let Some(at) = ours else { return self.ignore(Ignored::NotABook) };
        let useless = |why| Outcome::Unreadable(Unreadable { why, at: 0 });
        if self.state == LadderState::Live {
            self.proof.note(kind, scan, at, body);
            return self.ignore(Ignored::AlreadyLive);
        }
        let read = numbers(kind, scan, at, body)
            .and_then(|numbers| self.find_changes(reading, kind, body, scan, at).map(|()| numbers));
        let numbers = match read {
            Ok(numbers) => numbers,
            Err(unreadable) => return self.verdict(Outcome::Unreadable(unreadable), Checked::None),
        };
        let kept = self.buffer.len();
        if kept > 0 && self.is_too_old(numbers.last) {
            return self.ignore(Ignored::SnapshotTooOld);
        }
        if self.chain.snapshot_aside(numbers.last).is_err() {
            return self.verdict(useless(Why::BadSequence), Checked::None);
        }
        if let Err(unreadable) = self.replace(body, scan, at) {
            self.bids.clear();
            self.asks.clear();
            return self.verdict(Outcome::Unreadable(unreadable), Checked::None);
        }
        self.state = LadderState::Live;
        let verdict = self.finish(kind, body, scan, at, Outcome::Replaced);
        if self.state == LadderState::Live { self.apply_kept(verdict) } else { verdict }
    }
}

fn level_text(level: &Texts) -> LevelText<'_> {
    let text = |bytes| std::str::from_utf8(bytes).expect("an amount is made of ASCII characters");
    LevelText { price: text(level.price()), size: text(level.size()) }
}

/// What two items of one message come to.
fn joined(before: Verdict, after: Verdict) -> Verdict {
    let nothing = |verdict: &Verdict| matches!(verdict.outcome, Outcome::Ignored(_));
    match (nothing(&before), nothing(&after)) {
        (false, true) => Verdict { crossed: after.crossed, ..before },
        _ => after,
    }
}

fn kind_of<'r>(reading: &'r Reading, scan: &Scan, at: usize, message: &[u8]) -> Option<&'r Kind> {
    reading.kind(|kind| fits(kind, scan, at, message), scan.items[at].lists)
}

/// Whether an item is of a kind.
fn fits(kind: &Kind, scan: &Scan, at: usize, message: &[u8]) -> bool {
    kind.scope == scan.items[at].scope
        && kind.when.iter().all(|(member, values)| {
            let span = span(*member, scan, at);
            span.there && values.iter().any(|value| same(span, message, value))
        })
}

#[inline]
fn span(member: Member, scan: &Scan, at: usize) -> Span {
    let item: &Item = &scan.items[at];
    let item = if member.outer { &scan.items[usize::from(item.outer)] } else { item };
    scan.spans[item.spans_at as usize + usize::from(member.slot)]
}

/// Whether a noted member is this text.
#[inline]
fn same(span: Span, message: &[u8], text: &[u8]) -> bool {
    let bytes = span.of(message);
    if span.escaped { unescaped(bytes).is_some_and(|plain| plain.as_bytes() == text) } else { bytes == text }
}

#[cold]
fn unescaped(inside: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", inside, b"\""].concat()).ok()
}

fn numbers(kind: &Kind, scan: &Scan, at: usize, message: &[u8]) -> Result<Numbers, Unreadable> {
    let read = |member: Option<Member>| {
        let Some(span) = member.map(|member| span(member, scan, at)).filter(|span| span.there) else {
            return Ok(None);
        };
        let bad = Unreadable { why: Why::BadSequence, at: span.start() };
        amount::integer(span.of(message)).map(Some).ok_or(bad)
    };
    Ok(Numbers { first: read(kind.first)?, last: read(kind.last)?, previous: read(kind.previous)? })
}

fn put(out: &mut Vec<u8>, key: &str, text: Option<&str>) {
    out.extend_from_slice(key.as_bytes());
    match text {
        Some(text) => {
            serde_json::to_writer(out, text).expect("a vector takes everything, and text always serialises");
        }
        None => out.extend_from_slice(b"null"),
    }
}

fn put_number(out: &mut Vec<u8>, number: Option<i64>) {
    match number {
        Some(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}
