//! The live books of a connection: a [`Ladder`] for each instrument, what its verdicts lead to, and when it is written whole.
//!
//! A book that is wrong is begun anew, alone: by a snapshot over REST where the venue's rules want one, else by
//! subscribing anew. One that goes wrong again soon waits before the next attempt, twice as long each time.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Monotonic, UnixMs};
use catchment_venues::ladder::{BookPlan, Checked, Ladder, LadderState, Outcome, Side, Verdict};

use super::records::SummaryRecord;
use super::status::ms;

/// A hash that is proved by a batch is believed to be final when nothing has followed for this long.
const BATCH_OVER: Duration = Duration::from_millis(500);
/// A book may be crossed for this long before it is noted: venues do so for a moment.
const CROSSED_FOR: Duration = Duration::from_secs(2);
/// Trouble within this time of the last is the same trouble.
const SAME_TROUBLE: Duration = Duration::from_secs(60);

/// One instrument's book.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) ladder: Ladder,
    /// A book begins with a snapshot over REST.
    pub(crate) over_rest: bool,
    /// Of the last message.
    time: Option<UnixMs>,
    tally: Tally,
    snapshot_at: Monotonic,
    rest: RestAsk,
    trouble: Option<(Monotonic, u32)>,
    pending_since: Option<Monotonic>,
    /// What was pending has proved to be right.
    is_proved: bool,
    crossed_since: Option<Monotonic>,
    crossed_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestAsk {
    No,
    /// Wanted, from then on.
    At(Monotonic),
    UnderWay,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    messages: u64,
    agreed: u64,
    failed: u64,
    crossed: u64,
    resyncs: u64,
}

/// What a message, or its absence, leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Nothing.
    None,
    /// The book is there (again): to be written whole.
    Ready,
    /// Something is wrong with it.
    Wrong(Wrong),
}

/// What is wrong with a book, and what is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) outcome: &'static str,
    pub(crate) detail: String,
    pub(crate) remedy: Remedy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// It is only noted.
    None,
    /// A snapshot over REST is on its way or will be.
    Snapshot,
    /// To be subscribed anew, after so long.
    Resubscribe(Duration),
}

impl Remedy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snapshot => "snapshot",
            Self::Resubscribe(_) => "resubscribe",
        }
    }
}

impl Desk {
    pub(crate) fn new(plan: &Arc<BookPlan>, instrument: &str, snapshot_at: Monotonic) -> Self {
        Self {
            ladder: Ladder::new(plan, instrument),
            over_rest: plan.snapshot_over_rest(),
            time: None,
            tally: Tally::default(),
            snapshot_at,
            rest: RestAsk::No,
            trouble: None,
            pending_since: None,
            is_proved: false,
            crossed_since: None,
            crossed_told: false,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.ladder.state() == LadderState::Live
    }

    /// The last message is yet to be proved by those that follow it.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending_since.is_some()
    }

    /// Whether the last message, which was pending, has proved to be right since this was asked.
    pub(crate) fn take_proved(&mut self) -> bool {
        std::mem::take(&mut self.is_proved)
    }

    /// How often the venue's checksum agreed.
    #[inline]
    pub(crate) fn agreed(&self) -> u64 {
        self.tally.agreed
    }

    /// A message of the stream.
    pub(crate) fn message(&mut self, text: &str, time: Option<UnixMs>, now: Monotonic) -> Reaction {
        let was_live = self.is_live();
        let verdict = self.ladder.message_text(text);
        self.tally.messages += 1;
        self.time = time.or(self.time);
        self.judge(&verdict, was_live, now)
    }

    /// The answer to a request for a snapshot.
    pub(crate) fn snapshot(&mut self, body: &[u8], now: Monotonic) -> Reaction {
        self.rest = RestAsk::No;
        let was_live = self.is_live();
        let verdict = self.ladder.rest_snapshot(body);
        let reaction = self.judge(&verdict, was_live, now);
        if self.ladder.state() == LadderState::Buffering && self.rest == RestAsk::No {
            // It was too old, or of no use.
            self.want_snapshot(Duration::from_millis(500), now);
        }
        match reaction {
            // Expected when the stream is slow to begin: not a fault of the book.
            Reaction::Wrong(wrong) if wrong.outcome == "snapshot_too_old" => Reaction::None,
            other => other,
        }
    }

    /// A request for a snapshot that was not answered well.
    pub(crate) fn snapshot_failed(&mut self, now: Monotonic) {
        let wait = self.wait(now);
        self.want_snapshot(wait, now);
    }

    /// The connection is gone and the book with it.
    pub(crate) fn reset(&mut self) {
        self.ladder.reset();
        self.rest = RestAsk::No;
        (self.pending_since, self.crossed_since, self.crossed_told) = (None, None, false);
    }

    /// Whether a snapshot is to be asked for over REST now; it counts as under way then.
    pub(crate) fn take_ask(&mut self, now: Monotonic) -> bool {
        let is_due = match self.rest {
            RestAsk::No => {
                self.over_rest && self.ladder.state() == LadderState::Buffering && self.ladder.buffered() > 0
            }
            RestAsk::At(at) => at <= now,
            RestAsk::UnderWay => false,
        };
        if is_due {
            self.rest = RestAsk::UnderWay;
        }
        is_due
    }

    /// To be called a few times a second.
    pub(crate) fn look(&mut self, now: Monotonic) -> Reaction {
        if self.pending_since.is_some_and(|since| now.since(since) >= BATCH_OVER) {
            self.pending_since = None;
            match self.ladder.settle() {
                Some(verdict) => return self.judge(&verdict, true, now),
                None => self.is_proved = true,
            }
        }
        if self.crossed_since.is_some_and(|since| now.since(since) >= CROSSED_FOR) && !self.crossed_told {
            self.crossed_told = true;
            self.tally.crossed += 1;
            return Reaction::Wrong(Wrong {
                outcome: "crossed",
                detail: "the best bid is not below the best ask".to_owned(),
                remedy: Remedy::None,
            });
        }
        Reaction::None
    }

    /// Whether the book is to be written whole now.
    pub(crate) fn take_snapshot_due(&mut self, every: Duration, now: Monotonic) -> bool {
        if self.snapshot_at > now || !self.is_live() {
            return false;
        }
        self.written(every, now);
        true
    }

    /// The book was written whole.
    pub(crate) fn written(&mut self, every: Duration, now: Monotonic) {
        self.snapshot_at = Monotonic(now.0 + every);
    }

    pub(crate) fn write(&self, symbol: &str, depth: usize, out: &mut Vec<u8>) -> Option<UnixMs> {
        self.ladder.write_snapshot(symbol, self.time, depth, out);
        self.time
    }

    /// What was checked since the last time.
    pub(crate) fn summary<'a>(
        &mut self,
        channel: &'a str,
        connection: &'a str,
        period: Duration,
    ) -> SummaryRecord<'a> {
        let tally = std::mem::take(&mut self.tally);
        SummaryRecord {
            channel,
            outcome: "summary",
            state: match self.ladder.state() {
                LadderState::Empty => "empty",
                LadderState::Buffering => "buffering",
                LadderState::Live => "live",
                LadderState::Broken => "broken",
            },
            period_ms: ms(period),
            messages: tally.messages,
            agreed: tally.agreed,
            failed: tally.failed,
            crossed: tally.crossed,
            resyncs: tally.resyncs,
            bids: self.ladder.len(Side::Bid),
            asks: self.ladder.len(Side::Ask),
            sequence: self.ladder.sequence(),
            epoch: self.ladder.epoch(),
            connection,
        }
    }

    fn judge(&mut self, verdict: &Verdict, was_live: bool, now: Monotonic) -> Reaction {
        match verdict.checked {
            Checked::Agrees => {
                self.tally.agreed += 1;
                self.pending_since = None;
            }
            Checked::Pending => self.pending_since = Some(now),
            Checked::None | Checked::Differs => {}
        }
        if verdict.crossed && self.is_live() {
            self.crossed_since.get_or_insert(now);
        } else {
            (self.crossed_since, self.crossed_told) = (None, false);
        }
        if !verdict.outcome.needs_resync() {
            let is_ready = match verdict.outcome {
                // Venues that send snapshots all the time (Polymarket) need not have each one written again.
                Outcome::Replaced => !was_live,
                // From here on prices are of another step: a new book.
                Outcome::NewEpoch => true,
                _ => false,
            };
            return if is_ready && self.is_live() { Reaction::Ready } else { Reaction::None };
        }
        self.tally.failed += 1;
        let (outcome, detail) = told(&verdict.outcome);
        let remedy = if self.ladder.state() == LadderState::Buffering {
            Remedy::Snapshot
        } else {
            let wait = self.wait(now);
            Remedy::Resubscribe(wait)
        };
        self.tally.resyncs += 1;
        Reaction::Wrong(Wrong { outcome, detail, remedy })
    }

    /// How long to wait before beginning anew: not at all, the first time in a while.
    fn wait(&mut self, now: Monotonic) -> Duration {
        let times = match self.trouble {
            Some((last, times)) if now.since(last) < SAME_TROUBLE => times + 1,
            _ => 0,
        };
        self.trouble = Some((now, times));
        match times {
            0 => Duration::ZERO,
            _ => Duration::from_secs(1 << (times - 1).min(5)),
        }
    }

    fn want_snapshot(&mut self, after: Duration, now: Monotonic) {
        self.rest = RestAsk::At(Monotonic(now.0 + after));
    }
}

fn told(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Gap { first_missing, last_missing } => {
            let number = |number: &Option<i64>| number.map_or("?".to_owned(), |number| number.to_string());
            ("gap", format!("missing from {} to {}", number(first_missing), number(last_missing)))
        }
        Outcome::Mismatch { expected, computed } => {
            ("mismatch", format!("the venue says {expected}, the book gives {computed}"))
        }
        Outcome::Unreadable(unreadable) => ("unreadable", unreadable.to_string()),
        Outcome::BufferFull { dropped } => {
            ("buffer_full", format!("no snapshot came, {dropped} messages are not applied"))
        }
        Outcome::Ignored(_) => ("snapshot_too_old", "the snapshot is older than the stream".to_owned()),
        Outcome::Replaced | Outcome::Applied | Outcome::Buffered | Outcome::NewEpoch => {
            ("none", String::new())
        }
    }
}
