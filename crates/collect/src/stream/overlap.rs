//! Two sockets for the same streams, for a moment: the old one goes on, the new one joins, and no message is lost or
//! doubled.
//!
//! ```text
//! old  ──a──b──c──d──e──f──·                     stored: a b c d e f g h
//! new           ──c'─d'─e'─f'─g──h──▶            c' … f' are repetitions, g is held until the old one is done
//!                     └ overlap ┘
//! ```
//!
//! Until the switch the old socket alone is recorded. What the new one brings is compared: a message that the old one
//! has brought is a repetition and is dropped; one that it has not is *held*, since the old one may merely be slower.
//! At the switch the old socket is read once more as far as it goes, what is still held and was not brought by it follows in
//! its own order, and from there on the new socket is recorded. Whatever the venue sends after the new socket was
//! subscribed comes on the new one, so nothing is lost whenever that is.
//!
//! A repetition is known by its number where the venue numbers a stream alike on every connection, by its id where it has
//! one, and by equal bytes within the overlap where it has neither. Both sockets bring the same messages in the same
//! order, so ids and bytes are compared in order: what the new socket has passed cannot come again.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use catchment_model::{Monotonic, UnixNs};

/// How long two sockets are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlapSettings {
    /// At least so long after the new one is subscribed: as much as one socket may be slower than the other.
    pub min: Duration,
    /// Streams that have spoken on the old one and not on the new one are waited for at most this long.
    pub max: Duration,
    /// What the new one brings meanwhile may take so much memory. When it is more, the switch is made.
    pub bytes_max: usize,
}

impl Default for OverlapSettings {
    fn default() -> Self {
        Self { min: Duration::from_secs(2), max: Duration::from_secs(20), bytes_max: 16 << 20 }
    }
}

/// How a message is told from another of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    /// Its number, which only grows.
    Number(u64),
    /// A hash of its id or its bytes.
    Hash(u64),
}

/// A frame of the new socket with messages that the old one has not brought yet.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frame: Bytes,
    pub(crate) received_at: UnixNs,
    /// Its messages that were new when it came.
    marks: Vec<(usize, Mark)>,
}

/// What a message of the new socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joining {
    /// The old socket has brought it.
    Repeats,
    /// It has not, or not yet.
    IsNew,
}

/// Two sockets for the same streams: from the new one's coming up until nothing of the old one is left to compare with.
#[derive(Debug)]
pub(crate) struct Overlap {
    settings: OverlapSettings,
    streams: Vec<Side>,
    held: Vec<Held>,
    held_bytes: usize,
    /// Hashes remembered of all streams.
    remembered: usize,
    /// When all subscriptions of the new socket were settled.
    settled_at: Option<Monotonic>,
    /// When the old socket was given up.
    switched_at: Option<Monotonic>,
}

/// More messages than this are not remembered; the switch is made.
const REMEMBERED_MAX: usize = 1 << 18;

/// Where the two sockets are in one stream. Both bring the same messages in the same order, and the new one begins
/// somewhere in the middle: either the old one is ahead, or the new one.
#[derive(Debug, Default)]
struct Side {
    /// The highest number the old socket has brought.
    number: Option<u64>,
    /// What the old socket brought and the new one has not.
    old_ahead: VecDeque<u64>,
    /// What the new socket brought and the old one has not; it is held.
    new_ahead: VecDeque<u64>,
    /// What the new socket began with and the old one has not brought. It may be its own: the state of a ticker, made for
    /// whoever subscribes. So it is held, and nothing follows from its not being brought by the old one.
    opening: Option<u64>,
    old_spoke: bool,
    new_spoke: bool,
}

impl Overlap {
    /// `last` is the last message recorded of each stream: venues begin a ticker by saying it again.
    pub(crate) fn new(last: impl IntoIterator<Item = Option<Mark>>, settings: OverlapSettings) -> Self {
        let side = |last| match last {
            Some(Mark::Number(number)) => Side { number: Some(number), ..Side::default() },
            Some(Mark::Hash(hash)) => Side { old_ahead: VecDeque::from([hash]), ..Side::default() },
            None => Side::default(),
        };
        let streams: Vec<Side> = last.into_iter().map(side).collect();
        Self {
            settings,
            held: Vec::new(),
            held_bytes: 0,
            remembered: streams.iter().map(|side| side.old_ahead.len()).sum(),
            streams,
            settled_at: None,
            switched_at: None,
        }
    }

    /// A message of the old socket, which is recorded.
    pub(crate) fn old(&mut self, place: usize, mark: Mark) {
        let side = &mut self.streams[place];
        side.old_spoke = true;
        match mark {
            Mark::Number(number) => side.number = Some(side.number.map_or(number, |n| n.max(number))),
            Mark::Hash(hash) if side.opening == Some(hash) => side.opening = None,
            // The new one is ahead. If this is not the next of what it has, it was sent before the new one was subscribed.
            Mark::Hash(hash) if !side.new_ahead.is_empty() => {
                if side.new_ahead.front() == Some(&hash) {
                    side.new_ahead.pop_front();
                    self.remembered -= 1;
                }
            }
            Mark::Hash(hash) => {
                side.old_ahead.push_back(hash);
                self.remembered += 1;
            }
        }
    }

    /// A message of the new socket; until the switch what is new is to be held.
    pub(crate) fn new_one(&mut self, place: usize, mark: Mark) -> Joining {
        let side = &mut self.streams[place];
        let is_first = !std::mem::replace(&mut side.new_spoke, true);
        let hash = match mark {
            Mark::Number(number) if side.number.is_some_and(|last| number <= last) => {
                return Joining::Repeats;
            }
            Mark::Number(_) => return Joining::IsNew,
            Mark::Hash(hash) => hash,
        };
        let at = side.old_ahead.iter().position(|other| *other == hash).filter(|_| side.new_ahead.is_empty());
        if is_first && at.is_none() {
            side.opening = Some(hash).filter(|_| self.switched_at.is_none());
            return Joining::IsNew;
        }
        let passed = at.map_or(side.old_ahead.len(), |at| at + 1);
        // What the old one brought before it, the new one will not bring any more.
        side.old_ahead.drain(..passed);
        self.remembered -= passed;
        if at.is_some() {
            return Joining::Repeats;
        }
        if self.switched_at.is_none() {
            side.new_ahead.push_back(hash);
            self.remembered += 1;
        }
        Joining::IsNew
    }

    /// The new socket has begun this stream, with a snapshot that is of no account here.
    pub(crate) fn begun(&mut self, place: usize) {
        self.streams[place].new_spoke = true;
    }

    /// Keeps a frame of the new socket, with its messages that are new.
    pub(crate) fn hold(&mut self, frame: Bytes, received_at: UnixNs, marks: Vec<(usize, Mark)>) {
        self.held_bytes += frame.len();
        self.held.push(Held { frame, received_at, marks });
    }

    /// Everything that was asked for on the new socket has been answered.
    pub(crate) fn settled(&mut self, now: Monotonic) {
        self.settled_at.get_or_insert(now);
    }

    /// Whether it is time to switch.
    pub(crate) fn is_ripe(&mut self, now: Monotonic) -> bool {
        self.tidy();
        if self.held_bytes > self.settings.bytes_max || self.remembered > REMEMBERED_MAX {
            return true;
        }
        let Some(since) = self.settled_at.map(|at| now.since(at)) else { return false };
        let awaited = self.streams.iter().any(|side| side.old_spoke && !side.new_spoke);
        since >= self.settings.max || (since >= self.settings.min && !awaited)
    }

    /// Whether the new socket has taken the stream up: it is subscribed, and there is no reason to think that something
    /// lies between the two.
    pub(crate) fn has_joined(&self, place: usize) -> bool {
        let side = &self.streams[place];
        self.settled_at.is_some() && (side.new_spoke || !side.old_spoke)
    }

    /// The switch: the frames to record, in their order. Which of their messages are to be recorded says
    /// [`Overlap::is_due`], asked for each in turn.
    pub(crate) fn switch(&mut self, now: Monotonic) -> Vec<Held> {
        self.switched_at = Some(now);
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Of a held message, at the switch: whether the old socket has not brought it meanwhile.
    pub(crate) fn is_due(&mut self, place: usize, mark: Mark) -> bool {
        let side = &mut self.streams[place];
        match mark {
            Mark::Number(number) => side.number.is_none_or(|last| number > last),
            Mark::Hash(hash) if side.opening == Some(hash) => {
                side.opening = None;
                true
            }
            Mark::Hash(hash) => {
                let is_next = side.new_ahead.front() == Some(&hash);
                if is_next {
                    side.new_ahead.pop_front();
                    self.remembered -= 1;
                }
                is_next
            }
        }
    }

    /// Whether nothing can be a repetition of the old socket any more: it is some while since the switch.
    pub(crate) fn is_over(&self, now: Monotonic) -> bool {
        self.switched_at.is_some_and(|at| now.since(at) >= 2 * self.settings.min)
    }

    pub(crate) fn has_switched(&self) -> bool {
        self.switched_at.is_some()
    }

    /// Lets go of frames that the old socket has brought meanwhile.
    fn tidy(&mut self) {
        let streams = &self.streams;
        let is_brought = |(place, mark): &(usize, Mark)| match mark {
            Mark::Number(number) => streams[*place].number.is_some_and(|last| *number <= last),
            Mark::Hash(hash) => {
                streams[*place].new_ahead.is_empty() && streams[*place].opening != Some(*hash)
            }
        };
        let bytes = &mut self.held_bytes;
        self.held.retain(|held| {
            let is_done = held.marks.iter().all(is_brought);
            if is_done {
                *bytes -= held.frame.len();
            }
            !is_done
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    fn wall() -> UnixNs {
        UnixNs::new(1).unwrap()
    }

    /// Messages are numbers; a stream is numbered or known by hashes. Plays both sockets in the given order of turns and
    /// gives back what was recorded.
    fn play(messages: &[u64], from: usize, turns: &[bool], mark: impl Fn(u64) -> Mark) -> Vec<u64> {
        play_from(messages, from, turns, mark, None)
    }

    fn play_from(
        messages: &[u64],
        from: usize,
        turns: &[bool],
        mark: impl Fn(u64) -> Mark,
        mut own: Option<u64>,
    ) -> Vec<u64> {
        let mut recorded: Vec<u64> = messages[..from.min(2)].to_vec();
        let last = recorded.last().map(|n| mark(*n));
        let mut overlap = Overlap::new([last], OverlapSettings::default());
        // The new socket is subscribed at message `from`; the old one goes on from where it is.
        let (mut old, mut new) = (recorded.len(), from);
        let mut switched = false;
        let bring_old = |old: &mut usize, overlap: &mut Overlap, recorded: &mut Vec<u64>| {
            if *old < messages.len() {
                overlap.old(0, mark(messages[*old]));
                recorded.push(messages[*old]);
                *old += 1;
            }
        };
        let switch = |old: &mut usize, overlap: &mut Overlap, recorded: &mut Vec<u64>| {
            // The old socket is never given up before it has reached the place where the new one began.
            while *old < from {
                bring_old(old, overlap, recorded);
            }
            for held in overlap.switch(at(0)) {
                let n = u64::from_le_bytes(held.frame[..].try_into().unwrap());
                if overlap.is_due(0, mark(n)) {
                    recorded.push(n);
                }
            }
        };
        for (turn, is_old) in turns.iter().enumerate() {
            if turn == turns.len() / 2 {
                switch(&mut old, &mut overlap, &mut recorded);
                switched = true;
            }
            if *is_old && !switched {
                bring_old(&mut old, &mut overlap, &mut recorded);
            } else if !*is_old && new < messages.len() {
                let n = own.take().unwrap_or_else(|| {
                    new += 1;
                    messages[new - 1]
                });
                match overlap.new_one(0, mark(n)) {
                    Joining::Repeats => {}
                    Joining::IsNew if switched => recorded.push(n),
                    Joining::IsNew => {
                        overlap.hold(Bytes::from(n.to_le_bytes().to_vec()), wall(), vec![(0, mark(n))]);
                    }
                }
            }
            if !switched {
                overlap.is_ripe(at(0));
            }
        }
        if !switched {
            switch(&mut old, &mut overlap, &mut recorded);
        }
        for n in own.into_iter().chain(messages[new..].iter().copied()) {
            if overlap.new_one(0, mark(n)) == Joining::IsNew {
                recorded.push(n);
            }
        }
        recorded
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_doubled_whoever_is_faster(
            turns in prop::collection::vec(any::<bool>(), 0..120),
            from in 0usize..12,
            numbered in any::<bool>(),
        ) {
            let messages: Vec<u64> = (1..=30).collect();
            let mark = |n: u64| if numbered { Mark::Number(n) } else { Mark::Hash(n * 31) };
            prop_assert_eq!(play(&messages, from, &turns, mark), messages);
        }

        #[test]
        fn what_only_the_new_one_says_at_its_beginning_is_kept(
            turns in prop::collection::vec(any::<bool>(), 0..120),
            from in 0usize..12,
        ) {
            // The new socket begins with a message of its own, number 1000.
            let messages: Vec<u64> = (1..=30).collect();
            let mut recorded = play_from(&messages, from, &turns, |n| Mark::Hash(n * 31), Some(1_000));
            let own = recorded.iter().position(|n| *n == 1_000);
            prop_assert!(own.is_some());
            recorded.remove(own.unwrap());
            prop_assert_eq!(recorded, messages);
        }

        #[test]
        fn the_same_bytes_again_later_are_another_message(
            turns in prop::collection::vec(any::<bool>(), 0..120),
            from in 0usize..5,
        ) {
            // Every seventh message has the bytes of one before.
            let messages: Vec<u64> = (1..=30).collect();
            let recorded = play(&messages, from, &turns, |n| Mark::Hash(n % 7));
            let kinds: Vec<u64> = recorded.iter().map(|n| n % 7).collect();
            prop_assert_eq!(kinds, messages.iter().map(|n| n % 7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_the_new_one_says_first_may_be_what_the_old_one_said_last() {
        let last = [Some(Mark::Hash(7)), Some(Mark::Number(7))];
        let mut overlap = Overlap::new(last, OverlapSettings::default());
        assert_eq!(overlap.new_one(0, Mark::Hash(7)), Joining::Repeats);
        assert_eq!(overlap.new_one(0, Mark::Hash(7)), Joining::IsNew, "said twice by the new one");
        assert_eq!(overlap.new_one(1, Mark::Number(7)), Joining::Repeats);
        assert_eq!(overlap.new_one(1, Mark::Number(8)), Joining::IsNew);
    }

    #[test]
    fn it_ends_when_everyone_who_spoke_has_joined() {
        let mut overlap = Overlap::new([None, None, None], OverlapSettings::default());
        overlap.old(0, Mark::Hash(1));
        overlap.old(1, Mark::Hash(2));
        assert!(!overlap.is_ripe(at(10_000)), "not subscribed yet");
        overlap.settled(at(10_000));
        overlap.new_one(0, Mark::Hash(1));
        assert!(!overlap.is_ripe(at(12_000)), "the second has not spoken on the new one");
        overlap.new_one(1, Mark::Hash(3));
        assert!(!overlap.is_ripe(at(11_999)) && overlap.is_ripe(at(12_000)));
        assert!(overlap.has_joined(0) && overlap.has_joined(2), "the third is quiet on both");
    }

    #[test]
    fn it_ends_at_last_and_when_memory_is_short() {
        let mut overlap =
            Overlap::new([None], OverlapSettings { bytes_max: 10, ..OverlapSettings::default() });
        overlap.old(0, Mark::Hash(1));
        overlap.settled(at(0));
        assert!(!overlap.is_ripe(at(19_999)) && overlap.is_ripe(at(20_000)));
        assert!(!overlap.has_joined(0));
        assert_eq!(overlap.new_one(0, Mark::Hash(9)), Joining::IsNew);
        overlap.hold(Bytes::from_static(b"01234567890"), wall(), vec![(0, Mark::Hash(9))]);
        assert!(overlap.is_ripe(at(1)));
        overlap.old(0, Mark::Hash(9));
        assert!(!overlap.is_ripe(at(1)), "the old socket has brought it");
        assert_eq!((overlap.held_bytes, overlap.switch(at(1)).len()), (0, 0));
        assert!(!overlap.is_over(at(4_000)) && overlap.is_over(at(4_001)));
    }
}
