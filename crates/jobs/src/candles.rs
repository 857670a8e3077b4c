//! What a candle belongs to, stretches of time, and which candles are missing in one.

use catchment_model::{Timeframe, UnixMs, Venue};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// The candles of one symbol in one timeframe.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Series {
    /// Where.
    pub exchange_id: Venue,
    /// What.
    pub symbol: String,
    /// How long each is.
    pub timeframe: Timeframe,
}

/// A stretch of time: from its first moment up to, not including, its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The first moment.
    pub from: UnixMs,
    /// The first moment after it.
    pub to: UnixMs,
}

impl Span {
    /// If it is one.
    pub fn new(from: UnixMs, to: UnixMs) -> Result<Self, StoreError> {
        if from < to {
            return Ok(Self { from, to });
        }
        let (from, to) = (from.get(), to.get());
        Err(StoreError::invalid("to", format!("is {to}, which is not after from {from}")))
    }
}

/// Why a stretch has no candles, and will have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoleKind {
    /// The venue itself has none.
    Absent,
    /// The venue may have had some, and does not give them any more.
    Unreachable,
}

impl HoleKind {
    /// All of them.
    pub const ALL: [HoleKind; 2] = [Self::Absent, Self::Unreachable];

    /// As it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A stretch without candles that is not asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hole {
    /// Where.
    pub span: Span,
    /// Why.
    pub kind: HoleKind,
}

impl Hole {
    /// The venue has none.
    pub fn absent(span: Span) -> Self {
        Self { span, kind: HoleKind::Absent }
    }

    /// The venue gives none any more.
    pub fn unreachable(span: Span) -> Self {
        Self { span, kind: HoleKind::Unreachable }
    }
}

/// What a series has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// How many candles.
    pub candles: u64,
    /// When the first opens.
    pub first: UnixMs,
    /// When the last opens.
    pub last: UnixMs,
}

/// Finds what is missing in a span, told the open times that are there, in order.
#[derive(Debug)]
pub struct Missing {
    timeframe: Timeframe,
    /// The next candle that should be there.
    expected: UnixMs,
    to: UnixMs,
    holes: Vec<Span>,
    found: Vec<Span>,
    limit: usize,
}

impl Missing {
    /// Holes are what the venue itself does not have; they are not missing. Only candles that open within the span count,
    /// and one that has not closed by `now` is not missing yet.
    pub fn new(timeframe: Timeframe, span: Span, mut holes: Vec<Span>, now: UnixMs, limit: usize) -> Self {
        let open = timeframe.open_of(span.from);
        let expected = if open < span.from { timeframe.next(open) } else { open };
        holes.sort_unstable();
        Self { timeframe, expected, to: span.to.min(timeframe.open_of(now)), holes, found: Vec::new(), limit }
    }

    /// There is a candle that opens then. `false`: enough was found, the rest need not be told.
    pub fn there_is(&mut self, open: UnixMs) -> bool {
        if open > self.expected {
            self.lacks(Span { from: self.expected, to: open.min(self.to) });
        }
        self.expected = self.expected.max(self.timeframe.next(open));
        self.found.len() < self.limit
    }

    /// Everything was told.
    pub fn end(mut self) -> Vec<Span> {
        if self.expected < self.to && self.found.len() < self.limit {
            self.lacks(Span { from: self.expected, to: self.to });
        }
        self.found.truncate(self.limit);
        self.found
    }

    /// Leaves out the holes.
    fn lacks(&mut self, span: Span) {
        let mut from = span.from;
        for hole in &self.holes {
            if hole.to <= from || hole.from >= span.to {
                continue;
            }
            if hole.from > from {
                self.found.push(Span { from, to: hole.from });
            }
            from = from.max(hole.to);
        }
        if from < span.to {
            self.found.push(Span { from, to: span.to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_ms;

    const MINUTE: i64 = 60_000;

    fn spans(pairs: &[(i64, i64)]) -> Vec<Span> {
        pairs
            .iter()
            .map(|(from, to)| Span { from: from_ms(from * MINUTE), to: from_ms(to * MINUTE) })
            .collect()
    }

    /// In minutes: candles there, holes known, what is missing of 10 up to 20.
    fn check(there: &[i64], holes: &[(i64, i64)], missing: &[(i64, i64)]) {
        let span = spans(&[(10, 20)])[0];
        let mut find = Missing::new(Timeframe::M1, span, spans(holes), from_ms(100 * MINUTE), 100);
        for minute in there {
            find.there_is(from_ms(minute * MINUTE));
        }
        assert_eq!(find.end(), spans(missing), "{there:?} without {holes:?}");
    }

    #[test]
    fn what_is_not_there_and_no_hole_is_missing() {
        check(&[], &[], &[(10, 20)]);
        check(&[10, 11, 12, 13, 14, 15, 16, 17, 18, 19], &[], &[]);
        check(&[11, 12, 13, 16, 17, 18], &[], &[(10, 11), (14, 16), (19, 20)]);
        check(&[11, 12, 13, 16, 17, 18], &[(14, 15), (19, 20)], &[(10, 11), (15, 16)]);
        check(&[15], &[(0, 12), (13, 14), (18, 40)], &[(12, 13), (14, 15), (16, 18)]);
        check(&[10, 19], &[(11, 13), (12, 19)], &[]);
    }

    #[test]
    fn what_has_not_closed_is_not_missing_yet() {
        let span = spans(&[(10, 20)])[0];
        let find = Missing::new(Timeframe::M1, span, Vec::new(), from_ms(12 * MINUTE + 59_999), 100);
        assert_eq!(find.end(), spans(&[(10, 12)]));
    }

    #[test]
    fn enough_is_enough() {
        let span = spans(&[(0, 100)])[0];
        let mut find = Missing::new(Timeframe::M1, span, Vec::new(), from_ms(100 * MINUTE), 2);
        let told = (0..100).step_by(2).take_while(|minute| find.there_is(from_ms(minute * MINUTE))).count();
        assert_eq!(told, 2);
        assert_eq!(find.end(), spans(&[(1, 2), (3, 4)]));
    }
}
