//! Whether a message follows the one before it.
//!
//! Two places are kept: where the book stands, and where the stream stands. They differ after a snapshot over REST,
//! which may be ahead of the stream. What is behind both was here before (two connections for a while, a venue that
//! repeats itself), unless it is further behind than what the last messages covered: then the venue began to count anew,
//! and to call that old would freeze the book without a word.

use super::form::SequenceRule;

/// Numbers of the last messages that are remembered.
const RECENT: usize = 64;

/// The numbers a message carries; which of them matter is the rule's.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) first: Option<i64>,
    pub(super) last: Option<i64>,
    pub(super) previous: Option<i64>,
}

/// How a message follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Apply,
    /// In the book already, by way of the snapshot.
    Stale,
    Duplicate,
    KeepAlive,
    Gap {
        first_missing: Option<i64>,
        last_missing: Option<i64>,
    },
    /// A number that the rule needs is missing or makes no sense.
    Bad,
}

const RESTARTED: Step = Step::Gap { first_missing: None, last_missing: None };

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Chain {
    rule: SequenceRule,
    /// Everything up to here is in the book.
    book: Option<i64>,
    /// The stream is here.
    stream: Option<i64>,
    /// The snapshot had no number, so neither need the changes have one (OKX before 2023).
    unnumbered: bool,
    /// What the last messages brought, in a ring.
    recent: [i64; RECENT],
    recent_len: usize,
    recent_next: usize,
}

impl Chain {
    pub(super) fn new(rule: SequenceRule) -> Self {
        Self {
            rule,
            book: None,
            stream: None,
            unnumbered: false,
            recent: [0; RECENT],
            recent_len: 0,
            recent_next: 0,
        }
    }

    /// Where the book stands.
    pub(super) fn book(&self) -> Option<i64> {
        self.book
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.rule);
    }

    /// A snapshot of the stream itself: what was before does not matter.
    pub(super) fn snapshot(&mut self, last: Option<i64>) {
        if self.rule == SequenceRule::None {
            return;
        }
        self.reset();
        self.unnumbered = last.is_none();
        (self.book, self.stream) = (last, last);
        if let Some(last) = last {
            self.remember(last);
        }
    }

    /// A snapshot from elsewhere: the stream goes on where it was.
    pub(super) fn snapshot_aside(&mut self, last: Option<i64>) -> Result<(), Step> {
        if self.rule == SequenceRule::None {
            return Ok(());
        }
        self.book = Some(last.ok_or(Step::Bad)?);
        Ok(())
    }

    /// What was kept for a snapshot comes again.
    pub(super) fn rewind(&mut self) {
        (self.stream, self.recent_len) = (None, 0);
    }

    /// A message while there is no book yet: does it follow the one before?
    pub(super) fn follow(&mut self, numbers: Numbers) -> Step {
        let book = self.book.take();
        let step = self.step(numbers);
        self.book = book;
        step
    }

    /// A message for the book. With `Apply` the book is taken to stand at its `last`.
    pub(super) fn step(&mut self, numbers: Numbers) -> Step {
        if self.rule == SequenceRule::None {
            return Step::Apply;
        }
        let Some(last) = numbers.last else {
            return if self.unnumbered { Step::Apply } else { Step::Bad };
        };
        let step = match self.rule {
            SequenceRule::None => Step::Apply,
            SequenceRule::Later => self.later(last),
            SequenceRule::PlusOne => self.range(last, last),
            SequenceRule::Range => match numbers.first {
                Some(first) if first <= last => self.range(first, last),
                _ => Step::Bad,
            },
            SequenceRule::Linked => match numbers.previous {
                Some(previous) => self.linked(previous, last),
                None => Step::Bad,
            },
        };
        match step {
            Step::Apply => (self.book, self.stream) = (Some(last), Some(last)),
            Step::Stale => self.stream = Some(last),
            _ => return step,
        }
        self.remember(last);
        step
    }

    fn later(&self, last: i64) -> Step {
        match (self.stream, self.book) {
            (Some(stream), _) if last < stream => Step::Stale,
            (stream, Some(book)) if last < book || (last == book && stream != Some(last)) => Step::Stale,
            _ => Step::Apply,
        }
    }

    fn range(&self, first: i64, last: i64) -> Step {
        if let Some(stream) = self.stream {
            if last <= stream {
                return if self.covers(last) { Step::Duplicate } else { RESTARTED };
            }
            if first > stream.saturating_add(1) {
                return gap(stream, first);
            }
        }
        match self.book {
            Some(book) if last <= book => Step::Stale,
            Some(book) if first > book.saturating_add(1) => gap(book, first),
            _ => Step::Apply,
        }
    }

    fn linked(&mut self, previous: i64, last: i64) -> Step {
        let Some(stream) = self.stream.or(self.book) else { return Step::Apply };
        if previous == stream {
            if last == previous {
                return Step::KeepAlive;
            }
            if last < previous {
                // After maintenance: the numbers before mean nothing any more.
                self.recent_len = 0;
            }
            return Step::Apply;
        }
        let seen = self.recent[..self.recent_len].contains(&last);
        match seen {
            true => Step::Duplicate,
            false if previous > stream => gap(stream, previous.saturating_add(1)),
            false => RESTARTED,
        }
    }

    /// Whether a number lies within what the last messages covered.
    fn covers(&self, number: i64) -> bool {
        self.recent[..self.recent_len].iter().min().is_some_and(|oldest| *oldest <= number)
    }

    fn remember(&mut self, last: i64) {
        if self.recent_len == 0 {
            self.recent_next = 0;
        }
        self.recent[self.recent_next] = last;
        self.recent_next = (self.recent_next + 1) % RECENT;
        self.recent_len = (self.recent_len + 1).min(RECENT);
    }
}

/// What is missing between a place and the first number after it that is here.
fn gap(after: i64, next: i64) -> Step {
    Step::Gap { first_missing: Some(after.saturating_add(1)), last_missing: Some(next.saturating_sub(1)) }
}
