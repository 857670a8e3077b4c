//! Which candles an answer lacks.

use catchment_jobs::Span;
use catchment_model::{Candle, Timeframe, UnixMs};

/// The stretches of a span in which candles should open and none does. The candles are in order; the span begins where one
/// should open.
pub(super) fn lacking(timeframe: Timeframe, span: Span, candles: &[Candle]) -> Vec<Span> {
    let mut found = Vec::new();
    let mut expected = span.from;
    for open in candles.iter().map(|candle| candle.open_time).take_while(|open| *open < span.to) {
        if open > expected {
            found.push(Span { from: expected, to: open });
        }
        expected = expected.max(timeframe.next(open));
    }
    if expected < span.to {
        found.push(Span { from: expected, to: span.to });
    }
    found
}

/// The first moment from then on at which a candle opens.
pub(super) fn first_open(timeframe: Timeframe, from: UnixMs) -> UnixMs {
    let open = timeframe.open_of(from);
    if open < from { timeframe.next(open) } else { open }
}

/// Venues do not agree on which day three days, a week or a fortnight begin: nobody can say which of them are missing.
pub(super) fn can_tell(timeframe: Timeframe) -> bool {
    !matches!(timeframe, Timeframe::D3 | Timeframe::W1 | Timeframe::W2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> UnixMs {
        UnixMs::new(minute * 60_000).unwrap()
    }

    fn check(there: &[i64], lacks: &[(i64, i64)]) {
        let one = || "1".parse().unwrap();
        let candle = |minute: &i64| Candle {
            open_time: at(*minute),
            open: one(),
            high: one(),
            low: one(),
            close: one(),
            volume: one(),
            quote_volume: None,
            trades: None,
            is_final: true,
        };
        let candles: Vec<Candle> = there.iter().map(candle).collect();
        let lacks: Vec<Span> = lacks.iter().map(|(from, to)| Span { from: at(*from), to: at(*to) }).collect();
        assert_eq!(lacking(Timeframe::M1, Span { from: at(10), to: at(15) }, &candles), lacks, "{there:?}");
    }

    #[test]
    fn what_is_not_in_an_answer_is_told_by_stretches() {
        check(&[10, 11, 12, 13, 14], &[]);
        check(&[], &[(10, 15)]);
        check(&[12], &[(10, 12), (13, 15)]);
        check(&[10, 13, 14, 20], &[(11, 13)]);
    }
}
