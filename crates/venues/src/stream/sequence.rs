//! Numbers that messages carry, and what they say about messages that never came.

use serde::Deserialize;

/// The numbers of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The first number it covers.
    pub first: u64,
    /// The last; equal to the first where a message has one number.
    pub last: u64,
    /// The number of the message before it, where the venue says so. OKX says -1 for "none".
    pub prev: Option<i64>,
}

/// How a venue numbers its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceRule {
    /// What follows what.
    pub order: Order,
    /// What is numbered together.
    pub scope: Scope,
}

/// What follows what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each number is one more than the one before.
    PlusOne,
    /// Each message covers a range that begins one after the end of the range before.
    Range,
    /// Each message names the number of the one before; numbers themselves jump.
    Linked,
    /// Numbers grow and jump: a repetition is seen, a hole is not.
    Increasing,
}

/// What is numbered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each instrument of each channel for itself.
    #[default]
    Instrument,
    /// All that comes through a connection.
    Connection,
}

/// What a message's numbers say, in the light of those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first one; there is nothing to compare it with.
    First,
    /// The one that was due.
    Next,
    /// The same as the last one, said once more; OKX does so when nothing happens, to show that it lives.
    Repeated,
    /// One from before the last: a repetition, or out of order.
    Old,
    /// Messages are missing, and these are the numbers that never came; where numbers jump, those of the missing
    /// messages lie between these two, and the last of them is known.
    Gap {
        /// The first.
        first_missing: u64,
        /// The last.
        last_missing: u64,
    },
    /// The venue began anew: a snapshot, or the numbers were set back as its rules allow.
    Reset,
}

/// Follows the numbers of one instrument's channel, or of one connection.
#[derive(Debug, Clone)]
pub struct SequenceChecker {
    order: Order,
    last: Option<u64>,
}

impl SequenceChecker {
    /// Nothing seen yet.
    pub fn new(rule: SequenceRule) -> Self {
        Self { order: rule.order, last: None }
    }

    /// The last number seen.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Forgets what was seen: the next message is the first.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Takes a message's numbers in. After a gap it goes on from there, so that a hole is told once.
    pub fn next(&mut self, sequence: &Sequence, is_snapshot: bool) -> Step {
        let Some(last) = self.last else {
            self.last = Some(sequence.last);
            return Step::First;
        };
        let step = match self.order {
            _ if is_snapshot => Step::Reset,
            Order::PlusOne | Order::Range => contiguous(last, sequence),
            Order::Linked => linked(last, sequence),
            Order::Increasing => match sequence.last.cmp(&last) {
                std::cmp::Ordering::Greater => Step::Next,
                std::cmp::Ordering::Equal => Step::Repeated,
                std::cmp::Ordering::Less => Step::Old,
            },
        };
        if !matches!(step, Step::Repeated | Step::Old) {
            self.last = Some(sequence.last);
        }
        step
    }
}

fn contiguous(last: u64, sequence: &Sequence) -> Step {
    if sequence.last == last {
        return Step::Repeated;
    }
    if sequence.last < last {
        return Step::Old;
    }
    // A range that begins before the end of the last one brings something new, and leaves nothing out.
    if sequence.first <= last.saturating_add(1) {
        return Step::Next;
    }
    Step::Gap { first_missing: last + 1, last_missing: sequence.first - 1 }
}

fn linked(last: u64, sequence: &Sequence) -> Step {
    let follows = sequence.prev.is_some_and(|prev| u64::try_from(prev) == Ok(last));
    match (follows, sequence.prev) {
        (true, _) if sequence.last == last => Step::Repeated,
        // The numbers were set back while the link is whole.
        (true, _) if sequence.last < last => Step::Reset,
        (true, _) => Step::Next,
        (false, Some(prev)) if prev < 0 => Step::Reset,
        (false, Some(prev)) if (prev as u64) < last && sequence.last <= last => Step::Old,
        (false, prev) => {
            let (after, until) = (last.saturating_add(1), prev.map_or(sequence.last, |prev| prev as u64));
            Step::Gap { first_missing: after.min(until), last_missing: after.max(until) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages as `first-last<prev`, a `!` before a snapshot; steps as their first letters, gaps with their bounds.
    fn check(order: Order, messages: &str, want: &str) {
        let mut checker = SequenceChecker::new(SequenceRule { order, scope: Scope::Instrument });
        let steps: Vec<String> = messages
            .split(' ')
            .map(|message| {
                let (snapshot, message) =
                    message.strip_prefix('!').map_or((false, message), |rest| (true, rest));
                let (numbers, prev) =
                    message.split_once('<').map_or((message, None), |(n, p)| (n, p.parse().ok()));
                let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
                let sequence = Sequence { first: first.parse().unwrap(), last: last.parse().unwrap(), prev };
                match checker.next(&sequence, snapshot) {
                    Step::Gap { first_missing, last_missing } => format!("{first_missing}..{last_missing}"),
                    step => format!("{step:?}")[..3].to_owned(),
                }
            })
            .collect();
        assert_eq!(steps.join(" "), want, "{order:?} {messages}");
    }

    #[test]
    fn holes_repetitions_and_new_beginnings_are_told_apart() {
        check(Order::PlusOne, "7 8 9 12 13", "Fir Nex Nex 10..11 Nex");
        check(Order::PlusOne, "7 8 8 7 9", "Fir Nex Rep Old Nex");
        check(Order::PlusOne, "7 !1 2", "Fir Res Nex");
        check(Order::Range, "1-5 6-9 11-12 13-13", "Fir Nex 10..10 Nex");
        check(Order::Range, "1-5 4-7 6-7 2-3", "Fir Nex Rep Old");
        check(Order::Linked, "!10<-1 15<10 15<15 20<15 30<25 31<30", "Fir Nex Rep Nex 21..25 Nex");
        // Set back during maintenance: the link still holds.
        check(Order::Linked, "!10<-1 3<10 5<3", "Fir Res Nex");
        check(Order::Linked, "10<8 9<7 10<8 12<10", "Fir Old Old Nex");
        check(Order::Linked, "10<8 20<-1", "Fir Res");
        check(Order::Increasing, "5 9 9 7 20", "Fir Nex Rep Old Nex");
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let max = u64::MAX;
        check(Order::Range, &format!("{max} {max} 0 {max}"), "Fir Rep Old Rep");
        check(Order::Linked, &format!("{max} {max}<9"), "Fir Old");
    }
}
