//! Which errors get a record of their own: the first few of each kind in a minute. The rest are counted, and the next
//! record of that kind says how many there were.

use std::collections::BTreeMap;
use std::time::Duration;

use catchment_model::Monotonic;

const MINUTE: Duration = Duration::from_secs(60);

/// Decides, kind by kind.
#[derive(Debug)]
pub(crate) struct Sampler {
    per_minute: u32,
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    minute_began: Option<Monotonic>,
    told: u32,
    suppressed: u64,
}

impl Sampler {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { per_minute, kinds: BTreeMap::new() }
    }

    /// Whether this one is told and, if so, how many of its kind were not since the last one that was.
    pub(crate) fn admit(&mut self, kind: &'static str, now: Monotonic) -> Option<u64> {
        let kind = self.kinds.entry(kind).or_default();
        if kind.minute_began.is_none_or(|began| now.since(began) >= MINUTE) {
            kind.minute_began = Some(now);
            kind.told = 0;
        }
        if kind.told >= self.per_minute {
            kind.suppressed += 1;
            return None;
        }
        kind.told += 1;
        Some(std::mem::take(&mut kind.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_of_each_kind_are_told_a_minute_and_the_rest_counted() {
        let mut sampler = Sampler::new(2);
        let mut check = |kind, seconds, told| {
            assert_eq!(
                sampler.admit(kind, Monotonic(Duration::from_secs(seconds))),
                told,
                "{kind} at {seconds}"
            );
        };
        check("timeout", 0, Some(0));
        check("timeout", 1, Some(0));
        check("timeout", 2, None);
        check("html", 2, Some(0));
        check("timeout", 59, None);
        check("timeout", 60, Some(2));
        check("timeout", 61, Some(0));
        check("timeout", 62, None);
        check("timeout", 500, Some(1));
    }
}
