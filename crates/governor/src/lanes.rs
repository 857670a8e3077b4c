//! Who goes first: a line for each lane, better lanes first, and none waits for ever.
//!
//! Within a lane, whoever was due first goes first. Between lanes the better one goes, but whenever a lane that has
//! somebody waiting was passed over `patience` times, it is its turn. However busy the better lanes are, a live poll
//! gets at least every 5th turn, a gap fill every 10th, a backfill every 20th, give or take the turns of the others.

use std::collections::BTreeMap;

use catchment_model::Monotonic;

/// What a request is for; the more urgent lane goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// A book lost its place and shows nothing until it has a new snapshot.
    Resync,
    /// What is recorded as it happens.
    Live,
    /// A hole that somebody waits for.
    GapFill,
    /// History.
    Backfill,
}

impl Lane {
    /// All of them, the most urgent first.
    pub const ALL: [Lane; 4] = [Self::Resync, Self::Live, Self::GapFill, Self::Backfill];

    /// As it stands in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Live => "live",
            Self::GapFill => "gap_fill",
            Self::Backfill => "backfill",
        }
    }

    /// How often it is passed over before it is its turn.
    fn patience(self) -> u32 {
        match self {
            Self::Resync => u32::MAX,
            Self::Live => 4,
            Self::GapFill => 9,
            Self::Backfill => 19,
        }
    }

    fn at(self) -> usize {
        self as usize
    }
}

/// Everybody who waits for one thing.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lines: [BTreeMap<(Monotonic, u64), T>; 4],
    passed: [u32; 4],
    joined: u64,
}

/// A place in a line, until it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lane: Lane,
    key: (Monotonic, u64),
}

impl Place {
    /// When whoever stands here was due.
    pub(crate) fn due(self) -> Monotonic {
        self.key.0
    }
}

impl<T> Lanes<T> {
    pub(crate) fn new() -> Self {
        Self { lines: std::array::from_fn(|_| BTreeMap::new()), passed: [0; 4], joined: 0 }
    }

    /// Stands in line behind everybody of this lane who was due earlier or at the same time.
    pub(crate) fn join(&mut self, lane: Lane, due: Monotonic, who: T) -> Place {
        self.joined += 1;
        let place = Place { lane, key: (due, self.joined) };
        self.lines[lane.at()].insert(place.key, who);
        place
    }

    pub(crate) fn leave(&mut self, place: Place) -> Option<T> {
        let gone = self.lines[place.lane.at()].remove(&place.key);
        if self.lines[place.lane.at()].is_empty() {
            self.passed[place.lane.at()] = 0;
        }
        gone
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Place, &T)> {
        if self.is_empty() {
            return None; // as nearly always
        }
        let lane = self.ranked().into_iter().find(|lane| !self.lines[lane.at()].is_empty())?;
        let (key, who) = self.lines[lane.at()].first_key_value()?;
        Some((Place { lane, key: *key }, who))
    }

    /// One of this lane had a turn; the lanes in which `passed` finds somebody were passed over.
    pub(crate) fn served(&mut self, lane: Lane, passed: impl Fn(&T) -> bool) {
        self.passed[lane.at()] = 0;
        for worse in &Lane::ALL[lane.at() + 1..] {
            if self.lines[worse.at()].values().any(&passed) {
                self.passed[worse.at()] += 1;
            }
        }
    }

    /// Everybody whose turn comes before that of `place`, or of a newcomer in `lane`.
    pub(crate) fn ahead_of(&self, lane: Lane, place: Option<Place>) -> impl Iterator<Item = (Lane, &T)> {
        let better = self.ranked().into_iter().take_while(move |other| *other != lane);
        let before = move |key: &(Monotonic, u64)| place.is_none_or(|place| *key < place.key);
        let same = self.lines[lane.at()].iter().take_while(move |(key, _)| before(key));
        let same = same.map(move |(_, who)| (lane, who));
        better.flat_map(|lane| self.lines[lane.at()].values().map(move |who| (lane, who))).chain(same)
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.lines[place.lane.at()].get_mut(&place.key)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(BTreeMap::is_empty)
    }

    /// How many wait in each lane, the most urgent first.
    pub(crate) fn waiting(&self) -> [usize; 4] {
        std::array::from_fn(|lane| self.lines[lane].len())
    }

    /// Everybody, with the place each has, in no order that matters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        Lane::ALL.into_iter().flat_map(|lane| {
            self.lines[lane.at()].iter().map(move |(key, who)| (Place { lane, key: *key }, who))
        })
    }

    /// Lanes whose patience is over, then the others; each by urgency.
    fn ranked(&self) -> [Lane; 4] {
        let mut lanes = Lane::ALL;
        lanes.sort_by_key(|lane| self.passed[lane.at()] < lane.patience());
        lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(std::time::Duration::from_millis(ms))
    }

    fn serve(lanes: &mut Lanes<&'static str>) -> &'static str {
        let (place, _) = lanes.first().unwrap();
        let who = lanes.leave(place).unwrap();
        lanes.served(place.lane, |_| true);
        who
    }

    #[test]
    fn the_urgent_go_first_and_within_a_lane_whoever_was_due_first() {
        let mut lanes = Lanes::new();
        lanes.join(Lane::Backfill, at(0), "history");
        lanes.join(Lane::Live, at(5), "live, due at 5");
        lanes.join(Lane::Live, at(3), "live, due at 3");
        lanes.join(Lane::Live, at(3), "live, due at 3 as well");
        lanes.join(Lane::Resync, at(9), "resync");
        let order: Vec<_> = (0..5).map(|_| serve(&mut lanes)).collect();
        let expected = ["resync", "live, due at 3", "live, due at 3 as well", "live, due at 5", "history"];
        assert_eq!(order, expected);
        assert!(lanes.is_empty());
    }

    #[test]
    fn no_lane_starves_while_every_better_one_is_always_full() {
        let mut lanes = Lanes::new();
        for (lane, name) in Lane::ALL.into_iter().zip(["resync", "live", "gap_fill", "backfill"]) {
            lanes.join(lane, at(0), name);
        }
        let mut served = std::collections::BTreeMap::new();
        let mut last_backfill = 0;
        for turn in 0..1_000_u64 {
            let who = serve(&mut lanes);
            *served.entry(who).or_insert(0) += 1;
            let lane = Lane::ALL.into_iter().find(|lane| lane.as_str() == who).unwrap();
            lanes.join(lane, at(turn), who);
            if who == "backfill" {
                assert!(turn - last_backfill <= 23, "passed over for {} turns", turn - last_backfill);
                last_backfill = turn;
            }
        }
        assert!(served["resync"] >= 600, "{served:?}");
        assert!(served["live"] >= 150 && served["gap_fill"] >= 75 && served["backfill"] >= 43, "{served:?}");
    }

    #[test]
    fn those_ahead_are_the_better_lanes_and_the_earlier_of_the_same() {
        let mut lanes = Lanes::new();
        let check = |lanes: &Lanes<u8>, lane, place, expected: &[u8]| {
            assert_eq!(lanes.ahead_of(lane, place).map(|(_, who)| *who).collect::<Vec<_>>(), expected);
        };
        let first = lanes.join(Lane::Live, at(1), 1);
        let second = lanes.join(Lane::Live, at(2), 2);
        lanes.join(Lane::Backfill, at(0), 3);
        check(&lanes, Lane::Live, Some(first), &[]);
        check(&lanes, Lane::Live, Some(second), &[1]);
        check(&lanes, Lane::Live, None, &[1, 2]);
        check(&lanes, Lane::Resync, None, &[]);
        check(&lanes, Lane::Backfill, None, &[1, 2, 3]);
    }
}
