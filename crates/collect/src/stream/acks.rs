//! What was asked for on a connection, what the venue said to it, and what flows.
//!
//! ```text
//! unasked ─▶ queued ─▶ asked ─▶ acknowledged ─▶ flowing
//!    ▲                   │           │ nothing came, where something must (a snapshot)
//!    └──── resting ◀─────┴───────────┘
//!          refused, or no answer in time; asked again later, and later still
//! ```
//!
//! One bad symbol can spoil a request for many. When a request for several is refused without saying which, each is asked
//! for alone, and only the one that is refused alone is at fault.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_model::Monotonic;

/// How long a venue may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSettings {
    /// To acknowledge a subscription.
    pub ack_within: Duration,
    /// To send the first message of a stream that begins with a snapshot.
    pub first_within: Duration,
    /// A subscription that failed is tried again after this; each further time it is doubled …
    pub again_after: Duration,
    /// … up to this.
    pub again_max: Duration,
}

impl Default for AckSettings {
    fn default() -> Self {
        Self {
            ack_within: Duration::from_secs(10),
            first_within: Duration::from_secs(15),
            again_after: Duration::from_secs(5),
            again_max: Duration::from_secs(600),
        }
    }
}

/// Where a subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unasked,
    /// A request for it waits to be sent.
    Queued,
    Asked(Monotonic),
    Acknowledged(Monotonic),
    Flowing,
    /// It failed; nothing is asked before then.
    Resting(Monotonic),
}

/// Why a subscription does not flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The venue said no.
    Refused(String),
    /// It said no, because it has it on its list, as after an answer that came too late.
    Already(String),
    /// It said nothing.
    Unanswered,
    /// It said yes, and nothing came.
    Mute,
}

impl Fault {
    /// Whether the venue has said that it has it on its list.
    fn says_listed(&self) -> bool {
        matches!(self, Self::Already(_) | Self::Mute)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(reason) | Self::Already(reason) => write!(f, "the venue refused it: {reason}"),
            Self::Unanswered => f.write_str("the venue did not acknowledge it"),
            Self::Mute => f.write_str("the venue acknowledged it and sent nothing"),
        }
    }
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    /// Failures in a row.
    failures: u32,
    /// It was in a request that was refused as a whole.
    alone: bool,
    /// It begins with a snapshot.
    needs_first: bool,
    /// The venue has it on its list though nothing comes, and will refuse to put it there again.
    is_listed: bool,
    fault: Option<Fault>,
}

impl Entry {
    fn is_settled(&self) -> bool {
        match self.standing {
            Standing::Flowing | Standing::Resting(_) => true,
            Standing::Acknowledged(_) => !self.needs_first,
            Standing::Unasked | Standing::Queued | Standing::Asked(_) => false,
        }
    }
}

/// Requests under way that are remembered; a venue that answers none of them must not cost memory.
const REQUESTS_MAX: usize = 4_096;

/// The subscriptions of one connection.
#[derive(Debug)]
pub(crate) struct AckLedger {
    settings: AckSettings,
    entries: Vec<Entry>,
    requests: VecDeque<(u64, Vec<usize>)>,
    /// Whether the venue acknowledges at all.
    acknowledges: bool,
}

impl AckLedger {
    /// `needs_first` says of each subscription whether it begins with a snapshot.
    pub(crate) fn new(
        needs_first: impl IntoIterator<Item = bool>,
        acknowledges: bool,
        settings: AckSettings,
    ) -> Self {
        let entry = |needs_first| Entry {
            standing: Standing::Unasked,
            failures: 0,
            alone: false,
            needs_first,
            is_listed: false,
            fault: None,
        };
        Self {
            settings,
            entries: needs_first.into_iter().map(entry).collect(),
            requests: VecDeque::new(),
            acknowledges,
        }
    }

    /// What is to be asked for now, one request each. It counts as queued from here on.
    pub(crate) fn take_due(&mut self, now: Monotonic) -> Vec<Vec<usize>> {
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for (place, entry) in self.entries.iter_mut().enumerate() {
            let is_due = match entry.standing {
                Standing::Unasked => true,
                Standing::Resting(until) => until <= now,
                _ => false,
            };
            if is_due {
                entry.standing = Standing::Queued;
                if entry.alone { alone.push(vec![place]) } else { together.push(place) }
            }
        }
        if !together.is_empty() {
            alone.insert(0, together);
        }
        alone
    }

    /// Whether it is to be taken off the venue's list before it is asked for again; only once.
    pub(crate) fn take_listed(&mut self, place: usize) -> bool {
        std::mem::take(&mut self.entries[place].is_listed)
    }

    /// A request has left.
    pub(crate) fn sent(&mut self, id: u64, places: &[usize], now: Monotonic) {
        for place in places {
            let entry = &mut self.entries[*place];
            if entry.standing == Standing::Queued {
                entry.standing = match self.acknowledges {
                    true => Standing::Asked(now),
                    false => Standing::Acknowledged(now),
                };
            }
        }
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        if self.acknowledges {
            self.requests.push_back((id, places.to_vec()));
        }
    }

    /// To be asked for again at once: it was unsubscribed.
    pub(crate) fn ask_again(&mut self, place: usize) {
        self.entries[place].standing = Standing::Unasked;
    }

    /// The venue confirms the subscription. Whether that is news.
    pub(crate) fn acknowledged(&mut self, place: usize, now: Monotonic) -> bool {
        let entry = &mut self.entries[place];
        let is_news = matches!(entry.standing, Standing::Asked(_) | Standing::Queued);
        if is_news {
            entry.standing = Standing::Acknowledged(now);
        }
        is_news
    }

    /// What that request was for.
    pub(crate) fn covers(&self, id: u64) -> &[usize] {
        self.requests.iter().find(|(known, _)| *known == id).map_or(&[], |(_, places)| places)
    }

    /// What that request was for; it is answered now, and in whole.
    pub(crate) fn answered(&mut self, id: u64) -> Vec<usize> {
        match self.requests.iter().position(|(known, _)| *known == id) {
            Some(at) => self.requests.remove(at).map(|(_, places)| places).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// What the oldest request was for that has not been answered: venues that name none answer in order.
    pub(crate) fn answered_oldest(&mut self) -> Vec<usize> {
        self.requests.pop_front().map(|(_, places)| places).unwrap_or_default()
    }

    /// The venue says what it has on its list: requests for nothing else are answered by that.
    pub(crate) fn answered_by(&mut self, listed: &[usize]) {
        let mut is_listed = vec![false; self.entries.len()];
        listed.iter().for_each(|place| is_listed[*place] = true);
        self.requests.retain(|(_, places)| !places.iter().all(|place| is_listed[*place]));
    }

    /// A message has come. Where a subscription begins with a snapshot, nothing else shows that it was made: other
    /// messages may be left over from the one before.
    #[inline]
    pub(crate) fn flows(&mut self, place: usize, is_snapshot: bool) {
        let entry = &mut self.entries[place];
        if entry.standing != Standing::Flowing && (is_snapshot || !entry.needs_first) {
            entry.standing = Standing::Flowing;
            (entry.failures, entry.alone, entry.fault) = (0, false, None);
        }
    }

    /// The venue refused these together. Gives back the one at fault, if that is clear.
    pub(crate) fn refused(&mut self, places: &[usize], fault: Fault, now: Monotonic) -> Option<usize> {
        if let [place] = places {
            self.fail(*place, fault, now);
            return Some(*place);
        }
        for place in places {
            let entry = &mut self.entries[*place];
            if entry.standing != Standing::Flowing {
                (entry.standing, entry.alone) = (Standing::Unasked, true);
            }
        }
        None
    }

    /// To be called now and then. Gives back the subscriptions that have failed since, and why.
    pub(crate) fn look(&mut self, now: Monotonic) -> Vec<(usize, Fault)> {
        let mut failed = Vec::new();
        for place in 0..self.entries.len() {
            let entry = &self.entries[place];
            let fault = match entry.standing {
                Standing::Asked(at) if now.since(at) >= self.settings.ack_within => Fault::Unanswered,
                Standing::Acknowledged(at)
                    if entry.needs_first && now.since(at) >= self.settings.first_within =>
                {
                    Fault::Mute
                }
                _ => continue,
            };
            self.fail(place, fault.clone(), now);
            failed.push((place, fault));
        }
        failed
    }

    /// We have not read for this long: deadlines move.
    pub(crate) fn forgive(&mut self, stall: Duration) {
        for entry in &mut self.entries {
            if let Standing::Asked(at) | Standing::Acknowledged(at) = &mut entry.standing {
                at.0 += stall;
            }
        }
    }

    pub(crate) fn standing(&self, place: usize) -> Standing {
        self.entries[place].standing
    }

    pub(crate) fn fault(&self, place: usize) -> Option<&Fault> {
        self.entries[place].fault.as_ref()
    }

    /// Whether everything was answered, in whatever way, and has shown its snapshot where it has one.
    pub(crate) fn is_settled(&self) -> bool {
        self.entries.iter().all(Entry::is_settled)
    }

    /// Whether something is subscribed, and all else too but for what has failed before and is tried again now and then.
    pub(crate) fn is_live(&self) -> bool {
        let (good, _) = self.counts();
        good > 0 && self.entries.iter().all(|entry| entry.fault.is_some() || entry.is_settled())
    }

    /// How many there are: flowing or at least acknowledged, and refused or unanswered.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let good = |entry: &&Entry| matches!(entry.standing, Standing::Flowing | Standing::Acknowledged(_));
        let bad = |entry: &&Entry| entry.fault.is_some();
        (self.entries.iter().filter(good).count(), self.entries.iter().filter(bad).count())
    }

    fn fail(&mut self, place: usize, fault: Fault, now: Monotonic) {
        let entry = &mut self.entries[place];
        entry.is_listed |= fault.says_listed();
        entry.failures = entry.failures.saturating_add(1);
        let doublings = (entry.failures - 1).min(16);
        let wait = self.settings.again_after.saturating_mul(1 << doublings).min(self.settings.again_max);
        entry.standing = Standing::Resting(Monotonic(now.0 + wait));
        entry.fault = Some(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    fn ledger(needs_first: &[bool]) -> AckLedger {
        AckLedger::new(needs_first.iter().copied(), true, AckSettings::default())
    }

    fn no(reason: &str) -> Fault {
        Fault::Refused(reason.to_owned())
    }

    #[test]
    fn a_list_answers_the_requests_for_what_is_on_it() {
        let mut acks = ledger(&[false, false]);
        acks.take_due(at(0));
        acks.sent(1, &[0], at(1));
        acks.sent(2, &[1], at(1));
        acks.answered_by(&[0]);
        assert_eq!(acks.answered_oldest(), [1], "whoever names nothing means the other");
    }

    #[test]
    fn a_connection_is_live_though_one_of_it_is_tried_again() {
        let mut acks = ledger(&[false, false]);
        acks.take_due(at(0));
        acks.sent(1, &[0, 1], at(0));
        acks.acknowledged(0, at(1));
        assert!(!acks.is_live(), "the other is not answered");
        acks.refused(&[1], no("unknown"), at(1));
        assert!(acks.is_live() && acks.is_settled());
        acks.take_due(at(60));
        acks.sent(2, &[1], at(60));
        assert!(acks.is_live() && !acks.is_settled());
        acks.refused(&[0], no("unknown"), at(61));
        assert!(!acks.is_live(), "nothing is subscribed");
    }

    #[test]
    fn asked_acknowledged_flowing() {
        let mut acks = ledger(&[true, false]);
        assert_eq!(acks.take_due(at(0)), [[0, 1]]);
        assert_eq!(acks.take_due(at(0)), Vec::<Vec<usize>>::new(), "queued is not due");
        acks.sent(1, &[0, 1], at(1));
        assert!(!acks.is_settled());
        for place in acks.answered(1) {
            assert!(acks.acknowledged(place, at(2)));
            assert!(!acks.acknowledged(place, at(2)));
        }
        assert!(!acks.is_settled(), "the snapshot is yet to come");
        acks.flows(0, false);
        assert!(!acks.is_settled(), "that was no snapshot");
        acks.flows(0, true);
        assert!(acks.is_settled(), "the other may stay quiet");
        assert_eq!((acks.look(at(1_000)), acks.counts()), (vec![], (2, 0)));
        assert_eq!(acks.answered(1), Vec::<usize>::new());
    }

    #[test]
    fn what_the_venue_says_it_has_already_is_taken_off_its_list_before_it_is_asked_for_again() {
        let (already, unknown) =
            (Fault::Already("Already subscribed".into()), no("Currency pair not supported"));
        for (fault, is_listed) in [(already, true), (unknown, false)] {
            let mut acks = ledger(&[true]);
            acks.take_due(at(0));
            acks.sent(1, &[0], at(0));
            assert_eq!(acks.refused(&[0], fault, at(1)), Some(0));
            assert_eq!(acks.take_listed(0), is_listed);
        }
    }

    #[test]
    fn data_may_come_before_the_acknowledgement() {
        let mut acks = ledger(&[false]);
        acks.take_due(at(0));
        acks.sent(1, &[0], at(0));
        acks.flows(0, false);
        assert!(!acks.acknowledged(0, at(1)));
        assert_eq!((acks.standing(0), acks.look(at(100))), (Standing::Flowing, vec![]));
    }

    #[test]
    fn the_one_that_spoils_a_request_is_found() {
        let mut acks = ledger(&[false; 3]);
        acks.take_due(at(0));
        acks.sent(7, &[0, 1, 2], at(0));
        let places = acks.answered(7);
        assert_eq!(acks.refused(&places, no("no"), at(1)), None);
        assert_eq!(acks.take_due(at(1)), [[0], [1], [2]]);
        (0..3).for_each(|place| acks.sent(8 + place as u64, &[place], at(1)));
        acks.acknowledged(0, at(2));
        acks.acknowledged(2, at(2));
        assert_eq!(acks.refused(&[1], no("unknown symbol"), at(2)), Some(1));
        assert_eq!(acks.fault(1), Some(&no("unknown symbol")));
        assert_eq!(acks.counts(), (2, 1));
        assert!(acks.is_settled(), "a refusal is an answer");
    }

    #[test]
    fn what_fails_is_tried_again_later_and_later() {
        let mut acks = ledger(&[true]);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..10 {
            acks.take_due(at(now));
            acks.sent(1, &[0], at(now));
            assert_eq!(acks.look(at(now + 9)), []);
            assert_eq!(acks.look(at(now + 10)), [(0, Fault::Unanswered)]);
            let Standing::Resting(until) = acks.standing(0) else { panic!("{:?}", acks.standing(0)) };
            waits.push(until.0.as_secs() - now - 10);
            now = until.0.as_secs();
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        acks.take_due(at(now));
        acks.sent(1, &[0], at(now));
        acks.acknowledged(0, at(now));
        assert!(!acks.take_listed(0), "never acknowledged until now");
        assert_eq!(acks.look(at(now + 15)), [(0, Fault::Mute)], "acknowledged, and no snapshot came");
        assert!(acks.take_listed(0) && !acks.take_listed(0), "to be taken off the list, once");
        acks.flows(0, true);
        assert_eq!(acks.counts(), (1, 0));
    }

    #[test]
    fn a_venue_that_never_acknowledges_is_not_waited_for() {
        let mut acks = AckLedger::new([true, false], false, AckSettings::default());
        acks.take_due(at(0));
        acks.sent(1, &[0, 1], at(0));
        assert_eq!(acks.look(at(14)), []);
        assert_eq!(acks.look(at(15)), [(0, Fault::Mute)]);
    }
}
