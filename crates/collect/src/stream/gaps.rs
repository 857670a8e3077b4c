//! What may be missing on a connection, per stream, and when it is told.
//!
//! A gap's bounds are receive times of messages: `from` is that of the last good one before, `to` of the first good one
//! after. Where a subscription is confirmed again and nothing comes (a quiet instrument), `to` is the time of the
//! confirmation, and it is told a few seconds later.
//!
//! A gap that is over within [`GapSettings::tell_after`] is one record. One that lasts is told in pieces that adjoin:
//! the first when it has lasted that long, another every minute, the last when it is over. So what is missing is in the
//! data within five seconds of being noticed, and a process that dies leaves it there.
//!
//! A jump in the numbering is known whole at once. It is held for a moment all the same, for messages that merely came in
//! the wrong order: if all that was missing arrives, there was no gap.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Cause, Gap, Monotonic, UnixMs};

/// When gaps are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GapSettings {
    /// A gap that has lasted this long since it was noticed is told, though it is not over.
    pub tell_after: Duration,
    /// And again every so often.
    pub piece: Duration,
    /// How long a message may be late without being missed.
    pub late_by: Duration,
}

impl Default for GapSettings {
    fn default() -> Self {
        Self {
            tell_after: Duration::from_secs(4),
            piece: Duration::from_secs(60),
            late_by: Duration::from_millis(500),
        }
    }
}

/// Numbers that are missing, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Whether each number in between is one message.
    pub(crate) is_count: bool,
}

/// A gap to be told, of the stream at `place`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) place: usize,
    pub(crate) gap: Gap,
}

/// The gaps of the streams of one connection.
#[derive(Debug)]
pub(crate) struct GapLedger {
    settings: GapSettings,
    streams: Vec<Stream>,
    held: Vec<Held>,
    /// How many streams have a gap that is open.
    open: usize,
}

/// More jumps than this are not held for late messages.
const HELD_MAX: usize = 256;

#[derive(Debug)]
struct Stream {
    channel: Arc<str>,
    /// When the last good message came; before the first, when we began to ask for it.
    good: UnixMs,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    cause: Cause,
    from: UnixMs,
    noticed: Monotonic,
    told_at: Option<Monotonic>,
    /// Confirmed again: its end, if no message comes soon.
    confirmed: Option<(UnixMs, Monotonic)>,
    /// What the numbering said when it began.
    missing: Option<Missing>,
    connection: Arc<str>,
}

#[derive(Debug)]
struct Held {
    place: usize,
    gap: Gap,
    missing: Missing,
    /// Of the missing ones, how many have come.
    came: u64,
    until: Monotonic,
}

impl GapLedger {
    /// For streams of these channels, asked for since `start`.
    pub(crate) fn new(
        channels: impl IntoIterator<Item = Arc<str>>,
        start: UnixMs,
        settings: GapSettings,
    ) -> Self {
        let stream = |channel| Stream { channel, good: start, open: None };
        Self { settings, streams: channels.into_iter().map(stream).collect(), held: Vec::new(), open: 0 }
    }

    /// A good message has come, `missing` being the numbers between it and the one before; if there are none and that is
    /// proved by the numbering, `is_proved`. Gives back the gap that it ends, if there was one.
    #[inline]
    pub(crate) fn good(
        &mut self,
        place: usize,
        received: UnixMs,
        missing: Option<&Missing>,
        is_proved: bool,
    ) -> Option<Told> {
        let stream = &mut self.streams[place];
        if stream.open.is_none() {
            // Receive times are the calendar's, which may step back; a gap does not.
            stream.good = received;
            return None;
        }
        let told = stream.close(place, received, missing.copied(), is_proved);
        stream.good = received;
        self.open -= 1;
        Some(told)
    }

    /// Nothing more will come for a while, for this reason. A gap that is open stays as it is.
    pub(crate) fn interrupt(&mut self, place: usize, cause: Cause, connection: &Arc<str>, now: Monotonic) {
        let stream = &mut self.streams[place];
        match &mut stream.open {
            Some(open) => open.confirmed = None,
            None => {
                self.open += 1;
                stream.open = Some(Open {
                    cause,
                    from: stream.good,
                    noticed: now,
                    told_at: None,
                    confirmed: None,
                    missing: None,
                    connection: Arc::clone(connection),
                });
            }
        }
    }

    /// Likewise, where the numbering says what is missing.
    pub(crate) fn interrupt_at(
        &mut self,
        place: usize,
        missing: Missing,
        connection: &Arc<str>,
        now: Monotonic,
    ) {
        self.interrupt(place, Cause::Sequence, connection, now);
        if let Some(open) = &mut self.streams[place].open {
            open.missing.get_or_insert(missing);
        }
    }

    /// The venue has confirmed that the stream flows again. If no message shows it soon, the gap ends here.
    pub(crate) fn confirmed(&mut self, place: usize, wall: UnixMs, now: Monotonic) {
        // A stream that was frozen had been confirmed as well: only a message shows that it is not any more.
        if let Some(open) = &mut self.streams[place].open
            && open.confirmed.is_none()
            && open.cause != Cause::Silence
        {
            open.confirmed = Some((wall, now));
        }
    }

    /// A message came whose number is not the next: told soon, unless what is missing comes after all.
    pub(crate) fn jump(
        &mut self,
        place: usize,
        missing: Missing,
        received: UnixMs,
        connection: &Arc<str>,
        now: Monotonic,
    ) -> Option<Told> {
        let stream = &self.streams[place];
        let gap = numbered(
            piece(&stream.channel, stream.good, received, Cause::Sequence, connection),
            Some(missing),
            true,
        );
        if self.held.len() == HELD_MAX {
            return Some(Told { place, gap });
        }
        let until = Monotonic(now.0 + self.settings.late_by);
        self.held.push(Held { place, gap, missing, came: 0, until });
        None
    }

    /// A message came with a number that was passed already. Whether it is one of those that were missing.
    pub(crate) fn late(&mut self, place: usize, first: u64, last: u64) -> bool {
        // A book that is begun anew because of it has a gap all the same; but these are not missing any more.
        if let Some(open) = &mut self.streams[place].open
            && open.missing.is_some_and(|missing| first <= missing.first && missing.last <= last)
        {
            open.missing = None;
            return true;
        }
        let covers = |held: &Held| {
            held.place == place && held.missing.first <= first && first <= last && last <= held.missing.last
        };
        let Some(at) = self.held.iter().position(covers) else { return false };
        let held = &mut self.held[at];
        held.came = held.came.saturating_add((last - first).saturating_add(1));
        if held.came > held.missing.last - held.missing.first {
            self.held.swap_remove(at);
        }
        true
    }

    /// Whether a gap of this stream is open, and why.
    pub(crate) fn open(&self, place: usize) -> Option<Cause> {
        self.streams[place].open.as_ref().map(|open| open.cause)
    }

    /// How many are open.
    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    /// To be called now and then. Gives back what is to be told.
    pub(crate) fn look(&mut self, now: Monotonic, wall: UnixMs) -> Vec<Told> {
        let mut told = Vec::new();
        if !self.held.is_empty() {
            let (due, held) = std::mem::take(&mut self.held).into_iter().partition(|held| held.until <= now);
            self.held = held;
            told.extend(due.into_iter().map(|Held { place, gap, .. }: Held| Told { place, gap }));
        }
        if self.open == 0 {
            return told;
        }
        for (place, stream) in self.streams.iter_mut().enumerate() {
            let Some(open) = &mut stream.open else { continue };
            if let Some((to, at)) = open.confirmed
                && now.since(at) >= self.settings.tell_after
            {
                told.push(stream.close(place, to, None, false));
                stream.good = to;
                self.open -= 1;
                continue;
            }
            let due = match open.told_at {
                None => now.since(open.noticed) >= self.settings.tell_after,
                Some(at) => now.since(at) >= self.settings.piece,
            };
            if due && open.confirmed.is_none() {
                let gap = piece(&stream.channel, open.from, wall, open.cause, &open.connection);
                (open.from, open.told_at) = (gap.to_ms, Some(now));
                told.push(Told { place, gap });
            }
        }
        told
    }

    /// It is over: whatever is open or held is told as it stands.
    pub(crate) fn end(&mut self, wall: UnixMs) -> Vec<Told> {
        let mut told: Vec<Told> =
            self.held.drain(..).map(|Held { place, gap, .. }| Told { place, gap }).collect();
        for (place, stream) in self.streams.iter_mut().enumerate() {
            if let Some(open) = &stream.open {
                let to = open.confirmed.map_or(wall, |(to, _)| to);
                told.push(stream.close(place, to, None, false));
            }
        }
        self.open = 0;
        told
    }
}

impl Stream {
    fn close(&mut self, place: usize, to: UnixMs, missing: Option<Missing>, is_proved: bool) -> Told {
        let open = self.open.take().expect("only an open gap is closed");
        let gap = piece(&self.channel, open.from, to, open.cause, &open.connection);
        Told { place, gap: numbered(gap, open.missing.or(missing), is_proved) }
    }
}

/// The calendar may step back; a gap does not.
fn piece(channel: &str, from: UnixMs, to: UnixMs, cause: Cause, connection: &str) -> Gap {
    let connection = Some(connection.to_owned());
    Gap { connection, ..Gap::new(channel, from, to.max(from), cause) }
}

/// What the numbering says: which are missing, or that none is.
fn numbered(gap: Gap, missing: Option<Missing>, is_proved: bool) -> Gap {
    match missing {
        Some(Missing { first, last, is_count }) => {
            let gap = gap.missing(first, last);
            if is_count { gap.records((last - first).saturating_add(1)) } else { gap }
        }
        None if is_proved => gap.records(0),
        None => gap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> UnixMs {
        UnixMs::new(ms).unwrap()
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    fn ledger(streams: usize) -> (GapLedger, Arc<str>) {
        let channels = (0..streams).map(|_| Arc::from("trades"));
        (GapLedger::new(channels, ms(1_000), GapSettings::default()), Arc::from("ws-0.1"))
    }

    fn missing(first: u64, last: u64) -> Missing {
        Missing { first, last, is_count: true }
    }

    #[test]
    fn what_comes_after_all_is_not_named_as_missing() {
        let (mut gaps, connection) = ledger(1);
        gaps.good(0, ms(2_000), None, true);
        gaps.interrupt_at(0, missing(3, 4), &connection, at(0));
        assert!(!gaps.late(0, 4, 4), "that is only a part of it");
        assert!(gaps.late(0, 3, 4));
        let told = gaps.good(0, ms(3_000), None, false).unwrap();
        assert_eq!(bounds(&told), (2_000, 3_000, Cause::Sequence, None));
        assert_eq!(told.gap.first_missing, None);
    }

    fn bounds(told: &Told) -> (i64, i64, Cause, Option<u64>) {
        (told.gap.from_ms.get(), told.gap.to_ms.get(), told.gap.cause, told.gap.records)
    }

    #[test]
    fn a_short_interruption_is_one_record_with_exact_bounds() {
        let (mut gaps, connection) = ledger(2);
        assert_eq!(gaps.good(0, ms(5_000), None, true), None);
        gaps.interrupt(0, Cause::Disconnect, &connection, at(100));
        gaps.interrupt(0, Cause::Silence, &connection, at(150)); // the first reason stays
        assert_eq!(gaps.look(at(200), ms(5_100)), []);
        let told = gaps.good(0, ms(7_500), Some(&missing(11, 14)), true).unwrap();
        assert_eq!(bounds(&told), (5_000, 7_500, Cause::Disconnect, Some(4)));
        assert_eq!(told.gap.first_missing.as_deref(), Some("11"));
        assert_eq!(told.gap.connection.as_deref(), Some("ws-0.1"));
        assert_eq!((gaps.open_count(), gaps.good(0, ms(7_600), None, true)), (0, None));
        // Nothing was missed, and the numbering proves it.
        gaps.interrupt(0, Cause::Disconnect, &connection, at(300));
        assert_eq!(gaps.good(0, ms(8_000), None, true).unwrap().gap.records, Some(0));
        // One that never spoke is missed since we asked.
        gaps.interrupt(1, Cause::Disconnect, &connection, at(300));
        assert_eq!(
            bounds(&gaps.good(1, ms(9_000), None, false).unwrap()),
            (1_000, 9_000, Cause::Disconnect, None)
        );
    }

    #[test]
    fn a_long_one_is_told_in_pieces_that_adjoin() {
        let (mut gaps, connection) = ledger(1);
        gaps.good(0, ms(5_000), None, false);
        gaps.interrupt(0, Cause::Disconnect, &connection, at(0));
        let mut told = Vec::new();
        for second in 1..=130 {
            told.extend(gaps.look(at(second * 1_000), ms(5_000 + second as i64 * 1_000)));
        }
        told.extend(gaps.good(0, ms(140_000), None, false));
        let bounds: Vec<_> = told.iter().map(|t| (t.gap.from_ms.get(), t.gap.to_ms.get())).collect();
        assert_eq!(bounds, [(5_000, 9_000), (9_000, 69_000), (69_000, 129_000), (129_000, 140_000)]);
    }

    #[test]
    fn a_quiet_stream_is_whole_from_its_confirmation_on() {
        let (mut gaps, connection) = ledger(1);
        gaps.good(0, ms(5_000), None, false);
        gaps.interrupt(0, Cause::Disconnect, &connection, at(0));
        gaps.confirmed(0, ms(5_700), at(700));
        gaps.confirmed(0, ms(5_900), at(900)); // the first counts
        assert_eq!(gaps.look(at(4_600), ms(9_600)), []);
        let told = gaps.look(at(4_700), ms(9_700));
        assert_eq!(bounds(&told[0]), (5_000, 5_700, Cause::Disconnect, None));
        // Confirmed, then lost again before a message: still the same gap.
        gaps.interrupt(0, Cause::Disconnect, &connection, at(5_000));
        gaps.confirmed(0, ms(10_000), at(5_100));
        gaps.interrupt(0, Cause::Disconnect, &connection, at(5_200));
        assert_eq!(
            bounds(&gaps.good(0, ms(12_000), None, false).unwrap()),
            (5_700, 12_000, Cause::Disconnect, None)
        );
    }

    #[test]
    fn a_jump_is_told_unless_what_was_missing_comes_late() {
        let (mut gaps, connection) = ledger(1);
        gaps.good(0, ms(5_000), None, true);
        assert_eq!(gaps.jump(0, missing(7, 8), ms(5_200), &connection, at(0)), None);
        gaps.good(0, ms(5_200), None, true);
        assert!(gaps.late(0, 8, 8) && gaps.late(0, 7, 7));
        assert!(!gaps.late(0, 7, 7), "a second time it is a repetition");
        assert_eq!(gaps.look(at(10_000), ms(9_000)), []);

        gaps.jump(0, missing(10, 12), ms(5_400), &connection, at(0));
        gaps.good(0, ms(5_400), None, true);
        assert!(gaps.late(0, 11, 11));
        assert_eq!(gaps.look(at(499), ms(9_000)), []);
        let told = gaps.look(at(500), ms(9_000));
        assert_eq!(bounds(&told[0]), (5_200, 5_400, Cause::Sequence, Some(3)));
    }

    #[test]
    fn the_end_tells_what_is_open_and_a_clock_set_back_makes_no_negative_gap() {
        let (mut gaps, connection) = ledger(2);
        gaps.good(0, ms(5_000), None, true);
        gaps.jump(0, missing(3, 3), ms(5_001), &connection, at(0));
        gaps.interrupt(1, Cause::Silence, &connection, at(0));
        let told = gaps.end(ms(500));
        assert_eq!(told.len(), 2);
        assert_eq!(bounds(&told[1]), (1_000, 1_000, Cause::Silence, None));
        assert_eq!(gaps.end(ms(600)), []);
    }
}
