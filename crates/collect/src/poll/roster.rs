//! Who is polled.
//!
//! Discovery's snapshot says who is there. An instrument that is in it stays, also past its planned end: markets go on.
//! One that is missing from it
//! * stays until its expiry has passed, if it has one: a listing that shows half of the markets for an hour must not
//!   stop the recording of the others;
//! * otherwise leaves when a second, later snapshot does not have it either;
//! * leaves, whatever its expiry, when the venue has also disowned it four times in a row: said that it does not know
//!   it or has no book for it, or left it out of an answer that had others. A market may be decided months before its
//!   planned end.
//!
//! An instrument has a place that does not change while it is here; batches refer to places.

use std::collections::HashMap;
use std::sync::Arc;

use catchment_model::{Cause, Instrument, Monotonic, Snapshot, Symbol, UnixMs, UnixNs, Venue};

/// Where an instrument stands in the roster.
pub(crate) type Place = u32;

/// One that is absent leaves when the venue has disowned it so often; at least seven seconds apart, as it backs off.
const DISOWNED_MAX: u32 = 4;

/// One that is polled.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// Shared with the requests under way, which tell by it whether the place is still theirs.
    pub(crate) what: Arc<Instrument>,
    /// When its book came last or, before the first, when it joined.
    pub(crate) read_at: Monotonic,
    pub(crate) read_at_ms: UnixMs,
    /// Its book came at least once.
    pub(crate) is_read: bool,
    /// It has a record in the back-off.
    pub(crate) has_failed: bool,
    /// Why its last poll brought nothing.
    pub(crate) trouble: Option<Cause>,
    /// How often in a row the venue said that there is no such book, or left it out.
    pub(crate) disowned: u32,
    /// Up to when its gap has been told, if it is in one of its own.
    pub(crate) gap_told_to: Option<UnixMs>,
    pub(crate) gap_cause: Cause,
    /// The snapshot it was last seen in.
    seen_in: u64,
    /// How many snapshots in a row were without it.
    absent: u32,
}

impl Entry {
    /// The newest snapshot is without it.
    pub(crate) fn is_absent(&self) -> bool {
        self.absent > 0
    }
}

/// All that are polled at one venue.
#[derive(Debug)]
pub(crate) struct Roster {
    venue: Venue,
    entries: Vec<Option<Entry>>,
    free: Vec<Place>,
    by_key: HashMap<Box<str>, Place>,
    snapshots: u64,
    /// Of the snapshot that was taken over last.
    written_at: Option<UnixMs>,
    absent: usize,
}

/// What a snapshot changed. Those who left have still their place, until they are removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) joined: Vec<Place>,
    pub(crate) changed: Vec<Place>,
    pub(crate) left: Vec<Place>,
    /// Instruments that cannot be polled: another venue's, or with a name no record can have.
    pub(crate) refused: usize,
    /// The snapshot is older than the one before and was not looked at.
    pub(crate) is_older: bool,
}

impl Roster {
    pub(crate) fn new(venue: Venue) -> Self {
        let (entries, free, by_key) = Default::default();
        Self { venue, entries, free, by_key, snapshots: 0, written_at: None, absent: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Entry> {
        self.entries.get(place as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Entry> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    pub(crate) fn knows(&self, poll_key: &str) -> bool {
        self.by_key.contains_key(poll_key)
    }

    /// Takes over what discovery saw.
    pub(crate) fn adopt(&mut self, snapshot: Snapshot, now: Monotonic, wall: UnixNs) -> Changes {
        let mut changes = Changes::default();
        if self.written_at.is_some_and(|last| snapshot.written_at < last) {
            return Changes { is_older: true, ..changes };
        }
        self.written_at = Some(snapshot.written_at);
        self.snapshots += 1;
        for instrument in snapshot.instruments {
            if instrument.venue != self.venue || !is_recordable(&instrument) {
                changes.refused += 1;
                continue;
            }
            match self.by_key.get(instrument.poll_key.as_str()) {
                Some(place) => {
                    let entry = self.entries[*place as usize].as_mut().expect("known keys have places");
                    entry.seen_in = self.snapshots;
                    entry.absent = 0;
                    if *entry.what != instrument {
                        entry.what = Arc::new(instrument);
                        changes.changed.push(*place);
                    }
                }
                None => changes.joined.push(self.join(instrument, now, wall)),
            }
        }
        self.absent = 0;
        for entry in self.entries.iter_mut().flatten().filter(|entry| entry.seen_in != self.snapshots) {
            entry.absent += 1;
            self.absent += 1;
        }
        changes.left = self.leaving(wall);
        changes
    }

    /// Those whose time is up: absent, and disowned by the venue, expired, or without an expiry for the second time.
    /// Also to be asked between snapshots.
    pub(crate) fn leaving(&self, wall: UnixNs) -> Vec<Place> {
        if self.absent == 0 {
            return Vec::new();
        }
        let is_over = |entry: &Entry| match entry.what.expiry {
            _ if entry.is_absent() && entry.disowned >= DISOWNED_MAX => true,
            Some(expiry) => entry.is_absent() && expiry <= wall.ms(),
            None => entry.absent >= 2,
        };
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.as_ref().is_some_and(is_over))
            .map(|(place, _)| place as Place)
            .collect()
    }

    /// The place is free for another.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Entry> {
        let entry = self.entries.get_mut(place as usize)?.take()?;
        self.by_key.remove(entry.what.poll_key.as_str());
        self.free.push(place);
        self.absent = self.absent.saturating_sub(usize::from(entry.is_absent()));
        Some(entry)
    }

    fn join(&mut self, instrument: Instrument, now: Monotonic, wall: UnixNs) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as Place
        });
        self.by_key.insert(instrument.poll_key.as_str().into(), place);
        self.entries[place as usize] = Some(Entry {
            place,
            what: Arc::new(instrument),
            read_at: now,
            read_at_ms: wall.ms(),
            is_read: false,
            has_failed: false,
            trouble: None,
            disowned: 0,
            gap_told_to: None,
            gap_cause: Cause::Failure,
            seen_in: self.snapshots,
            absent: 0,
        });
        place
    }
}

fn is_recordable(instrument: &Instrument) -> bool {
    Symbol::new(&instrument.symbol).is_ok() && !instrument.poll_key.is_empty()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const WALL_MS: i64 = 1_798_761_600_000;

    pub(crate) fn instrument(key: &str, expiry_ms: Option<i64>) -> Instrument {
        Instrument {
            venue: Venue::new("lantern").unwrap(),
            poll_key: key.to_owned(),
            symbol: format!("S-{key}"),
            market_id: format!("M-{key}"),
            slug: None,
            outcome: None,
            expiry: expiry_ms.map(|ms| UnixMs::new(ms).unwrap()),
            tick_size: None,
            min_order_size: None,
        }
    }

    struct Rig {
        roster: Roster,
        written_at: i64,
    }

    impl Rig {
        fn new() -> Self {
            Self { roster: Roster::new(Venue::new("lantern").unwrap()), written_at: WALL_MS }
        }

        /// Reads `a b@5`: b expires five seconds after the start. Gives back who is polled then.
        fn snapshot(&mut self, listed: &str, seconds: i64) -> String {
            let instruments = listed.split_whitespace().map(|text| match text.split_once('@') {
                Some((key, expiry)) => {
                    instrument(key, Some(WALL_MS + expiry.parse::<i64>().unwrap() * 1_000))
                }
                None => instrument(text, None),
            });
            self.written_at += 1;
            let written_at = UnixMs::new(self.written_at).unwrap();
            let snapshot = Snapshot::new(Venue::new("lantern").unwrap(), written_at, instruments.collect());
            let changes = self.roster.adopt(snapshot, Monotonic::default(), wall(seconds));
            self.leave(&changes.left);
            self.names()
        }

        fn leave(&mut self, left: &[Place]) {
            left.iter().for_each(|place| assert!(self.roster.remove(*place).is_some()));
        }

        fn names(&self) -> String {
            let mut names: Vec<_> = self.roster.iter().map(|entry| entry.what.poll_key.clone()).collect();
            names.sort();
            names.join(" ")
        }
    }

    fn wall(seconds: i64) -> UnixNs {
        UnixNs::from_ms(WALL_MS + seconds * 1_000).unwrap()
    }

    #[test]
    fn an_instrument_that_disappears_is_polled_until_its_expiry() {
        let mut rig = Rig::new();
        assert_eq!(rig.snapshot("a@100 b@200", 0), "a b");
        assert_eq!(rig.snapshot("b@200", 1), "a b");
        assert_eq!(rig.snapshot("", 2), "a b");
        assert!(rig.roster.leaving(wall(99)).is_empty());
        let left = rig.roster.leaving(wall(100));
        rig.leave(&left);
        assert_eq!(rig.names(), "b");
    }

    #[test]
    fn one_without_an_expiry_leaves_at_the_second_snapshot_that_lacks_it() {
        let mut rig = Rig::new();
        assert_eq!(rig.snapshot("a b", 0), "a b");
        assert_eq!(rig.snapshot("b", 1), "a b");
        assert_eq!(rig.snapshot("a b", 2), "a b", "it came back");
        assert_eq!(rig.snapshot("b", 3), "a b", "and is counted anew");
        assert_eq!(rig.snapshot("b", 4), "b");
        assert_eq!(rig.roster.absent, 0);
    }

    #[test]
    fn one_that_the_venue_disowns_leaves_before_its_expiry_unless_it_is_listed() {
        let mut rig = Rig::new();
        rig.snapshot("a@9000 b@9000 c", 0);
        let places: Vec<Place> = rig.roster.iter().map(|entry| entry.place).collect();
        let disown = |rig: &mut Rig, times| {
            places.iter().for_each(|place| rig.roster.get_mut(*place).unwrap().disowned = times);
        };
        disown(&mut rig, DISOWNED_MAX);
        assert!(rig.roster.leaving(wall(1)).is_empty(), "all are listed");
        disown(&mut rig, DISOWNED_MAX - 1);
        assert_eq!(rig.snapshot("b@9000", 2), "a b c", "not yet often enough");
        disown(&mut rig, DISOWNED_MAX);
        let left = rig.roster.leaving(wall(3));
        rig.leave(&left);
        assert_eq!(rig.names(), "b");
        assert_eq!(rig.snapshot("a@9000 b@9000", 4), "a b", "it may come back");
        assert_eq!(rig.snapshot("b@9000", 5), "a b", "and is not blamed for what was before");
    }

    #[test]
    fn one_that_is_listed_stays_past_its_expiry() {
        let mut rig = Rig::new();
        assert_eq!(rig.snapshot("a@5", 0), "a");
        assert_eq!(rig.snapshot("a@5", 50), "a");
        assert!(rig.roster.leaving(wall(60)).is_empty());
        assert_eq!(rig.snapshot("", 61), "", "absent and expired");
    }

    #[test]
    fn an_older_snapshot_changes_nothing() {
        let mut rig = Rig::new();
        rig.snapshot("a b", 0);
        rig.written_at -= 100;
        assert_eq!(rig.snapshot("c", 1), "a b");
        assert_eq!(rig.snapshot("c", 1), "a b");
    }

    #[test]
    fn what_cannot_be_recorded_is_left_out_and_counted() {
        let mut rig = Rig::new();
        let mut strange = vec![instrument("a", None), instrument("a", None), instrument("", None)];
        strange.push(Instrument { venue: Venue::new("other").unwrap(), ..instrument("b", None) });
        strange.push(Instrument { symbol: "x".repeat(1_000), ..instrument("c", None) });
        let written_at = UnixMs::new(WALL_MS).unwrap();
        let snapshot = Snapshot::new(Venue::new("lantern").unwrap(), written_at, strange);
        let changes = rig.roster.adopt(snapshot, Monotonic::default(), wall(0));
        assert_eq!((changes.joined.len(), changes.refused, changes.changed.len()), (1, 3, 0));
    }

    #[test]
    fn a_hundred_thousand_come_and_go_and_places_are_used_again() {
        let mut rig = Rig::new();
        let many = |from: usize| (from..from + 100_000).map(|n| format!("k{n} ")).collect::<String>();
        rig.snapshot(&many(0), 0);
        assert_eq!(rig.roster.len(), 100_000);
        rig.snapshot(&many(50_000), 1);
        rig.snapshot(&many(50_000), 2);
        assert_eq!(rig.roster.len(), 100_000);
        assert_eq!(rig.roster.entries.len(), 150_000);
        rig.snapshot(&many(60_000), 3);
        assert_eq!(rig.roster.entries.len(), 150_000);
    }
}
